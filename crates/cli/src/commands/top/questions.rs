//! The open questions: which one is shown, and which key answers it.

use legwork::{Approval, Reply};

use crate::{
    answering::{DENY, DENY_WITH_NOTE},
    asking::{ANSWER_KEYS, consequence},
};

/// An open question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct OpenedQuestion {
    pub approval: Approval,
    /// Whether its asker is still there.
    pub is_live: bool,
    /// The answers that can be given to it.
    pub replies: Vec<Reply>,
}

impl OpenedQuestion {
    /// The keys that answer it, each with its words; those that deny come first.
    pub(super) fn keys(&self) -> Vec<(char, &'static str)> {
        let offered = ANSWER_KEYS.iter().filter(|(reply, ..)| self.replies.contains(reply));
        let denies = [(DENY, "deny"), (DENY_WITH_NOTE, "deny, with a note")];
        denies.into_iter().chain(offered.map(|(_, letter, words)| (*letter, *words))).collect()
    }

    /// What is asked, with all that there is to read of it.
    pub(super) fn subject(&self) -> String {
        format!("{} {}", self.approval.approval_id, self.approval.question())
    }

    /// What an answer does to which command.
    pub(super) fn consequence(&self, reply: Reply) -> String {
        format!("{} {}", consequence(&self.approval, reply), self.approval.command)
    }
}

/// The open questions.
#[derive(Debug, Default)]
pub(super) struct QuestionPane {
    open: Vec<OpenedQuestion>,
    place: usize,
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
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::commands::top) fn question(id: &str, created_at_ms: i64) -> OpenedQuestion {
        let approval = serde_json::json!({
            "approval_id": id, "tool": "ExecCommand", "command": format!("rm -rf {id}"),
            "workdir": "/w", "workspace": "/w", "asked_by": "claude", "trust": "trusted_operator",
            "reason": "`rm -rf` removes recursively", "rule": "dangerous", "sandbox": "none",
            "may_leave_sandbox": false, "may_try": false, "may_repeat": true,
            "created_at_ms": created_at_ms, "expires_at_ms": created_at_ms + 600_000,
        });
        let approval = serde_json::from_value(approval).unwrap();
        let replies = vec![Reply::Deny, Reply::AllowOnce, Reply::AllowSession, Reply::AllowRule];
        OpenedQuestion { approval, is_live: true, replies }
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
            one.keys().iter().map(|(key, _)| *key).collect::<String>()
        };
        assert_eq!(keys(&Reply::ALL), "nNtayosr");
        assert_eq!(keys(&[Reply::Deny, Reply::AllowOnce]), "nNy");
    }
}
