//! What the runs of experiments gave.

use crate::experiment::Output;
use crate::{Estimate, Experiment};
use serde_json::Value;

/// What one point of an experiment gave: the report of each batch of each of its replications.
///
/// ```
/// use entresol_papers::Outcome;
/// use serde_json::json;
///
/// let reports = vec![
///     json!({ "utilization": [{ "name": "cpu", "utilization": 0.50 }] }),
///     json!({ "utilization": [{ "name": "cpu", "utilization": 0.54 }] }),
/// ];
/// let outcome = Outcome { reports, ..Outcome::default() };
/// let busy = outcome.estimate("utilization.cpu.utilization").expect("both reports have it");
/// assert_eq!(busy.mean, 0.52);
/// assert_eq!(outcome.estimate("utilization.tape.utilization"), None);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The reports, as JSON.
    pub reports: Vec<Value>,
    /// The station that could not keep up with the arrivals, in the first replication that ended so.
    pub saturated: Option<String>,
    /// Why there is no report, if the run failed.
    pub failure: Option<String>,
}

impl Outcome {
    /// The figure at a dotted path of the reports; `None` if there is none in one of them.
    pub fn estimate(&self, path: &str) -> Option<Estimate> {
        let values = self.values(path)?;
        let estimate = Estimate::of(&values);
        if values.len() > 1 || path != "response_us.mean" {
            return Some(estimate);
        }
        // A run in one batch has the interval of its own batch means.
        let half_width = find(&self.reports[0], "response_us.half_width90").and_then(Value::as_f64);
        Some(Estimate { half_width, ..estimate })
    }

    /// What `derive` makes of the figures of each report, for figures that depend on each other: it is given what finds the figure at
    /// a path of the report.
    pub fn derived(&self, derive: impl Fn(&dyn Fn(&str) -> Option<f64>) -> Option<f64>) -> Option<Estimate> {
        let of_report = |report: &Value| derive(&|path: &str| find(report, path)?.as_f64());
        let values: Option<Vec<f64>> = self.reports.iter().map(of_report).collect();
        values.filter(|values| !values.is_empty()).map(|values| Estimate::of(&values))
    }

    /// By how much the figure at a path is above another run's, if both were steady. Replications of both that have the same seed are
    /// compared with each other (common random numbers), so the interval is that of their differences.
    pub fn above(&self, other: &Outcome, path: &str) -> Option<Estimate> {
        let (ours, others) = self.paired(other, path)?;
        let differences: Vec<f64> = ours.iter().zip(&others).map(|(ours, other)| ours - other).collect();
        Some(Estimate::of(&differences))
    }

    /// The figure at a path as a multiple of another run's, if both were steady. As in [`Outcome::above`] reports are compared in pairs:
    /// the interval is that of what is left of each of ours when the ratio of the means explains it by the other's, to first order
    /// (Cochran: Sampling Techniques, 1977, section 6.4).
    pub fn over(&self, other: &Outcome, path: &str) -> Option<Estimate> {
        let (ours, others) = self.paired(other, path)?;
        let base = Estimate::of(&others).mean;
        let ratio = Estimate::of(&ours).mean / base;
        let left: Vec<f64> = ours.iter().zip(&others).map(|(ours, other)| (ours - ratio * other) / base).collect();
        Some(Estimate { mean: ratio, half_width: Estimate::of(&left).half_width })
    }

    /// The figures of reports that belong together.
    fn paired(&self, other: &Outcome, path: &str) -> Option<(Vec<f64>, Vec<f64>)> {
        let (ours, others) = (self.values(path)?, other.values(path)?);
        (ours.len() == others.len() && self.is_steady() && other.is_steady()).then_some((ours, others))
    }

    /// The figure at a dotted path of each report.
    pub(crate) fn values(&self, path: &str) -> Option<Vec<f64>> {
        let values: Option<Vec<f64>> = self.reports.iter().map(|report| find(report, path)?.as_f64()).collect();
        values.filter(|values| !values.is_empty())
    }

    /// The figures in the table at a dotted path, by name in the report's order; those of other levels are left out.
    pub fn table(&self, path: &str) -> Vec<(String, Estimate)> {
        let figure = |key: String| Some((key.clone(), self.estimate(&format!("{path}.{key}"))?));
        self.names(path).into_iter().filter_map(figure).collect()
    }

    /// The keys of the table at a dotted path, in the report's order.
    pub fn names(&self, path: &str) -> Vec<String> {
        match self.reports.first().and_then(|report| find(report, path)) {
            Some(Value::Object(table)) => table.keys().cloned().collect(),
            _ => Vec::new(),
        }
    }

