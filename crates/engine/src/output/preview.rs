//! The part of the output that a model is shown: head, one marker line, tail, within a token
//! budget.

use std::io;

use super::{
    artifact::Artifact,
    clean::Cell,
    mask::Mask,
    tokens::{self, TOKEN},
    view::{Edges, View},
};

/// Raw bytes looked at, from either end, for each token of the budget.
const WINDOW_BYTES_PER_TOKEN: u64 = 8;

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
    let (wanted, other) = (stdout_sample.tokens(), stderr_sample.tokens());
    let left_by = |others: u64| budget_tokens - others.min(budget_tokens.div_ceil(2));
    Ok((
        stdout_sample.preview(stdout, left_by(other)),
        stderr_sample.preview(stderr, left_by(wanted)),
    ))
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
    Ok(Sample::read(view, budget_tokens, complete)?.preview(view, budget_tokens))
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
        let window = budget_tokens.max(1).saturating_mul(WINDOW_BYTES_PER_TOKEN);
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

    /// Tokens that showing all of it would take.
    fn tokens(&self) -> u64 {
        match self {
            Self::Whole(window) if window.is_blank() => 0,
            Self::Whole(window) => window.costs.last().copied().unwrap_or(0).div_ceil(TOKEN),
            Self::Ends { .. } => u64::MAX,
        }
    }

    fn preview(&self, view: &View<'_>, budget_tokens: u64) -> Preview {
        match self {
            Self::Whole(window) => {
                if self.tokens() <= budget_tokens {
                    let text: String = characters(&window.cells).collect();
                    let text = Some(text.trim().to_owned()).filter(|text| !text.is_empty());
                    let Window { replaced, masked, .. } = *window;
                    return Preview { text, truncated: false, replaced, masked };
                }
                cut(view, window, window, budget_tokens)
            }
            Self::Ends { head, tail } => cut(view, head, tail, budget_tokens),
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
fn cut(view: &View<'_>, first: &Window, last: &Window, budget_tokens: u64) -> Preview {
    let size = view.bytes();
    // Sized with the largest numbers it could name; a budget too small for it still gets some
    // output.
    let dropped_at_all = view.gaps().map(|(_, bytes, _)| bytes).sum::<u64>();
    let largest = marker(view, size + dropped_at_all, view.lines().map(|_| size), dropped_at_all);
    let marker_tokens = tokens::estimate(&largest) + 2;
    let mut budget = budget_tokens.saturating_sub(marker_tokens).max(budget_tokens / 2);
    loop {
        let (head, tail) = ends(first, last, budget);
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
        let parts = [head_text.trim(), &marker, tail_text.trim()];
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
fn ends(first: &Window, last: &Window, budget_tokens: u64) -> (usize, usize) {
    let half = budget_tokens * TOKEN / 2;
    let head = first.costs.partition_point(|cost| *cost <= half);
    let tail_costs = &last.costs;
    let total = tail_costs.last().copied().unwrap_or(0);
    // A cell may stay if everything from it on, itself included, is within the half.
    let before = |place: usize| place.checked_sub(1).and_then(|last| tail_costs.get(last));
    let kept_from = |place: &usize| total - before(*place).copied().unwrap_or(0) > half;
    let tail = partition_point(tail_costs.len(), kept_from);
    let head = whole_lines_head(&first.cells, whole_marker(&first.cells, head));
    let tail = tail.min(last.cells.len());
    let tail = whole_lines_tail(&last.cells, whole_marker(&last.cells, tail));
    let same = std::ptr::eq(first, last);
    (head, if same { tail.max(head) } else { tail })
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
