//! The keeper and its database: it stands aside for commands that need the database without
//! sessions, stays out where it is not wanted, and comes by itself where it is.

use postgres::{Client, NoTls};
use std::thread;
use std::time::{Duration, Instant};
use taskq_server_tests::{
    Server, Session, Shared, eventually, pause, quickest, signal, signals, sqlstate, stop_asleep,
};

static SERVER: Shared = Shared::new("databases", &[]);

/// The keepers of a database, as a session of another one sees them.
fn keepers(client: &mut Client, database: &str) -> Vec<i32> {
    client.column(
        "select pid from pg_stat_activity where backend_type = 'taskq keeper' and datname = $1 order by pid",
        &[&database],
    )
}

fn wait_for_keeper(client: &mut Client, database: &str) -> i32 {
    eventually(&format!("{database} has a keeper"), 30, || keepers(client, database).len() == 1);
    keepers(client, database)[0]
}

/// Makes the alert duty last until somebody ends it.
const BUSY: &str = "create or replace function taskq._duty_alert() returns bigint language sql
                      set search_path = pg_catalog, pg_temp as 'select 1::bigint from pg_sleep(600)'";

fn wait_until_busy(client: &mut Client, database: &str) {
    let sql = "select exists (select from pg_stat_activity where datname = $1 and wait_event = 'PgSleep'
                                 and backend_type = 'taskq keeper')";
    eventually("the keeper is busy", 30, || client.value(sql, &[&database]));
}

/// A database with a keeper, and nobody else in it. Returns the keeper.
fn kept(client: &mut Client, database: &str) -> i32 {
    kept_on(&SERVER, client, database)
}

fn kept_on(server: &Server, client: &mut Client, database: &str) -> i32 {
    server.database(database);
    wait_for_keeper(client, database)
}

#[test]
fn g01_a_database_with_a_keeper_can_be_renamed_moved_copied_and_dropped() {
    let server = Server::start("aside", &[]);
    let mut client = server.connect("postgres");
    let folder = server.folder("elsewhere");
    client.run(&format!("create tablespace elsewhere location '{}'", folder.display()));
    let server = &server;
    thread::scope(|scope| {
        for (name, command, after) in [
            ("aside1", "alter database aside1 rename to renamed", "renamed"),
            ("aside2", "alter database aside2 set tablespace elsewhere", "aside2"),
            ("aside3", "create database copy3 template aside3", "aside3"),
            ("aside4", "create database copy4 template aside4 strategy file_copy", "aside4"),
            ("aside5", "create database copy5 strategy = wal_log template = 'aside5'", "aside5"),
            ("aside6", "drop database aside6", ""),
            ("aside7", "drop database if exists aside7 with (force)", ""),
        ] {
            scope.spawn(move || {
                let mut client = server.connect("postgres");
                let keeper = kept_on(server, &mut client, name);
                // (One that is in the middle of its first rounds for more than half a second is terminated.)
                let rests = "select wait_event = 'Extension' from pg_stat_activity where pid = $1";
                eventually("it has done its first rounds", 60, || {
                    client.value::<Option<bool>>(rests, &[&keeper]) == Some(true)
                });
                if command.starts_with("drop") {
                    client.run("set statement_timeout = '10 s'");
                }
                client.run(command);
                if !after.is_empty() {
                    assert_ne!(wait_for_keeper(&mut client, after), keeper, "{command}");
                }
            });
        }
    });
    // A copy has taskq, too, and gets a keeper of its own.
    for copy in ["copy3", "copy4", "copy5"] {
        wait_for_keeper(&mut client, copy);
    }
    // Nobody had to be terminated, and no worker came too late to a database that was gone.
    let log = server.log();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains(" taskq keeper ")).collect();
    assert_eq!(lines, [""; 0]);
}

#[test]
fn a_keeper_that_is_busy_stands_aside_too() {
    let mut client = SERVER.connect("postgres");
    thread::scope(|scope| {
        for (name, command) in [
            ("busy1", "alter database busy1 rename to busy"),
            ("busy2", "drop database busy2"),
            ("busy3", "drop database busy3 with (force)"),
        ] {
            scope.spawn(move || {
                let mut client = SERVER.connect("postgres");
                kept(&mut client, name);
                SERVER.connect(name).run(BUSY);
                wait_until_busy(&mut client, name);
                client.run(command);
            });
        }
    });
    wait_for_keeper(&mut client, "busy");
}

