//! The keeper: comes, comes back, leaves, and stays quiet.

use postgres::Client;
use postgres::error::DbError;
use postgres::fallible_iterator::FallibleIterator;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use taskq_server_tests::{
    Database, Server, Session, Shared, Stop, deadlocks, eventually, pause, quickest, signal, signals,
};

static SERVER: Shared = Shared::new("keeper", &[]);

/// Seconds within which a keeper comes or leaves.
const SOON: u64 = 5;

const KEEPERS: &str =
    "select pid from pg_stat_activity where backend_type = 'taskq keeper' and datname = current_database()";

fn keepers(client: &mut Client) -> Vec<i32> {
    client.column(KEEPERS, &[])
}

/// Waits until this database has exactly one keeper that has done a duty since.
fn wait_for_keeper(client: &mut Client) -> i32 {
    eventually("the database has a keeper", 30, || keepers(client).len() == 1);
    let keeper = keepers(client)[0];
    assert_recovers(client);
    assert_eq!(keepers(client), [keeper], "the keeper that recovered a task");
    keeper
}

/// An expired lease is taken back although no client does anything about it.
fn assert_recovers(client: &mut Client) {
    client.run("select taskq.enqueue('t', queue => 'recover', max_retries => 1000000)");
    let id: i64 = client.value("select id from taskq.claim(1, array['recover'], lease => '0.2 s')", &[]);
    eventually("the expired lease is taken back", 30, || {
        client.value::<String>("select state from taskq.task where id = $1", &[&id]) == "waiting"
    });
    assert_eq!(client.value::<String>("select taskq.cancel($1)", &[&id]), "cancelled");
}

/// The payloads of what has arrived on the channel, waiting for the first so many seconds.
fn notifications(client: &mut Client, seconds: u64) -> Vec<String> {
    let mut heard = Vec::new();
    let mut patience = Duration::from_secs(seconds);
    while let Ok(Some(message)) = client.notifications().timeout_iter(patience).next() {
        assert_eq!(message.channel(), "taskq_alert");
        heard.push(message.payload().to_owned());
        // A second one would come with the next rounds of the duty.
        patience = Duration::from_secs(4);
    }
    heard
}

#[test]
fn the_alert_about_dead_letters_is_raised_once_and_cleared_once() {
    let database = SERVER.database("alert");
    let (mut listener, mut client) = (database.connect(), database.connect());
    listener.run("listen taskq_alert");
    wait_for_keeper(&mut client);
    let die = |client: &mut Client, count: i32| {
        client.value::<i64>(
            "select count(taskq.enqueue('t', queue => 'mail')) from generate_series(1, $1)",
            &[&count],
        );
        let failed: i64 = client.value(
            "select count(*) from taskq.claim($1, array['mail']) c, taskq.fail(c.id, c.token, 'no', retry => false) f
              where f.state = 'dead'",
            &[&count],
        );
        assert_eq!(failed, i64::from(count));
    };
    die(&mut client, 3);
    assert_eq!(notifications(&mut listener, 4), [""; 0], "three dead letters are within the limit");
    die(&mut client, 1);
    let heard = notifications(&mut listener, 30);
    assert_eq!(heard.len(), 1, "{heard:?}");
    let expected: bool = client.value(
        "select $1::text::jsonb @> '{\"kind\": \"dead_letters\", \"queue\": \"mail\", \"state\": \"raised\", \"value\": 4, \"limit\": 3}'",
        &[&heard[0]],
    );
    assert!(expected, "{}", heard[0]);
    assert!(!client.healthy("open alerts"));
    // Going on above the limit is no new alert.
    die(&mut client, 3);
    assert_eq!(notifications(&mut listener, 4), [""; 0]);

    assert_eq!(client.value::<i64>("select redriven from taskq.redrive('mail')", &[]), 7);
    let heard = notifications(&mut listener, 30);
    assert_eq!(heard.len(), 1, "{heard:?}");
    assert!(heard[0].contains("\"state\": \"cleared\"") && heard[0].contains("\"value\": 0"), "{}", heard[0]);
    let alerts = "select count(*) filter (where state = 'cleared'), count(*) from taskq.alerts";
    let row = client.query_one(alerts, &[]).unwrap();
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (1, 1));
    assert!(client.healthy("open alerts"));
    // And the log has a line for each.
    let log = SERVER.log();
    assert_eq!(log.matches("dead_letters in queue \"mail\"").count(), 2);
}

