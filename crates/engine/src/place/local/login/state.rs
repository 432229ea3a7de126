//! The state of a shell as a script can see it, as the scripts beside this file print it.

use legwork_warden::protocol::Environment;

use super::key::Shell;

/// The script that prints it.
pub(super) fn script(shell: Shell) -> &'static str {
    match shell {
        Shell::Bash => include_str!("bash.sh"),
        Shell::Dash => include_str!("dash.sh"),
    }
}

/// What the script prints to stderr, and nothing else may.
pub(super) const STDERR: &[u8] = b"stderr\n";

/// The state of a shell before the first command of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LoginState {
    /// What was printed before, and then `$?`, `$-`, `$!`, `$#`, `$0` and the arguments.
    first: Vec<Vec<u8>>,
    /// Variables, functions, options, and what the kernel knows of the process.
    lines: Vec<Vec<u8>>,
    /// What its first command gets, in that order.
    environment: Vec<(Vec<u8>, Vec<u8>)>,
}

impl LoginState {
    /// Reads what the script printed: the state, and what the shell threw by its dice. None if any
    /// of it is missing.
    pub(super) fn read(printed: &[u8]) -> Option<(Self, Vec<u8>)> {
        let (first, rest) = cut(printed, b"\0\0environment\0\0")?;
        let (environment, rest) = cut(rest, b"\0\0state\0\0")?;
        let (lines, rest) = cut(rest, b"\0\0random\0\0\0\0")?;
        let (random, rest) = cut(rest, b"\0\0\0\0end\0\0")?;
        let pairs = environment.split(|byte| *byte == 0).filter(|pair| !pair.is_empty());
        let state = Self {
            first: first.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect(),
            lines: lines
                .split(|byte| *byte == b'\n')
                .filter(|line| counts(line))
                .map(<[u8]>::to_vec)
                .collect(),
            environment: pairs.map(pair).collect::<Option<_>>()?,
        };
        rest.is_empty().then(|| (state, random.to_vec()))
    }

    /// The environment that brings a shell without a profile to this state, if anything does.
    pub(super) fn environment(&self, shell: Shell) -> Environment {
        let mut set = self.environment.clone();
        if shell == Shell::Bash {
            // It keeps its variables so that the one that came last is passed on first, counts
            // itself, and says itself what the last argument was.
            set.reverse();
            set.retain(|(name, _)| name != b"_");
            for (_, value) in set.iter_mut().filter(|(name, _)| name == b"SHLVL") {
                *value = one_less(value);
            }
        }
        Environment { inherited: false, set, unset: Vec::new() }
    }
}

/// Whether a line is part of what must be equal. The parent is another one each time, and
/// `BASH_ARGC` has an entry once any file was read: see the scripts that are screened for it.
fn counts(line: &[u8]) -> bool {
    let differs: [&[u8]; 4] = [
        b"declare -ir PPID=",
        b"PPID='",
        b"declare -a BASH_ARGC=()",
        b"declare -a BASH_ARGC=([0]=\"0\")",
    ];
    !differs.iter().any(|differs| line.starts_with(differs))
}

fn cut<'a>(bytes: &'a [u8], mark: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = bytes.windows(mark.len()).position(|window| window == mark)?;
    Some((bytes.get(..at)?, bytes.get(at + mark.len()..)?))
}

fn pair(pair: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let at = pair.iter().position(|byte| *byte == b'=')?;
    Some((pair.get(..at)?.to_vec(), pair.get(at + 1..)?.to_vec()))
}

fn one_less(count: &[u8]) -> Vec<u8> {
    let count = std::str::from_utf8(count).ok().and_then(|count| count.parse::<i64>().ok());
    count.map_or_else(Vec::new, |count| (count - 1).to_string().into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &[u8] = b"0\0hBc\0\x000\0bash\0\0\0environment\0\0A=1\0SHLVL=4\0_=/bin/sh\0\
        \0\0state\0\0declare -ir PPID=\"7\"\ndeclare -- A=\"1\"\n\0\0random\0\0\0\0one two\0\0\0\0end\0\0";

    #[test]
    fn the_environment_brings_bash_where_the_login_was() {
        let (state, random) = LoginState::read(PRINTED).unwrap();
        assert_eq!(random, b"one two");
        assert_eq!(state.lines, [b"declare -- A=\"1\"".to_vec(), Vec::new()]);
        let pair = |name: &str, value: &str| (name.into(), value.into());
        assert_eq!(state.environment(Shell::Bash).set, [pair("SHLVL", "3"), pair("A", "1")]);
        let all = [pair("A", "1"), pair("SHLVL", "4"), pair("_", "/bin/sh")];
        assert_eq!(state.environment(Shell::Dash).set, all);
    }

    #[test]
    fn what_is_cut_short_or_goes_on_is_no_state() {
        for length in 0..PRINTED.len() {
            assert_eq!(LoginState::read(&PRINTED[..length]), None, "{length}");
        }
        assert_eq!(LoginState::read(&[PRINTED, b"late"].concat()), None);
    }

    #[test]
    fn output_before_the_state_is_a_difference() {
        let quiet = LoginState::read(PRINTED).unwrap().0;
        let loud = LoginState::read(&[b"welcome\n", PRINTED].concat()).unwrap().0;
        assert_ne!(quiet, loud);
    }
}
