//! Range reads of b-trees by a secondary index: an entry, then its record, both as of the same moment.

use super::records::Entered;
use super::{Direction, Transaction};
use crate::catalog::{EntryRange, Partition};
use crate::mvcc::read_at;
use crate::{Error, Result};
use std::ops::Bound;
use structures::key_hash;
use structures::lock::Mode;

impl Transaction {
    /// Shows the records of a span of an index of a b-tree.
    pub(super) async fn range_in_tree(
        &mut self,
        found: &Partition,
        secondary: usize,
        span: &EntryRange,
        direction: Direction,
        mut look: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        let index = found.typed()?.index(secondary).map_err(|error| found.field_error(error))?;
        let Some(tree) = index.tree else { return Ok(()) };
        let upper = span.to.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut entries = self.cursor(tree.id, Bound::Included(&span.from), upper, direction);
        if let (Some(view), Some(since)) = (entries.view(), tree.since)
            && view.at < since
        {
            return Err(Error::SnapshotTooOld { oldest: since, asked: None });
        }
        while let Some((_, key)) = self.next(&mut entries).await? {
            let value = match entries.view() {
                Some(view) => {
                    let pace = self.pace_single().await;
                    read_at(&self.engine, view, (found.id(), false), &key, pace).await?
                }
                None => self.read_of_entry(found, &key).await?,
            };
            let value = value.ok_or_else(|| index.lacks_entry(&found.name))?;
            if !look(&key, &value) {
                break;
            }
        }
        Ok(())
    }

    /// Locks the record of an entry that is locked, and reads it.
    async fn read_of_entry(&mut self, found: &Partition, key: &[u8]) -> Result<Option<Vec<u8>>> {
        if self.reference() {
            self.delayed_reference().await?;
        }
        let hash = key_hash(key);
        let Entered { found: keyed, ungranted } = self.enter(found.id(), (key, hash), Mode::Shared)?;
        if let Some(ungranted) = ungranted {
            self.wait_to_enter(ungranted, (keyed, found.id()), (key, hash), Mode::Shared).await?;
        }
        let value = self.read_in_tree(found.id(), key).await?;
        self.trace_key_access(found.id(), key, false);
        Ok(value)
    }
}
