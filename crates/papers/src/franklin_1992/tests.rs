use super::*;
use crate::outcome::Outcome;
use crate::{Extent, report, study};
use serde_json::{Value, json};

const KEYS: [&str; 3] = ["throughput_per_s", "page_server", "utilization"];

fn trial(name: &str, report: impl Fn(&str, f64) -> Value) -> Trial {
    // What adapts does as well as the best.
    let best = |x| {
        let throughput = |report: &Value| report["throughput_per_s"].as_f64().unwrap_or(0.0);
        let reports = ALL.map(|line| report(line, x)).into_iter();
        reports.max_by(|one, other| throughput(one).total_cmp(&throughput(other))).expect("there are five")
    };
    study::canned(&Franklin1992, &KEYS, name, |line, x| Outcome {
        reports: vec![if ALL.contains(&line) { report(line, x) } else { best(x) }],
        ..Outcome::default()
    })
}

/// Where others are idle: N-chance takes this part of the reads that the others take, and has throughput in inverse proportion.
fn idle(part: f64) -> Results {
    let outcome = |line: &str, clients: f64| {
        let part = if line == "N-CHANCE" && clients > 1.0 { part } else { 1.0 };
        let mut report = report(line, clients, 20.0 / part);
        report["page_server"]["disk_reads_per_commit"] = json!(10.0 * part);
        report["page_server"]["passed_on_ratio"] = json!(0.5);
        Outcome { reports: vec![report], ..Outcome::default() }
    };
    Results { trials: vec![study::canned(&Franklin1992, &KEYS, idle::TRIAL, outcome)] }
}

#[test]
fn what_idle_clients_are_worth_is_judged_by_reads_and_throughput() {
    let [holds, differs] = [Verdict::Holds, Verdict::Differs];
    for (part, verdicts) in
        [(0.2, [holds, holds, holds]), (0.8, [differs, holds, holds]), (1.2, [differs, differs, holds])]
    {
        let claims = judged(&idle(part));
        assert_eq!(claims.iter().map(|claim| claim.verdict).collect::<Vec<_>>(), verdicts, "{part}");
    }
}

/// All that the paper has, in each of which what adapts reaches this part of the best one's throughput.
fn adapting(part: f64) -> Results {
    let outcome = |line: &str, clients| Outcome {
        reports: vec![report(line, clients, if ALL.contains(&line) { 20.0 } else { 20.0 * part })],
        ..Outcome::default()
    };
    let names = Franklin1992.experiments().iter().map(|(file, _)| file.trim_end_matches(".toml"));
    Results { trials: names.map(|name| study::canned(&Franklin1992, &KEYS, name, outcome)).collect() }
}

#[test]
fn what_adapts_is_judged_by_the_mean_of_all_configurations() {
    for (part, each, mean) in [
        (1.0, Verdict::Holds, Verdict::Holds),
        (0.97, Verdict::Holds, Verdict::Differs),
        (0.9, Verdict::Differs, Verdict::Differs),
    ] {
        let claims = Franklin1992.claims(&adapting(part));
        let verdicts = |number: &str| -> Vec<Verdict> {
            claims.iter().filter(|claim| claim.id.starts_with(number)).map(|claim| claim.verdict).collect()
        };
        assert_eq!((verdicts("A-1"), verdicts("A-2")), (vec![each; 12], vec![mean]), "{part}");
    }
}

/// Where a curve stands in an order, the first the highest.
fn rank(order: [&str; 5], line: &str) -> f64 {
    5.0 - order.iter().position(|other| *other == line).expect("one of the curves") as f64
}

/// A report with this throughput; the rest is as the paper has it for small buffers and no writes, at `clients`.
fn report(line: &str, clients: f64, tps: f64) -> Value {
    let falls = |from: f64, to: f64| from + (to - from) * (clients - 1.0) / 24.0;
    let memory = match line {
        "CBL" => falls(30.0, 32.0),
        "FWD" => falls(30.0, 89.0),
        "FWD-H" => falls(33.0, 91.0),
        "FWD-S" => falls(30.0, 97.0) - if clients < 10.0 { 2.0 } else { 0.0 },
        _ => falls(35.0, 99.5),
    };
    let io = match line {
        "FWD-HS" if clients >= 20.0 => 0.0,
        "FWD-HS" => 1.0,
        "CBL" if clients >= 10.0 => 9.0,
        "FWD-H" if clients <= 5.0 => 8.0,
        _ => 5.0,
    };
    let hits = match line {
        "CBL" => falls(58.0, 24.0),
        "FWD-H" => 30.0,
        _ => 40.0,
    };
    json!({
        "throughput_per_s": tps,
        "page_server": {
            "client_hit_ratio": 0.655, "client_hot_hit_ratio": 0.81,
            "server_hit_ratio": hits / 100.0, "server_hot_hit_ratio": 0.17, "server_cold_hit_ratio": 0.29,
            "in_memory_ratio": memory / 100.0,
            "disk_io_per_commit": io, "disk_reads_per_commit": io, "disk_writes_per_commit": 1.0,
            "messages_per_commit": match line {
                "CBL" => 14.0,
                "FWD-HS" => 25.0,
                _ => 18.0,
            },
            "dropped_sent_ratio": 0.96,
        },
        "utilization": [{"name": "network.slow", "utilization": if clients >= 5.0 { 0.95 } else { 0.5 }}],
    })
}

