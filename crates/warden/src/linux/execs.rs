//! Reads which program a process is about to execute, while the kernel holds the process.
//!
//! The memory is the process's own, and another thread of it can change it between our look and the
//! kernel's. So this is for commands that err. Against those that fight, the view of the files
//! covers what is denied as a whole.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{self, Read as _},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::{ffi::OsStrExt, fs::FileExt},
    },
    path::{Path, PathBuf},
};

use rustix::fs::{Mode, OFlags, ResolveFlags, fstat, open, openat2, readlinkat};

use crate::{
    exec::{ExecRule, ProgramNames, find, name_of_program},
    protocol::RefusedProgram,
};

/// Longest path that the kernel takes.
const PATH_BYTES_MAX: usize = 4096;

/// Most arguments, and bytes of them, that are looked at. The kernel takes no more by default.
const ARGUMENTS_MAX: usize = 256 * 1024;
const ARGUMENT_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Memory is read by pages: what lies beyond the end of one may not be there.
const PAGE_BYTES: usize = 4096;

/// Most arguments that are told of, and characters of each.
const TOLD_MAX: usize = 8;
const TOLD_CHARACTERS_MAX: usize = 80;

/// Most processes that are named of those that led to a program, and bytes that are read of each.
const LINEAGE_MAX: usize = 12;
const LINE_BYTES_MAX: u64 = 4096;

/// What a deleted file's path ends with.
const DELETED: &[u8] = b" (deleted)";

/// A call of `execve` or `execveat` that waits for an answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExecCall {
    /// The thread that makes it.
    pub thread: u32,
    /// The folder that a relative path begins in, if it is not the working directory.
    pub folder: Option<i32>,
    /// Where its path is.
    pub path: u64,
    /// Where its arguments are.
    pub arguments: u64,
}

impl ExecCall {
    /// The call with these raw arguments, if it is one.
    pub(super) fn of(number: i64, thread: u32, arguments: [u64; 6]) -> Option<Self> {
        let [first, second, third, ..] = arguments;
        match number {
            libc::SYS_execve => Some(Self { thread, folder: None, path: first, arguments: second }),
            libc::SYS_execveat => {
                // The lower half is the descriptor.
                let folder = u32::try_from(first & 0xFFFF_FFFF).unwrap_or_default();
                let folder = Some(folder.cast_signed()).filter(|it| *it != libc::AT_FDCWD);
                Some(Self { thread, folder, path: second, arguments: third })
            }
            _ => None,
        }
    }

    /// What a rule says of it; an error if it cannot be read.
    pub(super) fn matched(&self, rules: &[ExecRule]) -> io::Result<Option<MatchedProgram>> {
        let memory = Memory(File::open(format!("/proc/{}/mem", self.thread))?);
        let path = memory.text(self.path, PATH_BYTES_MAX)?;
        let file = self.file(&path);
        let real = file.as_ref().map(|file| file.path.as_os_str().as_bytes()).unwrap_or_default();
        let mut arguments = memory.arguments(self.arguments, 1)?;
        let called = arguments.first().cloned().unwrap_or_default();
        let names = ProgramNames {
            named: name_of_program(&path),
            file: name_of_program(real),
            called: name_of_program(&called),
        };
        if !names.concern(rules) {
            return Ok(None);
        }
        arguments = memory.arguments(self.arguments, ARGUMENTS_MAX)?;
        let rest = arguments.get(1..).unwrap_or_default();
        let Some(rule) = find(rules, names, rest) else { return Ok(None) };
        let refused = RefusedProgram {
            program: told(if names.named.is_empty() { names.file } else { names.named }),
            arguments: rest.iter().take(TOLD_MAX).map(|it| told(it)).collect(),
            rule: rule.id.clone(),
            asks: rule.asks,
            // A cover has no name in any folder, and no program that is installed has none.
            covered: !rule.asks
                && rule.args.is_empty()
                && file.as_ref().is_some_and(|it| it.is_nameless),
        };
        let file = real.to_vec();
        Ok(Some(MatchedProgram { refused, path, file, argv: arguments }))
    }

    /// The command lines of the processes that led here, from the command itself on; of a long
    /// lineage its end.
    pub(super) fn lineage(&self, command: u32) -> Vec<String> {
        let mut lineage = Vec::new();
        let mut process = process_of(self.thread).unwrap_or(self.thread);
        while lineage.len() < LINEAGE_MAX {
            let line = command_line(process).unwrap_or_else(|| "?".to_owned());
            lineage.push(told(line.as_bytes()));
            match parent_of(process) {
                Some(parent) if process != command && parent > 1 => process = parent,
                _ => break,
            }
        }
        lineage.reverse();
        // One that has just forked is called as its parent is.
        lineage.dedup();
        lineage
    }

