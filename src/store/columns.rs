//! The columns of `taskq.task`, by number, and the values of one of its rows.

use pgrx::pg_sys::Datum;

/// The columns of `taskq.task`, in their order (a test compares them with the table's).
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(i16)]
#[allow(dead_code)] // some are never used, but must be counted
pub enum Column {
    Id = 1,
    Queue,
    Priority,
    RunAt,
    State,
    Token,
    Attempt,
    MaxRetries,
    LeaseExpiresAt,
    ClaimedAt,
    Worker,
    CancelRequestedAt,
    EnqueuedAt,
    RedrivenAt,
    Bytes,
    TaskType,
    UniqueKey,
    UniqueUntil,
    GroupKey,
    CancelReason,
    Payload,
    Headers,
    Progress,
    Errors,
}

pub const COLUMNS: usize = Column::Errors as usize;

/// The values of a row, in the order of the columns.
pub type Values = [Option<Datum>; COLUMNS];
