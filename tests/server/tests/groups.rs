//! Groups under load: at most one task of each runs, in order, and no turn is ever lost, whatever the
//! sessions do.

use postgres::{Client, Error};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use taskq_server_tests::{Database, Random, Server, Session, Shared, eventually, pause};

static SERVER: Shared = Shared::new("groups", &["taskq.keeper = off", "deadlock_timeout = '200 ms'"]);

const GROUPS: i32 = 40;
const TASKS: i32 = 4_000;
const SESSIONS: u64 = 16;
/// A waiter looks for itself after so long.
const LOOKS_ANYWAY: Duration = Duration::from_secs(5);

/// What is wrong with groups at one moment.
const UNSOUND: &str = "
    select count(*) || ' tasks of ' || t.group_key || ' run' from taskq.task t
     where t.state = 'running' and t.group_key is not null group by t.queue, t.group_key having count(*) > 1
    union all
    select 'task ' || t.id || ' runs without its turn' from taskq.task t
     where t.state = 'running' and t.group_key is not null
       and not exists (select from taskq.group_turn g where (g.queue, g.group_key, g.task_id) = (t.queue, t.group_key, t.id))
    union all
    select 'the turn of ' || g.group_key || ' is with task ' || g.task_id || ', which does not run' from taskq.group_turn g
     where g.task_id is not null and not exists (select from taskq.task t where t.id = g.task_id and t.state = 'running')
    union all
    select 'task ' || coalesce(t.id, p.id) || ' is parked only half' from taskq.parked p
      full join (select id from taskq.task where state = 'waiting' and run_at = 'infinity') t using (id) where p.id is null or t.id is null";

/// Parked tasks of groups that have nobody to let them return: no turn, and no task that is due or will be.
const LOST: &str = "
    select 'nobody will unpark ' || p.id from taskq.parked p
     where not exists (select from taskq.group_turn g where (g.queue, g.group_key) = (p.queue, p.group_key) and g.task_id is not null)
       and not exists (select from taskq.task t where (t.queue, t.group_key) = (p.queue, p.group_key) and t.run_at < 'infinity')";

/// A worker that does everything that workers and operators do, and not always to the end.
struct Worker<'a> {
    database: &'a Database<'a>,
    client: Client,
    random: Random,
    held: Vec<(i64, i64)>,
    /// Nobody does more than one verb in a transaction.
    single: bool,
    in_transaction: bool,
}

impl<'a> Worker<'a> {
    fn new(database: &'a Database<'a>, seed: u64, single: bool) -> Self {
        let (client, random) = (database.connect(), Random::new(seed));
        Worker { database, client, random, held: Vec::new(), single, in_transaction: false }
    }

    fn round(&mut self) {
        if !self.single && self.random.one_in(3) {
            self.in_transaction = true;
            self.client.run("begin");
            let before = self.held.clone();
            let mut ended = false;
            for _ in 0..=self.random.below(3) {
                let saved = self.random.one_in(3).then(|| self.held.clone());
                if saved.is_some() {
                    self.client.run("savepoint s");
                }
                if self.step().is_err() {
                    ended = true;
                    break;
                }
                if let Some(held) = saved
                    && self.random.one_in(2)
                {
                    self.client.run("rollback to s");
                    self.held = held;
                }
            }
            self.in_transaction = false;
            if ended || self.random.one_in(4) {
                self.held = before;
                if self.random.one_in(8) {
                    // The session ends in its transaction.
                    let _ = self.client.execute("select pg_terminate_backend(pg_backend_pid())", &[]);
                    self.client = self.database.connect();
                } else {
                    self.client.run("rollback");
                }
            } else {
                self.client.run("commit");
            }
        } else if let Err(error) = self.step() {
            panic!("in a transaction of its own: {error:?}");
        }
        if self.random.one_in(60) {
            self.held.clear(); // Forgotten: their leases end.
        }
    }

    /// One verb. A task that is not ours any more is no error.
    fn step(&mut self) -> Result<(), Error> {
        let result = self.verb();
        let Some(code) = result.as_ref().err().and_then(Error::code) else { return result };
        match code.code() {
            "TQ001" if !self.in_transaction => Ok(()),
            "TQ001" => result,
            // (A transaction that has claimed, and so put tasks aside, and then ends others may deadlock with
            // another end, and either be told.)
            "40P01" if self.in_transaction => result,
            "40P01" if !self.single => Ok(()),
            _ => panic!("{result:?}"),
        }
    }

