//! The figures in shared memory are what a count of the tables finds: under load, after errors, after a
//! start, and after a transaction that ended where nobody could see it.

use postgres::Client;
use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant, SystemTime};
use taskq_server_tests::{Database, Random, Server, Session, Shared, Stop, eventually, pause};

static SERVER: Shared =
    Shared::new("figures", &["max_prepared_transactions = 10", "deadlock_timeout = '200 ms'"]);

/// Where figures and a count differ; an empty list if nowhere.
const DIFFERENCES: &str = "
    select format('%s/%s: figures %s/%s/%s/%s, counted %s/%s/%s/%s', queue, task_type, f.ready, f.scheduled, f.running, f.blocked,
                  c.ready, c.scheduled, c.running, c.blocked)
      from taskq._figures() f
      full join (select t.queue, t.task_type,
                        count(*) filter (where t.state = 'waiting' and t.run_at <= taskq._now()) as ready,
                        count(*) filter (where t.state = 'waiting' and t.run_at > taskq._now() and t.run_at < 'infinity') as scheduled,
                        count(*) filter (where t.state = 'running') as running,
                        count(*) filter (where t.state = 'waiting' and t.run_at = 'infinity') as blocked
                   from taskq.task t group by t.queue, t.task_type) c using (queue, task_type)
     where (coalesce(f.ready, 0), coalesce(f.scheduled, 0), coalesce(f.running, 0), coalesce(f.blocked, 0))
           <> (coalesce(c.ready, 0), coalesce(c.scheduled, 0), coalesce(c.running, 0), coalesce(c.blocked, 0))";

fn differences(client: &mut Client) -> Vec<String> {
    client.column(DIFFERENCES, &[])
}

/// Whether the figures are said to be exact; not before they were first counted.
fn exact(client: &mut Client) -> bool {
    client.column::<bool>("select exact from taskq._figures_state()", &[]).contains(&true)
}

fn last_count(client: &mut Client) -> Option<SystemTime> {
    client.column("select counted_at from taskq._figures_state()", &[]).pop()
}

/// Waits until the figures are exact, and says when they are said to be and are not.
fn become_right(client: &mut Client, seconds: u64) {
    eventually("the figures are exact", seconds, || exact(client));
    // What has just become due, or was just committed, is there a moment later.
    let begin = Instant::now();
    loop {
        let found = differences(client);
        if found.is_empty() {
            return;
        }
        assert!(begin.elapsed() < Duration::from_secs(5), "they are said to be exact: {found:?}");
        pause(0.1);
    }
}

/// Does the duty that counts as if it were so many seconds later, until the figures are right. (What
/// the keeper notices meanwhile makes them inexact again.)
fn become_right_in(client: &mut Client, seconds: u32) {
    let mut later = 0;
    eventually("the figures are exact", 30, || {
        later += seconds;
        client.run(&format!("set taskq.test_clock = '+ {later} s'"));
        client.run("select taskq._wake()");
        client.run("reset taskq.test_clock");
        exact(client) && differences(client).is_empty()
    });
}

/// Counts again, as if it were later: a transaction that is prepared may end at any time.
#[track_caller]
fn stay_inexact(client: &mut Client) {
    for later in ["31 s", "62 s"] {
        assert!(!exact(client));
        client.run(&format!(
            "set taskq.test_clock = '+ {later}'; select taskq._wake(); reset taskq.test_clock"
        ));
    }
    assert!(!exact(client));
}

/// A worker and producer of random habits.
struct Actor {
    random: Random,
    client: Client,
    held: Vec<(i64, i64)>,
}

