//! The workers that called `claim` or `wait` lately.

use super::memory::{Process, WORKERS};
use super::text::{Name, Text, hash};
use crate::values::Moment;

/// A worker that names more queues is shown with the first ones.
pub const QUEUES: usize = 16;
/// A worker is in one of so many slots, so that a claim need not look at all of them.
const NEAR: usize = 16;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Worker {
    /// 0: this slot is free.
    pub database: u32,
    hash: u64,
    pub name: Text<255>,
    /// The session that it last called from, and how often in a row.
    pub process: Process,
    pub calls_in_session: i64,
    queues_hash: u64,
    /// It takes from every queue.
    pub every_queue: bool,
    pub queue_count: u8,
    pub queues: [Name; QUEUES],
    pub first_seen_at: Moment,
    pub seen_at: Moment,
    /// When a claim last gave it a task; the distant past: never.
    pub claimed_at: Moment,
    pub claims: i64,
    pub claimed: i64,
}

/// The slot of a worker. Of those that it may have, the one not seen for longest is taken if it is new.
pub fn find<'a>(
    workers: &'a mut [Worker; WORKERS],
    database: u32,
    name: &str,
    now: Moment,
) -> &'a mut Worker {
    let hash = hash((database, name));
    let name = Text::new(name);
    let first = hash as usize % (WORKERS - NEAR);
    let near = &mut workers[first..first + NEAR];
    let known = near.iter().position(|w| w.database == database && w.hash == hash && w.name == name);
    let at = known.unwrap_or_else(|| {
        let oldest =
            |at: &usize| if near[*at].database == 0 { Moment::DISTANT_PAST } else { near[*at].seen_at };
        let at = (0..NEAR).min_by_key(oldest).unwrap_or(0);
        near[at] = Worker {
            database,
            hash,
            name,
            process: Process::NONE,
            calls_in_session: 0,
            queues_hash: 0,
            every_queue: false,
            queue_count: 0,
            queues: [Name::EMPTY; QUEUES],
            first_seen_at: now,
            seen_at: now,
            claimed_at: Moment::DISTANT_PAST,
            claims: 0,
            claimed: 0,
        };
        at
    });
    &mut near[at]
}

impl Worker {
    pub fn seen(&mut self, queues: Option<&[String]>, now: Moment) {
        self.seen_at = now;
        let process = Process::current();
        self.calls_in_session = if process == self.process { self.calls_in_session + 1 } else { 1 };
        self.process = process;
        let queues_hash = hash(queues);
        if queues_hash == self.queues_hash {
            return;
        }
        self.queues_hash = queues_hash;
        // Of one that names more than fit, nobody could say from which it does not claim.
        self.every_queue = queues.is_none_or(|queues| queues.len() > QUEUES);
        self.queue_count = 0;
        for queue in queues.into_iter().flatten().take(QUEUES) {
            self.queues[usize::from(self.queue_count)] = Name::new(queue);
            self.queue_count += 1;
        }
    }
}
