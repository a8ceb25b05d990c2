//! Large and deep payloads, through the driver.

use postgres::Client;
use taskq_server_tests::{Session, Shared, eventually, peak_memory, sqlstate};

static SERVER: Shared = Shared::new("payload", &["taskq.keeper = off"]);

const MEGABYTE: usize = 1024 * 1024;

fn nested(levels: usize) -> String {
    format!("{}0{}", "[".repeat(levels), "]".repeat(levels))
}

/// A payload whose binary form is so long (its header takes 8 bytes).
fn sized(bytes: usize) -> String {
    format!("\"{}\"", "x".repeat(bytes - 8))
}

fn enqueue(client: &mut Client, payload: &str) -> Result<i64, postgres::Error> {
    Ok(client.query_one("select taskq.enqueue('t', $1::text::jsonb)", &[&payload])?.get(0))
}

/// What is finished goes to the archive. Nobody is there who would have done it before.
fn archive(client: &mut Client) {
    let finished: i64 = client.value("select count(*) from taskq.done", &[]);
    client.run("select taskq.configure_queue('default', '{\"retention\": \"1 ms\"}')");
    eventually("what is finished is in the archive", 30, || {
        client.run("call taskq.maintain()");
        client.value::<i64>("select count(*) from taskq.done", &[]) == 0
    });
    assert_eq!(client.value::<i64>("select count(*) from taskq.archive", &[]), finished);
}

#[test]
fn d05_json_of_6000_levels_goes_through_every_verb_unchanged() {
    let database = SERVER.database("deep");
    let mut client = database.connect();
    let deep = nested(6000);
    enqueue(&mut client, &deep).expect("enqueue");
    client
        .query(
            "select taskq.enqueue('t', '{}', headers => jsonb_build_object('deep', $1::text::jsonb))",
            &[&deep],
        )
        .expect("headers");
    client
        .query(
            "select * from taskq.enqueue_many(jsonb_build_array(
               jsonb_build_object('task_type', 't', 'payload', $1::text::jsonb)))",
            &[&deep],
        )
        .expect("enqueue_many");
    let rows = client
        .query("select id, token, payload::text, (headers -> 'deep')::text from taskq.claim(3)", &[])
        .unwrap();
    let texts: Vec<(String, Option<String>)> = rows.iter().map(|row| (row.get(2), row.get(3))).collect();
    assert_eq!(texts, [(deep.clone(), None), ("{}".to_owned(), Some(deep.clone())), (deep.clone(), None)]);
    let (id, token): (i64, i64) = (rows[0].get(0), rows[0].get(1));
    client
        .query("select * from taskq.extend($1, $2, null, $3::text::jsonb)", &[&id, &token, &deep])
        .expect("extend");
    client.query("select taskq.complete($1, $2, $3::text::jsonb)", &[&id, &token, &deep]).expect("complete");
    let done = client
        .query_one("select payload::text, progress::text, result::text from taskq.finished", &[])
        .unwrap();
    for column in 0..3 {
        assert_eq!(done.get::<_, String>(column), deep);
    }
    archive(&mut client);
    let archived = client
        .query_one("select payload::text, progress::text, result::text from taskq.archive", &[])
        .unwrap();
    for column in 0..3 {
        assert_eq!(archived.get::<_, String>(column), deep);
    }
    // and of a dead one, redriven
    let (id, token): (i64, i64) = (rows[2].get(0), rows[2].get(1));
    client.query("select * from taskq.fail($1, $2, 'no', retry => false)", &[&id, &token]).expect("fail");
    assert_eq!(client.value::<String>("select payload::text from taskq.dead_letters", &[]), deep);
    client.run("select * from taskq.redrive('*')");
    assert_eq!(client.column::<String>("select payload::text from taskq.claim(1)", &[]), [deep]);
}

#[test]
fn d05_json_that_is_too_deep_is_refused_and_the_session_lives_on() {
    let database = SERVER.database("toodeep");
    let mut client = database.connect();
    assert_eq!(sqlstate(enqueue(&mut client, &nested(200_000))), "54001");
    assert_eq!(sqlstate(enqueue(&mut client, &nested(20_000))), "54001");
    enqueue(&mut client, "1").expect("enqueue");
    assert_eq!(client.claim(9).len(), 1);
}

