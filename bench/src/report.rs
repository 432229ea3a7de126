//! What was measured: printed line by line, and as CSV.

use std::fmt::Write;

use crate::measure::percentile;

/// Shares of the samples that a curve is drawn through.
const SHARES: [f64; 12] = [0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.99];

/// All figures of a run.
#[derive(Debug, Default)]
pub struct Report {
    workload: &'static str,
    pub rows: Vec<Row>,
    pub curves: Vec<Curve>,
}

/// One figure.
#[derive(Debug)]
pub struct Row {
    pub workload: &'static str,
    pub what: String,
    pub legwork: f64,
    pub raw: Option<f64>,
    pub unit: &'static str,
    pub hold: &'static str,
}

/// How long calls took: each share of them, and the microseconds that it stays below.
#[derive(Debug)]
pub struct Curve {
    pub workload: &'static str,
    pub what: String,
    pub points: Vec<(f64, f64)>,
}

impl Report {
    /// What comes now belongs to this workload.
    pub fn begin(&mut self, workload: &'static str) {
        self.workload = workload;
    }

    /// Keeps how long calls took, for a drawing.
    pub fn curve(&mut self, what: &str, micros: &[f64]) {
        let points = SHARES.iter().map(|share| (*share, percentile(micros, *share))).collect();
        self.curves.push(Curve { workload: self.workload, what: what.into(), points });
    }

    /// Adds a figure beside the one of a raw spawn.
    pub fn compare(
        &mut self,
        what: &str,
        legwork: f64,
        raw: f64,
        unit: &'static str,
        hold: &'static str,
    ) {
        self.add(what, legwork, Some(raw), unit, hold);
    }

    /// Adds a figure that stands alone.
    pub fn note(&mut self, what: &str, figure: f64, unit: &'static str, hold: &'static str) {
        self.add(what, figure, None, unit, hold);
    }

    /// Keeps a figure and prints it, so that it is there even if a later workload fails.
    fn add(
        &mut self,
        what: &str,
        legwork: f64,
        raw: Option<f64>,
        unit: &'static str,
        hold: &'static str,
    ) {
        if self.rows.is_empty() {
            let (ours, ratio) = ("legwork", "ratio");
            println!("{:<44} {ours:>12} {:>12} {:<6} {ratio:>7}  hold", "what", "raw", "unit");
        }
        let beside = raw.map_or_else(|| "-".into(), |raw| format!("{raw:.1}"));
        let ratio = raw.map_or_else(|| "-".into(), |raw| format!("{:.2}", legwork / raw));
        println!("{what:<44} {legwork:>12.1} {beside:>12} {unit:<6} {ratio:>7}  {hold}");
        let (workload, what) = (self.workload, what.into());
        self.rows.push(Row { workload, what, legwork, raw, unit, hold });
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
