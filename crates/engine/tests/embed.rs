//! A host program that embeds the library: commands of its own, with real processes.
//!
//! With its own `main`, since commands are started by a second start of this very program.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

use std::{
    fs,
    io::{Seek, Write},
    os::unix::fs::PermissionsExt,
    path::Path,
    time::{Duration, Instant},
};

use legwork::{
    Caller, Change, Chunk, Condition, EndedBy, Engine, ErrorKind, Limits, Options, OutputStream,
    StateProblem, Status, Stdin, Stream, TaskHandle, ToolError, Trust, Until, WindowSize,
    output::Cursor,
};
use tempfile::TempDir;
use tokio::{
    runtime::{Builder, Runtime},
    time::timeout,
};

/// How long an event may take; no test waits this long when all is well.
const PATIENCE: Duration = Duration::from_secs(30);

/// A grace that no test needs to the end.
const GRACE: Duration = Duration::from_secs(10);

/// A state folder, a workspace and an engine of its own.
struct Host {
    /// Ends before its folders are removed.
    engine: Engine,
    scratch: Folder,
}

/// A folder that is removed also while an engine or its spawner still writes into it.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        legwork_fixture::remove_folder(self.path());
    }
}

impl Host {
    fn new() -> Self {
        let scratch = Folder::new();
        fs::create_dir(scratch.path().join("workspace")).unwrap();
        let engine = Engine::open(Self::options(scratch.path())).unwrap();
        Self { engine, scratch }
    }

    fn options(scratch: &Path) -> Options {
        Options::new(scratch.join("workspace")).state(scratch.join("state"))
    }

    /// Another engine on the same state folder, as another program would have it.
    fn another(&self) -> Engine {
        Engine::open(Self::options(self.scratch.path())).unwrap()
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.engine.workspace().join(name)
    }
}

/// Waits for something that must come.
async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.expect("it must come")
}

async fn next(output: &mut OutputStream) -> Option<(Stream, String)> {
    let chunk = soon(output.next()).await.unwrap()?;
    assert_eq!(chunk.missing_bytes, 0);
    Some((chunk.stream, chunk.text().into_owned()))
}

async fn all(mut output: OutputStream) -> Vec<Chunk> {
    let mut chunks = Vec::new();
    while let Some(chunk) = soon(output.next()).await.unwrap() {
        chunks.push(chunk);
    }
    chunks
}

fn text_of(chunks: &[Chunk]) -> String {
    let bytes: Vec<u8> = chunks.iter().flat_map(|chunk| chunk.bytes.clone()).collect();
    String::from_utf8(bytes).unwrap()
}

/// Waits until a running script has made a file.
async fn appears(task: &mut TaskHandle, path: &Path) {
    let wanted = Until { path_exists: Some(path.to_owned()), ..Until::default() };
    let met = soon(task.until(&wanted)).await.unwrap();
    assert_eq!(met, Some(Condition::PathExists(path.to_owned())));
}

async fn a_non_zero_exit_is_a_result() {
    let host = Host::new();
    let finished = host.engine.sh("echo out; echo on the way >&2; exit 3").await.unwrap();
    assert_eq!((finished.code(), finished.signal(), finished.success()), (Some(3), None, false));
    assert_eq!((finished.stdout(), finished.stderr()), ("out\n", "on the way\n"));
    assert_eq!(finished.lines().collect::<Vec<_>>(), ["out"]);
    assert!(finished.is_complete() && !finished.timed_out());
    assert_eq!((finished.status(), finished.ended_by()), (Status::Failed, None));
    assert_eq!(finished.outcome().exit_status, Some(3));
    assert!(finished.background_pids().is_empty());
    assert!(finished.duration() < PATIENCE);
    let task = host.engine.task(finished.task_id().as_str()).await.unwrap();
    assert_eq!((task.tool.as_str(), task.status), ("sh", Status::Failed));
    assert!(task.asked_by.starts_with("embed"), "named after this program: {}", task.asked_by);
    assert_eq!(task.trust, "trusted_operator");
    assert_eq!(*task.sandbox, *finished.sandbox());
    // Who wants an error gets one.
    let error = finished.into_success().unwrap_err();
    assert_eq!(error.kind, ErrorKind::CommandFailed);
    assert_eq!(error.message, "the command exited with code 3; its stderr ends with: on the way");
    assert_eq!(error.details.unwrap().get("exit_status").unwrap(), 3);
    let fine = host.engine.sh("echo fine").await.unwrap().into_success().unwrap();
    assert_eq!(fine.stdout(), "fine\n");
}

