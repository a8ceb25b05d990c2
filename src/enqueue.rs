//! `taskq.enqueue` and `taskq.enqueue_many`: new tasks, in the caller's transaction.

use crate::call::Call;
use crate::checks;
use crate::clock;
use crate::failure::{DUPLICATE_KEY, Failure, Outcome};
use crate::sql_functions;
use crate::statement::{Spi, Table, arg, internal};
use crate::store::{self, NewTask};
use crate::values::{Jsonb, Moment, Seconds, parse_interval, parse_moment};
use pgrx::pg_sys::Datum;

sql_functions! {
    taskq_enqueue / pg_finfo_taskq_enqueue => enqueue;
    taskq_enqueue_many / pg_finfo_taskq_enqueue_many => enqueue_many;
}

/// What a second enqueue with a held key does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OnConflict {
    Ignore,
    Error,
}

/// The arguments of one enqueue, not yet checked.
struct Request {
    task_type: Option<String>,
    payload: Option<Jsonb>,
    queue: Option<String>,
    priority: Option<i64>,
    run_at: Option<Moment>,
    delay: Option<Seconds>,
    max_retries: Option<i64>,
    unique_key: Option<String>,
    on_conflict: Option<String>,
    headers: Option<Jsonb>,
}

fn enqueue(call: &Call) -> Outcome<Datum> {
    let request = Request {
        task_type: call.text(0),
        payload: call.jsonb(1),
        queue: call.text(2),
        priority: call.int(3).map(i64::from),
        run_at: call.moment(4),
        delay: call.seconds(5),
        max_retries: call.int(6).map(i64::from),
        unique_key: call.text(7),
        on_conflict: call.text(8),
        headers: call.jsonb(9),
    };
    let now = clock::now()?;
    let (task, on_conflict) = check(request, now)?;
    let id = Spi::run(|spi| {
        let Some(key) = &task.unique_key else { return store::insert(spi, None, &task, now) };
        let id = next_id(spi)?;
        match store::take_key(spi, &task.task_type, key, id)? {
            Ok(()) => store::insert(spi, Some(id), &task, now),
            Err(holder) => duplicate(on_conflict, &task.task_type, holder),
        }
    })?;
    call.value(Some(id))
}

fn enqueue_many(call: &Call) -> Outcome<Datum> {
    let tasks = checks::required("tasks", call.jsonb(0))?;
    if tasks.kind() != "array" {
        return Err(Failure::invalid(
            "tasks must be a JSON array",
            "Give an array of objects whose fields are named like the arguments of taskq.enqueue.",
        ));
    }
    let now = clock::now()?;
    let mut rows = call.rows();
    Spi::run(|spi| {
        let elements = store::elements(spi, tasks)?;
        let mut checked = Vec::with_capacity(elements.len());
        for row in 0..elements.len() {
            let request = element(&elements, row).map_err(|f| f.at_element(row + 1))?;
            checked.push(check(request, now).map_err(|f| f.at_element(row + 1))?);
        }
        let ids = store::ids(spi, checked.len())?;
        let outcomes = take_keys(spi, &checked, &ids)?;
        let new: Vec<(i64, &NewTask)> = checked
            .iter()
            .zip(&outcomes)
            .filter(|(_, o)| o.created)
            .map(|((task, _), o)| (o.id, task))
            .collect();
        store::insert_many(spi, &new, now)?;
        for (at, outcome) in outcomes.iter().enumerate() {
            rows.add(&[arg(at as i32 + 1), arg(outcome.id), arg(outcome.created)]);
        }
        Ok(())
    })?;
    rows.finish()
}

/// What became of an element.
struct Enqueued {
    id: i64,
    created: bool,
}

/// Takes the keys of the elements that have one, in sorted order, so that two calls with the
/// same keys in different order cannot deadlock.
fn take_keys(spi: &Spi, checked: &[(NewTask, OnConflict)], ids: &[i64]) -> Outcome<Vec<Enqueued>> {
    let mut outcomes: Vec<Enqueued> = ids.iter().map(|id| Enqueued { id: *id, created: true }).collect();
    let mut keyed: Vec<(&str, &str, usize)> = checked
        .iter()
        .enumerate()
        .filter_map(|(at, (task, _))| {
            task.unique_key.as_deref().map(|key| (task.task_type.as_str(), key, at))
        })
        .collect();
    keyed.sort_unstable();
    for (task_type, key, at) in keyed {
        if let Err(holder) = store::take_key(spi, task_type, key, ids[at])? {
            duplicate(checked[at].1, task_type, holder).map_err(|f| f.at_element(at + 1))?;
            outcomes[at] = Enqueued { id: holder, created: false };
        }
    }
    Ok(outcomes)
}

