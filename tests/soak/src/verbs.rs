//! Random calls of all verbs.

use crate::client::{Called, Client};
use crate::journal::{Claim, Effect, Time, Want, now};
use postgres::Row;

/// A lease that the client holds, or thinks it does.
#[derive(Clone)]
pub struct Held {
    pub id: i64,
    pub token: i64,
}

/// The queue that is purged.
pub const SCRAP: &str = "scrap";

/// (Who claimed a task keeps it from changing: its `run_at` is what it was claimed by.)
const CLAIM: &str = "select id, token, attempt, max_retries, queue, group_key,
        (extract(epoch from lease_expires_at) * 1000000)::bigint, priority,
        (extract(epoch from public.run_at(id)) * 1000000)::bigint
   from taskq.claim($1, $2, lease => make_interval(secs => $3))";

impl Client {
    /// One random verb.
    pub fn verb(&mut self) -> Called {
        let hungry = self.held.is_empty() || self.random.one_in(4);
        match self.random.below(100) {
            0..=19 => self.enqueue(),
            20..=26 => self.enqueue_with_key(),
            27..=31 => self.enqueue_many(),
            32..=35 => self.cancel(),
            36..=37 => self.redrive(),
            38 => self.purge(),
            39..=41 => self.operate(),
            42 => self.refused(),
            43 => self.maintain(),
            44..=46 => self.look(),
            47..=49 => self.stale(),
            _ if hungry => self.claim(),
            _ => self.end_some(),
        }
    }

    fn seconds(&mut self, most: u64) -> f64 {
        self.random.below(most * 10) as f64 / 10.0
    }

    /// Names a task for the account. That it may be purged is part of its name.
    pub fn mark(&mut self, queue: &str) -> String {
        self.marks += 1;
        let first = if queue == SCRAP { "s" } else { "" };
        format!("{first}{}-{}-{}", self.number, self.generation, self.marks)
    }

    /// The kind of a task: its type and queue, and a group for some.
    fn kind(&mut self) -> (&'static str, &'static str, Option<String>) {
        match self.random.below(10) {
            0..=2 => ("plain", "main", None),
            3..=5 => ("grouped", "groups", Some(format!("g{}", self.random.below(12)))),
            6 => ("limited", "limited", None),
            7 => ("flexible", "flexible", None),
            8 => ("scrap", SCRAP, None),
            _ if self.random.one_in(3) => ("rated", "rated", None),
            _ => ("plain", "main", Some(format!("m{}", self.random.below(4)))),
        }
    }

