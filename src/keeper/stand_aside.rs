//! Commands that need a database without sessions, and the keeper that stands aside for them.
//!
//! A *mark* asks the keeper of a database to leave and keeps others out: a lock that belongs to no
//! table, in share mode. A command's mark ends with its transaction, so it cannot be left behind by
//! a command that fails or a session that dies. A prepared transaction keeps it, as it keeps the
//! database locked. The launcher keeps one, too, while a keeper is where none should be.
//!
//! The hook is in front of every utility command; all but the few it knows pass straight through.
//!
//! This is one of the few modules with unsafe code.
#![allow(unsafe_code)]

use super::{process, requests};
use pgrx::pg_sys::{self, NodeTag, Oid};
use pgrx::{PgXactCallbackEvent, pg_guard, register_xact_callback};
use std::ffi::{CStr, c_char, c_int};
use std::time::{Duration, Instant};

/// How long a command waits for the keeper. (PostgreSQL then waits as long again for any session.)
const PATIENCE: Duration = Duration::from_secs(5);
/// A keeper that is busy for so long is terminated.
const GENTLE: Duration = Duration::from_millis(500);
const POLL: Duration = Duration::from_millis(10);

/// The first number of our advisory locks: "task" in ASCII.
const TASK: u32 = 1_952_539_499;

static mut NEXT_HOOK: pg_sys::ProcessUtility_hook_type = None;

/// Puts the hook in front of those that are there.
pub fn init() {
    // SAFETY: called once, while the postmaster loads the library.
    unsafe {
        NEXT_HOOK = pg_sys::ProcessUtility_hook;
        pg_sys::ProcessUtility_hook = Some(utility);
    }
}

/// Whether somebody wants this database without a keeper. Asks for a lock that conflicts with a
/// mark, but not with others who ask; it is given back at once.
pub fn asked(database: Oid) -> bool {
    let tag = tag(database);
    // SAFETY: a lock for the session, so that it needs no transaction.
    unsafe {
        let mode = pg_sys::RowExclusiveLock as c_int;
        let free =
            pg_sys::LockAcquire(&tag, mode, true, true) != pg_sys::LockAcquireResult::LOCKACQUIRE_NOT_AVAIL;
        if free {
            pg_sys::LockRelease(&tag, mode, true);
        }
        !free
    }
}

/// Marks a database until `unmark` or the end of this process.
pub fn mark(database: Oid) {
    // SAFETY: waits at most for somebody who asks, which is a moment.
    unsafe {
        pg_sys::LockAcquire(&tag(database), pg_sys::ShareLock as c_int, true, false);
    }
}

pub fn unmark(database: Oid) {
    // SAFETY: releases what `mark` took.
    unsafe {
        pg_sys::LockRelease(&tag(database), pg_sys::ShareLock as c_int, true);
    }
}

/// As pg_locks shows it: an advisory lock of no database; the second number is the database.
fn tag(database: Oid) -> pg_sys::LOCKTAG {
    pg_sys::LOCKTAG {
        locktag_field1: 0,
        locktag_field2: TASK,
        locktag_field3: database.to_u32(),
        locktag_field4: 2,
        locktag_type: pg_sys::LockTagType::LOCKTAG_ADVISORY as u8,
        locktag_lockmethodid: pg_sys::USER_LOCKMETHOD as u8,
    }
}

// Declared here and not taken from pgrx, whose version catches each error and raises it again.
unsafe extern "C-unwind" {
    fn standard_ProcessUtility(
        statement: *mut pg_sys::PlannedStmt,
        text: *const c_char,
        read_only: bool,
        context: pg_sys::ProcessUtilityContext::Type,
        params: pg_sys::ParamListInfo,
        environment: *mut pg_sys::QueryEnvironment,
        dest: *mut pg_sys::DestReceiver,
        completion: *mut pg_sys::QueryCompletion,
    );
}

/// The hook. An error of the command leaves this function by a jump, as in C: it must own nothing.
unsafe extern "C-unwind" fn utility(
    statement: *mut pg_sys::PlannedStmt,
    text: *const c_char,
    read_only: bool,
    context: pg_sys::ProcessUtilityContext::Type,
    params: pg_sys::ParamListInfo,
    environment: *mut pg_sys::QueryEnvironment,
    dest: *mut pg_sys::DestReceiver,
    completion: *mut pg_sys::QueryCompletion,
) {
    // SAFETY: all arguments are PostgreSQL's and go on unchanged; every utility statement is a node.
    unsafe {
        let command = (*statement).utilityStmt;
        match (*command).type_ {
            NodeTag::T_DropdbStmt
            | NodeTag::T_RenameStmt
            | NodeTag::T_AlterDatabaseStmt
            | NodeTag::T_CreatedbStmt => before(command),
            NodeTag::T_AlterDatabaseSetStmt => before_setting(command),
            _ => {}
        }
        let next = NEXT_HOOK.unwrap_or(standard_ProcessUtility);
        next(statement, text, read_only, context, params, environment, dest, completion);
    }
}

/// What a command needs free of sessions, and the right to ask for that.
struct Target {
    name: *const c_char,
    /// The command also needs the right to create databases.
    creates: bool,
    /// It copies the database, which may then be the session's own.
    copies: bool,
    /// It is refused inside a transaction block.
    alone: bool,
}

