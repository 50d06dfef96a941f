//! Bulk loading: nodes are built bottom-up from records in ascending order, one open node per level.

use super::split::separator;
use super::{CHILD_SIZE, ROOT, body_size};
use crate::organization::allocator;
use crate::page::OwnedEdit;
use crate::page::slotted::{Builder, common_prefix_len, entry_size};
use base::{PageId, PartitionId};

/// Fills an empty tree with records in ascending order. Pages come out as edits that format them, each page once, in ascending
/// order of their numbers but for the last two (the root and page 0); it keeps one node per level in memory.
pub struct BulkLoader {
    partition: PartitionId,
    page_size: usize,
    /// Bytes of a node to be filled.
    target: usize,
    next_page: u32,
    levels: Vec<Open>,
}

/// The entries of a level that are not yet in a finished node.
#[derive(Default)]
struct Open {
    /// The lower fence of the level's next node.
    lower: Vec<u8>,
    /// Keys and values, one after another.
    bytes: Vec<u8>,
    entries: Vec<EntryBounds>,
    /// What the next node's keys share if the node ends at the last of them; at least what they will share.
    prefix_len: usize,
    /// What the entries take with that prefix, in bytes.
    size: usize,
}

/// Where an entry's key begins, ends, and where its value ends in `Open::bytes`.
#[derive(Clone, Copy)]
struct EntryBounds {
    key: usize,
    value: usize,
    end: usize,
}

impl Open {
    fn key(&self, index: usize) -> &[u8] {
        &self.bytes[self.entries[index].key..self.entries[index].value]
    }

    fn value(&self, index: usize) -> &[u8] {
        &self.bytes[self.entries[index].value..self.entries[index].end]
    }

    /// The bytes that the first `count` entries take behind a prefix.
    fn size(&self, count: usize, prefix_len: usize) -> usize {
        let sizes = |entry: &EntryBounds| entry_size(prefix_len, entry.value - entry.key, entry.end - entry.value);
        self.entries[..count].iter().map(sizes).sum()
    }

    fn add(&mut self, key: &[u8], value: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.entries.push(EntryBounds { key: start, value: start + key.len(), end: self.bytes.len() });
        let prefix_len = common_prefix_len(&self.lower, key);
        if prefix_len == self.prefix_len {
            self.size += entry_size(prefix_len, key.len(), value.len());
        } else {
            self.prefix_len = prefix_len;
            self.size = self.size(self.entries.len(), prefix_len);
        }
    }

    /// The upper fence of a node of the first `count` entries.
    fn upper(&self, level: usize, count: usize) -> &[u8] {
        match (count == self.entries.len(), level) {
            (true, _) => &[],
            (false, 0) => separator(self.key(count - 1), self.key(count)),
            (false, _) => self.key(count),
        }
    }

    /// Whether a node of the first `count` entries takes at most `limit` bytes.
    fn fits(&self, level: usize, count: usize, limit: usize) -> bool {
        let upper = self.upper(level, count);
        let prefix_len = common_prefix_len(&self.lower, upper);
        self.size(count, prefix_len) + self.lower.len() + upper.len() <= limit
    }

    /// Drops the first `count` entries; the level goes on at `lower`.
    fn go_on(&mut self, count: usize, lower: Vec<u8>) {
        let cut = self.entries[count - 1].end;
        self.bytes.drain(..cut);
        self.entries.drain(..count);
        for entry in &mut self.entries {
            *entry = EntryBounds { key: entry.key - cut, value: entry.value - cut, end: entry.end - cut };
        }
        self.lower = lower;
        self.prefix_len =
            self.entries.last().map_or(0, |last| common_prefix_len(&self.lower, &self.bytes[last.key..last.value]));
        self.size = self.size(self.entries.len(), self.prefix_len);
    }
}

