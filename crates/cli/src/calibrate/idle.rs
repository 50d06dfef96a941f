//! What a long sleep costs behind it: others use the processor's caches meanwhile, and the first steps wait for memory. Debit-Credit in memory
//! runs in bursts, behind sleeps and behind none.

use super::cpu::{configuration, plan};
use crate::Failure;
use crate::bench::{bank, meter::Meter};
use crate::progress::Progress;
use devices::{ColdCaches, Device};
use driver::Fault;
use entresol::Opening;
use serde::{Deserialize, Serialize};
use std::path::Path;
use workload::debit_credit::{DebitCredit, Tables};
use workload::{Length, Plan};

/// For how long the engine sleeps, in nanoseconds: no time, and longer and longer.
const SLEEPS_NS: [u64; 4] = [0, 2_000_000, 10_000_000, 80_000_000];
/// How many transactions run behind a sleep: as many as tell how much slower the first ones are, and as many as the caches are warm behind.
const BURSTS: [u64; 2] = [1_000, 8_000];
const CLIENTS: u32 = 64;
/// Less is not told from noise.
const SLOWDOWN_MIN: f64 = 0.05;

/// CPU times of bursts, in nanoseconds, by sleep and burst.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BurstsSeen {
    cpu_ns: [[f64; BURSTS.len()]; SLEEPS_NS.len()],
}

/// Runs the bursts in a directory, each so often.
pub fn measure(
    (directory, described): (&Path, Option<&Device>),
    rounds: usize,
    mut go_on: impl FnMut(usize) -> Result<(), Fault>,
) -> Result<BurstsSeen, Failure> {
    let hidden = Progress::hidden();
    let store = Opening::new(directory.join("bursts"), configuration(described, false, 64 << 20)).open()?;
    let scale = bank::prepare(&store, Some(1), &hidden)?;
    store.run(async |database| bank::warm(database, &bank::WARMED, |_, _| {}).await)?;
    let burst = |sleep_ns: u64, transactions: u64| {
        let plan = Plan { measure: Length::Transactions(transactions), ..plan(CLIENTS, 0) };
        let mut meter = Meter::new(&hidden, &plan, false);
        let found = store.run(async |database| {
            if sleep_ns > 0 {
                database.executor().sleep_ns(sleep_ns).await;
            }
            let load = DebitCredit(Tables::of(database.catalog(), &scale)?);
            workload::run::run(database, load, &plan, &mut meter, |measured| measured).await
        })?;
        Ok::<_, Failure>(found.cpu_ns as f64)
    };
    let mut all = vec![[[0.0; BURSTS.len()]; SLEEPS_NS.len()]; rounds];
    for (round, seen) in all.iter_mut().enumerate() {
        go_on(round)?;
        for (seen, sleep_ns) in seen.iter_mut().zip(SLEEPS_NS) {
            for (seen, transactions) in seen.iter_mut().zip(BURSTS) {
                burst(0, BURSTS[1])?;
                *seen = burst(sleep_ns, transactions)?;
            }
        }
    }
    store.close()?;
    let median = |sleep: usize, burst: usize| {
        let mut times = Vec::from_iter(all.iter().map(|seen| seen[sleep][burst]));
        times.sort_by(f64::total_cmp);
        times[rounds / 2]
    };
    Ok(BurstsSeen { cpu_ns: std::array::from_fn(|sleep| std::array::from_fn(|burst| median(sleep, burst))) })
}

impl BurstsSeen {
    /// What the caches have behind each of the sleeps that cost something.
    pub fn cold_caches(&self) -> Vec<ColdCaches> {
        let [few_ns, many_ns] = self.cpu_ns[0];
        let behind = SLEEPS_NS.into_iter().zip(self.cpu_ns).skip(1);
        let cold = behind.map(|(sleep_ns, cpu_ns)| {
            let [few_more_ns, more_ns] = [(cpu_ns[0] - few_ns).max(0.0), (cpu_ns[1] - many_ns).max(0.0)];
            let slowdown = few_more_ns / few_ns.max(1.0);
            // The first transactions are slower by that, until all of what is lost has been lost.
            let cold_ns = (more_ns / slowdown.max(f64::MIN_POSITIVE)).clamp(few_ns.min(many_ns), many_ns);
            ColdCaches { sleep_ns, instructions: cold_ns.round() as u64, slowdown: (slowdown * 100.0).round() / 100.0 }
        });
        cold.filter(|cold| cold.slowdown >= SLOWDOWN_MIN).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_transactions_are_slower_until_what_is_lost_has_been_lost() {
        let seen = BurstsSeen { cpu_ns: [[2e6, 16e6], [2.02e6, 15.9e6], [3e6, 18e6], [5e6, 30e6]] };
        let cold = |sleep_ms: u64, instructions, slowdown| ColdCaches {
            sleep_ns: sleep_ms * 1_000_000,
            instructions,
            slowdown,
        };
        assert_eq!(seen.cold_caches(), [cold(10, 4_000_000, 0.5), cold(80, 9_333_333, 1.5)]);
    }

    #[test]
    fn bursts_are_measured_behind_sleeps() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut rounds = Vec::new();
        let seen = measure((directory.path(), None), 1, |round| {
            rounds.push(round);
            Ok(())
        });
        let seen = seen.unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!(rounds, [0]);
        assert!(seen.cpu_ns.iter().flatten().all(|ns| *ns > 0.0), "{seen:?}");
        assert!(seen.cpu_ns[0][0] < seen.cpu_ns[0][1], "eight times as many take longer: {seen:?}");
    }
}
