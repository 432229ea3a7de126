//! Draws the state: tasks on the left, output on the right, the question below, keys in the last
//! row.

use legwork::output::TextLook;
use ratatui_core::{
    buffer::Buffer,
    layout::Rect,
    style::{Color, Modifier, Style},
    terminal::Frame,
};

use super::{
    lines::{TextRow, wrapped},
    questions::OpenedQuestion,
    state::{QuestionShows, State, TopMode, Zone},
    view_question::{compact, whole},
    view_trials::draw_trials,
};
use crate::{
    answering::{DENY, DENY_WITH_NOTE},
    commands::listed::OUTSIDE,
    render::one_line,
    style::{Tone, columns, cut_middle, cut_start, grouped, padded},
};

/// The least that there must be.
pub(super) const COLUMNS_MIN: u16 = 40;
pub(super) const ROWS_MIN: u16 = 12;

/// Columns of a status.
pub(super) const STATUS_COLUMNS: usize = 10;

/// A list that is wider has room for the time at which a task began.
const BEGAN_FROM: u16 = 44;

/// Rows above an output: id and status, the command, its sandbox.
const OUTPUT_HEAD: u16 = 3;

/// The keys, as `?` shows them.
const KEYS: [(&str, &str); 17] = [
    ("Up Down j k", "select a task"),
    ("g G", "first task, last task"),
    ("/", "filter by command, folder, status, id, caller"),
    ("Esc", "remove the filter"),
    ("Enter", "attach to the task; Ctrl-] comes back"),
    ("x", "stop the task, after asking"),
    ("PgUp PgDn", "scroll the output; End follows it again"),
    ("v", "screen of a terminal, or its text"),
    ("T", "trials: look at them, apply, discard"),
    ("n N", "deny at once; deny, with a note"),
    ("y o", "then Enter: allow once; once, OUTSIDE the sandbox"),
    ("s", "then Enter: allow for this session"),
    ("r", "then Enter: allow always, save the rule"),
    ("t a", "then Enter: try it on a copy first; apply what it did"),
    ("e", "show the whole question"),
    ("Tab", "next question"),
    ("q Ctrl-C", "quit; tasks go on"),
];

/// How things look.
#[derive(Debug, Clone, Copy)]
pub(super) struct Theme {
    pub colours: bool,
}

impl Theme {
    fn of(self, tone: Tone) -> Style {
        let colour = |colour| {
            if self.colours { Style::new().fg(colour) } else { Style::new() }
        };
        match tone {
            Tone::Strong => Style::new().add_modifier(Modifier::BOLD),
            Tone::Faint if self.colours => Style::new().add_modifier(Modifier::DIM),
            Tone::Plain | Tone::Faint => Style::new(),
            Tone::Good => colour(Color::Green),
            Tone::Notable => colour(Color::Yellow),
            Tone::Bad => colour(Color::Red),
        }
    }

    /// The style of a text that a program has coloured; text in the colour of what is behind it
    /// would be hidden, and is not.
    fn of_look(self, look: TextLook) -> Style {
        let mut style = Style::new();
        let (front, back) = (look.front(), look.back().filter(|back| look.front() != Some(*back)));
        if let Some(front) = front.filter(|_| self.colours) {
            style = style.fg(Color::Indexed(front));
        }
        if let Some(back) = back.filter(|_| self.colours) {
            style = style.bg(Color::Indexed(back));
        }
        for (is_on, modifier) in [
            (look.is_bold(), Modifier::BOLD),
            (look.is_faint(), Modifier::DIM),
            (look.is_italic(), Modifier::ITALIC),
            (look.is_underlined(), Modifier::UNDERLINED),
            (look.is_reversed(), Modifier::REVERSED),
        ] {
            if is_on {
                style = style.add_modifier(modifier);
            }
        }
        style
    }
}

/// What draws: a buffer, and the zones that can be clicked.
pub(super) struct Canvas<'b> {
    buffer: &'b mut Buffer,
    theme: Theme,
    pub zones: Vec<(Rect, Zone)>,
}

