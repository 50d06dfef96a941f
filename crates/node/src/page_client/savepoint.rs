//! Savepoints of a node's transaction.
//!
//! What is taken back is bytes: each page that was changed behind a savepoint gets those that it had, and the log records from there on are
//! cut off. The pages are pinned and the transaction's alone, so that waits for nothing, takes back the whole or nothing, restructurings
//! included, and the server never learns of it. Of a page whose locks have fallen to records the bytes of these are given back in the same way.

use super::PageTransaction;
use super::group::RedoCost;
use super::transaction::WorkDone;
use crate::leaf_records;
use crate::message::Transaction;
use base::PageId;
use engine::canary::{self, Canary};
use engine::log::record::{Record, split};
use engine::{Error, Result};
use std::collections::{BTreeMap, BTreeSet};

/// A moment within a transaction of a node to which it can be rolled back: see [`PageTransaction::savepoint`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageSavepoint {
    transaction: Transaction,
    mark: u64,
}

/// What takes a transaction back to each of its savepoints, from the first one on.
#[derive(Default)]
pub(super) struct Savepoints {
    marks: Vec<Mark>,
    next: u64,
}

/// A savepoint, and what was changed between it and the next one.
struct Mark {
    number: u64,
    /// How many bytes the transaction's log records had.
    records: usize,
    /// How many changes of records of sets it had made.
    of_sets: usize,
    before: BTreeMap<PageId, Before>,
}

/// What a page was at a savepoint.
#[derive(Default)]
struct Before {
    /// What it would have taken to redo the changes that it had; nothing if the transaction had not changed it.
    redo: Option<RedoCost>,
    /// All its bytes, while they may change before the next savepoint.
    image: Option<Vec<u8>>,
    /// Parts of it that have become others, in the order in which they did: where they are, and their bytes.
    patches: Vec<(usize, Vec<u8>)>,
}

impl Before {
    /// The page is so now: what differs is enough from now on.
    fn seal(&mut self, now: &[u8]) {
        if let Some(image) = self.image.take() {
            self.patches.extend(differences(&image, now));
        }
    }

    /// Takes `bytes`, which are the page's from `start` on, back.
    fn restore(&self, bytes: &mut [u8], start: usize) {
        for (offset, part) in self.patches.iter().rev() {
            let from = start.max(*offset);
            let to = (start + bytes.len()).min(offset + part.len());
            if from < to {
                bytes[from - start..to - start].copy_from_slice(&part[from - offset..to - offset]);
            }
        }
        if let Some(image) = &self.image {
            bytes.copy_from_slice(&image[start..start + bytes.len()]);
        }
    }
}

impl Before {
    /// Takes the values of records of a leaf back.
    fn restore_picked(&self, bytes: &mut [u8]) {
        let records: Vec<_> = leaf_records::picked(bytes).collect();
        records.into_iter().for_each(|record| self.restore(&mut bytes[record.value], usize::from(record.place)));
    }
}

impl Savepoints {
    /// Whether what a page is, is to be told before it changes.
    fn wants(&self, page: PageId) -> bool {
        self.marks.last().is_some_and(|last| !last.before.contains_key(&page))
    }

    /// A page is about to be changed, which is so now.
    pub fn note(&mut self, page: PageId, redo: Option<RedoCost>, bytes: impl FnOnce() -> Vec<u8>) {
        if self.wants(page)
            && let Some(last) = self.marks.last_mut()
        {
            last.before.insert(page, Before { redo, image: Some(bytes()), patches: Vec::new() });
        }
    }

    /// A part of a page was changed, of which the transaction has no more than records, and was this.
    pub fn note_part(&mut self, page: PageId, offset: usize, old: &[u8]) {
        if let Some(last) = self.marks.last_mut() {
            last.before.entry(page).or_default().patches.push((offset, old.to_vec()));
        }
    }

    /// A page leaves, of which the transaction keeps records.
    pub fn note_fall(&mut self, page: PageId, bytes: &[u8]) {
        if let Some(before) = self.marks.last_mut().and_then(|last| last.before.get_mut(&page)) {
            before.seal(bytes);
        }
    }
}

/// The parts in which two pages differ, as the first one has them: to the byte, for what lies beside them may be others' by the time that they
/// are given back.
fn differences(old: &[u8], new: &[u8]) -> Vec<(usize, Vec<u8>)> {
    let mut parts: Vec<(usize, Vec<u8>)> = Vec::new();
    for (offset, (old, new)) in old.iter().zip(new).enumerate() {
        match parts.last_mut() {
            _ if old == new => {}
            Some((start, part)) if *start + part.len() == offset => part.push(*old),
            _ => parts.push((offset, vec![*old])),
        }
    }
    parts
}

impl WorkDone {
    /// The pages that its log records change.
    fn pages_of_records(&self) -> BTreeSet<PageId> {
        let records = split(&self.records).filter_map(Record::decode);
        records.flat_map(|record| record.edits().map(|(_, edit)| edit.page).collect::<Vec<_>>()).collect()
    }
}

