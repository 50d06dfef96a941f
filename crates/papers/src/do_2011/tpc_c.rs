//! Section 4.2: TPC-C, without checkpoints.

use super::*;

pub(super) const TRIAL: &str = "5-tpc-c";
pub(super) const COURSES: [&str; 2] = ["6-tpc-c-2k", "6-tpc-c-4k"];
pub(super) const LAMBDA: &str = "7-lambda";
/// The databases, in warehouses.
const SIZES: [f64; 3] = [1_000.0, 2_000.0, 4_000.0];
/// The one that most figures are given for.
const MIDDLE: f64 = 2_000.0;

pub(super) fn claims(results: &Results) -> Vec<Claim> {
    let mut claims = vec![
        factor(results, NO_SSD, 9.4).seen_in(TRIAL),
        factor(results, "DW", 5.1).seen_in(TRIAL),
        factor(results, "TAC", 6.8).seen_in(TRIAL),
    ];
    claims.extend(SIZES.map(|size| order(results, size).seen_in(TRIAL)));
    claims.extend([
        clean_write(results).seen_in(TRIAL),
        rate(results, ["LC", "ssd"], 74.2).seen_in(TRIAL),
        rate(results, [NO_SSD, "disk"], 6.7).seen_in(TRIAL),
        hits(results).seen_in(TRIAL),
        dirty_reads(results).seen_in(TRIAL),
        lambda_factor(results, 10.0, 3.1).seen_in(LAMBDA),
        lambda_factor(results, 50.0, 1.6).seen_in(LAMBDA),
        lambda_writes(results).seen_in(LAMBDA),
        outdated(results).seen_in(TRIAL),
        drop(results, COURSES[0], 2_000, 11.0 / 6.0).seen_in(COURSES[0]),
        drop(results, COURSES[1], 4_000, 2.5).seen_in(COURSES[1]),
    ]);
    claims
}

/// What the disks and the SSD of two curves did, for a reason.
fn traffic(trial: &Trial, line: &str, size: f64) -> Option<String> {
    let at = |path: &str| trial.figure(line, size, path).map(|figure| figure.mean);
    let [reads, writes] = [at("io_per_s.disk.reads")?, at("io_per_s.disk.writes")?];
    Some(format!("{line}: {reads:.0} reads and {writes:.0} writes a second on the disks"))
}

fn factor(results: &Results, other: &str, paper: f64) -> Claim {
    let what = format!("TPC-C of 2,000 warehouses: LC is {paper} times as fast as {other}.");
    Claim::new(&format!("D-1 LC/{other}"), &what, &format!("{paper} times")).judge(|claim| {
        let trial = results.trial(TRIAL)?;
        let ours = speedup(trial, ["LC", other], MIDDLE)?;
        let reason = format!(
            "Within 25 %. {}; {}. LC's SSD is busy for {:.0} %.",
            traffic(trial, "LC", MIDDLE)?,
            traffic(trial, other, MIDDLE)?,
            trial.figure("LC", MIDDLE, "utilization.ssd.medium.utilization")?.mean * 100.0,
        );
        Some(claim.judged(ours.with_unit("times"), near(ours, paper), reason).with_interval(ours))
    })
}

fn order(results: &Results, size: f64) -> Claim {
    let what = format!("TPC-C of {size} warehouses: LC is faster than DW, DW than TAC, and TAC than no SSD.");
    Claim::new(&format!("D-1 order, {size}"), &what, "LC > DW > TAC > noSSD").judge(|claim| {
        let trial = results.trial(TRIAL)?;
        let lines = ["LC", "DW", "TAC", NO_SSD];
        let figures: Option<Vec<Estimate>> = lines.iter().map(|line| trial.figure(line, size, TPS)).collect();
        let figures = figures?;
        let verdict = Verdict::all(figures.windows(2).map(|pair| greater(pair[0], pair[1])));
        let shown: Vec<String> =
            lines.iter().zip(&figures).map(|(line, tps)| format!("{line} {}", tps.with_unit(""))).collect();
        let reason = "Transactions per second. Each is above the next beyond chance.";
        Some(claim.judged(shown.join(", "), verdict, reason))
    })
}

