//! Which rules hold beyond the text.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use legwork_gate::{
    Decision, Layer, Mode, Origin, Policy, Script, Subject, Verdict, judge, program_rules,
    rules_at_exec,
};

struct Asked {
    tool: &'static str,
    text: &'static str,
}

impl Subject for Asked {
    fn tool(&self) -> &str {
        self.tool
    }

    fn script(&self) -> Script<'_> {
        Script::Shell(self.text)
    }
}

fn policy() -> Policy {
    let text = r#"
        coreTools = ["Bash(ls)"]
        excludeTools = ["run_shell_command(rm)"]
        [[rule]]
        id = "no-push"
        decision = "ask"
        program = "/usr/bin/git"
        args = [["push", "send-pack"]]
        [[rule]]
        id = "other-tool"
        decision = "deny"
        program = "make"
        tool = "run_shell_command"
    "#;
    let layer = Layer { origin: Origin::User, name: "policy", text };
    Policy::from_layers(&[layer], Mode::Guarded).unwrap()
}

#[test]
fn denies_and_asks_of_programs_are_held_and_nothing_else() {
    let mut rules = program_rules(&policy());
    rules.sort_by(|one, other| one.program.cmp(&other.program));
    let [push, make, rm] = &rules[..] else { panic!("{rules:?}") };
    assert_eq!((push.program.as_str(), push.decision), ("git", Decision::Ask));
    assert_eq!(push.args, [["push", "send-pack"]]);
    assert!(rm.denies_program() && !push.denies_program() && !make.denies_program());
    assert!(program_rules(&Policy::default()).is_empty());
}

#[test]
fn a_question_that_was_answered_holds_no_longer_and_a_deny_always_does() {
    let held = |text| -> Vec<String> {
        let asked = Asked { tool: "ExecCommand", text };
        rules_at_exec(&policy(), &asked).into_iter().map(|rule| rule.program).collect()
    };
    assert!(held("./release").iter().any(|program| program == "git"));
    assert!(!held("cd x && git push").iter().any(|program| program == "git"));
    assert!(held("rm x; git push").iter().any(|program| program == "rm"));
    // A rule for another tool.
    assert!(!held("make").iter().any(|program| program == "make"));
}

#[test]
fn a_rule_for_one_tool_says_nothing_of_another() {
    let denied = |tool, text| matches!(judge(&policy(), Asked { tool, text }), Verdict::Deny(_));
    assert!(denied("run_shell_command", "make all"));
    assert!(!denied("ExecCommand", "make all"));
    assert!(denied("ExecCommand", "rm x"), "the short form is for all of them");
}

#[test]
fn a_text_that_is_understood_can_be_approved_for_a_session() {
    let plain = |text| {
        let Verdict::Ask(question) = judge(&policy(), Asked { tool: "ExecCommand", text }) else {
            panic!("{text}");
        };
        question.is_understood()
    };
    assert!(plain("git push origin main"));
    assert!(plain("git push \"$(cat remote)\""));
    assert!(!plain("git push $[1]"));
}
