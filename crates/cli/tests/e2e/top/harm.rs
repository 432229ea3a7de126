//! What commands print harms neither the terminal nor the view, however much it is.

use std::{
    fs,
    time::{Duration, Instant},
};

use serde_json::json;

use super::{SMALL, tmux::Tmux};
use crate::{
    common::{Scratch, eventually},
    harness::watch::Times,
};

/// Memory that `top` may have taken at most, in KiB: far less than what is printed in this test.
const MEMORY_KIB_MAX: u64 = 96 * 1024;

/// Prints a megabyte in one line, what terminals obey, what reorders or hides text, and HTML.
const HOSTILE: &str = r"head -c 1000000 /dev/zero | tr '\0' x; printf '\n'
printf '\033[2J\033[H\033]0;owned\007\033]2;owned\033\\\033[?1049l\033[?25h\033[41m\033(0\016'
printf '\033[5;5Hover here\033[8m\033[?7h\033[3;4r\033c\233\2332J\n'
printf 'left \342\200\256right\342\200\254 zero\342\200\213width\357\273\277 \363\240\201\201\n'
printf 'pile e\314\201\314\201\314\201\314\201\314\201\314\201\n'
printf '<script>alert(1)</script><b>bold</b>\n'
printf '\000\001\002\177\377\376 bytes\n'
printf 'the end\n'";

/// The view is where it was, and the terminal as `top` wants it.
#[track_caller]
fn assert_unharmed(tmux: &Tmux) {
    let screen = tmux.screen();
    let lines: Vec<&str> = screen.lines().collect();
    assert_eq!(lines.len(), 20, "{screen}");
    assert!(lines[0].starts_with("legwork top  "), "{screen}");
    assert!(lines[19].starts_with("/ filter"), "{screen}");
    for line in &lines[1..19] {
        assert_eq!(line.chars().nth(24), Some('│'), "{screen}");
        assert!(!line.contains(['\u{202e}', '\u{200b}', '\u{1b}', '\u{feff}']), "{screen:?}");
    }
    let modes = "#{alternate_on} #{cursor_flag} #{wrap_flag} #{pane_title}";
    let known = tmux.knows(modes);
    assert!(known.starts_with("1 0 0 ") && !known.contains("owned"), "{known}");
    // Its colours are its own: none of them is on the list, above or below.
    let coloured = tmux.coloured();
    let others = coloured.lines().map(|line| line.split('│').next().unwrap_or_default());
    for part in others.chain(coloured.lines().next()).chain(coloured.lines().last()) {
        assert!(!part.contains("48;5;") && !part.contains("[41m"), "{part:?}");
    }
}

#[test]
fn hostile_output_harms_neither_the_terminal_nor_the_view() {
    let scratch = Scratch::new();
    fs::write(scratch.file("hostile.sh"), HOSTILE).unwrap();
    let command = "sh hostile.sh; exec sleep 1000 # \u{1b}[31m\u{202e}";
    for more in [json!({}), json!({ "tty": true })] {
        let tty = more["tty"] == true;
        scratch.promote(&format!("{command} {tty}"), &more);
        let Some(tmux) = Tmux::top(&scratch, SMALL, &[]) else { return };
        tmux.shows("│ the end");
        assert_unharmed(&tmux);
        // Its text, too.
        tmux.press(if tty { &["v"] } else { &["v", "v"] });
        tmux.shows("the end of 1,000,");
        let screen = tmux.shows(r"zero\u{200b}width");
        assert!(screen.contains("│ left right") && screen.contains("<script>"), "{screen}");
        assert!(screen.contains("pile e\u{301}\u{301}\n"), "{screen}");
        assert_unharmed(&tmux);
        tmux.press(&["PageUp"]);
        tmux.shows("scrolled: End follows");
        assert_unharmed(&tmux);
        for _ in 0..40 {
            tmux.press(&["PageUp"]);
        }
        assert_unharmed(&tmux);
        tmux.press(&["End"]);
        tmux.shows("│ the end");
        assert_unharmed(&tmux);
    }
}

#[test]
fn a_thousand_tasks_and_a_hundred_megabytes_leave_it_responsive() {
    let scratch = Scratch::with(Times::at_most(Duration::from_secs(600)));
    let mut wire = crate::mcp::Wire::initialized(&scratch);
    for number in 0..1000 {
        let cmd = format!(": task number {number}");
        wire.tool("ExecCommand", &json!({ "cmd": cmd, "login": false }));
    }
    drop(wire.stdin.take());
    wire.child.wait().unwrap();
    let Some(tmux) = Tmux::top(&scratch, SMALL, &[]) else { return };
    tmux.shows("0 running, 1,000 tasks");
    let gate = scratch.file("gate");
    let flood = "yes 'a line of a flood that goes on and on' | head -c 100000000; echo; echo last";
    scratch.promote(&format!("{flood}; touch {gate}; exec sleep 1000"), &json!({}));
    tmux.shows("1 running, 1,001 tasks");
    tmux.press(&["g"]);
    tmux.shows("│ a line of a flood");
    // Keys are answered while it prints, and after.
    let mut took = Vec::new();
    while took.len() < 40 {
        let (key, shown) =
            if took.len() % 2 == 0 { ("?", "select a task") } else { ("z", "/ filter") };
        let began = Instant::now();
        tmux.press(&[key]);
        tmux.shows(shown);
        took.push(began.elapsed());
    }
    eventually("all is printed", || fs::exists(&gate).unwrap().then_some(()));
    tmux.shows("│ last");
    let began = Instant::now();
    tmux.press(&["G"]);
    tmux.shows(": task number 0");
    let last = began.elapsed();
    tmux.press(&["/"]);
    tmux.types("number 517");
    let began = Instant::now();
    tmux.until("one is left", |screen| {
        screen.lines().nth(2).is_some_and(|it| it.starts_with("   "))
    });
    took.sort();
    println!(
        "from a key to the screen, with what tmux takes: median {:?}, longest {:?}; to the last of \
         1,001 tasks {last:?}, a filter {:?}",
        took[20],
        took[39],
        began.elapsed()
    );
    let status = fs::read_to_string(format!("/proc/{}/status", tmux.pid())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    println!("memory at its peak: {peak} KiB");
    assert!(peak < MEMORY_KIB_MAX, "{peak} KiB");
}
