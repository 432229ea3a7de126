//! A terminal of an agent: a command, and the end of what it printed.

use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use legwork::{
    Caller, DuplicatePolicy, Engine, ErrorKind, LOCAL_PLACE, OutputStream, Outputs, Request,
    TaskHandle, ToolError, signal_name,
};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;

/// Bytes of output that are kept where the agent names no number, and most that are.
const OUTPUT_BYTES: usize = 1024 * 1024;
const OUTPUT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// How long a command may take to end by itself after it was asked to.
const GRACE: Duration = Duration::from_secs(3);

/// The tool that rules and records name.
const TOOL: &str = "terminal/create";

/// What an agent wants to run.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Create {
    pub session_id: String,
    command: String,
    #[serde(default, deserialize_with = "or_default")]
    args: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    env: Vec<Variable>,
    cwd: Option<PathBuf>,
    output_byte_limit: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct Variable {
    name: String,
    value: String,
}

/// Null counts as absent, as the protocol's schema says.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    value: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(value)?.unwrap_or_default())
}

impl Create {
    pub(super) fn read(params: &Value) -> Result<Self, ToolError> {
        let invalid = |problem: String| ToolError::new(ErrorKind::InvalidToolInput, problem);
        let create = Self::deserialize(params).map_err(|error| invalid(error.to_string()))?;
        if create.command.trim().is_empty() {
            return Err(invalid("`command` is blank".into()));
        }
        Ok(create)
    }

    /// Without arguments the command is a line for a shell, as editors take it; with arguments it
    /// is a program, and each argument reaches it as it is.
    fn request(self, folder: Option<&Path>) -> Request {
        let request = if self.args.is_empty() {
            Request::script(self.command).login(true)
        } else {
            Request::program(std::iter::once(self.command).chain(self.args))
        };
        let request = self
            .env
            .into_iter()
            .fold(request, |request, Variable { name, value }| request.env(name, value));
        let request = match self.cwd.or_else(|| folder.map(Path::to_owned)) {
            Some(cwd) => request.workdir(cwd),
            None => request,
        };
        // The editor and its files are on this machine.
        let request = request.place(LOCAL_PLACE);
        // One stream in the exact order, and a second terminal for a second request.
        request.tool(TOOL).outputs(Outputs::Merged).duplicates(DuplicatePolicy::StartNew)
    }
}

/// The end of a command's output, and of the command.
pub(super) struct AgentTerminal {
    /// The id of the task.
    pub id: String,
    pub session: String,
    kept: Arc<Mutex<Kept>>,
    exit: watch::Receiver<Option<Value>>,
    stop: CancellationToken,
}

impl Drop for AgentTerminal {
    /// Nobody can ask for it any more.
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl AgentTerminal {
    /// Starts a command; the receiver hears of its end.
    pub(super) async fn begin(
        engine: &Engine,
        caller: &Caller,
        wanted: Create,
        folder: Option<&Path>,
    ) -> Result<(Self, oneshot::Receiver<()>), ToolError> {
        let session = wanted.session_id.clone();
        let limit = wanted.output_byte_limit.map_or(OUTPUT_BYTES, |limit| {
            usize::try_from(limit).unwrap_or(usize::MAX).min(OUTPUT_BYTES_MAX)
        });
        let command = engine.command(wanted.request(folder)).caller(caller).masked();
        let handle = command.start().await?;
        let output = handle.output().await?;
        let id = handle.task_id().to_string();
        let kept = Arc::new(Mutex::new(Kept { limit, ..Kept::default() }));
        let (sender, exit) = watch::channel(None);
        let (told, ended) = oneshot::channel();
        let stop = CancellationToken::new();
        let follower = Follower { handle, output, kept: kept.clone(), stop: stop.clone() };
        tokio::spawn(async move {
            let end = follower.read_all().await;
            sender.send_replace(Some(end));
            let _ = told.send(());
        });
        Ok((Self { id, session, kept, exit, stop }, ended))
    }

    /// The answer to `terminal/output`.
    pub(super) fn output(&self) -> Value {
        let (output, truncated) = self.text();
        let mut answer = json!({ "output": output, "truncated": truncated });
        if let (Some(exit), Value::Object(fields)) = (&*self.exit.borrow(), &mut answer) {
            fields.insert("exitStatus".into(), exit.clone());
        }
        answer
    }

    /// The text that is kept, and whether its beginning is not.
    pub(super) fn text(&self) -> (String, bool) {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.text()
    }

    /// How it ended, if it has.
    pub(super) fn ended(&self) -> Option<Value> {
        self.exit.borrow().clone()
    }

    /// Waits for the end: exit code or signal.
    pub(super) async fn exit(&self) -> Value {
        let mut exit = self.exit.clone();
        let ended = exit.wait_for(Option::is_some).await;
        ended.ok().and_then(|end| end.clone()).unwrap_or_else(|| json!({}))
    }

    /// Stops the command and everything that it started.
    pub(super) async fn kill(&self) {
        self.stop.cancel();
        self.exit().await;
    }
}

/// Reads a command's output to its end.
struct Follower {
    handle: TaskHandle,
    output: OutputStream,
    kept: Arc<Mutex<Kept>>,
    stop: CancellationToken,
}

impl Follower {
    async fn read_all(mut self) -> Value {
        let mut is_stopped = false;
        loop {
            tokio::select! {
                chunk = self.output.next() => match chunk {
                    Ok(Some(chunk)) => {
                        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
                        kept.push(&chunk.bytes);
                    }
                    Ok(None) | Err(_) => break,
                },
                () = self.stop.cancelled(), if !is_stopped => {
                    is_stopped = true;
                    // Survivors are in the task's record; there is no field for them here.
                    let _ = self.handle.stop(GRACE).await;
                }
            }
        }
        match self.handle.wait().await {
            Ok(finished) => json!({
                "exitCode": finished.code(),
                "signal": finished.signal().map(signal_name),
            }),
            // It is over, and how is not known.
            Err(_) => json!({ "exitCode": null, "signal": null }),
        }
    }
}

/// The last bytes of an output.
#[derive(Debug, Default)]
struct Kept {
    bytes: VecDeque<u8>,
    limit: usize,
    truncated: bool,
}

impl Kept {
    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
        let over = self.bytes.len().saturating_sub(self.limit);
        self.bytes.drain(..over);
        self.truncated |= over > 0;
    }

    /// As text that begins with a whole character.
    fn text(&self) -> (String, bool) {
        let is_inside = |byte: &&u8| self.truncated && **byte & 0b1100_0000 == 0b1000_0000;
        let inside = self.bytes.iter().take_while(is_inside).count();
        let bytes: Vec<u8> = self.bytes.iter().skip(inside).copied().collect();
        (String::from_utf8_lossy(&bytes).into_owned(), self.truncated)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_an_output_is_kept_and_begins_with_a_whole_character() {
        let mut kept = Kept { limit: 5, ..Kept::default() };
        kept.push("ab".as_bytes());
        assert_eq!(kept.text(), ("ab".into(), false));
        kept.push("éé".as_bytes());
        // Six bytes came: the first is gone.
        assert_eq!(kept.text(), ("béé".into(), true));
        kept.push("xy".as_bytes());
        assert_eq!(kept.text(), ("éxy".into(), true), "half a character is left out");
        let mut nothing = Kept::default();
        nothing.push(b"x");
        assert_eq!(nothing.text(), (String::new(), true));
    }
}
