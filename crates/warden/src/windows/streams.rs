//! The streams of a run: the warden's ends of the pipes, and the command's.

use std::{
    io,
    os::windows::io::{AsHandle, AsRawHandle, OwnedHandle},
    sync::Arc,
};

use windows_sys::Win32::Foundation::HANDLE;

use super::{
    operation::Operation,
    pipe::{self, Ours, make_inheritable},
    port::{Packet, Port},
    terminal::Terminal,
};
use crate::{
    folder::{Stream, WindowSize},
    protocol::{OutputRoute, StdinSource},
};

/// One read of a pipe.
const READ_BYTES: u32 = 64 * 1024;

/// Most input that is written at a time.
const WRITE_BYTES_MAX: usize = 64 * 1024;

/// The warden's ends.
#[derive(Debug)]
pub(super) struct Streams {
    pub outputs: Vec<Output>,
    pub input: Option<Input>,
    pub terminal: Option<Terminal>,
}

/// The command's ends, which it inherits: stdin, stdout, stderr.
#[derive(Debug)]
pub(super) struct CommandEnds {
    stdin: OwnedHandle,
    stdout: OwnedHandle,
    stderr: Option<OwnedHandle>,
}

impl CommandEnds {
    /// As the system takes them; with one output for both, it stands twice.
    pub(super) fn raw(&self) -> [HANDLE; 3] {
        let [stdin, stdout] =
            [&self.stdin, &self.stdout].map(|end| end.as_handle().as_raw_handle());
        let stderr = self.stderr.as_ref().map_or(stdout, AsRawHandle::as_raw_handle);
        [stdin, stdout, stderr]
    }
}

impl Streams {
    /// Opens what a command needs.
    pub(super) fn open(
        stdin: StdinSource,
        outputs: OutputRoute,
        given: Option<OwnedHandle>,
        port: &mut Port,
    ) -> io::Result<(Self, Option<CommandEnds>)> {
        if let OutputRoute::Terminal(size) = outputs {
            return Ok((Self::on_terminal(size, port)?, None));
        }
        let (input, stdin) = match (stdin, given) {
            (StdinSource::Null, _) => (None, pipe::null()?),
            (StdinSource::Given, Some(given)) => {
                make_inheritable(given.as_raw_handle())?;
                (None, given)
            }
            (StdinSource::Given, None) => return Err(io::ErrorKind::InvalidInput.into()),
            (StdinSource::Open, _) => {
                let (ours, theirs) = pipe::stream(Ours::Write)?;
                (Some(Input::new(ours, port)?), theirs)
            }
        };
        let (first, stdout) = Output::open(Stream::Stdout, port)?;
        let mut ours = vec![first];
        let stderr = if outputs == OutputRoute::Separate {
            let (second, stderr) = Output::open(Stream::Stderr, port)?;
            ours.push(second);
            Some(stderr)
        } else {
            None
        };
        let ends = CommandEnds { stdin, stdout, stderr };
        Ok((Self { outputs: ours, input, terminal: None }, Some(ends)))
    }

    /// A terminal, whose other ends are the system's. It can always be typed on: Ctrl-C is.
    fn on_terminal(size: WindowSize, port: &mut Port) -> io::Result<Self> {
        let (ours, input) = pipe::stream(Ours::Write)?;
        let (output, written) = Output::open(Stream::Stdout, port)?;
        let terminal = Terminal::open(size, &input, &written)?;
        let input = Some(Input::new(ours, port)?);
        Ok(Self { outputs: vec![output], input, terminal: Some(terminal) })
    }

    /// Types something on the terminal, unless something is being written; false where there is no
    /// terminal.
    pub(super) fn type_on_terminal(&mut self, keys: &[u8]) -> bool {
        if self.terminal.is_none() {
            return false;
        }
        if let Some(input) = self.input.as_mut().filter(|input| !input.is_busy()) {
            input.is_ours = input.write(keys).is_ok();
        }
        true
    }

    /// Whether all that was printed has been read, and nobody can print more.
    pub(super) fn are_closed(&self) -> bool {
        self.outputs.is_empty()
    }

    /// Whether nothing waits to be read.
    pub(super) fn are_caught_up(&self) -> bool {
        self.outputs.iter().all(|output| pipe::is_empty(&output.pipe))
    }
}

/// Our end of an output stream, until it ends.
#[derive(Debug)]
pub(super) struct Output {
    pub stream: Stream,
    pub key: usize,
    pipe: Arc<OwnedHandle>,
    reading: Operation,
}

impl Output {
    fn open(stream: Stream, port: &mut Port) -> io::Result<(Self, OwnedHandle)> {
        let (ours, theirs) = pipe::stream(Ours::Read)?;
        let key = port.watch(&ours)?;
        let pipe = Arc::new(ours);
        let reading = Operation::new(pipe.clone())?;
        Ok((Self { stream, key, pipe, reading }, theirs))
    }

    /// Begins to read; false is that the stream has ended.
    pub(super) fn read(&mut self) -> bool {
        self.reading.read(READ_BYTES).is_ok()
    }

    /// What has come; none once the stream has ended.
    pub(super) fn came(&mut self, packet: &Packet) -> Option<&[u8]> {
        if !self.reading.is_meant(packet) {
            return Some(&[]);
        }
        let bytes = self.reading.ended(packet.bytes);
        packet.error.is_none().then_some(bytes)
    }
}

/// Our end of an open stdin.
#[derive(Debug)]
pub(super) struct Input {
    pub key: usize,
    /// Whether what is being written is nobody's input, but a key that we press.
    pub is_ours: bool,
    writing: Operation,
}

impl Input {
    fn new(ours: OwnedHandle, port: &mut Port) -> io::Result<Self> {
        let key = port.watch(&ours)?;
        Ok(Self { key, is_ours: false, writing: Operation::new(Arc::new(ours))? })
    }

    /// Whether a write goes on.
    pub(super) fn is_busy(&self) -> bool {
        self.writing.is_pending()
    }

    /// Begins to write the first of these bytes.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let now = bytes.get(..WRITE_BYTES_MAX).unwrap_or(bytes);
        self.writing.write(now.to_vec())
    }

    /// How many bytes were written, if the packet is about that; an error is that nobody reads.
    pub(super) fn written(&mut self, packet: &Packet) -> Option<Result<u32, ()>> {
        if !self.writing.is_meant(packet) {
            return None;
        }
        self.writing.ended(0);
        Some(if packet.error.is_some() { Err(()) } else { Ok(packet.bytes) })
    }
}
