//! Clean everyday commands are understood.

use legwork_gate::read;

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
