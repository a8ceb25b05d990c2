//! A database with something in every table.

use crate::session::Session;
use postgres::Client;

/// Makes tasks in every state, in a new database that has no keeper; see `data/every_state.sql`.
pub fn fill(client: &mut Client) {
    // One at a time: together they would be one transaction.
    for statement in include_str!("../data/every_state.sql").split(";\n") {
        client.run(statement);
    }
}
