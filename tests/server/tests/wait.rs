//! `CALL taskq.wait`: wakes when it should and only then, and is in nobody's way while it sleeps.
//!
//! A waiter looks for itself every 5 seconds; where a test says that an event wakes it, it must
//! return before that.

use postgres::fallible_iterator::FallibleIterator;
use postgres::{Client, Error};
use std::fs;
use std::process::{Child, Stdio};
use std::sync::Mutex;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use taskq_server_tests::{Database, Server, Session, Shared, cpu_seconds, eventually, pause, sqlstate};

static SERVER: Shared = Shared::new("wait", &[]);

/// A waiter that nobody woke returns after this at the earliest.
const LOOKS_ANYWAY: Duration = Duration::from_secs(5);

/// A database with a keeper that has counted, and goes by events alone.
fn set_up(name: &str) -> (Database<'static>, Client) {
    let database = SERVER.empty_database(name);
    let mut client = database.connect();
    client.run("create extension taskq; update taskq.duty set every = '1 hour' where name = 'wake'");
    eventually("the keeper is at work", 30, || {
        client.value("select count(*) = 1 from taskq._figures_state()", &[])
    });
    (database, client)
}

/// A session that is in `wait`.
struct Waiter {
    pid: i32,
    begin: Instant,
    thread: JoinHandle<(Client, Result<(), Error>, Instant)>,
}

impl Waiter {
    /// Calls it in a thread, and waits until it sleeps.
    fn start(database: &Database, observer: &mut Client, call: &str) -> Waiter {
        let waiter = Self::begin(database.connect(), call);
        waiter.sleeps(observer);
        waiter
    }

    fn begin(mut client: Client, call: &str) -> Waiter {
        let (pid, call) = (client.pid(), call.to_owned());
        let thread = thread::spawn(move || {
            let result = client.batch_execute(&call);
            (client, result, Instant::now())
        });
        Waiter { pid, begin: Instant::now(), thread }
    }

    fn sleeps(&self, observer: &mut Client) {
        let asleep = "select count(*) = 1 from pg_stat_activity where pid = $1 and wait_event = 'Extension'";
        eventually("it sleeps", 30, || observer.value(asleep, &[&self.pid]));
    }

    fn waits(&self) -> bool {
        !self.thread.is_finished()
    }

    /// It returns without an error, and before it would have looked for itself.
    #[track_caller]
    fn woken(self) -> Client {
        let (client, result, end) = self.thread.join().expect("thread");
        result.expect("wait");
        let took = end - self.begin;
        assert!(took < LOOKS_ANYWAY, "it returned after {took:?}");
        client
    }
}

/// However long it sleeps there: nobody is to be told that a queue has no workers.
#[test]
fn a_worker_that_waits_counts_as_one_that_asks() {
    let (database, mut client) = set_up("asks");
    client.run("update taskq.duty set every = '1 hour' where name = 'sample'");
    client.run("select taskq.configure_queue('q', '{}'), taskq.configure_queue('other', '{}')");
    let mut worker = database.connect();
    worker.run("select taskq.claim(1, '{q}', 'patient')");
    let call = "call taskq.wait('{q}', '1 hour')";
    let waiter = Waiter::begin(worker, call);
    waiter.sleeps(&mut client);
    client.run("set taskq.test_clock = '+ 10 min'");
    client.run(
        "select taskq.enqueue('t', queue => name, delay => '1 hour') from unnest('{q,other}'::text[]) name",
    );
    let asking = "select workers from taskq._metrics_queues() where queue = $1";
    let sampled = "select claimers::bigint from taskq.sample where queue = $1 order by at desc limit 1";
    // (Not beside a round that the keeper is just doing.)
    eventually("a sample is taken", 30, || {
        client.run("select taskq._run_duty('sample')");
        client.value(
            "select exists (select from taskq.sample where queue = 'q' and at > now() + interval '5 min')",
            &[],
        )
    });
    for (queue, workers) in [("q", 1), ("other", 0)] {
        assert_eq!(client.value::<i64>(asking, &[&queue]), workers, "{queue}");
        assert_eq!(client.value::<i64>(sampled, &[&queue]), workers, "{queue}");
    }
    client.execute("select pg_terminate_backend($1)", &[&waiter.pid]).expect("terminate");
    eventually("it is gone", 30, || client.value::<i64>(asking, &[&"q"]) == 0);
}

