//! Makes a plan of a request: resolves and opens everything that the start needs. Starts nothing.

use std::{
    ffi::{OsStr, OsString},
    io::{self, Seek, Write},
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use legwork_gate::{Level, Manners, Script, Subject};
use legwork_warden::protocol::{self, Limits};
use sha2::{Digest, Sha256};

use super::{
    Ground,
    failures::{Named, NamedFolder, spawn_failed},
};
use crate::{
    error::{ErrorKind, ToolError},
    judge::Facts,
    model::{
        Confinement, DuplicatePolicy, Outputs, Program, Request, Stdin, Trust,
        limits::{TaskLimits, lower, tighter},
        purpose,
        sandbox::Wanted,
    },
    place::{Folder, Look, NoProgram, Place},
    platform::{
        FALLBACK_SHELL, ON_WINDOWS, OsStrExt, OwnedFd, bare_name, is_below, is_elsewhere,
        judged_name, memory_file, own_words, path_problem, unfit_folder,
    },
};

/// Shells of which it is known that `--` ends their options.
const KNOWN_SHELLS: [&str; 5] = ["sh", "bash", "dash", "zsh", "ksh"];

/// A request with everything decided.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) tool: String,
    manners: Manners,
    /// The program's absolute path.
    pub(crate) program: PathBuf,
    pub(crate) argv: Vec<OsString>,
    pub(crate) workdir: Folder,
    /// The folder as its caller named it.
    pub(super) named_folder: NamedFolder,
    pub(crate) stdin: protocol::StdinSource,
    /// What it is to read, where that is there already.
    pub(crate) given: Option<OwnedFd>,
    pub(crate) outputs: Outputs,
    pub(crate) duplicates: DuplicatePolicy,
    pub(crate) wall_ms_max: Option<u64>,
    pub(crate) limits: Limits,
    pub(crate) memory_bytes_max: u64,
    /// Whether it may run on alone for as long as it likes.
    pub(crate) is_kept: bool,
    /// Whether somebody waits for its end.
    pub(crate) is_awaited: bool,
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) description: Option<String>,
    trust: Trust,
    workspace: PathBuf,
    /// Where its folder may be.
    confinement: Confinement,
    /// What it is to be confined to, unless a rule says otherwise.
    pub(crate) wanted: Wanted,
    /// Whether every layer of that is in force.
    pub(crate) sandboxed: bool,
    /// Whether it is only tried, on a copy.
    pub(crate) is_trial: bool,
    /// The command as it was asked for.
    pub(crate) text: String,
    pub(crate) kind: PlanKind,
    pub(crate) fingerprint: [u8; 32],
    /// What it looks at where it would run.
    look: Arc<dyn Look>,
    /// Where it would run.
    place: Arc<dyn Place>,
}

/// Who asks for a command, and what it would be confined by.
#[derive(Debug, Clone, Copy)]
pub(super) struct Surroundings {
    pub trust: Trust,
    /// What it is to be confined to, unless a rule says otherwise.
    pub wanted: Wanted,
    /// Whether every layer of that is in force.
    pub sandboxed: bool,
}

/// How long a command is tried before a question about it.
const TRIAL_MS_MAX: u64 = 10 * 60 * 1000;

/// How the command is run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PlanKind {
    Script { shell: String, login: bool },
    Argv(Vec<String>),
}

impl Subject for Plan {
    fn tool(&self) -> &str {
        &self.tool
    }

    fn manners(&self) -> Manners {
        self.manners
    }

    fn script(&self) -> Script<'_> {
        match &self.kind {
            PlanKind::Script { .. } => Script::Shell(&self.text),
            PlanKind::Argv(argv) => Script::Argv(argv),
        }
    }

    fn trust(&self) -> Trust {
        self.trust
    }

    fn workspace(&self) -> Option<&str> {
        self.workspace.to_str()
    }

    fn level(&self) -> Level {
        self.wanted.level
    }

    fn sandboxed(&self) -> bool {
        self.sandboxed
    }

    fn shell(&self) -> Option<&str> {
        match &self.kind {
            PlanKind::Script { shell, .. } => Some(shell),
            PlanKind::Argv(_) => None,
        }
    }

    fn resolve(&self, name: &str) -> Option<String> {
        judged_file(&*self.look, name, &self.workdir.path)
    }

    fn can_be_planted(&self, name: &str) -> bool {
        can_be_planted(&*self.look, name, &self.workdir.path)
    }

    fn is_in_current_folder(&self, name: &str) -> bool {
        self.look.is_in_current_folder(OsStr::new(name), &self.workdir.path)
    }

    fn is_on_windows(&self) -> bool {
        ON_WINDOWS
    }

    fn has_variable(&self, name: &str) -> bool {
        self.environment.iter().any(|(set, _)| set == name) || self.look.variable(name).is_some()
    }
}