    fn verb(&mut self) -> Result<(), Error> {
        if self.held.is_empty() || self.random.one_in(3) {
            let n = 1 + self.random.below(5) as i32;
            let lease = 0.2 + self.random.below(20) as f64 / 10.0;
            let claim = "select id, token from taskq.claim($1, null, null, make_interval(secs => $2))";
            let rows = self.client.query(claim, &[&n, &lease])?;
            self.held.extend(rows.iter().map(|row| (row.get::<_, i64>(0), row.get::<_, i64>(1))));
            if rows.is_empty() {
                pause(0.005);
            }
            return Ok(());
        }
        let (id, token) = self.held.swap_remove(self.random.below(self.held.len() as u64) as usize);
        let wait = self.random.below(10) as f64 / 50.0;
        let client = &mut self.client;
        match self.random.below(12) {
            0 => client.execute(
                "select taskq.fail($1, $2, 'oops', make_interval(secs => $3))",
                &[&id, &token, &wait],
            ),
            1 => client.execute("select taskq.release($1, $2)", &[&id, &token]),
            2 => client.execute("select taskq.cancel($1, force => true)", &[&id]),
            3 => client.execute("select taskq._recover(10)", &[]),
            // Any one, be it parked; not in a longer transaction, as its end might come while this is open.
            4 if !self.in_transaction => client.execute(
                "select taskq.cancel((select id from taskq.task where state = 'waiting' offset $1 limit 1))
                  where exists (select from taskq.task where state = 'waiting' offset $1)",
                &[&i64::from(self.random.below(50) as i32)],
            ),
            5 | 6 => {
                let (mut ids, mut tokens): (Vec<i64>, Vec<i64>) = self.held.drain(..).unzip();
                ids.push(id);
                tokens.push(token);
                client.execute("select count(*) from taskq.complete_many($1, $2)", &[&ids, &tokens])
            }
            7 => client.execute("select count(*) from taskq.fail_many($1, $2)", &[&vec![id], &vec![token]]),
            _ => client.execute("select taskq.complete($1, $2)", &[&id, &token]),
        }
        .map(|_| ())
    }
}

#[test]
fn of_each_group_one_task_runs_and_all_tasks_come_to_their_end() {
    storm(&SERVER.database("storm"), false);
}

#[test]
fn verbs_in_transactions_of_their_own_meet_no_deadlock() {
    let database = SERVER.database("single");
    storm(&database, true);
    let deadlocks = "select deadlocks from pg_stat_database where datname = current_database()";
    assert_eq!(database.connect().value::<i64>(deadlocks, &[]), 0);
}

fn storm(database: &Database, single: bool) {
    let mut client = database.connect();
    client.run("select taskq.configure_type('t', '{\"backoff_base\": \"0.05 s\", \"backoff_factor\": 1, \"max_retries\": 100000}')");
    client.execute(
        "select count(taskq.enqueue('t', queue => 'q', group_key => case when n % 5 > 0 then 'g' || n % $1 end))
           from generate_series(1, $2) n",
        &[&GROUPS, &TASKS],
    )
    .expect("enqueue");
    let seed = Random::seed();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let over = &over;
        let observer = scope.spawn(move || {
            let mut client = database.connect();
            let mut looks = 0;
            while !over.load(Ordering::Relaxed) {
                assert_eq!(client.column::<String>(UNSOUND, &[]), Vec::<String>::new(), "look {looks}");
                looks += 1;
            }
            looks
        });
        let workers: Vec<_> = (0..SESSIONS)
            .map(|number| {
                scope.spawn(move || {
                    let mut worker = Worker::new(database, seed + number, single);
                    let begin = Instant::now();
                    while begin.elapsed() < Duration::from_secs(10) {
                        worker.round();
                    }
                })
            })
            .collect();
        let failed = workers.into_iter().map(|worker| worker.join()).filter(Result::is_err).count();
        over.store(true, Ordering::Relaxed);
        assert!(observer.join().expect("the observer") > 10, "it has looked too rarely");
        assert_eq!(failed, 0, "workers failed");
    });
    let states = "select state || ' ' || count(*) from taskq.tasks group by state order by state";
    println!("left: {:?}", client.column::<String>(states, &[]));
    assert_eq!(client.column::<String>(LOST, &[]), Vec::<String>::new());

    // What is left comes to its end without anybody's help.
    eventually("everything has finished", 60, || {
        client.run("select taskq._recover(1000)");
        let (ids, tokens): (Vec<i64>, Vec<i64>) = client.claim(1000).into_iter().unzip();
        client
            .execute("select count(*) from taskq.complete_many($1, $2)", &[&ids, &tokens])
            .expect("complete");
        assert_eq!(client.column::<String>(UNSOUND, &[]), Vec::<String>::new());
        client.value::<i64>("select count(*) from taskq.task where run_at < 'infinity'", &[]) == 0
    });
    assert_eq!(client.column::<String>(states, &[]), Vec::<String>::new());
    let rest = "select (select count(*) from taskq.parked) + (select count(task_id) from taskq.group_turn)";
    assert_eq!(client.value::<i64>(rest, &[]), 0);
    assert_eq!(client.value::<i64>("select count(*) from taskq.done", &[]), i64::from(TASKS));

    // Those that never failed ran in their order. (A claim notes when it began, which may be long before it
    // takes a task; but a task ends before the next of its group is claimed.)
    let out_of_order = "
        select format('task %s of %s finished at %s, task %s at %s', s.id, s.group_key, s.finished_at, s.before, s.finished_before)
          from (select d.id, d.group_key, d.finished_at, lag(d.id) over g as before, lag(d.finished_at) over g as finished_before
                  from taskq.done d
                 where d.group_key is not null and d.state = 'succeeded' and d.attempt = 1
                window g as (partition by d.group_key order by d.run_at, d.id)) s
         where s.finished_at < s.finished_before";
    assert_eq!(client.column::<String>(out_of_order, &[]), Vec::<String>::new());
    let compared =
        "select count(*) from taskq.done where group_key is not null and state = 'succeeded' and attempt = 1";
    assert!(client.value::<i64>(compared, &[]) > 300, "too few tasks never failed");
    // The duty forgets the turns.
    client.run("select taskq._duty_limits()");
    assert_eq!(client.value::<i64>("select count(*) from taskq.group_turn", &[]), 0);
}

