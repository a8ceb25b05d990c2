//! What the shared memory knows about queues, task types and workers, for SQL.

use crate::call::{Call, Rows};
use crate::changes;
use crate::checks;
use crate::failure::Outcome;
use crate::shared::buckets::BOUNDS;
use crate::shared::database::Database;
use crate::shared::figure::{self, Counts, Durations, Figure};
use crate::shared::histogram::Histogram;
use crate::shared::{self, worker};
use crate::sql_functions;
use crate::statement::arg;
use crate::transaction;
use crate::values::Moment;
use pgrx::pg_sys::Datum;

sql_functions! {
    taskq_figures / pg_finfo_taskq_figures => figures;
    taskq_figures_state / pg_finfo_taskq_figures_state => state;
    taskq_figures_kept / pg_finfo_taskq_figures_kept => kept;
    taskq_figures_for_metrics / pg_finfo_taskq_figures_for_metrics => for_metrics;
    taskq_take_figures / pg_finfo_taskq_take_figures => take;
    taskq_clock_jump / pg_finfo_taskq_clock_jump => clock_jump;
    taskq_take_claims / pg_finfo_taskq_take_claims => take_claims;
    taskq_workers_seen / pg_finfo_taskq_workers_seen => workers_seen;
    taskq_note_redriven / pg_finfo_taskq_note_redriven => note_redriven;
    taskq_note_gone / pg_finfo_taskq_note_gone => note_gone;
    taskq_note_opened / pg_finfo_taskq_note_opened => note_opened;
}

/// The figures of this database as they are at one moment.
fn copied() -> Vec<Figure> {
    let Some(mut shared) = shared::lock() else { return Vec::new() };
    let figures = figure::of(&mut shared.figures, transaction::database());
    figures.filter(|figure| !figure.task_type.is_empty()).map(|figure| *figure).collect()
}

fn figures(call: &Call) -> Outcome<Datum> {
    let mut rows = call.rows();
    for figure in copied() {
        rows.add(&row(&figure, &figure.counts));
    }
    rows.finish()
}

/// The columns that `_figures` and `_take_figures` share.
fn row(figure: &Figure, counts: &Counts) -> Vec<Option<Datum>> {
    let (queue, task_type) = (figure.queue.as_str(), figure.task_type.as_str());
    let failed = counts.retried + counts.dead;
    vec![
        arg(queue),
        arg(task_type),
        // A change that is committed and not yet noted could show one fewer than none for a moment.
        arg(figure.ready.max(0)),
        arg(figure.scheduled.max(0)),
        arg(figure.running.max(0)),
        arg(figure.blocked.max(0)),
        arg(counts.enqueued),
        arg(counts.started),
        arg(counts.succeeded),
        arg(failed),
        arg(counts.retried),
        arg(counts.dead),
        arg(counts.expired),
        arg(counts.cancelled),
    ]
}

/// `taskq._figures_for_metrics()`.
fn for_metrics(call: &Call) -> Outcome<Datum> {
    let mut rows = call.rows();
    for figure in copied() {
        let mut columns = row(&figure, &figure.counts);
        columns.push(arg(figure.made_at));
        columns.push(arg(BOUNDS.to_vec()));
        for buckets in [&figure.totals.waiting, &figure.totals.run, &figure.totals.total] {
            columns.extend([arg(buckets.cumulative()), arg(buckets.count()), arg(buckets.sum)]);
        }
        rows.add(&columns);
    }
    rows.finish()
}

/// `taskq._figures_state()`.
fn state(call: &Call) -> Outcome<Datum> {
    state_if(call, |_| true)
}

/// `taskq._figures_kept()`.
fn kept(call: &Call) -> Outcome<Datum> {
    state_if(call, |database| database.keeper.lives())
}

fn state_if(call: &Call, shown: impl Fn(&Database) -> bool) -> Outcome<Datum> {
    let mut rows = call.rows();
    let found = shared::with_database(|database| {
        let counted = database.counted_at != Moment::DISTANT_PAST && shown(database);
        counted.then_some((database.counted_at, database.exact))
    });
    if let Some((counted_at, exact)) = found.flatten() {
        rows.add(&[arg(counted_at), arg(exact)]);
    }
    rows.finish()
}

