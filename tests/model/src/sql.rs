//! Verbs as SQL: for the server that plays them, and for people who want to see a history again.

use crate::histories::{self, End, History};
use crate::machine::Machine;
use crate::verbs::*;

/// What stands for ids and tokens, and when the history began (seconds since 1970).
pub trait Names {
    fn id(&self, id: Id) -> String;
    fn token(&self, lease: Lease) -> String;
    fn beginning(&self) -> i64;
}

/// Stands for a task that never was.
pub fn no_id(id: Id) -> String {
    format!("{}", 1_000_000_000 + id)
}

/// The call of a verb's function.
pub fn call(verb: &Verb, names: &dyn Names) -> String {
    let lease = |lease: &Lease| format!("{}, {}", names.id(lease.id), names.token(*lease));
    let leases = |leases: &[Lease]| {
        let ids: Vec<String> = leases.iter().map(|lease| names.id(lease.id)).collect();
        let tokens: Vec<String> = leases.iter().map(|lease| names.token(*lease)).collect();
        format!("array[{}]::bigint[], array[{}]::bigint[]", ids.join(", "), tokens.join(", "))
    };
    match verb {
        Verb::Enqueue(new) => format!("taskq.enqueue({})", arguments(new, names.beginning())),
        Verb::EnqueueMany(new) => {
            let elements: Vec<String> = new.iter().map(|new| element(new, names.beginning())).collect();
            format!("taskq.enqueue_many(jsonb_build_array({}))", elements.join(", "))
        }
        Verb::Claim { n, queues, lease, .. } => {
            let queues = queues.as_ref().map(|queues| format!(", '{{{}}}'", queues.join(",")));
            format!(
                "taskq.claim({n}{}, worker => 'w'{})",
                queues.unwrap_or_default(),
                seconds("lease", *lease)
            )
        }
        Verb::Complete(held, result) => {
            format!("taskq.complete({}{})", lease(held), quoted("result", result.map(|n| n.to_string())))
        }
        Verb::CompleteMany(held) => format!("taskq.complete_many({})", leases(held)),
        Verb::Fail { lease: held, retry_in, retry } => {
            let retry = if *retry { "" } else { ", retry => false" };
            format!("taskq.fail({}, 'failed'{}{retry})", lease(held), seconds("retry_in", *retry_in))
        }
        Verb::FailMany(held) => {
            format!("taskq.fail_many({}, array_fill('failed'::text, array[{}]))", leases(held), held.len())
        }
        Verb::Extend { lease: held, seconds: given, progress } => {
            let progress = quoted("progress", progress.map(|n| n.to_string()));
            format!("taskq.extend({}{}{progress})", lease(held), seconds("lease", *given))
        }
        Verb::Release(held, delay) => format!("taskq.release({}{})", lease(held), seconds("delay", *delay)),
        Verb::Cancel { id, reason, force } => {
            let force = if *force { ", force => true" } else { "" };
            format!("taskq.cancel({}{}{force})", names.id(*id), quoted("reason", *reason))
        }
        Verb::Once { key, keep_for } => {
            format!("taskq.once('scope', '{key}'{})", seconds("keep_for", *keep_for))
        }
        Verb::Redrive { queue, task_type, ids, max_tasks, one_per_second } => {
            let ids =
                ids.as_ref().map(|ids| ids.iter().map(|id| names.id(*id)).collect::<Vec<_>>().join(", "));
            format!(
                "taskq.redrive({}{}{}, max_tasks => {}{})",
                queue.map_or("null".into(), |queue| format!("'{queue}'")),
                quoted("task_type", *task_type),
                ids.map(|ids| format!(", ids => array[{ids}]::bigint[]")).unwrap_or_default(),
                max_tasks.map_or("null".into(), |n| n.to_string()),
                if *one_per_second { ", per_second => 1" } else { "" }
            )
        }
        Verb::Purge { state, queue, task_type, older_than } => format!(
            "taskq.purge('{state}'{}{}{})",
            quoted("queue", *queue),
            quoted("task_type", *task_type),
            seconds("older_than", *older_than)
        ),
        Verb::Pause(queue) => format!("taskq.pause('{queue}')"),
        Verb::Resume(queue) => format!("taskq.resume('{queue}')"),
        Verb::ConfigureQueue(queue, setting) => {
            let setting = match setting {
                QueueSetting::MaxRunning(n) => json("max_running", n.map(|n| n.to_string())),
                QueueSetting::Rate(rated) => {
                    json("rate", rated.then(|| format!("\"{}/minute\"", RATE.0 as Seconds * 60 / RATE.1)))
                }
                QueueSetting::Lease(lease) => json("lease", lease.map(|lease| format!("\"{lease} s\""))),
                QueueSetting::Kept(kept) => json("retention", (!kept).then(|| "\"0\"".into())),
            };
            format!("taskq.configure_queue('{queue}', '{{{setting}}}')")
        }
        Verb::ConfigureType(task_type, setting) => {
            let setting = match setting {
                TypeSetting::Queue(queue) => json("queue", queue.map(|queue| format!("\"{queue}\""))),
                TypeSetting::Priority(priority) => json("priority", priority.map(|n| n.to_string())),
                TypeSetting::MaxRetries(n) => json("max_retries", n.map(|n| n.to_string())),
                TypeSetting::Lease(lease) => json("lease", lease.map(|lease| format!("\"{lease} s\""))),
                TypeSetting::BackoffBase(base) => {
                    json("backoff_base", base.map(|base| format!("\"{base} s\"")))
                }
            };
            format!("taskq.configure_type('{task_type}', '{{{setting}}}')")
        }
        Verb::Schedule(plan) => {
            let missed = match plan.missed {
                Missed::RunOnce => "run_once",
                Missed::Skip => "skip",
                Missed::RunAll => "run_all",
            };
            let minute = if plan.minutes == 60 { "0".into() } else { format!("*/{}", plan.minutes) };
            let settings =
                format!(r#"{{"missed": "{missed}", "max_missed": {MAX_MISSED}, "paused": {}}}"#, plan.paused);
            let (name, task_type, payload) = (plan.name, plan.task_type, plan.payload);
            format!(
                "taskq.schedule('{name}', '{minute} * * * *', '{task_type}', '{payload}', settings => '{settings}')"
            )
        }
        Verb::Unschedule(name) => format!("taskq.unschedule('{name}')"),
        Verb::Recover => "taskq._duty_recover()".into(),
        Verb::RunSchedules => "taskq._duty_schedule()".into(),
        Verb::Pass(_) => unreachable!("time is no function of taskq"),
    }
}

/// Sets the clock of the session.
pub fn clock(at: i64) -> String {
    format!("select set_config('taskq.test_clock', to_timestamp({at})::text, false)")
}

fn seconds(name: &str, value: Option<Seconds>) -> String {
    quoted(name, value.map(|value| format!("{value} s")))
}

fn quoted(name: &str, value: Option<impl std::fmt::Display>) -> String {
    value.map(|value| format!(", {name} => '{value}'")).unwrap_or_default()
}

fn json(name: &str, value: Option<String>) -> String {
    format!("\"{name}\": {}", value.unwrap_or("null".into()))
}

/// What is given of a new task, as names and SQL values.
fn fields(new: &NewTask, beginning: i64) -> Vec<(&'static str, String)> {
    let text = |text: &str| format!("'{text}'");
    let interval = |seconds: Seconds| format!("'{seconds} s'");
    let mut fields =
        vec![("task_type", text(new.task_type)), ("payload", format!("to_jsonb({})", new.payload))];
    fields.extend(new.queue.map(|queue| ("queue", text(queue))));
    fields.extend(new.priority.map(|priority| ("priority", priority.to_string())));
    match new.when {
        When::Now => {}
        When::RunAt(at) => fields.push(("run_at", format!("to_timestamp({})", beginning + at))),
        When::Delay(delay) => fields.push(("delay", interval(delay))),
    }
    fields.extend(new.max_retries.map(|n| ("max_retries", n.to_string())));
    if let Some(unique) = new.unique {
        fields.push(("unique_key", text(unique.key)));
        if unique.until == Until::Started {
            fields.push(("unique_until", text("started")));
        }
        fields.extend(unique.kept_for.map(|seconds| ("unique_for", interval(seconds))));
        match unique.on_conflict {
            OnConflict::Ignore => {}
            OnConflict::Skip => fields.push(("on_conflict", text("skip"))),
            OnConflict::Replace => fields.push(("on_conflict", text("replace"))),
            OnConflict::Error => fields.push(("on_conflict", text("error"))),
        }
    }
    fields.extend(new.group.map(|group| ("group_key", text(group))));
    if let Headers::Given(n) = new.headers {
        fields.push(("headers", format!("to_jsonb({n})")));
    }
    fields
}

fn arguments(new: &NewTask, beginning: i64) -> String {
    let fields = fields(new, beginning);
    fields.iter().map(|(name, value)| format!("{name} => {value}")).collect::<Vec<_>>().join(", ")
}

fn element(new: &NewTask, beginning: i64) -> String {
    let fields = fields(new, beginning);
    let fields: Vec<String> = fields.iter().map(|(name, value)| format!("'{name}', {value}")).collect();
    format!("jsonb_build_object({})", fields.join(", "))
}

/// A history as a script for psql, in a database with taskq and without a keeper. Task n is :tn.
pub fn script(history: &History) -> String {
    let mut script = format!("{};\n", clock(Script(&Machine::default()).beginning()));
    for task_type in histories::TYPES {
        script.push_str(&format!("select taskq.configure_type('{task_type}', '{{\"jitter\": 0}}');\n"));
    }
    let mut machine = Machine::default();
    for turn in history {
        let block = turn.verbs.len() > 1 || turn.end != End::Commit;
        let before = machine.clone();
        if block {
            script.push_str("begin;\n");
        }
        if turn.end == End::RollbackToSavepoint {
            script.push_str("savepoint a;\n");
        }
        for verb in &turn.verbs {
            let verb = histories::resolved(verb, &machine);
            let sql = match &verb {
                Verb::Pass(seconds) => clock(Script(&machine).beginning() + machine.now + seconds),
                _ => format!("select * from {}", call(&verb, &Script(&machine))),
            };
            let known = machine.ids;
            let answer = machine.ask(&verb);
            if !block || !matches!(answer, Answer::Refused(_)) {
                script.push_str(&format!("{sql};  -- {answer:?}\n"));
            } else {
                script.push_str(&format!("savepoint b;\n{sql};  -- {answer:?}\nrollback to b;\n"));
            }
            for id in known + 1..=machine.ids {
                let behind = machine.ids - id;
                script.push_str(&format!(
                    "select id as t{id} from taskq.task order by id desc offset {behind} limit 1 \\gset\n"
                ));
            }
        }
        match turn.end {
            End::Commit => {}
            End::Rollback => script.push_str("rollback;\n"),
            End::RollbackToSavepoint => script.push_str("rollback to a;\ncommit;\n"),
        }
        if turn.end == End::Commit && block {
            script.push_str("commit;\n");
        }
        if turn.end != End::Commit {
            machine = Machine { now: machine.now, ..before };
        }
    }
    script
}

struct Script<'a>(&'a Machine);

impl Names for Script<'_> {
    fn id(&self, id: Id) -> String {
        if id <= self.0.ids { format!(":t{id}") } else { no_id(id) }
    }

    fn token(&self, lease: Lease) -> String {
        let held = self.0.tasks.get(&lease.id).is_some_and(|task| task.runs() && task.token == lease.token);
        if held { format!("(select token from taskq.task where id = :t{})", lease.id) } else { "0".into() }
    }

    fn beginning(&self) -> i64 {
        1_893_456_000
    }
}
