//! The settings of queues and task types, kept in the session until they change.
//!
//! Every verb needs them, and they hardly ever change: looking them up in the statements would
//! cost each verb about as much as its own work. A trigger on the two tables tells all sessions,
//! through PostgreSQL's relation cache, that something has changed; they hear of it before the
//! first verb that begins after the change has been committed.
//!
//! This is one of the few modules with unsafe code.
#![allow(unsafe_code)]

use crate::backoff::{self, Backoff};
use crate::call::Call;
use crate::failure::Outcome;
use crate::session;
use crate::sql_functions;
use crate::statement::{Snapshot, Spi, Statement, Table};
use pgrx::pg_guard;
use pgrx::pg_sys::{self, Datum, Oid};
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};

sql_functions! {
    taskq_settings_changed / pg_finfo_taskq_settings_changed => settings_changed;
}

static QUEUES: Statement = Statement::new(include_str!("../sql/statements/config_queues.sql"), &[]);
static TYPES: Statement = Statement::new(include_str!("../sql/statements/config_types.sql"), &[]);
static TABLES: Statement = Statement::new(
    "select 'taskq.queue'::regclass::oid, 'taskq.task_type'::regclass::oid, 'taskq.claim_gate'::regclass::oid,
            'taskq.task'::regclass::oid, 'taskq.task_id_seq'::regclass::oid",
    &[],
);

/// What is configured. Queues and types without settings are not in it.
#[derive(Default)]
pub struct Config {
    /// Queues from which nothing is claimed.
    pub paused: HashSet<String>,
    /// Queues whose finished tasks are not kept.
    pub keeps_nothing: Vec<String>,
    /// Queues with max_running or a rate.
    pub limits: HashMap<String, Limit>,
    /// Leases in seconds, of queues and of types that have one.
    pub queue_leases: Leases,
    pub type_leases: Leases,
    types: HashMap<String, TypeSettings>,
}

/// In seconds, as `taskq._default_lease` has it (a test compares them).
pub const DEFAULT_LEASE: f64 = 300.0;

/// Names and their leases, as statements take them.
#[derive(Default)]
pub struct Leases {
    pub names: Vec<String>,
    pub seconds: Vec<f64>,
}

impl Leases {
    fn of(&self, name: &str) -> Option<f64> {
        self.names.iter().position(|known| known == name).and_then(|at| self.seconds.get(at).copied())
    }

    fn add(&mut self, name: String, seconds: Option<f64>) {
        if let Some(seconds) = seconds {
            self.names.push(name);
            self.seconds.push(seconds);
        }
    }
}

/// How many tasks of a queue may run at once, and how fast they may begin.
#[derive(Clone, Copy)]
pub struct Limit {
    pub max_running: Option<i32>,
    pub rate: Option<Rate>,
}

#[derive(Clone, Copy)]
pub struct Rate {
    /// How many tokens there are.
    pub tokens: i32,
    /// After how many seconds a token that was used is free again.
    pub period: f64,
}

/// What a task type gives a new task, and how long its failures wait.
#[derive(Clone)]
pub struct TypeSettings {
    pub queue: String,
    pub priority: i32,
    pub max_retries: i32,
    pub backoff: Backoff,
}

impl Default for TypeSettings {
    fn default() -> Self {
        TypeSettings { queue: "default".into(), priority: 0, max_retries: 3, backoff: backoff::DEFAULT }
    }
}

impl Config {
    /// No lease that the settings give is shorter, in seconds.
    pub fn shortest_lease(&self) -> f64 {
        let set = self.type_leases.seconds.iter().chain(&self.queue_leases.seconds).copied();
        set.fold(DEFAULT_LEASE, f64::min)
    }

    /// How long the lease of a task of this type and queue is, in seconds, where the claim does not say.
    pub fn lease(&self, task_type: &str, queue: &str) -> f64 {
        self.type_leases.of(task_type).or_else(|| self.queue_leases.of(queue)).unwrap_or(DEFAULT_LEASE)
    }

    pub fn task_type(&self, name: &str) -> TypeSettings {
        self.types.get(name).cloned().unwrap_or_default()
    }

    /// As the tables say, whatever the session remembers.
    pub fn read(spi: &Spi) -> Outcome<Self> {
        Self::from_rows(&spi.execute(&QUEUES, &[])?, &spi.execute(&TYPES, &[])?)
    }

    /// As the tables say at this moment, also if the transaction sees only what was there when it began.
    fn read_latest(spi: &Spi) -> Outcome<Self> {
        let latest = Snapshot::latest();
        Self::from_rows(&spi.look(&latest, &QUEUES, &[])?, &spi.look(&latest, &TYPES, &[])?)
    }

