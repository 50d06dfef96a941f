//! The end of a change: its shadow is dropped or put back.

use super::changes::{Before, Shadow};
use super::layout::{self, Item, item, set_item};
use super::memory::Set;

impl Set {
    /// Makes one change part of the committed state.
    #[inline]
    pub(super) fn commit(&mut self, shadow: &Shadow) {
        let at = self.end_shadow(shadow.place, 0b11);
        let (segment, _) = self.locate(shadow.place);
        match shadow.before {
            Before::Nothing | Before::Bytes { .. } => return,
            Before::Value { .. } => {
                let size = item(self.segments[segment].bytes(), at).needed();
                self.segments[segment].trim(at, size);
            }
            Before::Here => self.segments[segment].release(at),
            Before::MovedTo(to) => {
                self.end_shadow(to, 0b11);
                self.segments[segment].release(at);
            }
        }
        self.update_room(segment);
    }

    /// Counts a shadow of the segment of `place` as gone and returns the position in it.
    #[inline]
    fn end_shadow(&mut self, place: u64, dirty: u8) -> usize {
        let (segment, at) = self.locate(place);
        self.segments[segment].uncommitted -= 1;
        self.segments[segment].dirty |= dirty;
        at
    }

    /// Takes one change back, the latest of its record.
    pub(super) fn roll_back(&mut self, shadow: &Shadow, saved: &[u8]) {
        let at = self.end_shadow(shadow.place, 0);
        let (segment, _) = self.locate(shadow.place);
        match shadow.before {
            Before::Nothing => {
                let (key, value) = self.copy(shadow.place);
                self.finder.remove(&key, shadow.hash, shadow.place);
                self.for_secondaries(|secondary| secondary.remove(&key, &value));
                self.segments[segment].release(at);
            }
            Before::Bytes { .. } | Before::Value { .. } => self.restore_value(shadow, saved),
            Before::Here => {
                undo_in(self.segments[segment].bytes_mut(), at, &Before::Here, &[]);
                let (key, value) = self.copy(shadow.place);
                self.finder.add(&key, shadow.hash, shadow.place);
                self.for_secondaries(|secondary| secondary.add(&key, &value));
            }
            Before::MovedTo(to) => {
                let (key, new) = self.copy(to);
                let (_, old) = self.copy(shadow.place);
                self.finder.repoint(&key, shadow.hash, to, shadow.place);
                self.for_secondaries(|secondary| secondary.change(&key, &new, &old));
                undo_in(self.segments[segment].bytes_mut(), at, &Before::Here, &[]);
                let moved_at = self.end_shadow(to, 0);
                let (moved_to, _) = self.locate(to);
                self.segments[moved_to].release(moved_at);
                self.update_room(moved_to);
            }
        }
        self.update_room(segment);
    }

    fn restore_value(&mut self, shadow: &Shadow, saved: &[u8]) {
        let (segment, at) = self.locate(shadow.place);
        let new = self.is_ordered().then(|| self.copy(shadow.place));
        undo_in(self.segments[segment].bytes_mut(), at, &shadow.before, saved);
        if let Before::Value { size, .. } = shadow.before {
            self.segments[segment].trim(at, size as usize);
        }
        if let Some((key, new)) = new {
            let (_, old) = self.copy(shadow.place);
            self.for_secondaries(|secondary| secondary.change(&key, &new, &old));
        }
    }

    fn copy(&self, place: u64) -> (Vec<u8>, Vec<u8>) {
        let (bytes, at) = self.at(place);
        (layout::key(bytes, at).to_vec(), layout::value(bytes, at).to_vec())
    }

    /// The committed state of a segment, with header and checksum. `shadows` are those there of unfinished transactions, each with
    /// its saved bytes, for every record the latest first.
    pub(super) fn image(&self, segment: usize, shadows: &[(&Shadow, &[u8])], out: &mut [u8]) {
        let found = &self.segments[segment];
        let (used, rest) = out.split_at_mut(found.tail());
        used.copy_from_slice(&found.bytes()[..found.tail()]);
        rest.fill(0);
        for (shadow, saved) in shadows {
            #[cfg(test)]
            self.looked_at.set(self.looked_at.get() + 1);
            let (here, at) = self.locate(shadow.place);
            if let Before::MovedTo(to) = shadow.before
                && let (moved_to, at) = self.locate(to)
                && moved_to == segment
            {
                undo_in(used, at, &Before::Nothing, &[]);
            }
            if here == segment {
                undo_in(used, at, &shadow.before, saved);
            }
        }
        self.header(segment, found.tail()).seal(out);
    }
}

/// Puts the bytes of a record at `at` back as they were before a change. Items keep their sizes.
pub(super) fn undo_in(bytes: &mut [u8], at: usize, before: &Before, saved: &[u8]) {
    let head = item(bytes, at);
    match *before {
        Before::Nothing => set_item(bytes, at, Item::hole(head.size())),
        Before::Bytes { offset, .. } => {
            layout::value_mut(bytes, at)[offset as usize..][..saved.len()].copy_from_slice(saved);
        }
        Before::Value { length, .. } => {
            set_item(bytes, at, head.with_value_length(length as usize));
            layout::value_mut(bytes, at).copy_from_slice(saved);
        }
        Before::Here | Before::MovedTo(_) => set_item(bytes, at, head.with_deleted(false)),
    }
}
