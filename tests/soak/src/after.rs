//! What must be so when all clients have ended: nothing left behind, figures that are counts, sound
//! tables and indexes.

use crate::judge::Found;
use crate::serverlog;
use crate::watch::UNSOUND;
use postgres::Client;
use std::time::{Duration, Instant, SystemTime};
use taskq_server_tests::{Server, Session, pause};

/// Locks, transactions and sessions but our own, and the lock by which a keeper is the only one of its
/// database. (The keeper may just be at work: it is given some time.)
const LEFT: &str = "
    select format('a lock on %s of process %s (%s)', coalesce(l.relation::regclass::text, l.locktype), l.pid, a.backend_type)
      from pg_locks l left join pg_stat_activity a using (pid)
     where l.pid is distinct from pg_backend_pid() and l.locktype <> 'virtualxid'
       and coalesce(a.backend_type, '') <> 'autovacuum worker'
       and (l.locktype, a.backend_type) is distinct from ('advisory', 'taskq keeper')
       and (l.database is null or l.database in (0, (select oid from pg_database where datname = current_database())))
    union all
    select format('%s advisory locks of keepers', count(*)) from pg_locks where locktype = 'advisory' having count(*) > 1
    union all
    select 'prepared transaction ' || gid from pg_prepared_xacts
    union all
    select format('a snapshot of process %s (%s)', pid, backend_type) from pg_stat_activity
     where pid <> pg_backend_pid() and (backend_xmin is not null or backend_xid is not null)
       and backend_type <> 'autovacuum worker'
    union all
    select format('session %s, %s, %s', pid, application_name, state) from pg_stat_activity
     where pid <> pg_backend_pid() and backend_type = 'client backend'";

/// Where figures and a count differ.
const DIFFERENCES: &str = "
    select format('%s/%s: figures say %s ready, %s scheduled, %s running, %s blocked; counted are %s, %s, %s, %s', queue, task_type,
                  f.ready, f.scheduled, f.running, f.blocked, c.ready, c.scheduled, c.running, c.blocked)
      from taskq._figures() f
      full join (select t.queue, t.task_type,
                        count(*) filter (where t.state = 'waiting' and t.run_at <= taskq._now()) as ready,
                        count(*) filter (where t.state = 'waiting' and t.run_at > taskq._now() and t.run_at < 'infinity') as scheduled,
                        count(*) filter (where t.state = 'running') as running,
                        count(*) filter (where t.state = 'waiting' and t.run_at = 'infinity') as blocked
                   from taskq.task t group by t.queue, t.task_type) c using (queue, task_type)
     where (coalesce(f.ready, 0), coalesce(f.scheduled, 0), coalesce(f.running, 0), coalesce(f.blocked, 0))
           <> (coalesce(c.ready, 0), coalesce(c.scheduled, 0), coalesce(c.running, 0), coalesce(c.blocked, 0))
    union all
    select format('the view queues says of %s: %s ready, %s scheduled, %s running, %s blocked, %s dead', q.queue, q.ready,
                  q.scheduled, q.running, q.blocked, q.dead)
      from taskq.queues q
      left join (select t.queue,
                        count(*) filter (where t.state = 'ready') as ready, count(*) filter (where t.state = 'scheduled') as scheduled,
                        count(*) filter (where t.state = 'running') as running, count(*) filter (where t.state = 'blocked') as blocked
                   from taskq.tasks t group by t.queue) c using (queue)
     where (q.ready, q.scheduled, q.running, q.blocked, q.dead)
           <> (coalesce(c.ready, 0), coalesce(c.scheduled, 0), coalesce(c.running, 0), coalesce(c.blocked, 0),
               (select count(*) from taskq.dead_letter d where d.queue = q.queue))";

