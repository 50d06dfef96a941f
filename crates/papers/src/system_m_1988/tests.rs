use super::*;
use crate::outcome::Outcome;
use crate::{Extent, Verdict, plot, report, study};
use serde_json::{Value, json};

const KEYS: [&str; 9] = [
    "recovery",
    "transactions",
    "response_us",
    "throughput_per_s",
    "cpu_us_per_transaction",
    "log_record_bytes_per_transaction",
    "locks",
    "server",
    "torture",
];

fn trial(name: &str, report: impl Fn(&str, f64) -> Value) -> Trial {
    study::canned(&SystemM1988, &KEYS, name, |line, x| Outcome { reports: vec![report(line, x)], ..Outcome::default() })
}

/// What CALC might have: a little more than the best.
const CALC: StrategyRow = row("CALC", 75.0, [9100.0, 450.0, 550.0, 2900.0]);

/// Table 4.1 as it is, with CALC beside it, but for what `change` makes of a row's throughput.
fn paper(change: impl Fn(&str, f64) -> f64) -> Results {
    let report = move |line: &str, spooling: f64| {
        let row = TABLE.iter().find(|row| row.name == line).unwrap_or(&CALC);
        let slow = row.is_black_white_by_transaction();
        let volume =
            if line.ends_with("VALUE") { 90.0 } else { 60.0 } - if line.ends_with("TOPER") { 10.0 } else { 0.0 };
        let [transaction, checkpoint, log, message] = row.cpu_us;
        let tps = change(line, row.tps) - 2.0 * spooling;
        json!({
            "throughput_per_s": tps,
            "response_us": {"mean": if slow { 33.9e6 } else { 268e6 / tps }, "p50": if slow { 5.9e6 } else { 3.8e6 }},
            "cpu_us_per_transaction": row.cpu_us.iter().sum::<f64>(),
            "log_record_bytes_per_transaction": volume,
            "locks": {"conflicts": if spooling > 0.0 { 1e-5 } else { 3e-4 }},
            "server": {
                "restarts_per_transaction": if slow { 2.5 } else { 0.0 }, "restarting": 1_300.0,
                "share_by_restarts": {"0": 0.3, "1": 0.3, "5": 0.4},
                "response_us_by_restarts": {"0": if slow { 5.9e6 } else { 3.8e6 }, "1": 19e6, "5": 90e6},
                "cpu_us_per_transaction": {
                    "transaction": transaction, "checkpoint": checkpoint, "log": log, "message": message,
                },
            },
        })
    };
    Results { trials: vec![trial(TRIAL, report)] }
}

/// The same from two batches each, a share below and above.
fn blurred(mut results: Results, share: f64) -> Results {
    for outcome in results.trials.iter_mut().flat_map(|trial| &mut trial.outcomes) {
        let mut other = outcome.reports[0].clone();
        let tps = other["throughput_per_s"].as_f64().unwrap();
        outcome.reports[0]["throughput_per_s"] = json!(tps * (1.0 - share));
        other["throughput_per_s"] = json!(tps * (1.0 + share));
        outcome.reports.push(other);
    }
    results
}

fn claim(results: &Results, id: &str) -> Claim {
    SystemM1988.claims(results).into_iter().find(|claim| claim.id == id).unwrap_or_else(|| panic!("{id}"))
}

fn verdict(results: &Results, id: &str) -> Verdict {
    claim(results, id).verdict
}

#[test]
fn the_papers_own_table_holds_throughout() {
    let results = paper(|_, tps| tps);
    let claims = SystemM1988.claims(&results);
    let judged: Vec<&Claim> = claims.iter().filter(|claim| claim.verdict != Verdict::NotRun).collect();
    for claim in &judged {
        let calibrated = ["S-1 FUZZY/VALUE", "S-1 CPU"].contains(&claim.id.as_str());
        let expected = if calibrated { Verdict::Calibrated } else { Verdict::Holds };
        assert_eq!(claim.verdict, expected, "{claim:?}");
    }
    // Eleven rows, their order, CPU only, recovery; locks, spooling, volume, the log server; four responses, TCBW's two; CALC's two.
    assert_eq!(judged.len(), 11 + 3 + 4 + 4 + 2 + 2);
}

