//! Decides which keys answer: a deny takes effect at once, everything that lets something happen
//! takes two acts, a letter by itself and then Enter, and a typed word answers nothing.
//!
//! Time comes in with each key. The page decides in the same way (`web/src/model/answering.ts`),
//! and `tests/answering.json` holds both to the same cases.

/// The pause before a letter that allows, and the time that a question is shown before it.
const PAUSE_MS: u64 = 1000;

/// The pause after a word.
const WORD_PAUSE_MS: u64 = 3000;

/// The time in which Enter confirms a letter.
const ARMED_MS: u64 = 5000;

/// Enter this soon after its letter came with it: a paste, or a key that was meant for a line.
const CONFIRM_MS: u64 = 100;

/// A key this long after the one before it was pressed by itself: a held key repeats sooner, except
/// for the first time.
const APART_MS: u64 = 300;

/// Denies in a row, each pressed by itself, which are no typing: no word has the letter so often,
/// and a held key repeats only once so late.
const DENIES_MIN: u32 = 2;

/// Denies at once.
pub(crate) const DENY: char = 'n';

/// Denies with a note, which is typed then.
pub(crate) const DENY_WITH_NOTE: char = 'N';

/// The hint for typing that answers nothing.
pub(crate) const HINT: &str =
    "Typing answers nothing. Pause a moment; then n denies, one letter and Enter allow";

/// A key, as the decision sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnswerKey {
    /// One character, also where it is none that means something.
    Letter(char),
    Enter,
    /// A text: pasted, or typed into a field.
    Text,
    /// The mouse, which types nothing.
    #[cfg_attr(windows, expect(dead_code, reason = "only `top` hears the mouse"))]
    Click,
    /// Any other key.
    Other,
}

/// The effect of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pressed {
    /// Nothing: it may mean something else here.
    Passes,
    Denies,
    /// A note is wanted first.
    DeniesWithNote,
    /// This letter waits for Enter.
    Arms(char),
    /// This letter was confirmed.
    Confirms(char),
    /// A letter does not wait for Enter any more.
    Cancels,
    /// It was typing: a hint is shown.
    Types,
}

/// The question that keys can answer now, with its letters.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Offered<'a> {
    /// The question, with all that is shown of it: an answer is to this and to nothing else.
    pub subject: &'a str,
    /// The letters that answer.
    pub letters: &'a str,
    /// The letters that move about, unless they are part of a word.
    pub moves: &'a str,
}

impl Offered<'_> {
    /// True if a question is open.
    fn asks(&self) -> bool {
        self.letters.contains(DENY)
    }
}

/// A letter that waits for Enter.
#[derive(Debug, Clone, Copy)]
struct Armed {
    letter: char,
    at_ms: u64,
    /// Something else is shown by now.
    is_void: bool,
}

impl Armed {
    fn takes_enter(self, now_ms: u64) -> bool {
        let age_ms = now_ms.saturating_sub(self.at_ms);
        !self.is_void && (CONFIRM_MS..ARMED_MS).contains(&age_ms)
    }
}

/// Characters with no pause between them.
#[derive(Debug, Clone, Default)]
struct Burst {
    /// Number of those that did not move about.
    typed: u32,
    moved: bool,
    /// The question that was shown when it began.
    subject: String,
    has_denied: bool,
    /// Denies at its end that were each pressed by itself, and refused.
    refused: u32,
}

/// The keys of the last seconds, and the question that is shown.
#[derive(Debug, Clone, Default)]
pub(crate) struct Answering {
    subject: String,
    shown_ms: u64,
    last_ms: Option<u64>,
    /// Time of the last word.
    word_ms: Option<u64>,
    burst: Burst,
    armed: Option<Armed>,
}

impl Answering {
    /// Notes what is on the screen now.
    pub(crate) fn show(&mut self, subject: &str, now_ms: u64) {
        if self.subject != subject {
            subject.clone_into(&mut self.subject);
            self.shown_ms = now_ms;
            if let Some(armed) = &mut self.armed {
                armed.is_void = true;
            }
        }
    }

    /// The letter that Enter confirms now.
    pub(crate) fn armed(&self, now_ms: u64) -> Option<char> {
        self.armed.filter(|it| it.takes_enter(now_ms)).map(|it| it.letter)
    }

    /// From when on a letter by itself waits for Enter.
    fn ready_at(&self) -> u64 {
        let after = |at_ms: Option<u64>, pause_ms| at_ms.map_or(0, |at_ms| at_ms + pause_ms);
        let typed = after(self.last_ms, PAUSE_MS).max(after(self.word_ms, WORD_PAUSE_MS));
        typed.max(self.shown_ms + PAUSE_MS)
    }

    /// True if a key came just now, or a word.
    pub(crate) fn is_typed_at(&self, now_ms: u64) -> bool {
        let within = |at_ms: Option<u64>, ms| at_ms.is_some_and(|at_ms| now_ms < at_ms + ms);
        within(self.last_ms, PAUSE_MS) || within(self.word_ms, WORD_PAUSE_MS)
    }

