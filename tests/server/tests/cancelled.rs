//! Statements that are cancelled half way: nothing is left behind, in the tables or in memory.

use postgres::Client;
use std::thread;
use taskq_server_tests::{Random, Session, Shared, anonymous_memory, eventually, sqlstate};

static SERVER: Shared = Shared::new("cancelled", &["taskq.keeper = off"]);

/// Makes every claimed row take its time.
const SLOW: &str = "create function slow() returns trigger language plpgsql as
       $$ begin perform pg_sleep(0.25); return new; end $$;
     create trigger slow before update on taskq.task for each row execute function slow()";

/// Verbs as calls, and the tables at whose locks each of them must wait.
const VERBS: [(&str, &[&str]); 18] = [
    ("select taskq.claim(2, array['q'])", &["task", "unique_key", "slot", "rate_token", "claim_gate"]),
    (
        "select taskq.complete(l.id, l.token) from lease l",
        &["task", "unique_key", "slot", "group_turn", "parked", "done"],
    ),
    (
        "select taskq.complete_many(array_agg(l.id), array_agg(l.token)) from lease l",
        &["task", "unique_key", "slot", "group_turn", "parked", "done"],
    ),
    ("select taskq.fail(l.id, l.token, 'y') from lease l", &["task", "slot", "group_turn", "parked"]),
    (
        "select taskq.fail(l.id, l.token, 'y', retry => false) from lease l",
        &["task", "unique_key", "slot", "group_turn", "parked", "dead_letter"],
    ),
    (
        "select taskq.fail_many(array_agg(l.id), array_agg(l.token)) from lease l",
        &["task", "slot", "group_turn", "parked"],
    ),
    ("select taskq.extend(l.id, l.token, '1 h', '{\"half\": true}') from lease l", &["task"]),
    ("select taskq.release(l.id, l.token) from lease l", &["task", "slot", "group_turn", "parked"]),
    (
        "select taskq.enqueue('t', queue => 'q', group_key => 'g', unique_key => 'new')",
        &["task", "unique_key"],
    ),
    (
        "select taskq.enqueue('t', '{\"new\": 1}', unique_key => 'waiting', on_conflict => 'replace')",
        &["task", "unique_key"],
    ),
    (
        "select taskq.enqueue_many('[{\"task_type\": \"t\"}, {\"task_type\": \"t\", \"unique_key\": \"new\"}]')",
        &["task", "unique_key"],
    ),
    (
        "select taskq.cancel(l.id, force => true) from lease l",
        &["task", "unique_key", "slot", "group_turn", "parked", "done"],
    ),
    (
        "select taskq.cancel(t.id) from taskq.tasks t where t.state in ('ready', 'blocked')",
        &["task", "unique_key", "slot", "group_turn", "parked", "done"],
    ),
    ("select taskq.redrive(queue => 'q')", &["task", "unique_key", "dead_letter"]),
    ("select taskq.purge('ready')", &["task", "unique_key", "parked"]),
    ("select taskq.purge('dead')", &["dead_letter"]),
    ("select taskq.purge('succeeded')", &["done", "archive"]),
    ("select taskq.once('s', 'new')", &["once_key"]),
];

const MEGABYTE: u64 = 1024 * 1024;

fn assert_three_claimable_at_first_attempt(client: &mut Client) {
    assert_eq!(client.value::<i64>("select count(*) from taskq.task where state = 'running'", &[]), 0);
    client.run("begin");
    let attempts = client.column::<i32>("select attempt from taskq.claim(10)", &[]);
    client.run("rollback");
    assert_eq!(attempts, [1, 1, 1]);
}

fn enqueue_three(client: &mut Client) {
    client.value::<i64>("select count(taskq.enqueue('t')) from generate_series(1, 3)", &[]);
}

/// Calls a claim in another thread and cancels it when its session is seen in `event`.
fn claim_and_cancel(claimer: &mut Client, other: &mut Client, event: &str) -> String {
    let pid = claimer.pid();
    thread::scope(|scope| {
        let claim = scope.spawn(|| sqlstate(claimer.query("select * from taskq.claim(3)", &[])));
        eventually("the claim waits", 30, || {
            other.value::<bool>(
                "select exists (select from pg_stat_activity where pid = $1 and wait_event = $2)",
                &[&pid, &event],
            )
        });
        assert!(other.value::<bool>("select pg_cancel_backend($1)", &[&pid]));
        claim.join().expect("the claim")
    })
}