#[test]
fn a_row_that_is_off_and_rows_in_another_order_differ() {
    let off = paper(|name, tps| if name == "ACCOU/VALUE" { tps * 1.16 } else { tps });
    assert_eq!(verdict(&off, "S-1 ACCOU/VALUE"), Verdict::Differs);
    assert_eq!(verdict(&off, "S-1 TCCOU/VALUE"), Verdict::Holds);
    assert_eq!(verdict(&off, "S-1 order"), Verdict::Differs, "it is before all others now");
    let swapped = paper(|name, tps| if name == "ACBW/VALUE" { tps * 1.03 } else { tps });
    let order = claim(&swapped, "S-1 order");
    assert!(order.verdict == Verdict::Differs && order.reason.contains("FUZZY/VALUE before ACBW/VALUE"), "{order:?}");
    assert_eq!(
        verdict(&blurred(swapped, 0.01), "S-1 order"),
        Verdict::Holds,
        "ours are too uncertain to tell these apart"
    );
    let equal = claim(&paper(|_, _| 70.0), "S-1 order");
    assert!(equal.verdict == Verdict::Differs && equal.ours.contains("0 of 55 pairs reversed, 55 not"), "{equal:?}");
    let uncalibrated = paper(|name, tps| if name == "FUZZY/VALUE" { tps * 1.03 } else { tps });
    assert_eq!(verdict(&uncalibrated, "S-1 FUZZY/VALUE"), Verdict::Differs);
    assert_eq!(verdict(&uncalibrated, "S-1 CPU"), Verdict::Differs, "1.02 s of CPU in a second");
    let cheap = paper(|name, tps| if name == "TCBW/VALUE" { tps * 2.0 } else { tps });
    assert!(claim(&cheap, "S-1 TCBW/VALUE").reason.contains("2.50 restarts"));
}

#[test]
fn calc_is_held_against_every_pair_and_against_those_with_the_same_log() {
    let best = paper(|name, tps| if name == "ACBW/AOPER" { 76.0 } else { tps });
    let found = claim(&best, "CALC");
    assert_eq!(found.verdict, Verdict::Differs, "{found:?}");
    assert!(found.reason.contains("ACBW/AOPER 76.0 tps"), "{found:?}");
    assert_eq!(verdict(&best, "CALC, same log"), Verdict::Holds, "76 and 75 are a tie");
    let ahead = paper(|name, tps| if name == "TCBW/TOPER" { 77.0 } else { tps });
    assert_eq!(verdict(&ahead, "CALC, same log"), Verdict::Differs);
    let fuzzy = paper(|name, tps| if name == "FUZZY/VALUE" { 80.0 } else { tps });
    assert_eq!(verdict(&fuzzy, "CALC, same log"), Verdict::Holds, "it is not consistent");
}

fn machine(change: impl Fn(&str, f64) -> f64) -> Results {
    let report = move |line: &str, _: f64| {
        let tps = TABLE.iter().find(|row| row.name == line).map_or(99.0, |row| change(line, row.tps));
        let restarts = if line.starts_with("TCBW") { 0.2 } else { 0.0 };
        json!({
            "throughput_per_s": tps * 1e3, "transactions": tps * 1e3, "locks": {"waits": 20},
            "cpu_us_per_transaction": if line == "neither" { 2.0 } else { 4.5 },
            "server": {"restarts_per_transaction": restarts, "takeover_share": 0.02},
        })
    };
    Results { trials: vec![trial("this-machine", report)] }
}