#[test]
fn g06_a_keeper_that_is_terminated_comes_back_and_one_that_is_cancelled_stays() {
    let database = SERVER.database("back");
    let mut client = database.connect();
    let mut keeper = wait_for_keeper(&mut client);
    for how in ["terminate", "cancel", "signal", "interrupt", "terminate", "signal"] {
        let stays = match how {
            "terminate" => !client.value::<bool>("select pg_terminate_backend($1, 5000)", &[&keeper]),
            "cancel" => client.value::<bool>("select pg_cancel_backend($1)", &[&keeper]),
            "signal" => {
                signal(keeper as u32, signals::SIGTERM);
                false
            }
            _ => {
                signal(keeper as u32, signals::SIGINT);
                true
            }
        };
        if stays {
            pause(0.5);
            assert_eq!(keepers(&mut client), [keeper], "{how}");
        } else {
            eventually("another keeper comes", SOON, || {
                let now = keepers(&mut client);
                now.len() == 1 && now != [keeper]
            });
        }
        keeper = wait_for_keeper(&mut client);
    }
}

#[test]
fn a_keeper_that_is_ended_at_once_comes_back() {
    let databases = ["early1", "early2", "early3"].map(|name| SERVER.empty_database(name));
    // By then the launcher knows that they have no taskq.
    pause(3.5);
    for database in &databases {
        let mut client = database.connect();
        client.run("create extension taskq");
        eventually("the database has a keeper", 30, || keepers(&mut client).len() == 1);
        let keeper = keepers(&mut client)[0];
        signal(keeper as u32, signals::SIGTERM);
        eventually("another keeper comes", SOON, || {
            let now = keepers(&mut client);
            now.len() == 1 && now != [keeper]
        });
    }
}

/// Makes the alert duty last until somebody ends it.
const BUSY: &str = "create or replace function taskq._duty_alert() returns bigint language sql
                      set search_path = pg_catalog, pg_temp as 'select 1::bigint from pg_sleep(600)'";

fn wait_until_busy(client: &mut Client, event: &str) {
    let sql = "select exists (select from pg_stat_activity where backend_type = 'taskq keeper'
                  and datname = current_database() and state = 'active' and coalesce(wait_event, '') = $1)";
    eventually("the keeper is busy", 30, || client.value(sql, &[&event]));
}

#[test]
fn a_cancelled_duty_does_not_end_the_keeper() {
    let database = SERVER.database("cancelled");
    let mut client = database.connect();
    let keeper = wait_for_keeper(&mut client);
    for _ in 0..2 {
        client.run(BUSY);
        wait_until_busy(&mut client, "PgSleep");
        client.run(&BUSY.replace("pg_sleep(600)", "pg_sleep(0)"));
        assert!(client.value::<bool>("select pg_cancel_backend($1)", &[&keeper]));
        assert_recovers(&mut client);
        assert_eq!(keepers(&mut client), [keeper]);
    }
}

#[test]
fn a_launcher_that_is_terminated_comes_back_and_does_its_work() {
    let server = Server::start("launcher", &[]);
    let mut client = server.connect("postgres");
    let launchers = "select pid from pg_stat_activity where backend_type = 'taskq launcher'";
    let launcher: i32 = client.value(launchers, &[]);
    assert!(client.value::<bool>("select pg_cancel_backend($1)", &[&launcher]));
    pause(0.5);
    assert_eq!(client.column::<i32>(launchers, &[]), [launcher], "a cancel");
    assert!(client.value::<bool>("select pg_terminate_backend($1, 5000)", &[&launcher]));
    // A copy has no CREATE EXTENSION that would start its keeper.
    server.database("original");
    client.run("create database copy template original");
    wait_for_keeper(&mut server.connect("copy"));
    assert_ne!(client.column::<i32>(launchers, &[]), [launcher]);
}

