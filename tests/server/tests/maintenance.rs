//! What goes on beside the work: archiving, purging, new days, new queues, freezing. None of it meets a deadlock,
//! holds anybody up or loses a task.

use postgres::Client;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::Duration;
use taskq_server_tests::{Database, Random, Server, Session, Shared, deadlocks, eventually, pause};

/// Deadlocks are looked for at every wait, also where one of the two would give up soon.
static SERVER: Shared = Shared::new(
    "maintenance",
    &["taskq.keeper = off", "max_prepared_transactions = 5", "deadlock_timeout = '1 ms'"],
);

/// A session that fails if it has to wait for a lock. A step of the archive holds its locks for 100 ms.
fn impatient(database: &Database) -> Client {
    let mut client = database.connect();
    client.run("set lock_timeout = '1 s'");
    client
}

/// Completes tasks until told to stop; says how many. No verb may fail.
fn work(database: &Database, stop: &AtomicBool) -> i64 {
    let mut client = impatient(database);
    let mut completed = 0;
    while !stop.load(Ordering::Relaxed) {
        client.run("select taskq.enqueue('t', queue => 'short') from generate_series(1, 20)");
        completed += client.value::<i64>(
            "with c as materialized (select array_agg(c.id) as ids, array_agg(c.token) as tokens from taskq.claim(20) c)
             select count(*) from c, taskq.complete_many(c.ids, c.tokens) where c.ids is not null",
            &[],
        );
    }
    completed
}

/// Looks at finished tasks, of today and of long ago, until told to stop; says how often.
fn read(database: &Database, stop: &AtomicBool) -> i64 {
    let mut client = impatient(database);
    let mut looks = 0;
    while !stop.load(Ordering::Relaxed) {
        client.run("select from taskq.finished limit 100");
        client.run("select s.state from generate_series(1, 20) n, taskq.status(n) s");
        looks += 1;
    }
    looks
}

/// Runs something again and again beside others until told to stop; says what it returned in all.
fn again(database: &Database, stop: &AtomicBool, sql: &str) -> i64 {
    let mut client = database.connect();
    if sql.contains("'rare'") {
        client.run(BY_INDEX);
    }
    let mut sum = 0;
    while !stop.load(Ordering::Relaxed) {
        sum += client.value::<i64>(sql, &[]);
    }
    sum
}

/// Rows are found in the order of an index, where others find them in the order of the table.
const BY_INDEX: &str = "set enable_seqscan = off; set enable_bitmapscan = off";

/// Finished tasks, younger ones first in the table, so that a scan and an index find them in different orders.
const FINISHED: &str = "
    insert into taskq.done (id, queue, task_type, state, priority, attempt, max_retries, enqueued_at, run_at, claimed_at,
                            finished_at, worker, payload, group_key)
    select -n, case when n % 20 = 0 then 'rare' else 'short' end, case when n % 3 = 0 then 'third' else 't' end, 'succeeded', 0, 1, 3, now(), now(), now(),
           now() - make_interval(secs => n % 5000), 'w', '{}', 'g'
      from generate_series(1, 30000) n";

