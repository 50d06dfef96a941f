//! Section 4.3: where the partitions are.

use crate::outcome::Trial;
use crate::{Claim, Estimate, Results, Verdict};

const TRIAL: &str = "4-3-database";
pub(super) const DISK: &str = "disk";
pub(super) const CACHED: &str = "disk with write buffer in the disk cache";
pub(super) const BUFFERED: &str = "disk with write buffer in NVEM";
pub(super) const SSD: &str = "SSD";
pub(super) const NVEM: &str = "NVEM";
pub(super) const MEMORY: &str = "memory-resident, log on disk";
pub(super) const MEMORY_NVEM: &str = "memory-resident, log in NVEM";
const CLEANED: &str = "disk, asynchronous replacement";
const MIXED: &str = "log and BRANCH in NVEM, others on disk with write buffer";

pub(super) fn claims(results: &Results) -> Vec<Claim> {
    let own = [hit_ratios(results), transfers(results), write_buffers(results), order(results)];
    let expected = [asynchronous(results), mixed(results)];
    own.into_iter().chain(expected).map(|claim| claim.seen_in(TRIAL)).collect()
}

fn hit_ratios(results: &Results) -> Claim {
    let what = "The main-memory hit ratio is the same at every rate (ACCOUNT 0 %, HISTORY 95, BRANCH 95, TELLER 100).";
    Claim::new("R-4.2a", what, "72.5 %").judge(|claim| {
        let trial = results.trial(TRIAL)?;
        let lines: Vec<&str> = [DISK, CACHED, SSD, NVEM].to_vec();
        let all = |path: &str| -> Option<Vec<Estimate>> {
            let places = lines.iter().flat_map(|line| trial.places().map(move |rate| (*line, rate)));
            let steady = places.filter(|(line, rate)| trial.at(line, *rate).is_some_and(|run| run.is_steady()));
            steady.map(|(line, rate)| Some(trial.figure(line, rate, path)? * 100.0)).collect()
        };
        let ratios = all("hit_ratio_all")?;
        let by_mean = |one: &&Estimate, other: &&Estimate| one.mean.total_cmp(&other.mean);
        let spread = *ratios.iter().max_by(by_mean)? - *ratios.iter().min_by(by_mean)?;
        // The configurations and rates are runs of their own: their spread gives the interval.
        let mean = |values: &[Estimate]| Estimate::of(&values.iter().map(|value| value.mean).collect::<Vec<_>>());
        let ours = mean(&ratios);
        let (account, history) = (mean(&all("hit_ratio.account")?), mean(&all("hit_ratio.history")?));
        // BRANCH and TELLER share a partition; the second reference of a transaction to the page always hits.
        let branch = mean(&all("hit_ratio.branch")?) * 2.0 - Estimate::exact(100.0);
        let reason = format!(
            "ACCOUNT {:.1} %, HISTORY {:.1}, the first of the two references to the page of BRANCH and TELLER \
             {:.1}, the second 100. Over all rates and configurations the ratio spreads over {:.1} points.",
            account.mean, history.mean, branch.mean, spread.mean
        );
        let near = |ours: Estimate, paper: f64| ours.within(paper - 1.0..=paper + 1.0);
        let parts = [near(account, 0.0), near(history, 95.0), near(branch, 95.0)];
        let verdict = Verdict::all(parts.into_iter().chain([near(ours, 72.5), spread.at_most(1.0)]));
        Some(claim.judged(ours.with_unit("%"), verdict, reason).with_interval(ours))
    })
}

