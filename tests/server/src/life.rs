//! A queue's life by a clock of its own: producers and workers that are sessions, and verbs that are real, but hours
//! that pass in seconds. A tick is ten seconds, at whose end the keeper's duties are done, a sample among them.

use crate::server::Server;
use crate::session::{Session, sqlstate};
use postgres::Client;
use std::time::{Duration, Instant};

/// Seconds of a tick: the interval of samples.
const TICK: f64 = 10.0;
/// So many ticks, and the usual is known.
pub const USUAL: usize = 50;

/// What a worker has in hand.
pub struct Task {
    pub id: i64,
    pub task_type: String,
}

/// How a run goes: it takes so many seconds, and fails with an error or succeeds. A task that hangs is never ended,
/// and its lease is kept up as long as its worker lives.
pub struct Run {
    pub seconds: f64,
    pub error: Option<String>,
}

impl Run {
    pub fn takes(seconds: f64) -> Run {
        Run { seconds, error: None }
    }

    pub fn fails(seconds: f64, error: &str) -> Run {
        Run { seconds, error: Some(error.to_owned()) }
    }

    pub fn hangs() -> Run {
        Run::takes(f64::INFINITY)
    }
}

struct Holding {
    id: i64,
    token: i64,
    ends_at: f64,
    error: Option<String>,
}

struct Worker {
    name: String,
    client: Client,
    queues: &'static str,
    holding: Option<Holding>,
    free_at: f64,
}

/// Enqueues what arrives in a tick.
pub struct Arrival {
    /// The arguments of enqueue in SQL, in which n counts from 1.
    pub enqueue: &'static str,
    pub number: usize,
}

pub struct Life<'a> {
    server: &'a Server,
    name: String,
    pub client: Client,
    /// Seconds ahead of the real clock.
    now: f64,
    ticks: usize,
    maintained: Option<Instant>,
    workers: Vec<Worker>,
    pub arrivals: Vec<Arrival>,
    pub handler: Box<dyn FnMut(&Task) -> Run>,
    /// Whether workers prolong the leases of what they hold; how long these are, in SQL.
    pub heartbeat: bool,
    pub lease: &'static str,
    /// Seconds after a task before its worker asks for the next one.
    pub between: f64,
}

/// A row of diagnose.
#[derive(Debug)]
pub struct Finding {
    pub finding: String,
    pub severity: String,
    pub cause: String,
    pub evidence: String,
    pub advice: String,
}