/// The file that a name stands for, as rules name it.
pub(super) fn judged_file(look: &dyn Look, name: &str, workdir: &Path) -> Option<String> {
    let found = look.find_program(OsStr::new(name), workdir).ok()?;
    Some(judged_name(&look.real_program(&found)?.display().to_string()))
}

/// True if a command could have put the file there that a name stands for.
pub(super) fn can_be_planted(look: &dyn Look, name: &str, workdir: &Path) -> bool {
    let Ok(found) = look.find_program(OsStr::new(name), workdir) else { return false };
    // Neither the file nor the link to it.
    let folder = found.parent().and_then(|folder| look.real_program(folder));
    let real = look.real_program(&found);
    [folder, real].into_iter().any(|path| path.is_none_or(|it| look.can_be_planted(&it)))
}

impl Facts for Plan {
    fn fingerprint(&self) -> &[u8; 32] {
        &self.fingerprint
    }

    fn executed(&self) -> String {
        let named = match self.place.name() {
            Some(place) => format!("{} at {place}", self.program.display()),
            None => self.program.display().to_string(),
        };
        match self.look.real_program(&self.program).filter(|real| *real != self.program) {
            Some(real) => format!("{named} -> {}", real.display()),
            None => named,
        }
    }

    fn is_default_shell(&self) -> bool {
        let PlanKind::Script { shell, .. } = &self.kind else { return false };
        let finder = Resolver { place: &*self.look, workdir: &self.workdir.path };
        let default = finder.default_shell();
        let found = || finder.find(OsStr::new(&default));
        *shell == default || found().is_ok_and(|found| found == self.program)
    }

    fn environment(&self) -> &[(String, String)] {
        &self.environment
    }

    fn text(&self) -> &str {
        &self.text
    }

    fn description(&self) -> Option<&str> {
        self.description.as_deref()
    }

    fn workdir(&self) -> &Path {
        &self.workdir.path
    }

    fn wanted(&self) -> Wanted {
        self.wanted
    }
}

impl Plan {
    /// Checks that its folder is still where it was found.
    pub(super) fn check_folder(&self, place: &dyn Place) -> Result<(), ToolError> {
        let is_there = place.is_still_there(&self.workdir);
        let gone = || self.named_folder.unopened(&io::ErrorKind::NotFound.into());
        is_there.then_some(()).ok_or_else(gone)
    }

    /// What an error of its start names.
    pub(super) fn named(&self) -> Named {
        Named { program: self.program.display().to_string(), folder: self.named_folder.clone() }
    }

    /// Where it would run.
    pub(super) fn place(&self) -> &Arc<dyn Place> {
        &self.place
    }

    /// What it looks at there.
    pub(super) fn look(&self) -> &dyn Look {
        &*self.look
    }

    /// Whether its caller is anybody.
    pub(crate) fn is_untrusted(&self) -> bool {
        self.trust == Trust::UntrustedExternal
    }

    /// The file and the words of a script that is one program with its arguments, to be executed
    /// without a shell; none where it is more.
    pub(super) fn without_shell(&self) -> Option<(PathBuf, Vec<OsString>)> {
        let PlanKind::Script { .. } = self.kind else { return None };
        let words = legwork_gate::single_command(&self.text)?;
        let found = self.look.find_program(OsStr::new(words.first()?), &self.workdir.path).ok()?;
        let program = self.look.real_program(&found)?;
        Some((program, words.into_iter().map(OsString::from).collect()))
    }

