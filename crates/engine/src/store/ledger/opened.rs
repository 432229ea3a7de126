//! Opening the ledger: its files as they are found, whether they can be trusted, and whether they
//! are still the ones that stand there.
//!
//! Every process holds a shared lock beside the ledger for as long as it has it open. Whoever comes
//! first finds out whether the last one left it properly: a log that nobody has folded in means a
//! crash, and only then is the whole ledger checked. A normal start pays for two locks and two
//! looks at files.

use std::{
    fs::{File, OpenOptions},
    io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rusqlite::{Connection, ErrorCode, OpenFlags, config::DbConfig, ffi};

use super::{
    BUSY_MS, LedgerError,
    daybook::{Daybook, Wait, new_generation},
    is_busy,
    post::{begin, posted, renew},
    rebuild::{DAYBOOK, FILES, Lock, rebuild, replace_daybook},
    schema::check_marks,
};
use crate::{
    platform::{
        FileExt, FileLook, FlockOperation, OPEN_FILES_KEEP_THEIR_NAMES, OpenOptionsExt, flock,
        look_at, look_of, make_private,
    },
    state::{
        StateFolder,
        aside::{FileKind, strange},
    },
};

/// What a file of SQLite begins with, up to and with the application id; and where that and the
/// version stand.
const HEADER_BYTES: usize = 72;
const MAGIC: &[u8] = b"SQLite format 3\0";
const VERSION_AT: usize = 60;
const APPLICATION_ID_AT: usize = 68;

/// How often a broken ledger is rebuilt before that is given up.
const TRIES: u32 = 2;

/// How often it is opened while others put another one in its place.
pub(super) const OPENS_MAX: u32 = 20;

/// How long to wait for whoever checks or rebuilds the ledger right now.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// What is wrong with the ledger's files.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// There is none.
    #[error("is missing")]
    Missing,
    /// It is of a build from before version 1 of the schema.
    #[error("is of an older version of Legwork")]
    Older,
    /// It cannot be what a ledger has become by itself.
    #[error("is damaged: {0}")]
    Found(String),
    /// Its daybook alone cannot be read.
    #[error("is damaged: its daybook cannot be read: {0}")]
    Daybook(String),
}

impl Damage {
    /// The damage that an error speaks of, if it does.
    pub(super) fn of(error: &LedgerError) -> Option<Self> {
        match error {
            LedgerError::Unsound(damage) => Some(damage.clone()),
            LedgerError::Sqlite(error) => {
                let failure = error.sqlite_error()?;
                let is_damage = matches!(failure.code, ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
                        // Its log is shorter than others know it to be.
                        || failure.extended_code == ffi::SQLITE_IOERR_SHORT_READ;
                is_damage.then(|| Self::Found(error.to_string()))
            }
            _ => None,
        }
    }

    /// Damage of the ledger itself: none if only the daybook is damaged.
    pub(super) fn of_ledger(error: &LedgerError) -> Option<Self> {
        Self::of(error).filter(|damage| !matches!(damage, Self::Daybook(_)))
    }
}

/// Tells one file from another of the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileId(u64, u64);

impl FileId {
    /// The file at this path, if there is one.
    pub(crate) fn at(path: &Path) -> Option<Self> {
        look_at(path).ok().map(Self::from)
    }

    /// Its number, on its own file system.
    pub(crate) fn number(self) -> u64 {
        self.1
    }

    /// The file that is open.
    pub(crate) fn of(file: &File) -> io::Result<Self> {
        Ok(Self::from(look_of(file)?))
    }
}

impl From<FileLook> for FileId {
    fn from(found: FileLook) -> Self {
        Self(found.id.0, found.id.1)
    }
}

/// A ledger that is open.
#[derive(Debug)]
pub(super) struct Opened {
    pub connection: Connection,
    path: PathBuf,
    log: PathBuf,
    daybook: PathBuf,
    ledger_id: Option<FileId>,
    log_id: Option<FileId>,
    /// Held for as long as the ledger is open.
    _presence: File,
}

impl Opened {
    /// Which file the ledger is.
    pub(super) fn id(&self) -> Option<FileId> {
        self.ledger_id
    }

    /// Whether the files under the ledger's name are the ones that are open here.
    ///
    /// Asked inside every transaction: whoever rebuilds the ledger takes the same lock first, so
    /// that nothing is committed to files that have been set aside.
    pub(super) fn check(&self) -> Result<(), LedgerError> {
        let same = FileId::at(&self.path) == self.ledger_id && FileId::at(&self.log) == self.log_id;
        if same { Ok(()) } else { Err(LedgerError::Replaced) }
    }

    /// Which file the daybook is that stands beside the ledger now.
    pub(super) fn daybook_id(&self) -> Option<FileId> {
        FileId::at(&self.daybook)
    }