#[test]
fn a_crash_of_any_process_is_followed_by_keepers_as_before() {
    let server = Server::start("killed", &[]);
    let databases = [server.database("killed"), server.database("beside")];
    databases[0].connect().run("select taskq.enqueue('t')");
    for who in ["session", "taskq keeper", "taskq launcher"] {
        let mut client = databases[0].connect();
        wait_for_keeper(&mut client);
        let pid: i32 = match who {
            "session" => client.pid(),
            _ => client.value(
                "select pid from pg_stat_activity where backend_type = $1 order by datname limit 1",
                &[&who],
            ),
        };
        signal(pid as u32, signals::SIGKILL);
        eventually("the connection is lost", 30, || client.simple_query("select 1").is_err());
        for database in &databases {
            let mut client = None;
            eventually("the server recovers", 60, || {
                pause(0.2);
                client = server.try_connect(&database.name).ok();
                client.as_mut().is_some_and(|client| client.query("select 1", &[]).is_ok())
            });
            wait_for_keeper(client.as_mut().expect("a connection"));
        }
    }
    assert_eq!(databases[0].connect().value::<i64>("select count(*) from taskq.task", &[]), 1);
}

#[test]
fn create_extension_brings_a_keeper_and_drop_extension_ends_it() {
    let database = SERVER.empty_database("created");
    let mut client = database.connect();
    for _ in 0..2 {
        client.run("create extension taskq");
        wait_for_keeper(&mut client);
        client.run("drop extension taskq");
        eventually("the keeper leaves", 30, || keepers(&mut client).is_empty());
    }
    // One that is rolled back leaves nothing.
    client.run("begin; create extension taskq; rollback");
    pause(2.0);
    assert_eq!(keepers(&mut client), [0; 0]);
}

/// Errors that a session must expect when somebody drops the extension beside it.
const GONE: [&str; 7] = ["42P01", "42883", "3F000", "XX000", "40P01", "55000", "42704"];

/// Calls verbs, and leaves tasks with short leases to the keeper.
fn load(client: &mut Client) -> Result<(), postgres::Error> {
    client.simple_query("select taskq.enqueue('t', max_retries => 1000000) from generate_series(1, 5)")?;
    client.simple_query("select from taskq.claim(3, lease => '0.1 s')")?;
    client.simple_query("select taskq.complete(c.id, c.token) from taskq.claim(1) c")?;
    Ok(())
}

