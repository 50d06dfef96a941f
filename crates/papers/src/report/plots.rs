//! Experiments with their plots and figures, as HTML.

use super::claims::{anchor, links};
use super::text;
use crate::experiment::Output;
use crate::outcome::{Outcome, Results, Trial};
use crate::plot::{self, figure_text as figure, label_of};
use crate::{Claim, Estimate};
use std::fmt::Write;

/// Every experiment; plots are numbered through.
pub(super) fn trials(results: &Results, claims: &[Claim]) -> String {
    let mut number = 0;
    results.trials.iter().map(|trial| trial_html(trial, claims, &mut number)).collect()
}

fn trial_html(trial: &Trial, claims: &[Claim], number: &mut usize) -> String {
    let experiment = &trial.experiment;
    let mut html = format!(
        "<section id=\"{}\"><h3>{}</h3><p>{}</p>",
        anchor("plot", &experiment.name),
        text(&experiment.title),
        text(&experiment.about)
    );
    let judged = claims.iter().filter(|claim| claim.experiments.contains(&experiment.name));
    let judged = links("claim", judged.map(|claim| claim.id.as_str()));
    if !judged.is_empty() {
        let _ = write!(html, "<p class=links>Claims: {judged}</p>");
    }
    for output in &experiment.outputs {
        match plot::html(trial, output) {
            Some(plot) => {
                *number += 1;
                let caption = caption(trial, output, *number);
                let _ = write!(html, "<figure><div class=wide>{plot}</div><figcaption>{caption}</figcaption></figure>");
            }
            None => {
                let _ = write!(html, "<p class=missing>No run has a figure for {}.</p>", text(&output.label));
            }
        }
        html += &figures(trial, output);
    }
    for (at, failure) in trial.failures() {
        let _ = write!(html, "<p class=missing>{}: {}</p>", text(&at), text(failure));
    }
    html + "</section>"
}

/// The number of a plot, what it shows, and what of it the paper gives.
fn caption(trial: &Trial, output: &Output, number: usize) -> String {
    let mut caption = format!("<b>Plot {number}.</b> {}.", text(&output.label));
    if let Some(figure) = &output.figure {
        let _ = write!(caption, " The paper's {}.", text(figure));
        if output.marks.is_empty() {
            caption += " Its values are not legible in the text at hand.";
        }
    }
    if !output.marks.is_empty() {
        let mut sources: Vec<&str> = output.marks.iter().map(|mark| mark.source.as_str()).collect();
        sources.dedup();
        let _ = write!(caption, " Hollow diamonds: the paper's values ({}).", text(&sources.join("; ")));
    }
    let name = format!("{}-{number}.csv", trial.experiment.name);
    let _ = write!(
        caption,
        " <a class=csv download=\"{name}\" href=\"data:text/csv;charset=utf-8,{}\">CSV</a>",
        percent_encoded(&csv(trial, output))
    );
    caption
}

/// The figures of a plot as rows of curve, place, mean, half the width of the interval, and the paper's value.
fn csv(trial: &Trial, output: &Output) -> String {
    let experiment = &trial.experiment;
    let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
    let optional = |number: Option<f64>| number.map_or_else(String::new, |number| number.to_string());
    let mut rows = format!("curve,{},part,{},half_width90,paper\n", quoted(&experiment.x.name), quoted(&output.label));
    for (line, name) in experiment.lines.iter().enumerate() {
        for (x, outcome) in trial.along(line) {
            let mark = output.marks.iter().find(|mark| mark.line == *name && mark.x == x).map(|mark| mark.y);
            let mut row = |part: &str, estimate: Estimate| {
                let estimate = estimate * output.factor;
                let (curve, place) = (quoted(name), quoted(&label_of(experiment, x)));
                let (mean, width, paper) = (estimate.mean, optional(estimate.half_width), optional(mark));
                let _ = writeln!(rows, "{curve},{place},{},{mean},{width},{paper}", quoted(part));
            };
            let parts = outcome.table(&output.path);
            parts.iter().for_each(|(part, estimate)| row(part, *estimate));
            if let Some(estimate) = outcome.estimate(&output.path).filter(|_| parts.is_empty()) {
                row("", estimate);
            }
        }
    }
    rows
}

/// As the part of an address behind its scheme.
fn percent_encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b',' => encoded.push(char::from(byte)),
            _ => {
                let _ = write!(encoded, "%{byte:02X}");
            }
        }
    }
    encoded
}

/// The figures of a plot as a table.
fn figures(trial: &Trial, output: &Output) -> String {
    let experiment = &trial.experiment;
    if plot::is_table(trial, output) {
        return String::new();
    }
    let mut table = format!(
        "<details><summary>Figures</summary><div class=wide><table><thead><tr><th>{}",
        text(&experiment.x.name)
    );
    for line in &experiment.lines {
        let _ = write!(table, "<th>{}", text(line));
    }
    table += "</thead>";
    for (x, label) in &experiment.x.values {
        let _ = write!(table, "<tr><td>{}", text(label));
        for line in 0..experiment.lines.len() {
            let outcome = trial.along(line).find(|(place, _)| place == x).map(|(_, outcome)| outcome);
            let _ = write!(table, "<td>{}", outcome.map_or_else(String::new, |outcome| cell(outcome, output)));
        }
    }
    table + "</table></div></details>"
}

fn cell(outcome: &Outcome, output: &Output) -> String {
    if let Some(station) = &outcome.saturated {
        return format!("saturated: {}", text(station));
    }
    let Some(estimate) = outcome.estimate(&output.path).map(|estimate| estimate * output.factor) else {
        return "-".to_owned();
    };
    let half_width = estimate.half_width.map_or_else(String::new, |width| format!(" &plusmn; {}", figure(width)));
    format!("{}{half_width}", figure(estimate.mean))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_holds_any_text() {
        assert_eq!(percent_encoded("a,\"b c\"\n±"), "a,%22b%20c%22%0A%C2%B1");
    }
}
