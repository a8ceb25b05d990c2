//! One run: a server, clients, faults; then the drain, and the account.

use crate::client::Client;
use crate::clients::{Clients, Events, locked};
use crate::fault::Faults;
use crate::history;
use crate::journal::{Event, Fate, now};
use crate::judge::{self, Counts, Found};
use crate::{account, after, serverlog, watch};
use postgres::Config;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};
use taskq_server_tests::{Random, Server, Session, eventually, pause};

pub struct Plan {
    pub seed: u64,
    pub clients: u64,
    /// How long the clients are at work.
    pub time: Duration,
    /// The time between two crashes, about.
    pub crash_every: Duration,
}

pub struct Report {
    pub counts: Counts,
    pub faults: BTreeMap<&'static str, u64>,
    pub crashes: u64,
    pub tasks: u64,
    pub archived: u64,
    pub found: Found,
}

/// About two for each call.
const ENOUGH_EVENTS: usize = 4_000;

const SETTINGS: &[&str] = &[
    "synchronous_commit = on",
    "max_prepared_transactions = 30",
    "deadlock_timeout = '200 ms'",
    "log_min_messages = 'warning'",
    "autovacuum_naptime = '3 s'",
    "autovacuum_vacuum_threshold = 20",
    "autovacuum_vacuum_cost_delay = 0",
    "checkpoint_timeout = '30 s'",
    "max_wal_size = '64MB'",
    "min_wal_size = '32MB'",
    serverlog::PREFIX,
];

/// The clients choose among these queues; what they are allowed is what `account` and `watch` know.
const SETUP: &str = r#"
    create extension taskq;
    create table effect (task bigint, token bigint);
    create function run_at(task bigint) returns timestamptz language sql as $$ select t.run_at from taskq.task t where t.id = task $$;

    -- Duties catch their errors, and forget them when they succeed. Here it is kept.
    create table trouble (at timestamptz default clock_timestamp(), what text, error text);
    create function note() returns trigger language plpgsql as $$
    begin
      insert into public.trouble (what, error)
      values (concat_ws(' ', tg_table_name, to_jsonb(new) ->> 'name', to_jsonb(new) ->> 'step'), new.error);
      return null;
    end $$;
    create trigger note after update on taskq.duty for each row when (new.error is not null) execute function note();
    create trigger note after update on taskq.schedule for each row when (new.error is not null) execute function note();
    create trigger note after insert or update on taskq.archive_trouble for each row execute function note();

    select taskq.configure_queue('limited', '{"max_running": 5}');
    select taskq.configure_queue('flexible', '{"max_running": 8}');
    select taskq.configure_queue('rated', '{"rate": "20/second", "burst": 5}');
    select taskq.configure_queue(q, '{"lease": "2 s"}') from unnest('{main,groups,keys,ticks}'::text[]) q;
    select taskq.configure_queue(q, '{"retention": "1 s"}') from unnest('{main,groups}'::text[]) q;
    select taskq.configure_type(t, '{"backoff_base": "0.1 s", "backoff_cap": "1 s"}')
      from unnest('{plain,grouped,limited,flexible,rated,scrap,keyed,tick,scheduled}'::text[]) t;
    select taskq.schedule('tick', '* * * * * *', 'tick',
                          settings => '{"queue": "ticks", "missed": "run_all", "max_missed": 10000}');
"#;

pub fn run(plan: &Plan, keep: &Path) -> Report {
    let server = Server::start("soak", SETTINGS);
    server.empty_database("soak").connect().run(SETUP);
    let config = server.config("soak");
    let events = Events::default();
    let found = Mutex::new(Found::new());
    let (over, looks) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut faults = Faults::new(&server, config.clone(), plan.seed, plan.clients);
    thread::scope(|scope| {
        scope.spawn(|| watch::watch(&config, &over, &looks, &found));
        let outcome = unbroken(|| storm(plan, &server, &mut faults, &events, &found));
        faults.disconnect();
        over.store(true, Relaxed);
        locked(&found).extend(outcome.err());
    });
    let mut found = found.into_inner().unwrap_or_default();
    found.dedup();
    if looks.load(Relaxed) < 3 {
        found.push(format!("the observer looked only {} times", looks.load(Relaxed)));
    }
    let mut counts = Counts::default();
    let mut late = Found::new();
    let end = unbroken(|| quiesce(&server, &config, &events, &mut late));
    found.extend(late);
    let end = end.unwrap_or_else(|broken| {
        found.push(broken);
        End::default()
    });
    let events = std::mem::take(&mut *locked(&events));
    found.extend(judged(&events, &server.log(), Some(&end), &mut counts));
    if !found.is_empty() {
        keep_evidence(keep, plan.seed, &server, &events, &found);
    }
    let archived = end.rows.iter().filter(|row| row.place == "archive").count() as u64;
    let (tasks, crashes) = (end.rows.len() as u64, faults.crashes());
    Report { counts, faults: faults.counts, crashes, tasks, archived, found }
}

