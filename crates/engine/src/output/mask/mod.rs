//! Secrets are not shown: the values of secret variables, and what looks like a token, become
//! `[masked:NAME]`.
//!
//! Bytes become text in few places of this folder, and each of them asks the mask first. What
//! matters is searched as a terminal would show it if nothing were ever overwritten: a colour or a
//! carriage return in the middle hides no secret. The beginning of a secret at the end of an output
//! that grows is held back, and what a piece begins with is known from the bytes before it, so that
//! no cut, page or piece shows a part of one.

mod cells;
mod names;
mod patterns;
mod scan;
mod shared;
mod spelled;
mod stream;
mod values;

use std::{
    borrow::Cow,
    fmt,
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use aho_corasick::AhoCorasick;
use serde_json::{Map, Value as Json};

pub(super) use cells::marked;
pub(super) use scan::{Scan, with_markers};
pub use shared::SharedMask;
pub use stream::{MaskedStream, MaskedWriter};

use patterns::{PATTERN_BYTES_MAX, Pattern, shipped};
use values::Value;

/// Room for control sequences inside a secret that is searched for behind a place.
const LEAD_BYTES: usize = 4096;

/// As long as there is no automaton, texts up to this length are searched for one word after the
/// other: making one takes as long as hundreds of these.
const SHORT_BYTES: usize = 512;

/// After this many of them there will be more.
const SHORT_TEXTS_MAX: usize = 16;

/// What must not be shown.
#[derive(Default)]
pub struct Mask {
    /// The variables that hold secrets, with their values.
    secrets: Vec<(String, String)>,
    built: OnceLock<Built>,
}

/// What is made of the variables when a text is looked at for the first time.
#[derive(Default)]
struct Built {
    values: Vec<Value>,
    /// Beginnings of patterns.
    begins: Vec<(&'static str, &'static Pattern)>,
    /// Finds values and beginnings, in this order. None if it could not be built.
    finder: OnceLock<Option<AhoCorasick>>,
    /// How many texts were searched without it.
    short_texts: AtomicUsize,
    reach: usize,
}

/// One of the words that are searched for, in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Hit {
    word: usize,
    start: usize,
    end: usize,
}

/// A secret in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FoundSecret<'a> {
    pub start: usize,
    pub end: usize,
    pub name: &'a str,
}

impl FoundSecret<'_> {
    /// What is shown in its place.
    pub(super) fn marker(&self) -> String {
        format!("[masked:{}]", self.name)
    }

    /// The same in a longer text.
    fn shifted(self, by: usize) -> Self {
        Self { start: self.start + by, end: self.end + by, ..self }
    }
}

impl Mask {
    /// Masks the secrets among these variables, and what looks like one.
    pub fn new(variables: &[(String, String)]) -> Self {
        let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        let secrets = names::secrets(variables).into_iter().map(owned).collect();
        Self { secrets, built: OnceLock::new() }
    }

    /// Masks nothing: for a caller who is to have the exact text.
    pub fn none() -> Self {
        Self { secrets: Vec::new(), built: OnceLock::from(Built::default()) }
    }

    /// Masks the secrets of this process's own environment.
    pub fn of_environment() -> Self {
        let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
        let variables = std::env::vars_os().map(|(name, value)| (text(name), text(value)));
        Self::new(&variables.collect::<Vec<_>>())
    }

    /// The same with more variables; none if there is no secret among them that is not known.
    pub(crate) fn with(&self, variables: &[(String, String)]) -> Option<Self> {
        let mut more = Self::new(variables).secrets;
        more.retain(|secret| !self.secrets.contains(secret));
        let secrets = || self.secrets.iter().cloned().chain(more.clone()).collect();
        (!more.is_empty()).then(|| Self { secrets: secrets(), built: OnceLock::new() })
    }

    fn built(&self) -> &Built {
        self.built.get_or_init(|| Built::new(&self.secrets))
    }

    /// How many bytes before a place can matter for what is behind it.
    pub(super) fn reach(&self) -> usize {
        self.built().reach
    }

