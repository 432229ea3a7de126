//! What a command is started with: its file, its command line, its folder; and why it was not.

use std::{
    ffi::{OsStr, OsString},
    io,
    os::windows::io::OwnedHandle,
    path::PathBuf,
};

use windows_sys::Win32::{
    Foundation::{ERROR_BAD_ARGUMENTS, ERROR_BAD_ENVIRONMENT, ERROR_DIRECTORY, HANDLE},
    Storage::FileSystem::{FILE_NAME_NORMALIZED, GetFinalPathNameByHandleW},
    System::Threading::CREATE_SUSPENDED,
};

use super::{
    api::raw,
    job::Job,
    process::{Process, Start, environment_block},
    quoting::{command_line, is_batch},
    streams::{CommandEnds, Streams},
    terminal::{Terminal, helper_line},
};
use crate::protocol::{Spec, StartFailure, StartStage};

#[expect(clippy::cast_possible_wrap, reason = "numbers of errors are small")]
const BAD_ARGUMENTS: i32 = ERROR_BAD_ARGUMENTS as i32;
#[expect(clippy::cast_possible_wrap, reason = "numbers of errors are small")]
const BAD_ENVIRONMENT: i32 = ERROR_BAD_ENVIRONMENT as i32;

/// Starts the process of a command, in its job and suspended: on a terminal by a helper.
pub(super) fn suspended(
    spec: &Spec,
    workdir: &OwnedHandle,
    streams: &Streams,
    ends: Option<&CommandEnds>,
    job: &Job,
) -> Result<Process, StartFailure> {
    let execute = |errno| StartFailure { stage: StartStage::Execute, errno };
    let at = |stage| move |error: io::Error| failure(stage, &error);
    let folder = path_of(workdir).map_err(at(StartStage::WorkingDirectory))?;
    let (mut program, mut line) = program_and_line(spec).ok_or(execute(BAD_ARGUMENTS))?;
    let environment = environment_block(&spec.environment).ok_or(execute(BAD_ENVIRONMENT))?;
    if streams.terminal.is_some() {
        (program, line) = helper(&program, &line).map_err(at(StartStage::Process))?;
    }
    let start = Start {
        program: Some(&program),
        line,
        environment: Some(environment),
        folder: folder.as_os_str(),
        flags: CREATE_SUSPENDED,
        streams: ends.map(CommandEnds::raw),
        with: Vec::new(),
        job: Some(job.raw()),
        terminal: streams.terminal.as_ref().map(Terminal::raw),
    };
    start.start().map_err(|error| start_failure(&error))
}

/// The file to execute and the command line; none where they cannot be written. A batch file is run
/// by the command processor, which its line names.
fn program_and_line(spec: &Spec) -> Option<(OsString, String)> {
    let text = |bytes: &Vec<u8>| String::from_utf8(bytes.clone()).ok();
    let program = PathBuf::from(text(&spec.program)?);
    let argv: Vec<String> = spec.argv.iter().map(text).collect::<Option<_>>()?;
    let line = command_line(&program, &argv)?;
    if !is_batch(&program) {
        return Some((program.into_os_string(), line));
    }
    let processor = PathBuf::from(std::env::var_os("SystemRoot")?).join(r"System32\cmd.exe");
    Some((processor.into_os_string(), line))
}

/// The helper that starts a command on a terminal, and its command line.
fn helper(program: &OsStr, line: &str) -> io::Result<(OsString, String)> {
    let own = std::env::current_exe()?.into_os_string();
    Ok((own, helper_line(&program.to_string_lossy(), line)))
}

/// Where an opened folder really is, as programs like to be told.
fn path_of(folder: &OwnedHandle) -> io::Result<PathBuf> {
    let handle: HANDLE = raw(folder);
    let mut room = vec![0_u16; 32 * 1024];
    let length = u32::try_from(room.len()).unwrap_or(0);
    // SAFETY: the room is as long as it is said to be.
    let length = unsafe {
        GetFinalPathNameByHandleW(handle, room.as_mut_ptr(), length, FILE_NAME_NORMALIZED)
    };
    let name = room.get(..length as usize).filter(|name| !name.is_empty());
    let name = name.ok_or_else(io::Error::last_os_error)?;
    let text = String::from_utf16(name).map_err(io::Error::other)?;
    Ok(PathBuf::from(plain_path(&text)))
}

/// A path without the mark of the longest ones, where it can do without.
fn plain_path(text: &str) -> String {
    if let Some(shared) = text.strip_prefix(r"\\?\UNC\") {
        return format!(r"\\{shared}");
    }
    text.strip_prefix(r"\\?\").unwrap_or(text).to_owned()
}

pub(super) fn failure(stage: StartStage, error: &io::Error) -> StartFailure {
    StartFailure { stage, errno: error.raw_os_error().unwrap_or(BAD_ARGUMENTS) }
}

/// Which step of the call failed that does several at once.
fn start_failure(error: &io::Error) -> StartFailure {
    let is_folder = super::api::is_error(error, ERROR_DIRECTORY);
    let stage = if is_folder { StartStage::WorkingDirectory } else { StartStage::Execute };
    failure(stage, error)
}
