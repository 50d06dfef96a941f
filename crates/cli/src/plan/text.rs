//! The answer to a plan for people, and for programs.

use super::answer::{Answer, AnswerPoint};
use crate::table::{WIDTH, table, wrapped, wrapped_to};
use base::units::{format_duration_ns, format_size, grouped, grouped_decimal};
use plan::limits::Nearness;
use plan::{Plan, Unfit};
use serde_json::{Value, json};
use std::collections::BTreeMap;

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

fn time(us: f64) -> String {
    format_duration_ns(us * 1e3)
}

/// The answer for people, at most 100 columns wide.
pub fn to_text(plan: &Plan, answer: &Answer<'_>) -> String {
    let mut parts = vec![wrapped(&heading(plan, answer))];
    if !answer.front.is_empty() {
        let header = ["point", "candidate", "per month", "99 %", "per second", "busiest", "nearest limit"];
        let rows = answer.front.iter().enumerate().map(|(number, point)| {
            vec![
                format!("{}", number + 1),
                point.candidate.name(),
                grouped_decimal(point.figures.cost_per_month, 2),
                time(point.figures.p99_us),
                grouped_decimal(point.figures.throughput_per_s, 0),
                point.busiest().map_or_else(String::new, |(name, busy)| format!("{name} {}", percent(*busy))),
                point.limits.first().map_or_else(String::new, near),
            ]
        });
        parts.push(table(&header, 2, rows));
        parts.extend(answer.front.iter().enumerate().map(|(number, point)| details(plan, number + 1, point)));
    }
    parts.extend(refusals(plan, answer));
    for (candidate, tried) in &answer.all {
        if let Some(failure) = &tried.failure {
            parts.push(wrapped(&format!("Failed: {}: {failure}", candidate.name())));
        }
    }
    parts.join("\n\n")
}

fn near(limit: &Nearness) -> String {
    format!("{} {}", limit.limit, percent(limit.used))
}

fn heading(plan: &Plan, answer: &Answer<'_>) -> String {
    let found = answer.found;
    let count = plan.candidates.len() + plan.refused.len();
    let (done, rounds) = found.rounds;
    let mut text = format!(
        "{}\nvirtual clock; prices in {} by {}\n{} candidates, {} runs in {}",
        plan.title,
        plan.currency,
        plan.sources.join(", "),
        grouped(count as u64),
        grouped(found.runs as u64),
        format_duration_ns(found.wall_ns as f64)
    );
    if done < rounds {
        text += &format!(
            "\nThe time was over in round {} of {rounds}: figures are of runs of 1/{} of the length or more; '--resume' goes on",
            done + 1,
            answer.divisor
        );
    }
    if answer.lacks_restarts(plan) {
        text += "\nThe limit 'recovery' was not looked at for all points: restarts are tried behind full runs alone";
    }
    text
}

/// What is said of one point.
fn details(plan: &Plan, number: usize, point: &AnswerPoint<'_>) -> String {
    let figures = point.figures;
    let prices: Vec<String> = point
        .candidate
        .machine
        .prices
        .iter()
        .map(|(what, price)| format!("{what} {}", grouped_decimal(*price, 2)))
        .collect();
    let busy: Vec<String> =
        figures.utilizations.iter().take(6).map(|(name, busy)| format!("{name} {}", percent(*busy))).collect();
    let wear = figures.wear.iter().filter(|wear| wear.bytes_per_year > 0.0).map(|wear| {
        let life =
            wear.years_of_life.map_or_else(String::new, |years| format!(", lasts {} years", grouped_decimal(years, 1)));
        let bytes = format_size(wear.bytes_per_year as u64);
        format!(
            "{} {bytes} a year, {} times over a day{life}",
            wear.device,
            grouped_decimal(wear.overwrites_per_day, 2)
        )
    });
    let limits: Vec<String> = point.limits.iter().map(near).collect();
    let mut lines = vec![
        format!("Point {number}: {}", point.candidate.name()),
        format!("price: {}", prices.join("; ")),
        format!(
            "response: mean {}, 99 % {}; found in memory {}, in the cache {}",
            time(figures.mean_us),
            time(figures.p99_us),
            percent(figures.hit_ratios[0]),
            percent(figures.hit_ratios[1])
        ),
        format!("busy: {}", busy.join(", ")),
        format!("written: {}", wear.collect::<Vec<_>>().join("; ")),
    ];
    if figures.was_steady == Some(false) {
        lines.push(
            "not steady: throughput and misses still changed when it was measured; give 'warm_up' more".to_owned(),
        );
    }
    if let Some(seconds) = figures.recovery_s {
        lines.push(format!("restart after a crash: {}", format_duration_ns(seconds * 1e9)));
    }
    if !limits.is_empty() {
        lines.push(format!("limits: {}", limits.join(", ")));
    }
    if let Some((cost, us)) = point.next {
        lines.push(format!(
            "next: {} {} more a month make the 99 % response time {} shorter",
            grouped_decimal(cost, 2),
            plan.currency,
            time(us)
        ));
    }
    let hanging = |line: &String| wrapped_to(line, usize::from(WIDTH) - 4).replace('\n', "\n    ");
    let (first, rest) = lines.split_first().expect("there is a heading");
    let rest = rest.iter().map(|line| format!("\n  {}", hanging(line))).collect::<String>();
    hanging(first) + &rest
}