impl Actor {
    /// One statement that does something to tasks; it may fail.
    fn act(&mut self) -> Result<(), postgres::Error> {
        let queue = ["a", "b", "c", "limited"][self.random.below(4) as usize];
        let delay = ["0 s", "0 s", "0.05 s", "0.4 s", "1.5 s"][self.random.below(5) as usize];
        let task_type = ["t", "u"][self.random.below(2) as usize];
        let key = self.random.below(20);
        let client = &mut self.client;
        let statement = match self.random.below(19) {
            0 | 1 => format!("select taskq.enqueue('{task_type}', queue => '{queue}', delay => '{delay}', max_retries => {})", key % 3),
            2 => format!("select taskq.enqueue('{task_type}', queue => '{queue}')"),
            3 => format!(
                "select taskq.enqueue('k', queue => '{queue}', delay => '{delay}', unique_key => '{key}', unique_until => '{}', on_conflict => '{}')",
                ["started", "finished"][key as usize % 2],
                ["ignore", "replace", "skip", "error"][key as usize % 4]
            ),
            4 => format!(
                "select count(*) from taskq.enqueue_many((select jsonb_agg(jsonb_build_object('task_type', '{task_type}', 'queue', '{queue}',
                   'delay', format('%s ms', n * 100))) from generate_series(0, {}) n))",
                key
            ),
            5..=8 => {
                let lease = if key == 0 { "0.3 s" } else { "3 s" };
                let claim = format!("select id, token from taskq.claim({}, lease => '{lease}')", 1 + key % 8);
                let rows = client.query(&claim, &[])?;
                self.held.extend(rows.iter().map(|row| (row.get::<_, i64>(0), row.get::<_, i64>(1))));
                return Ok(());
            }
            9 => format!("select taskq.cancel(id, force => {}) from taskq.task where id % 20 = {key} limit 2", key.is_multiple_of(2)),
            10 => "select taskq.redrive(queue => '*', max_tasks => 5, per_second => 10)".into(),
            11 if key < 3 => format!("select taskq.purge('{}', '{queue}')", ["ready", "scheduled", "dead"][key as usize]),
            12 if key < 2 => format!("select taskq.{}('{queue}')", ["pause", "resume"][key as usize]),
            12 if key < 5 => format!("select taskq.configure_queue('limited', '{{\"max_running\": {key}}}')"),
            13 | 14 => format!(
                "select taskq.enqueue('{task_type}', queue => '{queue}', delay => '{delay}', group_key => '{}', priority => {})",
                key % 3,
                key % 2
            ),
            15 => format!(
                "select count(*) from taskq.enqueue_many((select jsonb_agg(jsonb_build_object('task_type', '{task_type}', 'queue', '{queue}',
                   'group_key', (n % 3)::text)) from generate_series(0, {}) n))",
                key % 5
            ),
            _ => {
                let Some((id, token)) = self.held.pop() else { return Ok(()) };
                match self.random.below(7) {
                    0 => format!("select taskq.fail({id}, {token}, 'no', retry_in => '{delay}')"),
                    1 => format!("select taskq.fail({id}, {token}, 'no', retry => false)"),
                    2 => format!("select taskq.release({id}, {token})"),
                    3 => format!("select taskq.release({id}, {token}, '{delay}')"),
                    4 => format!("select * from taskq.extend({id}, {token}, '0.5 s')"),
                    5 => format!("select taskq.complete_many(array[{id}], array[{token}])"),
                    _ => format!("select taskq.complete({id}, {token})"),
                }
            }
        };
        self.client.batch_execute(&statement)
    }

    /// A transaction of some statements with savepoints, committed or not; false if the session ended.
    fn transaction(&mut self) -> bool {
        if self.random.one_in(2) {
            let _ = self.act();
            return !self.client.is_closed();
        }
        let held = self.held.clone();
        let mut open = self.client.batch_execute("begin").is_ok();
        let mut levels = 0;
        for _ in 0..self.random.below(8) {
            let name = format!("s{levels}");
            open = match self.random.below(5) {
                0 => {
                    levels += 1;
                    self.client.batch_execute(&format!("savepoint s{levels}")).is_ok()
                }
                1 if levels > 0 => {
                    levels -= 1;
                    self.client.batch_execute(&format!("release {name}")).is_ok()
                }
                2 if levels > 0 => {
                    levels -= 1;
                    self.client.batch_execute(&format!("rollback to {name}; release {name}")).is_ok()
                }
                _ => self.act().is_ok(),
            };
            if !open && levels > 0 {
                levels -= 1;
                open =
                    self.client.batch_execute(&format!("rollback to s{0}; release s{0}", levels + 1)).is_ok();
            }
            if !open {
                break;
            }
        }
        let end = if self.random.one_in(4) { "rollback" } else { "commit" };
        if self.client.batch_execute(end).is_err() || end == "rollback" || !open {
            self.held = held;
        }
        !self.client.is_closed()
    }
}

/// What was seen of the figures while many sessions were at work.
#[derive(Debug)]
struct Seen {
    /// They were exact all the time, and never counted anew.
    kept: bool,
    most_blocked: i64,
    most_running: i64,
    terminated: i32,
}

