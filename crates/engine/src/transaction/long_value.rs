//! Stored values: a version word, then the value itself or, if it is long, where its pages are.
//!
//! ```text
//! 0 version word u64: bit 63 set for a long value; the other bits are reserved for a version pointer
//! 8 the value, or: length u32, first page number u32
//! ```

use super::{Chain, Transaction};
use crate::{Database, Error, Result};
use base::{PageId, PartitionId};
use structures::organization::allocator;
use structures::organization::b_tree::{self, overflow};
use structures::page::{Edit, Pages};
use structures::undo::Undo;

/// The size of the version word in bytes.
pub const VERSION_SIZE: usize = 8;
const LONG: u64 = 1 << 63;
/// The longest value in bytes.
pub const VALUE_LEN_MAX: usize = 16 << 20;

/// A stored value, read.
pub enum Stored<'a> {
    /// The value itself.
    Here(&'a [u8]),
    /// Its length in bytes and the page where it begins.
    Elsewhere(usize, u32),
}

/// Whether these bytes are a stored value, which [`read`] takes for granted.
pub fn is_sound(stored: &[u8]) -> bool {
    match stored.first_chunk() {
        Some(version) => u64::from_le_bytes(*version) & LONG == 0 || stored.len() == VERSION_SIZE + 8,
        None => false,
    }
}

/// Reads a stored value.
#[inline]
pub fn read(stored: &[u8]) -> Stored<'_> {
    let version = u64::from_le_bytes(stored[..VERSION_SIZE].try_into().expect("eight bytes"));
    let rest = &stored[VERSION_SIZE..];
    if version & LONG == 0 {
        return Stored::Here(rest);
    }
    let word = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().expect("four bytes"));
    Stored::Elsewhere(word(0) as usize, word(4))
}

/// Puts the stored form of a value that stays in the leaf into `out`.
pub fn store_here(value: &[u8], out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(&[0; VERSION_SIZE]);
    out.extend_from_slice(value);
}

fn store_elsewhere(length: usize, first: u32, out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(&LONG.to_le_bytes());
    out.extend_from_slice(&(length as u32).to_le_bytes());
    out.extend_from_slice(&first.to_le_bytes());
}

/// The page behind `page` in its chain; 0 at the end.
pub fn next(pages: &impl Pages, page: PageId) -> Result<u32, structures::Need> {
    Ok(part(pages, page)?.0)
}

fn part(pages: &impl Pages, page: PageId) -> Result<(u32, &[u8]), structures::Need> {
    overflow::read(pages.page(page)?).map_err(|detail: String| allocator::damaged(page, &detail))
}

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
        let page_size = self.database.settings().buffer.page_size;
        let limit = b_tree::key_len_max(page_size);
        if key.len() > limit {
            return Err(self.too_large("a key", key.len(), limit, partition));
        }
        if VERSION_SIZE + value.len() <= b_tree::value_len_max(page_size, key.len()) {
            store_here(value, out);
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
        store_elsewhere(value.len(), next, out);
        Ok(())
    }

    fn too_large(&self, what: &'static str, found: usize, limit: usize, partition: PartitionId) -> Error {
        let partition = self.database.describe(partition).map_or_else(|_| String::new(), |p| p.name.clone());
        Error::TooLarge { what, found, limit, partition }
    }

    async fn add_part(&mut self, partition: PartitionId, next: u32, part: &[u8]) -> Result<u32> {
        let database = self.database.clone();
        let inner = &*database.0;
        self.log_room().await?;
        let state = &mut self.state;
        database
            .complete(|| {
                database.admit_change(state)?;
                let (number, edits) = {
                    let pool = inner.buffer.pool().borrow();
                    let planned = overflow::add(&*pool, partition, next, part)?;
                    pool.page(PageId::new(partition, planned.0))?;
                    planned
                };
                let edits: Vec<Edit<'_>> = edits.iter().map(|edit| edit.as_edit()).collect();
                let first = PageId::new(partition, number);
                state.loose = Some(Chain { undo: state.updates(), first });
                database.update(state, &Undo::FreePage { page: first }, &edits);
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
        if let Stored::Elsewhere(_, first) = read(stored) {
            let chain = Chain { undo: self.state.updates(), first: PageId::new(partition, first) };
            self.state.chains.push(chain);
        }
    }
}

impl Database {
    /// Reads a long value of `length` bytes that begins on page `first`.
    pub(crate) async fn fetch(&self, partition: PartitionId, length: usize, first: u32) -> Result<Vec<u8>> {
        let mut value = Vec::with_capacity(length);
        let mut page = PageId::new(partition, first);
        while page.number != 0 && value.len() < length {
            let start = value.len();
            let buffer = &self.0.buffer;
            page.number = self
                .complete(|| {
                    value.truncate(start);
                    let pool = buffer.pool().borrow();
                    let (next, bytes) = part(&*pool, page)?;
                    value.extend_from_slice(bytes);
                    Ok(next)
                })
                .await?;
        }
        if value.len() != length {
            let file = self.0.buffer.file(partition);
            let id = PageId::new(partition, first);
            return Err(file.damaged(id, format!("its long value has {} bytes of {length}", value.len())));
        }
        Ok(value)
    }
}
