//! A session that is idle after a call, whether that succeeded, was refused or was cancelled while it waited, has
//! no lock, no snapshot, no transaction, no changed setting and no temporary object.

use postgres::Client;
use taskq_server_tests::{Session, Shared, eventually, pause, sqlstate};

static SERVER: Shared = Shared::new("leftovers", &["autovacuum = off"]);

/// How a verb succeeds, how it is refused, and how it is made to wait. Words in capitals stand for `Things`.
struct Case {
    verb: &'static str,
    fine: &'static str,
    /// A call and its SQLSTATE; none if there is nothing to refuse.
    refused: Option<(&'static str, &'static str)>,
    /// What another transaction has done that the call waits for.
    waits_for: &'static str,
}

const fn case(
    verb: &'static str,
    fine: &'static str,
    refused: (&'static str, &'static str),
    waits_for: &'static str,
) -> Case {
    Case { verb, fine, refused: Some(refused), waits_for }
}

/// Calls that only look.
const fn look(
    verb: &'static str,
    fine: &'static str,
    refused: Option<(&'static str, &'static str)>,
    waits_for: &'static str,
) -> Case {
    Case { verb, fine, refused, waits_for }
}

const THE_RUNNING_TASK: &str = "select from taskq.task where id = RUNNING for update";
const THE_QUEUE: &str = "select from taskq.queue where name = 'queue N' for update";
const THE_SCHEDULE: &str = "select from taskq.schedule where name = 'schedule N' for update";
const ALL_TASKS: &str = "lock table taskq.task";
const GRANTED: &str = "lock table taskq.granted_part in exclusive mode";
const LIMIT: &str = "select taskq.configure_queue('queue N', '{\"max_running\": 4}')";

