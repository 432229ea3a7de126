//! What allows a command: the rule that covers each of its runs, and the proof that its text is
//! plain, without which no rule does.

use super::{ALLOW_IT, Case};
use crate::{
    data, harmless,
    near::nearest_miss,
    plain::{
        Dialect, NotPlain, PlainCommand, builtins::is_builtin, plain,
        variables::is_harmless_variable,
    },
    policy::{Mode, Policy},
    reading::{Invocation, Reading, Span, Word},
    rule::{Decision, RedirectScope, Rule, Target},
    unwrap::basename,
    verdict::{Script, Trust},
    windows::{self, WindowsShell, windows_shell},
};

impl<'c> Case<'c> {
    /// Whether the text is one program with its arguments, all written out, whose file no command
    /// can have put there.
    pub(super) fn is_one_known_program(&self) -> bool {
        let ([command], [run]) = (self.reading.commands.as_slice(), self.reading.runs.as_slice())
        else {
            return false;
        };
        let literal = command.words.iter().all(|word| word.literal().is_some());
        let alone = command.redirects.is_empty()
            && command.assignments.is_empty()
            && !command.background
            && !run.unresolved;
        literal && alone && self.is_plain() && self.is_own_file(run)
    }

    /// Whether the file of a program is known, and is none that a command can have put there.
    fn is_own_file(&self, run: &Invocation) -> bool {
        let Some(name) = run.name() else { return true };
        is_builtin(name)
            || self.subject.resolve(name).is_some() && !self.subject.can_be_planted(name)
    }

    /// Whether something else than the program of a run's name may run under that name: a function
    /// of the text, or what `cmd.exe` finds in its current folder before it looks on `PATH`.
    pub(super) fn is_shadowed(&self, run: &Invocation) -> bool {
        let Some(name) = run.name() else { return false };
        self.functions.contains(name) || self.is_in_current_folder(run, name)
    }

    /// Whether `cmd.exe` may find a file of this name in its current folder. What is executed
    /// directly is not looked for there, nor is what another shell runs.
    fn is_in_current_folder(&self, run: &Invocation, name: &str) -> bool {
        let by_cmd = self.subject.shell().and_then(windows_shell) == Some(WindowsShell::Cmd);
        let nested = run.depth > 0 && self.is_on_windows();
        (by_cmd || nested) && self.subject.is_in_current_folder(name)
    }

    /// Whether an allow can cover the text.
    pub(super) fn is_plain(&self) -> bool {
        self.proof().is_ok()
    }

    /// The proof that an allow can cover the text, or why none can; looked for once.
    pub(super) fn proof(&self) -> &Result<(), NotPlain> {
        self.plain.get_or_init(|| self.plainness())
    }

    /// Why no allow can cover the text, if none can.
    fn plainness(&self) -> Result<(), NotPlain> {
        let reading = self.reading;
        let not = |what, offset| Err(NotPlain { what, offset });
        if let Some(why) = reading.inner_not_plain {
            return Err(why);
        }
        let inside = reading.runs.iter().filter(|run| run.depth > 0);
        for assignment in inside.flat_map(|run| &run.assignments) {
            if !is_harmless_variable(&assignment.name, assignment.value.literal()) {
                let what = "a variable for a program that may act on it";
                return not(what, assignment.value.span.start);
            }
        }
        let Script::Shell(text) = self.subject.script() else { return Ok(()) };
        let shell = self.subject.shell().unwrap_or("bash");
        if let Some(windows) = windows_shell(shell) {
            return windows::plainness(text, windows);
        }
        let dialect = match basename(shell) {
            "bash" => Dialect::Bash,
            "sh" | "dash" | "ash" => Dialect::Posix,
            _ => return not("a shell whose grammar is not known here", 0),
        };
        if self.subject.can_be_planted(shell) {
            return not("a shell that commands can have put there", 0);
        }
        let listed = plain(text, dialect, &|name| self.subject.has_variable(name))?;
        if is_same(&listed, reading) {
            Ok(())
        } else {
            not("something that can be read in two ways", first_difference(&listed, reading))
        }
    }

    /// Asks about every run that nothing allows, where the default is to ask.
    pub(super) fn judge_coverage(&mut self) {
        if self.is_default_allow() {
            return;
        }
        let reading = self.reading;
        if reading.runs.iter().all(|run| run.name().is_none()) {
            let span = Span { start: 0, end: self.text.len() };
            self.find(Decision::Ask, "default", span, ALLOW_IT, |case| {
                format!("no rule allows this, and {} asks by default here", case.subject.tool())
            });
        }
        for run in &reading.runs {
            let covering = self.covering_rule(run);
            let in_folder = run.name().filter(|name| self.is_in_current_folder(run, name));
            if let Some(name) = in_folder.filter(|_| covering.is_none()) {
                let remedy = "name it with its whole path, or approve it when asked";
                self.find(Decision::Ask, "current-folder", run.span, remedy, |_| {
                    format!("cmd may run a file of the current folder under the name `{name}`")
                });
            } else if let Some((rule, _)) = covering.filter(|_| !self.is_trusted_file(run)) {
                let remedy = "allow a program outside of what commands can write, or approve it";
                self.find(Decision::Ask, "planted", run.span, remedy, |case| {
                    format!(
                        "`{}` is allowed by `{rule}`, but commands can write that file",
                        case.shown(run)
                    )
                });
            } else if let Some((rule, why)) = covering {
                self.find(Decision::Allow, rule, run.span, "", |case| {
                    let why = why.map_or(String::new(), |why| format!(": {why}"));
                    format!("`{}` is allowed{why}", case.shown(run))
                });
            } else {
                self.find(Decision::Ask, "default", run.span, ALLOW_IT, |case| {
                    let redirects = case.redirects(run);
                    let rules = &case.policy.rules;
                    let near = nearest_miss(rules, run, &redirects, case.subject);
                    let near = near.map_or(String::new(), |why| format!(": {why}"));
                    format!("no rule allows `{}`{near}", case.shown(run))
                });
            }
        }
    }

