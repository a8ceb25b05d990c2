//! What taskq says to the log and by NOTIFY carries no payload, key or error text.

use postgres::Client;
use postgres::fallible_iterator::FallibleIterator;
use std::time::Duration;
use taskq_server_tests::{Server, Session, eventually, pause, sqlstate};

#[test]
fn h06_log_and_notifications_carry_no_payload_key_or_error_text() {
    let server = Server::start("privacy", &[]);
    let database = server.database("privacy");
    let (mut listener, mut client) = (database.connect(), database.connect());
    listener.run("listen taskq_alert; listen taskq_ready");
    let queue = "q".repeat(63);
    let secret = "SECRET\nLOG:  fake line";
    let long = format!("{secret} {}", "SECRET ".repeat(1500));

    // All verbs, with secrets in all that is the user's own; the values travel as parameters.
    let enqueue = "select taskq.enqueue('t', jsonb_build_object('k', $1::text), $2, max_retries => 0,
                          headers => jsonb_build_object('h', $1::text))";
    for _ in 0..8 {
        client.query(enqueue, &[&secret, &queue]).expect("enqueue");
    }
    let key = "SECRET key";
    let unique = "select taskq.enqueue('t', unique_key => $1, on_conflict => 'error', queue => 'other')";
    client.query(unique, &[&key]).expect("enqueue");
    assert_eq!(sqlstate(client.query(unique, &[&key])), "TQ002");
    let tasks = client.claim(8);
    for (id, token) in &tasks[..6] {
        client.query("select * from taskq.fail($1, $2, $3)", &[id, token, &long]).expect("fail");
        assert_eq!(
            sqlstate(client.query("select * from taskq.fail($1, $2, $3)", &[id, token, &long])),
            "TQ001"
        );
    }
    let (id, token) = tasks[6];
    client
        .query("select * from taskq.extend($1, $2, progress => to_jsonb($3::text))", &[&id, &token, &secret])
        .unwrap();
    client.query("select taskq.cancel($1, $2)", &[&id, &"SECRET reason"]).expect("cancel");
    client
        .query("select taskq.complete($1, $2, to_jsonb($3::text))", &[&id, &token, &secret])
        .expect("complete");
    client.query("select taskq.once('scope', $1)", &[&key]).expect("once");
    // Refusals of all kinds.
    let large = "SECRET ".repeat(200_000);
    let control = "SECRET\u{7}\nLOG:  fake line";
    let too_long = "SECRET ".repeat(100);
    assert_eq!(sqlstate(client.query("select taskq.enqueue('t', to_jsonb($1::text))", &[&large])), "54000");
    for (sql, value) in [
        ("select taskq.enqueue('t', unique_key => $1)", control),
        ("select taskq.enqueue('t', unique_key => $1)", &too_long),
        ("select taskq.enqueue($1)", control),
        ("select taskq.enqueue('t', queue => $1)", &too_long),
        ("select taskq.enqueue('t', on_conflict => $1)", "SECRET"),
        ("select taskq.cancel(1, $1)", control),
        ("select taskq.once('scope', $1)", &too_long),
        ("select * from taskq.claim(1, worker => $1)", control),
        (
            "select * from taskq.enqueue_many(jsonb_build_array(jsonb_build_object('task_type', 't', 'SECRET', $1::text)))",
            "x",
        ),
        (
            "select * from taskq.enqueue_many(jsonb_build_array(jsonb_build_object('task_type', 't', 'priority', $1::text)))",
            "SECRET",
        ),
        ("select taskq.configure_queue('q', jsonb_build_object('SECRET', $1::text))", "SECRET"),
        ("select taskq.purge($1)", "SECRET"),
    ] {
        let code = sqlstate(client.query(sql, &[&value]));
        assert!(code == "22023" || code == "22007", "{code} for {sql}");
    }
    // A role that has no more than its part; and what is no JSON, which PostgreSQL's own input refuses.
    client.run("create role low; create role stranger; select taskq.grant_worker('low'), taskq.grant_producer('low'); set role low");
    client.query(enqueue, &[&secret, &queue]).expect("enqueue");
    let (id, token) = client.claim(1)[0];
    client
        .query("select * from taskq.fail($1, $2, $3, retry => false)", &[&id, &token, &long])
        .expect("fail");
    let broken = "{\"key\": SECRET";
    assert_eq!(sqlstate(client.query("select taskq.enqueue('t', $1::text::jsonb)", &[&broken])), "22P02");
    client.query("select taskq.enqueue('t', to_jsonb($1::text), 'quiet')", &[&secret]).expect("enqueue");
    let seen = "select count(*) from pg_stat_activity where strpos(concat(query, application_name), $1) > 0";
    assert_eq!(listener.value::<i64>(seen, &[&"SECRET"]), 0, "secrets in pg_stat_activity");
    client.run("set role stranger");
    let hidden = "select count(*) from pg_stat_activity where backend_type = 'client backend' and query not like '<insufficient%'
                     and pid <> pg_backend_pid()";
    assert_eq!(client.value::<i64>(hidden, &[]), 0, "a stranger sees queries");
    client.run("reset role");
    // A lease that ends, and the alert.
    client.query(enqueue, &[&secret, &"expires"]).expect("enqueue");
    client.query("select * from taskq.claim(1, array['expires'], lease => '0.1 s')", &[]).expect("claim");
    eventually("the lease has ended", 30, || {
        client.value("select count(*) = 8 from taskq.dead_letters", &[])
    });
    let alert = next_alert(&mut listener);
    assert!(alert.contains(&queue) && alert.contains("raised") && alert.len() < 1000, "{alert}");
    client.run("select * from taskq.redrive('*')");
    let cleared = next_alert(&mut listener);
    assert!(cleared.contains(&queue) && cleared.contains("cleared"), "{cleared}");
    pause(1.0);

    let log = server.log();
    // PostgreSQL's own lines with the text of failed statements are the DBA's setting; two of the
    // statements above have the word in them, as a name. What is wrong with JSON its input says itself.
    let lines: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("SECRET"))
        .filter(|line| !(line.contains("STATEMENT:") && line.contains("'SECRET', $1")))
        .filter(|line| !line.contains("DETAIL:  Token \"SECRET\" is invalid."))
        .filter(|line| !line.contains("CONTEXT:  JSON data, line 1: {\"key\": SECRET"))
        .collect();
    assert_eq!(lines, [""; 0], "secrets in the log");
    assert!(!log.lines().any(|line| line.starts_with("LOG:  fake")), "a forged line in the log");
    assert!(log.contains("dead_letters in queue"), "the alert is in the log");
    let lines: Vec<&str> = log.lines().collect();
    let followed =
        lines.windows(2).any(|pair| pair[0].contains("taskq alert") && pair[1].contains("CONTEXT:"));
    assert!(!followed, "an alert is one line in the log");
}

