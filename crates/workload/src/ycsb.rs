//! YCSB's core workloads A to F (Cooper et al., SoCC 2010), with the proportions, keys and distributions of the original's
//! `CoreWorkload`.

mod keys;
mod load;
mod popularity;
#[cfg(test)]
mod tests;

pub use load::{load, records, records_at_node};

use crate::run::Workload;
use crate::{AtNode, RecordTransaction};
use base::{PartitionId, Random};
use engine::{Direction, Error, Result, Transaction};
use keys::Key;
use node::page_client::PageTransaction;
use popularity::{Latest, Scrambled};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

/// The name of the only partition, a b-tree.
pub const USERTABLE: &str = "usertable";

/// Fields of a record.
pub const FIELDS: usize = 10;
/// The length of a field in bytes.
pub const FIELD_LENGTH: usize = 100;
/// The length of a record in bytes, its key excepted.
pub const RECORD_LENGTH: usize = FIELDS * FIELD_LENGTH;
/// The longest scan, in records; lengths are drawn uniformly from 1 on.
pub const SCAN_LENGTH_MAX: u64 = 100;

/// The workloads by their letters.
///
/// ```
/// use entresol_workload::ycsb::Mix;
///
/// assert_eq!(Mix::named("b"), Some(Mix::B));
/// assert_eq!(Mix::named("g"), None);
/// assert!(Mix::B.operations().iter().map(|(_, share)| share).sum::<f64>() == 1.0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// Update heavy: half reads, half updates.
    A,
    /// Read mostly: 5 % updates.
    B,
    /// Read only.
    C,
    /// Read latest: 5 % insertions, and what was inserted last is read most.
    D,
    /// Short ranges: scans and 5 % insertions.
    E,
    /// Half reads, half reads that change what they have read.
    F,
}

/// What an operation does with the record or records that it refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reads all fields.
    Read,
    /// Overwrites one field.
    Update,
    /// Adds a record.
    Insert,
    /// Reads records in the order of their keys.
    Scan,
    /// Reads all fields, then overwrites one.
    ReadModifyWrite,
}

impl Kind {
    /// What the original calls it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Read => "read",
            Kind::Update => "update",
            Kind::Insert => "insert",
            Kind::Scan => "scan",
            Kind::ReadModifyWrite => "read-modify-write",
        }
    }
}

impl Mix {
    /// All of them.
    pub const ALL: [Mix; 6] = [Mix::A, Mix::B, Mix::C, Mix::D, Mix::E, Mix::F];

    /// The workload of this letter.
    pub fn named(letter: &str) -> Option<Mix> {
        Mix::ALL.into_iter().find(|mix| mix.letter().eq_ignore_ascii_case(letter))
    }

    /// Its letter.
    pub fn letter(self) -> &'static str {
        match self {
            Mix::A => "a",
            Mix::B => "b",
            Mix::C => "c",
            Mix::D => "d",
            Mix::E => "e",
            Mix::F => "f",
        }
    }

    /// The operations and their shares.
    pub fn operations(self) -> &'static [(Kind, f64)] {
        match self {
            Mix::A => &[(Kind::Read, 0.5), (Kind::Update, 0.5)],
            Mix::B => &[(Kind::Read, 0.95), (Kind::Update, 0.05)],
            Mix::C => &[(Kind::Read, 1.0)],
            Mix::D => &[(Kind::Read, 0.95), (Kind::Insert, 0.05)],
            Mix::E => &[(Kind::Scan, 0.95), (Kind::Insert, 0.05)],
            Mix::F => &[(Kind::Read, 0.5), (Kind::ReadModifyWrite, 0.5)],
        }
    }
}

/// One operation, which is a transaction of its own.
#[derive(Clone, Debug)]
pub struct Operation {
    /// Its place in [`Mix::operations`].
    type_number: usize,
    kind: Kind,
    /// The record's number, in the order of insertion.
    number: u64,
    /// How many records a scan reads.
    length: u64,
    /// The field that is overwritten, and by what.
    field: usize,
    contents: [u8; FIELD_LENGTH],
}

/// How the next record to read is chosen.
enum RecordChoice {
    Scrambled(Scrambled),
    Latest(RefCell<Latest>),
}

/// A core workload as one that [`crate::run::run`] runs.
pub struct Ycsb {
    partition: PartitionId,
    mix: Mix,
    choice: RecordChoice,
    inserted: Inserted,
}

impl Ycsb {
    /// The workload on a table that has this many records; it counts what it inserts itself.
    pub fn new(partition: PartitionId, mix: Mix, records: u64) -> Ycsb {
        let choice = match mix {
            Mix::D => RecordChoice::Latest(RefCell::new(Latest::new(records))),
            // Numbers beyond the table's end are drawn again, so that insertions do not change which records are popular.
            Mix::E => RecordChoice::Scrambled(Scrambled::new(2 * records)),
            _ => RecordChoice::Scrambled(Scrambled::new(records)),
        };
        Ycsb { partition, mix, choice, inserted: Inserted::new(records) }
    }

