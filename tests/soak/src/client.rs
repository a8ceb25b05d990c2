//! A client: a process of its own that calls random verbs, alone and in transactions, until it is told
//! to stop, and tells the journal of each.

use crate::journal::{Effect, Event, Fate, Intent, Outcome, Sink, Want, now};
use crate::verbs::Held;
use postgres::types::ToSql;
use postgres::{Config, Error, NoTls, Row};
use taskq_server_tests::{Random, pause};

/// How a call went.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Called {
    Fine,
    /// The server answered with an error.
    Failed,
    /// The connection is gone.
    Lost,
}

pub struct Client {
    pub number: u64,
    pub generation: u64,
    pub random: Random,
    /// Marks given to tasks so far.
    pub marks: u64,
    /// Leases that this client holds, or thinks it does.
    pub held: Vec<Held>,
    /// Leases that were rolled back, or have ended: nothing may be done with them.
    pub stale: Vec<Held>,
    /// About the highest id of a task.
    pub newest: i64,
    config: Config,
    connection: Option<postgres::Client>,
    journal: Sink,
    transaction: Option<Transaction>,
    last_txn: u64,
    last_call: u64,
    /// Transactions of which we do not know whether they are still prepared.
    prepared: Vec<(u64, Fate)>,
}

struct Transaction {
    txn: u64,
    calls: u32,
    savepoints: Vec<Savepoint>,
}

struct Savepoint {
    name: String,
    next_call: u64,
    calls: u32,
    held: Vec<Held>,
}

impl Client {
    pub fn new(mut config: Config, number: u64, generation: u64, seed: u64, journal: Sink) -> Self {
        config.application_name(&format!("soak-{number}")).options("-c statement_timeout=40s");
        // Each generation has numbers of its own.
        let first = generation * 1_000_000;
        Client {
            number,
            generation,
            random: Random::new(seed),
            marks: 0,
            held: Vec::new(),
            stale: Vec::new(),
            newest: 1,
            config,
            connection: None,
            journal,
            transaction: None,
            last_txn: first,
            last_call: first,
            prepared: Vec::new(),
        }
    }

    pub fn in_transaction(&self) -> bool {
        self.transaction.is_some()
    }

    /// One autocommitted call, or one transaction of several.
    pub fn act(&mut self) {
        if !self.connected() {
            pause(0.05);
        } else if self.random.one_in(3) {
            self.transaction();
        } else {
            self.verb();
        }
        let most = self.stale.len().min(20);
        self.stale.drain(..self.stale.len() - most);
    }

    /// Finishes what is still prepared. Only without a server it does not come to an end.
    pub fn settle(&mut self) {
        while !self.connected() {
            pause(0.05);
        }
    }

    fn event(&mut self, event: Event) {
        (self.journal)(event);
    }

