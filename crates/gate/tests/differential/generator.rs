//! Makes shell texts from a seed: well-formed ones, and soups of tokens.

mod tokens;

use tokens::{INNER, PARENTHESES, TOKENS};

/// A small generator of numbers: the same seed gives the same texts everywhere.
pub struct Random(pub u64);

impl Random {
    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below a limit.
    pub fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() >> 16).unwrap_or(0) % limit.max(1)
    }

    /// One of several.
    pub fn pick<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices.get(self.below(choices.len())).copied().unwrap_or_default()
    }
}

/// A soup of tokens.
pub fn soup(random: &mut Random) -> String {
    let length = 1 + random.below(14);
    let text: String = match random.below(5) {
        // Where bash counts parentheses.
        0 => {
            let (open, close) = match random.below(4) {
                0 => ("false && (( ", "))"),
                1 => ("false && : $(( ", "))"),
                _ => ("[[ b == a && ", " ]]"),
            };
            let inside: String = (0..length).map(|_| random.pick(&INNER)).collect();
            format!("{open}{inside}{close}{}", random.pick(&["", " || out1", "; out1"]))
        }
        // What bash reads, and writes anew, before it runs it.
        1 => {
            let (open, close) = match random.below(6) {
                0 => ("out1 $(", "\n)"),
                1 => ("out1 \"$(", ")\"\nout2"),
                2 => ("out1 <(", "\n) a"),
                3 => ("x=(", ")\nout1"),
                4 => ("out1 ${x:-\"$(", "\n)\"}"),
                _ => ("eval '", "'\n[[ a && out1 ]]"),
            };
            let inside: String = (0..length).map(|_| random.pick(&TOKENS)).collect();
            format!("{open}{inside}{close}")
        }
        _ => (0..length).map(|_| random.pick(&TOKENS)).collect(),
    };
    // The newline of a continuation ends a comment, and then a plain subshell follows.
    if text.contains('#') { text.replace("$\\\n(", "$(").replace("<\\\n(", "<(") } else { text }
}

/// A text with one mistake: a character is missing, a token too many, or its end.
pub fn broken(random: &mut Random, depth: usize) -> String {
    let mut text = list(random, 1 + depth, false);
    let places: Vec<usize> = text.char_indices().map(|(place, _)| place).collect();
    let place = places.get(random.below(places.len())).copied().unwrap_or_default();
    match random.below(3) {
        0 => text.truncate(place),
        1 => drop(text.remove(place)),
        _ => text.insert_str(place, random.pick(&TOKENS)),
    }
    // The mistake may have made a plain subshell of a substitution.
    let forms = [
        ("sub", "out"),
        ("s''ub", "o''ut"),
        ("su\"b", "ou\"t"),
        ("su\\\nb", "ou\\\nt"),
        ("su\\x62", "ou\\x74"),
    ];
    forms.iter().fold(text, |text, (inside, outside)| text.replace(inside, outside))
}

/// A well-formed text; `inside` says whether a substitution is around it.
pub fn list(random: &mut Random, depth: usize, inside: bool) -> String {
    let count = 1 + random.below(3);
    let mut text = String::new();
    for index in 0..count {
        if index > 0 {
            text.push_str(random.pick(&["; ", "\n", " && ", " || ", " | ", " & ", ";", "|&"]));
        }
        text.push_str(&command(random, depth, inside));
    }
    text
}