#[test]
fn this_machine_is_judged_by_the_order_of_its_rows() {
    let same = machine(|_, tps| tps);
    for id in ["S-2 best", "S-2 worst", "CALC here", "S-6 today"] {
        assert_eq!(verdict(&same, id), Verdict::Holds, "{:?}", claim(&same, id));
    }
    assert_eq!(claim(&same, "S-6 today").ours, "2.50 us");
    let other = machine(|name, tps| if name == "ACCOU/VALUE" || name == "TCBW/AOPER" { 80.0 } else { tps });
    assert_eq!(verdict(&other, "S-2 best"), Verdict::Differs);
    assert_eq!(verdict(&other, "S-2 worst"), Verdict::Differs);
    assert!(claim(&other, "S-2 best").reason.starts_with("Reversed: FUZZY/VALUE before ACCOU/VALUE, "));
    let uncertain = blurred(same, 0.01);
    assert_eq!(verdict(&uncertain, "S-2 best"), Verdict::Undecided, "72.6 and 71.5 thousand, 4 more or less");
    assert_eq!(verdict(&uncertain, "S-2 worst"), Verdict::Holds);
    let overtaken = machine(|name, tps| if name == "ACBW/AOPER" { 100.0 } else { tps });
    assert_eq!(verdict(&overtaken, "CALC here"), Verdict::Differs);
}

#[test]
fn one_seed_that_fails_is_enough_and_stops_that_were_not_met_are_named() {
    let crashes = |failures: u64| {
        let report = move |_: &str, _: f64| {
            let stops = json!({"FUZZY/VALUE": {"superblock write": 3, "log scan": 0}, "TCBW/TOPER": {"superblock write": 1, "log scan": 2}});
            json!({"torture": {"seeds": 500, "runs": 1_500, "transactions": 9_000, "failures": failures, "stops": stops}})
        };
        let mut trial = trial("5-crashes", report);
        trial.outcomes[0].reports = vec![trial.outcomes[0].reports[0].clone(); 2];
        Results { trials: vec![trial] }
    };
    let sound = claim(&crashes(0), "S-5");
    assert_eq!(
        (sound.verdict, &*sound.ours),
        (Verdict::Holds, "0 wrong in 3,000 runs of 1,000 seeds, 18,000 transactions")
    );
    assert!(sound.reason.contains("all 2 valid pairs") && sound.reason.contains("3 of 4 such stops were met"));
    assert_eq!(verdict(&crashes(1), "S-5"), Verdict::Differs);
}

#[test]
fn a_shorter_queue_and_a_longer_interval_are_judged() {
    let queue = |loss: f64| {
        trial("4-3-queue", move |_, length| {
            let tps = if length < 10.0 { 72.0 - loss } else { 72.0 };
            json!({"throughput_per_s": tps, "response_us": {"mean": (length + 1.0) / tps * 1e6}})
        })
    };
    let results = Results { trials: vec![queue(0.5)] };
    assert!(claim(&results, "S-4.3 queue").ours.contains("FUZZY/VALUE 0.03 s with 1 requests"), "{results:?}");
    assert_eq!(verdict(&results, "S-4.3 queue"), Verdict::Holds);
    let retry = |slope: f64| {
        let mut results = paper(|_, tps| tps);
        results.trials.push(trial(
            "4-3-retry",
            move |_, interval| json!({"throughput_per_s": 40.0 + slope * interval, "response_us": {"mean": 33e6}}),
        ));
        results
    };
    assert_eq!(verdict(&retry(0.1), "S-4.3 retry"), Verdict::Holds);
    assert_eq!(verdict(&retry(-0.1), "S-4.3 retry"), Verdict::Differs);
    assert_eq!(verdict(&retry(2.0), "S-4.3 retry"), Verdict::Differs, "better than FUZZY is more than a little");
}