    fn enqueue(&mut self) -> Called {
        let (task_type, queue, group) = self.kind();
        let mark = self.mark(queue);
        let delay = if self.random.one_in(4) { self.seconds(3) } else { 0.0 };
        let not_before = later(delay);
        let (priority, retries) = (self.random.below(5) as i32 - 2, self.random.below(4) as i32);
        let sql = "select taskq.enqueue($1, jsonb_build_object('mark', $2::text), $3, $4, delay => make_interval(secs => $5),
                                        max_retries => $6, group_key => $7)";
        let wants = vec![Want::Store { mark: mark.clone() }];
        self.call(
            "enqueue",
            wants,
            sql,
            &[&task_type, &mark, &queue, &priority, &delay, &retries, &group],
            |rows, _| {
                vec![Effect::Stored { mark: mark.clone(), id: rows[0].get(0), keyed: false, not_before }]
            },
        )
    }

    fn enqueue_with_key(&mut self) -> Called {
        let mark = self.mark("keys");
        let until = ["finished", "started"][self.random.below(2) as usize];
        let conflict = ["ignore", "skip", "replace", "error"][self.random.below(4) as usize];
        // keys that end differently do not meet, so that each has one rule
        let key = format!("{until}{}", self.random.below(30));
        let kept = self.random.one_in(5).then(|| self.seconds(2) + 0.1);
        let delay = if self.random.one_in(4) { self.seconds(2) } else { 0.0 };
        let sql = "select taskq.enqueue('keyed', jsonb_build_object('mark', $1::text), 'keys', delay => make_interval(secs => $2),
                                        max_retries => 2, unique_key => $3, unique_until => $4, on_conflict => $5,
                                        unique_for => make_interval(secs => $6))";
        let wants = vec![Want::Store { mark: mark.clone() }];
        let verb = format!("enqueue, on conflict {conflict}");
        self.call(&verb, wants, sql, &[&mark, &delay, &key, &until, &conflict, &kept], |rows, _| {
            vec![match rows[0].get(0) {
                Some(id) => Effect::Stored { mark: mark.clone(), id, keyed: true, not_before: 0 },
                None => Effect::NotStored { mark: mark.clone() },
            }]
        })
    }

    fn enqueue_many(&mut self) -> Called {
        let mut elements = Vec::new();
        let mut marks = Vec::new();
        for _ in 0..1 + self.random.below(6) {
            let mark;
            if self.random.one_in(4) {
                mark = self.mark("keys");
                let key = format!("finished{}", self.random.below(30));
                elements.push(serde_json::json!({"task_type": "keyed", "queue": "keys", "unique_key": key,
                    "payload": {"mark": mark}, "max_retries": 2}));
            } else {
                let (task_type, queue, group) = self.kind();
                mark = self.mark(queue);
                elements.push(serde_json::json!({"task_type": task_type, "queue": queue, "group_key": group,
                    "payload": {"mark": mark}, "max_retries": self.random.below(3),
                    "delay": format!("{} s", self.seconds(2))}));
            }
            marks.push(mark);
        }
        let wants = marks.iter().map(|mark| Want::Store { mark: mark.clone() }).collect();
        let tasks = serde_json::Value::from(elements).to_string();
        let sql = "select ord, id, created from taskq.enqueue_many($1::text::jsonb)";
        self.call("enqueue_many", wants, sql, &[&tasks], |rows, _| {
            let stored = rows.iter().map(|row| {
                let (ord, id, created): (i32, i64, bool) = (row.get(0), row.get(1), row.get(2));
                let mark = marks[ord as usize - 1].clone();
                if created {
                    Effect::Stored { mark, id, keyed: false, not_before: 0 }
                } else {
                    Effect::NotStored { mark }
                }
            });
            stored.collect()
        })
    }

    fn claim(&mut self) -> Called {
        if !self.in_transaction() && self.random.one_in(12) {
            return self.wait();
        }
        let n = 1 + self.random.below(5) as i32;
        let queues: Option<Vec<&str>> = match self.random.below(4) {
            0 => Some(vec!["groups", "limited"]),
            1 => Some(vec!["keys", "rated", "flexible"]),
            _ => None,
        };
        let lease = 0.3 + self.seconds(3);
        self.call("claim", vec![Want::Claim], CLAIM, &[&n, &queues, &lease], claimed)
    }

    /// Claims and completes whatever there is; says how many tasks that were.
    pub fn drain(&mut self) -> usize {
        let queues: Option<Vec<&str>> = None;
        self.call("claim", vec![Want::Claim], CLAIM, &[&200i32, &queues, &60.0f64], |rows, held| {
            claimed(rows, held)
        });
        let n = self.held.len();
        if n > 0 {
            self.complete_many(n);
        }
        n
    }

    fn wait(&mut self) -> Called {
        self.call("wait", vec![], "call taskq.wait(timeout => '300 ms')", &[], |_, _| vec![])
    }

    /// Something with leases that the client holds.
    fn end_some(&mut self) -> Called {
        // Some are forgotten: their leases will be over.
        if self.random.one_in(25) {
            self.held.pop();
            return Called::Fine;
        }
        match self.random.below(20) {
            0..=2 => {
                let n = 1 + self.random.below(self.held.len() as u64) as usize;
                return self.complete_many(n);
            }
            3..=4 => {
                let n = 1 + self.random.below(self.held.len() as u64) as usize;
                return self.fail_many(n);
            }
            _ => {}
        }
        let at = self.random.below(self.held.len() as u64) as usize;
        let held = self.held.swap_remove(at);
        match self.random.below(20) {
            0..=3 => self.fail(held),
            4..=5 => self.release(held),
            6..=9 => self.extend(held),
            10..=12 => self.complete_with_effect(held),
            _ => self.complete(held),
        }
    }

    fn complete(&mut self, held: Held) -> Called {
        let Held { id, token } = held;
        let sql = "select taskq.complete($1, $2, jsonb_build_object('token', $2::bigint))";
        self.call("complete", lease(id, token), sql, &[&id, &token], |_, _| ended(id, token, "succeeded"))
    }

    /// As the README shows it: the effect, once() and complete() in one transaction. The result says so.
    fn complete_with_effect(&mut self, held: Held) -> Called {
        let Held { id, token } = held;
        // one statement, so that it is one transaction wherever it is called
        let sql = "with guard as materialized (select taskq.once('effect', $1::bigint::text) as first),
                        made as (insert into effect select $1, $2 from guard where first)
                   select taskq.complete($1, $2, jsonb_build_object('effect', $2::bigint)) from guard";
        self.call("complete", lease(id, token), sql, &[&id, &token], |_, _| ended(id, token, "succeeded"))
    }

    fn complete_many(&mut self, n: usize) -> Called {
        let (ids, tokens) = self.take(n);
        let wants = pairs(&ids, &tokens);
        let sql = "select * from taskq.complete_many($1, $2)";
        self.call("complete_many", wants, sql, &[&ids, &tokens], |rows, _| {
            let done: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
            let each = ids.iter().zip(&tokens).map(|(&id, &token)| {
                if done.contains(&id) { end(id, token, "succeeded") } else { Effect::LeftOut { id, token } }
            });
            each.collect()
        })
    }

    fn fail(&mut self, held: Held) -> Called {
        let Held { id, token } = held;
        let retry = !self.random.one_in(6);
        let wait = (retry && self.random.one_in(2)).then(|| self.seconds(2));
        let sql = "select state from taskq.fail($1, $2, 'trouble', make_interval(secs => $3), $4)";
        let verb = if retry { "fail" } else { "fail without retry" };
        let not_before = wait.map(later);
        self.call(verb, lease(id, token), sql, &[&id, &token, &wait, &retry], |rows, _| {
            vec![Effect::Ended { id, token, state: rows[0].get(0), not_before }]
        })
    }

    fn fail_many(&mut self, n: usize) -> Called {
        let (ids, tokens) = self.take(n);
        let wants = pairs(&ids, &tokens);
        let sql = "select id, state from taskq.fail_many($1, $2)";
        self.call("fail_many", wants, sql, &[&ids, &tokens], |rows, _| {
            let states: Vec<(i64, String)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
            let each = ids.iter().zip(&tokens).map(|(&id, &token)| {
                match states.iter().find(|(failed, _)| *failed == id) {
                    Some((_, state)) => end(id, token, state),
                    None => Effect::LeftOut { id, token },
                }
            });
            each.collect()
        })
    }

    fn release(&mut self, held: Held) -> Called {
        let Held { id, token } = held;
        let delay = self.random.one_in(2).then(|| self.seconds(2));
        let sql = "select taskq.release($1, $2, make_interval(secs => $3))";
        let not_before = delay.map(later);
        self.call("release", lease(id, token), sql, &[&id, &token, &delay], |_, _| {
            vec![Effect::Ended { id, token, state: "released".to_owned(), not_before }]
        })
    }

    fn extend(&mut self, held: Held) -> Called {
        let Held { id, token } = held;
        let length = 0.3 + self.seconds(3);
        let sql = "select (extract(epoch from lease_expires_at) * 1000000)::bigint
                     from taskq.extend($1, $2, make_interval(secs => $3), '{\"half\": true}')";
        let wants = vec![Want::Lease { id, token, end: false }];
        self.call("extend", wants, sql, &[&id, &token, &length], |rows, list| {
            list.push(held.clone());
            vec![Effect::Extended { id, token, expires_at: rows[0].get(0) }]
        })
    }

    fn cancel(&mut self) -> Called {
        // anybody's task of late
        let id = (self.newest - self.random.below(150) as i64).max(1);
        let force = self.random.one_in(3);
        let wants = vec![Want::Force { id }];
        let sql = "select taskq.cancel($1, 'not wanted', $2)";
        self.call("cancel", wants, sql, &[&id, &force], |rows, _| {
            let answer: String = rows[0].get(0);
            if answer == "not found" {
                vec![Effect::Unknown { id }]
            } else {
                vec![Effect::Cancel { id, force, answer }]
            }
        })
    }

    /// A token that was never ours, or is not any more.
    fn stale(&mut self) -> Called {
        let Some(held) = self.stale.pop() else { return self.claim() };
        match self.random.below(4) {
            0 => self.fail(held),
            1 => self.release(held),
            2 => self.extend(held),
            _ => self.complete(held),
        }
    }

    /// The last n; of each task one, because the answer names tasks, not tokens.
    fn take(&mut self, n: usize) -> (Vec<i64>, Vec<i64>) {
        let at = self.held.len() - n;
        let mut taken: Vec<Held> = self.held.drain(at..).collect();
        taken.sort_by_key(|held| (held.id, -held.token));
        taken.dedup_by_key(|held| held.id);
        taken.into_iter().map(|held| (held.id, held.token)).unzip()
    }
}

