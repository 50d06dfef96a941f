//! Section 4.2: where the log is.

use crate::{Claim, Results, Verdict};

const TRIAL: &str = "4-2-log";
const DISK: &str = "single log disk";
const BUFFERED: &str = "log disk with non-volatile write buffer";
const SSD: &str = "log on SSD";
const NVEM: &str = "log in NVEM";
const GROUP: &str = "single log disk, group commit";

pub(super) fn claims(results: &Results) -> Vec<Claim> {
    let claims = [single_disk(results), buffered(results), semiconductor(results), group_commit(results)];
    claims.map(|claim| claim.seen_in(TRIAL)).into()
}

fn single_disk(results: &Results) -> Claim {
    let what = "A single log disk saturates; without a cache response time climbs steeply from 100 TPS on.";
    Claim::new("R-4.1a", what, "between 180 and 200 TPS").judge(|claim| {
        let trial = results.trial(TRIAL)?;
        let most = trial.throughput_max(DISK)?;
        let [idle, moderate, high] = [10.0, 100.0, 180.0].map(|rate| trial.response_ms(DISK, rate));
        let (idle, moderate, high) = (idle?, moderate?, high?);
        // The rise from 100 to 180 TPS less three times that from 10 to 100.
        let steep = (high - moderate * 4.0 + idle * 3.0).at_least(0.0);
        let reason = format!(
            "Response time is {} at 10 TPS, {} at 100, {} at 180. The highest throughput of all runs counts; \
             'steeply' is taken as three times the rise from 10 to 100 TPS.",
            idle.with_unit("ms"),
            moderate.with_unit("ms"),
            high.with_unit("ms")
        );
        let verdict = Verdict::all([most.within(180.0..=200.0), steep]);
        Some(claim.judged(most.with_unit("TPS"), verdict, reason).with_interval(most))
    })
}

fn buffered(results: &Results) -> Claim {
    let what = "With the non-volatile write buffer response time is low and almost constant up to full load (tested up to 190).";
    Claim::new("R-4.1b", what, "almost constant from 10 to 200 TPS").judge(|claim| {
        let trial = results.trial(TRIAL)?;
        let rates: Vec<f64> = trial.places().filter(|rate| *rate <= 190.0).collect();
        let times: Option<Vec<_>> = rates.iter().map(|rate| trial.response_ms(BUFFERED, *rate)).collect();
        let times = times?;
        let lowest = *times.iter().min_by(|a, b| a.mean.total_cmp(&b.mean))?;
        let highest = *times.iter().max_by(|a, b| a.mean.total_cmp(&b.mean))?;
        let growth = highest / lowest;
        let without = trial.response_ms(DISK, 180.0)?;
        let (first, last) = (*rates.first()?, *rates.last()?);
        let rise = |part: &str| {
            let path = format!("composition_us.{part}");
            Some((trial.figure(BUFFERED, last, &path)? - trial.figure(BUFFERED, first, &path)?).mean * 1e-3)
        };
        let mut reason = format!(
            "The highest of its response times up to 190 TPS, {}, over the lowest, {}; 'almost constant' is taken as within \
             15 %. Without the write buffer it is {} at 180 TPS.",
            highest.with_unit("ms"),
            lowest.with_unit("ms"),
            without.with_unit("ms")
        );
        if let (Some(read), Some(commit)) = (rise("read_wait"), rise("commit_wait")) {
            reason += &format!(
                " From {first} to {last} TPS the wait for the log grows by {commit:.1} ms, that for reads by {read:.1} ms."
            );
        }
        let verdict = Verdict::all([growth.at_most(1.15), (highest - without).at_most(0.0)]);
        Some(claim.judged(format!("{} times", growth.with_unit("")), verdict, reason).with_interval(growth))
    })
}

fn semiconductor(results: &Results) -> Claim {
    let what = "SSD and NVEM logs reach 700 TPS; NVEM is best, SSD slightly above it; the rise at 700 is CPU wait.";
    Claim::new("R-4.1c", what, "CPU about 90 % busy at 700 TPS").judge(|claim| {
        let trial = results.trial(TRIAL)?;
        if let Some(line) = [SSD, NVEM].into_iter().find(|line| !trial.at(line, 700.0).is_some_and(|run| run.is_steady())) {
            let (_, end) = trial.limit(line)?;
            let (rate, station) = end?;
            return Some(claim.judged(
                format!("saturated from {rate} TPS"),
                false,
                format!("'{line}' is saturated by {station}."),
            ));
        }
        let busy = trial.figure(NVEM, 700.0, "utilization.cpu.utilization")? * 100.0;
        let (ssd, nvem) = (trial.response_ms(SSD, 400.0)?, trial.response_ms(NVEM, 400.0)?);
        let rise = |part: &str| {
            let path = format!("composition_us.{part}");
            Some((trial.figure(NVEM, 700.0, &path)? - trial.figure(NVEM, 400.0, &path)?) * 1e-3)
        };
        let (cpu, read, commit) = (rise("cpu")?, rise("read_wait")?, rise("commit_wait")?);
        // Both logs have the same arrivals, so that their runs are compared pair by pair.
        let above = trial.difference([SSD, NVEM], 400.0, "response_us.mean")?;
        let reason = format!(
            "At 400 TPS NVEM takes {}, SSD {}; slightly above is taken as up to 15 %. From 400 to 700 TPS the NVEM log's response \
             time rises by {} of CPU and waiting for it, {} of waiting for reads, {} of waiting for the log.",
            nvem.with_unit("ms"),
            ssd.with_unit("ms"),
            cpu.with_unit("ms"),
            read.with_unit("ms"),
            commit.with_unit("ms"),
        );
        let is_cpu = [read, commit].map(|other| (cpu - other).at_least(0.0));
        let slightly = [above.at_least(0.0), (ssd / nvem).at_most(1.15)];
        let verdict = Verdict::all(is_cpu.into_iter().chain(slightly).chain([busy.within(86.0..=94.0)]));
        Some(claim.judged(busy.with_unit("% busy"), verdict, reason).with_interval(busy))
    })
}

fn group_commit(results: &Results) -> Claim {
    let what = "Expected: group commit permits significantly higher transaction rates with a single log disk.";
    Claim::new("R-4.1d", what, "\"significantly higher\"; no figure").judge(|claim| {
        let trial = results.trial(TRIAL)?;
        let (alone, grouped) = (trial.throughput_max(DISK)?, trial.throughput_max(GROUP)?);
        let times = grouped / alone;
        let at = |line: &str, rate: f64| trial.response_ms(line, rate).map(|time| time.with_unit("ms"));
        let reason = format!(
            "The highest throughput of all runs, {} in place of {}; significantly is taken as at least 1.5 times. One log write \
             at a time, shared by all who came meanwhile, takes {} at 100 TPS in place of {}, and {} at 700 (in NVEM {}).",
            grouped.with_unit("TPS"),
            alone.with_unit("TPS"),
            at(GROUP, 100.0)?,
            at(DISK, 100.0)?,
            at(GROUP, 700.0).unwrap_or_else(|| "too long".to_owned()),
            at(NVEM, 700.0).unwrap_or_else(|| "too long".to_owned()),
        );
        Some(claim.judged(format!("{} times", times.with_unit("")), times.at_least(1.5), reason).with_interval(times))
    })
}
