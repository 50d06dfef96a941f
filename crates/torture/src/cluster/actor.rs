//! A transaction of a node that writes down what it is shown.

use super::course::{Course, TransactionStart};
use super::set_orders::SetTables;
use super::shape::KEYS_MAX;
use super::things::ThingTables;
use super::{ClusterEvent, ClusterStep};
use crate::history::{History, Key, Span, Version};
use base::{PageId, PartitionId};
use driver::FaultKind;
use engine::organization::direct;
use engine::{Error, Result};
use executor::Executor;
use node::leaf_records::number_of;
use node::page_client::{PageSavepoint, PageTransaction};
use std::cell::RefMut;
use std::ops::Bound;
use std::rc::Rc;
use std::sync::OnceLock;

/// Where the partitions are.
#[derive(Clone, Copy)]
pub(super) struct Tables {
    pub pages: PartitionId,
    pub tree: PartitionId,
    pub log: PartitionId,
    /// Nothing where no records have a type.
    pub things: Option<ThingTables>,
    /// Nothing where there are no sets.
    pub sets: Option<SetTables>,
}

/// A record's key in the tree: with it another one is locked where locks fall to those of records.
pub(super) fn tree_key(number: u64) -> [u8; 8] {
    static KEYS: OnceLock<Vec<[u8; 8]>> = OnceLock::new();
    let key = |number: u64| {
        let is_it = |key: &[u8; 8]| u64::from(number_of(key)) == number / 2;
        (number << 32..).map(u64::to_be_bytes).find(is_it).expect("one of 65,536 is one")
    };
    KEYS.get_or_init(|| (0..KEYS_MAX).map(key).collect())[number as usize]
}

pub(super) fn tree_number(key: &[u8]) -> u64 {
    u64::from_be_bytes(key.try_into().expect("keys have eight bytes")) >> 32
}

/// The version that stands at the beginning of a value.
pub(super) fn version(value: &[u8]) -> Version {
    Version(u64::from_le_bytes(value[..8].try_into().expect("values have eight bytes at least")))
}

pub(super) fn page_key(number: u64) -> Key {
    Key { store: super::shape::PAGES, number }
}

pub(super) fn record_key(number: u64) -> Key {
    Key { store: super::shape::TREE, number }
}

pub(super) fn log_key(version: Version) -> Key {
    Key { store: super::shape::LOG, number: version.0 }
}

/// A transaction under way.
pub(super) struct NodeActor {
    pub executor: Executor,
    pub course: Rc<Course>,
    pub begun: TransactionStart,
    pub tables: Tables,
    pub tx: PageTransaction,
    /// Its number in the history.
    pub number: usize,
    pub has_written: bool,
    /// Each with its place in the history, and whether anything was written before it.
    pub savepoints: Vec<(PageSavepoint, usize, bool)>,
}

