//! The part of the output that a model is shown: head, one marker line, tail, within a token
//! budget.

use std::io;

use legwork_warden::folder::MEMORY_LINES_MAX;

use super::{
    artifact::Artifact,
    clean::Cell,
    mask::Mask,
    tokens::{self, TOKEN},
    view::{Edges, View},
};

/// Raw bytes looked at, from either end, for each token of the budget.
const WINDOW_BYTES_PER_TOKEN: u64 = 8;

/// The smallest budget that is looked at: what is shorter than a marker is read whole.
const WINDOW_TOKENS_MIN: u64 = 64;

/// Most lines that are shown at a time: some clients keep the first 2,000 of an answer and lose
/// what stands behind.
#[expect(clippy::cast_possible_truncation, reason = "a small number")]
pub(super) const LINES_MAX: usize = MEMORY_LINES_MAX as usize;

/// Bytes before the tail's window that are parsed but not shown, so that it does not begin inside a
/// character or a sequence.
const LEAD_BYTES: u64 = 4096;

/// What a model is shown of one stream, or of both as one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Preview {
    /// The text; none when the stream is blank.
    pub text: Option<String>,
    /// Whether something was left out.
    pub truncated: bool,
    /// Whether bytes had to be replaced because they are no text.
    pub replaced: bool,
    /// Whether a secret was masked.
    pub masked: bool,
}

/// Makes the previews of two streams that share one budget: a short one leaves its rest to the
/// other.
pub fn previews(
    mask: &Mask,
    stdout: &Artifact,
    stderr: &Artifact,
    budget_tokens: u64,
) -> io::Result<(Preview, Preview)> {
    pair(&View::of(mask, stdout), &View::of(mask, stderr), budget_tokens, true)
}

/// Makes the previews of two views that share one budget.
fn pair(
    stdout: &View<'_>,
    stderr: &View<'_>,
    budget_tokens: u64,
    complete: bool,
) -> io::Result<(Preview, Preview)> {
    let stdout_sample = Sample::read(stdout, budget_tokens, complete)?;
    let stderr_sample = Sample::read(stderr, budget_tokens, complete)?;
    let (wanted, other) = (stdout_sample.wants(), stderr_sample.wants());
    let all = Budget { tokens: budget_tokens, lines: LINES_MAX };
    Ok((
        stdout_sample.preview(stdout, all.left_by(other)),
        stderr_sample.preview(stderr, all.left_by(wanted)),
    ))
}

/// How much may be shown.
#[derive(Debug, Clone, Copy)]
struct Budget {
    tokens: u64,
    lines: usize,
}

impl Budget {
    /// What is left when another stream has taken what it wants, up to a half.
    fn left_by(self, other: Self) -> Self {
        Self {
            tokens: self.tokens - other.tokens.min(self.tokens.div_ceil(2)),
            lines: self.lines - other.lines.min(self.lines.div_ceil(2)),
        }
    }

    fn holds(self, wanted: Self) -> bool {
        wanted.tokens <= self.tokens && wanted.lines <= self.lines
    }
}

/// Makes one preview of two views, for which there is no room as one: each keeps its own head and
/// tail, so that the last words of stderr do not fall into the gap of stdout.
pub(super) fn apart(
    stdout: &View<'_>,
    stderr: &View<'_>,
    budget_tokens: u64,
    complete: bool,
) -> io::Result<Preview> {
    let (out, err) = pair(stdout, stderr, budget_tokens, complete)?;
    let text = match (out.text, err.text) {
        (Some(out), Some(err)) => Some(format!("{out}\n\nstderr:\n{err}")),
        (out, err) => out.or(err),
    };
    Ok(Preview {
        text,
        truncated: out.truncated || err.truncated,
        replaced: out.replaced || err.replaced,
        masked: out.masked || err.masked,
    })
}

/// Makes the preview of a view; unless it is complete, nothing half is shown at its end.
pub(super) fn preview(view: &View<'_>, budget_tokens: u64, complete: bool) -> io::Result<Preview> {
    let budget = Budget { tokens: budget_tokens, lines: LINES_MAX };
    Ok(Sample::read(view, budget_tokens, complete)?.preview(view, budget))
}

/// What was read of a stream: all of it, or both ends.
enum Sample {
    Whole(Window),
    Ends { head: Window, tail: Window },
}

/// A cleaned piece of a stream.
struct Window {
    raw: Vec<u8>,
    /// Where it begins in the stream.
    start: u64,
    /// Where in `raw` the shown part begins (what stands before was parsed only).
    lead: usize,
    cells: Vec<Cell>,
    replaced: bool,
    masked: bool,
    /// The cost of everything up to each cell.
    costs: Vec<u64>,
}

