//! Frames on any cut and from any sender.

use proptest::prelude::*;
use serde::de::DeserializeOwned;

use super::{codec::HEADER_BYTES, *};
use crate::record::{CommandEnd, StreamTotal};

fn start(note: Vec<u8>) -> ToWarden {
    ToWarden::Start(Box::new(Spec {
        task: "t_x".into(),
        program: b"/bin/sh".to_vec(),
        argv: vec![b"sh".to_vec()],
        environment: Environment { inherited: true, set: vec![], unset: vec![] },
        stdin: StdinSource::Null,
        outputs: OutputRoute::Separate,
        memory_bytes_max: 9,
        wall_ms_max: Some(5),
        limits: Limits { processes_max: Some(3), ..Limits::default() },
        orphan_ttl_ms: 7,
        sandbox: None,
        stderr_preamble: Vec::new(),
        note,
    }))
}

fn order(order: Order) -> ToWarden {
    ToWarden::Order { task: "t_x".into(), order }
}

proptest! {
    #[test]
    fn frames_survive_any_cut(note in proptest::collection::vec(any::<u8>(), 0..300), cut in 1usize..40) {
        let sent = vec![order(Order::Committed), start(note), order(Order::Signal { signal: 2, group: true })];
        let bytes: Vec<u8> = sent.iter().flat_map(|m| encode(m).unwrap()).collect();
        let mut decoder = Decoder::default();
        let mut got = Vec::new();
        for piece in bytes.chunks(cut) {
            decoder.feed(piece);
            while let Some(message) = decoder.next_frame::<ToWarden>().unwrap() {
                got.push(message);
            }
        }
        prop_assert_eq!(got, sent);
    }

    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut decoder = Decoder::default();
        decoder.feed(&bytes);
        while let Ok(Some(_)) = decoder.next_frame::<ToWarden>() {}
    }
}

#[test]
fn a_frame_over_the_limit_is_refused_before_it_is_read() {
    let mut decoder = Decoder::default();
    decoder.feed(&u32::MAX.to_le_bytes());
    assert!(matches!(decoder.next_frame::<ToWarden>(), Err(FrameError::TooLong(_))));
}

#[test]
fn a_body_that_makes_no_sense_is_refused() {
    let mut decoder = Decoder::default();
    decoder.feed(&[1, 0, 0, 0, 250]);
    assert_eq!(decoder.next_frame::<ToWarden>(), Err(FrameError::Malformed));
}

/// The frames of this version: a name and the body in hex.
const RECORDED: &str = include_str!("frames.txt");

fn record() -> ExitRecord {
    ExitRecord {
        task: "t_x".into(),
        pid: 4711,
        end: CommandEnd::Exited(7),
        ended_by: Some(EndCause::Timeout),
        ended_at_ms: 1_700_000_000_000,
        duration_ms: 1234,
        stdout: StreamTotal { bytes: 3, lines: 1, dropped_bytes: 0 },
        stderr: StreamTotal::default(),
        background_pids: vec![5],
        leaked_handles: true,
        process_limit_hit: false,
        oom_killed: false,
        low_disk: false,
        store_errno: None,
        limits: LimitsInForce::default(),
        used: None,
        connections: vec![],
    }
}

/// What an engine says to a warden.
fn said() -> Vec<(&'static str, ToWarden)> {
    let size = WindowSize { rows: 5, cols: 9 };
    let watch = WatchFor { port: Some(80), waiting_for_input: true };
    let stop = Order::Stop { signal: 15, grace_ms: 300, because: EndCause::Stopped };
    vec![
        ("follow", order(Order::Follow { stdout_bytes: 1, stderr_bytes: 300 })),
        ("signal", order(Order::Signal { signal: 2, group: true })),
        ("close", order(Order::Close(Stream::Stderr))),
        ("stop", order(stop)),
        ("committed", order(Order::Committed)),
        ("spill", order(Order::Spill)),
        ("report", order(Order::Report)),
        ("input", order(Order::Input(b"hi".to_vec()))),
        ("withdraw-input", order(Order::WithdrawInput)),
        ("end-input", order(Order::EndInput)),
        ("resize", order(Order::Resize(size))),
        ("watch", order(Order::Watch(watch))),
        ("adopt", order(Order::Adopt)),
        ("answer-program", order(Order::AnswerProgram { number: 3, allowed: true })),
        ("measure", order(Order::Measure)),
        ("answer-name", order(Order::AnswerName { number: 4, allowed: false })),
    ]
}

