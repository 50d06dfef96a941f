//! Long values: building the chain of pages of one, and giving it up.

use super::Transaction;
use super::log_room::admit_change;
use super::update::update;
use crate::engine::Chain;
use crate::{Error, Result};
use base::{PageId, PartitionId};
use structures::organization::b_tree::stored::{self, Stored, VALUE_LEN_MAX, VERSION_SIZE};
use structures::organization::b_tree::{self, overflow};
use structures::page::{Edit, Pages};
use structures::undo::Undo;

impl Transaction {
    /// Puts the stored form of `value` into `out`, building a chain of pages first if the value is too long for a leaf.
    pub(super) async fn store(
        &mut self,
        partition: PartitionId,
        key: &[u8],
        value: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<()> {
        self.give_up_loose();
        let page_size = self.engine.core.page_size();
        let limit = b_tree::key_len_max(page_size);
        if key.len() > limit {
            return Err(self.too_large("a key", key.len(), limit, partition));
        }
        if self.fits_leaf(key, value) {
            stored::store_here(value, out);
            return Ok(());
        }
        if value.len() > VALUE_LEN_MAX {
            return Err(self.too_large("a value", value.len(), VALUE_LEN_MAX, partition));
        }
        let mut next = 0;
        let mut end = value.len();
        while end > 0 {
            let start = overflow::tail_start(end, page_size);
            next = self.add_part(partition, next, &value[start..end]).await?;
            end = start;
        }
        stored::store_elsewhere(value.len(), next, out);
        Ok(())
    }

    /// Whether the record is within the limits, and its value is stored in the leaf.
    pub(super) fn fits_leaf(&self, key: &[u8], value: &[u8]) -> bool {
        let page_size = self.engine.core.page_size();
        key.len() <= b_tree::key_len_max(page_size)
            && VERSION_SIZE + value.len() <= b_tree::value_len_max(page_size, key.len())
    }

    fn too_large(&self, what: &'static str, found: usize, limit: usize, partition: PartitionId) -> Error {
        let partitions = self.engine.catalog.partitions.borrow();
        let partition = partitions.get_or_hidden(partition).map_or_else(String::new, |found| found.name.clone());
        Error::TooLarge { what, found, limit, partition }
    }

    async fn add_part(&mut self, partition: PartitionId, next: u32, part: &[u8]) -> Result<u32> {
        let engine = self.engine.clone();
        self.log_room().await?;
        let state = &mut self.state;
        engine
            .core
            .complete(|| {
                admit_change(&engine, state)?;
                let (number, edits) = {
                    let pool = engine.core.buffer.pool().borrow();
                    let planned = overflow::add(&*pool, partition, next, part)?;
                    let page = PageId::new(partition, planned.0);
                    pool.page(page)?;
                    engine.core.buffer.charge_value(page, 0, part.len());
                    planned
                };
                let edits: Vec<Edit<'_>> = edits.iter().map(|edit| edit.as_edit()).collect();
                engine.core.permit(&edits)?;
                let first = PageId::new(partition, number);
                state.loose = Some(Chain { undo: state.updates(), first });
                update(&engine, state, &Undo::FreePage { page: first }, &edits);
                Ok(number)
            })
            .await
    }

    /// The long value that was built last is part of the tree.
    pub(super) fn attach_loose(&mut self) {
        self.state.loose = None;
    }

    /// A long value that was built for a call that failed or was abandoned is of no use.
    pub(super) fn give_up_loose(&mut self) {
        let loose = self.state.loose.take();
        self.state.chains.extend(loose);
    }

    /// Remembers that the pages of a long value are to be freed once the transaction is committed.
    pub(super) fn give_up_chain(&mut self, partition: PartitionId, stored: &[u8]) {
        if let Stored::Elsewhere(_, first @ 1..) = stored::read(stored) {
            let chain = Chain { undo: self.state.updates(), first: PageId::new(partition, first) };
            self.state.chains.push(chain);
        }
    }
}
