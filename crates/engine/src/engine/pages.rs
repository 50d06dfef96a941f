//! Reading what organizations have in pages: appended records, long values.

use super::Core;
use crate::{Need, Result};
use base::{PageId, PartitionId};
use structures::organization::allocator;
use structures::organization::append::{End, Position};
use structures::organization::b_tree::stored::{self, VALUE_LEN_MAX};
use structures::page::{PageKind, Pages, header, slotted};

impl Core {
    pub fn with_end<T>(&self, partition: PartitionId, f: impl FnOnce(&mut End) -> T) -> T {
        let mut ends = self.append_ends.borrow_mut();
        let index = usize::from(partition.0);
        if ends.len() <= index {
            ends.resize(index + 1, End::default());
        }
        f(&mut ends[index])
    }

    /// How many pages a b-tree or a partition of appended records uses, or has used.
    pub fn page_count(&self, partition: PartitionId) -> Result<u32, Need> {
        let pool = self.buffer.pool().borrow();
        Ok(allocator::read(pool.page(PageId::new(partition, 0))?).page_count)
    }

    /// How many records a page has.
    pub fn appended_slots(&self, id: PageId) -> Result<u16, Need> {
        let pool = self.buffer.pool().borrow();
        let page = pool.page(id)?;
        Ok(if header::kind(page) == Some(PageKind::Append) { slotted::count(page) } else { 0 })
    }

    /// The records of a page, with their slots; none if it holds none yet.
    pub fn appended(&self, id: PageId) -> Result<Vec<(u16, Vec<u8>)>, Need> {
        let slots = self.appended_slots(id)?;
        let pool = self.buffer.pool().borrow();
        let page = pool.page(id)?;
        let charged = |slot| {
            let record = slotted::value(page, slot);
            self.buffer.charge_value(id, slot, record.len());
            record.to_vec()
        };
        Ok((0..slots).map(|slot| (slot, charged(slot))).collect())
    }

    pub fn appended_at(&self, position: Position) -> Result<Vec<u8>, Need> {
        let pool = self.buffer.pool().borrow();
        let record = slotted::value(pool.page(position.page)?, position.slot);
        self.buffer.charge_value(position.page, position.slot, record.len());
        Ok(record.to_vec())
    }

    /// Reads a long value of `length` bytes that begins on page `first`.
    pub(crate) async fn fetch(&self, partition: PartitionId, length: usize, first: u32) -> Result<Vec<u8>> {
        if length > VALUE_LEN_MAX {
            let detail = format!("a long value of {length} bytes is said to begin there");
            return Err(self.buffer.space(partition).damaged(PageId::new(partition, first), detail));
        }
        let mut value = Vec::with_capacity(length);
        let mut page = PageId::new(partition, first);
        while page.number != 0 && value.len() < length {
            let start = value.len();
            let buffer = &self.buffer;
            page.number = self
                .complete(|| {
                    value.truncate(start);
                    let pool = buffer.pool().borrow();
                    let (next, bytes) = stored::part(&*pool, page)?;
                    buffer.charge_value(page, 0, bytes.len());
                    value.extend_from_slice(bytes);
                    Ok(next)
                })
                .await?;
        }
        if value.len() != length {
            let file = self.buffer.space(partition);
            let id = PageId::new(partition, first);
            return Err(file.damaged(id, format!("its long value has {} bytes of {length}", value.len())));
        }
        Ok(value)
    }
}
