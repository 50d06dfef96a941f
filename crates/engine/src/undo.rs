//! The way back: a transaction's undo records in memory, so that no rollback reads the log.

use crate::log::record::{Undo, decode_undo, encode_undo};

/// The undo records of one transaction, oldest first, in their stored form.
#[derive(Debug, Default)]
pub struct UndoList {
    bytes: Vec<u8>,
    starts: Vec<usize>,
}

impl UndoList {
    /// Adds the latest. Returns its stored form.
    #[inline]
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

    /// Forgets everything but the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.starts.clear();
    }

    /// Decodes a stored form that [`UndoList::push`] made.
    ///
    /// # Panics
    /// If it is not one.
    pub fn decode(mut stored: &[u8]) -> Undo<'_> {
        decode_undo(&mut stored).expect("an undo list holds what was pushed")
    }
}
