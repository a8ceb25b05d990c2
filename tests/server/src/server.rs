//! A PostgreSQL server of our own, and databases in it.

use crate::process::{at_exit, halted_with_children, is_alive, signal};
use crate::session::Session;
use crate::wait::{eventually, pause};
use postgres::{Client, Config, NoTls};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::ops::Deref;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Stdio};
use std::sync::{Arc, Mutex, Once, OnceLock};
use std::time::{Duration, Instant};

/// How long a server may take to start (it may have to recover) or to stop.
const PATIENCE: Duration = Duration::from_secs(90);

/// Durability against a crash of the machine is not what we test: what a killed server has written
/// is safe with the operating system. Hence no fsync.
const SETTINGS: &[&str] = &[
    "listen_addresses = ''",
    "fsync = off",
    "shared_buffers = 32MB",
    "max_connections = 80",
    "max_worker_processes = 40",
    "statement_timeout = '120 s'",
    "log_line_prefix = '%m [%p] %b '",
    "timezone = 'UTC'",
];

/// How a server is told to stop.
#[derive(Clone, Copy)]
pub enum Stop {
    Fast,
    Immediate,
}

pub struct Server {
    inner: Arc<Inner>,
}

struct Inner {
    folder: PathBuf,
    /// The programs it is run with.
    programs: PathBuf,
    postmaster: Mutex<Option<Child>>,
}

/// The servers of this program that are not removed yet.
static SERVERS: Mutex<Vec<Arc<Inner>>> = Mutex::new(Vec::new());

impl Server {
    /// Makes a cluster and starts its server. Lines are added to postgresql.conf.
    pub fn start(name: &str, lines: &[&str]) -> Server {
        let preloaded = [&["shared_preload_libraries = 'taskq'"], lines].concat();
        Self::start_without_preloading(name, &preloaded)
    }

    pub fn start_without_preloading(name: &str, lines: &[&str]) -> Server {
        let server = Self::in_new_folder(name, programs());
        server.make_cluster(&[]);
        server.configure(SETTINGS);
        server.configure(lines);
        server.start_again();
        server
    }

    fn make_cluster(&self, options: &[&str]) {
        self.make("initdb", |command| {
            command.args(["--username=postgres", "--auth=trust", "--locale=C.UTF-8", "--encoding=UTF8"]);
            command.args(options).arg("--no-sync").arg("-D").arg(self.data())
        });
    }

    /// Brings this server, which must be stopped, to a newer PostgreSQL with pg_upgrade, and starts
    /// it there. Both have the settings of this one.
    pub fn upgraded(&self, name: &str, newer: &Path) -> Server {
        let new = Self::in_new_folder(name, newer.to_owned());
        let version = Command::new(newer.join("postgres")).arg("--version").output().expect("postgres");
        let version = String::from_utf8_lossy(&version.stdout).into_owned();
        // From 18 on clusters have checksums unless told otherwise; both must agree.
        let checksums = ["(PostgreSQL) 16.", "(PostgreSQL) 17."].iter().any(|older| version.contains(older));
        new.make_cluster(if checksums { &[] } else { &["--no-data-checksums"] });
        fs::copy(self.data().join("postgresql.conf"), new.data().join("postgresql.conf")).expect("conf");
        new.configure(&[]);
        let mut command = new.command("pg_upgrade");
        command.arg("--username=postgres").arg("--socketdir").arg(&new.inner.folder);
        command.arg("-b").arg(&self.inner.programs).arg("-B").arg(newer);
        command.arg("-d").arg(self.data()).arg("-D").arg(new.data());
        let done = command.output().expect("pg_upgrade");
        // Its report ends with the name of the log to read.
        let report = String::from_utf8_lossy(&done.stdout).into_owned();
        let log = report.split('"').find(|word| word.ends_with(".log")).map(fs::read).transpose();
        let log = log.ok().flatten().unwrap_or_default();
        assert!(done.status.success(), "pg_upgrade: {report}\n{}", String::from_utf8_lossy(&log));
        new.start_again();
        new
    }

    /// Makes a standby of this server, which streams from it, and starts it. Its name for
    /// synchronous_standby_names is `standby`.
    pub fn standby(&self, name: &str, lines: &[&str]) -> Server {
        let standby = Self::in_new_folder(name, self.inner.programs.clone());
        let from =
            format!("host={} port=5432 user=postgres application_name=standby", self.inner.folder.display());
        standby.make("pg_basebackup", |command| {
            command.args(["--write-recovery-conf", "--checkpoint=fast", "--no-sync", "--dbname", &from]);
            command.arg("-D").arg(standby.data())
        });
        standby.configure(lines);
        standby.start_again();
        standby
    }

    /// Makes a primary of a standby, and waits until it is one.
    pub fn promote(&self) {
        self.make("pg_ctl", |command| command.args(["promote", "--wait", "-D"]).arg(self.data()));
    }

