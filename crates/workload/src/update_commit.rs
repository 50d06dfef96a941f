//! One record updated, then a commit: what a transaction costs where nothing but the log matters (Lee et al. 2008, table 2).

use crate::run::Workload;
use base::{PartitionId, Random};
use engine::catalog::Organization;
use engine::{Database, Direction, PartitionSpec, Result, Transaction};
use std::ops::Bound;

/// The name of the partition.
pub const RECORD: &str = "record";

/// Updates of single records, each of all equally often. Keys are the numbers from zero on, eight bytes with the greatest first;
/// a record begins with a count of its updates, eight bytes with the smallest first.
#[derive(Clone, Copy, Debug)]
pub struct UpdateCommit {
    /// The partition, whose records are found by key.
    pub partition: PartitionId,
    /// How many records it has.
    pub records: u64,
}

impl Workload for UpdateCommit {
    type Input = u64;

    fn draw(&self, random: &mut Random) -> u64 {
        random.below(self.records)
    }

    /// Counts one update in the record.
    ///
    /// # Errors
    /// The engine's.
    async fn run(&self, tx: &mut Transaction, number: &u64) -> Result<()> {
        tx.modify(self.partition, &number.to_be_bytes(), |record| {
            let (count, _) = record.split_first_chunk_mut().expect("a record begins with its count");
            *count = (u64::from_le_bytes(*count) + 1).to_le_bytes();
        })
        .await
    }
}

/// Creates the partition as `spec` says, a b-tree or a set, and fills it with `count` records of this size, at least eight
/// bytes. `progress` is called with the number of records loaded.
///
/// # Errors
/// The engine's.
///
/// # Panics
/// If records are smaller than eight bytes.
pub async fn load(
    database: &Database,
    (spec, records, record_size): (PartitionSpec, u64, usize),
    progress: impl FnMut(u64),
) -> Result<UpdateCommit> {
    assert!(record_size >= 8, "a record begins with its count");
    let is_set = matches!(spec.organization, Organization::Set { .. });
    let partition = database.create_partition(spec).await?;
    let record = vec![0_u8; record_size];
    let rows = (0..records).map(|number| (number.to_be_bytes(), &record[..]));
    if is_set {
        database.load_set(partition, rows, progress).await?;
    } else {
        database.load_b_tree(partition, rows, progress).await?;
    }
    database.checkpoint().await?;
    Ok(UpdateCommit { partition, records })
}

/// The partition as it was loaded into this database; `None` if it was not.
///
/// # Errors
/// The engine's.
pub async fn find(database: &Database) -> Result<Option<UpdateCommit>> {
    let Ok(partition) = database.partition(RECORD) else { return Ok(None) };
    if let Some(records) = database.set_records(partition) {
        return Ok(Some(UpdateCommit { partition, records }));
    }
    let mut tx = database.begin().await?;
    let mut cursor = tx.cursor(partition, Bound::Unbounded, Bound::Unbounded, Direction::Backward);
    let last = tx.next(&mut cursor).await?;
    tx.rollback().await?;
    let number = |key: Vec<u8>| key.first_chunk().map_or(0, |key| u64::from_be_bytes(*key) + 1);
    Ok(Some(UpdateCommit { partition, records: last.map_or(0, |(key, _)| number(key)) }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Length, Load, Plan, Unwatched, ground, run};
    use devices::Hardware;

    #[test]
    fn every_commit_is_counted_in_one_record() {
        for spec in [PartitionSpec::b_tree(RECORD), PartitionSpec::set(RECORD)] {
            let (updates, transactions) = ground::on(Hardware::ideal(), 300, async |database| {
                let workload = load(&database, (spec, 500, 100), |_| ()).await?;
                let found = find(&database).await?.expect("it was just loaded");
                assert_eq!((found.partition, found.records), (workload.partition, 500));
                let load = Load::Closed { clients: 8 };
                let plan = Plan { load, warm_up: Length::Transactions(0), measure: Length::Transactions(900), seed: 1 };
                run::run(&database, workload, &plan, &mut Unwatched, |_| ()).await?;
                let commits = database.statistics().commits.get();
                let mut updates = 0;
                let mut tx = database.begin().await?;
                for number in 0..500_u64 {
                    let record = tx.get(workload.partition, &number.to_be_bytes()).await?.expect("loaded");
                    updates += u64::from_le_bytes(record[..8].try_into().expect("eight bytes"));
                }
                tx.rollback().await?;
                Ok((updates, commits))
            });
            assert_eq!(transactions, 900);
            assert_eq!(updates, transactions);
        }
    }
}