/// Sessions that act at random for some seconds; now and then one is terminated.
fn storm(database: &Database, client: &mut Client, seed: u64) -> Seen {
    const SESSIONS: u64 = 8;
    let stop = AtomicBool::new(false);
    let pids = Mutex::new(HashSet::new());
    let counted_at = last_count(client);
    let mut seen = Seen { kept: true, most_blocked: 0, most_running: 0, terminated: 0 };
    thread::scope(|scope| {
        for n in 0..SESSIONS {
            let (stop, pids) = (&stop, &pids);
            scope.spawn(move || {
                let mut round = 0;
                while !stop.load(Relaxed) {
                    round += 1;
                    let mut client = database.connect();
                    let pid = client.pid();
                    pids.lock().expect("pids").insert(pid);
                    let random = Random::new(seed + n * 1_000 + round);
                    let mut actor = Actor { random, client, held: Vec::new() };
                    while !stop.load(Relaxed) && actor.transaction() {}
                    pids.lock().expect("pids").remove(&pid);
                }
            });
        }
        let begin = Instant::now();
        for look in 1.. {
            pause(0.1);
            seen.kept &= exact(client) && last_count(client) == counted_at;
            let figures =
                "select max(blocked), max(running) filter (where queue = 'limited') from taskq._figures()";
            let row = client.query_one(figures, &[]).expect("figures");
            seen.most_blocked = seen.most_blocked.max(row.get::<_, Option<i64>>(0).unwrap_or(0));
            seen.most_running = seen.most_running.max(row.get::<_, Option<i64>>(1).unwrap_or(0));
            let pid = pids.lock().expect("pids").iter().next().copied();
            if let (0, Some(pid)) = (look % 6, pid) {
                seen.terminated +=
                    i32::from(client.value::<bool>("select pg_terminate_backend($1)", &[&pid]));
            }
            if begin.elapsed() > Duration::from_secs(8) {
                break;
            }
        }
        stop.store(true, Relaxed);
    });
    seen
}

#[test]
fn after_random_verbs_of_many_sessions_the_figures_are_what_a_count_finds() {
    let seed = Random::seed();
    let database = SERVER.database("random");
    let mut client = database.connect();
    client.run("select taskq.configure_type(t, '{\"backoff_base\": \"0.2 s\", \"backoff_cap\": \"1 s\"}') from unnest('{t,u,k}'::text[]) t");
    client.run("select taskq.configure_queue('limited', '{\"max_running\": 3}')");
    eventually("the first count", 30, || exact(&mut client));
    // Only if they are not counted anew meanwhile this shows that they were kept well. On a busy machine the keeper
    // may have to: where it finds no moment at which no transaction is just ending.
    let mut seeds = (seed..).step_by(100_000).take(8);
    assert!(seeds.any(|seed| kept_through(&database, &mut client, seed)), "the figures do not stay exact");
}

/// After a storm the figures are right; returns whether they were so all the time, without a count.
fn kept_through(database: &Database, client: &mut Client, seed: u64) -> bool {
    let counted_at = last_count(client);
    let first: i64 = client.value("select last_value from taskq.task_id_seq", &[]);
    let seen = storm(database, client, seed);
    assert!(seen.terminated > 5, "{} sessions were terminated", seen.terminated);
    assert!(seen.most_blocked > 3 && seen.most_running > 0, "no groups or limits: {seen:?}");
    let used = client.value::<i64>("select last_value from taskq.task_id_seq", &[]) - first;
    assert!(used > 500, "only {used} tasks");
    become_right(client, 60);
    // When all that is scheduled has become due and all leases are over, too.
    eventually("nothing is scheduled or running", 60, || {
        client.value(
            "select count(*) = 0 from taskq.task
              where (run_at > clock_timestamp() and run_at < 'infinity') or state = 'running'",
            &[],
        )
    });
    become_right(client, 60);
    seen.kept && last_count(client) == counted_at
}

/// Tasks of all kinds.
fn fill(client: &mut Client) {
    client.run("select taskq.enqueue('t', queue => 'q') from generate_series(1, 7)");
    client.run("select taskq.enqueue('t', queue => 'q', delay => '1 day') from generate_series(1, 3)");
    client.run("select taskq.enqueue('u', queue => 'p', delay => '1 s')");
    client.run("select taskq.claim(2, array['q'], lease => '1 hour')");
}

#[test]
fn a_server_that_starts_counts_what_there_is() {
    let server = Server::start("figures_start", &[]);
    let database = server.database("start");
    let mut client = database.connect();
    fill(&mut client);
    become_right(&mut client, 30);
    for how in [Stop::Fast, Stop::Immediate] {
        drop(client);
        server.stop(how);
        server.start_again();
        client = database.connect();
        become_right(&mut client, 30);
        fill(&mut client);
        become_right(&mut client, 30);
    }
}

