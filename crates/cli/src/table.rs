//! Tables that fit a terminal: the last column takes what the others leave.

use crate::style::{Style, Tone, columns, cut_middle, padded};

/// Least columns that the last one gets; a narrower terminal wraps.
const LAST_MIN: usize = 12;

/// What stands between columns.
const GAP: &str = "  ";

/// A table, row by row.
#[derive(Debug)]
pub(crate) struct Table {
    titles: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
}

/// One cell.
#[derive(Debug)]
pub(crate) struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    pub(crate) fn new(tone: Tone, text: impl Into<String>) -> Self {
        Self { text: text.into(), tone }
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::new(Tone::Plain, text)
    }
}

impl Table {
    pub(crate) fn new(titles: impl IntoIterator<Item = &'static str>) -> Self {
        Self { titles: titles.into_iter().collect(), rows: Vec::new() }
    }

    /// Adds a row, with a cell for each column.
    pub(crate) fn add(&mut self, row: impl IntoIterator<Item = Cell>) {
        self.rows.push(row.into_iter().collect());
    }

    /// The table as lines.
    pub(crate) fn render(&self, style: Style) -> String {
        let widths: Vec<usize> = (0..self.titles.len()).map(|column| self.width(column)).collect();
        let others: usize = widths.iter().rev().skip(1).map(|width| width + GAP.len()).sum();
        let last = style.width.map(|width| width.saturating_sub(others).max(LAST_MIN));
        let titles = self.titles.iter().map(|title| (Tone::Strong, *title));
        let mut text = line(style, titles, &widths, last);
        for row in &self.rows {
            let cells = row.iter().map(|cell| (cell.tone, cell.text.as_str()));
            text.push_str(&line(style, cells, &widths, last));
        }
        text
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(column));
        let title = self.titles.get(column).map_or(0, |title| columns(title));
        cells.map(|cell| columns(&cell.text)).max().unwrap_or(0).max(title)
    }
}

fn line<'c>(
    style: Style,
    cells: impl Iterator<Item = (Tone, &'c str)>,
    widths: &[usize],
    last: Option<usize>,
) -> String {
    let mut text = String::new();
    for (column, (tone, cell)) in cells.enumerate() {
        let is_last = column + 1 == widths.len();
        let shown = match last {
            Some(width) if is_last => cut_middle(cell, width),
            _ => cell.to_owned(),
        };
        text.push_str(&style.paint(tone, &shown));
        if !is_last {
            let width = widths.get(column).copied().unwrap_or(0);
            text.push_str(&padded("", width.saturating_sub(columns(&shown))));
            text.push_str(GAP);
        }
    }
    text.truncate(text.trim_end_matches(' ').len());
    text.push('\n');
    text
}