/// How many candidates were not run, and why; nothing if all were.
fn refusals(plan: &Plan, answer: &Answer<'_>) -> Option<String> {
    let mut counts: BTreeMap<&'static str, (u64, String)> = BTreeMap::new();
    for unfit in unfits(plan, answer) {
        let count = counts.entry(unfit.limit()).or_insert_with(|| (0, unfit.to_string()));
        count.0 += 1;
    }
    let rows = counts.into_iter().map(|(limit, (count, why))| vec![limit.to_owned(), why, grouped(count)]);
    let rows: Vec<Vec<String>> = rows.collect();
    (!rows.is_empty()).then(|| table(&["not run: limit", "one of them", "candidates"], 2, rows))
}

/// Why candidates were not run.
pub fn unfits<'a>(plan: &'a Plan, answer: &Answer<'a>) -> impl Iterator<Item = &'a Unfit> {
    let pruned: Vec<&Unfit> = answer.all.iter().filter_map(|(_, tried)| tried.unfit.as_ref()).collect();
    plan.refused.iter().map(|refused| &refused.unfit).chain(pruned)
}

/// What stands above a written configuration.
pub fn comment(plan: &Plan, point: &AnswerPoint<'_>) -> String {
    let figures = point.figures;
    let mut text = format!(
        "{}: {}\nFor {}; {} {} a month by {}.\nPredicted under the virtual clock: 99 % of the response times within {}, {} transactions/s.\n",
        plan.title,
        point.candidate.name(),
        point.candidate.machine.instance,
        grouped_decimal(figures.cost_per_month, 2),
        plan.currency,
        plan.sources.join(", "),
        time(figures.p99_us),
        grouped_decimal(figures.throughput_per_s, 0)
    );
    for (name, place) in &point.candidate.machine.places {
        text += &format!("Device '{name}': {}.\n", place.kind);
    }
    text
}

fn choices(choices: &[(String, String)]) -> Value {
    Value::Object(choices.iter().map(|(name, label)| (name.clone(), json!(label))).collect())
}

/// The answer for programs.
pub fn to_json(plan: &Plan, answer: &Answer<'_>) -> Value {
    let point = |point: &AnswerPoint<'_>| {
        json!({
            "candidate": point.candidate.name(),
            "choices": choices(&point.candidate.choices),
            "instance": point.candidate.machine.instance,
            "prices": point.candidate.machine.prices,
            "figures": point.figures,
            "limits": point.limits,
            "next_step": point.next.map(|(cost, us)| json!({ "cost_per_month": cost, "p99_us_less": us })),
            "configuration": point.candidate.configuration_text(""),
        })
    };
    let run = answer.all.iter().filter_map(|(candidate, tried)| {
        let (divisor, figures) = tried.figures.as_ref()?;
        Some(json!({
            "candidate": candidate.name(), "choices": choices(&candidate.choices), "divisor": divisor,
            "keeps_limits": plan.limits.are_kept(figures), "figures": figures,
        }))
    });
    let pruned = answer.all.iter().filter_map(|(candidate, tried)| {
        let unfit = tried.unfit.as_ref()?;
        Some(json!({ "choices": choices(&candidate.choices), "limit": unfit.limit(), "why": unfit.to_string() }))
    });
    let refused = plan.refused.iter().map(|refused| {
        json!({ "choices": choices(&refused.choices), "limit": refused.unfit.limit(), "why": refused.unfit.to_string() })
    });
    let failed = answer.all.iter().filter_map(|(candidate, tried)| {
        tried.failure.as_ref().map(|failure| json!({ "choices": choices(&candidate.choices), "why": failure }))
    });
    json!({
        "title": plan.title,
        "currency": plan.currency,
        "sources": plan.sources,
        "miniature": plan.miniature,
        "candidates": plan.candidates.len() + plan.refused.len(),
        "rounds": { "finished": answer.found.rounds.0, "planned": answer.found.rounds.1, "divisor": answer.divisor },
        "runs": answer.found.runs,
        "wall_seconds": answer.found.wall_ns as f64 / 1e9,
        "lacks_restarts": answer.lacks_restarts(plan),
        "front": answer.front.iter().map(point).collect::<Vec<_>>(),
        "run": run.collect::<Vec<_>>(),
        "not_run": refused.chain(pruned).collect::<Vec<_>>(),
        "failed": failed.collect::<Vec<_>>(),
        "infeasible": answer.infeasible.as_ref().map(ToString::to_string),
    })
}
