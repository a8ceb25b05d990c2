//! The server settings (`taskq.*` in postgresql.conf, ALTER DATABASE, SET).

use pgrx::guc::{GucContext, GucFlags, GucRegistry, GucSetting};
use std::ffi::CString;

pub static MAX_PAYLOAD_BYTES: GucSetting<i32> = GucSetting::<i32>::new(1024 * 1024);
pub static KEEPER: GucSetting<bool> = GucSetting::<bool>::new(true);
pub static KEEPER_INTERVAL: GucSetting<i32> = GucSetting::<i32>::new(1_000);
pub static EXCLUDED_DATABASES: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(None);
pub static ARCHIVE_RETENTION: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(None);
pub static TEST_CLOCK: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(None);

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
