//! Plain text: the positive list of what an allow can cover.
//!
//! An allow is a proof, and what can be proved is small. This file is a second reader, on purpose
//! and without anything of the first: it knows lists, pipelines, groups, `if`, `while`, `until`,
//! `for`, `case` and simple commands, a few kinds of words, assignments and redirects, and a list
//! of builtins. Everything else is not plain, whatever it would do. For a plain text the shell runs
//! exactly the simple commands that are listed here, with exactly those words; a test holds that
//! against the shells themselves.
//!
//! What is not plain is not forbidden: no allow covers it, so it is asked about, or runs in the
//! sandbox where that is enough.

use std::collections::{HashMap, HashSet};

use serde::Serialize;

use crate::reading::{Form, Span, Word};

/// Most constructs inside each other.
const NESTING_MAX: usize = 32;

/// Which shell reads the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// bash.
    Bash,
    /// What every shell of the POSIX family reads alike: `sh`, `dash`, `ash`.
    Posix,
}

/// Why a text is not plain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct NotPlain {
    /// What stands there.
    pub what: &'static str,
    /// Where, in bytes.
    pub offset: usize,
}

/// A simple command of a plain text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PlainCommand {
    /// The program and its arguments; none for assignments or redirects alone.
    pub words: Vec<Word>,
    /// Names of the variables that are set before the program.
    pub assigned: Vec<String>,
    /// Files that are opened, as they are written.
    pub targets: Vec<String>,
}

/// Reads a plain text; `is_in_environment` knows the variables that programs can see already.
pub fn plain(
    text: &str,
    dialect: Dialect,
    is_in_environment: &dyn Fn(&str) -> bool,
) -> Result<Vec<PlainCommand>, NotPlain> {
    let mut reader = Plainly {
        text,
        at: 0,
        dialect,
        is_in_environment,
        depth: 0,
        documents: Vec::new(),
        commands: Vec::new(),
        numbers: HashMap::new(),
        computed: Vec::new(),
    };
    reader.list(&[])?;
    reader.skip_blanks();
    if reader.at < text.len() {
        return reader.no("a character that has no meaning there");
    }
    if !reader.documents.is_empty() {
        return reader.no("a here-document that does not end");
    }
    reader.check_numbers()?;
    Ok(reader.commands)
}

/// Whether a variable may be set for a program: nobody does anything but print differently by it.
pub(crate) fn is_harmless_variable(name: &str, value: Option<&str>) -> bool {
    /// Those whose every value is harmless.
    const ANY: [&str; 20] = [
        "LANG",
        "LANGUAGE",
        "TZ",
        "TERM",
        "CI",
        "NO_COLOR",
        "FORCE_COLOR",
        "CLICOLOR",
        "CLICOLOR_FORCE",
        "COLORTERM",
        "RUST_LOG",
        "RUST_BACKTRACE",
        "RUST_LIB_BACKTRACE",
        "CARGO_TERM_COLOR",
        "CARGO_TERM_PROGRESS_WHEN",
        "PYTHONUNBUFFERED",
        "PYTHONDONTWRITEBYTECODE",
        "PYTHONHASHSEED",
        "DEBIAN_FRONTEND",
        "SOURCE_DATE_EPOCH",
    ];
    /// Those that name a program, with the values that name a harmless one.
    const PAIRS: [(&str, &[&str]); 5] = [
        ("PAGER", &["cat", ""]),
        ("GIT_PAGER", &["cat", ""]),
        ("MANPAGER", &["cat", ""]),
        ("GIT_TERMINAL_PROMPT", &["0", "1"]),
        ("GIT_OPTIONAL_LOCKS", &["0", "1"]),
    ];
    let is_locale = name.strip_prefix("LC_").is_some_and(|rest| !rest.is_empty());
    let is_pair = |(pair, values): &(&str, &[&str])| {
        *pair == name && value.is_some_and(|value| values.contains(&value))
    };
    is_locale || ANY.contains(&name) || PAIRS.iter().any(is_pair)
}

