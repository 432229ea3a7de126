//! The rules in force, built from layers of TOML; every mistake is told with its place and its
//! remedy.

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use crate::{
    keys::{hint, is_section, names_in, nearest},
    matching::Certainty,
    names::{ConnectRule, NetworkMode, check_names},
    read,
    reading::Invocation,
    rule::{Decision, Level, Origin, RedirectScope, Rule, Target},
    settings::Values,
    verdict::Trust,
    windows::is_absolute,
};

/// The decision of a rule that has a command tried on a copy before anybody is asked.
const TRY: &str = "try";

/// Parts of the names of tools that run commands, whoever's they are.
const RUNS_COMMANDS: [&str; 6] = ["shell", "bash", "exec", "command", "cmd", "terminal"];

/// How strict the gate is by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Nobody is asked; deny rules still hold.
    Open,
    /// Each tool has its default.
    #[default]
    Guarded,
    /// What no rule allows is asked for, whatever the tool.
    Strict,
}

impl Mode {
    /// How the modes are called where only asking is meant: `ask` and `--ask`.
    pub const ASKS: [&'static str; 3] = ["never", "guarded", "strict"];

    /// The mode that asks like this.
    pub fn asking(name: &str) -> Option<Self> {
        match name {
            "never" => Some(Self::Open),
            "guarded" => Some(Self::Guarded),
            "strict" => Some(Self::Strict),
            _ => None,
        }
    }

    /// How it asks.
    pub fn asks(self) -> &'static str {
        match self {
            Self::Open => "never",
            Self::Guarded => "guarded",
            Self::Strict => "strict",
        }
    }
}

/// A file of rules.
#[derive(Debug, Clone, Copy)]
pub struct Layer<'t> {
    /// Where it comes from.
    pub origin: Origin,
    /// The file's name, for errors.
    pub name: &'t str,
    /// What is in it.
    pub text: &'t str,
}

/// A mistake in a file of rules.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: {problem}; {remedy}")]
pub struct PolicyError {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// What is wrong.
    pub problem: String,
    /// What to write instead.
    pub remedy: String,
}

/// The rules in force.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policy {
    pub(crate) rules: Vec<Rule>,
    pub(crate) connects: Vec<ConnectRule>,
    pub(crate) mode: Mode,
    windows: bool,
    ignored: Vec<PolicyError>,
}

