//! pg_dump and pg_restore: every task comes back in the state it had.

use postgres::Client;
use std::process::Command;
use taskq_server_tests::{Server, Session, eventually, everything, fill, pause, sqlstate};

fn succeeds(command: &mut Command) -> String {
    let output = command.output().expect("a program");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn counts(client: &mut Client) -> Vec<String> {
    client.column(
        "select state || ' ' || count(*) from (
           select case state when 'running' then state when 'waiting' then
                    case when run_at > clock_timestamp() then 'scheduled' else 'ready' end end as state from taskq.task
           union all select 'dead' from taskq.dead_letter
           union all select state from taskq.done union all select 'archived ' || state from taskq.archive) s
         group by state order by state",
        &[],
    )
}

/// Equal, or says which rows are not.
fn assert_same(before: &[String], after: &[String]) {
    let missing: Vec<_> = before.iter().filter(|row| !after.contains(row)).collect();
    let added: Vec<_> = after.iter().filter(|row| !before.contains(row)).collect();
    assert!(missing.is_empty() && added.is_empty(), "missing {missing:#?}, added {added:#?}");
}

/// Without what a keeper goes on writing.
fn but_samples(rows: Vec<String>) -> Vec<String> {
    rows.into_iter()
        .filter(|row| !row.starts_with("taskq.sample ") && !row.starts_with("taskq.load "))
        .collect()
}