impl PageTransaction {
    /// Marks this moment. It costs memory for what is changed behind it, until the transaction ends or goes back to an earlier one.
    pub fn savepoint(&self) -> PageSavepoint {
        let mut work = self.work.borrow_mut();
        let work = &mut *work;
        let (points, records, of_sets) = (&mut work.savepoints, work.records.len(), work.sets.changes());
        if points.marks.last().is_none_or(|last| (last.records, last.of_sets) != (records, of_sets)) {
            let pool = self.client.buffer.pool().borrow();
            for (page, before) in points.marks.last_mut().into_iter().flat_map(|last| &mut last.before) {
                if let Some(frame) = work.pinned.get(page) {
                    before.seal(pool.bytes(*frame));
                }
            }
            points.next += 1;
            points.marks.push(Mark { number: points.next, records, of_sets, before: BTreeMap::new() });
        }
        let mark = points.marks.last().expect("there is one now").number;
        PageSavepoint { transaction: self.transaction, mark }
    }

    /// Takes back what was done since `savepoint`: records, objects, long values and entries in indexes are as they were then. Locks are kept,
    /// so that what a range has shown stays as it was shown. It does not help a transaction that has to be rolled back as a whole.
    ///
    /// # Errors
    /// [`Error::Argument`] for a savepoint of another transaction, or one behind another that the transaction has gone back to; as
    /// [`PageTransaction::read`]; [`Error::Abandoned`] if a change was made in part.
    pub async fn rollback_to(&mut self, savepoint: PageSavepoint) -> Result<()> {
        self.check().await?;
        let position = {
            let work = self.work.borrow();
            let mut numbers = work.savepoints.marks.iter().map(|mark| mark.number);
            numbers.position(|number| (self.transaction, number) == (savepoint.transaction, savepoint.mark))
        };
        let unknown = || Error::Argument("the transaction has no such savepoint, or has taken it back".to_owned());
        let position = position.ok_or_else(unknown)?;
        if !canary::is_planted(Canary::IgnoredSavepoint) {
            self.take_back(position);
        }
        Ok(())
    }

    /// Takes back all behind the savepoint at this position.
    fn take_back(&mut self, position: usize) {
        let mut work = self.work.borrow_mut();
        let work = &mut *work;
        let mut marks = work.savepoints.marks.split_off(position);
        let mut touched = BTreeSet::new();
        for mark in marks.iter_mut().rev() {
            for (page, before) in std::mem::take(&mut mark.before) {
                self.restore_page(work, page, &before);
                touched.insert(page);
            }
        }
        let mark = marks.swap_remove(0);
        work.records.truncate(mark.records);
        work.sets.take_back(mark.of_sets);
        work.savepoints.marks.push(mark);
        let left = work.pages_of_records();
        work.updated.retain(|page| left.contains(page));
        self.client.forget_begun(|page| touched.contains(&page) && !work.changed.contains_key(&page));
        touched.retain(|page| work.pinned.contains_key(page) && !work.changed.contains_key(page));
        for page in touched {
            self.client.note_unchanged(page, work.pinned[&page]);
        }
    }

    fn restore_page(&self, work: &mut WorkDone, page: PageId, before: &Before) {
        let Some(frame) = work.pinned.get(&page) else {
            // It has fallen, and what is left of it here are records.
            let has_leaves = self.client.has_leaves(page.partition);
            let length = self.client.object_length(page.partition);
            for ((_, slot), bytes) in work.objects.range_mut((page, 0)..=(page, u16::MAX)) {
                if has_leaves {
                    before.restore_picked(bytes);
                } else {
                    before.restore(bytes, engine::page::HEADER_SIZE + usize::from(*slot) * length);
                }
            }
            return;
        };
        let mut pool = self.client.buffer.pool().borrow_mut();
        let mut bytes = pool.bytes(*frame).to_vec();
        before.restore(&mut bytes, 0);
        pool.overwrite(*frame, &bytes);
        match before.redo {
            Some(redo) => drop(work.changed.insert(page, redo)),
            None => drop(work.changed.remove(&page)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Random;

    /// A page is changed, and marked now and then; each mark leads back to what it was, of the whole and of any part of it.
    #[test]
    fn what_differs_leads_back_to_each_moment() {
        for seed in 0..200 {
            let mut random = Random::stream(seed, "savepoints");
            let length = random.between(40, 100) as usize;
            let mut page: Vec<u8> = (0..length).map(|_| random.below(3) as u8).collect();
            let (mut former, mut befores) = (Vec::new(), Vec::new());
            for _ in 0..random.between(1, 6) {
                former.push(page.clone());
                let mut before = Before { image: Some(page.clone()), ..Before::default() };
                let falls = random.chance(0.3);
                if falls {
                    before.seal(&page);
                }
                for _ in 0..random.below(4) {
                    let at = random.below(length as u64 - 8) as usize;
                    if falls {
                        before.patches.push((at, page[at..at + 8].to_vec()));
                    }
                    page[at..at + 8].fill(random.below(3) as u8);
                }
                if random.chance(0.8) {
                    before.seal(&page);
                }
                befores.push(before);
            }
            let from = random.below(length as u64) as usize;
            let to = random.between(from as u64, length as u64) as usize;
            for (before, former) in befores.iter().zip(&former).rev() {
                let mut part = page[from..to].to_vec();
                before.restore(&mut part, from);
                before.restore(&mut page, 0);
                assert_eq!((&page, &part[..]), (former, &former[from..to]), "seed {seed}");
            }
        }
    }
}
