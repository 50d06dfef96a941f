//! Results for programs.

use crate::Estimate;
use crate::outcome::{Results, Trial};
use serde_json::{Value, json};

/// Everything that came out, for programs: of each experiment its curves, and at each place of the abscissa the report, every
/// figure of which is the mean over the batches of all replications, and beside it half the widths of their 90 % intervals.
pub fn to_json(results: &Results) -> Value {
    let trial = |trial: &Trial| {
        let experiment = &trial.experiment;
        let points = experiment.points.iter().zip(&trial.outcomes).map(|(point, outcome)| {
            let (report, half_widths) = pooled(&outcome.reports.iter().collect::<Vec<_>>());
            json!({
                "line": experiment.lines[point.line],
                "x": experiment.x.values[point.x].1,
                "saturated": outcome.saturated,
                "failure": outcome.failure,
                "batches": outcome.reports.len(),
                "report": report,
                "half_width90": half_widths,
            })
        });
        let points: Vec<Value> = points.collect();
        json!({"name": experiment.name, "title": experiment.title, "x": experiment.x.name, "points": points})
    };
    json!({"experiments": results.trials.iter().map(trial).collect::<Vec<_>>()})
}

/// The means of all figures in reports of one shape, and half the widths of their intervals; what is no figure, or not in
/// all of them, is the first one's.
fn pooled(reports: &[&Value]) -> (Value, Value) {
    let Some(first) = reports.first() else { return (Value::Null, Value::Null) };
    let inner = |get: &dyn for<'a> Fn(&'a Value) -> Option<&'a Value>| {
        let parts: Option<Vec<&Value>> = reports.iter().map(|report| get(report)).collect();
        pooled(&parts.unwrap_or_else(|| get(first).into_iter().collect()))
    };
    match first {
        Value::Object(table) => {
            let parts = table.keys().map(|key| (key, inner(&|report| report.get(key))));
            let (means, widths): (Vec<_>, Vec<_>) =
                parts.map(|(key, (mean, width))| ((key.clone(), mean), (key.clone(), width))).unzip();
            (means.into_iter().collect(), widths.into_iter().filter(|(_, width)| !width.is_null()).collect())
        }
        Value::Array(elements) => {
            let (means, widths): (Vec<_>, Vec<_>) =
                (0..elements.len()).map(|index| inner(&|report| report.get(index))).unzip();
            (Value::Array(means), Value::Array(widths))
        }
        first => {
            let figures: Option<Vec<f64>> = reports.iter().map(|report| report.as_f64()).collect();
            figures.map_or_else(
                || ((*first).clone(), Value::Null),
                |figures| {
                    let estimate = Estimate::of(&figures);
                    (json!(estimate.mean), json!(estimate.half_width))
                },
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_pooled_figure_by_figure() {
        let report =
            |mean: f64, busy: f64| json!({"seed": "a", "response": {"mean": mean}, "stations": [{"busy": busy}]});
        let reports = [report(1.0, 0.5), report(2.0, 0.5), report(3.0, 0.5)];
        let (means, widths) = pooled(&reports.iter().collect::<Vec<_>>());
        assert_eq!(means, report(2.0, 0.5));
        let width = widths["response"]["mean"].as_f64().unwrap();
        assert!((width - 2.920 / 3.0_f64.sqrt()).abs() < 1e-12);
        assert_eq!(widths["stations"][0]["busy"], json!(0.0));
        assert!(widths.get("seed").is_none());
        assert_eq!(pooled(&[]), (Value::Null, Value::Null));
    }
}
