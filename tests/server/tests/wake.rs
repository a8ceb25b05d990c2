//! Who listens on `taskq_ready` hears of everything that becomes claimable, soon, and not too often.
//!
//! The interval of all duties is set to an hour, and the keeper looks around once a minute only, so that
//! what is heard here comes from events alone.

use postgres::Client;
use postgres::fallible_iterator::FallibleIterator;
use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};
use taskq_server_tests::{Database, Server, Session, Shared, eventually, pause};

static SERVER: Shared =
    Shared::new("wake", &["taskq.keeper_interval = '60 s'", "max_prepared_transactions = 10"]);

/// Seconds within which an event must have arrived; the machine may be busy.
const SOON: f64 = 5.0;
/// Seconds within which there must be a keeper at work: it waits for its forerunner to end, or comes once more.
const KEEPER_STARTS: f64 = 30.0;

/// A database whose keeper goes by events, a listener that has heard all there was, and a client.
fn set_up(name: &str) -> (Database<'static>, Client, Client) {
    set_up_in(&SERVER, name)
}

fn set_up_in<'a>(server: &'a Server, name: &str) -> (Database<'a>, Client, Client) {
    let database = server.empty_database(name);
    let mut client = database.connect();
    client.run("create extension taskq; update taskq.duty set every = '1 hour'");
    let mut listener = database.connect();
    listener.run("listen taskq_ready");
    client.run("select taskq.enqueue('first', queue => 'first')");
    // (Twice, if the keeper also finds it when it looks for the first time.)
    let first = heard(&mut listener, KEEPER_STARTS);
    assert!(!first.is_empty() && first.iter().all(|queue| queue == "first"), "{first:?}");
    eventually("the tasks are counted", 30, || {
        client.value("select count(*) = 1 from taskq._figures_state()", &[])
    });
    (database, listener, client)
}

/// The payloads that arrive: what comes until the channel is quiet, waiting so many seconds for the first.
fn heard(listener: &mut Client, seconds: f64) -> Vec<String> {
    let mut heard = Vec::new();
    let mut patience = Duration::from_secs_f64(seconds);
    while let Some(message) = listener.notifications().timeout_iter(patience).next().expect("listen") {
        assert_eq!(message.channel(), "taskq_ready");
        heard.push(message.payload().to_owned());
        patience = Duration::from_millis(400);
    }
    heard
}

/// Waits for a message about a queue. Where the keeper must look everywhere, others are told of, too.
fn hears(listener: &mut Client, queue: &str) {
    hears_within(SOON, listener, queue);
}

fn hears_within(seconds: f64, listener: &mut Client, queue: &str) {
    let begin = Instant::now();
    let mut messages = Vec::new();
    while !messages.contains(&queue.to_owned()) {
        assert!(begin.elapsed().as_secs_f64() < seconds, "{queue} is not heard: {messages:?}");
        messages.extend(heard(listener, 1.0));
    }
}

/// Runs one statement after the other; after the last one the listener hears of the queue, once.
fn tells(listener: &mut Client, client: &mut Client, queue: &str, statements: &[&str]) {
    for statement in statements {
        assert_eq!(heard(listener, 0.0), [""; 0], "before {statement}");
        client.run(statement);
    }
    let messages = heard(listener, SOON);
    // A round of the keeper for something else may have come between two changes of one statement.
    assert!((1..=2).contains(&messages.len()), "{statements:?}: {messages:?}");
    assert!(messages.iter().all(|message| message == queue), "{statements:?}: {messages:?}");
}