async fn arguments_reach_a_program_as_they_are() {
    let host = Host::new();
    let printf = host.engine.program("printf").arg("%s|").args(["$HOME", "a  b", "*"]);
    let finished = printf.await.unwrap();
    assert_eq!(finished.stdout(), "$HOME|a  b|*|");
    let task = host.engine.task("@").await.unwrap();
    assert_eq!((task.tool.as_str(), task.shell), ("program", None));
}

async fn variables_and_folders_are_those_that_were_set() {
    let host = Host::new();
    fs::create_dir(host.path("inside")).unwrap();
    let script = "echo $ONE $TWO $THREE; pwd";
    let command = host.engine.sh(script).env("ONE", "1").envs([("TWO", "2"), ("THREE", "3")]);
    let finished = command.workdir("inside").await.unwrap();
    let expected = format!("1 2 3\n{}\n", host.path("inside").display());
    assert_eq!(finished.stdout(), expected);
    // The host program may go where it likes; the sandbox confines its commands.
    assert_eq!(host.engine.program("pwd").workdir("/").await.unwrap().stdout(), "/\n");
    let error = host.engine.program("pwd").workdir("nowhere").await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::WorkdirNotFound);
}

async fn a_timeout_is_a_result_and_leaves_nothing_running() {
    let host = Host::new();
    let script = "echo begun; sleep 1000 & sleep 1000";
    let command = host.engine.sh(script).timeout(Duration::from_millis(300));
    let finished = soon(command.into_future()).await.unwrap();
    assert!(finished.timed_out() && !finished.success());
    assert_eq!(finished.ended_by(), Some(EndedBy::Timeout));
    assert_eq!((finished.stdout(), finished.background_pids()), ("begun\n", &[][..]));
    assert_eq!(finished.into_success().unwrap_err().text_detail("ended_by"), Some("timeout"));
}

async fn stdin_is_text_bytes_a_file_or_nothing() {
    let host = Host::new();
    let cat = |stdin: Stdin| host.engine.program("cat").stdin(stdin);
    assert_eq!(cat("text\n".into()).await.unwrap().stdout(), "text\n");
    assert_eq!(cat(Stdin::Null).await.unwrap().stdout(), "");
    // More than a pipe holds, and no text.
    let bytes: Vec<u8> = (0..=255).cycle().take(500_000).collect();
    let finished = cat(bytes.clone().into()).await.unwrap();
    assert_eq!(finished.stdout_bytes().unwrap(), bytes);
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(b"from a file").unwrap();
    file.rewind().unwrap();
    assert_eq!(cat(file.into()).await.unwrap().stdout(), "from a file");
}

async fn output_comes_in_order_while_the_command_waits_for_input() {
    let host = Host::new();
    let script = "echo one; read a; echo two $a >&2; read b; echo three $b; read end || echo end";
    let mut task = host.engine.sh(script).stdin(Stdin::Open).start().await.unwrap();
    let mut output = task.output().await.unwrap();
    let (out, err) = (Stream::Stdout, Stream::Stderr);
    assert_eq!(next(&mut output).await, Some((out, "one\n".into())));
    task.send("A\n").await.unwrap();
    assert_eq!(next(&mut output).await, Some((err, "two A\n".into())));
    // Cut off while nothing comes, it goes on where it was.
    assert!(timeout(Duration::from_millis(50), output.next()).await.is_err());
    task.send(b"B\n").await.unwrap();
    assert_eq!(next(&mut output).await, Some((out, "three B\n".into())));
    task.end_input().await.unwrap();
    assert_eq!(next(&mut output).await, Some((out, "end\n".into())));
    assert_eq!(next(&mut output).await, None);
    assert_eq!(next(&mut output).await, None, "and stays at its end");
    let finished = soon(task.wait()).await.unwrap();
    assert_eq!((finished.stdout(), finished.stderr()), ("one\nthree B\nend\n", "two A\n"));
    // From the beginning again, in the same order, when all is over.
    assert_eq!(text_of(&all(task.output().await.unwrap()).await), "one\ntwo A\nthree B\nend\n");
}