#[test]
fn numbers_of_40_digits_keep_every_digit() {
    let database = SERVER.database("digits");
    let mut client = database.connect();
    let number = "1234567890123456789012345678901234567890.0123456789012345678901234567890123456789";
    enqueue(&mut client, number).expect("enqueue");
    let row = client.query_one("select id, token, payload::text from taskq.claim(1)", &[]).unwrap();
    assert_eq!(row.get::<_, String>(2), number);
    let (id, token): (i64, i64) = (row.get(0), row.get(1));
    client
        .query("select taskq.complete($1, $2, $3::text::jsonb)", &[&id, &token, &number])
        .expect("complete");
    assert_eq!(client.value::<String>("select result::text from taskq.finished", &[]), number);
}

#[test]
fn a_payload_may_have_a_megabyte_and_not_a_byte_more() {
    let database = SERVER.database("limit");
    let mut client = database.connect();
    let payload = sized(MEGABYTE);
    enqueue(&mut client, &payload).expect("one megabyte");
    assert_eq!(sqlstate(enqueue(&mut client, &sized(MEGABYTE + 1))), "54000");
    let row = client.query_one("select id, token, payload::text from taskq.claim(1)", &[]).unwrap();
    assert!(row.get::<_, String>(2) == payload, "the payload came back changed");
    let (id, token): (i64, i64) = (row.get(0), row.get(1));
    let complete = "select taskq.complete($1, $2, $3::text::jsonb)";
    assert_eq!(sqlstate(client.query(complete, &[&id, &token, &sized(MEGABYTE + 1)])), "54000");
    client.query(complete, &[&id, &token, &payload]).expect("complete");
}

#[test]
fn a_claim_of_large_payloads_stops_at_16_megabytes_and_later_ones_get_the_rest() {
    let database = SERVER.database("many");
    let mut client = database.connect();
    let payload = sized(1_000_000);
    for _ in 0..40 {
        enqueue(&mut client, &payload).expect("enqueue");
    }
    // A small one behind them does not overtake within a claim that is full.
    enqueue(&mut client, "1").expect("enqueue");
    let mut sizes = Vec::new();
    let mut ids = Vec::new();
    loop {
        let rows = client
            .query("select id, octet_length(payload::text)::bigint from taskq.claim(1000)", &[])
            .unwrap();
        if rows.is_empty() {
            break;
        }
        let bytes: i64 = rows.iter().map(|row| row.get::<_, i64>(1)).sum();
        assert!(bytes <= 16 * MEGABYTE as i64, "{bytes} bytes in one claim");
        sizes.push(rows.len());
        ids.extend(rows.iter().map(|row| row.get::<_, i64>(0)));
    }
    assert_eq!(sizes, [16, 16, 9]);
    assert_eq!(ids, (1..=41).collect::<Vec<i64>>());
}

#[test]
fn d05_a_payload_of_a_million_keys_goes_through_every_verb() {
    let database = SERVER.database("wide");
    let mut client = database.connect();
    client.run("set taskq.max_payload_bytes = '100MB'");
    client
        .run("create table wide as select jsonb_object_agg(n, n) as doc from generate_series(1, 1000000) n");
    client.run("select taskq.enqueue('t', doc, max_retries => 0) from wide");
    let same = "select payload = doc from wide, ";
    assert!(client.value::<bool>(&format!("{same} taskq.claim(1)"), &[]));
    client.run("select f.* from taskq.task t, taskq.fail(t.id, t.token, 'x') f");
    assert!(client.value::<bool>(&format!("{same} taskq.dead_letters"), &[]));
    client.run("select * from taskq.redrive('*')");
    client.run("select taskq.complete(c.id, c.token, doc) from wide, taskq.claim(1) c");
    let same = "select payload = doc and result = doc from wide, taskq.";
    assert!(client.value::<bool>(&format!("{same}finished"), &[]));
    archive(&mut client);
    assert!(client.value::<bool>(&format!("{same}archive"), &[]));
}

