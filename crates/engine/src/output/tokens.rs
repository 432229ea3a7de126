//! Estimates how many tokens a model needs for a text.
//!
//! Bytes divided by four is far too low on logs and base64. This counts runs instead: a word is
//! about one token for each four letters, digits and punctuation go by threes, a blank run is one,
//! and a long unbroken run (base64, hashes) is 1.4 bytes a token. An exact tokenizer would be of
//! one model only.

/// Costs are counted in thousandths of a token, so that a part of a run has a cost too.
pub(super) const TOKEN: u64 = 1000;

/// Letters and digits without a break: from this length on it is no word.
const UNBROKEN_CHARS: usize = 32;

/// A word up to this length is one token.
const WORD_CHARS: usize = 6;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Letter,
    Digit,
    Blank,
    Newline,
    Punctuation,
    Wide,
}

fn class(character: char) -> Class {
    match character {
        '\n' => Class::Newline,
        ' ' | '\t' => Class::Blank,
        '0'..='9' => Class::Digit,
        'a'..='z' | 'A'..='Z' => Class::Letter,
        _ if character.is_ascii() => Class::Punctuation,
        _ => Class::Wide,
    }
}

/// Whether a class goes into an unbroken run.
fn unbroken(class: Class) -> bool {
    matches!(class, Class::Letter | Class::Digit)
}

/// Estimates the tokens of a text.
pub fn estimate(text: &str) -> u64 {
    let mut total = 0;
    costs(text.chars(), |_, cost| total = cost);
    total.div_ceil(TOKEN)
}

/// Walks over a text and reports, after each character, the cost of everything up to it.
pub(super) fn costs(characters: impl Iterator<Item = char>, mut report: impl FnMut(usize, u64)) {
    let characters: Vec<char> = characters.collect();
    let mut total = 0;
    let mut place = 0;
    while let Some(rest) = characters.get(place..).filter(|rest| !rest.is_empty()) {
        let (length, cost) = run(rest);
        for step in 1..=length {
            report(place + step - 1, total + cost * step as u64 / length as u64);
        }
        total += cost;
        place += length;
    }
}

/// Length and cost of the run that a text begins with.
fn run(text: &[char]) -> (usize, u64) {
    let Some(first) = text.first().map(|character| class(*character)) else {
        return (1, 0);
    };
    if unbroken(first) {
        let length = text.iter().take_while(|character| unbroken(class(**character))).count();
        if length >= UNBROKEN_CHARS {
            return (length, (length as u64 * TOKEN * 10).div_ceil(14));
        }
    }
    let length = text.iter().take_while(|character| class(**character) == first).count();
    let by = |size: usize| length.div_ceil(size) as u64 * TOKEN;
    let cost = match first {
        Class::Letter if length <= WORD_CHARS => TOKEN,
        Class::Letter => by(4),
        Class::Digit | Class::Punctuation => by(3),
        // A single blank belongs to the word after it.
        Class::Blank if length == 1 => 0,
        Class::Blank | Class::Newline => TOKEN,
        Class::Wide => text.iter().take(length).map(|wide| wide_cost(*wide)).sum(),
    };
    (length, cost)
}

/// A character beyond ASCII: accented letters share tokens, others rarely do.
fn wide_cost(character: char) -> u64 {
    if character.len_utf8() == 2 { TOKEN / 2 } else { TOKEN }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_of_typical_texts() {
        assert_eq!(estimate(""), 0);
        assert_eq!(estimate("hello world"), 2);
        assert_eq!(estimate("error: could not compile `legwork`\n"), 11);
        assert_eq!(estimate(&"a".repeat(1400)), 1000);
        assert_eq!(estimate("漢字かな"), 4);
    }

    #[test]
    fn the_cost_never_falls_along_a_text() {
        let mut last = 0;
        costs("some text, 12345 and\n\n  more — ünïcode".chars(), |_, cost| {
            assert!(cost >= last);
            last = cost;
        });
    }
}
