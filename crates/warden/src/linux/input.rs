//! Writes to a command's stdin or terminal, and tells whether the command is waiting for input.

use std::{
    fs::{self, File},
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::{FileExt, MetadataExt},
    },
};

use rustix::{
    fs::fstat,
    io::Errno,
    termios::{LocalModes, SpecialCodeIndex, tcgetattr},
};

use super::tree;
use crate::protocol::InputRefusal;

/// The number of `/dev/tty`, which stands for whatever terminal a process has.
const DEV_TTY: u64 = 5 << 8;

/// The sign of a C `int`.
const SIGN: u64 = 1 << 31;

/// Most descriptors that are looked at in a process's `poll` or `select`.
const DESCRIPTORS_MAX: usize = 1024;

/// The warden's end of a command's stdin.
#[derive(Debug)]
pub(super) struct CommandInput {
    writer: OwnedFd,
    target: InputTarget,
    /// On a terminal: whether what was typed last ended a line.
    at_line_start: bool,
}

/// What the other end of an input is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InputTarget {
    Pipe { device: u64, inode: u64 },
    Terminal { number: u64 },
}

impl CommandInput {
    pub(super) fn pipe(writer: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&writer, true)?;
        let status = fstat(&writer)?;
        let target = InputTarget::Pipe { device: status.st_dev, inode: status.st_ino };
        Ok(Self { writer, target, at_line_start: true })
    }

    pub(super) fn terminal(master: &OwnedFd, slave: &OwnedFd) -> io::Result<Self> {
        let target = InputTarget::Terminal { number: fstat(slave)?.st_rdev };
        Ok(Self { writer: master.try_clone()?, target, at_line_start: true })
    }

    /// Writes as much as is taken now; fewer bytes than given means that the rest has to wait.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<usize, InputRefusal> {
        let mut written = 0;
        while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
            match rustix::io::write(&self.writer, rest) {
                Ok(taken) => written += taken,
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                // What went before it is counted first; the next try meets the same.
                Err(_) if written > 0 => break,
                Err(_) => return Err(InputRefusal::Closed),
            }
        }
        if let Some(last) = written.checked_sub(1).and_then(|last| bytes.get(last)) {
            // So do the keys that throw a line away, or have just ended the input.
            const LINE_ENDS: &[u8] = b"\n\r\x03\x04\x15\x1a\x1c";
            self.at_line_start = LINE_ENDS.contains(last);
        }
        Ok(written)
    }

    /// Writes a few bytes, all of them now or not at all as far as the caller is concerned.
    pub(super) fn write_whole(&mut self, bytes: &[u8]) -> Option<InputRefusal> {
        match self.write(bytes) {
            Ok(written) if written == bytes.len() => None,
            Ok(_) => Some(InputRefusal::Full),
            Err(refusal) => Some(refusal),
        }
    }

    /// What is typed on a terminal to end the input; none for a pipe, which is closed instead.
    pub(super) fn end_of_file(&self) -> Option<Vec<u8>> {
        if matches!(self.target, InputTarget::Pipe { .. }) {
            return None;
        }
        let attributes = tcgetattr(&self.writer).ok();
        let by_line = attributes
            .as_ref()
            .is_some_and(|attributes| attributes.local_modes.contains(LocalModes::ICANON));
        let code = attributes.map_or(4, |known| known.special_codes[SpecialCodeIndex::VEOF]);
        // In the middle of a line the first one only hands the line over.
        Some(vec![code; if by_line && !self.at_line_start { 2 } else { 1 }])
    }

    /// What a process that waits for this input would be reading.
    pub(super) fn source(&self, foreground_group: Option<u32>) -> InputSource {
        InputSource { target: self.target, foreground_group }
    }
}

impl AsFd for CommandInput {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.writer.as_fd()
    }
}

/// What a process that waits for input would be reading.
#[derive(Debug, Clone, Copy)]
pub(super) struct InputSource {
    target: InputTarget,
    /// With a terminal: only these processes may read from it.
    foreground_group: Option<u32>,
}

/// What a thread is found doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ThreadState {
    Waiting,
    Busy,
    Unknown,
}

impl InputSource {
    /// Whether a process of the tree is blocked, without a time limit, on reading this.
    ///
    /// The kernel says in which system call a thread sleeps, and with which descriptors. An event
    /// loop waits for many things at once, so for one that has this among them there is no answer.
    pub(super) fn is_waited_for(&self) -> Option<bool> {
        let mut unknown = false;
        for process in tree::processes() {
            let reads = self.foreground_group.is_none_or(|group| group == process.group);
            if !reads || process.is_stopped() {
                continue;
            }
            match self.look_at_process(process.pid) {
                ThreadState::Waiting => return Some(true),
                ThreadState::Busy => {}
                ThreadState::Unknown => unknown = true,
            }
        }
        if unknown { None } else { Some(false) }
    }

