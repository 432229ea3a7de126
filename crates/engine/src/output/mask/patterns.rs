//! What secrets look like that no variable of ours holds: the data file, each pattern compiled when
//! it is needed.

use std::{ops::Range, sync::OnceLock};

use regex::Regex;
use regex_automata::{
    Anchored, Input,
    hybrid::dfa::{Cache, DFA},
};

/// Most bytes that a match may have: what is held back of an output that grows is bounded by it.
pub(super) const PATTERN_BYTES_MAX: usize = 8 * 1024;

// SHIPPED: what data/secrets.toml says. A test holds that every pattern can be compiled.
include!(concat!(env!("OUT_DIR"), "/secrets.rs"));

/// The shipped patterns.
pub(super) fn shipped() -> &'static [Pattern] {
    &SHIPPED
}

/// One pattern; the file explains each field.
#[derive(Debug)]
pub(super) struct Pattern {
    pub name: &'static str,
    pub begins: &'static [&'static str],
    regex: &'static str,
    inside: bool,
    #[cfg_attr(not(test), expect(dead_code, reason = "an example for readers and the test"))]
    example: &'static str,
    #[cfg_attr(not(test), expect(dead_code, reason = "an example for readers and the test"))]
    counterexample: &'static str,
    compiled: OnceLock<Option<Compiled>>,
}

/// The same expression twice: a regex tells what is the secret, an automaton whether more text
/// could change that.
#[derive(Debug)]
struct Compiled {
    regex: Regex,
    automaton: DFA,
}

impl Pattern {
    fn compiled(&self) -> Option<&Compiled> {
        let compile = || {
            let regex = Regex::new(&format!("^(?:{})", self.regex)).ok()?;
            let automaton = DFA::new(self.regex).ok()?;
            Some(Compiled { regex, automaton })
        };
        self.compiled.get_or_init(compile).as_ref()
    }

    /// Whether it may begin at a place of a text.
    fn may_begin(&self, text: &str, start: usize) -> bool {
        let before = start.checked_sub(1).and_then(|place| text.as_bytes().get(place));
        self.inside || !before.is_some_and(u8::is_ascii_alphanumeric)
    }

    /// The secret in a text in which one of the beginnings is at `start`.
    pub(super) fn secret(&self, text: &str, start: usize) -> Option<Range<usize>> {
        if !self.may_begin(text, start) {
            return None;
        }
        let found = self.compiled()?.regex.captures(bounded(text, start)?)?;
        let secret = found.name("secret").or_else(|| found.get(0))?;
        Some(start + secret.start()..start + secret.end())
    }

    /// Whether it could match more than it does, or match at all, if the text went on.
    pub(super) fn is_open(&self, text: &str, start: usize) -> bool {
        if !self.may_begin(text, start) || text.len() - start > PATTERN_BYTES_MAX {
            return false;
        }
        let Some((compiled, rest)) = self.compiled().zip(text.get(start..)) else { return false };
        // An automaton that gives up is not asked again: what is open then is at least not shown.
        let automaton = &compiled.automaton;
        is_alive(automaton, &mut automaton.create_cache(), rest).unwrap_or(true)
    }
}

/// What may be looked at of a text from a place on.
fn bounded(text: &str, start: usize) -> Option<&str> {
    let mut end = text.len().min(start + PATTERN_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(start..end)
}

/// Whether an automaton has not failed when all of a text is read.
fn is_alive(automaton: &DFA, cache: &mut Cache, text: &str) -> Option<bool> {
    let input = Input::new(text).anchored(Anchored::Yes);
    let mut state = automaton.start_state_forward(cache, &input).ok()?;
    for byte in text.bytes() {
        state = automaton.next_state(cache, state, byte).ok()?;
        if state.is_dead() {
            return Some(false);
        }
    }
    // A match is told one byte late, by a state that may have no other future.
    let mut goes_on = |byte| Some(!automaton.next_state(cache, state, byte).ok()?.is_dead());
    if state.is_match() {
        Some((0..=127).any(|byte| goes_on(byte) != Some(false)))
    } else {
        Some(true)
    }
}

/// An example with its fillers filled in.
#[cfg(test)]
pub(super) fn filled(example: &str) -> String {
    let mut text = String::new();
    let mut rest = example;
    while let Some((before, more)) = rest.split_once('<') {
        let (filler, after) = more.split_once('>').unwrap();
        let (digits, alphabet) = match filler.strip_suffix('A') {
            Some(digits) => (digits, "A2B3C4D5E6F7"),
            None => (filler, "0a1b2c3d4e5f"),
        };
        let count = digits.parse().unwrap();
        text.push_str(before);
        text.extend(alphabet.chars().cycle().take(count));
        rest = after;
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::mask::Mask;

    #[test]
    fn every_pattern_matches_its_example_alone() {
        let mask = Mask::default();
        assert!(shipped().len() > 50);
        for pattern in shipped() {
            let name = &pattern.name;
            assert!(pattern.compiled().is_some(), "{name} cannot be compiled");
            let example = filled(pattern.example);
            let begin = |begin: &&str| example.find(*begin);
            let start = pattern.begins.iter().filter_map(begin).min();
            let found = pattern.secret(&example, start.unwrap()).unwrap();
            assert!(found.len() >= 8, "{name}: {found:?}");
            let masked = mask.text(&example);
            assert!(!masked.contains(&example[found]), "{name}: {masked}");
            let none = filled(pattern.counterexample);
            assert_eq!(mask.text(&none), none, "{name}");
        }
    }

    #[test]
    fn every_beginning_is_one() {
        for pattern in shipped() {
            for begin in pattern.begins {
                assert!(pattern.is_open(begin, 0), "{}: {begin}", pattern.name);
                assert!(!begin.is_empty());
            }
        }
    }

    #[test]
    fn what_can_go_on_is_open() {
        let token = shipped().iter().find(|pattern| pattern.name == "github_token").unwrap();
        let whole = filled("ghp_<36>");
        for end in 4..=whole.len() {
            assert!(token.is_open(&whole[..end], 0), "{end}");
        }
        assert!(!token.is_open(&format!("{whole} "), 0));
        assert!(!token.is_open("ghp_a-", 0));
        assert!(!token.is_open("xghp_a", 1), "behind a letter");
        let long = format!("ghp_{}", "a".repeat(PATTERN_BYTES_MAX));
        assert!(!token.is_open(&long, 0), "too long to be held back");
    }

    #[test]
    fn ordinary_text_is_left_alone() {
        let mask = Mask::default();
        for text in [
            "test result: ok. 12 passed; finished in 0.31s",
            "https://example.org:8080/path?token=1#frag",
            "git clone git@github.com:owner/name.git ssh://git@github.com/owner/name",
            "https://user@example.org and http://[::1]:3000/",
            "commit 27e8b0d3f1c2a4b5968778695a4b3c2d1e0f9a8b",
            "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
            "MAX_TOKENS=8000 TOKEN= PASSWORD=$PASS SECRET='' API_KEY=<yours>",
            "-----BEGIN CERTIFICATE-----\nMIIBszCCAVmgAwIBAgIUQ0NDQ0NDQ0NDQ0NDQ0NDQ0M=\n-----END CERTIFICATE-----",
            "authorization: see the page about authorization",
            "npm_lifecycle_event=build npm_package_name=x",
            "key-value pairs, sk-learn, hf_hub, pattern.rs",
        ] {
            assert_eq!(mask.text(text), text);
        }
    }
}
