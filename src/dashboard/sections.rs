//! The parts of the board, each from the data to a table or a list.

use super::chart::sparkline;
use super::data::{Alert, Board, Flow, Forecast, Oddity, Pair};
use super::format::{count, duration, maybe, number, plural, share};
use super::table::{Column, badge, cell, left_out, number as numeric, table, text as words};
use maud::{Markup, html};
use std::collections::HashMap;

/// So many rows a list of types has.
const TYPES: usize = 10;
/// So many running tasks are shown.
const RUNNING: usize = 25;

/// How many checks fail and alerts are open: what somebody has to do something about.
pub fn troubles(board: &Board) -> (usize, usize) {
    let failing = board.health.iter().filter(|check| !check.ok && check.check != "open alerts").count();
    let open = board.alerts.iter().filter(|alert| alert.acknowledged_by.is_none()).count();
    (failing, open)
}

pub fn health(board: &Board) -> Markup {
    let failing: Vec<_> =
        board.health.iter().filter(|check| !check.ok && check.check != "open alerts").collect();
    let columns = [words("Check"), words("Holds"), words("Value"), words("Limit"), words("What to do")];
    let all = board.health.iter().map(|check| {
        vec![
            cell(&check.check),
            if check.ok { badge("good", "yes") } else { badge("bad", "no") },
            cell(check.value.as_deref().unwrap_or("–")),
            cell(check.limit.as_deref().unwrap_or("–")),
            cell(check.advice.as_deref().unwrap_or("–")),
        ]
    });
    html! {
        @if failing.is_empty() && board.alerts.is_empty() {
            p.calm { (badge("good", "well")) " All " (board.health.len()) " checks hold, and no alert is open." }
        } @else {
            ul.troubles {
                @for alert in &board.alerts { li { (alert_of(alert)) } }
                @for check in failing {
                    li {
                        p { (badge("bad", "check fails")) " " strong { (check.check) } @if let Some(value) = &check.value { ": " (value) } }
                        @if let Some(advice) = &check.advice { p.advice { (advice) } }
                    }
                }
            }
            @if let Some(more) = left_out(board.alerts.len(), board.alerts_in_all, "alerts") { p.more { (more) } }
        }
        details {
            summary { "All checks" }
            (table("Checks of taskq.health()", &columns, all.collect(), "No checks.", None))
        }
    }
}

fn alert_of(alert: &Alert) -> Markup {
    let seconds = |value: i64| duration(value as f64);
    let (what, value, limit) = match alert.kind.as_str() {
        "dead_letters" => ("dead letters", count(alert.value), count(alert.limit)),
        "expired_leases" => ("leases that ended in 10 minutes", count(alert.value), count(alert.limit)),
        "oldest_ready" => ("oldest ready task waits", seconds(alert.value), seconds(alert.limit)),
        "unclaimed" => ("nobody claims; a task waits", seconds(alert.value), seconds(alert.limit)),
        "keeper_late" => ("the keeper is late", seconds(alert.value), seconds(alert.limit)),
        "vacuum_held" => ("vacuum is held back", seconds(alert.value), seconds(alert.limit)),
        other => (other, count(alert.value), count(alert.limit)),
    };
    html! {
        p {
            @match &alert.acknowledged_by {
                None => (badge("bad", "alert")),
                Some(who) => (badge("warn", format!("alert, acknowledged by {who}"))),
            }
            " " strong { @if let Some(queue) = &alert.queue { (queue) ": " } (what) }
            ": " (value) " when it was raised, " (duration(alert.age)) " ago; the limit is " (limit) "."
        }
        @if let Some(detail) = &alert.detail { p.advice { (detail) } }
        @if alert.acknowledged_by.is_none() { p.advice { code { "select taskq.acknowledge(" (alert.id) ");" } } }
    }
}

