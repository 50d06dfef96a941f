use super::tpc_b::TPS;
use super::*;
use crate::outcome::{Outcome, Trial};
use crate::{Extent, Verdict, report, study};
use serde_json::{Value, json};

const KEYS: [&str; 10] = [
    "response_us",
    "throughput_per_s",
    "cpu_us_per_transaction",
    "log_bytes_per_transaction",
    "log_record_bytes_per_transaction",
    "io_per_transaction",
    "utilization",
    "composition_us",
    "spill",
    "snapshots",
];

fn trial(name: &str, report: impl Fn(&str, f64) -> Value) -> Trial {
    study::canned(&Lee2008, &KEYS, name, |line, x| Outcome { reports: vec![report(line, x)], ..Outcome::default() })
}

fn claim(results: &Results, id: &str) -> Claim {
    Lee2008.claims(results).into_iter().find(|claim| claim.id == id).unwrap_or_else(|| panic!("{id}"))
}

fn verdict(results: &Results, id: &str) -> Verdict {
    claim(results, id).verdict
}

fn judged(results: &Results) -> Vec<Claim> {
    Lee2008.claims(results).into_iter().filter(|claim| claim.verdict != Verdict::NotRun).collect()
}

/// Table 2 as it is, but for what `change` makes of a throughput.
fn table_2(change: impl Fn(&str, f64, f64) -> f64) -> Results {
    let rows = [
        (4.0, 178.0, 2222.0),
        (8.0, 358.0, 4050.0),
        (16.0, 711.0, 6274.0),
        (32.0, 1403.0, 5953.0),
        (64.0, 2737.0, 5701.0),
    ];
    let report = move |line: &str, n: f64| {
        let (_, disk, flash) = rows.into_iter().find(|row| row.0 == n).unwrap();
        let tps = match line {
            "flash, CPU time as at 64" => 6_000.0,
            _ => change(line, n, if line.starts_with("disk") { disk } else { flash }),
        };
        json!({
            "throughput_per_s": tps,
            "response_us": {"mean": n / tps * 1e6},
            "cpu_us_per_transaction": 260.0,
            "utilization": [{"name": "cpu", "utilization": tps * 260e-6 / 2.0}],
        })
    };
    Results { trials: vec![trial(commit::TRIAL, report)] }
}

#[test]
fn table_2_holds_against_itself() {
    let results = table_2(|_, _, tps| tps);
    // CPUs that are busy for 74 % at 64 of 5,701 tps are below what counts as saturated.
    for claim in judged(&results).iter().filter(|claim| claim.id != "L-2 saturation") {
        let calibrated = ["L-2 disk 4", "L-2 flash 4", "L-2 CPU", "L-7 log, response"].contains(&claim.id.as_str());
        let expected = if calibrated { Verdict::Calibrated } else { Verdict::Holds };
        assert_eq!(claim.verdict, expected, "{claim:?}");
    }
    assert_eq!(judged(&results).len(), 10 + 3 + 2);
    assert_eq!(claim(&results, "L-7 log, throughput").ours, "11.3 times", "that at 4 is calibrated");
}

#[test]
fn a_row_that_is_off_differs_and_says_by_how_much() {
    let off = table_2(|line, n, tps| if line == "flash" && n >= 32.0 { tps * 1.25 } else { tps });
    let flash = claim(&off, "L-2 flash 64");
    assert!(flash.verdict == Verdict::Differs && flash.reason.starts_with("+25.0 %"), "{flash:?}");
    assert!(flash.reason.contains("would allow 6787 tps"), "{flash:?}");
    assert!(flash.reason.contains("Run with the 295 us that table 2 implies at 64, 64 at once do 6,000 tps (+5.2 %)"));
    let saturation = claim(&off, "L-2 saturation");
    assert!(saturation.reason.contains("it is 1.00 times from 32 to 64"), "{saturation:?}");
    let uncalibrated = table_2(|line, n, tps| if line == "disk" && n == 4.0 { tps * 1.03 } else { tps });
    assert_eq!(verdict(&uncalibrated, "L-2 disk 4"), Verdict::Differs);
    assert_eq!(verdict(&uncalibrated, "L-2 disk 8"), Verdict::Holds);
    let flat = table_2(|line, n, tps| if line == "disk" && n == 64.0 { 1403.0 } else { tps });
    assert_eq!(verdict(&flat, "L-2 proportion"), Verdict::Differs);
    let slow = table_2(|line, _, tps| if line == "flash" { tps / 2.0 } else { tps });
    assert_eq!(verdict(&slow, "L-7 log, response"), Verdict::Differs);
}