#[test]
fn a_new_keeper_stands_aside_as_soon_as_it_is_there() {
    let mut client = SERVER.connect("postgres");
    for round in 0..6 {
        SERVER.database("fresh");
        pause(f64::from(round) * 0.02);
        client.run("alter database fresh rename to fresh2");
        wait_for_keeper(&mut client, "fresh2");
        client.run("drop database fresh2");
    }
}

#[test]
fn the_keeper_comes_back_when_the_command_fails_or_is_taken_back() {
    let mut client = SERVER.connect("postgres");
    // Somebody else is in the database.
    let keeper = kept(&mut client, "failing");
    let other = SERVER.connect("failing");
    assert_eq!(sqlstate(client.simple_query("drop database failing")), "55006");
    drop(other);
    assert_ne!(wait_for_keeper(&mut client, "failing"), keeper);
    // A rename may be taken back. Until then the database stays without a keeper.
    let mut renames = SERVER.connect("postgres");
    renames.run("begin; alter database failing rename to never");
    for _ in 0..30 {
        assert_eq!(keepers(&mut client, "failing"), [0; 0]);
        pause(0.1);
    }
    renames.run("rollback");
    wait_for_keeper(&mut client, "failing");
    // The session dies.
    let pid = renames.pid();
    renames.run("begin; alter database failing rename to never");
    assert_eq!(keepers(&mut client, "failing"), [0; 0]);
    assert!(client.value::<bool>("select pg_terminate_backend($1)", &[&pid]));
    wait_for_keeper(&mut client, "failing");
    // The name is taken.
    assert_eq!(sqlstate(client.simple_query("alter database failing rename to postgres")), "42P04");
    wait_for_keeper(&mut client, "failing");
}

#[test]
fn g01_the_wait_for_a_keeper_can_be_cancelled_and_ends_after_a_while() {
    let mut client = SERVER.connect("postgres");
    // Held still, it cannot leave.
    let keeper = kept(&mut client, "still");
    stop_asleep(&mut client, keeper as u32);
    client.run("set statement_timeout = '30 s'");
    let refused = sqlstate(client.simple_query("alter database still rename to never"));
    signal(keeper as u32, signals::SIGCONT);
    assert_eq!(refused, "55006");
    eventually("it has left", 10, || !keepers(&mut client, "still").contains(&keeper));
    for command in [
        "alter database still rename to never",
        "drop database still",
        "drop database still with (force)",
        "create database never template still",
    ] {
        let keeper = wait_for_keeper(&mut client, "still");
        stop_asleep(&mut client, keeper as u32);
        client.run("set statement_timeout = '1 s'");
        let cancelled = sqlstate(client.simple_query(command));
        client.run("set statement_timeout = '30 s'");
        signal(keeper as u32, signals::SIGCONT);
        assert_eq!(cancelled, "57014", "{command}");
        // The database is as it was, and the keeper comes back to it.
        let usable = "select datallowconn and datconnlimit = -1 from pg_database where datname = 'still'";
        assert!(client.value::<bool>(usable, &[]), "{command}");
        SERVER.connect("still").run("select taskq.enqueue('t')");
        eventually("it has left", 10, || !keepers(&mut client, "still").contains(&keeper));
    }
    wait_for_keeper(&mut client, "still");
    let tasks = "select count(*) from taskq.task";
    assert_eq!(SERVER.connect("still").value::<i64>(tasks, &[]), 4);
}

#[test]
fn the_keeper_stays_when_the_role_or_the_command_cannot_have_the_database() {
    let mut client = SERVER.connect("postgres");
    let keeper = kept(&mut client, "staying");
    client.run("create role stranger login; create role creator login createdb; create role owner login");
    let database =
        |user: &str, database: &str| SERVER.config(database).user(user).connect(NoTls).expect(user);
    for (user, command) in [
        ("stranger", "drop database staying"),
        ("stranger", "drop database staying with (force)"),
        ("stranger", "alter database staying rename to gone"),
        ("stranger", "alter database staying set tablespace pg_default"),
        ("stranger", "create database copy template staying"),
        ("creator", "drop database staying"),
        ("creator", "create database copy template staying"),
    ] {
        let state = sqlstate(database(user, "postgres").simple_query(command));
        assert_eq!(state, "42501", "{user}: {command}");
        assert_eq!(keepers(&mut client, "staying"), [keeper], "{user}: {command}");
    }
    client.run("alter database staying owner to owner");
    let mut owner = database("owner", "postgres");
    for command in ["alter database staying rename to gone", "create database copy template staying"] {
        assert_eq!(sqlstate(owner.simple_query(command)), "42501", "{command}");
    }
    // Commands that are refused in any case.
    assert_eq!(sqlstate(client.simple_query("begin; drop database staying")), "25001");
    client.run("rollback");
    let mut inside = SERVER.connect("staying");
    assert_eq!(sqlstate(inside.simple_query("drop database staying")), "55006");
    assert_eq!(sqlstate(inside.simple_query("alter database staying rename to gone")), "0A000");
    drop(inside);
    assert_eq!(sqlstate(client.simple_query("drop database no_such_database")), "3D000");
    // Commands that need no empty database.
    client.run("alter database staying connection limit 50; alter database staying set work_mem = '5MB'");
    assert_eq!(keepers(&mut client, "staying"), [keeper]);
    // An owner who is no superuser may do all that an owner may, although the keeper is one.
    client.run("alter role owner createdb");
    let mut owner = database("owner", "postgres");
    owner.run("alter database staying rename to owned");
    wait_for_keeper(&mut client, "owned");
    owner.run("drop database owned with (force)");
}

