//! The keys of the configuration, and which of them was probably meant.

/// The keys that are known in a section; the empty section is the top level.
pub(crate) fn known_keys(section: &str) -> &'static [&'static str] {
    match section {
        "" => &[
            "rule",
            "coreTools",
            "excludeTools",
            "roots",
            "approval",
            "limits",
            "sandbox",
            "output",
            "run_shell_command",
            "retention",
            "orphan_ttl_ms",
        ],
        "rule" => &[
            "id",
            "decision",
            "program",
            "args",
            "exact",
            "tool",
            "deny_flags",
            "redirect",
            "sandbox",
            "because",
            "match",
            "no_match",
        ],
        "approval" => &["wait_ms", "expires_ms"],
        "limits" => &[
            "wall_ms_max",
            "cpu_ms_max",
            "processes_max",
            "memory_bytes_max",
            "open_files_max",
            "file_bytes_max",
            "output_bytes_max",
            "disk_free_bytes_min",
            "tasks_max",
        ],
        "sandbox" => &["level", "network", "required", "writable", "unreadable"],
        "output" => &["default_tokens", "max_tokens", "complete_bytes_max"],
        "run_shell_command" => &["timeout_ms"],
        "retention" => &["days", "bytes_max"],
        _ => &[],
    }
}

/// The known name that is nearest to what was written, if it is near at all.
pub(crate) fn nearest<'k>(written: &str, known: &[&'k str]) -> Option<&'k str> {
    let distances = known.iter().map(|name| (distance(written, name), *name));
    let (distance, name) = distances.min_by_key(|(distance, _)| *distance)?;
    let most = (written.chars().count().max(name.chars().count()) / 2).max(1);
    (distance <= most).then_some(name)
}

/// How many characters have to be changed, added or removed; case counts little.
fn distance(left: &str, right: &str) -> usize {
    let fold = |text: &str| text.to_lowercase().replace('-', "_");
    let (left, right) = (fold(left), fold(right));
    let right: Vec<char> = right.chars().take(64).collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (index, letter) in left.chars().take(64).enumerate() {
        let mut next = vec![index + 1];
        for (column, other) in right.iter().enumerate() {
            let cost = usize::from(letter != *other);
            let replaced = row.get(column).copied().unwrap_or(0) + cost;
            let removed = row.get(column + 1).copied().unwrap_or(0) + 1;
            let added = next.last().copied().unwrap_or(0) + 1;
            next.push(replaced.min(removed).min(added));
        }
        row = next;
    }
    row.last().copied().unwrap_or(0)
}