fn transfers(results: &Results) -> Claim {
    let what = "Disk-based: about two database I/Os and one log I/O per transaction, all at disk speed.";
    Claim::new("R-4.2b", what, "about 40 ms of I/O delay").judge(|claim| {
        let trial = results.trial(TRIAL)?;
        let figure = |path: &str| trial.figure(DISK, 10.0, path);
        let (reads, writes) = (figure("io_per_transaction.disk.reads")?, figure("io_per_transaction.disk.writes")?);
        let log = figure("io_per_transaction.log-disk.writes")?;
        let waits = ["read_wait", "write_wait", "commit_wait"].map(|part| figure(&format!("composition_us.{part}")));
        let [read, write, commit] = waits;
        let delay = (read? + write? + commit?) * 1e-3;
        let reason = format!(
            "At 10 TPS, where nothing queues: {} reads and {} writes of the database and {} of the log per transaction. By \
             the paper's parameters two accesses of 16.4 ms and one of 6.4 ms are 39.2 ms; 2.16 accesses are 41.8.",
            reads.with_unit(""),
            writes.with_unit(""),
            log.with_unit("")
        );
        let database = reads + writes;
        let verdict =
            Verdict::all([delay.within(36.0..=44.0), database.within(1.8..=2.3), log.within(0.95..=1.05)]);
        Some(claim.judged(delay.with_unit("ms"), verdict, reason).with_interval(delay))
    })
}

fn write_buffers(results: &Results) -> Claim {
    let what = "Write buffers cut response time by a factor of about 2; one in NVEM is only slightly better than one in the disk cache.";
    Claim::new("R-4.2c", what, "a factor of 2").judge(|claim| {
        let trial = results.trial(TRIAL)?;
        let [disk, cached, buffered] = [DISK, CACHED, BUFFERED].map(|line| trial.response_ms(line, 100.0));
        let (disk, cached, buffered) = (disk?, cached?, buffered?);
        let factor = disk / cached;
        let reason = format!(
            "At 100 TPS: disk {}, write buffer in the disk cache {}, in NVEM {}.",
            disk.with_unit("ms"),
            cached.with_unit("ms"),
            buffered.with_unit("ms")
        );
        let slightly = [(buffered - cached).at_most(0.0), (buffered / cached).at_least(0.8)];
        let verdict = Verdict::all(slightly.into_iter().chain([factor.within(1.7..=2.3)]));
        Some(claim.judged(format!("a factor of {}", factor.with_unit("")), verdict, reason).with_interval(factor))
    })
}

fn order(results: &Results) -> Claim {
    let what = "Best first: NVEM, SSD close to it, memory-resident with the log on disk slower than NVEM; at 700 TPS \
                memory-resident beats SSD. Memory-resident with the log in NVEM is about as NVEM-resident.";
    Claim::new("R-4.2d", what, "NVEM < SSD; NVEM < memory; at 700 TPS memory < SSD").judge(|claim| {
        let trial = results.trial(TRIAL)?;
        let moderate = at(trial, 300.0)?;
        let high = at(trial, 700.0)?;
        let both = trial.response_ms(MEMORY_NVEM, 300.0)?;
        // The first of each pair is to be the shorter.
        let orders = [
            ("NVEM < SSD", moderate.nvem / moderate.ssd),
            ("NVEM < memory-resident with the log on disk", moderate.nvem / moderate.memory),
            ("memory-resident < SSD at 700 TPS", high.memory / high.ssd),
        ];
        let like = both / moderate.nvem;
        let mut verdicts: Vec<(&str, Verdict)> =
            orders.iter().map(|(what, share)| (*what, share.at_most(1.0))).collect();
        verdicts.push(("memory-resident with the log in NVEM within 10 % of NVEM", like.within(0.9..=1.1)));
        let verdict = Verdict::all(verdicts.iter().map(|(_, verdict)| *verdict));
        let open = verdicts.iter().filter(|(_, verdict)| *verdict != Verdict::Holds);
        let wrong: Vec<String> = open.map(|(what, verdict)| format!("{what} ({})", verdict.word())).collect();
        let (closest, share) = orders.into_iter().max_by(|a, b| a.1.mean.total_cmp(&b.1.mean))?;
        let mut reason = format!(
            "At 300 TPS: NVEM {}, SSD {}, memory-resident with the log on disk {}, in NVEM {}. At 700 TPS: SSD {}, \
             memory-resident with the log on disk {}.",
            moderate.nvem.with_unit("ms"),
            moderate.ssd.with_unit("ms"),
            moderate.memory.with_unit("ms"),
            both.with_unit("ms"),
            high.ssd.with_unit("ms"),
            high.memory.with_unit("ms"),
        );
        if !wrong.is_empty() {
            reason = format!("{reason} Not, or not beyond chance: {}.", wrong.join("; "));
        }
        reason = format!(
            "{reason} Given is the closest of the orders, {closest}, as the share that the one is of the other."
        );
        let ours = format!("{} of 4 hold; the closest: {:.2} times", 4 - wrong.len(), share.mean);
        Some(claim.judged(ours, verdict, reason).with_interval(share))
    })
}

