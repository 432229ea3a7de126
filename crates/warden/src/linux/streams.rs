//! The streams of a run: the pipes or the terminal, the warden's ends and the command's.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
};

use rustix::{
    buffer::spare_capacity,
    fs::{FileType, Mode, OFlags},
    pipe::{PipeFlags, fcntl_setpipe_size, pipe_with},
    pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt},
    termios::{Winsize, tcgetpgrp, tcsetwinsize},
};

use super::input::{CommandInput, InputSource};
use crate::{
    folder::{Stream, WindowSize},
    protocol::{OutputRoute, StdinSource},
};

/// One read of a pipe.
const READ_BYTES: usize = 64 * 1024;

/// One read of a pipe that has brought much.
const READ_BYTES_WIDE: usize = 256 * 1024;

/// A pipe whose reads come back full is made this big.
const PIPE_BYTES_MAX: usize = 1024 * 1024;

/// Reads after which a pipe that nobody of ours can write to is surely empty.
pub(super) const DRAIN_READS_MAX: usize = PIPE_BYTES_MAX / READ_BYTES * 2;

/// The warden's ends.
#[derive(Debug)]
pub(super) struct Streams {
    pub pipes: [Pipe; 2],
    /// The command's own ends of the pipes. For as long as we hold them its end is one event, and
    /// not three: that its streams are closed is told when its end is.
    held: Vec<OwnedFd>,
    pub input: Option<CommandInput>,
    pub terminal: Option<Terminal>,
}

/// The command's ends: stdin, stdout, stderr.
pub(super) type CommandEnds<'a> = [CommandStream<'a>; 3];

/// One of the command's ends.
#[derive(Debug)]
pub(super) enum CommandStream<'a> {
    Ours(OwnedFd),
    Given(BorrowedFd<'a>),
}

impl AsFd for CommandStream<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Ours(descriptor) => descriptor.as_fd(),
            Self::Given(descriptor) => descriptor.as_fd(),
        }
    }
}

/// What streams are made of.
#[derive(Debug)]
pub(super) struct Given<'a> {
    /// The null device.
    pub null: BorrowedFd<'a>,
    /// The stdin that came with the order.
    pub stdin: Option<BorrowedFd<'a>>,
    /// Where a terminal is made, if not in the usual place: a sandbox has its own.
    pub terminals: Option<&'a OwnedFd>,
}

fn is_folder(descriptor: BorrowedFd<'_>) -> bool {
    rustix::fs::fstat(descriptor).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_dir())
}