#[test]
fn g14_a_restored_dump_has_every_task_in_its_state_and_goes_on() {
    let server = Server::start("dump", &[]);
    let database = server.database("old");
    let mut client = database.connect();
    client.run(
        "create role app;
         select taskq.grant_worker('app'), taskq.grant_producer('app');
         select taskq.configure_queue('mail', '{\"lease\": \"2 minutes\", \"dead_letters_limit\": 10}');
         select taskq.configure_type('t', '{\"queue\": \"mail\", \"backoff_base\": \"1 s\"}');
         select taskq.configure_queue('held', '{}'); select taskq.pause('held');
         select taskq.once('scope', 'seen');
         select taskq.enqueue('t', jsonb_build_object('n', n), priority => n % 3, unique_key => 'k' || n, headers => '{\"h\": 1}')
           from generate_series(1, 865) n;
         select taskq.enqueue('later', delay => '1 day', queue => 'later') from generate_series(1, 100);
         select taskq.enqueue('held', queue => 'held') from generate_series(1, 10);
         select taskq.configure_queue('short', '{\"retention\": \"1 second\"}');
         select taskq.enqueue('brief', jsonb_build_object('n', n), 'short') from generate_series(1, 25) n;
         select taskq.complete(id, token) from taskq.claim(25, array['short']);
         select taskq.complete(id, token, '{\"ok\": true}') from taskq.claim(100);
         select * from taskq.claim(50) c, taskq.fail(c.id, c.token, 'dead', retry => false);
         select * from taskq.claim(20) c, taskq.fail(c.id, c.token, 'again', '1 day');
         select taskq.cancel(id, 'no need') from taskq.task where state = 'waiting' and queue = 'later' order by id limit 30;
         select * from taskq.claim(40, lease => '3 minutes', worker => 'lost')",
    );
    eventually("the short ones are archived", 30, || {
        client.run("call taskq.maintain()");
        client.value("select count(*) = 25 from taskq.archive", &[])
    });
    eventually("the alert is there", 30, || client.value("select count(*) = 1 from taskq.alerts", &[]));
    let before = counts(&mut client);
    assert_eq!(
        before,
        [
            "archived succeeded 25",
            "cancelled 30",
            "dead 50",
            "ready 665",
            "running 40",
            "scheduled 90",
            "succeeded 100"
        ]
    );
    let highest: i64 = client.value(
        "select max(id) from (select id from taskq.task union all select id from taskq.dead_letter
                              union all select id from taskq.done union all select id from taskq.archive) i",
        &[],
    );
    let all = but_samples(everything(&mut client));
    let file = server.data().with_file_name("dump");
    succeeds(server.program("pg_dump").args(["-Fc", "-d", "old", "-f"]).arg(&file));

    // With a keeper on the way: all at once, so that it never sees the half of it.
    let restored = server.empty_database("at_once");
    succeeds(server.program("pg_restore").args(["--single-transaction", "-d", "at_once"]).arg(&file));
    let mut new = restored.connect();
    assert_same(&all, &but_samples(everything(&mut new)));
    eventually("the copy has a keeper", 60, || new.healthy("duty recover"));
    assert_same(&all, &but_samples(everything(&mut new)));
    drop(new);

    // Table by table, with the keeper kept out meanwhile.
    let restored = server.empty_database("new");
    server.connect("postgres").run("alter database new set taskq.keeper = off");
    succeeds(server.program("pg_restore").args(["--exit-on-error", "-d", "new"]).arg(&file));
    let mut new = restored.connect();
    assert_eq!(counts(&mut new), before);
    assert_same(&all, &but_samples(everything(&mut new)));
    new.run("alter database new reset taskq.keeper");
    drop((client, new));
    server.restart();
    let mut new = restored.connect();

    // It goes on there: new ids, keys, rights, the keeper.
    assert_eq!(new.value::<i64>("select taskq.enqueue('t', unique_key => 'k399')", &[]), 399);
    let id: i64 = new.value("select taskq.enqueue('t', unique_key => 'fresh')", &[]);
    assert!(id > highest, "new id {id} after {highest}");
    assert!(!new.value::<bool>("select taskq.once('scope', 'seen')", &[]));
    let alert: i64 = new.value("select nextval('taskq.alert_id_seq')", &[]);
    assert!(alert > new.value::<i64>("select max(id) from taskq.alert", &[]));
    new.run("set role app; select taskq.enqueue('t'); reset role");
    eventually("the copy has a keeper", 60, || new.healthy("keeper running"));
    // Running tasks are recovered when their lease ends: here, by a clock that is ahead.
    let tokens = "select sum(token)::bigint from taskq.task where attempt = 1";
    let before: i64 = new.value(tokens, &[]);
    // (A round that the keeper is just doing by its own clock is not done beside it.)
    let recovered = "select count(*) from taskq.tasks where state = 'ready' and attempt = 1 and last_error = 'lease expired'";
    eventually("the leases that were over are taken back", 30, || {
        for statement in
            ["set taskq.test_clock = '+ 10 minutes'", "call taskq.maintain()", "reset taskq.test_clock"]
        {
            new.run(statement);
        }
        new.value::<i64>(recovered, &[]) == 40
    });
    assert_eq!(new.value::<i64>(tokens, &[]), before);
    let redriven: i64 = new.value("select redriven from taskq.redrive('*')", &[]);
    assert_eq!(redriven, 50);
    // A claim takes everything that is due, once, with risen tokens.
    let claimed: Vec<i64> = new.column("select id from taskq.claim(1000)", &[]);
    assert_eq!(claimed.len(), 655 + 40 + 50 + 2);
}

/// Dumps a database with these options, and restores it into a new one, where nobody is at work yet.
fn copied(server: &Server, name: &str, dump: &[&str], restore: &[&str]) -> Client {
    let file = server.data().with_file_name(name);
    succeeds(server.program("pg_dump").args(dump).args(["-d", "origin", "-f"]).arg(&file));
    let copy = server.empty_database(name);
    server.connect("postgres").run(&format!("alter database {name} set taskq.keeper = off"));
    let (program, options): (_, &[&str]) = match dump[0] {
        "-Fc" => ("pg_restore", &["--exit-on-error"]),
        _ => ("psql", &["-qX", "-v", "ON_ERROR_STOP=1", "-f"]),
    };
    succeeds(server.program(program).args(["-d", name]).args(restore).args(options).arg(&file));
    copy.connect()
}

/// Tables, indexes, sequences and views of the extension and its days, and which are its members.
const RELATIONS: &str = "
    select format('%s %s %s', c.relkind, c.oid::regclass, exists (
             select from pg_depend d where d.classid = 'pg_class'::regclass and d.objid = c.oid and d.deptype = 'e'))
      from pg_class c where c.relnamespace = 'taskq'::regnamespace order by 1";

