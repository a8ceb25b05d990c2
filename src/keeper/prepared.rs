//! Prepared transactions that have changed tasks: their end reaches no callback of ours.

use crate::failure::Outcome;
use crate::shared;
use crate::statement::{Spi, Statement};
use std::collections::HashSet;

/// Whoever changes a task locks the table until the end.
static PREPARED: Statement = Statement::new(
    "select pg_catalog.array_agg(distinct p.transaction::text) from taskq._prepared_locks() p where p.relation = 'taskq.task'::regclass",
    &[],
);

/// How many have been noted so far.
pub fn noted() -> u32 {
    let mut noted = 0;
    shared::with_database(|database| noted = database.prepared);
    noted
}

/// Those that there are now.
pub fn now() -> Outcome<HashSet<String>> {
    Spi::run_freely(|spi| {
        let table = spi.execute(&PREPARED, &[])?;
        Ok(table.get::<Vec<String>>(0, 0).unwrap_or_default().into_iter().collect())
    })
}