impl Canvas<'_> {
    /// Writes a text into a row of a place, from this column of it on; returns the columns taken.
    pub(super) fn write(&mut self, place: Rect, at: (u16, u16), tone: Tone, text: &str) -> u16 {
        self.write_in(place, at, self.theme.of(tone), text)
    }

    fn write_in(&mut self, place: Rect, at: (u16, u16), style: Style, text: &str) -> u16 {
        let (column, row) = at;
        if row >= place.height || column >= place.width {
            return 0;
        }
        let (x, y) = (place.x + column, place.y + row);
        let room = usize::from(place.width - column);
        let (end, _) = self.buffer.set_stringn(x, y, text, room, style);
        end.saturating_sub(x)
    }

    /// Writes a row of a program's text.
    fn write_row(&mut self, place: Rect, row: u16, text: &TextRow) {
        let mut column = 0;
        for (look, piece) in text.pieces() {
            column += self.write_in(place, (column, row), self.theme.of_look(*look), piece);
        }
    }

    pub(super) fn reverse(&mut self, place: Rect) {
        self.buffer.set_style(place, Style::new().add_modifier(Modifier::REVERSED));
    }

    pub(super) fn zone(&mut self, place: Rect, zone: Zone) {
        self.zones.push((place, zone));
    }
}

/// Draws everything.
pub(super) fn view(frame: &mut Frame<'_>, state: &mut State, theme: Theme, now_ms: u64) {
    let area = frame.area();
    let mut canvas = Canvas { buffer: frame.buffer_mut(), theme, zones: Vec::new() };
    if area.width < COLUMNS_MIN || area.height < ROWS_MIN {
        let (width, height) = (area.width, area.height);
        for (row, line) in [
            "Terminal too small:".to_owned(),
            format!("{width}x{height}, and top"),
            format!("needs {COLUMNS_MIN}x{ROWS_MIN}"),
        ]
        .iter()
        .enumerate()
        {
            canvas.write(area, (0, u16::try_from(row).unwrap_or(0)), Tone::Notable, line);
        }
        state.zones = Vec::new();
        return;
    }
    let header = Rect { height: 1, ..area };
    let footer = Rect { y: area.bottom() - 1, height: 1, ..area };
    let body = Rect { y: area.y + 1, height: area.height - 2, ..area };
    state.drawn(now_ms);
    draw_header(&mut canvas, header, state);
    match state.mode.clone() {
        TopMode::Help => draw_help(&mut canvas, body),
        TopMode::Attached(_) => draw_output(&mut canvas, body, state),
        TopMode::WholeQuestion(row) => draw_whole_question(&mut canvas, body, state, row, now_ms),
        TopMode::Trials => draw_trials(&mut canvas, body, state),
        _ => draw_panes(&mut canvas, body, state, now_ms),
    }
    draw_footer(&mut canvas, footer, state, now_ms);
    state.zones = canvas.zones;
}

fn draw_header(canvas: &mut Canvas<'_>, place: Rect, state: &State) {
    let mut at = canvas.write(place, (0, 0), Tone::Strong, "legwork top");
    let (running, total) = (state.tasks.running(), grouped(state.tasks.total));
    let tasks = if state.tasks.total == 1 { "task" } else { "tasks" };
    let counted = format!("  {running} running, {total} {tasks}");
    at += canvas.write(place, (at, 0), Tone::Plain, &counted);
    let open = state.questions.count();
    if open > 0 {
        let said = if open == 1 { "  1 question".into() } else { format!("  {open} questions") };
        at += canvas.write(place, (at, 0), Tone::Notable, &said);
    }
    if !state.tasks.filter.is_empty() {
        let filter = format!("  /{}", one_line(&state.tasks.filter, 20));
        canvas.write(place, (at, 0), Tone::Good, &filter);
    }
}

/// Tasks, output, and the question if there is one.
fn draw_panes(canvas: &mut Canvas<'_>, place: Rect, state: &mut State, now_ms: u64) {
    let question = question_place(place, state);
    let panes = Rect { height: place.height - question.height, ..place };
    let list_width = (panes.width * 2 / 5).clamp(24, 64);
    let list = Rect { width: list_width, ..panes };
    let x = panes.x + list_width + 2;
    let output = Rect { x, width: panes.right().saturating_sub(x), ..panes };
    draw_rows_of(canvas, panes, list_width);
    draw_list(canvas, list, state);
    draw_output(canvas, output, state);
    if question.height > 0 {
        draw_question(canvas, question, state, now_ms);
    }
}

/// The line between two panes.
pub(super) fn draw_rows_of(canvas: &mut Canvas<'_>, panes: Rect, column: u16) {
    for row in 0..panes.height {
        canvas.write(panes, (column, row), Tone::Faint, "│");
    }
}

/// Where the question is: as high as it needs, and no higher than leaves room for the rest.
fn question_place(place: Rect, state: &State) -> Rect {
    let Some(question) = state.questions.current() else {
        return Rect { y: place.bottom(), height: 0, ..place };
    };
    let rows = compact(question, usize::from(place.width)).rows.len();
    let choices = choice_rows(question, place.width).len();
    let wanted = u16::try_from(rows + choices + 1).unwrap_or(u16::MAX);
    let height = wanted.min((place.height * 3 / 5).max(6));
    Rect { y: place.bottom() - height, height, ..place }
}