#[test]
fn g01_other_databases_are_dropped_while_keepers_sleep_wait_and_work() {
    let server = Server::start("others", &["taskq.keeper_interval = '60 s'"]);
    let names = ["sleeps", "waits", "works"];
    let databases = names.map(|name| server.empty_database(name));
    // The keeper begins with a look at its duties, so they can be made to last before it comes.
    server.connect("postgres").run("alter system set taskq.excluded_databases = sleeps, waits, works");
    server.connect("postgres").run("select pg_reload_conf()");
    for database in &databases {
        database.connect().run("create extension taskq; update taskq.duty set every = '0 s'");
    }
    let mut locker = databases[1].connect();
    locker.run("begin; lock taskq.task, taskq.dead_letter in access exclusive mode");
    databases[2].connect().run(BUSY);
    let mut client = server.connect("postgres");
    client.run("alter system reset taskq.excluded_databases");
    client.run("select pg_reload_conf()");
    let doing = "select coalesce(max(wait_event), '') from pg_stat_activity
                  where backend_type = 'taskq keeper' and datname = $1";
    for (name, event) in [("sleeps", "Extension"), ("waits", "relation"), ("works", "PgSleep")] {
        eventually(&format!("the keeper {name}"), 30, || client.value::<String>(doing, &[&name]) == event);
    }
    // Each process must have let go of the files of a database that is dropped.
    client.run("set statement_timeout = '30 s'");
    let took = quickest(3, || {
        client.run("create database other");
        let begin = Instant::now();
        client.run("drop database other");
        begin.elapsed()
    });
    assert!(took < Duration::from_secs(2), "{took:?}");
    // They still do. (The one that sleeps may just be up.)
    for (name, event) in [("sleeps", "Extension"), ("waits", "relation"), ("works", "PgSleep")] {
        eventually(&format!("the keeper still {name}"), 10, || {
            client.value::<String>(doing, &[&name]) == event
        });
    }
}

#[test]
fn an_excluded_database_has_no_keeper() {
    let server = Server::start("excluded", &["taskq.excluded_databases = 'first, \"Sec, ond\"'"]);
    let mut client = server.connect("postgres");
    for name in ["first", "Sec, ond", "FIRST"] {
        server.database(name);
    }
    wait_for_keeper(&mut client, "FIRST");
    let set = |client: &mut Client, value: &str| {
        client.run(&format!("alter system set taskq.excluded_databases = {value}"));
        client.run("select pg_reload_conf()");
    };
    assert_eq!(sqlstate(client.simple_query("alter system set taskq.excluded_databases = 'a,'")), "22023");
    assert_eq!(sqlstate(client.simple_query("set taskq.excluded_databases = 'a'")), "55P02");
    pause(2.5);
    assert_eq!(keepers(&mut client, "first"), [0; 0]);
    assert_eq!(keepers(&mut client, "Sec, ond"), [0; 0]);
    // A keeper that is at work leaves, also in the middle of a duty; another one comes.
    server.connect("FIRST").run(BUSY);
    wait_until_busy(&mut client, "FIRST");
    set(&mut client, "First, '\"FIRST\"'");
    eventually("the keeper leaves", 10, || keepers(&mut client, "FIRST").is_empty());
    wait_for_keeper(&mut client, "Sec, ond");
    assert_eq!(keepers(&mut client, "first"), [0; 0]);
    set(&mut client, "''");
    wait_for_keeper(&mut client, "first");
    set(&mut client, "'first'");
    eventually("the keeper leaves", 10, || keepers(&mut client, "first").is_empty());
    pause(2.5);
    assert_eq!(keepers(&mut client, "first"), [0; 0]);
    wait_for_keeper(&mut client, "FIRST");
}