    /// The same command, to be tried: without the input that is meant for the command itself.
    pub(super) fn to_try(&self) -> Self {
        Self {
            tool: self.tool.clone(),
            manners: self.manners,
            program: self.program.clone(),
            argv: self.argv.clone(),
            workdir: self.workdir.clone(),
            named_folder: self.named_folder.clone(),
            stdin: protocol::StdinSource::Null,
            given: None,
            outputs: Outputs::Separate,
            duplicates: DuplicatePolicy::StartNew,
            wall_ms_max: Some(self.wall_ms_max.map_or(TRIAL_MS_MAX, |it| it.min(TRIAL_MS_MAX))),
            limits: self.limits,
            memory_bytes_max: self.memory_bytes_max,
            is_kept: self.is_kept,
            is_awaited: self.is_awaited,
            environment: self.environment.clone(),
            description: self.description.clone(),
            trust: self.trust,
            workspace: self.workspace.clone(),
            confinement: self.confinement,
            wanted: self.wanted.to_try(false),
            sandboxed: true,
            is_trial: true,
            text: self.text.clone(),
            kind: self.kind.clone(),
            fingerprint: self.fingerprint,
            look: self.look.clone(),
            place: self.place.clone(),
        }
    }

    /// The same plan by another version of the configuration. Limits only get tighter.
    pub(super) fn again(
        mut self,
        ground: &Ground,
        place: Arc<dyn Place>,
        around: Surroundings,
        limits: &TaskLimits,
    ) -> Result<Self, ToolError> {
        let is_far = place.name().is_some();
        let is_in = |root: &PathBuf| is_below(&self.workdir.path, root);
        if self.confinement == Confinement::Roots && !is_far && !ground.roots.iter().any(is_in) {
            return Err(self.named_folder.outside(&ground.roots));
        }
        if !is_far {
            self.look = place.clone();
        }
        (self.wanted, self.sandboxed) = (around.wanted, around.sandboxed);
        self.wall_ms_max = lower(self.wall_ms_max, limits.wall_ms_max);
        self.limits = tighter(&self.limits, &limits.limits);
        self.place = place;
        Ok(self)
    }

    /// Puts another script in the place of this one, for a look at it.
    pub(super) fn set_script(&mut self, text: &str) {
        text.clone_into(&mut self.text);
    }

    /// Puts another program in the place of this one, for a look at it.
    pub(super) fn set_argv(&mut self, argv: Vec<String>) {
        self.text = argv.join(" ");
        self.kind = PlanKind::Argv(argv);
    }

    /// Resolves a request against a workspace and the roots that folders must be in.
    pub(super) fn resolve(
        request: Request,
        ground: &Ground,
        place: &Arc<dyn Place>,
        look: &Arc<dyn Look>,
        around: Surroundings,
    ) -> Result<Self, ToolError> {
        let workspace = &ground.workspace;
        let named_folder = NamedFolder::of(&request);
        let workdir = if request.workdir.is_none() && look.is_still_there(workspace) {
            workspace.clone()
        } else {
            open_workdir(&**look, &named_folder, ground, request.confinement)?
        };
        let finder = Resolver { place: &**look, workdir: &workdir.path };
        let resolved = match request.program {
            Program::Script { text, shell, login } => finder.script(text, shell, login)?,
            Program::Argv(argv) => finder.argv(argv)?,
        };
        let (stdin, given) = open_stdin(request.stdin)?;
        let tty = matches!(request.outputs, Outputs::Terminal(_));
        let folders = (&*workspace.path, &*workdir.path);
        let fingerprint = fingerprint(place.name(), folders, &resolved, tty);
        Ok(Self {
            tool: request.tool,
            manners: request.manners,
            program: resolved.program,
            argv: resolved.argv,
            workdir,
            named_folder,
            stdin,
            given,
            outputs: request.outputs,
            duplicates: request.duplicates,
            wall_ms_max: request.wall_ms_max,
            limits: request.limits,
            memory_bytes_max: request.memory_bytes_max,
            is_kept: request.is_kept,
            is_awaited: request.is_awaited,
            environment: request.environment,
            trust: around.trust,
            workspace: workspace.path.clone(),
            confinement: request.confinement,
            wanted: around.wanted,
            sandboxed: around.sandboxed,
            is_trial: request.trial.is_some(),
            description: request.description.as_deref().and_then(purpose),
            text: resolved.text,
            kind: resolved.kind,
            fingerprint,
            look: look.clone(),
            place: place.clone(),
        })
    }
}

/// What will be executed.
struct Resolved {
    program: PathBuf,
    argv: Vec<OsString>,
    text: String,
    kind: PlanKind,
}