impl NodeActor {
    pub(super) fn history(&self) -> RefMut<'_, History> {
        self.course.history.borrow_mut()
    }

    pub(super) fn enter(&self, step: ClusterStep) {
        self.course.enter(self.begun.node, step);
    }

    pub(super) fn note_write(&mut self, version: Version, place: Option<u64>) {
        self.has_written = true;
        self.history().wrote(self.number, version, place);
    }

    /// Where an object is.
    fn place(&self, number: u64) -> (PageId, u16) {
        let on_page = self.course.shape.objects_on_page;
        let place = direct::place(self.tables.pages, number, on_page as u32, 8);
        (place.page, place.offset)
    }

    pub async fn read_page(&mut self, number: u64) -> Result<()> {
        self.enter(ClusterStep::Read);
        let (page, offset) = self.place(number);
        let (found, _) = self.tx.read(page, |bytes| version(&bytes[usize::from(offset)..])).await?;
        self.history().read(self.number, page_key(number), Some(found));
        Ok(())
    }

    pub async fn read_object(&mut self, number: u64) -> Result<()> {
        self.enter(ClusterStep::Read);
        let found = self.tx.read_object(self.tables.pages, number, version).await?;
        self.history().read(self.number, page_key(number), Some(found));
        Ok(())
    }

    pub async fn lock_page(&mut self, number: u64) -> Result<()> {
        self.enter(ClusterStep::Write);
        let (page, _) = self.place(number);
        self.tx.lock(page).await
    }

    pub async fn write_page(&mut self, number: u64) -> Result<()> {
        self.enter(ClusterStep::Write);
        let (page, offset) = self.place(number);
        let version = self.history().new_version(self.number, page_key(number));
        self.tx.write(page, offset, &version.0.to_le_bytes()).await?;
        self.note_write(version, Some(number));
        Ok(())
    }

    pub async fn modify_object(&mut self, number: u64) -> Result<()> {
        self.enter(ClusterStep::Write);
        let new = self.history().new_version(self.number, page_key(number));
        let change = |bytes: &mut [u8]| {
            let found = version(bytes);
            bytes.copy_from_slice(&new.0.to_le_bytes());
            found
        };
        let found = self.tx.modify_object(self.tables.pages, number, change).await?;
        self.history().read(self.number, page_key(number), Some(found));
        self.note_write(new, Some(number));
        Ok(())
    }

    pub async fn get(&mut self, number: u64) -> Result<()> {
        self.enter(ClusterStep::Read);
        let found = self.tx.get(self.tables.tree, &tree_key(number)).await?;
        self.history().read(self.number, record_key(number), found.map(|value| version(&value)));
        Ok(())
    }

    pub async fn put(&mut self, number: u64, length: u64) -> Result<()> {
        self.enter(ClusterStep::Write);
        let version = self.history().new_version(self.number, record_key(number));
        let mut value = version.0.to_le_bytes().to_vec();
        value.resize(8 + length as usize, number as u8);
        self.tx.put(self.tables.tree, &tree_key(number), &value).await?;
        self.note_write(version, Some(number));
        Ok(())
    }

    pub async fn modify(&mut self, number: u64) -> Result<()> {
        self.enter(ClusterStep::Write);
        let new = self.history().new_version(self.number, record_key(number));
        let change = |value: &mut [u8]| {
            let found = version(value);
            value[..8].copy_from_slice(&new.0.to_le_bytes());
            found
        };
        match self.tx.modify(self.tables.tree, &tree_key(number), change).await {
            Ok(found) => {
                self.history().read(self.number, record_key(number), Some(found));
                self.note_write(new, Some(number));
                Ok(())
            }
            Err(Error::NoRecord(_)) => {
                self.history().read(self.number, record_key(number), None);
                Ok(())
            }
            // A long value is replaced whole.
            Err(Error::TooLarge { .. }) => self.put(number, 8).await,
            Err(error) => Err(error),
        }
    }

    /// Gives a record another value of the same length, or inserts one.
    pub async fn change_in_place(&mut self, number: u64, puts: bool) -> Result<()> {
        const LENGTH: u64 = 16;
        if puts {
            return self.put(number, LENGTH).await;
        }
        let is_there = self.tx.get_for_update(self.tables.tree, &tree_key(number)).await?;
        self.history().read(self.number, record_key(number), is_there.as_deref().map(version));
        if is_there.is_some() { self.modify(number).await } else { self.put(number, LENGTH).await }
    }

    pub async fn delete(&mut self, number: u64) -> Result<()> {
        self.enter(ClusterStep::Write);
        let version = self.history().new_version(self.number, record_key(number));
        if self.tx.delete(self.tables.tree, &tree_key(number)).await? {
            self.note_write(version, None);
        } else {
            self.history().read(self.number, record_key(number), None);
        }
        Ok(())
    }

    pub async fn scan(&mut self, span: Span) -> Result<()> {
        self.enter(ClusterStep::Read);
        let mut found = Vec::new();
        let first = tree_key(span.first);
        let look = |key: &[u8], value: &[u8]| {
            let number = tree_number(key);
            let is_inside = number <= span.last;
            if is_inside {
                found.push((record_key(number), version(value)));
            }
            is_inside
        };
        self.tx.scan(self.tables.tree, Bound::Included(&first[..]), look).await?;
        self.history().scanned(self.number, super::shape::TREE, span, found);
        Ok(())
    }

    pub async fn append(&mut self) -> Result<()> {
        self.enter(ClusterStep::Write);
        let version = self.history().new_record(self.number, super::shape::LOG);
        self.tx.append(self.tables.log, &version.0.to_le_bytes()).await?;
        self.note_write(version, Some(version.0));
        Ok(())
    }

    pub async fn scan_appended(&mut self) -> Result<()> {
        self.enter(ClusterStep::Read);
        let mut found = Vec::new();
        let look = |_, record: &[u8]| {
            let version = version(record);
            found.push((log_key(version), version));
            true
        };
        self.tx.scan_appended(self.tables.log, look).await?;
        self.history().scanned(self.number, super::shape::LOG, Span::ALL, found);
        Ok(())
    }

    /// Remembers this moment.
    pub fn set_savepoint(&mut self) {
        let operations = self.history().savepoint(self.number);
        self.savepoints.push((self.tx.savepoint(), operations, self.has_written));
    }

    /// Goes back to a remembered moment, if there is one.
    pub async fn roll_back(&mut self, choice: u64) -> Result<()> {
        if self.savepoints.is_empty() {
            return Ok(());
        }
        let index = (choice % self.savepoints.len() as u64) as usize;
        let (savepoint, operations, has_written) = self.savepoints[index];
        self.tx.rollback_to(savepoint).await?;
        self.has_written = has_written;
        self.history().rolled_back_to(self.number, operations);
        self.savepoints.truncate(index + 1);
        self.course.event(ClusterEvent::WentBack);
        Ok(())
    }

    /// Goes back to the last of them, where an operation began that was not waited for. False if a part of that was made, which only a rollback takes
    /// back.
    pub async fn take_back(&mut self) -> Result<bool> {
        let last = self.savepoints.len().saturating_sub(1) as u64;
        match self.roll_back(last).await {
            Ok(()) => Ok(self.savepoints.pop().is_some()),
            Err(Error::Abandoned) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Rolls back.
    pub fn abort(self) {
        end_unsuccessful(&self.course, self.number, self.tx.is_settled());
    }

    /// Commits, and waits for that no longer than this.
    pub async fn commit(self, patience_ns: Option<u64>) {
        self.enter(ClusterStep::Commit);
        let NodeActor { executor, course, begun, tx, number, has_written, .. } = self;
        course.history.borrow_mut().asks(number);
        course.begin_commit(begun.node);
        let is_settled = tx.is_settled();
        let abort = || end_unsuccessful(&course, number, is_settled);
        let committing = tx.commit();
        let ended = match patience_ns {
            Some(ns) => executor.within(ns, committing).await,
            None => Some(committing.await),
        };
        let history = || course.history.borrow_mut();
        match ended {
            Some(Ok(())) => {
                history().committed(number);
                course.acknowledge(begun, has_written, &executor);
                course.event(if has_written { ClusterEvent::Committed } else { ClusterEvent::CommittedReading });
            }
            Some(Err(Error::Deadlock)) => {
                abort();
                course.event(ClusterEvent::Victim);
            }
            Some(Err(error)) if is_cancelled(&error) => {
                abort();
                course.judge(begun, &error, "commit");
                course.event(ClusterEvent::NotCommitted);
            }
            Some(Err(error)) if !has_written || matches!(error, Error::CommitRefused(_)) => {
                abort();
                course.judge(begun, &error, "commit");
            }
            Some(Err(error)) => {
                course.judge(begun, &error, "commit");
                course.event(ClusterEvent::Unknown);
            }
            None => course.event(ClusterEvent::AbandonedCommit),
        }
    }
}

/// Nothing of a transaction is committed. What it was shown must be explained all the same, if that was known to be committed.
fn end_unsuccessful(course: &Course, number: usize, is_settled: bool) {
    let mut history = course.history.borrow_mut();
    if is_settled { history.aborted(number) } else { history.lost(number) }
}

/// Whether it is certain that nothing was committed.
fn is_cancelled(error: &Error) -> bool {
    matches!(error, Error::Input(fault) if fault.kind == FaultKind::Cancelled)
}
