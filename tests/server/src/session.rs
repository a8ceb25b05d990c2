//! Short forms for what tests ask a server.

use crate::wait::eventually;
use postgres::types::{FromSql, ToSql};
use postgres::{Client, Error};

type Param<'a> = &'a (dyn ToSql + Sync);

/// What tests do with a connection.
pub trait Session {
    /// The first column of the only row.
    fn value<T: for<'a> FromSql<'a>>(&mut self, sql: &str, params: &[Param]) -> T;
    /// The first column of all rows.
    fn column<T: for<'a> FromSql<'a>>(&mut self, sql: &str, params: &[Param]) -> Vec<T>;
    /// Runs statements without parameters or results.
    fn run(&mut self, sql: &str);
    /// Claims, and returns ids with their tokens, in the order of the answer.
    fn claim(&mut self, n: i32) -> Vec<(i64, i64)>;
    fn complete(&mut self, id: i64, token: i64) -> Result<(), Error>;
    /// What `taskq.health()` says of this check.
    fn healthy(&mut self, check: &str) -> bool;
    /// The process that serves this connection.
    fn pid(&mut self) -> i32;
}

impl Session for Client {
    fn value<T: for<'a> FromSql<'a>>(&mut self, sql: &str, params: &[Param]) -> T {
        self.query_one(sql, params).unwrap_or_else(|error| panic!("{sql}: {error:?}")).get(0)
    }

    fn column<T: for<'a> FromSql<'a>>(&mut self, sql: &str, params: &[Param]) -> Vec<T> {
        let rows = self.query(sql, params).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        rows.iter().map(|row| row.get(0)).collect()
    }

    fn run(&mut self, sql: &str) {
        self.batch_execute(sql).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }

    fn claim(&mut self, n: i32) -> Vec<(i64, i64)> {
        let rows = self.query("select id, token from taskq.claim($1)", &[&n]).expect("claim");
        rows.iter().map(|row| (row.get(0), row.get(1))).collect()
    }

    fn complete(&mut self, id: i64, token: i64) -> Result<(), Error> {
        self.execute("select taskq.complete($1, $2)", &[&id, &token]).map(|_| ())
    }

    fn healthy(&mut self, check: &str) -> bool {
        self.value("select ok from taskq.health() where \"check\" = $1", &[&check])
    }

    fn pid(&mut self) -> i32 {
        self.value("select pg_backend_pid()", &[])
    }
}

/// The SQLSTATE of what must have failed.
pub fn sqlstate<T>(result: Result<T, Error>) -> String {
    match result {
        Ok(_) => panic!("this should have failed"),
        Err(error) => {
            error.code().unwrap_or_else(|| panic!("not an answer of the server: {error:?}")).code().to_owned()
        }
    }
}

/// How many deadlocks were resolved in this database, also those whose victim caught the error, as duties do. To be asked
/// when the other sessions are leaving; a keeper tells after each transaction.
pub fn deadlocks(client: &mut Client) -> i64 {
    let others = "select count(*) from pg_stat_activity
                   where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid()";
    // (What a session has counted is there when it has left.)
    eventually("the other sessions have left", 30, || client.value::<i64>(others, &[]) == 0);
    client.run("select pg_stat_force_next_flush()");
    client.value("select deadlocks from pg_stat_database where datname = current_database()", &[])
}