/// Answers an enqueue whose key is held: the holder's id, or TQ002.
fn duplicate(on_conflict: OnConflict, task_type: &str, holder: i64) -> Outcome<i64> {
    match on_conflict {
        OnConflict::Ignore => Ok(holder),
        OnConflict::Error => Err(Failure::new(
            DUPLICATE_KEY,
            format!("task {holder} of type \"{task_type}\" holds the unique key"),
        )
        .hint("Wait until that task has finished, or use on_conflict => 'ignore' to get its id.")),
    }
}

fn next_id(spi: &Spi) -> Outcome<i64> {
    store::ids(spi, 1)?.first().copied().ok_or_else(|| internal("the sequence gave no id"))
}

/// Reads an element of `enqueue_many`; the columns are those of `enqueue_elements.sql`.
fn element(elements: &Table, row: usize) -> Outcome<Request> {
    if let Some(fault) = elements.get::<String>(row, 10) {
        return Err(Failure::invalid(
            fault,
            "Fields are named like the arguments of taskq.enqueue, and have their types.",
        ));
    }
    Ok(Request {
        task_type: elements.get(row, 0),
        payload: elements.get(row, 1),
        queue: elements.get(row, 2),
        priority: number("priority", elements.get(row, 3))?,
        run_at: elements
            .get::<String>(row, 4)
            .map(|text| {
                parse_moment(&text).ok_or_else(|| {
                    Failure::new("22007", "run_at is not a timestamp")
                        .hint("Write it like '2030-01-31T12:00:00Z'.")
                })
            })
            .transpose()?,
        delay: elements
            .get::<String>(row, 5)
            .map(|text| {
                parse_interval(&text).ok_or_else(|| {
                    Failure::new("22007", "delay is not an interval").hint("Write it like '90 seconds'.")
                })
            })
            .transpose()?,
        max_retries: number("max_retries", elements.get(row, 6))?,
        unique_key: elements.get(row, 7),
        on_conflict: elements.get(row, 8),
        headers: elements.get(row, 9),
    })
}

fn number(what: &str, text: Option<String>) -> Outcome<Option<i64>> {
    text.map(|text| {
        text.parse::<i64>().map_err(|_| {
            Failure::invalid(
                format!("{what} must be a whole number"),
                format!("Give {what} without a fraction."),
            )
        })
    })
    .transpose()
}

fn check(request: Request, now: Moment) -> Outcome<(NewTask, OnConflict)> {
    let on_conflict = match request.on_conflict.as_deref() {
        None | Some("ignore") => OnConflict::Ignore,
        Some("error") => OnConflict::Error,
        Some(_) => {
            return Err(Failure::invalid("on_conflict is not valid", "Use 'ignore' or 'error'."));
        }
    };
    let run_at = match (request.run_at, request.delay) {
        (Some(_), Some(_)) => {
            return Err(Failure::invalid("run_at and delay are both given", "Give one of them."));
        }
        (Some(at), None) if !at.is_finite() => {
            return Err(Failure::invalid(
                "run_at must be finite",
                "Give a moment, or pause the queue to hold its tasks back.",
            ));
        }
        (Some(at), None) => at,
        (None, Some(delay)) => now.plus(checks::delay("delay", delay)?),
        (None, None) => now,
    };
    let payload = match request.payload {
        Some(payload) => payload,
        None => Jsonb::empty_object().ok_or_else(|| internal("jsonb_in gave nothing"))?,
    };
    let task = NewTask {
        task_type: checks::name("task_type", request.task_type)?,
        queue: request.queue.map(|queue| checks::name("queue", Some(queue))).transpose()?,
        priority: request.priority.map(checks::priority).transpose()?,
        run_at,
        max_retries: request.max_retries.map(checks::max_retries).transpose()?,
        unique_key: request.unique_key.map(checks::unique_key).transpose()?,
        bytes: checks::size("the payload with its headers", &[Some(payload), request.headers])?,
        payload,
        headers: request.headers,
    };
    Ok((task, on_conflict))
}
