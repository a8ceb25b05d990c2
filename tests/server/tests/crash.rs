//! The server is killed under load, again and again: what was committed is there, once. The load is
//! that of the demo: a business row and its task in one transaction, an effect that once() guards and
//! the complete in another.

use postgres::{Client, GenericClient};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use taskq_server_tests::{Random, Server, Session, Stop, eventually, pause};

/// What the clients were told, and what they tried.
#[derive(Default)]
struct Told {
    /// The id of each key whose enqueue was acknowledged.
    enqueued: HashMap<String, i64>,
    /// Keys whose enqueue ended with a lost connection.
    unknown: HashSet<String>,
    /// Keys whose enqueue was rolled back.
    rolled_back: HashSet<String>,
    /// How often a complete of this task was acknowledged.
    completed: HashMap<i64, u32>,
    /// Tasks whose death was acknowledged.
    buried: HashSet<i64>,
}

/// A row of one of the tables, as one snapshot sees it.
struct Row {
    place: String,
    id: i64,
    key: String,
}

struct Run<'a> {
    server: &'a Server,
    told: Mutex<Told>,
    no_more_tasks: AtomicBool,
    seed: u64,
}

impl Run<'_> {
    fn told(&self) -> MutexGuard<'_, Told> {
        // A failed check must not hide behind the failures that follow from it.
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stopping(&self) -> bool {
        self.no_more_tasks.load(Ordering::Relaxed)
    }

    fn connect(&self) -> Option<Client> {
        let mut client = self.server.try_connect("load").ok()?;
        client.batch_execute("set statement_timeout = '60 s'").ok()?;
        Some(client)
    }

    /// Enqueues tasks with keys of its own until told to stop. Some are rolled back.
    fn produce(&self, number: u64) {
        let mut random = Random::new(self.seed + number);
        let mut client = None;
        let mut count = 0;
        while !self.stopping() {
            let Some(connected) = client.as_mut() else {
                client = self.connect();
                pause(0.02);
                continue;
            };
            count += 1;
            let key = format!("{number}-{count}");
            if random.one_in(10) {
                self.told().rolled_back.insert(key.clone());
                if let Err(error) = enqueue_and_roll_back(connected, &key) {
                    assert_lost(&error, &[]);
                    client = None;
                }
                continue;
            }
            match enqueue(connected, &key) {
                Ok(id) => {
                    self.told().enqueued.insert(key, id);
                }
                Err(error) => {
                    assert_lost(&error, &[]);
                    self.told().unknown.insert(key);
                    client = None;
                }
            }
        }
    }

    /// Claims and ends tasks in all ways, and now and then forgets some, until the queue is empty.
    fn work(&self, number: u64) {
        let mut random = Random::new(self.seed + 100 + number);
        let mut client = None;
        loop {
            let Some(connected) = client.as_mut() else {
                client = self.connect();
                pause(0.02);
                continue;
            };
            match self.round(connected, &mut random) {
                Ok(0) if self.stopping() && left(connected) == Some(0) => return,
                Ok(0) => pause(0.05),
                Ok(_) => {}
                Err(error) => {
                    // On a slow machine a lease may be over before the work is done.
                    assert_lost(&error, &["TQ001"]);
                    client = None;
                }
            }
        }
    }

    fn round(&self, client: &mut Client, random: &mut Random) -> Result<usize, postgres::Error> {
        let rows =
            client.query("select id, token, payload ->> 'dies' from taskq.claim(5, lease => '2 s')", &[])?;
        for row in &rows {
            let (id, token, dies): (i64, i64, Option<String>) = (row.get(0), row.get(1), row.get(2));
            if dies.is_some() {
                client.query("select * from taskq.fail($1, $2, 'no use', retry => false)", &[&id, &token])?;
                self.told().buried.insert(id);
            } else if random.one_in(12) {
                client.query("select * from taskq.fail($1, $2, 'once more', '0 s')", &[&id, &token])?;
            } else if !random.one_in(40) {
                let mut work = client.transaction()?;
                if work.query_one("select taskq.once('effect', $1::bigint::text)", &[&id])?.get(0) {
                    work.execute("insert into effect values ($1)", &[&id])?;
                }
                work.execute("select taskq.complete($1, $2)", &[&id, &token])?;
                work.commit()?;
                *self.told().completed.entry(id).or_insert(0) += 1;
            }
        }
        Ok(rows.len())
    }

    /// The total check in one snapshot: every task in one place, nothing that nobody enqueued, and
    /// (unless commits are asynchronous) nothing lost that was acknowledged before.
    fn check(&self, durable: bool) -> Vec<Row> {
        let (enqueued, completed, buried) = {
            let told = self.told();
            (told.enqueued.clone(), told.completed.clone(), told.buried.clone())
        };
        let mut client = self.server.connect("load");
        let rows = everything(&mut client);
        assert_eq!(
            client.value::<i64>(UNPAIRED, &[]),
            0,
            "business rows and tasks, effects and finished tasks"
        );
        let told = self.told();
        let mut places: HashMap<i64, &str> = HashMap::new();
        let mut keys: HashSet<&str> = HashSet::new();
        for row in &rows {
            if let Some(other) = places.insert(row.id, &row.place) {
                panic!("task {} is in {other} and in {}", row.id, row.place);
            }
            assert!(keys.insert(&row.key), "key {} was enqueued twice", row.key);
            assert!(!told.rolled_back.contains(&row.key), "the enqueue of {} was rolled back", row.key);
            if let Some(id) = told.enqueued.get(&row.key) {
                assert!(!durable || *id == row.id, "key {} has id {} instead of {id}", row.key, row.id);
            }
        }
        if durable {
            for (key, id) in &enqueued {
                assert!(places.contains_key(id), "task {id} ({key}) is lost");
            }
            for (id, times) in &completed {
                assert_eq!(*times, 1, "task {id} was completed {times} times");
                assert_eq!(places.get(id), Some(&"done"), "task {id} was completed");
            }
            for id in &buried {
                assert_eq!(places.get(id), Some(&"dead_letter"), "task {id} is dead");
            }
        }
        rows
    }
}

