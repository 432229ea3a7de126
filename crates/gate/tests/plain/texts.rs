//! Texts for the comparison: mostly plain, with everything mixed in that has fooled somebody.

use crate::generator::Random;

/// The programs that exist.
pub const STUBS: [&str; 6] = ["p1", "p2", "p3", "p4f", "sub", "hit"];

/// Words; `hit` and `sub` stand where only a shell that reads more into them would run them.
const WORDS: [&str; 62] = [
    "a",
    "b",
    "-x",
    "--flag=1",
    "'a b'",
    "\"a b\"",
    "\"$seen\"",
    "$seen",
    "${seen}",
    "$v",
    "\"$v\"",
    "\"x$v\"",
    "*",
    "*.txt",
    "?",
    "[ab]*",
    "a\\ b",
    "\\$x",
    "'$(hit)'",
    "\"\\$(hit)\"",
    "$(sub)",
    "`sub`",
    "\"$(sub)\"",
    "${v:-x}",
    "${v:=hit}",
    "${v@P}",
    "${!v}",
    "$((1+2))",
    "$((v))",
    "$((v+1))",
    "$((w))",
    "{a,b}",
    "{}",
    "{1..3}",
    "~",
    "~/x",
    "a=~",
    "x=1",
    "$'a'",
    "$\"a\"",
    "$?",
    "$#",
    "$$",
    "$1",
    "$@",
    "\"$@\"",
    "$-",
    "a#b",
    "#c",
    "!",
    "a!b",
    "'v[$(hit)]'",
    "-v",
    "\"$\"",
    "$",
    "\\\n",
    "\"a\nb\"",
    "'a\nb'",
    "é",
    "'é'",
    "]",
    "}",
];

/// Whole commands that have their own traps.
const COMMANDS: [&str; 58] = [
    "echo a",
    "printf '%s' a",
    "printf -v v hit",
    "printf \"$v\" a",
    "true",
    "false",
    ":",
    "cd .",
    "pwd",
    "test -v 'v[$(hit)]'",
    "test a = a",
    "[ a = b ]",
    "[ \"$v\" -eq 1 ]",
    "[ $v ]",
    "[ \"$v\" \"$seen\" ]",
    "[[ -n $v ]]",
    "[[ $v == a* ]]",
    "[[ $v -eq 1 ]]",
    "[[ -v v ]]",
    "read -r v",
    "read v",
    "read -a v",
    "eval hit",
    "source /dev/null",
    ". /dev/null",
    "trap hit EXIT",
    "alias p1=hit",
    "set -e",
    "set -euo pipefail",
    "set -x",
    "set -a",
    "set -- hit",
    "export LANG=C",
    "export v=1",
    "export PATH",
    "unset v",
    "declare v=1",
    "local v",
    "readonly v=1",
    "let v=1",
    "mapfile -C hit v",
    "getopts a v",
    "command p1 a",
    "command -v p1",
    "command eval hit",
    "builtin echo",
    "exec p1",
    "exec 3>&1",
    "hash -p /bin/sh p1",
    "shopt -s extglob",
    "enable -n echo",
    "complete -C hit x",
    "wait",
    "wait -p v",
    "shift",
    "type p1",
    "f() { hit; }",
    "function p1 { hit; }",
];

/// Redirects.
const REDIRECTS: [&str; 22] = [
    "> f",
    ">> f",
    "< /dev/null",
    "2>&1",
    ">&2",
    "2>/dev/null",
    "&> f",
    "&>> f",
    ">&'$(hit)'",
    "<&$v",
    ">& f",
    "> $v",
    "> *.txt",
    "> ~/f",
    "3<> f",
    ">| f",
    "<<< \"$v\"",
    "<<< $(sub)",
    "{fd}> f",
    "2>&-",
    "<(sub)",
    "> 'f g'",
];

/// Assignments.
const ASSIGNMENTS: [&str; 24] = [
    "v=1",
    "v=2",
    "v=a",
    "v='v[$(hit)]'",
    "v+=1",
    "v=$seen",
    "w=hit",
    "PATH=.",
    "PATH+=:x",
    "IFS=x",
    "LANG=C",
    "LC_ALL=C",
    "TZ=UTC",
    "BASH_ENV=x",
    "PS4='$(hit)'",
    "seen=1",
    "v[0]=1",
    "v=(hit)",
    "BASH_CMDS[p1]=hit",
    "TERM=dumb",
    "SHELLOPTS=posix",
    "POSIXLY_CORRECT=1",
    "v=~",
    "_=x",
];

fn simple(random: &mut Random) -> String {
    let mut parts: Vec<String> = Vec::new();
    for _ in 0..random.below(3) / 2 {
        parts.push(random.pick(&ASSIGNMENTS).to_owned());
    }
    match random.below(8) {
        0 => parts.push(random.pick(&COMMANDS).to_owned()),
        1 if !parts.is_empty() => {}
        2 => parts.push(random.pick(&ASSIGNMENTS).to_owned()),
        _ => {
            parts.push(
                random.pick(&["p1", "p2", "p3", "p4f", "'p1'", "\\p2", "\"p3\"", "p$v"]).to_owned(),
            );
            for _ in 0..random.below(4) {
                parts.push(random.pick(&WORDS).to_owned());
            }
        }
    }
    if random.below(4) == 0 {
        let at = random.below(parts.len() + 1);
        parts.insert(at, random.pick(&REDIRECTS).to_owned());
    }
    parts.join(random.pick(&[" ", " ", "  ", "\t", " \\\n"]))
}

fn command(random: &mut Random, depth: usize) -> String {
    if depth == 0 {
        return simple(random);
    }
    let inner = |random: &mut Random| list(random, depth - 1);
    match random.below(14) {
        0 => format!("( {} )", inner(random)),
        1 => format!("{{ {}; }}", inner(random)),
        2 => format!("if {}; then {}; fi", inner(random), inner(random)),
        3 => format!(
            "if {}; then {}; elif {}; then {}; else {}; fi",
            inner(random),
            inner(random),
            inner(random),
            inner(random),
            inner(random)
        ),
        4 => format!(
            "for v in {} {}; do {}; done",
            random.pick(&WORDS),
            random.pick(&WORDS),
            inner(random)
        ),
        5 => format!("for v in 1 2; do p1 $((v+1)) \"$v\"; {}; done", inner(random)),
        6 => format!("while {}; do {}; break; done", inner(random), inner(random)),
        7 => format!(
            "case {} in a) {};; *|b) {} ;; esac",
            random.pick(&WORDS),
            inner(random),
            inner(random)
        ),
        8 => format!("cat_ <<'E'\n$(hit) `hit`\nE\n{}", inner(random)),
        9 => format!(
            "p1 <<E\nbody {}\nE\n{}",
            random.pick(&["a", "$(sub)", "\\", "$v"]),
            inner(random)
        ),
        10 => format!("! {}", simple(random)),
        11 => format!("time {}", simple(random)),
        12 => format!("{} # {}", simple(random), random.pick(&["'", "\"", "$(hit)", "`"])),
        _ => simple(random),
    }
}

fn list(random: &mut Random, depth: usize) -> String {
    let mut text = command(random, depth);
    for _ in 0..random.below(3) {
        let operator = random
            .pick(&["; ", "\n", " && ", " || ", " | ", " & ", "|", ";", "&&", " |& ", "\n\n"]);
        text = format!("{text}{operator}{}", command(random, depth));
    }
    text
}

/// A text.
pub fn text(random: &mut Random) -> String {
    let depth = random.below(3);
    list(random, depth)
}
