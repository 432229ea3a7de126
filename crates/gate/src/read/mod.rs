//! Reads shell text as bash does, in one pass over a stack of open constructs.
//!
//! Every step either consumes text, opens a construct or closes one, so the time is linear and deep
//! nesting cannot overflow anything. Whatever is not surely understood is a [`Refusal`]; being
//! stricter than bash costs an honest question, being laxer would cost a hole.

mod arithmetic;
mod builder;
mod case;
mod condition;
mod document;
mod dollar;
mod frame;
mod list;
mod openers;
mod operator;
mod parameter;
mod quoted;
mod reserved;
mod word;

use self::{
    builder::Builder,
    document::Document,
    frame::{Closer, Frame, List, Partial, Position},
};
use crate::reading::{Later, Reading, Refusal, SimpleCommand, Span, Substitution};

pub(crate) use self::openers::first_opener;

/// Most bytes of a text that is read.
pub(crate) const BYTES_MAX: usize = 16 * 1024;

/// Most constructs that may be open at once.
const NESTING_MAX: usize = 64;

/// Most simple commands, and most texts in backticks, that one text may hold.
const COMMANDS_MAX: usize = 2048;

/// How a step ends.
type Step = Result<(), Refusal>;

/// The text between two backticks, to be read on its own.
#[derive(Debug)]
struct Inner {
    text: String,
    span: Span,
    depth: usize,
}

/// What arithmetic could make code of.
#[derive(Debug, Default)]
struct Arithmetics {
    /// Where arithmetic first looked at a variable.
    variable: Option<Span>,
    /// The names of variables in arithmetic.
    names: Vec<String>,
    /// The first substitution in quoted text.
    quoted_opener: Option<Substitution>,
    /// Where quoted text first ends with a dollar: the rest of a substitution may be put behind it.
    dollar_at_end: Option<usize>,
    /// Whether quoted text begins with a parenthesis.
    parenthesis_at_start: bool,
}

/// A text that is being read.
#[derive(Debug)]
struct Reader<'t> {
    text: &'t str,
    bytes: &'t [u8],
    at: usize,
    /// One past the last byte that may be looked at: the end of the text or of a here-document.
    limit: usize,
    frames: Vec<Frame>,
    builders: Vec<Builder>,
    /// Here-documents whose bodies come after the next newline.
    pending: Vec<Document>,
    /// How many substitutions are open.
    level: usize,
    commands: Vec<SimpleCommand>,
    substitution: Option<Substitution>,
    later: Vec<Later>,
    functions: Vec<String>,
    inner: Vec<Inner>,
    arithmetics: Arithmetics,
    beyond_posix: Option<Refusal>,
    /// Whether what was refused is a mistake to bash, too.
    is_error: bool,
    /// Whether bash has read a whole line, which it runs before it reads the next one.
    line_ended: bool,
    /// Whether bash may go on after a mistake, or read what came before in another way.
    doubtful: bool,
    /// Whether a substitution had a here-document, and one a `case`.
    documented: bool,
    cased: bool,
    steps: usize,
}

/// Reads a text.
pub(crate) fn read_text(text: &str) -> Reading {
    if let Some(refusal) = capped(text) {
        // Nothing of such a text is read, so nothing of it is classified.
        let substitution = first_opener(text, 0);
        return Reading { refusal: Some(refusal), substitution, ..Reading::default() };
    }
    let mut reading = read_all(text);
    if let Some(refusal) = reading.refusal {
        let unclassified = first_opener(text, refusal.offset);
        // What was quoted before may be made code by what was not understood, and put together.
        let hidden = || first_opener(&unquoted(text), 0);
        let hidden = || hidden().map(|found| Substitution { offset: refusal.offset, ..found });
        reading.substitution = earlier(reading.substitution, unclassified)
            .or_else(|| first_opener(text, 0))
            .or_else(hidden);
    }
    reading.understood = reading.refusal.is_none();
    reading
}

/// Refuses what is too long or holds characters that have no place in a command.
fn capped(text: &str) -> Option<Refusal> {
    if text.len() > BYTES_MAX {
        return Some(Refusal {
            construct: "length",
            offset: 0,
            reason: "the text is longer than 16 KiB; put it into a file and run that",
        });
    }
    let offset =
        text.bytes().position(|byte| byte.is_ascii_control() && byte != b'\n' && byte != b'\t')?;
    let construct = if text.as_bytes().get(offset) == Some(&b'\r') { "\\r" } else { "control" };
    let reason = "control characters other than tab and newline are not accepted; leave them out";
    Some(Refusal { construct, offset, reason })
}