/// Asks until the answer is empty, for so many seconds; the rest is what is wrong.
fn empty_within(seconds: u64, what: &str, mut ask: impl FnMut() -> Vec<String>) -> Found {
    let begin = Instant::now();
    loop {
        let answer = ask();
        if answer.is_empty() {
            return answer;
        }
        if begin.elapsed() > Duration::from_secs(seconds) {
            return answer.into_iter().map(|line| format!("{what}: {line}")).collect();
        }
        pause(0.05);
    }
}

pub fn left_behind(client: &mut Client) -> Found {
    empty_within(30, "left behind", || client.column(LEFT, &[]))
}

/// The figures become exact, and are then what a count finds.
pub fn figures(client: &mut Client) -> Found {
    let exact =
        "select 'they do not become exact' where not exists (select from taskq._figures_state() where exact)";
    let mut found = empty_within(120, "figures", || client.column(exact, &[]));
    // What has just become due, or was just committed, is there a moment later.
    found.extend(empty_within(15, "figures", || client.column(DIFFERENCES, &[])));
    found
}

/// When all tasks have finished: all slots, turns, tokens and keys are free.
pub fn all_free(client: &mut Client) -> Found {
    let taken = "
        select 'slots of limited: ' || string_agg(coalesce(task_id::text, 'free'), ' ' order by slot) from taskq.slot
         where queue = 'limited' having count(*) filter (where task_id is null) <> 5 or count(*) <> 5
        union all select 'a slot of ' || queue || ' is taken' from taskq.slot where task_id is not null
        union all select format('%s tokens instead of 5', count(*)) from taskq.rate_token having count(*) <> 5
        union all select 'the turn of ' || group_key || ' is taken' from taskq.group_turn where task_id is not null
        union all select 'parked: ' || id from taskq.parked
        union all select 'key ' || key || ' is held' from taskq.unique_key where not let_go
        union all select 'alert of a duty: ' || name || ' ' || error from taskq.duty where error is not null";
    let mut found = empty_within(10, "after all tasks had finished", || client.column(taken, &[]));
    found.extend(client.column::<String>(UNSOUND, &[]));
    found
}

/// Once the archive duty has done what it can, nothing of the queues with a short retention is left to it.
pub fn archived(client: &mut Client) -> Found {
    let left = "
        select format('%s tasks of queue %s have not gone to the archive', count(*), d.queue) from taskq.done d
         where d.queue in ('main', 'groups') group by d.queue
        union all select format('no task of queue %s is in the archive', q) from unnest('{main,groups}'::text[]) q
         where not exists (select from taskq.archive a where a.queue = q)
        union all select format('step %s of the archive duty fails: %s', step, error) from taskq.archive_trouble";
    let before = "select 'nothing was archived before all tasks had finished' where not exists (select from taskq.archive)";
    let mut found: Found = client.column(before, &[]);
    found.extend(empty_within(20, "in the end", || {
        client.run("select taskq._run_duty('archive')");
        client.column(left, &[])
    }));
    found
}

/// No duty has failed at any time, in a way that our faults do not explain.
pub fn troubles(client: &mut Client) -> Found {
    let failed =
        "select format('%s failed at %s: %s', what, at, error) from trouble where left(error, 5) <> all ($1)";
    client.column(failed, &[&serverlog::OF_DUTIES.as_slice()])
}

/// Effects that once() guards happened once, with the complete that they belong to; and every such complete has its effect.
pub fn effects(client: &mut Client) -> Found {
    let sql = "
        with finished as (select id, state, result from taskq.done union all select id, state, result from taskq.archive)
        select format('the effect of task %s happened %s times', e.task, count(*)) from effect e group by e.task having count(*) > 1
        union all
        select format('task %s has its effect, and is %s', e.task, d.state) from effect e join finished d on d.id = e.task
         where d.state <> 'succeeded'
        union all
        select format('task %s has its effect, and is in %s', id, place) from effect e
          join (select id, 'task' as place from taskq.task union all select id, 'dead_letter' from taskq.dead_letter) p on p.id = e.task
        union all
        select format('the effect of task %s was made with token %s, and its result is %s', e.task, e.token, d.result)
          from effect e join finished d on d.id = e.task
         where (d.result ->> 'effect')::bigint is distinct from e.token
        union all
        select format('task %s was completed with its effect, which is not there', d.id) from finished d
         where d.result ? 'effect' and not exists (select from effect e where e.task = d.id)
        union all
        select 'no task has its effect' where not exists (select from finished d where d.result ? 'effect')";
    client.column(sql, &[])
}

