//! The rows of the machine as the server would show them: see `rows.sql`.

use crate::player::Known;
use postgres::{Client, Statement};
use std::collections::{BTreeMap, BTreeSet};
use taskq_model::histories::{QUEUES, TYPES};
use taskq_model::machine::{Machine, Reason, State, Task};
use taskq_model::sql::Names;
use taskq_model::verbs::*;
use taskq_server_tests::Session;

/// Compares everything that is stored.
pub fn compare(
    client: &mut Client,
    rows: &Statement,
    machine: &Machine,
    known: &Known,
) -> Result<(), String> {
    let found = client.query(rows, &[&known.beginning()]).map_err(|error| format!("{error:?}"))?;
    let (mut server, mut parked, mut parked_rows) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for row in &found {
        let (kind, id): (String, Option<i64>) = (row.get(0), row.get(1));
        if kind == "parked" {
            parked_rows.extend(id);
            continue;
        }
        if row.get::<_, Option<bool>>(4) == Some(true) {
            parked.extend(id);
        }
        let id = id.map(|id| format!(" {id}")).unwrap_or_default();
        if !server.insert(format!("{kind}{id}: {}", row.get::<_, &str>(5))) {
            return Err(format!("{kind}{id} is there twice"));
        }
    }
    let model = stored(machine, known, &parked);
    let only = |these: &BTreeSet<String>, others: &BTreeSet<String>| {
        these.difference(others).map(|row| format!("\n  {row}")).collect::<String>()
    };
    if server != model {
        return Err(format!(
            "the server has{}\nit should have{}",
            only(&server, &model),
            only(&model, &server)
        ));
    }
    if parked != parked_rows {
        return Err(format!("tasks {parked:?} are put aside, but {parked_rows:?} are noted as parked"));
    }
    turns(machine, known, &parked)
}

/// A task may be put aside if it was due, and only as long as something will bring it back: another one of its group
/// runs, or is due, is not put aside and comes first.
fn turns(machine: &Machine, known: &Known, parked: &BTreeSet<i64>) -> Result<(), String> {
    let is_parked = |task: &Task| known.id(task.id).parse().is_ok_and(|id: i64| parked.contains(&id));
    let place = |task: &Task| (-task.priority, task.run_at, task.id);
    for task in machine.tasks.values().filter(|task| is_parked(task)) {
        let mut others =
            machine.tasks.values().filter(|other| (other.queue, other.group) == (task.queue, task.group));
        let comes_back = |other: &Task| {
            other.runs()
                || other.state == State::Waiting
                    && other.run_at <= machine.now
                    && !is_parked(other)
                    && place(other) < place(task)
        };
        if task.run_at > machine.now || task.group.is_none() || !others.any(comes_back) {
            return Err(format!("task {} is put aside, and nothing will bring it back", known.id(task.id)));
        }
    }
    Ok(())
}

fn stored(machine: &Machine, known: &Known, parked: &BTreeSet<i64>) -> BTreeSet<String> {
    let mut rows = BTreeSet::new();
    // waiting, blocked, running
    let mut figures: BTreeMap<(Name, Name), [usize; 3]> = BTreeMap::new();
    for task in machine.tasks.values() {
        let id = known.id(task.id);
        rows.insert(task_row(task, known));
        let figures = figures.entry((task.task_type, task.queue)).or_default();
        match task.state {
            State::Waiting if id.parse().is_ok_and(|id: i64| parked.contains(&id)) => figures[1] += 1,
            State::Waiting => figures[0] += 1,
            State::Running { .. } => {
                figures[2] += 1;
                if machine.queue(task.queue).max_running.is_some() {
                    rows.insert(format!("slot {id}: of {}", task.queue));
                }
                if let Some(group) = task.group {
                    rows.insert(format!("turn {id}: of {group} in {}", task.queue));
                }
            }
            _ => {}
        }
    }
    for ((task_type, queue), [waiting, blocked, running]) in figures {
        if waiting + blocked + running > 0 {
            rows.insert(format!(
                "figures: {task_type} in {queue}, waiting {waiting}, blocked {blocked}, running {running}"
            ));
        }
    }
    for (task_type, name) in machine.keys.keys() {
        let Some(key) = machine.key(task_type, name) else { continue };
        rows.insert(format!(
            "key {}: {name} of {task_type}, until {}, kept until {}{}",
            known.id(key.id),
            until(key.until),
            some(key.kept_until.filter(|at| *at > machine.now)),
            if key.let_go { ", let go" } else { "" }
        ));
    }
    for (name, queue) in &machine.queues {
        let mut tokens: Vec<_> = queue.tokens.iter().filter(|free_at| **free_at > machine.now).collect();
        tokens.sort();
        // (several may be free again at the same moment)
        rows.extend(
            tokens
                .into_iter()
                .enumerate()
                .map(|(at, free_at)| format!("used token: of {name} until {free_at}{}", " ".repeat(at))),
        );
        let row = format!(
            "queue: {name}, paused {}, max_running {}, rate {}, lease {}, retention {}",
            if queue.paused { "t" } else { "f" },
            some(queue.max_running),
            if queue.rated { "2/minute" } else { "" },
            some(queue.lease.map(interval)),
            if queue.keeps_nothing { "00:00:00" } else { "" }
        );
        if row != format!("queue: {name}, paused f, max_running , rate , lease , retention ") {
            rows.insert(row);
        }
    }
    for name in TYPES {
        let settings = machine.types.get(name).cloned().unwrap_or_default();
        rows.insert(format!(
            "type: {name}, queue {}, priority {}, max_retries {}, lease {}, backoff_base {}",
            some(settings.queue),
            some(settings.priority),
            some(settings.max_retries),
            some(settings.lease.map(interval)),
            some(settings.backoff_base.map(interval))
        ));
    }
    for (name, schedule) in &machine.schedules {
        rows.insert(format!(
            "schedule{}: {name}, next at {}, last at {}, missed {}, well",
            schedule.last.map(|(_, id)| format!(" {}", known.id(id))).unwrap_or_default(),
            some(schedule.next_run_at),
            some(schedule.last.map(|(at, _)| at)),
            schedule.missed
        ));
    }
    for (key, until) in machine.seen.iter().filter(|(_, until)| **until > machine.now) {
        rows.insert(format!("seen: {key} until {until}"));
    }
    rows
}

