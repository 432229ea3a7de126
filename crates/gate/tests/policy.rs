//! Policies: layers, mistakes with their places, and what would be better.

mod common;

use common::check;
use legwork_gate::{
    Circumstances, Decision, Layer, Mode, Origin, Policy, Script, Subject, Values, Verdict, judge,
};

fn load(origin: Origin, text: &str) -> Result<Policy, String> {
    let layer = Layer { origin, name: "p.toml", text };
    Policy::from_layers(&[layer], Mode::Guarded).map_err(|error| error.to_string())
}

fn mistake(text: &str) -> String {
    load(Origin::User, text).err().unwrap_or_default()
}

#[test]
fn mistakes_are_told_with_place_and_remedy() {
    for (text, expected) in [
        ("coreTool = []", "p.toml:1:1: unknown key `coreTool`; did you mean `coreTools`?"),
        ("\n\n[limit]\n", "p.toml:3:2: unknown key `limit`; did you mean `limits`?"),
        ("[limits]\nwall_ms = 1", "p.toml:2:1: unknown key `wall_ms`; did you mean `wall_ms_max`?"),
        (
            "[[rule]]\ndecision = \"allow\"\nprogramm = \"x\"",
            "p.toml:3:1: unknown key `programm`; did you mean `program`?",
        ),
        (
            "[[rule]]\nprogram = \"x\"\ndecision = \"alow\"",
            "p.toml:3:12: `alow` is not known here; did you mean `\"allow\"`?",
        ),
        (
            "[[rule]]\nprogram = \"x\"",
            "p.toml:1:1: a rule has no `decision`; write `decision = \"allow\"`, `\"try\"`, `\"ask\"` or `\"deny\"`",
        ),
        (
            "coreTools = \"x\"",
            "p.toml:1:13: `coreTools` is not a list; write it as `[\"…\", \"…\"]`",
        ),
        ("coreTools = [1]", "p.toml:1:14: `coreTools` is not a string; write it in double quotes"),
        (
            "[[rule]]\nid = \"g\"\ndecision = \"allow\"\nprogram = \"git\"\nargs = [\"status\"]\nmatch = [\"git log\"]",
            "p.toml:6:10: the example `git log` is not matched by `g`; correct the example, or the rule's program, args or deny_flags",
        ),
        (
            "[[rule]]\nid = \"g\"\ndecision = \"deny\"\nprogram = \"git\"\nno_match = [\"ls\", \"/bin/git x\"]",
            "p.toml:5:19: the example `/bin/git x` is matched by `g`; correct the example, or the rule's program, args or deny_flags",
        ),
        (
            "approval = 1",
            "p.toml:1:12: `approval` is not a table; write `[approval]` on a line of its own",
        ),
        (
            "[[rule]]\ndecision=\"deny\"\nprogram=\"x\"\ntrust=\"trusted_operator\"",
            "p.toml:4:7: `trust` is only for rules that allow; leave it out: a deny or an ask counts everywhere, for everybody",
        ),
        (
            "[[rule]]\ndecision=\"allow\"\nprogram=\"x\"\ntrust=\"operator\"",
            "p.toml:4:7: `operator` is not known here; did you mean `\"trusted_operator\"`?",
        ),
        (
            "[[rule]]\ndecision=\"allow\"\nprogram=\"x\"\nworkspace=\"here\"",
            "p.toml:4:11: the workspace `here` is not an absolute path; write the whole path, as in `\"/home/me/project\"`",
        ),
        (
            "mode = \"strict\"",
            "p.toml:1:1: unknown key `mode`; write `ask = \"strict\"` above the first section",
        ),
        (
            "[sandbox]\nmode = \"open\"",
            "p.toml:2:1: unknown key `mode`; write `ask = \"never\"` above the first section, and `level = \"none\"` into `[sandbox]`",
        ),
        (
            "[network]\nmode = \"strict\"",
            "p.toml:2:8: `strict` is not known here; write `ask = \"strict\"` above the first section",
        ),
        (
            "[sandbox]\nmode = \"names\"",
            "p.toml:2:1: unknown key `mode`; it belongs into `[network]`",
        ),
        (
            "[[rule]]\ndecision=\"ask\"\nprogram=\"x\"\nredirect=\"no\"",
            "p.toml:4:10: `no` is not known here; did you mean `\"none\"`?",
        ),
    ] {
        assert_eq!(mistake(text), expected, "{text}");
    }
}

#[test]
fn text_that_is_no_toml_is_told_with_its_place() {
    assert!(mistake("x = ").starts_with("p.toml:1:"));
}