/// Claims all that these queues give, and completes it. Returns the ids.
fn finish(client: &mut Client, queues: &str) -> Vec<i64> {
    let sql = format!("select id, token from taskq.claim(1000, {queues})");
    let tasks: Vec<(i64, i64)> =
        client.query(&sql, &[]).expect("claim").iter().map(|row| (row.get(0), row.get(1))).collect();
    for (id, token) in &tasks {
        client.complete(*id, *token).expect("complete");
    }
    tasks.into_iter().map(|(id, _)| id).collect()
}

/// Groups and limits hold from the first claim on; slots and turns go to the next ones.
fn assert_limits_hold(client: &mut Client) {
    let parked: Vec<i64> = client.column("select id from taskq.parked order by id", &[]);
    assert_eq!(parked.len(), 2);
    assert_eq!(client.value::<i64>("select count(*) from taskq.tasks where state = 'blocked'", &[]), 2);
    for queue in ["groups", "limited", "held"] {
        assert_eq!(finish(client, &format!("array['{queue}']")), [0; 0], "{queue}");
    }
    let end_one = "select taskq.complete(t.id, t.token) from
                     (select id, token from taskq.task where queue = $1 and state = 'running' order by id limit 1) t";
    client.query(end_one, &[&"groups"]).expect("complete");
    // One after the other, in their order.
    for id in parked {
        assert_eq!(finish(client, "array['groups']"), [id]);
    }
    client.query(end_one, &[&"limited"]).expect("complete");
    for _ in 0..3 {
        assert_eq!(finish(client, "array['limited']").len(), 1, "one of two slots is free");
    }
    assert_eq!(finish(client, "array['groups', 'limited']"), [0; 0]);
}

/// The leases, the cancel request, keys and settings are those of the original.
fn assert_state_holds(client: &mut Client) {
    let token = |client: &mut Client, id: i64| -> i64 {
        client.value("select token from taskq.task where id = $1", &[&id])
    };
    let asked = token(client, 2);
    assert!(client.value::<bool>("select cancel_requested from taskq.extend(2, $1)", &[&asked]));
    assert_eq!(client.value::<String>("select state from taskq.fail(2, $1)", &[&asked]), "cancelled");
    // (The lease of two days.)
    let kept = token(client, 3);
    assert_eq!(sqlstate(client.complete(3, kept + 1)), "TQ001");
    client.complete(3, kept).expect("the old token");
    assert!(!client.value::<bool>("select taskq.once('welcome', 'seen')", &[]));
    assert_eq!(client.value::<i64>("select taskq.enqueue('kept', unique_key => 'lease 3')", &[]), 5);
    assert_eq!(client.value::<i64>("select redriven from taskq.redrive('mail')", &[]), 3);
    client.run("select taskq.resume('held'); set role copy_web; select taskq.enqueue('t'); reset role");
    // The keeper takes back what ends.
    let ends = token(client, 5);
    client.query("select * from taskq.extend(5, $1, '0.1 s')", &[&ends]).expect("extend");
    eventually("the keeper has taken back what ended", 60, || {
        client.value("select count(*) = 1 from taskq.tasks where id = 5 and state = 'ready' and last_error = 'lease expired'", &[])
    });
}