impl Sample {
    fn read(view: &View<'_>, budget_tokens: u64, complete: bool) -> io::Result<Self> {
        let size = view.bytes();
        let window = budget_tokens.max(WINDOW_TOKENS_MIN).saturating_mul(WINDOW_BYTES_PER_TOKEN);
        if size <= window.saturating_mul(2) {
            return Ok(Self::Whole(Window::read(view, 0, size, 0, complete)?));
        }
        let start = size - window;
        let lead = LEAD_BYTES.min(start);
        Ok(Self::Ends {
            head: Window::read(view, 0, window, 0, complete)?,
            tail: Window::read(view, start - lead, size, lead, complete)?,
        })
    }

    /// What showing all of it would take.
    fn wants(&self) -> Budget {
        match self {
            Self::Whole(window) if window.is_blank() => Budget { tokens: 0, lines: 0 },
            Self::Whole(window) => Budget {
                tokens: window.costs.last().copied().unwrap_or(0).div_ceil(TOKEN),
                lines: characters(&window.cells).filter(|it| *it == '\n').count(),
            },
            Self::Ends { .. } => Budget { tokens: u64::MAX, lines: usize::MAX },
        }
    }

    fn preview(&self, view: &View<'_>, budget: Budget) -> Preview {
        match self {
            Self::Whole(window) => {
                if budget.holds(self.wants()) {
                    let text: String = characters(&window.cells).collect();
                    let text = without_blank_edges(&text);
                    let text = Some(text.to_owned()).filter(|text| !text.is_empty());
                    let Window { replaced, masked, .. } = *window;
                    return Preview { text, truncated: false, replaced, masked };
                }
                let cut = cut(view, window, window, budget);
                // A marker that is longer than what it hides hides nothing.
                let said = cut.text.as_deref().map_or(0, tokens::estimate);
                let is_longer = said >= self.wants().tokens && self.wants().lines <= budget.lines;
                if is_longer { self.preview(view, self.wants()) } else { cut }
            }
            Self::Ends { head, tail } => cut(view, head, tail, budget),
        }
    }
}

impl Window {
    /// Reads from one place of a view to another; the lead is parsed only.
    fn read(view: &View<'_>, from: u64, to: u64, lead: u64, complete: bool) -> io::Result<Self> {
        let piece = view.read(from, to, Edges { inside: from > 0, complete })?;
        let lead = usize::try_from(lead).unwrap_or(0);
        let mut cells = piece.cells;
        cells.retain(|cell| cell.end > lead);
        let mut costs = Vec::with_capacity(cells.len());
        tokens::costs(characters(&cells), |_, cost| costs.push(cost));
        let (raw, replaced, masked) = (piece.raw, piece.replaced, piece.masked);
        Ok(Self { raw, start: from, lead, cells, replaced, masked, costs })
    }

    fn is_blank(&self) -> bool {
        characters(&self.cells).all(char::is_whitespace)
    }

    /// Where in the stream the first `cells` cells end.
    fn reach(&self, cells: usize) -> u64 {
        let end = match cells.checked_sub(1).and_then(|last| self.cells.get(last)) {
            Some(cell) => cell.end,
            None => self.lead,
        };
        self.start + end as u64
    }

    fn newlines(&self, from: u64, to: u64) -> u64 {
        let place = |offset: u64| usize::try_from(offset.saturating_sub(self.start)).unwrap_or(0);
        let part = self.raw.get(place(from)..place(to)).unwrap_or_default();
        part.iter().map(|byte| u64::from(*byte == b'\n')).sum()
    }
}

fn characters(cells: &[Cell]) -> impl Iterator<Item = char> + '_ {
    cells.iter().map(|cell| cell.character)
}

/// Head, marker, tail. The head comes from the first window and the tail from the last one, which
/// are the same window when the whole stream was read.
fn cut(view: &View<'_>, first: &Window, last: &Window, whole: Budget) -> Preview {
    let (size, budget_tokens) = (view.bytes(), whole.tokens);
    // Sized with the largest numbers it could name; a budget too small for it still gets some
    // output.
    let dropped_at_all = view.gaps().map(|(_, bytes, _)| bytes).sum::<u64>();
    let largest = marker(view, size + dropped_at_all, view.lines().map(|_| size), dropped_at_all);
    let marker_tokens = tokens::estimate(&largest) + 2;
    let mut budget = budget_tokens.saturating_sub(marker_tokens).max(budget_tokens / 2);
    loop {
        let (head, tail) = ends(first, last, Budget { tokens: budget, ..whole });
        let head_end = first.reach(head);
        let tail_start = last.reach(tail).max(head_end);
        let kept_lines = first.newlines(0, head_end) + last.newlines(tail_start, size);
        let lines = view.lines().map(|lines| lines.saturating_sub(kept_lines));
        let inside = view.gaps().filter(|(place, ..)| (head_end..=tail_start).contains(place));
        let add = |sum: (u64, u64), gap: (u64, u64, u64)| (sum.0 + gap.1, sum.1 + gap.2);
        let (missing, dropped) = inside.fold((0, 0), add);
        let marker = marker(view, tail_start - head_end + missing, lines, dropped);
        let head_text: String = characters(first.cells.get(..head).unwrap_or_default()).collect();
        let tail_text: String = characters(last.cells.get(tail..).unwrap_or_default()).collect();
        let (head, tail) = (without_blank_edges(&head_text), without_blank_edges(&tail_text));
        let parts = [head, &marker, tail];
        let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        let text = parts.join("\n");
        // A cut inside a run can cost a little more than its share of the run.
        if tokens::estimate(&text) <= budget_tokens.max(marker_tokens) || budget < 8 {
            return Preview {
                text: Some(text),
                truncated: true,
                replaced: first.replaced || last.replaced,
                masked: first.masked || last.masked,
            };
        }
        budget -= budget / 8;
    }
}

