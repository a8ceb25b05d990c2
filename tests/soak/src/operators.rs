//! Random calls of what operators do, of those who look, and of those who call wrongly.

use crate::client::{Called, Client};
use crate::journal::{Effect, Want};

impl Client {
    pub fn redrive(&mut self) -> Called {
        let most = 1 + self.random.below(20) as i32;
        let pace = self.random.one_in(3).then_some(20i32);
        let sql = "select redriven from taskq.redrive('*', max_tasks => $1, per_second => $2::integer)";
        self.call("redrive", vec![], sql, &[&most, &pace], |_, _| vec![])
    }

    /// Only of a queue of its own: what was purged is told by its number alone.
    pub fn purge(&mut self) -> Called {
        let state = ["ready", "scheduled", "dead", "succeeded", "cancelled"][self.random.below(5) as usize];
        let sql = "select taskq.purge($1, 'scrap')";
        self.call("purge", vec![Want::Purge], sql, &[&state], |rows, _| {
            vec![Effect::Purged(rows[0].get::<_, i64>(0))]
        })
    }

    /// What operators do.
    pub fn operate(&mut self) -> Called {
        let queue = ["main", "groups", "limited", "flexible", "keys"][self.random.below(5) as usize];
        let (verb, sql) = match self.random.below(8) {
            0 => ("pause", format!("select taskq.pause('{queue}')")),
            1..=3 => {
                ("resume", format!("select taskq.resume(q) from unnest('{{main,groups,{queue}}}'::text[]) q"))
            }
            4 => {
                let limit = 3 + self.random.below(6);
                (
                    "configure_queue",
                    format!("select taskq.configure_queue('flexible', '{{\"max_running\": {limit}}}')"),
                )
            }
            5 => {
                let lease = self.random.below(4) + 1;
                (
                    "configure_queue",
                    format!("select taskq.configure_queue('{queue}', '{{\"lease\": \"{lease} s\"}}')"),
                )
            }
            6 => {
                let name = self.random.below(3);
                let at = self.random.below(3) + 1;
                (
                    "schedule",
                    format!(
                        "select taskq.schedule('other {name}', '*/{at} * * * * *', 'scheduled', settings => '{{\"queue\": \"ticks\"}}')"
                    ),
                )
            }
            _ => ("unschedule", format!("select taskq.unschedule('other {}')", self.random.below(3))),
        };
        self.call(verb, vec![], &sql, &[], |_, _| vec![])
    }

    /// Calls that must be refused, and change nothing.
    pub fn refused(&mut self) -> Called {
        let mark = self.mark("");
        let sql = match self.random.below(4) {
            0 => format!("select taskq.enqueue('plain', '{{\"mark\": \"{mark}\"}}', 'main', 101)"),
            1 => format!(
                "select * from taskq.enqueue_many('[{{\"task_type\": \"plain\", \"payload\": {{\"mark\": \"{mark}\"}}}}, {{\"task_type\": 1}}]')"
            ),
            2 => "select * from taskq.claim(-1)".to_owned(),
            _ => "select * from taskq.complete_many('{1,2}', '{1}')".to_owned(),
        };
        // (No want to store: the mark must not be found.)
        self.call("refused", vec![], &sql, &[], |_, _| vec![])
    }

    pub fn look(&mut self) -> Called {
        let id = (self.newest - self.random.below(300) as i64).max(1);
        let sql = match self.random.below(4) {
            0 => "select * from taskq.queues where $1::bigint > 0",
            1 => "select * from taskq.running where $1::bigint > 0 limit 20",
            2 => "select * from taskq.tasks where id > $1 limit 20",
            _ => {
                return self.call("status", vec![], "select * from taskq.status($1)", &[&id], |rows, _| {
                    if rows.is_empty() { vec![Effect::Unknown { id }] } else { vec![] }
                });
            }
        };
        self.call("look", vec![], sql, &[&id], |_, _| vec![])
    }

    /// The keeper's duties, by hand and beside it. (Not in a transaction: a round's locks are meant to be held for a moment.)
    pub fn maintain(&mut self) -> Called {
        if self.in_transaction() {
            return self.operate();
        }
        if self.random.one_in(4) {
            return self.call("maintain", vec![], "call taskq.maintain()", &[], |_, _| vec![]);
        }
        self.call("archive", vec![], "select taskq._run_duty('archive')", &[], |_, _| vec![])
    }
}
