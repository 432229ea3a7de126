//! Finds every program that a text would run: wrappers are taken off, and strings that are shell
//! are read.

mod builtins;
mod find;
mod options;
mod shells;
mod windows;

use crate::{
    data::{self, Empty, Then, Wrapper},
    plain::{Dialect, NotPlain, plain},
    read::read_text,
    reading::{
        Assignment, Form, Invocation, Later, Reading, Redirect, Refusal, SimpleCommand, Span,
        Substitution, Word,
    },
    windows::{plainness, read_text as windows_text, windows_shell},
};

/// Most wrappers and shells around a program.
const DEPTH_MAX: usize = 8;

/// The last part of a path.
pub(crate) fn basename(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

/// What is left to be looked at, and what was found.
struct Unwrapper<'r> {
    reading: &'r mut Reading,
    queue: Vec<Invocation>,
    runs: Vec<Invocation>,
}

/// Adds the runs to a reading of a text.
pub(crate) fn unwrap(reading: &mut Reading) {
    let queue = reading.commands.iter().enumerate().map(|(index, command)| Invocation {
        words: command.words.clone(),
        assignments: command.assignments.clone(),
        redirects: Vec::new(),
        span: command.span,
        command: index,
        depth: 0,
        unresolved: false,
        piped: command.piped,
    });
    unwrap_all(reading, queue.collect());
}

/// Unwraps a program and its arguments that are run without a shell.
pub(crate) fn unwrap_words(words: Vec<Word>) -> Reading {
    let mut reading = Reading { understood: true, ..Reading::default() };
    let end = words.last().map_or(0, |word| word.span.end);
    let span = Span { start: 0, end };
    reading.commands.push(SimpleCommand { words: words.clone(), span, ..SimpleCommand::default() });
    unwrap_all(&mut reading, vec![Invocation { words, span, ..Invocation::default() }]);
    reading
}

/// Looks into everything that is queued.
fn unwrap_all(reading: &mut Reading, mut queue: Vec<Invocation>) {
    queue.reverse();
    let mut unwrapper = Unwrapper { reading, queue, runs: Vec::new() };
    while let Some(mut run) = unwrapper.queue.pop() {
        run.unresolved = !unwrapper.look_into(&run);
        unwrapper.runs.push(run);
    }
    let runs = unwrapper.runs;
    reading.runs = runs;
    builtins::note_tainted_arithmetic(reading);
    builtins::reveal_quoted(reading);
    reading.understood = reading.refusal.is_none();
}

