use super::*;
use crate::outcome::Outcome;
use crate::{Extent, report, study};
use serde_json::{Value, json};

const KEYS: [&str; 7] =
    ["throughput_per_s", "tiers", "cache", "io_per_s", "utilization", "hit_ratio_all", "hit_ratio_second_level_all"];

/// An experiment whose runs gave these reports, ten batches of each unless its abscissa is the time.
fn trial(name: &str, report: impl Fn(&str, f64) -> Value) -> Trial {
    let is_course = ["6-", "9-", "moving"].iter().any(|start| name.starts_with(start));
    let batches = if is_course { 1 } else { 10 };
    study::canned(&Do2011, &KEYS, name, |line, x| Outcome {
        reports: vec![report(line, x); batches],
        ..Outcome::default()
    })
}

fn claim(results: &Results, id: &str) -> Claim {
    Do2011.claims(results).into_iter().find(|claim| claim.id == id).unwrap_or_else(|| panic!("{id}"))
}

fn verdict(results: &Results, id: &str) -> Verdict {
    claim(results, id).verdict
}

/// A report of this throughput, with what most claims look at.
fn of(tps: f64, reads: [f64; 2], writes: f64) -> Value {
    let [ssd, disk] = reads;
    json!({
        "throughput_per_s": tps,
        "hit_ratio_all": 0.4,
        "hit_ratio_second_level_all": 0.6 * ssd / (ssd + disk).max(1.0),
        "io_per_s": {"disk": {"reads": disk, "writes": writes}},
        "io_per_transaction": {"disk": {"reads": disk / tps}},
        "tiers": [{"name": "cache", "reads_per_transaction": ssd / tps, "writes_per_transaction": 3.0, "dirty_reads": 0.83}],
        "cache": {"dirty": 0.5, "used": 0.95, "outdated": 0.074},
        "utilization": [
            {"name": "cpu", "utilization": 0.5},
            {"name": "disk.medium", "utilization": 0.95},
            {"name": "ssd.medium", "utilization": 0.6},
        ],
    })
}

/// TPC-C as the paper has it at 2,000 warehouses, but for LC, which is `lazy` times as fast as without an SSD.
fn tpc_c(lazy: f64) -> Results {
    let report = move |line: &str, x: f64| {
        let speedup = match line {
            "noSSD" => return of(100.0, [0.0, 818.0], 700.0),
            "DW" => 1.84,
            "TAC" => 1.38,
            "CW" => 1.2,
            _ => lazy,
        };
        let mut report = of(100.0 * speedup, [9_057.0, 1_119.0], 600.0);
        report["cache"]["outdated"] = json!(if x == 1_000.0 {
            0.053
        } else if x == 2_000.0 {
            0.074
        } else {
            0.064
        });
        report
    };
    let lambda = |line: &str, x: f64| {
        let _ = line;
        if x == 10.0 {
            of(100.0, [1_000.0, 500.0], 950.0)
        } else if x == 50.0 {
            of(194.0, [1_000.0, 500.0], 769.0)
        } else {
            of(310.0, [1_000.0, 500.0], 521.0)
        }
    };
    Results { trials: vec![trial(tpc_c::TRIAL, report), trial(tpc_c::LAMBDA, lambda)] }
}

#[test]
fn tpc_c_holds_against_the_papers_own_figures() {
    let same = tpc_c(9.4);
    let judged: Vec<Claim> =
        Do2011.claims(&same).into_iter().filter(|claim| claim.verdict != Verdict::NotRun).collect();
    for claim in &judged {
        assert_eq!(claim.verdict, Verdict::Holds, "{claim:?}");
    }
    assert_eq!(judged.len(), 3 + 3 + 1 + 2 + 2 + 3 + 1);
}