fn command(random: &mut Random, depth: usize, inside: bool) -> String {
    if depth == 0 {
        return simple(random, depth, inside);
    }
    let next = depth - 1;
    match random.below(25) {
        21..=23 => wrapper(random, next, inside),
        13 => format!(
            "[[ {} =~ {} ]]",
            word(random, next, inside),
            random.pick(&["^(a|b)$", "a.*", "$x", "[0-9]+"])
        ),
        14 => evaluated(random, inside),
        15 => format!("time {}", simple(random, next, inside)),
        16 => format!(
            "until {}; do {}; break; done",
            simple(random, next, inside),
            simple(random, next, inside)
        ),
        17 => format!(
            "a=({} [{}]={})",
            word(random, next, inside),
            random.below(3),
            word(random, next, inside)
        ),
        18 => format!("x='{}'; (( x ))", random.pick(&["a[$(sub1)]", "1+1", "a[`sub2`]", "y"])),
        19 => format!("function g{depth} {{ {}\n}}\ng{depth}", list(random, next, inside)),
        20 => format!("{{ {}\n}} {}", list(random, next, inside), redirect(random)),
        0 => format!("( {} ){}", list(random, next, inside), redirect(random)),
        1 => format!("{{ {}\n}}", list(random, next, inside)),
        2 => {
            let (test, body) = (list(random, next, inside), list(random, next, inside));
            let other = list(random, next, inside);
            format!("if {test}\nthen {body}\nelse {other}\nfi")
        }
        3 => format!(
            "for i in {} b; do {}\ndone",
            word(random, next, inside),
            list(random, next, inside)
        ),
        4 => {
            let (subject, pattern) = (word(random, next, inside), word(random, next, inside));
            let (body, other) = (list(random, next, inside), list(random, next, inside));
            format!("case {subject} in ({pattern}) {body};; *) {other}\n;; esac")
        }
        // A name of its own for each depth: a function that calls itself would never end.
        5 => format!("f{depth}() {{ {}\n}}; f{depth}", list(random, next, inside)),
        6 => format!("[[ {} == {} ]]", word(random, next, inside), word(random, next, inside)),
        7 => format!("(( {} ))", arithmetic(random, next)),
        8 => document(random, next, inside),
        9 => format!(
            "while {}; do {}; break; done",
            simple(random, next, inside),
            simple(random, next, inside)
        ),
        10 => format!("! {}", simple(random, next, inside)),
        11 => format!("for (( i=0; i<2; i++ )); do {}\ndone", list(random, next, inside)),
        12 => format!("if {}\nthen {}\nfi", list(random, next, inside), list(random, next, inside)),
        _ => simple(random, depth, inside),
    }
}

/// No digit or up to twelve.
fn digits(random: &mut Random) -> String {
    let ends = ["2147483647", "2147483648", "4294967296", "0000000001"];
    match random.below(3) {
        0 => random.pick(&ends).to_owned(),
        _ => (0..random.below(13)).map(|_| random.pick(&["0", "1", "2", "7", "9"])).collect(),
    }
}

/// The rest of a command that runs another one, with a redirect before that.
fn wrapped(random: &mut Random, inside: bool) -> String {
    let space = random.pick(&["", "", " "]);
    let operator = random.pick(&[">f", ">>f", "<f", "<>f", ">|f", ">&2", "<<<f", ">&-", "&>f"]);
    format!("{space}{operator} {}", marker(random, inside))
}

/// Text for `eval`, and what bash may read in another way after it.
fn evaluated(random: &mut Random, inside: bool) -> String {
    let text = simple(random, 0, inside).replace('\'', "");
    let end = random.pick(&["", "", "", "\\\n", "\n", ";", "&", " <<E\nE"]);
    let next = random.pick(&["", "", "\n[[ a && out1 ]]", "\n{ out2; }"]);
    format!("eval '{text}{end}'{next}")
}

/// A command that runs another one, where it is easily mistaken which one that is.
fn wrapper(random: &mut Random, depth: usize, inside: bool) -> String {
    match random.below(3) {
        0 => {
            let name = random.pick(&["", "f ", "$x ", "x=1 ", "'f' "]);
            format!("coproc {name}{}", command(random, depth, inside))
        }
        1 => format!("env -u {}{}", digits(random), wrapped(random, inside)),
        _ => {
            let glued = random.pick(&["$a", "", "''", "a"]);
            format!("a='=1 out9'; env {{x}}{glued}>f {}", marker(random, inside))
        }
    }
}

fn document(random: &mut Random, depth: usize, inside: bool) -> String {
    let kind = random.below(4);
    let body = match kind {
        0 => format!("a ' b {}", dollar(random, depth)),
        1 => format!("\t{} \" c", dollar(random, depth)),
        2 => "$(quoted) `quoted`".to_owned(),
        _ => format!("\\$(x) \\\\{}", dollar(random, depth)),
    };
    // A delimiter of its own for each depth: an inner one must not end an outer document.
    let end = format!("E{depth}");
    let delimiter = match (kind, random.below(3)) {
        (2, 0) => format!("'{end}'"),
        (2, 1) => format!("\"{end}\""),
        (2, _) => format!("\\{end}"),
        _ => end.clone(),
    };
    let (operator, tab) = if random.below(2) == 0 { ("<<-", "\t") } else { ("<<", "") };
    let (before, after) = (marker(random, inside), marker(random, inside));
    format!("{before} {operator}{delimiter}\n{body}\n{tab}{end}\n{after}")
}

