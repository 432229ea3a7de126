//! An apply that is killed at any moment: the next start finishes it or undoes it.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use super::{Tree, can_try, tree};
use crate::common::Scratch;

/// How many rounds the suite runs; `just apply-kills` runs 300.
const ROUNDS: u32 = 12;

fn rounds() -> u32 {
    let set = std::env::var("LEGWORK_APPLY_ROUNDS").ok();
    set.and_then(|text| text.parse().ok()).unwrap_or(ROUNDS)
}

/// A workspace with something of each kind, and a trial that changes it.
fn prepare(scratch: &Scratch, round: u32) {
    let _ = fs::remove_dir_all(scratch.workspace.path().join("w"));
    for number in 0..40 {
        scratch.write(&format!("w/changed/{number}"), "before\n");
        scratch.write(&format!("w/removed/{number}"), "before\n");
        scratch.write(&format!("w/mixed/{number}/kept"), "kept\n");
        scratch.write(&format!("w/mixed/{number}/gone"), "before\n");
    }
    let script = format!(
        "cd w; for i in $(seq 0 39); do echo {round} > changed/$i; rm mixed/$i/gone; \
         echo {round} > mixed/$i/made; ln mixed/$i/made mixed/$i/linked; done; rm -r removed; mkdir -p made/deep; \
         head -c 3000000 /dev/zero | tr '\\0' x > made/deep/large; for i in $(seq 0 39); do echo {round} > made/$i; done; \
         chmod 700 changed"
    );
    let tried = scratch.try_sh(&script);
    assert!(tried.status.success(), "{tried:?}");
}

/// A tree without times: what is compared is which of two states it is.
fn plain(scratch: &Scratch) -> Tree {
    let mut all = tree(scratch.workspace.path());
    for (_, time, _) in all.values_mut() {
        *time = 0;
    }
    all
}

#[test]
fn a_killed_apply_is_finished_or_undone_by_the_next_start() {
    if !can_try() {
        return;
    }
    let scratch =
        Scratch::with(crate::harness::watch::Times::at_most(std::time::Duration::from_secs(3600)));
    // How long one takes that nobody kills.
    prepare(&scratch, 0);
    let begun = Instant::now();
    assert_eq!(scratch.apply(&[]).0, Some(0));
    let whole = begun.elapsed().max(Duration::from_millis(20));
    let applied = plain(&scratch);
    let (mut finished, mut undone, mut in_time) = (0, 0, 0);
    for round in 1..=rounds() {
        prepare(&scratch, round);
        let before = plain(&scratch);
        let mut apply = scratch.legwork("apply");
        let mut child = apply.stdout(std::process::Stdio::null()).spawn().unwrap();
        // The moments are spread over all of it; the last rounds come too late.
        let part = f64::from(round * 37 % 100) / 95.0;
        thread::sleep(whole.mul_f64(part));
        in_time += u32::from(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
        let looked = scratch.legwork("ps").output().unwrap();
        assert!(looked.status.success(), "{looked:?}");
        let left = fs::read_dir(scratch.state.path().join("applying")).into_iter().flatten();
        let left: Vec<_> = left.map(|it| it.unwrap().file_name()).collect();
        assert!(left.is_empty(), "round {round}: the next start settles it: {left:?}");
        let after = plain(&scratch);
        if after == before {
            undone += 1;
            let (code, _, stderr) = scratch.apply(&[]);
            assert_eq!(code, Some(0), "round {round}: {stderr}");
        } else {
            finished += 1;
        }
        let done = plain(&scratch);
        // But for the number of the round it is what an apply makes that nobody kills.
        let mut same = done.clone();
        let round_text = format!("{round}\n").into_bytes();
        for (.., text) in same.values_mut().filter(|(.., text)| *text == round_text) {
            *text = b"0\n".to_vec();
        }
        assert!(same == applied, "round {round}: neither as before nor as after");
        let text = |name: &str| done.get(std::path::Path::new(name)).map(|(.., text)| text.clone());
        let expected = Some(format!("{round}\n").into_bytes());
        for number in 0..40 {
            assert_eq!(text(&format!("w/changed/{number}")), expected, "round {round}");
            assert_eq!(text(&format!("w/made/{number}")), expected, "round {round}");
            assert_eq!(text(&format!("w/mixed/{number}/linked")), expected, "round {round}");
            assert_eq!(text(&format!("w/mixed/{number}/gone")), None, "round {round}");
        }
        assert_eq!(text("w/removed"), None, "round {round}");
        assert_eq!(text("w/made/deep/large").map(|it| it.len()), Some(3_000_000), "round {round}");
        let strange = done.keys().find(|path| path.display().to_string().contains("legwork"));
        assert_eq!(strange, None, "round {round}: nothing is left beside");
        assert!(scratch.trials_left().is_empty(), "round {round}");
    }
    eprintln!("{in_time} kills came in time: {finished} finished, {undone} undone");
}