    /// Whether the run ended as planned.
    pub fn is_steady(&self) -> bool {
        self.saturated.is_none() && self.failure.is_none()
    }
}

/// The value at a dotted path. An element of an array is named by its key `name`, which may hold dots itself.
fn find<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    if path.is_empty() {
        return Some(value);
    }
    if let Value::Array(elements) = value {
        return elements.iter().find_map(|element| {
            let rest = path.strip_prefix(element.get("name")?.as_str()?)?;
            if rest.is_empty() { Some(element) } else { find(element, rest.strip_prefix('.')?) }
        });
    }
    // The keys of a table may hold dots, too.
    value.as_object()?.iter().find_map(|(key, inner)| {
        let rest = path.strip_prefix(key.as_str())?;
        if rest.is_empty() { Some(inner) } else { find(inner, rest.strip_prefix('.')?) }
    })
}

/// An experiment that has been run.
#[derive(Clone, Debug)]
pub struct Trial {
    /// What was run.
    pub experiment: Experiment,
    /// What came out, point by point.
    pub outcomes: Vec<Outcome>,
}

impl Trial {
    /// What the curve of this name gave where the abscissa is `x`.
    pub fn at(&self, line: &str, x: f64) -> Option<&Outcome> {
        let line = self.experiment.lines.iter().position(|name| name == line)?;
        let place = self.experiment.x.values.iter().position(|(value, _)| *value == x)?;
        let point = |point: &crate::experiment::Point| point.line == line && point.x == place;
        self.outcomes.get(self.experiment.points.iter().position(point)?)
    }

    /// What the curve with this number gave, along the abscissa.
    pub fn along(&self, line: usize) -> impl Iterator<Item = (f64, &Outcome)> {
        let points = self.experiment.points.iter().zip(&self.outcomes);
        points
            .filter(move |(point, _)| point.line == line)
            .map(|(point, outcome)| (self.experiment.x.values[point.x].0, outcome))
    }

    /// The mean response time of a curve at `x`, in milliseconds, if the run was steady.
    pub fn response_ms(&self, line: &str, x: f64) -> Option<Estimate> {
        let outcome = self.at(line, x).filter(|outcome| outcome.is_steady())?;
        Some(outcome.estimate("response_us.mean")? * 1e-3)
    }

    /// The figure at a path of what the curve gave at `x`, if the run was steady.
    pub fn figure(&self, line: &str, x: f64, path: &str) -> Option<Estimate> {
        self.at(line, x).filter(|outcome| outcome.is_steady())?.estimate(path)
    }

    /// What an output shows of the outcome at `x`: in its unit, or relative to another curve.
    pub fn shown(&self, outcome: &Outcome, x: f64, output: &Output) -> Option<Estimate> {
        let own = outcome.estimate(&output.path)?;
        match &output.relative_to {
            None => Some(own * output.factor),
            Some(line) => match self.at(line, x)? {
                base if std::ptr::eq(base, outcome) => Some(Estimate::exact(output.factor)),
                base => Some(own / base.estimate(&output.path)? * output.factor),
            },
        }
    }

    /// By how much the figure of one curve is above another's at `x`; see [`Outcome::above`].
    pub fn difference(&self, [line, other]: [&str; 2], x: f64, path: &str) -> Option<Estimate> {
        self.at(line, x)?.above(self.at(other, x)?, path)
    }

    /// The highest throughput that the curve shows, in transactions per second: if arrivals exceed what can be served, that
    /// is what can be served. A run that was cut off before its second batch counts only if there is no other.
    pub fn throughput_max(&self, line: &str) -> Option<Estimate> {
        let line = self.experiment.lines.iter().position(|name| name == line)?;
        let figures = self.along(line).filter_map(|(_, outcome)| outcome.estimate("throughput_per_s"));
        figures.max_by(|a, b| {
            (a.half_width.is_some(), a.mean).partial_cmp(&(b.half_width.is_some(), b.mean)).expect("numbers")
        })
    }

    /// Every run that failed: its curve and its place on the abscissa, and why.
    pub fn failures(&self) -> impl Iterator<Item = (String, &str)> {
        let Experiment { points, lines, x, .. } = &self.experiment;
        points.iter().zip(&self.outcomes).filter_map(move |(point, outcome)| {
            let at = format!("{}, {} {}", lines[point.line], x.name, x.values[point.x].1);
            Some((at, outcome.failure.as_deref()?))
        })
    }