/// From the first occurrence that the schedule `tick` must have, to when it was ended.
pub type Ticks = (SystemTime, SystemTime);

/// Ends all schedules, none of which may be in trouble or late.
pub fn unschedule(client: &mut Client, found: &mut Found) -> Ticks {
    let behind = "select format('schedule %s: next_run_at is %s, error %s', name, next_run_at, error) from taskq.schedule
                   where error is not null or next_run_at < clock_timestamp() - interval '3 s'";
    found.extend(empty_within(30, "before the schedules end", || client.column(behind, &[])));
    let first =
        "select date_trunc('second', updated_at) + interval '1 s' from taskq.schedule where name = 'tick'";
    let first = client.value(first, &[]);
    client.run("select taskq.unschedule(name) from taskq.schedules");
    (first, client.value("select clock_timestamp()", &[]))
}

/// Every occurrence of the schedule is there, once, from the first to the last. No schedule has one twice.
pub fn occurrences(client: &mut Client, (first, end): Ticks) -> Found {
    let sql = "
        with run as (
          select t.headers ->> 'schedule' as schedule, (t.headers ->> 'scheduled_at')::timestamptz as at
            from (select id, headers from taskq.task union all select id, headers from taskq.dead_letter
                  union all select id, headers from taskq.done union all select id, headers from taskq.archive) t
           where t.headers ? 'schedule'),
        tick as (select at from run where schedule = 'tick')
        select format('schedule %s ran %s times at %s', schedule, count(*), at) from run group by schedule, at having count(*) > 1
        union all
        -- (The last seconds may have come while the keeper was on its way.)
        select format('schedule tick did not run at %s', s)
          from generate_series($1::timestamptz, greatest($2::timestamptz - interval '6 s', (select max(at) from tick)), '1 s') s
         where not exists (select from tick where at = s)
        union all
        select format('schedule tick ran at %s, but was there from %s to %s', at, $1, $2) from tick where at not between $1 and $2";
    client.column(sql, &[&first, &end])
}

/// amcheck over all tables and b-trees.
pub fn sound(server: &Server, client: &mut Client) -> Found {
    let mut found = Found::new();
    if !server.offers("amcheck") {
        return found;
    }
    client.run("create extension amcheck");
    let indexes: Vec<String> = client.column(
        "select c.oid::regclass::text from pg_class c join pg_am m on m.oid = c.relam
          where c.relnamespace = 'taskq'::regnamespace and c.relkind = 'i' and m.amname = 'btree' order by 1",
        &[],
    );
    for index in &indexes {
        if let Err(error) =
            client.execute("select bt_index_parent_check($1::text::regclass, true, true)", &[index])
        {
            found.push(format!("index {index}: {error:?}"));
        }
    }
    let tables: Vec<String> = client.column(
        "select c.oid::regclass::text from pg_class c
          where c.relnamespace = 'taskq'::regnamespace and c.relkind = 'r' order by 1",
        &[],
    );
    for table in &tables {
        let sql = "select format('table %s, block %s: %s', $1::text, blkno, msg) from verify_heapam($1::text::regclass, check_toast => true)";
        found.extend(client.column::<String>(sql, &[table]));
    }
    if indexes.len() < 20 || tables.len() < 15 {
        found.push(format!("only {} indexes and {} tables were checked", indexes.len(), tables.len()));
    }
    found
}