#[test]
fn a_listener_hears_of_every_way_to_become_claimable() {
    let (_database, mut listener, mut client) = set_up("ways");
    let claim_for = |queue: &str, lease: &str| {
        format!("select 1 / count(*) from taskq.claim(1, array['{queue}'], lease => '{lease}')")
    };
    let running = |queue: &str, verb: &str| {
        format!("select taskq.{verb} from taskq.task t where t.queue = '{queue}' and t.state = 'running'")
    };
    let mut tells = |queue: &str, statements: &[&str]| tells(&mut listener, &mut client, queue, statements);
    tells("now", &["select taskq.enqueue('t', queue => 'now')"]);
    tells("due", &["select taskq.enqueue('t', queue => 'due', delay => '0.7 s')"]);
    tells(
        "many",
        &[
            "select taskq.enqueue_many('[{\"task_type\": \"t\", \"queue\": \"many\"}, {\"task_type\": \"u\", \"queue\": \"many\"}]')",
        ],
    );
    tells("named", &["select taskq.enqueue('t', queue => 'named')"]);
    tells("named", &[&claim_for("named", "1 h"), &running("named", "release(t.id, t.token)")]);
    tells("named", &[&claim_for("named", "1 h"), &running("named", "release(t.id, t.token, '0.7 s')")]);
    tells(
        "named",
        &[&claim_for("named", "1 h"), &running("named", "fail(t.id, t.token, retry_in => '0.7 s')")],
    );
    tells(
        "named",
        &[
            &claim_for("named", "1 h"),
            &running("named", "fail(t.id, t.token, retry => false)"),
            "select taskq.redrive('named')",
        ],
    );
    tells("named", &["select taskq.pause('named')", "select taskq.resume('named')"]);
    tells(
        "key",
        &[
            "select taskq.enqueue('t', queue => 'key', unique_key => '1', delay => '1 hour')",
            "select taskq.enqueue('t', queue => 'key', unique_key => '1', on_conflict => 'replace')",
        ],
    );
    // And of what comes behind a long name, or one that must be quoted.
    let odd = format!("é \"{}", "x".repeat(50));
    tells(&odd, &[&format!("select taskq.enqueue('t', queue => '{odd}')")]);
}

#[test]
fn tasks_that_become_due_one_after_the_other_are_each_told_of() {
    let (_database, mut listener, mut client) = set_up("due");
    client.run(
        "select taskq.enqueue('t', queue => 'q' || n, delay => make_interval(secs => 0.3 * n)) from generate_series(1, 8) n",
    );
    // (Where the machine halts for a moment, two are due together, and told of in any order.)
    let told: BTreeSet<String> = (1..=8).map(|_| heard_one(&mut listener)).collect();
    assert_eq!(told, (1..=8).map(|n| format!("q{n}")).collect());
    // A nearer one is not kept waiting by a later one that came first.
    client.run("select taskq.enqueue('t', queue => 'late', delay => '1 hour')");
    client.run("select taskq.enqueue('t', queue => 'near', delay => '0.5 s')");
    assert_eq!(heard_one(&mut listener), "near");
}

fn heard_one(listener: &mut Client) -> String {
    let patience = Duration::from_secs_f64(SOON);
    let message = listener.notifications().timeout_iter(patience).next().expect("listen");
    message.expect("a message in time").payload().to_owned()
}

/// While the keeper counts what has become due, it must not miss what comes.
#[test]
fn what_is_enqueued_while_many_tasks_become_due_is_told_of() {
    let (_database, mut listener, mut client) = set_up("meanwhile");
    client.run(
        "select count(*) from taskq.enqueue_many((select jsonb_agg(jsonb_build_object(
           'task_type', 't', 'queue', 'many', 'run_at', now() + interval '15 s')) from generate_series(1, 300000)))",
    );
    let due = "select extract(epoch from min(run_at) - clock_timestamp())::float8 from taskq.task where queue = 'many'";
    pause(client.value::<f64>(due, &[]).max(0.0));
    for queue in 0..300 {
        client.run(&format!("select taskq.enqueue('t', queue => 'now {queue}')"));
    }
    let mut heard: BTreeSet<String> = heard(&mut listener, SOON).into_iter().collect();
    assert!(heard.remove("many"), "{heard:?}");
    heard.remove("first");
    assert_eq!(heard.len(), 300, "{heard:?}");
}

#[test]
fn a_paused_queue_is_not_told_of_before_it_is_resumed() {
    let (_database, mut listener, mut client) = set_up("paused");
    client.run("select taskq.enqueue('t', queue => 'p'); select taskq.pause('p')");
    heard(&mut listener, 1.0);
    client.run("select taskq.enqueue('t', queue => 'p')");
    client.run("select taskq.enqueue('t', queue => 'p', delay => '0.3 s')");
    assert_eq!(heard(&mut listener, 1.5), [""; 0]);
    // Others are told of meanwhile.
    tells(&mut listener, &mut client, "other", &["select taskq.enqueue('t', queue => 'other')"]);
    tells(&mut listener, &mut client, "p", &["select taskq.resume('p')"]);
}