#[test]
fn what_was_not_run_is_no_verdict_and_every_experiment_can_be_read() {
    let claims = SystemM1988.claims(&Results::default());
    assert!(claims.iter().all(|claim| claim.verdict == Verdict::NotRun && claim.interval.is_none()));
    assert_eq!(claims.len(), 2 + 10 + 3 + 4 + 4 + 4 + 3 + 5 + 2);
    assert!(SystemM1988.answers(&Results::default()).iter().all(|answer| answer.answer.contains("missing")));
    study::assert_readable(&SystemM1988, &KEYS);
}

#[test]
fn a_report_holds_the_rows_and_the_choices() {
    let results = paper(|_, tps| tps);
    let (claims, answers) = (SystemM1988.claims(&results), SystemM1988.answers(&results));
    let page =
        report::study(&report::head(Extent::Full), study::named("system-m-1988").unwrap(), &claims, &answers, &results);
    assert!(page.contains("S-1 TCBW/TOPER") && page.contains("<svg") && page.contains("retry interval is 13 s"));
    assert!(answers[0].answer.contains("ACBW/AOPER 73.1, FUZZY/VALUE 72.7"), "{answers:?}");
    // One place on the abscissa makes no curve.
    let here = &machine(|_, tps| tps).trials[0];
    let bars = plot::html(here, &here.experiment.outputs[0]).expect("it was run");
    assert!(bars.contains("seed: 1") && !bars.contains("polyline") && bars.matches("<rect").count() >= 15, "{bars}");
}

#[test]
fn the_papers_value_stands_beside_a_bar_without_series() {
    let base = trial("4-1-base", |_, _| json!({"cpu_us_per_transaction": 8_050.0}));
    let bar = plot::html(&base, &base.experiment.outputs[0]).expect("it was run");
    assert!(bar.contains("8.00 in the paper (section 4.1, slightly over)"), "{bar}");
}

#[test]
fn restarts_are_compared_by_log_and_by_interval_floor() {
    let restarts = |toper: f64, saved: f64| {
        let report = move |line: &str, floor: f64| {
            let (redo, bytes) = match line.split_once('/').expect("two parts").1 {
                "VALUE" => (12.0, 900e3),
                "AOPER" => (11.0, 800e3),
                _ => (toper, 600e3),
            };
            json!({
                "throughput_per_s": 72.0 + floor / 1e3,
                "recovery": {"seconds": redo + 3.0, "redo_seconds": redo, "log_bytes": bytes * (1.0 + floor / 100.0)},
                "server": {"cpu_us_per_transaction": {"checkpoint": 300.0 - floor * saved}},
            })
        };
        Results { trials: vec![trial("4-1-recovery", report)] }
    };
    let expected = restarts(60.0, 0.2);
    for id in ["S-7 values", "S-7 transactions", "S-8"] {
        assert_eq!(verdict(&expected, id), Verdict::Holds, "{:?}", claim(&expected, id));
    }
    assert_eq!(claim(&expected, "S-7 transactions").ours, "48.0 s longer");
    assert_eq!(claim(&expected, "S-8").ours, "160 us");
    assert_eq!(verdict(&restarts(10.0, 0.2), "S-7 transactions"), Verdict::Differs);
    assert_eq!(verdict(&restarts(60.0, -0.1), "S-8"), Verdict::Differs);
}

#[test]
fn figures_that_are_uncertain_decide_nothing() {
    let mut results = paper(|_, tps| tps);
    let queue =
        |_: &str, length: f64| json!({"throughput_per_s": 72.0, "response_us": {"mean": (length + 1.0) / 72.0 * 1e6}});
    results.trials.push(trial("4-3-queue", queue));
    let retry =
        |_: &str, interval: f64| json!({"throughput_per_s": 40.0 + interval / 10.0, "response_us": {"mean": 33e6}});
    results.trials.push(trial("4-3-retry", retry));
    results.trials.extend(machine(|_, tps| tps).trials);
    // The few microseconds that recovery takes here are below 40 all the same.
    assert_eq!(study::certain_all_the_same(&SystemM1988, results), ["S-6 today"]);
}