fn marker(random: &mut Random, inside: bool) -> String {
    let kind = if inside { "sub" } else { "out" };
    let name = format!("{kind}{}{}", random.below(9), random.pick(&["", "", "", "f"]));
    match random.below(12) {
        0 => format!("\\{name}"),
        1 => format!("'{name}'"),
        2 => format!("{}\"{}\"", &name[..2], &name[2..]),
        3 => format!("{}''{}", &name[..1], &name[1..]),
        4 => format!("{}\\\n{}", &name[..2], &name[2..]),
        5 => {
            format!(
                "$'{}\\x{:02x}'{}",
                &name[..2],
                name.as_bytes().get(2).unwrap_or(&98),
                &name[3..]
            )
        }
        _ => name,
    }
}

fn simple(random: &mut Random, depth: usize, inside: bool) -> String {
    let mut text = String::new();
    if random.below(5) == 0 {
        text.push_str(&format!("v={} ", word(random, depth.saturating_sub(1), inside)));
        if random.below(4) == 0 {
            text.push_str(random.pick(&["x='$(sub1)'; ", "x=\\$\\(sub1\\); ", "x='`sub1`'\n"]));
        }
    }
    if random.below(12) == 0 {
        text.push_str(&format!("a[{}]=1 ", random.pick(&["0", "i", "$i", "i+1"])));
    }
    if random.below(12) == 0 {
        text.push_str(&format!(">f{} ", random.below(3)));
    }
    if random.below(12) == 0 {
        text.push_str(&redirect(random));
        text.push_str(random.pick(&["", " ", " "]));
    }
    text.push_str(&marker(random, inside));
    for _ in 0..random.below(3) {
        text.push(' ');
        text.push_str(&word(random, depth.saturating_sub(1), inside));
    }
    match random.below(18) {
        14..=16 => text.push_str(&redirect(random)),
        0 => text.push_str(" 2>&1"),
        1 => text.push_str(" >f"),
        2 => text.push_str(&format!(" <<< {}", word(random, depth.saturating_sub(1), inside))),
        3 => text.push_str(" # it's a comment $(x) `"),
        4 => text.push_str(" &>f"),
        _ => {}
    }
    if text.contains('#') {
        text.push('\n');
        text.push_str(&marker(random, inside));
    }
    text
}

/// A redirect of any kind, with a target that is quoted, glued, put together or expanded. What is
/// in `sub1` runs only where the target is expanded twice.
fn redirect(random: &mut Random) -> String {
    let descriptor = match random.below(12) {
        0 => format!(" {}", digits(random)),
        1 => format!(" a{}", digits(random)),
        2 => random.pick(&[" {fd}$x", " {fd}''", " {x}a", " {x}1", " 1$x", " ''1"]).to_owned(),
        _ => random.pick(&["", "", "", " 1", " 2", " 0", " {fd}", " {x}"]).to_owned(),
    };
    let operator = random.pick(&[
        ">&", ">&", ">&", "<&", ">&-", "<&-", "&>", "&>>", ">", ">>", ">|", "<", "<>", "<<<",
        ">& ", "<& ", "> ", ">\\\n&", ">&\\\n", ">&\t",
    ]);
    let mut target = String::new();
    for _ in 0..=random.below(3) {
        target.push_str(random.pick(&[
            "'$(sub1)'",
            "\"\\$(sub1)\"",
            "\\$\\(sub1\\)",
            "'`sub1`'",
            "$'\\x24(sub1)'",
            "'<(sub1)'",
            "${x:-'$(sub1)'}",
            "\"${x:-\\$(sub1)}\"",
            "'${x:-$(sub1)}'",
            "'$((a[$(sub1)]))'",
            "$x",
            "\"$x\"",
            "\"$v\"",
            "$((1))",
            "1",
            "2",
            "-",
            "1-",
            "-out1",
            "-'out2'",
            "'-'",
            "\\-",
            "f",
            "out3",
            "'out4'",
            "\\\n",
            "*",
            "~",
            "{a,b}",
            "'$'",
            "\"(sub1)\"",
            "#",
            "$",
            "''",
        ]));
    }
    let text = format!("{descriptor}{operator}{target}");
    match random.below(6) {
        0 => format!("{text}{}", random.pick(&["out5", ">&-", ";out6", "&", "|out7", ">f", "<&0"])),
        _ => text,
    }
}