#[test]
fn tpc_c_differs_where_its_figures_are_off() {
    let slow = tpc_c(1.5);
    for id in ["D-1 LC/noSSD", "D-1 LC/DW", "D-1 LC/TAC", "D-1 order, 2000"] {
        assert_eq!(verdict(&slow, id), Verdict::Differs, "{id}");
    }
    assert_eq!(verdict(&tpc_c(12.0), "D-1 LC/noSSD"), Verdict::Differs, "28 % above");
    let mut other = tpc_c(9.4);
    for outcome in &mut other.trials[0].outcomes {
        for report in &mut outcome.reports {
            report["tiers"][0]["dirty_reads"] = json!(0.6);
            report["cache"]["outdated"] = json!(0.02);
            report["hit_ratio_second_level_all"] = json!(0.3);
        }
    }
    for id in ["D-2 dirty", "D-2 hit rate", "D-5"] {
        assert_eq!(verdict(&other, id), Verdict::Differs, "{id}");
    }
    let flat = Results { trials: vec![trial(tpc_c::LAMBDA, |_, _| of(100.0, [1.0, 1.0], 600.0))] };
    assert_eq!(verdict(&flat, "D-3 90/10"), Verdict::Differs);
}

/// An experiment over the time of a run, whose replications gave these reports.
fn replicated(name: &str, report: impl Fn(&str, f64, usize) -> Value) -> Trial {
    study::canned(&Do2011, &KEYS, name, |line, x| Outcome {
        reports: (0..3).map(|replication| report(line, x, replication)).collect(),
        ..Outcome::default()
    })
}

/// A run whose dirty share grows to its limit at `full` hours, where the throughput falls to `after`.
fn dropping(hour: f64, full: f64, after: f64) -> Value {
    let mut report = of(if hour >= full { after } else { 100.0 }, [1.0, 1.0], 1.0);
    report["cache"]["dirty"] = json!((0.5 * hour / full).min(0.5));
    report
}

fn drop_at(full: f64, after: f64) -> Results {
    Results { trials: vec![trial(tpc_c::COURSES[0], move |_, hour| dropping(hour, full, after))] }
}

#[test]
fn courses_that_scatter_decide_nothing() {
    let undecided =
        |trials: Vec<Trial>, id: &str| assert_eq!(verdict(&Results { trials }, id), Verdict::Undecided, "{id}");
    let late = replicated(tpc_c::COURSES[0], |_, hour, run| dropping(hour, [1.4, 2.0, 3.2][run], 60.0));
    undecided(vec![late], "D-6 LC, 2000");
    let small = replicated(tpc_c::COURSES[0], |_, hour, run| dropping(hour, 2.0, [98.0, 88.0, 70.0][run]));
    undecided(vec![small], "D-6 LC, 2000");
    let once = replicated(tpc_c::COURSES[0], |_, hour, run| dropping(hour, [2.0, 2.0, 50.0][run], 60.0));
    let once = Results { trials: vec![once] };
    assert_eq!(claim(&once, "D-6 LC, 2000").ours, "never", "one run in which it does not happen is enough");
    let until = |name: &str, hours: [f64; 3]| {
        replicated(name, move |_, hour, run| of(100.0 * (hour / hours[run]).min(1.0), [1.0, 1.0], 1.0))
    };
    let [middle, large] = tpc_e::COURSES;
    undecided(vec![until(middle, [8.0, 4.0, 7.0]), until(large, [4.0, 7.5, 6.0])], "D-6 ramp-up");
    let checkpoints = |dips: [f64; 3], ends: [f64; 3]| {
        replicated("9-checkpoints", move |line, hour, run| at_checkpoint(line, hour, (dips[run], ends[run])))
    };
    undecided(vec![checkpoints([30.0, 5.0, 12.0], [6.5; 3])], "D-7 dents");
    undecided(vec![checkpoints([30.0; 3], [5.9, 6.5, 7.1])], "D-7 first");
    let dual = replicated("9-checkpoints", |line, hour, run| {
        let mut report = at_checkpoint(line, hour, (30.0, 6.5));
        if line == "DW, 5 h" {
            report["throughput_per_s"] = json!([80.0, 100.0, 120.0][run]);
        }
        report
    });
    undecided(vec![dual], "D-7 DW");
    let moving = replicated("moving-hot-set", |_, second, run| {
        let mut report = of(1.0, [1.0, 1.0], 1.0);
        let share = if second > 80.0 { [0.7, 0.5, 0.65][run] } else { 0.7 };
        report["hit_ratio_second_level_all"] = json!(0.6 * share);
        report
    });
    undecided(vec![moving], "N-3");
}