/// A duty that fails tells the log its SQLSTATE in one line, however it fails: what it was about may be in the error.
#[test]
fn h06_a_duty_that_fails_on_a_task_says_nothing_of_it_in_the_log() {
    let server = Server::start("failing", &[]);
    for (name, code, trigger, deferred) in [
        ("at_once", "P0001", "trigger secret before update", ""),
        ("deferred", "42501", "constraint trigger secret after update", "deferrable initially deferred"),
    ] {
        let logged = server.log();
        let database = server.database(name);
        let mut client = database.connect();
        client.run(
            "create function tell() returns trigger language plpgsql as $$ begin
               raise exception 'this is %', new.payload using detail = new.payload::text, hint = new.payload::text;
             end $$",
        );
        client
            .query("select taskq.enqueue('t', to_jsonb($1::text), queue => 'q')", &[&"SECRET"])
            .expect("enqueue");
        client.run("select from taskq.claim(1, array['q'], lease => '1 s')");
        client.run(&format!(
            "create {trigger} on taskq.task {deferred} for each row when (old.state = 'running') execute function tell()"
        ));
        let error = "select error from taskq.duties where duty = 'recover'";
        eventually("the recover duty fails", 30, || client.value::<Option<String>>(error, &[]).is_some());
        // Who may read the views may read payloads. (The keeper leaves nothing to the commit.)
        let error: String = client.value(error, &[]);
        let expected =
            if deferred.is_empty() { "this is \"SECRET\"" } else { "cannot fire deferred trigger" };
        assert!(error.starts_with(&format!("{code}: {expected}")), "{error}");
        // It is tried again, and not logged again.
        let at = "select error_at::text from taskq.duties where duty = 'recover'";
        for _ in 0..2 {
            let before: String = client.value(at, &[]);
            eventually("it is tried again", 60, || client.value::<String>(at, &[]) != before);
        }
        let all = server.log();
        let log = &all[logged.len()..];
        assert!(!log.contains("SECRET"), "{log}");
        let lines: Vec<&str> = log.lines().collect();
        let failed = format!("taskq duty recover failed with SQLSTATE {code}; see taskq.duties");
        let at: Vec<usize> = (0..lines.len()).filter(|at| lines[*at].ends_with(&failed)).collect();
        assert_eq!(at.len(), 1, "{log}");
        let followed =
            lines.get(at[0] + 1).is_some_and(|line| line.contains("DETAIL:") || line.contains("CONTEXT:"));
        assert!(!followed, "a failed duty is one line in the log: {log}");
        client.run("drop trigger secret on taskq.task");
        eventually("the lease is taken back", 60, || {
            client.value("select count(*) = 1 from taskq.tasks where state = 'ready'", &[])
        });
        drop(client);
        server.connect("postgres").run(&format!("drop database {name}"));
    }
}

/// The next alert; no notification before it has a secret either.
fn next_alert(listener: &mut Client) -> String {
    loop {
        let told = listener.notifications().timeout_iter(Duration::from_secs(30)).next().expect("listen");
        let told = told.expect("an alert");
        assert!(!told.payload().contains("SECRET"), "{}", told.payload());
        if told.channel() == "taskq_alert" {
            return told.payload().to_owned();
        }
    }
}
