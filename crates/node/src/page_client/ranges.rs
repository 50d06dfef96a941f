//! Ranges of keys of a b-tree, in both directions. All that was seen stays locked to the transaction's end, so there are no phantoms.
//!
//! From the second leaf on that is not here, those behind it are asked for ahead, as the engine's scans have theirs read: for no transaction, so
//! that what a scan does not come to is not locked by it, and what others have is not waited for (`client/requests.rs`).

use super::PageTransaction;
use super::view::Intent;
use base::PartitionId;
use engine::buffer::{AheadWindow, Buffer};
use engine::organization::b_tree;
use engine::page::{Pages, slotted};
use engine::temp::RecordStream;
use engine::{Direction, KeyRange, Result};
use std::collections::VecDeque;
use std::ops::Bound;
use std::rc::Rc;

/// A record: its key and its value.
type KeyValue = (Vec<u8>, Vec<u8>);

/// The records of a leaf, and where to go on; also whether that was fetched.
type ReadLeaf = ((VecDeque<KeyValue>, Option<Bound<Vec<u8>>>), bool);

/// Where a scan is: in the records of a leaf.
pub(super) struct LeafScan {
    partition: PartitionId,
    direction: Direction,
    /// Where it goes on; nothing if there are no more leaves.
    from: Option<Bound<Vec<u8>>>,
    to: Bound<Vec<u8>>,
    /// What is left of the leaf, with stored values.
    left: VecDeque<KeyValue>,
    /// Whether it has come to a leaf.
    began: bool,
    read_ahead: AheadWindow,
}

impl LeafScan {
    /// It has come to a leaf, which was not here if it was `missed`: has those behind it asked for, if it is time.
    fn read_leaves_ahead(&mut self, buffer: &Rc<Buffer>, missed: bool) {
        let is_first = !std::mem::replace(&mut self.began, true);
        let count = self.read_ahead.pass(buffer, (is_first, missed));
        let Some(from) = self.from.as_ref().filter(|_| count > 0) else { return };
        let (pool, range) = (buffer.pool().borrow(), (as_slice(from), as_slice(&self.to)));
        let pages = match self.direction {
            Direction::Forward => b_tree::leaves_above(&*pool, self.partition, range, count),
            Direction::Backward => b_tree::leaves_below(&*pool, self.partition, range, count),
        };
        drop(pool);
        self.read_ahead.read(buffer, pages);
    }
}

/// Where a range of keys begins and ends.
type KeyBounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// The records of a range of keys, one by one or several at once. [`PageTransaction::scan_range`] begins it.
pub struct PageScan<'a> {
    transaction: &'a mut PageTransaction,
    partition: PartitionId,
    scan: Option<LeafScan>,
    bounds: Option<KeyBounds>,
    direction: Direction,
}

impl<'a> PageScan<'a> {
    /// The records as a stream, which holds the transaction as this does. An error ends it.
    ///
    /// ```
    /// use engine::Result;
    /// use entresol_node::page_client::PageScan;
    /// use futures_util::TryStreamExt;
    ///
    /// /// The sum of the lengths of a scan's values.
    /// async fn length(scan: PageScan<'_>) -> Result<usize> {
    ///     scan.into_stream().try_fold(0, async |sum, (_, value)| Ok(sum + value.len())).await
    /// }
    /// ```
    pub fn into_stream(mut self) -> RecordStream<'a> {
        RecordStream::new(async move || self.next().await)
    }

    /// The next record, key and value; `None` at the end of the range. One that was not waited for, or has failed, is the next one still.
    ///
    /// # Errors
    /// As [`PageTransaction::get`].
    pub async fn next(&mut self) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        if self.scan.is_none() {
            self.transaction.tree(self.partition).await?;
            let Some(bounds) = self.bounds.take() else { return Ok(None) };
            self.scan = Some(self.transaction.leaf_scan(self.partition, bounds, self.direction));
        }
        let Some(scan) = &mut self.scan else { return Ok(None) };
        self.transaction.fill(scan).await?;
        let Some((_, stored)) = scan.left.front() else { return Ok(None) };
        let value = self.transaction.value_of(self.partition, stored).await?;
        // Not before its value is here.
        Ok(scan.left.pop_front().map(|(key, _)| (key, value)))
    }

    /// The next `count` records, or those that are left. If it is not waited for, those that it had are gone.
    ///
    /// # Errors
    /// As [`PageScan::next`].
    pub async fn take(&mut self, count: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut records = Vec::new();
        while records.len() < count {
            let Some(record) = self.next().await? else { break };
            records.push(record);
        }
        Ok(records)
    }

    /// Shows every record that is left to `look`, until that returns false.
    ///
    /// # Errors
    /// As [`PageScan::next`].
    pub async fn look(&mut self, mut look: impl FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        while let Some((key, value)) = self.next().await? {
            if !look(&key, &value) {
                break;
            }
        }
        Ok(())
    }
}