#[test]
fn tools_of_other_programs_are_ignored_with_a_note_and_the_rest_counts() {
    let text = "coreTools = [\"read_file\", \"run_shell_command(git)\", \"GlobTool\"]\n\
        excludeTools = [\"write_file\", \"mcp__db__query\", \"ShellTool(rm)\", \"run_shell_command(dd)\", \
        \"read_file(src)\", \"WebFetch(domain:example.com)\"]";
    let policy = load(Origin::User, text).unwrap();
    let told: Vec<String> = policy.ignored().iter().map(ToString::to_string).collect();
    assert_eq!(told.len(), 6, "{told:#?}");
    assert!(told[4].ends_with("`run_shell_command(read_file)`"), "{told:#?}");
    assert!(
        told.contains(
            &"p.toml:1:14: `read_file` is no tool of Legwork, so this entry of `coreTools` is ignored; \
              a program is written `run_shell_command(read_file)`"
                .to_owned()
        ),
        "{told:#?}"
    );
    let look = |text: &str| {
        let circumstances = Circumstances { sandboxed: true, ..Circumstances::default() };
        check(&policy, "run_shell_command", Script::Shell(text), circumstances).verdict
    };
    assert_eq!(
        [look("git status"), look("rm x"), look("dd")],
        [Decision::Allow, Decision::Deny, Decision::Deny]
    );
    // What was meant to be ours, or names a program, is a mistake: its deny would be lost.
    for near in [
        "run_shel_command",
        "Runshellcommand",
        "Bahs",
        "execcommand",
        "Shell(rm)",
        "rm -rf",
        "run_terminal_cmd(rm)",
        "read_file(src",
        "rm (x)",
    ] {
        let told = mistake(&format!("excludeTools = [\"{near}\"]"));
        assert!(told.starts_with(&format!("p.toml:1:17: `{near}` is not understood")), "{told}");
    }
    assert!(load(Origin::Project, "coreTools = [\"read_file\"]").is_err());
}

#[test]
fn keys_and_values_of_settings_are_told_with_what_was_probably_meant() {
    for (text, expected) in [
        // Letters that changed places, and keys of other sections.
        (
            "[output]\nmax_tokesn = 1",
            "p.toml:2:1: unknown key `max_tokesn`; did you mean `max_tokens`?",
        ),
        ("max_tokens = 1", "p.toml:1:1: unknown key `max_tokens`; it belongs into `[output]`"),
        (
            "[output]\nroots = []",
            "p.toml:2:1: unknown key `roots`; it belongs above the first section",
        ),
        (
            "[retention]\nzebra = 1",
            "p.toml:2:1: unknown key `zebra`; known here are: days, bytes_max",
        ),
        // Values of settings.
        (
            "[output]\nmax_tokens = \"many\"",
            "p.toml:2:14: `max_tokens` is not a whole number from 0 on; write a number of tokens",
        ),
        (
            "orphan_ttl_ms = -1",
            "p.toml:1:17: `orphan_ttl_ms` is not a whole number from 0 on; write a number of \
             milliseconds, or `\"5m\"`",
        ),
        (
            "[sandbox]\nrequired = 1",
            "p.toml:2:12: `required` is neither true nor false; write `true` or `false`",
        ),
        (
            "[sandbox]\nlevel = \"readonly\"",
            "p.toml:2:9: `readonly` is not known here; did you mean `\"read-only\"`?",
        ),
        ("roots = \"/a\"", "p.toml:1:9: `roots` is not a list; write it as `[\"…\", \"…\"]`"),
    ] {
        assert_eq!(mistake(text), expected, "{text}");
    }
}

#[test]
fn the_rest_of_the_configuration_is_left_to_others() {
    let text = "
roots = [\"/a\"]
orphan_ttl_ms = 5
[approval]
wait_ms = 1
expires_ms = 2
[limits]
tasks_max = 3
[sandbox]
level = \"read-only\"
[output]
max_tokens = 1
[run_shell_command]
timeout_ms = 1
[retention]
days = 1
";
    assert!(load(Origin::User, text).is_ok());
}

#[test]
fn a_projects_file_only_tightens() {
    let tight = "excludeTools = [\"Bash(rm)\"]\n[[rule]]\ndecision = \"ask\"\nprogram = \"curl\"";
    assert!(load(Origin::Project, tight).is_ok());
    for text in ["coreTools = [\"Bash(ls)\"]", "[[rule]]\ndecision = \"allow\"\nprogram = \"ls\""] {
        let error = load(Origin::Project, text).err().unwrap_or_default();
        assert!(error.contains("a project's file cannot allow anything"), "{error}");
    }
    let layers = [
        Layer { origin: Origin::User, name: "user.toml", text: "coreTools = [\"Bash\"]" },
        Layer { origin: Origin::Project, name: "project.toml", text: tight },
    ];
    let policy = Policy::from_layers(&layers, Mode::Guarded).unwrap();
    let verdict = |text: &str| {
        check(&policy, "run_shell_command", Script::Shell(text), Circumstances::default()).verdict
    };
    assert_eq!(verdict("ls"), Decision::Allow);
    assert_eq!(verdict("curl x"), Decision::Ask);
    assert_eq!(verdict("rm x"), Decision::Deny);
}

/// A plan whose program is a link to another one.
struct Linked;

impl Subject for Linked {
    fn tool(&self) -> &'static str {
        "ExecCommand"
    }

    fn script(&self) -> Script<'_> {
        Script::Shell("tidy x")
    }

    fn resolve(&self, name: &str) -> Option<String> {
        (name == "tidy").then(|| "/usr/bin/rm".to_owned())
    }
}

