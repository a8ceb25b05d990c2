//! Transactions that stay open hold up neither the keeper nor the claims of others; nor does a session that may do nothing.

use postgres::{Client, NoTls};
use taskq_server_tests::{Session, Shared, eventually, pause, sqlstate};

static SERVER: Shared = Shared::new("unhindered", &["max_prepared_transactions = 5"]);

/// The keeper takes back leases, does its other duties, and waits for nobody.
fn assert_keeper_works(client: &mut Client) {
    client.run("select taskq.enqueue('recovered', queue => 'other', max_retries => 1000)");
    let id: i64 = client.value("select id from taskq.claim(1, '{other}', lease => '0.1 s')", &[]);
    eventually("another lease is taken back", 30, || {
        client.value::<String>("select state from taskq.status($1)", &[&id]) == "ready"
    });
    let before: i64 = client.value("select count(*) from taskq.tasks where task_type = 'scheduled'", &[]);
    client.run("select taskq.schedule('each second', '* * * * * *', 'scheduled', settings => '{\"queue\": \"other\"}')");
    eventually("schedules go on", 30, || {
        client.value::<i64>("select count(*) from taskq.tasks where task_type = 'scheduled'", &[])
            > before + 2
    });
    client.run("select taskq.unschedule('each second'); select taskq.cancel(id) from taskq.tasks where queue = 'other'");
}

#[test]
fn a_claim_that_parked_tasks_and_stays_open_holds_up_only_its_group() {
    let database = SERVER.database("parks");
    let (mut open, mut client) = (database.connect(), database.connect());
    client.run("select taskq.enqueue('g', group_key => 'k')");
    let first: i64 = client.value("select id from taskq.claim(1, lease => '2 s')", &[]);
    client.run("select taskq.enqueue('g', group_key => 'k')");
    open.run("begin; select * from taskq.claim(1)");
    assert_eq!(client.value::<i64>("select count(*) from taskq.parked", &[]), 0, "not yet committed");
    pause(2.5);
    assert_keeper_works(&mut client);
    client.run("set statement_timeout = '10 s'");
    assert_eq!(client.claim(1), [], "the group's turn is locked");
    let state = "select state from taskq.status($1)";
    assert_eq!(client.value::<String>(state, &[&first]), "running");
    open.run("commit");
    eventually("the lease is taken back", 30, || client.value::<String>(state, &[&first]) == "ready");
    assert_eq!(client.claim(1).len(), 1);
}

#[test]
fn an_acknowledgement_that_stays_open_holds_up_only_its_alert() {
    let database = SERVER.database("acknowledges");
    let (mut open, mut client) = (database.connect(), database.connect());
    let die = "select taskq.enqueue('t', queue => $1, max_retries => 0)";
    let fail = "select f.state from taskq.claim(1, array[$1]) c, taskq.fail(c.id, c.token) f";
    for queue in ["a", "b"] {
        client
            .execute("select taskq.configure_queue($1, '{\"dead_letters_limit\": 0}')", &[&queue])
            .expect("set");
        client.execute(die, &[&queue]).expect("enqueue");
        assert_eq!(client.value::<String>(fail, &[&queue]), "dead");
    }
    let open_alerts = "select count(*) from taskq.alerts where state = 'open'";
    eventually("both are raised", 30, || client.value::<i64>(open_alerts, &[]) == 2);
    open.run("begin; select taskq.acknowledge(id) from taskq.alerts where queue = 'a'");
    client.run("select taskq.purge('dead', queue => 'b')");
    let of_b = "select state = 'cleared' from taskq.alerts where queue = 'b'";
    eventually("the other one clears", 30, || client.value(of_b, &[]));
    assert_keeper_works(&mut client);
    open.run("commit");
    let of_a = "select state = 'cleared' from taskq.alerts where queue = 'a'";
    eventually("so does this one", 30, || client.value(of_a, &[]));
}

#[test]
fn a_transaction_that_has_set_a_limit_cannot_be_prepared() {
    let database = SERVER.database("sets");
    let (mut open, mut client) = (database.connect(), database.connect());
    client.run("set statement_timeout = '20 s'; select taskq.enqueue('t') from generate_series(1, 9)");
    let set = "select taskq.configure_queue('limited', '{\"max_running\": 1}')";
    // Prepared, it would hold them back until somebody ends it.
    open.run(&format!("begin; {set}"));
    assert_eq!(sqlstate(open.simple_query("prepare transaction 'limit'")), "0A000");
    assert_eq!(client.claim(1).len(), 1);
    assert_eq!(client.value::<i64>("select count(*) from pg_prepared_xacts", &[]), 0);
    // Without a new limit it may be prepared.
    open.run("begin; select taskq.configure_queue('limited', '{\"lease\": \"1 min\"}'); select taskq.pause('limited'); prepare transaction 'lease'");
    assert_eq!(client.claim(1).len(), 1);
    open.run("commit prepared 'lease'");
    open.run("select taskq.resume('limited')");
}

/// Advisory locks are everybody's: taskq's own are none that SQL can take.
#[test]
fn a_role_that_may_only_connect_holds_up_nothing() {
    let database = SERVER.database("locked");
    let mut client = database.connect();
    client.run("create role stranger login");
    let mut stranger = SERVER.config("locked").user("stranger").connect(NoTls).expect("stranger");
    stranger.run(
        "select pg_advisory_lock(a, b) from unnest(array[1952539499, 1952539500]) a,
                unnest(array[0, 1634886504, 1886745191] || array(select hashtext(d) from unnest(array['recover', 'wake', 'alert', 'limits', 'drill', 'schedule', 'sample', 'archive']) d)) b;
         select pg_advisory_lock(oid::bigint) from pg_database",
    );
    let locks = "select count(*) > 20 from pg_locks where locktype = 'advisory' and granted and pid = $1";
    let pid = stranger.pid();
    assert!(client.value::<bool>(locks, &[&pid]));
    assert_keeper_works(&mut client);
    client.run("set statement_timeout = '20 s'");
    client.run("call taskq.maintain()");
    client.run("select taskq.purge('succeeded'); select taskq.enqueue('g', group_key => 'new')");
    assert_eq!(client.claim(1).len(), 1);
    let ended: bool = client.value("select pg_terminate_backend(pid) from pg_stat_activity where backend_type = 'taskq keeper' and datname = 'locked'", &[]);
    assert!(ended);
    eventually("another keeper comes", 30, || client.healthy("keeper running"));
    assert_keeper_works(&mut client);
}