#[test]
fn the_cleaners_writes_are_judged_by_their_ratios() {
    let writes = |writes: [f64; 3]| {
        let report = move |_: &str, share: f64| {
            let index = [10.0, 50.0, 90.0].iter().position(|one| *one == share).unwrap_or(0);
            of(100.0, [1.0, 1.0], writes[index])
        };
        verdict(&Results { trials: vec![trial(tpc_c::LAMBDA, report)] }, "D-3 writes")
    };
    assert_eq!(writes([475.0, 385.0, 260.0]), Verdict::Holds, "half of the paper's");
    assert_eq!(writes([950.0, 940.0, 930.0]), Verdict::Differs, "they fall, but hardly");
}

#[test]
fn the_drop_at_the_dirty_share_is_found_in_time_and_size() {
    assert_eq!(verdict(&drop_at(2.0, 60.0), "D-6 LC, 2000"), Verdict::Holds);
    assert_eq!(claim(&drop_at(2.0, 60.0), "D-6 LC, 2000").ours, "2:00 h");
    assert_eq!(verdict(&drop_at(2.0, 95.0), "D-6 LC, 2000"), Verdict::Differs, "hardly a drop");
    assert_eq!(verdict(&drop_at(5.0, 60.0), "D-6 LC, 2000"), Verdict::Differs, "too late");
    assert_eq!(claim(&drop_at(50.0, 60.0), "D-6 LC, 2000").ours, "never");
}

fn tpc_e(middle: f64) -> Results {
    let report = move |line: &str, x: f64| {
        let speedup = match x {
            _ if line == "noSSD" => 1.0,
            10_000.0 => 5.5,
            20_000.0 if line == "CW" => 0.784 * middle,
            20_000.0 => middle,
            _ => 3.0,
        };
        let mut report = of(100.0 * speedup, [5_615.0, 415.0], 417.0);
        report["tiers"][0]["writes_per_transaction"] = json!(1_184.0 / (100.0 * speedup));
        report
    };
    Results { trials: vec![trial(tpc_e::TRIAL, report)] }
}

#[test]
fn tpc_e_is_judged_by_its_speedups_and_their_peak() {
    let same = tpc_e(8.0);
    for id in ["D-4 DW, 20000", "D-4 TAC, 40000", "D-4 peak", "D-4 CW", "D-7b disks", "D-7b SSD"] {
        assert_eq!(verdict(&same, id), Verdict::Holds, "{id}: {:?}", claim(&same, id));
    }
    assert_eq!(verdict(&same, "D-4 LC, 10000"), Verdict::Calibrated);
    let flat = tpc_e(5.0);
    for id in ["D-4 DW, 20000", "D-4 peak"] {
        assert_eq!(verdict(&flat, id), Verdict::Differs, "{id}");
    }
}

#[test]
fn ramp_up_is_until_near_the_last_hour() {
    let until =
        |name: &str, hours: f64| trial(name, move |_, hour| of(100.0 * (hour / hours).min(1.0), [1.0, 1.0], 1.0));
    let results =
        |middle, large| Results { trials: vec![until(tpc_e::COURSES[0], middle), until(tpc_e::COURSES[1], large)] };
    assert_eq!(verdict(&results(8.0, 4.0), "D-6 ramp-up"), Verdict::Holds);
    assert_eq!(verdict(&results(4.0, 8.0), "D-6 ramp-up"), Verdict::Differs);
}

