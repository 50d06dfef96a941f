//! Section 4.3: TPC-E, with a checkpoint every 40 minutes.

use super::*;

pub(super) const TRIAL: &str = "5-tpc-e";
pub(super) const COURSES: [&str; 2] = ["6-tpc-e-20k", "6-tpc-e-40k"];
/// The databases, in customers, and how many times as fast the designs are with an SSD.
const SPEEDUPS: [(f64, f64); 3] = [(10_000.0, 5.5), (20_000.0, 8.0), (40_000.0, 3.0)];
const MIDDLE: f64 = 20_000.0;
const DESIGNS: [&str; 3] = ["DW", "LC", "TAC"];

pub(super) fn claims(results: &Results) -> Vec<Claim> {
    let mut claims: Vec<Claim> = Vec::new();
    for (size, paper) in SPEEDUPS {
        claims.extend(DESIGNS.map(|design| factor(results, design, size, paper).seen_in(TRIAL)));
    }
    claims.extend([
        peak(results).seen_in(TRIAL),
        clean_write(results).seen_in(TRIAL),
        ramp_up(results).seen_in(COURSES[0]).seen_in(COURSES[1]),
        disks(results).seen_in(TRIAL),
        ssd(results).seen_in(TRIAL),
    ]);
    claims
}

fn factor(results: &Results, design: &str, size: f64, paper: f64) -> Claim {
    let what = format!("TPC-E of {size} customers: {design} is about {paper} times as fast as without an SSD.");
    let claim = Claim::new(&format!("D-4 {design}, {size}"), &what, &format!("{paper} times")).judge(|claim| {
        let trial = results.trial(TRIAL)?;
        let ours = speedup(trial, [design, NO_SSD], size)?;
        let at = |path: &str| trial.figure(design, size, path).map(|figure| figure.mean * 100.0);
        let reason = format!(
            "Within 25 %. The SSD serves {:.0} % of what main memory misses; the disks are busy for {:.0} %, the processors for {:.0} %.",
            tpc_c::hit_rate(trial, design, size)?.mean,
            at("utilization.disk.medium.utilization")?,
            at("utilization.cpu.utilization")?,
        );
        Some(claim.judged(ours.with_unit("times"), near(ours, paper), reason).with_interval(ours))
    });
    let is_calibrated = size == SPEEDUPS[0].0;
    if is_calibrated { claim.calibrated("The CPU time of a transaction was calibrated on it.") } else { claim }
}

fn peak(results: &Results) -> Claim {
    let what = "TPC-E gains most where the working set just fits the SSD, at 20,000 customers.";
    Claim::new("D-4 peak", what, "at 20,000").judge(|claim| {
        let trial = results.trial(TRIAL)?;
        let (mut verdicts, mut parts) = (Vec::new(), Vec::new());
        for design in DESIGNS {
            let gain = |size| speedup(trial, [design, NO_SSD], size);
            let [small, middle, large] = [gain(SPEEDUPS[0].0)?, gain(MIDDLE)?, gain(SPEEDUPS[2].0)?];
            verdicts.extend([greater(middle, small), greater(middle, large)]);
            parts.push(format!("{design} {:.2}, {:.2}, {:.2}", small.mean, middle.mean, large.mean));
        }
        let reason =
            "How many times as fast as without an SSD each is at 10,000, 20,000 and 40,000, compared beyond chance.";
        Some(claim.judged(parts.join("; "), Verdict::all(verdicts), reason))
    })
}

fn clean_write(results: &Results) -> Claim {
    let what = "TPC-E of 20,000 customers: CW is 21.6 % slower than DW.";
    Claim::new("D-4 CW", what, "21.6 %").judge(|claim| {
        let trial = results.trial(TRIAL)?;
        let ours = (Estimate::exact(1.0) - speedup(trial, ["CW", "DW"], MIDDLE)?) * 100.0;
        let reason = "By its factor, 0.784, within 25 %: 2.0 to 41.2 %.";
        Some(claim.judged(ours.with_unit("%"), ours.within(2.0..=41.2), reason).with_interval(ours))
    })
}

/// When a course comes to 95 % of what it is in its last hour, in hours.
fn steady_from(course: &[(f64, f64)]) -> Option<f64> {
    let end = course.last()?.0;
    let level = 0.95 * mean_between(course, end - 1.0, end)?;
    let smooth = course.windows(5).map(|five| (five[2].0, five.iter().map(|(_, figure)| figure).sum::<f64>() / 5.0));
    smooth.into_iter().find(|(_, mean)| *mean >= level).map(|(hour, _)| hour)
}

fn ramp_up(results: &Results) -> Claim {
    let what = "DW takes longer to its steady state with 20,000 customers than with 40,000.";
    Claim::new("D-6 ramp-up", what, "about 10 and 8.5 h").judge(|claim| {
        let hours = |name: &str| of_each(&courses(results.trial(name)?, "DW", TPS)?, steady_from);
        let (middle, large) = (hours(COURSES[0])?, hours(COURSES[1])?);
        let reason = "When the mean of an hour reaches 95 % of that of the last hour. The paper's buffer is filled with eight pages a read, \
                      which shortens both. Compared beyond chance.";
        let ours = [&middle, &large].map(|hours| clock(Estimate::of(hours).mean)).join(" and ");
        Some(claim.judged(ours, above(&middle, &large).at_least(0.0), reason))
    })
}

fn disks(results: &Results) -> Claim {
    let what = "TPC-E of 20,000 customers, DW in its steady state: the disks do about 832 operations a second, close to what they can.";
    Claim::new("D-7b disks", what, "832 per second").judge(|claim| {
        let trial = results.trial(TRIAL)?;
        let at = |path: &str| trial.figure("DW", MIDDLE, path);
        let ours = at("io_per_s.disk.reads")? + at("io_per_s.disk.writes")?;
        let busy = at("utilization.disk.medium.utilization")? * 100.0;
        let verdict = Verdict::all([near(ours, 832.0), busy.at_least(80.0)]);
        let reason =
            format!("Within 25 %, and the disks busy for 80 % at least; they are for {}.", busy.with_unit("%"));
        Some(claim.judged(ours.with_unit("per second"), verdict, reason).with_interval(ours))
    })
}

fn ssd(results: &Results) -> Claim {
    let what = "TPC-E of 20,000 customers, DW: the SSD is not saturated; at most 46 MB/s are read from it and 9.7 MB/s written.";
    Claim::new("D-7b SSD", what, "46 and 9.7 MB/s").judge(|claim| {
        let trial = results.trial(TRIAL)?;
        let at = |path: &str| trial.figure("DW", MIDDLE, path);
        let rate = |path: &str| Some(at(path)? * at(TPS)?.mean * (PAGE / 1e6));
        let [reads, writes] = [rate("tiers.cache.reads_per_transaction")?, rate("tiers.cache.writes_per_transaction")?];
        let busy = at("utilization.ssd.medium.utilization")? * 100.0;
        let verdict = Verdict::all([near(reads, 46.0), near(writes, 9.7), busy.at_most(90.0)]);
        let reason = format!("Each within 25 %, and the SSD busy for 90 % at most; it is for {}.", busy.with_unit("%"));
        let ours = format!("{} and {}", reads.with_unit("MB/s"), writes.with_unit("MB/s"));
        Some(claim.judged(ours, verdict, reason))
    })
}