fn clean_write(results: &Results) -> Claim {
    Claim::new("D-1 CW", "CW is slower than DW and LC in all experiments with TPC-C.", "below both everywhere").judge(
        |claim| {
            let trial = results.trial(TRIAL)?;
            let (mut verdicts, mut parts) = (Vec::new(), Vec::new());
            for size in trial.places() {
                let clean = trial.figure("CW", size, TPS)?;
                let others = [trial.figure("DW", size, TPS)?, trial.figure("LC", size, TPS)?];
                verdicts.extend(others.map(|other| greater(other, clean)));
                let share = |other: Estimate| (clean / other).mean * 100.0;
                parts.push(format!("{:.0} % of DW and {:.0} % of LC at {size}", share(others[0]), share(others[1])));
            }
            Some(claim.judged(parts.join("; "), Verdict::all(verdicts), "Beyond chance at every size that was run."))
        },
    )
}

fn rate(results: &Results, [line, device]: [&str; 2], paper: f64) -> Claim {
    let name = if device == "ssd" { "the SSD" } else { "the disks" };
    let what = format!("TPC-C of 2,000 warehouses: {line} reads {paper} MB/s from {name}.");
    Claim::new(&format!("D-2 {line}"), &what, &format!("{paper} MB/s")).judge(|claim| {
        let trial = results.trial(TRIAL)?;
        let device_reads = |line: &str, device: &str| match device {
            "ssd" => trial.figure(line, MIDDLE, "tiers.cache.reads_per_transaction"),
            _ => trial.figure(line, MIDDLE, "io_per_transaction.disk.reads"),
        };
        let tps = trial.figure(line, MIDDLE, TPS)?;
        let reads = device_reads(line, device)? * tps.mean;
        let ours = reads * (PAGE / 1e6);
        let busy = trial.figure(line, MIDDLE, "utilization.disk.medium.utilization")?.mean * 100.0;
        let reason = format!(
            "Within 25 %. The disks are busy for {busy:.0} %. With the paper's own figures they do about 890 reads a second under LC, beside \
             the cleaner's writes (521 to 950 at 4,000 warehouses), and 820 without an SSD, beside a write for most of them: half as \
             much again as the 895 to 1,015 of table 1, which is all that they do here."
        );
        Some(claim.judged(ours.with_unit("MB/s"), near(ours, paper), reason).with_interval(ours))
    })
}

/// What share of the misses of main memory the SSD serves.
pub(super) fn hit_rate(trial: &Trial, line: &str, x: f64) -> Option<Estimate> {
    let at = |path: &str| trial.figure(line, x, path);
    let missed = Estimate::exact(1.0) - at("hit_ratio_all")?;
    Some(at("hit_ratio_second_level_all")? / missed * 100.0)
}

fn hits(results: &Results) -> Claim {
    let what = "TPC-C of 2,000 warehouses: of LC's reads that main memory misses the SSD serves 89 %.";
    Claim::new("D-2 hit rate", what, "89 %").judge(|claim| {
        let ours = hit_rate(results.trial(TRIAL)?, "LC", MIDDLE)?;
        Some(claim.judged(ours.with_unit("%"), ours.within(84.0..=94.0), "Within 5 points.").with_interval(ours))
    })
}

fn dirty_reads(results: &Results) -> Claim {
    let what = "TPC-C of 2,000 warehouses: about 83 % of LC's references to the SSD are to dirty pages.";
    Claim::new("D-2 dirty", what, "83 %").judge(|claim| {
        let ours = results.trial(TRIAL)?.figure("LC", MIDDLE, "tiers.cache.dirty_reads")? * 100.0;
        Some(claim.judged(ours.with_unit("%"), ours.within(78.0..=88.0), "Within 5 points.").with_interval(ours))
    })
}

fn lambda_factor(results: &Results, share: f64, paper: f64) -> Claim {
    let what = format!("TPC-C of 4,000 warehouses: with lambda = 90 % LC is {paper} times as fast as with {share} %.");
    Claim::new(&format!("D-3 90/{share}"), &what, &format!("{paper} times")).judge(|claim| {
        let trial = results.trial(LAMBDA)?;
        let at = |share| trial.figure("LC", share, TPS);
        let ours = at(90.0)? / at(share)?;
        let reads = |share| trial.figure("LC", share, "io_per_s.disk.reads").map(|reads| reads.mean);
        let reason = format!(
            "Within 25 %. Of what the disks do, reads of pages that the SSD does not have are {:.0} a second with {share} % and {:.0} with \
             90 %.",
            reads(share)?,
            reads(90.0)?
        );
        Some(claim.judged(ours.with_unit("times"), near(ours, paper), reason).with_interval(ours))
    })
}

