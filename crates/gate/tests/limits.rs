//! Limits: the work is linear in the text, deep and long texts are answered, and nothing overflows.

use std::time::{Duration, Instant};

mod common;

use common::check;
use legwork_gate::{Circumstances, Decision, Policy, Script, read};

/// Texts of about the given length that are hard in one way or another.
fn hard_texts(length: usize) -> Vec<(&'static str, String)> {
    let fill = |piece: &str| piece.repeat(length / piece.len());
    vec![
        ("commands", fill("a;")),
        ("assignments", fill("a=b ")),
        ("words", fill("a ")),
        ("dollars", fill("$")),
        ("variables", fill("$a ")),
        ("continuations", fill("\\\n")),
        ("dollar continuations", fill("$\\\n")),
        ("less-than continuations", fill("<\\\n")),
        ("backticks", fill("`a`")),
        ("escaped backticks", fill("`\\`a\\``")),
        ("substitutions", fill("$(a)")),
        ("nested", format!("{}{}", "$(".repeat(length / 4), ")".repeat(length / 4))),
        ("subshells", format!("{}a{}", "(".repeat(length / 4), ")".repeat(length / 4))),
        ("groups", fill("{ ")),
        ("parameters", fill("${a:-${b}}")),
        ("open parameters", fill("${a:-")),
        ("quotes", fill("\"'\"'")),
        ("documents", fill("a <<E\nE\n")),
        ("open documents", fill("a <<E ")),
        ("many documents", format!("a{}\n{}", " <<E".repeat(length / 8), "E\n".repeat(length / 8))),
        ("arithmetic", fill("$((a+1))")),
        ("open arithmetic", fill("$((")),
        ("functions", fill("f() { a; }\n")),
        ("background", fill("a & ")),
        ("pipes", fill("a|")),
        ("wrappers", fill("env ")),
        ("shells", fill("bash -c 'a' ;")),
        ("git", format!("git {}", "x ".repeat(length / 2 - 2))),
        ("options", format!("git {}", "-x ".repeat(length / 3 - 2))),
        ("find", format!("find {}", "-exec a ; ".repeat(length / 10 - 2))),
        ("tee", format!("tee {}", ".git ".repeat(length / 5 - 2))),
        ("one word", format!("tee {}", "a".repeat(length - 4))),
        ("dynamic", fill("$x;")),
        ("case", format!("case a in {} esac", "a) ;;".repeat(length / 5 - 4))),
        ("conditions", fill("[[ a ]];")),
        ("braces", fill("{a,b}")),
        ("eval", fill("eval 'a';")),
        ("trap", fill("trap a EXIT;")),
    ]
}

#[test]
fn the_work_is_linear_in_the_text() {
    for ((name, small), (_, large)) in hard_texts(4_000).into_iter().zip(hard_texts(16_000)) {
        let (few, many) = (read(&small).steps, read(&large).steps);
        assert!(many <= 4 * few + 2_000, "{name}: {few} steps became {many}");
        assert!(many <= 12 * large.len() + 100, "{name}: {many} steps for {} bytes", large.len());
    }
}

/// The shortest of several measurements: what the machine does besides is not ours.
fn shortest(policy: &Policy, text: &str) -> Duration {
    let once = |_| {
        let start = Instant::now();
        check(policy, "run_shell_command", Script::Shell(text), Circumstances::default());
        start.elapsed()
    };
    (0..5).map(once).min().unwrap_or_default()
}

#[test]
fn hard_texts_are_judged_soon() {
    // Promised are 5 ms for the optimised program on an idle machine; this only tells.
    let policy = Policy::default();
    let texts = hard_texts(16 * 1024);
    let mut times: Vec<_> =
        texts.iter().map(|(name, text)| (shortest(&policy, text), name)).collect();
    times.sort();
    println!("{:?}", times.iter().rev().take(8).collect::<Vec<_>>());
}

#[test]
fn what_is_too_long_or_too_deep_is_answered_and_not_understood() {
    let million = "a;".repeat(500_000);
    let reading = read(&million);
    assert!(!reading.understood);
    assert_eq!(reading.steps, 0);
    for depth in [65, 1_000, 8_000] {
        let deep = format!("{}a{}", "(".repeat(depth), ")".repeat(depth));
        assert!(!read(&deep).understood, "{depth}");
    }
    let deep = format!("{}a{}", "( ".repeat(60), " )".repeat(60));
    assert!(read(&deep).understood);
}

#[test]
fn too_many_commands_are_not_understood() {
    assert!(read(&"a;".repeat(2_000)).understood);
    assert!(!read(&"a;".repeat(2_100)).understood);
    assert!(!read(&"`a`".repeat(2_100)).understood);
    assert!(read(&"`a`".repeat(2_100)).substitution.is_some());
}

#[test]
fn wrappers_are_taken_off_to_a_depth_of_eight() {
    let nested = |depth: usize| format!("{}rm x", "env ".repeat(depth));
    let names = |text: &str| read(text).runs.len();
    assert!(read(&nested(8)).understood);
    assert_eq!(names(&nested(8)), 9);
    assert!(!read(&nested(9)).understood);
}

#[test]
fn control_characters_are_not_understood() {
    for text in ["a\0b", "a\rb", "a\x1bb", "a\x08b", "a\x7fb", "echo \\\r\nrm x"] {
        assert!(!read(text).understood, "{text:?}");
        let checked =
            check(&Policy::default(), "ExecCommand", Script::Shell(text), Circumstances::default());
        assert_eq!(checked.verdict, Decision::Ask, "{text:?}");
    }
}
