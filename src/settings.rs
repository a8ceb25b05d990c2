//! The server settings (`taskq.*` in postgresql.conf, ALTER DATABASE, SET).

use pgrx::guc::{GucContext, GucFlags, GucRegistry, GucSetting};
use std::ffi::CString;

pub static MAX_PAYLOAD_BYTES: GucSetting<i32> = GucSetting::<i32>::new(1024 * 1024);
pub static KEEPER: GucSetting<bool> = GucSetting::<bool>::new(true);
pub static KEEPER_INTERVAL: GucSetting<i32> = GucSetting::<i32>::new(1_000);
pub static EXCLUDED_DATABASES: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(None);
pub static ARCHIVE_RETENTION: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(None);
/// Read by SQL only (sql/sample.sql).
static SAMPLE_INTERVAL: GucSetting<i32> = GucSetting::<i32>::new(10);
static SAMPLE_RETENTION: GucSetting<i32> = GucSetting::<i32>::new(7 * 24 * 60);
// These are read in SQL (sql/alert.sql).
static ALERT_REPEAT: GucSetting<i32> = GucSetting::<i32>::new(DAY);
static KEEPER_LATE_LIMIT: GucSetting<i32> = GucSetting::<i32>::new(60);
static VACUUM_HELD_LIMIT: GucSetting<i32> = GucSetting::<i32>::new(900);
pub static TEST_CLOCK: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(None);

const DAY: i32 = 86_400; // seconds

pub fn init() {
    GucRegistry::define_int_guc(
        c"taskq.max_payload_bytes",
        c"Largest payload (with its headers), result or progress that a task may have.",
        c"Counted in bytes of the binary jsonb. Larger ones are refused with SQLSTATE 54000.",
        &MAX_PAYLOAD_BYTES,
        1024,
        256 * 1024 * 1024 - 1,
        GucContext::Suset,
        GucFlags::UNIT_BYTE,
    );
    GucRegistry::define_bool_guc(
        c"taskq.keeper",
        c"Whether a keeper works in this database.",
        c"The keeper recovers expired leases, sends alerts and archives. Switch it off with ALTER DATABASE ... SET on a restored copy that must not act.",
        &KEEPER,
        GucContext::Suset,
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"taskq.keeper_interval",
        c"How long the keeper sleeps between two looks at its duties.",
        c"An expired lease is taken back within about this time; each duty has its own interval in taskq.duty.",
        &KEEPER_INTERVAL,
        50,
        60_000,
        GucContext::Sighup,
        GucFlags::UNIT_MS,
    );
    GucRegistry::define_string_guc(
        c"taskq.archive_retention",
        c"How long the archive keeps finished tasks.",
        c"An interval, such as '2 years', counted from the end of the task. Empty keeps them for ever.",
        &ARCHIVE_RETENTION,
        GucContext::Suset,
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"taskq.sample_interval",
        c"How often the keeper takes a sample of what the queues do.",
        c"taskq.history shows the samples; forecasts are made from those of the last 15 minutes.",
        &SAMPLE_INTERVAL,
        1,
        300,
        GucContext::Suset,
        GucFlags::UNIT_S,
    );
    GucRegistry::define_int_guc(
        c"taskq.sample_retention",
        c"How long the samples in taskq.history are kept.",
        c"Older ones are deleted by the sample duty. Forecasts need the last 15 minutes.",
        &SAMPLE_RETENTION,
        60,
        10 * 366 * 24 * 60,
        GucContext::Suset,
        GucFlags::UNIT_MIN,
    );
    GucRegistry::define_int_guc(
        c"taskq.alert_repeat",
        c"How long an alert stays open before it is sent again.",
        c"Sent again after each such time, until it clears or somebody acknowledges it. 0: never.",
        &ALERT_REPEAT,
        0,
        366 * DAY,
        GucContext::Suset,
        GucFlags::UNIT_S,
    );
    GucRegistry::define_int_guc(
        c"taskq.keeper_late_limit",
        c"How late a duty of the keeper may be before an alert is raised.",
        c"Counted from when its next round is due. A keeper that has just started gets the same time.",
        &KEEPER_LATE_LIMIT,
        // Rounds that find nothing are noted every 10 seconds only.
        15,
        366 * DAY,
        GucContext::Suset,
        GucFlags::UNIT_S,
    );
    GucRegistry::define_int_guc(
        c"taskq.vacuum_held_limit",
        c"How long something may hold back vacuum before an alert is raised.",
        c"An old transaction, a prepared one, a replication slot or a standby: what has ended since then cannot be removed from the tables.",
        &VACUUM_HELD_LIMIT,
        1,
        366 * DAY,
        GucContext::Suset,
        GucFlags::UNIT_S,
    );
    GucRegistry::define_string_guc(
        c"taskq.test_clock",
        c"For tests only: what taskq takes for the present time.",
        c"A timestamp with time zone, or an offset to the real clock that begins with + or -, such as '+ 2 hours'. Empty means the real clock.",
        &TEST_CLOCK,
        GucContext::Suset,
        GucFlags::NO_SHOW_ALL,
    );
    crate::keeper::define_excluded_databases();
    crate::session::reserve_settings_prefix();
}
