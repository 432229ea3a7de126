//! Judges a reading by the rules: every run is looked at, and the strictest finding wins.

mod coverage;

use std::{cell::OnceCell, collections::HashSet};

use crate::{
    data, downloads,
    explain::Explanation,
    guess,
    matching::Certainty,
    names::NetworkMode,
    plain::NotPlain,
    policy::{Mode, Policy},
    reading::{
        EXPANDED_AGAIN, Invocation, Later, Reading, Redirect, RedirectKind, Refusal, Span,
        Substitution,
    },
    rule::{Decision, Level, Rule, Target},
    unwrap::{basename, unwrap_words},
    verdict::{Denied, Grant, Question, Script, Subject, Trust, Verdict, argv_words},
    windows::{self, windows_shell},
};

/// What to do about a command that no rule covers.
const ALLOW_IT: &str = "allow it with a rule in the policy, or approve it when asked";

/// Variables by which bash runs a file before it reads the text, or reads the text in another way.
const STEERS_BASH: [&str; 5] =
    ["BASH_ENV", "BASHOPTS", "SHELLOPTS", "BASH_COMPAT", "POSIXLY_CORRECT"];

/// One thing that speaks for or against a command.
#[derive(Debug, Clone)]
pub(crate) struct Finding {
    pub decision: Decision,
    pub explanation: Explanation,
    pub substitution: Option<Substitution>,
    /// Whether all of the text was understood, of what has to be asked about.
    pub is_understood: bool,
}

/// A subject with its reading.
struct Case<'c> {
    policy: &'c Policy,
    reading: &'c Reading,
    text: &'c str,
    subject: &'c dyn Subject,
    /// The functions that the text defines.
    functions: HashSet<&'c str>,
    /// Whether an allow can cover the text; only asked where one might.
    plain: OnceCell<Result<(), NotPlain>>,
    /// The first finding of each kind; a long list of them would only cost time.
    findings: Vec<Finding>,
    /// Whether a rule wants it to be tried before anybody is asked.
    tries: bool,
}

/// Judges a plan.
pub fn judge<P: Subject>(policy: &Policy, plan: P) -> Verdict<P> {
    let (_, finding) = weigh(policy, &plan);
    let explanation = finding.explanation;
    match finding.decision {
        Decision::Allow => Verdict::Allow(Grant::new(plan, explanation)),
        Decision::Ask => Verdict::Ask(Question::new(plan, explanation, finding.is_understood)),
        Decision::Deny => Verdict::Deny(Denied { explanation, substitution: finding.substitution }),
    }
}

/// Reads a subject and finds what decides about it.
pub(crate) fn weigh(policy: &Policy, subject: &dyn Subject) -> (Reading, Finding) {
    let script = subject.script();
    let reading = read_script(&script, subject.shell());
    let text = script.text();
    let functions = reading.functions.iter().map(String::as_str).collect();
    let mut case = Case {
        policy,
        reading: &reading,
        text: &text,
        subject,
        functions,
        plain: OnceCell::new(),
        findings: Vec::new(),
        tries: false,
    };
    case.judge();
    let finding = case.decide();
    (reading, finding)
}

/// Reads what would run.
pub(crate) fn read_script(script: &Script<'_>, shell: Option<&str>) -> Reading {
    match script {
        Script::Shell(text) => {
            if let Some(windows) = shell.and_then(windows_shell) {
                return windows::read(text, windows);
            }
            let mut reading = crate::read(text);
            let posix = matches!(shell.map(basename), Some("sh" | "dash" | "ash"));
            if let Some(refusal) = reading.beyond_posix.filter(|_| posix) {
                reading.refusal.get_or_insert(refusal);
                reading.understood = false;
            }
            reading
        }
        Script::Argv(argv) => unwrap_words(argv_words(argv)),
    }
}

impl<'c> Case<'c> {
    /// Collects everything that speaks for or against the subject.
    fn judge(&mut self) {
        self.judge_substitution();
        self.judge_tool();
        for run in &self.reading.runs {
            self.judge_run(run);
        }
        self.judge_downloads();
        self.judge_paths();
        self.judge_doubts();
        self.judge_coverage();
        self.judge_plainness();
    }

