//! The same on the machine on which the study is reproduced, whose disk behaves as the described devices.

use super::{DEVICES, commit};
use crate::{Claim, Estimate, Results};

const TRIAL: &str = "this-machine";
const JOINS: &str = "this-machine-joins";

pub(super) fn claims(results: &Results) -> Vec<Claim> {
    vec![factor(results), joins(results)]
}

fn factor(results: &Results) -> Claim {
    let what = "On this machine's clock, too, the log on flash brings more than ten times in throughput.";
    Claim::new("L-7 log, this machine", what, "more than 10 times").judge(|claim| {
        let trial = results.trial(TRIAL)?;
        let (mut best, mut parts) = (None::<Estimate>, Vec::new());
        for n in trial.places() {
            let [disk, flash] = DEVICES.map(|device| trial.figure(device, n, "throughput_per_s"));
            let described = DEVICES.map(|device| commit::tps(results, device, n));
            let (times, beside) = (flash? / disk?, (described[0], described[1]));
            let beside = match beside {
                (Some(disk), Some(flash)) => format!(" (described {:.0} and {:.0})", disk.mean, flash.mean),
                _ => String::new(),
            };
            parts.push(format!("at {n} {:.0} and {:.0} tps{beside}", disk?.mean, flash?.mean));
            best = Some(best.filter(|best| best.mean > times.mean).unwrap_or(times));
        }
        let best = best?;
        let reason = format!(
            "The devices' delays are real, the processors are this machine's: one thread that is many times as fast. On disk and \
             flash, {}. What else the machine does disturbs the short times of flash.",
            parts.join("; ")
        );
        Some(claim.judged(best.with_unit("times"), best.mean > 10.0, reason).with_interval(best))
    })
}

fn joins(results: &Results) -> Claim {
    let what = "On this machine's clock, too, joins take less than half the time with temporary space on flash.";
    Claim::new("L-6 joins, this machine", what, "more than 2 times").judge(|claim| {
        let trial = results.trial(JOINS)?;
        let (mut least, mut parts) = (None::<Estimate>, Vec::new());
        for (x, name) in &trial.experiment.x.values {
            let seconds = |line: String| trial.figure(&line, *x, "spill.seconds");
            let [disk, flash] = DEVICES.map(|device| seconds(format!("{device}, this machine")));
            let [disk_virtual, flash_virtual] = DEVICES.map(|device| seconds(format!("{device}, virtual")));
            let (disk, flash) = (disk?, flash?);
            parts.push(format!(
                "{name} {:.2} s on disk ({:.2} s virtually), {:.2} s on flash ({:.2} s)",
                disk.mean, disk_virtual?.mean, flash.mean, flash_virtual?.mean
            ));
            let times = disk / flash;
            least = Some(least.filter(|least| least.mean < times.mean).unwrap_or(times));
        }
        let least = least?;
        let reason = format!("The smaller of both factors counts. {}.", parts.join("; "));
        Some(claim.judged(least.with_unit("times"), least.mean > 2.0, reason).with_interval(least))
    })
}