impl Policy {
    /// Builds the rules from layers, first to last; any mistake in any of them is an error.
    pub fn from_layers(layers: &[Layer<'_>], mode: Mode) -> Result<Self, PolicyError> {
        let mut policy = Self { mode, ..Self::default() };
        for layer in layers {
            LayerReader { layer }.read_into(&mut policy)?;
        }
        check_names(layers)?;
        Ok(policy)
    }

    /// The same policy for Windows, where one program has many names.
    #[must_use]
    pub fn for_windows(mut self) -> Self {
        self.windows = true;
        self.rules = self.rules.into_iter().map(Rule::for_windows).collect();
        self
    }

    /// Whether names are compared as Windows does.
    pub(crate) fn is_for_windows(&self) -> bool {
        self.windows
    }

    /// What the files name that has no effect here: tools of other programs.
    pub fn ignored(&self) -> &[PolicyError] {
        &self.ignored
    }

    /// The rules on names.
    pub fn connects(&self) -> &[ConnectRule] {
        &self.connects
    }

    /// The mode.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The same rules in another mode.
    #[must_use]
    pub fn in_mode(self, mode: Mode) -> Self {
        Self { mode, ..self }
    }

    /// Whether a rule of the user denies or asks for anything, so that something could be evaded.
    pub(crate) fn restricts(&self) -> bool {
        self.rules.iter().any(|rule| rule.decision > Decision::Allow)
    }

    /// Whether a rule says how far its command is to be confined.
    pub(crate) fn confines(&self) -> bool {
        self.rules.iter().any(|rule| rule.sandbox.is_some())
    }

    /// Whether a rule says which network its command has.
    pub(crate) fn speaks_of_network(&self) -> bool {
        self.rules.iter().any(|rule| rule.network.is_some())
    }
}

/// A value with its place.
pub(crate) type Placed<'i> = Spanned<DeValue<'i>>;

/// Reads one layer.
pub(crate) struct LayerReader<'l, 't> {
    pub layer: &'l Layer<'t>,
}

impl<'t> LayerReader<'_, 't> {
    /// Parses the layer.
    pub(crate) fn parse(&self) -> Result<Spanned<DeTable<'t>>, PolicyError> {
        DeTable::parse(self.layer.text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            self.error(at, error.message(), "write valid TOML")
        })
    }

    /// Reads all rules of the layer, and checks everything else in it.
    fn read_into(&self, policy: &mut Policy) -> Result<(), PolicyError> {
        let table = self.parse()?;
        let table = table.get_ref();
        self.check_keys(table, "")?;
        for (key, value) in table {
            match key.get_ref().as_ref() {
                "rule" => self.read_rules(value, &mut policy.rules)?,
                "connect" => self.read_connects(value, &mut policy.connects)?,
                "coreTools" => self.read_short_forms(value, Decision::Allow, policy)?,
                "excludeTools" => self.read_short_forms(value, Decision::Deny, policy)?,
                "place" => self.check_places(value)?,
                section if is_section(section) => self.check_section(section, value)?,
                name => self.setting("", name, value, &mut Values::default())?,
            }
        }
        Ok(())
    }

    /// An error at a byte of the file.
    pub(crate) fn error(&self, at: usize, problem: &str, remedy: &str) -> PolicyError {
        let before = self.layer.text.get(..at).unwrap_or(self.layer.text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        PolicyError {
            file: self.layer.name.to_owned(),
            line: before.matches('\n').count() + 1,
            column: before.get(line_start..).unwrap_or_default().chars().count() + 1,
            problem: problem.to_owned(),
            remedy: remedy.to_owned(),
        }
    }

    /// Rejects keys that are not known in a table.
    pub(crate) fn check_keys(&self, table: &DeTable<'_>, section: &str) -> Result<(), PolicyError> {
        let known = names_in(section);
        for (key, value) in table {
            let name = key.get_ref().as_ref();
            if !known.contains(&name) {
                let problem = format!("unknown key `{name}`");
                let mode = value.get_ref().as_str().filter(|_| name == "mode");
                let remedy = mode.and_then(mode_as_keys).unwrap_or_else(|| hint(section, name));
                return Err(self.error(key.span().start, &problem, &remedy));
            }
        }
        Ok(())
    }

    /// Checks the places.
    fn check_places(&self, value: &Placed<'_>) -> Result<(), PolicyError> {
        let DeValue::Table(table) = value.get_ref() else {
            let remedy = "write `[place.NAME]` on a line of its own";
            return Err(self.error(value.span().start, "`place` is not a table", remedy));
        };
        self.places(table, &mut Values::default())
    }

    /// Checks the keys of a section that others use.
    fn check_section(&self, section: &str, value: &Placed<'_>) -> Result<(), PolicyError> {
        let DeValue::Table(table) = value.get_ref() else {
            let problem = format!("`{section}` is not a table");
            let remedy = format!("write `[{section}]` on a line of its own");
            return Err(self.error(value.span().start, &problem, &remedy));
        };
        self.check_keys(table, section)?;
        self.section(section, table, &mut Values::default())
    }

    /// The array that a value has to be.
    pub(crate) fn array<'v, 'i>(
        &self,
        value: &'v Placed<'i>,
        key: &str,
    ) -> Result<impl Iterator<Item = &'v Placed<'i>>, PolicyError> {
        if let DeValue::Array(array) = value.get_ref() {
            return Ok(array.iter());
        }
        let problem = format!("`{key}` is not a list");
        Err(self.error(value.span().start, &problem, "write it as `[\"…\", \"…\"]`"))
    }

    /// The string that a value has to be.
    pub(crate) fn string<'v>(
        &self,
        value: &'v Placed<'_>,
        key: &str,
    ) -> Result<&'v str, PolicyError> {
        value.get_ref().as_str().ok_or_else(|| {
            let problem = format!("`{key}` is not a string");
            self.error(value.span().start, &problem, "write it in double quotes")
        })
    }

    /// The list of strings that a value has to be.
    pub(crate) fn strings(
        &self,
        value: &Placed<'_>,
        key: &str,
    ) -> Result<Vec<String>, PolicyError> {
        self.array(value, key)?.map(|item| self.string(item, key).map(str::to_owned)).collect()
    }

    /// Rejects what would loosen in a file that can only tighten.
    pub(crate) fn check_direction(&self, decision: Decision, at: usize) -> Result<(), PolicyError> {
        if decision == Decision::Allow && self.layer.origin == Origin::Project {
            let remedy = "move it to the user's file, or write `deny` or `ask`";
            return Err(self.error(at, "a project's file cannot allow anything", remedy));
        }
        Ok(())
    }

    /// Reads `coreTools` or `excludeTools`.
    fn read_short_forms(
        &self,
        value: &Placed<'_>,
        decision: Decision,
        policy: &mut Policy,
    ) -> Result<(), PolicyError> {
        let key = if decision == Decision::Allow { "coreTools" } else { "excludeTools" };
        for item in self.array(value, key)? {
            let text = self.string(item, key)?;
            self.check_direction(decision, item.span().start)?;
            if let Some(tool) = foreign_tool(text) {
                let problem =
                    format!("`{text}` is no tool of Legwork, so this entry of `{key}` is ignored");
                let remedy = format!("a program is written `run_shell_command({tool})`");
                policy.ignored.push(self.error(item.span().start, &problem, &remedy));
                continue;
            }
            let rule = short_form(text, decision).ok_or_else(|| {
                let problem = format!("`{text}` is not understood");
                let remedy = "write `run_shell_command`, `run_shell_command(git status)`, \
                    `ExecCommand(…)`, `execute_command(…)` or `Bash(cargo test:*)`";
                self.error(item.span().start, &problem, remedy)
            })?;
            policy.rules.push(rule);
        }
        Ok(())
    }

    /// Reads every `[[rule]]`.
    fn read_rules(&self, value: &Placed<'_>, rules: &mut Vec<Rule>) -> Result<(), PolicyError> {
        for item in self.array(value, "rule")? {
            let DeValue::Table(table) = item.get_ref() else {
                return Err(self.error(
                    item.span().start,
                    "a rule is not a table",
                    "write `[[rule]]`",
                ));
            };
            self.check_keys(table, "rule")?;
            let rule = self.read_rule(table, item.span().start, rules.len())?;
            self.check_examples(table, &rule)?;
            rules.push(rule);
        }
        Ok(())
    }

    /// Reads one `[[rule]]`.
    fn read_rule(&self, table: &DeTable<'_>, at: usize, count: usize) -> Result<Rule, PolicyError> {
        let text = |key: &str| -> Result<Option<(&str, usize)>, PolicyError> {
            let Some(value) = table.get(key) else { return Ok(None) };
            Ok(Some((self.string(value, key)?, value.span().start)))
        };
        let missing =
            |key: &str, remedy: &str| self.error(at, &format!("a rule has no `{key}`"), remedy);
        let (decision, decision_at) = text("decision")?.ok_or_else(|| {
            missing("decision", "write `decision = \"allow\"`, `\"try\"`, `\"ask\"` or `\"deny\"`")
        })?;
        let tries = decision == TRY;
        let decision = self.decision(decision, decision_at)?;
        self.check_direction(decision, decision_at)?;
        let (name, _) =
            text("program")?.ok_or_else(|| missing("program", "write `program = \"git\"`"))?;
        let redirect = match text("redirect")? {
            Some((redirect, at)) => self.redirect(redirect, at)?,
            None => RedirectScope::None,
        };
        let deny_flags = match table.get("deny_flags") {
            Some(value) => self.strings(value, "deny_flags")?,
            None => Vec::new(),
        };
        Ok(Rule {
            id: text("id")?.map_or_else(|| format!("rule-{}", count + 1), |(id, _)| id.to_owned()),
            decision,
            tool: text("tool")?.map(|(tool, _)| tool.to_owned()),
            workspace: text("workspace")?
                .map(|(path, at)| self.workspace(path, at, decision))
                .transpose()?,
            trust: text("trust")?.map(|(name, at)| self.trust(name, at, decision)).transpose()?,
            target: Target::Program { name: name.to_owned(), args: self.args(table)? },
            exact: self.flag(table, "exact")?,
            deny_flags,
            redirect,
            sandbox: text("sandbox")?.map(|(level, at)| self.sandbox(level, at)).transpose()?,
            network: text("network")?.map(|(mode, at)| self.network(mode, at)).transpose()?,
            because: text("because")?.map(|(because, _)| because.to_owned()),
            short: false,
            tries,
            windows: false,
        })
    }

    /// Reads the workspace that an allow is for.
    pub(crate) fn workspace(
        &self,
        path: &str,
        at: usize,
        decision: Decision,
    ) -> Result<String, PolicyError> {
        self.check_narrowing("workspace", at, decision)?;
        let on_windows = is_absolute(path);
        if !path.starts_with('/') && !on_windows {
            let problem = format!("the workspace `{path}` is not an absolute path");
            return Err(self.error(
                at,
                &problem,
                "write the whole path, as in `\"/home/me/project\"`",
            ));
        }
        if on_windows {
            return Ok(path.to_owned());
        }
        let path = path.trim_end_matches('/');
        Ok(if path.is_empty() { "/".into() } else { path.to_owned() })
    }

    /// Reads the least trust that an allow is for.
    pub(crate) fn trust(
        &self,
        name: &str,
        at: usize,
        decision: Decision,
    ) -> Result<Trust, PolicyError> {
        self.check_narrowing("trust", at, decision)?;
        Trust::from_name(name).ok_or_else(|| self.choice(name, at, &Trust::NAMES))
    }

    /// Rejects what narrows a rule down in one that is to be as wide as can be.
    fn check_narrowing(&self, key: &str, at: usize, decision: Decision) -> Result<(), PolicyError> {
        if decision == Decision::Allow {
            return Ok(());
        }
        let problem = format!("`{key}` is only for rules that allow");
        Err(self.error(
            at,
            &problem,
            "leave it out: a deny or an ask counts everywhere, for everybody",
        ))
    }

    /// Reads a value that is true or false; absent is false.
    fn flag(&self, table: &DeTable<'_>, key: &str) -> Result<bool, PolicyError> {
        table.get(key).map_or(Ok(false), |value| self.flag_value(value, key))
    }

    /// The truth that a value has to be.
    pub(crate) fn flag_value(&self, value: &Placed<'_>, key: &str) -> Result<bool, PolicyError> {
        let DeValue::Boolean(flag) = value.get_ref() else {
            let problem = format!("`{key}` is neither true nor false");
            return Err(self.error(value.span().start, &problem, "write `true` or `false`"));
        };
        Ok(*flag)
    }

    /// Reads what a rule decides.
    fn decision(&self, text: &str, at: usize) -> Result<Decision, PolicyError> {
        match text {
            "allow" => Ok(Decision::Allow),
            // It is asked about with what it would change.
            "ask" | TRY => Ok(Decision::Ask),
            "deny" => Ok(Decision::Deny),
            _ => Err(self.choice(text, at, &["allow", TRY, "ask", "deny"])),
        }
    }

    /// Reads which redirects a rule covers.
    fn redirect(&self, text: &str, at: usize) -> Result<RedirectScope, PolicyError> {
        match text {
            "none" => Ok(RedirectScope::None),
            "workspace" => Ok(RedirectScope::Workspace),
            "any" => Ok(RedirectScope::Any),
            _ => Err(self.choice(text, at, &["none", "workspace", "any"])),
        }
    }

    /// Reads which sandbox a rule wants.
    fn sandbox(&self, text: &str, at: usize) -> Result<Level, PolicyError> {
        match Level::from_name(text) {
            Some(level) if self.layer.origin == Origin::Project && level != Level::ReadOnly => {
                let problem = "a project's file may only tighten";
                Err(self.error(
                    at,
                    problem,
                    "write `\"read-only\"`, or put the rule into your own file",
                ))
            }
            Some(level) => Ok(level),
            None => Err(self.choice(text, at, &Level::ALL.map(Level::as_str))),
        }
    }

    /// Reads which network a rule's command has.
    fn network(&self, text: &str, at: usize) -> Result<NetworkMode, PolicyError> {
        NetworkMode::from_name(text).ok_or_else(|| self.choice(text, at, &NetworkMode::NAMES))
    }

    /// The error of a value that is none of a few.
    pub(crate) fn choice(&self, text: &str, at: usize, known: &[&str]) -> PolicyError {
        let mode = || mode_as_keys(text).filter(|_| known == NetworkMode::NAMES);
        let remedy = match nearest(text, known) {
            Some(near) => format!("did you mean `\"{near}\"`?"),
            None => mode().unwrap_or_else(|| format!("write one of: {}", known.join(", "))),
        };
        self.error(at, &format!("`{text}` is not known here"), &remedy)
    }

    /// Alternatives for each word after the program; a string is a list of one.
    fn args(&self, table: &DeTable<'_>) -> Result<Vec<Vec<String>>, PolicyError> {
        let Some(value) = table.get("args") else { return Ok(Vec::new()) };
        let alternatives = |item: &Placed<'_>| match item.get_ref() {
            DeValue::String(text) => Ok(vec![text.to_string()]),
            _ => self.strings(item, "args"),
        };
        self.array(value, "args")?.map(alternatives).collect()
    }

    /// Checks the examples of a rule.
    fn check_examples(&self, table: &DeTable<'_>, rule: &Rule) -> Result<(), PolicyError> {
        for (key, expected) in [("match", true), ("no_match", false)] {
            let Some(value) = table.get(key) else { continue };
            for item in self.array(value, key)? {
                let example = self.string(item, key)?;
                if is_matched(rule, example) != expected {
                    let verb = if expected { "is not" } else { "is" };
                    let problem =
                        format!("the example `{example}` {verb} matched by `{}`", rule.id);
                    let remedy = "correct the example, or the rule's program, args or deny_flags";
                    return Err(self.error(item.span().start, &problem, remedy));
                }
            }
        }
        Ok(())
    }
}