/// The throughput of small buffers on the slow network.
fn slow(line: &str, clients: f64) -> f64 {
    match clients {
        c if c < 5.0 => {
            if ["FWD-H", "FWD-HS"].contains(&line) {
                9.0
            } else {
                10.0
            }
        }
        5.0 => match line {
            "FWD-S" => 12.0,
            "FWD-H" | "FWD-HS" => 9.5,
            _ => 10.0,
        },
        25.0 if line == "FWD" => 29.7,
        _ => 25.0 + rank(["FWD-H", "FWD", "FWD-S", "FWD-HS", "CBL"], line),
    }
}

fn read_only() -> Results {
    let of_five_percent = |line: &str, clients: f64| report(line, clients, slow(line, clients));
    let fast =
        |line: &str, clients: f64| report(line, clients, 30.0 + rank(["FWD-HS", "FWD-S", "FWD-H", "FWD", "CBL"], line));
    let large = |line: &str, clients: f64| {
        let tps = match (line, clients) {
            ("CBL", _) => 20.0,
            ("FWD-H", c) if c <= 10.0 => 31.0,
            _ => 30.0,
        };
        let mut report = report(line, clients, tps);
        if line != "CBL" && clients >= 20.0 {
            report["page_server"]["disk_io_per_commit"] = json!(0.0);
            report["page_server"]["server_hit_ratio"] = json!(0.3);
        }
        report
    };
    let trials = vec![
        trial(small_buffers::SLOW, of_five_percent),
        trial(small_buffers::FAST, fast),
        trial(large_buffers::TRIAL, large),
    ];
    Results { trials }
}

fn writing() -> Results {
    let small = |line: &str, clients: f64| {
        let first = |first: &[&str; 5]| rank(*first, line);
        let tps = match clients {
            c if c < 10.0 => 10.0 + first(&["CBL", "FWD", "FWD-S", "FWD-H", "FWD-HS"]),
            _ => 50.0 + first(&["FWD-H", "FWD", "FWD-S", "FWD-HS", "CBL"]),
        };
        let mut report = report(line, clients, tps);
        report["page_server"]["server_hit_ratio"] = json!(0.43);
        report
    };
    let large =
        |line: &str, clients: f64| report(line, clients, 50.0 + rank(["FWD", "FWD-S", "FWD-H", "FWD-HS", "CBL"], line));
    let uniform = |line: &str, clients: f64| {
        let tps = if clients == 25.0 && line == "FWD" {
            55.0
        } else {
            50.0 + rank(["FWD-H", "FWD", "FWD-S", "FWD-HS", "CBL"], line)
        };
        report(line, clients, tps)
    };
    let uniform_large = |line: &str, clients: f64| {
        let order = if clients < 20.0 {
            ["FWD-HS", "FWD-H", "FWD-S", "FWD", "CBL"]
        } else {
            ["FWD-S", "FWD", "FWD-HS", "FWD-H", "CBL"]
        };
        report(line, clients, 50.0 + rank(order, line))
    };
    let trials = vec![
        trial(writes::SMALL, small),
        trial(writes::LARGE, large),
        trial(uniform::SMALL, uniform),
        trial(uniform::LARGE, uniform_large),
    ];
    Results { trials }
}

fn judged(results: &Results) -> Vec<Claim> {
    Franklin1992.claims(results).into_iter().filter(|claim| claim.verdict != Verdict::NotRun).collect()
}

#[test]
fn experiments_are_readable() {
    study::assert_readable(&Franklin1992, &KEYS);
}

