//! Clean everyday commands are understood.

use legwork_gate::{Circumstances, Decision, Dialect, Mode, Policy, Script, check, plain, read};

#[test]
fn everyday_commands_are_understood() {
    let file = include_str!("data/everyday.txt");
    let texts: Vec<String> = file.lines().skip(1).map(|line| line.replace('⏎', "\n")).collect();
    let refused: Vec<String> = texts
        .iter()
        .filter_map(|text| Some((text, read(text).refusal?)))
        .map(|(text, refusal)| format!("{text:?}: {refusal:?}"))
        .collect();
    let understood = texts.len() - refused.len();
    println!("{understood} of {} understood\n{}", texts.len(), refused.join("\n"));
    assert!(texts.len() >= 300);
    assert!(understood * 100 >= texts.len() * 95, "{}", refused.join("\n"));
}

#[test]
fn everyday_commands_are_plain_or_run_without_a_question() {
    let file = include_str!("data/everyday.txt");
    let texts: Vec<String> = file.lines().skip(1).map(|line| line.replace('⏎', "\n")).collect();
    let policy = Policy::from_layers(&[], Mode::Guarded).unwrap_or_default();
    let around = Circumstances { sandboxed: true, ..Circumstances::default() };
    let is_plain = |text: &String| plain(text, Dialect::Bash, &|_| false).is_ok();
    let passes = |text: &String| {
        check(&policy, "ExecCommand", Script::Shell(text), around).verdict == Decision::Allow
    };
    let plain = texts.iter().filter(|text| is_plain(text)).count();
    let passing = texts.iter().filter(|text| passes(text)).count();
    let either = texts.iter().filter(|text| is_plain(text) || passes(text)).count();
    println!(
        "of {}: {plain} plain, {passing} run without a question, {either} either",
        texts.len()
    );
    assert!(either * 10 >= texts.len() * 9, "{either} of {}", texts.len());
}
