//! The terminal while `top` has it (raw, on its other screen, with the mouse), and how it is given
//! back, however `top` ends.

use std::{
    fs::File,
    io::{self, BufWriter, Stdout, Write},
    os::fd::OwnedFd,
    sync::{Mutex, PoisonError},
    thread::{self, ThreadId},
};

use legwork::WindowSize;
use ratatui_core::{
    layout::Rect,
    terminal::{Frame, Terminal, TerminalOptions, Viewport},
};
use ratatui_crossterm::CrosstermBackend;
use rustix::{
    stdio::dup2_stderr,
    termios::{OptionalActions, Termios, isatty, tcgetattr, tcsetattr},
};

use crate::terminal;

/// The other screen, no cursor, no wrapping at the edge, clicks and the wheel, marked pastes.
const ENTER: &[u8] =
    b"\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[?1000h\x1b[?1006h\x1b[?2004h\x1b[m\x1b[2J\x1b[H";

/// All of that undone.
const LEAVE: &[u8] = b"\x1b[m\x1b[2J\x1b[?2004l\x1b[?1006l\x1b[?1000l\x1b[?7h\x1b[?25h\x1b[?1049l";

/// The terminal as it was, while `top` has it: for whoever ends `top`.
static TAKEN: Mutex<Option<Taken>> = Mutex::new(None);

/// What has to be given back.
#[derive(Debug)]
struct Taken {
    before: Termios,
    /// Our stderr, if it is the terminal: nothing may be written across the screen.
    stderr: Option<OwnedFd>,
    /// The thread that draws.
    drawing: ThreadId,
}

/// Gives the terminal back, once.
fn give_back() {
    let taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(taken) = taken else { return };
    let mut stdout = io::stdout().lock();
    let _ = stdout.write_all(LEAVE).and_then(|()| stdout.flush());
    let _ = tcsetattr(io::stdin(), OptionalActions::Drain, &taken.before);
    if let Some(stderr) = taken.stderr {
        let _ = dup2_stderr(stderr);
    }
}

/// A panic of the thread that draws gives the terminal back before it is reported. Others are
/// caught (a terminal emulator that breaks), and are no reason to write across the screen.
pub(super) fn give_back_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        let is_ours = taken.as_ref().is_none_or(|taken| taken.drawing == thread::current().id());
        drop(taken);
        if is_ours {
            give_back();
            report(panic);
        }
    }));
}

/// What is drawn on.
type Canvas = Terminal<CrosstermBackend<BufWriter<Stdout>>>;

/// The terminal that `top` draws on; dropping it gives the terminal back.
pub(super) struct TopScreen {
    terminal: Canvas,
    size: WindowSize,
}

impl TopScreen {
    /// Takes the terminal.
    pub(super) fn enter() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        let stderr = if isatty(io::stderr()) { Some(rustix::io::dup(io::stderr())?) } else { None };
        if stderr.is_some() {
            dup2_stderr(File::options().write(true).open("/dev/null")?)?;
        }
        let taken = Taken { before, stderr, drawing: thread::current().id() };
        *TAKEN.lock().unwrap_or_else(PoisonError::into_inner) = Some(taken);
        match Self::begin(&raw) {
            Ok((terminal, size)) => Ok(Self { terminal, size }),
            Err(error) => {
                give_back();
                Err(error)
            }
        }
    }

    /// Prepares the terminal: a blank screen, and its size.
    fn begin(raw: &Termios) -> io::Result<(Canvas, WindowSize)> {
        tcsetattr(io::stdin(), OptionalActions::Now, raw)?;
        let mut stdout = io::stdout().lock();
        stdout.write_all(ENTER)?;
        stdout.flush()?;
        let size = size();
        Ok((canvas(size)?, size))
    }

    /// Takes the terminal once more, after somebody else had it while `top` was stopped. What it
    /// was before `top` is known from the first time.
    pub(super) fn take_again(&mut self) -> io::Result<()> {
        let mut raw = tcgetattr(io::stdin())?;
        raw.make_raw();
        (self.terminal, self.size) = Self::begin(&raw)?;
        Ok(())
    }

    /// Draws what has changed; everything, if the terminal has another size.
    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        if TAKEN.lock().unwrap_or_else(PoisonError::into_inner).is_none() {
            return Err(io::Error::other("it was given back after a panic"));
        }
        let now = size();
        if now != self.size {
            (self.terminal, self.size) = (canvas(now)?, now);
            io::stdout().write_all(b"\x1b[m\x1b[2J")?;
        }
        self.terminal.draw(draw)?;
        Ok(())
    }
}

impl Drop for TopScreen {
    fn drop(&mut self) {
        give_back();
    }
}

fn size() -> WindowSize {
    terminal::size().unwrap_or(WindowSize { rows: 24, cols: 80 })
}

/// A blank screen of this size. Its size is fixed, since crossterm would start a program to find it
/// out where the terminal does not tell.
fn canvas(size: WindowSize) -> io::Result<Canvas> {
    let area = Rect::new(0, 0, size.cols, size.rows);
    let backend = CrosstermBackend::new(BufWriter::new(io::stdout()));
    Terminal::with_options(backend, TerminalOptions { viewport: Viewport::Fixed(area) })
}

#[cfg(test)]
mod tests;
