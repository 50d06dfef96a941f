//! Values too long for a leaf: their pages are taken from the partition's free ones, and given back in the transaction that replaces or
//! deletes the value. Nothing of it is seen before it is committed, and a rollback takes all of it back together.

use super::view::Intent;
use super::{PageTransaction, reading};
use crate::message::Described;
use base::{PageId, PartitionId};
use engine::Result;
use engine::organization::allocator;
use engine::organization::b_tree::stored::{self, Stored, VERSION_SIZE};
use engine::organization::b_tree::{self, overflow};

impl PageTransaction {
    /// Whether the value of a record with this key is stored in its leaf.
    pub(super) fn fits_leaf(&self, key: &[u8], value: &[u8]) -> bool {
        let page_size = self.client.settings.buffer.page_size;
        VERSION_SIZE + value.len() <= b_tree::value_len_max(page_size, key.len())
    }

    /// Builds the pages of a value and returns its stored form.
    pub(super) async fn store_elsewhere(&mut self, partition: PartitionId, value: &[u8]) -> Result<Vec<u8>> {
        let page_size = self.client.settings.buffer.page_size;
        let (mut next, mut end) = (0, value.len());
        while end > 0 {
            let start = overflow::tail_start(end, page_size);
            let part = &value[start..end];
            let planned = self.resolve(Intent::Append, |pages| {
                let (number, plan) = overflow::add(pages, partition, next, part)?;
                pages.permit_new(&plan)?;
                pages.charge_value(PageId::new(partition, number), 0, part.len());
                Ok((number, plan))
            });
            let (number, plan) = planned.await?;
            self.restructure(&plan);
            (next, end) = (number, start);
        }
        let mut stored = Vec::new();
        stored::store_elsewhere(value.len(), next, &mut stored);
        Ok(stored)
    }

    /// Gives back the pages of a value that is in the tree no more, if it was a long one.
    pub(super) async fn free_value(&mut self, found: &Described, stored: &[u8]) -> Result<()> {
        let Stored::Elsewhere(length, first) = stored::read(stored) else { return Ok(()) };
        let (mut freed, mut page) = (0, PageId::new(found.id(), first));
        while page.number != 0 && freed < length {
            // What is free by then has been part of another value, too.
            self.lock(page).await?;
            let planned = self.resolve(Intent::Append, |pages| {
                let (next, part) = stored::part(pages, page)?;
                let length = part.len();
                let plan = allocator::free(pages, page)?;
                pages.permit(&plan)?;
                Ok((next, length, plan))
            });
            let (next, length, plan) = planned.await?;
            self.restructure(&plan);
            freed += length;
            page.number = next;
        }
        Ok(())
    }

    /// The value that is stored so, read from its pages if it is a long one.
    pub(super) async fn value_of(&mut self, partition: PartitionId, stored: &[u8]) -> Result<Vec<u8>> {
        reading::value_of(self, partition, stored).await
    }
}
