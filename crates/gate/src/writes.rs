//! Lists the paths that a command is sure to write to, so that a person who is asked can be told
//! which of them a sandbox will refuse.
//!
//! Nothing is decided by this. What is not known from the text alone is left out.

use crate::{
    data,
    reading::{Reading, RedirectKind, Word},
    unwrap::{basename, unwrap_words},
    verdict::{Script, argv_words},
};

/// Programs after which relative paths are relative to another folder.
const MOVERS: [&str; 4] = ["cd", "pushd", "popd", "chroot"];

/// The paths that a script names to write to, as they are written, each once; relative ones are
/// relative to the folder that it starts in.
pub fn written_paths(script: Script<'_>) -> Vec<String> {
    let reading = match script {
        Script::Shell(text) => crate::read(text),
        Script::Argv(argv) => unwrap_words(argv_words(argv)),
    };
    let moves = reading.runs.iter().any(|run| run.name().is_none_or(|name| MOVERS.contains(&name)));
    let mut paths: Vec<String> = Vec::new();
    for word in words(&reading) {
        let Some(path) = word.literal() else { continue };
        // An option, and a home that only the shell knows.
        let unknown = path.is_empty() || path.starts_with(['-', '~']);
        if unknown || moves && !path.starts_with('/') || paths.iter().any(|known| known == path) {
            continue;
        }
        paths.push(path.to_owned());
    }
    paths
}

/// The words that are written to.
fn words(reading: &Reading) -> impl Iterator<Item = &Word> {
    let nested = reading.runs.iter().flat_map(|run| &run.redirects);
    let outer = reading.commands.iter().flat_map(|command| &command.redirects);
    let redirected = outer.chain(nested).filter(|redirect| {
        let kind = redirect.kind;
        matches!(kind, RedirectKind::Write | RedirectKind::Append | RedirectKind::ReadWrite)
    });
    let given = reading.runs.iter().flat_map(|run| {
        let name = run.name().map_or("", basename);
        data::written(name, run.words.get(1..).unwrap_or_default())
    });
    redirected.map(|redirect| &redirect.target).chain(given)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_to_be_written_is_found_and_nothing_else() {
        for (text, expected) in [
            ("touch /etc/foo", &["/etc/foo"][..]),
            ("echo x > /etc/foo; cat < /etc/bar", &["/etc/foo"]),
            ("echo x >> '/etc/a b' 2>&1", &["/etc/a b"]),
            ("cp /etc/passwd sub/copy", &["sub/copy"]),
            ("sudo tee -a /etc/hosts", &["/etc/hosts"]),
            ("cd /etc && touch foo /opt/x", &["/opt/x"]),
            ("touch $x ~/y \"$HOME/z\"", &[]),
            ("cat /etc/passwd", &[]),
            ("sed -i s/a/b/ f", &["s/a/b/", "f"]),
        ] {
            assert_eq!(written_paths(Script::Shell(text)), expected, "{text}");
        }
        let argv = ["touch".to_owned(), "/etc/$x".to_owned()];
        assert_eq!(written_paths(Script::Argv(&argv)), ["/etc/$x"]);
    }
}
