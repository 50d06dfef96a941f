//! What was measured beside what was predicted, figure by figure, with the error and the runs' own spread.

use super::figures::{self, MEAN, Reading, Unit};
use super::probe::Probes;
use crate::bench::Outcome;
use crate::bench::ratio;
use crate::table::{table, wrapped};
use base::units::format_duration_ns;
use serde_json::{Map, Value, json};

/// A figure of all runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    /// For people.
    pub name: String,
    /// For programs.
    pub key: String,
    /// What it counts.
    pub unit: Unit,
    /// Of the real runs, in their order.
    pub real: Vec<f64>,
    /// Under the virtual clock; `None` where only this machine has it.
    pub predicted: Option<f64>,
    /// What an error is a share of; the figure itself if `None`.
    whole: Option<f64>,
}

impl Compared {
    /// The median of the real runs.
    pub fn median(&self) -> Option<f64> {
        median(&self.real)
    }

    /// How far a value is from the median of the real runs: as a share of it, or of what the figure is a part of; of shares the
    /// difference. `None` where that has no meaning.
    fn distance(&self, value: f64) -> Option<f64> {
        let median = self.median()?;
        let whole = match (self.unit, self.whole) {
            (Unit::Share, _) => 1.0,
            (_, Some(whole)) => whole,
            _ => median,
        };
        if value == median { Some(0.0) } else { Some((value - median) / whole).filter(|error| error.is_finite()) }
    }

    /// The error of the prediction.
    pub fn error(&self) -> Option<f64> {
        self.distance(self.predicted?)
    }

    /// How far the least and the greatest of the real runs are from their median; `None` of one run.
    pub fn spread(&self) -> Option<[f64; 2]> {
        if self.real.len() < 2 {
            return None;
        }
        let end = |pick: fn(f64, f64) -> f64| self.distance(self.real.iter().copied().reduce(pick)?);
        Some([end(f64::min)?, end(f64::max)?])
    }

    /// Whether the prediction lies among the real runs.
    pub fn is_within_spread(&self) -> bool {
        match (self.error(), self.spread()) {
            (Some(error), Some([low, high])) => (low..=high).contains(&error),
            _ => false,
        }
    }

    fn row(&self) -> Vec<String> {
        let words = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| self.unit.words(value));
        let spread =
            self.spread().map_or_else(String::new, |[low, high]| format!("{} to {}", percent(low), percent(high)));
        let error = self.error().map_or_else(
            || "-".to_owned(),
            |error| match self.unit {
                Unit::Share => format!("{:+.1} points", error * 100.0),
                Unit::PartOfResponse => format!("{} of the mean", percent(error)),
                _ => percent(error),
            },
        );
        vec![self.name.clone(), words(self.median()), spread, words(self.predicted), error]
    }

    fn to_json(&self) -> Value {
        json!({
            "real": self.real, "median": self.median(), "spread": self.spread(), "predicted": self.predicted,
            "error": self.error(), "is_within_spread": self.is_within_spread(),
        })
    }
}

fn percent(share: f64) -> String {
    format!("{:+.1} %", share * 100.0)
}

/// The median, if there is any.
pub fn median(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| ratio::median(values.iter().copied()))
}

/// All runs of a workload.
pub struct Comparison {
    /// The hardware of the prediction, as it was named.
    pub hardware: String,
    /// The runs on this machine.
    pub real: Vec<Outcome>,
    /// The run under the virtual clock.
    pub predicted: Outcome,
    /// How long that took, and a real run with everything that belongs to it in the median, in seconds of the wall clock.
    pub wall_seconds: [f64; 2],
    /// Looks at the devices between the runs.
    pub probes: Probes,
    /// What the description leaves out, beside what the runs say themselves.
    pub notes: Vec<String>,
}

impl Comparison {
    /// Every figure that one of the runs has.
    pub fn figures(&self) -> Vec<Compared> {
        let real: Vec<Vec<Reading>> = self.real.iter().map(figures::readings).collect();
        let predicted = figures::readings(&self.predicted);
        let mut known: Vec<&Reading> = Vec::new();
        for reading in real.iter().flatten().chain(&predicted) {
            if known.iter().all(|known| known.key != reading.key) {
                known.push(reading);
            }
        }
        let value = |readings: &[Reading], key: &str| {
            readings.iter().find(|reading| reading.key == key).map(|reading| reading.value)
        };
        let values = |key: &str| -> Vec<f64> { real.iter().filter_map(|readings| value(readings, key)).collect() };
        let mean = median(&values(MEAN));
        let compared = known.into_iter().map(|reading| Compared {
            name: reading.name.clone(),
            key: reading.key.clone(),
            unit: reading.unit,
            real: values(&reading.key),
            predicted: value(&predicted, &reading.key),
            whole: mean.filter(|_| reading.unit == Unit::PartOfResponse),
        });
        // What neither has done says nothing.
        let is_something = |figure: &Compared| figure.real.iter().chain(&figure.predicted).any(|value| *value != 0.0);
        compared.filter(is_something).collect()
    }

