//! Prepared transactions that have changed tasks: their end reaches no callback of ours.

use crate::failure::Outcome;
use crate::shared;
use crate::statement::{Spi, Statement};
use std::collections::HashSet;

/// Whoever changes a task locks the table until the end. Locks of a prepared transaction have no process; what they have
/// in common is the virtual transaction, and one of them is that on its own number.
static PREPARED: Statement = Statement::new(
    "select pg_catalog.array_agg(distinct p.transaction::text) from pg_catalog.pg_prepared_xacts p
       join pg_catalog.pg_locks own on own.locktype = 'transactionid' and own.transactionid = p.transaction and own.pid is null
       join pg_catalog.pg_locks held on held.virtualtransaction = own.virtualtransaction and held.pid is null
      where p.database = pg_catalog.current_database()
        and held.locktype = 'relation' and held.relation = 'taskq.task'::regclass",
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
