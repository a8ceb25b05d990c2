//! The statements of `store`: which files of `sql/statements/` they are made of, and the types of their
//! arguments. (Not formatted by rustfmt, which would put each type on a line of its own.)

use crate::statement::Statement;
use pgrx::pg_sys::{
    FLOAT8ARRAYOID, FLOAT8OID, INT4ARRAYOID, INT4OID, INT8ARRAYOID, INT8OID, JSONBARRAYOID, JSONBOID, Oid,
    TEXTARRAYOID, TEXTOID, TIMESTAMPTZARRAYOID, TIMESTAMPTZOID,
};

macro_rules! sql {
    ($file:literal) => { include_str!(concat!("../../sql/statements/", $file)) };
}

macro_rules! statement {
    ($name:ident, $file:literal, $types:expr) => { statement!($name, sql!($file), &[], $types); };
    ($name:ident, $first:expr, $more:expr, $types:expr) => {
        pub static $name: Statement = {
            const TYPES: &[Oid] = &$types;
            Statement::joined($first, $more, TYPES)
        };
    };
}

statement!(CLAIM_CANDIDATES, "claim_candidates.sql",
    [TEXTARRAYOID, INT4OID, TIMESTAMPTZOID, INT8OID, TIMESTAMPTZOID, INT8OID]);
statement!(CLAIM_UPDATE, "claim_update.sql", [INT8OID, INT8OID, INT4OID, TIMESTAMPTZOID, TEXTOID, TIMESTAMPTZOID]);
statement!(ANY_CLAIMABLE, "any_claimable.sql", [TEXTARRAYOID]);
statement!(CLAIM_PROBE, "claim_probe.sql", [TEXTOID, INT4OID, TIMESTAMPTZOID, TIMESTAMPTZOID, INT8OID]);

statement!(ENQUEUE, "enqueue.sql",
    [INT8OID, TEXTOID, INT4OID, TIMESTAMPTZOID, INT4OID, TIMESTAMPTZOID, INT4OID, TEXTOID, TEXTOID, TEXTOID,
     TEXTOID, JSONBOID, JSONBOID]);
statement!(ENQUEUE_MANY, "enqueue_many.sql",
    [INT8ARRAYOID, TEXTARRAYOID, TEXTARRAYOID, INT4ARRAYOID, TIMESTAMPTZARRAYOID, INT4ARRAYOID, TIMESTAMPTZOID,
     INT4ARRAYOID, TEXTARRAYOID, TEXTARRAYOID, JSONBARRAYOID, JSONBARRAYOID, TEXTARRAYOID]);
statement!(ENQUEUE_ELEMENTS, "enqueue_elements.sql", [JSONBOID]);
statement!(REPLACE, "replace.sql", [INT8OID, INT4OID, TIMESTAMPTZOID, INT4OID, JSONBOID, JSONBOID]);
statement!(IDS, "ids.sql", [INT8OID]);

statement!(FINISH,
    sql!("finish.sql"), &[sql!("finish_into_done.sql"), "returning id, queue, task_type, run_at, enqueued_at, claimed_at, unique_key, group_key"],
    [INT8ARRAYOID, INT8ARRAYOID, JSONBARRAYOID, TIMESTAMPTZOID, TEXTOID, TEXTOID, TEXTARRAYOID, TEXTARRAYOID]);
// The same where some queues keep nothing.
statement!(FINISH_KEEPING_SOME,
    sql!("finish.sql"), &[", kept as (", sql!("finish_into_done.sql"),
        " where g.queue <> all ($8)) select g.id, g.queue, g.task_type, g.run_at, g.enqueued_at, g.claimed_at,
          g.unique_key, g.group_key from gone g"],
    [INT8ARRAYOID, INT8ARRAYOID, JSONBARRAYOID, TIMESTAMPTZOID, TEXTOID, TEXTOID, TEXTARRAYOID, TEXTARRAYOID]);

statement!(LOCK_LEASES, "lock_leases.sql", [INT8ARRAYOID, INT8ARRAYOID, TIMESTAMPTZOID]);
statement!(LOCK_EXPIRED, sql!("lock_leases.sql"), &[" skip locked"],
    [INT8ARRAYOID, INT8ARRAYOID, TIMESTAMPTZOID]);
statement!(REQUEUE, "requeue.sql", [INT8ARRAYOID, TIMESTAMPTZARRAYOID, TEXTARRAYOID, TIMESTAMPTZOID, INT4OID]);
statement!(BURY, "bury.sql", [INT8ARRAYOID, TEXTARRAYOID, TIMESTAMPTZOID]);
statement!(EXTEND, "extend.sql",
    [INT8OID, INT8OID, TIMESTAMPTZOID, JSONBOID, FLOAT8OID, TEXTARRAYOID, FLOAT8ARRAYOID, TEXTARRAYOID,
     FLOAT8ARRAYOID]);
statement!(LEASE_ENDS, "lease_ends.sql", [INT8OID]);
statement!(STILL_OVER, "still_over.sql", [INT8ARRAYOID, TIMESTAMPTZOID]);
statement!(CANCEL_LOCK, "cancel_lock.sql", [INT8OID]);
statement!(CANCEL_REQUEST, "cancel_request.sql", [INT8OID, TIMESTAMPTZOID, TEXTOID]);
statement!(WHEREABOUTS, "whereabouts.sql", [INT8OID]);