/// `taskq._clock_jump()`.
fn clock_jump(call: &Call) -> Outcome<Datum> {
    let mut rows = call.rows();
    let found = shared::with_database(|database| (database.clock_jumped_at, database.clock_jumped_by));
    if let Some((at, by)) = found.filter(|(at, _)| *at != Moment::DISTANT_PAST) {
        rows.add(&[arg(at), arg(by)]);
    }
    rows.finish()
}

fn take(call: &Call) -> Outcome<Datum> {
    let mut rows = call.rows();
    let mut taken = Vec::new();
    for figure in copied() {
        let Durations { waiting, run, total } = &figure.durations;
        let mut columns = row(&figure, &figure.counts.since(&figure.taken));
        for (histogram, share) in [waiting, run, total].into_iter().flat_map(|h| [(h, 0.5), (h, 0.95)]) {
            columns.push(histogram.percentile(share).and_then(arg));
        }
        rows.add(&columns);
        taken.push(((figure.queue, figure.task_type), figure.counts, figure.durations));
    }
    changes::taken(taken);
    rows.finish()
}

fn workers_seen(call: &Call) -> Outcome<Datum> {
    let mut rows = call.rows();
    let database = transaction::database();
    let seen: Vec<(worker::Worker, bool)> = match shared::lock() {
        Some(shared) => {
            let of_here = shared.workers.iter().filter(|worker| worker.database == database);
            let waits = |worker: &worker::Worker| {
                shared.waiters.iter().any(|w| w.database == database && w.process == worker.process)
            };
            of_here.map(|worker| (*worker, waits(worker))).collect()
        }
        None => Vec::new(),
    };
    for (worker, waits) in seen {
        add_worker(&mut rows, &worker, waits);
    }
    rows.finish()
}

/// `taskq._take_claims()`.
fn take_claims(call: &Call) -> Outcome<Datum> {
    let mut rows = call.rows();
    let taken = shared::with_database(|database| std::mem::replace(&mut database.claims, Histogram::NONE));
    if let Some(claims) = taken {
        rows.add(&[
            arg(claims.count()),
            claims.percentile(0.5).and_then(arg),
            claims.percentile(0.95).and_then(arg),
        ]);
    }
    rows.finish()
}

fn add_worker(rows: &mut Rows, worker: &worker::Worker, waits: bool) {
    let lives = worker.process.lives();
    let queues =
        worker.queues[..usize::from(worker.queue_count)].iter().map(|queue| queue.as_str().to_owned());
    let queues: Vec<String> = queues.collect();
    rows.add(&[
        arg(worker.name.as_str()),
        if worker.every_queue { None } else { arg(queues) },
        arg(worker.first_seen_at),
        arg(worker.seen_at),
        Some(worker.claimed_at).filter(|at| *at != Moment::DISTANT_PAST).and_then(arg),
        arg(worker.claims),
        arg(worker.claimed),
        arg(lives),
        arg(worker.calls_in_session),
        arg(waits && lives),
    ]);
}

/// `taskq._note_redriven(queue, task_type, run_at, enqueued_at)`.
fn note_redriven(call: &Call) -> Outcome<Datum> {
    with_place(call, changes::enqueued)
}

/// `taskq._note_gone(queue, task_type, run_at, enqueued_at)`.
fn note_gone(call: &Call) -> Outcome<Datum> {
    with_place(call, |place| changes::gone(place, false))
}

fn with_place(call: &Call, note: impl FnOnce(changes::Place)) -> Outcome<Datum> {
    let queue = checks::required("queue", call.text(0))?;
    let task_type = checks::required("task_type", call.text(1))?;
    let run_at = checks::required("run_at", call.moment(2))?;
    let enqueued_at = checks::required("enqueued_at", call.moment(3))?;
    note(changes::Place { queue: &queue, task_type: &task_type, run_at, enqueued_at });
    call.void()
}

/// `taskq._note_opened(queue)`.
fn note_opened(call: &Call) -> Outcome<Datum> {
    changes::opened(&checks::required("queue", call.text(0))?);
    call.void()
}
