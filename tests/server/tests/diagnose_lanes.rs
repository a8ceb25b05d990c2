//! What diagnose says of groups, types and priorities that crowd others out; and who may ask.

use taskq_server_tests::{Arrival, Life, Run, Session, Shared, USUAL, sqlstate};

static SERVER: Shared = Shared::new("diagnose_lanes", &[]);

fn life(name: &str) -> Life<'static> {
    let mut life = Life::begin(&SERVER, name);
    life.start_worker("w1", "'{q}'");
    life.start_worker("w2", "'{q}'");
    life
}

#[test]
fn one_group_fills_the_queue() {
    let mut life = life("grouped");
    life.arrivals[0] = Arrival { enqueue: "'a', queue => 'q', group_key => 'customer ' || n", number: 4 };
    life.handler = Box::new(|_| Run::takes(1.5));
    life.ticks(USUAL);
    life.expect_nothing();
    // As many arrive, but of one group.
    life.arrivals[0] = Arrival { enqueue: "'a', queue => 'q', group_key => 'customer 17'", number: 9 };
    life.expect_first(
        "group_fills",
        25,
        &["one group fills queue \"q\"", "in group \"customer 17\"", "taskq.why("],
    );
}

#[test]
fn one_type_fills_the_queue_and_others_wait_behind_it() {
    let mut life = life("type");
    life.arrivals[0].number = 3;
    life.arrivals.push(Arrival { enqueue: "'b', queue => 'q'", number: 1 });
    life.handler = Box::new(|_| Run::takes(2.0));
    life.ticks(10);
    life.expect_nothing();
    // There was always more of it than the workers can do: nobody can say yet what is usual.
    life.arrivals[0].number = 30;
    let found = life.expect_first(
        "type_fills",
        12,
        &[
            "type \"a\" fills queue \"q\", and others wait behind it",
            "taskq.configure_type('a'",
            "more workers",
        ],
    );
    assert_eq!(found.severity, "warning");
}

/// What it advises to run is made of names that others have chosen.
#[test]
fn d08_advice_is_one_call_whatever_the_names_are() {
    let mut life = Life::begin(&SERVER, "advice");
    life.start_worker("w1", r#"array['x"}''); drop table accounts; --']"#);
    let of_a = r#"'a''b', queue => 'x"}''); drop table accounts; --'"#;
    let of_b = r#"'b', queue => 'x"}''); drop table accounts; --'"#;
    life.arrivals = vec![Arrival { enqueue: of_a, number: 3 }, Arrival { enqueue: of_b, number: 1 }];
    life.handler = Box::new(|_| Run::takes(2.0));
    life.ticks(10);
    life.arrivals[0].number = 30;
    let advice = (0..12).find_map(|_| {
        life.tick();
        let found = life.diagnose(None);
        found.into_iter().find(|found| found.finding == "type_fills").map(|found| found.advice)
    });
    let advice = advice.expect("type_fills within 12 ticks");
    let begin = advice.find("select").expect("a call");
    let end = advice.rfind("; or start more workers").expect("its end");
    life.client.run(&advice[begin..end]);
    let queue: String = life.client.value("select queue from taskq.task_types where task_type = 'a''b'", &[]);
    assert_eq!(queue, r#"x"}'); drop table accounts; --.bulk"#);
}

#[test]
fn old_tasks_starve_behind_higher_priorities() {
    let mut life = life("starve");
    life.arrivals[0] = Arrival { enqueue: "'a', queue => 'q', priority => 5", number: 9 };
    life.arrivals.push(Arrival { enqueue: "'b', queue => 'q'", number: 1 });
    life.handler = Box::new(|_| Run::takes(1.5));
    life.ticks(USUAL);
    life.expect_nothing();
    // A few more of the urgent ones, and nothing is left for the others.
    life.arrivals[0].number = 13;
    life.expect_first(
        "starved",
        30,
        &["starve behind higher priorities", "priority 0 is due since", "priority 5"],
    );
}

#[test]
fn why_names_the_session_that_has_a_task_in_an_open_transaction() {
    let mut life = life("locked");
    let id: i64 = life.client.value("select taskq.enqueue('a', queue => 'q')", &[]);
    let mut other = life.connect();
    other.run("set application_name = 'hasty'; begin; select taskq.claim(1, '{q}', 'w9')");
    let row = life
        .client
        .query_one("select reason, who, explanation from taskq.why($1) order by rank limit 1", &[&id]);
    let row = row.unwrap();
    assert_eq!((row.get::<_, &str>(0), row.get::<_, &str>(1)), ("locked", "hasty"));
    assert!(row.get::<_, String>(2).contains(&other.pid().to_string()));
    other.run("rollback");
    let reason: String = life.client.value("select reason from taskq.why($1) limit 1", &[&id]);
    assert_ne!(reason, "locked");
}

#[test]
fn a_reader_may_ask_and_nobody_else_and_an_unknown_queue_has_no_rows() {
    let mut life = life("rights");
    life.ticks(3);
    life.client
        .run("create role reading login; create role other login; select taskq.grant_reader('reading')");
    let mut reader = life.connect();
    reader.run("set role reading");
    assert_eq!(reader.value::<String>("select finding from taskq.diagnose('q')", &[]), "nothing_found");
    assert_eq!(
        reader.column::<i64>("select rank from taskq.diagnose('no such queue')", &[]),
        Vec::<i64>::new()
    );
    assert_eq!(sqlstate(reader.query("select rank from taskq.diagnose('')", &[])), "22023");
    assert_eq!(reader.value::<i64>("select count(*) from taskq.diagnose(null)", &[]), 1);
    assert_eq!(reader.value::<i64>("select count(*) from taskq.why(null)", &[]), 0);
    assert_eq!(reader.value::<i64>("select count(*) from taskq.failures", &[]), 0);
    reader.run("set role other");
    assert_eq!(sqlstate(reader.query("select * from taskq.diagnose()", &[])), "42501");
    assert_eq!(sqlstate(reader.query("select * from taskq.why(1)", &[])), "42501");
    reader.run("reset role");
    // It writes nothing, and works where nothing may be written.
    reader.run("begin read only");
    assert_eq!(reader.value::<String>("select finding from taskq.diagnose('q')", &[]), "nothing_found");
    assert_eq!(reader.value::<i64>("select count(*) from taskq.why(1)", &[]), 1);
    reader.run("commit");
}