#[test]
fn many_new_groups_are_claimed_by_open_transactions_at_once() {
    let database = SERVER.database("open");
    let mut client = database.connect();
    client.run("select taskq.enqueue('t', group_key => 'g' || n) from generate_series(1, 60) n");
    let mut sessions: Vec<Client> = (0..SESSIONS).map(|_| database.connect()).collect();
    for (number, session) in sessions.iter_mut().enumerate() {
        session.run("begin");
        assert_eq!(session.claim(1).len(), 1, "session {number}");
    }
    for session in &mut sessions {
        session.run("commit");
    }
    assert_eq!(client.column::<String>(UNSOUND, &[]), Vec::<String>::new());
    assert_eq!(client.value::<i64>("select count(*) from taskq.task where state = 'running'", &[]), 16);
}

#[test]
fn a12_a_task_that_is_due_later_holds_nobody_of_its_group_up() {
    const SESSIONS: usize = 12;
    let database = SERVER.database("line");
    let mut client = database.connect();
    // The first of its group in every respect but one.
    client.run("select taskq.enqueue('later', group_key => 'k', priority => 9, delay => '7 days')");
    client.run("select count(taskq.enqueue('t', group_key => 'k')) from generate_series(1, 100)");
    let running = AtomicUsize::new(0);
    let begin = Instant::now();
    let work = || {
        let mut client = database.connect();
        let mut mine = 0;
        while client.value::<i64>("select count(*) from taskq.done", &[]) < 300 {
            assert!(begin.elapsed() < Duration::from_secs(100), "the group has come to a stop");
            let tasks = client.claim(3);
            assert!(tasks.len() <= 1, "{tasks:?}");
            for (id, token) in tasks {
                assert_eq!(running.fetch_add(1, Ordering::SeqCst), 0, "two of the group run");
                // (Long enough for another one to begin, if it could.)
                pause(0.002);
                running.fetch_sub(1, Ordering::SeqCst);
                client.complete(id, token).expect("complete");
                mine += 1;
            }
        }
        mine
    };
    let each: Vec<i32> = thread::scope(|scope| {
        let threads: Vec<_> = (0..SESSIONS).map(|_| scope.spawn(work)).collect();
        // The others come while one runs, and nobody has put them aside.
        for _ in 0..200 {
            client.run("select taskq.enqueue('t', group_key => 'k')");
        }
        threads.into_iter().map(|thread| thread.join().expect("a worker failed")).collect()
    });
    assert_eq!(each.iter().sum::<i32>(), 300, "{each:?}");
    assert_eq!(client.column::<String>("select state from taskq.tasks", &[]), ["scheduled"]);
    let order = "select bool_and(id > before) from (select id, lag(id, 1, 0::bigint) over (order by finished_at) as before from taskq.done) d";
    assert!(client.value::<bool>(order, &[]), "they ran in their order");
}

