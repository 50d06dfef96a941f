//! The records that scripts refer to, in each organization that has an order to scan.

use base::PartitionId;
use entresol_engine::set::{FieldType, FieldValue, RecordType};
use entresol_engine::{Database, Direction, PartitionSpec, Result, Transaction};
use std::ops::Bound;

/// How the records are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// In a b-tree, of which a query by value reads everything.
    Tree,
    /// In a set with an index by value.
    Set,
}

impl Kept {
    pub const ALL: [Kept; 2] = [Kept::Tree, Kept::Set];

    pub fn spec(self) -> PartitionSpec {
        let record = RecordType::new([("value", FieldType::I64)]).expect("sound");
        match self {
            Kept::Tree => PartitionSpec::b_tree("test"),
            Kept::Set => PartitionSpec::set("test").record(record).secondary("by_value", &["value"]),
        }
    }
}

/// Records that no script sees. In an index by value, two neighbours share the gap between them; these lie between the others
/// and above them, so that changes of two different records do not wait for each other.
pub const BYSTANDERS: [(u64, i64); 2] = [(101, 15), (102, 1_000)];

/// Records by key, with their values.
pub type Rows = Vec<(u64, i64)>;

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// The one field of a record is stored as such.
fn value(stored: &[u8]) -> i64 {
    i64::from_le_bytes(*stored.last_chunk().expect("a value has eight bytes"))
}

fn row((key, stored): (&[u8], &[u8])) -> (u64, i64) {
    (u64::from_be_bytes(key.try_into().expect("a key has eight bytes")), value(stored))
}

/// The table as transactions see it.
#[derive(Clone, Copy)]
pub struct Table {
    pub kept: Kept,
    pub partition: PartitionId,
}

impl Table {
    pub fn of(database: &Database, kept: Kept) -> Table {
        Table { kept, partition: database.partition("test").expect("it was created") }
    }

    pub async fn get(self, tx: &mut Transaction, number: u64) -> Result<Option<i64>> {
        Ok(tx.get(self.partition, &key(number)).await?.as_deref().map(value))
    }

    pub async fn insert(self, tx: &mut Transaction, number: u64, value: i64) -> Result<()> {
        tx.insert(self.partition, &key(number), &value.to_le_bytes()).await
    }

    /// `update test set value = value where id = number`.
    pub async fn set(self, tx: &mut Transaction, number: u64, value: i64) -> Result<()> {
        tx.put(self.partition, &key(number), &value.to_le_bytes()).await
    }

    /// `update test set value = value + amount where id = number`.
    pub async fn add(self, tx: &mut Transaction, number: u64, amount: i64) -> Result<()> {
        let change = |stored: &mut [u8]| {
            let sum = value(stored) + amount;
            stored.copy_from_slice(&sum.to_le_bytes());
        };
        tx.modify(self.partition, &key(number), change).await
    }

    /// The records whose values lie between bounds, both included, in the order of their keys.
    pub async fn between(self, tx: &mut Transaction, least: i64, most: i64) -> Result<Rows> {
        let mut rows = Rows::new();
        match self.kept {
            Kept::Tree => {
                let mut cursor = tx.cursor(self.partition, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
                while let Some((key, stored)) = tx.next(&mut cursor).await? {
                    rows.push(row((&key, &stored)));
                }
                rows.retain(|(_, value)| (least..=most).contains(value));
            }
            Kept::Set => {
                let (least, most) = ([FieldValue::I64(least)], [FieldValue::I64(most)]);
                let bounds = (Bound::Included(&least[..]), Bound::Included(&most[..]));
                let keep = |key: &[u8], stored: &[u8]| {
                    rows.push(row((key, stored)));
                    true
                };
                tx.range(self.partition, 0, bounds, Direction::Forward, keep).await?;
                rows.sort_unstable();
            }
        }
        rows.retain(|(key, _)| BYSTANDERS.iter().all(|(bystander, _)| key != bystander));
        Ok(rows)
    }

    pub async fn all(self, tx: &mut Transaction) -> Result<Rows> {
        self.between(tx, i64::MIN, i64::MAX).await
    }

    /// `delete from test where value = value`: looks for records, and at each again once it is locked.
    pub async fn delete_where(self, tx: &mut Transaction, found: i64) -> Result<()> {
        for (number, _) in self.between(tx, found, found).await? {
            let locked = tx.get_for_update(self.partition, &key(number)).await?;
            if locked.is_some_and(|stored| value(&stored) == found) {
                tx.delete(self.partition, &key(number)).await?;
            }
        }
        Ok(())
    }

    /// `update test set value = value + amount`.
    pub async fn add_to_all(self, tx: &mut Transaction, amount: i64) -> Result<()> {
        for (number, _) in self.all(tx).await? {
            self.add(tx, number, amount).await?;
        }
        Ok(())
    }
}