#[test]
fn a_keeper_at_work_takes_over_settings_of_its_database() {
    let database = SERVER.database("configured");
    let (mut client, mut server) = (database.connect(), SERVER.connect("postgres"));
    wait_for_keeper(&mut server, "configured");
    client.run(
        "select taskq.configure_queue('default', '{\"dead_letters_limit\": 0}'); select taskq.enqueue('t', max_retries => 0);
         select f.state from taskq.claim() c, taskq.fail(c.id, c.token) f",
    );
    eventually("the alert is raised", 30, || client.value("select count(*) = 1 from taskq.alerts", &[]));
    client.run("alter database configured set taskq.alert_repeat = '1 s'");
    let repeated = "select repeated_at > clock_timestamp() - interval '2 s' is true from taskq.alerts";
    eventually("it is sent again", 30, || client.value(repeated, &[]));
    client.run("alter database configured reset taskq.alert_repeat");
    eventually("it is not sent any more", 30, || {
        pause(2.5);
        !client.value::<bool>(repeated, &[])
    });
    // What is not about us is none of its business.
    wait_for_keeper(&mut server, "configured");
    let keeper = keepers(&mut server, "configured");
    client.run("alter database configured set work_mem = '5MB'");
    pause(3.0);
    assert_eq!(keepers(&mut server, "configured"), keeper);
}

#[test]
fn a_keeper_that_was_switched_off_comes_back_when_it_is_switched_on() {
    thread::scope(|scope| {
        for (name, on) in [
            ("switched1", "alter database switched1 set taskq.keeper = on"),
            ("switched2", "alter database switched2 reset taskq.keeper"),
            ("switched3", "alter database switched3 reset all"),
        ] {
            scope.spawn(move || {
                let mut client = SERVER.connect("postgres");
                kept(&mut client, name);
                client.run(&format!("alter database {name} set taskq.keeper = off"));
                eventually("the keeper leaves", 10, || keepers(&mut client, name).is_empty());
                // By then the launcher has given up looking whether it was an accident.
                pause(14.0);
                assert_eq!(keepers(&mut client, name), [0; 0]);
                client.run(on);
                wait_for_keeper(&mut client, name);
            });
        }
    });
}

#[test]
fn a_template_has_no_keeper_and_a_database_made_from_it_has_one() {
    let mut client = SERVER.connect("postgres");
    kept(&mut client, "model");
    client.run("alter database model is_template true");
    eventually("the keeper leaves", 10, || keepers(&mut client, "model").is_empty());
    client.run("create database made template model");
    wait_for_keeper(&mut client, "made");
    pause(2.5);
    assert_eq!(keepers(&mut client, "model"), [0; 0]);
    client.run("alter database model is_template false");
    wait_for_keeper(&mut client, "model");
    // Nor has one that takes no connections.
    client.run("alter database model allow_connections false");
    eventually("the keeper leaves", 10, || keepers(&mut client, "model").is_empty());
}

#[test]
fn g10_without_a_free_worker_slot_there_is_one_warning_and_the_keeper_comes_when_there_is_one() {
    // One slot for each launcher (that of logical replication, and ours), one for a keeper.
    let server = Server::start("slots", &["max_worker_processes = 3"]);
    let mut client = server.connect("postgres");
    let late = server.empty_database("late");
    // By then the launcher knows that it has no taskq.
    pause(3.5);
    server.database("first");
    wait_for_keeper(&mut client, "first");
    server.database("second");
    server.database("third");
    let warnings = || server.log().matches("found no free background worker slot").count();
    eventually("there is a warning", 20, || warnings() > 0);
    pause(6.0);
    assert_eq!(warnings(), 1);
    server.connect("first").run("drop extension taskq");
    let both = |client: &mut Client| [keepers(client, "second").len(), keepers(client, "third").len()];
    eventually("one of the others has a keeper", 10, || both(&mut client).iter().sum::<usize>() == 1);
    let next = if both(&mut client)[0] == 1 { "second" } else { "third" };
    // CREATE EXTENSION itself finds no slot, in a database that had no taskq.
    late.connect().run("create extension taskq");
    client.run(&format!("drop database {next}"));
    client.run(&format!("drop database {}", if next == "second" { "third" } else { "second" }));
    wait_for_keeper(&mut client, "late");
    assert!(warnings() <= 2, "{}", warnings());
}

