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
use crate::sql_functions;
use crate::statement::{Spi, Statement};
use pgrx::pg_guard;
use pgrx::pg_sys::{self, Datum, Oid};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

sql_functions! {
    taskq_settings_changed / pg_finfo_taskq_settings_changed => settings_changed;
}

static QUEUES: Statement = Statement::new(include_str!("../sql/statements/config_queues.sql"), &[]);
static TYPES: Statement = Statement::new(include_str!("../sql/statements/config_types.sql"), &[]);
static TABLES: Statement = Statement::new(
    "select 'taskq.queue'::regclass::oid, 'taskq.task_type'::regclass::oid, 'taskq.claim_gate'::regclass::oid",
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
    /// After how many seconds a token that was used is free again.
    pub token_period: Option<f64>,
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

    pub fn task_type(&self, name: &str) -> TypeSettings {
        self.types.get(name).cloned().unwrap_or_default()
    }

    /// As the tables say, whatever the session remembers.
    pub fn read(spi: &Spi) -> Outcome<Self> {
        let mut config = Config::default();
        let queues = spi.execute(&QUEUES, &[])?;
        for row in 0..queues.len() {
            let name: String = queues.need(row, 0)?;
            if queues.need(row, 1)? {
                config.paused.insert(name.clone());
            }
            if queues.get(row, 2).unwrap_or(false) {
                config.keeps_nothing.push(name.clone());
            }
            let limit = Limit { max_running: queues.get(row, 4), token_period: queues.get(row, 5) };
            if limit.max_running.is_some() || limit.token_period.is_some() {
                config.limits.insert(name.clone(), limit);
            }
            config.queue_leases.add(name, queues.get(row, 3));
        }
        let types = spi.execute(&TYPES, &[])?;
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
/// The oids of the two tables, so that changes of others do not matter.
static QUEUE_TABLE: AtomicU32 = AtomicU32::new(0);
static TYPE_TABLE: AtomicU32 = AtomicU32::new(0);
static CLAIM_GATE: AtomicU32 = AtomicU32::new(0);

/// The settings as they are now.
pub fn current(spi: &Spi) -> Outcome<Rc<Config>> {
    // SAFETY: reads what other sessions have announced, as every lock does.
    unsafe { pg_sys::AcceptInvalidationMessages() };
    // SAFETY: a plain variable of this process.
    if unsafe { pg_sys::XactIsoLevel } >= pg_sys::XACT_REPEATABLE_READ as i32 {
        // This transaction may not see the newest settings, and must not leave old ones to others.
        return Config::read(spi).map(Rc::new);
    }
    if !CHANGED.load(Ordering::Relaxed)
        && let Some(kept) = KEPT.with_borrow(Clone::clone)
    {
        return Ok(kept);
    }
    listen();
    // A change that is announced while we read is not lost.
    CHANGED.store(false, Ordering::Relaxed);
    let read = read_and_know_tables(spi);
    match &read {
        Ok(config) => KEPT.set(Some(config.clone())),
        Err(_) => CHANGED.store(true, Ordering::Relaxed),
    }
    read
}

fn read_and_know_tables(spi: &Spi) -> Outcome<Rc<Config>> {
    // Should reading end in a PostgreSQL error, nothing old may be left.
    KEPT.set(None);
    let tables = spi.execute(&TABLES, &[])?;
    QUEUE_TABLE.store(tables.need::<Oid>(0, 0)?.to_u32(), Ordering::Relaxed);
    TYPE_TABLE.store(tables.need::<Oid>(0, 1)?.to_u32(), Ordering::Relaxed);
    CLAIM_GATE.store(tables.need::<Oid>(0, 2)?.to_u32(), Ordering::Relaxed);
    Config::read(spi).map(Rc::new)
}

/// The settings as they are now, for a claim. Whoever sets max_running where there was none waits for
/// the claims that went through here and may not know of it (see `configure_queue`).
pub fn for_claim(spi: &Spi) -> Outcome<Rc<Config>> {
    let known = current(spi)?;
    let gate = CLAIM_GATE.load(Ordering::Relaxed);
    if gate == 0 {
        // Not read in this session yet: it began above READ COMMITTED.
        read_and_know_tables(spi)?;
    }
    // SAFETY: locks a table of ours, as any statement that writes to it would; the end of the
    // transaction releases it.
    unsafe {
        let gate = Oid::from(CLAIM_GATE.load(Ordering::Relaxed));
        pg_sys::LockRelationOid(gate, pg_sys::RowExclusiveLock as i32);
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
    let relation = relation.to_u32();
    // 0 stands for all relations.
    if relation == 0
        || relation == QUEUE_TABLE.load(Ordering::Relaxed)
        || relation == TYPE_TABLE.load(Ordering::Relaxed)
    {
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