fn lambda_writes(results: &Results) -> Claim {
    let what = "The cleaner writes less to the disks the larger lambda is: 950, 769 and 521 writes a second with 10, 50 and 90 %.";
    Claim::new("D-3 writes", what, "950, 769, 521 per second").judge(|claim| {
        let trial = results.trial(LAMBDA)?;
        let at = |share| trial.figure("LC", share, "io_per_s.disk.writes");
        let figures = [at(10.0)?, at(50.0)?, at(90.0)?];
        let falls = figures.windows(2).map(|pair| greater(pair[0], pair[1]));
        let ratios = [(1, 769.0 / 950.0), (2, 521.0 / 950.0)];
        let alike = ratios.map(|(index, paper)| near(figures[index] / figures[0], paper));
        let verdict = Verdict::all(falls.chain(alike));
        let shown = figures.map(|writes| format!("{:.0}", writes.mean)).join(", ");
        let reason = "That they fall is judged, and that they do in the paper's ratios within 25 %. As for D-2, the disks of table 1 \
                      cannot do as much as the paper's did.";
        Some(claim.judged(format!("{shown} per second"), verdict, reason))
    })
}

fn outdated(results: &Results) -> Claim {
    let what = "TAC's SSD holds old versions in 7.4, 10.4 and 8.9 GB of 140 GB, at 1,000, 2,000 and 4,000 warehouses.";
    Claim::new("D-5", what, "5.3, 7.4 and 6.4 %").judge(|claim| {
        let trial = results.trial(TRIAL)?;
        let figures: Option<Vec<Estimate>> =
            SIZES.iter().map(|size| Some(trial.figure("TAC", *size, "cache.outdated")? * 100.0)).collect();
        let figures = figures?;
        let paper = [7.4, 10.4, 8.9].map(|gb| gb / 140.0 * 100.0);
        let verdict = Verdict::all(figures.iter().zip(paper).map(|(ours, paper)| near(*ours, paper)));
        let shown: Vec<String> = figures.iter().map(|share| share.with_unit("%")).collect();
        let reason = "Within 25 % each. An old version stands in the SSD while main memory has a newer one, so their number is \
                      bounded by the changed pages of the buffer, which holds 14.3 % as many pages as the SSD; how many those are \
                      depends on how early they are written back, which the paper does not say.";
        Some(claim.judged(shown.join(", "), verdict, reason))
    })
}

/// When a dirty share first comes to its limit, in hours.
fn reaches_limit(dirty: &[(f64, f64)]) -> Option<f64> {
    dirty.iter().find(|(_, dirty)| *dirty >= 0.495).map(|(hour, _)| *hour)
}

fn drop(results: &Results, name: &str, warehouses: u32, paper_hours: f64) -> Claim {
    let what = format!(
        "TPC-C of {warehouses} warehouses: LC's throughput drops when half of the SSD is dirty, after {}.",
        clock(paper_hours)
    );
    Claim::new(&format!("D-6 LC, {warehouses}"), &what, &clock(paper_hours)).judge(|claim| {
        let trial = results.trial(name)?;
        let (throughput, dirty) = (courses(trial, "LC", TPS)?, courses(trial, "LC", "cache.dirty")?);
        let Some(hours) = of_each(&dirty, reaches_limit) else {
            let most = |dirty: &[(f64, f64)]| Some(dirty.iter().map(|(_, dirty)| *dirty).fold(0.0, f64::max));
            let least = of_each(&dirty, most)?.into_iter().fold(1.0, f64::min);
            let reason = format!(
                "The dirty share does not come to 50 % within ten hours in each run; in one it is {:.0} % at most.",
                least * 100.0
            );
            return Some(claim.judged("never", false, reason));
        };
        let mean = |from: f64, to: f64| -> Option<Vec<f64>> {
            throughput.iter().zip(&hours).map(|(course, hour)| mean_between(course, hour + from, hour + to)).collect()
        };
        let (before, after) = (mean(-0.8, -0.2)?, mean(0.0, 1.0)?);
        let (ours, left) = (Estimate::of(&hours), times(&after, &before));
        let is_near = near(ours, paper_hours);
        let reason = format!(
            "The time within 25 %, and a drop of a tenth at least. {:.0} transactions per second in the 40 minutes before, {:.0} in \
             the hour behind it.",
            Estimate::of(&before).mean,
            Estimate::of(&after).mean
        );
        let verdict = Verdict::all([is_near, left.at_most(0.9)]);
        Some(claim.judged(clock(ours.mean), verdict, reason).with_interval(ours))
    })
}