/// At this hour of a run with checkpoints of LC that have this dip, the first one of five hours of which ends at this hour.
fn at_checkpoint(line: &str, hour: f64, (dip, ends): (f64, f64)) -> Value {
    let dips = ((hour * 5.0).round() as u64).is_multiple_of(3);
    let long = line.ends_with("5 h");
    let tps = match line {
        "LC, 40 min" if dips => 100.0 - dip,
        "LC, 5 h" if hour > 5.0 && hour < ends => 10.0,
        "DW, 40 min" if dips => 90.0,
        "DW, 5 h" if hour < 10.0 => 80.0,
        "DW, 5 h" => 120.0,
        _ => 100.0,
    };
    let mut report = of(tps, [1.0, 1.0], 1.0);
    report["cache"]["dirty"] = json!(if long && hour < ends { 0.3 } else { 0.0 });
    report["cache"]["used"] = json!((hour / 10.0).min(0.96));
    report
}

fn intervals(dip: f64, ends: f64) -> Results {
    let report = move |line: &str, hour: f64| at_checkpoint(line, hour, (dip, ends));
    let tpc_c = |line: &str, x: f64| of(if line == "LC" && x == 1.0 { 45.0 } else { 100.0 }, [1.0, 1.0], 1.0);
    Results { trials: vec![trial("9-checkpoints", report), trial("4-checkpoints", tpc_c)] }
}

#[test]
fn checkpoints_are_judged_by_their_dips() {
    let same = intervals(30.0, 6.5);
    for id in ["D-7 dents", "D-7 interval", "D-7 first", "D-7 DW", "D-7 TPC-C"] {
        assert_eq!(verdict(&same, id), Verdict::Holds, "{id}: {:?}", claim(&same, id));
    }
    let other = intervals(2.0, 5.4);
    for id in ["D-7 dents", "D-7 first"] {
        assert_eq!(verdict(&other, id), Verdict::Differs, "{id}");
    }
}

/// Table 3 as it is, or with this factor on DW's throughput test.
fn tpc_h(factor: f64) -> Results {
    let report = move |scale: usize| {
        move |line: &str, x: f64| {
            let table = [
                [[5978.0, 5601.0], [5917.0, 6643.0], [6386.0, 5639.0], [2733.0, 1229.0]],
                [[3836.0, 3228.0], [3204.0, 3691.0], [3705.0, 3235.0], [1536.0, 953.0]],
            ];
            let index = ["LC", "DW", "TAC", "noSSD"].iter().position(|name| *name == line).unwrap_or(0);
            let changed = if line == "DW" && x == 1.0 { factor } else { 1.0 };
            of(table[scale][index][x as usize] * changed, [1.0, 1.0], 1.0)
        }
    };
    Results { trials: vec![trial("5-tpc-h-30", report(0)), trial("5-tpc-h-100", report(1))] }
}

#[test]
fn table_3_is_judged_figure_by_figure() {
    let same = tpc_h(1.0);
    for id in ["D-8 30 throughput, DW", "D-8 100 power, LC", "D-8 30 QphH", "D-8 100 QphH", "D-8 30 alike"] {
        assert_eq!(verdict(&same, id), Verdict::Holds, "{id}");
    }
    assert_eq!(verdict(&same, "D-8 30 power, TAC"), Verdict::Calibrated);
    let slow = tpc_h(0.4);
    for id in ["D-8 30 throughput, DW", "D-8 30 QphH", "D-8 30 alike"] {
        assert_eq!(verdict(&slow, id), Verdict::Differs, "{id}");
    }
    let table = &Do2011.tables(&same)[0];
    assert_eq!((table.rows.len(), table.rows[1].cells[1].verdict()), (4, Some(Verdict::Holds)));
}

