//! Terminals: pseudo consoles, where the system has them.
//!
//! A command on one is started by a helper, which is this program once more, inside of it: the
//! helper opens the console by its name and lets the command have it as its streams. So it does not
//! matter which streams a process gets that is started in another console than that of its parent,
//! which differs between systems.

use std::{io, mem, os::windows::io::OwnedHandle, sync::OnceLock, thread};

use windows_sys::{
    Win32::{
        Foundation::{ERROR_NOT_SUPPORTED, GENERIC_READ, GENERIC_WRITE, HANDLE},
        System::{
            Console::{COORD, HPCON},
            Environment::GetCommandLineW,
            LibraryLoader::{GetModuleHandleW, GetProcAddress},
            Threading::{INFINITE, WaitForSingleObject},
        },
    },
    core::HRESULT,
};

use super::{
    api::{raw, text_at, wide},
    console, pipe,
    process::Start,
};
use crate::folder::WindowSize;

/// The private argument that turns a second start of the program into such a helper.
pub(super) const HELPER_ARGUMENT: &str = "__legwork-terminal";

/// The exit code of a helper that could not start its command.
const NOT_STARTED: i32 = 126;

type Create = unsafe extern "system" fn(COORD, HANDLE, HANDLE, u32, *mut HPCON) -> HRESULT;
type Resize = unsafe extern "system" fn(HPCON, COORD) -> HRESULT;
type Close = unsafe extern "system" fn(HPCON);

/// A function of which only the name is known yet.
type Found = unsafe extern "system" fn() -> isize;

/// The calls that only newer systems have.
#[derive(Debug, Clone, Copy)]
struct Calls {
    create: Create,
    resize: Resize,
    close: Close,
}

/// Those calls; none where the system lacks them.
fn calls() -> Option<Calls> {
    static CALLS: OnceLock<Option<Calls>> = OnceLock::new();
    *CALLS.get_or_init(|| {
        let library = wide("kernel32.dll");
        // SAFETY: all names end with a zero, the library is always there, and the functions have
        // the signatures that the system documents.
        unsafe {
            let library = GetModuleHandleW(library.as_ptr());
            let find = |name: &'static [u8]| GetProcAddress(library, name.as_ptr());
            Some(Calls {
                create: mem::transmute::<Found, Create>(find(b"CreatePseudoConsole\0")?),
                resize: mem::transmute::<Found, Resize>(find(b"ResizePseudoConsole\0")?),
                close: mem::transmute::<Found, Close>(find(b"ClosePseudoConsole\0")?),
            })
        }
    })
}

/// A pseudo console.
#[derive(Debug)]
pub(super) struct Terminal {
    calls: Calls,
    handle: HPCON,
    pub size: WindowSize,
}

impl Terminal {
    /// Makes one that reads from the one pipe and writes to the other: it has ends of its own.
    pub(super) fn open(
        size: WindowSize,
        input: &OwnedHandle,
        output: &OwnedHandle,
    ) -> io::Result<Self> {
        let unsupported = || io::Error::from_raw_os_error(ERROR_NOT_SUPPORTED.cast_signed());
        let calls = calls().ok_or_else(unsupported)?;
        let mut handle = HPCON::default();
        // SAFETY: both handles are open, and the pointer is to a local.
        let made = unsafe {
            (calls.create)(coordinates(size), raw(input), raw(output), 0, &raw mut handle)
        };
        if made < 0 { Err(unsupported()) } else { Ok(Self { calls, handle, size }) }
    }

    /// As a process is given it that is started on it.
    pub(super) fn raw(&self) -> HPCON {
        self.handle
    }

    /// Gives it another size, where the system can.
    pub(super) fn resize(&mut self, size: WindowSize) {
        // SAFETY: it is open.
        if unsafe { (self.calls.resize)(self.handle, coordinates(size)) } >= 0 {
            self.size = size;
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let (calls, handle) = (self.calls, self.handle);
        // Some systems wait in it until all that was printed has been read, which we do.
        // SAFETY: it is open, and used no more.
        thread::spawn(move || unsafe { (calls.close)(handle) });
    }
}

fn coordinates(size: WindowSize) -> COORD {
    let bounded = |count: u16| i16::try_from(count).unwrap_or(i16::MAX);
    COORD { X: bounded(size.cols), Y: bounded(size.rows) }
}

/// The command line of the helper for a command: the program's path has no quote in it.
pub(super) fn helper_line(program: &str, line: &str) -> String {
    format!("\"legwork\" {HELPER_ARGUMENT} \"{program}\" {line}")
}

/// The program and the command line that a helper's own names.
fn helped(line: &str) -> Option<(&str, &str)> {
    let (_, rest) = line.split_once(HELPER_ARGUMENT)?;
    rest.strip_prefix(" \"")?.split_once("\" ")
}

/// Runs a command on the console that this process is attached to; returns its exit code.
pub(super) fn help() -> i32 {
    console::prepare();
    let line = own_line();
    let Some((program, line)) = helped(&line) else { return NOT_STARTED };
    match run_on_console(program, line) {
        Ok(code) => code.cast_signed(),
        Err(error) => {
            eprintln!("legwork: {program}: {error}");
            NOT_STARTED
        }
    }
}

fn run_on_console(program: &str, line: &str) -> io::Result<u32> {
    let input = pipe::open_inheritable("CONIN$", GENERIC_READ | GENERIC_WRITE)?;
    let output = pipe::open_inheritable("CONOUT$", GENERIC_READ | GENERIC_WRITE)?;
    let folder = std::env::current_dir()?;
    let process = Start {
        program: Some(program.as_ref()),
        line: line.to_owned(),
        environment: None,
        folder: folder.as_os_str(),
        flags: 0,
        streams: Some([raw(&input), raw(&output), raw(&output)]),
        with: Vec::new(),
        job: None,
        terminal: None,
    }
    .start()?;
    // SAFETY: an open handle of a process.
    unsafe { WaitForSingleObject(raw(&process.handle), INFINITE) };
    Ok(process.exit_code())
}

/// The command line of this process, as it is.
fn own_line() -> String {
    // SAFETY: the system keeps the text, which ends with a zero, for as long as we live.
    unsafe {
        let line = GetCommandLineW();
        if line.is_null() { String::new() } else { text_at(line) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_helper_knows_its_command() {
        let line = helper_line(r"C:\my dir\x.exe", r#"x "a \"b" __legwork-terminal"#);
        let wanted = (r"C:\my dir\x.exe", r#"x "a \"b" __legwork-terminal"#);
        assert_eq!(helped(&line), Some(wanted));
    }
}