fn claimed(rows: &[Row], held: &mut Vec<Held>) -> Vec<Effect> {
    let claims = rows.iter().map(|row| Claim {
        id: row.get(0),
        token: row.get(1),
        attempt: row.get(2),
        max_retries: row.get(3),
        queue: row.get(4),
        group: row.get(5),
        expires_at: row.get::<_, Time>(6),
        priority: row.get(7),
        run_at: row.get::<_, Time>(8),
    });
    let claims: Vec<Claim> = claims.collect();
    held.extend(claims.iter().map(|claim| Held { id: claim.id, token: claim.token }));
    claims.into_iter().map(Effect::Claimed).collect()
}

fn lease(id: i64, token: i64) -> Vec<Want> {
    vec![Want::Lease { id, token, end: true }]
}

fn pairs(ids: &[i64], tokens: &[i64]) -> Vec<Want> {
    ids.iter().zip(tokens).flat_map(|(&id, &token)| lease(id, token)).collect()
}

fn end(id: i64, token: i64, state: &str) -> Effect {
    Effect::Ended { id, token, state: state.to_owned(), not_before: None }
}

fn ended(id: i64, token: i64, state: &str) -> Vec<Effect> {
    vec![end(id, token, state)]
}

/// The earliest moment at which a delay that begins in a call can be over.
fn later(seconds: f64) -> Time {
    now() + (seconds * 1_000_000.0) as Time
}