impl<'a> Life<'a> {
    /// A new database without a keeper, whose duties are done at each tick.
    pub fn begin(server: &'a Server, name: &str) -> Life<'a> {
        let database = server.empty_database(name);
        server.connect("postgres").run(&format!("alter database \"{name}\" set taskq.keeper = off"));
        let mut client = database.connect();
        client.run("create extension taskq");
        Life {
            server,
            name: name.to_owned(),
            client,
            now: 0.0,
            ticks: 0,
            maintained: None,
            workers: Vec::new(),
            arrivals: vec![Arrival { enqueue: "'a', queue => 'q'", number: 4 }],
            handler: Box::new(|_| Run::takes(1.0)),
            heartbeat: true,
            lease: "5 min",
            between: 0.0,
        }
    }

    pub fn connect(&self) -> Client {
        self.server.connect(&self.name)
    }

    /// Starts a worker of these queues (an array in SQL).
    pub fn start_worker(&mut self, name: &str, queues: &'static str) {
        let client = self.connect();
        self.workers.push(Worker { name: name.to_owned(), client, queues, holding: None, free_at: self.now });
    }

    /// The worker's process dies: its connection breaks, and what it holds stays as it is.
    pub fn kill_worker(&mut self, name: &str) {
        let at = self.workers.iter().position(|worker| worker.name == name).expect("a worker of that name");
        let mut dead = self.workers.swap_remove(at);
        let pid = dead.client.pid();
        drop(dead);
        crate::eventually("its session has ended", 20, || {
            !self.client.value::<bool>("select exists (select from pg_stat_activity where pid = $1)", &[&pid])
        });
    }

    pub fn ticks(&mut self, number: usize) {
        for _ in 0..number {
            self.tick();
        }
    }

    pub fn tick(&mut self) {
        set_clock(&mut self.client, self.now);
        self.ticks += 1;
        for arrival in &self.arrivals {
            self.client.run(&format!(
                "select taskq.enqueue({}) from generate_series(1, {}) n",
                arrival.enqueue, arrival.number
            ));
        }
        let until = self.now + TICK;
        // What happens next happens first.
        while let Some(worker) = self
            .workers
            .iter_mut()
            .filter(|worker| worker.next() < until)
            .min_by(|a, b| a.next().total_cmp(&b.next()))
        {
            worker.step(&mut self.handler, self.lease, self.between);
        }
        if self.heartbeat {
            self.workers.iter_mut().for_each(|worker| worker.beat(until, self.lease));
        }
        self.now = until;
        set_clock(&mut self.client, self.now);
        // All duties are timed by the real clock.
        if self.maintained.is_none_or(|at| at.elapsed() > Duration::from_secs(5)) {
            self.client.run("call taskq.maintain()");
            self.maintained = Some(Instant::now());
        }
        self.client.run("select taskq._run_duty('recover')");
        self.client.run("select taskq._run_duty('sample')");
    }

    pub fn diagnose(&mut self, queue: Option<&str>) -> Vec<Finding> {
        let rows = self.client.query(
            "select finding, severity, cause, evidence, coalesce(advice, '') from taskq.diagnose($1) order by rank",
            &[&queue],
        );
        let rows = rows.expect("diagnose");
        let finding = |row: &postgres::Row| Finding {
            finding: row.get(0),
            severity: row.get(1),
            cause: row.get(2),
            evidence: row.get(3),
            advice: row.get(4),
        };
        rows.iter().map(finding).collect()
    }

    /// All is well.
    pub fn expect_nothing(&mut self) {
        let found = self.diagnose(None);
        assert!(found.len() == 1 && found[0].finding == "nothing_found", "{found:#?}");
    }

    /// This is the first finding within so many ticks, for the queue and for all of them, and has these words in its
    /// cause, evidence and advice. Nothing else was first before.
    pub fn expect_first(&mut self, finding: &str, ticks: usize, words: &[&str]) -> Finding {
        for _ in 0..ticks {
            self.tick();
            let mut found = self.diagnose(Some("q"));
            if found[0].finding == "nothing_found" {
                continue;
            }
            let others: Vec<&str> = found.iter().map(|other| other.finding.as_str()).collect();
            assert_eq!(found[0].finding, finding, "{found:#?}");
            println!("{others:?} after {} ticks: {:#?}", self.ticks, found[0]);
            assert_eq!(self.diagnose(None)[0].finding, finding);
            let first = found.swap_remove(0);
            let text = format!("{}\n{}\n{}", first.cause, first.evidence, first.advice);
            for word in words {
                assert!(text.contains(word), "{word} is not in: {text}");
            }
            return first;
        }
        panic!("{finding} was not found within {ticks} ticks");
    }
}

impl Worker {
    /// When it does something next.
    fn next(&self) -> f64 {
        self.holding.as_ref().map_or(self.free_at, |holding| holding.ends_at)
    }

    /// It ends what it holds, or claims.
    fn step(&mut self, handler: &mut dyn FnMut(&Task) -> Run, lease: &str, between: f64) {
        let now = self.next();
        set_clock(&mut self.client, now);
        if let Some(Holding { id, token, error, .. }) = self.holding.take() {
            let ended = match error {
                None => self.client.execute("select taskq.complete($1, $2)", &[&id, &token]),
                Some(error) => self.client.execute("select taskq.fail($1, $2, $3)", &[&id, &token, &error]),
            };
            // The lease may have been taken back meanwhile.
            assert!(ended.is_ok() || sqlstate(ended) == "TQ001");
            self.free_at = now + between;
            return;
        }
        let claim =
            format!("select id, token, task_type from taskq.claim(1, {}, $1, '{lease}')", self.queues);
        match self.client.query_opt(&claim, &[&self.name]).expect("claim") {
            Some(row) => {
                let task = Task { id: row.get(0), task_type: row.get(2) };
                let run = handler(&task);
                let ends_at = now + run.seconds;
                self.holding = Some(Holding { id: task.id, token: row.get(1), ends_at, error: run.error });
            }
            // It asks again, twice in a tick.
            None => self.free_at += TICK / 2.0,
        }
    }

    fn beat(&mut self, now: f64, lease: &str) {
        if let Some(holding) = &self.holding {
            set_clock(&mut self.client, now);
            let extend = format!("select taskq.extend($1, $2, '{lease}')");
            let beaten = self.client.execute(&extend, &[&holding.id, &holding.token]);
            assert!(beaten.is_ok() || sqlstate(beaten) == "TQ001");
        }
    }
}

fn set_clock(client: &mut Client, seconds: f64) {
    client.run(&format!("set taskq.test_clock = '+ {seconds} seconds'"));
}
