//! Sessions that sleep in `taskq.wait`.

use super::memory::Process;
use super::text::hash;

/// A waiter for more queues than this is woken for any.
const QUEUES: usize = 8;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Waiter {
    /// 0: this slot is free.
    pub database: u32,
    pub process: Process,
    /// It is to look, and does not count as waiting any more.
    pub woken: bool,
    any_queue: bool,
    count: u8,
    queues: [u64; QUEUES],
    /// Orders waiters: the first to come is the first to be woken.
    pub number: u64,
}

impl Waiter {
    pub fn new(database: u32, queues: Option<&[String]>, number: u64) -> Self {
        let mut waiter = Waiter {
            database,
            process: Process::current(),
            woken: false,
            any_queue: queues.is_none_or(|queues| queues.len() > QUEUES),
            count: 0,
            queues: [0; QUEUES],
            number,
        };
        for queue in queues.into_iter().flatten().take(QUEUES) {
            waiter.queues[usize::from(waiter.count)] = hash(queue.as_str());
            waiter.count += 1;
        }
        waiter
    }

    fn wants(&self, queue: u64) -> bool {
        self.any_queue || self.queues[..usize::from(self.count)].contains(&queue)
    }
}

/// Wakes as many waiters as tasks of this queue became claimable, those that came first.
pub fn wake(waiters: &mut [Waiter], database: u32, queue: &str, tasks: i64) {
    let queue = hash(queue);
    let mut left = tasks;
    while left > 0 {
        let next = waiters
            .iter_mut()
            .filter(|waiter| waiter.database == database && !waiter.woken && waiter.wants(queue))
            .min_by_key(|waiter| waiter.number);
        let Some(waiter) = next else { return };
        if waiter.process.lives() {
            waiter.woken = true;
            waiter.process.wake();
            left -= 1;
        } else {
            waiter.database = 0;
        }
    }
}