    /// Does something in one transaction.
    pub(super) fn commit<T>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, LedgerError>,
    ) -> Result<T, LedgerError> {
        let run = |sql| self.connection.prepare_cached(sql)?.execute([]).map(drop);
        run("BEGIN IMMEDIATE")?;
        let done = self.check().and_then(|()| work(&self.connection)).and_then(|done| {
            run("COMMIT")?;
            Ok(done)
        });
        // Also when only the commit failed: what is not committed must not linger.
        done.inspect_err(|_| drop(run("ROLLBACK")))
    }

    /// Does something while this connection waits for others: only where nobody waits for an event
    /// loop.
    pub(super) fn waiting<T>(
        &self,
        work: impl FnOnce() -> Result<T, LedgerError>,
    ) -> Result<T, LedgerError> {
        self.connection.busy_timeout(Duration::from_millis(BUSY_MS))?;
        let done = work();
        self.connection.busy_timeout(Duration::ZERO)?;
        done
    }

    /// Whether nobody else is writing to it now; nobody is waited for.
    pub(super) fn is_free(&self) -> Result<bool, LedgerError> {
        let patience: u32 =
            self.connection.pragma_query_value(None, "busy_timeout", |row| row.get(0))?;
        self.connection.busy_timeout(Duration::ZERO)?;
        let written = self.commit(|_| Ok(()));
        self.connection.busy_timeout(Duration::from_millis(patience.into()))?;
        match written {
            Err(LedgerError::Sqlite(error)) if is_busy(&error) => Ok(false),
            written => written.map(|()| true),
        }
    }

    /// Waits until nobody else is writing to it, for as long as this connection waits for others.
    pub(super) fn wait_until_free(&self) -> Result<(), LedgerError> {
        self.commit(|_| Ok(()))
    }

    /// Keeps the end of this connection from touching files that may not be its own. Where they
    /// could not be set aside while it is open, it ends at once; an empty ledger, which is none of
    /// ours, takes its place.
    pub(super) fn abandon(&mut self) {
        let _ = self.connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
        if OPEN_FILES_KEEP_THEIR_NAMES && let Ok(empty) = Connection::open_in_memory() {
            self.connection = empty;
            self.ledger_id = None;
        }
    }
}

/// Opens the ledger and its daybook; what is missing, damaged or of an older version is rebuilt
/// before.
pub(super) fn open(state: &StateFolder) -> Result<(Opened, Daybook), LedgerError> {
    let (mut tries, mut replaced) = (0, 0);
    loop {
        let found = FileId::at(&state.ledger());
        let opened = try_open(state).and_then(|opened| {
            let daybook = opened.waiting(|| open_daybook(state, &opened))?;
            Ok((opened, daybook))
        });
        let error = match opened {
            Ok(opened) => return Ok(opened),
            Err(error) => error,
        };
        // Somebody else has just made another one, or has just taken the old one away for that.
        let is_gone = is_unopened(&error) && FileId::at(&state.ledger()) != found;
        if (is_gone || matches!(error, LedgerError::Replaced)) && replaced < OPENS_MAX {
            replaced += 1;
            continue;
        }
        tries += 1;
        match Damage::of(&error) {
            // It was whole a moment ago, and is looked at again.
            Some(Damage::Daybook(_)) if tries <= TRIES => {}
            Some(damage) if tries <= TRIES => rebuild(state, &damage, found)?,
            _ => return Err(error),
        }
    }
}

/// Whether the files could not be opened, or were taken away while they were.
fn is_unopened(error: &LedgerError) -> bool {
    let LedgerError::Sqlite(error) = error else { return false };
    matches!(error.sqlite_error_code(), Some(ErrorCode::CannotOpen | ErrorCode::SystemIoFailure))
}

/// Opens the daybook of a ledger; one that is missing is begun with the tasks that the ledger has
/// as open. So is one that may not agree with the ledger, as after a power cut, or that is damaged:
/// then all that can be read of it is posted first.
pub(super) fn open_daybook(state: &StateFolder, opened: &Opened) -> Result<Daybook, LedgerError> {
    let path = state.beside_ledger(DAYBOOK);
    let open = || Daybook::open(&path, |generation| posted(&opened.connection, generation));
    match open() {
        Ok(Some(daybook)) if !daybook.is_strange() => return Ok(daybook),
        Ok(_) | Err(LedgerError::Unsound(_)) => {}
        Err(error) => return Err(error),
    }
    // Two processes must not begin it, each for itself.
    let _alone = Lock::take(state)?;
    opened.check()?;
    match open() {
        Ok(Some(daybook)) if !daybook.is_strange() => Ok(daybook),
        Ok(Some(mut daybook)) => {
            daybook.everything()?;
            renew(state, opened, &mut daybook, Wait::Until(Instant::now() + PATIENCE))?;
            Ok(daybook)
        }
        Ok(None) => begin(state, opened, new_generation()?),
        Err(LedgerError::Unsound(damage)) => replace_daybook(state, opened, &damage),
        Err(error) => Err(error),
    }
}

