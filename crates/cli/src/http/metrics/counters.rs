//! Counters with labels whose values are known beforehand, so that to count is to add to an atomic.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The value of a label that is not among those that are known.
const OTHER: &str = "other";

/// Counters by one label.
#[derive(Debug)]
pub(super) struct CounterRow {
    names: Vec<String>,
    /// One for each name, and one for all others.
    counts: Vec<AtomicU64>,
}

impl CounterRow {
    pub(super) fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
        let counts = (0..=names.len()).map(|_| AtomicU64::new(0)).collect();
        Self { names, counts }
    }

    pub(super) fn add(&self, name: &str, more: u64) {
        let place = self.names.iter().position(|known| known == name).unwrap_or(self.names.len());
        if let Some(count) = self.counts.get(place) {
            count.fetch_add(more, Relaxed);
        }
    }

    /// All of them with their names; what has no name only if there is any.
    pub(super) fn all(&self) -> impl Iterator<Item = (&str, u64)> {
        let names = self.names.iter().map(String::as_str).map(Some).chain([None]);
        let counts = self.counts.iter().map(|count| count.load(Relaxed));
        let shown = names.zip(counts).filter(|(name, count)| name.is_some() || *count > 0);
        shown.map(|(name, count)| (name.unwrap_or(OTHER), count))
    }
}

/// Counters by two labels.
#[derive(Debug)]
pub(super) struct CounterGrid {
    rows: Vec<(String, CounterRow)>,
    other: CounterRow,
}

impl CounterGrid {
    pub(super) fn new<'a>(rows: impl IntoIterator<Item = &'a str>, columns: &[&str]) -> Self {
        let row = || CounterRow::new(columns.iter().copied());
        let rows = rows.into_iter().map(|name| (name.to_owned(), row())).collect();
        Self { rows, other: row() }
    }

    pub(super) fn add(&self, row: &str, column: &str) {
        let known = self.rows.iter().find(|(name, _)| name == row);
        known.map_or(&self.other, |(_, row)| row).add(column, 1);
    }

    /// Those that were ever counted.
    pub(super) fn counted(&self) -> impl Iterator<Item = (&str, &str, u64)> {
        let rows = self.rows.iter().map(|(name, row)| (name.as_str(), row));
        let cells = rows.chain([(OTHER, &self.other)]);
        let cells =
            cells.flat_map(|(row, of)| of.all().map(move |(name, count)| (row, name, count)));
        cells.filter(|(_, _, count)| *count > 0)
    }
}