fn asynchronous(results: &Results) -> Claim {
    let what = "Expected: with pages written before their frames are needed two synchronous I/Os remain on disks, a read and the \
                log write, and the difference to write buffers becomes considerably smaller.";
    Claim::new("R-4.2e", what, "\"considerably reducing\"; no figure").judge(|claim| {
        let trial = results.trial(TRIAL)?;
        let [disk, cleaned, cached] = [DISK, CLEANED, CACHED].map(|line| trial.response_ms(line, 100.0));
        let (disk, cleaned, cached) = (disk?, cleaned?, cached?);
        let wait = |line: &str, part: &str| Some(trial.figure(line, 100.0, &format!("composition_us.{part}"))? * 1e-3);
        let (before, after, commit) =
            (wait(DISK, "read_wait")?, wait(CLEANED, "read_wait")?, wait(CLEANED, "commit_wait")?);
        let share = (cleaned - cached) / (disk - cached);
        let reason = format!(
            "At 100 TPS: on disks {}, so {}, with write buffers {}. What is left of the difference is given; considerably is \
             taken as at most half of it. A transaction waits {} for pages, the replaced one's write included, in place of {}, and {} \
             for the log; a read of 16.4 ms and a log write of 6.4 remain if that is up to 10 % more, for HISTORY misses, too.",
            disk.with_unit("ms"),
            cleaned.with_unit("ms"),
            cached.with_unit("ms"),
            after.with_unit("ms"),
            before.with_unit("ms"),
            commit.with_unit("ms"),
        );
        let verdict = Verdict::all([share.at_most(0.5), (after + commit).within(0.9 * 22.8..=1.1 * 22.8)]);
        Some(claim.judged(format!("{:.0} %", share.mean * 100.0), verdict, reason).with_interval(share * 100.0))
    })
}

fn mixed(results: &Results) -> Claim {
    let what = "Suggested: the log and BRANCH/TELLER in NVEM, the others on disks with a write buffer, is better than write buffers \
                alone.";
    Claim::new("R-4.2f", what, "\"may be a good idea\"; no figure").judge(|claim| {
        let trial = results.trial(TRIAL)?;
        let time = |line: &str| trial.response_ms(line, 300.0);
        let [disk, cached, mixed, nvem] = [DISK, CACHED, MIXED, NVEM].map(time);
        let (disk, cached, mixed, nvem) = (disk?, cached?, mixed?, nvem?);
        let gain = cached - mixed;
        let reason = format!(
            "At 300 TPS: on disks {}, with write buffers {}, mixed {}, wholly in NVEM {}. What the mixed placement gains over \
             write buffers is given: {:.0} % of what is left to gain.",
            disk.with_unit("ms"),
            cached.with_unit("ms"),
            mixed.with_unit("ms"),
            nvem.with_unit("ms"),
            (gain / (cached - nvem)).mean * 100.0,
        );
        Some(claim.judged(gain.with_unit("ms"), gain.at_least(0.0), reason).with_interval(gain))
    })
}

struct Times {
    nvem: Estimate,
    ssd: Estimate,
    memory: Estimate,
}

fn at(trial: &Trial, rate: f64) -> Option<Times> {
    let time = |line| trial.response_ms(line, rate);
    Some(Times { nvem: time(NVEM)?, ssd: time(SSD)?, memory: time(MEMORY)? })
}
