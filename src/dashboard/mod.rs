//! `taskq.dashboard()`: the board. `sql/dashboard.sql` reads what it shows, here it is drawn.

mod chart;
mod data;
mod format;
mod page;
mod sections;
mod table;

use crate::call::Call;
use crate::failure::Outcome;
use crate::sql_functions;
use crate::statement::{Spi, Statement, internal};
use data::Board;
use pgrx::pg_sys::Datum;

sql_functions! {
    taskq_dashboard / pg_finfo_taskq_dashboard => dashboard;
}

static BOARD: Statement = Statement::new("select taskq._board()", &[]);

fn dashboard(call: &Call) -> Outcome<Datum> {
    let text = Spi::run_freely(|spi| spi.execute(&BOARD, &[])?.need::<String>(0, 0))?;
    let board: Board = serde_json::from_str(&text)
        .map_err(|error| internal(&format!("the board's data could not be read: {error}")))?;
    call.value(Some(page::page(&board).into_string()))
}