/// A client may lose its server; any other error is a defect, but for those named.
fn assert_lost(error: &postgres::Error, also: &[&str]) {
    let code = error.code().map_or("", |code| code.code());
    let lost = code.is_empty() || ["57P01", "57P02", "57P03"].contains(&code);
    assert!(lost || also.contains(&code), "{error:?}");
}

/// Counts, in one snapshot, business rows without their task and the other way round, and finished
/// tasks without their one effect and the other way round.
const UNPAIRED: &str = "
    select (select count(*)
              from approval a
              full join (select payload ->> 'key' as key from taskq.task
                         union all select payload ->> 'key' from taskq.dead_letter
                         union all select payload ->> 'key' from taskq.done) t on t.key = a.key
             where a.key is null or t.key is null)
         + (select count(*)
              from (select task, count(*) as times from effect group by task) e
              full join taskq.done d on d.id = e.task
             where e.task is null or d.id is null or e.times <> 1)";

fn enqueue(client: &mut Client, key: &str) -> Result<i64, postgres::Error> {
    let mut business = client.transaction()?;
    let id = submit(&mut business, key)?;
    business.commit()?;
    Ok(id)
}

/// Writes a business row and enqueues its task, in the caller's transaction.
fn submit(client: &mut impl GenericClient, key: &str) -> Result<i64, postgres::Error> {
    client.execute("insert into approval values ($1)", &[&key])?;
    let payload = if key.ends_with("13") {
        "jsonb_build_object('key', $1::text, 'dies', true)"
    } else {
        "jsonb_build_object('key', $1::text)"
    };
    let sql = format!("select taskq.enqueue('t', {payload}, max_retries => 1000)");
    Ok(client.query_one(&sql, &[&key])?.get(0))
}