/// Whoever waits is woken when a turn is passed on, and the figures are those of the table.
#[test]
fn a_waiter_is_woken_when_a_turn_is_passed_on() {
    let server = Server::start("groupwait", &[]);
    let database = server.database("wait");
    let mut client = database.connect();
    client.run("select taskq.enqueue('t', group_key => 'g') from generate_series(1, 5)");
    let counted = "select count(*) = 1 from taskq._figures_state() where exact";
    eventually("the keeper counts", 60, || client.value(counted, &[]));
    assert_eq!(client.claim(1).len(), 1);
    assert_eq!(client.claim(10), [], "the others are blocked");
    let figures = "select format('%s %s %s %s', sum(ready), sum(scheduled), sum(running), sum(blocked)) from taskq._figures()";
    assert_eq!(client.value::<String>(figures, &[]), "0 0 1 4");
    for turn in [
        "select taskq.complete($1, $2)",
        "select taskq.fail($1, $2, retry_in => '1 hour')",
        "select taskq.cancel($1, force => true) where $2 > 0::bigint",
    ] {
        let mut held =
            client.query("select id, token from taskq.task where state = 'running'", &[]).expect("held");
        let (id, token): (i64, i64) = held.pop().map(|row| (row.get(0), row.get(1))).expect("one");
        let mut other = database.connect();
        let pid = other.pid();
        let waiting = thread::spawn(move || {
            let begin = Instant::now();
            other.run("call taskq.wait(array['default'], '100 s')");
            (begin.elapsed(), other.claim(10).len())
        });
        let asleep = "select count(*) = 1 from pg_stat_activity where pid = $1 and wait_event = 'Extension'";
        eventually("it waits", 30, || client.value(asleep, &[&pid]));
        client.execute(turn, &[&id, &token]).expect(turn);
        let (time, claimed) = waiting.join().expect("the waiter");
        assert!(time < LOOKS_ANYWAY, "{turn}: nobody woke it for {time:?}");
        assert_eq!(claimed, 1, "{turn}");
    }
    assert_eq!(client.value::<String>(figures, &[]), "0 1 1 1");
    let table = "select format('%s %s %s %s', count(*) filter (where state = 'ready'), count(*) filter (where state = 'scheduled'),
                                count(*) filter (where state = 'running'), count(*) filter (where state = 'blocked')) from taskq.tasks";
    assert_eq!(client.value::<String>(table, &[]), "0 1 1 1");
    client.run("select taskq._wake()");
    assert_eq!(client.value::<String>(figures, &[]), "0 1 1 1");
}

/// Each of them has parked tasks of the group whose turn the other one takes back with a lease that is over.
#[test]
fn claims_that_park_tasks_and_take_leases_back_do_not_wait_for_each_other() {
    let database = SERVER.database("circle");
    let (mut one, mut other) = (database.connect(), database.connect());
    // By falling priority: one waits for group a and one for b, then the leases of a and b that are over.
    for (group, priority, lease) in [("b", 1, true), ("a", 2, true), ("b", 3, false), ("a", 4, false)] {
        one.run(&format!(
            "select taskq.enqueue('t', priority => {priority}, group_key => '{group}', headers => '{{\"lease\": {lease}}}')"
        ));
        if lease {
            assert_eq!(one.column::<i64>("select id from taskq.claim(1, lease => '1 ms')", &[]).len(), 1);
        }
    }
    // Who parks a task takes its time.
    one.run(
        "create function slow() returns trigger language plpgsql as $$ begin perform pg_sleep(1); return new; end $$;
         create trigger slow before insert on taskq.parked for each row execute function slow()",
    );
    let claim = "select id from taskq.claim(10, lease => '1 min')";
    let claimed = thread::scope(|scope| {
        let first = scope.spawn(|| one.query(claim, &[]).map(|rows| rows.len()));
        pause(0.5);
        let second = scope.spawn(|| other.query(claim, &[]).map(|rows| rows.len()));
        [first.join().expect("a claim"), second.join().expect("a claim")]
    });
    let claimed: usize = claimed.map(|claimed| claimed.expect("no deadlock")).iter().sum();
    one.run("drop trigger slow on taskq.parked");
    assert_eq!(claimed + one.query(claim, &[]).expect("a claim").len(), 2, "one of each group");
}