/// Reads a text and, one after the other, the texts inside its backticks.
fn read_all(text: &str) -> Reading {
    let mut reading = Reading::default();
    let mut reader = Reader::new(text);
    let refusal = reader.run().err();
    let mut queue = std::mem::take(&mut reader.inner);
    reading.runs_nothing = refusal.is_some() && reader.is_first_line_wrong();
    reader.finish_into(&mut reading, refusal);
    let mut count = 0;
    while let Some(inner) = queue.pop() {
        count += 1;
        if count > COMMANDS_MAX {
            reading.refusal.get_or_insert(too_many(inner.span.start));
            break;
        }
        let mut reader = Reader::new(&inner.text);
        reader.level = 1;
        let mut refusal = reader.run().err();
        if inner.depth >= NESTING_MAX {
            refusal = Some(too_deep(0));
        }
        for found in std::mem::take(&mut reader.inner) {
            queue.push(Inner { span: inner.span, depth: inner.depth + 1, ..found });
        }
        reader.relocate(inner.span);
        let refusal = refusal.map(|refusal| Refusal { offset: inner.span.start, ..refusal });
        reader.finish_into(&mut reading, refusal);
    }
    reading
}

/// A text without anything that quotes.
fn unquoted(text: &str) -> String {
    text.replace("\\\n", "").replace(['\'', '"', '\\'], "")
}

/// The one that comes first.
fn earlier(left: Option<Substitution>, right: Option<Substitution>) -> Option<Substitution> {
    match (left, right) {
        (Some(left), Some(right)) if right.offset < left.offset => Some(right),
        (Some(left), _) => Some(left),
        (None, right) => right,
    }
}

/// The refusal of a text with too many commands.
fn too_many(offset: usize) -> Refusal {
    let reason = "the text holds more than 2048 commands; put it into a file and run that";
    Refusal { construct: "commands", offset, reason }
}

/// The refusal of a text that nests too deeply.
fn too_deep(offset: usize) -> Refusal {
    let reason = "constructs are nested more than 64 deep; split the text";
    Refusal { construct: "nesting", offset, reason }
}

impl<'t> Reader<'t> {
    /// Begins a text.
    fn new(text: &'t str) -> Self {
        Self {
            text,
            bytes: text.as_bytes(),
            at: 0,
            limit: text.len(),
            frames: vec![Frame::List(List::new(Closer::End, Position::Optional, 0, 0))],
            builders: Vec::new(),
            pending: Vec::new(),
            level: 0,
            commands: Vec::new(),
            substitution: None,
            later: Vec::new(),
            functions: Vec::new(),
            inner: Vec::new(),
            arithmetics: Arithmetics::default(),
            beyond_posix: None,
            is_error: false,
            line_ended: false,
            doubtful: false,
            documented: false,
            cased: false,
            steps: 0,
        }
    }

    /// Takes steps until everything is closed.
    fn run(&mut self) -> Step {
        while let Some(frame) = self.frames.last() {
            self.steps += 1;
            match frame {
                Frame::List(_) => self.step_list()?,
                Frame::Word(_) => self.step_word()?,
                Frame::Double { .. } => self.step_double()?,
                Frame::Parameter(_) => self.step_parameter()?,
                Frame::Arithmetic(_) => self.step_arithmetic()?,
                Frame::Array { .. } => self.step_array()?,
                Frame::Condition(_) => self.step_condition()?,
                Frame::For { .. } => self.step_for()?,
                Frame::Case { .. } => self.step_case()?,
                Frame::Documents { .. } => self.step_documents()?,
            }
        }
        Ok(())
    }

    /// Adds what was found to a reading.
    fn finish_into(self, reading: &mut Reading, refusal: Option<Refusal>) {
        reading.commands.extend(self.commands);
        reading.later.extend(self.later);
        reading.functions.extend(self.functions);
        reading.substitution = earlier(reading.substitution, self.substitution);
        reading.refusal = reading.refusal.or(refusal);
        reading.quoted_opener = earlier(reading.quoted_opener, self.arithmetics.opener());
        reading.arithmetic = reading.arithmetic.or(self.arithmetics.variable);
        reading.arithmetic_names.extend(self.arithmetics.names);
        reading.beyond_posix = reading.beyond_posix.or(self.beyond_posix);
        reading.steps += self.steps;
    }

    /// Moves everything that was found to a span of the text around, and marks it as substituted.
    fn relocate(&mut self, span: Span) {
        for command in &mut self.commands {
            command.relocate(span);
        }
        for later in &mut self.later {
            later.span = span;
        }
        self.arithmetics.relocate(span);
        if let Some(substitution) = &mut self.substitution {
            substitution.offset = span.start;
        }
    }

