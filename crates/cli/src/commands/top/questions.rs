//! The open questions: which one is shown, since when, and which key answers it.

use legwork::{Approval, Reply};

use crate::asking::{ANSWER_KEYS, consequence};

/// How long a question is shown before a key can answer it: what was typed before it could be read
/// does not.
pub(super) const READING_MS: u64 = 500;

/// An open question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OpenedQuestion {
    pub approval: Approval,
    /// Whether its asker is still there.
    pub is_live: bool,
    /// The answers that can be given to it.
    pub replies: Vec<Reply>,
}

/// A key that answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AnswerKey {
    pub key: char,
    pub words: &'static str,
    pub reply: Reply,
    /// Whether a note is asked for first.
    pub with_note: bool,
}

impl OpenedQuestion {
    /// The keys that answer it.
    pub(super) fn keys(&self) -> Vec<AnswerKey> {
        let offered = ANSWER_KEYS.iter().filter(|(reply, ..)| self.replies.contains(reply));
        let key = |(reply, key, words): &(Reply, &str, &'static str)| AnswerKey {
            key: key.chars().next().unwrap_or('y'),
            words,
            reply: *reply,
            with_note: false,
        };
        let no = |key, words, with_note| AnswerKey { key, words, reply: Reply::Deny, with_note };
        let refusals = [no('n', "no", false), no('N', "no, with a note", true)];
        offered.map(key).chain(refusals).collect()
    }

    /// What an answer does, in a sentence.
    pub(super) fn consequence(&self, reply: Reply) -> String {
        consequence(&self.approval, reply)
    }
}

/// The open questions.
#[derive(Debug, Default)]
pub(super) struct QuestionPane {
    open: Vec<OpenedQuestion>,
    place: usize,
    /// The question that is on the screen, and since when.
    shown: Option<(String, u64)>,
}

impl QuestionPane {
    /// Takes all open questions; the one that is looked at stays, if it is still open.
    pub(super) fn replace(&mut self, mut open: Vec<OpenedQuestion>) {
        open.sort_by_key(|one| (!one.is_live, one.approval.created_at_ms));
        let before = self.current().map(|one| one.approval.approval_id.clone());
        let place = open.iter().position(|one| Some(&one.approval.approval_id) == before.as_ref());
        self.place = place.unwrap_or(0);
        self.open = open;
    }

    /// Forgets a question that was answered, so that no second key answers it.
    pub(super) fn remove(&mut self, approval_id: &str) {
        let rest = std::mem::take(&mut self.open).into_iter();
        self.replace(rest.filter(|one| one.approval.approval_id != approval_id).collect());
    }

    pub(super) fn count(&self) -> usize {
        self.open.len()
    }

    /// Which one is looked at, counted from one.
    pub(super) fn number(&self) -> usize {
        self.place + 1
    }

    pub(super) fn all(&self) -> &[OpenedQuestion] {
        &self.open
    }

    /// The one that is looked at.
    pub(super) fn current(&self) -> Option<&OpenedQuestion> {
        self.open.get(self.place)
    }

    /// Looks at the next one.
    pub(super) fn next(&mut self) {
        self.place = (self.place + 1).checked_rem(self.open.len()).unwrap_or(0);
    }

    /// Notes that the question that is looked at is on the screen now.
    pub(super) fn seen(&mut self, now_ms: u64) {
        let current = self.current().map(|one| one.approval.approval_id.as_str());
        if current != self.shown.as_ref().map(|(id, _)| id.as_str()) {
            self.shown = current.map(|id| (id.to_owned(), now_ms));
        }
    }

    /// The question that keys answer now.
    pub(super) fn answerable(&self, now_ms: u64) -> Option<&OpenedQuestion> {
        let (id, since_ms) = self.shown.as_ref()?;
        let current = self.current().filter(|one| one.approval.approval_id == *id);
        current.filter(|_| now_ms >= since_ms + READING_MS)
    }

    /// When keys will answer the question on the screen, if they do not yet.
    pub(super) fn answerable_at(&self, now_ms: u64) -> Option<u64> {
        let at_ms = self.shown.as_ref()?.1 + READING_MS;
        (now_ms < at_ms).then_some(at_ms)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::commands::top) fn question(id: &str, created_at_ms: i64) -> OpenedQuestion {
        let approval = serde_json::json!({
            "approval_id": id, "tool": "ExecCommand", "command": format!("rm -rf {id}"),
            "workdir": "/w", "workspace": "/w", "asked_by": "claude", "trust": "trusted_operator",
            "reason": "`rm -rf` removes recursively", "rule": "dangerous", "sandbox": "none",
            "created_at_ms": created_at_ms, "expires_at_ms": created_at_ms + 600_000,
        });
        let approval = serde_json::from_value(approval).unwrap();
        let replies = vec![Reply::Deny, Reply::AllowOnce, Reply::AllowSession, Reply::AllowRule];
        OpenedQuestion { approval, is_live: true, replies }
    }

    #[test]
    fn a_key_answers_only_what_could_be_read() {
        let mut questions = QuestionPane::default();
        questions.replace(vec![question("one", 1)]);
        assert_eq!(questions.answerable(10_000), None, "it was never on the screen");
        questions.seen(1_000);
        questions.seen(1_400);
        assert_eq!(questions.answerable(1_499), None);
        assert_eq!(questions.answerable_at(1_499), Some(1_500));
        assert!(questions.answerable(1_500).is_some());
        // Another one in its place has to be read first.
        questions.replace(vec![question("two", 2)]);
        assert_eq!(questions.answerable(9_000), None);
        questions.seen(9_000);
        assert_eq!(questions.answerable(9_000), None);
        assert!(questions.answerable(9_500).is_some());
    }

    #[test]
    fn the_one_that_is_looked_at_stays_and_those_with_an_asker_come_first() {
        let mut questions = QuestionPane::default();
        let gone = OpenedQuestion { is_live: false, ..question("gone", 0) };
        questions.replace(vec![gone.clone(), question("two", 2), question("one", 1)]);
        let id = |it: &QuestionPane| it.current().map(|one| one.approval.approval_id.clone());
        assert_eq!(id(&questions).as_deref(), Some("one"));
        questions.next();
        assert_eq!(id(&questions).as_deref(), Some("two"));
        questions.replace(vec![question("two", 2), gone]);
        assert_eq!((id(&questions).as_deref(), questions.number()), (Some("two"), 1));
        questions.next();
        questions.next();
        assert_eq!(id(&questions).as_deref(), Some("two"));
        questions.replace(Vec::new());
        questions.next();
        assert_eq!(id(&questions), None);
    }

    #[test]
    fn keys_are_those_of_the_answers_that_can_be_given() {
        let keys = |replies: &[Reply]| {
            let one = OpenedQuestion { replies: replies.to_vec(), ..question("one", 1) };
            one.keys().iter().map(|it| it.key).collect::<String>()
        };
        assert_eq!(keys(&Reply::ALL), "tayosrnN");
        assert_eq!(keys(&[Reply::Deny, Reply::AllowOnce]), "ynN");
    }
}