#[test]
fn a16_a_claim_cancelled_while_it_is_slow_leaves_nothing_running() {
    let database = SERVER.database("slow");
    let (mut claimer, mut other) = (database.connect(), database.connect());
    enqueue_three(&mut other);
    other.run(SLOW);
    claimer.run("set statement_timeout = '300 ms'");
    assert_eq!(sqlstate(claimer.query("select * from taskq.claim(3)", &[])), "57014");
    claimer.run("reset statement_timeout");
    assert_eq!(claim_and_cancel(&mut claimer, &mut other, "PgSleep"), "57014");
    other.run("drop trigger slow on taskq.task");
    assert_three_claimable_at_first_attempt(&mut other);
    assert_three_claimable_at_first_attempt(&mut claimer);
}

#[test]
fn a16_a_claim_cancelled_while_it_waits_for_a_lock_leaves_nothing_running() {
    let database = SERVER.database("waits");
    let (mut claimer, mut other, mut locker) = (database.connect(), database.connect(), database.connect());
    enqueue_three(&mut other);
    locker.run("begin; lock table taskq.task in access exclusive mode");
    claimer.run("set statement_timeout = '300 ms'");
    assert_eq!(sqlstate(claimer.query("select * from taskq.claim(3)", &[])), "57014");
    claimer.run("set statement_timeout = 0; set lock_timeout = '300 ms'");
    assert_eq!(sqlstate(claimer.query("select * from taskq.claim(3)", &[])), "55P03");
    claimer.run("reset lock_timeout");
    assert_eq!(claim_and_cancel(&mut claimer, &mut other, "relation"), "57014");
    locker.run("rollback");
    assert_three_claimable_at_first_attempt(&mut claimer);
}

#[test]
fn a_claim_goes_by_tasks_that_others_have_locked() {
    let database = SERVER.database("skips");
    let (mut claimer, mut locker) = (database.connect(), database.connect());
    enqueue_three(&mut claimer);
    locker.run("begin; select from taskq.task where id = 2 for update");
    claimer.run("set statement_timeout = '20 s'");
    assert_eq!(claimer.column::<i64>("select id from taskq.claim(3)", &[]), [1, 3]);
}

#[test]
fn a16_the_memory_of_a_session_stays_flat_over_10000_cancelled_claims() {
    let database = SERVER.database("memory1");
    let (mut claimer, mut other) = (database.connect(), database.connect());
    enqueue_three(&mut other);
    other.run(SLOW);
    let pid = claimer.pid();
    claimer.run("set statement_timeout = '1 ms'");
    let claim = claimer.prepare("select * from taskq.claim(3)").expect("prepare");
    let mut rounds = |count| {
        for _ in 0..count {
            assert_eq!(sqlstate(claimer.query(&claim, &[])), "57014");
        }
        anonymous_memory(pid)
    };
    let before = rounds(200);
    let after = rounds(10_000);
    assert!(after < before + 2 * MEGABYTE, "{before} bytes before, {after} after");
    other.run("drop trigger slow on taskq.task");
    assert_three_claimable_at_first_attempt(&mut other);
}

/// Without a trigger a claim changes the rows directly; it is cancelled before, or with slots and turns half taken.
#[test]
fn a16_the_memory_of_a_session_stays_flat_over_12000_claims_cancelled_at_locks() {
    let database = SERVER.database("memory4");
    let (mut claimer, mut locker) = (database.connect(), database.connect());
    locker.run(
        "select taskq.configure_queue('q', '{\"max_running\": 10, \"rate\": \"1000/second\"}');
         select taskq.enqueue('t', queue => 'q', group_key => 'g' || n) from generate_series(1, 3) n",
    );
    let pid = claimer.pid();
    claimer.run("set statement_timeout = '1 ms'");
    let claim = claimer.prepare("select * from taskq.claim(3, array['q'])").expect("prepare");
    let mut rounds = |count| {
        for table in ["task", "slot", "group_turn"] {
            locker.run(&format!("begin; lock table taskq.{table} in access exclusive mode"));
            for _ in 0..count {
                assert_eq!(sqlstate(claimer.query(&claim, &[])), "57014", "{table}");
            }
            locker.run("rollback");
        }
        anonymous_memory(pid)
    };
    let before = rounds(200);
    let after = rounds(4000);
    assert!(after < before + 2 * MEGABYTE, "{before} bytes before, {after} after");
    assert_three_claimable_at_first_attempt(&mut locker);
    assert_eq!(locker.value::<i64>("select count(*) from taskq.group_turn", &[]), 0);
    assert_eq!(locker.value::<i64>("select count(*) from taskq.slot where task_id is not null", &[]), 0);
}

