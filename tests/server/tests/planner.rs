//! A claim is exact whatever the planner is told: n tasks in the right order, and no other locked.

use postgres::Client;
use taskq_server_tests::{Random, Session, Shared};

static SERVER: Shared = Shared::new("planner", &["taskq.keeper = off", "autovacuum = off"]);

const SWITCHES: &[&str] = &[
    "enable_seqscan",
    "enable_indexscan",
    "enable_indexonlyscan",
    "enable_bitmapscan",
    "enable_tidscan",
    "enable_nestloop",
    "enable_hashjoin",
    "enable_mergejoin",
    "enable_sort",
    "enable_incremental_sort",
    "enable_material",
    "enable_memoize",
    "enable_hashagg",
];

const OTHERS: &[&str] = &[
    "set plan_cache_mode = 'force_custom_plan'",
    "set plan_cache_mode = 'force_generic_plan'",
    "set jit = on; set jit_above_cost = 0; set jit_inline_above_cost = 0; set jit_optimize_above_cost = 0",
    "set parallel_setup_cost = 0; set parallel_tuple_cost = 0; set min_parallel_table_scan_size = 0; \
     set min_parallel_index_scan_size = 0; set max_parallel_workers_per_gather = 4",
    "set work_mem = '64 kB'",
    "set join_collapse_limit = 1; set from_collapse_limit = 1",
    "set geqo_threshold = 2",
    "set random_page_cost = 1000; set seq_page_cost = 0",
    "set cursor_tuple_fraction = 1e-9",
    "set search_path = pg_temp, public",
];

/// Three queues with three priorities each; due tasks with many equal times, later ones, running
/// ones with and without a lease that is over.
fn fill(client: &mut Client) {
    client.run(
        "select setseed(0.5);
         select taskq.enqueue('t', queue => 'q' || i % 3, priority => (i / 3) % 3,
                              run_at => timestamptz '2020-01-01' + (random() * 20)::int * interval '1 hour',
                              max_retries => 5)
           from generate_series(1, 300) i;
         select taskq.enqueue('t', queue => 'q' || i % 3, priority => 2, delay => '1 hour') from generate_series(1, 60) i;
         select count(*) from taskq.claim(40, lease => '1 hour');
         select count(*) from taskq.claim(20, lease => '1 ms');
         select pg_sleep(0.1)",
    );
}

/// Checks claims of several sizes in one session, each rolled back.
fn check(client: &mut Client, other: &mut Client, settings: &str) {
    client.run(settings);
    for (n, queues) in
        [(1, None), (3, None), (7, Some(vec!["q2", "q0"])), (64, None), (150, Some(vec!["q1"])), (1000, None)]
    {
        let expected: Vec<i64> = other.column(
            "select id from taskq.task
              where (state = 'waiting' and run_at <= clock_timestamp() or lease_expires_at <= clock_timestamp())
                and ($2::text[] is null or queue = any ($2))
              order by priority desc, run_at, id limit $1",
            &[&i64::from(n), &queues],
        );
        client.run("begin");
        let claimed: Vec<i64> = client.column("select id from taskq.claim($1, $2)", &[&n, &queues]);
        assert_eq!(claimed, expected, "claim({n}, {queues:?}) with {settings}");
        other.run("begin");
        let held: Vec<i64> = other.column(
            "select t.id from taskq.task t
              where not t.id = any (array(select f.id from taskq.task f for update skip locked))
                and not coalesce(t.lease_expires_at <= clock_timestamp(), false)
              order by t.id",
            &[],
        );
        other.run("rollback");
        // Running tasks whose lease is over are left out: a claim may take back more than it returns.
        let over: Vec<i64> =
            other.column("select id from taskq.task where lease_expires_at <= clock_timestamp()", &[]);
        let mut expected: Vec<i64> = claimed.into_iter().filter(|id| !over.contains(id)).collect();
        expected.sort_unstable();
        assert_eq!(held, expected, "locked by claim({n}, {queues:?}) with {settings}");
        client.run("rollback");
    }
}

#[test]
fn a_claim_is_exact_with_each_planner_setting() {
    let database = SERVER.database("each");
    let mut other = database.connect();
    fill(&mut other);
    check(&mut database.connect(), &mut other, "select");
    for switch in SWITCHES {
        check(&mut database.connect(), &mut other, &format!("set {switch} = off"));
    }
    for settings in OTHERS {
        check(&mut database.connect(), &mut other, settings);
    }
}

#[test]
fn a_claim_is_exact_with_random_planner_settings() {
    let database = SERVER.database("random");
    let mut other = database.connect();
    fill(&mut other);
    let mut random = Random::new(Random::seed());
    // One session goes through all settings, too: its plans were made under others.
    let mut old = database.connect();
    old.claim(0);
    for round in 0..30 {
        let mut settings = String::from("reset all");
        for switch in SWITCHES.iter().filter(|_| random.one_in(2)) {
            settings += &format!("; set {switch} = off");
        }
        for other in OTHERS.iter().filter(|_| random.one_in(3)) {
            settings += &format!("; {other}");
        }
        if round == 15 {
            other.run("analyze");
        }
        check(&mut database.connect(), &mut other, &settings);
        check(&mut old, &mut other, &settings);
    }
}

#[test]
fn a_verb_leaves_the_planner_settings_of_the_session_as_they_were() {
    let database = SERVER.database("settings");
    let mut client = database.connect();
    let read = "select string_agg(name || '=' || setting, ',' order by name) from pg_settings
                 where name like 'enable%' or name in ('jit', 'plan_cache_mode')";
    client.run(
        "set enable_nestloop = off; set enable_hashjoin = off; set plan_cache_mode = 'force_custom_plan'",
    );
    let before: String = client.value(read, &[]);
    client.run("select taskq.enqueue('t')");
    assert!(client.query("select taskq.enqueue('')", &[]).is_err());
    let (id, token) = client.claim(1)[0];
    assert!(client.complete(id, token + 1).is_err());
    client.complete(id, token).expect("complete");
    assert_eq!(client.value::<String>(read, &[]), before);
}
