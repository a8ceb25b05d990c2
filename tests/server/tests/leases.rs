//! A lease keeps its task while its worker is heard of, and not longer: the keeper takes back what has ended.

use postgres::Client;
use std::time::{Duration, Instant};
use taskq_server_tests::{Session, Shared, eventually, pause, sqlstate};

static SERVER: Shared = Shared::new("leases", &[]);

fn wait_for_keeper(client: &mut Client) {
    eventually("the keeper is at work", 30, || client.healthy("keeper running"));
}

#[test]
fn an_expired_lease_is_taken_back_without_any_client() {
    let database = SERVER.database("recover");
    let mut client = database.connect();
    client.run("select taskq.enqueue('t', '{\"n\": 1}')");
    let before: String = client.value("select run_at::text from taskq.task", &[]);
    let (id, token): (i64, i64) = {
        let row = client
            .query_one("select id, token from taskq.claim(1, worker => 'w', lease => '1 s')", &[])
            .unwrap();
        (row.get(0), row.get(1))
    };
    drop(client);
    pause(1.0);
    let mut client = database.connect();
    // Looking does not recover anything: only claim does, and the keeper.
    eventually("the task is ready", 30, || {
        client.value::<String>("select state from taskq.status($1)", &[&id]) == "ready"
    });
    let row = client.query_one("select attempt, run_at::text, errors::text from taskq.task", &[]).unwrap();
    assert_eq!(row.get::<_, i32>(0), 1);
    assert_eq!(row.get::<_, String>(1), before, "the task keeps its place");
    let errors: String = row.get(2);
    assert!(
        errors.contains("\"error\": \"lease expired\"") && errors.contains("\"worker\": \"w\""),
        "{errors}"
    );
    assert_eq!(sqlstate(client.complete(id, token)), "TQ001");
    eventually("all is well", 30, || client.healthy("keeper running") && client.healthy("duty recover"));
}

#[test]
fn b16_the_last_lease_to_end_makes_a_dead_letter_like_that_of_fail() {
    let database = SERVER.database("dies");
    let mut client = database.connect();
    let enqueue = "select taskq.enqueue('t', '{\"a\": [1]}', 'q', 7, max_retries => 0, unique_key => $1, headers => '{}')";
    let expires: i64 = client.value(enqueue, &[&"expires"]);
    let fails: i64 = client.value(enqueue, &[&"fails"]);
    let claimed =
        client.query("select id, token from taskq.claim(2, worker => 'w', lease => '1 s')", &[]).unwrap();
    assert_eq!(claimed[0].get::<_, i64>(0), expires);
    let (id, token): (i64, i64) = (claimed[1].get(0), claimed[1].get(1));
    assert_eq!(id, fails);
    let state: String = client.value("select state from taskq.fail($1, $2, 'lease expired')", &[&id, &token]);
    assert_eq!(state, "dead");
    eventually("the other one is dead", 30, || {
        client.value::<String>("select state from taskq.status($1)", &[&expires]) == "dead"
    });
    // All columns are alike but those that must differ.
    let row = "select (to_jsonb(d) - '{id,token,enqueued_at,run_at,claimed_at,died_at,unique_key,errors}'::text[]
                       || jsonb_build_object('errors', (errors -> 0) - 'at', 'failures', jsonb_array_length(errors)))::text
                 from taskq.dead_letter d where id = $1";
    assert_eq!(client.value::<String>(row, &[&expires]), client.value::<String>(row, &[&fails]));
    let error = "select last_error from taskq.dead_letters where id = $1";
    assert_eq!(client.value::<String>(error, &[&expires]), "lease expired");
    // Both keys are free.
    assert_eq!(client.value::<i64>("select count(*) from taskq.unique_key", &[]), 0);
}

#[test]
fn b05_a_heartbeat_at_a_fraction_of_the_lease_keeps_the_task() {
    let database = SERVER.database("heartbeat");
    let mut client = database.connect();
    wait_for_keeper(&mut client);
    let mut others: Vec<Client> = (0..4).map(|_| database.connect()).collect();
    client.run("select taskq.enqueue('t')");
    let (id, token): (i64, i64) = {
        let row = client.query_one("select id, token from taskq.claim(1, lease => '5 s')", &[]).unwrap();
        (row.get(0), row.get(1))
    };
    let begin = Instant::now();
    let mut beats = 0;
    while begin.elapsed() < Duration::from_secs(32) {
        if begin.elapsed() > Duration::from_secs(2) * beats {
            client.query("select * from taskq.extend($1, $2, '5 s')", &[&id, &token]).expect("extend");
            beats += 1;
        }
        for other in &mut others {
            assert_eq!(other.claim(5), [], "somebody else got the task");
        }
        // At first the keeper alone looks, for more than two leases: it remembers when those end that it has seen, and
        // must look again then. (A round by hand looks for itself, and the keeper sees none of them.)
        if begin.elapsed() > Duration::from_secs(12) {
            others[0].run("call taskq.maintain()");
        }
        pause(0.5);
    }
    assert_eq!(client.value::<i32>("select attempt from taskq.task", &[]), 1);
    client.complete(id, token).expect("complete");
}

#[test]
fn b08_a_new_session_with_the_name_of_a_dead_worker_has_no_part_in_its_tasks() {
    let database = SERVER.database("names");
    let mut first = database.connect();
    wait_for_keeper(&mut first);
    first.run("select taskq.enqueue('t')");
    let claim =
        "select id, token, lease_expires_at::text from taskq.claim(1, worker => 'pod-0', lease => '2 s')";
    let row = first.query_one(claim, &[]).unwrap();
    let (id, token, end): (i64, i64, String) = (row.get(0), row.get(1), row.get(2));
    drop(first);
    let mut second = database.connect();
    second.run("set application_name = 'pod-0'");
    second.run("select taskq.enqueue('other', delay => '0.1 s')");
    let mut beats = 0;
    eventually("the dead worker's task is taken back", 30, || {
        beats += 1;
        // It claims, and holds on to what it has claimed, all under that name.
        second.run("select taskq.enqueue('own', queue => 'own')");
        let own = second
            .query_one("select id, token from taskq.claim(1, array['own'], 'pod-0', '1 h')", &[])
            .expect("claim");
        let own: (i64, i64) = (own.get(0), own.get(1));
        second.query("select * from taskq.extend($1, $2, '1 h')", &[&own.0, &own.1]).expect("extend");
        for verb in [
            "select taskq.complete($1, $2)",
            "select * from taskq.fail($1, $2)",
            "select * from taskq.extend($1, $2)",
            "select taskq.release($1, $2)",
        ] {
            assert_eq!(sqlstate(second.query(verb, &[&id, &(token + 1)])), "TQ001", "{verb}");
        }
        second.value::<String>("select state from taskq.status($1)", &[&id]) == "ready"
    });
    assert!(beats > 1, "the lease was held until its end");
    let late =
        "select extract(epoch from (errors -> 0 ->> 'at')::timestamptz - $2::text::timestamptz)::float8
                  from taskq.task where id = $1";
    let late: f64 = second.value(late, &[&id, &end]);
    assert!((0.0..5.0).contains(&late), "it was taken back {late} s after its lease was over");
    assert_eq!(sqlstate(second.complete(id, token)), "TQ001");
}
