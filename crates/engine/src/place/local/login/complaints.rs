//! Recognises complaints of a login profile that the sandbox does not let write: they do not count
//! as output of the profile.

/// What programs say of a file that they may not write.
const WORDS: [&str; 7] = [
    "read-only file system",
    "permission denied",
    "operation not permitted",
    "isn't writable",
    "is not writable",
    "cannot write",
    "cannot create",
];

/// Longest complaints that are taken for such.
const BYTES_MAX: usize = 16 * 1024;

/// Whether a text is nothing but such complaints, line by line.
pub(super) fn are_of_sandbox(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text).to_lowercase();
    let complains = |line: &str| WORDS.iter().any(|word| line.contains(word));
    text.len() <= BYTES_MAX
        && text.ends_with('\n')
        && text.lines().filter(|line| !line.trim().is_empty()).all(complains)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_complaints_about_writing_are_of_the_sandbox() {
        for text in [
            "pyenv: cannot rehash: /root/.pyenv/shims isn't writable\n",
            "/bin/bash: line 3: /home/me/.cache/x: Read-only file system\ntouch: ...: Permission denied\n",
        ] {
            assert!(are_of_sandbox(text.as_bytes()), "{text}");
        }
        for text in
            ["conda: command not found\n", "a: Permission denied\nhello\n", "no: Permission denied"]
        {
            assert!(!are_of_sandbox(text.as_bytes()), "{text}");
        }
    }
}
