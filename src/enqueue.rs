//! `taskq.enqueue` and `taskq.enqueue_many`: new tasks, in the caller's transaction.

use crate::call::Call;
use crate::checks;
use crate::clock;
use crate::config::{self, Config};
use crate::failure::{Failure, Outcome};
use crate::keys::{self, Conflict, OnConflict, UniqueKey, Until};
use crate::sql_functions;
use crate::statement::{Spi, Table, arg, internal};
use crate::store::{self, NewTask};
use crate::values::{Jsonb, Moment, Seconds, parse_interval, parse_moment};
use pgrx::pg_sys::Datum;

sql_functions! {
    taskq_enqueue / pg_finfo_taskq_enqueue => enqueue;
    taskq_enqueue_many / pg_finfo_taskq_enqueue_many => enqueue_many;
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
    unique_until: Option<String>,
    unique_for: Option<Seconds>,
    on_conflict: Option<String>,
    group_key: Option<String>,
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
        unique_until: call.text(8),
        unique_for: call.seconds(9),
        on_conflict: call.text(10),
        group_key: call.text(11),
        headers: call.jsonb(12),
    };
    let now = clock::now()?;
    let id = Spi::run(|spi| {
        let (task, on_conflict) = check(request, &*config::current(spi)?, now)?;
        let Some(unique) = &task.unique else { return store::insert(spi, None, &task, now).map(Some) };
        let id = next_id(spi)?;
        loop {
            let Err(holder) = keys::take(spi, &task.task_type, unique, id, now)? else {
                return store::insert(spi, Some(id), &task, now).map(Some);
            };
            if let Conflict::Answer(id) = keys::conflict(spi, on_conflict, unique, &task, holder, now)? {
                return Ok(id);
            }
            pgrx::check_for_interrupts!();
        }
    })?;
    call.value(id)
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
        let config = config::current(spi)?;
        let mut checked = Vec::with_capacity(elements.len());
        for row in 0..elements.len() {
            let request = element(&elements, row).map_err(|f| f.at_element(row + 1))?;
            checked.push(check(request, &config, now).map_err(|f| f.at_element(row + 1))?);
        }
        let ids = store::ids(spi, checked.len())?;
        let outcomes = take_keys(spi, &mut checked, &ids, now)?;
        let new: Vec<(i64, &NewTask)> = checked
            .iter()
            .zip(&outcomes)
            .zip(&ids)
            .filter(|((_, outcome), _)| outcome.created)
            .map(|(((task, _), _), id)| (*id, task))
            .collect();
        store::insert_many(spi, &new, now)?;
        for (at, outcome) in outcomes.iter().enumerate() {
            rows.add(&[arg(at as i32 + 1), outcome.id.and_then(arg), arg(outcome.created)]);
        }
        Ok(())
    })?;
    rows.finish()
}

/// What became of an element.
struct Enqueued {
    id: Option<i64>,
    created: bool,
}

/// Takes the keys of the elements that have one, in sorted order, so that two calls with the
/// same keys in different order cannot deadlock. Of elements with the same key the first takes it.
fn take_keys(
    spi: &Spi,
    checked: &mut [(NewTask, OnConflict)],
    ids: &[i64],
    now: Moment,
) -> Outcome<Vec<Enqueued>> {
    let mut outcomes: Vec<Enqueued> =
        ids.iter().map(|id| Enqueued { id: Some(*id), created: true }).collect();
    let mut keyed: Vec<usize> = (0..checked.len()).filter(|at| checked[*at].0.unique.is_some()).collect();
    keyed.sort_by_cached_key(|at| key_of(&checked[*at].0));
    for at in keyed {
        let (task, on_conflict) = checked[at].clone();
        let Some(unique) = &task.unique else { continue };
        while let Err(holder) = keys::take(spi, &task.task_type, unique, ids[at], now)? {
            let outcome = match ids.binary_search(&holder) {
                // The holder is an element of this call and not stored yet.
                Ok(first) if on_conflict == OnConflict::Replace => {
                    checked[first].0.take_over(task.clone());
                    Ok(Conflict::Answer(Some(holder)))
                }
                _ => keys::conflict(spi, on_conflict, unique, &task, holder, now),
            };
            if let Conflict::Answer(id) = outcome.map_err(|f| f.at_element(at + 1))? {
                outcomes[at] = Enqueued { id, created: false };
                break;
            }
            pgrx::check_for_interrupts!();
        }
    }
    Ok(outcomes)
}