#[test]
fn g14_every_format_brings_back_every_row_and_the_copy_runs_dry() {
    let server = Server::start("formats", &[]);
    server.connect("postgres").run("create role copy_web; create role copy_worker");
    let database = server.empty_database("origin");
    server.connect("postgres").run("alter database origin set taskq.keeper = off");
    let mut client = database.connect();
    client.run(
        "create extension taskq; select taskq.grant_producer('copy_web'), taskq.grant_worker('copy_worker')",
    );
    fill(&mut client);
    client.run("set taskq.test_clock = '+ 15 s'; select taskq._run_duty('sample'); reset taskq.test_clock");
    let (all, relations) = (everything(&mut client), client.column::<String>(RELATIONS, &[]));
    // None of these tables is empty: what is lost would be seen. (No task has come into the other ones.)
    for table in "queue task_type task unique_key once_key group_turn parked dead_letter done archive sample load schedule
                  alert granted_part task_id_seq alert_id_seq"
        .split_whitespace()
    {
        assert!(all.iter().any(|row| row.starts_with(&format!("taskq.{table} "))), "{table} is empty");
    }
    let ids = "select id from taskq.task union all select id from taskq.dead_letter
               union all select id from taskq.done union all select id from taskq.archive order by id";
    let known: Vec<i64> = client.column(ids, &[]);
    let at_once = &["--single-transaction"][..];
    for (name, dump, restore) in [
        ("custom", &["-Fc"][..], at_once),
        ("tables", &["-Fc"], &[]),
        ("plain", &["-Fp"], at_once),
        ("inserts", &["-Fp", "--inserts"], &[]),
    ] {
        let mut copy = copied(&server, name, dump, restore);
        assert_same(&all, &everything(&mut copy));
        assert_same(&relations, &copy.column::<String>(RELATIONS, &[]));
        if restore.is_empty() {
            // Limits came back before the tasks that run.
            copy.run("call taskq.maintain()");
        }
        assert_limits_hold(&mut copy);
        copy.run(&format!("alter database {name} reset taskq.keeper"));
        eventually("the copy has a keeper", 60, || copy.healthy("keeper running"));
        assert_state_holds(&mut copy);
        // A day and an hour later all leases are over, all is due, and the schedule's day has come.
        copy.run("set taskq.test_clock = '+ 25 hours'");
        eventually("all tasks are done", 60, || {
            copy.run("call taskq.maintain()");
            finish(&mut copy, "null");
            copy.value("select count(*) = 0 from taskq.task", &[])
        });
        let now: Vec<i64> = copy.column(ids, &[]);
        assert!(now.windows(2).all(|two| two[0] < two[1]), "each task is there once: {now:?}");
        // Those that were there, one more that was enqueued, and what the schedule has brought.
        assert!(known.iter().all(|id| now.contains(id)), "{known:?} became {now:?}");
        let reports: i64 =
            copy.value("select count(*) from taskq.done where task_type = 'report.daily'", &[]);
        assert!(reports > 0, "the schedule has come with the copy");
        assert_eq!(now.len() as i64, known.len() as i64 + 1 + reports, "{known:?} became {now:?}");
        let left = "select count(*) from (select from taskq.parked union all select from taskq.dead_letter
                      union all select from taskq.unique_key where not let_go
                      union all select from taskq.group_turn where task_id is not null
                      union all select from taskq.slot where task_id is not null) l";
        assert_eq!(copy.value::<i64>(left, &[]), 0);
    }
}