    /// Connects, if necessary, and sees to what an earlier connection of this client left prepared.
    pub fn connected(&mut self) -> bool {
        if self.connection.as_ref().is_some_and(|connection| !connection.is_closed()) {
            return true;
        }
        self.connection = None;
        let Ok(mut connection) = self.config.connect(NoTls) else { return false };
        // The earlier session may still be at work on what we would look for.
        let alone = "select not exists (select from pg_stat_activity
                        where application_name = current_setting('application_name') and pid <> pg_backend_pid()),
                            pg_backend_pid()";
        let pid = loop {
            match connection.query_one(alone, &[]) {
                Ok(row) if row.get(0) => break row.get(1),
                Ok(_) => pause(0.02),
                Err(_) => return false,
            }
        };
        self.event(Event::Session { pid });
        if self.finish_prepared(&mut connection).is_err() {
            return false;
        }
        self.connection = Some(connection);
        true
    }

    fn finish_prepared(&mut self, connection: &mut postgres::Client) -> Result<(), Error> {
        let sql = "select gid from pg_prepared_xacts where gid like $1 order by gid";
        for row in connection.query(sql, &[&format!("soak-{}-%", self.number)])? {
            let gid: String = row.get(0);
            let Some(txn) = gid.rsplit('-').next().and_then(|txn| txn.parse().ok()) else { continue };
            let (how, fate) = if self.random.one_in(3) {
                ("rollback", Fate::RolledBack)
            } else {
                ("commit", Fate::Committed)
            };
            self.prepared.retain(|(other, _)| *other != txn);
            self.prepared.push((txn, fate));
            self.event(Event::Ending { txn, at: now() });
            connection.batch_execute(&format!("{how} prepared '{gid}'"))?;
            self.prepared.retain(|(other, _)| *other != txn);
            self.event(Event::End { txn, at: now(), fate });
        }
        // Those that are not there any more have ended as they were about to.
        for (txn, fate) in std::mem::take(&mut self.prepared) {
            self.event(Event::End { txn, at: now(), fate });
        }
        Ok(())
    }

    /// Calls a verb and tells the journal. `read` makes the effects of the answer, and adds to the leases
    /// that are held.
    pub fn call(
        &mut self,
        verb: &str,
        wants: Vec<Want>,
        sql: &str,
        params: &[&(dyn ToSql + Sync)],
        read: impl FnOnce(&[Row], &mut Vec<Held>) -> Vec<Effect>,
    ) -> Called {
        let Some(mut connection) = self.connection.take() else { return Called::Lost };
        self.last_call += 1;
        let call = self.last_call;
        let (txn, earlier) = match &mut self.transaction {
            Some(open) => {
                open.calls += 1;
                (open.txn, open.calls - 1)
            }
            None => {
                self.last_txn += 1;
                (self.last_txn, 0)
            }
        };
        let at = now();
        let gone: Vec<Held> = wants.iter().filter_map(ends).collect();
        self.event(Event::Before(Intent { txn, call, at, verb: verb.to_owned(), earlier, wants }));
        let result = connection.query(sql, params);
        let at = now();
        let (outcome, called) = match result {
            Ok(rows) => {
                let effects = read(&rows, &mut self.held);
                self.note(&effects);
                (Outcome::Done(effects), Called::Fine)
            }
            Err(error) => {
                let code = error.code().map_or(String::new(), |code| code.code().to_owned());
                // A session that is ended may have committed before it says so.
                if code.starts_with("57P") || connection.is_closed() {
                    (Outcome::Lost { code }, Called::Lost)
                } else {
                    (Outcome::Error { code, message: message(&error) }, Called::Failed)
                }
            }
        };
        if called == Called::Fine {
            self.stale.extend(gone);
        }
        self.event(Event::After { call, at, outcome });
        if called != Called::Lost {
            self.connection = Some(connection);
        }
        called
    }

    fn note(&mut self, effects: &[Effect]) {
        for effect in effects {
            if let Effect::Stored { id, .. } | Effect::Claimed(crate::journal::Claim { id, .. }) = effect {
                self.newest = self.newest.max(*id);
            }
        }
    }

    fn transaction(&mut self) {
        let level = match self.random.below(6) {
            0 => "repeatable read",
            1 => "serializable",
            _ => "read committed",
        };
        self.last_txn += 1;
        let txn = self.last_txn;
        self.event(Event::Begin { txn, level: level.to_owned() });
        let before = self.held.clone();
        self.transaction = Some(Transaction { txn, calls: 0, savepoints: Vec::new() });
        let fate = match self.run(&format!("begin isolation level {level}")) {
            Called::Fine => self.body(txn),
            _ => Fate::RolledBack,
        };
        self.transaction = None;
        self.event(Event::End { txn, at: now(), fate });
        // What it took is ours only if it was committed, and what it ended is not any more.
        if matches!(fate, Fate::RolledBack) {
            let after = std::mem::replace(&mut self.held, before);
            let new = after.into_iter().filter(|held| !self.held.iter().any(|old| old.token == held.token));
            self.stale.extend(new);
        }
        if fate == Fate::Prepared {
            self.end_prepared(txn);
        }
    }

    /// The calls of a transaction, and its end.
    fn body(&mut self, txn: u64) -> Fate {
        for _ in 0..=self.random.below(6) {
            let called = match self.random.below(8) {
                0 => self.savepoint(),
                1 => self.release_savepoint(),
                2 => self.roll_back_to_savepoint(txn),
                _ => self.verb(),
            };
            match called {
                Called::Fine => {}
                // After an error only a savepoint helps.
                Called::Failed if self.has_savepoint() && !self.random.one_in(3) => {
                    if self.roll_back_to_savepoint(txn) != Called::Fine {
                        self.roll_back();
                        return Fate::RolledBack;
                    }
                }
                Called::Failed => {
                    self.roll_back();
                    return Fate::RolledBack;
                }
                Called::Lost => return Fate::RolledBack,
            }
        }
        match self.random.below(8) {
            0 => {
                self.roll_back();
                Fate::RolledBack
            }
            1 => {
                self.event(Event::Ending { txn, at: now() });
                let gid = self.gid(txn);
                match self.run(&format!("prepare transaction '{gid}'")) {
                    Called::Fine => Fate::Prepared,
                    Called::Failed => {
                        self.roll_back();
                        Fate::RolledBack
                    }
                    Called::Lost => {
                        // If it is found prepared it will be finished, else it never was.
                        self.prepared.push((txn, Fate::RolledBack));
                        Fate::Unknown
                    }
                }
            }
            _ => {
                self.event(Event::Ending { txn, at: now() });
                match self.run("commit") {
                    Called::Fine => Fate::Committed,
                    // (A cancel that comes early leaves the transaction open.)
                    Called::Failed => {
                        self.roll_back();
                        Fate::RolledBack
                    }
                    Called::Lost => Fate::Unknown,
                }
            }
        }
    }

    fn roll_back(&mut self) {
        if self.run("rollback") == Called::Failed {
            self.connection = None;
        }
    }

    fn end_prepared(&mut self, txn: u64) {
        if self.random.one_in(2) {
            pause(self.random.below(10) as f64 / 10.0);
        }
        let (how, fate) =
            if self.random.one_in(3) { ("rollback", Fate::RolledBack) } else { ("commit", Fate::Committed) };
        let gid = self.gid(txn);
        self.event(Event::Ending { txn, at: now() });
        match self.run(&format!("{how} prepared '{gid}'")) {
            Called::Fine => self.event(Event::End { txn, at: now(), fate }),
            // Tried again, or found to have happened.
            Called::Failed | Called::Lost => {
                self.prepared.push((txn, fate));
                self.connection = None;
            }
        }
    }

    fn gid(&self, txn: u64) -> String {
        format!("soak-{}-{txn}", self.number)
    }

    /// A command that is no verb.
    fn run(&mut self, sql: &str) -> Called {
        let Some(mut connection) = self.connection.take() else { return Called::Lost };
        match connection.batch_execute(sql) {
            Ok(()) => {
                self.connection = Some(connection);
                Called::Fine
            }
            Err(error) => {
                let code = error.code().map_or("", |code| code.code());
                if code.is_empty() || code.starts_with("57P") || connection.is_closed() {
                    return Called::Lost;
                }
                self.connection = Some(connection);
                let (txn, at) = (self.transaction.as_ref().map_or(0, |open| open.txn), now());
                self.last_call += 1;
                let (call, verb) = (self.last_call, sql.split('\'').next().unwrap_or_default().to_owned());
                let outcome = Outcome::Error { code: code.to_owned(), message: message(&error) };
                self.event(Event::Before(Intent { txn, call, at, verb, earlier: 1, wants: vec![] }));
                self.event(Event::After { call, at, outcome });
                Called::Failed
            }
        }
    }

    fn has_savepoint(&self) -> bool {
        self.transaction.as_ref().is_some_and(|open| !open.savepoints.is_empty())
    }

    fn savepoint(&mut self) -> Called {
        let name = format!("s{}", self.transaction.as_ref().map_or(0, |open| open.savepoints.len()));
        let called = self.run(&format!("savepoint {name}"));
        if called == Called::Fine
            && let Some(open) = &mut self.transaction
        {
            let (next_call, calls, held) = (self.last_call + 1, open.calls, self.held.clone());
            open.savepoints.push(Savepoint { name, next_call, calls, held });
        }
        called
    }

    fn release_savepoint(&mut self) -> Called {
        let Some(savepoint) = self.transaction.as_mut().and_then(|open| open.savepoints.pop()) else {
            return Called::Fine;
        };
        self.run(&format!("release {}", savepoint.name))
    }

    fn roll_back_to_savepoint(&mut self, txn: u64) -> Called {
        let Some(savepoint) = self.transaction.as_mut().and_then(|open| open.savepoints.pop()) else {
            return Called::Fine;
        };
        let called = self.run(&format!("rollback to {0}; release {0}", savepoint.name));
        if called == Called::Fine {
            self.event(Event::Undo { txn, from: savepoint.next_call });
            // What is undone holds no locks any more.
            if let Some(open) = &mut self.transaction {
                open.calls = savepoint.calls;
            }
            let after = std::mem::replace(&mut self.held, savepoint.held);
            let new = after.into_iter().filter(|held| !self.held.iter().any(|old| old.token == held.token));
            self.stale.extend(new);
        }
        called
    }
}

fn ends(want: &Want) -> Option<Held> {
    match want {
        Want::Lease { id, token, end: true } => Some(Held { id: *id, token: *token }),
        _ => None,
    }
}

fn message(error: &Error) -> String {
    error
        .as_db_error()
        .map_or(format!("{error:?}"), |told| format!("{} ({})", told.message(), told.detail().unwrap_or("")))
}