#[test]
fn g04_fifty_quick_drops_and_creates_under_load_end_in_no_deadlock_and_with_a_keeper() {
    let server = Server::start("quick", &IMPATIENT);
    let database = server.empty_database("quick");
    let mut client = database.connect();
    let done = AtomicBool::new(false);
    let sessions = Mutex::new(vec![client.pid()]);
    // Deadlocks that sessions were told of.
    let told = AtomicI64::new(0);
    // A client's statement and DROP may lock tables in opposite orders; the keeper may not.
    let assert_among_sessions = |error: &DbError| {
        told.fetch_add(1, Ordering::Relaxed);
        let detail = error.detail().expect("who waits for whom");
        let sessions = sessions.lock().expect("lock");
        for waits in detail.lines().filter_map(|line| line.strip_prefix("Process ")) {
            let pid = waits.split(' ').next().and_then(|pid| pid.parse().ok());
            assert!(pid.is_some_and(|pid: i32| sessions.contains(&pid)), "{detail}");
        }
    };
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut client = database.connect();
                sessions.lock().expect("lock").push(client.pid());
                while !done.load(Ordering::Relaxed) {
                    match load(&mut client) {
                        Ok(()) => {}
                        Err(error) => {
                            let error = error.as_db_error().expect("an answer of the server");
                            assert!(GONE.contains(&error.code().code()), "{error:?}");
                            if error.code().code() == "40P01" {
                                assert_among_sessions(error);
                            }
                        }
                    }
                }
            });
        }
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            for round in 0..50 {
                // (A create may have to wait for a slow disk; a drop waits for the keeper, too.)
                client.run("set statement_timeout = '60 s'");
                client.run("create extension taskq");
                if round % 10 == 5 {
                    client.run("select taskq.enqueue('t') from generate_series(1, 10000)");
                }
                client.run("set statement_timeout = '5 s'");
                pause(f64::from(round % 5) * 0.06);
                while let Err(error) = client.simple_query("drop extension taskq") {
                    let error = error.as_db_error().expect("an answer of the server");
                    assert_eq!(error.code().code(), "40P01", "{error:?}");
                    assert_among_sessions(error);
                }
                if round % 10 == 0 {
                    eventually("the keeper leaves", SOON, || keepers(&mut client).is_empty());
                }
            }
        }));
        done.store(true, Ordering::Relaxed);
        outcome.unwrap_or_else(|panic| resume_unwind(panic));
    });
    eventually("the keeper leaves", SOON, || keepers(&mut client).is_empty());
    client.run("create extension taskq");
    wait_for_keeper(&mut client);
    assert_eq!(deadlocks(&mut client), told.into_inner(), "a keeper was the victim of a deadlock");
    // No keeper has complained, about tables that are not there or anything else.
    assert_eq!(complaints(&server, " taskq keeper ERROR:  "), [""; 0]);
}

/// A keeper that is always at work, and deadlocks that are seen as such: nobody gives up before that.
const IMPATIENT: [&str; 2] = ["taskq.keeper_interval = '50 ms'", "deadlock_timeout = '10 ms'"];

/// Lines of the log with these words, and those about duties that have failed.
fn complaints(server: &Server, words: &str) -> Vec<String> {
    let log = server.log();
    let is_one = |line: &&str| line.contains(words) || line.contains("failed with SQLSTATE");
    log.lines().filter(is_one).map(str::to_owned).collect()
}

#[test]
fn g04_fifty_drops_and_creates_with_the_keeper_alone_meet_no_deadlock_at_all() {
    let server = Server::start("alone", &IMPATIENT);
    let mut client = server.empty_database("alone").connect();
    for round in 0..50 {
        client.run("set statement_timeout = '60 s'");
        client.run("create extension taskq");
        if round % 10 == 5 {
            client.run("select taskq.enqueue('t') from generate_series(1, 10000)");
        }
        // Leases end while the keeper comes, is at work, or has just looked.
        for _ in 0..10 {
            load(&mut client).expect("nobody is in the way");
        }
        pause(f64::from(round % 7) * 0.06);
        client.run("set statement_timeout = '5 s'");
        client.run("drop extension taskq cascade");
    }
    eventually("the keeper leaves", SOON, || keepers(&mut client).is_empty());
    client.run("reset statement_timeout; create extension taskq");
    wait_for_keeper(&mut client);
    assert_eq!(deadlocks(&mut client), 0);
    assert_eq!(complaints(&server, " ERROR:  "), [""; 0]);
}

#[test]
fn a_database_has_no_keeper_where_it_is_switched_off() {
    let server = Server::start("off", &[]);
    let (with, without) = (server.database("with_keeper"), server.database("without"));
    let (mut client, mut other) = (without.connect(), with.connect());
    wait_for_keeper(&mut client);
    wait_for_keeper(&mut other);
    client.run("alter database without set taskq.keeper = off");
    eventually("the keeper leaves", 30, || keepers(&mut client).is_empty());
    drop((client, other));
    server.restart();
    let (mut client, mut other) = (without.connect(), with.connect());
    wait_for_keeper(&mut other);
    pause(1.0);
    assert_eq!(keepers(&mut client), [0; 0]);
    let value: String =
        client.value("select advice from taskq.health() where \"check\" = 'keeper running'", &[]);
    assert!(value.contains("taskq.keeper is off"), "{value}");
    // The duties can be done by hand.
    client.run("select taskq.enqueue('t')");
    let id: i64 = client.value("select id from taskq.claim(1, lease => '0.1 s')", &[]);
    pause(0.3);
    client.run("call taskq.maintain()");
    assert_eq!(client.value::<String>("select state from taskq.status($1)", &[&id]), "ready");
    // Switched on again, it comes with the next start at the latest.
    client.run("alter database without reset taskq.keeper");
    drop((client, other));
    server.restart();
    wait_for_keeper(&mut without.connect());
}

