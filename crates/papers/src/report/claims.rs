//! Claims, and the paper's tables beside ours, as HTML.

use super::text;
use crate::plot::figure_text as figure;
use crate::{Cell, Claim, Results, Table, Verdict};
use base::units::grouped_decimal;
use std::fmt::Write;

/// The anchor of a claim or an experiment.
pub(super) fn anchor(kind: &str, name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
    format!("{kind}-{}", name.chars().map(plain).collect::<String>())
}

/// Links to anchors of this kind.
pub(super) fn links<'a>(kind: &str, names: impl Iterator<Item = &'a str>) -> String {
    let link = |name: &str| format!("<a href=\"#{}\">{}</a>", anchor(kind, name), text(name));
    names.map(link).collect::<Vec<_>>().join(", ")
}

/// Every claim with its verdict, and a switch that leaves the ones that hold out.
pub(super) fn table(claims: &[Claim], results: &Results) -> String {
    let mut table =
        "<p class=filter><label><input type=checkbox id=differs> Show only what differs or is undecided</label></p>\
                     <table class=claims><thead><tr><th>Claim<th><th>Paper<th>Here<th>90 % interval</thead>"
            .to_owned();
    for claim in claims {
        let class = claim.verdict.word().replace(' ', "-");
        let interval =
            claim.interval.map_or_else(String::new, |[low, high]| format!("{} to {}", figure(low), figure(high)));
        let _ = write!(
            table,
            "<tbody class={class} id=\"{}\"><tr><td><b>{}</b><br>{}<td class=verdict>{}<td>{}<td>{}<td class=interval>{interval}\
             <tr class=reason><td colspan=5>{}",
            anchor("claim", &claim.id),
            text(&claim.id),
            text(&claim.claim),
            claim.verdict.word(),
            text(&claim.paper),
            text(&claim.ours),
            text(&claim.reason),
        );
        let shown = claim.experiments.iter().map(String::as_str).filter(|name| results.trial(name).is_some());
        let plots = links("plot", shown);
        if !plots.is_empty() {
            let _ = write!(table, " <span class=links>Plots: {plots}</span>");
        }
        table += "</tbody>";
    }
    table + "</table>"
}

/// One of the paper's tables: in each cell our figure, and under it the paper's.
pub(super) fn beside(table: &Table) -> String {
    let mut html = format!(
        "<div class=wide><table class=beside id=\"{}\"><caption>{}</caption><thead><tr><th>",
        anchor("table", &table.id),
        text(&table.title)
    );
    for column in &table.columns {
        let _ = write!(html, "<th>{}", text(column));
    }
    html += "</thead>";
    for row in &table.rows {
        let _ = write!(html, "<tr><th>{}", text(&row.name));
        row.cells.iter().for_each(|cell| html += &cell_html(cell, table.places));
    }
    html + "</table><p class=note>Ours above, the paper's below.</p></div>"
}

fn cell_html(cell: &Cell, places: usize) -> String {
    let number = |number: f64| grouped_decimal(number, places);
    let ours = match (cell.ours, cell.half_width90) {
        (Some(ours), Some(width)) => format!("<span title=\"&plusmn; {}\">{}</span>", figure(width), number(ours)),
        (Some(ours), None) => number(ours),
        (None, _) => "&ndash;".to_owned(),
    };
    let paper = cell.paper.map_or_else(String::new, |paper| format!("<br><small>{}</small>", number(paper)));
    let class = match cell.verdict() {
        Some(Verdict::Differs) => " class=differs",
        Some(Verdict::Undecided) => " class=undecided",
        _ => "",
    };
    format!("<td{class}>{ours}{paper}")
}
