//! The end of a lease that is not a success: failure, release, expiry. And `taskq.extend`.
//!
//! The lock order is written down in `sql/schema.sql`.

use crate::call::Call;
use crate::checks;
use crate::clock;
use crate::config::{self, Config};
use crate::failure::{Failure, Outcome, STALE_LEASE};
use crate::groups;
use crate::pairs::{self, Pairs};
use crate::session;
use crate::sql_functions;
use crate::statement::{Spi, arg};
use crate::store::{self, Failed, Finish, Leased, Whereabouts};
use crate::values::Moment;
use pgrx::pg_sys::Datum;

sql_functions! {
    taskq_fail / pg_finfo_taskq_fail => fail;
    taskq_fail_many / pg_finfo_taskq_fail_many => fail_many;
    taskq_release / pg_finfo_taskq_release => release;
    taskq_extend / pg_finfo_taskq_extend => extend;
}

/// Longer error texts are cut, with a note of how much is missing.
const ERROR_BYTES: usize = 10_000;

/// What a failure does to a task that has retries left.
#[derive(Clone, Copy)]
enum Retry {
    /// Wait as the type's settings say.
    Backoff,
    /// Wait so many seconds.
    After(f64),
    /// Keep the place in the queue: due at once, as it was.
    InPlace,
    /// Do not retry.
    Never,
}

/// What became of a task.
struct Ended {
    id: i64,
    state: &'static str,
    run_at: Option<Moment>,
}

fn fail(call: &Call) -> Outcome<Datum> {
    let (id, token) = pairs::single(call)?;
    let error = error_text(call.text(2));
    let retry = match (call.boolean(4).unwrap_or(true), call.seconds(3)) {
        (false, None) => Retry::Never,
        (false, Some(_)) => {
            return Err(Failure::invalid(
                "retry_in is given although retry is false",
                "Give retry_in for another run, or retry => false for none.",
            ));
        }
        (true, None) => Retry::Backoff,
        (true, Some(wait)) => Retry::After(checks::delay("retry_in", wait)?),
    };
    let now = clock::now()?;
    let mut rows = call.rows();
    Spi::run(|spi| {
        let leased = store::lock_leases(spi, &[id], Some(&[token]))?;
        if leased.is_empty() {
            return Err(stale(spi, id, now)?);
        }
        let failures = leased.into_iter().map(|task| (task, error.clone(), retry)).collect();
        for ended in settle(spi, failures, &*config::current(spi)?, now)? {
            rows.add(&[arg(ended.state), ended.run_at.and_then(arg)]);
        }
        Ok(())
    })?;
    rows.finish()
}

fn fail_many(call: &Call) -> Outcome<Datum> {
    let pairs = Pairs::from_call(call)?;
    let errors = call.texts(2);
    pairs.check_length("errors", errors.as_deref().map(<[_]>::len))?;
    let now = clock::now()?;
    let mut rows = call.rows();
    Spi::run(|spi| {
        let config = config::current(spi)?;
        for layer in pairs.layers() {
            let mut failures = Vec::new();
            for task in store::lock_leases(spi, &layer.ids, Some(&layer.tokens))? {
                let given =
                    layer.position(task.id).and_then(|at| errors.as_ref().and_then(|e| e[at].clone()));
                failures.push((task, error_text(given), Retry::Backoff));
            }
            for ended in settle(spi, failures, &config, now)? {
                rows.add(&[arg(ended.id), arg(ended.state), ended.run_at.and_then(arg)]);
            }
        }
        Ok(())
    })?;
    rows.finish()
}

fn release(call: &Call) -> Outcome<Datum> {
    let (id, token) = pairs::single(call)?;
    let delay = call.seconds(2).map(|delay| checks::delay("delay", delay)).transpose()?;
    let now = clock::now()?;
    Spi::run(|spi| {
        let leased = store::lock_leases(spi, &[id], Some(&[token]))?;
        let Some(task) = leased.first() else { return Err(stale(spi, id, now)?) };
        if task.cancel_requested {
            let how = Finish::Cancelled { reason: None, errors: None };
            store::finish(spi, &[id], None, None, how, &*config::current(spi)?, now)?;
            return Ok(());
        }
        store::release(spi, task, delay.map_or(task.run_at, |delay| now.plus(delay)), now)
    })?;
    call.void()
}

fn extend(call: &Call) -> Outcome<Datum> {
    let (id, token) = pairs::single(call)?;
    let lease = call.seconds(2).map(checks::lease).transpose()?;
    let progress = call.jsonb(3);
    checks::size("the progress", &[progress])?;
    let now = clock::now()?;
    let mut rows = call.rows();
    Spi::run(|spi| match store::extend(spi, id, token, now, progress, lease, &*config::current(spi)?)? {
        Some((expires_at, cancel_requested)) => {
            rows.add(&[arg(expires_at), arg(cancel_requested)]);
            Ok(())
        }
        None => Err(stale(spi, id, now)?),
    })?;
    rows.finish()
}