/// Runs a DROP DATABASE, which must not take longer than ten seconds in any case, and says how long it took.
fn dropped(client: &mut Client, command: &str) -> Duration {
    client.run("set statement_timeout = '10 s'");
    let begin = Instant::now();
    client.run(command);
    let took = begin.elapsed();
    client.run("reset statement_timeout");
    took
}

#[test]
fn g01_a_database_with_a_keeper_can_be_dropped_by_force_and_nobody_asks_for_it_afterwards() {
    let server = Server::start("dropped", &[]);
    let mut postgres = server.connect("postgres");
    for _ in 0..3 {
        wait_for_keeper(&mut server.database("dropped").connect());
        let other = quickest(3, || {
            postgres.run("create database other");
            dropped(&mut postgres, "drop database other")
        });
        assert!(other < Duration::from_secs(2), "another database was dropped in {other:?}");
        dropped(&mut postgres, "drop database dropped with (force)");
    }
    let count = "select count(*) from pg_stat_activity where backend_type = 'taskq keeper'";
    eventually("the keeper is gone", 30, || postgres.value::<i64>(count, &[]) == 0);
    // One may have been on its way; but nobody goes on asking.
    pause(2.0);
    let complaints = || {
        server.log().lines().filter(|line| line.contains("taskq") && line.contains("does not exist")).count()
    };
    let before = complaints();
    pause(5.0);
    assert_eq!(complaints(), before);
}

#[test]
fn a_server_with_keepers_shuts_down_fast_and_they_are_there_after_the_start() {
    let server = Server::start("shutdown", &[]);
    let databases: Vec<Database> = ["one", "two", "three"].map(|name| server.database(name)).into();
    for database in &databases {
        wait_for_keeper(&mut database.connect());
    }
    for how in [Stop::Fast, Stop::Immediate] {
        let took = server.stop(how);
        assert!(took < Duration::from_secs(10), "the shutdown took {took:?}");
        server.start_again();
        for database in &databases {
            wait_for_keeper(&mut database.connect());
        }
    }
}

#[test]
fn a_fast_shutdown_does_not_wait_for_a_duty() {
    let server = Server::start("busy", &["max_prepared_transactions = 5"]);
    let compute =
        BUSY.replace("1::bigint from pg_sleep(600)", "count(*) from generate_series(1, 1e15::bigint)");
    // A prepared transaction keeps its lock, also when all sessions are sent away.
    let lock = "begin; lock taskq.dead_letter in access exclusive mode; prepare transaction 'lock'";
    for (name, setup, event) in [("one", BUSY, "PgSleep"), ("two", &compute, ""), ("three", lock, "relation")]
    {
        let database = server.database(name);
        let mut client = database.connect();
        client.run(setup);
        wait_until_busy(&mut client, event);
    }
    let took = server.stop(Stop::Fast);
    assert!(took < Duration::from_secs(3), "the shutdown took {took:?}");
}

