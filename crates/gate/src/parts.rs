//! The simple commands of a script, each with its place in the text and the verdict on it.

use serde::{Deserialize, Serialize};

use crate::{
    downloads,
    judge::{read_script, weigh},
    policy::Policy,
    reading::Span,
    rule::{Decision, Level},
    verdict::{Manners, Script, Subject, Trust},
};

/// Most parts that are judged.
const PARTS_MAX: usize = 20;

/// A simple command of a script.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The command, as it is written.
    pub text: String,
    /// The verdict on it: never stricter than the one on the whole script.
    pub verdict: Decision,
    /// Its place in the script, in bytes of UTF-8. One part can contain another.
    pub span: Span,
    /// The place of its program's name; absent where it has none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub program: Option<Span>,
}

/// The simple commands of a script by where they begin, of many the first; none of a program with
/// its arguments. What a string for another shell runs is a part of the command around it.
pub fn parts(policy: &Policy, subject: &dyn Subject) -> Vec<Part> {
    let script = subject.script();
    let Script::Shell(text) = script else { return Vec::new() };
    let (reading, whole) = weigh(policy, subject);
    let cause = whole.explanation.span;
    // The part that would run a download is asked about for what another part gives it.
    let unseen = downloads::run_by(&reading).map(|(run, _)| run.span);
    let mut commands = read_script(&script, subject.shell()).commands;
    commands.sort_by_key(|command| command.span.start);
    let judged = commands.into_iter().filter_map(|command| {
        let span = command.span;
        let part = text.get(span.start..span.end).filter(|part| !part.is_empty())?;
        let (_, own) = weigh(policy, &Alone { whole: subject, part });
        let is_around = |it: Span| span.start <= it.start && it.end <= span.end;
        let is_cause = cause.is_some_and(is_around);
        let least = if unseen.is_some_and(is_around) { Decision::Ask } else { Decision::Allow };
        let own = own.decision.max(least).min(whole.decision);
        Some(Part {
            text: part.to_owned(),
            verdict: if is_cause { whole.decision } else { own },
            span,
            program: command.words.first().map(|word| word.span),
        })
    });
    judged.take(PARTS_MAX).collect()
}

/// One part of a script, in the circumstances of the whole.
struct Alone<'s> {
    whole: &'s dyn Subject,
    part: &'s str,
}

impl Subject for Alone<'_> {
    fn tool(&self) -> &str {
        self.whole.tool()
    }

    fn script(&self) -> Script<'_> {
        Script::Shell(self.part)
    }

    fn manners(&self) -> Manners {
        self.whole.manners()
    }

    fn trust(&self) -> Trust {
        self.whole.trust()
    }

    fn workspace(&self) -> Option<&str> {
        self.whole.workspace()
    }

    fn level(&self) -> Level {
        self.whole.level()
    }

    fn sandboxed(&self) -> bool {
        self.whole.sandboxed()
    }

    fn shell(&self) -> Option<&str> {
        self.whole.shell()
    }

    fn resolve(&self, name: &str) -> Option<String> {
        self.whole.resolve(name)
    }

    fn can_be_planted(&self, name: &str) -> bool {
        self.whole.can_be_planted(name)
    }

    fn is_in_current_folder(&self, name: &str) -> bool {
        self.whole.is_in_current_folder(name)
    }

    fn is_on_windows(&self) -> bool {
        self.whole.is_on_windows()
    }

    fn has_variable(&self, name: &str) -> bool {
        self.whole.has_variable(name)
    }
}