    /// The secrets in a plain text, in order and apart.
    pub(super) fn find(&self, text: &str) -> Vec<FoundSecret<'_>> {
        self.search(text, false).0
    }

    /// The secrets in a plain text that may go on, and where one may have begun that it does not
    /// finish.
    pub(super) fn find_open(&self, text: &str) -> (Vec<FoundSecret<'_>>, usize) {
        let (mut found, mut held) = self.search(text, true);
        for value in &self.built().values {
            held = held.min(text.len() - value.begun(text));
        }
        // What is found and what is held back may overlap: then all of it is.
        while let Some(last) = found.pop_if(|last| last.end > held) {
            held = held.min(last.start);
        }
        (found, held)
    }

    /// The names of the values of which at least the first half is at the end of a text, and where
    /// it begins.
    pub(super) fn half(&self, text: &str) -> Option<FoundSecret<'_>> {
        let begun = self.built().values.iter().filter_map(|value| {
            let start = text.len() - value.begun(text);
            let is_half = 2 * (text.len() - start) >= value.text.len();
            is_half.then_some(FoundSecret { start, end: text.len(), name: &value.name })
        });
        begun.min_by_key(|found| found.start)
    }

    fn search(&self, text: &str, open: bool) -> (Vec<FoundSecret<'_>>, usize) {
        let built = self.built();
        let Some(hits) = built.hits(text) else {
            // Nothing can be told from a secret: nothing is shown.
            return (
                vec![FoundSecret { start: 0, end: text.len(), name: "everything" }],
                text.len(),
            );
        };
        let (mut found, mut by_pattern, mut held) = (Vec::new(), Vec::new(), text.len());
        for Hit { word, start, end } in hits {
            if let Some(value) = built.values.get(word) {
                found.push(FoundSecret { start, end, name: &value.name });
            } else if let Some((_, pattern)) = built.begins.get(word - built.values.len()) {
                if let Some(secret) = pattern.secret(text, start) {
                    let (start, end) = (secret.start, secret.end);
                    by_pattern.push(FoundSecret { start, end, name: pattern.name });
                }
                if open && start < held && pattern.is_open(text, start) {
                    held = start;
                }
            }
        }
        // Of two names for the same, a variable's says more.
        found.append(&mut by_pattern);
        (apart(found), held)
    }

    /// The lines of a screen with their secrets masked; each with whether the next one goes on with
    /// it.
    ///
    /// A secret can go over several lines. What ends a line may be cut off by the screen's edge, or
    /// just be drawn: half a secret counts as one there.
    pub(super) fn lines(&self, lines: &[(String, bool)]) -> Vec<String> {
        let (mut text, mut begins, mut halves) = (String::new(), Vec::new(), Vec::new());
        let mut whole = 0;
        for (line, goes_on) in lines {
            begins.push(text.len());
            text.push_str(line);
            if !goes_on {
                let half = self.half(text.get(whole..).unwrap_or_default());
                halves.extend(half.map(|found| found.shifted(whole)));
                text.push('\n');
                whole = text.len();
            }
        }
        begins.push(text.len());
        let mut found = self.find(&text);
        found.extend(halves);
        let found = apart(found);
        let shown = begins.windows(2).map(|ends| match ends {
            [from, to] => clipped(&text, &found, *from, *to),
            _ => String::new(),
        });
        shown.collect()
    }

    /// A text with its secrets masked.
    pub fn text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let secrets = Scan::of(self, text.as_bytes(), 0, super::clean::TextEnd::Final).secrets;
        if secrets.is_empty() {
            return Cow::Borrowed(text);
        }
        Cow::Owned(String::from_utf8_lossy(&with_markers(text.as_bytes(), &secrets)).into_owned())
    }

    /// Masks the secrets in a text; says whether there were any.
    pub(crate) fn string(&self, text: &mut String) -> bool {
        match self.text(text) {
            Cow::Borrowed(_) => false,
            Cow::Owned(masked) => {
                *text = masked;
                true
            }
        }
    }

    /// Masks the secrets in everything that is text in a JSON value; says whether there were any.
    pub(crate) fn json(&self, value: &mut Json) -> bool {
        match value {
            Json::String(text) => self.string(text),
            Json::Array(items) => items.iter_mut().fold(false, |any, item| self.json(item) | any),
            Json::Object(fields) => self.fields(fields),
            Json::Null | Json::Bool(_) | Json::Number(_) => false,
        }
    }

    /// The same for the fields of an object; their names can come from anywhere, too.
    pub(crate) fn fields(&self, fields: &mut Map<String, Json>) -> bool {
        let mut any = fields.values_mut().fold(false, |any, value| self.json(value) | any);
        if fields.keys().any(|name| matches!(self.text(name), Cow::Owned(_))) {
            any = true;
            let named = std::mem::take(fields).into_iter();
            fields.extend(named.map(|(name, value)| (self.text(&name).into_owned(), value)));
        }
        any
    }
}

