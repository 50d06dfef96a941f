//! The report: one HTML file that needs nothing else, and the results for programs.

mod claims;
mod json;
mod plots;

pub use json::to_json;

use crate::outcome::Results;
use crate::plot::escaped;
use crate::{Answer, Claim, Extent, Study, Verdict};
use std::fmt::Write;

const STYLE: &str = include_str!("report/style.css");
const SCRIPT: &str = include_str!("report/script.js");

/// How a report came about.
#[derive(Clone, Debug)]
pub struct Head {
    /// The command that makes the same report again.
    pub command: String,
    /// The release that made it.
    pub version: String,
    /// Whether everything was run.
    pub extent: Extent,
    /// The machine that it was made on.
    pub machine: String,
    /// The day and time, in UTC.
    pub date: String,
}

/// A head for tests.
#[cfg(test)]
pub(crate) fn head(extent: Extent) -> Head {
    let [command, version, machine, date] = ["entresol", "0", "none", "2026-11-23 12:00 UTC"].map(str::to_owned);
    Head { command, version, extent, machine, date }
}

/// The report of a study.
pub fn study(head: &Head, study: &dyn Study, claims: &[Claim], answers: &[Answer], results: &Results) -> String {
    let mut body = format!("<h1>Reproduction: {}</h1><p>{}</p>", text(study.id()), text(study.source()));
    body += &provenance(head, results);
    let _ = write!(body, "<p class=sum>{}.</p>", summary(claims));
    if !answers.is_empty() {
        body += "<h2>The study's questions</h2><dl>";
        for Answer { question, answer } in answers {
            let _ = write!(body, "<dt>{}</dt><dd>{}</dd>", text(question), text(answer));
        }
        body += "</dl>";
    }
    body += "<h2>Claims</h2>";
    body += &claims::table(claims, results);
    let tables = study.tables(results);
    if !tables.is_empty() {
        body += "<h2>Tables of the paper</h2>";
        tables.iter().for_each(|table| body += &claims::beside(table));
    }
    if !study.choices().is_empty() {
        body += "<h2>What the paper leaves open, and what was chosen</h2><ul>";
        for choice in study.choices() {
            let _ = write!(body, "<li>{}</li>", text(choice));
        }
        body += "</ul>";
    }
    body += "<h2>Experiments</h2>";
    body += &plots::trials(results, claims);
    page(study.id(), &body, FOOTER)
}

/// The report of experiments alone.
pub fn experiments(head: &Head, results: &Results) -> String {
    let title = results.trials.first().map_or("Experiment", |trial| trial.experiment.title.as_str());
    let body = format!("<h1>{}</h1>{}", text(title), provenance(head, results));
    page(title, &(body + &plots::trials(results, &[])), FOOTER)
}

/// A report of other things: a page with this body, in HTML, and what is said at its foot.
pub fn other(head: &Head, title: &str, body: &str, footer: &str) -> String {
    let rows =
        [("Command", &head.command), ("Version", &head.version), ("Machine", &head.machine), ("Date", &head.date)];
    let rows: String = rows.iter().map(|(name, value)| format!("<tr><th>{name}<td>{}", text(value))).collect();
    page(title, &format!("<h1>{}</h1><table class=provenance>{rows}</table>{body}", text(title)), footer)
}

/// What a reader of a report of experiments has to know.
const FOOTER: &str = "Made by Entresol under the virtual clock, and on this machine's where it says so. Vertical strokes at the marks \
    of a curve are 90 % confidence intervals; &times; marks where a curve's arrivals exceed what a station can serve; an \
    arrow at the upper edge stands for a value beyond the axis, which is written above it; hollow diamonds are the \
    paper's own values. Point at a mark to read it.";

/// How many claims have each verdict, as HTML.
fn summary(claims: &[Claim]) -> String {
    let count = |verdict: &Verdict| claims.iter().filter(|claim| claim.verdict == *verdict).count();
    let counts = Verdict::ALL.iter().map(|verdict| (count(verdict), verdict.word())).filter(|(count, _)| *count > 0);
    counts.map(|(count, word)| format!("<b>{count}</b> {word}")).collect::<Vec<_>>().join(", ")
}

/// What a reader needs to make the report again.
fn provenance(head: &Head, results: &Results) -> String {
    let seeds = results.trials.iter().flat_map(|trial| &trial.experiment.points).map(|point| point.setting.plan.seed);
    let seeds: std::collections::BTreeSet<u64> = seeds.collect();
    let seeds: Vec<String> = seeds.iter().map(u64::to_string).collect();
    let extent = match head.extent {
        Extent::Full => "full: every value, full length",
        Extent::Quick => "quick: fewer values, shorter runs",
    };
    let rows = [
        ("Command", format!("<code>{}</code>", escaped(&head.command))),
        ("Run", extent.to_owned()),
        ("Seeds", if seeds.is_empty() { "none".to_owned() } else { seeds.join(", ") }),
        ("Version", text(&head.version)),
        ("Machine", text(&head.machine)),
        ("Date", text(&head.date)),
    ];
    let rows: String = rows.iter().map(|(name, value)| format!("<tr><th>{name}<td>{value}")).collect();
    format!("<table class=provenance>{rows}</table>")
}

fn page(title: &str, body: &str, footer: &str) -> String {
    format!(
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width, initial-scale=1\">\
         <title>{} - Entresol</title><style>{STYLE}</style><body><main>{body}\
         <footer>{footer}</footer></main><script>{SCRIPT}</script></body></html>",
        text(title)
    )
}

/// As HTML, where no line begins with a percent sign.
fn text(text: &str) -> String {
    escaped(text).replace(" %", "&nbsp;%")
}