/// The figures of the whole database.
pub fn totals(board: &Board) -> Markup {
    let flow = Flow::of(&board.pairs);
    let totals = &board.totals;
    let figures: [(&str, String, bool); 9] = [
        ("Ready", count(totals.ready), false),
        ("Running", count(totals.running), false),
        ("Scheduled", count(totals.scheduled), false),
        ("Blocked", count(totals.blocked), false),
        ("Dead letters", count(totals.dead), totals.dead > 0),
        ("Oldest ready", maybe(totals.oldest, duration), false),
        ("Arrive a minute", per_minute(flow.enqueued, board.window), false),
        ("End a minute", per_minute(flow.ended, board.window), false),
        ("Runs that fail", maybe(flow.failure_share(), share), false),
    ];
    html! {
        dl.tiles {
            @for (name, value, marked) in figures {
                div.marked[marked] { dt { (name) } dd { (value) } }
            }
        }
        @if !board.exact { p.more { "The counts are doubtful since a restart or a prepared transaction; they are being made anew." } }
    }
}

fn per_minute(events: f64, window: f64) -> String {
    number(events / window.max(1.0) * 60.0)
}

pub fn queues(board: &Board) -> Markup {
    let columns: [Column; 14] = [
        words("Queue"),
        numeric("Ready"),
        words("Last hour"),
        numeric("Oldest"),
        numeric("In/min"),
        numeric("Out/min"),
        numeric("Wait"),
        numeric("Wait 95 %"),
        numeric("Run"),
        numeric("Run 95 %"),
        numeric("Failed"),
        words("Empty in"),
        numeric("Running"),
        numeric("Later"),
    ];
    let flows = board.flows();
    let curves = curves(board);
    let rows = board.queues.iter().map(|queue| {
        let flow = flows.get(queue.queue.as_str()).copied().unwrap_or_default();
        let ((wait, wait_slow), (run, run_slow)) = (flow.waiting(), flow.run());
        let alert = board.alerts.iter().any(|alert| alert.queue.as_deref() == Some(&queue.queue));
        let name = html! {
            span.name { (queue.queue) }
            @if let Some(paused_for) = queue.paused_for {
                " " (badge("warn", "paused")) " "
                span.since { (duration(paused_for)) " ago by " (queue.paused_by.as_deref().unwrap_or("?")) }
            }
            @if alert { " " (badge("bad", "alert")) }
            @if queue.dead > 0 { " " (badge("bad", format!("{} dead", count(queue.dead)))) }
        };
        let later = queue.scheduled + queue.blocked;
        vec![
            name,
            cell(count(queue.ready)),
            curves.get(queue.queue.as_str()).map_or_else(|| cell("–"), |curve| sparkline(curve)),
            cell(maybe(queue.oldest, duration)),
            cell(per_minute(flow.enqueued, board.window)),
            cell(per_minute(flow.ended, board.window)),
            cell(maybe(wait, duration)),
            cell(maybe(wait_slow, duration)),
            cell(maybe(run, duration)),
            cell(maybe(run_slow, duration)),
            cell(maybe(flow.failure_share(), share)),
            forecast(&queue.forecast(flow.enqueued / board.window.max(1.0))),
            cell(count(queue.running)),
            cell(count(later)),
        ]
    });
    html! {
        p.note { "Rates, times and failures are those of the last " (duration(board.window)) ". Later: scheduled and blocked tasks." }
        (table("Queues, the one whose oldest task waits longest first", &columns, rows.collect(), "There are no queues.",
               left_out(board.queues.len(), board.queues_in_all, "queues")))
    }
}

fn forecast(forecast: &Forecast) -> Markup {
    match forecast {
        Forecast::Empty => cell("now"),
        Forecast::Paused => cell("paused"),
        Forecast::Stands => badge("warn", "nobody takes"),
        Forecast::Grows => badge("warn", "grows"),
        Forecast::In(seconds) => cell(duration(*seconds)),
    }
}

/// The last hour of each queue that had tasks in it.
fn curves(board: &Board) -> HashMap<&str, Vec<(f64, Option<f64>)>> {
    let all = board.hour_of(None);
    let mut places: HashMap<u64, usize> = HashMap::new();
    for (nth, (at, _)) in all.iter().enumerate() {
        places.insert(at.to_bits(), nth);
    }
    let blank: Vec<(f64, Option<f64>)> = all.iter().map(|(at, value)| (*at, value.map(|_| 0.0))).collect();
    let mut curves: HashMap<&str, Vec<(f64, Option<f64>)>> = HashMap::new();
    for (at, queue, ready) in &board.hour {
        let Some(queue) = queue else { continue };
        let curve = curves.entry(queue).or_insert_with(|| blank.clone());
        if let Some(place) = places.get(&at.to_bits()).and_then(|nth| curve.get_mut(*nth)) {
            place.1 = *ready;
        }
    }
    curves
}