/// The daybook without its ledger, if nothing about the two wants to be looked into.
///
/// Whatever is wrong with the ledger, an entry here is safe: whoever opens or rebuilds the ledger
/// posts the daybook that stands beside it.
pub(super) fn daybook_alone(state: &StateFolder) -> Option<Daybook> {
    let mut header = [0; HEADER_BYTES];
    File::open(state.ledger()).ok()?.read_exact_at(&mut header, 0).ok()?;
    let number = |at: usize| {
        let bytes = header.get(at..)?.first_chunk::<4>()?;
        Some(i64::from(i32::from_be_bytes(*bytes)))
    };
    if !header.starts_with(MAGIC) {
        return None;
    }
    check_marks(number(APPLICATION_ID_AT)?, number(VERSION_AT)?).ok()?;
    let daybook = Daybook::open(&state.beside_ledger(DAYBOOK), |_| Ok(None)).ok()??;
    (!daybook.is_closed() && !daybook.has_grown(true)).then_some(daybook)
}

fn try_open(state: &StateFolder) -> Result<Opened, LedgerError> {
    let (path, log) = (state.ledger(), state.beside_ledger("-wal"));
    let (presence, alone) = enter(&state.beside_ledger(".lock"))?;
    let crashed = look(state, alone)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(&path, flags)?;
    connection.busy_timeout(Duration::from_millis(BUSY_MS))?;
    let marked = |mark| connection.pragma_query_value(None, mark, |row| row.get(0));
    check_marks(marked("application_id")?, marked("user_version")?)?;
    switch_to_wal(&connection)?;
    // Checkpoints sync the disk: not in a commit that somebody waits for. The writer makes them.
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    // Else each statement journal takes 64 KiB from the heap, for a page or two.
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    if crashed {
        check_all(&connection)?;
    }
    connection.busy_timeout(Duration::ZERO)?;
    let _ = flock(&presence, FlockOperation::LockShared);
    let (ledger_id, log_id) = (FileId::at(&path), FileId::at(&log));
    let daybook = state.beside_ledger(DAYBOOK);
    Ok(Opened { connection, path, log, daybook, ledger_id, log_id, _presence: presence })
}

/// Takes the lock that says that we are here, and says whether we are the only one; if so nobody
/// else gets in before it is made a shared one.
fn enter(path: &Path) -> io::Result<(File, bool)> {
    let file = private_file(path)?;
    let deadline = Instant::now() + PATIENCE;
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
        return Ok((file, true));
    }
    // Others are here, or one who is the first and looks whether all is well.
    while flock(&file, FlockOperation::NonBlockingLockShared).is_err() && Instant::now() < deadline
    {
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok((file, false))
}

/// Looks at the files, before SQLite makes what is missing; says whether the last user of the
/// ledger was cut off.
fn look(state: &StateFolder, alone: bool) -> Result<bool, LedgerError> {
    let unsound = |problem: &str| Err(LedgerError::Unsound(Damage::Found(problem.into())));
    for suffix in FILES {
        if let Some(problem) = strange(&state.beside_ledger(suffix), FileKind::File) {
            return unsound(&format!("`ledger.db{suffix}` {problem}"));
        }
    }
    match std::fs::metadata(state.ledger()) {
        Ok(found) if found.len() == 0 => return unsound("the file is empty"),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(LedgerError::Unsound(Damage::Missing));
        }
        Err(error) => return Err(error.into()),
    }
    let log = std::fs::metadata(state.beside_ledger("-wal"));
    // The two files come and go together.
    if alone && log.is_err() && state.beside_ledger("-shm").exists() {
        return unsound("its log is missing");
    }
    Ok(alone && log.is_ok_and(|log| log.len() > 0))
}

/// Checks the structure of the whole ledger.
pub(super) fn check_all(connection: &Connection) -> Result<(), LedgerError> {
    let found: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if found == "ok" {
        return Ok(());
    }
    // One line, without the one that says in which database.
    let lines: Vec<&str> = found.lines().filter(|line| !line.starts_with("***")).collect();
    Err(LedgerError::Unsound(Damage::Found(lines.join("; "))))
}

/// Opens a file beside the ledger or makes it, readable by its owner only.
pub(crate) fn private_file(path: &Path) -> io::Result<File> {
    let options = || OpenOptions::new().read(true).write(true).to_owned();
    match options().open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        result => return result,
    }
    let file = options().create(true).truncate(false).mode(0o600).open(path)?;
    make_private(&file)?;
    Ok(file)
}

/// SQLite does not wait when two processes make this switch at once, so the wait is here.
fn switch_to_wal(connection: &Connection) -> rusqlite::Result<()> {
    let deadline = Instant::now() + Duration::from_millis(BUSY_MS);
    loop {
        match connection.pragma_update(None, "journal_mode", "WAL") {
            Err(error) if is_busy(&error) && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(2));
            }
            result => return result,
        }
    }
}