impl BulkLoader {
    /// A loader that fills nodes to the share `fill` (above 0, up to 1) where the records' sizes allow.
    ///
    /// # Panics
    /// If `fill` is outside its range.
    pub fn new(partition: PartitionId, page_size: usize, fill: f64) -> BulkLoader {
        assert!(fill > 0.0 && fill <= 1.0, "a fill factor of {fill}");
        let target = (body_size(page_size) as f64 * fill) as usize;
        BulkLoader { partition, page_size, target, next_page: ROOT + 1, levels: vec![Open::default()] }
    }

    /// Adds a record. Appends the edits of pages that are complete to `done`.
    ///
    /// # Panics
    /// If the key is not above the one before it, or key or value exceed their limits ([`key_len_max`](super::key_len_max),
    /// [`value_len_max`](super::value_len_max)).
    pub fn push(&mut self, key: &[u8], value: &[u8], done: &mut Vec<OwnedEdit>) {
        assert!(key.len() <= super::key_len_max(self.page_size), "a key of {} bytes", key.len());
        assert!(value.len() <= super::value_len_max(self.page_size, key.len()), "a value of {} bytes", value.len());
        let last = self.levels[0].entries.len().checked_sub(1);
        assert!(last.is_none_or(|last| self.levels[0].key(last) < key), "records come in ascending order");
        self.add(0, key, value, done);
    }

    fn add(&mut self, level: usize, key: &[u8], value: &[u8], done: &mut Vec<OwnedEdit>) {
        if level == self.levels.len() {
            self.levels.push(Open::default());
        }
        self.levels[level].add(key, value);
        while self.levels[level].size > self.target && self.levels[level].entries.len() > 1 {
            self.close(level, self.target, done);
        }
    }

    /// Makes a node of as many of the level's entries, but not the last, as fit in `limit` bytes; of one at least.
    fn close(&mut self, level: usize, limit: usize, done: &mut Vec<OwnedEdit>) {
        let open = &self.levels[level];
        let count = (1..open.entries.len()).rev().find(|count| open.fits(level, *count, limit)).unwrap_or(1);
        let number = self.next_page;
        self.next_page += 1;
        self.emit(level, count, number, done);
    }

    /// Formats page `number` as the node of the level's first `count` entries and tells the level above.
    fn emit(&mut self, level: usize, count: usize, number: u32, done: &mut Vec<OwnedEdit>) {
        let open = &mut self.levels[level];
        let upper = open.upper(level, count).to_vec();
        let mut builder = Builder::new(self.page_size, level as u8, &open.lower, &upper);
        for index in 0..count {
            builder.push(open.key(index), open.value(index));
        }
        done.push(OwnedEdit { page: PageId::new(self.partition, number), change: builder.finish() });
        let lower = std::mem::take(&mut open.lower);
        open.go_on(count, upper);
        if number != ROOT {
            let child: [u8; CHILD_SIZE] = number.to_le_bytes();
            self.add(level + 1, &lower, &child, done);
        }
    }

    /// Appends the edits of the remaining pages to `done`: the last nodes, then the root, then page 0. Returns how many pages
    /// the tree has, page 0 included.
    pub fn finish(mut self, done: &mut Vec<OwnedEdit>) -> u32 {
        let body = body_size(self.page_size);
        let mut level = 0;
        loop {
            let count = self.levels[level].entries.len();
            if count > 1 && !self.levels[level].fits(level, count, body) {
                self.close(level, self.target, done);
            } else if level + 1 < self.levels.len() {
                let number = self.next_page;
                self.next_page += 1;
                self.emit(level, count, number, done);
                level += 1;
            } else {
                break;
            }
        }
        self.emit_root(level, done);
        done.push(allocator::create(self.partition, self.next_page, &[]));
        self.next_page
    }

    fn emit_root(&mut self, level: usize, done: &mut Vec<OwnedEdit>) {
        let count = self.levels[level].entries.len();
        if count == 0 {
            let change = Builder::new(self.page_size, 0, &[], &[]).finish();
            done.push(OwnedEdit { page: PageId::new(self.partition, ROOT), change });
        } else {
            self.emit(level, count, ROOT, done);
        }
    }
}
