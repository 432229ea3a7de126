use proptest::{prelude::*, sample::select};
use serde_json::Value;

use super::*;

const CASES: &str = include_str!("../../tests/answering.json");

fn key(name: &str) -> AnswerKey {
    match name {
        "Enter" => AnswerKey::Enter,
        "Text" => AnswerKey::Text,
        "Click" => AnswerKey::Click,
        "Other" => AnswerKey::Other,
        letter => AnswerKey::Letter(letter.chars().next().unwrap()),
    }
}

fn words(pressed: Pressed) -> String {
    match pressed {
        Pressed::Passes => "passes".into(),
        Pressed::Denies => "denies".into(),
        Pressed::DeniesWithNote => "denies with note".into(),
        Pressed::Arms(letter) => format!("arms {letter}"),
        Pressed::Confirms(letter) => format!("confirms {letter}"),
        Pressed::Cancels => "cancels".into(),
        Pressed::Types => "types".into(),
    }
}

/// A face: a question that is denied or allowed gives way to the next one.
struct Face {
    answering: Answering,
    subject: String,
    letters: String,
    moves: String,
}

impl Face {
    fn new(cases: &Value) -> Self {
        let text = |name: &str| cases[name].as_str().unwrap().to_owned();
        let (letters, moves) = (text("letters"), text("moves"));
        Self { answering: Answering::default(), subject: String::new(), letters, moves }
    }

    fn show(&mut self, subject: &str, now_ms: u64) {
        self.subject = subject.into();
        self.answering.show(subject, now_ms);
    }

    fn press(&mut self, name: &str, now_ms: u64) -> Pressed {
        let letters = if self.subject.is_empty() { "" } else { &self.letters };
        let offered = Offered { subject: &self.subject, letters, moves: &self.moves };
        self.answering.press(key(name), &offered, now_ms)
    }
}

#[test]
fn keys_do_what_the_table_says_which_the_page_shares() {
    let cases: Value = serde_json::from_str(CASES).unwrap();
    for case in cases["cases"].as_array().unwrap() {
        let mut face = Face::new(&cases);
        for step in case["steps"].as_array().unwrap() {
            let (now_ms, what) = (step[0].as_u64().unwrap(), step[1].as_str().unwrap());
            let name = &case["name"];
            match (what.strip_prefix("show"), step[2].as_str()) {
                (Some(subject), None) => face.show(subject.trim_start(), now_ms),
                (_, expected) => {
                    let gave = words(face.press(what, now_ms));
                    assert_eq!(Some(&*gave), expected, "{name}: {what} at {now_ms}");
                }
            }
        }
    }
}

/// A word of at least two characters with the pauses before them, and what is behind it.
fn word() -> impl Strategy<Value = Vec<(String, u64)>> {
    let letters: Vec<char> = "tayosrnNjkdeilpuwxTAYOSR,.!?'-é7".chars().collect();
    let letter = (select(letters).prop_map(String::from), 30_u64..950);
    let behind = select(vec!["Enter", " ", ".", "Text", "Other"]).prop_map(str::to_owned);
    let before = select(vec!["", "", "Enter", "Other"]);
    let words = (proptest::collection::vec(letter, 2..9), before);
    (words, behind, 30_u64..950, 0_u64..2900).prop_map(
        |((mut word, before), behind, pause_ms, before_ms)| {
            // Behind another key a letter is not by itself.
            if let (false, Some(first)) = (before.is_empty(), word.first_mut()) {
                before.clone_into(&mut first.0);
            }
            if let Some(first) = word.first_mut() {
                first.1 += before_ms.min(2900 - first.1.min(2900));
            }
            word.push((behind, pause_ms));
            word
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn no_typing_allows(
        words in proptest::collection::vec(word(), 1..12),
        appears_ms in 0_u64..4000,
        replaced in proptest::collection::vec(0_u64..20_000, 0..4),
    ) {
        let cases: Value = serde_json::from_str(CASES).unwrap();
        let mut face = Face::new(&cases);
        let (mut now_ms, mut questions, mut is_open) = (0, 0, false);
        for (name, pause_ms) in words.concat() {
            let before_ms = now_ms;
            now_ms += pause_ms;
            let changes = replaced.iter().filter(|at| (before_ms..now_ms).contains(at)).count();
            if changes > 0 || (!is_open && now_ms >= appears_ms) {
                (questions, is_open) = (questions + 1, true);
                face.show(&format!("question {questions}"), before_ms.max(now_ms - pause_ms / 2));
            }
            let gave = face.press(&name, now_ms);
            prop_assert!(!matches!(gave, Pressed::Confirms(_)), "{name} at {now_ms}");
            if matches!(gave, Pressed::Denies | Pressed::DeniesWithNote) {
                questions += 1;
                face.show(&format!("question {questions}"), now_ms + 5);
            }
        }
    }
}