    /// The strictest finding; without any, the default of the tool.
    fn decide(&mut self) -> Finding {
        let strictest = self.findings.iter().map(|finding| finding.decision).max();
        let first = self.findings.iter().find(|finding| Some(finding.decision) == strictest);
        let mut finding = first.cloned().unwrap_or_else(|| self.default());
        if finding.decision == Decision::Ask && self.runs_nothing() {
            finding = self.syntax_error();
        }
        if finding.decision == Decision::Ask && self.policy.mode == Mode::Open {
            finding.decision = Decision::Allow;
            finding.explanation = Explanation {
                rule: "mode-open".into(),
                reason: format!(
                    "nobody is asked in this mode; otherwise: {}",
                    finding.explanation.reason
                ),
                ..finding.explanation
            };
        }
        finding.explanation.sandbox = self.level();
        finding.explanation.tries = self.tries && finding.decision == Decision::Ask;
        finding.explanation.network = self.network();
        finding.is_understood = finding.decision == Decision::Ask && self.reading.understood;
        finding
    }

    /// Whether the shell refuses the text before it runs anything: there is nothing to ask about.
    fn runs_nothing(&self) -> bool {
        let shell = self.subject.shell().unwrap_or("bash");
        self.reading.runs_nothing
            && basename(shell) == "bash"
            && !self.subject.can_be_planted(shell)
            && !STEERS_BASH.iter().any(|name| self.subject.has_variable(name))
    }

    /// The finding that the shell is to say what is wrong with the text.
    fn syntax_error(&self) -> Finding {
        let why = self.reading.refusal.map_or(String::new(), describe_refusal);
        let explanation = Explanation {
            rule: "syntax-error".into(),
            reason: format!("bash cannot parse this and runs nothing of it: {why}"),
            ..Explanation::default()
        };
        Finding { decision: Decision::Allow, explanation, substitution: None, is_understood: false }
    }

    /// How far the rules want it to be confined: the strictest over all runs, and never less than
    /// this caller has to be. What no rule speaks of, or what is not understood, keeps the text as
    /// confined as it would be without rules.
    fn level(&self) -> Option<Level> {
        if !self.policy.confines() {
            return None;
        }
        let usual = self.subject.level();
        let least = if self.reading.understood { self.floor() } else { usual };
        let levels = self.reading.runs.iter().map(|run| self.level_of(run).unwrap_or(usual));
        levels.max().map(|level| level.max(least))
    }

    /// The least that this caller is confined to, whatever a rule says.
    fn floor(&self) -> Level {
        match self.subject.trust() {
            Trust::TrustedOperator | Trust::TrustedSystem => Level::None,
            Trust::TrustedIntegration => Level::WorkspaceWrite,
            Trust::UntrustedExternal => Level::ReadOnly,
        }
    }

    /// The network that the rules give it at most: the least over all runs. What no rule speaks of
    /// has no say, and what is not understood gets what it would without rules.
    fn network(&self) -> Option<NetworkMode> {
        if !self.policy.speaks_of_network() || !self.reading.understood {
            return None;
        }
        let has_one = |rule: &Rule| rule.network.is_some();
        let runs = self.reading.runs.iter();
        runs.filter_map(|run| self.first_rule(run, has_one)?.network).max()
    }

    /// The first rule of a kind that speaks of a run.
    fn first_rule(&self, run: &Invocation, is_meant: impl Fn(&Rule) -> bool) -> Option<&Rule> {
        let redirects = self.redirects(run);
        let shadowed = self.is_shadowed(run);
        let speaks = |rule: &&Rule| {
            rule.counts_for(self.subject)
                && match rule.decision {
                    Decision::Allow => !shadowed && rule.covers(run, &redirects),
                    _ => rule.speaks_of(run, None) == Certainty::Yes,
                }
        };
        self.policy.rules.iter().filter(|rule| is_meant(rule)).find(speaks)
    }

    /// How far the first rule that speaks of a run wants it to be confined.
    fn level_of(&self, run: &Invocation) -> Option<Level> {
        let rule = self.first_rule(run, |rule| rule.sandbox.is_some())?;
        // A rule that lets out of the sandbox lets out one command, and nothing beside it.
        rule.sandbox.filter(|level| *level >= self.subject.level() || self.is_one_known_program())
    }

