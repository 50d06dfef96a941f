//! The answer to a plan as a page with the plot of cost against response time.

use super::answer::Answer;
use super::text::{saved, to_text};
use base::units::{format_duration_ns, grouped_decimal};
use papers::plot::{PairAxis, PairStyle, Pairs, escaped, pairs};
use papers::report::{Head, other};
use plan::{Candidate, Figures, Plan};

/// What a reader of the page has to know.
const FOOTER: &str = "Made by Entresol under the virtual clock. The front are the candidates that no other is better than in price or response \
    time without being worse in the other. Point at a mark to read it.";

/// The page.
pub fn page(head: &Head, plan: &Plan, answer: &Answer<'_>) -> String {
    let mut body = String::new();
    if let Some(plot) = plot(plan, answer) {
        let caption = "<b>Plot 1.</b> What 99 % of the response times do not exceed, against the price of a month.";
        body += &format!("<figure><div class=wide>{plot}</div><figcaption>{caption}</figcaption></figure>");
    }
    if let Some(error) = &answer.infeasible {
        body += &format!("<p class=missing>{}</p>", escaped(&error.to_string()));
    }
    body += &front(plan, answer);
    body +=
        &format!("<details open><summary>In words</summary><pre>{}</pre></details>", escaped(&to_text(plan, answer)));
    other(head, &plan.title, &body, FOOTER)
}

fn plot(plan: &Plan, answer: &Answer<'_>) -> Option<String> {
    let mark = |candidate: &Candidate, figures: &Figures| {
        let (cost, p99) = (figures.cost_per_month, figures.p99_us / 1e3);
        let tip = format!(
            "{}: {} {} a month, 99 % within {} ms, {} transactions/s",
            candidate.name(),
            grouped_decimal(cost, 2),
            plan.currency,
            grouped_decimal(p99, 2),
            grouped_decimal(figures.throughput_per_s, 0)
        );
        ([cost, p99], tip)
    };
    let (mut kept, mut broken) = (Vec::new(), Vec::new());
    for (candidate, tried) in &answer.all {
        let Some((_, figures)) = &tried.figures else { continue };
        let place = if plan.limits.are_kept(figures) { &mut kept } else { &mut broken };
        place.push(mark(candidate, figures));
    }
    let points = answer.front.iter().map(|point| mark(point.candidate, point.figures)).collect();
    let sets = [
        Pairs { name: "front".to_owned(), style: PairStyle::Stairs, points },
        Pairs { name: "keeps all limits".to_owned(), style: PairStyle::Marks, points: kept },
        Pairs { name: "breaks a limit".to_owned(), style: PairStyle::Marks, points: broken },
    ];
    let cost = plan.limits.cost_per_month.map(|limit| (limit, "limit".to_owned()));
    let p99 = plan.limits.p99_ns.map(|ns| (ns as f64 / 1e6, format!("limit {}", format_duration_ns(ns as f64))));
    let axes = [
        PairAxis { name: format!("{} per month", plan.currency), is_logarithmic: false, limit: cost },
        PairAxis { name: "99 % response time (ms)".to_owned(), is_logarithmic: true, limit: p99 },
    ];
    pairs(&plan.title, [&axes[0], &axes[1]], &sets)
}

fn front(plan: &Plan, answer: &Answer<'_>) -> String {
    if answer.front.is_empty() {
        return String::new();
    }
    let header = ["point", "candidate", &plan.currency, "99 %", "per second", "busiest", "cache saves", "restart"];
    let mut html = "<h2>The front</h2><div class=wide><table><thead><tr>".to_owned();
    header.iter().for_each(|title| html += &format!("<th>{}", escaped(title)));
    html += "</thead>";
    for (number, point) in answer.front.iter().enumerate() {
        let figures = point.figures;
        let busiest = point.busiest().map_or_else(String::new, |(name, busy)| format!("{name} {:.0} %", 100.0 * busy));
        let cells = [
            (number + 1).to_string(),
            point.candidate.name(),
            grouped_decimal(figures.cost_per_month, 2),
            format_duration_ns(figures.p99_us * 1e3),
            grouped_decimal(figures.throughput_per_s, 0),
            busiest,
            figures.cache.as_ref().and_then(saved).unwrap_or_default(),
            figures.recovery_s.map_or_else(String::new, |seconds| format_duration_ns(seconds * 1e9)),
        ];
        html += "<tr>";
        cells.iter().for_each(|cell| html += &format!("<td>{}", escaped(cell)));
    }
    html + "</table></div>"
}