/// Table 3 as it is, with locks that are released early or not.
fn table_3(disk: f64, flash: f64) -> Trial {
    trial("4-2-tpc-b", move |line, _| {
        let is_disk = line.starts_with("disk");
        let is_variation = line.contains(", ");
        let tps = match (is_variation, is_disk) {
            (true, _) => TPS[usize::from(!is_disk)],
            (false, true) => disk,
            (false, false) => flash,
        };
        let (ms, sectors) = if is_disk { (8.1, 32.0) } else { (1.3, 30.0) };
        json!({
            "throughput_per_s": tps,
            "cpu_us_per_transaction": 440.0,
            "log_bytes_per_transaction": sectors * 512.0 * 0.1,
            "log_record_bytes_per_transaction": 1_500.0,
            "io_per_transaction": {"disk": {"writes": 0.1}, "flash": {"writes": 0.1}},
            "composition_us": {"cpu": 500.0, "lock_wait": 100.0, "commit_wait": 6_000.0},
            "utilization": [
                {"name": "cpu", "utilization": tps * 440e-6 / 2.0},
                {"name": "disk.medium", "response_us_mean": ms * 1e3},
                {"name": "flash.medium", "response_us_mean": ms * 1e3},
            ],
        })
    })
}

#[test]
fn table_3_is_judged_figure_by_figure() {
    let same = Results { trials: vec![table_3(864.0, 3045.0)] };
    let claims = judged(&same);
    assert_eq!(claims.len(), 7);
    for claim in &claims {
        assert_eq!(claim.verdict, Verdict::Holds, "{claim:?}");
    }
    let other = Results { trials: vec![table_3(660.0, 4_500.0)] };
    let disk = claim(&other, "L-3 disk");
    assert!(disk.verdict == Verdict::Differs && disk.reason.contains("864 tps (+0.0 %)"), "{disk:?}");
    assert!(disk.reason.contains("these times that make the difference"), "{disk:?}");
    let factor = claim(&other, "L-3 factor");
    assert!(factor.verdict == Verdict::Differs && factor.reason.contains("of its size: 3.52 times"), "{factor:?}");
    let size = claim(&other, "L-3 log write size").reason;
    assert!(size.contains("10.0 on disk (the paper's 7.0 to 20, so 0.8 to 2.3 KB"), "{size}");
    assert!(size.contains("10.0 on flash (the paper's 4.0 to 20, so 0.8 to 3.9 KB"), "{size}");
    assert_eq!(verdict(&other, "L-3 CPU disk"), Verdict::Differs);
}

/// Figure 3: throughputs that rise with the users up to ceilings.
fn figure_3(disk_ceiling: f64) -> Results {
    let report = move |line: &str, users: f64| {
        let ceiling = if line.contains("four") { 4_300.0 } else { 3_000.0_f64 };
        let tps =
            if line.starts_with("flash") { (users * 150.0).min(ceiling) } else { (users * 40.0).min(disk_ceiling) };
        json!({
            "throughput_per_s": tps,
            "utilization": [
                {"name": "cpu", "utilization": tps / ceiling},
                {"name": "disk.medium", "utilization": 0.9, "response_us_mean": 8_000.0},
                {"name": "flash.medium", "utilization": 0.3},
            ],
        })
    };
    Results { trials: vec![trial(tpc_b::FIGURE_3, report)] }
}

#[test]
fn figure_3_is_judged_by_its_shape() {
    let same = figure_3(3_000.0);
    assert_eq!(claim(&same, "L-4 flash").ours, "1.43 times");
    for id in ["L-4 flash", "L-4 disk", "L-4 disk, four cores"] {
        assert_eq!(verdict(&same, id), Verdict::Holds, "{id}");
    }
    let low = claim(&figure_3(2_000.0), "L-4 disk");
    assert_eq!(low.verdict, Verdict::Differs, "two thirds of the ceiling");
    assert!(low.reason.contains("2250 tps with the 8.0 ms of a write"), "{low:?}");
    let answers = Lee2008.answers(&same);
    assert!(answers[1].answer.contains("the log on flash: processors 100 %, device 30 %"), "{answers:?}");
}

