//! Temporary space on an ideal machine, and rows of any shape.

use crate::temp::{FILE, Space, TempSettings};
use base::Random;
use executor::{Executor, Order};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll};
use virtual_driver::{FaultPlan, Hardware, Media, Options, VirtualDriver};

/// Rows in memory.
pub type List = Vec<(Vec<u8>, Vec<u8>)>;

pub fn settings(cluster_size: usize) -> TempSettings {
    TempSettings { cluster_size, size: 1 << 30, ..TempSettings::default() }
}

/// A machine on which these faults happen, in a seeded order of tasks.
pub fn machine(faults: Option<FaultPlan>, seed: u64) -> Executor {
    let options = Options { faults, seed, jitter: true, ..Options::default() };
    let driver = VirtualDriver::new(Hardware::ideal(), options, Media::new());
    Executor::new(Box::new(driver), Order::Seeded(seed))
}

/// Runs `work` on a machine with temporary space; afterwards nothing of it may be in use.
pub fn with_space<T>(executor: &Executor, settings: &TempSettings, work: impl AsyncFnOnce(&Space) -> T) -> T {
    let space = Space::new(executor, FILE, ("disk", settings));
    let result = executor.run(async {
        let result = work(&space).await;
        // What was given up is still under way for a moment.
        executor.sleep_ns(base::time::SECOND_NS).await;
        result
    });
    assert_eq!(space.statistics().bytes_in_use, 0, "everything was given back");
    executor.stop();
    result.expect("the machine goes on")
}

/// Rows with `keys` different keys; lengths vary up to `longest`.
pub fn rows(random: &mut Random, count: u64, keys: u64, longest: u64) -> List {
    let salt = random.word();
    (0..count)
        .map(|_| {
            // A key is always drawn alike: its length follows from its number.
            let mut of_key = Random::stream(salt ^ random.below(keys), "key");
            let mut key = vec![0; of_key.below(12.min(longest)) as usize];
            key.iter_mut().for_each(|byte| *byte = of_key.below(3) as u8);
            let long = random.chance(0.05);
            let mut value = vec![0; random.below(if long { longest } else { longest.min(40) } + 1) as usize];
            random.fill(&mut value);
            (key, value)
        })
        .collect()
}

/// Polls a future `polls` times and drops it.
pub async fn give_up<T>(work: impl Future<Output = T>, polls: u64) -> Option<T> {
    let mut work = pin!(work);
    let mut left = polls;
    std::future::poll_fn(|context: &mut Context<'_>| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        work.as_mut().poll(context).map(Some)
    })
    .await
}
