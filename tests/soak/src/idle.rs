//! The long form of case G11: a keeper and a launcher without work neither spin nor talk, whatever signals come.

use crate::judge::Found;
use taskq_server_tests::{Server, Session, eventually, pause, watch_idle, watch_signalled};

/// Watches both for a minute, and then while they get a thousand signals.
pub fn quiet() -> (String, Found) {
    let server = Server::start("soak_g11", &["autovacuum = off"]);
    let database = server.database("g11");
    let mut client = database.connect();
    eventually("there is a keeper", 60, || client.healthy("keeper running"));
    client.run("call taskq.maintain()");
    pause(5.0);
    let processes =
        "select pid from pg_stat_activity where backend_type in ('taskq keeper', 'taskq launcher')
                      order by backend_type";
    let before: Vec<i32> = client.column(processes, &[]);
    let log = server.log().len();
    let mut found = watch_idle(&before, 60.0);
    found.extend(watch_signalled(&before, 1_000));
    let after: Vec<i32> = client.column(processes, &[]);
    if after != before || after.len() != 2 {
        found.push(format!("keeper and launcher were {before:?}, and are {after:?}"));
    }
    // (A checkpoint may come in between.)
    found.extend(server.log()[log..].lines().filter(|line| !line.contains("checkpoint")).map(str::to_owned));
    ("keeper and launcher watched for a minute without work, and with 1000 signals".to_owned(), found)
}