const CASES: &[Case] = &[
    case(
        "enqueue",
        "select taskq.enqueue('t', unique_key => 'key N')",
        ("select taskq.enqueue('t', priority => 101)", "22023"),
        "select taskq.enqueue('t', unique_key => 'key N')",
    ),
    case(
        "enqueue_many",
        "select * from taskq.enqueue_many('[{\"task_type\": \"t\"}, {\"task_type\": \"t\", \"unique_key\": \"key N\"}]')",
        ("select * from taskq.enqueue_many('[{\"task_type\": \"t\"}, {\"task_type\": 1}]')", "22023"),
        "select taskq.enqueue('t', unique_key => 'key N')",
    ),
    look("status", "select * from taskq.status(WAITING)", None, ALL_TASKS),
    look(
        "estimate",
        "select * from taskq.estimate('t')",
        Some(("select * from taskq.estimate('')", "22023")),
        ALL_TASKS,
    ),
    case(
        "cancel",
        "select taskq.cancel(RUNNING, force => true)",
        ("select taskq.cancel(RUNNING, repeat('x', 10000000))", "22023"),
        THE_RUNNING_TASK,
    ),
    // By then it has locked a task.
    case(
        "claim",
        "select * from taskq.claim(3, array['queue N'])",
        ("select * from taskq.claim(-1)", "22023"),
        "lock table taskq.group_turn in exclusive mode",
    ),
    case(
        "wait",
        "call taskq.wait(timeout => '10 ms')",
        ("call taskq.wait(timeout => '-1 s')", "22023"),
        ALL_TASKS,
    ),
    case(
        "extend",
        "select * from taskq.extend(RUNNING, TOKEN)",
        ("select * from taskq.extend(RUNNING, 0)", "TQ001"),
        THE_RUNNING_TASK,
    ),
    case(
        "complete",
        "select taskq.complete(RUNNING, TOKEN)",
        ("select taskq.complete(RUNNING, 0)", "TQ001"),
        THE_RUNNING_TASK,
    ),
    case(
        "complete_many",
        "select * from taskq.complete_many(array[RUNNING], array[TOKEN])",
        ("select * from taskq.complete_many('{1,2}', '{1}')", "22023"),
        THE_RUNNING_TASK,
    ),
    case(
        "fail",
        "select * from taskq.fail(RUNNING, TOKEN, 'trouble')",
        ("select * from taskq.fail(RUNNING, 0, 'trouble')", "TQ001"),
        THE_RUNNING_TASK,
    ),
    case(
        "fail_many",
        "select * from taskq.fail_many(array[RUNNING], array[TOKEN])",
        ("select * from taskq.fail_many('{1,2}', '{1}')", "22023"),
        THE_RUNNING_TASK,
    ),
    case(
        "release",
        "select taskq.release(RUNNING, TOKEN)",
        ("select taskq.release(RUNNING, 0)", "TQ001"),
        THE_RUNNING_TASK,
    ),
    case(
        "once",
        "select taskq.once('scope', 'key N')",
        ("select taskq.once('', 'key')", "22023"),
        "select taskq.once('scope', 'key N')",
    ),
    case(
        "configure_queue",
        LIMIT,
        ("select taskq.configure_queue('queue N', '{\"none\": 1}')", "22023"),
        THE_QUEUE,
    ),
    case(
        "configure_type",
        "select taskq.configure_type('type N', '{\"max_retries\": 4}')",
        ("select taskq.configure_type('type N', '{\"none\": 1}')", "22023"),
        "select from taskq.task_type where name = 'type N' for update",
    ),
    case("pause", "select taskq.pause('queue N')", ("select taskq.pause('')", "22023"), THE_QUEUE),
    case(
        "resume",
        "select taskq.resume('paused N')",
        ("select taskq.resume('')", "22023"),
        "select from taskq.queue where name = 'paused N' for update",
    ),
    case(
        "redrive",
        "select * from taskq.redrive(ids => array[DEAD])",
        ("select * from taskq.redrive()", "22023"),
        "lock table taskq.task in exclusive mode",
    ),
    case(
        "purge",
        "select taskq.purge('dead')",
        ("select taskq.purge('running')", "22023"),
        "select from taskq.dead_letter where id = DEAD for update",
    ),
    case(
        "schedule",
        "select taskq.schedule('schedule N', '@daily', 't')",
        ("select taskq.schedule('schedule N', '61 * * * *', 't')", "22023"),
        THE_SCHEDULE,
    ),
    case(
        "unschedule",
        "select taskq.unschedule('schedule N')",
        ("select taskq.unschedule('')", "22023"),
        THE_SCHEDULE,
    ),
    case(
        "acknowledge",
        "select taskq.acknowledge(ALERT)",
        ("select taskq.acknowledge(-1)", "22023"),
        "select from taskq.dead_letter where id = DEAD for update",
    ),
    // (A round begins with the leases that are over.)
    case("maintain", "call taskq.maintain()", ("select 1; call taskq.maintain()", "2D000"), ALL_TASKS),
    look("why", "select * from taskq.why(WAITING)", None, ALL_TASKS),
    look("diagnose", "select * from taskq.diagnose()", None, ALL_TASKS),
    look("health", "select * from taskq.health()", None, "lock table taskq.duty"),
    look("metrics", "select taskq.metrics()", None, "lock table taskq.duty"),
    look("dashboard", "select taskq.dashboard()", None, "lock table taskq.duty"),
    case(
        "grant_producer",
        "select taskq.grant_producer('somebody')",
        ("select taskq.grant_producer(null)", "22023"),
        GRANTED,
    ),
    case(
        "grant_worker",
        "select taskq.grant_worker('somebody')",
        ("select taskq.grant_worker(null)", "22023"),
        GRANTED,
    ),
    case(
        "grant_operator",
        "select taskq.grant_operator('somebody')",
        ("select taskq.grant_operator(null)", "22023"),
        GRANTED,
    ),
    case(
        "grant_reader",
        "select taskq.grant_reader('somebody')",
        ("select taskq.grant_reader(null)", "22023"),
        GRANTED,
    ),
];

/// What a call finds, new for each.
struct Things {
    number: u32,
    running: (i64, i64),
    waiting: i64,
    dead: i64,
    alert: i64,
}

impl Things {
    fn make(client: &mut Client, number: u32) -> Things {
        client.run(&format!(
            "select taskq.purge('dead'); select taskq.purge('ready');
             select taskq.configure_type('type {number}', '{{\"max_retries\": 3}}');
             select taskq.configure_queue('queue {number}', '{{\"max_running\": 3}}');
             select taskq.pause('paused {number}');
             select taskq.schedule('schedule {number}', '@hourly', 't');
             select taskq.enqueue('t', queue => 'queue {number}') from generate_series(1, 2)"
        ));
        let claim = format!("select id, token from taskq.claim(1, array['queue {number}'])");
        let mut claim = || client.query_one(&claim, &[]).map(|row| (row.get(0), row.get(1))).expect("claim");
        let (dying, running): ((i64, i64), (i64, i64)) = (claim(), claim());
        client.run(&format!("select taskq.fail({}, {}, 'no use', retry => false)", dying.0, dying.1));
        let enqueue =
            format!("select taskq.enqueue('t', queue => 'queue {number}', group_key => 'group {number}')");
        let alert = "insert into taskq.alert (kind, queue, value, alert_limit, raised_at)
                     values ('dead_letters', $1, 5, 3, now()) returning id";
        Things {
            number,
            running,
            waiting: client.value(&enqueue, &[]),
            dead: dying.0,
            alert: client.value(alert, &[&format!("queue {number}")]),
        }
    }