/// Makes the keeper leave if the command needs its database, and may have it.
#[pg_guard]
unsafe extern "C-unwind" fn before(command: *mut pg_sys::Node) {
    // SAFETY: the command is a statement of one of the four kinds.
    let Some(target) = (unsafe { target(command) }) else { return };
    // SAFETY: lookups in catalogs, which a command may do before it begins. The name is a C string.
    let database = unsafe {
        if pg_sys::RecoveryInProgress() || target.alone && pg_sys::IsTransactionBlock() {
            return;
        }
        let database = pg_sys::get_database_oid(target.name, true);
        if database == Oid::INVALID || !allowed(database, &target) {
            return;
        }
        // The mark of the command, until its transaction ends.
        pg_sys::LockAcquire(&tag(database), pg_sys::ShareLock as c_int, false, false);
        database
    };
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        let keepers = process::workers_in(c"taskq keeper", database);
        if keepers.is_empty() {
            break;
        }
        for keeper in keepers {
            if begin.elapsed() < GENTLE { keeper.wake() } else { keeper.terminate() }
        }
        process::wait(POLL);
    }
}

unsafe fn target(command: *mut pg_sys::Node) -> Option<Target> {
    // SAFETY: the tag of a node says what it is; names are C strings, or NULL where none is given.
    unsafe {
        match (*command).type_ {
            NodeTag::T_DropdbStmt => {
                let drop = &*command.cast::<pg_sys::DropdbStmt>();
                Some(Target { name: drop.dbname, creates: false, copies: false, alone: true })
            }
            NodeTag::T_RenameStmt => {
                let rename = &*command.cast::<pg_sys::RenameStmt>();
                (rename.renameType == pg_sys::ObjectType::OBJECT_DATABASE).then_some(Target {
                    name: rename.subname,
                    creates: true,
                    copies: false,
                    alone: false,
                })
            }
            NodeTag::T_AlterDatabaseStmt => {
                let alter = &*command.cast::<pg_sys::AlterDatabaseStmt>();
                option(alter.options, c"tablespace")?;
                Some(Target { name: alter.dbname, creates: false, copies: false, alone: true })
            }
            NodeTag::T_CreatedbStmt => {
                let create = &*command.cast::<pg_sys::CreatedbStmt>();
                // Without one it is template1, which has no keeper.
                let template = option(create.options, c"template")?;
                let name = (!template.is_null() && (*template).type_ == NodeTag::T_String)
                    .then(|| (*template.cast::<pg_sys::String>()).sval)?;
                Some(Target { name, creates: true, copies: true, alone: true })
            }
            _ => None,
        }
    }
}

/// The value of an option, NULL for DEFAULT.
unsafe fn option(options: *mut pg_sys::List, name: &CStr) -> Option<*mut pg_sys::Node> {
    // SAFETY: the options of these commands are DefElem nodes.
    unsafe {
        let options = options.as_ref()?;
        (0..options.length.unsigned_abs() as usize)
            .map(|at| &*(*options.elements.add(at)).ptr_value.cast::<pg_sys::DefElem>())
            .find(|option| CStr::from_ptr(option.defname) == name)
            .map(|option| option.arg)
    }
}

/// Whether the role has the rights that PostgreSQL will ask for. Without them, or for the
/// session's own database, the command is left to fail by itself, and the keeper stays.
fn allowed(database: Oid, target: &Target) -> bool {
    // SAFETY: lookups in catalogs; a superuser owns everything.
    unsafe {
        let role = pg_sys::GetUserId();
        owns(database, role)
            && (!target.creates || pg_sys::superuser() || may_create_databases(role))
            && (target.copies || database != process::database())
    }
}

/// # Safety
/// To be called in a transaction: it looks into a catalog.
unsafe fn owns(database: Oid, role: Oid) -> bool {
    // SAFETY: as promised by the caller.
    #[cfg(feature = "pg15")]
    unsafe {
        pg_sys::pg_database_ownercheck(database, role)
    }
    // SAFETY: as above.
    #[cfg(not(feature = "pg15"))]
    unsafe {
        pg_sys::object_ownercheck(pg_sys::DatabaseRelationId, database, role)
    }
}

fn may_create_databases(role: Oid) -> bool {
    // SAFETY: a cached row of pg_authid, released after it is read.
    unsafe {
        let row = pg_sys::SearchSysCache1(pg_sys::SysCacheIdentifier::AUTHOID as c_int, role.into());
        if row.is_null() {
            return false;
        }
        let may = (*pg_sys::GETSTRUCT(row).cast::<pg_sys::FormData_pg_authid>()).rolcreatedb;
        pg_sys::ReleaseSysCache(row);
        may
    }
}

/// `ALTER DATABASE ... SET taskq.keeper`, also RESET: has the launcher look there after the commit.
/// It could not read such settings itself: it is in no database.
#[pg_guard]
unsafe extern "C-unwind" fn before_setting(command: *mut pg_sys::Node) {
    // SAFETY: the command is such a statement; its names are C strings, or NULL in RESET ALL.
    unsafe {
        let command = &*command.cast::<pg_sys::AlterDatabaseSetStmt>();
        let Some(setting) = command.setstmt.as_ref() else { return };
        let ours = !setting.name.is_null()
            && CStr::from_ptr(setting.name).to_bytes().eq_ignore_ascii_case(b"taskq.keeper");
        if !ours && setting.kind != pg_sys::VariableSetKind::VAR_RESET_ALL {
            return;
        }
        let database = pg_sys::get_database_oid(command.dbname, true);
        if database != Oid::INVALID {
            register_xact_callback(PgXactCallbackEvent::Commit, move || requests::look_into(database));
        }
    }
}
