//! Taking tasks: the rows that a claim marks as running.

use super::columns::{Column, Values};
use super::heap::{self, Lock, TaskTable};
use super::scan::{Is, Key, Locking};
use super::statements::CLAIM_UPDATE;
use crate::changes::{self, Place};
use crate::config::Config;
use crate::failure::{Failure, Outcome};
use crate::session;
use crate::statement::{Spi, arg, internal};
use crate::values::Moment;
use pgrx::FromDatum;
use pgrx::pg_sys::Datum;
use std::marker::PhantomData;

/// The next token is larger by at least 1 and at most this: nobody guesses it by counting.
const TOKEN_STEPS: f64 = 1_048_576.0;

/// Who claims, when, for how long, and the leases of types and queues where the claim has none.
pub struct Claimer<'a> {
    pub now: Moment,
    pub worker: &'a str,
    pub lease: Option<f64>,
    pub config: &'a Config,
}

impl Claimer<'_> {
    /// No lease that this claim gives is shorter, in seconds.
    fn shortest_lease(&self) -> f64 {
        self.lease.unwrap_or_else(|| self.config.shortest_lease())
    }
}

/// Tasks that a claim took, with all their columns. Gone when the SPI connection closes.
pub struct Taken<'spi> {
    rows: Vec<Values>,
    _spi: PhantomData<&'spi Spi>,
}

impl Taken<'_> {
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn datum(&self, row: usize, column: Column) -> Option<Datum> {
        self.rows.get(row).and_then(|values| values[column.at()])
    }

    /// A column as a Rust value, whose type must be that of the column.
    pub fn get<T: FromDatum>(&self, row: usize, column: Column) -> Option<T> {
        heap::value(self.datum(row, column)?)
    }

    /// A column that is never NULL.
    pub fn need<T: FromDatum>(&self, row: usize, column: Column) -> Outcome<T> {
        self.get(row, column).ok_or_else(|| internal("a column is unexpectedly NULL"))
    }
}

/// Claims the first so many of these tasks that still wait and that nobody else holds, and locks no
/// other one. Ids are given in the order of claims.
pub fn take<'spi>(spi: &'spi Spi, ids: &[i64], at_most: usize, by: &Claimer) -> Outcome<Taken<'spi>> {
    let mut taken = Taken { rows: Vec::new(), _spi: PhantomData };
    if ids.is_empty() || at_most == 0 {
        return Ok(taken);
    }
    changes::lease_may_end(by.now.plus(by.shortest_lease()));
    let table = TaskTable::open(spi, Lock::Write)?;
    let by_statement = table.needs_statements();
    let mut scan = table.by_id()?;
    for id in ids {
        if taken.len() == at_most {
            break;
        }
        scan.seek(&[Key::new(Column::Id, Is::Equal, *id)?])?;
        if !scan.next() || !scan.is(Column::State, "waiting") || scan.need::<Moment>(Column::RunAt)? > by.now
        {
            continue;
        }
        let row = match scan.lock() {
            Locking::Locked(row) => row,
            Locking::Held => continue,
            Locking::Changed if session::sees_one_snapshot() => {
                return Err(Failure::new("40001", "could not serialize access due to concurrent update")
                    .hint("Another session has just changed a task: try the transaction again."));
            }
            // It is another claim's, or will be seen by the next one.
            Locking::Changed => continue,
        };
        let (task_type, queue) = (scan.need::<&str>(Column::TaskType)?, scan.need::<&str>(Column::Queue)?);
        let lease = by.lease.unwrap_or_else(|| by.config.lease(task_type, queue));
        let ends_at = by.now.plus(lease);
        let (run_at, enqueued_at) = (scan.need(Column::RunAt)?, scan.need(Column::EnqueuedAt)?);
        changes::started(Place { queue, task_type, run_at, enqueued_at }, by.now, ends_at);
        let step = 1 + (session::random() * TOKEN_STEPS) as i64;
        let changed = [
            (Column::Token, arg(scan.need::<i64>(Column::Token)? + step)),
            (Column::Attempt, arg(scan.need::<i32>(Column::Attempt)? + 1)),
            (Column::ClaimedAt, arg(by.now)),
            (Column::Worker, arg(by.worker)),
            (Column::LeaseExpiresAt, arg(ends_at)),
        ];
        if by_statement {
            let [token, attempt, now, worker, ends_at] = changed.map(|(_, value)| value);
            let updated = spi.execute(&CLAIM_UPDATE, &[arg(*id), token, attempt, now, worker, ends_at])?;
            if updated.is_empty() {
                return Err(internal("a trigger on taskq.task has kept a task from being claimed"));
            }
            taken.rows.push(std::array::from_fn(|at| updated.datum(0, at)));
        } else {
            let [token, attempt, now, worker, ends_at] = changed;
            let state = (Column::State, arg("running"));
            taken.rows.push(table.update(&row, &[state, token, attempt, now, worker, ends_at]));
        }
    }
    drop(scan);
    heap::end_command();
    Ok(taken)
}