#[test]
fn after_prepared_transactions_the_figures_are_counted_again() {
    let database = SERVER.database("prepared");
    let mut client = database.connect();
    fill(&mut client);
    become_right(&mut client, 30);
    client.run("begin; select taskq.enqueue('t', queue => 'q') from generate_series(1, 5)");
    client.run("select taskq.claim(4); prepare transaction 'one'");
    assert!(!exact(&mut client), "not known from here on");
    client.run("begin; select taskq.enqueue('t', queue => 'q'); prepare transaction 'two'");
    client.run("commit prepared 'one'");
    client.run("rollback prepared 'two'");
    client.run("select taskq._wake()");
    assert!(!exact(&mut client), "not so soon");
    become_right_in(&mut client, 31);
}

#[test]
fn while_a_transaction_is_prepared_the_figures_are_not_said_to_be_exact() {
    let server = Server::start("figures_prepared", &["max_prepared_transactions = 10"]);
    let mut client = server.database("prepared").connect();
    fill(&mut client);
    client.run("begin; select taskq.enqueue('t', queue => 'q') from generate_series(1, 5); prepare transaction 'one'");
    // What has nothing to do with tasks does not matter.
    client.run("create table other (); begin; lock table other; prepare transaction 'other'");
    stay_inexact(&mut client);
    drop(client);
    // A server that starts knows nothing of it but what stands in the tables.
    server.stop(Stop::Immediate);
    server.start_again();
    let mut client = server.connect("prepared");
    eventually("the figures are counted", 30, || {
        client.value("select count(*) = 1 from taskq._figures_state()", &[])
    });
    for later in ["31 s", "62 s"] {
        assert!(!exact(&mut client), "one may end at any time");
        client.run(&format!(
            "set taskq.test_clock = '+ {later}'; select taskq._wake(); reset taskq.test_clock"
        ));
    }
    client.run("commit prepared 'one'");
    assert!(!exact(&mut client), "it has ended, and was not counted");
    become_right_in(&mut client, 93);
    client.run("rollback prepared 'other'");
}

#[test]
fn a_new_extension_has_figures_of_its_own() {
    let database = SERVER.database("anew");
    let mut client = database.connect();
    fill(&mut client);
    become_right(&mut client, 30);
    // So fast that the keeper may not see that it was gone.
    client.run("drop extension taskq; create extension taskq");
    client.run("select taskq.enqueue('t', queue => 'q')");
    become_right(&mut client, 60);
    client.run("begin; drop extension taskq; rollback");
    client.run("select taskq.enqueue('t', queue => 'q')");
    become_right(&mut client, 60);
}

#[test]
fn a_restored_dump_has_the_figures_of_its_tasks() {
    let database = SERVER.database("dumped");
    let mut client = database.connect();
    fill(&mut client);
    let dump = SERVER.program("pg_dump").args(["-Fc", "dumped"]).output().expect("pg_dump");
    assert!(dump.status.success());
    let file = SERVER.data().parent().expect("a folder").join("figures.dump");
    std::fs::write(&file, dump.stdout).expect("write");
    let restored: Database = SERVER.empty_database("restored");
    let restore = |section: &str| {
        let mut command = SERVER.program("pg_restore");
        let status = command.args(["-d", "restored", "--section", section]).arg(&file).status();
        assert!(status.expect("pg_restore").success());
    };
    // The keeper is at work, and has counted, before the first task is there.
    restore("pre-data");
    let mut client = restored.connect();
    become_right(&mut client, 30);
    restore("data");
    restore("post-data");
    assert_eq!(client.value::<i64>("select count(*) from taskq.task", &[]), 11);
    become_right_in(&mut client, 601);
}

#[test]
fn what_is_taken_once_is_not_taken_again() {
    let database = SERVER.database("taken");
    let mut client = database.connect();
    // Only this test takes figures here.
    client.run("alter database taken set taskq.keeper = off");
    eventually("there is no keeper", 30, || {
        client.value(
            "select count(*) = 0 from pg_stat_activity where backend_type = 'taskq keeper' and datname = 'taken'",
            &[],
        )
    });
    let mut other = database.connect();
    let take = "select coalesce(sum(enqueued), 0)::bigint from taskq._take_figures()";
    client.value::<i64>(take, &[]);
    let mut enqueued = 0;
    let mut taken = 0;
    thread::scope(|scope| {
        let producer = scope.spawn(|| {
            for _ in 0..2_000 {
                other.run("select taskq.enqueue('t')");
            }
        });
        let mut round = 0;
        while !producer.is_finished() {
            round += 1;
            client.run("begin");
            let now: i64 = client.value(take, &[]);
            if round % 3 == 0 {
                client.run("rollback");
            } else {
                client.run("commit");
                taken += now;
            }
        }
        enqueued += 2_000;
    });
    taken += client.value::<i64>(take, &[]);
    assert_eq!(taken, enqueued);
    assert_eq!(client.value::<i64>(take, &[]), 0);
}
