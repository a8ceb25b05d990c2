//! `taskq.metrics()`: what `sql/metrics.sql` reads, as Prometheus text.

mod text;

use crate::call::Call;
use crate::failure::Outcome;
use crate::sql_functions;
use crate::statement::{Spi, Statement, Table, internal};
use pgrx::pg_sys::Datum;
use text::{Families, Histogram, Kind};

sql_functions! {
    taskq_metrics / pg_finfo_taskq_metrics => metrics;
}

/// The rows that one function returns: label columns, then metrics.
struct Source {
    statement: Statement,
    /// What the names of its metrics begin with.
    prefix: &'static str,
    labels: &'static [&'static str],
    metrics: &'static [Metric],
}

struct Metric {
    name: &'static str,
    kind: Kind,
    help: &'static str,
}

const fn gauge(name: &'static str, help: &'static str) -> Metric {
    Metric { name, kind: Kind::Gauge, help }
}

const fn counter(name: &'static str, help: &'static str) -> Metric {
    Metric { name, kind: Kind::Counter, help }
}

const fn histogram(name: &'static str, help: &'static str) -> Metric {
    Metric { name, kind: Kind::Histogram, help }
}

/// Names and help are those of docker/exporter/queries.yaml; a test compares them.
static SOURCES: [Source; 6] = [
    Source {
        statement: Statement::new(
            "select m.queue, m.task_type, m.ready_tasks::float8, m.scheduled_tasks::float8, m.running_tasks::float8,
                    m.blocked_tasks::float8, m.dead_letters::float8, m.enqueued_total::float8, m.started_total::float8,
                    m.succeeded_total::float8, m.failed_total::float8, m.died_total::float8, m.expired_total::float8,
                    m.cancelled_total::float8,
                    m.waiting_seconds, m.waiting_seconds_bucket, m.waiting_seconds_sum, m.waiting_seconds_count,
                    m.run_seconds, m.run_seconds_bucket, m.run_seconds_sum, m.run_seconds_count,
                    m.turnaround_seconds, m.turnaround_seconds_bucket, m.turnaround_seconds_sum, m.turnaround_seconds_count
               from taskq._metrics_tasks() m",
            &[],
        ),
        prefix: "taskq",
        labels: &["queue", "task_type"],
        metrics: &[
            gauge("ready_tasks", "Tasks that are due and wait for a worker."),
            gauge("scheduled_tasks", "Tasks that are due later, retries included."),
            gauge("running_tasks", "Tasks that a worker holds."),
            gauge("blocked_tasks", "Tasks that are due while another one of their group runs."),
            gauge("dead_letters", "Tasks whose retries are used up."),
            counter("tasks_enqueued_total", "Tasks enqueued, and dead letters redriven."),
            counter("tasks_started_total", "Tasks that a worker claimed."),
            counter("tasks_succeeded_total", "Tasks completed."),
            counter("tasks_failed_total", "Runs that failed, by fail or by the end of a lease."),
            counter("tasks_died_total", "Tasks that became dead letters."),
            counter("tasks_expired_total", "Runs whose lease ended without an answer."),
            counter("tasks_cancelled_total", "Tasks that ended cancelled."),
            histogram("tasks_waiting_seconds", "From the moment a task was due to its claim."),
            histogram("tasks_run_seconds", "From the claim of a task to its completion."),
            histogram("tasks_turnaround_seconds", "From the enqueue of a task to its completion."),
        ],
    },
    Source {
        statement: Statement::new(
            "select m.queue, m.oldest_ready_age_seconds, m.paused::float8 from taskq._metrics_queues() m",
            &[],
        ),
        prefix: "taskq_queue",
        labels: &["queue"],
        metrics: &[
            gauge("oldest_ready_age_seconds", "How long the oldest ready task has been due; 0 if there is none."),
            gauge("paused", "Whether the queue is paused."),
        ],
    },
    Source {
        statement: Statement::new("select m.queue, m.workers::float8 from taskq._metrics_queues() m", &[]),
        prefix: "taskq_workers",
        labels: &["queue"],
        metrics: &[gauge("asking", "Workers that asked for tasks of the queue in the last 30 seconds.")],
    },
    Source {
        statement: Statement::new(
            "select m.kind, m.queue, m.open::float8, m.acknowledged::float8 from taskq._metrics_alerts() m",
            &[],
        ),
        prefix: "taskq_alerts",
        labels: &["kind", "queue"],
        metrics: &[
            gauge("open", "Alerts that are open and that nobody has acknowledged."),
            gauge("acknowledged", "Alerts that are not cleared and that a person has acknowledged."),
        ],
    },
    Source {
        statement: Statement::new(
            "select m.duty, m.last_success_timestamp_seconds, m.failing::float8 from taskq._metrics_duties() m",
            &[],
        ),
        prefix: "taskq_duty",
        labels: &["duty"],
        metrics: &[
            gauge("last_success_timestamp_seconds", "When the last round of the duty went well; 0: never."),
            gauge("failing", "Whether the last round of the duty failed."),
        ],
    },
    Source {
        statement: Statement::new(
            "select m.version, m.keeper_running::float8, m.counts_exact::float8, m.vacuum_held_seconds
               from taskq._metrics_database() m",
            &[],
        ),
        prefix: "taskq_database",
        labels: &["version"],
        metrics: &[
            gauge("keeper_running", "Whether a keeper is at work in the database."),
            gauge("counts_exact", "Whether the counts of tasks are exact; they are counted again if not."),
            gauge("vacuum_held_seconds", "For how long something has held back vacuum."),
        ],
    },
];

fn metrics(call: &Call) -> Outcome<Datum> {
    let mut families = Families::default();
    Spi::run_freely(|spi| {
        for source in &SOURCES {
            let rows = spi.execute(&source.statement, &[])?;
            for metric in source.metrics {
                families.declare(&format!("{}_{}", source.prefix, metric.name), metric.kind, metric.help);
            }
            for row in 0..rows.len() {
                add(&mut families, source, &rows, row)?;
            }
        }
        Ok(())
    })?;
    let text =
        families.text().map_err(|error| internal(&format!("the metrics could not be written: {error}")))?;
    call.value(Some(text))
}

fn add(families: &mut Families, source: &Source, rows: &Table, row: usize) -> Outcome<()> {
    let mut labels = Vec::new();
    for (column, label) in source.labels.iter().enumerate() {
        labels.push((*label, rows.need::<String>(row, column)?));
    }
    let mut column = labels.len();
    for metric in source.metrics {
        let name = format!("{}_{}", source.prefix, metric.name);
        if matches!(metric.kind, Kind::Histogram) {
            // A metric that is not kept has NULL, and then no sample.
            if let Some(bounds) = rows.get::<Vec<f64>>(row, column) {
                let histogram = Histogram {
                    bounds,
                    cumulative: rows.need(row, column + 1)?,
                    sum: rows.need(row, column + 2)?,
                    count: rows.need(row, column + 3)?,
                };
                families.add_histogram(&name, &labels, &histogram);
            }
            column += 4;
        } else {
            if let Some(value) = rows.get::<f64>(row, column) {
                families.add(&name, &labels, value);
            }
            column += 1;
        }
    }
    Ok(())
}