/// What is there in the end.
#[derive(Default)]
struct End {
    rows: Vec<account::Row>,
    /// As the server has counted them since it started last.
    deadlocks: i64,
}

/// What breaks a rule: in what the clients were told, in what is there in the end, in the server's log.
fn judged(events: &[(u64, Event)], log: &str, end: Option<&End>, counts: &mut Counts) -> Found {
    let mut found = Found::new();
    let calls = history::calls(events);
    let tasks = history::tasks(&calls);
    counts.calls = calls.len() as u64;
    let transactions: std::collections::HashSet<(u64, u64)> =
        calls.iter().map(|call| (call.client, call.txn)).collect();
    counts.transactions = transactions.len() as u64;
    counts.rolled_back = calls.iter().filter(|call| call.fate == Fate::RolledBack).count() as u64;
    counts.unknown = calls.iter().filter(|call| call.fate == Fate::Unknown).count() as u64;
    found.extend(judge::errors(&calls, counts));
    found.extend(judge::order(&calls));
    found.extend(account::unknown(&calls));
    found.extend(judge::tokens(&tasks));
    found.extend(judge::deliveries(&tasks, &calls, counts));
    found.extend(judge::deaths(&tasks));
    found.extend(judge::endings(&tasks));
    found.extend(judge::refusals(&tasks, &calls, counts));
    if let Some(End { rows, deadlocks }) = end {
        found.extend(account::total(&calls, &tasks, rows));
        found.extend(account::deaths(&calls, rows));
        found.extend(serverlog::uncounted(*deadlocks, log, &calls));
    }
    found.extend(account::together(&tasks, &[("limited", 5), ("flexible", 8)]));
    found.extend(account::rate(&tasks, "rated", 20.0, 5.0));
    found.extend(serverlog::check(log, &calls));
    found
}

/// What `keep_evidence` kept, judged again, as far as that does not take the server.
pub fn judge_again(folder: &Path) -> Found {
    let read = |name: &str| {
        let file = folder.join(name);
        std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
    };
    let event = |line: &str| {
        let (client, event) = line.split_once('\t')?;
        Some((client.parse().ok()?, serde_json::from_str(event).ok()?))
    };
    let journal = read("journal");
    let events: Option<Vec<(u64, Event)>> = journal.lines().map(event).collect();
    judged(&events.expect("a journal"), &read("server.log"), None, &mut Counts::default())
}

/// What breaks off is a finding like others, and its evidence is kept.
fn unbroken<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("?");
        format!("the run broke off: {text}")
    })
}

/// The clients at work, and what happens to them.
fn storm(plan: &Plan, server: &Server, faults: &mut Faults, events: &Events, found: &Mutex<Found>) {
    let mut clients =
        Clients::start(server.host().display().to_string(), plan.seed, plan.clients, events.clone());
    let mut random = Random::new(plan.seed + 7);
    let begin = Instant::now();
    let every = plan.crash_every.as_millis() as u64;
    let mut next_crash = begin + Duration::from_millis(every / 2 + random.below(every / 2));
    // On a busy machine it takes longer until enough has happened.
    let enough = |faults: &Faults| locked(events).len() > ENOUGH_EVENTS && faults.enough();
    while begin.elapsed() < plan.time || (begin.elapsed() < plan.time * 4 && !enough(faults)) {
        pause(0.05 + random.below(60) as f64 / 100.0);
        faults.go_on(false);
        locked(found).extend(clients.restart_killed());
        if Instant::now() < next_crash {
            faults.small(&mut clients);
        } else if faults.crash() {
            next_crash = Instant::now() + Duration::from_millis(every * 2 / 3 + random.below(every * 2 / 3));
        }
    }
    faults.go_on(true);
    locked(found).extend(clients.restart_killed());
    locked(found).extend(clients.stop());
}