/// All rows of all tables, and the figures.
const EVERYTHING: &str = "create function everything() returns text language plpgsql as $$
     declare
       v_table regclass;
       v_rows text;
       v_all text;
     begin
       select string_agg(f::text, ' ' order by f::text) into v_all from taskq._figures() f;
       for v_table in select c.oid from pg_class c
                       where c.relnamespace = 'taskq'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition loop
         execute format('select string_agg(x::text, %L order by x::text) from %s x', chr(10), v_table) into v_rows;
         v_all := concat_ws(chr(10), v_all, v_table, v_rows);
       end loop;
       return v_all;
     end
     $$";

/// Each verb is stopped at each table that it needs, and its savepoint rolled back, but its transaction committed.
#[test]
fn a16_a_verb_cancelled_at_any_lock_changes_nothing() {
    let database = SERVER.database("verbs");
    let (mut client, mut locker) = (database.connect(), database.connect());
    for statement in [
        EVERYTHING,
        "select taskq.configure_queue('q', '{\"max_running\": 10, \"rate\": \"1000/second\"}')",
        "select taskq.enqueue('t', queue => 'q', unique_key => 'dead')",
        "select taskq.fail(c.id, c.token, 'x', retry => false) from taskq.claim(1, array['q']) c",
        "select taskq.enqueue('t', queue => 'q')",
        "select taskq.complete(c.id, c.token) from taskq.claim(1, array['q']) c",
        "select taskq.enqueue('t', queue => 'q', group_key => 'g', unique_key => 'running')",
        "select taskq.enqueue('t', queue => 'q', unique_key => 'other')",
        "create table lease as select id, token from taskq.claim(2, array['q'])",
        "select taskq.enqueue('t', queue => 'q', group_key => 'g', unique_key => 'parked')",
        "select taskq.claim(1, array['q'])",
        "select taskq.enqueue('t', queue => 'q', unique_key => 'waiting')",
    ] {
        client.run(statement);
    }
    let there = "select format('%s %s %s', count(*) filter (where t.state = 'running'), count(*) filter (where t.run_at = 'infinity'), count(*))
                   from taskq.task t";
    assert_eq!(client.value::<String>(there, &[]), "2 1 4");
    let tables = locker.column::<String>(
        "select c.relname::text from pg_class c
          where c.relnamespace = 'taskq'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition",
        &[],
    );
    let before = client.value::<String>("select everything()", &[]);
    for (verb, needs) in VERBS {
        let mut stopped = Vec::new();
        for table in &tables {
            locker.run(&format!("begin; lock table taskq.{table} in access exclusive mode"));
            client.run("begin; set local statement_timeout = '100 ms'; savepoint s");
            let answer = client.simple_query(verb);
            if answer.is_err() {
                assert_eq!(sqlstate(answer), "57014", "{verb}, at {table}");
                stopped.push(table.as_str());
            }
            client.run("rollback to s; commit");
            locker.run("rollback");
            assert_eq!(client.value::<String>("select everything()", &[]), before, "{verb}, at {table}");
        }
        let missed: Vec<_> = needs.iter().filter(|table| !stopped.contains(table)).collect();
        assert!(missed.is_empty(), "{verb} was not stopped at {missed:?}");
    }
}

#[test]
fn the_memory_of_a_session_stays_flat_over_20000_verbs() {
    let database = SERVER.database("memory2");
    let mut client = database.connect();
    client.run("set synchronous_commit = off");
    let pid = client.pid();
    let mut random = Random::new(Random::seed());
    let mut statements = Vec::new();
    for text in [
        "select taskq.enqueue('t', jsonb_build_object('text', repeat('x', $1)))",
        "select taskq.complete($1, $2)",
        "select * from taskq.fail($1, $2, 'oops', '0 s')",
        "select * from taskq.extend($1, $2, progress => '{\"at\": 1}')",
        "select taskq.release($1, $2)",
        "select taskq.enqueue('t', unique_key => 'one')",
        "select taskq.claim(-1)",
        "select id, token from taskq.claim(2, array['none', 'default'], 'me', '1 minute')",
    ] {
        statements.push(client.prepare(text).expect("prepare"));
    }
    let [enqueue, complete, fail, extend, release, unique, invalid, claim] = &statements[..] else {
        unreachable!()
    };
    let mut verbs = |count| {
        let mut calls = 0;
        while calls < count {
            for _ in 0..2 {
                client.query(enqueue, &[&(random.below(500) as i32)]).expect("enqueue");
            }
            client.query(unique, &[]).expect("enqueue");
            let tasks = client.query(claim, &[]).expect("claim");
            for task in &tasks {
                let (id, token): (i64, i64) = (task.get(0), task.get(1));
                client.query(extend, &[&id, &token]).expect("extend");
                let verb = [complete, complete, complete, fail, release][random.below(5) as usize];
                client.query(verb, &[&id, &token]).expect("a verb");
                assert_eq!(sqlstate(client.query(verb, &[&id, &token])), "TQ001");
            }
            assert_eq!(sqlstate(client.query(invalid, &[])), "22023");
            calls += 5 + 3 * tasks.len();
        }
        anonymous_memory(pid)
    };
    let before = verbs(3000);
    let after = verbs(20_000);
    assert!(after < before + 2 * MEGABYTE, "{before} bytes before, {after} after");
}