/// Types by a figure, the largest first; those without it are left out.
fn ranked(board: &Board, figure: impl Fn(&Pair) -> Option<f64>) -> Vec<&Pair> {
    let mut pairs: Vec<(&Pair, f64)> = board
        .pairs
        .iter()
        .filter_map(|pair| Some((pair, figure(pair)?)))
        .filter(|(_, value)| *value > 0.0)
        .collect();
    pairs.sort_by(|a, b| {
        b.1.total_cmp(&a.1).then_with(|| (&a.0.queue, &a.0.task_type).cmp(&(&b.0.queue, &b.0.task_type)))
    });
    pairs.into_iter().take(TYPES).map(|(pair, _)| pair).collect()
}

pub fn types(board: &Board) -> Markup {
    let slow = ranked(board, |pair| pair.run_p50).into_iter().map(|pair| {
        vec![
            html! { span.name { (pair.task_type) } },
            html! { span.name { (pair.queue) } },
            cell(maybe(pair.run_p50, duration)),
            cell(maybe(pair.run_p95, duration)),
            cell(maybe(pair.waiting_p50, duration)),
            cell(count(pair.succeeded as i64)),
        ]
    });
    let failing = ranked(board, |pair| Some(pair.failed)).into_iter().map(|pair| {
        vec![
            html! { span.name { (pair.task_type) } },
            html! { span.name { (pair.queue) } },
            cell(count(pair.failed as i64)),
            cell(maybe(Flow::of([pair]).failure_share(), share)),
            cell(count(pair.succeeded as i64)),
        ]
    });
    let slow_columns = [
        words("Type"),
        words("Queue"),
        numeric("Run"),
        numeric("Run 95 %"),
        numeric("Wait"),
        numeric("Done"),
    ];
    let failing_columns =
        [words("Type"), words("Queue"), numeric("Failed runs"), numeric("Share"), numeric("Done")];
    html! {
        div.pair {
            div {
                h3 { "By slowness" }
                (table("Task types, the slowest first", &slow_columns, slow.collect(), "Nothing was completed lately.", None))
            }
            div {
                h3 { "By failure" }
                (table("Task types, those that fail most first", &failing_columns, failing.collect(), "Nothing failed lately.", None))
            }
        }
    }
}

pub fn errors(board: &Board) -> Markup {
    let columns = [
        words("Error"),
        words("Type"),
        words("Queue"),
        numeric("Runs"),
        numeric("Tasks"),
        numeric("Dead"),
        numeric("First"),
        numeric("Last"),
        numeric("Such a task"),
    ];
    let rows = board.errors.iter().map(|error| {
        let ago =
            |age: Option<f64>| age.map_or_else(|| "–".to_owned(), |age| format!("{} ago", duration(age)));
        vec![
            html! { span.error { @if error.error.is_empty() { "(no text)" } @else { (error.error) } } },
            html! { span.name { (error.task_type) } },
            html! { span.name { (error.queue) } },
            cell(count(error.runs)),
            cell(count(error.tasks)),
            cell(count(error.dead)),
            cell(ago(error.first)),
            cell(ago(error.last)),
            cell(error.id),
        ]
    });
    html! {
        p.note { "Numbers and ids are folded into #. More in " code { "taskq.failures" } "." }
        (table("Errors, the commonest first", &columns, rows.collect(), "No errors are known.", None))
    }
}

pub fn dead(board: &Board) -> Markup {
    let columns = [
        words("Queue"),
        words("Type"),
        numeric("Letters"),
        numeric("Newest"),
        words("Its error"),
        words("To bring them back"),
    ];
    let rows = board.dead.iter().map(|dead| {
        vec![
            html! { span.name { (dead.queue) } },
            html! { span.name { (dead.task_type) } },
            cell(count(dead.letters)),
            cell(format!("{} ago", duration(dead.age))),
            html! { span.error { (dead.error.as_deref().unwrap_or("(no text)")) } },
            html! { code { (dead.redrive) } },
        ]
    });
    table(
        "Dead letters by queue and type",
        &columns,
        rows.collect(),
        "There are no dead letters.",
        left_out(board.dead.len(), board.dead_in_all, "queues and types"),
    )
}

