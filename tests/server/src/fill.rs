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

/// All rows of all tables of the extension that a dump takes along, and where its sequences are, as text.
pub fn everything(client: &mut Client) -> Vec<String> {
    let queries: Vec<String> = client.column(
        "select format('select %L || (%s) from %s r order by 1', t::regclass || ' ',
                       case c.relkind when 'S' then 'r.last_value || '' '' || r.is_called' else 'r::text' end, t::regclass)
           from pg_extension e, unnest(e.extconfig) t join pg_class c on c.oid = t
          where e.extname = 'taskq' and not c.relispartition",
        &[],
    );
    queries.iter().flat_map(|query| client.column::<String>(query, &[])).collect()
}