#[test]
fn it_returns_when_a_task_is_enqueued_or_becomes_claimable_in_another_way() {
    let (database, mut client) = set_up("wakes");
    let claim = "select 1 / count(*) from taskq.claim(1, lease => '1 hour')";
    let running = |verb: &str| format!("select taskq.{verb} from taskq.task t where t.state = 'running'");
    let ways: [(&str, String); 6] = [
        ("select 1", "select taskq.enqueue('t')".into()),
        (claim, running("release(t.id, t.token)")),
        (claim, running("fail(t.id, t.token, retry_in => '0.3 s')")),
        (claim, "select taskq.enqueue('t', delay => '0.3 s')".into()),
        ("select 1 / count(*) from taskq.claim(2, lease => '0.7 s')", "select 1".into()),
        ("select taskq.pause('default')", "select taskq.resume('default')".into()),
    ];
    for (before, event) in ways {
        client.run(before);
        let waiter = Waiter::start(&database, &mut client, "call taskq.wait(timeout => '30 s')");
        client.run(&event);
        waiter.woken();
    }
    assert!(client.value::<i64>("select count(*) from taskq.claim(10)", &[]) > 0);
    // A driver that prepares its statements calls it the same way.
    client.run("select taskq.enqueue('t')");
    client.execute("call taskq.wait($1, $2::text::interval)", &[&vec!["default"], &"30 s"]).expect("wait");
}

#[test]
fn it_waits_for_its_own_queues_only() {
    let (database, mut client) = set_up("queues");
    let waiter = Waiter::start(&database, &mut client, "call taskq.wait(array['a', 'b'], '30 s')");
    let any = Waiter::start(&database, &mut client, "call taskq.wait(timeout => '30 s')");
    client.run("select taskq.enqueue('t', queue => 'c')");
    any.woken();
    client.run("select taskq.enqueue('t', queue => 'c') from generate_series(1, 10)");
    pause(1.0);
    assert!(waiter.waits(), "a task in another queue");
    client.run("select taskq.enqueue('t', queue => 'b')");
    waiter.woken();
    // With more queues than are remembered, all are waited for.
    let many = "call taskq.wait(array['m1', 'm2', 'm3', 'm4', 'm5', 'm6', 'm7', 'm8', 'm9', 'm10'], '30 s')";
    let waiter = Waiter::start(&database, &mut client, many);
    client.run("select taskq.enqueue('t', queue => 'm10')");
    waiter.woken();
}

#[test]
fn it_returns_after_its_timeout() {
    let (_database, mut client) = set_up("timeout");
    for seconds in [0.0, 0.3, 1.2, 5.5] {
        let begin = Instant::now();
        client.run(&format!("call taskq.wait(timeout => '{seconds} s')"));
        let took = begin.elapsed().as_secs_f64();
        assert!((seconds..seconds + 3.0).contains(&took), "{took} s instead of {seconds}");
    }
}

#[test]
fn it_ends_when_it_is_cancelled_or_terminated_and_is_not_waited_on_afterwards() {
    let (database, mut client) = set_up("ends");
    let call = "call taskq.wait(timeout => '1 hour')";
    // Those who came first would be woken first. Some go away, some stay and do something else.
    let waiters: Vec<Waiter> = (0..10).map(|_| Waiter::start(&database, &mut client, call)).collect();
    let mut stay = Vec::new();
    for (n, waiter) in waiters.into_iter().enumerate() {
        let end = if n % 2 == 0 { "pg_cancel_backend" } else { "pg_terminate_backend" };
        assert!(client.value::<bool>(&format!("select {end}($1)"), &[&waiter.pid]));
        let (session, result, _) = waiter.thread.join().expect("thread");
        let error = result.expect_err("it ends with an error");
        if n % 2 == 0 {
            assert_eq!(error.code().map(|code| code.code()), Some("57014"));
            stay.push(session);
        } else {
            // (The connection may be closed before the message is read.)
            assert!(error.code().is_none_or(|code| code.code() == "57P01"), "{error:?}");
        }
    }
    let mut impatient = database.connect();
    impatient.run("set statement_timeout = '0.2 s'");
    assert_eq!(sqlstate(impatient.batch_execute(call)), "57014");
    impatient.run("set statement_timeout = 0");
    let living = Waiter::start(&database, &mut client, call);
    client.run("select taskq.enqueue('t')");
    living.woken();
    // One that was cancelled can wait again.
    client.run("select taskq.claim(1)");
    let again = Waiter::begin(stay.remove(0), call);
    again.sleeps(&mut client);
    client.run("select taskq.enqueue('t')");
    again.woken();
}