/// Restores table by table with a keeper at work, and with a round of all duties in between. They wait for the sequences,
/// which come last.
#[test]
fn g14_a_keeper_at_work_during_a_restore_harms_no_row() {
    let server = Server::start("beside", &["taskq.keeper_interval = '50 ms'"]);
    server.connect("postgres").run("create role copy_web; create role copy_worker");
    let database = server.empty_database("origin");
    server.connect("postgres").run("alter database origin set taskq.keeper = off");
    let mut client = database.connect();
    client.run(
        "create extension taskq; select taskq.grant_producer('copy_web'), taskq.grant_worker('copy_worker')",
    );
    fill(&mut client);
    // There is something to do at once: a lease that is over, its task with a key and without retries; and a schedule.
    let over: i64 = client
        .value("select taskq.enqueue('over', queue => 'over', unique_key => 'k', max_retries => 0)", &[]);
    client.run("select from taskq.claim(1, array['over'], lease => '0.1 s')");
    client.run("select taskq.schedule('due', '0 3 * * *', 'due'); update taskq.schedule set next_run_at = now() where name = 'due'");
    let (all, relations) = (everything(&mut client), client.column::<String>(RELATIONS, &[]));
    let file = server.data().with_file_name("dump");
    succeeds(server.program("pg_dump").args(["-Fc", "-d", "origin", "-f"]).arg(&file));

    let copy = server.empty_database("copy");
    let restore = |arguments: &[&str]| {
        let mut pg_restore = server.program("pg_restore");
        succeeds(pg_restore.args(["--exit-on-error", "-d", "copy"]).args(arguments).arg(&file));
    };
    restore(&["--section=pre-data"]);
    let mut new = copy.connect();
    let keeper = "select pid from pg_stat_activity where backend_type = 'taskq keeper' and datname = 'copy'";
    // The next keeper begins with rounds that are this quick.
    new.run("update taskq.duty set every = least(every, '0.2 s')");
    new.run(&format!("select pg_terminate_backend(pid) from ({keeper}) k"));
    eventually("a keeper has done all of its duties", 60, || {
        new.value("select count(*) = 0 from taskq.duty where finished_at is null", &[])
    });
    let list = succeeds(server.program("pg_restore").args(["--list", "--section=data"]).arg(&file));
    let entries: Vec<&str> = list.lines().filter(|line| !line.starts_with(';')).collect();
    let (last, entries) = entries.split_last().expect("entries");
    assert!(entries.len() > 15 && last.contains("task_id_seq"), "{list}");
    let entry = server.data().with_file_name("entry");
    let entry_file = entry.to_str().expect("a path");
    for each in entries {
        std::fs::write(&entry, each).expect("a file");
        restore(&["-L", entry_file]);
        new.run("call taskq.maintain()");
        // The keeper does not rest meanwhile.
        let changed = "select max(state_change)::text from pg_stat_activity where pid = $1";
        let pid: i32 = new.value(keeper, &[]);
        let before: String = new.value(changed, &[&pid]);
        eventually("the keeper goes on", 30, || new.value::<String>(changed, &[&pid]) > before);
    }
    // (Samples that the keeper has written before the first row came.)
    let comparable = |rows: &[String]| -> Vec<String> {
        let rows = but_samples(rows.to_vec()).into_iter();
        rows.filter(|row| !row.starts_with("taskq.task_id_seq ")).collect()
    };
    assert_same(&comparable(&all), &comparable(&everything(&mut new)));
    std::fs::write(&entry, last).expect("a file");
    restore(&["-L", entry_file]);
    restore(&["--section=post-data"]);
    assert_same(&relations, &new.column::<String>(RELATIONS, &[]));

    // Now the duties go on.
    eventually("the keeper has buried what ended, and enqueued what is due", 60, || {
        new.value("select (select count(*) from taskq.dead_letter where id = $1) + (select count(*) from taskq.task where task_type = 'due') = 2", &[&over])
    });
    let ids = "select count(*) - count(distinct id) from (select id from taskq.task union all select id from taskq.dead_letter
                 union all select id from taskq.done union all select id from taskq.archive) i";
    assert_eq!(new.value::<i64>(ids, &[]), 0, "an id was given twice");
    assert!(new.value::<i64>("select taskq.enqueue('over', queue => 'over', unique_key => 'k')", &[]) > over);
    // Where sequences never come, health says what duties wait for.
    client
        .run("select setval('taskq.task_id_seq', 1, false); update taskq.duty set finished_at = '-infinity'");
    let advice: String =
        client.value("select advice from taskq.health() where \"check\" = 'duty recover'", &[]);
    assert!(advice.starts_with("A dump is being restored"), "{advice}");
    // Its figures do not know of the tasks that came in, so a keeper that was there goes without slots for them for long.
    new.run("call taskq.maintain()");
    assert_limits_hold(&mut new);
    assert_state_holds(&mut new);
}

