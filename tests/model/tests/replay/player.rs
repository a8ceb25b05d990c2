//! Plays histories on a server and on the machine at once.

use crate::{answers, rows};
use postgres::{Client, SimpleQueryMessage, Statement};
use std::collections::BTreeMap;
use taskq_model::histories::{self, End, History};
use taskq_model::machine::Machine;
use taskq_model::sql::{self, Names};
use taskq_model::verbs::*;
use taskq_server_tests::Session;

/// The ids and tokens of the server.
pub struct Known {
    ids: BTreeMap<Id, i64>,
    tokens: BTreeMap<(Id, u32), i64>,
    beginning: i64,
}

impl Names for Known {
    fn id(&self, id: Id) -> String {
        self.ids.get(&id).map_or_else(|| sql::no_id(id), i64::to_string)
    }

    fn token(&self, lease: Lease) -> String {
        self.tokens.get(&(lease.id, lease.token)).map_or("-1".into(), i64::to_string)
    }

    fn beginning(&self) -> i64 {
        self.beginning
    }
}

impl Known {
    fn learn_id(&mut self, id: Id, is: i64) {
        self.ids.insert(id, is);
        self.tokens.insert((id, 0), 0);
    }

    /// Tokens rise by 1 and a random number below 2^20.
    fn learn_token(&mut self, lease: Lease, is: i64) -> Result<(), String> {
        let before =
            self.tokens.range(..(lease.id, lease.token)).next_back().map_or(0, |(_, before)| *before);
        if !(before + 1..=before + (1 << 20)).contains(&is) {
            return Err(format!("the token of task {} went from {before} to {is}", lease.id));
        }
        self.tokens.insert((lease.id, lease.token), is);
        Ok(())
    }
}

/// The rows of an answer, or its SQLSTATE.
pub type Reply = Result<Vec<Vec<Option<String>>>, String>;

pub struct Player {
    client: Client,
    rows: Statement,
    /// Histories of one database follow each other: its clock never goes back.
    next_beginning: i64,
    pub asked: usize,
}

const DAY: i64 = 86_400;

impl Player {
    pub fn new(mut client: Client) -> Self {
        client.run(include_str!("reset.sql"));
        // Some of the statements are planned again and again else, because tables grow and shrink.
        client.run("set plan_cache_mode = force_generic_plan; set client_min_messages = error");
        let rows = client.prepare(include_str!("rows.sql")).expect("the statement that reads all rows");
        Player { client, rows, next_beginning: 21_915 * DAY, asked: 0 }
    }

    /// Plays a history in the empty database, and says what differed.
    pub fn play(&mut self, history: &History) -> Result<(), String> {
        let beginning = self.next_beginning;
        let mut known = Known { ids: BTreeMap::new(), tokens: BTreeMap::new(), beginning };
        let mut machine = Machine::default();
        self.client.run(&sql::clock(beginning));
        self.client.run("select test.reset()");
        let outcome = self.play_turns(history, &mut machine, &mut known);
        if outcome.is_err() {
            self.client.run("rollback");
        }
        self.next_beginning = (beginning + machine.now) / DAY * DAY + 3 * DAY;
        if outcome.is_err() {
            // If the figures are wrong they are counted again: or every history would fail from here on.
            self.client.run(&sql::clock(self.next_beginning));
            self.client.run("select test.reset()");
            self.client.run("select taskq._duty_wake()");
        }
        outcome
    }

    fn play_turns(
        &mut self,
        history: &History,
        machine: &mut Machine,
        known: &mut Known,
    ) -> Result<(), String> {
        for turn in history {
            let before = machine.clone();
            let block = turn.verbs.len() > 1 || turn.end != End::Commit;
            if block {
                self.client.run("begin");
            }
            if turn.end == End::RollbackToSavepoint {
                self.client.run("savepoint a");
            }
            for verb in &turn.verbs {
                self.ask(&histories::resolved(verb, machine), block, machine, known)?;
            }
            match turn.end {
                End::Commit if block => self.client.run("commit"),
                End::Commit => {}
                End::Rollback => self.client.run("rollback"),
                End::RollbackToSavepoint => self.client.run("rollback to a; commit"),
            }
            if turn.end != End::Commit {
                *machine = Machine { now: machine.now, ..before };
                // A rollback takes back the clock, too.
                self.client.run(&sql::clock(known.beginning + machine.now));
            }
            rows::compare(&mut self.client, &self.rows, machine, known)?;
        }
        rows::compare_counts(&mut self.client, machine)
    }

