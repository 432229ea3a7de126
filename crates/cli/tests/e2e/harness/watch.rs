//! The end of a test: in time, and with nothing left of it.

use std::{
    io::Write,
    panic::Location,
    path::PathBuf,
    process,
    sync::{
        Arc, LazyLock, Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use legwork_fixture::processes::{self, Process};

use super::{stage, windows};

/// How long the parts of a test may take.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// All of it, but for its end.
    pub limit: Duration,
    /// What a test does without its processes, until the whole run is given up.
    pub farewell: Duration,
    /// The end of its last processes.
    pub patience: Duration,
}

impl Times {
    /// Those of a test that does not say otherwise. None takes a minute on an idle machine.
    pub const USUAL: Self = Self {
        limit: Duration::from_secs(300),
        farewell: Duration::from_secs(60),
        patience: Duration::from_secs(30),
    };

    /// Those of a test that may take another time.
    pub const fn at_most(limit: Duration) -> Self {
        Self { limit, ..Self::USUAL }
    }
}

/// Time in which a program that is started has begun, if it will.
const NEVER_BEGAN: Duration = Duration::from_secs(3);

/// How often the clock is looked at.
const TURN: Duration = Duration::from_millis(200);

static WATCHED: LazyLock<Mutex<Vec<Arc<Watched>>>> = LazyLock::new(|| {
    thread::spawn(look_after);
    Mutex::default()
});

/// What is known of a test.
struct Watched {
    /// Its name, unless it runs on the main thread, and where it was put under watch.
    name: String,
    folders: Vec<PathBuf>,
    begin: Instant,
    times: Times,
    is_over: AtomicBool,
}

impl Watched {
    fn processes(&self) -> Vec<Process> {
        processes::naming(&self.folders)
    }
}

/// A test, or a part of it, with a time limit and the folders that its processes are known by.
pub struct Watch(Arc<Watched>);

impl Watch {
    #[track_caller]
    pub fn new(folders: &[PathBuf], times: Times) -> Self {
        let thread = thread::current();
        let name = format!("{} ({})", thread.name().unwrap_or_default(), Location::caller());
        let (begin, is_over) = (Instant::now(), AtomicBool::new(false));
        let folders = folders.to_vec();
        for folder in &folders {
            stage::keep(folder);
        }
        let watched = Arc::new(Watched { name, folders, begin, times, is_over });
        WATCHED.lock().unwrap().push(watched.clone());
        Self(watched)
    }

    /// Waits until no process of the test is left. One that stays is ended, and the test has
    /// failed; of a test that has failed already all are ended at once.
    pub fn finish(&self) {
        let begin = Instant::now();
        let left = loop {
            let left = self.0.processes();
            let is_idle = left.iter().all(windows::never_began);
            let patience = if is_idle { NEVER_BEGAN } else { self.0.times.patience };
            if left.is_empty() || thread::panicking() || begin.elapsed() > patience {
                break left;
            }
            thread::sleep(Duration::from_millis(5));
        };
        if !left.is_empty() {
            processes::end(&self.0.folders);
        }
        let left: Vec<Process> =
            left.into_iter().filter(|process| !windows::never_began(process)).collect();
        if !thread::panicking() {
            let limit = self.0.times.limit;
            assert!(!self.0.is_over.load(Relaxed), "it took longer than {limit:?}");
            assert!(left.is_empty(), "processes are left behind:\n{}", listed(&left));
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut watched = WATCHED.lock().unwrap();
        watched.retain(|other| !Arc::ptr_eq(other, &self.0));
    }
}

fn listed(processes: &[Process]) -> String {
    processes.iter().map(|process| format!("    {process}\n")).collect()
}

/// Takes its processes from each test that is over its time: whoever waits for one of them waits no
/// longer, so the test fails, and the others go on. If it hangs all the same, the run ends.
fn look_after() {
    loop {
        thread::sleep(TURN);
        let all = WATCHED.lock().unwrap().clone();
        for test in all {
            let late = test.begin.elapsed().checked_sub(test.times.limit);
            if late.is_some() && !test.is_over.swap(true, Relaxed) {
                let processes = listed(&test.processes());
                say(&format!(
                    "{} takes longer than {:?}:\n{processes}",
                    test.name, test.times.limit
                ));
                processes::end(&test.folders);
            }
            if late.is_some_and(|late| late > test.times.farewell) {
                say(&format!("{} hangs, and the run is given up\n", test.name));
                process::exit(101);
            }
        }
    }
}

/// Says something that is shown whatever becomes of a test's own output.
fn say(text: &str) {
    let _ = std::io::stderr().write_all(format!("\nWATCH: {text}").as_bytes());
}