#[test]
fn g13_plain_and_schema_only_dumps_restore_too() {
    let server = Server::start("dump2", &["taskq.keeper = off"]);
    let database = server.database("old");
    let mut client = database.connect();
    client.run("select taskq.enqueue('t') from generate_series(1, 20)");
    // Days with finished tasks, and one in the archive.
    client.run("select taskq.complete(c.id, c.token) from taskq.claim(3) c");
    for statement in [
        "set taskq.test_clock = '+ 40 days'",
        "call taskq.maintain()",
        "reset taskq.test_clock",
        "call taskq.maintain()",
    ] {
        client.run(statement);
    }
    assert_eq!(client.value::<i64>("select count(*) from taskq.archive", &[]), 3);
    // A table, its indexes and its sequences are all members of the extension, or all not.
    let halves: Vec<String> = client.column(
        "with member as (select d.objid from pg_depend d where d.classid = 'pg_class'::regclass and d.deptype = 'e')
         select c.oid::regclass::text from pg_class c
          where c.relnamespace = 'taskq'::regnamespace and c.relkind in ('r', 'p', 'S', 'v')
            and not exists (select from member m where m.objid = c.oid)
            and not (c.relispartition and c.relname ~ '_[0-9]{8}')
         union all
         select s.oid::regclass::text from pg_class s join pg_depend d on d.objid = s.oid and d.deptype in ('a', 'i')
                 join pg_class t on t.oid = d.refobjid
          where s.relnamespace = 'taskq'::regnamespace and s.relkind = 'S'
            and exists (select from member m where m.objid = s.oid) <> exists (select from member m where m.objid = t.oid)
         union all
         select x.oid::regclass::text from pg_index i join pg_class x on x.oid = i.indexrelid join pg_class t on t.oid = i.indrelid
          where t.relnamespace = 'taskq'::regnamespace
            and (exists (select from member m where m.objid = x.oid) and not exists (select from member m where m.objid = t.oid)
                 or not exists (select from pg_depend d left join pg_constraint k on d.refclassid = 'pg_constraint'::regclass and k.oid = d.refobjid
                                 where d.classid = 'pg_class'::regclass and d.objid = x.oid and d.deptype in ('a', 'i')
                                   and coalesce(k.conrelid, d.refobjid) = t.oid))",
        &[],
    );
    assert_eq!(halves, [""; 0]);
    for (name, option, tasks) in [
        ("plain", "--format=plain", 17),
        ("schema", "--schema-only", 0),
        ("partly", "--exclude-table=taskq.sample", 17),
        ("inserts", "--inserts", 17),
    ] {
        let file = server.data().with_file_name(name);
        succeeds(server.program("pg_dump").args([option, "-d", "old", "-f"]).arg(&file));
        let restored = server.empty_database(name);
        succeeds(
            server.program("psql").args(["-q", "-X", "-v", "ON_ERROR_STOP=1", "-d", name, "-f"]).arg(&file),
        );
        let mut new = restored.connect();
        assert_eq!(new.value::<i64>("select count(*) from taskq.task", &[]), tasks);
        assert_eq!(new.value::<i64>("select taskq.enqueue('t')", &[]), if tasks == 0 { 1 } else { 21 });
        // What is no member of the extension was dumped by itself, what is one was not.
        pause(0.1);
        let strays: Vec<String> = new.column(
            "select c.oid::regclass::text from pg_class c
              where c.relnamespace = 'taskq'::regnamespace and c.relkind in ('r', 'p', 'S', 'v')
                and not exists (select from pg_depend d where d.objid = c.oid and d.deptype = 'e')
                and not c.relispartition",
            &[],
        );
        assert_eq!(strays, [""; 0]);
    }
}

#[test]
fn g16_the_schema_is_fixed_and_a_dump_names_it() {
    let server = Server::start("pinned", &[]);
    let database = server.database("old");
    database.connect().run("select taskq.enqueue('t')");
    let dump = succeeds(server.program("pg_dump").args(["-d", "old"]));
    assert!(
        dump.contains("CREATE EXTENSION IF NOT EXISTS taskq WITH SCHEMA taskq;"),
        "the dump names no schema"
    );
    let mut client = server.empty_database("new").connect();
    // Every version that is there, and every step between versions, keeps to that schema.
    let others: Vec<String> = client.column(
        "select version from pg_available_extension_versions
          where name = 'taskq' and (schema is distinct from 'taskq' or relocatable or trusted or not superuser or requires is not null)",
        &[],
    );
    assert_eq!(others, [""; 0]);
    for (sql, state) in [
        ("create extension taskq schema public", "0A000"),
        ("create schema other; create extension taskq with schema other", "0A000"),
        ("create extension taskq; alter extension taskq set schema public", "0A000"),
    ] {
        assert_eq!(sqlstate(client.simple_query(sql)), state, "{sql}");
    }
    // A schema of one's own that is there already is used, as by a restored dump.
    client.run("create schema if not exists taskq; create extension if not exists taskq with schema taskq");
    assert_eq!(client.value::<i64>("select taskq.enqueue('t')", &[]), 1);
}
