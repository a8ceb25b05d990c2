//! What must be so at any moment, in any snapshot, while the clients are at work.

use crate::judge::Found;
use postgres::Config;
use postgres::NoTls;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use taskq_server_tests::pause;

pub const UNSOUND: &str = "
    select format('%s tasks of group %s run', count(*), t.group_key) from taskq.task t
     where t.state = 'running' and t.group_key is not null group by t.queue, t.group_key having count(*) > 1
    union all
    select format('task %s runs without its turn', t.id) from taskq.task t
     where t.state = 'running' and t.group_key is not null
       and not exists (select from taskq.group_turn g where (g.queue, g.group_key, g.task_id) = (t.queue, t.group_key, t.id))
    union all
    select format('the turn of %s is with task %s, which does not run', g.group_key, g.task_id) from taskq.group_turn g
     where g.task_id is not null and not exists (select from taskq.task t where t.id = g.task_id and t.state = 'running')
    union all
    select format('task %s is parked only half', coalesce(t.id, p.id)) from taskq.parked p
      full join (select id from taskq.task where state = 'waiting' and run_at = 'infinity') t using (id)
     where p.id is null or t.id is null
    union all
    select format('%s tasks of queue %s run', count(*), t.queue) from taskq.task t
     where t.state = 'running' and t.queue in ('limited', 'flexible') group by t.queue
    having count(*) > case t.queue when 'limited' then 5 else 8 end
    union all
    select format('task %s of queue %s runs without a slot', t.id, t.queue) from taskq.task t
     where t.state = 'running' and t.queue in ('limited', 'flexible')
       and not exists (select from taskq.slot s where (s.queue, s.task_id) = (t.queue, t.id))
    union all
    select format('slot %s of queue %s is with task %s, which does not run', s.slot, s.queue, s.task_id) from taskq.slot s
     where s.task_id is not null and not exists (select from taskq.task t where t.id = s.task_id and t.state = 'running')
    union all
    select format('%s tasks have the key %s', count(*), t.unique_key) from taskq.task t
     where t.unique_until = 'finished' group by t.task_type, t.unique_key having count(*) > 1
    union all
    select format('key %s is with task %s, which is not there', k.key, k.task_id) from taskq.unique_key k
     where not k.let_go and not exists (select from taskq.task t where t.id = k.task_id)
    union all
    select format('task %s is unfinished, and dead or finished', t.id) from taskq.task t
     where exists (select from taskq.dead_letter d where d.id = t.id) or exists (select from taskq.done d where d.id = t.id)
        or exists (select from taskq.archive a where a.id = t.id)
    union all
    select format('task %s is dead and finished', d.id) from taskq.dead_letter d
     where exists (select from taskq.done f where f.id = d.id) or exists (select from taskq.archive a where a.id = d.id)
    union all
    select format('task %s is finished, and in the archive, too', d.id) from taskq.done d join taskq.archive a using (id)";

/// Looks until it is told to stop; the server may come and go. The cuts that clients suffer do not meet it.
pub fn watch(config: &Config, over: &AtomicBool, looks: &AtomicU64, found: &Mutex<Found>) {
    let mut connection = None;
    while !over.load(Relaxed) {
        pause(0.1);
        let Some(client) = connection.as_mut() else {
            connection = config.connect(NoTls).ok();
            continue;
        };
        match client.query(UNSOUND, &[]) {
            Ok(rows) => {
                looks.fetch_add(1, Relaxed);
                let mut found = found.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                found.extend(
                    rows.iter().map(|row| format!("while clients were at work: {}", row.get::<_, String>(0))),
                );
            }
            Err(error) => {
                let code = error.code().map_or("", |code| code.code());
                if !(code.is_empty() || code.starts_with("57P")) {
                    found
                        .lock()
                        .unwrap_or_else(std::sync::PoisonError::into_inner)
                        .push(format!("the observer: {error:?}"));
                }
                connection = None;
            }
        }
    }
}