fn draw_list(canvas: &mut Canvas<'_>, place: Rect, state: &State) {
    canvas.zone(place, Zone::List);
    let tasks = &state.tasks;
    if tasks.shown_count() == 0 {
        let said = if tasks.filter.is_empty() { "No tasks" } else { "No task matches" };
        canvas.write(place, (0, 0), Tone::Faint, said);
        return;
    }
    let (height, selected) = (usize::from(place.height), tasks.place().unwrap_or(0));
    let last = tasks.shown_count().saturating_sub(height);
    let first = selected.saturating_sub(height / 2).min(last);
    for (row, task) in (0..place.height).zip(tasks.shown().skip(first)) {
        let index = first + usize::from(row);
        let line = Rect { y: place.y + row, height: 1, ..place };
        let mut at = 0;
        if place.width >= BEGAN_FROM {
            let clock = task.began.get(11..).unwrap_or_default();
            at += canvas.write(line, (0, 0), Tone::Faint, &padded(clock, 10));
        }
        let (tone, status) = tasks.status(task);
        at += canvas.write(line, (at, 0), tone, &padded(status, STATUS_COLUMNS));
        if task.is_outside {
            at += canvas.write(line, (at, 0), Tone::Bad, &format!("{OUTSIDE} "));
        }
        let room = usize::from(line.width.saturating_sub(at));
        canvas.write(line, (at, 0), Tone::Plain, &cut_middle(&task.command, room));
        canvas.zone(line, Zone::Task(index));
        if index == selected {
            canvas.reverse(line);
        }
    }
}

fn draw_output(canvas: &mut Canvas<'_>, place: Rect, state: &mut State) {
    canvas.zone(place, Zone::Output);
    let Some(row) = state.tasks.selected() else { return };
    let (tone, status) = state.tasks.status(row);
    let mut at = canvas.write(place, (0, 0), Tone::Strong, row.short());
    at += canvas.write(place, (at + 1, 0), tone, status) + 1;
    let time = match &row.took {
        Some(took) => format!(" {took}"),
        None => format!(" since {}", row.began.get(11..).unwrap_or_default()),
    };
    at += canvas.write(place, (at, 0), Tone::Faint, &time);
    let room = usize::from(place.width.saturating_sub(at + 1));
    if room >= 10 {
        let folder = cut_start(&row.folder, room);
        canvas.write(place, (at + 1, 0), Tone::Faint, &folder);
    }
    let command = cut_middle(&row.command, place.width.into());
    canvas.write(place, (0, 1), Tone::Plain, &command);
    let tone = if row.is_outside { Tone::Bad } else { Tone::Faint };
    canvas.write(place, (0, 2), tone, &cut_middle(&row.sandbox, place.width.into()));
    let height = place.height.saturating_sub(OUTPUT_HEAD + 1);
    let text = Rect { y: place.y + OUTPUT_HEAD, height, ..place };
    let state_line = Rect { y: place.bottom() - 1, height: 1, ..place };
    let (bytes, is_cut) = (state.output.shown().bytes, state.output.shown().is_cut);
    let is_screen = state.output.shown().is_screen;
    let said = match &state.output.shown().problem {
        Some(problem) => (Tone::Notable, problem.clone()),
        None if state.output.is_scrolled() => {
            (Tone::Notable, "scrolled: End follows the output".to_owned())
        }
        None if is_screen => (Tone::Faint, "its screen (v: its text)".to_owned()),
        None if bytes == 0 => (Tone::Faint, "no output".to_owned()),
        None if is_cut => (Tone::Faint, format!("the end of {} bytes", grouped(bytes))),
        None => (Tone::Faint, format!("{} bytes", grouped(bytes))),
    };
    let said_row = cut_middle(&said.1, place.width.into());
    let at = canvas.write(state_line, (0, 0), said.0, &said_row);
    if let Some(resources) = &state.output.shown().resources {
        canvas.write(state_line, (at, 0), Tone::Faint, &format!("  {resources}"));
    }
    for (row, line) in (0..).zip(state.output.rows(text.width.into(), text.height.into())) {
        canvas.write_row(text, row, line);
    }
}

