//! The engine's side of the test.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::windows::{fs::OpenOptionsExt, io::AsHandle},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use legwork_warden::{
    LaunchedWarden, WardenOffer, command_line, is_alive,
    protocol::{
        Decoder, EndCause, Environment, FromWarden, KeptOutput, Limits, Order, OutputRoute, RunEnd,
        Spec, StdinSource, ToWarden, WardenFrame, encode,
    },
    record::{CommandEnd, ExitRecord},
    warden_pipe,
};

/// Nothing here takes longer.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn main() {
    legwork_warden::take_over_if_spawner();
    if let Some(role) = std::env::args().nth(1).filter(|role| role.starts_with("as-")) {
        return play(&role);
    }
    // A test that hangs is ended, and what it has started with it: every warden loses its owner.
    std::thread::spawn(|| {
        std::thread::sleep(PATIENCE * 5);
        eprintln!("the tests take too long");
        std::process::exit(1);
    });
    let rounds: usize =
        std::env::var("LEGWORK_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(3);
    exact_output_and_code();
    arguments_arrive_as_they_are();
    input_is_written_and_ended();
    a_flood_is_stored_whole();
    a_deadline_ends_a_tree();
    what_is_left_behind_is_known_and_stopped();
    for round in 0..rounds {
        a_tree_is_gone_after_a_stop(round);
        a_warden_is_adopted(round);
        a_tree_dies_with_its_warden(round);
        a_warden_ends_whose_engine_leaves_at_once(round);
    }
    println!("all well, {rounds} rounds");
}

/// What this program does when it is a command.
fn play(role: &str) {
    let mut words = std::env::args().skip(2);
    match role {
        "as-arguments" => {
            let hex = |word: String| word.bytes().map(|byte| format!("{byte:02x}")).collect();
            let shown: Vec<String> = words.map(hex).collect();
            println!("{}", shown.join(" "));
        }
        "as-cat" => {
            let mut text = Vec::new();
            io::stdin().read_to_end(&mut text).unwrap();
            io::stdout().write_all(&text).unwrap();
        }
        "as-flood" => {
            let line = [b"x".repeat(1023), b"\n".to_vec()].concat();
            let count: usize = words.next().unwrap().parse().unwrap();
            (0..count).for_each(|_| io::stdout().write_all(&line).unwrap());
        }
        // Starts itself again, so deep; then says so and stays.
        "as-tree" => {
            let depth: u32 = words.next().unwrap().parse().unwrap();
            if depth > 0 {
                let me = std::env::current_exe().unwrap();
                let mut child = std::process::Command::new(me);
                let child = child.args(["as-tree", &(depth - 1).to_string()]).spawn();
                // Nobody waits for it: it outlives its parent.
                drop(child.unwrap());
            }
            println!("up {depth}");
            // The first does not wait for the others: they outlive it.
            if words.next().is_none() {
                std::thread::sleep(PATIENCE);
            }
        }
        other => panic!("{other}"),
    }
}

/// A state folder, a connection to a warden, and what was read of it.
struct Stage {
    folder: PathBuf,
    name: String,
    pipe: File,
    decoder: Decoder,
    warden: Option<LaunchedWarden>,
}