    /// Asks about a text that no rule can allow.
    pub(super) fn judge_plainness(&mut self) {
        if self.is_default_allow() {
            return;
        }
        let Err(NotPlain { what, offset }) = *self.proof() else {
            return;
        };
        let remedy = "write it plainly, or approve it when asked";
        self.find(Decision::Ask, "not-plain", self.part_at(offset), remedy, |_| {
            format!("no rule can allow {what} (at byte {offset})")
        });
    }

    /// Whether an allow of this run's name is good for its file: where nobody is trusted, that must
    /// be none that a command can have put there.
    fn is_trusted_file(&self, run: &Invocation) -> bool {
        let careful =
            self.policy.mode == Mode::Strict || self.subject.trust() == Trust::UntrustedExternal;
        let planted = |name: &str| !is_builtin(name) && self.subject.can_be_planted(name);
        !careful || !run.name().is_some_and(planted)
    }

    /// The rule that allows a run, and why.
    fn covering_rule(&self, run: &Invocation) -> Option<(&'c str, Option<&'c str>)> {
        if let Some(rule) = self.allowing_rule(run) {
            return Some((&rule.id, rule.because.as_deref()));
        }
        let redirects = self.redirects(run);
        let name = run.name();
        let shadowed = self.is_shadowed(run);
        let plain = redirects.iter().all(|redirect| RedirectScope::None.covers(redirect));
        let Some(name) = name.filter(|_| plain && !shadowed) else {
            return (name.is_none() && plain).then_some(("syntax", None));
        };
        if !run.unresolved && data::is_neutral(basename(name)) {
            return Some(("wrapper", Some("what it runs is judged on its own")));
        }
        if self.subject.manners().asks_by_default {
            return None;
        }
        let rest = run.words.get(1..).unwrap_or_default();
        let because = harmless::reads_only(name, rest, self.subject.sandboxed())?;
        Some(("safe", Some(because)))
    }

    /// The rule of the policy that allows a run.
    pub(super) fn allowing_rule(&self, run: &Invocation) -> Option<&'c Rule> {
        let policy: &'c Policy = self.policy;
        let allow = policy.rules.iter().filter(|rule| rule.decision == Decision::Allow);
        let mut allow = allow.filter(|rule| rule.counts_for(self.subject)).peekable();
        allow.peek()?;
        let redirects = self.redirects(run);
        let shadowed = self.is_shadowed(run);
        allow.find(|rule| {
            (!shadowed || rule.target == Target::Everything) && rule.covers(run, &redirects)
        })
    }

    /// Whether a full rule or a bare allow covers a run.
    pub(super) fn is_allowed_fully(&self, run: &Invocation) -> bool {
        let redirects = self.redirects(run);
        let is_covered = self.policy.rules.iter().any(|rule| {
            rule.decision == Decision::Allow
                && !rule.short
                && rule.counts_for(self.subject)
                && rule.covers(run, &redirects)
        });
        // The second reading is only for those whom it matters to.
        is_covered && self.is_plain()
    }
}

/// Where the first simple command begins of which two readers found other words.
fn first_difference(listed: &[PlainCommand], reading: &Reading) -> usize {
    let mut listed = listed.iter().map(|command| &command.words).filter(|it| !it.is_empty());
    let read = reading.commands.iter().filter(|it| !it.substituted && !it.words.is_empty());
    let literal = |words: &[Word]| {
        words.iter().map(|word| word.literal().map(str::to_owned)).collect::<Vec<_>>()
    };
    let mut differing = read.filter(|command| {
        listed.next().is_none_or(|words| literal(words) != literal(&command.words))
    });
    differing.next().map_or(0, |command| command.span.start)
}

/// Whether two readers found the same simple commands.
fn is_same(listed: &[PlainCommand], reading: &Reading) -> bool {
    let listed = listed.iter().map(|command| &command.words).filter(|words| !words.is_empty());
    let read = reading.commands.iter().filter(|command| !command.substituted);
    let read = read.map(|command| &command.words).filter(|words| !words.is_empty());
    let same = |one: &Word, other: &Word| one.literal() == other.literal();
    let mut pairs = listed.clone().zip(read.clone());
    listed.count() == read.count()
        && pairs.all(|(one, other)| {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        })
}