    fn in_new_folder(name: &str, programs: PathBuf) -> Server {
        let folder = PathBuf::from(variable("TASKQ_TEST_DIR")).join(format!("{name}-{}", process::id()));
        fs::create_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).expect("permissions");
        if let Some((user, group)) = server_user() {
            chown(&folder, Some(user), Some(group)).expect("chown");
        }
        let server = Server { inner: Arc::new(Inner { folder, programs, postmaster: Mutex::new(None) }) };
        static REMOVE_AT_EXIT: Once = Once::new();
        REMOVE_AT_EXIT.call_once(|| at_exit(remove_servers));
        SERVERS.lock().expect("servers").push(server.inner.clone());
        server
    }

    /// Runs one of PostgreSQL's programs, which must succeed.
    fn make(&self, program: &str, arguments: impl FnOnce(&mut Command) -> &mut Command) {
        let mut command = self.command(program);
        let made = arguments(&mut command).output().expect(program);
        assert!(made.status.success(), "{program}: {}", String::from_utf8_lossy(&made.stderr));
    }

    /// Adds lines to postgresql.conf, and the folder for the socket.
    fn configure(&self, lines: &[&str]) {
        let mut conf =
            OpenOptions::new().append(true).open(self.data().join("postgresql.conf")).expect("conf");
        writeln!(conf, "unix_socket_directories = '{}'", self.inner.folder.display()).expect("conf");
        for line in lines {
            writeln!(conf, "{line}").expect("conf");
        }
    }

    /// A new folder that the server's user may write to, as for a tablespace.
    pub fn folder(&self, name: &str) -> PathBuf {
        let folder = self.inner.folder.join(name);
        fs::create_dir(&folder).expect("folder");
        if let Some((user, group)) = server_user() {
            chown(&folder, Some(user), Some(group)).expect("chown");
        }
        folder
    }

    pub fn data(&self) -> PathBuf {
        self.inner.folder.join("data")
    }

    /// Starts the server after `stop` or `kill`, and waits until it takes connections.
    pub fn start_again(&self) {
        let log = File::options().create(true).append(true).open(self.inner.folder.join("log")).expect("log");
        let child = self
            .command("postgres")
            .arg("-D")
            .arg(self.data())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("log"))
            .stderr(log)
            .spawn()
            .expect("postgres");
        *self.inner.postmaster.lock().expect("postmaster") = Some(child);
        let begin = Instant::now();
        while self.try_connect("postgres").is_err() {
            let ended =
                self.inner.postmaster.lock().expect("postmaster").as_mut().and_then(|c| c.try_wait().ok()?);
            assert!(ended.is_none(), "the server ended: {}", self.log());
            assert!(begin.elapsed() < PATIENCE, "the server does not start: {}", self.log());
            pause(0.05);
        }
    }

    /// Stops the server and says how long that took.
    pub fn stop(&self, how: Stop) -> Duration {
        let begin = Instant::now();
        self.inner.stop(how);
        begin.elapsed()
    }

    pub fn restart(&self) {
        self.stop(Stop::Fast);
        self.start_again();
    }

    /// Kills all processes of the server with SIGKILL, as the power failure of its machine would.
    pub fn kill(&self) {
        self.inner.kill();
    }

    /// Kills the postmaster alone with SIGKILL, and waits until the others have noticed and left.
    pub fn kill_postmaster(&self) {
        self.inner.kill_postmaster();
    }

    /// The folder of the server's socket.
    pub fn host(&self) -> &Path {
        &self.inner.folder
    }

    /// What the server has written to its log so far.
    pub fn log(&self) -> String {
        fs::read(self.inner.folder.join("log"))
            .map_or(String::new(), |text| String::from_utf8_lossy(&text).into_owned())
    }

    pub fn config(&self, database: &str) -> Config {
        let mut config = Config::new();
        config.host_path(&self.inner.folder).port(5432).user("postgres").dbname(database);
        config.connect_timeout(Duration::from_secs(30));
        config
    }

    pub fn try_connect(&self, database: &str) -> Result<Client, postgres::Error> {
        self.config(database).connect(NoTls)
    }

    pub fn connect(&self, database: &str) -> Client {
        self.try_connect(database).unwrap_or_else(|error| panic!("connect: {error:?}\n{}", self.log()))
    }

    /// A new database with taskq.
    pub fn database(&self, name: &str) -> Database<'_> {
        let database = self.empty_database(name);
        database.connect().run("create extension taskq");
        database
    }

    /// A new database without taskq.
    pub fn empty_database(&self, name: &str) -> Database<'_> {
        self.connect("postgres").run(&format!("create database \"{name}\" template template0"));
        Database { server: self, name: name.to_owned() }
    }

    /// Whether an extension of contrib can be had. Not every build of PostgreSQL has contrib: there, what a test does
    /// with it is left out. That of 15 must have it, and one that has some of contrib must have all.
    pub fn offers(&self, extension: &str) -> bool {
        let mut client = self.connect("postgres");
        let offered = "select count(*) > 0 from pg_available_extensions where name = any ($1)";
        if client.value(offered, &[&[extension].as_slice()]) {
            return true;
        }
        let version: i32 = client.value("select current_setting('server_version_num')::integer / 10000", &[]);
        let some: bool =
            client.value(offered, &[&["citext", "hstore", "pageinspect", "tablefunc"].as_slice()]);
        assert!(version != 15 && !some, "this server should have {extension} of contrib");
        eprintln!("this server has no contrib, and so no {extension}");
        false
    }

    /// One of PostgreSQL's programs, which will find this server by its environment.
    pub fn program(&self, name: &str) -> Command {
        let mut command = self.command(name);
        command.env("PGHOST", &self.inner.folder).env("PGPORT", "5432").env("PGUSER", "postgres");
        command
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.inner.programs.join(program));
        command.current_dir(&self.inner.folder);
        for (name, _) in std::env::vars_os() {
            // Backtraces of our own failures would cost a server a second each.
            if name.to_string_lossy().starts_with("PG") || name.to_string_lossy().starts_with("RUST_") {
                command.env_remove(name);
            }
        }
        if let Some((user, group)) = server_user() {
            command.gid(group).uid(user);
        }
        command
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.inner.show_log();
        }
        SERVERS.lock().expect("servers").retain(|inner| !Arc::ptr_eq(inner, &self.inner));
        self.inner.remove();
    }
}