impl Streams {
    /// Opens what a command needs.
    pub(super) fn open<'a>(
        stdin: StdinSource,
        outputs: OutputRoute,
        given: &Given<'a>,
    ) -> io::Result<(Self, CommandEnds<'a>)> {
        if let OutputRoute::Terminal(size) = outputs {
            return Self::open_terminal(size, stdin == StdinSource::Open, given);
        }
        let (input, stdin) = match (stdin, given.stdin) {
            (StdinSource::Null, _) => (None, CommandStream::Given(given.null)),
            // A folder would lead past a sandbox's own view of the files.
            (StdinSource::Given, Some(given)) if is_folder(given) => {
                return Err(io::Error::from_raw_os_error(libc::EISDIR));
            }
            (StdinSource::Given, Some(given)) => (None, CommandStream::Given(given)),
            (StdinSource::Given, None) => return Err(io::ErrorKind::InvalidInput.into()),
            (StdinSource::Open, _) => {
                let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
                (Some(CommandInput::pipe(writer)?), CommandStream::Ours(reader))
            }
        };
        let (stdout, stdout_writer) = Pipe::open(Stream::Stdout)?;
        let (stderr, stderr_writer) = match outputs {
            OutputRoute::Separate => Pipe::open(Stream::Stderr)?,
            _ => (Pipe::none(Stream::Stderr), stdout_writer.try_clone()?),
        };
        let ours = Self { pipes: [stdout, stderr], held: Vec::new(), input, terminal: None };
        Ok((ours, [stdin, CommandStream::Ours(stdout_writer), CommandStream::Ours(stderr_writer)]))
    }

    fn open_terminal<'a>(
        size: WindowSize,
        takes_input: bool,
        given: &Given<'a>,
    ) -> io::Result<(Self, CommandEnds<'a>)> {
        // Neither end may become the warden's own controlling terminal.
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = match given.terminals {
            Some(terminals) => {
                let place = format!("/proc/self/fd/{}", terminals.as_raw_fd());
                let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
                rustix::fs::open(place, flags, Mode::empty())?
            }
            None => openpt(flags)?,
        };
        unlockpt(&master)?;
        let slave = ioctl_tiocgptpeer(&master, flags)?;
        rustix::io::ioctl_fionbio(&master, true)?;
        let input = if takes_input { Some(CommandInput::terminal(&master, &slave)?) } else { None };
        let stdin = if takes_input {
            CommandStream::Ours(slave.try_clone()?)
        } else {
            CommandStream::Given(given.null)
        };
        let ends = [
            stdin,
            CommandStream::Ours(slave.try_clone()?),
            CommandStream::Ours(slave.try_clone()?),
        ];
        let mut terminal = Terminal { master: master.try_clone()?, held: Some(slave), size };
        terminal.resize(size);
        let pipe = Pipe { reader: Some(master), ..Pipe::none(Stream::Stdout) };
        let ours = Self {
            pipes: [pipe, Pipe::none(Stream::Stderr)],
            held: Vec::new(),
            input,
            terminal: Some(terminal),
        };
        Ok((ours, ends))
    }

    /// Leaves out what stderr is known to begin with, wherever that goes.
    pub(super) fn leave_out(&mut self, preamble: Vec<u8>) {
        let [stdout, stderr] = &mut self.pipes;
        let is_separate = stderr.reader.is_some();
        let bytes = if self.terminal.is_some() { as_on_terminal(&preamble) } else { preamble };
        let pipe = if is_separate { stderr } else { stdout };
        pipe.preamble = Preamble { bytes, come: 0 };
    }

    /// The command has been started, with these ends.
    pub(super) fn started(&mut self, [_, stdout, stderr]: CommandEnds<'_>) {
        if self.terminal.is_none() {
            let ours = |end| match end {
                CommandStream::Ours(descriptor) => Some(descriptor),
                CommandStream::Given(_) => None,
            };
            self.held = [stdout, stderr].into_iter().filter_map(ours).collect();
        }
    }

    /// The command itself has ended: whatever is left of its terminal's users must not hold it
    /// open, and nor must we.
    pub(super) fn command_ended(&mut self) {
        self.held.clear();
        self.input = None;
        if let Some(terminal) = &mut self.terminal {
            terminal.held = None;
        }
    }

    /// Closes the terminal, if there is one: it goes with its session's leader.
    pub(super) fn close_terminal(&mut self) {
        if self.terminal.take().is_some() {
            for pipe in &mut self.pipes {
                pipe.reader = None;
            }
        }
    }

    /// What a command that waits for input would be reading.
    pub(super) fn input_source(&self) -> Option<InputSource> {
        let foreground = self.terminal.as_ref().map(Terminal::foreground_group);
        self.input.as_ref().map(|input| input.source(foreground))
    }
}

/// A text as a terminal passes it on.
fn as_on_terminal(text: &[u8]) -> Vec<u8> {
    let lines = text.split_inclusive(|byte| *byte == b'\n');
    let ended = |line: &[u8]| match line.strip_suffix(b"\n") {
        Some(line) => [line, b"\r\n"].concat(),
        None => line.to_vec(),
    };
    lines.flat_map(ended).collect()
}

/// A pseudo terminal.
#[derive(Debug)]
pub(super) struct Terminal {
    master: OwnedFd,
    /// The other end, held while the command lives: one that closes and opens its terminal again is
    /// not taken for one that has gone.
    held: Option<OwnedFd>,
    pub size: WindowSize,
}

impl Terminal {
    /// Sets the size; the kernel tells the foreground processes.
    pub(super) fn resize(&mut self, size: WindowSize) {
        let window = Winsize { ws_row: size.rows, ws_col: size.cols, ws_xpixel: 0, ws_ypixel: 0 };
        if tcsetwinsize(&self.master, window).is_ok() {
            self.size = size;
        }
    }

    /// The process group that may read from the terminal; 0 is none.
    fn foreground_group(&self) -> u32 {
        tcgetpgrp(&self.master).map_or(0, |group| group.as_raw_pid().cast_unsigned())
    }
}

/// The warden's end of one output stream.
#[derive(Debug)]
pub(super) struct Pipe {
    pub stream: Stream,
    pub reader: Option<OwnedFd>,
    widened: bool,
    /// Whether the last read found nothing.
    pub is_empty: bool,
    /// Whether everything written before the command's end has surely been read.
    caught_up: bool,
    read_since_end: usize,
    /// What it is known to begin with, and is left out.
    preamble: Preamble,
}