#[test]
fn a_deny_sees_the_file_that_would_really_run() {
    let policy = load(Origin::User, "excludeTools = [\"run_shell_command(rm)\"]").unwrap();
    let Verdict::Deny(denial) = judge(&policy, Linked) else { panic!("not denied") };
    assert_eq!(denial.explanation.rule, "run_shell_command(rm)");
    assert_eq!(denial.explanation.command.as_deref(), Some("tidy x"));
}

#[test]
fn an_allow_counts_for_the_tool_that_it_names() {
    let text = "coreTools = [\"ExecCommand(make)\", \"execute_command(ls)\", \"Bash(cat)\"]";
    let layer = Layer { origin: Origin::User, name: "p.toml", text };
    let policy = Policy::from_layers(&[layer], Mode::Strict).unwrap();
    for (tool, text, expected) in [
        ("ExecCommand", "make", Decision::Allow),
        ("execute_command", "make", Decision::Ask),
        ("run_shell_command", "make", Decision::Ask),
        ("run_shell_command", "cat x", Decision::Allow),
        ("run_shell_command", "ls", Decision::Ask),
    ] {
        let checked = check(&policy, tool, Script::Shell(text), Circumstances::default());
        assert_eq!(checked.verdict, expected, "{tool} {text}");
    }
}

#[test]
fn argv_is_taken_as_it_is_and_unwrapped() {
    let policy = load(Origin::User, "excludeTools = [\"run_shell_command(rm)\"]").unwrap();
    let verdict = |argv: &[&str]| {
        let argv: Vec<String> = argv.iter().map(|word| (*word).to_owned()).collect();
        check(&policy, "execute_command", Script::Argv(&argv), Circumstances::default())
    };
    assert_eq!(verdict(&["echo", "$(rm x)"]).verdict, Decision::Allow);
    assert_eq!(verdict(&["echo", "; rm x"]).verdict, Decision::Allow);
    assert_eq!(verdict(&["rm", "x"]).verdict, Decision::Deny);
    assert_eq!(verdict(&["bash", "-c", "ls; rm x"]).verdict, Decision::Deny);
    assert_eq!(verdict(&["env", "-S", "rm x"]).verdict, Decision::Deny);
    assert_eq!(verdict(&["timeout", "5", "rm"]).runs, ["timeout", "rm"]);
}

#[test]
fn plain_sh_does_not_get_what_only_bash_understands() {
    let policy = load(Origin::User, "excludeTools = [\"Bash(rm)\"]").unwrap();
    for text in ["[[ a && rm ]]", "((rm))", "echo $'\\'; rm x; #'"] {
        let circumstances = Circumstances { shell: Some("/bin/sh"), ..Circumstances::default() };
        let checked = check(&policy, "ExecCommand", Script::Shell(text), circumstances);
        assert!(checked.verdict > Decision::Allow, "{text}: {checked:?}");
    }
}

#[test]
fn an_explanation_says_what_to_change() {
    let policy = load(Origin::User, "excludeTools = [\"run_shell_command(rm)\"]").unwrap();
    let text = "ls && rm -f x";
    let checked = check(&policy, "ExecCommand", Script::Shell(text), Circumstances::default());
    assert_eq!(
        checked.explanation.render(text),
        "  ls && rm -f x\n        ^^^^^^^\nreason: `rm -f x` is denied by the rule `run_shell_command(rm)`\n\
         rule:   run_shell_command(rm)\nto change it: take that rule out, or make it narrower"
    );
}

#[test]
fn settings_are_read_in_every_way_that_numbers_can_be_written() {
    let text = "orphan_ttl_ms = 0x10\nroots = [\"/a\", \"/b\"]\n[retention]\ndays = 1_000\n\
                [sandbox]\nlevel = \"none\"\nnetwork = false\n";
    let values = Values::read(&Layer { origin: Origin::User, name: "p.toml", text }).unwrap();
    assert_eq!(values.number("", "orphan_ttl_ms"), Some(16));
    assert_eq!(values.number("retention", "days"), Some(1000));
    assert_eq!(values.number("retention", "bytes_max"), None);
    assert_eq!(values.text("sandbox", "level"), Some("none"));
    assert_eq!(values.flag("sandbox", "network"), Some(false));
    assert_eq!(values.texts("", "roots"), ["/a", "/b"]);
}