async fn a_reader_who_never_waits_misses_nothing() {
    let host = Host::new();
    let mut task =
        host.engine.sh("echo one; read go; echo two").stdin(Stdin::Open).start().await.unwrap();
    let mut output = task.output().await.unwrap();
    // Each call is given up wherever it is, after one step.
    let mut impatient = async || {
        loop {
            tokio::select! {
                biased;
                chunk = output.next() => {
                    return chunk.unwrap().map(|chunk| chunk.text().into_owned());
                }
                () = tokio::task::yield_now() => {}
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    assert_eq!(soon(impatient()).await.as_deref(), Some("one\n"));
    task.send("go\n").await.unwrap();
    assert_eq!(soon(impatient()).await.as_deref(), Some("two\n"));
    assert_eq!(soon(impatient()).await, None);
}

async fn whoever_listens_the_ledger_has_what_the_engine_knows_of_an_end() {
    let host = Host::new();
    host.engine.program("git").args(["init", "-q"]).await.unwrap().into_success().unwrap();
    let other = host.another();
    for round in 0..5 {
        // Something that somebody should know of, and that only the engine looks for.
        let script = format!("git config core.pager other{round}; read go");
        let mut task = host.engine.sh(script).stdin(Stdin::Open).start().await.unwrap();
        let output = task.output().await.unwrap();
        let mut elsewhere = other.attach(task.task_id()).await.unwrap();
        task.end_input().await.unwrap();
        let both = async { tokio::join!(all(output), elsewhere.wait()) };
        let (chunks, seen) = soon(Box::pin(both)).await;
        assert!(chunks.is_empty());
        let finished = soon(task.wait()).await.unwrap();
        assert_eq!(finished.outcome().warnings.len(), 1, "{:?}", finished.outcome());
        assert_eq!(seen.unwrap().outcome(), finished.outcome(), "round {round}");
        let row = host.engine.task(task.task_id().as_str()).await.unwrap();
        assert_eq!(row.outcome.as_ref(), Some(finished.outcome()), "round {round}");
    }
}

async fn merged_output_has_the_exact_order() {
    let host = Host::new();
    let script = "for i in 1 2 3; do echo out $i; echo err $i >&2; done";
    let finished = host.engine.sh(script).merged().await.unwrap();
    assert_eq!(finished.stdout(), "out 1\nerr 1\nout 2\nerr 2\nout 3\nerr 3\n");
    assert_eq!(finished.stderr(), "");
}

async fn input_that_cannot_be_taken_is_an_error_with_a_reason() {
    let host = Host::new();
    let mut task = host.engine.sh("sleep 1000").start().await.unwrap();
    let refused = task.send("x").await.unwrap_err();
    assert_eq!(
        (refused.kind, refused.text_detail("reason")),
        (ErrorKind::InputRefused, Some("no_input"))
    );
    soon(task.stop(GRACE)).await.unwrap();
    let refused = task.send("x").await.unwrap_err();
    assert_eq!(refused.text_detail("reason"), Some("ended"));
    let mut task = host
        .engine
        .sh("exec <&-; echo closed; sleep 1000")
        .stdin(Stdin::Open)
        .start()
        .await
        .unwrap();
    assert_eq!(next(&mut task.output().await.unwrap()).await.unwrap().1, "closed\n");
    let refused = task.send("x").await.unwrap_err();
    assert_eq!(refused.text_detail("reason"), Some("closed"));
}

async fn input_that_nobody_reads_can_be_given_up() {
    let host = Host::new();
    let script =
        "until [ -e go ]; do sleep 0.02; done; head -c 65536 >/dev/null; touch read; wc -c";
    let mut task = host.engine.sh(script).stdin(Stdin::Open).start().await.unwrap();
    let much = vec![b'x'; 1_000_000];
    assert!(timeout(Duration::from_millis(100), task.send(&much)).await.is_err());
    fs::write(host.path("go"), "").unwrap();
    appears(&mut host.engine.attach(task.task_id()).await.unwrap(), &host.path("read")).await;
    // What was given up leaves no answer behind that the next call would take for its own.
    task.send("y").await.unwrap();
    task.end_input().await.unwrap();
    let finished = soon(task.wait()).await.unwrap();
    let count: usize = finished.stdout().trim().parse().unwrap();
    assert!((1..much.len()).contains(&count), "{count}");
}

async fn what_is_printed_while_somebody_types_is_told_to_them() {
    let host = Host::new();
    let script = "read x; echo answer; read y; sleep 1000";
    let task = host.engine.sh(script).stdin(Stdin::Open).start().await.unwrap();
    let found = host.engine.task(task.task_id().as_str()).await.unwrap();
    let mut observer = host.engine.observe(found).await.unwrap();
    assert_eq!(observer.output().await.unwrap().stdout.bytes(), 0);
    tokio::select! {
        biased;
        change = observer.changed(0, 0) => panic!("{change:?}"),
        () = std::future::ready(()) => {}
    }
    // Another one gets the answer; the observer has not looked yet.
    let mut other = host.engine.attach(task.task_id()).await.unwrap();
    other.send("one\n").await.unwrap();
    assert_eq!(next(&mut other.output().await.unwrap()).await.unwrap().1, "answer\n");
    let mut controls = observer.controls(&Caller::operator("observer")).await.unwrap();
    assert_eq!(controls.input(b"two\n", PATIENCE).await.bytes, 4);
    assert_eq!(soon(observer.changed(0, 0)).await, Change::Grown);
}

async fn dropping_a_handle_stops_the_command() {
    let host = Host::new();
    let mut task = host.engine.sh("touch started; sleep 1000").start().await.unwrap();
    assert!(task.is_owned());
    appears(&mut task, &host.path("started")).await;
    let id = task.task_id().clone();
    drop(task);
    let finished = soon(host.engine.attach(id).await.unwrap().wait()).await.unwrap();
    assert_eq!(
        (finished.status(), finished.ended_by()),
        (Status::Cancelled, Some(EndedBy::Stopped))
    );
}

async fn dropping_the_future_stops_the_command() {
    let host = Host::new();
    let command = host.engine.sh("touch started; sleep 1000").into_future();
    let mut command = Box::pin(command);
    let started = async {
        while !host.path("started").exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        finished = &mut command => panic!("{finished:?}"),
        () = soon(started) => drop(command),
    }
    let finished = soon(host.engine.attach("@").await.unwrap().wait()).await.unwrap();
    assert_eq!(finished.ended_by(), Some(EndedBy::Stopped));
}

async fn a_detached_command_goes_on_and_another_engine_attaches_to_it() {
    let host = Host::new();
    let script = "echo begun; read line; echo $line; sleep 1000";
    let task = host.engine.sh(script).stdin(Stdin::Open).start().await.unwrap();
    let id = task.detach().await;
    let other = host.another();
    let task = other.attach(&id).await.unwrap();
    assert_eq!((task.task_id(), task.is_owned()), (&id, false));
    let mut output = task.output().await.unwrap();
    assert_eq!(next(&mut output).await.unwrap().1, "begun\n");
    // A handle that owns nothing ends nothing.
    drop(task);
    // One that is held for a caller of lower trust only reads.
    let mut caller = Caller::operator("elsewhere");
    caller.trust = Trust::TrustedIntegration;
    let mut task = other.attach_as(&id, &caller).await.unwrap();
    let mut read = task.output().await.unwrap();
    assert_eq!(next(&mut read).await.unwrap().1, "begun\n");
    for refused in [
        task.send("typed\n").await,
        task.end_input().await,
        task.resize(WindowSize { rows: 9, cols: 9 }).await,
        task.stop(GRACE).await.map(drop),
    ] {
        assert_eq!(refused.unwrap_err().kind, ErrorKind::CommandDenied);
    }
    let mut task = other.attach(&id).await.unwrap();
    task.send("typed by another\n").await.unwrap();
    assert_eq!(next(&mut output).await.unwrap().1, "typed by another\n");
    let finished = soon(task.stop(GRACE)).await.unwrap();
    assert_eq!(finished.status(), Status::Cancelled);
    assert_eq!(finished.stdout(), "begun\ntyped by another\n");
    assert_eq!(next(&mut output).await, None);
    // Both engines know the same end.
    assert_eq!(host.engine.task(id.as_str()).await.unwrap().status, Status::Cancelled);
    // There is nothing left to stop, which is no error.
    let again = soon(other.attach(&id).await.unwrap().stop(GRACE)).await.unwrap();
    assert_eq!(again.status(), Status::Cancelled);
}

/// The children of this process, those that have ended and were not collected among them.
fn children() -> Vec<String> {
    let own = std::process::id().to_string();
    let processes = fs::read_dir("/proc").unwrap().map(|it| it.unwrap().path().join("stat"));
    let stats = processes.filter_map(|stat| fs::read_to_string(stat).ok());
    let is_ours = |stat: &String| {
        let rest = stat.rsplit_once(") ").map(|(_, rest)| rest);
        rest.and_then(|rest| rest.split(' ').nth(1)) == Some(own.as_str())
    };
    stats.filter(is_ours).collect()
}

async fn a_task_that_is_over_can_be_read_by_any_engine() {
    let host = Host::new();
    let finished = host.engine.sh("echo kept; exit 4").await.unwrap();
    let other = host.another();
    let again = other.attach(finished.task_id()).await.unwrap().wait().await.unwrap();
    assert_eq!((again.code(), again.stdout()), (Some(4), "kept\n"));
    let error = other.attach("t_nobody").await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::UnknownTask);
}

async fn stopping_waits_for_the_end_of_everything() {
    let host = Host::new();
    let script = "trap 'echo asked; exit 7' TERM; touch started; while :; do sleep 0.05; done";
    let mut task = host.engine.sh(script).start().await.unwrap();
    appears(&mut task, &host.path("started")).await;
    let begin = Instant::now();
    let finished = soon(task.stop(GRACE)).await.unwrap();
    assert!(begin.elapsed() < GRACE, "no longer than it takes");
    assert_eq!((finished.code(), finished.stdout()), (Some(7), "asked\n"));
    assert_eq!(finished.status(), Status::Cancelled);
    // What a command leaves behind is listed, and ended by a stop.
    let mut task = host.engine.sh("sleep 1000 >/dev/null 2>&1 &").start().await.unwrap();
    let finished = soon(task.wait()).await.unwrap();
    assert_eq!((finished.code(), finished.background_pids().len()), (Some(0), 1));
    let pid = finished.background_pids().first().copied().unwrap();
    assert!(Path::new(&format!("/proc/{pid}")).exists());
    soon(task.stop(GRACE)).await.unwrap();
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
}

async fn a_program_that_cannot_be_started_is_an_error() {
    let host = Host::new();
    let error = host.engine.program("no-such-program").await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::CommandSpawnFailed);
    assert_eq!(error.text_detail("reason"), Some("not_found"));
    fs::write(host.path("plain"), "no program").unwrap();
    let error = host.engine.program("./plain").await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::CommandSpawnFailed);
    // Only the kernel knows that this is none.
    fs::set_permissions(host.path("plain"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(host.path("plain"), b"\x7fELF\0no program").unwrap();
    let mut task = host.engine.program("./plain").start().await.unwrap();
    let error = soon(task.wait()).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::CommandSpawnFailed, "{error:?}");
    let mut seen = host.another().attach(task.task_id()).await.unwrap();
    assert_eq!(seen.wait().await.unwrap_err().kind, ErrorKind::CommandSpawnFailed);
}

async fn a_signal_is_a_result() {
    let host = Host::new();
    let finished = host.engine.sh("kill -KILL $$").await.unwrap();
    assert_eq!((finished.code(), finished.signal()), (None, Some(9)));
    assert_eq!((finished.success(), finished.status()), (false, Status::Failed));
    let error = finished.into_success().unwrap_err();
    assert_eq!(error.message, "the command was ended by SIGKILL");
}

async fn big_output_is_bounded_as_text_and_whole_as_bytes() {
    const BYTES: u64 = 5_000_000;
    let host = Host::new();
    let script = format!("yes 0123456789abcde | head -c {BYTES}");
    let finished = host.engine.sh(&script).await.unwrap();
    assert!(!finished.is_complete());
    let text = finished.stdout();
    assert!(text.len() < 1_100_000, "{}", text.len());
    assert!(text.starts_with("0123456789abcde\n") && text.ends_with("0123456789abcde\n"));
    assert!(text.contains(" bytes left out; the whole stream is in "));
    assert_eq!(finished.stdout_bytes().unwrap().len() as u64, BYTES);
    assert_eq!(finished.output().stdout.bytes(), BYTES);
    let finished = host.engine.sh(&script).text_bytes_max(2 * BYTES).await.unwrap();
    assert!(finished.is_complete());
    assert_eq!(finished.stdout().len() as u64, BYTES);
    // As it comes: nothing twice, nothing missing, in pieces of bounded size.
    let task = host.engine.sh(&script).start().await.unwrap();
    let chunks = all(task.output().await.unwrap()).await;
    assert!(chunks.iter().all(|chunk| chunk.bytes.len() <= 65_536));
    assert_eq!(text_of(&chunks), finished.stdout());
}

async fn output_that_was_dropped_is_counted_where_it_is_missing() {
    let host = Host::new();
    let limits = Limits { output_bytes_max: Some(100_000), ..Limits::default() };
    let script = "yes 0123456789abcde | head -c 4000000";
    let mut task = host.engine.sh(script).limits(limits).start().await.unwrap();
    let finished = soon(task.wait()).await.unwrap();
    let dropped = finished.outcome().stdout.dropped_bytes;
    assert!(dropped > 3_000_000, "{dropped}");
    let chunks = all(task.output().await.unwrap()).await;
    let missing: u64 = chunks.iter().map(|chunk| chunk.missing_bytes).sum();
    let came: usize = chunks.iter().map(|chunk| chunk.bytes.len()).sum();
    assert_eq!((missing, came as u64 + missing), (dropped, 4_000_000));
    assert_eq!(finished.stdout_bytes().unwrap().len(), came);
    assert!(!finished.is_complete());
}

async fn secrets_are_exact_unless_they_are_to_be_masked() {
    let host = Host::new();
    let secret = "q7Rm2-not-for-everybody";
    let script = "echo \"$API_TOKEN\"; printf q7Rm2-not; read go; echo -for-everybody";
    let command = || host.engine.sh(script).env("API_TOKEN", secret).stdin("go\n");
    let exact = format!("{secret}\n{secret}\n");
    assert_eq!(command().await.unwrap().stdout(), exact);
    let masked = "[masked:API_TOKEN]\n[masked:API_TOKEN]\n";
    assert_eq!(command().masked().await.unwrap().stdout(), masked);
    // Half of one is held back until the rest is there.
    let command = || command().stdin(Stdin::Open);
    let mut task = command().masked().start().await.unwrap();
    let mut output = task.output().await.unwrap();
    assert_eq!(next(&mut output).await.unwrap().1, "[masked:API_TOKEN]\n");
    task.send("go\n").await.unwrap();
    assert_eq!(text_of(&all(output).await), "[masked:API_TOKEN]\n");
    let attached = host.engine.attach(task.task_id()).await.unwrap();
    assert_eq!(text_of(&all(attached.output().await.unwrap()).await), exact);
    assert_eq!(text_of(&all(attached.masked().output().await.unwrap()).await), masked);
    // An error is masked in any case.
    let failing = host.engine.sh("echo $API_TOKEN >&2; exit 1").env("API_TOKEN", secret);
    let error = failing.await.unwrap().into_success().unwrap_err();
    assert!(error.message.ends_with("[masked:API_TOKEN]"), "{error}");
}

async fn an_equal_command_is_joined_only_where_that_is_wanted() {
    let host = Host::new();
    let script = "read line; echo $line";
    let command = || host.engine.sh(script).stdin(Stdin::Open);
    let mut first = command().start().await.unwrap();
    let mut second = command().start().await.unwrap();
    assert_ne!(first.task_id(), second.task_id());
    soon(second.stop(GRACE)).await.unwrap();
    let mut joined = command().join_running().start().await.unwrap();
    assert_eq!((joined.task_id(), joined.is_owned()), (first.task_id(), false));
    first.send("for both\n").await.unwrap();
    assert_eq!(soon(joined.wait()).await.unwrap().stdout(), "for both\n");
    assert_eq!(soon(first.wait()).await.unwrap().stdout(), "for both\n");
}

async fn a_terminal_has_the_size_that_was_asked_for() {
    let host = Host::new();
    let size = WindowSize { rows: 30, cols: 100 };
    let script = "test -t 0 && test -t 1 && stty size; read line; stty size";
    let mut task = host.engine.sh(script).tty(size).start().await.unwrap();
    let mut output = task.output().await.unwrap();
    assert_eq!(next(&mut output).await, Some((Stream::Stdout, "30 100\r\n".into())));
    task.resize(WindowSize { rows: 40, cols: 120 }).await.unwrap();
    task.send("\n").await.unwrap();
    let finished = soon(task.wait()).await.unwrap();
    assert!(finished.stdout().ends_with("40 120\r\n"), "{:?}", finished.stdout());
}

async fn conditions_other_than_the_end_can_be_waited_for() {
    let host = Host::new();
    let script = "echo warming up; echo listening on 80; read go";
    let mut task = host.engine.sh(script).stdin(Stdin::Open).start().await.unwrap();
    let line = regex::Regex::new("listening on [0-9]+").unwrap();
    let wanted = Until { output_matches: Some((line, Cursor::default())), ..Until::default() };
    let met = soon(task.until(&wanted)).await.unwrap();
    assert_eq!(met, Some(Condition::OutputMatches("listening on 80".into())));
    let wanted = Until { waiting_for_input: true, ..Until::default() };
    assert_eq!(soon(task.until(&wanted)).await.unwrap(), Some(Condition::WaitingForInput));
    let report = task.observer().await.unwrap().report().await.unwrap().unwrap();
    assert!(report.takes_input);
}

async fn what_must_be_asked_fails_where_nobody_can_be() {
    let host = Host::new();
    fs::create_dir(host.path("precious")).unwrap();
    let error = host.engine.sh("rm -rf precious").await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::ApprovalUnavailable);
    let id = error.text_detail("approval_id").unwrap();
    let hint = error.recovery_hint.as_deref().unwrap();
    assert!(hint.contains(id) && !hint.contains("legwork") && !hint.contains("--"), "{hint}");
    assert!(host.path("precious").exists());
    assert!(host.engine.tasks(true, 10).await.unwrap().is_empty());
}