/// Whether a name is a text's own: one that no shell reads or sets.
fn is_own(name: &str) -> bool {
    /// Beginnings of names that shells keep for themselves.
    const PREFIXES: [&str; 13] = [
        "BASH", "COMP", "DIRSTACK", "EPOCH", "FUNC", "GLOB", "HIST", "LC_", "MAIL", "OPT",
        "PROMPT", "READLINE", "ZSH",
    ];
    /// The rest of them.
    const NAMES: [&str; 48] = [
        "auto_resume",
        "histchars",
        "CDPATH",
        "CHILD_MAX",
        "COLUMNS",
        "COPROC",
        "EMACS",
        "ENV",
        "EUID",
        "EXECIGNORE",
        "FCEDIT",
        "FIGNORE",
        "FPATH",
        "GROUPS",
        "HOME",
        "HOSTFILE",
        "HOSTNAME",
        "HOSTTYPE",
        "IFS",
        "IGNOREEOF",
        "INPUTRC",
        "INSIDE_EMACS",
        "KSH_VERSION",
        "LANG",
        "LINENO",
        "LINES",
        "LOGNAME",
        "MACHTYPE",
        "MAPFILE",
        "NLSPATH",
        "OLDPWD",
        "OSTYPE",
        "PATH",
        "PIPESTATUS",
        "POSIXLY_CORRECT",
        "PPID",
        "PS0",
        "PS1",
        "PS2",
        "PS3",
        "PS4",
        "PWD",
        "RANDOM",
        "REPLY",
        "SECONDS",
        "SHELL",
        "SHELLOPTS",
        "SHLVL",
    ];
    /// And those that are seldom met.
    const MORE: [&str; 7] =
        ["SRANDOM", "TEXTDOMAIN", "TEXTDOMAINDIR", "TIMEFORMAT", "TMOUT", "TMPDIR", "UID"];
    let reserved = name == "_"
        || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || NAMES.contains(&name)
        || MORE.contains(&name);
    !reserved && is_name(name)
}

/// Whether this can be the name of a variable.
fn is_name(text: &str) -> bool {
    text.starts_with(|first: char| first == '_' || first.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte == b'_' || byte.is_ascii_alphanumeric())
}

/// A word, with what only the shell's grammar cares about.
#[derive(Debug, Clone)]
struct Lexeme {
    word: Word,
    /// Nothing of it was quoted or escaped.
    bare: bool,
    /// Where in its text the first `=` stands that was not quoted.
    equals: Option<usize>,
}

impl Lexeme {
    /// The reserved word or name that it may be.
    fn bare(&self) -> Option<&str> {
        self.word.literal().filter(|_| self.bare)
    }
}

/// A here-document whose text begins with the next line.
#[derive(Debug)]
struct Pending {
    end: String,
    quoted: bool,
    tabs: bool,
}

/// The reader.
struct Plainly<'t> {
    text: &'t str,
    at: usize,
    dialect: Dialect,
    is_in_environment: &'t dyn Fn(&str) -> bool,
    depth: usize,
    documents: Vec<Pending>,
    commands: Vec<PlainCommand>,
    /// Variables of the text, and whether all that they are set to are numbers.
    numbers: HashMap<String, bool>,
    /// Variables that arithmetic looks at, and where.
    computed: Vec<(String, usize)>,
}

type Plain<T> = Result<T, NotPlain>;

/// Words that end a list, where one of them does.
const CLOSERS: [&str; 8] = ["then", "elif", "else", "fi", "do", "done", "esac", "}"];

impl<'t> Plainly<'t> {
    fn no<T>(&self, what: &'static str) -> Plain<T> {
        Err(NotPlain { what, offset: self.at.min(self.text.len()) })
    }

    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn begins(&self, with: &str) -> bool {
        self.rest().starts_with(with)
    }

    fn take(&mut self, text: &str) -> bool {
        let there = self.begins(text);
        if there {
            self.at += text.len();
        }
        there
    }

    /// Skips blanks, continued lines and a comment.
    fn skip_blanks(&mut self) {
        while self.take(" ") || self.take("\t") || self.take("\\\n") {}
        let at_start = self.text.get(..self.at).is_none_or(|before| {
            before.is_empty() || before.ends_with([' ', '\t', '\n', ';', '&', '|', '(', ')'])
        });
        if at_start && self.begins("#") {
            self.at += self.rest().find('\n').unwrap_or(self.rest().len());
        }
    }