/// Times that are a latency and a transfer for each cluster.
fn spills(flash_latency: f64, flash_rate: f64) -> Results {
    let report = move |line: &str, x: f64| {
        let (latency, rate) = if line.ends_with("disk") { (6e-3, 110e6) } else { (flash_latency, flash_rate) };
        // The abscissa is the size of a cluster in bytes.
        json!({"spill": {"seconds": 100e6 / x * latency + 100e6 / rate, "spilled_bytes": 100e6}})
    };
    Results {
        trials: vec![trial(temporary::CLUSTERS, report), trial("6-memory", move |line, _| report(line, 16_384.0))],
    }
}

#[test]
fn sorts_and_joins_are_judged_by_the_best_clusters_of_each_device() {
    let fast = spills(0.2e-3, 40e6);
    for id in ["L-6 sort", "L-6 sort-merge join", "L-6 hash join", "L-6 clusters", "L-6 memory"] {
        assert_eq!(verdict(&fast, id), Verdict::Holds, "{id}");
    }
    let narrow = claim(&spills(0.2e-3, 20e6), "L-6 hash join");
    assert!(narrow.verdict == Verdict::Differs && narrow.reason.contains("19.9 at 2 KiB"), "{narrow:?}");
    assert!(narrow.reason.contains("4.91 s are 100 MB written and read at its bandwidths"), "{narrow:?}");
    // At 128 KiB the disk's latency counts least.
    assert_eq!(verdict(&fast, "L-6 sort, one size"), Verdict::Holds);
    assert_eq!(verdict(&spills(0.2e-3, 35e6), "L-6 sort, one size"), Verdict::Differs);
    let slow = spills(6e-3, 110e6);
    assert_eq!(verdict(&slow, "L-6 clusters"), Verdict::Differs, "as sensitive as a disk");
    assert_eq!(verdict(&slow, "L-6 memory"), Verdict::Differs);
}

/// Scans that take `disk_s` seconds for each second of a snapshot's age, beside `tps` updates per second.
fn snapshots(disk_s: f64, tps: f64) -> Results {
    let report = move |line: &str, age: f64| {
        let each = if line == "disk" { disk_s } else { 0.1 };
        json!({
            "throughput_per_s": tps,
            "response_us": {"mean": 1_500.0},
            "composition_us": {"lock_wait": 2.0},
            "snapshots": {"scan_us": age * each * 1e6, "scans": 10},
        })
    };
    Results { trials: vec![trial(rollback::TRIAL, report)] }
}

#[test]
fn rollback_segments_are_judged_by_the_time_of_scans_and_by_the_updates() {
    let fast = snapshots(3.0, 299.0);
    for id in ["L-5 reading", "L-5 locks", "L-5 time travel", "L-7 rollback segments"] {
        assert_eq!(verdict(&fast, id), Verdict::Holds, "{id}");
    }
    assert_eq!(claim(&fast, "L-5 reading").ours, "30.0 times at least");
    assert_eq!(claim(&fast, "L-5 time travel").ours, "150 scans, all as they were");
    let near = snapshots(0.9, 280.0);
    for id in ["L-5 reading", "L-5 locks", "L-7 rollback segments"] {
        assert_eq!(verdict(&near, id), Verdict::Differs, "{id}");
    }
    let mut failed = snapshots(3.0, 299.0);
    failed.trials[0].outcomes[3].failure = Some("object 7 is not what it was".to_owned());
    assert_eq!(verdict(&failed, "L-5 time travel"), Verdict::NotRun);
    let failures: Vec<(String, &str)> = failed.trials[0].failures().collect();
    assert!(matches!(&failures[..], [(at, "object 7 is not what it was")] if !at.is_empty()), "{failures:?}");
}

/// Runs on this machine, whose device takes twice as long as its description.
fn on_this_machine(name: &str, tps: impl Fn(&str, f64) -> f64, cpu_us: f64) -> Trial {
    trial(name, move |line, n| {
        let ms = if line == "disk" { 10.0 } else { 1.0 };
        json!({
            "throughput_per_s": tps(line, n),
            "cpu_us_per_transaction": cpu_us,
            "utilization": [
                {"name": line, "response_us_mean": 2e3 * ms}, {"name": format!("{line}.medium"), "response_us_mean": 1e3 * ms},
            ],
        })
    })
}

#[test]
fn commits_on_this_machine_are_shown_beside_the_described_ones() {
    let mut results = table_2(|_, _, tps| tps);
    let tps = |line: &str, n| if line == "disk" { n * 45.0 } else { n * 500.0 };
    results.trials.push(on_this_machine(machine::COMMITS, tps, 10.0));
    let claim = claim(&results, "L-7 log, this machine");
    assert_eq!((claim.verdict, &*claim.ours), (Verdict::Holds, "11.1 times"));
    assert!(
        claim.reason.contains("with 8 at once 360 and 4,000 tps (virtually 358 and 4,050), a log write"),
        "{claim:?}"
    );
    assert!(claim.reason.contains("a log write 20.0 and 2.00 ms (10.0 and 1.00 ms of it as described)"), "{claim:?}");
}

