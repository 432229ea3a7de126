//! Draws the trials: the commands on the left, what the selected one would change on the right.

use ratatui_core::layout::Rect;

use super::{
    state::{State, Zone},
    view::{Canvas, STATUS_COLUMNS, draw_rows_of},
};
use crate::style::{Tone, cut_middle, cut_start, padded};

pub(super) fn draw_trials(canvas: &mut Canvas<'_>, place: Rect, state: &mut State) {
    let width = (place.width * 2 / 5).clamp(24, 64);
    let list = Rect { width, ..place };
    let x = place.x + width + 2;
    let changes = Rect { x, width: place.right().saturating_sub(x), ..place };
    draw_rows_of(canvas, place, width);
    draw_list(canvas, list, state);
    draw_changes(canvas, changes, state);
}

fn draw_list(canvas: &mut Canvas<'_>, place: Rect, state: &State) {
    canvas.zone(place, Zone::List);
    let Some(rows) = state.trials.rows() else {
        canvas.write(place, (0, 0), Tone::Faint, "Reading…");
        return;
    };
    if rows.is_empty() {
        canvas.write(place, (0, 0), Tone::Faint, "No trials");
        return;
    }
    let (height, selected) = (usize::from(place.height), state.trials.place());
    let first = selected.saturating_sub(height / 2).min(rows.len().saturating_sub(height));
    for (row, (index, trial)) in (0..place.height).zip(rows.iter().enumerate().skip(first)) {
        let line = Rect { y: place.y + row, height: 1, ..place };
        let (tone, status) = (trial.status.0, &trial.status.1);
        let at = canvas.write(line, (0, 0), tone, &padded(status, STATUS_COLUMNS));
        let room = usize::from(line.width.saturating_sub(at));
        canvas.write(line, (at, 0), Tone::Plain, &cut_middle(&trial.command, room));
        canvas.zone(line, Zone::Trial(index));
        if index == selected {
            canvas.reverse(line);
        }
    }
}

fn draw_changes(canvas: &mut Canvas<'_>, place: Rect, state: &mut State) {
    canvas.zone(place, Zone::Output);
    let Some(trial) = state.trials.selected() else { return };
    let at = canvas.write(place, (0, 0), Tone::Strong, trial.short());
    let facts = format!(" {} ", trial.facts);
    let at = at + canvas.write(place, (at, 0), Tone::Faint, &facts);
    let room = usize::from(place.width.saturating_sub(at));
    canvas.write(place, (at, 0), Tone::Faint, &cut_start(&trial.folder, room));
    let command = cut_middle(&trial.command, place.width.into());
    canvas.write(place, (0, 1), Tone::Plain, &command);
    let runs = trial.runs;
    let text = Rect { y: place.y + 2, height: place.height.saturating_sub(3), ..place };
    let Some((rows, below)) = state.trials.text(text.width.into(), text.height.into()) else {
        let said = if runs { "It still runs" } else { "Reading…" };
        canvas.write(text, (0, 0), Tone::Faint, said);
        return;
    };
    for (row, (tone, line)) in (0..).zip(&rows) {
        canvas.write(text, (0, row), *tone, line);
    }
    if below > 0 {
        let more = format!("{below} more rows: PgDn");
        canvas.write(place, (0, place.height - 1), Tone::Notable, &more);
    }
}