#[test]
fn e06_the_producer_itself_notifies_nobody() {
    let database = SERVER.empty_database("silent");
    let mut client = database.connect();
    client.run("alter database silent set taskq.keeper = off");
    let mut client = {
        client.run("create extension taskq");
        database.connect()
    };
    eventually("there is no keeper", 30, || {
        client.value(
            "select count(*) = 0 from pg_stat_activity where backend_type = 'taskq keeper' and datname = 'silent'",
            &[],
        )
    });
    let mut listener = database.connect();
    listener.run("listen taskq_ready");
    client.run("select taskq._wake()");
    client.run("select taskq.enqueue('t', queue => 'q')");
    // A transaction that has sent a notification cannot be prepared.
    client.run("begin; select taskq.enqueue('t', queue => 'q')");
    client.run("select taskq.enqueue_many('[{\"task_type\": \"t\", \"queue\": \"q\"}]')");
    // What a worker makes claimable again is told of by the keeper, too.
    client.run("select taskq.release(c.id, c.token) from taskq.claim(1, array['q']) c");
    client
        .run("select f.* from taskq.claim(1, array['q']) c, taskq.fail(c.id, c.token, retry_in => '0 s') f");
    client.run("prepare transaction 'silent'");
    client.run("commit prepared 'silent'");
    assert_eq!(heard(&mut listener, 1.0), [""; 0]);
    client.run("select taskq._wake()");
    assert_eq!(heard(&mut listener, SOON), ["q"]);
}

#[test]
fn prepared_transactions_and_ended_leases_are_found_and_told_of() {
    // Nothing tells of it: the keeper finds it when it looks around.
    let server = Server::start("wake_prepared", &["max_prepared_transactions = 10"]);
    let (_database, mut listener, mut client) = set_up_in(&server, "prepared");
    client.run("begin; select taskq.enqueue('t', queue => 'at_once')");
    client.run("prepare transaction 'at once'");
    client.run("commit prepared 'at once'");
    hears(&mut listener, "at_once");
    // The same when the keeper has looked many times before the commit.
    client.run("begin; select taskq.enqueue('t', queue => 'later')");
    client.run("prepare transaction 'later'");
    assert!(!heard(&mut listener, 3.5).contains(&"later".to_owned()));
    client.run("commit prepared 'later'");
    hears(&mut listener, "later");
    // So is a lease that is over.
    client.run("select taskq.claim(1, array['later'], lease => '0.7 s')");
    hears(&mut listener, "later");
}

#[test]
fn e03_a_burst_is_told_of_ten_times_a_second_at_most() {
    const SESSIONS: usize = 4;
    let (database, mut listener, mut client) = set_up("burst");
    let begin = Instant::now();
    thread::scope(|scope| {
        for _ in 0..SESSIONS {
            let mut producer = database.connect();
            scope.spawn(move || {
                producer.run(
                    "do $$ begin
                       for i in 1 .. 5000 loop
                         perform taskq.enqueue('t', queue => 'burst');
                         commit;
                       end loop;
                     end $$",
                );
            });
        }
    });
    let seconds = begin.elapsed().as_secs_f64();
    let count = client.value::<i64>("select count(*) from taskq.task where queue = 'burst'", &[]);
    assert_eq!(count, 20_000);
    let messages = heard(&mut listener, SOON).len();
    assert!((1..=(10.0 * seconds) as usize + 2).contains(&messages), "{messages} in {seconds} s");

    // A large transaction is one event.
    client.run("begin");
    for _ in 0..40 {
        client.run(
            "select count(*) from taskq.enqueue_many(
               (select jsonb_agg('{\"task_type\": \"t\", \"queue\": \"large\"}'::jsonb) from generate_series(1, 5000)))",
        );
    }
    client.run("commit");
    let messages = heard(&mut listener, SOON);
    assert!((1..=2).contains(&messages.len()) && messages[0] == "large", "{messages:?}");
}

