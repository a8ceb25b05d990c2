//! What is done to the server and to the clients.

use crate::clients::Clients;
use postgres::{Client, Config, NoTls};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use taskq_server_tests::{Random, Server, Stop, eventually, pause, signal, signals};

pub struct Faults<'a> {
    pub server: &'a Server,
    pub config: Config,
    pub random: Random,
    pub counts: BTreeMap<&'static str, u64>,
    connection: Option<Client>,
    /// Stopped clients, and when they go on.
    stopped: Vec<(u32, Instant)>,
}

/// Kinds after which the server had to recover.
pub const CRASHES: [&str; 5] = [
    "immediate stop",
    "postmaster killed",
    "all processes killed",
    "backend killed",
    "keeper killed with -9",
];

impl<'a> Faults<'a> {
    pub fn new(server: &'a Server, config: Config, random: Random) -> Self {
        Faults { server, config, random, counts: BTreeMap::new(), connection: None, stopped: Vec::new() }
    }

    pub fn crashes(&self) -> u64 {
        CRASHES.iter().filter_map(|kind| self.counts.get(kind)).sum()
    }

    pub fn disconnect(&mut self) {
        self.connection = None;
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
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

    /// A fault that the server survives.
    pub fn small(&mut self, clients: &mut Clients) {
        const SESSION: &str =
            "from pg_stat_activity where application_name like 'soak-%' order by random() limit 1";
        const KEEPER: &str = "from pg_stat_activity
             where backend_type = 'taskq keeper' and datname = current_database()";
        match self.random.below(12) {
            0..=2 => {
                if self.ask(&format!("select pg_terminate_backend(pid)::integer {SESSION}")) == Some(1) {
                    self.count("sessions terminated");
                }
            }
            3..=4 => {
                let busy = SESSION.replace("order", "and state = 'active' order");
                if self.ask(&format!("select pg_cancel_backend(pid)::integer {busy}")) == Some(1) {
                    self.count("sessions cancelled");
                }
            }
            5..=7 => {
                if let Some(pid) = clients.any_pid(&mut self.random)
                    && !self.stopped.iter().any(|(other, _)| *other == pid)
                {
                    signal(pid, signals::SIGSTOP);
                    let time = Duration::from_millis(500 + self.random.below(5000));
                    self.stopped.push((pid, Instant::now() + time));
                    self.count("clients stopped for a while");
                }
            }
            8 => {
                if let Some(pid) = clients.any_pid(&mut self.random) {
                    signal(pid, signals::SIGKILL);
                    self.count("clients killed");
                }
            }
            9 => {
                if self.ask(&format!("select pg_terminate_backend(pid)::integer {KEEPER}")) == Some(1) {
                    self.count("keeper terminated");
                }
            }
            10 => {
                if self.ask(&format!("select pg_cancel_backend(pid)::integer {KEEPER}")) == Some(1) {
                    self.count("keeper cancelled");
                }
            }
            _ => {
                self.ask("checkpoint");
                self.count("checkpoints");
            }
        }
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

    /// The server crashes, and comes again.
    pub fn crash(&mut self) {
        self.connection = None;
        let kind = CRASHES[self.random.below(5) as usize];
        match kind {
            "immediate stop" => {
                self.server.stop(Stop::Immediate);
                self.server.start_again();
            }
            "postmaster killed" => {
                self.server.kill_postmaster();
                self.server.start_again();
            }
            "all processes killed" => {
                self.server.kill();
                self.server.start_again();
            }
            _ => {
                let victim = if kind == "backend killed" { "client backend" } else { "taskq keeper" };
                let pid = self.ask(&format!(
                    "select pid from pg_stat_activity where backend_type = '{victim}' and pid <> pg_backend_pid()
                        and datname = current_database() order by random() limit 1"
                ));
                let Some(pid) = pid.and_then(|pid| u32::try_from(pid).ok()) else { return };
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
        self.count(kind);
    }
}