/// Whether a rule matches an example: an allow all of it, others any part.
fn is_matched(rule: &Rule, example: &str) -> bool {
    let reading = read(example);
    let redirects =
        |run: &Invocation| reading.commands.get(run.command).map(|command| &command.redirects);
    if rule.decision == Decision::Allow {
        return reading.understood
            && !reading.runs.is_empty()
            && reading.runs.iter().all(|run| {
                rule.covers(run, &redirects(run).into_iter().flatten().collect::<Vec<_>>())
            });
    }
    reading.runs.iter().any(|run| rule.speaks_of(run, None) == Certainty::Yes)
}

/// The name of another program's tool in an entry: `read_file`, `read_file(src)`. One that is
/// nearly ours was meant to be ours.
fn foreign_tool(text: &str) -> Option<&str> {
    let (name, inside) = match text.trim().split_once('(') {
        Some((name, rest)) => (name, Some(rest.strip_suffix(')')?)),
        None => (text.trim(), None),
    };
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.:/".contains(&byte);
    let begins = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic());
    // What is in the parentheses of a tool that runs commands is a program, and its deny would be
    // lost.
    let folded = name.to_lowercase();
    let runs = inside.is_some() && RUNS_COMMANDS.iter().any(|part| folded.contains(part));
    let foreign = begins && name.bytes().all(is_name) && !runs;
    (foreign && !crate::data::is_nearly_short_form(name)).then_some(name)
}