    fn from_rows(queues: &Table, types: &Table) -> Outcome<Self> {
        let mut config = Config::default();
        for row in 0..queues.len() {
            let name: String = queues.need(row, 0)?;
            if queues.need(row, 1)? {
                config.paused.insert(name.clone());
            }
            if queues.get(row, 2).unwrap_or(false) {
                config.keeps_nothing.push(name.clone());
            }
            let rate = match (queues.get(row, 5), queues.get(row, 6)) {
                (Some(tokens), Some(period)) => Some(Rate { tokens, period }),
                _ => None,
            };
            let limit = Limit { max_running: queues.get(row, 4), rate };
            if limit.max_running.is_some() || limit.rate.is_some() {
                config.limits.insert(name.clone(), limit);
            }
            config.queue_leases.add(name, queues.get(row, 3));
        }
        for row in 0..types.len() {
            let name: String = types.need(row, 0)?;
            let defaults = TypeSettings::default();
            let settings = TypeSettings {
                queue: types.get(row, 1).unwrap_or(defaults.queue),
                priority: types.get(row, 2).unwrap_or(defaults.priority),
                max_retries: types.get(row, 3).unwrap_or(defaults.max_retries),
                backoff: Backoff {
                    base: types.get(row, 5).unwrap_or(defaults.backoff.base),
                    factor: types.get(row, 6).unwrap_or(defaults.backoff.factor),
                    cap: types.get(row, 7).unwrap_or(defaults.backoff.cap),
                    jitter: types.get(row, 8).unwrap_or(defaults.backoff.jitter),
                },
            };
            config.type_leases.add(name.clone(), types.get(row, 4));
            config.types.insert(name, settings);
        }
        Ok(config)
    }
}

thread_local! {
    static KEPT: RefCell<Option<Rc<Config>>> = const { RefCell::new(None) };
}
/// Whether what is kept must not be used any more.
static CHANGED: AtomicBool = AtomicBool::new(true);
static LISTENING: AtomicBool = AtomicBool::new(false);

/// Tables and a sequence of taskq that are used by their oids.
#[derive(Clone, Copy)]
pub struct Tables {
    queue: Oid,
    task_type: Oid,
    claim_gate: Oid,
    pub task: Oid,
    pub task_id_sequence: Oid,
}

thread_local! {
    static TABLES_KEPT: Cell<Option<Tables>> = const { Cell::new(None) };
}

/// The settings as they are now.
pub fn current(spi: &Spi) -> Outcome<Rc<Config>> {
    // SAFETY: reads what other sessions have announced, as every lock does.
    unsafe { pg_sys::AcceptInvalidationMessages() };
    if session::sees_one_snapshot() {
        // This transaction may not see the newest settings, and must not leave old ones to others.
        return Config::read(spi).map(Rc::new);
    }
    if !CHANGED.load(Ordering::Relaxed)
        && let Some(kept) = KEPT.with_borrow(Clone::clone)
    {
        return Ok(kept);
    }
    listen();
    // A change that is announced while we read is not lost. Should reading end in a PostgreSQL error,
    // nothing old may be left.
    CHANGED.store(false, Ordering::Relaxed);
    KEPT.set(None);
    TABLES_KEPT.set(None);
    let read = tables(spi).and_then(|_| Config::read(spi).map(Rc::new));
    match &read {
        Ok(config) => KEPT.set(Some(config.clone())),
        Err(_) => CHANGED.store(true, Ordering::Relaxed),
    }
    read
}

/// The tables as they are now; those of an extension that was dropped are not used any more.
pub fn tables(spi: &Spi) -> Outcome<Tables> {
    if !CHANGED.load(Ordering::Relaxed)
        && let Some(known) = TABLES_KEPT.get()
    {
        return Ok(known);
    }
    listen();
    let found = spi.execute(&TABLES, &[])?;
    let tables = Tables {
        queue: found.need(0, 0)?,
        task_type: found.need(0, 1)?,
        claim_gate: found.need(0, 2)?,
        task: found.need(0, 3)?,
        task_id_sequence: found.need(0, 4)?,
    };
    TABLES_KEPT.set(Some(tables));
    Ok(tables)
}

/// The settings as they are now, for a claim. Whoever sets or lowers max_running waits for the claims
/// that went through here and may not know of it (see `taskq._limits_changed`).
pub fn for_claim(spi: &Spi) -> Outcome<Rc<Config>> {
    let known = current(spi)?;
    let gate = tables(spi)?.claim_gate;
    // SAFETY: locks a table of ours, as any statement that writes to it would; the end of the
    // transaction releases it.
    unsafe { pg_sys::LockRelationOid(gate, pg_sys::RowExclusiveLock as i32) };
    if session::sees_one_snapshot() {
        // A pause, or a limit, holds from its commit on, whatever this transaction may see.
        return Config::read_latest(spi).map(Rc::new);
    }
    if CHANGED.load(Ordering::Relaxed) { current(spi) } else { Ok(known) }
}

/// Has PostgreSQL tell us of changes to the tables; once a session.
fn listen() {
    if !LISTENING.swap(true, Ordering::Relaxed) {
        // SAFETY: the callback lives as long as the process and only sets a flag.
        unsafe { pg_sys::CacheRegisterRelcacheCallback(Some(on_change), Datum::from(0usize)) };
    }
}

#[pg_guard]
extern "C-unwind" fn on_change(_argument: Datum, relation: Oid) {
    // The invalid one stands for all relations.
    let ours = TABLES_KEPT.get().is_some_and(|known| relation == known.queue || relation == known.task_type);
    if ours || relation == Oid::INVALID {
        CHANGED.store(true, Ordering::Relaxed);
    }
}

/// The trigger on `taskq.queue` and `taskq.task_type`: announces the change when it is committed
/// (to this session at once).
fn settings_changed(call: &Call) -> Outcome<Datum> {
    let relation = call.trigger_relation()?;
    // SAFETY: the relation of a running trigger is open.
    unsafe { pg_sys::CacheInvalidateRelcache(relation) };
    call.void()
}