    fn named_in(&self, sql: &str) -> String {
        let words = [
            ("RUNNING", self.running.0),
            ("TOKEN", self.running.1),
            ("WAITING", self.waiting),
            ("DEAD", self.dead),
            ("ALERT", self.alert),
        ];
        let sql =
            words.iter().fold(sql.to_owned(), |sql, (word, number)| sql.replace(word, &number.to_string()));
        sql.replace(" N'", &format!(" {}'", self.number)).replace(" N\"", &format!(" {}\"", self.number))
    }
}

/// What an idle session has, as another one sees it: it should be nothing.
const LEFT: &str = "
    select format('%s on %s', l.mode, coalesce(l.relation::regclass::text, l.locktype)) from pg_locks l where l.pid = $1
    union all
    select format('xid %s, xmin %s', a.backend_xid, a.backend_xmin) from pg_stat_activity a
     where a.pid = $1 and (a.backend_xid is not null or a.backend_xmin is not null)
    union all
    select format('it is %s', a.state) from pg_stat_activity a where a.pid = $1 and a.state <> 'idle'
    union all
    select 'it is gone' where not exists (select from pg_stat_activity a where a.pid = $1)";

const SETTINGS: &str = "select format('%s = %s (%s)', name, setting, source) from pg_settings order by name";

const OWN: &str = "
    select format('temporary object %s', c.oid::regclass) from pg_class c where c.relnamespace = pg_my_temp_schema()
    union all select 'a temporary schema' where pg_my_temp_schema() <> 0
    union all select 'cursor ' || name from pg_cursors where name <> ''
    union all select 'it listens to ' || channel from pg_listening_channels() channel";

/// A session that calls, and one that looks at it.
struct Pair {
    caller: Client,
    pid: i32,
    settings: Vec<String>,
    observer: Client,
}

impl Pair {
    fn new(mut caller: Client, observer: Client) -> Pair {
        // PL/pgSQL brings settings of its own when it is loaded.
        caller.run("do $$ begin end $$; load 'taskq'");
        let (pid, settings) = (caller.pid(), caller.column(SETTINGS, &[]));
        Pair { caller, pid, settings, observer }
    }

    /// What stays. (An idle session begins a transaction of its own when it is told to read what others changed in the catalogs.)
    fn left(&mut self) -> Vec<String> {
        let mut left = self.look();
        for _ in 0..20 {
            if left.is_empty() {
                break;
            }
            pause(0.05);
            left = self.look();
        }
        left
    }

    fn look(&mut self) -> Vec<String> {
        let mut left: Vec<String> = self.observer.column(LEFT, &[&self.pid]);
        left.extend(self.caller.column::<String>(OWN, &[]));
        let settings: Vec<String> = self.caller.column(SETTINGS, &[]);
        left.extend(settings.iter().filter(|now| !self.settings.contains(now)).cloned());
        left.extend(
            self.settings.iter().filter(|before| !settings.contains(before)).map(|it| format!("not {it}")),
        );
        left
    }

    /// The call is well, and leaves nothing.
    fn succeeds(&mut self, sql: &str) {
        self.caller.query(sql, &[]).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        assert_eq!(self.left(), [""; 0], "after {sql}");
    }

    fn is_refused(&mut self, sql: &str, code: &str) {
        let answer = self.caller.batch_execute(sql).map_err(|error| sqlstate::<()>(Err(error)));
        assert_eq!(answer, Err(code.to_owned()), "{sql}");
        // The server tells of an error before it has cleaned up.
        self.caller.run("");
        assert_eq!(self.left(), [""; 0], "after {sql}, which was refused");
    }

    /// Calls with a short timeout, beside a transaction that has done something. The SQLSTATE, if it failed.
    fn cut_short(&mut self, sql: &str, locker: &mut Client, waits_for: &str) -> Option<String> {
        // (Less than what the archive duty waits for locks.)
        self.cut_after(80, sql, locker, waits_for)
    }

    fn cut_after(&mut self, ms: u32, sql: &str, locker: &mut Client, waits_for: &str) -> Option<String> {
        self.caller.run(&format!("set statement_timeout = {ms}"));
        locker.run(&format!("begin; {waits_for}"));
        let outcome = self.caller.query(sql, &[]);
        // While that other one goes on: nothing is to wait for its end.
        self.caller.run("reset statement_timeout");
        assert_eq!(self.left(), [""; 0], "after {sql}, which was cancelled");
        locker.run("rollback");
        outcome.err().map(|error| sqlstate::<()>(Err(error)))
    }
}

/// A database whose duties only these tests do.
fn pair(name: &str) -> (Pair, Client) {
    let database = SERVER.empty_database(name);
    SERVER.connect("postgres").run(&format!("alter database {name} set taskq.keeper = off"));
    database.connect().run("create extension taskq");
    (Pair::new(database.connect(), database.connect()), database.connect())
}