    /// Goes past a line's end, and past the here-documents that begin with the next one.
    fn newline(&mut self) -> Plain<()> {
        self.at += 1;
        for document in std::mem::take(&mut self.documents) {
            loop {
                if self.at >= self.text.len() {
                    return self.no("a here-document that does not end");
                }
                let line = self.rest().split('\n').next().unwrap_or_default();
                let shown = if document.tabs { line.trim_start_matches('\t') } else { line };
                if !document.quoted && line.contains(['$', '`', '\\']) {
                    return self.no("an expansion in a here-document");
                }
                self.at = (self.at + line.len() + 1).min(self.text.len());
                if shown == document.end {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Skips blanks, line ends and comments.
    fn skip_lines(&mut self) -> Plain<()> {
        loop {
            self.skip_blanks();
            if !self.begins("\n") {
                return Ok(());
            }
            self.newline()?;
        }
    }

    /// A list of pipelines, up to one of the words that close it, the end or a parenthesis.
    /// Returns the word.
    fn list(&mut self, closers: &[&'static str]) -> Plain<Option<&'static str>> {
        self.depth += 1;
        if self.depth > NESTING_MAX {
            return self.no("too many constructs inside each other");
        }
        let mut any = false;
        let closed = loop {
            self.skip_lines()?;
            if self.at >= self.text.len() || self.begins(")") || self.begins(";;") {
                break None;
            }
            if let Some(closer) = self.closer(closers)? {
                break Some(closer);
            }
            self.pipeline()?;
            any = true;
            self.separator()?;
        };
        self.depth -= 1;
        // Only a clause of `case`, and a whole text, may do nothing.
        if !any && self.depth > 0 && !closers.contains(&"esac") {
            return self.no("a list of commands that is empty");
        }
        Ok(closed)
    }

    /// Takes a word that closes the list.
    fn closer(&mut self, closers: &[&'static str]) -> Plain<Option<&'static str>> {
        let word = self.rest().split(is_end).next().unwrap_or_default();
        let Some(found) = CLOSERS.iter().find(|closer| **closer == word) else { return Ok(None) };
        if !closers.contains(found) {
            return self.no("a reserved word");
        }
        self.at += found.len();
        Ok(Some(found))
    }

    /// What stands between two pipelines.
    fn separator(&mut self) -> Plain<()> {
        self.skip_blanks();
        if self.take("&&") || self.take("||") {
            self.skip_lines()?;
            if self.at >= self.text.len() || self.begins(")") || self.begins(";") {
                return self.no("an operator without a command");
            }
            if self.closer(&[])?.is_some() {
                return self.no("a reserved word");
            }
            return Ok(());
        }
        if self.begins(";;") || self.begins(")") || self.at >= self.text.len() {
            return Ok(());
        }
        if self.take(";") || self.take("&") {
            self.skip_blanks();
            return if self.begins(";") || self.begins("&") || self.begins("|") {
                self.no("an operator without a command")
            } else {
                Ok(())
            };
        }
        if self.begins("\n") {
            return self.newline();
        }
        self.no("a character that has no meaning there")
    }

    /// Commands with pipes between them.
    fn pipeline(&mut self) -> Plain<()> {
        let bash = self.dialect == Dialect::Bash;
        while self.prefix("!") || bash && self.prefix("time") {
            self.skip_blanks();
            if self.begins("-") {
                return self.no("an option of `time`");
            }
        }
        loop {
            self.command()?;
            self.skip_blanks();
            if self.begins("||") || !self.begins("|") {
                return Ok(());
            }
            self.at += 1;
            if self.begins("&") {
                if !bash {
                    return self.no("an operator of bash");
                }
                self.at += 1;
            }
            self.skip_lines()?;
        }
    }

    /// Takes a reserved word before a command.
    fn prefix(&mut self, word: &str) -> bool {
        let there = self.begins(word)
            && self.rest().get(word.len()..).is_some_and(|rest| rest.starts_with([' ', '\t']));
        if there {
            self.at += word.len();
            self.skip_blanks();
        }
        there
    }

    /// One command, simple or compound.
    fn command(&mut self) -> Plain<()> {
        if self.take("(") {
            if self.begins("(") {
                return self.no("arithmetic, or a subshell in a subshell without a blank");
            }
            self.list(&[])?;
            if !self.take(")") {
                return self.no("a parenthesis that is not closed");
            }
            return self.redirects_only();
        }
        let word = self.rest().split(is_end).next().unwrap_or_default();
        match word {
            "{" => {
                self.at += 1;
                self.list(&["}"])?;
            }
            "if" => self.conditional()?,
            "while" | "until" => {
                self.at += 5;
                self.list(&["do"])?.map_or_else(|| self.no("a loop without a body"), Ok)?;
                self.list(&["done"])?.map_or_else(|| self.no("a loop that does not end"), Ok)?;
            }
            "for" => self.repeated()?,
            "case" => self.chosen()?,
            "[[" if self.dialect == Dialect::Bash => self.condition()?,
            "function" | "select" | "coproc" | "time" | "in" | "!" | "[[" => {
                return self.no("a reserved word");
            }
            _ => return self.simple(),
        }
        self.redirects_only()
    }

    fn conditional(&mut self) -> Plain<()> {
        self.at += 2;
        loop {
            self.list(&["then"])?.map_or_else(|| self.no("`if` without `then`"), Ok)?;
            match self.list(&["elif", "else", "fi"])? {
                Some("elif") => {}
                Some("else") => {
                    self.list(&["fi"])?.map_or_else(|| self.no("`if` without `fi`"), Ok)?;
                    return Ok(());
                }
                Some(_) => return Ok(()),
                None => return self.no("`if` without `fi`"),
            }
        }
    }

    fn repeated(&mut self) -> Plain<()> {
        self.at += 3;
        self.skip_blanks();
        let name = self.lexeme()?;
        let Some(name) = name.bare().filter(|name| is_own(name)).map(str::to_owned) else {
            return self.no("a variable that is not the text's own");
        };
        self.own(&name)?;
        self.skip_blanks();
        if !self.prefix("in") {
            return self.no("`for` without `in`");
        }
        let mut numbers = true;
        while !self.begins(";") && !self.begins("\n") {
            let item = self.lexeme()?;
            numbers &= item.word.literal().is_some_and(is_number);
            self.skip_blanks();
        }
        self.note_value(&name, numbers);
        if self.begins(";;") {
            return self.no("an operator without a command");
        }
        if !self.take(";") {
            self.newline()?;
        }
        self.skip_lines()?;
        if self.closer(&["do"])? != Some("do") {
            return self.no("`for` without `do`");
        }
        self.list(&["done"])?.map_or_else(|| self.no("a loop that does not end"), Ok)?;
        Ok(())
    }

    fn chosen(&mut self) -> Plain<()> {
        self.at += 4;
        self.skip_blanks();
        self.lexeme()?;
        self.skip_lines()?;
        if !(self.begins("in\n") || self.begins("in ")) {
            return self.no("`case` without `in`");
        }
        self.at += 2;
        loop {
            self.skip_lines()?;
            if self.closer(&["esac"])?.is_some() {
                return Ok(());
            }
            self.take("(");
            loop {
                self.skip_blanks();
                let pattern = self.lexeme()?;
                if !matches!(pattern.word.form, Form::Literal | Form::Glob) {
                    return self.no("an expansion in a pattern");
                }
                self.skip_blanks();
                if !self.take("|") {
                    break;
                }
            }
            if !self.take(")") {
                return self.no("a pattern that does not end");
            }
            if self.list(&["esac"])?.is_some() {
                return Ok(());
            }
            if !self.take(";;") || self.begins("&") {
                return self.no("a clause that does not end with `;;`");
            }
        }
    }

    /// `[[ … ]]`: one test with an operator that is written out, and `&&`, `||`, `!` around such.
    fn condition(&mut self) -> Plain<()> {
        const UNARY: [&str; 15] = [
            "-e", "-f", "-d", "-s", "-r", "-w", "-x", "-h", "-L", "-p", "-S", "-b", "-c", "-n",
            "-z",
        ];
        self.at += 2;
        loop {
            self.skip_blanks();
            while self.prefix("!") {}
            let first = self.lexeme()?;
            self.skip_blanks();
            if first.bare().is_some_and(|operator| UNARY.contains(&operator)) {
                self.lexeme()?;
            } else if first.bare().is_some_and(|text| text.starts_with('-')) {
                return self.no("an operator of `[[`");
            } else {
                let operator = self.lexeme()?;
                if !matches!(operator.bare(), Some("=" | "==" | "!=" | "-nt" | "-ot" | "-ef")) {
                    return self.no("an operator of `[[`");
                }
                self.skip_blanks();
                self.lexeme()?;
            }
            self.skip_blanks();
            if self.take("&&") || self.take("||") {
                continue;
            }
            let rest = self.rest().strip_prefix("]]");
            if rest.is_none_or(|rest| !rest.is_empty() && !rest.starts_with(is_end)) {
                return self.no("an operator of `[[`");
            }
            self.at += 2;
            return Ok(());
        }
    }

    /// What may follow a compound command.
    fn redirects_only(&mut self) -> Plain<()> {
        let mut command = PlainCommand::default();
        loop {
            self.skip_blanks();
            if !self.redirect(&mut command)? {
                break;
            }
        }
        if !command.targets.is_empty() {
            self.commands.push(command);
        }
        Ok(())
    }

    /// Assignments, words and redirects.
    fn simple(&mut self) -> Plain<()> {
        let start = self.at;
        let mut command = PlainCommand::default();
        let mut assigned: Vec<(String, Option<String>)> = Vec::new();
        let mut lexemes: Vec<Lexeme> = Vec::new();
        loop {
            self.skip_blanks();
            if self.redirect(&mut command)? {
                continue;
            }
            if self.at >= self.text.len() || self.peek().is_some_and(is_end) {
                break;
            }
            let lexeme = self.lexeme()?;
            if let Some((name, value)) = assignment(&lexeme).filter(|_| lexemes.is_empty()) {
                let literal = lexeme.word.form == Form::Literal;
                self.note_value(&name, literal && is_number(&value));
                assigned.push((name, Some(value).filter(|_| literal)));
            } else {
                lexemes.push(lexeme);
            }
        }
        if lexemes.is_empty() && assigned.is_empty() && command.targets.is_empty() {
            self.at = start;
            return self.no("a command without a name");
        }
        for (name, value) in &assigned {
            let harmless = is_harmless_variable(name, value.as_deref());
            if !harmless && !lexemes.is_empty() {
                self.at = start;
                return self.no("a variable for a program that may act on it");
            }
            if !harmless {
                self.own(name)?;
            }
        }
        self.check_name(&lexemes, start)?;
        command.assigned = assigned.into_iter().map(|(name, _)| name).collect();
        command.words = lexemes.into_iter().map(|lexeme| lexeme.word).collect();
        self.commands.push(command);
        Ok(())
    }

    /// The name has to be written out; a builtin has to be one of the known ones.
    fn check_name(&mut self, lexemes: &[Lexeme], start: usize) -> Plain<()> {
        let Some((first, rest)) = lexemes.split_first() else { return Ok(()) };
        let Some(name) = first.word.literal() else {
            self.at = start;
            return self.no("a program's name that is known only after expansion");
        };
        let words: Vec<&Word> = rest.iter().map(|lexeme| &lexeme.word).collect();
        let known = match name {
            // An array element, a function, or something that no program is called.
            _ if name.is_empty() || name.contains(['[', ']', '=']) && name != "[" => false,
            ":" | "true" | "false" | "echo" | "pwd" | "cd" | "exit" | "return" | "break"
            | "continue" | "shift" | "type" | "times" | "umask" | "ulimit" | "kill" => true,
            "wait" => {
                words.iter().all(|word| word.literal().is_some_and(|it| !it.starts_with('-')))
            }
            "printf" => prints(&words),
            "test" => tests(&words),
            "[" => match words.split_last() {
                Some((last, rest)) => last.literal() == Some("]") && tests(rest),
                None => false,
            },
            "set" => sets(&words),
            "read" => return self.reads(&words, start),
            "unset" => return self.unsets(&words, start),
            "export" => exports(&words),
            "command" => looks_up(&words),
            _ => !is_builtin(name),
        };
        if known {
            return Ok(());
        }
        self.at = start;
        self.no("a builtin of the shell that can do more")
    }

    fn reads(&mut self, words: &[&Word], start: usize) -> Plain<()> {
        for word in words {
            match word.literal() {
                Some("-r") => {}
                Some(name) if is_own(name) => {
                    self.own(name)?;
                    self.note_value(name, false);
                }
                _ => {
                    self.at = start;
                    return self.no("`read` with more than `-r` and names of the text's own");
                }
            }
        }
        Ok(())
    }

    fn unsets(&mut self, words: &[&Word], start: usize) -> Plain<()> {
        let own = |word: &&Word| word.literal().is_some_and(is_own);
        if words.iter().all(own) {
            return Ok(());
        }
        self.at = start;
        self.no("`unset` of a variable that is not the text's own")
    }

    /// A variable that is set has to be the text's own.
    fn own(&mut self, name: &str) -> Plain<()> {
        if is_own(name) && !(self.is_in_environment)(name) {
            return Ok(());
        }
        self.no("a variable that the shell or a program reads")
    }

    fn note_value(&mut self, name: &str, is_number: bool) {
        let all = self.numbers.entry(name.to_owned()).or_insert(true);
        *all &= is_number;
    }

    /// Arithmetic evaluates what a variable holds: it may look only at what is a number for sure.
    fn check_numbers(&self) -> Plain<()> {
        let unknown = self.computed.iter().find(|(name, _)| self.numbers.get(name) != Some(&true));
        match unknown {
            Some((_, offset)) => {
                Err(NotPlain { what: "arithmetic over a variable of any value", offset: *offset })
            }
            None => Ok(()),
        }
    }

    /// Takes a redirect, if one is here.
    fn redirect(&mut self, command: &mut PlainCommand) -> Plain<bool> {
        let digits = self.rest().bytes().take_while(u8::is_ascii_digit).count();
        let after = self.rest().get(digits..).unwrap_or_default();
        let bash = self.dialect == Dialect::Bash;
        let operator = ["<<<", "<<-", "<<", "<&", "<>", ">>", ">&", ">|", "<", ">"]
            .into_iter()
            .find(|operator| after.starts_with(operator));
        let both = ["&>>", "&>"].into_iter().find(|operator| self.begins(operator));
        let Some(operator) = both.or(operator) else { return Ok(false) };
        if digits > 2 || !bash && (operator.starts_with('&') || operator == "<<<") {
            return self.no("a redirect of another shell");
        }
        if operator.starts_with('&') {
            self.at += operator.len();
        } else {
            self.at += digits + operator.len();
        }
        if matches!(operator, ">&" | "<&") {
            let rest = self.rest();
            let count = rest.bytes().take_while(u8::is_ascii_digit).count();
            let count = if rest.starts_with('-') { 1 } else { count };
            let ends =
                rest.get(count..).is_some_and(|rest| rest.is_empty() || rest.starts_with(is_end));
            if count == 0 || count > 2 || !ends {
                return self.no("a descriptor that is not written as a number");
            }
            self.at += count;
            return Ok(true);
        }
        self.skip_blanks();
        let target = self.lexeme()?;
        match operator {
            "<<" | "<<-" => {
                let Some(end) = target.word.literal().filter(|end| !end.is_empty()) else {
                    return self.no("the end of a here-document that is not written out");
                };
                let (end, tabs) = (end.to_owned(), operator == "<<-");
                self.documents.push(Pending { end, quoted: !target.bare, tabs });
            }
            "<<<" => {}
            _ => match target.word.literal() {
                Some(path) => command.targets.push(path.to_owned()),
                None => return self.no("a redirect to a file whose name is not written out"),
            },
        }
        Ok(true)
    }

    /// One word.
    fn lexeme(&mut self) -> Plain<Lexeme> {
        let start = self.at;
        let (mut text, mut form, mut bare, mut equals) = (String::new(), Form::Literal, true, None);
        while let Some(character) = self.peek() {
            match character {
                _ if is_end(character) => break,
                '\'' => {
                    let Some(length) = self.rest().get(1..).and_then(|rest| rest.find('\'')) else {
                        return self.no("a quote that is not closed");
                    };
                    let inside = self.rest().get(1..=length).unwrap_or_default();
                    keep(&mut text, form, inside);
                    self.at += length + 2;
                    bare = false;
                }
                '"' => {
                    bare = false;
                    self.double(&mut text, &mut form)?;
                }
                '\\' => {
                    bare = false;
                    self.at += 1;
                    match self.peek() {
                        Some(next) if next.is_ascii_graphic() || next == ' ' => {
                            keep(&mut text, form, next.encode_utf8(&mut [0; 4]));
                            self.at += 1;
                        }
                        _ => return self.no("a continued line in a word"),
                    }
                }
                '$' => {
                    self.dollar()?;
                    form = Form::Fields;
                }
                '{' | '}' => {
                    let alone = text.is_empty() && bare && self.at == start;
                    if self.take("{}") {
                        keep(&mut text, form, "{}");
                    } else if alone && character == '}' && self.ends_after(1) {
                        keep(&mut text, form, "}");
                        self.at += 1;
                    } else {
                        return self.no("a brace that may be expanded");
                    }
                }
                '*' | '?' | '[' | ']' => {
                    let alone = self.at == start && self.ends_after(1) && character != '*';
                    keep(&mut text, form, character.encode_utf8(&mut [0; 4]));
                    form = match form {
                        // `[` and `]` alone are the names that `test` goes by.
                        Form::Literal if alone && character != '?' => Form::Literal,
                        Form::Literal | Form::Glob => Form::Glob,
                        Form::Dynamic | Form::Fields => Form::Fields,
                    };
                    self.at += 1;
                }
                '~' if self.at == start
                    || self
                        .text
                        .get(..self.at)
                        .is_some_and(|before| before.ends_with(['=', ':'])) =>
                {
                    // Becomes the path of a home folder.
                    keep(&mut text, form, if self.at == start { "~" } else { "" });
                    form = Form::Dynamic;
                    self.at += 1;
                }
                '=' => {
                    if equals.is_none() && form == Form::Literal {
                        equals = Some(text.len()).filter(|_| bare);
                    }
                    keep(&mut text, form, "=");
                    self.at += 1;
                }
                'a'..='z' | 'A'..='Z' | '0'..='9' => self.one(&mut text, form, character),
                '_' | '-' | '.' | '/' | ',' | ':' | '+' | '@' | '%' | '^' | '!' | '~' => {
                    self.one(&mut text, form, character);
                }
                '#' if self.at > start => self.one(&mut text, form, character),
                _ => return self.no("a character that is not quoted"),
            }
        }
        if self.at == start {
            return self.no("a word that is missing");
        }
        let span = Span { start, end: self.at };
        Ok(Lexeme { word: Word { text, form, span }, bare, equals })
    }

    fn one(&mut self, text: &mut String, form: Form, character: char) {
        keep(text, form, character.encode_utf8(&mut [0; 4]));
        self.at += character.len_utf8();
    }

    /// Whether a word ends after this many bytes.
    fn ends_after(&self, bytes: usize) -> bool {
        self.rest().get(bytes..).is_some_and(|rest| rest.is_empty() || rest.starts_with(is_end))
    }

    /// The inside of double quotes.
    fn double(&mut self, text: &mut String, form: &mut Form) -> Plain<()> {
        self.at += 1;
        loop {
            match self.peek() {
                Some('"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some('\\') => {
                    let next = self.rest().chars().nth(1);
                    match next {
                        Some('$' | '`' | '"' | '\\') => {
                            keep(text, *form, next.unwrap_or_default().encode_utf8(&mut [0; 4]));
                            self.at += 2;
                        }
                        Some('\n') | None => return self.no("a continued line in a word"),
                        Some(_) => self.one(text, *form, '\\'),
                    }
                }
                Some('$') => {
                    let next = self.rest().chars().nth(1);
                    if matches!(next, Some('"' | ' ' | '|' | ')' | '/' | ',' | '.')) {
                        self.one(text, *form, '$');
                    } else {
                        self.dollar()?;
                        *form = match *form {
                            Form::Literal | Form::Dynamic => Form::Dynamic,
                            Form::Glob | Form::Fields => Form::Fields,
                        };
                    }
                }
                Some('`') => return self.no("a substitution"),
                Some(character) => self.one(text, *form, character),
                None => return self.no("a quote that is not closed"),
            }
        }
    }

    /// `$NAME`, `${NAME}`, `$1`, `$?`, `$#`, `$$`, `$!`, or arithmetic over numbers.
    fn dollar(&mut self) -> Plain<()> {
        let rest = self.rest();
        let inside = rest.get(1..).unwrap_or_default();
        let names = |text: &str| {
            text.bytes().take_while(|byte| *byte == b'_' || byte.is_ascii_alphanumeric()).count()
        };
        if let Some(braced) = inside.strip_prefix('{') {
            let count = names(braced);
            let name = braced.get(..count).unwrap_or_default();
            if !is_name(name) || !braced.get(count..).is_some_and(|rest| rest.starts_with('}')) {
                return self.no("an expansion that does more than to look up a variable");
            }
            self.at += count + 3;
            return Ok(());
        }
        if inside.starts_with("((") {
            return self.arithmetic();
        }
        let count = names(inside);
        let name = inside.get(..count).unwrap_or_default();
        if is_name(name) {
            self.at += 1 + count;
            return Ok(());
        }
        match inside.chars().next() {
            Some('1'..='9' | '?' | '#' | '$' | '!') => {
                self.at += 2;
                Ok(())
            }
            Some('(' | '{') => self.no("a substitution"),
            _ => self.no("a dollar that is not quoted"),
        }
    }

    fn arithmetic(&mut self) -> Plain<()> {
        self.at += 3;
        let mut open = 0_usize;
        loop {
            let Some(next) = self.peek() else { return self.no("arithmetic that is not closed") };
            match next {
                ')' if open == 0 => break,
                ')' => open -= 1,
                '(' => open += 1,
                ' ' | '*' | '/' | '%' => {}
                '+' | '-' if !self.begins("++") && !self.begins("--") => {}
                '0'..='9' => {}
                '_' | 'a'..='z' | 'A'..='Z' | '$' => {
                    let offset = self.at;
                    self.take("$");
                    let count = self
                        .rest()
                        .bytes()
                        .take_while(|byte| *byte == b'_' || byte.is_ascii_alphanumeric())
                        .count();
                    let name = self.rest().get(..count).unwrap_or_default();
                    if !is_own(name) {
                        return self.no("arithmetic over a variable of any value");
                    }
                    self.computed.push((name.to_owned(), offset));
                    self.at += count;
                    continue;
                }
                _ => return self.no("an operator of arithmetic"),
            }
            self.at += 1;
        }
        if !self.take("))") {
            return self.no("arithmetic that is not closed");
        }
        Ok(())
    }
}

/// Keeps what is known of a word: all before the first expansion.
fn keep(text: &mut String, form: Form, piece: &str) {
    if matches!(form, Form::Literal | Form::Glob) {
        text.push_str(piece);
    }
}

/// Whether a word ends before this character.
fn is_end(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\n' | ';' | '&' | '|' | '(' | ')' | '<' | '>')
}

/// What is decimal and nothing else; a leading zero would make it octal.
fn is_number(text: &str) -> bool {
    text == "0"
        || (1..=18).contains(&text.len())
            && !text.starts_with('0')
            && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The name and the value of a word that sets a variable before a command.
fn assignment(lexeme: &Lexeme) -> Option<(String, String)> {
    let (name, value) = lexeme.word.text.split_at_checked(lexeme.equals?)?;
    let name = name.strip_suffix('+').unwrap_or(name);
    is_name(name).then(|| (name.to_owned(), value.get(1..).unwrap_or_default().to_owned()))
}

/// Whether a word can be no option: it is written out, or its beginning is.
fn is_operand(word: &Word) -> bool {
    match word.form {
        Form::Literal => !word.text.starts_with('-'),
        Form::Dynamic => !word.text.is_empty() && !word.text.starts_with('-'),
        Form::Glob | Form::Fields => false,
    }
}

/// `printf` prints, unless it is told to set a variable.
fn prints(words: &[&Word]) -> bool {
    match words.split_first() {
        Some((first, _)) if first.literal() == Some("--") => true,
        Some((first, _)) => is_operand(first),
        None => false,
    }
}

/// `test` with operators that are written out; `-v` and `-R` evaluate subscripts.
fn tests(words: &[&Word]) -> bool {
    const UNARY: [&str; 21] = [
        "-a", "-b", "-c", "-d", "-e", "-f", "-g", "-h", "-k", "-L", "-n", "-O", "-p", "-r", "-s",
        "-S", "-t", "-u", "-w", "-x", "-z",
    ];
    const BINARY: [&str; 12] =
        ["=", "==", "!=", "-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-nt", "-ot", "-ef"];
    let single = |word: &&&Word| matches!(word.form, Form::Literal | Form::Dynamic);
    if !words.iter().all(|word| single(&word)) {
        return false;
    }
    let is = |word: &Word, known: &[&str]| word.literal().is_some_and(|text| known.contains(&text));
    match words {
        [] | [_] => true,
        [first, _] => is(first, &UNARY) || first.literal() == Some("!"),
        [_, operator, _] if is(operator, &BINARY) => true,
        [first, operator, _] => first.literal() == Some("!") && is(operator, &UNARY),
        [first, _, operator, _] => first.literal() == Some("!") && is(operator, &BINARY),
        _ => false,
    }
}

/// `set` with options that change only how errors are treated and what is shown.
fn sets(words: &[&Word]) -> bool {
    let texts: Option<Vec<&str>> = words.iter().map(|word| word.literal()).collect();
    let Some(texts) = texts else { return false };
    let letters = |text: &str| {
        text.strip_prefix(['-', '+'])
            .is_some_and(|rest| !rest.is_empty() && rest.chars().all(|it| "eufxo".contains(it)))
    };
    let mut known = !texts.is_empty();
    let mut texts = texts.into_iter();
    while let Some(text) = texts.next() {
        known &= letters(text);
        if text.ends_with('o') {
            let named = ["pipefail", "errexit", "nounset", "xtrace", "noglob"];
            known &= texts.next().is_some_and(|option| named.contains(&option));
        }
    }
    known
}

/// `export` of variables that nobody acts on.
fn exports(words: &[&Word]) -> bool {
    !words.is_empty()
        && words.iter().all(|word| {
            let (name, value) = word.text.split_once('=').unwrap_or((&word.text, ""));
            let literal = word.form == Form::Literal;
            let known = literal || word.text.contains('=') && word.form == Form::Dynamic;
            known && is_harmless_variable(name, Some(value).filter(|_| literal))
        })
}

/// `command -v NAME`, or a program whose name is written out.
fn looks_up(words: &[&Word]) -> bool {
    match words.split_first() {
        Some((first, rest)) if matches!(first.literal(), Some("-v" | "-V")) => {
            rest.iter().all(|word| is_operand(word))
        }
        Some((first, _)) => first
            .literal()
            .is_some_and(|name| !name.starts_with('-') && !is_builtin(name) && !name.is_empty()),
        None => false,
    }
}

/// Whether a shell has a builtin of this name; whatever is not in the list of known ones is none of
/// the harmless.
pub(crate) fn is_builtin(name: &str) -> bool {
    static BUILTINS: std::sync::LazyLock<HashSet<&'static str>> = std::sync::LazyLock::new(|| {
        "! . : [ [[ alias bg bind break builtin caller case cd chdir command compgen complete compopt continue coproc \
         declare dirs disown do done echo elif else enable esac eval exec exit export false fc fg fi for function \
         getopts hash help history if in jobs kill let local logout mapfile popd printf pushd pwd read readarray \
         readonly return select set shift shopt source suspend test then time times trap true type typeset ulimit \
         umask unalias unset until wait while { }"
            .split_ascii_whitespace()
            .collect()
    });
    BUILTINS.contains(name)
}