    /// The workload, for people.
    pub fn workload(&self) -> &str {
        match &self.predicted {
            Outcome::Transactions(report) => &report.workload,
            Outcome::Spill(report) => &report.operation,
            Outcome::PageServer(report) => &report.workload,
        }
    }

    /// What a reader must know to trust the figures.
    fn notes(&self) -> Vec<String> {
        let mut notes = self.notes.clone();
        for outcome in self.real.iter().chain([&self.predicted]) {
            match outcome {
                Outcome::Transactions(report) => {
                    notes.extend(report.notes.iter().cloned());
                    if report.warm_up.is_some_and(|warm_up| !warm_up.is_steady) {
                        notes.push("the virtual run was measured before it was steady".to_owned());
                    }
                }
                Outcome::PageServer(report) => notes.extend(report.notes.iter().cloned()),
                Outcome::Spill(_) => {}
            }
        }
        notes.sort();
        notes.dedup();
        notes
    }

    /// The comparison for people, at most 100 columns wide.
    pub fn to_text(&self) -> String {
        let runs = self.real.len();
        let heading = format!(
            "{}\nhere: {runs} run{}; predicted on '{}' in {}, where a real run took {}",
            self.workload(),
            if runs == 1 { "" } else { "s, medians" },
            self.hardware,
            format_duration_ns(self.wall_seconds[0] * 1e9),
            format_duration_ns(self.wall_seconds[1] * 1e9),
        );
        let header = ["", "here", "its runs", "predicted", "error"];
        let rows = self.figures().iter().map(Compared::row).collect::<Vec<_>>();
        let mut parts = vec![wrapped(&heading), table(&header, 1, rows)];
        parts.extend(self.probes.to_text());
        parts.extend(self.notes().iter().map(|note| wrapped(&format!("Note: {note}"))));
        parts.join("\n\n")
    }

    /// The comparison for programs.
    pub fn to_json(&self) -> Value {
        let report = |outcome: &Outcome| serde_json::from_str::<Value>(&outcome.to_json()).expect("a report is JSON");
        let figures: Map<String, Value> =
            self.figures().iter().map(|figure| (figure.key.clone(), figure.to_json())).collect();
        let distribution = |outcome: &Outcome| match outcome {
            Outcome::Transactions(report) => json!(report.distribution_us),
            Outcome::PageServer(report) => json!(report.distribution_us),
            Outcome::Spill(report) => json!(report.distribution_us),
        };
        json!({
            "workload": self.workload(),
            "hardware": self.hardware,
            "rounds": self.real.len(),
            "virtual_wall_seconds": self.wall_seconds[0],
            "real_wall_seconds": self.wall_seconds[1],
            "figures": figures,
            "probes": self.probes.to_json(),
            "distribution_us": {
                "shares": crate::report::SHARES,
                "real": self.real.iter().map(distribution).collect::<Vec<_>>(),
                "predicted": distribution(&self.predicted),
            },
            "notes": self.notes(),
            "real": self.real.iter().map(report).collect::<Vec<_>>(),
            "predicted": report(&self.predicted),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(unit: Unit, real: &[f64], predicted: f64, whole: Option<f64>) -> Compared {
        let (name, key) = ("x".to_owned(), "x".to_owned());
        Compared { name, key, unit, real: real.to_vec(), predicted: Some(predicted), whole }
    }

    #[test]
    fn errors_are_of_the_median_of_the_real_runs() {
        let rate = figure(Unit::PerSecond, &[90.0, 100.0, 120.0], 110.0, None);
        assert_eq!((rate.median(), rate.spread()), (Some(100.0), Some([-0.1, 0.2])));
        assert!((rate.error().unwrap() - 0.1).abs() < 1e-12 && rate.is_within_spread());
        let ratio = figure(Unit::Share, &[0.5], 0.6, None);
        assert!((ratio.error().unwrap() - 0.1).abs() < 1e-12 && ratio.spread().is_none());
        let part = figure(Unit::PartOfResponse, &[0.0, 2.0], 3.0, Some(100.0));
        assert_eq!(part.error(), Some(0.02));
        assert_eq!(figure(Unit::Number, &[0.0], 1.0, None).error(), None, "nothing to be a share of");
        assert_eq!(figure(Unit::Number, &[0.0], 0.0, None).error(), Some(0.0));
    }
}