#[test]
fn what_a_session_leaves_is_seen() {
    let (mut pair, _) = pair("probe");
    assert_eq!(pair.left(), [""; 0]);
    for (does, undoes, seen) in [
        ("select pg_advisory_lock(7)", "select pg_advisory_unlock_all()", "ExclusiveLock on advisory"),
        ("begin; select from taskq.task", "rollback", "AccessShareLock on taskq.task"),
        ("begin; select pg_current_xact_id()", "rollback", "xid "),
        ("begin isolation level repeatable read; select 1", "rollback", "xmin "),
        ("set work_mem = '5MB'", "reset work_mem", "work_mem = 5120 (session)"),
        ("listen nobody", "unlisten *", "it listens to nobody"),
        ("declare c cursor with hold for select 1", "close c", "cursor c"),
        // (Its schema stays.)
        ("create temp table of_mine ()", "discard temp", "temporary object of_mine"),
    ] {
        pair.caller.run(does);
        let left = pair.left();
        assert!(left.iter().any(|what| what.contains(seen)), "after {does} there is only {left:?}");
        pair.caller.run(undoes);
    }
}

#[test]
fn every_verb_is_tried() {
    let (mut pair, _) = pair("names");
    let verbs = "select distinct proname::text from pg_proc
                  where pronamespace = 'taskq'::regnamespace and proname not like '\\_%' order by 1";
    let mut tried: Vec<&str> = CASES.iter().map(|case| case.verb).chain(["drill"]).collect();
    tried.sort_unstable();
    assert_eq!(pair.caller.column::<String>(verbs, &[]), tried);
}

#[test]
fn no_verb_leaves_a_lock_a_snapshot_or_a_setting() {
    let (mut pair, mut other) = pair("verbs");
    let mut locker = SERVER.connect("verbs");
    other.run("create role somebody");
    for (number, Case { verb, fine, refused, waits_for }) in (1..).zip(CASES) {
        let things = Things::make(&mut other, number);
        let call = things.named_in(fine);
        let code = pair.cut_short(&call, &mut locker, &things.named_in(waits_for));
        assert_eq!(code.as_deref(), Some("57014"), "{verb} waits for: {waits_for}");
        if let Some((sql, code)) = refused {
            pair.is_refused(&things.named_in(sql), code);
        }
        pair.succeeds(&call);
    }
    // Cancelled while it sleeps, and not at a lock.
    other.run("select taskq.purge('ready')");
    let wait = "call taskq.wait(array['no such queue'], '10 s')";
    assert_eq!(pair.cut_short(wait, &mut locker, "select 1").as_deref(), Some("57014"));
    for view in other.column::<String>("select viewname::text from pg_views where schemaname = 'taskq'", &[])
    {
        pair.succeeds(&format!("select * from taskq.{view}"));
    }
}

#[test]
fn no_duty_leaves_a_lock_a_snapshot_or_a_setting() {
    let (mut pair, mut other) = pair("duties");
    let mut locker = SERVER.connect("duties");
    let duties: Vec<String> = other.column("select name from taskq.duty order by name", &[]);
    assert!(duties.len() >= 8, "{duties:?}");
    let all_but_duties: String = other.value(
        "select 'lock table ' || string_agg(oid::regclass::text, ', ') from pg_class
          where relnamespace = 'taskq'::regnamespace and relkind in ('r', 'p') and relname <> 'duty'",
        &[],
    );
    for (number, duty) in (1..).zip(&duties) {
        Things::make(&mut other, number);
        let call = format!("select taskq._run_duty('{duty}')");
        // It has the lock by which it is the only one.
        let code = pair.cut_short(&call, &mut locker, &all_but_duties);
        assert_eq!(code.as_deref(), Some("57014"), "{call}");
        pair.succeeds(&call);
    }
    pair.is_refused("select taskq._run_duty('none')", "22023");
}

#[test]
fn a_drill_leaves_nothing_in_the_session_that_asked_for_it() {
    let database = SERVER.database("drill");
    let mut pair = Pair::new(database.connect(), database.connect());
    let mut locker = database.connect();
    eventually("there is a keeper", 30, || locker.healthy("keeper running"));
    pair.is_refused("select * from taskq.drill('default')", "22023");
    // The keeper brings it to its end. (It takes 1.5 seconds at least.)
    let drill = "select * from taskq.drill(timeout => '1 s')";
    assert_eq!(pair.cut_after(1000, drill, &mut locker, "select 1").as_deref(), Some("57014"));
    eventually("that drill is over", 60, || {
        locker.value(
            "select count(*) = 1 and not exists (select from taskq._drill_asked()) from taskq.drill_run
              where finished_at is not null",
            &[],
        )
    });
    pair.succeeds(drill);
}