/// What stands between head and tail; of the bytes that are left out, some may have been dropped.
fn marker(view: &View<'_>, bytes: u64, lines: Option<u64>, dropped: u64) -> String {
    let paths: Vec<String> = view.paths().map(|path| path.display().to_string()).collect();
    let place = match paths.as_slice() {
        [] => String::new(),
        [path] if dropped > 0 => {
            format!("; {dropped} of them were dropped and are not stored, the rest is in {path}")
        }
        [path] => format!("; the whole stream is in {path}"),
        paths => format!("; the whole streams are in {}", paths.join(" and ")),
    };
    // Nobody has counted the lines of a task that still runs.
    let lines = lines.map(|lines| format!(", {lines} lines")).unwrap_or_default();
    format!("[... {bytes} bytes{lines} left out{place} ...]")
}

/// How many cells of the first window are shown, and from which cell on of the last one.
fn ends(first: &Window, last: &Window, budget: Budget) -> (usize, usize) {
    let half = budget.tokens * TOKEN / 2;
    // One line is the marker's.
    let lines = budget.lines.saturating_sub(1) / 2;
    let head = first.costs.partition_point(|cost| *cost <= half);
    let head = nth_newline(first.cells.iter(), lines).map_or(head, |place| head.min(place + 1));
    let tail_costs = &last.costs;
    let total = tail_costs.last().copied().unwrap_or(0);
    // A cell may stay if everything from it on, itself included, is within the half.
    let before = |place: usize| place.checked_sub(1).and_then(|last| tail_costs.get(last));
    let kept_from = |place: &usize| total - before(*place).copied().unwrap_or(0) > half;
    let tail = partition_point(tail_costs.len(), kept_from);
    // The newline at the very end closes the last line and begins none.
    let before = nth_newline(last.cells.iter().rev(), lines + 1);
    let tail = before.map_or(tail, |back| tail.max(last.cells.len() - back));
    let head = whole_lines_head(&first.cells, whole_marker(&first.cells, head));
    let tail = tail.min(last.cells.len());
    let tail = whole_lines_tail(&last.cells, whole_marker(&last.cells, tail));
    let same = std::ptr::eq(first, last);
    (head, if same { tail.max(head) } else { tail })
}

/// How many cells stand before the newline with this number.
fn nth_newline<'c>(cells: impl Iterator<Item = &'c Cell>, number: usize) -> Option<usize> {
    let newlines = cells.enumerate().filter(|(_, cell)| cell.character == '\n');
    newlines.map(|(place, _)| place).nth(number.saturating_sub(1))
}

/// A text without the blank lines at its ends and the blanks behind it; the first line that says
/// something keeps its indentation.
fn without_blank_edges(text: &str) -> &str {
    let mut rest = text.trim_end();
    while let Some((line, more)) = rest.split_once('\n') {
        if !line.trim().is_empty() {
            break;
        }
        rest = more;
    }
    rest
}

/// The first place for which `is_left` does not hold, where it holds for a beginning of all places.
fn partition_point(length: usize, is_left: impl Fn(&usize) -> bool) -> usize {
    let (mut low, mut high) = (0, length);
    while low < high {
        let middle = low.midpoint(high);
        if is_left(&middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// Moves a cut inside a marker to its beginning.
fn whole_marker(cells: &[Cell], cut: usize) -> usize {
    let secret = cells.get(cut).map_or(0, |cell| cell.secret);
    let before = cells.get(..cut).unwrap_or_default().iter().rev();
    if secret == 0 { cut } else { cut - before.take_while(|cell| cell.secret == secret).count() }
}

/// Moves a cut back to the end of a line, unless that would give up half of the head.
fn whole_lines_head(cells: &[Cell], cut: usize) -> usize {
    let kept = cells.get(..cut).unwrap_or_default();
    let newline = kept.iter().rposition(|cell| cell.character == '\n').map(|place| place + 1);
    newline.filter(|place| *place >= cut / 2).unwrap_or(cut)
}

/// Moves a cut forward to the start of a line, unless that would give up half of the tail.
fn whole_lines_tail(cells: &[Cell], cut: usize) -> usize {
    let kept = cells.get(cut..).unwrap_or_default();
    let newline = kept.iter().position(|cell| cell.character == '\n').map(|place| place + 1);
    cut + newline.filter(|place| *place <= kept.len() / 2).unwrap_or(0)
}

#[cfg(test)]
mod tests;
