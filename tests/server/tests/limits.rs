//! max_running and rate with many sessions, whatever becomes of them: never more than is allowed, and
//! nothing is lost.

use postgres::error::SqlState;
use postgres::fallible_iterator::FallibleIterator;
use postgres::{Client, GenericClient};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use taskq_server_tests::{Database, Random, Server, Session, Shared, cpu_seconds, eventually, pause};

static SERVER: Shared =
    Shared::new("limits", &["taskq.keeper_interval = '200 ms'", "deadlock_timeout = '200 ms'"]);

fn keeper_is_there(client: &mut Client) {
    eventually("there is a keeper", 30, || client.healthy("keeper running"));
}

fn set(client: &mut Client, settings: &str) {
    client.query("select taskq.configure_queue('q', $1::text::jsonb)", &[&settings]).expect("configure");
}

fn sessions<T: Send>(database: &Database, number: u64, work: impl Fn(u64, Client) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..number)
            .map(|number| {
                let client = database.connect();
                scope.spawn(move || work(number, client))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("a worker failed")).collect()
    })
}

/// Ends some tasks in one of the ways there are.
fn end(
    client: &mut impl GenericClient,
    random: &mut Random,
    tasks: &[(i64, i64)],
) -> Result<(), postgres::Error> {
    for (id, token) in tasks {
        let task: [&(dyn postgres::types::ToSql + Sync); 2] = [id, token];
        match random.below(10) {
            0 => client.execute("select taskq.fail($1, $2, 'e', '0 s')", &task)?,
            1 => client.execute("select taskq.release($1, $2)", &task)?,
            2 => client.execute("select taskq.cancel($1, force => true)", &[id])?,
            3 => client.execute("select taskq.fail_many(array[$1]::bigint[], array[$2]::bigint[])", &task)?,
            // left to its lease
            4 => 0,
            5 => client.execute("select taskq.fail($1, $2, 'e', retry => false)", &task)?,
            _ => client.execute("select taskq.complete($1, $2)", &task)?,
        };
    }
    Ok(())
}

/// One round of a worker that may do anything.
fn round(client: &mut Client, random: &mut Random) -> Result<(), postgres::Error> {
    let pairs =
        |rows: Vec<postgres::Row>| rows.iter().map(|row| (row.get(0), row.get(1))).collect::<Vec<_>>();
    let claim =
        format!("select id, token from taskq.claim({}, array['q'], lease => '300 ms')", 1 + random.below(4));
    if random.one_in(3) {
        // All in one transaction, some of it taken back.
        let mut transaction = client.transaction()?;
        let mut inner = transaction.transaction()?;
        let tasks = pairs(inner.query(&claim, &[])?);
        if random.one_in(2) {
            end(&mut inner, random, &tasks)?;
        }
        if random.one_in(3) {
            inner.rollback()?
        } else {
            inner.commit()?
        }
        let tasks = pairs(transaction.query(&claim, &[])?);
        let mut inner = transaction.transaction()?;
        end(&mut inner, random, &tasks)?;
        if random.one_in(3) {
            inner.rollback()?
        } else {
            inner.commit()?
        }
        if random.one_in(4) { transaction.rollback() } else { transaction.commit() }
    } else {
        let tasks = pairs(client.query(&claim, &[])?);
        pause(f64::from(random.below(30) as u32) / 1000.0);
        let mut transaction = client.transaction()?;
        end(&mut transaction, random, &tasks)?;
        if random.one_in(5) { transaction.rollback() } else { transaction.commit() }
    }
}