    /// The file behind a path, as the process sees it.
    fn file(&self, path: &[u8]) -> Option<FoundFile> {
        let of_process = |name: &str| format!("/proc/{}/{name}", self.thread);
        if path == b"/proc/self/exe" {
            return FoundFile::of(open_path(Path::new(&of_process("exe"))).ok()?.as_fd());
        }
        if let (Some(folder), true) = (self.folder, path.is_empty()) {
            return FoundFile::of(
                open_path(Path::new(&of_process(&format!("fd/{folder}")))).ok()?.as_fd(),
            );
        }
        let base = match self.folder {
            _ if path.starts_with(b"/") => PathBuf::from("/"),
            Some(folder) => fs::read_link(of_process(&format!("fd/{folder}"))).ok()?,
            None => fs::read_link(of_process("cwd")).ok()?,
        };
        let path = base.join(Path::new(OsStr::from_bytes(path)));
        let root = open_path(Path::new(&of_process("root"))).ok()?;
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let file = openat2(&root, &path, flags, Mode::empty(), ResolveFlags::IN_ROOT).ok()?;
        FoundFile::of(file.as_fd())
    }
}

/// A program about which a rule says something.
#[derive(Debug)]
pub(super) struct MatchedProgram {
    /// What is told of it if it is not executed.
    pub refused: RefusedProgram,
    /// The path by which it is executed.
    pub path: Vec<u8>,
    /// The file that this leads to; empty if there is none.
    pub file: Vec<u8>,
    /// All of its arguments.
    pub argv: Vec<Vec<u8>>,
}

/// The process that a thread belongs to.
fn process_of(thread: u32) -> Option<u32> {
    status_field(thread, "Tgid:")
}

fn parent_of(process: u32) -> Option<u32> {
    status_field(process, "PPid:")
}

fn status_field(process: u32, name: &str) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok()
}

/// The words of a process's command line; none if it has ended, or is one of the kernel's.
pub fn command_line(process: u32) -> Option<String> {
    let mut line = Vec::new();
    let file = File::open(format!("/proc/{process}/cmdline")).ok()?;
    file.take(LINE_BYTES_MAX).read_to_end(&mut line).ok()?;
    let words = String::from_utf8_lossy(&line).trim_end_matches('\0').replace('\0', " ");
    (!words.is_empty()).then_some(words)
}

/// A file that would be executed.
struct FoundFile {
    path: PathBuf,
    /// Whether no folder has it any more.
    is_nameless: bool,
}

impl FoundFile {
    fn of(file: BorrowedFd<'_>) -> Option<Self> {
        let link = format!("/proc/self/fd/{}", file.as_raw_fd());
        let path = readlinkat(rustix::fs::CWD, link, Vec::new()).ok()?.into_bytes();
        let path = path.strip_suffix(DELETED).unwrap_or(&path);
        let path = PathBuf::from(OsStr::from_bytes(path));
        Some(Self { path, is_nameless: fstat(file).ok()?.st_nlink == 0 })
    }
}

fn open_path(path: &Path) -> rustix::io::Result<OwnedFd> {
    open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
}

/// A word for people, bounded.
fn told(word: &[u8]) -> String {
    let text = String::from_utf8_lossy(word);
    let mut short: String = text.chars().take(TOLD_CHARACTERS_MAX).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

/// The memory of a process.
struct Memory(File);

impl Memory {
    /// A text that ends with a zero; a longer one is cut.
    fn text(&self, at: u64, bytes_max: usize) -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        while text.len() < bytes_max {
            let here = at.wrapping_add(text.len() as u64);
            let mut page = [0; PAGE_BYTES];
            let into = usize::try_from(here % PAGE_BYTES as u64).unwrap_or_default();
            let page = page.get_mut(into..).unwrap_or_default();
            let read = self.0.read_at(page, here)?;
            let piece = page.get(..read).unwrap_or_default();
            if let Some(end) = piece.iter().position(|byte| *byte == 0) {
                text.extend_from_slice(piece.get(..end).unwrap_or_default());
                return Ok(text);
            }
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            text.extend_from_slice(piece);
        }
        text.truncate(bytes_max);
        Ok(text)
    }

    /// The first arguments of a list that ends with a null; an error if there are more than can be
    /// looked at.
    fn arguments(&self, at: u64, count: usize) -> io::Result<Vec<Vec<u8>>> {
        let mut arguments = Vec::new();
        let mut bytes = 0;
        while at != 0 && arguments.len() < count {
            let mut pointer = [0; size_of::<u64>()];
            let place = at.wrapping_add((arguments.len() * size_of::<u64>()) as u64);
            self.0.read_exact_at(&mut pointer, place)?;
            let pointer = u64::from_le_bytes(pointer);
            if pointer == 0 {
                break;
            }
            let argument = self.text(pointer, ARGUMENT_BYTES_MAX)?;
            bytes += argument.len() + 1;
            if bytes > ARGUMENT_BYTES_MAX {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            arguments.push(argument);
        }
        Ok(arguments)
    }
}