impl Inner {
    fn stop(&self, how: Stop) {
        let Some(mut child) = self.postmaster.lock().expect("postmaster").take() else { return };
        signal(
            child.id(),
            match how {
                Stop::Fast => libc::SIGINT,
                Stop::Immediate => libc::SIGQUIT,
            },
        );
        let begin = Instant::now();
        while child.try_wait().expect("wait").is_none() {
            if begin.elapsed() > PATIENCE {
                *self.postmaster.lock().expect("postmaster") = Some(child);
                self.kill();
                panic!("the server did not stop");
            }
            pause(0.02);
        }
    }

    fn kill(&self) {
        let Some(mut child) = self.postmaster.lock().expect("postmaster").take() else { return };
        let all = halted_with_children(child.id());
        signal(child.id(), libc::SIGKILL);
        for pid in &all {
            signal(*pid, libc::SIGKILL);
        }
        child.wait().expect("wait");
        eventually("all processes of the server are gone", 30, || all.iter().all(|pid| !is_alive(*pid)));
    }

    fn kill_postmaster(&self) {
        let Some(mut child) = self.postmaster.lock().expect("postmaster").take() else { return };
        let all = halted_with_children(child.id());
        signal(child.id(), libc::SIGKILL);
        child.wait().expect("wait");
        eventually("the orphans are gone", 60, || all.iter().all(|pid| !is_alive(*pid)));
    }

    fn remove(&self) {
        self.kill();
        if std::env::var_os("TASKQ_TEST_KEEP").is_none() {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }

    fn show_log(&self) {
        let log = fs::read(self.folder.join("log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        eprintln!(
            "the last lines of the server's log:\n{}",
            lines[lines.len().saturating_sub(25)..].join("\n")
        );
    }
}

extern "C" fn remove_servers() {
    if let Ok(mut servers) = SERVERS.lock() {
        servers.drain(..).for_each(|inner| inner.remove());
    }
}

/// The server of a test file, started by the first test that needs it.
pub struct Shared {
    name: &'static str,
    lines: &'static [&'static str],
    server: OnceLock<Server>,
}

impl Shared {
    pub const fn new(name: &'static str, lines: &'static [&'static str]) -> Self {
        Shared { name, lines, server: OnceLock::new() }
    }
}

impl Deref for Shared {
    type Target = Server;

    fn deref(&self) -> &Server {
        self.server.get_or_init(|| Server::start(self.name, self.lines))
    }
}

/// A database of one test.
pub struct Database<'server> {
    pub server: &'server Server,
    pub name: String,
}

impl Database<'_> {
    pub fn connect(&self) -> Client {
        self.server.connect(&self.name)
    }
}

impl Drop for Database<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.server.inner.show_log();
        }
    }
}

/// Those of the server under test.
fn programs() -> PathBuf {
    PathBuf::from(variable("TASKQ_TEST_BINDIR"))
}

fn variable(name: &str) -> String {
    match std::env::var(name) {
        Ok(value) if !value.is_empty() => value,
        _ => panic!("{name} is not set: run these tests with `make server`"),
    }
}

/// The user and group that servers run as, if that is not who we are.
fn server_user() -> Option<(u32, u32)> {
    static IDS: OnceLock<Option<(u32, u32)>> = OnceLock::new();
    *IDS.get_or_init(|| {
        let name = std::env::var("TASKQ_TEST_USER").ok().filter(|name| !name.is_empty())?;
        let id = |what: &str| {
            let output = Command::new("id").args([what, &name]).output().expect("id");
            String::from_utf8_lossy(&output.stdout)
                .trim()
                .parse()
                .unwrap_or_else(|_| panic!("there is no user {name}"))
        };
        Some((id("-u"), id("-g")))
    })
}