impl Stage {
    /// Starts a warden in a fresh folder.
    fn new(what: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("lw-{what}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("tasks")).unwrap();
        fs::create_dir_all(folder.join("wardens")).unwrap();
        let name = format!("test-{}-{what}", std::process::id());
        let offer = WardenOffer::new(&name).unwrap();
        let pipe = open_pipe(&offer.path());
        let warden = offer.launch(&folder.join("tasks"), &folder.join("wardens")).unwrap();
        let mut stage =
            Self { folder, name, pipe, decoder: Decoder::default(), warden: Some(warden) };
        stage.hello();
        stage
    }

    fn hello(&mut self) -> Option<String> {
        match self.receive().of_warden() {
            Some(FromWarden::Hello { task, .. }) => task,
            other => panic!("no hello: {other:?}"),
        }
    }

    fn receive(&mut self) -> WardenFrame {
        let mut buffer = [0; 4096];
        loop {
            if let Some(frame) = self.decoder.next_frame().unwrap() {
                return frame;
            }
            let read = self.pipe.read(&mut buffer).unwrap();
            assert!(read > 0, "the warden has left");
            self.decoder.feed(&buffer[..read]);
        }
    }

    fn send(&mut self, message: &ToWarden) {
        self.pipe.write_all(&encode(message).unwrap()).unwrap();
    }

    fn order(&mut self, order: Order) {
        self.send(&ToWarden::Order { task: "t".into(), order });
    }

    fn start(&mut self, argv: &[&str], change: impl FnOnce(&mut Spec)) {
        let workdir = folder_handle(&self.folder);
        let given = self.warden.as_ref().unwrap().give(workdir.as_handle()).unwrap();
        self.send(&ToWarden::Handles(vec![given]));
        let mut spec = spec(argv);
        change(&mut spec);
        self.send(&ToWarden::Start(Box::new(spec)));
    }

    /// Starts this program in a role.
    fn start_me(&mut self, role: &[&str], change: impl FnOnce(&mut Spec)) {
        let me = std::env::current_exe().unwrap();
        let me = me.to_str().unwrap();
        self.start(&[&[me], role].concat(), change);
    }

    /// Waits for something that the warden says of the run.
    fn until<T>(&mut self, mut wanted: impl FnMut(FromWarden) -> Option<T>) -> T {
        let begin = Instant::now();
        loop {
            if let Some(found) = self.receive().of_run("t").and_then(&mut wanted) {
                return found;
            }
            assert!(begin.elapsed() < PATIENCE);
        }
    }

    fn ended(&mut self) -> RunEnd {
        self.until(|message| match message {
            FromWarden::Ended(end) => Some(*end),
            FromWarden::StartFailed(failure) => panic!("{failure:?}"),
            _ => None,
        })
    }

    fn stopped(&mut self) -> Vec<u32> {
        self.until(|message| match message {
            FromWarden::Stopped { survivors } => Some(survivors),
            _ => None,
        })
    }

    /// What is stored, once this much is.
    fn stored(&self) -> String {
        fs::read_to_string(self.folder.join("tasks/t/stdout")).unwrap_or_default()
    }

    /// Follows the output until it has this many lines; returns it.
    fn lines(&mut self, count: usize) -> String {
        self.order(Order::Spill);
        self.until(|message| matches!(message, FromWarden::Spilled(true)).then_some(()));
        loop {
            let text = self.stored();
            if text.lines().count() >= count && text.ends_with('\n') {
                return text;
            }
            self.order(Order::Follow { stdout_bytes: text.len() as u64, stderr_bytes: u64::MAX });
            self.until(|message| matches!(message, FromWarden::Grew(_)).then_some(()));
        }
    }

    /// Says that the outcome is safe, and waits for the warden's end.
    fn leave(mut self) {
        self.order(Order::Committed);
        let pid = self.warden.as_ref().map(LaunchedWarden::pid);
        gone(&self.name);
        if let Some(pid) = pid {
            until(|| command_line(pid).is_none());
        }
        assert!(!self.folder.join(format!("wardens/{}.sock", self.name)).exists());
        let folder = self.folder.clone();
        drop(self);
        fs::remove_dir_all(folder).unwrap();
    }
}

fn spec(argv: &[&str]) -> Spec {
    let bytes = |text: &&str| text.as_bytes().to_vec();
    let name = Path::new(argv[0]).file_name().unwrap().to_str().unwrap();
    let mut words: Vec<Vec<u8>> = argv.iter().map(bytes).collect();
    words[0] = name.as_bytes().to_vec();
    Spec {
        task: "t".into(),
        program: argv[0].as_bytes().to_vec(),
        argv: words,
        environment: Environment { inherited: true, set: Vec::new(), unset: Vec::new() },
        stdin: StdinSource::Null,
        outputs: OutputRoute::Separate,
        memory_bytes_max: 64 * 1024,
        wall_ms_max: None,
        limits: Limits::default(),
        orphan_ttl_ms: 60_000,
        sandbox: None,
        stderr_preamble: Vec::new(),
        note: b"a note".to_vec(),
    }
}

fn cmd() -> String {
    format!(r"{}\System32\cmd.exe", std::env::var("SystemRoot").unwrap())
}

fn open_pipe(path: &str) -> File {
    let begin = Instant::now();
    loop {
        match File::options().read(true).write(true).open(path) {
            Ok(pipe) => return pipe,
            // Every end has its client for a moment.
            Err(error) if error.raw_os_error() == Some(231) && begin.elapsed() < PATIENCE => {
                std::thread::yield_now();
            }
            Err(error) => panic!("{path}: {error}"),
        }
    }
}

fn folder_handle(path: &Path) -> File {
    OpenOptions::new().read(true).custom_flags(0x0200_0000).open(path).unwrap()
}

fn until(mut so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !so() {
        assert!(begin.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn gone(warden: &str) {
    until(|| !is_alive("", warden).unwrap());
}

/// What was printed: a run that takes long is stored.
fn printed(stage: &Stage, end: &RunEnd) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match &end.kept {
        KeptOutput::Memory { stdout, stderr, .. } => (text(stdout), text(stderr)),
        KeptOutput::Folder => {
            let stored = |name| fs::read(stage.folder.join("tasks/t").join(name));
            let [stdout, stderr] =
                ["stdout", "stderr"].map(|name| stored(name).unwrap_or_default());
            (text(&stdout), text(&stderr))
        }
    }
}

fn exact_output_and_code() {
    for (script, stdout, stderr, code) in [
        ("echo hi & exit 3", "hi \r\n", "", 3),
        ("echo hi& exit 300000", "hi\r\n", "", 300_000),
        ("echo \"two  words\" 1>&2", "", "\"two  words\" \r\n", 0),
        ("echo h\u{e9} \u{65e5}\u{672c}", "h\u{e9} \u{65e5}\u{672c}\r\n", "", 0),
    ] {
        let mut stage = Stage::new("exact");
        stage.start(&[&cmd(), "/d", "/s", "/c", script], |_| ());
        let end = stage.ended();
        assert_eq!(printed(&stage, &end), (stdout.to_owned(), stderr.to_owned()), "{script}");
        assert_eq!(end.record.end, CommandEnd::Exited(code), "{script}");
        stage.leave();
    }
}

fn arguments_arrive_as_they_are() {
    let words =
        ["", "a b", "\"q\"", r"c:\dir\", r"c:\my dir\", r#"x\"y"#, "%PATH%", "日本 ü", "^&|<>"];
    let mut stage = Stage::new("arguments");
    stage.start_me(&[&["as-arguments"], &words[..]].concat(), |_| ());
    let end = stage.ended();
    let hex = |word: &&str| word.bytes().map(|byte| format!("{byte:02x}")).collect::<String>();
    let wanted: Vec<String> = words.iter().map(hex).collect();
    assert_eq!(printed(&stage, &end).0.trim_end(), wanted.join(" "));
    stage.leave();
}

fn input_is_written_and_ended() {
    let mut stage = Stage::new("input");
    stage.start_me(&["as-cat"], |spec| spec.stdin = StdinSource::Open);
    for piece in [b"one\n".to_vec(), vec![b'y'; 300_000]] {
        let length = piece.len() as u64;
        stage.order(Order::Input(piece));
        let taken = stage.until(|message| match message {
            FromWarden::InputTaken { bytes, refusal: None } => Some(bytes),
            FromWarden::InputTaken { refusal, .. } => panic!("{refusal:?}"),
            _ => None,
        });
        assert_eq!(taken, length);
    }
    stage.order(Order::EndInput);
    let end = stage.ended();
    assert_eq!(end.record.stdout.bytes, 300_004);
    assert_eq!(end.kept, KeptOutput::Folder, "it is long");
    stage.leave();
}

fn a_flood_is_stored_whole() {
    let mut stage = Stage::new("flood");
    stage.start_me(&["as-flood", "4096"], |_| ());
    let end = stage.ended();
    assert_eq!((end.record.stdout.bytes, end.record.stdout.lines), (4 << 20, 4096));
    assert_eq!(stage.stored().len(), 4 << 20);
    let record = fs::read(stage.folder.join("tasks/t/exit")).unwrap();
    assert_eq!(ExitRecord::from_bytes(&record).unwrap(), end.record);
    assert_eq!(fs::read(stage.folder.join("tasks/t/spec")).unwrap(), b"a note");
    stage.leave();
}

fn a_deadline_ends_a_tree() {
    let mut stage = Stage::new("deadline");
    stage.start_me(&["as-tree", "1"], |spec| spec.wall_ms_max = Some(300));
    let end = stage.ended();
    assert_eq!(end.record.ended_by, Some(EndCause::Timeout));
    assert_eq!(end.record.background_pids, Vec::<u32>::new());
    stage.leave();
}

fn what_is_left_behind_is_known_and_stopped() {
    let mut stage = Stage::new("left");
    stage.start_me(&["as-tree", "1", "leaves"], |_| ());
    let end = stage.ended();
    assert_eq!(end.record.end, CommandEnd::Exited(0));
    let [left] = end.record.background_pids[..] else { panic!("{:?}", end.record) };
    assert!(command_line(left).is_some());
    stage.order(Order::Stop { signal: 15, grace_ms: 200, because: EndCause::Stopped });
    assert_eq!(stage.stopped(), Vec::<u32>::new());
    assert!(command_line(left).is_none());
    stage.leave();
}

/// The processes of a run, by its report.
fn tree(stage: &mut Stage, count: usize) {
    // The head and the grandchildren, each of which says that it is up.
    let text = stage.lines(count);
    assert_eq!(text.matches("up ").count(), count, "{text}");
}

fn a_tree_is_gone_after_a_stop(round: usize) {
    let mut stage = Stage::new(&format!("stop{round}"));
    stage.start_me(&["as-tree", "2"], |_| ());
    tree(&mut stage, 3);
    stage.order(Order::Measure);
    let living = stage.until(|message| match message {
        FromWarden::Measured(live) => Some(live.processes),
        _ => None,
    });
    assert_eq!(living, 3);
    let grace_ms = if round.is_multiple_of(2) { 2000 } else { 0 };
    stage.order(Order::Stop { signal: 15, grace_ms, because: EndCause::Stopped });
    let end = stage.ended();
    assert_eq!(end.record.ended_by, Some(EndCause::Stopped));
    assert_eq!(stage.stopped(), Vec::<u32>::new());
    stage.leave();
}

fn a_warden_is_adopted(round: usize) {
    let mut stage = Stage::new(&format!("adopt{round}"));
    stage.start_me(&["as-tree", "1"], |_| ());
    tree(&mut stage, 2);
    // The engine goes without a word.
    let Stage { folder, name, pipe, warden, .. } = stage;
    drop(pipe);
    let pipe = open_pipe(&warden_pipe(&name));
    let mut stage = Stage { folder, name, pipe, decoder: Decoder::default(), warden };
    assert_eq!(stage.hello().as_deref(), Some("t"));
    let adopted = loop {
        stage.order(Order::Adopt);
        let is_ours = stage.until(|message| match message {
            FromWarden::Adopted(is_ours) => Some(is_ours),
            _ => None,
        });
        if is_ours {
            break is_ours;
        }
    };
    assert!(adopted);
    stage.order(Order::Stop { signal: 15, grace_ms: 100, because: EndCause::Stopped });
    assert_eq!(stage.ended().record.ended_by, Some(EndCause::Stopped));
    stage.leave();
}

/// Whatever moment of its start that is: before it is listened to, while it says hello, later.
fn a_warden_ends_whose_engine_leaves_at_once(round: usize) {
    let folder = std::env::temp_dir().join(format!("lw-left{round}-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let offer = WardenOffer::new(&format!("test-{}-left{round}", std::process::id())).unwrap();
    let pipe = open_pipe(&offer.path());
    let warden = offer.launch(&folder, &folder).unwrap();
    std::thread::sleep(Duration::from_millis(round as u64 * 7 % 120));
    drop(pipe);
    until(|| command_line(warden.pid()).is_none());
    drop(warden);
    until(|| fs::remove_dir_all(&folder).is_ok());
}

fn a_tree_dies_with_its_warden(round: usize) {
    let mut stage = Stage::new(&format!("killed{round}"));
    stage.start_me(&["as-tree", "2"], |_| ());
    tree(&mut stage, 3);
    stage.order(Order::Report);
    let head = stage.until(|message| match message {
        FromWarden::Report(report) => Some(report.pid),
        _ => None,
    });
    stage.warden.as_ref().unwrap().kill();
    gone(&stage.name);
    until(|| command_line(head).is_none());
    // What the others had open is closed: the folder can be removed.
    let folder = stage.folder.clone();
    drop(stage);
    until(|| fs::remove_dir_all(&folder).is_ok());
}
