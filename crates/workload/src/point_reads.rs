//! Reads of single records, each of all equally often: what a buffer smaller than the data makes of a device.

use crate::run::Workload;
use base::{PartitionId, Random};
use engine::{Error, Result, Transaction};

/// Point reads in a b-tree whose keys are the numbers from zero on, eight bytes with the greatest first.
#[derive(Clone, Debug)]
pub struct PointReads {
    /// The b-tree.
    pub partition: PartitionId,
    /// How many records it has.
    pub records: u64,
}

impl Workload for PointReads {
    type Input = u64;

    fn draw(&self, random: &mut Random) -> u64 {
        random.below(self.records)
    }

    /// Reads one record.
    ///
    /// # Errors
    /// [`Error::Unsuitable`] if there is no such record: the b-tree holds fewer than stated; else the engine's.
    async fn run(&self, tx: &mut Transaction, number: &u64) -> Result<()> {
        let found = tx.get_with(self.partition, &number.to_be_bytes(), |record| record.is_some()).await?;
        let missing = || Error::Unsuitable(format!("record {number} of {} is missing", self.records));
        found.then_some(()).ok_or_else(missing)
    }
}
