//! The answers of the machine as the server would write them.

use crate::player::{Known, Reply};
use crate::rows;
use taskq_model::machine::{Machine, State};
use taskq_model::sql::Names;
use taskq_model::verbs::*;

/// The query for a call, with moments as seconds since the history began.
pub fn query(verb: &Verb, call: &str, beginning: i64) -> String {
    let seconds = |column: &str| format!("extract(epoch from x.{column})::bigint - {beginning}");
    let columns = match verb {
        Verb::Claim { .. } => format!(
            "x.id, x.token, x.task_type, x.queue, x.payload, coalesce(test.headers(x.headers, {beginning}), ''), x.attempt, \
             x.max_retries, x.priority, x.group_key, {}, {}",
            seconds("enqueued_at"),
            seconds("lease_expires_at")
        ),
        Verb::Fail { .. } => format!("x.state, {}", seconds("run_at")),
        Verb::FailMany(_) => format!("x.id, x.state, {}", seconds("run_at")),
        Verb::Extend { .. } => format!("{}, x.cancel_requested", seconds("lease_expires_at")),
        // Their settings are compared as rows.
        Verb::ConfigureQueue(..) | Verb::ConfigureType(..) => "''".into(),
        _ => "x.*".into(),
    };
    format!("select {columns} from {call} x")
}

/// What the server should have answered.
pub fn expected(verb: &Verb, answer: &Answer, machine: &Machine, names: &Known) -> Reply {
    let one = |value: String| vec![vec![Some(value)]];
    let flag = |flag: bool| if flag { "t" } else { "f" }.to_owned();
    let id = |id: &Id| names.id(*id);
    Ok(match answer {
        Answer::Refused(code) => return Err((*code).into()),
        Answer::Nothing => one(String::new()),
        Answer::Id(known) => vec![vec![known.as_ref().map(id)]],
        Answer::Enqueued(rows) => {
            let row = |(at, (known, created)): (usize, &(Option<Id>, bool))| {
                vec![Some((at + 1).to_string()), known.as_ref().map(id), Some(flag(*created))]
            };
            rows.iter().enumerate().map(row).collect()
        }
        Answer::Claimed(leases) => leases.iter().map(|lease| claimed(*lease, machine, names)).collect(),
        Answer::Completed(ids) => ids.iter().map(|known| vec![Some(id(known))]).collect(),
        Answer::Ended(rows) => {
            let row = |ended: &Ended| {
                let mut row = vec![Some(ended.state.to_owned()), ended.run_at.map(|at| at.to_string())];
                if matches!(verb, Verb::FailMany(_)) {
                    row.insert(0, Some(id(&ended.id)));
                }
                row
            };
            rows.iter().map(row).collect()
        }
        Answer::Extended { lease_expires_at, cancel_requested } => {
            vec![vec![Some(lease_expires_at.to_string()), Some(flag(*cancel_requested))]]
        }
        Answer::Word(word) => one((*word).into()),
        Answer::Count(n) => one(n.to_string()),
        Answer::Redriven { redriven, skipped } => {
            // In the server's order: ids of tasks that were rolled back are given again by the machine only.
            let mut ids: Vec<String> = skipped.iter().map(id).collect();
            ids.sort_by_key(|id| id.parse::<i64>().ok());
            let columns = [redriven.to_string(), skipped.len().to_string(), format!("{{{}}}", ids.join(","))];
            vec![columns.map(Some).to_vec()]
        }
        Answer::Flag(is) => one(flag(*is)),
    })
}

fn claimed(lease: Lease, machine: &Machine, names: &Known) -> Vec<Option<String>> {
    let task = &machine.tasks[&lease.id];
    let State::Running { lease_expires_at, .. } = task.state else { return Vec::new() };
    vec![
        Some(names.id(lease.id)),
        Some(names.token(lease)),
        Some(task.task_type.into()),
        Some(task.queue.into()),
        Some(task.payload.to_string()),
        Some(rows::headers(task)),
        Some(task.attempt.to_string()),
        Some(task.max_retries.to_string()),
        Some(task.priority.to_string()),
        task.group.map(str::to_owned),
        Some(task.enqueued_at.to_string()),
        Some(lease_expires_at.to_string()),
    ]
}

/// A reply for people.
pub fn text(reply: &Reply) -> String {
    let value = |value: &Option<String>| value.clone().unwrap_or("NULL".into());
    match reply {
        Ok(rows) if rows.is_empty() => "no rows".into(),
        Ok(rows) => {
            let rows: Vec<String> = rows
                .iter()
                .map(|row| format!("({})", row.iter().map(value).collect::<Vec<_>>().join(", ")))
                .collect();
            rows.join(" ")
        }
        Err(code) => code.clone(),
    }
}