fn enqueue_and_roll_back(client: &mut Client, key: &str) -> Result<(), postgres::Error> {
    let mut business = client.transaction()?;
    submit(&mut business, key)?;
    business.rollback()
}

fn left(client: &mut Client) -> Option<i64> {
    Some(client.query_one("select count(*) from taskq.task", &[]).ok()?.get(0))
}

fn everything(client: &mut Client) -> Vec<Row> {
    let sql = "select 'task', id, payload ->> 'key' from taskq.task
               union all select 'dead_letter', id, payload ->> 'key' from taskq.dead_letter
               union all select 'done', id, payload ->> 'key' from taskq.done
               union all select 'archive', id, payload ->> 'key' from taskq.archive";
    let rows = client.query(sql, &[]).expect("all tasks");
    rows.iter().map(|row| Row { place: row.get(0), id: row.get(1), key: row.get(2) }).collect()
}

/// Load, crashes, and a drain; then all that was committed is finished, once.
fn crash(server: &Server, crashes: u32, durable: bool) {
    server.empty_database("load").connect().run(
        "create extension taskq;
         create table approval (key text primary key);
         create table effect (task bigint)",
    );
    let run =
        Run { server, told: Mutex::default(), no_more_tasks: AtomicBool::new(false), seed: Random::seed() };
    thread::scope(|scope| {
        let run = &run;
        let clients: Vec<_> = (0..4)
            .flat_map(|n| [scope.spawn(move || run.produce(n)), scope.spawn(move || run.work(n))])
            .collect();
        // Whatever goes wrong below, the clients must end, or the scope would never.
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for round in 0..crashes {
                let before = run.told().completed.len();
                eventually("the load goes on", 60, || run.told().completed.len() > before + 50);
                pause(0.3 + f64::from(round) * 0.2);
                server.kill();
                server.start_again();
                run.check(durable);
            }
        }));
        run.no_more_tasks.store(true, Ordering::Relaxed);
        eventually("the queue is drained", 120, || clients.iter().all(|client| client.is_finished()));
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    let rows = run.check(durable);
    let told = run.told();
    assert!(rows.iter().all(|row| row.place != "task"), "the queue is drained");
    for row in &rows {
        assert!(
            told.enqueued.contains_key(&row.key) || told.unknown.contains(&row.key),
            "nobody enqueued {}",
            row.key
        );
        let dies = row.key.ends_with("13");
        assert_eq!(row.place, if dies { "dead_letter" } else { "done" }, "task {}", row.id);
    }
    println!(
        "{} acknowledged, {} unknown, {} rolled back; {} tasks; {} crashes",
        told.enqueued.len(),
        told.unknown.len(),
        told.rolled_back.len(),
        rows.len(),
        crashes
    );
    let mut client = server.connect("load");
    let recovered: i64 = client
        .value("select count(*) from taskq.done where errors @> '[{\"error\": \"lease expired\"}]'", &[]);
    assert!(recovered > 0, "no lease that a crash orphaned was recovered");
    if server.offers("amcheck") {
        client.run("create extension amcheck");
        for index in ["taskq.task_pkey", "taskq.task_ready_idx", "taskq.dead_letter_pkey"] {
            client.run(&format!("select bt_index_check('{index}', true)"));
        }
        assert_eq!(client.value::<i64>("select count(*) from verify_heapam('taskq.task')", &[]), 0);
    }
}

#[test]
fn a_server_killed_under_load_loses_nothing_and_finishes_nothing_twice() {
    let server = Server::start("crash", &["synchronous_commit = on"]);
    crash(&server, 5, true);
}

#[test]
fn f04_with_asynchronous_commits_a_killed_server_is_consistent_although_it_may_lose_the_last() {
    // The WAL writer is slow, so that something is lost indeed.
    let server = Server::start("crash2", &["synchronous_commit = off", "wal_writer_delay = '10 s'"]);
    crash(&server, 2, false);
}

