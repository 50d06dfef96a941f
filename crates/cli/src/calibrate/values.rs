//! What values cost: those that a core's caches hold and those that lie in many pages, copied out and changed in place.

use super::cpu::{EngineRun, configuration, measured};
use crate::Failure;
use base::{PartitionId, Random};
use engine::Transaction;
use entresol::{Opening, PartitionSpec, Store};
use std::path::Path;
use workload::Workload;

/// Reads or changes of values of some length, in so many bytes of them.
#[derive(Clone, Copy, Debug)]
pub struct ValueCalls {
    length: usize,
    bytes: u64,
    change: Change,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    None,
    InPlace,
    Whole,
}

/// Less than any cache that holds values at all, and much more than a core's own.
const NEAR: u64 = 500 << 10;
const FAR: u64 = 64 << 20;

/// Short and long ones, near and far, read and changed.
pub const VALUE_CALLS: [ValueCalls; 6] = [
    ValueCalls { length: 1_000, bytes: NEAR, change: Change::None },
    ValueCalls { length: 1_000, bytes: NEAR, change: Change::InPlace },
    ValueCalls { length: 1_000, bytes: FAR, change: Change::None },
    ValueCalls { length: 1_000, bytes: FAR, change: Change::InPlace },
    ValueCalls { length: 1_000, bytes: FAR, change: Change::Whole },
    ValueCalls { length: 100, bytes: FAR, change: Change::None },
];

impl ValueCalls {
    /// The run's name.
    pub fn name(self) -> String {
        let what = match self.change {
            Change::None => "reads",
            Change::InPlace => "changes",
            Change::Whole => "replacements",
        };
        let place = if self.bytes == FAR { "far" } else { "near" };
        format!("{what} of values of {} B, {place}", self.length)
    }

    fn records(self) -> u64 {
        self.bytes / self.length as u64
    }

    /// Loads such values, if they are not there, and runs. `clients` do so.
    pub fn run(
        self,
        (directory, described): (&Path, Option<&devices::Device>),
        load: (u32, u64),
    ) -> Result<EngineRun, Failure> {
        let store = Opening::new(directory.join("values"), configuration(described, false, 256 << 20)).open()?;
        let partition = self.partition(&store)?;
        store.run(async |database| database.warm(partition, |_| ()).await)?;
        let workload = || Values { calls: self, partition, value: vec![8; self.length] };
        let run = measured(&store, &self.name(), load, async |_| Ok(workload()))?;
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
    value: Vec<u8>,
}

impl Workload for Values {
    type Input = u64;

    fn draw(&self, random: &mut Random) -> u64 {
        random.below(self.calls.records())
    }

    async fn run(&self, tx: &mut Transaction, number: &u64) -> entresol::Result<()> {
        let key = number.to_be_bytes();
        match self.calls.change {
            Change::None => tx.get(self.partition, &key).await.map(drop),
            Change::InPlace => tx.modify(self.partition, &key, |value| value[100] ^= 1).await,
            Change::Whole => tx.put(self.partition, &key, &self.value).await,
        }
    }
}
