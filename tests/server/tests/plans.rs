//! The plans of the hot verbs do not flip with the statistics: whatever ANALYZE last saw, a call
//! touches a bounded number of pages, and never reads the task table from end to end.

use postgres::Client;
use taskq_server_tests::{Database, Session, Shared, eventually};

static SERVER: Shared = Shared::new("plans", &["taskq.keeper = off", "autovacuum = off"]);

const FULL: i32 = 50_000;

/// The hot verbs: a statement, the most pages that it may touch (hits and reads together), and the
/// most rows it may read. The bounds on pages are wide: the calls measured before, all rolled back,
/// leave dead rows. One scan of the full table is more than 1,500 pages and 50,000 rows.
const VERBS: &[(&str, u64, i64)] = &[
    ("select taskq.enqueue('t')", 30, 5),
    ("select taskq.enqueue('t', unique_key => 'k' || random())", 50, 5),
    ("select taskq.enqueue_many('[{\"task_type\": \"t\"}, {\"task_type\": \"t\", \"priority\": 2}]')", 60, 5),
    ("select * from taskq.claim(1)", 150, 25),
    ("select * from taskq.claim(1, array['default', 'other'])", 150, 25),
    ("select * from taskq.claim(100)", 4000, 400),
    ("select taskq.complete($id, $token)", 50, 10),
    ("select * from taskq.complete_many($ids, $tokens)", 2000, 100),
    ("select * from taskq.fail($id, $token, 'oops')", 80, 10),
    ("select * from taskq.fail($id, $token, 'oops', retry => false)", 80, 10),
    ("select * from taskq.fail_many($ids, $tokens)", 4000, 200),
    ("select * from taskq.extend($id, $token)", 50, 10),
    ("select taskq.release($id, $token)", 80, 10),
    ("select taskq.cancel($id)", 80, 10),
];

/// A session that measures; it prepares everything when it is made.
struct Probe {
    name: &'static str,
    client: Client,
}

impl Probe {
    fn new(name: &'static str, database: &Database) -> Self {
        let mut probe = Probe { name, client: database.connect() };
        for (verb, ..) in VERBS {
            probe.measure(verb);
        }
        probe
    }

    /// The pages that one call touches and the rows that it reads, in a transaction that is rolled
    /// back.
    fn measure(&mut self, verb: &str) -> (u64, i64) {
        let client = &mut self.client;
        client.run("begin");
        let mut verb = verb.to_owned();
        if verb.contains("$id") {
            let tasks = client.claim(if verb.contains("$ids") { 50 } else { 1 });
            let list = |values: Vec<String>| format!("array[{}]::bigint[]", values.join(","));
            verb = verb
                .replace("$ids", &list(tasks.iter().map(|(id, _)| id.to_string()).collect()))
                .replace("$tokens", &list(tasks.iter().map(|(_, token)| token.to_string()).collect()));
            if let Some((id, token)) = tasks.first() {
                verb = verb.replace("$id", &id.to_string()).replace("$token", &token.to_string());
            } else {
                client.run("rollback");
                return (0, 0);
            }
        }
        let (scans_before, rows_before) = self.read_so_far();
        let explain = format!("explain (analyze, buffers, costs off, timing off, summary off) {verb}");
        let plan: Vec<String> = self.client.column(&explain, &[]);
        let (scans, rows) = self.read_so_far();
        self.client.run("rollback");
        assert_eq!(scans, scans_before, "{verb} read the whole task table in session {}", self.name);
        let buffers = plan.iter().find(|line| line.trim_start().starts_with("Buffers: shared"));
        let buffers = buffers.map_or("", |line| line.as_str());
        let pages = buffers
            .split_whitespace()
            .filter_map(|word| word.strip_prefix("hit=").or(word.strip_prefix("read=")))
            .map(|count| count.trim_end_matches(',').parse::<u64>().expect("a number"))
            .sum();
        (pages, rows - rows_before)
    }

    /// Scans of the whole task table, and rows read from any of the tables, in this transaction.
    fn read_so_far(&mut self) -> (i64, i64) {
        let sql = "select coalesce(sum(seq_scan) filter (where relname = 'task'), 0)::bigint,
                          coalesce(sum(seq_tup_read + coalesce(idx_tup_fetch, 0)), 0)::bigint
                     from pg_stat_xact_user_tables where schemaname = 'taskq'";
        let row = self.client.query_one(sql, &[]).expect("statistics");
        (row.get(0), row.get(1))
    }