#[test]
fn a_broken_duty_stops_no_other_is_reported_and_recovers_when_mended() {
    thread::scope(|scope| {
        for (name, code, setup, breaks, mends) in [
            (
                "broken",
                "42P01",
                "create extension taskq",
                "alter table taskq.dead_letter rename to gone",
                "alter table taskq.gone rename to dead_letter",
            ),
            // The owner of the extension, as whom duties run, has lost a right.
            (
                "forbidden",
                "42501",
                "create role keeps superuser; set role keeps; create extension taskq; reset role",
                "alter role keeps nosuperuser; revoke select on taskq.dead_letter from keeps",
                "alter role keeps superuser; grant select on taskq.dead_letter to keeps",
            ),
        ] {
            scope.spawn(move || {
                let database = SERVER.empty_database(name);
                let mut client = database.connect();
                client.run(setup);
                wait_for_keeper(&mut client);
                eventually("the alert duty goes well", 30, || client.healthy("duty alert"));
                client.run(breaks);
                assert_breaks(&SERVER, &mut client, code, 1);
                client.run(mends);
                let error = "select error from taskq.duties where duty = 'alert'";
                eventually("the alert duty goes well again", 30, || {
                    client.value::<Option<String>>(error, &[]).is_none()
                });
                assert!(client.healthy("duty alert"));
            });
        }
    });
}

/// A panic in Rust, in a duty or when its round is noted, is an error of that round. The keeper lives on, and so do the other duties.
#[test]
fn s17_a_panic_in_a_duty_ends_its_round_only() {
    let server = Server::start("panics", &[]);
    for (times, name, duty) in
        [(1, "in_a_duty", "select count(*) from public.panics()"), (2, "at_its_end", "select 1::bigint")]
    {
        let database = server.database(name);
        let mut client = database.connect();
        let keeper = wait_for_keeper(&mut client);
        eventually("the alert duty goes well", 30, || client.healthy("duty alert"));
        // A function of ours that is declared with another row type than it has.
        client.run(
            "create function public.panics() returns table (counted_at timestamptz, exact boolean, more integer)
               language c as '$libdir/taskq', 'taskq_figures_state';
             create function public.panic() returns trigger language plpgsql as
               'begin perform from public.panics(); return null; end'",
        );
        let counted = "select exists (select from taskq._figures_state())";
        eventually("the function has a row to return", 60, || client.value(counted, &[]));
        let error = client.simple_query("select from public.panics()").expect_err("a panic");
        let error = error.as_db_error().expect("an answer of the server");
        assert!(error.code().code() == "XX000" && error.message().contains("wrong width"), "{error:?}");
        let sound: String = client.value("select pg_get_functiondef('taskq._duty_alert'::regproc)", &[]);
        client.run(&format!(
            "create or replace function taskq._duty_alert() returns bigint language sql security definer
               set search_path = pg_catalog, pg_temp as '{duty}'"
        ));
        if times == 2 {
            client.run(
                "create trigger panics after update on taskq.duty for each row
                   when (new.name = 'alert' and new.error is null) execute function public.panic()",
            );
        }
        assert_breaks(&server, &mut client, "XX000", times);
        assert_eq!(keepers(&mut client), [keeper], "{duty}");
        client.run(&sound);
        client.run("drop trigger if exists panics on taskq.duty");
        let error = "select error from taskq.duties where duty = 'alert'";
        eventually("the alert duty goes well again", 30, || {
            client.value::<Option<String>>(error, &[]).is_none()
        });
        assert_eq!(keepers(&mut client), [keeper], "{duty}");
    }
}

/// The alert duty fails with this SQLSTATE, and that is in the log so many times. The others go on.
fn assert_breaks(server: &Server, client: &mut Client, code: &str, times: usize) {
    let error = "select error from taskq.duties where duty = 'alert'";
    eventually("the alert duty fails", 30, || client.value::<Option<String>>(error, &[]).is_some());
    let text: String = client.value(error, &[]);
    assert!(text.contains(code), "{text}");
    assert!(!client.healthy("duty alert"));
    assert_recovers(client);
    assert!(client.healthy("duty recover"));
    // It is tried again and again, and logged once a minute.
    let at = "select error_at::text from taskq.duties where duty = 'alert'";
    for _ in 0..5 {
        let before: String = client.value(at, &[]);
        eventually("it is tried again", 30, || client.value::<String>(at, &[]) != before);
    }
    let failure = format!("taskq duty alert failed with SQLSTATE {code}");
    assert_eq!(server.log().matches(&failure).count(), times);
}
