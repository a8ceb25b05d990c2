//! The client processes, and what they tell.

use crate::journal::Event;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use taskq_server_tests::pause;

pub type Events = Arc<Mutex<Vec<(u64, Event)>>>;

pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What was told before a failure still counts.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Process {
    number: u64,
    generation: u64,
    child: Child,
    reader: JoinHandle<()>,
}

pub struct Clients {
    /// The folder of the server's socket.
    host: String,
    seed: u64,
    events: Events,
    processes: Vec<Process>,
}

impl Clients {
    pub fn start(host: String, seed: u64, number: u64, events: Events) -> Self {
        let mut clients = Clients { host, seed, events, processes: Vec::new() };
        for number in 1..=number {
            let process = clients.process(number, 1);
            clients.processes.push(process);
        }
        clients
    }

    fn process(&self, number: u64, generation: u64) -> Process {
        let program = std::env::current_exe().expect("this program");
        // None outlives us, not even one that is stopped.
        let mut child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .arg(program)
            .args(["client", &self.host])
            .args([number, generation, self.seed].map(|n| n.to_string()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a client");
        let told = BufReader::new(child.stdout.take().expect("its journal"));
        let events = self.events.clone();
        let reader = thread::spawn(move || {
            // A line that the client did not finish was about nothing that it has begun.
            for line in told.lines().map_while(Result::ok) {
                if let Ok(event) = serde_json::from_str(&line) {
                    locked(&events).push((number, event));
                }
            }
        });
        Process { number, generation, child, reader }
    }

    /// The processes, beginning with this client's.
    pub fn pids_from(&self, number: u64) -> impl Iterator<Item = u32> {
        let (before, from): (Vec<_>, Vec<_>) =
            self.processes.iter().partition(|process| process.number < number);
        from.into_iter().chain(before).map(|process| process.child.id())
    }

    /// Starts those again that were killed; says of those that ended otherwise.
    pub fn restart_killed(&mut self) -> Vec<String> {
        let mut found = Vec::new();
        for place in 0..self.processes.len() {
            let process = &mut self.processes[place];
            let Ok(Some(status)) = process.child.try_wait() else { continue };
            if std::os::unix::process::ExitStatusExt::signal(&status) != Some(9) {
                found.push(format!("client {} ended: {status}", process.number));
            }
            let new = self.process(self.processes[place].number, self.processes[place].generation + 1);
            let old = std::mem::replace(&mut self.processes[place], new);
            let _ = old.reader.join();
        }
        found
    }

    /// Tells all to stop, and waits for them.
    pub fn stop(mut self) -> Vec<String> {
        for process in &mut self.processes {
            if let Some(mut stdin) = process.child.stdin.take() {
                let _ = stdin.write_all(b"stop\n");
            }
        }
        let mut found = Vec::new();
        let begin = Instant::now();
        for mut process in self.processes {
            while matches!(process.child.try_wait(), Ok(None)) {
                if begin.elapsed() > Duration::from_secs(90) {
                    found.push(format!("client {} hangs", process.number));
                    let _ = process.child.kill();
                }
                pause(0.05);
            }
            let _ = process.reader.join();
        }
        found
    }
}
