//! What the text of a path says on Windows, before anything is opened: opening can be too late,
//! since a name can be that of a device, or of another machine, which is then told who asks.

/// Names that stand for devices in every folder, whatever their ends.
const DEVICES: [&str; 6] = ["con", "prn", "aux", "nul", "conin$", "conout$"];

/// Why a path names no folder, if its text says so.
pub(crate) fn path_problem(path: &str) -> Option<&'static str> {
    let path = path.replace('/', r"\");
    if path.starts_with(r"\\.\") {
        return Some("it names a device");
    }
    let verbatim = path.strip_prefix(r"\\?\");
    if verbatim.is_some_and(|rest| !has_drive(rest) && machine_of(&path).is_none()) {
        return Some("it names a device");
    }
    let bare = verbatim.unwrap_or(&path);
    let names = match bare.split_at_checked(2) {
        Some((drive, rest)) if drive.ends_with(':') => {
            if !rest.starts_with('\\') {
                return Some("a drive alone names no folder: write a backslash behind it");
            }
            rest
        }
        _ => bare,
    };
    let has_stream = names.contains(':');
    let device = names.split('\\').any(is_device);
    match () {
        () if device => Some("it names a device"),
        () if has_stream => Some("a colon in a name means a stream of a file, not a folder"),
        () => None,
    }
}

/// Whether a name, with any end, is that of a device.
pub(crate) fn is_device(name: &str) -> bool {
    let bare = name.split(['.', ':']).next().unwrap_or_default().trim_end().to_lowercase();
    let numbered = |kind| bare.strip_prefix(kind).is_some_and(is_port);
    DEVICES.contains(&bare.as_str()) || numbered("com") || numbered("lpt")
}

fn is_port(number: &str) -> bool {
    let mut digits = number.chars();
    let is_digit = |it: char| matches!(it, '0'..='9' | '¹' | '²' | '³');
    digits.next().is_some_and(is_digit) && digits.next().is_none()
}

fn has_drive(path: &str) -> bool {
    let mut begin = path.chars();
    begin.next().is_some_and(|it| it.is_ascii_alphabetic()) && begin.next() == Some(':')
}

/// The machine and the share that a path is on, in small letters, if it is not on a drive.
fn machine_of(path: &str) -> Option<(String, String)> {
    let path = path.replace('/', r"\").to_lowercase();
    let rest = path.strip_prefix(r"\\?\unc\").or_else(|| {
        path.strip_prefix(r"\\").filter(|rest| !rest.starts_with("?\\") && !rest.starts_with(".\\"))
    })?;
    let mut parts = rest.split('\\');
    Some((parts.next()?.to_owned(), parts.next().unwrap_or_default().to_owned()))
}

/// Whether a path is on a machine or a share that none of these is on.
pub(crate) fn is_elsewhere<'r>(path: &str, roots: impl IntoIterator<Item = &'r str>) -> bool {
    let Some(machine) = machine_of(path) else { return false };
    !roots.into_iter().any(|root| machine_of(root).as_ref() == Some(&machine))
}

/// Why a program cannot be started in a folder, if there is a reason: `cmd.exe`, which reads batch
/// files, would take the folder of Windows in the place of one of another machine.
pub(crate) fn unfit_folder(program: &str, folder: &str) -> Option<&'static str> {
    let name = program.rsplit(['\\', '/']).next().unwrap_or_default().to_lowercase();
    let end = name.rsplit('.').next();
    let is_read_by_cmd = name == "cmd.exe" || matches!(end, Some("bat" | "cmd"));
    (is_read_by_cmd && machine_of(folder).is_some()).then_some(
        "cmd cannot work in a folder of another machine: give that a drive with `net use`, or take \
         another `shell`",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_told_from_devices_drives_and_streams() {
        for path in [
            r"C:\work",
            "c:/work/x",
            r"\\?\C:\work",
            r"\\server\share\x",
            r"\\?\UNC\server\share",
            "relative/sub",
            r"\rooted",
            "..",
            "",
            "console",
            "com10",
            "nullable.d",
            "trailing. ",
        ] {
            assert_eq!(path_problem(path), None, "{path}");
        }
        let problem = |path| path_problem(path).unwrap_or("none");
        for path in [
            "NUL",
            "con",
            r"x\AUX\y",
            "nul.txt",
            "COM1",
            "lpt9.log",
            "com¹",
            r"\\.\pipe\x",
            r"\\.\C:\x",
            r"\\?\GLOBALROOT\Device\x",
            "conin$",
            r"C:\x\nul ",
            "nul:",
        ] {
            assert_eq!(problem(path), "it names a device", "{path}");
        }
        for path in ["C:", "c:work", r"\\?\C:work"] {
            assert!(problem(path).starts_with("a drive alone"), "{path}");
        }
        for path in ["file:stream", r"C:\x\file::$DATA", r"x:y\z", r"\\server\share\a:b"] {
            let wanted = if path.starts_with("x:") { "a drive alone" } else { "a colon" };
            assert!(problem(path).starts_with(wanted), "{path}");
        }
    }

    #[test]
    fn cmd_is_not_started_where_it_would_go_elsewhere() {
        let cmd = r"C:\Windows\system32\CMD.EXE";
        assert!(unfit_folder(cmd, r"\\server\share\x").is_some());
        assert!(unfit_folder(r"\\server\share\build.Bat", r"\\?\UNC\server\share").is_some());
        assert!(unfit_folder(cmd, r"C:\work").is_none());
        assert!(unfit_folder(r"C:\pwsh.exe", r"\\server\share").is_none());
    }

    #[test]
    fn other_machines_are_known_by_name() {
        let roots = [r"C:\work", r"\\Server\Share\project"];
        for path in [r"\\server\share\x", "//SERVER/share", r"\\?\UNC\server\SHARE\y"] {
            assert!(!is_elsewhere(path, roots), "{path}");
            assert!(is_elsewhere(path, [r"C:\work"]), "{path}");
        }
        for path in [r"\\server\other", r"\\evil\share", r"\\?\UNC\evil\share", r"\\evil"] {
            assert!(is_elsewhere(path, roots), "{path}");
        }
        for path in [r"C:\x", "x", r"\x", r"\\?\C:\x", r"\\.\C:\x"] {
            assert!(!is_elsewhere(path, roots), "{path}");
        }
    }
}
