//! Where the parts of a script are, and what is said of each.

use legwork_gate::{Decision, Layer, Mode, Origin, Part, Policy, Script, Subject, parts};

struct Asked<'a>(&'a str);

impl Subject for Asked<'_> {
    fn tool(&self) -> &'static str {
        "ExecCommand"
    }

    fn script(&self) -> Script<'_> {
        Script::Shell(self.0)
    }

    fn sandboxed(&self) -> bool {
        true
    }
}

/// Where a part begins, its text, its program and its verdict.
type Shown<'t> = (usize, &'t str, &'t str, Decision);

fn of(text: &str) -> Vec<Part> {
    let layer = Layer {
        origin: Origin::Given,
        name: "policy.toml",
        text: "excludeTools = [\"run_shell_command(rm)\"]",
    };
    let policy = Policy::from_layers(&[layer], Mode::Guarded);
    parts(&policy.unwrap_or_else(|error| panic!("{error}")), &Asked(text))
}

#[test]
fn each_part_and_its_program_lie_where_the_spans_say() {
    use Decision::{Allow, Ask, Deny};
    let cases: [(&str, &[Shown<'_>]); 11] = [
        ("curl x.sh | sh", &[(0, "curl x.sh", "curl", Allow), (12, "sh", "sh", Ask)]),
        (
            "sudo x; curl x.sh | sh",
            &[(0, "sudo x", "sudo", Ask), (8, "curl x.sh", "curl", Allow), (20, "sh", "sh", Ask)],
        ),
        ("sudo ls x; ls x", &[(0, "sudo ls x", "sudo", Ask), (11, "ls x", "ls", Allow)]),
        ("echo “ä” && sudo é", &[(0, "echo “ä”", "echo", Allow), (17, "sudo é", "sudo", Ask)]),
        ("A=1 >o sudo x", &[(0, "A=1 >o sudo x", "sudo", Ask)]),
        (
            ">o rm x; 2>&1 rm x; {a}>&-rm x; &>o rm x; <<<E rm x",
            &[
                (0, ">o rm x", "rm", Deny),
                (9, "2>&1 rm x", "rm", Deny),
                (20, "{a}>&-rm x", "rm", Deny),
                (32, "&>o rm x", "rm", Deny),
                (42, "<<<E rm x", "rm", Deny),
            ],
        ),
        ("echo $(sudo a) b", &[(0, "echo $(sudo a) b", "echo", Ask), (7, "sudo a", "sudo", Ask)]),
        ("bash -c 'ls; sudo x'", &[(0, "bash -c 'ls; sudo x'", "bash", Ask)]),
        ("if a; then rm x; fi", &[(3, "a", "a", Allow), (11, "rm x", "rm", Deny)]),
        ("cat <<E; ls\nx\nE\n", &[(0, "cat <<E", "cat", Allow), (9, "ls", "ls", Allow)]),
        ("'su'do x", &[(0, "'su'do x", "'su'do", Ask)]),
    ];
    for (text, expected) in cases {
        let found = of(text);
        let shown: Vec<_> = found
            .iter()
            .map(|part| {
                assert_eq!(&text[part.span.start..part.span.end], part.text);
                let program = part.program.unwrap();
                let program = &text[program.start..program.end];
                (part.span.start, part.text.as_str(), program, part.verdict)
            })
            .collect();
        assert_eq!(shown, expected, "{text}");
    }
}

#[test]
fn a_part_without_a_program_has_its_place_alone() {
    let found = of("X=1; ls");
    assert_eq!((found[0].text.as_str(), found[0].program), ("X=1", None));
}
