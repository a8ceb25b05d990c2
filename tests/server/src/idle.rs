//! Background workers that have nothing to do: they sleep.

use crate::process::{cpu_seconds, from_status, signal};
use crate::signals::SIGHUP;
use crate::wait::pause;
use std::time::Instant;

const SLEEPS: &str = "voluntary_ctxt_switches:";

/// What a process has used until a moment.
struct Usage {
    pid: i32,
    at: Instant,
    sleeps: u64,
    cpu: f64,
}

impl Usage {
    fn of(pid: i32) -> Self {
        Usage { pid, at: Instant::now(), sleeps: from_status(pid, SLEEPS), cpu: cpu_seconds(pid) }
    }

    /// Complains of more sleeps and seconds of processor time since then. A turn of a loop is at least one sleep, or it
    /// spins, which takes a processor.
    fn complaints(&self, sleeps_a_second: f64, sleeps: f64, cpu: f64) -> Vec<String> {
        let now = Self::of(self.pid);
        let (slept, used) = ((now.sleeps - self.sleeps) as f64, now.cpu - self.cpu);
        let seconds = (now.at - self.at).as_secs_f64();
        let mut complaints = Vec::new();
        if slept > sleeps_a_second * seconds + sleeps {
            complaints.push(format!("process {} slept {slept} times in {seconds:.1} s", self.pid));
        }
        if used > cpu {
            complaints.push(format!("process {} used {used} s of a processor in {seconds:.1} s", self.pid));
        }
        complaints
    }
}

/// Watches processes for so many seconds, a minute at most, in which they should wake up about once a second.
pub fn watch_idle(processes: &[i32], seconds: f64) -> Vec<String> {
    let before: Vec<Usage> = processes.iter().map(|pid| Usage::of(*pid)).collect();
    let own = from_status("thread-self", SLEEPS);
    pause(seconds);
    // We sleep once; more often if the machine halts us, which ends the sleep of others a few times, too.
    let halts = (from_status("thread-self", SLEEPS) - own).saturating_sub(1) as f64;
    before.iter().flat_map(|usage| usage.complaints(3.0, 2.0 * halts, 0.5)).collect()
}

/// Sends so many SIGHUPs to processes, which should cost each of them a turn at most, and then rest.
pub fn watch_signalled(processes: &[i32], signals: u32) -> Vec<String> {
    let before: Vec<Usage> = processes.iter().map(|pid| Usage::of(*pid)).collect();
    for _ in 0..signals {
        for pid in processes {
            signal(u32::try_from(*pid).expect("a process id"), SIGHUP);
        }
        // (Sent at once, they would be one.)
        pause(0.002);
    }
    pause(2.0);
    // In some turns it has to wait for a lock, too.
    let turns = 1.2 * f64::from(signals);
    let mut complaints: Vec<String> =
        before.iter().flat_map(|usage| usage.complaints(3.0, turns, f64::INFINITY)).collect();
    complaints.extend(watch_idle(processes, 5.0));
    complaints
}
