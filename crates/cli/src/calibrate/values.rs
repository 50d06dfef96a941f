//! What values cost: those that a core's caches hold and those that lie in many pages, copied out and changed in place.

use super::cpu::{EngineRun, configuration, measured};
use crate::Failure;
use base::{PartitionId, Random};
use engine::Transaction;
use entresol::{Opening, PartitionSpec, Store};
use std::path::Path;
use workload::Workload;

/// Reads or changes of values of one length, in a table of some size.
#[derive(Clone, Copy, Debug)]
pub struct ValueCalls {
    length: usize,
    bytes: u64,
    changes: bool,
}

/// Less than any cache that holds values at all, and much more than a core's own.
const NEAR: u64 = 500 << 10;
const FAR: u64 = 64 << 20;

/// Short and long ones, near and far, read and changed.
pub const VALUE_CALLS: [ValueCalls; 5] = [
    ValueCalls { length: 1_000, bytes: NEAR, changes: false },
    ValueCalls { length: 1_000, bytes: NEAR, changes: true },
    ValueCalls { length: 1_000, bytes: FAR, changes: false },
    ValueCalls { length: 1_000, bytes: FAR, changes: true },
    ValueCalls { length: 100, bytes: FAR, changes: false },
];

impl ValueCalls {
    /// The run's name.
    pub fn name(self) -> String {
        let what = if self.changes { "changes" } else { "reads" };
        let place = if self.bytes == FAR { "far" } else { "near" };
        format!("{what} of values of {} B, {place}", self.length)
    }

    fn records(self) -> u64 {
        self.bytes / self.length as u64
    }

    /// Loads such values, if they are not there, and runs `load`: how many clients, and for how long.
    pub fn run(
        self,
        (directory, described): (&Path, Option<&devices::Device>),
        load: (u32, u64),
    ) -> Result<EngineRun, Failure> {
        let store = Opening::new(directory.join("values"), configuration(described, false, 256 << 20)).open()?;
        let partition = self.partition(&store)?;
        store.run(async |database| database.warm(partition, |_| ()).await)?;
        let run = measured(&store, &self.name(), load, async |_| Ok(Values { calls: self, partition }))?;
        store.close()?;
        Ok(run)
    }

    fn partition(self, store: &Store) -> Result<PartitionId, Failure> {
        let name = format!("values-{}-{}", self.length, self.bytes >> 10);
        if let Ok(partition) = store.database().partition(&name) {
            return Ok(partition);
        }
        Ok(store.run(async |database| {
            let partition = database.create_partition(PartitionSpec::b_tree(&name)).await?;
            let value = vec![7; self.length];
            let records = (0..self.records()).map(|number| (number.to_be_bytes(), &value));
            database.load_b_tree(partition, records, |_| ()).await?;
            Ok(partition)
        })?)
    }
}

struct Values {
    calls: ValueCalls,
    partition: PartitionId,
}

impl Workload for Values {
    type Input = u64;

    /// All are as popular, so that it is known how many of those that are far no cache holds.
    fn draw(&self, random: &mut Random) -> u64 {
        random.below(self.calls.records())
    }

    async fn run(&self, tx: &mut Transaction, number: &u64) -> entresol::Result<()> {
        let key = number.to_be_bytes();
        match self.calls.changes {
            true => tx.modify(self.partition, &key, |value| value[0] ^= 1).await,
            false => tx.get(self.partition, &key).await.map(drop),
        }
    }
}
