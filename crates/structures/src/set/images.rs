//! What a sweep takes of segments and gives back: images, segments themselves, and the bits that say what is outdated where.

use super::Sets;
use super::capture::PreservedState;
use super::memory::Set;
use base::PartitionId;
use driver::Frame;

/// The most memory that a set grows by at once, in bytes: enough for huge pages, and for few regions of a large set.
const GROWTH_MAX: usize = 16 << 20;

impl Sets {
    /// Bytes of all segments of all sets.
    pub fn memory_bytes(&self) -> u64 {
        self.sets.iter().flatten().map(|set| (set.segments.len() * set.segment_size) as u64).sum()
    }

    /// A spare frame of this size, if there is one.
    pub fn spare(&mut self, size: usize) -> Option<Frame> {
        let found = self.spare.iter().position(|frame| frame.len() == size)?;
        Some(self.spare.swap_remove(found))
    }

    /// How many spare frames of this size there are.
    pub fn spares(&self, size: usize) -> usize {
        self.spare.iter().filter(|frame| frame.len() == size).count()
    }

    /// How many frames to get when a set has to grow: a sixteenth of what it has, at least one. Those that are not needed yet
    /// are kept by [`Sets::reuse`].
    pub fn growth(&self, partition: PartitionId) -> usize {
        self.set(partition).growth()
    }

    /// Writes the committed state of a segment to `out`, with header and checksum: of a white segment as the sweep in
    /// progress wants it, else the present one.
    ///
    /// # Panics
    /// If the segment is lent, or `out` has another size.
    pub fn image(&self, partition: PartitionId, segment: u32, out: &mut [u8]) {
        let (set, number) = (self.set(partition), segment as usize);
        match set.segments[number].preserved.as_ref().map(|preserved| &preserved.state) {
            None if set.segments[number].uncommitted == 0 => set.image(number, &[], out),
            None => set.image(number, &self.shadows_in(partition, number), out),
            Some(PreservedState::Image(saved)) => out.copy_from_slice(saved),
            Some(PreservedState::Records(versions)) => set.stable_image(number, versions, out),
        }
    }

    /// Whether copy `copy` (0 or 1) of the backup has an older state of a segment than [`Sets::image`] gives.
    pub fn is_dirty(&self, partition: PartitionId, segment: u32, copy: usize) -> bool {
        let segment = &self.set(partition).segments[segment as usize];
        let dirty = segment.preserved.as_ref().map_or(segment.dirty, |preserved| preserved.dirty);
        dirty & 1 << copy != 0
    }

    /// Notes that copy `copy` of the backup gets what [`Sets::image`] gives. To be called in the same step as that or
    /// [`Sets::lend`], and before [`Sets::take_snapshot`] or [`Sets::mark_taken`]; commits set both bits again.
    pub fn clear_dirty(&mut self, partition: PartitionId, segment: u32, copy: usize) {
        let segment = &mut self.set_mut(partition).segments[segment as usize];
        let dirty = segment.preserved.as_mut().map_or(&mut segment.dirty, |preserved| &mut preserved.dirty);
        *dirty &= !(1 << copy);
    }

    /// Notes that copy `copy` of the backup did not get what [`Sets::clear_dirty`] said it would.
    pub fn mark_dirty(&mut self, partition: PartitionId, segment: u32, copy: usize) {
        self.set_mut(partition).segments[segment as usize].dirty |= 1 << copy;
    }

    /// Hands out a segment itself, with header and checksum, for a write without a copy. `None` while an unfinished
    /// transaction has changed it, if the sweep in progress wants an earlier state of it, or if it is lent already.
    pub fn lend(&mut self, partition: PartitionId, segment: u32) -> Option<Frame> {
        let set = self.set_mut(partition);
        let number = segment as usize;
        let found = &set.segments[number];
        if found.is_lent() || found.uncommitted > 0 || found.preserved.is_some() {
            return None;
        }
        let header = set.header(number, set.segments[number].tail());
        header.seal(set.segments[number].bytes_mut());
        let frame = set.segments[number].lend();
        set.update_room(number);
        Some(frame)
    }

    /// Takes a lent segment back.
    ///
    /// # Panics
    /// If the segment is not lent.
    pub fn take_back(&mut self, partition: PartitionId, segment: u32, frame: Frame) {
        let set = self.set_mut(partition);
        set.segments[segment as usize].take_back(frame);
        set.update_room(segment as usize);
    }
}

impl Set {
    /// See [`Sets::growth`].
    pub(super) fn growth(&self) -> usize {
        (self.segments.len() / 16).min(GROWTH_MAX / self.segment_size).max(1)
    }
}
