//! `legwork hook`: judges the commands of an agent that keeps its own shell.
//!
//! The agent sends what it is about to run as JSON on stdin, and reads the verdict from stdout, in
//! a format of its own ([`HookFormat`]). Most agents run the command when a hook fails or prints
//! something else, so nothing else is ever printed there, the exit code is 0, and whatever goes
//! wrong becomes an answer.

mod format;

use std::{
    env,
    io::{self, BufReader, Read},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use legwork::{
    Caller, Confinement, Engine, ErrorKind, ForeignShell, ForeignVerdict, Level, Options, Registry,
    Request, ToolError, gate::Explanation,
};
use serde_json::Value;
use tokio::sync::oneshot;

use self::format::{HookAnswer, HookCall, HookFormat, NotUnderstood};
use super::program;
use crate::{arguments::HookOptions, hints, render::print};

/// Most bytes that are read of a call.
const CALL_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// How long judging may take before it counts as failed: agents run the command when a hook takes
/// much longer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The project's own file, which marks its folder.
const PROJECT_FILE: &str = ".legwork.toml";

pub(crate) async fn hook(options: HookOptions) -> ExitCode {
    let client = options.client.clone();
    let Some(format) = HookFormat::of(&client) else {
        return crate::render::complain("this agent has no hook");
    };
    // In a task of its own: a fault of ours must not let the command run either.
    let judged = tokio::spawn(async move {
        let mut hook = Hook { format, options, fails_open: None };
        let answer = hook.answer().await;
        hook.format.written(answer)
    });
    let answer = judged.await.unwrap_or_else(|_| {
        let format = HookFormat::of(&client);
        format.map_or(String::new(), |it| it.written(not_judged("a fault of its own")))
    });
    if answer.is_empty() { ExitCode::SUCCESS } else { print(&format!("{answer}\n")) }
}

/// One call of a hook.
struct Hook {
    format: HookFormat,
    options: HookOptions,
    /// Whether a command may run that cannot be judged; known once the configuration is read.
    fails_open: Option<bool>,
}

/// The answer about a command that could not be judged.
fn not_judged(problem: &str) -> HookAnswer {
    HookAnswer::Deny(format!(
        "Legwork could not judge this command, so it does not run: {problem}. Tell the user; \
         `legwork doctor` checks the setup."
    ))
}

impl Hook {
    async fn answer(&mut self) -> HookAnswer {
        let judged = tokio::time::timeout(PATIENCE, self.judged()).await;
        let problem = match judged {
            Ok(Ok(answer)) => return answer,
            Ok(Err(problem)) => problem,
            Err(_) => format!("judging took more than {} s", PATIENCE.as_secs()),
        };
        // Where no folder is known, the one that we are in says what counts.
        let here = || self.options.rules.config(Path::new("."));
        let configured = || here().is_ok_and(|config| config.settings.hook_fails_open);
        if self.fails_open.unwrap_or_else(configured) {
            HookAnswer::Pass
        } else {
            not_judged(&problem)
        }
    }

    async fn judged(&mut self) -> Result<HookAnswer, String> {
        let sent = call().await?;
        let asked = self.format.read(&sent).map_err(|NotUnderstood(problem)| problem)?;
        let HookCall::Command { text, folder } = asked else { return Ok(HookAnswer::Pass) };
        if text.trim().is_empty() {
            return Ok(HookAnswer::Pass);
        }
        let rewrites = self.options.rewrite && self.format.rewrites();
        let engine = self.engine(&folder).map_err(|error| error.message)?;
        // It is the agent who waits, whatever it has in the place of a terminal.
        let caller = Caller::operator(self.format.client.clone());
        let tool = if rewrites { "sh" } else { "hook" };
        let request =
            Request::script(text.clone()).tool(tool).workdir(folder).confined_to(Confinement::None);
        let shell = if rewrites { ForeignShell::Confined } else { ForeignShell::Unconfined };
        let verdict = engine.judge_foreign(request, shell, self.format.asks, &caller).await;
        let verdict = verdict.map_err(|error| error.message)?;
        Ok(match verdict {
            ForeignVerdict::Deny(error) => HookAnswer::Deny(denial(&error)),
            verdict if rewrites => {
                self.rewritten(sent, &text, &verdict, engine.level(caller.trust))?
            }
            // Whatever the agent would ask about, it goes on to ask about: no rule has allowed it,
            // and there is no sandbox around it.
            ForeignVerdict::Allow(why) if is_by_default(&why) => HookAnswer::Pass,
            ForeignVerdict::Allow(why) => HookAnswer::Allow(format!("Legwork: {}", why.reason)),
            ForeignVerdict::Ask(why) => HookAnswer::Ask(question(&why)),
        })
    }

    fn engine(&mut self, folder: &Path) -> Result<Engine, ToolError> {
        let workspace = self.workspace(folder);
        let config = self.options.rules.config(&workspace)?;
        self.fails_open = Some(config.settings.hook_fails_open);
        let mut options = Options::configured(workspace, config);
        options.state = self.options.state.chosen();
        options.hint = hints::of;
        options.for_the_user = hints::for_the_user;
        Engine::open_with(options, Registry::default())
    }

    /// The workspace of a folder: the project that the agent names, if it is in that; else the
    /// nearest folder with a project's file, or the folder itself.
    fn workspace(&self, folder: &Path) -> PathBuf {
        let named = self.format.project.as_ref().and_then(env::var_os).map(PathBuf::from);
        let named = named.filter(|project| project.is_absolute() && folder.starts_with(project));
        let marked = || folder.ancestors().find(|above| above.join(PROJECT_FILE).is_file());
        named.or_else(|| marked().map(Path::to_owned)).unwrap_or_else(|| folder.to_owned())
    }

    /// The answer that lets a command run through `legwork sh`.
    fn rewritten(
        &self,
        sent: Value,
        text: &str,
        verdict: &ForeignVerdict,
        level: Level,
    ) -> Result<HookAnswer, String> {
        let (asks, why) = match verdict {
            ForeignVerdict::Ask(why) => (true, question(why)),
            ForeignVerdict::Allow(why) => (false, format!("Legwork: {}", why.reason)),
            ForeignVerdict::Deny(error) => return Ok(HookAnswer::Deny(denial(error))),
        };
        let mut words = vec![program::path()?, "sh".into(), "--mask".into()];
        words.extend(self.options.rules.as_arguments(asks));
        if let Some(state) = &self.options.state.state {
            words.extend(["--state".into(), state.display().to_string()]);
        }
        words.extend(["--".into(), text.to_owned()]);
        let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
        let command = words.join(" ");
        let input = self.format.rewritten(sent, command);
        let input = input.ok_or_else(|| "the command cannot be rewritten".to_owned())?;
        let confined = match level {
            Level::None => "without a sandbox".to_owned(),
            level => format!("in a sandbox ({})", level.as_str()),
        };
        let reason = format!(
            "{why}. It runs through `legwork sh`: {confined}, recorded, with secrets masked"
        );
        Ok(HookAnswer::Rewrite { asks, reason, input })
    }
}

/// What the agent has sent. Read by a thread, since it may never come, and no further than to its
/// own end, since an agent may leave stdin open.
async fn call() -> Result<Value, String> {
    let (sender, sent) = oneshot::channel();
    let reader = std::thread::Builder::new().name("stdin".into()).spawn(move || {
        let stdin = BufReader::new(io::stdin().lock().take(CALL_BYTES_MAX));
        let mut values = serde_json::Deserializer::from_reader(stdin).into_iter::<Value>();
        // Nobody listens any more after too long a time.
        let _ = sender.send(values.next());
    });
    reader.map_err(|error| format!("stdin cannot be read: {error}"))?;
    match sent.await {
        Ok(Some(Ok(call))) => Ok(call),
        Ok(Some(Err(error))) => Err(format!("the call is not JSON: {error}")),
        Ok(None) | Err(_) => Err("there is no call on stdin".to_owned()),
    }
}

/// Whether a command may only run because nothing speaks against it.
fn is_by_default(why: &Explanation) -> bool {
    ["default", "mode-open"].contains(&why.rule.as_str())
}

/// Why a person has to be asked.
fn question(why: &Explanation) -> String {
    format!("Legwork asks: {} (rule: {})", why.reason, why.rule)
}

/// Why a command may not run, for the model, and what the person can do about it.
fn denial(error: &ToolError) -> String {
    let mut told = format!("Legwork: {}", error.message);
    if let Some(hint) = &error.recovery_hint {
        told.push_str(&format!(". Hint: {hint}"));
    }
    // Of a rule the person knows what to do about it.
    let person =
        error.text_detail("for_the_user").filter(|_| error.kind != ErrorKind::CommandDenied);
    if let Some(person) = person {
        told.push_str(&format!(". The user can: {person}"));
    }
    told
}

/// A text as one word of a shell.
pub(crate) fn quoted(text: &str) -> String {
    let plain = |it: char| it.is_ascii_alphanumeric() || "/._-+:@%".contains(it);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}