    fn choose(&self, random: &mut Random) -> u64 {
        let present = self.inserted.visible.get();
        match &self.choice {
            RecordChoice::Latest(latest) => latest.borrow_mut().draw(present, random),
            RecordChoice::Scrambled(scrambled) => loop {
                let number = scrambled.draw(random);
                if number < present {
                    return number;
                }
            },
        }
    }

    fn missing(&self, number: u64) -> Error {
        Error::Unsuitable(format!("record {number} of the table '{USERTABLE}' is missing: it holds fewer than stated"))
    }

    async fn scan(&self, tx: &mut impl RecordTransaction, first: &Key, length: u64) -> Result<()> {
        let mut left = length;
        let count = |_: &[u8], _: &[u8]| {
            left -= 1;
            left > 0
        };
        tx.look_at_range(self.partition, first.as_bytes().to_vec().., Direction::Forward, count).await
    }

    /// Runs an operation.
    async fn operate(&self, tx: &mut impl RecordTransaction, operation: &Operation) -> Result<()> {
        let Operation { kind, number, length, field, contents, .. } = operation;
        let key = Key::of(*number);
        let overwrite =
            |record: &mut [u8]| record[field * FIELD_LENGTH..(field + 1) * FIELD_LENGTH].copy_from_slice(contents);
        match kind {
            Kind::Read => {
                let is_there = tx.get_with(self.partition, key.as_bytes(), |found| found.map(<[u8]>::to_vec)).await?;
                is_there.map(drop).ok_or_else(|| self.missing(*number))
            }
            Kind::Update => tx.modify(self.partition, key.as_bytes(), overwrite).await,
            Kind::Insert => tx.put(self.partition, key.as_bytes(), &load::record(*number)).await,
            Kind::Scan => self.scan(tx, &key, *length).await,
            Kind::ReadModifyWrite => {
                let found = tx.get_for_update(self.partition, key.as_bytes()).await?;
                let mut record = found.ok_or_else(|| self.missing(*number))?;
                overwrite(&mut record);
                tx.put(self.partition, key.as_bytes(), &record).await
            }
        }
    }
}

impl AtNode for Ycsb {
    async fn run_at_node(&self, tx: &mut PageTransaction, operation: &Operation) -> Result<()> {
        self.operate(tx, operation).await
    }

    fn committed(&self, operation: &Operation) {
        if operation.kind == Kind::Insert {
            self.inserted.acknowledge(operation.number);
        }
    }
}

impl Workload for Ycsb {
    type Input = Operation;

    fn draw(&self, random: &mut Random) -> Operation {
        let (operations, mut left) = (self.mix.operations(), random.unit());
        let below = |(_, share): &(Kind, f64)| {
            left -= share;
            left < 0.0
        };
        let type_number = operations.iter().position(below).unwrap_or(operations.len() - 1);
        let kind = operations[type_number].0;
        let number = if kind == Kind::Insert { self.inserted.next() } else { self.choose(random) };
        let length = if kind == Kind::Scan { random.between(1, SCAN_LENGTH_MAX) } else { 0 };
        let (mut field, mut contents) = (0, [0; FIELD_LENGTH]);
        if let Kind::Update | Kind::ReadModifyWrite = kind {
            field = random.below(FIELDS as u64) as usize;
            random.fill(&mut contents);
        }
        Operation { type_number, kind, number, length, field, contents }
    }

    async fn run(&self, tx: &mut Transaction, operation: &Operation) -> Result<()> {
        self.operate(tx, operation).await?;
        // A reader waits for the lock until an insertion is committed.
        self.committed(operation);
        Ok(())
    }

    fn types(&self) -> Vec<String> {
        self.mix.operations().iter().map(|(kind, _)| kind.name().to_owned()).collect()
    }

    fn type_of(&self, operation: &Operation) -> usize {
        operation.type_number
    }
}

/// Counts records: those up to the first whose insertion has not ended may be read (the original's acknowledged counter).
struct Inserted {
    next: Cell<u64>,
    visible: Cell<u64>,
    /// Numbers from `visible` on whose insertion has ended.
    ahead: RefCell<BTreeSet<u64>>,
}

impl Inserted {
    fn new(records: u64) -> Inserted {
        Inserted { next: Cell::new(records), visible: Cell::new(records), ahead: RefCell::default() }
    }

    /// The number of the next record.
    fn next(&self) -> u64 {
        self.next.replace(self.next.get() + 1)
    }

    fn acknowledge(&self, number: u64) {
        let (mut ahead, mut visible) = (self.ahead.borrow_mut(), self.visible.get());
        // A deadlock's victim runs again.
        if number >= visible {
            ahead.insert(number);
        }
        while ahead.remove(&visible) {
            visible += 1;
        }
        self.visible.set(visible);
    }
}
