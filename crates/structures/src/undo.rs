//! The way back: undo records, and a transaction's list of them in memory, so that no rollback reads the log.
//!
//! Recovery rebuilds the lists from its one scan of the log. A compensation record says how many updates remain to be undone,
//! which bounds the work of repeated crashes.

use crate::page::change::{put_bytes, take_bytes, take_u8, take_u16, take_u64};
use crate::reuse::{capacity_bytes, empty_for_reuse};
use base::{PageId, PartitionId};

/// How an update is undone. Keys, not positions: the record may have moved to another page since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undo<'a> {
    /// Removes the record (it was inserted).
    Remove {
        /// The b-tree.
        partition: PartitionId,
        /// The record's key.
        key: &'a [u8],
    },
    /// Inserts the record again (it was deleted). `value` is the stored form, with version pointer and overflow reference.
    Insert {
        /// The b-tree.
        partition: PartitionId,
        /// The record's key.
        key: &'a [u8],
        /// Its stored value.
        value: &'a [u8],
    },
    /// Gives the record its old stored value back.
    Replace {
        /// The b-tree.
        partition: PartitionId,
        /// The record's key.
        key: &'a [u8],
        /// The old stored value.
        value: &'a [u8],
    },
    /// Overwrites a part of the record's stored value.
    PatchValue {
        /// The b-tree.
        partition: PartitionId,
        /// The record's key.
        key: &'a [u8],
        /// Where in the stored value.
        offset: u16,
        /// The old bytes.
        bytes: &'a [u8],
    },
    /// Overwrites a part of a page (objects found by number never move).
    PatchPage {
        /// The page.
        page: PageId,
        /// Where, from the front of the page.
        offset: u16,
        /// The old bytes.
        bytes: &'a [u8],
    },
    /// Marks an appended record as erased; positions of others stay.
    EraseAppended {
        /// The page.
        page: PageId,
        /// The record's slot.
        slot: u16,
    },
    /// Gives a page that was allocated for a long value back to its partition.
    FreePage {
        /// The page.
        page: PageId,
    },
}

impl Undo<'_> {
    /// The partition of what it changes.
    pub fn partition(&self) -> PartitionId {
        match self {
            Undo::Remove { partition, .. }
            | Undo::Insert { partition, .. }
            | Undo::Replace { partition, .. }
            | Undo::PatchValue { partition, .. } => *partition,
            Undo::PatchPage { page, .. } | Undo::EraseAppended { page, .. } | Undo::FreePage { page } => page.partition,
        }
    }

    /// The stored form.
    pub fn stored(&self) -> Vec<u8> {
        let mut stored = Vec::new();
        encode_undo(self, &mut stored);
        stored
    }
}

/// Appends the stored form of an undo.
///
/// Part of its callers, which know mostly which one it is.
#[inline(always)]
pub fn encode_undo(undo: &Undo<'_>, out: &mut Vec<u8>) {
    match *undo {
        Undo::Remove { partition, key } => {
            out.push(1);
            out.extend_from_slice(&partition.0.to_le_bytes());
            put_bytes(out, key);
        }
        Undo::Insert { partition, key, value } => {
            out.push(2);
            out.extend_from_slice(&partition.0.to_le_bytes());
            put_bytes(out, key);
            put_bytes(out, value);
        }
        Undo::Replace { partition, key, value } => {
            out.push(3);
            out.extend_from_slice(&partition.0.to_le_bytes());
            put_bytes(out, key);
            put_bytes(out, value);
        }
        Undo::PatchValue { partition, key, offset, bytes } => {
            let ([p0, p1], [k0, k1, k2, k3]) = (partition.0.to_le_bytes(), (key.len() as u32).to_le_bytes());
            out.extend_from_slice(&[4, p0, p1, k0, k1, k2, k3]);
            out.extend_from_slice(key);
            let ([o0, o1], [b0, b1, b2, b3]) = (offset.to_le_bytes(), (bytes.len() as u32).to_le_bytes());
            out.extend_from_slice(&[o0, o1, b0, b1, b2, b3]);
            out.extend_from_slice(bytes);
        }
        Undo::PatchPage { page, offset, bytes } => {
            out.push(5);
            out.extend_from_slice(&page.packed().to_le_bytes());
            out.extend_from_slice(&offset.to_le_bytes());
            put_bytes(out, bytes);
        }
        Undo::EraseAppended { page, slot } => {
            out.push(6);
            out.extend_from_slice(&page.packed().to_le_bytes());
            out.extend_from_slice(&slot.to_le_bytes());
        }
        Undo::FreePage { page } => {
            out.push(7);
            out.extend_from_slice(&page.packed().to_le_bytes());
        }
    }
}