impl Unwrapper<'_> {
    /// Looks for what a program runs; says whether all of it is known.
    fn look_into(&mut self, run: &Invocation) -> bool {
        builtins::note_assignments(self.reading, run);
        let Some(word) = run.words.first() else { return true };
        let Some(path) = word.literal() else { return true };
        let name = basename(path);
        builtins::note_later(self.reading, run, name);
        if let Some(known) = self.look_into_builtin(run, name) {
            return known;
        }
        match choose(data::wrappers(name), &run.words) {
            Choice::None => true,
            Choice::Doubtful => false,
            Choice::Found(wrapper, from) => self.unwrap_with(run, wrapper, from),
        }
    }

    /// Looks into shells, `find`, `eval` and `trap`, which have grammars of their own.
    fn look_into_builtin(&mut self, run: &Invocation, name: &str) -> Option<bool> {
        match name {
            "sh" | "bash" | "dash" | "zsh" | "ksh" | "ash" | "mksh" | "rbash" => {
                Some(self.look_into_shell(run))
            }
            "cmd" | "powershell" | "pwsh" => Some(self.look_into_windows_shell(run, name)),
            "find" | "gfind" => Some(self.look_into_find(run)),
            "eval" => Some(self.read_joined(run, run.words.get(1..).unwrap_or_default())),
            "trap" => Some(self.look_into_trap(run)),
            _ => None,
        }
    }

    /// Takes a wrapper off.
    fn unwrap_with(&mut self, run: &Invocation, wrapper: &Wrapper, from: usize) -> bool {
        if !wrapper.marker.is_empty() {
            return self.unwrap_marked(run, wrapper);
        }
        let Some(parsed) = options::parse(&run.words, from, wrapper) else { return false };
        if parsed.stops {
            return true;
        }
        let assignments: Vec<Assignment> =
            parsed.assignments.iter().filter_map(as_assignment).collect();
        let mut known = parsed.shells.iter().all(|shell| self.read_word(run, shell));
        let mut rest: Vec<Word> = run.words.get(parsed.rest..).unwrap_or_default().to_vec();
        let is_end = |word: &Word| word.literal().is_some_and(|t| wrapper.until.contains(&t));
        if let Some(end) = rest.iter().position(is_end) {
            rest.truncate(end);
        }
        if let Some(split) = &parsed.split {
            let Some(mut words) = split_words(split) else { return false };
            words.append(&mut rest);
            rest = words;
        }
        if wrapper.appends && wrapper.then == Then::Program && !rest.is_empty() {
            rest.push(Word { text: String::new(), form: Form::Fields, span: run.span });
        }
        if rest.is_empty() && parsed.shells.is_empty() && wrapper.empty == Empty::Input {
            self.note(&run.words, "input");
        }
        known &= self.follow(run, wrapper.then, rest, assignments);
        known
    }

    /// Goes on with the rest of a wrapper's words.
    fn follow(
        &mut self,
        run: &Invocation,
        then: Then,
        rest: Vec<Word>,
        assignments: Vec<Assignment>,
    ) -> bool {
        if rest.is_empty() {
            return true;
        }
        match then {
            Then::Nothing => true,
            Then::Program => {
                let span = covering(&rest);
                self.push(run, rest, assignments, span)
            }
            Then::Shell => self.read_joined(run, &rest),
            Then::Shells => rest.iter().all(|word| self.read_word(run, word)),
        }
    }

    /// Takes off a wrapper whose program comes after one of certain words.
    fn unwrap_marked(&mut self, run: &Invocation, wrapper: &Wrapper) -> bool {
        let is_marker = |word: &Word| word.literal().is_some_and(|t| wrapper.marker.contains(&t));
        let Some(at) = run.words.iter().position(is_marker) else {
            return run.words.iter().skip(1).all(|word| word.form != Form::Fields);
        };
        let mut rest = run.words.get(at + 1..).unwrap_or_default().to_vec();
        rest.push(Word { text: String::new(), form: Form::Fields, span: run.span });
        self.follow(run, Then::Program, rest, Vec::new())
    }

    /// Queues a program that another one runs.
    fn push(
        &mut self,
        run: &Invocation,
        words: Vec<Word>,
        assignments: Vec<Assignment>,
        span: Span,
    ) -> bool {
        if run.depth >= DEPTH_MAX {
            return self.refuse_depth(run);
        }
        let depth = run.depth + 1;
        self.queue.push(Invocation {
            words,
            assignments,
            redirects: Vec::new(),
            span,
            command: run.command,
            depth,
            unresolved: false,
            piped: run.piped,
        });
        true
    }

    /// Refuses what nests too deeply.
    fn refuse_depth(&mut self, run: &Invocation) -> bool {
        let reason = "programs run programs more than 8 deep; write the last one directly";
        let offset = run.span.start;
        self.reading.refusal.get_or_insert(Refusal { construct: "wrappers", offset, reason });
        false
    }

    /// Notes that a word makes code of data.
    fn note(&mut self, words: &[Word], suffix: &str) {
        let Some(first) = words.first() else { return };
        let construct = format!("{} {suffix}", first.text);
        self.reading.later.push(Later { construct, span: first.span });
    }

    /// Reads words that are joined to shell text.
    fn read_joined(&mut self, run: &Invocation, words: &[Word]) -> bool {
        let Some(texts) = words.iter().map(Word::literal).collect::<Option<Vec<_>>>() else {
            return false;
        };
        let text = texts.join(" ");
        self.read_shell(run, &text, covering(words))
    }

    /// Reads a word that is shell text.
    fn read_word(&mut self, run: &Invocation, word: &Word) -> bool {
        match word.literal() {
            Some(text) => self.read_shell(run, text, word.span),
            None => false,
        }
    }

    /// Reads shell text that a program runs, and queues its commands.
    fn read_shell(&mut self, run: &Invocation, text: &str, span: Span) -> bool {
        if run.depth >= DEPTH_MAX {
            return self.refuse_depth(run);
        }
        let name = run.name().map_or("", basename);
        let mut inner = match windows_shell(name) {
            Some(shell) => windows_text(text, shell),
            None => read_text(text),
        };
        if let Err(why) = plain_for(name, text) {
            let placed = NotPlain { offset: span.start, ..why };
            self.reading.inner_not_plain.get_or_insert(placed);
        }
        if is_own_text(run, name) {
            let found = inner.beyond_posix.map(|it| Refusal { offset: span.start, ..it });
            self.reading.beyond_posix = self.reading.beyond_posix.or(found);
        } else if !is_like_bash(name) && inner.beyond_posix.is_some() {
            inner.refusal = inner.refusal.or(inner.beyond_posix);
            inner.understood = false;
        }
        if text.ends_with("\\\n") {
            // After such a text for `eval`, bash takes the next reserved word for a program.
            let reason = "a text for a shell ends with a backslash and a newline; leave them out";
            inner.refusal.get_or_insert(Refusal { construct: "\\", offset: 0, reason });
            inner.understood = false;
        }
        let reading = &mut *self.reading;
        reading.steps += inner.steps;
        reading.arithmetic_names.extend(inner.arithmetic_names);
        reading.arithmetic = reading.arithmetic.or(inner.arithmetic.map(|_| span));
        if let Some(found) = inner.quoted_opener {
            let placed = Substitution { offset: span.start, ..found };
            reading.quoted_opener.get_or_insert(placed);
        }
        reading.functions.extend(inner.functions);
        for later in inner.later {
            reading.later.push(Later { span, ..later });
        }
        if let Some(found) = inner.substitution {
            reading.substitution.get_or_insert(Substitution { offset: span.start, ..found });
        }
        if let Some(refusal) = inner.refusal {
            reading.refusal.get_or_insert(Refusal { offset: span.start, ..refusal });
        }
        for command in inner.commands.into_iter().rev() {
            self.queue.push(Invocation {
                words: relocated(command.words, span),
                assignments: command.assignments.into_iter().map(|a| placed(a, span)).collect(),
                redirects: command.redirects.into_iter().map(|r| redirected(r, span)).collect(),
                span,
                command: run.command,
                depth: run.depth + 1,
                unresolved: false,
                piped: command.piped,
            });
        }
        inner.understood
    }
}

