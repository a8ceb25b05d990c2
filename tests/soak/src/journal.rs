//! What a client tells of its calls: a line before each call, and one after. A client is a process of
//! its own that may be killed at any moment, and so may the server; the journal goes to neither, but
//! through a pipe to the harness, and ends where the client ended.

use serde::{Deserialize, Serialize};
use std::time::{SystemTime, UNIX_EPOCH};

/// Microseconds since 1970. Clients and server run on one machine: it is the server's clock.
pub type Time = i64;

pub fn now() -> Time {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_micros() as i64)
}

#[derive(Serialize, Deserialize, Clone, Debug)]
pub enum Event {
    /// A new connection, served by this process.
    Session {
        pid: i32,
    },
    /// An explicit transaction begins. Calls outside of one have a transaction of their own.
    Begin {
        txn: u64,
        level: String,
    },
    Before(Intent),
    After {
        call: u64,
        at: Time,
        outcome: Outcome,
    },
    /// ROLLBACK TO SAVEPOINT: the calls of the transaction from this one on are undone.
    Undo {
        txn: u64,
        from: u64,
    },
    /// The transaction is about to end.
    Ending {
        txn: u64,
        at: Time,
    },
    /// How it ended; the last such line holds.
    End {
        txn: u64,
        at: Time,
        fate: Fate,
    },
}

/// What is about to be called.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct Intent {
    pub txn: u64,
    pub call: u64,
    pub at: Time,
    pub verb: String,
    /// Calls before it in its transaction: they may hold locks.
    pub earlier: u32,
    /// What it may do, should its outcome remain unknown.
    pub wants: Vec<Want>,
}

#[derive(Serialize, Deserialize, Clone, Debug)]
pub enum Want {
    /// To store a task whose payload has this mark.
    Store {
        mark: String,
    },
    /// To end, or prolong, this lease.
    Lease {
        id: i64,
        token: i64,
        end: bool,
    },
    Claim,
    /// To end a lease without its token.
    Force {
        id: i64,
    },
    Purge,
}

#[derive(Serialize, Deserialize, Clone, Debug)]
pub enum Outcome {
    Done(Vec<Effect>),
    Error {
        code: String,
        message: String,
    },
    /// The connection was cut.
    Lost {
        code: String,
    },
}

/// What a call has done, if its transaction commits.
#[derive(Serialize, Deserialize, Clone, Debug)]
pub enum Effect {
    /// The id that an enqueue returned, and whether it may be that of a task which held the key.
    Stored {
        mark: String,
        id: i64,
        keyed: bool,
        not_before: Time,
    },
    /// An enqueue stored nothing.
    NotStored {
        mark: String,
    },
    Claimed(Claim),
    Ended {
        id: i64,
        token: i64,
        state: String,
        /// When it may be claimed again at the earliest, if the call said.
        not_before: Option<Time>,
    },
    Extended {
        id: i64,
        token: i64,
        expires_at: Time,
    },
    /// A `_many` verb left the pair out, as a single verb would have raised TQ001.
    LeftOut {
        id: i64,
        token: i64,
    },
    /// What cancel() answered.
    Cancel {
        id: i64,
        force: bool,
        answer: String,
    },
    Purged(i64),
    /// status() or cancel() knew of no such task.
    Unknown {
        id: i64,
    },
}

#[derive(Serialize, Deserialize, Clone, Debug)]
pub struct Claim {
    pub id: i64,
    pub token: i64,
    pub attempt: i32,
    pub max_retries: i32,
    pub queue: String,
    pub group: Option<String>,
    pub expires_at: Time,
    pub priority: i32,
    pub run_at: Time,
}

#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Committed,
    RolledBack,
    /// Nobody was told: either is fine, but just one.
    Unknown,
    Prepared,
}

/// Where events go.
pub type Sink = Box<dyn FnMut(Event) + Send>;