#[test]
fn g10_a_server_whose_worker_slots_are_all_used_starts_and_has_its_keeper_once_there_are_more() {
    // One for each launcher: that of logical replication, and ours.
    let server = Server::start("full", &["max_worker_processes = 2"]);
    let database = server.database("full");
    let warnings = || server.log().matches("found no free background worker slot").count();
    eventually("there is a warning", 20, || warnings() > 0);
    let mut client = database.connect();
    client.run("select taskq.enqueue('t'); select taskq.complete(c.id, c.token) from taskq.claim(1) c");
    client.run("call taskq.maintain()");
    assert!(!client.healthy("keeper running"));
    client.run("alter system set max_worker_processes = 8");
    drop(client);
    server.restart();
    wait_for_keeper(&mut database.connect(), "full");
    assert_eq!(warnings(), 1);
}

#[test]
fn many_databases_without_taskq_are_no_shortage_of_worker_slots() {
    let server = Server::start("many", &["max_worker_processes = 4"]);
    let mut client = server.connect("postgres");
    for n in 0..12 {
        client.run(&format!("create database without{n} strategy file_copy"));
    }
    server.database("with_taskq");
    drop(client);
    server.restart();
    let mut client = server.connect("postgres");
    wait_for_keeper(&mut client, "with_taskq");
    pause(4.0);
    assert_eq!(server.log().matches("found no free background worker slot").count(), 0);
}

#[test]
fn the_hook_lets_other_hooks_and_all_errors_through() {
    if !SERVER.offers("pg_stat_statements") {
        return; // there is no other hook to be had
    }
    for order in ["pg_stat_statements, taskq", "taskq, pg_stat_statements"] {
        let server = Server::start_without_preloading(
            if order.starts_with("taskq") { "hooks1" } else { "hooks2" },
            &[&format!("shared_preload_libraries = '{order}'")],
        );
        let mut client = server.connect("postgres");
        client.run("create extension pg_stat_statements");
        server.database("hooked");
        wait_for_keeper(&mut client, "hooked");
        client.run("alter database hooked rename to hooked2");
        client.run("drop database hooked2");
        let calls = "select calls from pg_stat_statements where query = $1";
        for text in ["alter database hooked rename to hooked2", "drop database hooked2"] {
            assert_eq!(client.column::<i64>(calls, &[&text]), [1], "{order}: {text}");
        }
        let begin = Instant::now();
        client.run(
            "do $$ begin
               for n in 1..2000 loop
                 begin execute 'drop table no_such_table';
                 exception when undefined_table then null; end;
                 begin execute 'drop database no_such_database';
                 exception when active_sql_transaction then null; end;
               end loop;
             end $$",
        );
        assert!(begin.elapsed() < Duration::from_secs(60));
        let error = client.simple_query("drop table no_such_table").expect_err("an error");
        let error = error.as_db_error().expect("an answer of the server");
        assert_eq!(error.detail(), None);
        assert_eq!(error.routine(), Some("DropErrorMsgNonExistent"));
    }
}

/// The library reads texts as UTF-8; elsewhere it could not even take down an error.
#[test]
fn a_database_of_another_encoding_is_refused() {
    let mut client = SERVER.connect("postgres");
    client.run("create database latin encoding 'LATIN1' lc_collate 'C' lc_ctype 'C' template template0");
    let mut latin = SERVER.connect("latin");
    let error = latin.simple_query("create extension taskq").expect_err("refused");
    assert!(format!("{error:?}").contains("taskq needs a database whose encoding is UTF8"), "{error:?}");
    drop(latin);
    client.run("drop database latin");
}

/// A database whose DROP was interrupted can only be dropped again: no keeper tries to go there.
#[test]
fn g01_a_half_dropped_database_is_left_alone() {
    let server = Server::start("halfdrop", &[]);
    let mut client = server.connect("postgres");
    kept_on(&server, &mut client, "half");
    client.run("alter system set taskq.excluded_databases = 'half'");
    client.run("select pg_reload_conf()");
    eventually("the keeper leaves", 30, || keepers(&mut client, "half").is_empty());
    client.run("update pg_database set datconnlimit = -2 where datname = 'half'");
    client.run("alter system reset taskq.excluded_databases");
    client.run("select pg_reload_conf()");
    kept_on(&server, &mut client, "whole");
    pause(6.0);
    assert!(!server.log().contains("cannot connect to invalid database"), "{}", server.log());
    client.run("drop database half");
}