/// Whether the shell that reads the whole text reads this part of it, too.
fn is_own_text(run: &Invocation, name: &str) -> bool {
    run.depth == 0 && matches!(name, "eval" | "trap")
}

/// Whether a program is a shell that reads what is beyond POSIX as bash does; `eval` inside another
/// shell, `ssh`, `watch` and others may be plain `sh`.
fn is_like_bash(name: &str) -> bool {
    matches!(name, "bash" | "rbash" | "zsh" | "ksh" | "mksh")
}

/// Whether a text is plain for the shell that a program hands it to. What that shell finds in its
/// environment is not known.
fn plain_for(program: &str, text: &str) -> Result<(), NotPlain> {
    if let Some(shell) = windows_shell(program) {
        return plainness(text, shell);
    }
    let dialect = match program {
        "bash" => Dialect::Bash,
        "sh" | "dash" | "ash" => Dialect::Posix,
        _ => return Err(NotPlain { what: "text that a program runs", offset: 0 }),
    };
    plain(text, dialect, &|_| true).map(drop)
}

/// Which wrapper a command is.
enum Choice {
    /// None.
    None,
    /// It may be one.
    Doubtful,
    /// This one; its options begin at an index.
    Found(&'static Wrapper, usize),
}

/// Chooses among the wrappers of a name by subcommand.
fn choose(wrappers: impl Iterator<Item = &'static Wrapper>, words: &[Word]) -> Choice {
    let mut doubtful = false;
    for wrapper in wrappers {
        if wrapper.subcommand.is_empty() {
            return Choice::Found(wrapper, 1);
        }
        let before = Wrapper {
            flags: wrapper.before_flags,
            values: wrapper.before_values,
            ..Wrapper::default()
        };
        let mut at = options::parse(words, 1, &before).map(|parsed| parsed.rest);
        for expected in wrapper.subcommand {
            let word = at.and_then(|at| words.get(at)).and_then(Word::literal);
            at = if word == Some(*expected) { at.map(|at| at + 1) } else { None };
        }
        if let Some(at) = at {
            return Choice::Found(wrapper, at);
        }
        let last = wrapper.subcommand.last().copied();
        doubtful |= words.iter().skip(1).any(|word| word.literal() == last)
            || words.get(1).is_some_and(|word| word.form == Form::Fields);
    }
    if doubtful { Choice::Doubtful } else { Choice::None }
}

/// The words of a text that is one simple command.
fn split_words(word: &Word) -> Option<Vec<Word>> {
    let reading = read_text(word.literal()?);
    match reading.commands.as_slice() {
        [command] if reading.understood && command.redirects.is_empty() => {
            let assignments = command.assignments.iter().map(|assignment| Word {
                text: format!("{}={}", assignment.name, assignment.value.text),
                ..assignment.value.clone()
            });
            let words = assignments.chain(command.words.iter().cloned()).collect();
            Some(relocated(words, word.span))
        }
        _ => None,
    }
}

/// Moves words to a span.
fn relocated(mut words: Vec<Word>, span: Span) -> Vec<Word> {
    for word in &mut words {
        word.span = span;
    }
    words
}

/// Moves an assignment to a span.
fn placed(mut assignment: Assignment, span: Span) -> Assignment {
    assignment.value.span = span;
    assignment
}

/// Moves a redirect to a span.
fn redirected(mut redirect: Redirect, span: Span) -> Redirect {
    redirect.target.span = span;
    redirect
}

/// A word that sets a variable.
fn as_assignment(word: &Word) -> Option<Assignment> {
    let (name, value) = word.text.split_once('=')?;
    let value = Word { text: value.to_owned(), ..word.clone() };
    Some(Assignment { name: name.to_owned(), value })
}

/// The span of all words.
fn covering(words: &[Word]) -> Span {
    let start = words.first().map_or(0, |word| word.span.start);
    let end = words.iter().map(|word| word.span.end).max().unwrap_or(start);
    Span { start, end }
}
