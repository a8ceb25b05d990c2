//! The clock of the server is set: the keeper goes by the new time at once, and says that it was set.

use postgres::Client;
use postgres::fallible_iterator::FallibleIterator;
use std::time::Duration;
use taskq_server_tests::{Session, Shared, eventually};

static SERVER: Shared = Shared::new("clock", &[]);

fn set_clock(client: &mut Client, to: &str) {
    client.run(&format!("alter system set taskq.test_clock = '{to}'"));
    client.run("select pg_reload_conf()");
}

fn clock(client: &mut Client) -> (bool, Option<String>) {
    let row =
        client.query_one("select ok, value from taskq.health() where \"check\" = 'clock'", &[]).unwrap();
    (row.get(0), row.get(1))
}

#[test]
fn a_clock_that_is_set_is_followed_and_shown() {
    let database = SERVER.database("clock");
    let mut client = database.connect();
    eventually("the keeper looks", 20, || {
        client.value::<bool>("select finished_at is not null from taskq.duties where duty = 'alert'", &[])
    });
    assert_eq!(clock(&mut client), (true, None));

    let id: i64 = client.value("select taskq.enqueue('t', delay => '90 minutes')", &[]);
    client.run("listen taskq_ready");
    set_clock(&mut client, "+ 2 hours");
    eventually("the jump is shown", 20, || {
        let (ok, value) = clock(&mut client);
        !ok && value.is_some_and(|value| value.starts_with("7200") || value.starts_with("7199"))
    });
    let told = client.notifications().timeout_iter(Duration::from_secs(20)).next().expect("listen");
    assert_eq!(told.expect("what became due by it is told").payload(), "default");
    assert_eq!(client.value::<String>("select state from taskq.status($1)", &[&id]), "ready");

    set_clock(&mut client, "");
    eventually("the jump back is shown", 20, || {
        let (ok, value) = clock(&mut client);
        !ok && value.is_some_and(|value| value.starts_with("-7"))
    });
    assert_eq!(client.value::<String>("select state from taskq.status($1)", &[&id]), "scheduled");
}