async fn what_makes_no_sense_is_an_error_before_anything_starts() {
    let host = Host::new();
    for command in [
        host.engine.sh("touch made").arg("x"),
        host.engine.program("touch").arg("made").shell("bash"),
        host.engine.program("touch").arg("made").login(true),
    ] {
        let error = command.await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::InvalidToolInput, "{error}");
    }
    // A command that nobody awaits is none.
    drop(host.engine.sh("touch made"));
    assert!(!host.path("made").exists());
    assert!(host.engine.tasks(true, 10).await.unwrap().is_empty());
}

async fn a_shell_and_a_caller_can_be_chosen() {
    let host = Host::new();
    let caller = Caller::operator("somebody");
    let command = host.engine.sh("echo ${BASH_VERSION:+bash}").shell("bash").caller(&caller);
    let finished = command.tool("Greet").description("says hello").await.unwrap();
    assert_eq!(finished.stdout(), "bash\n");
    let task = host.engine.task("@").await.unwrap();
    assert_eq!((task.asked_by.as_str(), task.tool.as_str()), ("somebody", "Greet"));
    assert_eq!(task.description.as_deref(), Some("says hello"));
    assert!(!task.login);
}

async fn a_state_folder_that_cannot_be_used_is_an_error_with_its_reason() {
    let scratch = Folder::new();
    let file = scratch.path().join("file");
    fs::write(&file, "").unwrap();
    let error = Engine::open(Options::new(scratch.path()).state(&file)).unwrap_err();
    assert_eq!((error.kind, error.retryable), (ErrorKind::StateUnavailable, true));
    assert_eq!(error.state_problem(), Some(StateProblem::Failed));
    let hint = error.recovery_hint.unwrap();
    assert!(!hint.contains("--"), "{hint}");
    // A newer program's, which trying again does not change.
    let host = Host::new();
    host.engine.sh("true").await.unwrap();
    let ledger = rusqlite::Connection::open(host.engine.state().ledger()).unwrap();
    ledger.pragma_update(None, "user_version", 99).unwrap();
    let error = Engine::open(Host::options(host.scratch.path())).unwrap_err();
    assert_eq!((error.state_problem(), error.retryable), (Some(StateProblem::TooNew), false));
}