/// Reads the stored form of an undo from the front of `input` and moves `input` behind it; `None` if it is not one.
pub fn decode_undo<'a>(input: &mut &'a [u8]) -> Option<Undo<'a>> {
    let tag = take_u8(input)?;
    if tag >= 5 {
        let page = PageId::unpacked(take_u64(input)?);
        return match tag {
            5 => Some(Undo::PatchPage { page, offset: take_u16(input)?, bytes: take_bytes(input)? }),
            6 => Some(Undo::EraseAppended { page, slot: take_u16(input)? }),
            7 => Some(Undo::FreePage { page }),
            _ => None,
        };
    }
    let partition = PartitionId(take_u16(input)?);
    let key = take_bytes(input)?;
    match tag {
        1 => Some(Undo::Remove { partition, key }),
        2 => Some(Undo::Insert { partition, key, value: take_bytes(input)? }),
        3 => Some(Undo::Replace { partition, key, value: take_bytes(input)? }),
        4 => Some(Undo::PatchValue { partition, key, offset: take_u16(input)?, bytes: take_bytes(input)? }),
        _ => None,
    }
}

/// The undo records of one transaction, oldest first, in their stored form.
#[derive(Debug, Default)]
pub struct UndoList {
    bytes: Vec<u8>,
    starts: Vec<usize>,
}

impl UndoList {
    /// Adds the latest. Returns its stored form.
    #[inline(always)]
    pub fn push(&mut self, undo: &Undo<'_>) -> &[u8] {
        let start = self.bytes.len();
        self.starts.push(start);
        encode_undo(undo, &mut self.bytes);
        &self.bytes[start..]
    }

    /// Adds the latest in its stored form.
    pub fn push_stored(&mut self, undo: &[u8]) {
        self.starts.push(self.bytes.len());
        self.bytes.extend_from_slice(undo);
    }

    /// The stored forms, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.since(0)
    }

    /// The stored forms of all but the first `count`, which are there.
    pub fn since(&self, count: usize) -> impl Iterator<Item = &[u8]> {
        let starts = &self.starts[count..];
        let ends = starts.iter().skip(1).copied().chain([self.bytes.len()]);
        starts.iter().zip(ends).map(|(start, end)| &self.bytes[*start..end])
    }

    /// How many updates there are to undo.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Whether there is nothing to undo.
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// The stored form of the latest, if any.
    pub fn last(&self) -> Option<&[u8]> {
        self.starts.last().map(|start| &self.bytes[*start..])
    }

    /// Forgets all but the first `remaining`.
    pub fn truncate(&mut self, remaining: usize) {
        if let Some(start) = self.starts.get(remaining) {
            self.bytes.truncate(*start);
            self.starts.truncate(remaining);
        }
    }

    /// Forgets everything; its memory stays, unless it is much.
    pub fn clear(&mut self) {
        empty_for_reuse(&mut self.bytes);
        empty_for_reuse(&mut self.starts);
    }

    /// Its memory, used or not, in bytes.
    pub fn memory_bytes(&self) -> usize {
        capacity_bytes(&self.bytes) + capacity_bytes(&self.starts)
    }

    /// Decodes a stored form that [`UndoList::push`] made.
    ///
    /// # Panics
    /// If it is not one.
    pub fn decode(mut stored: &[u8]) -> Undo<'_> {
        decode_undo(&mut stored).expect("an undo list holds what was pushed")
    }
}
