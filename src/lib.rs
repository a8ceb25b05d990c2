//! taskq: a task queue inside PostgreSQL.
//!
//! How to read this: `sql/schema.sql` tells how a task travels; the other files of `sql/`
//! declare the functions, a topic each; `sql/statements/` holds the statements of the hot
//! verbs. The Rust modules below are named like the verbs and topics they serve.

pgrx::pg_module_magic!(name, version);

// what the verbs are built from
mod call;
mod changes;
mod checks;
mod clock;
mod config;
mod cron;
mod effort;
mod failure;
mod figures;
mod fold;
mod groups;
mod pairs;
mod permits;
mod planner;
mod session;
mod settings;
mod shared;
mod statement;
mod store;
mod transaction;
mod values;

// the verbs
mod backoff;
mod cancel;
mod claim;
mod complete;
mod drill;
mod enqueue;
mod keys;
mod lease;
mod locks;
mod recover;
mod wait;

// what people look at
mod dashboard;
mod metrics;

// the background worker
mod keeper;

/// Called once when the library is loaded: by the postmaster if it is preloaded, else by the
/// first session that uses it.
#[allow(unsafe_code)]
#[pgrx::pg_guard]
pub extern "C-unwind" fn _PG_init() {
    settings::init();
    planner::init();
    keeper::init();
}

// The SQL files, in the order in which a DBA reads them; each waits for the one before.
pgrx::extension_sql_file!("../sql/schema.sql", name = "schema", bootstrap);
pgrx::extension_sql_file!("../sql/support.sql", name = "support", requires = ["schema"]);
pgrx::extension_sql_file!("../sql/figures.sql", name = "figures", requires = ["support"]);
pgrx::extension_sql_file!("../sql/enqueue.sql", name = "enqueue", requires = ["figures"]);
pgrx::extension_sql_file!("../sql/status.sql", name = "status", requires = ["enqueue"]);
pgrx::extension_sql_file!("../sql/claim.sql", name = "claim", requires = ["status"]);
pgrx::extension_sql_file!("../sql/finish.sql", name = "finish", requires = ["claim"]);
pgrx::extension_sql_file!("../sql/limits.sql", name = "limits", requires = ["finish"]);
pgrx::extension_sql_file!("../sql/configure.sql", name = "configure", requires = ["limits"]);
pgrx::extension_sql_file!("../sql/redrive.sql", name = "redrive", requires = ["configure"]);
pgrx::extension_sql_file!("../sql/views.sql", name = "views", requires = ["redrive"]);
pgrx::extension_sql_file!("../sql/alert.sql", name = "alert", requires = ["views"]);
pgrx::extension_sql_file!("../sql/archive.sql", name = "archive", requires = ["alert"]);
pgrx::extension_sql_file!("../sql/archive_days.sql", name = "archive_days", requires = ["archive"]);
pgrx::extension_sql_file!("../sql/archive_rows.sql", name = "archive_rows", requires = ["archive_days"]);
pgrx::extension_sql_file!("../sql/drill.sql", name = "drill", requires = ["archive_rows"]);
pgrx::extension_sql_file!("../sql/sample.sql", name = "sample", requires = ["drill"]);
pgrx::extension_sql_file!("../sql/schedule.sql", name = "schedule", requires = ["sample"]);
pgrx::extension_sql_file!("../sql/keeper.sql", name = "keeper", requires = ["schedule"]);
pgrx::extension_sql_file!("../sql/failures.sql", name = "failures", requires = ["keeper"]);
pgrx::extension_sql_file!("../sql/why.sql", name = "why", requires = ["failures"]);
pgrx::extension_sql_file!("../sql/diagnose.sql", name = "diagnose", requires = ["why"]);
pgrx::extension_sql_file!("../sql/diagnose_workers.sql", name = "workers", requires = ["diagnose"]);
pgrx::extension_sql_file!("../sql/diagnose_tasks.sql", name = "tasks", requires = ["workers"]);
pgrx::extension_sql_file!("../sql/diagnose_lanes.sql", name = "lanes", requires = ["tasks"]);
pgrx::extension_sql_file!("../sql/diagnose_server.sql", name = "server", requires = ["lanes"]);
pgrx::extension_sql_file!("../sql/overview.sql", name = "overview", requires = ["server"]);
pgrx::extension_sql_file!("../sql/metrics.sql", name = "metrics", requires = ["overview"]);
pgrx::extension_sql_file!("../sql/dashboard.sql", name = "dashboard", requires = ["metrics"]);
pgrx::extension_sql_file!("../sql/grants.sql", name = "grants", requires = ["dashboard"], finalize);

#[cfg(any(test, feature = "pg_test"))]
mod argument_tests;

#[cfg(any(test, feature = "pg_test"))]
mod panic_tests;

#[cfg(test)]
pub mod pg_test {
    pub fn setup(_options: Vec<&str>) {}

    #[must_use]
    pub fn postgresql_conf_options() -> Vec<&'static str> {
        vec!["shared_preload_libraries = 'taskq'"]
    }
}
