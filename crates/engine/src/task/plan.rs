//! From a request to a plan: everything resolved, opened and decided, nothing started.

use std::{
    env,
    ffi::{OsStr, OsString},
    io,
    os::{
        fd::OwnedFd,
        unix::{ffi::OsStrExt, fs::PermissionsExt},
    },
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use legwork_gate::{Level, Script, Subject};
use legwork_warden::protocol::Limits;
use rustix::fs::{Mode, OFlags, fstat, open, stat};
use sha2::{Digest, Sha256};

use crate::{
    error::{ErrorKind, ToolError},
    model::{Confinement, DuplicatePolicy, Outputs, Program, Request, Stdin, Trust},
    place::sandbox::Wanted,
};

/// Shells of which it is known that `--` ends their options.
const KNOWN_SHELLS: [&str; 5] = ["sh", "bash", "dash", "zsh", "ksh"];

/// A request with everything decided.
#[derive(Debug)]
pub struct Plan {
    pub(crate) tool: &'static str,
    /// The program's absolute path.
    pub(crate) program: PathBuf,
    pub(crate) argv: Vec<OsString>,
    pub(crate) workdir: Workdir,
    pub(crate) stdin: Stdin,
    pub(crate) outputs: Outputs,
    pub(crate) duplicates: DuplicatePolicy,
    pub(crate) wall_ms_max: Option<u64>,
    pub(crate) limits: Limits,
    pub(crate) memory_bytes_max: u64,
    pub(crate) environment: Vec<(&'static str, &'static str)>,
    pub(crate) description: Option<String>,
    trust: Trust,
    /// What it is to be confined to, unless a rule says otherwise.
    pub(crate) wanted: Wanted,
    /// Whether every layer of that is in force.
    pub(crate) sandboxed: bool,
    /// The command as it was asked for.
    pub(crate) text: String,
    pub(crate) kind: Kind,
    pub(crate) fingerprint: [u8; 32],
}

/// How the command is run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Script { shell: String, login: bool },
    Argv(Vec<String>),
}

/// A folder that was opened, so that what is judged and what is used are the same.
#[derive(Debug)]
pub(crate) struct Workdir {
    pub descriptor: Arc<OwnedFd>,
    pub path: PathBuf,
}

/// The folder that commands run in by default, opened once.
#[derive(Debug)]
pub(crate) struct Workspace {
    pub path: PathBuf,
    descriptor: Arc<OwnedFd>,
}

impl Workspace {
    /// Opens it by its real path.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let path = path.canonicalize()?;
        let descriptor = Arc::new(open_folder(&path)?);
        Ok(Self { path, descriptor })
    }

    /// It, as a working directory, unless another folder has its name by now.
    fn as_workdir(&self) -> Option<Workdir> {
        let (opened, named) = (fstat(&self.descriptor).ok()?, stat(&self.path).ok()?);
        let same = (opened.st_dev, opened.st_ino) == (named.st_dev, named.st_ino);
        same.then(|| Workdir { descriptor: self.descriptor.clone(), path: self.path.clone() })
    }
}

impl Subject for Plan {
    fn tool(&self) -> &str {
        self.tool
    }

    fn script(&self) -> Script<'_> {
        match &self.kind {
            Kind::Script { .. } => Script::Shell(&self.text),
            Kind::Argv(argv) => Script::Argv(argv),
        }
    }

    fn trust(&self) -> legwork_gate::Trust {
        match self.trust {
            Trust::TrustedOperator => legwork_gate::Trust::TrustedOperator,
            Trust::TrustedSystem => legwork_gate::Trust::TrustedSystem,
            Trust::TrustedIntegration => legwork_gate::Trust::TrustedIntegration,
            Trust::UntrustedExternal => legwork_gate::Trust::UntrustedExternal,
        }
    }

    fn level(&self) -> Level {
        self.wanted.level
    }

    fn sandboxed(&self) -> bool {
        self.sandboxed
    }

    fn shell(&self) -> Option<&str> {
        match &self.kind {
            Kind::Script { shell, .. } => Some(shell),
            Kind::Argv(_) => None,
        }
    }

    fn resolve(&self, name: &str) -> Option<String> {
        let found = find_program(OsStr::new(name), &self.workdir.path).ok()?;
        Some(found.canonicalize().ok()?.display().to_string())
    }
}

