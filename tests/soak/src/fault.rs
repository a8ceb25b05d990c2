//! What is done to the server and to the clients.

use crate::clients::Clients;
use postgres::{Client, Config, NoTls};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use taskq_server_tests::{Random, Server, Stop, eventually, pause, signal, signals};

/// Kinds after which the server had to recover.
const CRASHES: [&str; 5] = [
    "immediate stop",
    "postmaster killed",
    "all processes killed",
    "backend killed",
    "keeper killed with -9",
];

/// Kinds that the server survives.
const SMALL: [&str; 7] = [
    "sessions terminated",
    "sessions cancelled",
    "clients stopped for a while",
    "clients killed",
    "keeper terminated",
    "keeper cancelled",
    "checkpoints",
];
/// How often each of them comes.
const WEIGHTS: [u64; 7] = [3, 2, 3, 1, 1, 1, 1];

/// Runs with consecutive seeds in which each kind comes at least once.
pub const ROUND: u64 = 3;

pub fn kinds() -> impl Iterator<Item = &'static str> {
    CRASHES.into_iter().chain(SMALL)
}

/// What comes next, and to whom. It stays so until it could be done: what comes after what is a matter of the
/// seed alone.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Choice {
    kind: &'static str,
    client: u64,
    time: Duration,
}

struct Choices {
    kinds: &'static [&'static str],
    weights: &'static [u64],
    seed: u64,
    clients: u64,
    random: Random,
    made: u64,
    next: Choice,
}

impl Choices {
    fn new(kinds: &'static [&'static str], weights: &'static [u64], seed: u64, clients: u64) -> Self {
        let random = Random::new(seed * 10 + kinds.len() as u64);
        let next = Choice { kind: "", client: 0, time: Duration::ZERO };
        let mut choices = Choices { kinds, weights, seed, clients, random, made: 0, next };
        choices.choose();
        choices
    }

    /// So many of a run are enough for each kind to come in a round.
    fn enough(&self) -> u64 {
        (self.kinds.len() as u64).div_ceil(ROUND)
    }

    /// First all kinds in turn, beginning where the run with the seed before has certainly come to; then any.
    fn choose(&mut self) {
        let number = self.kinds.len() as u64;
        let mut dice = self.random.below(self.weights.iter().sum());
        let turn = (self.seed % number * self.enough() + self.made) % number;
        let any = self.weights.iter().position(|weight| {
            let here = dice < *weight;
            dice = dice.saturating_sub(*weight);
            here
        });
        let kind = if self.made < number { Some(turn as usize) } else { any };
        self.next = Choice {
            kind: self.kinds[kind.unwrap_or_default()],
            client: 1 + self.random.below(self.clients),
            time: Duration::from_millis(500 + self.random.below(5000)),
        };
    }

    fn done(&mut self) {
        self.made += 1;
        self.choose();
    }
}

pub struct Faults<'a> {
    server: &'a Server,
    config: Config,
    crashes: Choices,
    small: Choices,
    pub counts: BTreeMap<&'static str, u64>,
    connection: Option<Client>,
    /// Stopped clients, and when they go on.
    stopped: Vec<(u32, Instant)>,
}

const KEEPER: &str =
    "from pg_stat_activity where backend_type = 'taskq keeper' and datname = current_database()";

/// The session of this client, or else of the next one that has one of that kind.
fn session(from: u64, which: &str) -> String {
    format!(
        "from pg_stat_activity where application_name like 'soak-%' and {which}
          order by (substr(application_name, 6)::integer - {from} + 1000) % 1000 limit 1"
    )
}

impl<'a> Faults<'a> {
    pub fn new(server: &'a Server, config: Config, seed: u64, clients: u64) -> Self {
        Faults {
            server,
            config,
            crashes: Choices::new(&CRASHES, &[1; 5], seed, clients),
            small: Choices::new(&SMALL, &WEIGHTS, seed, clients),
            counts: BTreeMap::new(),
            connection: None,
            stopped: Vec::new(),
        }
    }

    pub fn crashes(&self) -> u64 {
        self.crashes.made
    }

    /// Whether the run has had its share of all kinds.
    pub fn enough(&self) -> bool {
        [&self.crashes, &self.small].iter().all(|choices| choices.made >= choices.enough())
    }

    pub fn disconnect(&mut self) {
        self.connection = None;
    }

    /// A number from a query, if there is a connection and a row.
    fn ask(&mut self, sql: &str) -> Option<i32> {
        if self.connection.is_none() {
            self.connection = self.config.connect(NoTls).ok();
        }
        match self.connection.as_mut()?.query_opt(sql, &[]) {
            Ok(row) => row?.get(0),
            Err(_) => {
                self.connection = None;
                None
            }
        }
    }