pub fn running(board: &Board) -> Markup {
    let columns = [
        words("Task"),
        words("Type"),
        words("Queue"),
        words("Worker"),
        numeric("Runs for"),
        words("Lease"),
        numeric("Attempt"),
        words("State"),
    ];
    let mut tasks: Vec<_> = board.running.iter().map(|task| (board.oddity(task), task)).collect();
    let place = |oddity: Oddity| match oddity {
        Oddity::Stuck => 0,
        Oddity::Long => 1,
        Oddity::None => 2,
    };
    tasks.sort_by(|(a, x), (b, y)| place(*a).cmp(&place(*b)).then(y.running_for.total_cmp(&x.running_for)));
    let stuck = tasks.iter().filter(|(oddity, _)| *oddity == Oddity::Stuck).count();
    let long = tasks.iter().filter(|(oddity, _)| *oddity == Oddity::Long).count();
    let in_all = board.running_in_all.map_or(0, |all| all.unsigned_abs() as usize).max(tasks.len());
    let rows = tasks.iter().take(RUNNING).map(|(oddity, task)| {
        let lease = if task.lease_left < 0.0 {
            format!("over for {}", duration(-task.lease_left))
        } else {
            format!("{} left", duration(task.lease_left))
        };
        vec![
            cell(task.id),
            html! { span.name { (task.task_type) } },
            html! { span.name { (task.queue) } },
            html! { span.name { (task.worker) } },
            cell(duration(task.running_for)),
            cell(lease),
            cell(task.attempt),
            html! {
                @match oddity {
                    Oddity::Stuck => (badge("bad", "stuck")),
                    Oddity::Long => (badge("warn", "unusually long")),
                    Oddity::None => "runs",
                }
                @if task.cancel_requested { " " (badge("warn", "cancel asked for")) }
            },
        ]
    });
    html! {
        p.note {
            (plural(stuck as i64, "task is stuck: its lease is over", "tasks are stuck: their leases are over")) "; "
            (plural(long as i64, "runs", "run")) " more than three times as long as 95 % of their type."
        }
        (table("Running tasks, those to look at first", &columns, rows.collect(), "Nothing runs.",
               left_out(tasks.len().min(RUNNING), in_all, "running tasks")))
    }
}

pub fn workers(board: &Board) -> Markup {
    let columns = [
        words("Worker"),
        words("Queues"),
        numeric("Seen"),
        numeric("Got a task"),
        numeric("Holds"),
        numeric("Tasks so far"),
        numeric("Claims"),
    ];
    let mut holds: HashMap<&str, i64> = HashMap::new();
    for task in &board.running {
        *holds.entry(&task.worker).or_default() += 1;
    }
    let rows = board.workers.iter().map(|worker| {
        let queues = match &worker.queues {
            None => "all".to_owned(),
            Some(queues) => queues.join(", "),
        };
        vec![
            html! { span.name { (worker.worker) } },
            html! { span.name { (queues) } },
            cell(format!("{} ago", duration(worker.seen))),
            cell(worker.last_got.map_or_else(|| "never".to_owned(), |age| format!("{} ago", duration(age)))),
            cell(count(holds.get(worker.worker.as_str()).copied().unwrap_or(0))),
            cell(count(worker.claimed)),
            cell(count(worker.claims)),
        ]
    });
    table(
        "Workers, the one seen last first",
        &columns,
        rows.collect(),
        "No worker has asked for tasks since the server started.",
        left_out(board.workers.len(), board.workers_in_all, "workers"),
    )
}

pub fn duties(board: &Board) -> Markup {
    let columns = [words("Duty"), numeric("Every"), numeric("Last round"), numeric("Rows"), words("State")];
    let rows = board.duties.iter().map(|duty| {
        vec![
            cell(&duty.duty),
            cell(duration(duty.every)),
            cell(duty.age.map_or_else(|| "never".to_owned(), |age| format!("{} ago", duration(age)))),
            cell(duty.rows.map_or_else(|| "–".to_owned(), count)),
            match &duty.error {
                Some(error) => html! { (badge("bad", "failed")) " " span.error { (error) } },
                None => cell("well"),
            },
        ]
    });
    table("The keeper's duties", &columns, rows.collect(), "There are no duties.", None)
}