#[test]
fn i01_archiving_and_purging_at_once_meet_no_deadlock_and_keep_each_task_once() {
    let database = SERVER.database("i01");
    let mut client = database.connect();
    client.run("select taskq.configure_queue('short', '{\"retention\": \"0.5 s\"}')");
    client.run(FINISHED);
    let stop = AtomicBool::new(false);
    let (completed, purged) = (AtomicI64::new(0), AtomicI64::new(0));
    thread::scope(|scope| {
        let stopping = StopAtEnd(&stop);
        for _ in 0..3 {
            scope.spawn(|| completed.fetch_add(work(&database, &stop), Ordering::Relaxed));
        }
        for _ in 0..2 {
            scope.spawn(|| again(&database, &stop, "select taskq._duty_archive()"));
        }
        for sql in [
            "select taskq.purge('succeeded', task_type => 'third', older_than => '10 minutes')",
            "select taskq.purge('succeeded', 'rare', older_than => '30 minutes')",
            "select taskq.purge('succeeded', older_than => '50 minutes')",
        ] {
            let purged = &purged;
            let (database, stop) = (&database, &stop);
            scope.spawn(move || purged.fetch_add(again(database, stop, sql), Ordering::Relaxed));
        }
        eventually("the archive has it all", 60, || {
            client.value("select count(*) = 0 from taskq.done where queue = 'short' and id < 0", &[])
        });
        drop(stopping);
    });
    assert_eq!(deadlocks(&mut client), 0);
    client.run("select taskq.purge('ready')");
    let (completed, purged) = (completed.into_inner(), purged.into_inner());
    let kept = client
        .value::<i64>("select (select count(*) from taskq.done) + (select count(*) from taskq.archive)", &[]);
    assert!(completed > 100 && purged > 1000, "{completed} completed, {purged} purged");
    assert_eq!(kept + purged, 30_000 + completed);
    let twice = "select count(*) - count(distinct id) from (select id from taskq.done union all select id from taskq.archive) f";
    assert_eq!(client.value::<i64>(twice, &[]), 0);
    // What was moved row by row is whole.
    let cut = "select count(*) from taskq.archive where id < 0 and (group_key is distinct from 'g' or worker is distinct from 'w')";
    assert_eq!(client.value::<i64>(cut, &[]), 0);
}

/// What the tests here and those of the keeper rely on.
#[test]
fn i01_a_deadlock_whose_victim_catches_the_error_is_counted() {
    let database = SERVER.database("i01_caught");
    let mut client = database.connect();
    client.run("create table one (); create table two ()");
    let begin = Barrier::new(2);
    thread::scope(|scope| {
        for (first, second) in [("one", "two"), ("two", "one")] {
            let (database, begin) = (&database, &begin);
            scope.spawn(move || {
                let mut client = database.connect();
                client.run(&format!("begin; lock {first}"));
                begin.wait();
                client.run(&format!(
                    "do $$ begin lock {second}; exception when deadlock_detected then null; end $$; commit"
                ));
            });
        }
    });
    assert_eq!(deadlocks(&mut client), 1);
}

/// Tells others to stop, also when a test fails.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn i01_dead_letters_are_purged_acknowledged_and_redriven_at_once_without_a_deadlock() {
    let database = SERVER.database("i01_dead");
    let mut client = database.connect();
    client.run("select taskq.configure_queue('q', '{\"dead_letters_limit\": 0}')");
    for _ in 0..8 {
        client.run(
            "insert into taskq.dead_letter (id, queue, task_type, priority, token, attempt, max_retries, enqueued_at, run_at, claimed_at,
                                            died_at, bytes, worker, payload, errors)
             select nextval('taskq.task_id_seq'), 'q', case when n % 2 = 0 then 't' else 'u' end, 0, 1, 1, 0, now(), now(), now(),
                    now() - make_interval(secs => 60 + n), 2, 'w', '{}', '[]'
               from generate_series(1, 4000) n",
        );
        client.run("select taskq._duty_alert()");
        let alert: i64 = client.value("select max(id) from taskq.alert where cleared_at is null", &[]);
        let acknowledge = format!("select taskq.acknowledge({alert})");
        thread::scope(|scope| {
            for sql in [
                "select taskq.purge('dead')",
                "select taskq.purge('dead', 'q')",
                "select taskq.purge('dead', task_type => 'u', older_than => '1 minute')",
                "select redriven from taskq.redrive('q', max_tasks => 500)",
                &acknowledge,
            ] {
                let database = &database;
                scope.spawn(move || {
                    let mut client = database.connect();
                    if sql.contains("'q'") {
                        client.run(BY_INDEX);
                    }
                    client.run(sql);
                });
            }
        });
        assert_eq!(client.value::<i64>("select count(*) from taskq.dead_letter", &[]), 0);
        client.run("select taskq.purge('ready'), taskq._duty_alert()");
    }
    assert_eq!(deadlocks(&mut client), 0);
}

