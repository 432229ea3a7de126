//! The programs under test, where every user and every sandbox finds them.
//!
//! A clone may be below a folder that only its owner can enter, or below `/tmp`, which sandboxed
//! commands see as another one. So each run copies its programs to a folder of its own, in the
//! first place that serves. When the run has ended, however it did, a keeper removes it.

use std::{
    env, fs,
    io::Write,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{LazyLock, Mutex},
};

use tempfile::TempDir;

use super::{signals, windows};

/// An ordinary user, whom tests that are run by root become.
pub const NOBODY: u32 = 65534;

/// Folders that a sandbox shows as others.
const COVERED: [&str; 5] = ["/tmp", "/var/tmp", "/run", "/dev", "/proc"];

/// Places of the machine where root may put a folder that everybody can enter.
const OF_ROOT: [&str; 5] = ["/var/cache", "/var/lib", "/opt", "/srv", "/home"];

/// Bytes of a path to which a test can still add names, and have the path of a socket.
const PATH_MAX: usize = 64;

static STAGE: LazyLock<Stage> = LazyLock::new(Stage::new);

struct Stage {
    folder: PathBuf,
    program: String,
    fixture: String,
    is_seen: bool,
    keeper: Mutex<Child>,
}

impl Stage {
    fn new() -> Self {
        signals::catch_ignored();
        let built = [Path::new(env!("CARGO_BIN_EXE_legwork")).to_owned(), build_fixture()];
        let (folder, is_seen) = if windows::IS_TESTED.is_some() {
            (windows::stage(&built[1]), false)
        } else {
            choose(&built)
        };
        let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
        let keeper = Command::new(path("fixture"))
            .arg("keeper")
            // A person's Ctrl-C is for the tests.
            .process_group(0)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (program, mut fixture) = (path("legwork"), path("fixture"));
        if let Some(portable) = windows::fixture(&folder) {
            fixture = portable;
        }
        let stage = Self { folder, program, fixture, is_seen, keeper: Mutex::new(keeper) };
        stage.keep(&stage.folder);
        stage
    }

    fn keep(&self, folder: &Path) {
        let keeper = self.keeper.lock().unwrap();
        writeln!(keeper.stdin.as_ref().unwrap(), "{}", folder.display()).unwrap();
    }
}

/// Path of the program under test.
pub fn program() -> &'static str {
    &STAGE.program
}

/// Path of the program with the misbehaving parts.
pub fn fixture() -> &'static str {
    &STAGE.fixture
}

/// A folder of this run that everybody can enter.
pub fn folder() -> &'static Path {
    &STAGE.folder
}

/// Whether sandboxed commands find the programs and the folder; says so where not.
pub fn is_seen_in_sandboxes() -> bool {
    if !STAGE.is_seen {
        skips::skip(
            "this user can write nowhere but in temporary folders, which a sandbox hides; \
             CARGO_TARGET_DIR can name another one",
        );
    }
    STAGE.is_seen
}

/// Lets the keeper remove a folder at the end of this run, and end all processes that name it.
pub fn keep(folder: &Path) {
    STAGE.keep(folder);
}

/// Builds the fixture: Cargo builds the programs of a test's own package only.
fn build_fixture() -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_legwork")).with_file_name("fixture");
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--locked", "--package", "legwork-fixture", "--target-dir"]);
    build.arg(target).current_dir(env!("CARGO_MANIFEST_DIR"));
    if !cfg!(debug_assertions) {
        build.arg("--release");
    }
    match build.status() {
        Ok(status) => assert!(status.success(), "the fixture does not build"),
        // Whoever runs this has no Cargo, so somebody else has built it.
        Err(error) => assert!(path.exists(), "{}: {error}", env!("CARGO")),
    }
    path
}

/// Copies programs to the first place that serves, and says whether sandboxes show it.
fn choose(programs: &[PathBuf]) -> (PathBuf, bool) {
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let variable = |name| env::var_os(name).map(PathBuf::from);
    let home = variable("HOME").into_iter().flat_map(|home| [home.join(".cache"), home]);
    let own = [target.clone()].into_iter().chain(variable("XDG_CACHE_HOME")).chain(home);
    let places = own.chain(OF_ROOT.map(PathBuf::from));
    if let Some(made) = places.into_iter().find_map(|place| make_in(&place, programs)) {
        return (made, true);
    }
    let made = tempfile::tempdir().unwrap();
    copy(programs, made.path());
    assert!(runs(made.path(), &[]), "no program can be run in {}", made.path().display());
    (made.keep(), false)
}

/// A folder with the programs in this place, if it serves.
fn make_in(place: &Path, programs: &[PathBuf]) -> Option<PathBuf> {
    let place = place.canonicalize().ok()?;
    if !is_shown(&place) {
        return None;
    }
    let made = TempDir::with_prefix_in("legwork-", &place).ok()?;
    // Tests write it into scripts without quoting it.
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte);
    let path = made.path().to_str()?;
    if path.len() > PATH_MAX || !path.bytes().all(is_plain) {
        return None;
    }
    copy(programs, made.path());
    // Whoever root becomes keeps root's powers until another program is run.
    let other = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "env"];
    let serves = runs(made.path(), &[])
        && (!rustix::process::geteuid().is_root() || runs(made.path(), &other));
    serves.then(|| made.keep())
}

/// Whether sandboxed commands see this folder as it is.
pub fn is_shown(place: &Path) -> bool {
    !COVERED.iter().any(|covered| place.starts_with(covered))
}

fn copy(programs: &[PathBuf], folder: &Path) {
    let open = || fs::Permissions::from_mode(0o755);
    fs::set_permissions(folder, open()).unwrap();
    for program in programs {
        let copied = folder.join(program.file_name().unwrap());
        fs::copy(program, &copied).unwrap();
        fs::set_permissions(copied, open()).unwrap();
    }
}

/// Whether the fixture can be run there, through other words.
fn runs(folder: &Path, through: &[&str]) -> bool {
    let fixture = folder.join("fixture");
    let mut words = through.iter().map(Path::new).chain([fixture.as_path()]);
    let mut command = Command::new(words.next().unwrap());
    command.args(words).args(["exit", "0"]).current_dir("/").stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