/// Finds out what will be executed, for a folder of a place.
struct Resolver<'a> {
    place: &'a dyn Look,
    workdir: &'a Path,
}

impl Resolver<'_> {
    fn script(
        &self,
        text: String,
        shell: Option<String>,
        login: bool,
    ) -> Result<Resolved, ToolError> {
        let default = self.default_shell();
        // The name of the user's own shell means that one: an equal command is found to run.
        let is_default = |name: &String| Path::new(&default).file_name() == Some(OsStr::new(name));
        let shell = shell.filter(|name| !is_default(name)).unwrap_or(default);
        let program = self.find(OsStr::new(&shell))?;
        let name = bare_name(program.file_name().unwrap_or_default());
        let own = own_words(&name, &text, login).map_err(|why| unfit(&shell, why))?;
        if let Some(words) = own {
            let argv = [name].into_iter().chain(words).collect();
            return Ok(Resolved { program, argv, text, kind: PlanKind::Script { shell, login } });
        }
        let known = KNOWN_SHELLS.iter().any(|known| name == *known);
        // Whatever else takes `-c` need not know what a login is.
        let logs_in = login && (known || name == "fish");
        let mut argv = vec![name.clone(), OsString::from(if logs_in { "-lc" } else { "-c" })];
        if known {
            argv.push("--".into());
        }
        argv.push(OsString::from(&text));
        Ok(Resolved { program, argv, text, kind: PlanKind::Script { shell, login } })
    }

    fn argv(&self, argv: Vec<OsString>) -> Result<Resolved, ToolError> {
        let words: Vec<String> = argv.iter().map(|word| word.to_string_lossy().into()).collect();
        let name = argv.first().ok_or_else(|| spawn_failed("", "no program was named"))?;
        let program = self.find(name)?;
        let text = words.join(" ");
        let mut judged = words;
        if let Some(name) = judged.first_mut() {
            *name = judged_name(name);
        }
        Ok(Resolved { program, text, kind: PlanKind::Argv(judged), argv })
    }

    /// The shell of the user, if it is one that scripts are written for.
    fn default_shell(&self) -> String {
        let shell = self.place.variable("SHELL").unwrap_or_default();
        let shell = shell.to_string_lossy();
        let name = Path::new(&*shell).file_name().map(bare_name).unwrap_or_default();
        match name.to_str() {
            Some("bash" | "zsh" | "sh") if self.place.exists(Path::new(&*shell)) => {
                shell.into_owned()
            }
            _ => FALLBACK_SHELL.into(),
        }
    }

    fn find(&self, name: &OsStr) -> Result<PathBuf, ToolError> {
        let found = self.place.find_program(name, self.workdir).map_err(|problem| {
            let name = name.to_string_lossy();
            let mut said = problem.to_string();
            if problem == NoProgram::NotFound && self.place.exists(&self.workdir.join(&*name)) {
                said.push_str(&format!("; the file of this folder is `./{name}`"));
            }
            let error = spawn_failed(&name, &said);
            match problem {
                NoProgram::NotFound => error.detail("reason", "not_found"),
                NoProgram::Invalid | NoProgram::NotExecutable(_) => error,
            }
        })?;
        match unfit_folder(&found, self.workdir) {
            Some(why) => Err(unfit(&name.to_string_lossy(), why)),
            None => Ok(found),
        }
    }
}

/// A shell cannot be given a script.
fn unfit(shell: &str, why: &str) -> ToolError {
    spawn_failed(shell, why).hint("change the command as that says")
}

/// What the warden is told about a command's stdin, and what goes with it.
fn open_stdin(stdin: Stdin) -> Result<(protocol::StdinSource, Option<OwnedFd>), ToolError> {
    let given = match stdin {
        Stdin::Null => return Ok((protocol::StdinSource::Null, None)),
        Stdin::Open => return Ok((protocol::StdinSource::Open, None)),
        Stdin::Given(descriptor) => descriptor,
        Stdin::Bytes(bytes) => in_memory(&bytes).map_err(|error| {
            ToolError::new(
                ErrorKind::ToolExecutionFailed,
                format!("the input of the command cannot be held in memory: {error}"),
            )
        })?,
    };
    Ok((protocol::StdinSource::Given, Some(given)))
}