#[test]
fn i06_days_come_and_go_under_load_and_a_killed_round_leaves_nothing_broken() {
    let database = SERVER.database("i06");
    let mut client = database.connect();
    client.run("select taskq.enqueue('old') from generate_series(1, 50)");
    let stop = AtomicBool::new(false);
    let (completed, looks) = (AtomicI64::new(0), AtomicI64::new(0));
    let (mut rounds, mut killed) = (0, 0);
    let mut random = Random::new(Random::seed());
    thread::scope(|scope| {
        let stopping = StopAtEnd(&stop);
        for _ in 0..4 {
            scope.spawn(|| completed.fetch_add(work(&database, &stop), Ordering::Relaxed));
        }
        for _ in 0..2 {
            scope.spawn(|| looks.fetch_add(read(&database, &stop), Ordering::Relaxed));
        }
        let mut killer = database.connect();
        for day in (0..90).step_by(2) {
            let mut archiver = database.connect();
            let pid = archiver.pid();
            archiver.run(&format!("set taskq.test_clock = '+ {day} days'"));
            let delay = random.one_in(2).then(|| random.below(30));
            let round = thread::scope(|scope| {
                let round = scope.spawn(|| archiver.query("select taskq._duty_archive()", &[]));
                if let Some(delay) = delay {
                    thread::sleep(Duration::from_millis(delay));
                    killer.run(&format!("select pg_terminate_backend({pid})"));
                }
                round.join().expect("thread")
            });
            match round {
                Ok(_) => rounds += 1,
                Err(error) => {
                    // (What a killed session says at last may be lost with its connection.)
                    let was_killed = error.code().is_none_or(|code| code.code() == "57P01");
                    assert!(delay.is_some() && was_killed, "{error:?}");
                    killed += 1;
                }
            }
        }
        drop(stopping);
    });
    assert!(rounds > 10 && killed > 0, "{rounds} rounds, {killed} killed");
    assert!(looks.into_inner() > 10);
    assert_eq!(deadlocks(&mut client), 0);
    // The next rounds mend whatever a killed one left.
    client.run("set taskq.test_clock = '+ 90 days'");
    eventually("nothing is left to do", 30, || client.value::<i64>("select taskq._duty_archive()", &[]) == 0);
    let broken: Vec<String> = client.column(
        "select i.indexrelid::regclass::text from pg_index i join pg_class c on c.oid = i.indrelid
          where c.relnamespace = 'taskq'::regnamespace and not (i.indisvalid and i.indisready)
         union all select h.inhrelid::regclass::text from pg_inherits h where h.inhdetachpending
         union all select c.oid::regclass::text from pg_class c
                    where c.relnamespace = 'taskq'::regnamespace and c.relkind = 'r' and c.relname ~ '_[0-9]{8}' and not c.relispartition
         union all select b.step || ': ' || b.error from taskq._archive_blockers() b",
        &[],
    );
    assert_eq!(broken, [""; 0]);
    let count = "select (select count(*) from taskq.done) + (select count(*) from taskq.archive)";
    assert_eq!(client.value::<i64>(count, &[]), completed.into_inner());
    let waits: i64 = client.value("select count(*) from taskq.task where state = 'running'", &[]);
    assert_eq!(waits, 0);
}

/// What 32 sessions do with a queue that is new to all of them.
fn first_use(session: usize) -> &'static str {
    match session / 2 {
        0 => "select from taskq.configure_queue($1, '{\"lease\": \"1 min\"}')",
        1 => "select from taskq.configure_queue($1, '{\"retention\": \"1 day\"}')",
        2 => "select from taskq.configure_queue($1, '{\"dead_letters_limit\": 9}')",
        3 => "select from taskq.configure_queue($1, '{\"max_running\": 3}')",
        4 => "select from taskq.configure_queue($1, '{\"rate\": \"5/second\"}')",
        5 => "select taskq.pause($1)",
        6 => "select taskq.resume($1)",
        7 => "select taskq.purge('ready', $1)",
        8 => "select taskq.schedule($1, '@yearly', 't')",
        9 => "select taskq.configure_type($1, '{\"priority\": 1}')",
        10 => "select taskq.configure_type($1, '{\"max_retries\": 1}')",
        _ => "select taskq.enqueue('t', queue => $1)",
    }
}