/// A session that goes on for long, with verbs of all kinds, that succeed and that do not. They are called by a
/// procedure, so that the network does not count. TASKQ_TEST_VERBS=1000000 is the long form.
#[test]
fn the_memory_of_a_session_stays_flat_over_100000_verbs_of_all_kinds() {
    let database = SERVER.database("memory3");
    let mut client = database.connect();
    let pid = client.pid();
    client.run("set synchronous_commit = off; set statement_timeout = 0");
    client.run(
        "select taskq.configure_queue('limited', '{\"max_running\": 5, \"rate\": \"1000000/second\", \"burst\": 100}');
         select taskq.configure_type('t', '{\"backoff_base\": \"0 s\", \"max_retries\": 2}');
         select taskq.configure_queue('default', '{\"retention\": \"0\"}'), taskq.configure_queue('grouped', '{\"retention\": \"0\"}');
         create procedure verbs(times int) language plpgsql as $$
         declare
           v record;
           calls int := 0;
         begin
           while calls < verbs.times loop
             perform taskq.enqueue('t', jsonb_build_object('text', repeat('x', calls % 300)));
             perform taskq.enqueue('t', queue => 'limited');
             perform taskq.enqueue('t', queue => 'grouped', group_key => 'g' || calls % 7);
             perform taskq.enqueue('t', unique_key => 'k' || calls % 50, unique_until => 'started');
             perform taskq.enqueue('t', unique_key => 'one', on_conflict => 'replace', delay => '1 h');
             perform taskq.enqueue_many('[{\"task_type\": \"t\"}, {\"task_type\": \"t\", \"priority\": 1}]');
             perform taskq.once('s', (calls / 100)::text, '1 s');
             calls := calls + 8;
             for v in select c.id, c.token, c.attempt from taskq.claim(20, worker => 'w') c loop
               perform taskq.extend(v.id, v.token, progress => '{\"at\": 1}');
               case (v.id + v.attempt) % 6
                 when 0 then perform taskq.fail(v.id, v.token, 'x');
                 when 1 then perform taskq.release(v.id, v.token);
                 when 2 then perform taskq.complete_many(array[v.id], array[v.token]);
                 when 3 then perform taskq.cancel(v.id, force => true);
                 else perform taskq.complete(v.id, v.token, '{\"done\": true}');
               end case;
               calls := calls + 2;
             end loop;
             begin
               perform taskq.complete(v.id, v.token);
             exception when sqlstate 'TQ001' then null;
             end;
             begin
               perform taskq.claim(-1);
             exception when sqlstate '22023' then null;
             end;
             perform taskq.status(v.id);
             calls := calls + 3;
             commit;
           end loop;
           -- (Else the tables grow, and everything takes longer.)
           perform taskq.purge('dead'), taskq.purge('ready'), taskq.purge('succeeded'), taskq.purge('cancelled');
         end
         $$",
    );
    let all: i32 = std::env::var("TASKQ_TEST_VERBS").ok().and_then(|n| n.parse().ok()).unwrap_or(100_000);
    let mut calls = |count: i32| {
        for _ in 0..count / 10_000 {
            client.run("call verbs(10000)");
            client.run("vacuum taskq.task, taskq.done_default, taskq.dead_letter, taskq.unique_key, taskq.slot, taskq.group_turn, taskq.parked");
        }
        anonymous_memory(pid)
    };
    let before = calls(30_000);
    let after = calls(all);
    assert!(after < before + 2 * MEGABYTE, "{before} bytes before, {after} after");
}
