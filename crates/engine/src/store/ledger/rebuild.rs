//! Rebuilding the ledger: one that is damaged, or of an older version, is set aside, and a new one
//! is made of the daybook, of the tasks' folders, and of what the wardens hold. Nothing is read of
//! the old one.
//!
//! One process does it, under a lock; the others wait and then find a whole ledger. The new one
//! appears under its name only when it is complete. A rebuild that was cut off is taken up again:
//! which files it had set aside is noted in the lock's file.

use std::{
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom, Write},
    path::Path,
    time::{Duration, Instant},
};

use rusqlite::{Connection, OpenFlags};

use super::{
    LedgerError,
    daybook::{self, Daybook, Wait, new_generation},
    opened::{Damage, FileId, Opened, PATIENCE, private_file},
    post::{begin, enter_batch, mark},
    restore::missing,
    schema::create,
    task::insert,
};
use crate::{
    clock::now_ms,
    platform::{
        FlockOperation, NO_WAIT, OpenOptionsExt, flock, is_held_open, replace, sync_folder,
    },
    state::{
        Holders, Rebuilt, Repair, StateFolder,
        aside::{self, FileKind, SET_ASIDE, set_aside_strange, strange},
    },
    store::audit::note_repair,
};

/// The files of a ledger, by what follows its name; the ledger itself goes first, so that nobody
/// opens it while its log is gone already.
pub(super) const FILES: [&str; 3] = ["", "-wal", "-shm"];

/// What the daybook has behind the ledger's name.
pub(super) const DAYBOOK: &str = "-daybook";

/// How long others may take to let go of a damaged ledger. One that does not look at it keeps it.
const LET_GO: Duration = Duration::from_secs(5);

/// Bytes of the time that names a rebuild, at most.
const STAMP_BYTES_MAX: u64 = 64;

/// Makes a new ledger in the place of the one that was found, and reports it; another process may
/// have done so meanwhile, and of a state folder that is only new nothing is reported.
pub(super) fn rebuild(
    state: &StateFolder,
    damage: &Damage,
    found: Option<FileId>,
) -> Result<(), LedgerError> {
    let mut lock = Lock::take(state)?;
    if FileId::at(&state.ledger()) != found {
        return Ok(());
    }
    // Nobody writes to the daybook meanwhile, or begins it anew.
    let _daybook = hold_daybook(&state.beside_ledger(DAYBOOK))?;
    let is_new = *damage == Damage::Missing && !has_history(state);
    let stamp = lock.begin(found.is_none())?;
    let set_aside = set_aside(state, &stamp, *damage == Damage::Older)?;
    let tasks = build(state, is_new)?;
    lock.finish()?;
    if !is_new {
        report(state, damage, &tasks, set_aside);
    }
    Ok(())
}

/// Begins another daybook in the place of one that is damaged. The ledger stays, and gets what can
/// be read of the old one.
pub(super) fn replace_daybook(
    state: &StateFolder,
    opened: &Opened,
    damage: &Damage,
) -> Result<Daybook, LedgerError> {
    let path = state.beside_ledger(DAYBOOK);
    let held = hold_daybook(&path)?;
    let holders = state.roll_call();
    let tasks = opened.commit(|connection| fill(state, connection, &holders))?;
    let moved = aside::set_aside(&path, damage.to_string())?;
    drop(held);
    report(state, damage, &tasks, Some(moved.now));
    begin(state, opened, new_generation()?)
}

/// Tasks that a new ledger, or one with a new daybook, has got.
#[derive(Debug, Default)]
struct FoundTasks {
    in_daybook: u64,
    in_folders: u64,
}

/// Reports a repair, and notes it in the audit log.
fn report(state: &StateFolder, damage: &Damage, tasks: &FoundTasks, set_aside: Option<String>) {
    let repair = Repair::Rebuilt(Rebuilt {
        why: damage.to_string(),
        from_daybook: tasks.in_daybook,
        from_folders: tasks.in_folders,
        set_aside,
    });
    (state.tell)(&repair);
    note_repair(state, &repair);
}