impl Plan {
    /// Whether its caller is anybody.
    pub(crate) fn is_untrusted(&self) -> bool {
        self.trust == Trust::UntrustedExternal
    }

    /// Resolves a request against a workspace and the roots that folders must be in.
    pub(crate) fn resolve(
        request: Request,
        workspace: &Workspace,
        roots: &[PathBuf],
        trust: Trust,
        (wanted, sandboxed): (Wanted, bool),
    ) -> Result<Self, ToolError> {
        let known = if request.workdir.is_none() { workspace.as_workdir() } else { None };
        let workdir = if let Some(workdir) = known {
            workdir
        } else {
            let asked = request.workdir.as_deref();
            Workdir::open(asked, &workspace.path, roots, request.confinement)?
        };
        let resolved = match request.program {
            Program::Script { text, shell, login } => {
                Resolved::script(text, shell, login, &workdir.path)?
            }
            Program::Argv(argv) => Resolved::argv(argv, &workdir.path)?,
        };
        let tty = matches!(request.outputs, Outputs::Terminal(_));
        let fingerprint = fingerprint(&workspace.path, &workdir.path, &resolved, tty);
        Ok(Self {
            tool: request.tool,
            program: resolved.program,
            argv: resolved.argv,
            workdir,
            stdin: request.stdin,
            outputs: request.outputs,
            duplicates: request.duplicates,
            wall_ms_max: request.wall_ms_max,
            limits: request.limits,
            memory_bytes_max: request.memory_bytes_max,
            environment: request.environment,
            trust,
            wanted,
            sandboxed,
            description: request.description,
            text: resolved.text,
            kind: resolved.kind,
            fingerprint,
        })
    }
}

/// What will be executed.
struct Resolved {
    program: PathBuf,
    argv: Vec<OsString>,
    text: String,
    kind: Kind,
}

impl Resolved {
    fn script(
        text: String,
        shell: Option<String>,
        login: bool,
        workdir: &Path,
    ) -> Result<Self, ToolError> {
        let shell = shell.unwrap_or_else(default_shell);
        let program = find_program(OsStr::new(&shell), workdir)?;
        let name = program.file_name().unwrap_or_default().to_os_string();
        let known = KNOWN_SHELLS.iter().any(|known| name == *known);
        // Whatever else takes `-c` need not know what a login is.
        let logs_in = login && (known || name == "fish");
        let mut argv = vec![name.clone(), OsString::from(if logs_in { "-lc" } else { "-c" })];
        if known {
            argv.push("--".into());
        }
        argv.push(OsString::from(&text));
        Ok(Self { program, argv, text, kind: Kind::Script { shell, login } })
    }

    fn argv(argv: Vec<OsString>, workdir: &Path) -> Result<Self, ToolError> {
        let words: Vec<String> = argv.iter().map(|word| word.to_string_lossy().into()).collect();
        let name = argv.first().ok_or_else(|| spawn_failed("", "no program was named"))?;
        let program = find_program(name, workdir)?;
        Ok(Self { program, text: words.join(" "), kind: Kind::Argv(words), argv })
    }
}

/// The shell of the user, if it is one that scripts are written for.
fn default_shell() -> String {
    let shell = env::var("SHELL").unwrap_or_default();
    match Path::new(&shell).file_name().and_then(OsStr::to_str) {
        Some("bash" | "zsh" | "sh") if Path::new(&shell).exists() => shell,
        _ => "sh".into(),
    }
}

/// Finds a program: a path as it is (relative to the folder it runs in), a name on `PATH`.
fn find_program(name: &OsStr, workdir: &Path) -> Result<PathBuf, ToolError> {
    let shown = name.to_string_lossy();
    if name.is_empty() || name.as_bytes().contains(&0) {
        return Err(spawn_failed(&shown, "it is no valid name of a program"));
    }
    if name.as_bytes().contains(&b'/') {
        return Ok(workdir.join(name));
    }
    let path = env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let mut refused = None;
    for folder in env::split_paths(&path) {
        let candidate = workdir.join(folder).join(name);
        match candidate.metadata() {
            Ok(data) if data.is_file() && data.permissions().mode() & 0o111 != 0 => {
                return Ok(candidate);
            }
            Ok(data) if data.is_file() => refused = Some(candidate),
            _ => {}
        }
    }
    Err(match refused {
        Some(file) => spawn_failed(&shown, &format!("{} is not executable", file.display())),
        None => spawn_failed(&shown, "it was not found on PATH").detail("reason", "not_found"),
    })
}