fn word(random: &mut Random, depth: usize, inside: bool) -> String {
    (0..=random.below(3)).map(|_| piece(random, depth, inside)).collect()
}

fn piece(random: &mut Random, depth: usize, _inside: bool) -> String {
    match random.below(18) {
        0 => "'a b $(x) `y` \" <(z)'".to_owned(),
        1 => "\"it's \\$(x) \\` <(y)\"".to_owned(),
        2 => format!("\"a{}b\"", dollar(random, depth)),
        3 => dollar(random, depth),
        4 => "$'it\\'s $(x) `'".to_owned(),
        5 => "\\'".to_owned(),
        6 => "\\\"".to_owned(),
        7 => "{a,b}".to_owned(),
        8 => "a#a".to_owned(),
        9 => "a\\\nb".to_owned(),
        10 if depth > 0 => {
            random.pick(&["<(", ">("]).to_owned() + &list(random, depth - 1, true) + "\n)"
        }
        11 => random.pick(&["*", "?", "[a]", "~", "=", "a=b", "-x", "}", "{", "!"]).to_owned(),
        _ => random.pick(&["a", "b1", "-c", "x.y", "d/e"]).to_owned(),
    }
}

fn dollar(random: &mut Random, depth: usize) -> String {
    if depth == 0 {
        return random
            .pick(&["$x", "${x}", "$1", "${x:-a}", "$((1+2))", "${#x}", "$", "$?"])
            .to_owned();
    }
    let next = depth - 1;
    match random.below(18) {
        16 => random
            .pick(&[
                "${x:-$'\\x24(sub1)'}",
                "${x:-$'$(sub1)'}",
                "${x:=$'`sub1`'}",
                "${x#$'$(sub1)'}",
                "${x:-\"$'$(x)'\"}",
                "${x:-'\\$(sub1)'}",
            ])
            .to_owned(),
        17 => format!(
            "$({} ${{x:-$'{}'}})",
            marker(random, true),
            random.pick(&["\\x24(sub1)", "$(sub1)", "`sub1`", "a"])
        ),
        0 | 1 => format!("$({}\n)", list(random, next, true)),
        2 => format!("$\\\n({})", simple(random, next, true)),
        3 => format!("`{}`", backtick(random)),
        4 => format!("${{x:-{}}}", word(random, next, false).replace('}', "")),
        5 => format!("${{x#{}}}", word(random, next, false).replace('}', "")),
        6 => format!("${{x/{}/{}}}", dollar(random, next), dollar(random, next)),
        7 => format!("$(( {} ))", arithmetic(random, next)),
        8 => format!("${{x:-\"{}\"}}", dollar(random, next)),
        9 => format!("${{a[{}]}}", dollar(random, next)),
        10 => format!("${{x:-'{}'}}", dollar(random, next).replace('\'', "")),
        11 => format!("$( ({}) )", simple(random, next, true)),
        12 => format!("$(({}) )", simple(random, next, true)),
        _ => {
            random.pick(&["$x", "${x}", "$1", "${x:-a}", "$((1+2))", "${#x}", "$", "$?"]).to_owned()
        }
    }
}

fn backtick(random: &mut Random) -> String {
    let name = format!("sub{}", random.below(9));
    match random.below(5) {
        0 => format!("'{name}' a"),
        1 => format!("{name} \\$x"),
        2 => format!("{name} \\`subZ\\`"),
        3 => format!("\\{name}"),
        _ => format!("{name}; subY"),
    }
}

fn arithmetic(random: &mut Random, depth: usize) -> String {
    match random.below(7) {
        5 => format!("out1 a {} b", random.pick(&PARENTHESES)),
        6 => format!("a[{}] {}", random.pick(&PARENTHESES), random.pick(&PARENTHESES)),
        0 => format!("1 + {}", dollar(random, depth)),
        1 => "(2 * 3) << 1".to_owned(),
        2 => format!("a[{}]", dollar(random, depth)),
        3 => "i++ , i > 3 ? 1 : 0".to_owned(),
        _ => "x + 1".to_owned(),
    }
}