async fn a_face_has_its_own_words() {
    let scratch = Folder::new();
    let mut options = Options::new(scratch.path()).state(scratch.path().join("state"));
    let word = |error: &ToolError| {
        (error.kind == ErrorKind::UnknownTask).then(|| "press the button".to_owned())
    };
    options.hint = word;
    let engine = Engine::open(options).unwrap();
    let caller = Caller::operator("test");
    let call = |input| engine.call("TaskStatus", input, &caller);
    let answer = call(serde_json::json!({ "task_id": "t_nobody" })).await;
    let hint = answer.error().unwrap().recovery_hint.as_deref();
    assert_eq!(hint, Some("press the button"));
    let answer = call(serde_json::json!({})).await;
    assert!(answer.error().unwrap().recovery_hint.as_deref().unwrap().contains("schema"));
}

async fn tools_and_typed_commands_share_one_engine() {
    let host = Host::new();
    let input = serde_json::json!({ "cmd": "echo from a host program", "login": false });
    let answer = host.engine.call("ExecCommand", input, &Caller::operator("host")).await;
    assert_eq!(answer.receipt(), "Process exited with code 0\n\nstdout:\nfrom a host program");
    // The receipt can be rebuilt from the envelope alone.
    let tool = host.engine.registry().get("ExecCommand").unwrap();
    assert_eq!(tool.render(answer.envelope().result.as_ref().unwrap()), answer.receipt());
    host.engine.sh("true").await.unwrap();
    assert_eq!(host.engine.tasks(true, 10).await.unwrap().len(), 2);
}