/// A verb that followed the levels of a payload, by itself or by a function of PostgreSQL, would need
/// stack for each of them. The payload is made in a session that may use much of it, and handled by one
/// that may use next to none.
#[test]
fn d05_no_verb_needs_stack_for_the_levels_of_a_payload() {
    let database = SERVER.database("stack");
    let mut client = database.connect();
    client.run("set max_stack_depth = '7MB'; create table deep (doc jsonb, tasks jsonb)");
    let insert = "insert into deep select $1::text::jsonb, jsonb_build_array(jsonb_build_object('task_type', 't', 'payload', $1::text::jsonb))";
    // As deep as PostgreSQL reads with 7 MB.
    let mut levels = 40_000;
    while client.execute(insert, &[&nested(levels)]).is_err() {
        levels -= 2_000;
    }
    assert!(levels > 15_000, "{levels} levels");
    let mut client = database.connect();
    client.run("set max_stack_depth = '100kB'");
    // It is enough for 300 levels or so.
    assert_eq!(sqlstate(enqueue(&mut client, &nested(1_000))), "54001");
    client.run("select taskq.enqueue('t', doc, headers => doc, max_retries => 0) from deep");
    let running = "(select id, token from taskq.task where state = 'running') t";
    let every_verb = [
        "select m from deep, taskq.enqueue_many(tasks) m",
        "select taskq.enqueue('k', doc, unique_key => 'k') from deep",
        "select taskq.enqueue('k', doc, headers => doc, unique_key => 'k', on_conflict => 'replace') from deep",
        "select taskq.schedule('s', '@daily', 't', doc) from deep",
        "select payload from taskq.claim(1)",
        &format!("select e from deep, {running}, taskq.extend(t.id, t.token, progress => doc) e"),
        &format!("select f from {running}, taskq.fail(t.id, t.token, 'x') f"),
        "select * from taskq.redrive('*')",
        "select payload from taskq.claim(1)",
        &format!("select taskq.release(t.id, t.token) from {running}"),
        "select payload from taskq.claim(3)",
        &format!("select taskq.complete(t.id, t.token, doc) from deep, {running} where t.id = (select min(id) from taskq.task)"),
        &format!("select taskq.cancel(t.id, force => true) from {running} where t.id = (select min(id) from taskq.task)"),
        &format!("select c from (select array_agg(t.id) as ids, array_agg(t.token) as tokens, array_agg(doc) as docs from deep, {running}) a,
                  taskq.complete_many(ids, tokens, docs) c"),
        "select state, result from taskq.finished",
        "select s.* from taskq.done d, taskq.status(d.id) s",
        "call taskq.maintain()",
        // Leases that end, taken back by the duty and by a claim; failures, with a retry and without.
        "select taskq.enqueue('r', doc, headers => doc, queue => 'r', max_retries => n) from deep, generate_series(2, 3) n",
        "select payload from taskq.claim(2, array['r'])",
        "set taskq.test_clock = '+ 1 hour'",
        "select n from taskq._recover(1000) n where n = 2",
        "select payload from taskq.claim(2, array['r'])",
        "set taskq.test_clock = '+ 2 hours'",
        "select payload from taskq.claim(2, array['r']) where attempt = 3",
        &format!("select f from (select array_agg(t.id) as ids, array_agg(t.token) as tokens from {running}) a,
                  taskq.fail_many(ids, tokens) f"),
        "select payload from taskq.dead_letters",
        "select n from taskq.purge('dead') n where n = 1",
        "select n from taskq.purge('scheduled', 'r') n where n = 1",
        "select taskq.configure_queue('default', '{\"retention\": \"1 ms\"}')",
        "set taskq.test_clock = '+ 3 hours'",
        "call taskq.maintain()",
        "select payload, result from taskq.archive",
        "select s.* from taskq.archive a, taskq.status(a.id) s",
    ];
    for sql in every_verb {
        if sql.starts_with("call") || sql.starts_with("set") {
            client.run(sql);
        } else {
            let count =
                client.value::<i64>(&format!("with a as materialized ({sql}) select count(*) from a"), &[]);
            assert!(count > 0, "{sql}");
        }
    }
    let same = "select count(*) from taskq.archive, deep where pg_column_size(payload) = pg_column_size(doc)";
    assert!(client.value::<i64>(same, &[]) >= 2);
    assert_eq!(client.value::<i64>("select count(*) from taskq.done", &[]), 0);
    assert!(client.value::<i64>("select taskq.purge('succeeded')", &[]) >= 2);
}

#[test]
fn a_claim_of_large_payloads_takes_memory_for_16_megabytes_of_them_and_not_for_all() {
    let database = SERVER.database("bounded");
    let mut client = database.connect();
    client.run(
        "select taskq.enqueue('t', to_jsonb(repeat(md5(n::text), 31000))) from generate_series(1, 300) n",
    );
    let pid = client.pid();
    // One that takes little first, so that the rest of what a session needs is there.
    assert_eq!(client.query("select from taskq.claim(1)", &[]).expect("claim").len(), 1);
    let before = peak_memory(pid);
    let claimed = client.query("select count(payload) from taskq.claim(1000)", &[]).expect("claim");
    assert_eq!(claimed[0].get::<_, i64>(0), 16);
    let more = peak_memory(pid) - before;
    assert!(more < 100 * MEGABYTE as u64, "{more} bytes more for a claim of 16 MB, with 300 MB waiting");
}