    fn look_at_process(&self, pid: u32) -> ThreadState {
        let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
            return ThreadState::Busy;
        };
        let mut found = ThreadState::Busy;
        for thread in threads.filter_map(Result::ok) {
            let seen = match fs::read_to_string(thread.path().join("syscall")) {
                Ok(text) => self.look_at_call(pid, &text),
                // It has ended, or may not be looked at.
                Err(error) if error.kind() == io::ErrorKind::NotFound => ThreadState::Busy,
                Err(_) => ThreadState::Unknown,
            };
            match seen {
                ThreadState::Waiting => return ThreadState::Waiting,
                ThreadState::Unknown => found = ThreadState::Unknown,
                ThreadState::Busy => {}
            }
        }
        found
    }

    /// Judges a line such as `0 0x0 0x7f.. 0x400 ...`: the call's number and its arguments.
    fn look_at_call(&self, pid: u32, text: &str) -> ThreadState {
        let mut fields = text.split_whitespace();
        let number = fields.next().and_then(|field| field.parse::<i64>().ok());
        let Some(call) = number.and_then(SleepingCall::of) else {
            return ThreadState::Busy;
        };
        let mut arguments = [0_u64; 6];
        for (place, field) in arguments.iter_mut().zip(fields) {
            let digits = field.trim_start_matches("0x");
            *place = u64::from_str_radix(digits, 16).unwrap_or(0);
        }
        let [first, second, third, _, fifth, _] = arguments;
        match call {
            SleepingCall::Read => self.among(pid, &[first]),
            // A negative number of milliseconds, or no time at all, is for ever.
            SleepingCall::Poll if third & SIGN != 0 => self.polled(pid, first, second),
            SleepingCall::PollTimed if third == 0 => self.polled(pid, first, second),
            SleepingCall::Select if fifth == 0 => self.selected(pid, first, second),
            SleepingCall::EventLoop if self.is_in_event_loop(pid, first) => ThreadState::Unknown,
            SleepingCall::Ring if self.is_at(pid, 0) => ThreadState::Unknown,
            _ => ThreadState::Busy,
        }
    }

    /// Whether this descriptor of the process is our other end.
    fn is_at(&self, pid: u32, descriptor: u64) -> bool {
        let Ok(status) = fs::metadata(format!("/proc/{pid}/fd/{descriptor}")) else {
            return false;
        };
        match self.target {
            InputTarget::Pipe { device, inode } => (status.dev(), status.ino()) == (device, inode),
            InputTarget::Terminal { number } => status.rdev() == number || status.rdev() == DEV_TTY,
        }
    }

    /// Looks at a `struct pollfd` array of the process.
    fn polled(&self, pid: u32, address: u64, count: u64) -> ThreadState {
        const ENTRY_BYTES: usize = 8;
        const POLLIN: u8 = 1;
        let count = usize::try_from(count).unwrap_or(0).min(DESCRIPTORS_MAX);
        let bytes = memory(pid, address, count * ENTRY_BYTES);
        let (entries, _) = bytes.as_chunks::<ENTRY_BYTES>();
        let read = entries.iter().filter(|[.., events, _, _, _]| events & POLLIN != 0);
        let read = read.map(|[a, b, c, d, ..]| u32::from_le_bytes([*a, *b, *c, *d]).into());
        self.among(pid, &read.collect::<Vec<u64>>())
    }

    /// What a wait for one of several descriptors means.
    fn among(&self, pid: u32, descriptors: &[u64]) -> ThreadState {
        let others = descriptors.iter().filter(|descriptor| !self.is_at(pid, **descriptor)).count();
        match (others < descriptors.len(), others) {
            (false, _) => ThreadState::Busy,
            (true, 0) => ThreadState::Waiting,
            // It waits for other things as well, like an event loop.
            (true, _) => ThreadState::Unknown,
        }
    }

    /// Looks at a set of descriptors of the process.
    fn selected(&self, pid: u32, count: u64, address: u64) -> ThreadState {
        let count = usize::try_from(count).unwrap_or(0).min(DESCRIPTORS_MAX);
        let bytes = memory(pid, address, count.div_ceil(8));
        let bits = (0..count).filter(|place| {
            bytes.get(place / 8).is_some_and(|byte| byte & (1 << (place % 8)) != 0)
        });
        self.among(pid, &bits.map(|place| place as u64).collect::<Vec<u64>>())
    }

    fn is_in_event_loop(&self, pid: u32, descriptor: u64) -> bool {
        let text = fs::read_to_string(format!("/proc/{pid}/fdinfo/{descriptor}"));
        text.unwrap_or_default()
            .lines()
            .filter_map(|line| line.strip_prefix("tfd:")?.split_whitespace().next()?.parse().ok())
            .any(|watched| self.is_at(pid, watched))
    }
}

/// System calls in which a process can wait for input.
#[derive(Debug, Clone, Copy)]
enum SleepingCall {
    Read,
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "newer systems lack it"))]
    Poll,
    PollTimed,
    Select,
    EventLoop,
    Ring,
}

impl SleepingCall {
    fn of(number: i64) -> Option<Self> {
        Some(match number {
            libc::SYS_read | libc::SYS_readv => Self::Read,
            #[cfg(target_arch = "x86_64")]
            libc::SYS_poll => Self::Poll,
            #[cfg(target_arch = "x86_64")]
            libc::SYS_select => Self::Select,
            #[cfg(target_arch = "x86_64")]
            libc::SYS_epoll_wait => Self::EventLoop,
            libc::SYS_ppoll => Self::PollTimed,
            libc::SYS_pselect6 => Self::Select,
            libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => Self::EventLoop,
            libc::SYS_io_uring_enter => Self::Ring,
            _ => return None,
        })
    }
}

/// Reads memory of a process; nothing where that is not possible.
fn memory(pid: u32, address: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let read = File::open(format!("/proc/{pid}/mem"))
        .and_then(|memory| memory.read_exact_at(&mut bytes, address));
    if read.is_ok() { bytes } else { Vec::new() }
}
