//! The text that Prometheus reads.

use std::fmt::Display;

use legwork::Timings;

/// What all names begin with.
const PREFIX: &str = "legwork_";

/// The text, family by family.
#[derive(Debug, Default)]
pub(super) struct MetricsPage(pub String);

impl MetricsPage {
    /// A number that goes up and down.
    pub(super) fn gauge(&mut self, name: &str, help: &str, number: impl Display) {
        self.gauges(name, help, [(String::new(), number)]);
    }

    /// The same by labels.
    pub(super) fn gauges<N: Display>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (String, N)>,
    ) {
        self.numbers("gauge", name, help, samples);
    }

    /// A number that only goes up.
    pub(super) fn counter(&mut self, name: &str, help: &str, count: u64) {
        self.counters(name, help, [(String::new(), count)]);
    }

    /// The same by labels.
    pub(super) fn counters(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (String, u64)>,
    ) {
        self.numbers("counter", name, help, samples);
    }

    fn numbers<N: Display>(
        &mut self,
        kind: &str,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (String, N)>,
    ) {
        self.family(name, kind, help);
        for (labels, number) in samples {
            self.sample(name, &labels, number);
        }
    }

    /// A histogram in seconds.
    pub(super) fn timings<'a>(
        &mut self,
        name: &str,
        help: &str,
        all: impl IntoIterator<Item = (String, &'a Timings)>,
    ) {
        self.family(name, "histogram", help);
        for (labels, timings) in all {
            let (within, count) = timings.cumulative();
            let bucket = format!("{name}_bucket");
            let separator = if labels.is_empty() { "" } else { "," };
            for (bound, count) in within {
                let bound = bound.as_secs_f64();
                self.sample(&bucket, &format!("{labels}{separator}le=\"{bound}\""), count);
            }
            self.sample(&bucket, &format!("{labels}{separator}le=\"+Inf\""), count);
            self.sample(&format!("{name}_sum"), &labels, timings.total().as_secs_f64());
            self.sample(&format!("{name}_count"), &labels, count);
        }
    }

    fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.0.push_str(&format!("# HELP {PREFIX}{name} {help}\n# TYPE {PREFIX}{name} {kind}\n"));
    }

    fn sample(&mut self, name: &str, labels: &str, number: impl Display) {
        let (open, close) = if labels.is_empty() { ("", "") } else { ("{", "}") };
        self.0.push_str(&format!("{PREFIX}{name}{open}{labels}{close} {number}\n"));
    }
}

/// A label with its value, which must be a plain word.
pub(super) fn label(name: &str, value: &str) -> String {
    format!("{name}=\"{value}\"")
}