/// A file of memory alone: unlike a pipe it takes any amount before anybody reads.
fn in_memory(bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut file = memory_file()?;
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file.into())
}

/// Opens the working directory that was asked for, where it may be.
fn open_workdir(
    place: &dyn Look,
    folder: &NamedFolder,
    ground: &Ground,
    confinement: Confinement,
) -> Result<Folder, ToolError> {
    let workspace = &ground.workspace.path;
    let only_workspace = [workspace.clone()];
    let roots = match confinement {
        Confinement::Roots => &ground.roots,
        Confinement::Workspace | Confinement::None => &only_workspace[..],
    };
    let is_allowed = |path: &Path| {
        confinement == Confinement::None || roots.iter().any(|root| is_below(path, root))
    };
    // On Windows a path can have a root and still depend on a drive.
    let asked = &*folder.asked;
    if confinement == Confinement::Workspace && (asked.is_absolute() || asked.has_root()) {
        return Err(folder.absolute());
    }
    let named = workspace.join(asked);
    if named.as_os_str().as_bytes().contains(&0) {
        return Err(folder.unusable("a NUL is in its name"));
    }
    if let Some(problem) = path_problem(&named) {
        return Err(folder.unusable(problem));
    }
    if confinement != Confinement::None && is_elsewhere(&named, roots) {
        return Err(folder.outside(roots));
    }
    let opened = match place.open_folder(&named) {
        Ok(opened) => opened,
        // Whether something outside exists is nobody's business.
        Err(_) if !is_allowed(&meant(place, &named)) => return Err(folder.outside(roots)),
        Err(error) => return Err(folder.unopened(&error)),
    };
    if !is_allowed(&opened.path) {
        return Err(folder.outside(roots));
    }
    Ok(opened)
}

/// Where a folder would be that cannot be opened: links are followed as far as there are folders,
/// so that one that is missing in a workspace is not taken for one outside.
fn meant(place: &dyn Look, named: &Path) -> PathBuf {
    let there = |above: &Path| Some((place.open_folder(above).ok()?.path, above.to_owned()));
    let Some((real, above)) = named.ancestors().find_map(there) else { return lexically(named) };
    let rest = named.strip_prefix(&above).unwrap_or(Path::new(""));
    lexically(&real.join(rest))
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

fn fingerprint(
    place: Option<&str>,
    (workspace, workdir): (&Path, &Path),
    resolved: &Resolved,
    tty: bool,
) -> [u8; 32] {
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
    // Behind the rest: those of this machine stay what they were.
    if let Some(place) = place {
        add(place.as_bytes());
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::{model::sandbox::SandboxSettings, place::Local, state::StateFolder};

    fn local(state: &Path) -> Local {
        let state = Arc::new(StateFolder::open(state).unwrap());
        Local::new(state, SandboxSettings::default(), &[], &[], false)
    }

    fn workdir(place: &Local, asked: &str, workspace: &Path) -> Result<PathBuf, ErrorKind> {
        let roots = vec![workspace.to_owned()];
        let workspace = place.open_folder(workspace).unwrap();
        let ground = Ground { workspace, roots, all_workspaces: false, unset: Vec::new() };
        let named = NamedFolder::of(&Request::script("").workdir(asked));
        open_workdir(place, &named, &ground, Confinement::Roots)
            .map(|workdir| workdir.path)
            .map_err(|error| error.kind)
    }

    #[test]
    fn folders_are_judged_by_where_they_really_are() {
        let scratch = tempfile::tempdir().unwrap();
        let base = scratch.path().canonicalize().unwrap();
        let place = local(&base.join("state"));
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
            assert_eq!(workdir(&place, asked, &workspace), expected, "{asked:?}");
        }
    }

    #[test]
    fn known_shells_get_the_end_of_options() {
        let scratch = tempfile::tempdir().unwrap();
        let place = local(scratch.path());
        let resolver = Resolver { place: &place, workdir: Path::new("/") };
        let script = |shell: &str, login| {
            let plan = resolver.script("x".into(), Some(shell.into()), login).unwrap();
            plan.argv.iter().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(script("/bin/sh", true), ["sh", "-lc", "--", "x"]);
        assert_eq!(script("sh", false), ["sh", "-c", "--", "x"]);
        assert_eq!(script("/usr/bin/fish", false), ["fish", "-c", "x"]);
    }
}
