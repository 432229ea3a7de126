//! Paths as Windows compares them, as far as their texts say: without capitals, with either
//! separator, and without what the system takes away from names.

/// Marks before a path that the system does not take for a part of it.
const MARKS: [&str; 3] = ["//?/unc", "//?/", "//./"];

/// A path as it is compared: in small letters, with `/`, without dots and blanks at the ends of
/// names and without the names of streams.
pub(crate) fn folded(path: &str) -> String {
    let path = path.replace('\\', "/").to_lowercase();
    let path = MARKS.iter().find_map(|mark| path.strip_prefix(mark)).unwrap_or(&path);
    let parts = path.split('/').enumerate().map(|(place, part)| {
        let (drive, name) = match part.split_once(':') {
            Some((drive, name)) if place == 0 && drive.len() == 1 => (&part[..2], name),
            _ => ("", part),
        };
        let name = name.split(':').next().unwrap_or_default();
        let bare = name.trim_end_matches(['.', ' ']);
        format!("{drive}{}", if bare.is_empty() { name } else { bare })
    });
    parts.collect::<Vec<_>>().join("/")
}

/// Whether two paths are the same.
pub(crate) fn is_same_path(one: &str, other: &str) -> bool {
    folded(one).trim_end_matches('/') == folded(other).trim_end_matches('/')
}

/// Whether a path begins with a drive and a separator, or with the name of a machine.
pub(crate) fn is_absolute(path: &str) -> bool {
    let path = path.replace('\\', "/");
    let mut begin = path.chars();
    let is_drive = begin.next().is_some_and(|it| it.is_ascii_alphabetic())
        && begin.next() == Some(':')
        && begin.next() == Some('/');
    is_drive || path.starts_with("//")
}

/// A folded path with each short name (`git~1`) replaced by that of the known names which it can
/// stand for, if there is one.
pub(crate) fn long_names(path: &str, known: &[&str]) -> String {
    let heads = || known.iter().filter_map(|it| it.split('/').find(|part| !part.is_empty()));
    let long = |part: &str| {
        let begin =
            part.split_once('~').filter(|(_, end)| end.starts_with(|it: char| it.is_ascii_digit()));
        let meant = begin.and_then(|(begin, _)| {
            heads().find(|head| head.replace('.', "").to_lowercase().starts_with(begin))
        });
        meant.map_or_else(|| part.to_owned(), str::to_lowercase)
    };
    path.split('/').map(long).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_file_has_one_text() {
        for (path, expected) in [
            (r"C:\Users\Me\.GIT\Hooks", "c:/users/me/.git/hooks"),
            (r"\\?\C:\x", "c:/x"),
            (r"\\?\UNC\server\share\x", "/server/share/x"),
            (r"\\Server\Share\x", "//server/share/x"),
            (r".git.\hooks. \x", ".git/hooks/x"),
            (r"..\.\x", ".././x"),
            (r".git::$INDEX_ALLOCATION\hooks", ".git/hooks"),
            (r"c:x:stream", "c:x"),
            ("", ""),
        ] {
            assert_eq!(folded(path), expected, "{path}");
        }
        assert!(is_same_path(r"Z:\Work\", "z:/work"));
        assert!(!is_same_path(r"Z:\Work", r"Z:\Work\x"));
    }

    #[test]
    fn absolute_paths_have_a_drive_or_a_machine() {
        for path in [r"C:\", "z:/x", r"\\server\share", r"\\?\C:\x"] {
            assert!(is_absolute(path), "{path}");
        }
        for path in ["", "C:", "C:x", r"\x", "/x", "x", "ab:/x"] {
            assert!(!is_absolute(path), "{path}");
        }
    }

    #[test]
    fn short_names_stand_for_what_they_can_stand_for() {
        let known = [".git/hooks", "/.ssh/", ".bash_profile"];
        for (path, expected) in [
            ("git~1/hooks", ".git/hooks"),
            ("c:/users/runner~1/ssh~1/x", "c:/users/runner~1/.ssh/x"),
            ("bash_p~1", ".bash_profile"),
            ("git~x", "git~x"),
        ] {
            assert_eq!(long_names(path, &known), expected, "{path}");
        }
    }
}
