//! Processes: signals, children, memory.

use crate::wait::eventually;
use postgres::Client;
use std::fmt::Display;
use std::fs;

/// Sends a signal. A process that is gone already is none of our concern.
#[allow(unsafe_code)]
pub fn signal(pid: u32, signal: i32) {
    let pid = i32::try_from(pid).expect("a process id");
    assert!(pid > 1, "refusing to signal process {pid}");
    // SAFETY: a system call without pointers.
    unsafe { libc::kill(pid, signal) };
}

/// Stops a keeper or launcher while it sleeps. (Stopped at any other moment, it may hold a lock on what all share, and
/// the whole server would stand still. For the same reason the question must be one that needs no lock.)
pub fn stop_asleep(client: &mut Client, pid: u32) {
    let sleeps = client
        .prepare(
            "select pg_stat_get_backend_wait_event(id) is not distinct from 'Extension'
               from pg_stat_get_backend_idset() id where pg_stat_get_backend_pid(id) = $1",
        )
        .expect("prepare");
    let server_pid = i32::try_from(pid).expect("a process id");
    eventually("it is stopped while it sleeps", 30, || {
        let mut asleep = || client.query_one(&sleeps, &[&server_pid]).is_ok_and(|row| row.get(0));
        if !asleep() {
            return false;
        }
        signal(pid, libc::SIGSTOP);
        let stopped = asleep();
        if !stopped {
            signal(pid, libc::SIGCONT);
        }
        stopped
    });
}

/// Runs a function when this program ends: test files keep their server in a static, and statics
/// are not dropped.
#[allow(unsafe_code)]
pub fn at_exit(function: extern "C" fn()) {
    // SAFETY: the function lives as long as the program.
    unsafe { libc::atexit(function) };
}

pub fn is_alive(pid: u32) -> bool {
    // A zombie is dead, whatever its parent does about it.
    state_and_parent(pid).is_some_and(|(state, _)| state != "Z" && state != "X")
}

/// Halts a process that starts others, and says which it has started.
pub fn halted_with_children(parent: u32) -> Vec<u32> {
    signal(parent, libc::SIGSTOP);
    // It may just be starting another one.
    eventually("it stands still", 30, || {
        state_and_parent(parent).is_none_or(|(state, _)| ["T", "Z", "X"].contains(&state.as_str()))
    });
    children(parent)
}

fn children(parent: u32) -> Vec<u32> {
    fs::read_dir("/proc")
        .expect("/proc")
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| state_and_parent(*pid).is_some_and(|(_, of)| of == parent))
        .collect()
}

fn state_and_parent(pid: u32) -> Option<(String, u32)> {
    let fields = stat(pid)?;
    Some((fields.first()?.clone(), fields.get(1)?.parse().ok()?))
}

/// The fields of /proc/PID/stat behind the name (which may contain anything).
fn stat(pid: u32) -> Option<Vec<String>> {
    let line = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(line.rsplit_once(')')?.1.split_whitespace().map(str::to_owned).collect())
}

/// Seconds of processor time a process has used so far.
pub fn cpu_seconds(pid: i32) -> f64 {
    let fields = stat(u32::try_from(pid).expect("a process id")).expect("a living process");
    let ticks: f64 = fields[11..13].iter().map(|field| field.parse::<f64>().expect("ticks")).sum();
    ticks / 100.0
}

/// Bytes of memory that a process has for itself: without shared memory and program text, which
/// count for it when it first touches them.
pub fn anonymous_memory(pid: i32) -> u64 {
    memory(pid, "RssAnon:")
}

/// The most bytes of memory that a process has had so far, with what it has touched of shared memory.
pub fn peak_memory(pid: i32) -> u64 {
    memory(pid, "VmHWM:")
}

fn memory(pid: i32, what: &str) -> u64 {
    from_status(pid, what) * 1024
}

/// A number that the system tells of a process, or of `thread-self`.
pub fn from_status(process: impl Display, what: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("a living process");
    let line = status.lines().find(|line| line.starts_with(what)).expect(what);
    line.split_whitespace().nth(1).expect("a number").parse().expect("a number")
}