/// There is room for 2,048 pairs of queue and type. What goes on in others has the keeper look at every queue: once a
/// second at most.
#[test]
fn e03_queues_that_no_figure_tells_of_are_told_of_once_a_second_at_most() {
    let server = Server::start("untracked", &["taskq.keeper_interval = '60 s'"]);
    let (_database, mut listener, mut client) = set_up_in(&server, "untracked");
    client.run("select taskq.enqueue('t', queue => 'q' || n) from generate_series(1, 2199) n");
    client.run("select taskq.enqueue('t', queue => 'q2200')");
    eventually("the last is told of", 30, || heard(&mut listener, SOON).contains(&"q2200".to_owned()));
    let begin = Instant::now();
    while begin.elapsed().as_secs_f64() < 3.0 {
        client.run("select taskq.enqueue('t', queue => 'q2200')");
        pause(0.02);
    }
    let heard = heard(&mut listener, SOON);
    let told = |queue: &str| heard.iter().filter(|heard| *heard == queue).count();
    let most = begin.elapsed().as_secs_f64() as usize + 2;
    assert!((1..=most).contains(&told("q2200")), "{} messages", told("q2200"));
    assert!(told("q1") <= most, "{} messages about a queue in which nothing happens", told("q1"));
}

/// A worker that listens, claims, and sleeps until it hears something: whenever the producer begins, enqueues
/// and commits, the worker has the task with its first claim or with the one after a message.
#[test]
fn e05_a_worker_that_listens_before_it_claims_misses_nothing() {
    let (database, _listener, mut producer) = set_up("between");
    let steps = ["begin", "select taskq.enqueue('t', queue => 'work')", "commit"];
    // How many of the producer's steps come before LISTEN, and how many before the claim.
    for (before_listen, before_claim) in
        (0..=3).flat_map(|listen| (listen..=3).map(move |claim| (listen, claim)))
    {
        let mut worker = database.connect();
        let mut run = |from: usize, to: usize| steps[from..to].iter().for_each(|step| producer.run(step));
        run(0, before_listen);
        worker.run("listen taskq_ready");
        run(before_listen, before_claim);
        let claim = "select id from taskq.claim(1, array['work'])";
        let mut claimed = worker.column::<i64>(claim, &[]);
        run(before_claim, 3);
        assert_eq!(claimed.len(), usize::from(before_claim == 3), "{before_listen}, {before_claim}");
        if claimed.is_empty() {
            hears(&mut worker, "work");
            claimed = worker.column::<i64>(claim, &[]);
        }
        assert_eq!(claimed.len(), 1, "{before_listen}, {before_claim}");
    }
}

/// What was rolled back to a savepoint never was: nobody is told of it, and it is not counted.
#[test]
fn a06_what_is_rolled_back_to_a_savepoint_is_neither_told_of_nor_counted() {
    let (_database, mut listener, mut client) = set_up("savepoint");
    client.run("select taskq.enqueue('t', queue => 'q')");
    assert_eq!(heard(&mut listener, SOON), ["q"]);
    // (Not those of the view, which shows queues that have tasks.)
    let counts = "select string_agg(format('%s %s %s', queue, ready, running), ', ' order by queue) from taskq._figures()
                   where queue <> 'first' and ready + scheduled + running <> 0";
    assert_eq!(client.value::<String>(counts, &[]), "q 1 0");
    client.run("begin; savepoint a; select taskq.enqueue('t', queue => 'ghost', unique_key => 'k')");
    client.run("select from taskq.claim(1, array['q']); rollback to a");
    client.run("savepoint b; select taskq.enqueue('t', queue => 'ghost'); release b; rollback to a");
    client.run("select taskq.enqueue('t', queue => 'kept')");
    client.run("commit");
    // (The claim was given back: whoever was told of q before need not be told again.)
    let messages = heard(&mut listener, SOON);
    assert!(messages.contains(&"kept".to_owned()), "{messages:?}");
    assert!(!messages.contains(&"ghost".to_owned()), "{messages:?}");
    assert_eq!(client.value::<String>(counts, &[]), "kept 1 0, q 1 0");
    assert!(client.value::<bool>("select bool_and(exact) from taskq.queues", &[]));
    client.run("begin; select taskq.enqueue('t', queue => 'ghost'); rollback");
    assert_eq!(heard(&mut listener, 1.0), [""; 0]);
}