/// Starts a command on an event loop of its own, and waits until it runs.
fn started(host: &Host, runtime: &Runtime, name: &str) -> TaskHandle {
    runtime.block_on(async {
        let script = format!("touch {name}; exec sleep 1000");
        let mut task = host.engine.sh(script).start().await.unwrap();
        appears(&mut task, &host.path(name)).await;
        task
    })
}

fn the_end_of_the_event_loop_stops_what_somebody_waits_for_and_nothing_else() {
    let host = Host::new();
    let runtime = || Builder::new_current_thread().enable_all().build().unwrap();
    let first = runtime();
    // Dropped just before the loop ends, by another task's end, after it; and one that is to go on.
    let dropped = started(&host, &first, "dropped");
    let elsewhere = started(&host, &first, "elsewhere");
    let held = started(&host, &first, "held");
    let detached = started(&host, &first, "detached");
    let stopped = [&dropped, &elsewhere, &held].map(|task| task.task_id().clone());
    let goes_on = first.block_on(detached.detach());
    first.spawn(async move { { elsewhere }.wait().await.map(drop) });
    drop(dropped);
    drop(first);
    drop(held);
    runtime().block_on(async {
        let engine = host.another();
        for id in stopped {
            let mut task = engine.attach(&id).await.unwrap();
            assert_eq!(soon(task.wait()).await.unwrap().ended_by(), Some(EndedBy::Stopped));
        }
        let mut task = engine.attach(&goes_on).await.unwrap();
        assert!(task.observer().await.unwrap().report().await.unwrap().is_some());
        assert!(!task.observer().await.unwrap().is_over());
        soon(task.stop(GRACE)).await.unwrap();
    });
}