    /// The finding where nothing else was found: the rule that allows every part, or the default.
    fn default(&self) -> Finding {
        let reading: &'c Reading = self.reading;
        let allowed = |run: &'c Invocation| Some((run, self.allowing_rule(run)?));
        let found = reading.runs.iter().find_map(allowed);
        let missed = reading.runs.iter().find(|run| self.allowing_rule(run).is_none());
        let tool = self.subject.tool();
        let reason = match (found, missed) {
            (None, _) => format!("no rule matches, and {tool} allows by default"),
            (Some(_), Some(run)) => {
                format!("no rule matches `{}`, and {tool} allows by default", self.shown(run))
            }
            (Some((run, rule)), None) => match self.proof() {
                Ok(()) => return self.allowed_by(rule, run),
                Err(NotPlain { what, offset }) => format!(
                    "no rule can allow {what} (at byte {offset}), and {tool} allows by default"
                ),
            },
        };
        let explanation = Explanation { rule: "default".into(), reason, ..Explanation::default() };
        Finding { decision: Decision::Allow, explanation, substitution: None, is_understood: false }
    }

    /// The finding that a rule allows a run, and with it the text.
    fn allowed_by(&self, rule: &Rule, run: &Invocation) -> Finding {
        let why = rule.because.as_deref().map_or(String::new(), |why| format!(": {why}"));
        let reason = format!("`{}` is allowed by the rule `{}`{why}", self.shown(run), rule.id);
        let explanation = Explanation {
            rule: rule.id.clone(),
            reason,
            command: self.text.get(run.span.start..run.span.end).map(str::to_owned),
            span: Some(run.span),
            ..Explanation::default()
        };
        Finding { decision: Decision::Allow, explanation, substitution: None, is_understood: false }
    }

    /// Keeps a finding, if it is the first of its kind.
    fn find(
        &mut self,
        decision: Decision,
        rule: &str,
        span: Span,
        remedy: &str,
        reason: impl FnOnce(&Self) -> String,
    ) {
        let earlier = self.findings.iter().position(|finding| finding.decision == decision);
        if let Some(index) = earlier {
            // A rule explains an allow better than the syntax around it does.
            let found = self.findings.get(index).map(|finding| finding.explanation.rule.as_str());
            if !matches!(found, Some("wrapper" | "syntax")) || matches!(rule, "wrapper" | "syntax")
            {
                return;
            }
            self.findings.remove(index);
        }
        let command = self.text.get(span.start..span.end).map(str::to_owned);
        let explanation = Explanation {
            rule: rule.to_owned(),
            reason: reason(self),
            command,
            span: Some(span),
            sandbox: None,
            tries: false,
            network: None,
            note: None,
            asked_by: None,
            denies_tool: false,
            remedy: Some(remedy.to_owned()).filter(|remedy| !remedy.is_empty()),
        };
        let substitution = None;
        self.findings.push(Finding { decision, explanation, substitution, is_understood: false });
    }

    /// Refuses substitutions where the tool does.
    fn judge_substitution(&mut self) {
        let Some(found) = self.reading.substitution else { return };
        if !self.subject.manners().refuses_substitution || self.runs_nothing() {
            return;
        }
        let Substitution { construct, offset } = found;
        let end = (offset + construct.trim_end().len()).min(self.text.len());
        let remedy =
            "run the inner command first and use its output, or put the text into single quotes";
        self.find(Decision::Deny, "substitution", Span { start: offset, end }, remedy, |case| {
            let shown =
                if construct == "`" { "a backtick".into() } else { format!("`{construct}`") };
            let tool = case.subject.tool();
            format!("{tool} refuses substitutions, and {shown} opens one at byte {offset}")
        });
        if let Some(finding) = self.findings.last_mut() {
            finding.substitution = Some(found);
        }
    }

    /// Refuses a tool that is denied as a whole.
    fn judge_tool(&mut self) {
        let denies = |rule: &&Rule| {
            rule.decision == Decision::Deny
                && rule.target == Target::Everything
                && rule.counts_for(self.subject)
        };
        if let Some(rule) = self.policy.rules.iter().find(denies) {
            let span = Span { start: 0, end: self.text.len() };
            let remedy = "take the entry out of `excludeTools`";
            self.find(Decision::Deny, &rule.id, span, remedy, |case| {
                format!("the policy denies {} as a whole", case.subject.tool())
            });
            for finding in self.findings.iter_mut().filter(|it| it.explanation.rule == rule.id) {
                finding.explanation.denies_tool = true;
            }
        }
    }