#[test]
fn tpc_b_on_this_machine_is_judged_by_its_factor_and_by_the_load_of_one_core() {
    let tps = |line: &str, users: f64| (users * 100.0).min(if line == "disk" { 1_500.0 } else { 16_000.0 });
    let results =
        |cpu_us| Results { trials: vec![table_3(665.0, 4_500.0), on_this_machine(machine::TPC_B, tps, cpu_us)] };
    let factor = claim(&results(20.0), "L-3 factor, this machine");
    assert_eq!((factor.verdict, &*factor.ours), (Verdict::Differs, "1.33 times"));
    assert!(factor.reason.contains("1,500 and 2,000 tps (virtually 665 and 4,500)"), "{factor:?}");
    let idle = claim(&results(20.0), "L-4 flash, this machine");
    assert_eq!((idle.verdict, &*idle.ours), (Verdict::Differs, "32.0 % of a core"));
    for part in ["would allow 50,000 tps", "18,000 tps at 1.00 ms each and 9,000 at the 2.00 ms"] {
        assert!(idle.reason.contains(part), "{part}: {idle:?}");
    }
    assert_eq!(verdict(&results(60.0), "L-4 flash, this machine"), Verdict::Holds);
}

#[test]
fn scans_sorts_and_joins_on_this_machine_are_shown_beside_the_virtual_ones() {
    let verdicts = |flash: f64| {
        let report = move |line: &str, _: f64| {
            let seconds = if line.starts_with("disk") { 5.0 } else { flash };
            json!({
                "spill": {"seconds": seconds}, "snapshots": {"scan_us": seconds * 1e6}, "throughput_per_s": 299.0,
            })
        };
        let names = [machine::SNAPSHOTS, machine::SORT, machine::JOINS];
        let results = Results { trials: names.map(|name| trial(name, report)).into() };
        let reading = claim(&results, "L-5 reading, this machine");
        assert!(reading.reason.contains("1: 5.00 s on disk (5.00 s virtually)"), "{reading:?}");
        ["L-5 reading", "L-6 sort", "L-6 joins"].map(|id| verdict(&results, &format!("{id}, this machine")))
    };
    use Verdict::{Differs, Holds};
    assert_eq!(verdicts(0.4), [Holds, Holds, Holds]);
    assert_eq!(verdicts(1.0), [Differs, Holds, Holds]);
    assert_eq!(verdicts(2.6), [Differs, Differs, Differs]);
}

#[test]
fn what_was_not_run_is_no_verdict_and_every_experiment_can_be_read() {
    let claims = Lee2008.claims(&Results::default());
    assert!(claims.iter().all(|claim| claim.verdict == Verdict::NotRun && claim.interval.is_none()));
    assert!(Lee2008.answers(&Results::default()).iter().all(|answer| answer.answer.contains("missing")));
    study::assert_readable(&Lee2008, &KEYS);
}

#[test]
fn a_report_holds_the_rows_and_the_choices() {
    let results = table_2(|_, _, tps| tps);
    let (claims, answers) = (Lee2008.claims(&results), Lee2008.answers(&results));
    let page =
        report::study(&report::head(Extent::Full), study::named("lee-2008").unwrap(), &claims, &answers, &results);
    assert!(page.contains("L-2 flash 16") && page.contains("<svg") && page.contains("36 us"));
}

#[test]
fn figures_that_are_uncertain_decide_nothing() {
    let mut trials = table_2(|_, _, tps| tps).trials;
    trials.push(table_3(864.0, 3045.0));
    for more in [figure_3(3_000.0), spills(0.2e-3, 40e6), snapshots(3.0, 299.0)] {
        trials.extend(more.trials);
    }
    let tps = |line: &str, users: f64| users * if line == "disk" { 45.0 } else { 500.0 };
    trials.push(on_this_machine(machine::COMMITS, tps, 10.0));
    trials.push(on_this_machine(machine::TPC_B, tps, 60.0));
    // That the scans were compared is no figure.
    assert_eq!(study::certain_all_the_same(&Lee2008, Results { trials }), ["L-5 time travel"]);
}