/// The answers of a question, in rows that fit: each with its key and its place in the row.
fn choice_rows(question: &OpenedQuestion, width: u16) -> Vec<Vec<(char, u16, String)>> {
    let mut rows: Vec<Vec<(char, u16, String)>> = vec![Vec::new()];
    let mut at = 0;
    for (key, words) in question.keys() {
        let shown = format!("[{key}] {words}");
        let taken = u16::try_from(columns(&shown)).unwrap_or(u16::MAX);
        if at > 0 && at + taken > width {
            rows.push(Vec::new());
            at = 0;
        }
        if let Some(row) = rows.last_mut() {
            row.push((key, at, shown));
        }
        at = at.saturating_add(taken + 2);
    }
    rows
}

/// Draws the answers at the bottom of a place, those that a key gives now; returns the rows that
/// all of them take.
fn draw_choices(canvas: &mut Canvas<'_>, place: Rect, state: &State, now_ms: u64) -> u16 {
    let Some(question) = state.questions.current() else { return 0 };
    let rows = choice_rows(question, place.width);
    let taken = u16::try_from(rows.len()).unwrap_or(u16::MAX).min(place.height);
    let bottom = Rect { y: place.bottom() - taken, height: taken, ..place };
    let armed = state.answering.armed(now_ms);
    let is_ready = armed.is_some() || state.answering.is_ready(now_ms);
    for (row, choices) in (0..).zip(&rows) {
        for (key, at, shown) in choices {
            if !is_ready && !matches!(*key, DENY | DENY_WITH_NOTE) {
                continue;
            }
            let width = canvas.write(bottom, (*at, row), Tone::Strong, shown);
            let place = Rect { x: bottom.x + at, y: bottom.y + row, width, height: 1 };
            canvas.zone(place, Zone::Key(*key));
            if armed == Some(*key) {
                canvas.reverse(place);
            }
        }
    }
    taken
}

fn draw_rule(canvas: &mut Canvas<'_>, place: Rect, title: &str) {
    let line = "─".repeat(place.width.into());
    canvas.write(place, (0, 0), Tone::Faint, &line);
    canvas.write(place, (2, 0), Tone::Notable, &format!(" {title} "));
}

fn question_title(state: &State) -> String {
    let Some(question) = state.questions.current() else { return String::new() };
    let (number, count) = (state.questions.number(), state.questions.count());
    let until = crate::render::time(question.approval.expires_at_ms);
    let until = until.get(11..16).unwrap_or_default();
    let which = if count > 1 { format!(" {number} of {count} (Tab)") } else { String::new() };
    let gone = if question.is_live { "" } else { ", its caller is gone" };
    format!("Question{which}, until {until}{gone}")
}

fn draw_question(canvas: &mut Canvas<'_>, place: Rect, state: &mut State, now_ms: u64) {
    canvas.zone(place, Zone::Question);
    draw_rule(canvas, place, &question_title(state));
    let Some(question) = state.questions.current() else { return };
    let lines = compact(question, place.width.into());
    let choices = draw_choices(canvas, place, state, now_ms);
    let text = Rect { y: place.y + 1, height: place.height.saturating_sub(choices + 1), ..place };
    let (room, wanted) = (usize::from(text.height), lines.rows.len());
    let fits = wanted <= room;
    let shown = if fits { room } else { room.saturating_sub(1) };
    for (row, (tone, line)) in (0..).zip(lines.rows.iter().take(shown)) {
        canvas.write(text, (0, row), *tone, line);
    }
    if !fits {
        let more = format!("… {} more rows: e shows all", wanted - shown);
        canvas.write(text, (0, text.height.saturating_sub(1)), Tone::Notable, &more);
    }
    state.question_shows = QuestionShows { command: shown >= lines.command_ends, all: fits };
}

fn draw_whole_question(
    canvas: &mut Canvas<'_>,
    place: Rect,
    state: &mut State,
    first: usize,
    now_ms: u64,
) {
    draw_rule(canvas, place, &question_title(state));
    let choices = draw_choices(canvas, place, state, now_ms);
    let Some(question) = state.questions.current() else { return };
    let rows = whole(question, place.width.into());
    let text = Rect { y: place.y + 1, height: place.height.saturating_sub(choices + 1), ..place };
    let first = first.min(rows.len().saturating_sub(text.height.into()));
    for (row, line) in (0..text.height).zip(rows.iter().skip(first)) {
        canvas.write(text, (0, row), Tone::Plain, line);
    }
    let rest = rows.len().saturating_sub(first + usize::from(text.height));
    if rest > 0 {
        let more = format!(" {rest} more rows: Down ");
        let at = place.width.saturating_sub(u16::try_from(columns(&more)).unwrap_or(0) + 2);
        canvas.write(place, (at, 0), Tone::Notable, &more);
    }
    // Nothing of it is hidden: whoever wants the rest moves down.
    state.question_shows = QuestionShows { command: true, all: true };
    state.mode = TopMode::WholeQuestion(first);
}

