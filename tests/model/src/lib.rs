//! What taskq is to do, as a small machine without a database.
//!
//! - `machine` is the specification: the states of a task, and the ways from one to another. `operators` and
//!   `schedules` belong to it.
//! - `ask` says which of these ways each verb takes, and what it answers.
//! - `verbs` is its language: what is asked, and what is answered.
//! - `invariants` says what must hold whatever happens, in words of its own.
//! - `sql` writes verbs and histories as SQL.
//! - `histories` makes up what many callers do, for proptest to run and to shrink.
//!
//! `tests/alone.rs` runs histories on the machine alone and checks the invariants after each verb;
//! `tests/replay.rs` plays them on a server, too, and compares all answers and rows.

mod ask;
pub mod histories;
pub mod invariants;
pub mod machine;
mod operators;
pub mod schedules;
pub mod sql;
pub mod verbs;