#[test]
fn what_is_ours_is_judged_by_speed_and_by_writes() {
    let family = |name: &'static str, speed: f64, writes: f64| {
        trial(name, move |line, _| {
            let is_best = line == later::BEST;
            let mut report = of(if is_best { 100.0 * speed } else { 100.0 }, [1.0, 1.0], 1.0);
            report["tiers"][0]["writes_per_transaction"] = json!(if is_best { writes } else { 1.0 });
            report
        })
    };
    let beats = |second: f64, writes: f64| {
        let names = [tpc_c::TRIAL, tpc_e::TRIAL, "5-tpc-h-100"];
        let trials = vec![family(names[0], 1.2, 0.8), family(names[1], second, writes), family(names[2], 0.9, 0.1)];
        verdict(&Results { trials }, "N-1")
    };
    assert_eq!(
        [beats(1.1, 0.9), beats(1.1, 1.2), beats(0.8, 0.9)],
        [Verdict::Holds, Verdict::Differs, Verdict::Differs]
    );
    let nothing = |share: f64| {
        let report = move |line: &str, _: f64| of(if line == later::BEST { share } else { 100.0 }, [1.0, 1.0], 1.0);
        verdict(&Results { trials: vec![trial("never-worse", report)] }, "N-2 changes")
    };
    assert_eq!([nothing(98.5), nothing(97.0)], [Verdict::Holds, Verdict::Differs]);
    let moving = |late: f64| {
        let report = move |_: &str, second: f64| {
            let mut report = of(1.0, [1.0, 1.0], 1.0);
            report["hit_ratio_all"] = json!(0.4);
            report["hit_ratio_second_level_all"] = json!(0.6 * if second > 80.0 { late } else { 0.7 });
            report
        };
        verdict(&Results { trials: vec![trial("moving-hot-set", report)] }, "N-3")
    };
    assert_eq!([moving(0.68), moving(0.4)], [Verdict::Holds, Verdict::Differs]);
}

#[test]
fn what_was_not_run_is_no_verdict_and_every_experiment_can_be_read() {
    let claims = Do2011.claims(&Results::default());
    assert!(claims.iter().all(|claim| claim.verdict == Verdict::NotRun && claim.interval.is_none()));
    assert!(Do2011.answers(&Results::default()).iter().all(|answer| answer.answer.contains("missing")));
    study::assert_readable(&Do2011, &KEYS);
}

#[test]
fn a_report_holds_the_claims_the_table_and_the_choices() {
    let mut results = tpc_c(9.4);
    results.trials.extend(tpc_e(8.0).trials);
    results.trials.extend(tpc_h(1.0).trials);
    let (claims, answers) = (Do2011.claims(&results), Do2011.answers(&results));
    let page =
        report::study(&report::head(Extent::Full), study::named("do-2011").unwrap(), &claims, &answers, &results);
    for part in ["D-1 LC/noSSD", "<svg", "Table 3", "A thousandth", "LC 9.4, "] {
        assert!(page.contains(part), "{part}");
    }
}

#[test]
fn what_the_ssd_brings_is_shown_by_family_and_design() {
    let report = |line: &str, _: f64| match line {
        "noSSD" => of(100.0, [0.0, 800.0], 700.0),
        _ => {
            let mut report = of(200.0, [900.0, 100.0], 600.0);
            report["tiers"][0]["saved_us_per_read"] = json!(7_000.0);
            report["tiers"][0]["bytes_written_per_transaction"] = json!(24_576.0);
            report
        }
    };
    let results = Results { trials: vec![trial(tpc_c::TRIAL, report)] };
    let tables = Do2011.tables(&results);
    let table = tables.iter().find(|table| table.id == "N-4").expect("it is shown");
    assert!(table.rows.iter().all(|row| row.name.starts_with("TPC-C, ") && !row.name.contains("noSSD")));
    let row = table.rows.iter().find(|row| row.name == "TPC-C, frequency").expect("each design has a row");
    let figures: Vec<f64> = row.cells.iter().map(|cell| cell.ours.expect("it was measured")).collect();
    assert_eq!(figures, [4.5, 31.5, 24.0]);
}
