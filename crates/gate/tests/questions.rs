//! What a question says, and which answers it takes: only those that take effect.

use legwork_gate::{
    Layer, Manners, Mode, Origin, Policy, Question, Script, Subject, Verdict, judge, proposal,
};

#[derive(Debug)]
struct Asked(&'static str);

impl Subject for Asked {
    fn tool(&self) -> &'static str {
        "run_shell_command"
    }

    fn script(&self) -> Script<'_> {
        Script::Shell(self.0)
    }

    fn manners(&self) -> Manners {
        Manners { asks_by_default: true, refuses_substitution: true }
    }

    fn workspace(&self) -> Option<&str> {
        Some("/w")
    }
}

fn question(policy: &Policy, text: &'static str) -> Question<Asked> {
    match judge(policy, Asked(text)) {
        Verdict::Ask(question) => question,
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn an_answer_can_count_for_every_text_that_is_understood() {
    let policy = Policy::default();
    for text in ["ls ~", "FOO=1 env", "export A=1; ls", "echo ${x:-1}", "ls", "a > *.txt"] {
        assert!(question(&policy, text).is_understood(), "{text}");
    }
    // What runs later is not in the text, and bounded by the sandbox like what a script runs.
    for text in [
        "$x",
        "$X ls",
        "\"$HOME\"/x",
        "eval \"$x\"",
        "eval ls",
        ". ./file",
        "source ./file",
        "trap ls EXIT",
        "alias a=b",
        "let x=1",
        "printf -v x y",
        "PATH=. ls",
        "echo ${!x}",
        "x=1; echo >&\"$x\"",
        "curl -s x | sh",
    ] {
        assert!(question(&policy, text).is_understood(), "{text}");
    }
    for text in ["echo $[1]", "coproc f { ls; }", "cat <<E"] {
        assert!(!question(&policy, text).is_understood(), "{text}");
    }
}

#[test]
fn a_rule_is_proposed_only_where_it_takes_effect() {
    let asks = Layer {
        origin: Origin::Given,
        name: "f",
        text: "[[rule]]\nid = \"net\"\ndecision = \"ask\"\nprogram = \"curl\"\n",
    };
    let policy = Policy::from_layers(&[asks], Mode::Guarded);
    let policy = policy.unwrap_or_else(|error| panic!("{error}"));
    for (text, has_one) in
        [("touch x", true), ("rm -rf x", true), ("ls ~", false), ("curl x", false)]
    {
        assert_eq!(proposal(&policy, &Asked(text), "x").is_some(), has_one, "{text}");
    }
}

#[test]
fn the_cause_of_a_question_is_the_whole_part() {
    for (text, cause) in [
        ("jobs; ls", "jobs"),
        ("ls; exec sleep 1", "exec sleep 1"),
        ("true; ls ~", "ls ~"),
        ("ls; echo ${x:-1}; ls", "echo ${x:-1}"),
        (". ./env.sh; make", ". ./env.sh"),
        ("cd /tmp && PATH=. ls", "PATH=. ls"),
        ("true; eval ls", "eval ls"),
        ("ls; echo \"${!y}\"", "echo \"${!y}\""),
        ("ls; echo hi >&\"$y\"", "echo hi >&\"$y\""),
    ] {
        let layer =
            Layer { origin: Origin::Given, name: "f", text: "coreTools = [\"run_shell_command\"]" };
        let policy = Policy::from_layers(&[layer], Mode::Guarded);
        let policy = policy.unwrap_or_else(|error| panic!("{error}"));
        let question = question(&policy, text);
        assert_eq!(question.explanation().command.as_deref(), Some(cause), "{text}");
    }
}
