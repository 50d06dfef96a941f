//! What came after the paper: a design of this engine's own beside those of the paper, and loads that gain nothing.

use super::*;
use crate::{Cell, Row};

const MOVING: &str = "moving-hot-set";
/// The best design here.
pub(super) const BEST: &str = "frequency";
const WRITES: &str = "tiers.cache.writes_per_transaction";
/// The loads that gain nothing, each with an experiment and a place of it.
const LOADS: [(&str, &str, f64); 3] =
    [("scans", "never-worse-scan", 0.0), ("uniform reads", "never-worse", 0.0), ("changes", "never-worse", 1.0)];
/// The least that a cache may leave of the throughput without one.
const NO_WORSE: f64 = 0.98;

/// The families, each with an experiment and a place of it.
const FAMILIES: [(&str, &str, f64); 3] =
    [("TPC-C", tpc_c::TRIAL, 2_000.0), ("TPC-E", tpc_e::TRIAL, 20_000.0), ("TPC-H", "5-tpc-h-100", 1.0)];

pub(super) fn claims(results: &Results) -> Vec<Claim> {
    let mut claims = vec![beats(results).seen_in(FAMILIES[0].1).seen_in(FAMILIES[1].1).seen_in(FAMILIES[2].1)];
    claims.extend(LOADS.map(|load| no_worse(results, load).seen_in(load.1)));
    claims.push(follows(results).seen_in(MOVING));
    claims
}

fn beats(results: &Results) -> Claim {
    let what = "The design 'frequency' is faster than LC and writes less to the SSD for each transaction, in two of the three \
                families of loads at least.";
    Claim::new("N-1", what, "not in the paper").judge(|claim| {
        let (mut wins, mut parts) = (Vec::new(), Vec::new());
        for (family, name, x) in FAMILIES {
            let trial = results.trial(name)?;
            let ratio = |path: &str| Some(trial.figure(BEST, x, path)? / trial.figure("LC", x, path)?);
            let [speed, writes] = [ratio(TPS)?, ratio(WRITES)?];
            wins.push(Verdict::all([speed.at_least(1.0), writes.at_most(1.0)]));
            parts.push(format!("{family} {:.2} times as fast with {:.2} times the writes", speed.mean, writes.mean));
        }
        let count = |verdict| wins.iter().filter(|win| **win == verdict).count();
        let verdict = match (count(Verdict::Holds), count(Verdict::Undecided)) {
            (2.., _) => Verdict::Holds,
            (held, open) if held + open >= 2 => Verdict::Undecided,
            _ => Verdict::Differs,
        };
        let reason = "TPC-C of 2,000 warehouses, TPC-E of 20,000 customers, the throughput test of TPC-H at scale factor 100; beyond chance.";
        Some(claim.judged(parts.join("; "), verdict, reason))
    })
}

fn no_worse(results: &Results, (load, name, place): (&str, &str, f64)) -> Claim {
    let what = format!(
        "With {load}, for which a cache is of no use, 'frequency' does at least 98 % of what is done without one."
    );
    Claim::new(&format!("N-2 {load}"), &what, "not in the paper").judge(|claim| {
        let trial = results.trial(name)?;
        let without = trial.at(NO_SSD, place)?;
        // The same seeds, so what they ask for does not count as chance.
        let share = |line: &str| Some(trial.at(line, place)?.over(without, TPS)? * 100.0);
        let ours = share(BEST)?;
        let others: Option<Vec<String>> = trial
            .experiment
            .lines
            .iter()
            .filter(|line| ![BEST, NO_SSD].contains(&line.as_str()))
            .map(|line| Some(format!("{line} {:.1}", share(line)?.mean)))
            .collect();
        let reason = format!("The others, in %: {}.", others?.join(", "));
        Some(claim.judged(ours.with_unit("%"), ours.at_least(NO_WORSE * 100.0), reason).with_interval(ours))
    })
}

fn follows(results: &Results) -> Claim {
    let what = "A hot set that moves is followed: in the last third of the run the SSD serves as large a share of what main memory \
                misses as in the second, and more than half.";
    Claim::new("N-3", what, "not in the paper").judge(|claim| {
        let trial = results.trial(MOVING)?;
        let mean = |line: &str, from: f64, to: f64| -> Option<Vec<f64>> {
            let part = |path: &str| of_each(&courses(trial, line, path)?, |course| mean_between(course, from, to));
            let (hits, all) = (part("hit_ratio_second_level_all")?, part("hit_ratio_all")?);
            Some(hits.iter().zip(&all).map(|(hits, all)| hits / (1.0 - all) * 100.0).collect())
        };
        let last = trial.places().fold(0.0, f64::max);
        let first = mean(BEST, last / 3.0, last * 2.0 / 3.0)?;
        let second = mean(BEST, last * 2.0 / 3.0, last)?;
        let lazy = Estimate::of(&mean("LC", last * 2.0 / 3.0, last)?).mean;
        let reason = format!(
            "The second and the last third of the run; LC in the last third {lazy:.0} %. The first third fills the SSD. That the last is \
             nine tenths of the second at least is judged, beyond chance."
        );
        let verdict = Verdict::all([times(&second, &first).at_least(0.9), Estimate::of(&second).at_least(50.0)]);
        let ours = [&first, &second].map(|shares| format!("{:.0}", Estimate::of(shares).mean)).join(" and ");
        Some(claim.judged(format!("{ours} %"), verdict, reason))
    })
}

/// What the SSD brings and what that wears, by family and design.
pub(super) fn table(results: &Results) -> Table {
    let mut rows = Vec::new();
    for (family, name, x) in FAMILIES {
        let Some(trial) = results.trial(name) else { continue };
        for line in trial.experiment.lines.iter().filter(|line| *line != NO_SSD) {
            let cells = brought(trial, line, x).into_iter().map(|ours| Cell {
                ours: ours.map(|ours| ours.mean),
                half_width90: ours.and_then(|ours| ours.half_width),
                ..Cell::default()
            });
            rows.push(Row { name: format!("{family}, {line}"), cells: cells.collect() });
        }
    }
    let columns = ["reads served", "ms saved", "KiB written"].map(str::to_owned).to_vec();
    let title = "What the SSD brings, per transaction or query, and what is written to it".to_owned();
    Table { id: "N-4".to_owned(), title, columns, rows, places: 2 }
}

/// Reads that the SSD serves for a transaction, by how many milliseconds they are shorter than the disks', and the KiB written to it.
fn brought(trial: &Trial, line: &str, x: f64) -> [Option<Estimate>; 3] {
    let outcome = trial.at(line, x).filter(|outcome| outcome.is_steady());
    let figure = |path: &str| outcome?.estimate(path);
    let saved = outcome.and_then(|outcome| {
        outcome.derived(|figure| {
            Some(figure("tiers.cache.saved_us_per_read")? * figure("tiers.cache.reads_per_transaction")? / 1e3)
        })
    });
    let written = figure("tiers.cache.bytes_written_per_transaction").map(|bytes| bytes * (1.0 / 1024.0));
    [figure("tiers.cache.reads_per_transaction"), saved, written]
}
