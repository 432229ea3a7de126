//! The program `legwork`: reads the command line and runs the verb. The work is done by the
//! library.

#![forbid(unsafe_code)]

#[cfg(unix)]
mod acp;
#[cfg(windows)]
#[path = "windows/acp.rs"]
mod acp;
mod answering;
mod arguments;
mod asking;
mod commands;
mod hints;
mod http;
mod keys;
mod log;
mod mcp;
mod platform;
mod progress;
mod render;
#[cfg(unix)]
mod signals;
#[cfg(windows)]
#[path = "windows/signals.rs"]
mod signals;
mod style;
mod table;
#[cfg(unix)]
mod terminal;
#[cfg(windows)]
#[path = "windows/terminal.rs"]
mod terminal;
mod traces;

use std::{ffi::OsString, process::ExitCode};

use crate::arguments::{Arguments, ServeVerb, Verb};

/// Exit code for failures of our own.
const OUR_FAILURE: u8 = 125;

/// Exit code of a hook that cannot answer: with any other one agents run the command.
const HOOK_FAILURE: u8 = 2;

/// The first word of the command line, which is the verb of nearly all.
fn first_word() -> OsString {
    std::env::args_os().nth(1).unwrap_or_default()
}

fn main() -> ExitCode {
    legwork_warden::share_heap();
    // First of all: this process may be the spawner.
    legwork::init();
    // Before the command line is read: the less there is in memory, the less a fork costs.
    if first_word().to_str().is_some_and(arguments::starts_at_once) {
        legwork::init_at_once();
    }
    // A job starts one command, too, once it has the environment of that.
    if first_word() == "post" && std::env::args_os().any(|word| word == "--in-environment") {
        legwork_warden::fork_spawner_ahead();
    }
    let arguments = match Arguments::read() {
        Ok(arguments) => arguments,
        Err(problem) => {
            let _ = problem.print();
            // An agent may wait for the verdict on a command.
            let failure = if first_word() == "hook" { HOOK_FAILURE } else { OUR_FAILURE };
            return ExitCode::from(if problem.use_stderr() { failure } else { 0 });
        }
    };
    log::start(arguments.verb.as_ref().and_then(Verb::log_format));
    // One thread: a call is a few system calls, and handing it between threads costs more than they
    // do.
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return render::complain(&format!("cannot start: {error}")),
    };
    let code = runtime.block_on(async {
        let code = dispatch(arguments).await;
        asking::wait_for_terminal().await;
        code
    });
    // Threads that wait for a slow disk or a terminal must not hold up the end.
    runtime.shutdown_background();
    log::finish();
    code
}

async fn dispatch(arguments: Arguments) -> ExitCode {
    let Some(verb) = arguments.verb else {
        return commands::overview::overview(arguments.state).await;
    };
    match verb {
        Verb::Setup(options) => commands::setup::setup(&options).await,
        Verb::Hook(options) => commands::hook::hook(options).await,
        Verb::Mcp(options) => Box::pin(mcp::serve(options)).await,
        Verb::Acp(options) => Box::pin(acp::serve(options)).await,
        Verb::Serve(options) => match &options.verb {
            Some(ServeVerb::Link(options)) => http::links::print_link(options),
            None => Box::pin(http::serve(options)).await,
        },
        Verb::Token(verb) => commands::token::token(verb),
        Verb::Call(options) => commands::call::call(options).await,
        Verb::Run(options) => commands::run::run(options).await,
        Verb::Try(options) => Box::pin(commands::run::try_on_copy(options)).await,
        Verb::Changes(options) => commands::trials::changes(options).await,
        Verb::Apply(options) => commands::trials::apply(options).await,
        Verb::Discard(options) => commands::trials::discard(options).await,
        Verb::Sh(options) => commands::run::sh(options).await,
        Verb::Ps(options) => commands::ps::ps(options).await,
        Verb::Top(options) => Box::pin(commands::top::top(options)).await,
        Verb::Show(options) => commands::show::show(options).await,
        Verb::Logs(options) => commands::logs::logs(options).await,
        Verb::Attach(options) => commands::attach::attach(options).await,
        Verb::Send(options) => commands::send::send(options).await,
        Verb::Stop(options) => commands::stop::stop(options).await,
        Verb::Wait(options) => commands::wait::wait(options).await,
        Verb::Tools(options) => commands::tools::tools(&options),
        Verb::Approvals(options) => commands::approvals::approvals(options).await,
        Verb::Approve(options) => commands::approvals::approve(options).await,
        Verb::Deny(options) => commands::approvals::deny(options).await,
        Verb::Policy(verb) => commands::policy::policy(verb).await,
        Verb::Audit(verb) => commands::audit::audit(verb).await,
        Verb::Places(options) => commands::places::places(options).await,
        Verb::Post(options) => commands::post::post(options).await,
        Verb::Doctor(options) => commands::doctor::doctor(options).await,
        Verb::Gc(options) => Box::pin(commands::gc::gc(options)).await,
        Verb::Completions(options) => commands::completions::completions(&options),
        Verb::CompleteIds(options) => commands::complete_ids::complete_ids(options).await,
        Verb::Man(options) => commands::man::man(&options),
    }
}
