//! A real terminal: tmux, driven by keys and read as it shows.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Output},
    sync::atomic::{AtomicU32, Ordering},
};

use crate::common::{Scratch, eventually, has_program, program, text};

/// How many terminals there were.
static STARTED: AtomicU32 = AtomicU32::new(0);

/// A terminal of its own, with a shell script in it.
pub struct Tmux {
    socket: PathBuf,
    folder: PathBuf,
}

impl Tmux {
    /// `legwork top` on the state folder of a test; none where there is no tmux.
    pub fn top(scratch: &Scratch, size: (u16, u16), variables: &[(&str, &str)]) -> Option<Self> {
        if !has_program("tmux", &["-V"]) {
            return None;
        }
        let folder = scratch.state.path().to_owned();
        // A server that is just ending must not be taken for this one.
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let (socket, state) = (folder.join(format!("tmux-{number}")), folder.display());
        // What is left of the terminal is seen after it.
        let script = format!(
            "stty -g > {state}/before; {} top --state {state}; echo \"exit $?.\"; \
             stty -g > {state}/after; exec cat",
            program()
        );
        let tmux = Self { socket, folder };
        let mut command = tmux.command(&["new-session", "-d", "-x", &size.0.to_string(), "-y"]);
        command.arg(size.1.to_string()).arg(script).current_dir(scratch.workspace.path());
        command.env("XDG_CONFIG_HOME", scratch.state.path()).env_remove("NO_COLOR");
        command.env_remove("LEGWORK_STATE").env("SHELL", "/bin/sh").env("LC_ALL", "C.UTF-8");
        let output = command.envs(variables.iter().copied()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        Some(tmux)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("tmux");
        // UTF-8, whatever the locale of the run is.
        command.arg("-u").arg("-S").arg(&self.socket).args(["-f", "/dev/null"]).args(arguments);
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let output = self.command(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        output
    }

    /// What is on the screen.
    pub fn screen(&self) -> String {
        text(&self.run(&["capture-pane", "-p"]).stdout)
    }

    /// The same with the sequences for its colours.
    pub fn coloured(&self) -> String {
        text(&self.run(&["capture-pane", "-p", "-e"]).stdout)
    }

    /// Waits until the screen is so, and returns it.
    #[track_caller]
    pub fn until(&self, what: &str, is_so: impl Fn(&str) -> bool) -> String {
        let mut last = String::new();
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            eventually(what, || {
                last = self.screen();
                is_so(&last).then(|| last.clone())
            })
        }));
        found.unwrap_or_else(|_| panic!("never on the screen: {what}\n{last}"))
    }

    /// Waits until this is on the screen, and returns all of it.
    #[track_caller]
    pub fn shows(&self, text: &str) -> String {
        self.until(text, |screen| screen.contains(text))
    }

    /// Presses keys, by the names that tmux has for them.
    pub fn press(&self, keys: &[&str]) {
        self.run(&[&["send-keys"], keys].concat());
    }

    /// Gives an answer that takes a letter and then Enter.
    #[track_caller]
    pub fn confirms(&self, letter: &str, words: &str) {
        self.shows(&format!("[{letter}] {words}"));
        self.press(&[letter]);
        self.shows(&format!("{words}? Enter confirms"));
        self.press(&["Enter"]);
    }

    /// Settles what is selected in the view of trials.
    #[track_caller]
    pub fn settles(&self, letter: &str, hint: &str, asked: &str) {
        self.shows(hint);
        self.press(&[letter]);
        self.until(asked, |screen| screen.contains(asked) && screen.contains("Enter confirms"));
        self.press(&["Enter"]);
    }

    /// Types a text, or sends what a terminal sends for its mouse.
    pub fn types(&self, text: &str) {
        self.run(&["send-keys", "-l", text]);
    }

    pub fn resize(&self, columns: u16, rows: u16) {
        let (columns, rows) = (columns.to_string(), rows.to_string());
        self.run(&["resize-window", "-x", &columns, "-y", &rows]);
    }

    /// Gives the terminal its usual modes, and blanks it.
    pub fn sanely_reset(&self) {
        let terminal = fs::File::open(self.knows("#{pane_tty}")).unwrap();
        assert!(Command::new("stty").arg("sane").stdin(terminal).status().unwrap().success());
        self.run(&["send-keys", "-R"]);
    }

    /// What tmux knows of the terminal.
    pub fn knows(&self, format: &str) -> String {
        text(&self.run(&["display-message", "-p", format]).stdout).trim_end().to_owned()
    }

    /// The process of `legwork top`.
    pub fn pid(&self) -> u32 {
        let shell: u32 = self.knows("#{pane_pid}").parse().unwrap();
        eventually("top runs", || {
            let children = crate::common::children(shell);
            children.into_iter().find(|pid| {
                let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
                comm.trim() == "legwork"
            })
        })
    }

    /// The terminal is as it was before `top`.
    #[track_caller]
    pub fn assert_given_back(&self, code: i32) {
        self.shows(&format!("exit {code}."));
        let modes =
            "#{alternate_on} #{mouse_any_flag} #{mouse_sgr_flag} #{cursor_flag} #{wrap_flag}";
        assert_eq!(self.knows(modes), "0 0 0 1 1");
        let stty = |name: &str| fs::read_to_string(self.folder.join(name)).unwrap();
        let after = eventually("stty has told", || Some(stty("after")).filter(|it| !it.is_empty()));
        assert_eq!(after, stty("before"));
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let _ = self.command(&["kill-server"]).output();
    }
}