#[test]
fn i07_thirty_two_sessions_use_each_of_200_new_queues_at_the_same_moment() {
    let database = SERVER.database("i07");
    let mut client = database.connect();
    let relations = "select count(*) from pg_class where relnamespace = 'taskq'::regnamespace";
    let before: i64 = client.value(relations, &[]);
    let (purged, errors) = (AtomicI64::new(0), Mutex::new(Vec::new()));
    let begin = Barrier::new(32);
    thread::scope(|scope| {
        for session in 0..32 {
            let (database, purged, errors, begin) = (&database, &purged, &errors, &begin);
            scope.spawn(move || {
                let mut client = database.connect();
                let sql = first_use(session);
                for n in 0..200 {
                    let queue = format!("queue {n}");
                    // (Nobody may stay away from here, so an error is kept for later.)
                    begin.wait();
                    match client.query(sql, &[&queue]) {
                        Ok(rows) if sql.contains("purge") => {
                            purged.fetch_add(rows[0].get(0), Ordering::Relaxed);
                        }
                        Ok(_) => {}
                        Err(error) => errors.lock().expect("lock").push(format!("{sql}: {error:?}")),
                    }
                }
            });
        }
    });
    assert_eq!(errors.into_inner().expect("lock"), [""; 0]);
    let waiting: i64 = client.value("select count(*) from taskq.task", &[]);
    assert_eq!(waiting + purged.into_inner(), 10 * 200);
    // One row each, and nobody's setting was lost.
    let whole = "select count(*) from taskq.queue
                  where lease = '1 min' and retention = '1 day' and dead_letters_limit = 9 and max_running = 3 and rate = '5/second'";
    assert_eq!(client.value::<i64>(whole, &[]), 200);
    assert_eq!(client.value::<i64>("select count(*) from taskq.queue", &[]), 200);
    let whole = "select count(*) from taskq.task_type where priority = 1 and max_retries = 1";
    assert_eq!(client.value::<i64>(whole, &[]), 200);
    assert_eq!(client.value::<i64>("select count(*) from taskq.schedule", &[]), 200);
    let made = "select (select count(*) from taskq.slot), (select count(*) from taskq.rate_token)";
    let row = client.query_one(made, &[]).expect("counts");
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (200 * 3, 200 * 5));
    assert_eq!(client.value::<i64>(relations, &[]), before, "no DDL");
}

/// A task that finishes while the first days are being made is in done_default before they are attached.
#[test]
fn a_task_that_finishes_while_days_are_made_makes_no_step_fail() {
    let waits =
        "select count(*) > 0 from pg_locks where not granted and relation = 'taskq.done_default'::regclass";
    for attempt in 0..20 {
        let database = SERVER.database(&format!("days_{attempt}"));
        let (mut client, mut observer, mut archiver) =
            (database.connect(), database.connect(), database.connect());
        client.run("select taskq.enqueue('t')");
        client.run("begin; select taskq.complete(c.id, c.token) from taskq.claim(1) c");
        let round = thread::spawn(move || archiver.value::<i64>("select taskq._run_duty('archive')", &[]));
        while !round.is_finished() && !observer.value::<bool>(waits, &[]) {}
        client.run("commit");
        let changed = round.join().expect("a round");
        let trouble: Vec<String> = client.column("select error from taskq.archive_trouble", &[]);
        if trouble.iter().any(|error| error.starts_with("55P03")) {
            continue; // the commit came after the 50 ms for which the round waits
        }
        assert_eq!(trouble, [""; 0]);
        assert!(changed > 14, "{changed}");
        assert!(client.value::<bool>("select count(*) = 0 from taskq.done_default", &[]));
        assert_eq!(client.value::<String>("select state from taskq.status(1)", &[]), "succeeded");
        return;
    }
    panic!("no commit was in time");
}