/// What a warden says to an engine.
fn heard() -> Vec<(&'static str, FromWarden)> {
    let memory =
        KeptOutput::Memory { stdout: b"out".to_vec(), stderr: vec![], timeline: vec![0; 16] };
    let ended =
        |kept| RunEnd { record: record(), kept, reusable: true, denials: vec![], refused: vec![] };
    let report = Report {
        pid: 4711,
        duration_ms: 5,
        takes_input: true,
        terminal: Some(WindowSize::default()),
        waiting_for_input: Some(false),
        background_pids: vec![6, 7],
        limits: LimitsInForce::default(),
    };
    let in_folder = NewOutput::InFolder { stdout_bytes: 3, stderr_bytes: 4 };
    let bytes = NewOutput::Bytes { stdout: b"a".to_vec(), stderr: b"b".to_vec() };
    let refusal = Some(InputRefusal::Closed);
    let measured =
        LiveResources { user_us: 500, system_us: 7, memory_bytes: 1 << 20, processes: 2 };
    let held = HeldProgram {
        number: 3,
        rule: "r".into(),
        path: b"/bin/git".to_vec(),
        file: b"/usr/bin/git".to_vec(),
        argv: vec![b"git".to_vec(), b"push".to_vec()],
        lineage: vec!["bash".into()],
    };
    vec![
        ("hello", FromWarden::Hello { version: VERSION, pid: 9, task: Some("t_x".into()) }),
        ("grew-in-folder", FromWarden::Grew(in_folder)),
        ("grew", FromWarden::Grew(bytes)),
        ("ended-in-folder", FromWarden::Ended(Box::new(ended(KeptOutput::Folder)))),
        ("ended", FromWarden::Ended(Box::new(ended(memory)))),
        ("stopped", FromWarden::Stopped { survivors: vec![8] }),
        ("spilled", FromWarden::Spilled(true)),
        ("report", FromWarden::Report(Box::new(report))),
        ("input-taken", FromWarden::InputTaken { bytes: 2, refusal }),
        ("met", FromWarden::Met(Met::WaitingForInput)),
        ("not-held", FromWarden::NotHeld),
        ("adopted", FromWarden::Adopted(true)),
        ("program-held", FromWarden::ProgramHeld(held)),
        ("measured", FromWarden::Measured(measured)),
        (
            "name-held",
            FromWarden::NameHeld(HeldName { number: 4, host: "index.test".into(), port: 443 }),
        ),
    ]
}

fn hex(frame: &[u8]) -> String {
    frame[HEADER_BYTES..].iter().map(|byte| format!("{byte:02x}")).collect()
}

fn frame(hex: &str) -> Vec<u8> {
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    let body: Vec<u8> = (0..hex.len()).step_by(2).map(byte).collect();
    [&u32::try_from(body.len()).unwrap().to_le_bytes()[..], &body].concat()
}

fn decoded<T: DeserializeOwned>(recorded: &str) -> T {
    let mut decoder = Decoder::default();
    decoder.feed(&frame(recorded));
    decoder.next_frame().unwrap().unwrap()
}

/// A message of a warden in its frame.
fn framed(message: FromWarden) -> WardenFrame {
    match message {
        FromWarden::Hello { .. } => WardenFrame::about_warden(message),
        _ => WardenFrame::about_run("t_x", message),
    }
}

#[test]
fn what_is_said_is_what_was_recorded_for_this_version_and_is_read_as_it_was_meant() {
    let to =
        said().into_iter().map(|(name, it)| format!("to:{name} {}", hex(&encode(&it).unwrap())));
    let from = heard()
        .into_iter()
        .map(|(name, it)| format!("from:{name} {}", hex(&encode(&framed(it)).unwrap())));
    let today: Vec<String> = to.chain(from).collect();
    let lines: Vec<&str> = RECORDED.lines().collect();
    assert_eq!(
        lines,
        today,
        "\nthe protocol has changed: raise VERSION and record these frames\n{}",
        today.join("\n")
    );
    let recorded = |name: &str| {
        let line = lines.iter().find(|line| line.split_once(' ').unwrap().0 == name).unwrap();
        line.split_once(' ').unwrap().1
    };
    for (name, message) in said() {
        assert_eq!(decoded::<ToWarden>(recorded(&format!("to:{name}"))), message, "{name}");
    }
    for (name, message) in heard() {
        let frame: WardenFrame = decoded(recorded(&format!("from:{name}")));
        assert_eq!(frame, framed(message), "{name}");
    }
}

#[test]
fn what_is_about_another_run_cannot_be_read() {
    for (name, message) in heard() {
        let is_hello = matches!(message, FromWarden::Hello { .. });
        let frame = || {
            let message = message.clone();
            if is_hello {
                WardenFrame::about_warden(message)
            } else {
                WardenFrame::about_run("t_x", message)
            }
        };
        let instead = is_hello.then_some(FromWarden::NotHeld);
        assert_eq!(frame().of_run("t_y"), instead, "{name}");
        assert_eq!(frame().of_run("t_x").is_some(), !is_hello, "{name}");
        assert_eq!(frame().of_warden().is_some(), is_hello, "{name}");
    }
}

#[test]
fn a_failure_is_of_the_run_that_did_not_start_or_of_the_warden() {
    let failure = || FromWarden::StartFailed(StartFailure { stage: StartStage::Sandbox, errno: 1 });
    let of_run = || WardenFrame::about_run("t_x", failure());
    assert_eq!(of_run().of_run("t_x"), Some(failure()));
    assert_eq!((of_run().of_run("t_y"), of_run().of_warden()), (None, None));
    let of_warden = || WardenFrame::about_warden(failure());
    assert_eq!(of_warden().of_warden(), Some(failure()));
    assert_eq!(of_warden().of_run("t_x"), None);
}

#[test]
fn an_end_is_no_bigger_for_naming_its_run() {
    for (_, message) in heard() {
        let bare = encode(&message).unwrap().len();
        let more = encode(&WardenFrame::about_run("t_x", message.clone())).unwrap().len() - bare;
        let named = if matches!(message, FromWarden::Ended(_)) { 1 } else { 5 };
        assert_eq!(more, named, "{message:?}");
    }
}