/// Bytes that are left out at the beginning of a stream, if they are what comes.
#[derive(Debug, Default)]
struct Preamble {
    bytes: Vec<u8>,
    /// How many of them have come.
    come: usize,
}

impl Preamble {
    /// Takes the preamble out of what comes next; what began like it and is not is given back.
    fn take_out(&mut self, buffer: &mut Vec<u8>, closed: bool) {
        let rest = self.bytes.get(self.come..).unwrap_or_default();
        if rest.is_empty() {
            return;
        }
        let same = buffer.iter().zip(rest).take_while(|(came, known)| came == known).count();
        let is_other = same < buffer.len() && same < rest.len();
        if is_other || closed && same < rest.len() {
            buffer.splice(..0, self.bytes.drain(..self.come));
            *self = Self::default();
        } else {
            buffer.drain(..same);
            self.come += same;
        }
    }
}

impl Pipe {
    fn open(stream: Stream) -> io::Result<(Self, OwnedFd)> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&reader, true)?;
        Ok((Self { reader: Some(reader), ..Self::none(stream) }, writer))
    }

    /// A stream that brings nothing.
    fn none(stream: Stream) -> Self {
        Self {
            stream,
            reader: None,
            widened: false,
            is_empty: false,
            caught_up: false,
            read_since_end: 0,
            preamble: Preamble::default(),
        }
    }

    pub(super) fn is_caught_up(&self) -> bool {
        self.reader.is_none() || self.caught_up || self.read_since_end >= PIPE_BYTES_MAX
    }

    /// Reads once; an empty buffer is nothing new.
    pub(super) fn read(&mut self, buffer: &mut Vec<u8>, ended: bool) {
        buffer.clear();
        self.is_empty = false;
        let Some(reader) = &self.reader else { return };
        let wanted = if self.widened { READ_BYTES_WIDE } else { READ_BYTES };
        buffer.reserve(wanted);
        match rustix::io::read(reader, spare_capacity(buffer)) {
            Ok(0) => self.reader = None,
            Ok(read) => {
                if ended {
                    self.read_since_end += read;
                }
                if read >= READ_BYTES && !self.widened {
                    self.widened = true;
                    let _ = fcntl_setpipe_size(reader, PIPE_BYTES_MAX);
                }
            }
            Err(rustix::io::Errno::AGAIN) => {
                self.is_empty = true;
                self.caught_up |= ended;
            }
            Err(rustix::io::Errno::INTR) => {}
            // A terminal whose other end is closed answers with an error, not with an end.
            Err(_) => self.reader = None,
        }
        // What still holds the stream open when the command has ended does not hold back its bytes.
        self.preamble.take_out(buffer, self.reader.is_none() || self.caught_up);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_began_like_a_preamble_are_not_lost_where_something_holds_the_stream_open() {
        let (mut pipe, writer) = Pipe::open(Stream::Stderr).unwrap();
        pipe.preamble = Preamble { bytes: b"no home\n".to_vec(), come: 0 };
        rustix::io::write(&writer, b"no h").unwrap();
        let (mut buffer, mut all) = (Vec::new(), Vec::new());
        for ended in [false, true, true] {
            pipe.read(&mut buffer, ended);
            all.extend_from_slice(&buffer);
        }
        assert_eq!(all, b"no h");
        assert_eq!(as_on_terminal(b"a\nb\nc"), b"a\r\nb\r\nc");
    }

    #[test]
    fn a_preamble_is_left_out_if_it_is_what_comes_and_nothing_else_is() {
        let printed = |pieces: &[&str]| {
            let mut preamble = Preamble { bytes: b"no home\n".to_vec(), come: 0 };
            let mut all = Vec::new();
            for (place, piece) in pieces.iter().enumerate() {
                let mut buffer = piece.as_bytes().to_vec();
                preamble.take_out(&mut buffer, place + 1 == pieces.len());
                all.extend(buffer);
            }
            String::from_utf8(all).unwrap()
        };
        assert_eq!(printed(&["no home\nerror\n", ""]), "error\n");
        assert_eq!(printed(&["no h", "ome", "\nno home\n", ""]), "no home\n");
        assert_eq!(printed(&["no hope\n", ""]), "no hope\n");
        assert_eq!(printed(&["no ", "way", ""]), "no way");
        assert_eq!(printed(&["no h", ""]), "no h");
        assert_eq!(printed(&["error", ""]), "error");
    }
}