    /// Whether the query returned 1, as true.
    fn sent(&mut self, signal: &str, to: &str) -> bool {
        self.ask(&format!("select {signal}(pid)::integer {to}")) == Some(1)
    }

    /// A fault that the server survives.
    pub fn small(&mut self, clients: &mut Clients) {
        let Choice { kind, client, time } = self.small.next;
        let done = match kind {
            "sessions terminated" => self.sent("pg_terminate_backend", &session(client, "true")),
            "sessions cancelled" => self.sent("pg_cancel_backend", &session(client, "state = 'active'")),
            "clients stopped for a while" => self.stop_client(clients.pids_from(client), time),
            "clients killed" => clients.pids_from(client).next().is_some_and(|pid| {
                signal(pid, signals::SIGKILL);
                true
            }),
            "keeper terminated" => self.sent("pg_terminate_backend", KEEPER),
            "keeper cancelled" => self.sent("pg_cancel_backend", KEEPER),
            _ => {
                self.ask("checkpoint");
                self.connection.is_some()
            }
        };
        if done {
            *self.counts.entry(kind).or_default() += 1;
            self.small.done();
        }
    }

    /// Stops the first client that is not stopped yet.
    fn stop_client(&mut self, mut pids: impl Iterator<Item = u32>, time: Duration) -> bool {
        let pid = pids.find(|pid| !self.stopped.iter().any(|(other, _)| other == pid));
        if let Some(pid) = pid {
            signal(pid, signals::SIGSTOP);
            self.stopped.push((pid, Instant::now() + time));
        }
        pid.is_some()
    }

    /// Clients that have been stopped for long enough go on.
    pub fn go_on(&mut self, all: bool) {
        self.stopped.retain(|(pid, until)| {
            let over = all || Instant::now() >= *until;
            if over {
                signal(*pid, signals::SIGCONT);
            }
            !over
        });
    }

    /// The server crashes, and comes again. False if just now it could not.
    pub fn crash(&mut self) -> bool {
        let Choice { kind, client, .. } = self.crashes.next;
        match kind {
            "immediate stop" => {
                self.connection = None;
                self.server.stop(Stop::Immediate);
                self.server.start_again();
            }
            "postmaster killed" => {
                self.connection = None;
                self.server.kill_postmaster();
                self.server.start_again();
            }
            "all processes killed" => {
                self.connection = None;
                self.server.kill();
                self.server.start_again();
            }
            _ => {
                let victim =
                    if kind == "backend killed" { session(client, "true") } else { KEEPER.to_owned() };
                let pid = self.ask(&format!("select pid {victim}"));
                let Some(pid) = pid.and_then(|pid| u32::try_from(pid).ok()) else { return false };
                signal(pid, signals::SIGKILL);
                // The server ends all others, our session among them, and recovers.
                eventually("the server has noticed", 30, || {
                    let gone = self.connection.as_mut().is_none_or(|client| client.simple_query("").is_err());
                    pause(0.02);
                    gone
                });
                self.connection = None;
                let config = self.config.clone();
                eventually("the server is there again", 60, || config.connect(NoTls).is_ok());
            }
        }
        *self.counts.entry(kind).or_default() += 1;
        self.crashes.done();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first choices of a run.
    fn first(kinds: &'static [&'static str], weights: &'static [u64], seed: u64, number: u64) -> Vec<Choice> {
        let mut choices = Choices::new(kinds, weights, seed, 8);
        let next = |_| {
            let next = choices.next;
            choices.done();
            next
        };
        (0..number).map(next).collect()
    }

    #[test]
    fn each_kind_comes_in_a_round_of_runs_that_had_enough() {
        for seed in (1..100).chain([1_796_004_000_000]) {
            for (kinds, weights, enough) in [(&CRASHES[..], &[1; 5][..], 2), (&SMALL[..], &WEIGHTS[..], 3)] {
                let runs = (seed..seed + ROUND).flat_map(|seed| first(kinds, weights, seed, enough));
                let mut came: Vec<&str> = runs.map(|choice| choice.kind).collect();
                came.sort_unstable();
                came.dedup();
                assert_eq!(came.len(), kinds.len(), "seeds from {seed}: {came:?}");
            }
        }
    }

    #[test]
    fn a_seed_repeats_all_choices() {
        let run = |seed| first(&SMALL, &WEIGHTS, seed, 200);
        assert_eq!(run(5), run(5));
        assert_ne!(run(5), run(6));
        assert!((1..=8).all(|client| run(5).iter().any(|choice| choice.client == client)));
    }
}