#[test]
fn i07_eight_sessions_grant_parts_at_the_same_moment() {
    let database = SERVER.database("i07_grants");
    let errors = Mutex::new(Vec::new());
    let begin = Barrier::new(8);
    thread::scope(|scope| {
        for session in 0..8 {
            let (database, errors, begin) = (&database, &errors, &begin);
            scope.spawn(move || {
                let mut client = database.connect();
                let role = format!("i07_{session}");
                client.run(&format!("create role {role}"));
                for _ in 0..10 {
                    begin.wait();
                    let grants =
                        format!("select taskq.grant_operator('{role}'), taskq.grant_worker('{role}')");
                    if let Err(error) = client.simple_query(&grants) {
                        errors.lock().expect("lock").push(format!("{error:?}"));
                    }
                }
            });
        }
    });
    let mut client = database.connect();
    for session in 0..8 {
        // (PostgreSQL cannot do that in several sessions at once)
        client.run(&format!("drop owned by i07_{session}; drop role i07_{session}"));
    }
    assert_eq!(errors.into_inner().expect("lock"), [""; 0]);
}

#[test]
fn i05_every_table_is_frozen_in_time_while_transactions_go_by() {
    let limit = 100_000;
    let server = Server::start(
        "freeze",
        &[
            "autovacuum_freeze_max_age = 100000",
            "vacuum_freeze_min_age = 0",
            "vacuum_freeze_table_age = 50000",
            "autovacuum_naptime = '1 s'",
            "autovacuum_vacuum_cost_delay = 0",
            "autovacuum_max_workers = 3",
        ],
    );
    let database = server.database("freeze");
    let mut client = database.connect();
    // A dead letter, a finished task and a scheduled one that nobody touches any more; one runs, with a long lease.
    // The payloads of the first two stand in tables beside (TOAST): 100 kB that no compression makes smaller.
    client.run(
        "select taskq.enqueue('t', case when n < 3 then to_jsonb(large) else '{}' end, unique_key => 'k' || n, group_key => 'g' || n)
           from generate_series(1, 4) n,
                lateral (select string_agg(gen_random_uuid()::text, '' order by m) as large from generate_series(n, n + 2999) m) l",
    );
    client.run("select f.state from taskq.claim(1) c, taskq.fail(c.id, c.token, 'x', retry => false) f");
    client.run("select taskq.complete(c.id, c.token) from taskq.claim(1) c");
    client.run("select from taskq.claim(1, lease => '1 day')");
    client.run("select taskq.once('s', 'k')");
    // Enqueues that are rolled back, and transactions of others, each use an id of their own.
    let burn = "do $$ begin
                  for n in 1..5000 loop
                    begin
                      if n % 10 = 0 then perform taskq.enqueue('burn'); else insert into burned values (n); end if;
                      raise exception using errcode = 'UNDO0';
                    exception when sqlstate 'UNDO0' then null; end;
                  end loop;
                end $$";
    client.run("create unlogged table burned (n int)");
    let large = "select count(*) from pg_class c where pg_relation_size(c.reltoastrelid) > 100000
                    and (c.oid = 'taskq.dead_letter'::regclass or c.oid in (select relid from pg_partition_tree('taskq.done')))";
    assert_eq!(
        client.value::<i64>(large, &[]),
        2,
        "the payload of the dead letter, and that of the finished task"
    );
    let age = "select max(greatest(age(c.relfrozenxid), age(t.relfrozenxid))) from pg_class c left join pg_class t on t.oid = c.reltoastrelid
                where c.relnamespace = 'taskq'::regnamespace and c.relkind = 'r'";
    for _ in 0..limit / 5000 + 2 {
        client.run(burn);
    }
    assert!(
        client.value::<bool>("select pg_snapshot_xmax(pg_current_snapshot())::text::bigint > 100000", &[])
    );
    // Each is older than that, unless it was frozen.
    eventually("all tables are younger than the limit", 90, || client.value::<i32>(age, &[]) < limit);
    // It goes on.
    let states: Vec<String> =
        client.column("select s.state from generate_series(1, 4) n, taskq.status(n) s order by n", &[]);
    assert_eq!(states, ["dead", "succeeded", "running", "ready"]);
    client.run("select taskq.redrive('*')");
    let tasks = client.claim(5);
    assert_eq!(tasks.len(), 2);
    for (id, token) in tasks {
        client.complete(id, token).expect("complete");
    }
}

