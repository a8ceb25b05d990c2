//! S17: a panic in our code is an error of the statement, and the session and its transaction go on.

use crate::call::Call;
use crate::failure::Outcome;
use crate::sql_functions;
use pgrx::pg_sys::Datum;

sql_functions! {
    taskq_test_panic / pg_finfo_taskq_test_panic => panics;
}

/// A function with a defect.
fn panics(call: &Call) -> Outcome<Datum> {
    assert!(call.boolean(0) != Some(true), "a defect");
    call.void()
}

#[pgrx::pg_schema]
mod tests {
    use pgrx::prelude::*;

    #[pg_test]
    fn s17_a_panic_ends_its_statement_only() -> spi::Result<()> {
        Spi::run(
            "create function pg_temp.panics(boolean) returns void language c as '$libdir/taskq', 'taskq_test_panic';
             create temp table seen (sqlstate text, message text);
             do $$ begin
               for i in 1 .. 100 loop
                 begin
                   perform taskq.enqueue('lost');
                   perform pg_temp.panics(true);
                 exception when others then
                   insert into seen values (sqlstate, sqlerrm);
                 end;
                 perform taskq.enqueue('kept');
                 perform pg_temp.panics(false);
               end loop;
             end $$",
        )?;
        let seen = Spi::get_one::<String>(
            "select string_agg(distinct sqlstate || ' ' || message, ', ') || ' ' || count(*) from seen",
        )?;
        assert_eq!(seen.as_deref(), Some("XX000 a defect 100"));
        let tasks = Spi::get_one::<String>(
            "select string_agg(distinct task_type, ', ') || ' ' || count(*) from taskq.claim(1000)",
        )?;
        assert_eq!(tasks.as_deref(), Some("kept 100"));
        Ok(())
    }
}