/// What the system's refusal to execute a program means.
pub(crate) fn execute_problem(program: &Path, errno: i32) -> String {
    use rustix::io::Errno;
    let plain = io::Error::from_raw_os_error(errno).to_string();
    match Errno::from_raw_os_error(errno) {
        Errno::NOENT if program.exists() => {
            let interpreter = interpreter(program).unwrap_or_else(|| "its loader".into());
            format!("bad interpreter: {interpreter} does not exist")
        }
        Errno::NOENT => "no such file".into(),
        Errno::ACCESS if program.is_dir() => "it is a folder".into(),
        Errno::ACCESS => "permission denied: it, or its interpreter, is not executable".into(),
        Errno::NOEXEC => {
            "exec format error: neither a program of this machine nor a script with #!".into()
        }
        Errno::TOOBIG => "argument list too long".into(),
        Errno::TXTBSY => "text file busy: somebody is writing to it".into(),
        _ => plain,
    }
}

/// The program that the first line of a script names.
fn interpreter(script: &Path) -> Option<String> {
    use std::io::Read;
    let mut start = Vec::new();
    std::fs::File::open(script).ok()?.take(256).read_to_end(&mut start).ok()?;
    let start = String::from_utf8_lossy(&start);
    let line = start.strip_prefix("#!")?.lines().next()?;
    line.split_whitespace().next().map(str::to_owned)
}

/// A program that cannot be started.
pub(crate) fn spawn_failed(program: &str, problem: &str) -> ToolError {
    ToolError::new(
        ErrorKind::CommandSpawnFailed,
        format!("`{program}` could not be started: {problem}"),
    )
    .detail("program", program)
    .hint("name a program that exists on this machine, or give its full path")
}

impl Workdir {
    /// Opens the folder first and asks the kernel afterwards where it really is: neither a symbolic link
    /// nor `..` can lead out, and nothing can be exchanged between the check and the use.
    fn open(
        asked: Option<&str>,
        workspace: &Path,
        roots: &[PathBuf],
        confinement: Confinement,
    ) -> Result<Self, ToolError> {
        let only_workspace = [workspace.to_owned()];
        let everywhere = [PathBuf::from("/")];
        let roots = match confinement {
            Confinement::Roots => roots,
            Confinement::Workspace => &only_workspace,
            Confinement::None => &everywhere,
        };
        if confinement == Confinement::Workspace
            && let Some(asked) = asked.filter(|asked| asked.starts_with('/'))
        {
            return Err(absolute(asked));
        }
        let named = workspace.join(asked.unwrap_or_default());
        let shown = asked.unwrap_or(".");
        if named.as_os_str().as_bytes().contains(&0) {
            return Err(not_found(shown, "a NUL is in its name"));
        }
        let descriptor = match open_folder(&named) {
            Ok(descriptor) => descriptor,
            // Whether something outside exists is nobody's business.
            Err(_) if !is_inside(&lexically(&named), roots) => return Err(outside(shown, roots)),
            Err(errno) => return Err(not_found(shown, &io::Error::from(errno).to_string())),
        };
        let path = real_path(&descriptor).map_err(|error| not_found(shown, &error.to_string()))?;
        if !is_inside(&path, roots) {
            return Err(outside(shown, roots));
        }
        Ok(Self { descriptor: Arc::new(descriptor), path })
    }
}