#[test]
fn g20_a_broken_archive_stops_no_work_shows_in_health_and_is_logged_once_a_minute() {
    let database = SERVER.empty_database("g20");
    let mut client = database.connect();
    // (Its owner could lose no right if it stayed a superuser.)
    client.run("create role keeps superuser; set role keeps; create extension taskq; reset role");
    let round = |client: &mut Client| client.value::<i64>("select taskq._run_duty('archive')", &[]);
    let advice = |client: &mut Client, check: &str| {
        client.value::<Option<String>>("select advice from taskq.health() where \"check\" = $1", &[&check])
    };
    client.run("select taskq.configure_queue('short', '{\"retention\": \"0.1 s\"}')");
    round(&mut client);
    assert_eq!((advice(&mut client, "archive"), advice(&mut client, "duty archive")), (None, None));
    let stop = AtomicBool::new(false);
    let completed = AtomicI64::new(0);
    let finished = "select count(*) from taskq.done";
    thread::scope(|scope| {
        let stopping = StopAtEnd(&stop);
        scope.spawn(|| completed.fetch_add(work(&database, &stop), Ordering::Relaxed));
        for (breaks, mends, check, says) in [
            // The target is gone: a step fails, the others are done.
            (
                "alter table taskq.archive rename to gone",
                "alter table taskq.gone rename to archive",
                "archive",
                "taskq._archive_blockers()",
            ),
            // The owner of the extension, as whom the duty runs, has lost a right.
            (
                "alter role keeps nosuperuser; revoke insert on taskq.archive from keeps",
                "alter role keeps superuser; grant insert on taskq.archive to keeps",
                "archive",
                "taskq._archive_blockers()",
            ),
            // The whole duty fails.
            (
                "alter function taskq._archive_step(text, timestamptz) rename to gone",
                "alter function taskq.gone(text, timestamptz) rename to _archive_step",
                "duty archive",
                "mend the cause",
            ),
        ] {
            client.run(breaks);
            let before: i64 = client.value(finished, &[]);
            for _ in 0..30 {
                round(&mut client);
            }
            let told = advice(&mut client, check).expect(check);
            assert!(told.contains(says), "{told}");
            eventually("work goes on", 30, || client.value::<i64>(finished, &[]) > before + 100);
            client.run(mends);
            eventually("all is well again", 10, || {
                round(&mut client);
                advice(&mut client, check).is_none()
            });
        }
        drop(stopping);
    });
    assert_eq!(SERVER.log().matches("taskq duty archive failed with SQLSTATE 42883").count(), 1);
    eventually("the archive has caught up", 60, || {
        round(&mut client);
        client.value::<i64>("select count(*) from taskq.archive", &[]) == completed.load(Ordering::Relaxed)
    });
}

#[test]
fn who_holds_a_lock_that_the_archive_needs_is_named() {
    let database = SERVER.database("holders");
    let (mut client, mut holder) = (database.connect(), database.connect());
    let mut advice = || -> Option<String> {
        // A holder is named when its transaction is older than 50 ms.
        pause(0.1);
        client.run("set taskq.test_clock = '+ 3 days'; select taskq._run_duty('archive')");
        client.value("select advice from taskq.health() where \"check\" = 'archive'", &[])
    };
    let named = |advice: Option<String>, who: &str| {
        let begin = format!("Steps wait for a lock. End what holds it: {who}, in a transaction since 20");
        assert!(advice.as_ref().is_some_and(|advice| advice.starts_with(&begin)), "{advice:?}");
    };
    let pid = holder.pid();
    holder.run("set application_name = 'report'; begin; select from taskq.done");
    named(advice(), &format!("session {pid} (postgres, report, idle in transaction)"));
    holder.run("prepare transaction 'half'");
    named(advice(), "prepared transaction 'half'");
    holder.run("rollback prepared 'half'");
    assert_eq!(advice(), None);
}