fn draw_help(canvas: &mut Canvas<'_>, place: Rect) {
    for (row, (key, words)) in (0..).zip(KEYS) {
        canvas.write(place, (0, row), Tone::Strong, key);
        canvas.write(place, (13, row), Tone::Plain, words);
    }
    let mouse = "The mouse selects, scrolls and answers, too.";
    let row = u16::try_from(KEYS.len()).unwrap_or(0);
    canvas.write(place, (0, row), Tone::Faint, mouse);
}

/// The last row: what is asked or typed, what was said, or the keys.
fn draw_footer(canvas: &mut Canvas<'_>, place: Rect, state: &State, now_ms: u64) {
    let field = |canvas: &mut Canvas<'_>, label: &str, text: &str| {
        let at = canvas.write(place, (0, 0), Tone::Strong, label);
        let room = usize::from(place.width.saturating_sub(at + 1));
        let last = wrapped(text, room.max(1)).pop().unwrap_or_default();
        let at = at + canvas.write(place, (at, 0), Tone::Plain, &last);
        canvas.write(place, (at, 0), Tone::Strong, "_");
    };
    if let Some(asked) = state.confirms(now_ms, place.width.into()) {
        canvas.write(place, (0, 0), Tone::Bad, &asked);
        return;
    }
    match &state.mode {
        TopMode::Filter(_) => field(canvas, "Filter: ", &state.tasks.filter),
        TopMode::Note(_, note) => field(canvas, "Deny, because (Esc: back): ", note),
        TopMode::Attached(typed) => {
            let is_open = state.tasks.selected().is_some_and(|row| row.is_open);
            if let Some(told) = &state.told {
                canvas.write(place, (0, 0), Tone::Notable, &one_line(told, place.width.into()));
            } else if is_open {
                field(canvas, "Ctrl-] back  Input: ", typed);
            } else {
                canvas.write(place, (0, 0), Tone::Faint, "Ctrl-] back  PgUp PgDn scroll");
            }
        }
        TopMode::Stopping(id) => {
            let row = state.tasks.selected().filter(|row| row.id == *id);
            draw_sure(canvas, place, "Stop", row.map_or(id.as_str(), |row| &row.command));
        }
        _ => match &state.told {
            Some(told) => {
                canvas.write(place, (0, 0), Tone::Notable, &one_line(told, place.width.into()));
            }
            None => draw_hints(canvas, place, state, now_ms),
        },
    }
}

/// Asks whether something is to be done with a command.
fn draw_sure(canvas: &mut Canvas<'_>, place: Rect, verb: &str, command: &str) {
    let (yes, no) = ("  [y] yes", "  [n] no");
    let taken = columns(yes) + columns(no) + columns(verb) + 2;
    let room = usize::from(place.width).saturating_sub(taken);
    let asked = format!("{verb} {}?", cut_middle(command, room));
    let mut at = canvas.write(place, (0, 0), Tone::Bad, &asked);
    for (words, key) in [(yes, 'y'), (no, 'n')] {
        let width = canvas.write(place, (at, 0), Tone::Strong, words);
        canvas.zone(Rect { x: place.x + at, width, ..place }, Zone::Key(key));
        at += width;
    }
}

fn draw_hints(canvas: &mut Canvas<'_>, place: Rect, state: &State, now_ms: u64) {
    let hints: &[(char, &str)] = match state.mode {
        TopMode::Help => &[('?', "any key: back")],
        TopMode::WholeQuestion(_) => &[('e', "Esc back")],
        TopMode::Trials if !state.answering.is_ready(now_ms) => {
            &[('\r', "PgUp PgDn scroll"), ('T', "Esc back")]
        }
        TopMode::Trials => {
            &[('a', "a apply"), ('d', "d discard"), ('\r', "PgUp PgDn scroll"), ('T', "Esc back")]
        }
        _ => &[
            ('/', "/ filter"),
            ('\r', "Enter attach"),
            ('x', "x stop"),
            ('T', "T trials"),
            ('?', "? keys"),
            ('q', "q quit"),
        ],
    };
    let mut at = 0;
    for (key, words) in hints {
        let width = canvas.write(place, (at, 0), Tone::Faint, words);
        if *key != '\r' {
            canvas.zone(Rect { x: place.x + at, width, ..place }, Zone::Key(*key));
        }
        at += width + 2;
    }
}

#[cfg(test)]
mod tests;
