//! The report: one HTML file that needs nothing else, and the results for programs.

use crate::outcome::{Outcome, Results, Trial};
use crate::{Answer, Claim, Estimate, Study, Verdict, plot};
use base::units::grouped_decimal;
use serde_json::{Value, json};
use std::fmt::Write;

const STYLE: &str = include_str!("report.css");

/// The report of a study.
pub fn study(study: &dyn Study, claims: &[Claim], answers: &[Answer], results: &Results) -> String {
    let mut body = format!("<h1>Reproduction: {}</h1><p>{}</p>", escaped(study.id()), escaped(study.source()));
    let count = |verdict| claims.iter().filter(|claim| claim.verdict() == verdict).count();
    let [holds, differs, missing] = [Verdict::Holds, Verdict::Differs, Verdict::NotRun].map(count);
    let not_run = if missing > 0 { format!(", <b>{missing}</b> not run") } else { String::new() };
    let _ = write!(body, "<p class=sum><b>{holds}</b> claims hold, <b>{differs}</b> differ{not_run}.</p>");
    if !answers.is_empty() {
        body += "<h2>The study's questions</h2><dl>";
        for Answer { question, answer } in answers {
            let _ = write!(body, "<dt>{}</dt><dd>{}</dd>", escaped(question), escaped(answer));
        }
        body += "</dl>";
    }
    body += "<h2>Claims</h2>";
    body += &claims_table(claims);
    if !study.choices().is_empty() {
        body += "<h2>What the paper leaves open, and what was chosen</h2><ul>";
        for choice in study.choices() {
            let _ = write!(body, "<li>{}</li>", escaped(choice));
        }
        body += "</ul>";
    }
    body += "<h2>Experiments</h2>";
    results.trials.iter().for_each(|trial| body += &trial_html(trial));
    page(study.id(), &body)
}

/// The report of experiments alone.
pub fn experiments(results: &Results) -> String {
    let title = results.trials.first().map_or("Experiment", |trial| trial.experiment.title.as_str());
    let body: String = results.trials.iter().map(trial_html).collect();
    page(title, &body)
}

fn page(title: &str, body: &str) -> String {
    format!(
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\
         <title>{} - Entresol</title><style>{STYLE}</style><body><main>{body}\
         <footer>Made by Entresol under the virtual clock, and on this machine's where it says so. Vertical strokes at the marks of a curve are 90 % confidence \
         intervals; &times; marks where a curve's arrivals exceed what a station can serve.</footer></main></body></html>",
        escaped(title)
    )
}

fn claims_table(claims: &[Claim]) -> String {
    let mut table = "<table class=claims><thead><tr><th>Claim<th><th>Paper<th>Here<th>90 % interval</thead>".to_owned();
    for claim in claims {
        let class = claim.verdict().word().replace(' ', "-");
        let interval =
            claim.interval.map_or_else(String::new, |[low, high]| format!("{} to {}", figure(low), figure(high)));
        let _ = write!(
            table,
            "<tr class={class}><td><b>{}</b><br>{}<td class=verdict>{}<td>{}<td>{}<td class=interval>{interval}\
             <tr class=reason><td colspan=5>{}",
            escaped(&claim.id),
            escaped(&claim.claim),
            claim.verdict().word(),
            escaped(&claim.paper),
            escaped(&claim.ours),
            escaped(&claim.reason),
        );
    }
    table + "</table>"
}

fn trial_html(trial: &Trial) -> String {
    let experiment = &trial.experiment;
    let mut html = format!("<section><h3>{}</h3><p>{}</p>", escaped(&experiment.title), escaped(&experiment.about));
    for output in &experiment.outputs {
        match plot::svg(trial, output) {
            Some(svg) => html += &format!("<figure>{svg}</figure>"),
            None => html += &format!("<p class=missing>No run has a figure for {}.</p>", escaped(&output.label)),
        }
        html += &figures(trial, output);
    }
    for (at, failure) in trial.failures() {
        let _ = write!(html, "<p class=missing>{}: {}</p>", escaped(&at), escaped(failure));
    }
    html + "</section>"
}

/// The figures of a plot, for who wants to read them.
fn figures(trial: &Trial, output: &crate::experiment::Output) -> String {
    let experiment = &trial.experiment;
    if trial.outcomes.iter().any(|outcome| !outcome.table(&output.path).is_empty()) {
        return String::new();
    }
    let mut table = format!(
        "<details><summary>figures: {}</summary><table><thead><tr><th>{}",
        escaped(&output.label),
        escaped(&experiment.x.name)
    );
    for line in &experiment.lines {
        let _ = write!(table, "<th>{}", escaped(line));
    }
    table += "</thead>";
    for (x, label) in &experiment.x.values {
        let _ = write!(table, "<tr><td>{}", escaped(label));
        for line in 0..experiment.lines.len() {
            let outcome = trial.along(line).find(|(place, _)| place == x).map(|(_, outcome)| outcome);
            let _ = write!(table, "<td>{}", outcome.map_or_else(String::new, |outcome| cell(outcome, output)));
        }
    }
    table + "</table></details>"
}

fn cell(outcome: &Outcome, output: &crate::experiment::Output) -> String {
    if let Some(station) = &outcome.saturated {
        return format!("saturated: {}", escaped(station));
    }
    let Some(estimate) = outcome.estimate(&output.path).map(|estimate| estimate * output.factor) else {
        return "-".to_owned();
    };
    let half_width = estimate.half_width.map_or_else(String::new, |width| format!(" &plusmn; {}", figure(width)));
    format!("{}{half_width}", figure(estimate.mean))
}

fn figure(number: f64) -> String {
    let places = match number.abs() {
        n if n >= 100.0 => 0,
        n if n >= 10.0 => 1,
        _ => 2,
    };
    grouped_decimal(number, places)
}

/// As HTML, where no line begins with a percent sign.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace(" %", "&nbsp;%")
}

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