#[test]
fn it_is_refused_in_a_transaction_and_leaves_it_as_it_is() {
    let (_database, mut client) = set_up("refused");
    for call in [
        "begin; call taskq.wait()",
        "begin; savepoint a; call taskq.wait(timeout => '0 s')",
        "select 1; call taskq.wait()",
    ] {
        let begin = Instant::now();
        assert_eq!(sqlstate(client.batch_execute(call)), "2D000", "{call}");
        assert!(begin.elapsed() < LOOKS_ANYWAY, "{call} waited");
        client.run("rollback");
    }
}

#[test]
fn while_it_waits_it_holds_no_snapshot_no_transaction_and_no_lock() {
    let (database, mut client) = set_up("holds");
    let waiter = Waiter::start(&database, &mut client, "call taskq.wait(timeout => '30 s')");
    for _ in 0..3 {
        let row = client
            .query_one(
                "select backend_xmin is null, backend_xid is null,
                        (select array_agg(locktype || ' ' || mode) from pg_locks where pid = $1)
                   from pg_stat_activity where pid = $1",
                &[&waiter.pid],
            )
            .expect("the waiter");
        assert!(row.get::<_, bool>(0), "backend_xmin");
        assert!(row.get::<_, bool>(1), "backend_xid");
        let locks: Option<Vec<String>> = row.get(2);
        assert!(
            locks.clone().unwrap_or_default().iter().all(|lock| lock == "virtualxid ExclusiveLock"),
            "{locks:?}"
        );
        pause(0.1);
    }
    // So vacuum removes what was deleted after it began to wait.
    client
        .run("create table test(n int); insert into test select generate_series(1, 1000); delete from test");
    client.run("vacuum test");
    assert_eq!(client.value::<i64>("select pg_relation_size('test')", &[]), 0);
    // And its session can be used by DDL of others.
    client.run("set lock_timeout = '10 s'; alter table taskq.task set (fillfactor = 70)");
    assert!(waiter.waits());
    client.run("select taskq.enqueue('t')");
    waiter.woken();
}

#[test]
fn as_many_return_as_tasks_became_claimable() {
    let (database, mut client) = set_up("several");
    // Each claims when it returns, as workers do.
    let got = Mutex::new(Vec::new());
    thread::scope(|scope| {
        let mut pids = Vec::new();
        for _ in 0..6 {
            let mut worker = database.connect();
            pids.push(worker.pid());
            let got = &got;
            scope.spawn(move || {
                worker.run("call taskq.wait(array['q'], '20 s')");
                let tasks = worker.value::<i64>("select count(*) from taskq.claim(1, array['q'])", &[]);
                got.lock().expect("got").push(tasks);
            });
        }
        let asleep =
            "select count(*) = 6 from pg_stat_activity where pid = any($1) and wait_event = 'Extension'";
        eventually("all sleep", 30, || client.value(asleep, &[&pids]));
        client.run("select taskq.enqueue('t', queue => 'q')");
        eventually("one returns", 4, || got.lock().expect("got").len() == 1);
        pause(2.0);
        assert_eq!(*got.lock().expect("got"), [1], "the others go on waiting");
        client.run("select taskq.enqueue('t', queue => 'q') from generate_series(1, 2)");
        eventually("two more return", 4, || got.lock().expect("got").len() == 3);
        pause(1.0);
        assert_eq!(*got.lock().expect("got"), [1, 1, 1], "the others go on waiting");
        // One at a time, faster than the keeper tells of them.
        for _ in 0..3 {
            client.run("select taskq.enqueue('t', queue => 'q')");
        }
        eventually("all have returned", 4, || got.lock().expect("got").len() == 6);
        assert_eq!(*got.lock().expect("got"), [1; 6]);
    });
}

#[test]
fn e05_a_task_between_an_empty_claim_and_the_wait_is_not_missed() {
    let (database, mut producer) = set_up("between");
    let mut worker = database.connect();
    for round in 0..150 {
        assert_eq!(worker.claim(1), []);
        let begin = Instant::now();
        if round % 2 == 0 {
            producer.run("select taskq.enqueue('t')");
            worker.run("call taskq.wait(timeout => '30 s')");
        } else {
            // Or while it is being called.
            thread::scope(|scope| {
                scope.spawn(|| producer.run("select taskq.enqueue('t')"));
                worker.run("call taskq.wait(timeout => '30 s')");
            });
        }
        assert!(begin.elapsed() < LOOKS_ANYWAY, "round {round}: {:?}", begin.elapsed());
        let tasks = worker.claim(1);
        assert_eq!(tasks.len(), 1, "round {round}");
        worker.complete(tasks[0].0, tasks[0].1).expect("complete");
    }
}

