//! Records of a memory-resident set, which nodes read and change by their keys.

use super::ClusterStep;
use super::actor::{NodeActor, version};
use super::set_orders::OrderOperation;
use super::shape::STOCK;
use crate::history::{Key, Version};
use base::{PartitionId, Random};
use engine::{Database, Error, PartitionSpec, Result, Snapshot, Transaction};

/// What is done with a record of the set.
#[derive(Clone, Copy)]
pub(super) enum SetOperation {
    Get { number: u64 },
    GetForUpdate { number: u64 },
    Put { number: u64, length: u64 },
    Insert { number: u64 },
    Modify { number: u64 },
    Delete { number: u64 },
    Ordered(OrderOperation),
}

impl SetOperation {
    pub fn draw(random: &mut Random, records: u64, writes: bool) -> SetOperation {
        let number = random.below(records);
        if random.chance(0.5) {
            return SetOperation::Ordered(OrderOperation::draw(random, records, writes));
        }
        match (writes, random.below(10)) {
            (false, _) => SetOperation::Get { number },
            (true, 0) => SetOperation::GetForUpdate { number },
            (true, 1..5) => SetOperation::Put { number, length: random.below(200) },
            (true, 5) => SetOperation::Insert { number },
            (true, 6..9) => SetOperation::Modify { number },
            (true, _) => SetOperation::Delete { number },
        }
    }
}

pub(super) fn spec() -> PartitionSpec {
    PartitionSpec::set(STOCK)
}

fn set_key(number: u64) -> Key {
    Key { store: STOCK, number }
}

impl NodeActor {
    pub async fn use_set(&mut self, operation: SetOperation) -> Result<()> {
        let Some(tables) = self.tables.sets else { return Ok(()) };
        let stock = tables.stock;
        match operation {
            SetOperation::Ordered(operation) => self.use_orders(tables, operation).await,
            SetOperation::Get { number } => {
                self.enter(ClusterStep::Read);
                let found = self.tx.get(stock, &number.to_be_bytes()).await?;
                self.note_read(number, found);
                Ok(())
            }
            SetOperation::GetForUpdate { number } => {
                self.enter(ClusterStep::Write);
                let found = self.tx.get_for_update(stock, &number.to_be_bytes()).await?;
                self.note_read(number, found);
                Ok(())
            }
            SetOperation::Put { number, length } => self.put_in_set((stock, number), length as usize, true).await,
            SetOperation::Insert { number } => self.put_in_set((stock, number), 8, false).await,
            SetOperation::Modify { number } => self.modify_in_set(stock, number).await,
            SetOperation::Delete { number } => {
                self.enter(ClusterStep::Write);
                let version = self.history().new_version(self.number, set_key(number));
                if self.tx.delete(stock, &number.to_be_bytes()).await? {
                    self.note_write(version, None);
                } else {
                    self.note_read(number, None);
                }
                Ok(())
            }
        }
    }

    fn note_read(&mut self, number: u64, found: Option<Vec<u8>>) {
        self.history().read(self.number, set_key(number), found.map(|value| version(&value)));
    }

    async fn put_in_set(&mut self, (stock, number): (PartitionId, u64), length: usize, replaces: bool) -> Result<()> {
        self.enter(ClusterStep::Write);
        let version = self.history().new_version(self.number, set_key(number));
        let (key, mut value) = (number.to_be_bytes(), version.0.to_le_bytes().to_vec());
        value.resize(8 + length, number as u8);
        if replaces {
            self.tx.put(stock, &key, &value).await?;
        } else {
            match self.tx.insert(stock, &key, &value).await {
                // Which one is there it is not told.
                Err(Error::Duplicate(_)) => return Ok(()),
                inserted => inserted?,
            }
        }
        self.note_write(version, Some(number));
        Ok(())
    }

    async fn modify_in_set(&mut self, stock: PartitionId, number: u64) -> Result<()> {
        self.enter(ClusterStep::Write);
        let new = self.history().new_version(self.number, set_key(number));
        let change = |value: &mut [u8]| {
            let found = version(value);
            value[..8].copy_from_slice(&new.0.to_le_bytes());
            found
        };
        match self.tx.modify(stock, &number.to_be_bytes(), change).await {
            Ok(found) => {
                self.history().read(self.number, set_key(number), Some(found));
                self.note_write(new, Some(number));
                Ok(())
            }
            Err(Error::NoRecord(_)) => {
                self.note_read(number, None);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

/// All records of the set as they were at the moment of a snapshot.
pub(super) async fn at_moment(snapshot: &mut Snapshot, stock: PartitionId) -> Result<Vec<(Key, Version)>> {
    let mut found = Vec::new();
    let look = |key: &[u8], value: &[u8]| {
        found.push(shown(key, value));
        true
    };
    snapshot.scan_set(stock, look).await?;
    Ok(found)
}

fn shown(key: &[u8], value: &[u8]) -> (Key, Version) {
    (set_key(u64::from_be_bytes(key.try_into().expect("keys have eight bytes"))), version(value))
}

/// All records of the set.
pub(super) async fn read_last(database: &Database, tx: &mut Transaction) -> Result<Vec<(Key, Version)>> {
    let mut found = Vec::new();
    let look = |key: &[u8], value: &[u8]| {
        found.push(shown(key, value));
        true
    };
    tx.scan_set(database.partition(STOCK)?, look).await?;
    Ok(found)
}
