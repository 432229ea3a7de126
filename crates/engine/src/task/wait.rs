//! Waits for a condition on a task: by kernel events where there are some; a port and a read of
//! input are polled by the warden.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use legwork_warden::{
    protocol::{Met, WatchFor},
    sandbox::SandboxLayer,
};
use regex::Regex;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep_until};

use super::observe::{Observer, Said};
use crate::{
    error::ToolError,
    model::{Trust, sandbox::Wanted},
    output::{Cursor, Mask, Selection, TaskOutput},
    place::Place,
    store::ledger::Task,
};

/// Tokens of output that are searched at a time.
const SEARCH_TOKENS: u64 = 64_000;

/// Characters of a line that has not ended which are searched again with what follows.
const CARRY_BYTES_MAX: usize = 64 * 1024;

/// Output that comes in many small pieces is searched this often at most.
const GATHER: Duration = Duration::from_millis(20);

/// What is waited for: the first that holds.
#[derive(Debug, Clone, Default)]
pub struct Until {
    /// The command has ended.
    pub exit: bool,
    /// The output after the cursor matches.
    pub output_matches: Option<(Regex, Cursor)>,
    /// Nothing was printed for this long.
    pub silence: Option<Duration>,
    /// The port is open.
    pub port: Option<u16>,
    /// The path exists.
    pub path_exists: Option<PathBuf>,
    /// The command waits for input.
    pub waiting_for_input: bool,
}

impl Until {
    /// Whether it names no condition at all.
    pub fn is_empty(&self) -> bool {
        !self.exit
            && self.output_matches.is_none()
            && self.silence.is_none()
            && self.port.is_none()
            && self.path_exists.is_none()
            && !self.waiting_for_input
    }
}

impl Until {
    /// All conditions in a few words.
    pub fn describe(&self) -> String {
        let silence = self.silence.map(silence_condition);
        let conditions = [
            self.exit.then(|| "the end of the command".to_owned()),
            self.output_matches.as_ref().map(|(regex, _)| format!("output that matches {regex}")),
            silence.map(|it| it.describe()),
            self.port.map(|port| Condition::Port(port).describe()),
            self.path_exists.clone().map(|path| Condition::PathExists(path).describe()),
            self.waiting_for_input.then(|| Condition::WaitingForInput.describe()),
        ];
        conditions.into_iter().flatten().collect::<Vec<_>>().join(", or ")
    }
}

/// The condition that held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Condition {
    /// The command has ended.
    Exit,
    /// The output matches: this is the text.
    OutputMatches(String),
    /// Nothing was printed for this many milliseconds.
    SilenceMs(u64),
    /// This port is open.
    Port(u16),
    /// This path exists.
    PathExists(PathBuf),
    /// The command waits for input.
    WaitingForInput,
}

impl Condition {
    /// The condition in a few words.
    pub fn describe(&self) -> String {
        match self {
            Self::Exit => "the command has ended".into(),
            Self::OutputMatches(text) => format!("the output matches: {text}"),
            Self::SilenceMs(silence) => format!("nothing was printed for {silence} ms"),
            Self::Port(port) => format!("port {port} is open"),
            Self::PathExists(path) => format!("{} exists", path.display()),
            Self::WaitingForInput => "the command waits for input".into(),
        }
    }
}