/// Whatever the host's event loop is: futures can go to other threads.
fn many_threads() {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let host = Host::new();
        let spawned = (0..8).map(|number| {
            let command = host.engine.sh(format!("echo {number}"));
            tokio::spawn(async move { command.await.map(|done| done.stdout().to_owned()) })
        });
        for (number, one) in spawned.collect::<Vec<_>>().into_iter().enumerate() {
            assert_eq!(one.await.unwrap().unwrap(), format!("{number}\n"));
        }
    });
}

macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        vec![$((stringify!($name), || on_one_thread($name()))),*]
    };
}

fn on_one_thread(case: impl Future<Output = ()>) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(case);
}

/// A spawner that is held up when its engine goes is collected whenever it ends.
fn an_engine_that_is_gone_leaves_no_zombie() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let host = runtime.block_on(async {
        let host = Host::new();
        host.engine.sh("true").await.unwrap();
        host
    });
    let found = children();
    let [spawner] = found.as_slice() else { panic!("{found:?}") };
    let pid = spawner.split(' ').next().and_then(|pid| pid.parse().ok()).unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    // Everything that belongs to the engine goes with these.
    let Host { scratch, engine } = host;
    drop(engine);
    drop(runtime);
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    let begun = Instant::now();
    while !children().is_empty() {
        assert!(begun.elapsed() < PATIENCE, "{:?}", children());
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(scratch);
}