    /// The places of the abscissa.
    pub fn places(&self) -> impl Iterator<Item = f64> {
        self.experiment.x.values.iter().map(|(x, _)| *x)
    }

    /// The largest place of the abscissa at which the curve was steady, and the first after it at which it was not, with the
    /// saturated station.
    pub fn limit(&self, line: &str) -> Option<(f64, Option<(f64, &str)>)> {
        let line = self.experiment.lines.iter().position(|name| name == line)?;
        let mut last = None;
        for (x, outcome) in self.along(line) {
            if let Some(station) = &outcome.saturated {
                return Some((last.unwrap_or(0.0), Some((x, station))));
            }
            if outcome.is_steady() {
                last = Some(x);
            }
        }
        Some((last?, None))
    }
}

/// Every experiment of a study.
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// The experiments in their order.
    pub trials: Vec<Trial>,
}

impl Results {
    /// The experiment of this name.
    pub fn trial(&self, name: &str) -> Option<&Trial> {
        self.trials.iter().find(|trial| trial.experiment.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn figures_are_found_by_path() {
        let report = |cpu: f64| {
            json!({
                "response_us": {"mean": 5.0, "half_width90": 0.5},
                "hit_ratio": {"account": 0.25, "note": "text"},
                "utilization": [{"name": "cpu", "busy": cpu}, {"name": "disk.medium", "busy": 0.75}],
            })
        };
        let one = Outcome { reports: vec![report(0.5)], ..Outcome::default() };
        assert_eq!(one.estimate("utilization.disk.medium.busy"), Some(Estimate::exact(0.75)));
        assert_eq!(one.estimate("response_us.mean"), Some(Estimate { mean: 5.0, half_width: Some(0.5) }));
        assert_eq!(one.table("hit_ratio"), [("account".to_owned(), Estimate::exact(0.25))]);
        for absent in ["utilization.disk.busy", "response_us", "nothing", "utilization"] {
            assert_eq!(one.estimate(absent), None, "{absent}");
        }
        let two = Outcome { reports: vec![report(0.4), report(0.6)], ..Outcome::default() };
        let cpu = two.estimate("utilization.cpu.busy").unwrap();
        assert!((cpu.mean - 0.5).abs() < 1e-12 && (cpu.half_width.unwrap() - 0.6314).abs() < 1e-9, "{cpu:?}");
        assert_eq!(Outcome::default().estimate("response_us.mean"), None);
        // A figure less itself is nothing in each report, however wide its interval.
        let nothing = two.derived(|figure| Some(figure("utilization.cpu.busy")? - figure("utilization.cpu.busy")?));
        assert_eq!(nothing, Some(Estimate { mean: 0.0, half_width: Some(0.0) }));
        assert_eq!(two.derived(|figure| figure("nothing")), None);
    }

    #[test]
    fn runs_of_the_same_transactions_are_compared_in_pairs() {
        let runs = |figures: &[f64]| {
            let reports = figures.iter().map(|figure| json!({ "rate": figure })).collect();
            Outcome { reports, ..Outcome::default() }
        };
        let base = runs(&[10.0, 20.0, 30.0]);
        // What varies in both alike says nothing of how they differ.
        let half = runs(&[5.0, 10.0, 15.0]);
        assert_eq!(half.over(&base, "rate"), Some(Estimate { mean: 0.5, half_width: Some(0.0) }));
        assert_eq!(base.above(&half, "rate").map(|above| above.mean), Some(10.0));
        let unpaired = half.estimate("rate").unwrap() / base.estimate("rate").unwrap();
        assert!(unpaired.mean == 0.5 && unpaired.half_width > Some(0.4));
        // What is left of 6, 10 and 14 is 1, 0 and -1 of 20 each: deviation 0.05, t = 2.920 with two degrees of freedom.
        let other = runs(&[6.0, 10.0, 14.0]).over(&base, "rate").unwrap();
        assert!((other.half_width.unwrap() - 2.920 * 0.05 / 3.0_f64.sqrt()).abs() < 1e-4 && other.mean == 0.5);
        // And what varies in opposite directions differs by more than either does.
        let opposite = runs(&[15.0, 10.0, 5.0]).over(&base, "rate").unwrap();
        assert!(opposite.half_width > unpaired.half_width);
        let saturated = Outcome { saturated: Some("disk".to_owned()), ..half.clone() };
        assert_eq!((runs(&[1.0]).over(&base, "rate"), saturated.over(&base, "rate")), (None, None));
        assert_eq!(runs(&[1.0]).over(&runs(&[2.0]), "rate"), Some(Estimate::exact(0.5)));
    }
}