impl Built {
    fn new(secrets: &[(String, String)]) -> Self {
        let values: Vec<Value> =
            secrets.iter().flat_map(|(name, value)| Value::forms(name, value)).collect();
        let begins = shipped()
            .iter()
            .flat_map(|pattern| pattern.begins.iter().map(move |begin| (*begin, pattern)))
            .collect();
        let longest = values.iter().map(|value| value.text.len()).max().unwrap_or(0);
        let reach = longest.max(PATTERN_BYTES_MAX) + LEAD_BYTES;
        Self { values, begins, reach, ..Self::default() }
    }

    /// All words that are searched for.
    fn words(&self) -> impl Iterator<Item = &str> {
        let values = self.values.iter().map(|value| value.text.as_str());
        values.chain(self.begins.iter().map(|(begin, _)| *begin))
    }

    /// Where any of the words is in a text; none if that cannot be found out.
    fn hits(&self, text: &str) -> Option<Vec<Hit>> {
        if self.finder.get().is_none()
            && text.len() <= SHORT_BYTES
            && self.short_texts.fetch_add(1, Ordering::Relaxed) < SHORT_TEXTS_MAX
        {
            return Some(self.hits_one_by_one(text));
        }
        let finder = self.finder.get_or_init(|| {
            AhoCorasick::new(self.words())
                .inspect_err(|error| tracing::error!(%error, "secrets cannot be searched for"))
                .ok()
        });
        let hits = finder.as_ref()?.find_overlapping_iter(text);
        let hit = |hit: aho_corasick::Match| Hit {
            word: hit.pattern().as_usize(),
            start: hit.start(),
            end: hit.end(),
        };
        Some(hits.map(hit).collect())
    }

    fn hits_one_by_one(&self, text: &str) -> Vec<Hit> {
        let mut hits = Vec::new();
        for start in 0..text.len() {
            let Some(rest) = text.as_bytes().get(start..) else { break };
            let here = self.words().enumerate().filter(|(_, it)| rest.starts_with(it.as_bytes()));
            hits.extend(here.map(|(word, it)| Hit { word, start, end: start + it.len() }));
        }
        // The order in which the automaton would come to them.
        hits.sort_by_key(|hit| (hit.end, hit.start));
        hits
    }
}

/// Puts them in order, and makes one of those that overlap.
fn apart(mut found: Vec<FoundSecret<'_>>) -> Vec<FoundSecret<'_>> {
    found.sort_by_key(|one| one.start);
    let mut apart: Vec<FoundSecret<'_>> = Vec::with_capacity(found.len());
    for one in found {
        match apart.last_mut().filter(|last| one.start < last.end) {
            Some(last) => last.end = last.end.max(one.end),
            None => apart.push(one),
        }
    }
    apart
}

/// A line of a text; the marker of a secret is on the line where it begins.
fn clipped(text: &str, found: &[FoundSecret<'_>], from: usize, to: usize) -> String {
    let (mut shown, mut at) = (String::new(), from);
    for secret in found.iter().filter(|secret| secret.start < to && secret.end > from) {
        shown.push_str(text.get(at..secret.start).unwrap_or_default());
        if secret.start >= from {
            shown.push_str(&secret.marker());
        }
        at = secret.end.min(to);
    }
    shown.push_str(text.get(at..to).unwrap_or_default());
    shown.trim_end_matches('\n').to_owned()
}

/// Nobody prints the secrets by accident.
impl fmt::Debug for Mask {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.secrets.iter().map(|(name, _)| name);
        formatter.debug_list().entries(names).finish()
    }
}

#[cfg(test)]
mod tests;