fn open_folder(path: &Path) -> rustix::io::Result<OwnedFd> {
    open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

fn real_path(descriptor: &OwnedFd) -> io::Result<PathBuf> {
    use std::os::fd::AsRawFd;
    std::fs::read_link(format!("/proc/self/fd/{}", descriptor.as_raw_fd()))
}

fn is_inside(path: &Path, roots: &[PathBuf]) -> bool {
    roots.iter().any(|root| path.starts_with(root))
}

/// The path with `.` and `..` taken out by name alone.
fn lexically(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain
}

fn not_found(shown: &str, problem: &str) -> ToolError {
    ToolError::new(
        ErrorKind::WorkdirNotFound,
        format!("the working directory `{shown}` cannot be used: {problem}"),
    )
    .detail("workdir", shown)
    .hint("name an existing folder, relative to the workspace")
}

fn absolute(shown: &str) -> ToolError {
    ToolError::new(
        ErrorKind::ExecutionRootViolation,
        format!("the directory `{shown}` is absolute: it must be relative to the project's root"),
    )
    .detail("directory", shown)
    .hint("name a folder inside the project, relative to its root, or leave it out")
}

fn outside(shown: &str, roots: &[PathBuf]) -> ToolError {
    let roots: Vec<String> = roots.iter().map(|root| root.display().to_string()).collect();
    ToolError::new(
        ErrorKind::ExecutionRootViolation,
        format!(
            "the working directory `{shown}` is outside of where commands may run: {}",
            roots.join(", ")
        ),
    )
    .detail("workdir", shown)
    .hint("use a folder inside the workspace, by a path relative to it")
}

fn fingerprint(workspace: &Path, workdir: &Path, resolved: &Resolved, tty: bool) -> [u8; 32] {
    let mut hash = Sha256::new();
    let mut add = |part: &[u8]| {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    };
    add(workspace.as_os_str().as_bytes());
    add(workdir.as_os_str().as_bytes());
    add(&[u8::from(tty)]);
    add(resolved.program.as_os_str().as_bytes());
    for word in &resolved.argv {
        add(word.as_bytes());
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workdir(asked: &str, workspace: &Path) -> Result<PathBuf, ErrorKind> {
        let roots = [workspace.to_owned()];
        Workdir::open(Some(asked), workspace, &roots, Confinement::Roots)
            .map(|workdir| workdir.path)
            .map_err(|error| error.kind)
    }

    #[test]
    fn folders_are_judged_by_where_they_really_are() {
        let scratch = tempfile::tempdir().unwrap();
        let base = scratch.path().canonicalize().unwrap();
        let workspace = base.join("ws");
        std::fs::create_dir_all(workspace.join("sub")).unwrap();
        std::fs::create_dir_all(base.join("ws-other")).unwrap();
        std::fs::write(workspace.join("file"), "").unwrap();
        std::os::unix::fs::symlink("/", workspace.join("out")).unwrap();
        std::os::unix::fs::symlink(workspace.join("sub"), workspace.join("in")).unwrap();
        let violation = Err(ErrorKind::ExecutionRootViolation);
        let missing = Err(ErrorKind::WorkdirNotFound);
        for (asked, expected) in [
            ("sub", Ok(workspace.join("sub"))),
            (".", Ok(workspace.clone())),
            ("sub/../sub", Ok(workspace.join("sub"))),
            ("in", Ok(workspace.join("sub"))),
            (workspace.join("sub").to_str().unwrap(), Ok(workspace.join("sub"))),
            ("out", violation.clone()),
            ("out/etc", violation.clone()),
            ("..", violation.clone()),
            ("../ws-other", violation.clone()),
            ("/", violation.clone()),
            ("/no/such/folder", violation.clone()),
            ("../nothing", violation),
            ("nothing", missing.clone()),
            ("file", missing.clone()),
            ("a\0b", missing),
        ] {
            assert_eq!(workdir(asked, &workspace), expected, "{asked:?}");
        }
    }

    #[test]
    fn known_shells_get_the_end_of_options() {
        let script = |shell: &str, login| {
            let plan =
                Resolved::script("x".into(), Some(shell.into()), login, Path::new("/")).unwrap();
            plan.argv.iter().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(script("/bin/sh", true), ["sh", "-lc", "--", "x"]);
        assert_eq!(script("sh", false), ["sh", "-c", "--", "x"]);
        assert_eq!(script("/usr/bin/fish", false), ["fish", "-c", "x"]);
    }
}