fn main() {
    legwork::init();
    legwork_fixture::take_at_most(Duration::from_secs(300));
    let cases: Vec<(&str, fn())> = cases![
        a_non_zero_exit_is_a_result,
        arguments_reach_a_program_as_they_are,
        variables_and_folders_are_those_that_were_set,
        a_timeout_is_a_result_and_leaves_nothing_running,
        stdin_is_text_bytes_a_file_or_nothing,
        output_comes_in_order_while_the_command_waits_for_input,
        a_reader_who_never_waits_misses_nothing,
        whoever_listens_the_ledger_has_what_the_engine_knows_of_an_end,
        merged_output_has_the_exact_order,
        input_that_cannot_be_taken_is_an_error_with_a_reason,
        input_that_nobody_reads_can_be_given_up,
        what_is_printed_while_somebody_types_is_told_to_them,
        dropping_a_handle_stops_the_command,
        dropping_the_future_stops_the_command,
        a_detached_command_goes_on_and_another_engine_attaches_to_it,
        a_task_that_is_over_can_be_read_by_any_engine,
        stopping_waits_for_the_end_of_everything,
        a_program_that_cannot_be_started_is_an_error,
        a_signal_is_a_result,
        big_output_is_bounded_as_text_and_whole_as_bytes,
        output_that_was_dropped_is_counted_where_it_is_missing,
        secrets_are_exact_unless_they_are_to_be_masked,
        an_equal_command_is_joined_only_where_that_is_wanted,
        a_terminal_has_the_size_that_was_asked_for,
        conditions_other_than_the_end_can_be_waited_for,
        what_must_be_asked_fails_where_nobody_can_be,
        what_makes_no_sense_is_an_error_before_anything_starts,
        a_shell_and_a_caller_can_be_chosen,
        a_state_folder_that_cannot_be_used_is_an_error_with_its_reason,
        a_face_has_its_own_words,
        tools_and_typed_commands_share_one_engine,
    ];
    let filter = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    let more: [(&str, fn()); 3] = [
        ("an_engine_that_is_gone_leaves_no_zombie", an_engine_that_is_gone_leaves_no_zombie),
        (
            "the_end_of_the_event_loop_stops_what_somebody_waits_for_and_nothing_else",
            the_end_of_the_event_loop_stops_what_somebody_waits_for_and_nothing_else,
        ),
        ("many_threads", many_threads),
    ];
    for (name, case) in cases.into_iter().chain(more) {
        if filter.as_ref().is_none_or(|wanted| name.contains(wanted.as_str())) {
            case();
            println!("test {name} ... ok");
        }
    }
}