#[test]
fn e05_a_task_that_comes_while_the_wait_looks_is_not_missed() {
    let (database, mut producer) = set_up("looks");
    // A task for which there is no slot. The look stops at it: it has seen by then that there is no other one.
    producer.run("select taskq.configure_queue('full', '{\"max_running\": 1}')");
    producer.run("select taskq.enqueue('t', queue => 'full') from generate_series(1, 2)");
    producer.run("select from taskq.claim(1, array['full']); listen taskq_ready");
    let mut locker = database.connect();
    locker.run("begin; lock table taskq.slot in exclusive mode");
    let waiter = Waiter::begin(database.connect(), "call taskq.wait(timeout => '30 s')");
    let looks = "select exists (select from pg_locks where pid = $1 and not granted)";
    eventually("it looks", 30, || locker.value(looks, &[&waiter.pid]));
    producer.run("select taskq.enqueue('t', queue => 'other')");
    // Whoever is there is woken now.
    let mut told = producer.notifications();
    let mut told = told.timeout_iter(Duration::from_secs(2));
    while told.next().expect("listen").is_some_and(|message| message.payload() != "other") {}
    locker.run("rollback");
    assert_eq!(waiter.woken().claim(9).len(), 1);
}

#[test]
fn it_neither_returns_nor_spins_while_the_queue_is_paused() {
    let (database, mut client) = set_up("paused");
    client
        .run("select taskq.pause('q'); select taskq.enqueue('t', queue => 'q') from generate_series(1, 100)");
    let waiters: Vec<Waiter> = ["call taskq.wait(array['q'], '6 s')", "call taskq.wait(timeout => '6 s')"]
        .map(|call| Waiter::start(&database, &mut client, call))
        .into();
    let cpu = waiters.iter().map(|waiter| cpu_seconds(waiter.pid)).sum::<f64>();
    for _ in 0..20 {
        client.run("select taskq.enqueue('t', queue => 'q')");
        pause(0.2);
    }
    let used = waiters.iter().map(|waiter| cpu_seconds(waiter.pid)).sum::<f64>() - cpu;
    assert!(used < 0.5, "{used} s of processor time in 4 s of waiting");
    for waiter in waiters {
        let (_, result, end) = waiter.thread.join().expect("thread");
        result.expect("wait");
        assert!(end - waiter.begin > Duration::from_secs_f64(5.9), "{:?}", end - waiter.begin);
    }
}

#[test]
fn it_sleeps_while_others_hold_the_tasks_in_open_claims() {
    let (database, mut client) = set_up("held");
    client.run("select taskq.enqueue('t') from generate_series(1, 3)");
    let mut holder = database.connect();
    holder.run("begin");
    assert_eq!(holder.claim(3).len(), 3);
    let waiter = Waiter::start(&database, &mut client, "call taskq.wait(timeout => '30 s')");
    pause(1.0);
    assert!(waiter.waits());
    // One more is there: it returns, and not for those that are held.
    client.run("select taskq.enqueue('t')");
    waiter.woken();
    holder.run("rollback");
    client.run("call taskq.wait()");
}

#[test]
fn it_sleeps_while_an_open_claim_has_the_turn_of_a_group() {
    let (database, mut client) = set_up("turn");
    client.run("select taskq.enqueue('t', group_key => 'g') from generate_series(1, 2)");
    let mut holder = database.connect();
    // The first time the turn is only being made, the second time it is there.
    for _ in 0..2 {
        holder.run("begin");
        assert_eq!(holder.claim(1).len(), 1);
        pause(0.5); // until the keeper has told of what was before
        let waiter = Waiter::start(&database, &mut client, "call taskq.wait(timeout => '30 s')");
        pause(1.0);
        assert!(waiter.waits());
        // Another group has something: it returns.
        client.run("select taskq.enqueue('t', group_key => 'h')");
        let mut worker = waiter.woken();
        assert_eq!(worker.claim(5).len(), 1);
        worker.run("select taskq.complete(id, token) from taskq.task where group_key = 'h'");
        holder.run("select taskq.release(id, token) from taskq.task where state = 'running'; commit");
        client.run("call taskq.wait()");
    }
}

#[test]
fn a_worker_may_call_it_and_others_may_not() {
    let (database, mut client) = set_up("roles");
    client.run("create role waiter login; create role stranger login");
    client.run("select taskq.grant_worker('waiter')");
    client.run("select taskq.grant_producer('stranger')");
    let connect = |role: &str| {
        let mut config = database.server.config(&database.name);
        config.user(role).connect(postgres::NoTls).expect("connect")
    };
    let mut named = connect("waiter");
    named.run("select taskq.claim(1, array['none'], 'w')");
    let waiter = Waiter::begin(named, "call taskq.wait(array['q'], '30 s')");
    waiter.sleeps(&mut client);
    client.run("select taskq.enqueue('t', queue => 'q')");
    let mut worker = waiter.woken();
    // It is seen as the worker that claimed in this session before.
    let seen = "select format('%s %s %s %s', worker, queues, claims, seen_at > first_seen_at) from taskq._workers_seen()";
    assert_eq!(client.column::<String>(seen, &[]), ["w {q} 1 t"]);
    assert_eq!(worker.claim(1).len(), 1);
    assert_eq!(sqlstate(connect("stranger").batch_execute("call taskq.wait()")), "42501");
}