    /// Looks for rules that deny or ask about a run, and for dangers.
    fn judge_run(&mut self, run: &Invocation) {
        // Only a rule that is strict about a program cares where its file is, and looking costs
        // time.
        let asked = run.name().filter(|_| self.policy.restricts());
        let resolved = asked.and_then(|name| self.subject.resolve(name));
        let strict = self.policy.rules.iter().filter(|rule| rule.decision > Decision::Allow);
        let counts =
            |rule: &&Rule| rule.target != Target::Everything && rule.counts_for(self.subject);
        for rule in strict.filter(counts) {
            match rule.speaks_of(run, resolved.as_deref()) {
                Certainty::No => {}
                Certainty::Maybe => {
                    let remedy = "write the program and its arguments plainly, without expansions";
                    self.find(Decision::Ask, &rule.id, run.span, remedy, |case| {
                        format!("`{}` may match the rule `{}`", case.shown(run), rule.id)
                    });
                }
                Certainty::Yes => {
                    self.tries |= rule.tries;
                    let (verb, remedy) = match rule.decision {
                        Decision::Deny => ("denied", "take that rule out, or make it narrower"),
                        _ => ("asked for", "approve it when asked, or change that rule"),
                    };
                    self.find(rule.decision, &rule.id, run.span, remedy, |case| {
                        let why =
                            rule.because.as_deref().map_or(String::new(), |why| format!(": {why}"));
                        format!("`{}` is {verb} by the rule `{}`{why}", case.shown(run), rule.id)
                    });
                }
            }
        }
        self.judge_danger(run);
    }

    /// Asks about dangerous commands, unless a full rule or a bare allow covers them.
    fn judge_danger(&mut self, run: &Invocation) {
        let Some(name) = run.name().map(basename) else { return };
        let rest = run.words.get(1..).unwrap_or_default();
        let Some(because) = data::danger(name, rest, self.is_on_windows()) else { return };
        if !self.is_allowed_fully(run) {
            self.find(Decision::Ask, "dangerous", run.span, ALLOW_IT, |case| {
                format!("`{}` {because}", case.shown(run))
            });
        }
    }

    /// Whether the names of programs are those of Windows.
    fn is_on_windows(&self) -> bool {
        self.subject.is_on_windows() || self.subject.shell().and_then(windows_shell).is_some()
    }

    /// Asks about code that nobody here has seen.
    fn judge_downloads(&mut self) {
        let Some((run, source)) = downloads::run_by(self.reading) else { return };
        let remedy = "download it to a file, look at it, and run that; or approve it when asked";
        self.find(Decision::Ask, "piped-download", run.span, remedy, |case| {
            format!("`{}` would run what `{source}` downloads, unseen", case.shown(run))
        });
    }

    /// Asks about writing to protected paths.
    fn judge_paths(&mut self) {
        let (reading, on_windows) = (self.reading, self.is_on_windows());
        let nested = reading.runs.iter().flat_map(|run| &run.redirects);
        let outer = reading.commands.iter().flat_map(|command| &command.redirects);
        for redirect in outer.chain(nested) {
            let harmless = matches!(redirect.kind, RedirectKind::Duplicate | RedirectKind::Here);
            let reads = redirect.kind == RedirectKind::Read;
            let matters = |part: &&str| !harmless && (!reads || part.starts_with("/dev/"));
            let found = data::protected(&redirect.target.text, on_windows).filter(matters);
            self.ask_about_path(found, redirect.target.span);
        }
        for run in &reading.runs {
            let name = run.name().map_or("", basename);
            let mut written = data::written(name, run.words.get(1..).unwrap_or_default()).iter();
            let found = written.find_map(|word| data::protected(&word.text, on_windows));
            if found.is_some() && !self.is_allowed_fully(run) {
                self.ask_about_path(found, run.span);
            }
        }
    }

    /// Asks about a protected part of a path.
    fn ask_about_path(&mut self, found: Option<&str>, span: Span) {
        let Some(part) = found else { return };
        let remedy = "write to another path, or approve it when asked";
        self.find(Decision::Ask, "protected-path", span, remedy, |_| {
            format!("it may write to `{part}`: what is there is run or trusted by others")
        });
    }

