use super::*;
use crate::outcome::{Outcome, Trial};
use crate::{Extent, Verdict, plot, report, study};
use serde_json::{Value, json};

const KEYS: [&str; 8] = [
    "response_us",
    "throughput_per_s",
    "composition_us",
    "utilization",
    "hit_ratio",
    "hit_ratio_all",
    "hit_ratio_second_level_all",
    "io_per_transaction",
];

fn trial(name: &str, report: impl Fn(&str, f64) -> Option<Value>) -> Trial {
    study::canned(&Rahm1991, &KEYS, name, |line, x| match report(line, x) {
        Some(report) => Outcome { reports: vec![report], ..Outcome::default() },
        None => Outcome {
            reports: vec![json!({"throughput_per_s": 190.0, "response_us": {"mean": 9e6}})],
            saturated: Some("log-disk.medium".to_owned()),
            ..Outcome::default()
        },
    })
}

fn response(ms: f64, throughput: f64) -> Value {
    json!({"throughput_per_s": throughput, "response_us": {"mean": ms * 1e3, "half_width90": 100.0},
           "composition_us": {"cpu": 5e3, "read_wait": ms * 500.0}})
}

/// A single log disk as the paper shows it; `limit` is where it saturates.
fn log_disk(limit: f64) -> Results {
    let report = move |line: &str, rate: f64| match line {
        "single log disk" if rate > limit => None,
        "single log disk" => Some(response(48.0 + if rate > 100.0 { rate / 2.0 } else { rate / 50.0 }, rate)),
        _ => Some(response(43.0 + rate / 1_000.0, rate)),
    };
    Results { trials: vec![trial("4-2-log", report)] }
}

fn claim(results: &Results, id: &str) -> Claim {
    Rahm1991.claims(results).into_iter().find(|claim| claim.id == id).unwrap()
}

#[test]
fn a_log_disk_as_in_the_paper_holds_and_a_faster_one_differs() {
    let as_in_the_paper = claim(&log_disk(180.0), "R-4.1a");
    assert_eq!(as_in_the_paper.verdict, Verdict::Holds, "{as_in_the_paper:?}");
    assert_eq!(as_in_the_paper.ours, "190 TPS");
    assert_eq!(claim(&log_disk(800.0), "R-4.1a").verdict, Verdict::Differs);
    assert_eq!(claim(&log_disk(180.0), "R-4.1b").verdict, Verdict::Holds);
}

#[test]
fn what_was_not_run_is_no_verdict() {
    let claims = Rahm1991.claims(&Results::default());
    assert!(claims.iter().all(|claim| claim.verdict == Verdict::NotRun && claim.interval.is_none()));
    let ids = [
        "R-4.1a",
        "R-4.1b",
        "R-4.1c",
        "R-4.2a",
        "R-4.2b",
        "R-4.2c",
        "R-4.2d",
        "R-4.3a",
        "R-4.3b",
        "R-4.2t",
        "R-4.4a",
        "R-4.4b",
        "R-4.4c",
        "R-4.5a",
        "R-4.x disk caches",
        "R-4.x three levels",
        "R-4.6a",
        "R-4.6b",
        "R-4.8a",
    ];
    for id in ids {
        assert_eq!(claims.iter().filter(|claim| claim.id == id).count(), 1, "{id}");
    }
    assert_eq!(claims.len(), ids.len());
    assert!(Rahm1991.answers(&Results::default()).iter().all(|answer| answer.answer.contains("missing")));
}

/// The paper's own table 4.2, every cell off by `error` points.
fn table(error: f64) -> Results {
    let ratios = |name: &'static str| {
        move |line: &str, size: f64| {
            let place = [200.0, 500.0, 1_000.0, 2_000.0].iter().position(|main| *main == size);
            let cell = |wanted: &str| {
                let row = caching::TABLE.iter().find(|(of, line, _)| *of == name && *line == wanted)?;
                Some((row.2[place?] + error) / 100.0)
            };
            Some(json!({
                "response_us": {"mean": 50_000.0}, "hit_ratio_all": cell(caching::NONE),
                "hit_ratio_second_level_all": cell(line),
            }))
        }
    };
    let trials = ["4-5-noforce", "4-5-force"].map(|name| trial(name, ratios(name)));
    Results { trials: trials.into() }
}

#[test]
fn every_cell_of_the_table_counts() {
    let exact = table(0.0);
    assert!(claim(&exact, "R-4.2t").ours.starts_with("27 of 27 cells"), "{:?}", claim(&exact, "R-4.2t"));
    assert_eq!(claim(&exact, "R-4.2t").verdict, Verdict::Holds);
    let off = table(1.2);
    assert_eq!(claim(&off, "R-4.2t").ours, "0 of 27 cells, the farthest +1.2 points off");
    assert_eq!(claim(&off, "R-4.2t").verdict, Verdict::Differs);
    let tables = Rahm1991.tables(&off);
    let row = tables[1].rows.iter().find(|row| row.name == "NVEM cache 1,000").unwrap();
    let cell = &row.cells[3];
    assert_eq!((cell.paper, cell.verdict()), (Some(0.6), Some(Verdict::Differs)));
    assert!((cell.ours.unwrap() - 1.8).abs() < 1e-9);
    assert!(tables.iter().flat_map(|table| &table.rows).all(|row| row.cells.len() == 4));
}

#[test]
fn every_experiment_of_the_study_can_be_read() {
    study::assert_readable(&Rahm1991, &KEYS);
}

#[test]
fn a_report_holds_claims_plots_and_nothing_from_outside() {
    let results = log_disk(180.0);
    let (claims, answers) = (Rahm1991.claims(&results), Rahm1991.answers(&results));
    let page =
        report::study(&report::head(Extent::Full), study::named("rahm-1991").unwrap(), &claims, &answers, &results);
    assert!(page.contains("R-4.1a") && page.contains("<svg") && page.contains("log-disk.medium saturated"));
    assert!(!page.contains("src=") && !page.contains("href=\"http"), "the page refers to something outside");
    let trial = &results.trials[0];
    let svg = plot::html(trial, &trial.experiment.outputs[0]).unwrap();
    assert!(svg.matches("<polyline").count() >= trial.experiment.lines.len(), "{svg}");
    let json = report::to_json(&results);
    assert_eq!(json["experiments"][0]["points"].as_array().unwrap().len(), trial.outcomes.len());
}