impl PageTransaction {
    /// The records of a range of a b-tree, beginning at the end that `direction` comes from. From the second leaf on that is not here, those
    /// behind it are asked for ahead: up to 64, and an eighth of the buffer for all scans. What is not come to is not locked.
    pub fn scan_range(&mut self, partition: PartitionId, range: impl KeyRange, direction: Direction) -> PageScan<'_> {
        let bounds = Some(range.into_bounds());
        PageScan { transaction: self, partition, scan: None, bounds, direction }
    }

    /// A scan of a b-tree that is known to be one.
    pub(super) fn leaf_scan(
        &self,
        partition: PartitionId,
        (lower, upper): (Bound<Vec<u8>>, Bound<Vec<u8>>),
        direction: Direction,
    ) -> LeafScan {
        let is_empty = match (&lower, &upper) {
            (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
            (Bound::Included(lower), Bound::Included(upper)) => lower > upper,
            (Bound::Included(lower) | Bound::Excluded(lower), Bound::Included(upper) | Bound::Excluded(upper)) => {
                lower >= upper
            }
        };
        let (from, to) = match direction {
            Direction::Forward => (lower, upper),
            Direction::Backward => (upper, lower),
        };
        let (from, left) = ((!is_empty).then_some(from), VecDeque::new());
        LeafScan { partition, direction, from, to, left, began: false, read_ahead: AheadWindow::default() }
    }

    /// The next record of a scan, with its stored value.
    pub(super) async fn next_of(&mut self, scan: &mut LeafScan) -> Result<Option<KeyValue>> {
        self.fill(scan).await?;
        Ok(scan.left.pop_front())
    }

    /// Has the next record of a scan in what is left of its leaf, unless there are no more.
    async fn fill(&mut self, scan: &mut LeafScan) -> Result<()> {
        while scan.left.is_empty() {
            let Some(from) = &scan.from else { break };
            let partition = scan.partition;
            let ((records, fence), missed) = match scan.direction {
                Direction::Forward => self.records_from(partition, as_slice(from), as_slice(&scan.to)).await?,
                Direction::Backward => self.records_below(partition, as_slice(from), as_slice(&scan.to)).await?,
            };
            scan.left = records;
            scan.from = fence;
            scan.read_leaves_ahead(&self.client.buffer, missed);
        }
        Ok(())
    }

    /// The records of a leaf from a key on, and where to go on.
    async fn records_from(
        &mut self,
        partition: PartitionId,
        from: Bound<&[u8]>,
        upper: Bound<&[u8]>,
    ) -> Result<ReadLeaf> {
        self.resolve_access(Intent::Read, |pages| {
            let range = b_tree::forward(pages.to_search(), partition, from)?;
            let page = pages.page(range.page)?;
            let records = (range.slot..slotted::count(page)).map(|slot| record(page, slot));
            let left = records.take_while(|(key, _)| is_below(key, upper)).collect();
            pages.charge_value(range.page, 0, length_of(&left));
            let fence = range.fence.filter(|fence| is_below(fence, upper));
            Ok((left, fence.map(Bound::Included)))
        })
        .await
    }

    /// The records of a leaf up to a key, the last one first, and where to go on.
    async fn records_below(
        &mut self,
        partition: PartitionId,
        from: Bound<&[u8]>,
        lower: Bound<&[u8]>,
    ) -> Result<ReadLeaf> {
        self.resolve_access(Intent::Read, |pages| {
            let range = b_tree::backward(pages.to_search(), partition, from)?;
            let page = pages.page(range.page)?;
            let records = (0..range.slot).rev().map(|slot| record(page, slot));
            let is_above = |key: &[u8]| match lower {
                Bound::Unbounded => true,
                Bound::Included(lower) => key >= lower,
                Bound::Excluded(lower) => key > lower,
            };
            let left = records.take_while(|(key, _)| is_above(key)).collect();
            pages.charge_value(range.page, 0, length_of(&left));
            // What is left is below the fence.
            let goes_on = |fence: &Vec<u8>| match lower {
                Bound::Unbounded => true,
                Bound::Included(lower) | Bound::Excluded(lower) => fence.as_slice() > lower,
            };
            Ok((left, range.fence.filter(goes_on).map(Bound::Excluded)))
        })
        .await
    }
}

fn record(page: &[u8], slot: u16) -> KeyValue {
    let mut key = Vec::new();
    slotted::key_into(page, slot, &mut key);
    (key, slotted::value(page, slot).to_vec())
}

/// How many bytes their values have.
fn length_of(records: &VecDeque<KeyValue>) -> usize {
    records.iter().map(|(_, stored)| stored.len()).sum()
}

fn is_below(key: &[u8], upper: Bound<&[u8]>) -> bool {
    match upper {
        Bound::Unbounded => true,
        Bound::Included(upper) => key <= upper,
        Bound::Excluded(upper) => key < upper,
    }
}

fn as_slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}