/// Headers as `test.headers` writes them.
pub fn headers(task: &Task) -> String {
    match task.headers {
        Headers::None => String::new(),
        Headers::Given(n) => n.to_string(),
        Headers::Occurrence(name, at) => format!("{name} at {at}"),
    }
}

fn task_row(task: &Task, known: &Known) -> String {
    let id = known.id(task.id);
    let token = known.token(Lease { id: task.id, token: task.token });
    let what = format!("{} in {}, priority {} at {}", task.task_type, task.queue, task.priority, task.run_at);
    let tries = format!("attempt {} of {}", task.attempt, task.max_retries);
    let worker = if task.claimed_at.is_some() { "w" } else { "" };
    let claimed = format!("claimed at {} by {worker}", some(task.claimed_at));
    let reason = match task.cancel_reason {
        None => String::new(),
        Some(Reason::Given(reason)) => reason.into(),
        Some(Reason::SupersededBy(other)) => format!("superseded by {}", known.id(other)),
    };
    let enqueued = format!("enqueued at {}", task.enqueued_at);
    let redriven = format!("redriven at {}", some(task.redriven_at));
    let key = some(task.unique.map(|(key, _)| key));
    let key_until = format!("key {key} until {}", some(task.unique.map(|(_, of)| until(of))));
    let headers = headers(task);
    let data = format!(
        "group {}, payload {}, headers {headers}, progress {}",
        some(task.group),
        task.payload,
        some(task.progress)
    );
    let errors: Vec<String> =
        task.errors.iter().map(|(attempt, at, error)| format!("{attempt} at {at} by w: {error}")).collect();
    let errors = errors.join("; ");
    let finished = |state: &str, at: Seconds, result: Option<i64>| {
        format!(
            "finished {id}: {what}, {state} at {at}, {tries}, {claimed}, reason {reason}, {enqueued}, key {key}, {data}, \
             result {}, errors {errors}",
            some(result)
        )
    };
    match &task.state {
        State::Waiting => format!(
            "task {id}: {what}, waiting, {tries}, token {token}, lease until , {claimed}, cancel asked at , \
             reason {reason}, {enqueued}, {redriven}, {key_until}, {data}, errors {errors}"
        ),
        State::Running { lease_expires_at, cancel_requested_at } => format!(
            "task {id}: {what}, running, {tries}, token {token}, lease until {lease_expires_at}, {claimed}, \
             cancel asked at {}, reason {reason}, {enqueued}, {redriven}, {key_until}, {data}, errors {errors}",
            some(*cancel_requested_at)
        ),
        State::Dead { died_at } => format!(
            "dead {id}: {what}, {tries}, token {token}, {claimed}, died at {died_at}, {enqueued}, {redriven}, \
             {key_until}, {data}, errors {errors}"
        ),
        State::Succeeded { finished_at, result } => finished("succeeded", *finished_at, *result),
        State::Cancelled { finished_at } => finished("cancelled", *finished_at, None),
    }
}

fn some(value: Option<impl ToString>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

fn until(until: Until) -> &'static str {
    match until {
        Until::Finished => "finished",
        Until::Started => "started",
    }
}

fn interval(seconds: Seconds) -> String {
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// Compares the view `queues` with what is there, and with the figures when these were brought up to date; and has the
/// keeper's duty look for slots that do not fit what runs.
pub fn compare_counts(client: &mut Client, machine: &Machine) -> Result<(), String> {
    let mended: i64 = client.value("select taskq._duty_limits()", &[]);
    if mended != 0 {
        return Err(format!("{mended} slots did not fit what runs"));
    }
    client.run("select taskq._duty_wake()");
    let mut server = BTreeSet::new();
    for sql in [
        "select queue, ready + blocked, scheduled, running from taskq.queues where ready + blocked + scheduled + running > 0",
        "select queue, sum(ready + blocked)::bigint, sum(scheduled)::bigint, sum(running)::bigint from taskq._figures() \
          group by 1 having sum(ready + blocked + scheduled + running) > 0",
    ] {
        let rows = client.query(sql, &[]).map_err(|error| format!("{error:?}"))?;
        server.extend(rows.iter().map(|row| {
            let count = |at| row.get::<_, i64>(at);
            format!(
                "{}: {} due, {} scheduled, {} running",
                row.get::<_, &str>(0),
                count(1),
                count(2),
                count(3)
            )
        }));
    }
    let mut model = BTreeSet::new();
    for queue in QUEUES {
        let count = |state: fn(&Task, Seconds) -> bool| {
            machine.tasks.values().filter(|task| task.queue == queue && state(task, machine.now)).count()
        };
        let counts = [
            count(|task, now| task.state == State::Waiting && task.run_at <= now),
            count(|task, now| task.state == State::Waiting && task.run_at > now),
            count(|task, _| task.runs()),
        ];
        if counts != [0; 3] {
            model.insert(format!(
                "{queue}: {} due, {} scheduled, {} running",
                counts[0], counts[1], counts[2]
            ));
        }
    }
    if server == model { Ok(()) } else { Err(format!("the views count {server:?}, there are {model:?}")) }
}