    /// Asks both, and compares the answers.
    fn ask(
        &mut self,
        verb: &Verb,
        block: bool,
        machine: &mut Machine,
        known: &mut Known,
    ) -> Result<(), String> {
        self.asked += 1;
        if let Verb::Pass(seconds) = verb {
            self.client.run(&sql::clock(known.beginning + machine.now + seconds));
            machine.ask(verb);
            return Ok(());
        }
        let call = sql::call(verb, known);
        let reply = self.call(&answers::query(verb, &call, known.beginning), block)?;
        let mut verb = verb.clone();
        if let Verb::Claim { also, .. } = &mut verb {
            *also = self.taken_back(machine, known);
        }
        let first_new = machine.ids + 1;
        let answer = machine.ask(&verb);
        for (id, is) in (first_new..=machine.ids).zip(self.new_ids(machine, first_new)) {
            known.learn_id(id, is);
        }
        if let (Answer::Claimed(leases), Ok(rows)) = (&answer, &reply) {
            for (lease, row) in leases.iter().zip(rows) {
                let (id, token) = (row[0].as_deref(), row[1].as_deref().and_then(|token| token.parse().ok()));
                if id == Some(known.id(lease.id).as_str()) {
                    known.learn_token(*lease, token.unwrap_or(-1))?;
                }
            }
        }
        let (mut expected, mut reply) = (answers::expected(&verb, &answer, machine, known), reply);
        if !matches!(verb, Verb::Claim { .. }) {
            // Only those of a claim have an order.
            [&mut expected, &mut reply].into_iter().flatten().for_each(|rows| rows.sort());
        }
        if expected == reply {
            return Ok(());
        }
        Err(format!(
            "select {call}\nthe server answered  {}\nit should have been  {}",
            answers::text(&reply),
            answers::text(&expected)
        ))
    }

    fn call(&mut self, query: &str, block: bool) -> Result<Reply, String> {
        if block {
            self.client.run("savepoint b");
        }
        match self.client.simple_query(query) {
            Ok(messages) => Ok(Ok(messages.iter().filter_map(columns).collect())),
            Err(error) => {
                if block {
                    self.client.run("rollback to b");
                }
                let error = error.as_db_error().ok_or_else(|| format!("{query}: {error:?}"))?;
                if ["TQ001", "TQ002", "22023"].contains(&error.code().code()) {
                    return Ok(Err(error.code().code().into()));
                }
                Err(format!("{query}: {error:?}"))
            }
        }
    }

    /// Of the tasks whose lease was over before a claim, those that it has taken back.
    fn taken_back(&mut self, machine: &Machine, known: &Known) -> Vec<Id> {
        let over: Vec<Id> =
            machine.tasks.values().filter(|task| task.lease_over(machine.now)).map(|task| task.id).collect();
        if over.is_empty() {
            return over;
        }
        let still: Vec<i64> = self.client.column("select token from taskq.task where state = 'running'", &[]);
        let token = |id: &Id| known.tokens.get(&(*id, machine.tasks[id].token));
        over.into_iter().filter(|id| token(id).is_none_or(|token| !still.contains(token))).collect()
    }

    /// The ids that the server has given to the newest tasks.
    fn new_ids(&mut self, machine: &Machine, first: Id) -> Vec<i64> {
        let new = i64::from(machine.ids + 1 - first);
        if new == 0 {
            return Vec::new();
        }
        let mut ids: Vec<i64> =
            self.client.column("select id from taskq.task order by id desc limit $1", &[&new]);
        ids.reverse();
        ids
    }
}

fn columns(message: &SimpleQueryMessage) -> Option<Vec<Option<String>>> {
    let SimpleQueryMessage::Row(row) = message else { return None };
    Some((0..row.len()).map(|at| row.get(at).map(str::to_owned)).collect())
}
