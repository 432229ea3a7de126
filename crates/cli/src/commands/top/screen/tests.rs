use std::{
    io::Read,
    os::fd::AsFd,
    process::{Command, Stdio},
};

use rustix::{
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{LocalModes, Winsize, tcsetwinsize},
};

use super::*;

/// Says to an ignored test that it is meant.
const MEANT: &str = "LEGWORK_PART_OF_A_TEST";

#[test]
#[ignore = "a part of the test below"]
fn panics() {
    if std::env::var_os(MEANT).is_some() {
        give_back_on_panic();
        let mut screen = TopScreen::enter().unwrap();
        screen.draw(|_| {}).unwrap();
        // One that is caught in another thread is no reason to give anything back.
        assert!(thread::spawn(|| panic!("caught")).join().is_err());
        panic!("uncaught");
    }
}

#[test]
fn a_panic_is_reported_on_a_terminal_as_it_was() {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&ours, size).unwrap();
    let path = ptsname(&ours, Vec::new()).unwrap().into_string().unwrap();
    let theirs = File::options().read(true).write(true).open(path).unwrap();
    let before = tcgetattr(&theirs).unwrap();
    let stream = || Stdio::from(theirs.try_clone().unwrap());
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", "--test-threads", "1"])
        .arg("commands::top::screen::tests::panics")
        .env(MEANT, "yes")
        .stdin(stream())
        .stdout(stream())
        .stderr(stream())
        .spawn()
        .unwrap();
    let reader = thread::spawn(move || {
        let (mut seen, mut buffer) = (Vec::new(), [0; 4096]);
        let mut ours = File::from(ours);
        // The last one who has the terminal open closes it.
        while let Ok(read @ 1..) = ours.read(&mut buffer) {
            seen.extend_from_slice(&buffer[..read]);
        }
        seen
    });
    assert!(!child.wait().unwrap().success());
    let after = tcgetattr(theirs.as_fd()).unwrap();
    assert!(after.local_modes.contains(LocalModes::ICANON | LocalModes::ECHO));
    assert_eq!(after.local_modes, before.local_modes);
    drop(theirs);
    let seen = String::from_utf8_lossy(&reader.join().unwrap()).into_owned();
    let place = |text: &str| seen.find(text).unwrap_or_else(|| panic!("no {text:?}: {seen:?}"));
    let (entered, left) = (place("\u{1b}[?1049h"), place("\u{1b}[?1049l"));
    assert!(entered < left && left < place("uncaught"), "{seen:?}");
    assert!(!seen[..left].contains("caught"), "it was written across the screen: {seen:?}");
    assert!(place("\u{1b}[?1000l") < left && place("\u{1b}[?25h") < left, "{seen:?}");
}