/// Takes back tasks whose lease is over: as a failure, but due at once. Tasks that somebody else
/// is just working on are passed by, and those whose turn would have to be waited for. Returns how many were
/// taken back.
pub fn take_back(spi: &Spi, mut ids: Vec<i64>, config: &Config, now: Moment) -> Outcome<usize> {
    if ids.is_empty() {
        return Ok(0);
    }
    ids.sort_unstable();
    let mut leased = store::lock_expired(spi, &ids, now)?;
    let grouped: Vec<(&str, &str, i64)> =
        leased.iter().filter_map(|task| Some((&*task.queue, task.group_key.as_deref()?, task.id))).collect();
    let held = groups::hold_turns(spi, &grouped)?;
    leased.retain(|task| task.group_key.is_none() || held.contains(&task.id));
    let failures =
        leased.into_iter().map(|task| (task, "lease expired".to_owned(), Retry::InPlace)).collect();
    Ok(settle(spi, failures, config, now)?.len())
}

/// Ends the leases of locked tasks that failed: another run, the dead letters, or, if a cancel
/// was requested, cancelled.
fn settle(
    spi: &Spi,
    failures: Vec<(Leased, String, Retry)>,
    config: &Config,
    now: Moment,
) -> Outcome<Vec<Ended>> {
    let mut ended = Vec::with_capacity(failures.len());
    let mut again = Vec::new();
    let mut dead = Vec::new();
    let expired = |retry: &Retry| matches!(retry, Retry::InPlace);
    let (mut cancelled, mut cancelled_errors) = (Vec::new(), Vec::new());
    for (task, error, retry) in &failures {
        let id = task.id;
        if task.cancel_requested {
            cancelled.push(id);
            cancelled_errors.push(error.clone());
            ended.push(Ended { id, state: "cancelled", run_at: None });
        } else if matches!(retry, Retry::Never) || task.attempt > task.max_retries {
            dead.push(Failed { task, error: error.clone(), expired: expired(retry) });
            ended.push(Ended { id, state: "dead", run_at: None });
        } else {
            let run_at = match retry {
                Retry::After(seconds) => now.plus(*seconds),
                Retry::Backoff => {
                    now.plus(config.task_type(&task.task_type).backoff.wait(task.attempt, session::random()))
                }
                Retry::InPlace | Retry::Never => task.run_at,
            };
            again.push((Failed { task, error: error.clone(), expired: expired(retry) }, run_at));
            ended.push(Ended {
                id,
                state: if run_at > now { "scheduled" } else { "ready" },
                run_at: Some(run_at),
            });
        }
    }
    store::requeue(spi, &again, now)?;
    store::bury(spi, &dead, now)?;
    if !cancelled.is_empty() {
        let how = Finish::Cancelled { reason: None, errors: Some(&cancelled_errors) };
        store::finish(spi, &cancelled, None, None, how, config, now)?;
    }
    Ok(ended)
}

fn error_text(given: Option<String>) -> String {
    let Some(mut error) = given else { return "no error was given".into() };
    if error.len() > ERROR_BYTES {
        let end = (0..=ERROR_BYTES).rev().find(|at| error.is_char_boundary(*at)).unwrap_or(0);
        let missing = error.len() - end;
        error.truncate(end);
        error.push_str(&format!(" ... ({missing} bytes cut)"));
    }
    error
}

/// The answer to a caller whose token is not the task's: TQ001, and where the task is now.
pub fn stale(spi: &Spi, id: i64, now: Moment) -> Outcome<Failure> {
    let detail = match store::whereabouts(spi, id)? {
        Whereabouts::Waiting { run_at: Moment::INFINITY } => {
            "The lease ended; the task waits for another one of its group.".to_owned()
        }
        Whereabouts::Waiting { run_at } if run_at > now => {
            "The lease ended; the task is scheduled.".to_owned()
        }
        Whereabouts::Waiting { .. } => "The lease ended; the task is ready.".to_owned(),
        Whereabouts::Running => "Another claim holds the task now.".to_owned(),
        Whereabouts::Dead => "The task is dead.".to_owned(),
        Whereabouts::Finished { state } => format!("The task has finished: {state}."),
        Whereabouts::Unknown => "There is no such task.".to_owned(),
    };
    Ok(Failure::new(STALE_LEASE, format!("the lease on task {id} is not yours"))
        .detail(detail)
        .hint("Roll back what was done for the task, and go on with the next one."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_errors_are_cut_at_a_character_with_a_note() {
        let error = error_text(Some("é".repeat(ERROR_BYTES)));
        assert!(error.starts_with('é') && error.ends_with("é ... (10000 bytes cut)"), "{}", &error[9_900..]);
        assert_eq!(error_text(Some("short".into())), "short");
        assert_eq!(error_text(None), "no error was given");
    }
}