/// A thousand enqueues without waiting for the disk, and the crash: those that are there are the first ones, and
/// whole. With synchronous_commit they are all there.
#[test]
fn f04_only_a_session_that_asks_for_it_may_lose_its_last_commits() {
    let server = Server::start("async", &["taskq.keeper = off", "wal_writer_delay = '10 s'"]);
    let mut client = server.database("app").connect();
    client.run("alter table taskq.task set (autovacuum_enabled = off)");
    client.run("checkpoint");
    for asynchronous in [true, false] {
        client.run(&format!("set synchronous_commit = {}", if asynchronous { "off" } else { "on" }));
        let told: Vec<i64> = (0..1000).map(|_| client.value("select taskq.enqueue('t')", &[])).collect();
        server.stop(Stop::Immediate);
        server.start_again();
        client = server.connect("app");
        let kept: Vec<i64> = client.column("select id from taskq.task order by id", &[]);
        if asynchronous {
            // The WAL writer sleeps, so some of the last ones are gone.
            assert!(kept.len() < told.len(), "nothing was lost: the test shows nothing");
            assert_eq!(kept, told[..kept.len()], "a later one is there, and an earlier one is not");
        } else {
            assert_eq!(kept, told);
        }
        let (ids, tokens): (Vec<i64>, Vec<i64>) = client.claim(1000).into_iter().unzip();
        assert_eq!(ids, kept, "all that is there can be claimed");
        let completed = client.column::<i64>("select taskq.complete_many($1, $2)", &[&ids, &tokens]);
        assert_eq!(completed.len(), kept.len());
    }
}

#[test]
fn f04_taskq_never_switches_synchronous_commit_off_and_no_table_is_unlogged() {
    let server = Server::start("durable", &["taskq.keeper = off"]);
    let database = server.database("durable");
    let mut client = database.connect();
    // in the settings of a function
    let functions: Vec<String> = client.column(
        "select p.oid::regprocedure::text from pg_proc p, unnest(p.proconfig) c
          where pronamespace = 'taskq'::regnamespace and c like 'synchronous_commit%'",
        &[],
    );
    assert_eq!(functions, [""; 0]);
    // while it works: a trigger looks
    client.run(
        "create table public.seen (setting text);
         create function look() returns trigger language plpgsql as
           $$ begin insert into public.seen values (current_setting('synchronous_commit')); return null; end $$;
         create trigger look after insert or update or delete on taskq.task for each row execute function look()",
    );
    let running = |verb: &str| format!("select {verb} from taskq.task t where t.state = 'running'");
    for verb in [
        "select taskq.enqueue('t', max_retries => 0)",
        "select taskq.enqueue_many('[{\"task_type\": \"t\"}, {\"task_type\": \"t\"}]')",
        "select taskq.claim(1)",
        &running("taskq.extend(t.id, t.token)"),
        &running("taskq.release(t.id, t.token)"),
        "select taskq.claim(1)",
        &running("taskq.fail(t.id, t.token)"),
        "select taskq.redrive('*')",
        "select taskq.claim(1, lease => '1 us')",
        "call taskq.maintain()",
        "select taskq.claim(1)",
        &running("taskq.complete(t.id, t.token)"),
        "select taskq.cancel(min(id)) from taskq.task",
        "select taskq.purge('ready')",
    ] {
        client.run("truncate public.seen");
        client.run(verb);
        let seen =
            "select distinct setting from public.seen union select current_setting('synchronous_commit')";
        assert_eq!(client.column::<String>(seen, &[]), ["on"], "{verb}");
    }
    assert_eq!(client.value::<i64>("select count(*) from taskq.task", &[]), 0);
    let unlogged: Vec<String> = client.column(
        "select oid::regclass::text from pg_class
          where relnamespace = 'taskq'::regnamespace and relkind in ('r', 'p', 'S', 'i') and relpersistence <> 'p'",
        &[],
    );
    assert_eq!(unlogged, [""; 0]);
}