    /// Asks about what is not understood, unless nothing could be evaded by it.
    fn judge_doubts(&mut self) {
        let reading = self.reading;
        if let Some(refusal) = reading.refusal {
            let start = refusal.offset.min(self.text.len());
            self.doubt("not-understood", self.part_at(start), |_| {
                format!("the text is not understood: {}", describe_refusal(refusal))
            });
            self.guess_danger(Span { start: 0, end: self.text.len() });
        }
        for later in &reading.later {
            self.judge_later(later);
        }
        for run in &reading.runs {
            if run.unresolved {
                self.doubt("unresolved", run.span, |case| {
                    format!("it is not known which program `{}` runs", case.shown(run))
                });
            }
            if run.name() == Some("?") {
                self.doubt("dynamic-name", run.span, |_| {
                    "the name of the program is known only after expansion".to_owned()
                });
            }
        }
    }

    /// Asks about what makes code of data.
    fn judge_later(&mut self, later: &Later) {
        // The whole part is what is asked about, and not the one word in it that does this.
        let part = self.part_at(later.span.start);
        let reason =
            || format!("`{}` makes code of text that cannot be judged now", later.construct);
        if later.construct != EXPANDED_AGAIN {
            self.guess_danger(later.span);
            return self.doubt("code-later", part, |_| reason());
        }
        // What runs can stand in any quotes of the text.
        self.guess_danger(Span { start: 0, end: self.text.len() });
        if self.reading.quoted_opener.is_some() {
            let remedy = "write the file's name plainly, or approve it when asked";
            self.find(Decision::Ask, "code-later", part, remedy, |_| reason());
        }
        self.doubt("code-later", part, |_| reason());
    }

    /// Asks about a danger that may be in a part of the text that could not be read.
    fn guess_danger(&mut self, span: Span) {
        let text = self.text.get(span.start..span.end).unwrap_or_default();
        if let Some(run) = guess::danger(text, span, self.is_on_windows()) {
            self.judge_danger(&run);
        }
    }

    /// Asks, unless nothing could be evaded.
    fn doubt(&mut self, rule: &str, span: Span, reason: impl FnOnce(&Self) -> String) {
        if !self.is_default_allow() || self.policy.restricts() || !self.subject.sandboxed() {
            let remedy = "write it plainly, or approve it when asked";
            self.find(Decision::Ask, rule, span, remedy, reason);
        }
    }

    /// The whole part of the text around a place: the innermost simple command, or all of it.
    fn part_at(&self, at: usize) -> Span {
        let around = |span: &Span| span.start <= at && at < span.end;
        let spans = self.reading.commands.iter().map(|command| command.span).filter(around);
        let innermost = spans.min_by_key(|span| span.end - span.start);
        innermost.unwrap_or(Span { start: 0, end: self.text.len() })
    }

    /// Whether the tool allows what no rule speaks of.
    fn is_default_allow(&self) -> bool {
        let trusted = self.subject.trust() != Trust::UntrustedExternal;
        let strict = self.policy.mode == Mode::Strict;
        trusted && !strict && !self.subject.manners().asks_by_default
    }

    /// The redirects that are made for a run: its own, and those of the simple command around it.
    fn redirects<'r>(&'r self, run: &'r Invocation) -> Vec<&'r Redirect> {
        let outer = self.reading.commands.get(run.command).map(|command| &command.redirects);
        run.redirects.iter().chain(outer.into_iter().flatten()).collect()
    }

    /// A run in a few words.
    fn shown(&self, run: &Invocation) -> String {
        let words: Vec<&str> = run.words.iter().take(4).map(|word| word.text.as_str()).collect();
        let text = match run.name() {
            Some("?") => self.text.get(run.span.start..run.span.end).unwrap_or_default().to_owned(),
            _ => words.join(" "),
        };
        let more = run.words.len() > 4 || text.chars().count() > 60;
        let text: String = text.chars().take(60).collect();
        if more { format!("{}…", text.trim_end()) } else { text.trim_end().to_owned() }
    }
}

/// What was refused, and where.
fn describe_refusal(refusal: Refusal) -> String {
    let Refusal { construct, offset, reason } = refusal;
    format!("{reason} (`{construct}` at byte {offset})")
}