/// Reads a short form like `run_shell_command(git status)` or `Bash(cargo test:*)`.
fn short_form(text: &str, decision: Decision) -> Option<Rule> {
    let text = text.trim();
    let (tool, inside) = match text.split_once('(') {
        Some((tool, rest)) => (tool.trim(), Some(rest.strip_suffix(')')?.trim())),
        None => (text, None),
    };
    let tool = Some(crate::data::short_form(tool)?).filter(|tool| !tool.is_empty());
    let words = inside.map(|inside| inside.trim_end_matches(":*").trim_end_matches(" *"));
    let target = match words {
        None | Some("*") => Target::Everything,
        Some(words) => program_of(words)?,
    };
    // A deny of a program counts for every tool; a deny of everything is about the tool that it
    // names.
    let everything = target == Target::Everything;
    let tool = tool.filter(|_| decision == Decision::Allow || everything).map(str::to_owned);
    let redirect = if everything { RedirectScope::Any } else { RedirectScope::None };
    Some(Rule {
        id: text.to_owned(),
        decision,
        tool,
        workspace: None,
        trust: None,
        target,
        deny_flags: Vec::new(),
        redirect,
        sandbox: None,
        network: None,
        because: None,
        exact: false,
        short: !everything,
        tries: false,
        windows: false,
    })
}

/// The program and the words of a short form, read like a command.
fn program_of(text: &str) -> Option<Target> {
    let reading = read(text);
    let [command] = reading.commands.as_slice() else { return None };
    let mut words = command.words.iter().map(|word| word.text.clone());
    let name = words.next().filter(|name| !name.is_empty() && reading.understood)?;
    Some(Target::Program { name, args: words.map(|word| vec![word]).collect() })
}

/// The keys that say in a file what a mode says on the command line.
fn mode_as_keys(mode: &str) -> Option<String> {
    let ask = |asks: &str| format!("write `ask = \"{asks}\"` above the first section");
    match mode {
        "strict" | "guarded" => Some(ask(mode)),
        "open" => Some(format!("{}, and `level = \"none\"` into `[sandbox]`", ask("never"))),
        _ => None,
    }
}