/// A listener that never reads what it is told.
#[test]
fn e03_a_listener_that_never_reads_hinders_neither_producers_nor_vacuum() {
    let (database, _heard, mut client) = set_up("deaf");
    // Nothing reads from its socket before it is asked again.
    let mut deaf = database.connect();
    let pid = deaf.pid();
    deaf.run("listen taskq_ready");
    let begin = Instant::now();
    for _ in 0..40 {
        client.run(
            "select count(*) from taskq.enqueue_many(
               (select jsonb_agg('{\"task_type\": \"t\", \"queue\": \"many\"}'::jsonb) from generate_series(1, 5000)))",
        );
    }
    client.run("select taskq.purge('ready', 'many')");
    let rest = "select count(*) from taskq.task where queue = 'many'";
    while client.value::<i64>(rest, &[]) > 0 {
        client.run("select taskq.purge('ready', 'many')");
    }
    // It has no transaction, so its snapshot holds back nothing.
    let idle = "select state = 'idle' and backend_xmin is null and backend_xid is null from pg_stat_activity where pid = $1";
    eventually("it is idle", 30, || client.value::<bool>(idle, &[&pid]));
    let dead = "select pg_stat_get_dead_tuples('taskq.task'::regclass)";
    eventually("vacuum removes what is dead", 60, || {
        client.run("vacuum taskq.task");
        client.value::<i64>(dead, &[]) == 0
    });
    // The pages at the end cannot go while pointers to dead rows stand in them, and a vacuum that finds them in less than
    // 2 % of all pages leaves these pointers where they are: autovacuum may have cleaned the others.
    let size = "select pg_relation_size('taskq.task') < 1000000";
    eventually("the table is small again", 60, || {
        client.run("vacuum (truncate, index_cleanup on) taskq.task");
        client.value::<bool>(size, &[])
    });
    let seconds = begin.elapsed().as_secs_f64();
    let told = heard(&mut deaf, 1.0).len();
    assert!((1..=(10.0 * seconds) as usize + 2).contains(&told), "{told} messages in {seconds} s");
}

#[test]
fn a_round_that_fails_at_its_end_is_noted_and_what_it_was_to_tell_is_told_later() {
    let (_database, mut listener, mut client) = set_up("broken");
    let keepers =
        "select pid from pg_stat_activity where backend_type = 'taskq keeper' and datname = 'broken'";
    // (Another one may just find that it is not needed.)
    eventually("there is one keeper", 30, || client.column::<i32>(keepers, &[]).len() == 1);
    let keeper: i32 = client.value(keepers, &[]);
    // Every round ends with an error, but where the duty cannot catch it: nothing may be left to its commit.
    client.run(
        "create function break() returns trigger language plpgsql as
           $$ begin raise exception 'broken' using errcode = 'XX002'; end $$;
         create constraint trigger break after update on taskq.duty deferrable initially deferred
           for each row when (new.name = 'wake' and new.error is null) execute function break();
         update taskq.duty set error = 'none yet' where name = 'wake';",
    );
    client.run("select taskq.enqueue('t', queue => 'q')");
    let error = "select error from taskq.duties where duty = 'wake'";
    eventually("the failure is noted", 30, || {
        client.value::<Option<String>>(error, &[]).is_some_and(|error| error.contains("42501"))
    });
    let at = "select error_at::text from taskq.duties where duty = 'wake'";
    for _ in 0..3 {
        let before: String = client.value(at, &[]);
        client.run("select taskq.enqueue('t', queue => 'q')");
        eventually("it is tried again", 30, || client.value::<String>(at, &[]) != before);
    }
    assert_eq!(heard(&mut listener, 0.5), [""; 0]);
    assert_eq!(SERVER.log().matches("taskq duty wake failed with SQLSTATE 42501").count(), 1);
    client.run("drop trigger break on taskq.duty");
    assert!(heard(&mut listener, SOON).contains(&"q".to_owned()), "told when it is mended");
    eventually("the failure is over", 30, || client.value::<Option<String>>(error, &[]).is_none());
    assert_eq!(client.value::<i32>(keepers, &[]), keeper, "the keeper lived on");
}

#[test]
fn a_keeper_that_comes_back_tells_of_what_happened_meanwhile() {
    let (_database, mut listener, mut client) = set_up("back");
    let mut keeper = || {
        client.column::<i32>(
            "select pid from pg_stat_activity where backend_type = 'taskq keeper' and datname = 'back'",
            &[],
        )
    };
    pause(2.5); // one that ends before the launcher has seen it is a case of its own
    let before = keeper();
    listener.run(&format!(
        "select pg_terminate_backend({}); select taskq.enqueue('t', queue => 'meanwhile', delay => '0.5 s')",
        before[0]
    ));
    eventually("there is a new keeper", 30, || keeper().first().is_some_and(|pid| !before.contains(pid)));
    hears_within(KEEPER_STARTS, &mut listener, "meanwhile");
}
