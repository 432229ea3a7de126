//! What was measured, as a table and as CSV.

use std::fmt::Write;

/// All figures of a run.
#[derive(Debug, Default)]
pub struct Report {
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    what: String,
    legwork: f64,
    raw: Option<f64>,
    unit: &'static str,
    goal: &'static str,
}

impl Report {
    /// Adds a figure beside the one of a raw spawn.
    pub fn compare(
        &mut self,
        what: &str,
        legwork: f64,
        raw: f64,
        unit: &'static str,
        goal: &'static str,
    ) {
        self.rows.push(Row { what: what.into(), legwork, raw: Some(raw), unit, goal });
    }

    /// Adds a figure that stands alone.
    pub fn note(&mut self, what: &str, figure: f64, unit: &'static str, goal: &'static str) {
        self.rows.push(Row { what: what.into(), legwork: figure, raw: None, unit, goal });
    }

    /// For people.
    pub fn table(&self) -> String {
        let mut text = format!(
            "{:<44} {:>12} {:>12} {:<6} {:>7}  goal\n",
            "what", "legwork", "raw", "unit", "ratio"
        );
        for row in &self.rows {
            let raw = row.raw.map_or_else(|| "-".into(), |raw| format!("{raw:.1}"));
            let ratio =
                row.raw.map_or_else(|| "-".into(), |raw| format!("{:.2}", row.legwork / raw));
            let _ = writeln!(
                text,
                "{:<44} {:>12.1} {raw:>12} {:<6} {ratio:>7}  {}",
                row.what, row.legwork, row.unit, row.goal
            );
        }
        text
    }

    /// For programs.
    pub fn csv(&self) -> String {
        let mut text = String::from("what,legwork,raw,unit,ratio\n");
        for row in &self.rows {
            let raw = row.raw.map_or_else(String::new, |raw| raw.to_string());
            let ratio = row.raw.map_or_else(String::new, |raw| (row.legwork / raw).to_string());
            let _ = writeln!(text, "{},{},{raw},{},{ratio}", row.what, row.legwork, row.unit);
        }
        text
    }
}