/// Waits for quiet, has all tasks done, and looks at what is there then.
fn quiesce(server: &Server, config: &Config, events: &Events, found: &mut Found) -> End {
    let mut client = server.connect("soak");
    let sessions = "select count(*) = 0 from pg_stat_activity where application_name like 'soak-%'";
    eventually("the sessions of the clients are gone", 60, || client.value(sessions, &[]));
    // What killed clients have left prepared.
    for gid in client.column::<String>("select gid from pg_prepared_xacts", &[]) {
        client.run(&format!("rollback prepared '{gid}'"));
        let mut parts = gid.split('-').skip(1).filter_map(|part| part.parse::<u64>().ok());
        if let (Some(number), Some(txn)) = (parts.next(), parts.next()) {
            locked(events).push((number, Event::End { txn, at: now(), fate: Fate::RolledBack }));
        }
    }
    found.extend(after::left_behind(&mut client));
    found.extend(after::figures(&mut client));
    let ticks = after::unschedule(&mut client, found);
    client.run("select taskq.resume(queue) from taskq.queues where paused_at is not null");
    let sink = events.clone();
    let mut drain =
        Client::new(config.clone(), 0, 1, 1, Box::new(move |event| locked(&sink).push((0, event))));
    let begin = Instant::now();
    let left = "select count(*) from taskq.task";
    while client.value::<i64>(left, &[]) > 0 {
        if !drain.connected() || drain.drain() == 0 {
            pause(0.05);
        }
        if begin.elapsed() > Duration::from_secs(120) {
            let states = "select format('%s tasks of queue %s are %s', count(*), queue, state) from taskq.tasks group by queue, state";
            found.extend(
                client.column::<String>(states, &[]).into_iter().map(|line| format!("not drained: {line}")),
            );
            break;
        }
    }
    drop(drain);
    found.extend(after::figures(&mut client));
    found.extend(after::all_free(&mut client));
    found.extend(after::left_behind(&mut client));
    found.extend(after::archived(&mut client));
    found.extend(after::troubles(&mut client));
    found.extend(after::effects(&mut client));
    found.extend(after::occurrences(&mut client, ticks));
    found.extend(after::sound(server, &mut client));
    let sql = "select place, id, payload ->> 'mark', task_type, state, attempt <= max_retries, errors -> -1 ->> 'error'
                 from (select 'task' as place, id, payload, task_type, state, attempt, max_retries, errors from taskq.task
                       union all select 'dead_letter', id, payload, task_type, 'dead', attempt, max_retries, errors from taskq.dead_letter
                       union all select 'done', id, payload, task_type, state, attempt, max_retries, errors from taskq.done
                       union all select 'archive', id, payload, task_type, state, attempt, max_retries, errors from taskq.archive) t";
    let rows = client.query(sql, &[]).expect("all tasks");
    let rows = rows.iter().map(|row| account::Row {
        place: row.get(0),
        id: row.get(1),
        mark: row.get(2),
        task_type: row.get(3),
        state: row.get(4),
        retries_left: row.get(5),
        last_error: row.get(6),
    });
    let deadlocks = "select deadlocks from pg_stat_database where datname = current_database()";
    End { rows: rows.collect(), deadlocks: client.value(deadlocks, &[]) }
}

/// Journal and server log of a run that found something.
fn keep_evidence(keep: &Path, seed: u64, server: &Server, events: &[(u64, Event)], found: &Found) {
    let mut journal = String::new();
    for (client, event) in events {
        let _ = writeln!(journal, "{client}\t{}", serde_json::to_string(event).unwrap_or_default());
    }
    let folder = keep.join(format!("soak-{seed}"));
    let kept = std::fs::create_dir_all(&folder)
        .and_then(|()| std::fs::write(folder.join("journal"), journal))
        .and_then(|()| std::fs::write(folder.join("found"), found.join("\n")))
        .and_then(|()| std::fs::write(folder.join("server.log"), server.log()));
    match kept {
        Ok(()) => println!("   journal and server log are in {}", folder.display()),
        Err(error) => {
            println!("   journal and server log could not be kept in {}: {error}", folder.display())
        }
    }
}
