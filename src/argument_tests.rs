//! How the verbs of Rust treat their arguments: NULLs, bounds, and the words of each refusal.
//! SQLSTATEs, and what the verbs do, are tested by pg_regress (`tests/regress`): pgrx's test
//! runner sees messages only.
#![allow(clippy::unwrap_used)]

/// What the README promises about JSON rests on this: pgrx's `JsonB` parses, with a depth limit,
/// and loses digits.
#[cfg(test)]
#[test]
fn no_verb_parses_json() {
    let mut folders = vec![std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    let mut read = 0;
    for file in files.iter().filter(|file| file.extension().is_some_and(|e| e == "rs")) {
        if file.file_name().is_some_and(|name| name == "argument_tests.rs") {
            continue;
        }
        let text = std::fs::read_to_string(file).unwrap_or_default();
        read += 1;
        for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
            assert!(!line.contains("JsonB"), "{}: {line}", file.display());
        }
    }
    assert!(read > 40, "only {read} files of src were read");
}

#[pgrx::pg_schema]
mod tests {
    use pgrx::prelude::*;

    /// Statements that are refused, each with its message.
    macro_rules! refused {
        ($($name:ident: $sql:tt => $message:tt;)*) => {$(
            #[pg_test(error = $message)]
            fn $name() {
                Spi::run($sql).unwrap();
            }
        )*};
    }

    refused! {
        enqueue_without_a_type: "select taskq.enqueue(null)" => "task_type must not be null";
        enqueue_with_an_empty_type: "select taskq.enqueue('')" => "task_type must not be empty";
        enqueue_with_a_long_queue: "select taskq.enqueue('t', queue => repeat('é', 32))"
            => "queue is 64 bytes long, more than 63";
        enqueue_with_a_control_character: "select taskq.enqueue(E'a\\nb')"
            => "task_type contains a control character";
        enqueue_with_a_high_priority: "select taskq.enqueue('t', priority => 2147483647)"
            => "priority must be between -100 and 100";
        enqueue_with_negative_retries: "select taskq.enqueue('t', max_retries => -1)"
            => "max_retries must be between 0 and 1000000";
        enqueue_at_infinity: "select taskq.enqueue('t', run_at => '-infinity')" => "run_at must be finite";
        enqueue_with_run_at_and_delay: "select taskq.enqueue('t', run_at => now(), delay => '0')"
            => "run_at and delay are both given";
        enqueue_with_a_negative_delay: "select taskq.enqueue('t', delay => '-1 month')"
            => "delay must be between 0 and 100 years";
        enqueue_in_ten_thousand_years: "select taskq.enqueue('t', delay => '10000 years')"
            => "delay must be between 0 and 100 years";
        enqueue_with_an_unknown_on_conflict: "select taskq.enqueue('t', on_conflict => 'IGNORE')"
            => "on_conflict is not valid";
        enqueue_with_a_long_key: "select taskq.enqueue('t', unique_key => repeat('k', 513))"
            => "unique_key is 513 bytes long, more than 512";
        enqueue_twice_with_one_key: "select taskq.enqueue('t', unique_key => 'k');
                                     update taskq.unique_key set task_id = 8;
                                     select taskq.enqueue('t', unique_key => 'k', on_conflict => 'error')"
            => "task 8 of type \"t\" holds the unique key";
        enqueue_over_the_limit: "set local taskq.max_payload_bytes = 1024;
                                 select taskq.enqueue('t', to_jsonb(repeat('x', 1000)), headers => to_jsonb(repeat('x', 100)))"
            => "the payload with its headers is 1116 bytes, more than the 1024 allowed";
        enqueue_many_of_nothing: "select taskq.enqueue_many(null)" => "tasks must not be null";
        enqueue_many_of_an_object: "select taskq.enqueue_many('{}')" => "tasks must be a JSON array";
        enqueue_many_with_a_bad_element: "select taskq.enqueue_many('[{\"task_type\": \"t\"}, {\"task_type\": \"t\", \"priority\": 0.5}]')"
            => "element 2: priority must be a whole number";
        claim_null: "select taskq.claim(null)" => "n must not be null";
        claim_a_negative_number: "select taskq.claim(-2147483648)" => "n must not be negative";
        claim_from_a_null_queue: "select taskq.claim(1, array['q', null])" => "queue must not be null";
        claim_without_a_lease: "select taskq.claim(1, lease => '0')"
            => "lease must be longer than 0 and at most 366 days";
        claim_for_an_age: "select taskq.claim(1, lease => '178000000 years')"
            => "lease must be longer than 0 and at most 366 days";
        claim_for_nobody: "select taskq.claim(1, worker => '')" => "worker must not be empty";
        complete_without_an_id: "select taskq.complete(null, 1)" => "id must not be null";
        complete_without_a_token: "select taskq.complete(1, null)" => "token must not be null";
        complete_what_never_was: "select taskq.complete(3000000000, 9007199254740993)"
            => "the lease on task 3000000000 is not yours";
        complete_many_of_different_lengths: "select taskq.complete_many('{1, 2}', '{1}')"
            => "tokens has 1 elements, but ids has 2";
        complete_many_with_few_results: "select taskq.complete_many('{1}', '{1}', '{}')"
            => "results has 0 elements, but ids has 1";
        fail_with_a_wait_but_no_retry: "select taskq.fail(1, 1, retry_in => '1 s', retry => false)"
            => "retry_in is given although retry is false";
        fail_many_with_a_null: "select taskq.fail_many('{1, null}', '{1, 1}')" => "element 2: id or token is null";
        extend_by_nothing: "select taskq.extend(1, 1, '-1 s')" => "lease must be longer than 0 and at most 366 days";
        release_into_the_past: "select taskq.release(1, 1, '-1 s')" => "delay must be between 0 and 100 years";
        cancel_null: "select taskq.cancel(null)" => "id must not be null";
        cancel_without_a_word: "select taskq.cancel(1, '')" => "reason must not be empty";
        recover_null: "select taskq._recover(null)" => "at_most must not be null";
        tell_no_time: "set local taskq.test_clock = 'noon-ish'; select taskq._now()"
            => "taskq.test_clock is neither a time nor an offset";
    }