    fn check(&mut self, state: &str) {
        for (verb, most_pages, most_rows) in VERBS {
            // The first call may plan anew, and reads the catalog for it. Any other one may have to read what it knew of
            // the catalog again, when others have just made a database.
            self.measure(verb);
            let (pages, rows) = (0..3).map(|_| self.measure(verb)).min().expect("three calls");
            let what = format!("{state}, session {}: {pages} pages and {rows} rows for {verb}", self.name);
            println!("{what}");
            assert!(
                pages <= *most_pages && rows <= *most_rows,
                "{what}; allowed {most_pages} and {most_rows}"
            );
        }
    }
}

fn fill(client: &mut Client, count: i32) {
    client.value::<i64>(
        "select count(taskq.enqueue('t', priority => i % 2)) from generate_series(1, $1) i",
        &[&count],
    );
}

/// A state, and how to come to it from the one before.
type Step<'a> = (&'a str, &'a dyn Fn(&mut Client));

/// Brings the tables to a state, then measures: in a session from before, and in one from after.
fn measure(name: &str, steps: &[Step]) {
    let database = SERVER.database(name);
    let mut client = database.connect();
    let mut before = Probe::new("from before", &database);
    for (state, step) in steps {
        step(&mut client);
        before.check(state);
        Probe::new("from after", &database).check(state);
    }
}

#[test]
fn pages_touched_stay_bounded_on_tables_that_were_never_analysed() {
    measure("never", &[("never analysed", &|client| fill(client, FULL))]);
}

#[test]
fn pages_touched_stay_bounded_on_tables_that_were_analysed_when_empty_or_small() {
    measure(
        "empty",
        &[
            ("empty", &|client| client.run("analyze")),
            ("analysed when empty, then small", &|client| fill(client, 300)),
            ("analysed when small", &|client| client.run("analyze")),
            ("analysed when small, then full", &|client| fill(client, FULL)),
        ],
    );
    measure(
        "empty2",
        &[("analysed when empty, then full", &|client| {
            client.run("analyze");
            fill(client, FULL);
        })],
    );
}

#[test]
fn pages_touched_stay_bounded_on_tables_that_were_analysed_when_full_and_then_emptied() {
    measure(
        "emptied",
        &[
            ("analysed when full", &|client| {
                fill(client, FULL);
                client.run("analyze");
            }),
            ("full, then emptied", &|client| {
                let purged: i64 = client.value("select taskq.purge('ready')", &[]);
                assert_eq!(purged, i64::from(FULL));
                client.run("vacuum");
                fill(client, 20);
            }),
            ("full, then emptied, then analysed", &|client| client.run("vacuum analyze")),
            ("analysed when emptied, then full", &|client| fill(client, FULL)),
        ],
    );
}

#[test]
fn a_claim_is_a_heap_only_update_that_grows_no_index() {
    let database = SERVER.database("hot");
    let mut client = database.connect();
    fill(&mut client, 1000);
    let sizes = "select array[pg_relation_size('taskq.task_pkey'), pg_relation_size('taskq.task_ready_idx'),
                              pg_relation_size('taskq.task')]";
    let before: Vec<i64> = client.value(sizes, &[]);
    let mut claimed = Vec::new();
    for size in [1, 7, 50].iter().cycle() {
        let tasks = client.claim(*size);
        if tasks.is_empty() {
            break;
        }
        claimed.extend(tasks);
    }
    assert_eq!(claimed.len(), 1000);
    assert_eq!(client.value::<Vec<i64>>(sizes, &[]), before, "sizes of the indexes and of the table");
    client.run("select pg_stat_force_next_flush()");
    eventually("the statistics arrive", 30, || {
        client.value::<i64>(
            "select n_tup_upd from pg_stat_user_tables where relid = 'taskq.task'::regclass",
            &[],
        ) >= 1000
    });
    let row = client
        .query_one(
            "select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relid = 'taskq.task'::regclass",
            &[],
        )
        .expect("statistics");
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (1000, 1000), "updates, heap-only ones");
}