/// Waits until a condition holds; none if the command ends and none can hold any more. Safe to
/// cancel.
pub async fn until(
    observer: &mut Observer,
    wanted: &Until,
) -> Result<Option<Condition>, ToolError> {
    let mut heeded = Heeded::begin(wanted);
    let place = observer.place();
    let confined = confinement(observer.task());
    let path = async {
        match &wanted.path_exists {
            Some(path) => appears(&*place, confined, path).await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(path);
    let watch = WatchFor { port: wanted.port, waiting_for_input: wanted.waiting_for_input };
    if watch != WatchFor::default() {
        observer.watch(watch).await;
    }
    loop {
        let over = observer.is_over();
        if let Some(text) = heeded.look(observer).await? {
            return Ok(Some(Condition::OutputMatches(text)));
        }
        if over && wanted.exit {
            return Ok(Some(Condition::Exit));
        }
        // What it left behind can still print, and open the port.
        if over && !observer.is_held() && !observer.has_news() {
            return Ok(at_the_end(&*place, confined, wanted).await);
        }
        let is_queued = observer.is_queued();
        let silence = async {
            match wanted.silence {
                // What waits in a queue has nothing to say.
                Some(silence) if !is_queued => sleep_until(heeded.silent_since + silence).await,
                _ => std::future::pending().await,
            }
        };
        tokio::select! {
            event = observer.event() => match event {
                Said::Met(Met::Port) => return Ok(wanted.port.map(Condition::Port)),
                Said::Met(Met::WaitingForInput) => return Ok(Some(Condition::WaitingForInput)),
                Said::Grew => tokio::time::sleep(GATHER).await,
                Said::Began => {
                    heeded.silent_since = Instant::now();
                    if watch != WatchFor::default() {
                        observer.watch(watch).await;
                    }
                }
                _ => {}
            },
            () = silence => return Ok(wanted.silence.map(silence_condition)),
            // Nor has it made anything.
            () = &mut path, if !is_queued => {
                return Ok(wanted.path_exists.clone().map(Condition::PathExists));
            }
        }
    }
}

/// The output as far as a condition heeds it.
struct Heeded {
    search: Option<Search>,
    silence: bool,
    /// How much there was at the last look.
    seen: Cursor,
    /// When it was last seen to grow.
    silent_since: Instant,
}

impl Heeded {
    fn begin(wanted: &Until) -> Self {
        let search = wanted.output_matches.clone().map(|(regex, from)| Search::new(regex, from));
        Self {
            search,
            silence: wanted.silence.is_some(),
            seen: Cursor::default(),
            silent_since: Instant::now(),
        }
    }

    /// Looks at what is new, where a condition is about output, and asks to be told of more;
    /// returns the text that matched.
    async fn look(&mut self, observer: &mut Observer) -> Result<Option<String>, ToolError> {
        if self.search.is_none() && !self.silence {
            return Ok(None);
        }
        let over = observer.is_over();
        let output = observer.output().await?;
        if let Some(search) = &mut self.search {
            let found = search.look(&observer.mask(), &output, over);
            if let Some(text) = found.map_err(|error| observer.unreadable(&error))? {
                return Ok(Some(text));
            }
        }
        let size = Cursor { stdout: output.stdout.bytes(), stderr: output.stderr.bytes() };
        if size != self.seen {
            (self.seen, self.silent_since) = (size, Instant::now());
        }
        observer.follow(size.stdout, size.stderr).await;
        Ok(None)
    }
}

/// What a command sees the files through, if that is a view of its own.
fn confinement(task: &Task) -> Option<Wanted> {
    let report = &task.sandbox;
    let is_own = report.enforced.iter().any(|layer| layer == SandboxLayer::MountNamespace.as_str());
    let operator =
        Trust::from_name(&task.trust).is_some_and(|trust| trust.reaches(Trust::TrustedSystem));
    is_own.then_some(Wanted { level: report.level, network: report.network_mode(), operator })
}

/// Where a path is that the command names: what it cannot see does not exist for whoever waits for
/// it either.
async fn as_seen(place: &dyn Place, confined: Option<Wanted>, path: &Path) -> Option<PathBuf> {
    match confined {
        Some(wanted) => place.as_seen(wanted, path.to_owned()).await,
        None => Some(path.to_owned()),
    }
}

/// Resolves when a path exists for the command.
async fn appears(place: &dyn Place, confined: Option<Wanted>, path: &Path) {
    while let Some(seen) = as_seen(place, confined, path).await {
        place.appears(&seen).await;
        // It may have come as a link to what is hidden.
        if as_seen(place, confined, path).await == Some(seen) {
            return;
        }
    }
    std::future::pending::<()>().await;
}

/// What holds when nothing is left of the command.
async fn at_the_end(
    place: &dyn Place,
    confined: Option<Wanted>,
    wanted: &Until,
) -> Option<Condition> {
    let path = wanted.path_exists.as_ref()?;
    let seen = as_seen(place, confined, path).await?;
    place.is_there(&seen).await.then(|| Condition::PathExists(path.clone()))
}

fn silence_condition(silence: Duration) -> Condition {
    Condition::SilenceMs(u64::try_from(silence.as_millis()).unwrap_or(u64::MAX))
}

/// A search through a growing output, which looks at each line once it is there and while it grows.
struct Search {
    regex: Regex,
    from: Cursor,
    /// The line that has not ended yet.
    carry: String,
}

impl Search {
    fn new(regex: Regex, from: Cursor) -> Self {
        Self { regex, from, carry: String::new() }
    }

    /// Looks through what is new; returns the text that matched.
    fn look(
        &mut self,
        mask: &Mask,
        output: &TaskOutput,
        complete: bool,
    ) -> io::Result<Option<String>> {
        loop {
            let fresh = output.since(mask, self.from, Selection::Both, SEARCH_TOKENS, complete)?;
            if fresh.next == self.from {
                return Ok(None);
            }
            self.from = fresh.next;
            self.carry.push_str(&fresh.text);
            if let Some(found) = self.regex.find(&self.carry) {
                return Ok(Some(found.as_str().chars().take(200).collect()));
            }
            let line = self.carry.rfind('\n').map_or(0, |newline| newline + 1);
            let mut kept = line.max(self.carry.len().saturating_sub(CARRY_BYTES_MAX));
            while !self.carry.is_char_boundary(kept) {
                kept += 1;
            }
            self.carry.drain(..kept);
        }
    }
}