/// Takes the lock of the daybook that stands there; none if there is none.
fn hold_daybook(path: &Path) -> Result<Option<File>, LedgerError> {
    let wait = Wait::Until(Instant::now() + PATIENCE);
    loop {
        // A pipe in its place must not be waited for.
        let file = match File::options().read(true).custom_flags(NO_WAIT).open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            // It cannot be held, and nobody can write to it.
            Err(error) if strange(path, FileKind::File).is_some() => {
                tracing::debug!(%error, "no daybook is held");
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        daybook::lock(&file, wait)?;
        // It may have been begun anew while we waited.
        if FileId::at(path) == Some(FileId::of(&file)?) {
            return Ok(Some(file));
        }
    }
}

/// Whether anything was ever done in this state folder.
fn has_history(state: &StateFolder) -> bool {
    let has_entries =
        fs::read_dir(state.path().join("tasks")).is_ok_and(|mut entries| entries.next().is_some());
    has_entries || fs::metadata(state.audit()).is_ok_and(|audit| audit.len() > 0)
}

/// Gives the old files other names; returns that of the ledger, if there is any of them. The
/// daybook goes on with the new ledger, unless it is of an older version, too.
fn set_aside(state: &StateFolder, stamp: &str, is_older: bool) -> io::Result<Option<String>> {
    let mut any = false;
    for file in FILES.into_iter().chain(is_older.then_some(DAYBOOK)) {
        let new = state.beside_ledger(&format!("{SET_ASIDE}{stamp}{file}"));
        match rename_patiently(&state.beside_ledger(file), &new) {
            Ok(()) => any = true,
            // An earlier try may have moved it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => any |= new.exists(),
            Err(error) => return Err(error),
        }
    }
    Ok(any.then(|| format!("ledger.db{SET_ASIDE}{stamp}")))
}

/// Renames a file that other processes may still have open: each that finds the same damage lets go
/// of it, and waits for us.
fn rename_patiently(old: &Path, new: &Path) -> io::Result<()> {
    let deadline = Instant::now() + LET_GO;
    loop {
        match fs::rename(old, new) {
            Err(error) if is_held_open(&error) && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(5));
            }
            renamed => return renamed,
        }
    }
}

/// Makes the new ledger beside the place where it belongs, and moves it there when it is whole.
fn build(state: &StateFolder, is_new: bool) -> Result<FoundTasks, LedgerError> {
    let path = state.beside_ledger(".new");
    set_aside_strange(&path, FileKind::File)?;
    if let Err(error) = fs::remove_file(&path)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(error.into());
    }
    let file = private_file(&path)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(&path, flags)?;
    // What is cut off here is thrown away, so that no journal is needed.
    connection.pragma_update(None, "journal_mode", "OFF")?;
    connection.pragma_update(None, "synchronous", "OFF")?;
    let transaction = connection.transaction()?;
    create(&transaction)?;
    let mut found = FoundTasks::default();
    if !is_new {
        found = fill(state, &transaction, &state.roll_call())?;
        in_order(&transaction)?;
    }
    transaction.commit()?;
    connection.close().map_err(|(_, error)| error)?;
    if !is_new {
        file.sync_all()?;
    }
    replace(&path, &state.ledger())?;
    if !is_new {
        sync_folder(state.path())?;
    }
    Ok(found)
}

/// Enters what can be read of the daybook, then the tasks that have a folder and no row. The
/// wardens have put what they hold into folders when they were asked.
fn fill(
    state: &StateFolder,
    connection: &Connection,
    holders: &Holders,
) -> Result<FoundTasks, LedgerError> {
    let count = || {
        let sql = "SELECT count(*) FROM task";
        connection.query_row(sql, [], |row| row.get::<_, i64>(0)).map(i64::cast_unsigned)
    };
    let before = count()?;
    if let Some(daybook) = Daybook::readable(&state.beside_ledger(DAYBOOK)) {
        enter_batch(connection, &daybook.batch())?;
        let (generation, end) = daybook.extent();
        mark(connection, generation, end)?;
    }
    let in_daybook = count()? - before;
    let missing = missing(state, connection, holders)?;
    for task in &missing {
        insert(connection, task, None)?;
    }
    Ok(FoundTasks { in_daybook, in_folders: missing.len() as u64 })
}

/// Gives all tasks their places by age, where some were found later than others.
fn in_order(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(
        "CREATE TEMP TABLE ordered AS SELECT * FROM task ORDER BY created_at_ms, sequence;
         DELETE FROM task;
         UPDATE ordered SET sequence = rowid;
         INSERT INTO task SELECT * FROM ordered;
         DROP TABLE ordered;",
    )
}

/// Held by the one process that rebuilds the ledger or begins its daybook. Its file has the time of
/// a rebuild that is under way.
pub(super) struct Lock {
    file: File,
}

impl Lock {
    pub(super) fn take(state: &StateFolder) -> Result<Self, LedgerError> {
        let file = private_file(&state.beside_ledger(".rebuild"))?;
        let deadline = Instant::now() + PATIENCE;
        while flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            if Instant::now() >= deadline {
                return Err(LedgerError::Rebuilding);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(Self { file })
    }

    /// The name of this rebuild: that of an earlier one which was cut off, if it had moved the
    /// ledger away.
    fn begin(&mut self, moved: bool) -> io::Result<String> {
        let mut earlier = Vec::new();
        self.file.seek(SeekFrom::Start(0))?;
        (&self.file).take(STAMP_BYTES_MAX).read_to_end(&mut earlier)?;
        // Anything else in the file is not from us.
        let is_stamp = !earlier.is_empty() && earlier.iter().all(u8::is_ascii_digit);
        if moved && is_stamp {
            return Ok(String::from_utf8_lossy(&earlier).into_owned());
        }
        let stamp = now_ms().to_string();
        self.file.set_len(0)?;
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(stamp.as_bytes())?;
        Ok(stamp)
    }

    fn finish(&mut self) -> io::Result<()> {
        self.file.set_len(0)
    }
}