    /// True if a letter that allows would wait for Enter now.
    pub(crate) fn is_ready(&self, now_ms: u64) -> bool {
        now_ms >= self.ready_at()
    }

    /// The next time at which any of this changes without a key.
    pub(crate) fn due(&self, now_ms: u64) -> Option<u64> {
        let armed = self.armed.filter(|it| !it.is_void).map(|it| it.at_ms);
        let enter = [armed.map(|at_ms| at_ms + CONFIRM_MS), armed.map(|at_ms| at_ms + ARMED_MS)];
        let all = enter.into_iter().flatten().chain([self.ready_at()]);
        all.filter(|at_ms| *at_ms > now_ms).min()
    }

    /// Takes a key.
    pub(crate) fn press(&mut self, key: AnswerKey, offered: &Offered<'_>, now_ms: u64) -> Pressed {
        self.show(offered.subject, now_ms);
        match key {
            AnswerKey::Letter(letter) => self.letter(letter, offered, now_ms),
            AnswerKey::Enter => self.enter(offered, now_ms),
            AnswerKey::Text => {
                self.note_key(now_ms);
                self.burst.typed += 2;
                self.burst.refused = 0;
                (self.armed, self.word_ms) = (None, Some(now_ms));
                Pressed::Types
            }
            AnswerKey::Click => self.cancel(),
            AnswerKey::Other => {
                self.note_key(now_ms);
                self.cancel()
            }
        }
    }

    fn cancel(&mut self) -> Pressed {
        if self.armed.take().is_some() { Pressed::Cancels } else { Pressed::Passes }
    }

    /// Forgets the letter that waits for Enter.
    #[cfg(unix)]
    pub(crate) fn disarm(&mut self) {
        self.armed = None;
    }

    /// Notes a key, behind a pause that ends what was typed or not; gives the time of the one
    /// before.
    fn note_key(&mut self, now_ms: u64) -> Option<u64> {
        let last_ms = self.last_ms.replace(now_ms);
        if last_ms.is_none_or(|last_ms| now_ms >= last_ms + PAUSE_MS) {
            self.burst = Burst::default();
        }
        if self.burst.typed == 0 {
            self.subject.clone_into(&mut self.burst.subject);
        }
        last_ms
    }

    fn letter(&mut self, letter: char, offered: &Offered<'_>, now_ms: u64) -> Pressed {
        let armed = self.armed.take();
        let was_armed = armed.is_some_and(|it| !it.is_void && now_ms < it.at_ms + ARMED_MS);
        let is_ready = self.is_ready(now_ms);
        let last_ms = self.note_key(now_ms);
        let is_typing = self.burst.typed > 0;
        let refused = std::mem::take(&mut self.burst.refused);
        if offered.moves.contains(letter) && !(is_typing && offered.asks()) {
            self.burst.moved = true;
            return Pressed::Passes;
        }
        self.burst.typed += 1;
        let is_offered = offered.letters.contains(letter);
        if is_offered && matches!(letter, DENY | DENY_WITH_NOTE) {
            let is_apart = last_ms.is_none_or(|last_ms| now_ms >= last_ms + APART_MS);
            let presses = if is_apart { refused + 1 } else { 0 };
            // What was typed at a question is for that one, and for none that takes its place.
            if self.burst.subject == self.subject || presses >= DENIES_MIN {
                self.burst.has_denied = true;
                let has_note = letter == DENY_WITH_NOTE;
                return if has_note { Pressed::DeniesWithNote } else { Pressed::Denies };
            }
            self.burst.refused = presses;
            self.word_ms = Some(now_ms);
            return Pressed::Types;
        }
        if is_offered && is_ready && !was_armed {
            self.armed = Some(Armed { letter, at_ms: now_ms, is_void: false });
            return Pressed::Arms(letter);
        }
        if is_typing || self.burst.moved || was_armed || !is_offered {
            self.word_ms = Some(now_ms);
        }
        if is_offered || was_armed || offered.asks() { Pressed::Types } else { Pressed::Passes }
    }

    fn enter(&mut self, offered: &Offered<'_>, now_ms: u64) -> Pressed {
        if let Some(armed) = self.armed.take() {
            self.last_ms = Some(now_ms);
            if !armed.takes_enter(now_ms) {
                return Pressed::Types;
            }
            // It was no typing: the next question can be denied at once.
            self.burst = Burst::default();
            return Pressed::Confirms(armed.letter);
        }
        let is_within = |at_ms: Option<u64>, ms| at_ms.is_some_and(|at_ms| now_ms < at_ms + ms);
        let is_typing = self.burst.typed > 0
            && (is_within(self.last_ms, PAUSE_MS) || is_within(self.word_ms, WORD_PAUSE_MS));
        if is_typing && (offered.asks() || self.burst.has_denied) {
            self.last_ms = Some(now_ms);
            return Pressed::Types;
        }
        self.note_key(now_ms);
        Pressed::Passes
    }
}

#[cfg(test)]
mod tests;
