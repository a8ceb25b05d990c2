//! Prepared transactions that have changed tasks: their end reaches no callback of ours.

use crate::failure::Outcome;
use crate::shared;
use crate::statement::{Spi, Statement};
use std::collections::HashSet;

/// Whoever changes a task locks the table until the end. (That of a prepared transaction is held by nobody: its
/// virtual transaction is -1 and its own number.)
static PREPARED: Statement = Statement::new(
    "select pg_catalog.array_agg(p.transaction::text) from pg_catalog.pg_prepared_xacts p
      where p.database = pg_catalog.current_database()
        and exists (select from pg_catalog.pg_locks l
                     where l.locktype = 'relation' and l.relation = 'taskq.task'::regclass
                       and l.virtualtransaction = '-1/' || p.transaction::text)",
    &[],
);

/// How many have been noted so far.
pub fn noted() -> u32 {
    let mut noted = 0;
    shared::with_database(|database| noted = database.prepared);
    noted
}

/// Those that there are now.
pub fn now(spi: &Spi) -> Outcome<HashSet<String>> {
    let table = spi.execute(&PREPARED, &[])?;
    Ok(table.get::<Vec<String>>(0, 0).unwrap_or_default().into_iter().collect())
}