#[test]
fn without_a_keeper_or_preloading_it_looks_for_itself() {
    let plain = Server::start_without_preloading("wait_plain", &[]);
    let kept = Server::start("wait_off", &["taskq.keeper = off"]);
    for server in [&plain, &kept] {
        let database = server.database("looks");
        let mut client = database.connect();
        let waiter = Waiter::start(&database, &mut client, "call taskq.wait(timeout => '30 s')");
        client.run("select taskq.enqueue('t')");
        waiter.woken();
        assert_eq!(sqlstate(client.batch_execute("begin; call taskq.wait()")), "2D000");
    }
}

#[test]
fn a_waiter_goes_on_when_its_keeper_ends() {
    let (database, mut client) = set_up("ended");
    let waiter = Waiter::start(&database, &mut client, "call taskq.wait(timeout => '60 s')");
    client.run(
        "select pg_terminate_backend(pid) from pg_stat_activity
          where backend_type = 'taskq keeper' and datname = current_database()",
    );
    client.run("select taskq.enqueue('t')");
    let (_, result, end) = waiter.thread.join().expect("thread");
    result.expect("wait");
    assert!(end - waiter.begin < Duration::from_secs(20), "{:?}", end - waiter.begin);
}

/// A pooler in front of a server, in transaction mode, which takes anybody for `postgres`.
struct Pooler<'server> {
    server: &'server Server,
    process: Child,
}

impl<'server> Pooler<'server> {
    const PORT: u16 = 6432;

    fn start(server: &'server Server) -> Pooler<'server> {
        let program = "/usr/sbin/pgbouncer";
        assert!(fs::exists(program).unwrap_or(false), "{program} is missing: run 'make prerequisites'");
        let data = server.data();
        let folder = data.parent().expect("a folder");
        let file = folder.join("pgbouncer.ini");
        let settings = format!(
            "[databases]\n* = host={0} port=5432 user=postgres\n\
             [pgbouncer]\nunix_socket_dir = {0}\nlisten_port = {1}\nauth_type = any\n\
             pool_mode = transaction\ndefault_pool_size = 3\n",
            folder.display(),
            Self::PORT
        );
        fs::write(&file, settings).expect("pgbouncer.ini");
        let mut command = server.program(program);
        let process = command.arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Pooler { server, process: process.spawn().expect("pgbouncer") }
    }

    fn connect(&self, database: &str) -> Client {
        let mut config = postgres::Config::new();
        let data = self.server.data();
        config.host_path(data.parent().expect("a folder")).port(Self::PORT).user("postgres").dbname(database);
        let mut client = None;
        eventually("the pooler takes connections", 30, || {
            client = config.connect(postgres::NoTls).ok();
            client.is_some()
        });
        client.expect("a connection")
    }
}

impl Drop for Pooler<'_> {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn it_works_behind_a_pooler_in_transaction_mode() {
    let (_database, mut client) = set_up("pooled");
    let pooler = Pooler::start(&SERVER);
    let mut producer = pooler.connect("pooled");
    for round in 0..5 {
        // The process is that of the pooler's connection to the server, so it is looked for by name.
        let waiter = Waiter::begin(pooler.connect("pooled"), "call taskq.wait(timeout => '30 s')");
        let asleep = "select count(*) = 1 from pg_stat_activity
                       where datname = 'pooled' and query like 'call taskq.wait%' and wait_event = 'Extension' and state = 'active'";
        eventually("it sleeps", 30, || client.value(asleep, &[]));
        producer.run("select taskq.enqueue('t')");
        let mut worker = waiter.woken();
        worker.run("select taskq.complete(c.id, c.token) from taskq.claim(1) c");
        let done: i64 = client.value("select count(*) from taskq.done", &[]);
        assert_eq!(done, round + 1);
    }
    let waiter = Waiter::begin(pooler.connect("pooled"), "call taskq.wait(timeout => '0.3 s')");
    let (mut worker, result, _) = waiter.thread.join().expect("thread");
    result.expect("wait");
    assert_eq!(sqlstate(worker.batch_execute("begin; call taskq.wait()")), "2D000");
}