/// What keys are sorted by; the sort is stable, so equal ones keep their order.
fn key_of(task: &NewTask) -> (String, String) {
    (task.task_type.clone(), task.unique.as_ref().map(|unique| unique.key.clone()).unwrap_or_default())
}

fn next_id(spi: &Spi) -> Outcome<i64> {
    store::ids(spi, 1)?.first().copied().ok_or_else(|| internal("the sequence gave no id"))
}

/// Reads an element of `enqueue_many`; the columns are those of `enqueue_elements.sql`.
fn element(elements: &Table, row: usize) -> Outcome<Request> {
    if let Some(fault) = elements.get::<String>(row, 13) {
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
        run_at: elements.get(row, 4).map(moment).transpose()?,
        delay: elements.get(row, 5).map(|text| interval("delay", text)).transpose()?,
        max_retries: number("max_retries", elements.get(row, 6))?,
        unique_key: elements.get(row, 7),
        unique_until: elements.get(row, 8),
        unique_for: elements.get(row, 9).map(|text| interval("unique_for", text)).transpose()?,
        on_conflict: elements.get(row, 10),
        headers: elements.get(row, 11),
        group_key: elements.get(row, 12),
    })
}

fn moment(text: String) -> Outcome<Moment> {
    parse_moment(&text).ok_or_else(|| {
        Failure::new("22007", "run_at is not a timestamp").hint("Write it like '2030-01-31T12:00:00Z'.")
    })
}

fn interval(what: &str, text: String) -> Outcome<Seconds> {
    parse_interval(&text).ok_or_else(|| {
        Failure::new("22007", format!("{what} is not an interval")).hint("Write it like '90 seconds'.")
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

fn check(request: Request, config: &Config, now: Moment) -> Outcome<(NewTask, OnConflict)> {
    let on_conflict = OnConflict::parse(request.on_conflict.as_deref())?;
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
    let task_type = checks::name("task_type", request.task_type)?;
    let settings = config.task_type(&task_type);
    let task = NewTask {
        task_type,
        queue: match request.queue {
            Some(queue) => checks::name("queue", Some(queue))?,
            None => settings.queue,
        },
        priority: request.priority.map_or(Ok(settings.priority), checks::priority)?,
        run_at,
        max_retries: request.max_retries.map_or(Ok(settings.max_retries), checks::max_retries)?,
        group_key: request.group_key.map(checks::group_key).transpose()?,
        unique: unique(request.unique_key, request.unique_until, request.unique_for, now)?,
        bytes: checks::size("the payload with its headers", &[Some(payload), request.headers])?,
        payload,
        headers: request.headers,
    };
    Ok((task, on_conflict))
}

fn unique(
    key: Option<String>,
    until: Option<String>,
    kept_for: Option<Seconds>,
    now: Moment,
) -> Outcome<Option<UniqueKey>> {
    let until = match until.as_deref() {
        None | Some("finished") => Until::Finished,
        Some("started") => Until::Started,
        Some(_) => return Err(Failure::invalid("unique_until is not valid", "Use 'finished' or 'started'.")),
    };
    let kept_for = kept_for.map(|kept_for| checks::delay("unique_for", kept_for)).transpose()?;
    let Some(key) = key else {
        if kept_for.is_some() {
            return Err(Failure::invalid("unique_for is given without unique_key", "Give the key, too."));
        }
        return Ok(None);
    };
    let kept_until = kept_for.filter(|seconds| *seconds > 0.0).map(|seconds| now.plus(seconds));
    Ok(Some(UniqueKey { key: checks::unique_key(key)?, until, kept_until }))
}