#[test]
fn what_the_paper_describes_holds() {
    for (results, claims) in [(read_only(), 24 + 6 + 3), (writing(), 7 + 4 + 4)] {
        let judged = judged(&results);
        for claim in &judged {
            assert_eq!(claim.verdict, Verdict::Holds, "{claim:?}");
        }
        assert_eq!(judged.len(), claims);
    }
    assert_eq!(Franklin1992.claims(&Results::default()).len(), 24 + 6 + 7 + 4 + 12 + 1 + 3);
}

#[test]
fn the_opposite_of_what_the_paper_describes_differs() {
    let opposite = |results: &Results| {
        let mut results = results.clone();
        for outcome in results.trials.iter_mut().flat_map(|trial| &mut trial.outcomes) {
            for report in &mut outcome.reports {
                for path in [
                    "in_memory_ratio",
                    "client_hit_ratio",
                    "client_hot_hit_ratio",
                    "server_hot_hit_ratio",
                    "server_hit_ratio",
                    "dropped_sent_ratio",
                    "server_cold_hit_ratio",
                ] {
                    let ratio = report["page_server"][path].as_f64().unwrap_or(0.0);
                    report["page_server"][path] = json!(1.0 - ratio);
                }
                for path in ["disk_io_per_commit", "disk_reads_per_commit", "messages_per_commit"] {
                    let figure = report["page_server"][path].as_f64().unwrap_or(0.0);
                    report["page_server"][path] = json!(100.0 - 3.0 * figure);
                }
                let tps = report["throughput_per_s"].as_f64().unwrap_or(0.0);
                report["throughput_per_s"] = json!(100.0 - 1.5 * tps);
                report["utilization"][0]["utilization"] = json!(0.2);
            }
        }
        results
    };
    for results in [read_only(), writing()] {
        // What lies in the middle, and what compares only how far curves are apart, may survive.
        let survivors: Vec<String> = judged(&opposite(&results))
            .into_iter()
            .filter(|claim| claim.verdict == Verdict::Holds)
            .map(|claim| claim.id)
            .collect();
        let expected = ["F-9 similar", "F-8 converge", "F-11 matched"];
        assert!(survivors.iter().all(|id| expected.contains(&id.as_str())), "{survivors:?}");
    }
}

/// The claims that results show or refute all the same if two batches of each run give half and one and a half times the figures, in one
/// order or the other: of any two curves the orders differ in one of three ways, so neither their differences nor their ratios can be told.
fn certain_all_the_same(results: &Results) -> Vec<String> {
    let certain = |bit: usize| {
        let mut results = study::uncertain(results.clone());
        for trial in &mut results.trials {
            let points = trial.experiment.points.iter().zip(&mut trial.outcomes);
            let reversed = points.filter(|(point, _)| point.line >> bit & 1 == 1);
            reversed.for_each(|(_, outcome)| outcome.reports.reverse());
        }
        let claims = judged(&results).into_iter().filter(|claim| claim.verdict != Verdict::Undecided);
        claims.map(|claim| claim.id).collect::<Vec<_>>()
    };
    let [mut first, second, third] = [0, 1, 2].map(certain);
    first.retain(|id| second.contains(id) && third.contains(id));
    first
}

#[test]
fn nothing_but_zeros_can_be_told_by_two_uncertain_batches() {
    let certain: Vec<String> = [read_only(), writing()].iter().flat_map(certain_all_the_same).collect();
    assert_eq!(certain, ["F-4 once", "F-8 disk"], "reads that never happened");
    assert_eq!(certain_all_the_same(&idle(0.2)), Vec::<String>::new());
    assert_eq!(certain_all_the_same(&adapting(1.0)), ["F-4 once"]);
}

#[test]
fn what_was_not_run_is_no_verdict() {
    let claims = Franklin1992.claims(&Results::default());
    assert!(claims.iter().all(|claim| claim.verdict == Verdict::NotRun && claim.interval.is_none()));
    assert!(Franklin1992.answers(&Results::default()).iter().all(|answer| answer.answer.contains("missing")));
}

#[test]
fn a_report_holds_the_claims_the_plots_and_the_choices() {
    let results = read_only();
    let (claims, answers) = (Franklin1992.claims(&results), Franklin1992.answers(&results));
    let study = study::named("franklin-1992").expect("it is one of them");
    let page = report::study(&report::head(Extent::Full), study, &claims, &answers, &results);
    for part in ["F-6 best", "<svg", "figure 8", "256 bytes"] {
        assert!(page.contains(part), "{part}");
    }
}