    /// Opens a construct.
    fn open(&mut self, frame: Frame) -> Step {
        if self.frames.len() >= NESTING_MAX {
            return Err(too_deep(self.at));
        }
        // After a mistake inside an array, bash goes on with the next line.
        self.doubtful |= matches!(frame, Frame::Array { .. } | Frame::Documents { .. });
        self.frames.push(frame);
        Ok(())
    }

    /// Whether what was refused is a mistake that bash finds, too, and before it runs anything: it
    /// runs the lines before the one that it cannot parse.
    fn is_first_line_wrong(&self) -> bool {
        self.is_error && !self.line_ended && !self.doubtful && self.substitution.is_none()
    }

    /// Refuses what bash surely cannot parse either.
    fn fail(&mut self, construct: &'static str, offset: usize, reason: &'static str) -> Step {
        // In arithmetic and patterns, bash looks for their end alone.
        self.is_error = matches!(construct, "((" | "[[") || !self.is_in_parentheses();
        refuse(construct, offset, reason)
    }

    /// Refuses `case` beside a here-document in substitutions: bash writes such a text anew, in
    /// another order, and may run a pattern as a command.
    fn check_written_anew(&self, construct: &'static str, offset: usize) -> Step {
        if self.documented && self.cased {
            let reason = "`case` and a here-document in a substitution; move one out";
            return refuse(construct, offset, reason);
        }
        Ok(())
    }

    /// The next byte.
    fn peek(&self) -> Option<u8> {
        self.byte_at(self.at)
    }

    /// The byte at a place, unless it is past the limit.
    fn byte_at(&self, at: usize) -> Option<u8> {
        if at < self.limit { self.bytes.get(at).copied() } else { None }
    }

    /// The place after any line continuations that begin here.
    fn past_continuations(&self, mut at: usize) -> usize {
        while self.byte_at(at) == Some(b'\\') && self.byte_at(at + 1) == Some(b'\n') {
            at += 2;
        }
        at
    }

    /// The byte after this one as the shell sees it, and where it is.
    fn next_after(&self, at: usize) -> (Option<u8>, usize) {
        let next = self.past_continuations(at + 1);
        (self.byte_at(next), next)
    }

    /// Skips spaces, tabs and line continuations.
    fn skip_blanks(&mut self) {
        loop {
            self.at = self.past_continuations(self.at);
            match self.peek() {
                Some(b' ' | b'\t') => self.at += 1,
                _ => return,
            }
        }
    }

    /// Skips a comment, up to its newline.
    fn skip_comment(&mut self) {
        while self.peek().is_some_and(|byte| byte != b'\n') {
            self.at += 1;
        }
    }

    /// The character here, and the place after it.
    fn character(&self) -> Option<(char, usize)> {
        let rest = self.text.get(self.at..self.limit)?;
        let character = rest.chars().next()?;
        Some((character, self.at + character.len_utf8()))
    }

    /// Notes a substitution, if it is the first.
    fn found(&mut self, construct: &'static str, offset: usize) {
        let found = Substitution { construct, offset };
        self.substitution = earlier(self.substitution, Some(found));
    }

    /// Notes something that makes code of data.
    fn note_later(&mut self, construct: &str, start: usize) {
        let span = Span { start, end: self.at.max(start + 1).min(self.text.len()) };
        self.later.push(Later { construct: construct.to_owned(), span });
    }

    /// Notes a construct that plain `sh` may read in another way: there, `[[ a && b ]]` runs `b`.
    fn note_beyond_posix(&mut self, construct: &'static str, offset: usize) {
        let reason = "plain `sh` may read this in another way; use bash, or a plainer form";
        self.beyond_posix.get_or_insert(Refusal { construct, offset, reason });
    }

    /// The innermost list that is open; only called where one is on top.
    fn list(&mut self) -> Option<&mut List> {
        match self.frames.last_mut() {
            Some(Frame::List(list)) => Some(list),
            _ => None,
        }
    }
}

/// Refuses a construct.
fn refuse(construct: &'static str, offset: usize, reason: &'static str) -> Step {
    Err(Refusal { construct, offset, reason })
}

impl List {
    /// Begins a list.
    fn new(closer: Closer, position: Position, opened_at: usize, commands: usize) -> Self {
        Self {
            closer,
            position,
            opened_at,
            partial: Partial::default(),
            item_start: commands,
            pipeline_start: commands,
            piped: false,
            after_pipe: false,
        }
    }
}

impl SimpleCommand {
    /// Moves the command to a span of the text around it.
    fn relocate(&mut self, span: Span) {
        self.span = span;
        self.substituted = true;
        self.words.iter_mut().for_each(|word| word.span = span);
        self.assignments.iter_mut().for_each(|assignment| assignment.value.span = span);
        self.redirects.iter_mut().for_each(|redirect| redirect.target.span = span);
    }
}