    fn one<T: FromDatum + IntoDatum>(sql: &str) -> Option<T> {
        Spi::get_one(sql).unwrap()
    }

    #[pg_test]
    fn null_arguments_mean_the_defaults() {
        let id =
            one::<i64>("select taskq.enqueue('t', null, null, null, null, null, null, null, null, null)")
                .unwrap();
        let stored = one::<String>(&format!(
            "select format('%s %s %s %s %s', queue, priority, max_retries, payload, headers is null) from taskq.task where id = {id}"
        ));
        assert_eq!(stored.as_deref(), Some("default 0 3 {} t"));
        assert_eq!(one::<i64>("select count(*) from taskq.claim(1, null, null, null)"), Some(1));
        assert_eq!(
            one::<String>(&format!("select taskq.cancel({id}, null, null)")).as_deref(),
            Some("requested")
        );
    }

    #[pg_test]
    fn a_claim_of_none_takes_none_and_one_of_too_many_takes_what_there_is() {
        Spi::run("select taskq.enqueue('t') from generate_series(1, 3)").unwrap();
        assert_eq!(one::<i64>("select count(*) from taskq.claim(0)"), Some(0));
        assert_eq!(
            one::<i64>("select count(*) from taskq.claim(2147483647, array['default', 'default', 'nosuch'])"),
            Some(3)
        );
        assert_eq!(one::<i64>("select count(*) from taskq.claim(1, '{}')"), Some(0));
    }

    #[pg_test]
    fn ids_and_tokens_may_be_large() {
        // Not by setval: the sequence is shared with the tests that run at the same time.
        Spi::run(
            "select taskq.enqueue('t');
             update taskq.task set id = 5000000001, token = 9007199254740990 - 2000000",
        )
        .unwrap();
        let token = one::<i64>("select token from taskq.claim(1)").unwrap();
        assert!(token < 1 << 53, "{token}");
        Spi::run(&format!("select taskq.complete(5000000001, {token})")).unwrap();
        assert_eq!(one::<String>("select state from taskq.status(5000000001)").as_deref(), Some("succeeded"));
    }

    #[pg_test]
    fn json_passes_through_untouched() {
        let deep = format!("{}{}", "[".repeat(6_000), "]".repeat(6_000));
        for json in ["null", "{}", "1.00", "1234567890123456789012345678901234567890", "\"\\\\u0000\"", &deep]
        {
            Spi::run(&format!("select taskq.enqueue('t', '{json}')")).unwrap();
            let same = format!("select payload::text = '{json}' from taskq.claim(1)");
            assert_eq!(one::<bool>(&same), Some(true), "{:.60}", json);
        }
    }

    #[pg_test]
    fn empty_arrays_are_no_work() {
        assert_eq!(one::<i64>("select count(*) from taskq.enqueue_many('[]')"), Some(0));
        assert_eq!(one::<i64>("select count(*) from taskq.complete_many('{}', '{}', '{}')"), Some(0));
        assert_eq!(one::<i64>("select count(*) from taskq.fail_many('{}', '{}', '{}')"), Some(0));
    }

    #[pg_test]
    fn a_refusal_leaves_the_planner_as_it_was() {
        Spi::run("set local enable_nestloop = off; set local plan_cache_mode = force_custom_plan").unwrap();
        Spi::run(
            "do $$ begin
               perform taskq.enqueue('t', unique_key => 'k', on_conflict => 'error') from generate_series(1, 2);
             exception when others then null; end $$",
        )
        .unwrap();
        let settings = one::<String>(
            "select string_agg(setting, ' ' order by name) from pg_settings
              where name in ('enable_nestloop', 'enable_seqscan', 'enable_sort', 'plan_cache_mode')",
        );
        assert_eq!(settings.as_deref(), Some("off on on force_custom_plan"));
    }
}
