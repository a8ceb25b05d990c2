//! Schedules on a real server: every occurrence once, however many do the duty and however often the
//! server dies; none where the keeper is off.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use taskq_server_tests::{Server, Session, Stop, eventually, pause};

/// Runs the duties as fast as it can, with a connection to a server that dies now and then, and counts the rounds.
fn maintain(server: &Server, rounds: &AtomicU32, stop: &AtomicBool) {
    let mut client = None;
    while !stop.load(Ordering::Relaxed) {
        let Some(connected) = client.as_mut() else {
            client = server.try_connect("clock").ok();
            pause(0.02);
            continue;
        };
        match postgres::Client::batch_execute(connected, "call taskq.maintain()") {
            Ok(()) => _ = rounds.fetch_add(1, Ordering::Relaxed),
            Err(_) => client = None,
        }
    }
}

#[test]
fn every_occurrence_is_enqueued_once_whoever_does_it_and_whatever_dies() {
    let server = Server::start("schedule", &[]);
    let database = server.database("clock");
    // Everything is done by the clock that both see.
    database.connect().run(
        "select taskq.schedule('tick', '* * * * * *', 'tick', settings => '{\"queue\": \"ticks\"}');
         select taskq.schedule('tock', '*/2 * * * * *', 'tock', time_zone => 'Australia/Lord_Howe')",
    );
    let begin: Vec<f64> = database
        .connect()
        .column("select extract(epoch from updated_at)::float8 from taskq.schedule order by name", &[]);
    let stop = AtomicBool::new(false);
    let rounds = [AtomicU32::new(0), AtomicU32::new(0)];
    thread::scope(|scope| {
        let (server, stop) = (&server, &stop);
        for rounds in &rounds {
            scope.spawn(move || maintain(server, rounds, stop));
        }
        for round in 0..3 {
            let mut client = database.connect();
            let tocks = "select count(*) from taskq.task where task_type = 'tock'";
            let before: i64 = client.value(tocks, &[]);
            eventually("tocks come", 30, || client.value::<i64>(tocks, &[]) > before);
            if round < 2 {
                drop(client);
                server.stop(Stop::Immediate);
                pause(0.5);
                server.start_again();
            }
        }
        eventually("both loops have done duties", 60, || {
            rounds.iter().all(|rounds| rounds.load(Ordering::Relaxed) > 0)
        });
        stop.store(true, Ordering::Relaxed);
    });
    let mut client = database.connect();
    client.run("select taskq.unschedule('tick'), taskq.unschedule('tock')");
    for (name, apart, begin) in [("tick", 1, begin[0]), ("tock", 2, begin[1])] {
        let runs: Vec<i64> = client.column(
            "select extract(epoch from run_at)::bigint from taskq.task where task_type = $1 order by run_at",
            &[&name],
        );
        // one after the other, from the first one on: none is missing, none is there twice
        let first = (begin / f64::from(apart)).floor() as i64 * i64::from(apart) + i64::from(apart);
        let expected: Vec<i64> = (0..runs.len() as i64).map(|n| first + n * i64::from(apart)).collect();
        assert_eq!(runs, expected, "{name}");
        assert!(runs.len() > 2, "{name}: {}", runs.len());
    }
    let headers: bool = client.value(
        "select bool_and(headers = jsonb_build_object('schedule', task_type, 'scheduled_at',
                         to_char(run_at at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"'))) from taskq.task",
        &[],
    );
    assert!(headers);
}

#[test]
fn the_keeper_is_in_time_and_makes_up_for_what_it_missed() {
    let server = Server::start("keeps", &[]);
    let database = server.database("clock");
    let mut client = database.connect();
    client.run("select taskq.schedule('tick', '* * * * * *', 'tick')");
    eventually("five ticks", 30, || client.value::<i64>("select count(*) from taskq.task", &[]) >= 5);
    // The keeper looks every second; the rest is for a busy machine.
    let late: f64 = client.value(
        "select max(extract(epoch from enqueued_at - run_at))::float8 from taskq.task where task_type = 'tick'",
        &[],
    );
    assert!((0.0..10.0).contains(&late), "{late} s late");
    client.run("select taskq.unschedule('tick')");

    // As if the server had been down for three days.
    client.run(
        "select taskq.schedule('nightly', '0 3 * * *', 'nightly');
         select taskq.schedule('paused', '* * * * * *', 'paused', settings => '{\"paused\": true}');
         update taskq.schedule set next_run_at = next_run_at - interval '4 days' where name = 'nightly'",
    );
    let nightly = "select count(*) from taskq.task where task_type = 'nightly'";
    eventually("it is made up for", 30, || client.value::<i64>(nightly, &[]) == 1);
    server.restart();
    let mut client = database.connect();
    eventually("the duty was done again", 60, || {
        client.value(
            "select finished_at > pg_postmaster_start_time() from taskq.duties where duty = 'schedule'",
            &[],
        )
    });
    assert_eq!(client.value::<i64>(nightly, &[]), 1, "once");
    assert_eq!(client.value::<i64>("select count(*) from taskq.task where task_type = 'paused'", &[]), 0);
    assert_eq!(client.value::<i64>("select missed from taskq.schedules where name = 'nightly'", &[]), 3);
}

#[test]
fn many_schedules_that_are_due_at_once_are_all_in_time() {
    let server = Server::start("midnight", &[]);
    let mut client = server.database("midnight").connect();
    client.run(
        "select taskq.schedule('s' || n, '0 0 1 1 *', 't', settings => '{\"missed\": \"skip\"}')
           from generate_series(1, 1500) n",
    );
    client.run("update taskq.schedule set next_run_at = now()");
    eventually("all have run", 50, || client.value("select count(*) = 1500 from taskq.task", &[]));
    assert_eq!(client.value::<i64>("select sum(missed)::bigint from taskq.schedules", &[]), 0);
}

#[test]
fn a_copy_whose_keeper_is_off_does_not_fire() {
    let server = Server::start("copy", &[]);
    let database = server.database("clock");
    database.connect().run("select taskq.schedule('tick', '* * * * * *', 'tick', '{\"n\": 1.10}')");
    let out = server.data().join("clock.dump");
    let program = |name: &str, to: &str| {
        let done =
            server.program(name).args(["--dbname", to, "--format=custom", "--file"]).arg(&out).output();
        assert!(done.expect(name).status.success());
    };
    program("pg_dump", "clock");
    let copy = server.empty_database("copy");
    copy.connect().run("alter database copy set taskq.keeper = off");
    let done =
        server.program("pg_restore").args(["--dbname", "copy"]).arg(&out).output().expect("pg_restore");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let mut client = copy.connect();
    let restored: String = client.value("select cron || payload from taskq.schedules", &[]);
    assert_eq!(restored, "* * * * * *{\"n\": 1.10}");
    let next = "select next_run_at::text from taskq.schedules";
    let before: String = client.value(next, &[]);
    let mut origin = database.connect();
    let ticks: i64 = origin.value("select count(*) from taskq.task", &[]);
    eventually("the origin goes on", 30, || {
        origin.value::<i64>("select count(*) from taskq.task", &[]) >= ticks + 3
    });
    assert_eq!(client.value::<String>(next, &[]), before);
    // Somebody who wants it can have it.
    client.run("call taskq.maintain()");
    assert_ne!(client.value::<String>(next, &[]), before);
}