#[test]
fn never_more_run_than_the_limit_whatever_sessions_do() {
    let database = SERVER.database("exact");
    let mut client = database.connect();
    keeper_is_there(&mut client);
    // Leases that are over are found at once, not only when a claim comes along.
    client.run("update taskq.duty set every = '200 ms' where name = 'limits'");
    set(&mut client, r#"{"max_running": 5}"#);
    client.run("select taskq.configure_type('t', '{\"backoff_base\": \"0 s\", \"max_retries\": 1000000}')");
    client.run("select taskq.enqueue('t', queue => 'q') from generate_series(1, 20000)");
    let over = AtomicBool::new(false);
    // 0 while it is being changed, when more may run than before or after; else one more than the limit
    let allowed = AtomicI64::new(6);
    let most = AtomicI64::new(0);
    let seed = Random::seed();
    thread::scope(|scope| {
        let (over, allowed, most, database) = (&over, &allowed, &most, &database);
        let workers: Vec<_> = (0..16)
            .map(|number| {
                scope.spawn(move || {
                    let mut random = Random::new(seed + number);
                    let mut client = database.connect();
                    while !over.load(Ordering::SeqCst) {
                        if client.is_closed() {
                            client = database.connect();
                        }
                        // Stale leases and ended connections are part of it. (And deadlocks, where transactions
                        // claim and end several tasks; in one of them anybody may be told.)
                        if let Err(error) = round(&mut client, &mut random)
                            && let Some(code) = error.code()
                        {
                            assert!(["TQ001", "57P01", "40P01"].contains(&code.code()), "{error:?}");
                        }
                    }
                })
            })
            .collect();
        let killer = scope.spawn(move || {
            let mut client = database.connect();
            let mut random = Random::new(seed + 100);
            while !over.load(Ordering::SeqCst) {
                client.run(
                    "select pg_terminate_backend(pid) from (
                       select a.pid from pg_stat_activity a
                        where a.datname = current_database() and a.backend_type = 'client backend'
                          and a.pid <> pg_backend_pid() and a.query ~ 'taskq.(claim|complete|fail|release|cancel)'
                        order by random() limit 1) x",
                );
                pause(0.05 + f64::from(random.below(100) as u32) / 1000.0);
            }
        });
        let observer = scope.spawn(move || {
            let mut client = database.connect();
            let look = client
                .prepare(
                    "select (select count(*) from taskq.task t where t.state = 'running'),
                            (select count(*) from taskq.slot s where s.task_id is not null),
                            (select count(*) from taskq.task t where t.state = 'running'
                              and not exists (select from taskq.slot s where s.task_id = t.id))",
                )
                .expect("look");
            let mut looked = 0;
            while !over.load(Ordering::SeqCst) {
                let before = allowed.load(Ordering::SeqCst);
                let row = client.query_one(&look, &[]).expect("look");
                let (running, used, without): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
                if before > 0 && before == allowed.load(Ordering::SeqCst) {
                    assert!(running < before, "{running} run, {} may", before - 1);
                    assert_eq!((used, without), (running, 0), "slots in use, tasks without");
                    looked += 1;
                    most.fetch_max(running, Ordering::SeqCst);
                }
            }
            looked
        });
        let mut change = |settings: &str, allow: i64| {
            allowed.store(0, Ordering::SeqCst);
            set(&mut client, settings);
            if allow > 0 {
                // What ran before may go on.
                eventually("no more run than may", 60, || {
                    client.value(
                        "select (select count(*) from taskq.task where state = 'running') <= $1
                            and (select count(*) from taskq.slot where task_id is not null)
                              = (select count(*) from taskq.task where state = 'running')",
                        &[&allow],
                    )
                });
                allowed.store(allow + 1, Ordering::SeqCst);
            }
        };
        pause(3.0);
        change(r#"{"max_running": 2}"#, 2);
        pause(1.5);
        change(r#"{"max_running": 0}"#, 0);
        eventually("nothing runs", 60, || {
            database.connect().value("select count(*) = 0 from taskq.task where state = 'running'", &[])
        });
        change(r#"{"max_running": null}"#, 0);
        pause(1.0);
        change(r#"{"max_running": 5}"#, 5);
        pause(3.0);
        over.store(true, Ordering::SeqCst);
        workers.into_iter().for_each(|worker| worker.join().expect("a worker"));
        killer.join().expect("killer");
        let looked: i32 = observer.join().expect("observer");
        assert!(looked > 5, "looked {looked} times");
        assert_eq!(most.load(Ordering::SeqCst), 5, "the limit is used");
    });
    eventually("what is left is taken back", 60, || {
        client.value("select count(*) = 0 from taskq.task where state = 'running'", &[])
    });
    let slots = "select string_agg(coalesce(task_id::text, 'free'), ' ' order by slot) from taskq.slot";
    assert_eq!(client.value::<String>(slots, &[]), "free free free free free");
    // Every task is somewhere, and the queue is emptied as fast as it can.
    assert_eq!(
        client.value::<i64>(
            "select (select count(*) from taskq.task) + (select count(*) from taskq.done)
                  + (select count(*) from taskq.dead_letter)",
            &[]
        ),
        20_000
    );
    client.run("select taskq.purge('ready')");
    client.run("select taskq.enqueue('t', queue => 'q') from generate_series(1, 40)");
    sessions(&database, 8, |_, mut client| {
        while client.value("select exists (select from taskq.task)", &[]) {
            for (id, token) in client.claim(2) {
                client.complete(id, token).expect("complete");
            }
        }
    });
    assert_eq!(client.value::<String>(slots, &[]), "free free free free free");
}

#[test]
fn verbs_in_transactions_of_their_own_meet_no_deadlock() {
    let database = SERVER.database("single");
    let mut client = database.connect();
    keeper_is_there(&mut client);
    client.run("update taskq.duty set every = '200 ms' where name = 'limits'");
    set(&mut client, r#"{"max_running": 5, "rate": "1000/second"}"#);
    client.run("select taskq.configure_type('t', '{\"backoff_base\": \"0 s\", \"max_retries\": 1000000}')");
    client.run(
        "select taskq.enqueue('t', queue => 'q', group_key => case when n % 3 = 0 then 'g' || n % 20 end)
           from generate_series(1, 20000) n",
    );
    let (begin, seed) = (Instant::now(), Random::seed());
    let running = || begin.elapsed() < Duration::from_secs(8);
    let ended: Vec<usize> = sessions(&database, 16, |number, mut client| {
        let mut random = Random::new(seed + number);
        let mut ended = 0;
        while running() {
            // The first of them is the operator.
            if number == 0 {
                let limit = ["1", "3", "5", "8", "null"][random.below(5) as usize];
                set(&mut client, &format!(r#"{{"max_running": {limit}}}"#));
                pause(0.1);
                continue;
            }
            let claim = format!(
                "select id, token from taskq.claim({}, array['q'], lease => '300 ms')",
                1 + random.below(4)
            );
            for row in client.query(&claim, &[]).expect("claim") {
                match end(&mut client, &mut random, &[(row.get(0), row.get(1))]) {
                    Ok(()) => ended += 1,
                    Err(error) => {
                        assert_eq!(error.code().map(SqlState::code), Some("TQ001"), "{error:?}")
                    }
                }
            }
        }
        ended
    });
    assert!(ended.iter().sum::<usize>() > 500, "{ended:?} ended");
    set(&mut client, r#"{"max_running": 5}"#);
    eventually("what is left is taken back", 60, || {
        client.value(
            "select (select count(*) from taskq.task where state = 'running') = 0
                and (select count(*) filter (where task_id is null) = 5 and count(*) = 5 from taskq.slot)
                and (select count(task_id) from taskq.group_turn) = 0",
            &[],
        )
    });
    let deadlocks = "select deadlocks from pg_stat_database where datname = current_database()";
    assert_eq!(client.value::<i64>(deadlocks, &[]), 0);
}

#[test]
fn a_rate_is_kept_and_used_by_workers_that_wait() {
    let database = SERVER.database("rate");
    let mut client = database.connect();
    keeper_is_there(&mut client);
    // (Tokens that lie there while the machine halts are used afterwards, if it is for less than a second.)
    set(&mut client, r#"{"rate": "50/second", "burst": 50}"#);
    client.run("select taskq.enqueue('t', queue => 'q') from generate_series(1, 1000)");
    let begin = Instant::now();
    sessions(&database, 8, |_, mut client| {
        while begin.elapsed() < Duration::from_secs(5) {
            let tasks = client.claim(3);
            if tasks.is_empty() {
                client.run("call taskq.wait(timeout => '1 second')");
            }
            for (id, token) in tasks {
                client.complete(id, token).expect("complete");
            }
        }
    });
    let too_many: i64 = client.value(
        "with s as (select claimed_at as at, row_number() over (order by claimed_at) as n
                      from (select claimed_at from taskq.done union all
                            select claimed_at from taskq.task where claimed_at is not null) c)
         select count(*) from s a join s b on b.n >= a.n
          where b.n - a.n + 1 > 50 * extract(epoch from b.at - a.at) + 50 + 0.001",
        &[],
    );
    assert_eq!(too_many, 0, "windows in which more began than may");
    let began: i64 = client.value(
        "select count(*) from taskq.done where claimed_at < (select min(claimed_at) from taskq.done) + interval '5 s'",
        &[],
    );
    assert!(began >= 240, "{began} of 300 began in 5 seconds");
}

#[test]
fn workers_at_a_full_queue_sleep_until_a_slot_or_a_token_is_free() {
    let database = SERVER.database("sleep");
    let mut client = database.connect();
    keeper_is_there(&mut client);
    set(&mut client, r#"{"max_running": 1, "lease": "1 hour"}"#);
    client.run("select taskq.enqueue('t', queue => 'q') from generate_series(1, 100)");
    let (id, token) = client.claim(1)[0];
    let mut listener = database.connect();
    listener.run("listen taskq_ready");
    let keeper: i32 = client.value(
        "select pid from pg_stat_activity where backend_type = 'taskq keeper' and datname = current_database()",
        &[],
    );
    // What was told of the tasks before
    pause(0.5);
    told(&mut listener);
    let waiting = AtomicI64::new(0);
    // Whoever is woken claims only after the listener was told: of what is taken already nobody is told.
    let was_told = AtomicBool::new(false);
    thread::scope(|scope| {
        let waiters: Vec<_> = (0..6)
            .map(|_| {
                let mut client = database.connect();
                let pid = client.pid();
                let (waiting, was_told) = (&waiting, &was_told);
                let thread = scope.spawn(move || {
                    waiting.fetch_add(1, Ordering::SeqCst);
                    client.run("call taskq.wait(array['q'], '1 minute')");
                    waiting.fetch_sub(1, Ordering::SeqCst);
                    while !was_told.load(Ordering::SeqCst) {
                        pause(0.01);
                    }
                    client.claim(1).len()
                });
                (pid, thread)
            })
            .collect();
        eventually("all wait", 30, || waiting.load(Ordering::SeqCst) == 6);
        pause(0.5);
        let used =
            || -> f64 { waiters.iter().map(|(pid, _)| cpu_seconds(*pid)).sum::<f64>() + cpu_seconds(keeper) };
        let before = used();
        pause(4.0);
        assert!(used() - before < 7.0 * 4.0 * 0.05, "seconds of processor time: {}", used() - before);
        assert_eq!(waiting.load(Ordering::SeqCst), 6, "still waiting");
        assert_eq!(told(&mut listener), 0, "told of a full queue");
        client.complete(id, token).expect("complete");
        eventually("one is woken", 4, || waiting.load(Ordering::SeqCst) < 6);
        eventually("it is told", 10, || told(&mut listener) > 0);
        // Set free, all come back.
        set(&mut client, r#"{"max_running": null}"#);
        was_told.store(true, Ordering::SeqCst);
        let got: usize = waiters.into_iter().map(|(_, thread)| thread.join().expect("waiter")).sum();
        assert!(got >= 5, "{got} got a task");
    });
    // Tokens: told when the next one is free.
    set(&mut client, r#"{"rate": "2/second", "burst": 1}"#);
    eventually("the token is used", 30, || client.claim(1).len() == 1);
    assert!(client.claim(1).is_empty());
    pause(0.2);
    told(&mut listener);
    eventually("told of a token", 10, || told(&mut listener) > 0);
    eventually("it is there", 10, || client.claim(1).len() == 1);
}

fn told(listener: &mut Client) -> usize {
    let mut notifications = listener.notifications();
    let mut timeout = notifications.timeout_iter(Duration::from_millis(100));
    let mut told = 0;
    while let Ok(Some(notification)) = timeout.next() {
        assert_eq!(notification.payload(), "q");
        told += 1;
    }
    told
}

#[test]
fn a_restored_dump_keeps_its_limits() {
    let server = Server::start("limit_dump", &[]);
    let database = server.database("old");
    let mut client = database.connect();
    set(&mut client, r#"{"max_running": 3, "rate": "5/day"}"#);
    client.run("select taskq.enqueue('t', queue => 'q') from generate_series(1, 10)");
    assert_eq!(client.claim(2).len(), 2);
    let file = server.data().with_file_name("dump");
    succeeds(server.program("pg_dump").args(["-Fc", "-d", "old", "-f"]).arg(&file));
    let new = server.empty_database("new");
    succeeds(server.program("pg_restore").args(["--exit-on-error", "-d", "new"]).arg(&file));
    let mut client = new.connect();
    // (A round that the keeper is just doing, with what it sees, is not done beside it.)
    eventually("the two that run have slots", 30, || {
        client.run("call taskq.maintain()");
        client.value::<i64>("select count(*) from taskq.slot where task_id is not null", &[]) == 2
    });
    assert_eq!(client.claim(10).len(), 1, "tasks claimed beside the two that run");
    assert_eq!(client.value::<i64>("select count(*) from taskq.rate_token", &[]), 5);
}

fn succeeds(command: &mut Command) {
    let output = command.output().expect("a program");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
