//! Section 6: temporary space on either device, as far as abstract and introduction tell of it.

use super::DEVICES;
use crate::outcome::Trial;
use crate::{Claim, Estimate, Results, Verdict};

pub(super) const CLUSTERS: &str = "6-clusters";
const MEMORY: &str = "6-memory";
/// Table 1's bandwidths of flash.
const WRITE_BYTES_PER_S: f64 = 32e6;
const READ_BYTES_PER_S: f64 = 56e6;
const OPERATIONS: [&str; 3] = ["sort", "sort-merge join", "hash join"];

pub(super) fn claims(results: &Results) -> Vec<Claim> {
    let mut claims: Vec<Claim> = OPERATIONS.iter().map(|operation| faster(results, operation)).collect();
    claims.extend(OPERATIONS.iter().map(|operation| faster_alike(results, operation)));
    claims.push(insensitive(results));
    let mut claims: Vec<Claim> = claims.into_iter().map(|claim| claim.seen_in(CLUSTERS)).collect();
    claims.push(with_memory(results).seen_in(MEMORY));
    claims
}

fn seconds(trial: &Trial, operation: &str, device: &str, x: f64) -> Option<Estimate> {
    trial.figure(&format!("{operation}, {device}"), x, "spill.seconds")
}

/// The shortest and the longest time of an operation over all sizes of clusters.
fn extremes(trial: &Trial, operation: &str, device: &str) -> Option<(Estimate, Estimate)> {
    let times: Option<Vec<Estimate>> = trial.places().map(|x| seconds(trial, operation, device, x)).collect();
    let times = times?;
    let by_mean = |one: &&Estimate, other: &&Estimate| one.mean.total_cmp(&other.mean);
    Some((*times.iter().min_by(by_mean)?, *times.iter().max_by(by_mean)?))
}

/// How many times as long it takes on disk, at each place of the abscissa.
fn ratios(trial: &Trial, operation: &str) -> Option<Vec<(String, Estimate)>> {
    let at = |(x, label): &(f64, String)| {
        let ratio = seconds(trial, operation, "disk", *x)? / seconds(trial, operation, "flash", *x)?;
        Some((label.clone(), ratio))
    };
    trial.experiment.x.values.iter().map(at).collect()
}

fn listed(ratios: &[(String, Estimate)]) -> String {
    let parts: Vec<String> = ratios.iter().map(|(label, ratio)| format!("{:.1} at {label}", ratio.mean)).collect();
    parts.join(", ")
}

/// What the fastest run on flash wrote, in bytes, and how long its bandwidths alone (table 1) take to write and to read that.
fn at_bandwidth(trial: &Trial, operation: &str) -> Option<(f64, f64)> {
    let took = |x: &f64| seconds(trial, operation, "flash", *x).map_or(f64::INFINITY, |took| took.mean);
    let x = trial.places().min_by(|one, other| took(one).total_cmp(&took(other)))?;
    let moved = trial.figure(&format!("{operation}, flash"), x, "spill.spilled_bytes")?.mean;
    Some((moved, moved / WRITE_BYTES_PER_S + moved / READ_BYTES_PER_S))
}

fn faster(results: &Results, operation: &str) -> Claim {
    let what = format!("With temporary space on flash a {operation} takes less than half the time.");
    let paper = if operation == "sort" { "faster" } else { "more than 2 times" };
    Claim::new(&format!("L-6 {operation}"), &what, paper).judge(|claim| {
        let trial = results.trial(CLUSTERS)?;
        let [disk, flash] = DEVICES.map(|device| extremes(trial, operation, device));
        let times = disk?.0 / flash?.0;
        let mut reason = format!(
            "Each device with the clusters that suit it best. With clusters of one size, which is a rule of its own: {} times.",
            listed(&ratios(trial, operation)?)
        );
        if times.mean <= 2.0 {
            let (moved, floor) = at_bandwidth(trial, operation)?;
            reason += &format!(
                " The larger the clusters, the less of the time is latency, and in bandwidth table 1's disk is ahead two to three \
                 times: of {:.2} s on flash {floor:.2} s are {:.0} MB written and read at its bandwidths, so that without any latency \
                 it would be {:.1} times. The paper's sizes are not in the text at hand.",
                flash?.0.mean,
                moved * 1e-6,
                disk?.0.mean / floor
            );
        }
        Some(claim.judged(times.with_unit("times"), times.at_least(2.0), reason).with_interval(times))
    })
}

/// The other rule: both devices with clusters of one size, whichever that is.
fn faster_alike(results: &Results, operation: &str) -> Claim {
    let what =
        format!("With clusters of one size, whichever it is, a {operation} takes less than half the time on flash.");
    let paper = if operation == "sort" { "faster" } else { "more than 2 times" };
    Claim::new(&format!("L-6 {operation}, one size"), &what, paper).judge(|claim| {
        let ratios = ratios(results.trial(CLUSTERS)?, operation)?;
        let least = ratios.iter().map(|(_, ratio)| *ratio).min_by(|one, other| one.mean.total_cmp(&other.mean))?;
        let reason = format!("The smallest factor counts: {}.", listed(&ratios));
        let verdict = Verdict::all(ratios.iter().map(|(_, ratio)| ratio.at_least(2.0)));
        Some(claim.judged(least.with_unit("times at least"), verdict, reason).with_interval(least))
    })
}

fn insensitive(results: &Results) -> Claim {
    let what = "On flash the time depends far less on the unit of I/O than on disk.";
    Claim::new("L-6 clusters", what, "much less sensitive").judge(|claim| {
        let trial = results.trial(CLUSTERS)?;
        let (mut parts, mut verdicts) = (Vec::new(), Vec::new());
        for operation in OPERATIONS {
            let spread = |device| extremes(trial, operation, device).map(|(least, most)| most / least);
            let (disk, flash) = (spread("disk")?, spread("flash")?);
            verdicts.push((disk / flash).at_least(3.0));
            parts.push(format!("{operation} {:.1} on disk, {:.1} on flash", disk.mean, flash.mean));
        }
        let reason =
            "The longest time over the shortest, of all sizes of clusters; far less is taken as a third or less.";
        Some(claim.judged(parts.join("; "), Verdict::all(verdicts), reason))
    })
}

fn with_memory(results: &Results) -> Claim {
    let what = "With any memory the joins take less than half the time on flash.";
    Claim::new("L-6 memory", what, "more than 2 times").judge(|claim| {
        let trial = results.trial(MEMORY)?;
        let (mut parts, mut least) = (Vec::new(), None::<Estimate>);
        for operation in ["sort-merge join", "hash join"] {
            let ratios = ratios(trial, operation)?;
            let lowest = ratios.iter().map(|(_, ratio)| *ratio).min_by(|one, other| one.mean.total_cmp(&other.mean))?;
            least = Some(least.filter(|least| least.mean < lowest.mean).unwrap_or(lowest));
            parts.push(format!("{operation} {}", listed(&ratios)));
        }
        let least = least?;
        let reason = format!("Clusters of 16 KiB; times as long on disk, by MiB of memory: {}.", parts.join("; "));
        Some(claim.judged(least.with_unit("times"), least.at_least(2.0), reason).with_interval(least))
    })
}
