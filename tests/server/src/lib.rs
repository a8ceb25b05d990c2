//! Real PostgreSQL servers for tests: started, crashed, restarted and removed.
//!
//! `tests/run.sh` (stage `server`) says where things are:
//!
//! - `TASKQ_TEST_BINDIR`: the programs of a PostgreSQL server that has taskq installed
//! - `TASKQ_TEST_DIR`: a short folder that the server's user can write to
//! - `TASKQ_TEST_USER`: who runs the servers, if the tests run as root; else empty
//!
//! A test waits for what must come to pass, with a generous limit. Where a case
//! sets a limit itself, the quickest of several times counts.

mod fill;
mod idle;
mod life;
mod process;
mod random;
mod server;
mod session;
mod wait;

pub use fill::{everything, fill};
pub use idle::{watch_idle, watch_signalled};
pub use life::{Arrival, Finding, Life, Run, Task, USUAL};
pub use process::{anonymous_memory, cpu_seconds, peak_memory, signal, stop_asleep};
pub use random::Random;
pub use server::{Database, Server, Shared, Stop};
pub use session::{Session, deadlocks, sqlstate};
pub use wait::{eventually, pause, quickest};

/// Signals by name.
pub mod signals {
    pub use libc::{SIGCONT, SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGSTOP, SIGTERM};
}
