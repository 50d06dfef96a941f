//! The frames and what is in them: plain synchronous bookkeeping, no I/O.

mod changes;
mod check;
mod counts;
mod floors;
mod permissions;
mod shipping;
mod sources;
mod victim;

use super::levels::Levels;
use super::loading::Loading;
use crate::Error;
use crate::second_level::design::Pattern;
use base::{Lsn, PageId, PartitionId};
use driver::{Frame, FrameArray};
use executor::TaskId;
use floors::Floors;
use permissions::Permissions;
pub use shipping::Departure;
use sources::PageSources;
use structures::page::{Change, HEADER_SIZE, Pages, header, slotted};
use structures::replacement::{Hated, Policy, Replacement};
use structures::{Need, PageTable};

/// What is known of a frame and the page in it.
struct FrameDescriptor {
    page: PageId,
    pins: u32,
    state: FrameState,
    dirty: bool,
    /// While a copy of the page is being written back.
    writing: bool,
    /// Whether the page was changed since it came into the buffer.
    modified: bool,
    /// How the page came to be read.
    pattern: Pattern,
    /// Start of the log record that made the page dirty: redo of this page begins no earlier.
    recovery_lsn: Lsn,
    /// The same for the copy that is being written.
    writing_lsn: Lsn,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FrameState {
    Free,
    Loading,
    Resident,
}

/// What the pool knows of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// In this frame.
    Resident(u32),
    /// Being read into this frame.
    Loading(u32),
    /// Not here.
    Absent,
}

/// The buffer's frames. Invariants, checked by [`Pool::check`]: the page table and the slots agree; a frame that is dirty,
/// pinned, loading or being written never leaves; every resident frame stands in the replacement order, but for those whose
/// pages stay for good.
///
/// A frame is absent while it is lent to a read.
pub struct Pool {
    slots: Vec<FrameDescriptor>,
    /// The frames before this one take part in replacement.
    replaceable: u32,
    frames: FrameArray,
    /// The frames from `replaceable` on.
    lasting_frames: Vec<Option<Frame>>,
    free: Vec<u32>,
    /// Free frames of pages that stay for good.
    lasting: Vec<u32>,
    table: PageTable,
    replacement: Box<dyn Replacement>,
    hated: Hated,
    departure: Option<Departure>,
    /// Tasks waiting for reads.
    loading: Loading,
    capacities: Vec<u32>,
    floors: Floors,
    sources: PageSources,
    page_size: usize,
    dirty: usize,
    permissions: Permissions,
    /// What lies below, which may have copies that a change makes out of date.
    levels: Levels,
}

impl Pool {
    /// A pool of these frames, each of one page's size.
    pub fn new(frames: Vec<Frame>, page_size: usize, policy: Policy) -> Pool {
        let replacement = policy.build(frames.len());
        let replaceable = frames.len() as u32;
        let free = (0..replaceable).rev().collect();
        let slots = frames.iter().map(|_| FrameDescriptor::FREE).collect();
        Pool {
            sources: PageSources::new(frames.len()),
            slots,
            replaceable,
            frames: FrameArray::new(frames),
            lasting_frames: Vec::new(),
            free,
            lasting: Vec::new(),
            table: PageTable::default(),
            replacement,
            hated: Hated::default(),
            departure: None,
            loading: Loading::default(),
            capacities: Vec::new(),
            floors: Floors::default(),
            page_size,
            dirty: 0,
            permissions: Permissions::default(),
            levels: Levels::default(),
        }
    }

    /// From now on changes of pages are told to these levels.
    pub fn set_levels(&mut self, levels: Levels) {
        self.levels = levels;
    }

    /// Adds frames for pages that stay for good.
    pub fn add_lasting(&mut self, frames: Vec<Frame>) {
        let first = self.slots.len() as u32;
        self.lasting.extend((first..first + frames.len() as u32).rev());
        self.slots.extend(frames.iter().map(|_| FrameDescriptor::FREE));
        self.lasting_frames.extend(frames.into_iter().map(Some));
    }

    /// The bytes of a frame that is not lent.
    #[inline]
    fn frame_bytes(&self, frame: u32) -> Option<&[u8]> {
        if frame < self.replaceable {
            self.frames.get(frame as usize)
        } else {
            self.lasting_frames[(frame - self.replaceable) as usize].as_deref()
        }
    }

    /// The bytes in a resident frame, to be changed: [`Pool::note_change`] has to follow.
    #[inline]
    pub fn bytes_mut(&mut self, frame: u32) -> &mut [u8] {
        let bytes = if frame < self.replaceable {
            self.frames.get_mut(frame as usize)
        } else {
            self.lasting_frames[(frame - self.replaceable) as usize].as_deref_mut()
        };
        bytes.expect("a resident frame is not lent")
    }

    fn lend(&mut self, frame: u32) -> Frame {
        let lent = if frame < self.replaceable {
            self.frames.take(frame as usize)
        } else {
            self.lasting_frames[(frame - self.replaceable) as usize].take()
        };
        lent.expect("a free frame is in the array")
    }

    fn take_back(&mut self, frame: u32, bytes: Frame) {
        if frame < self.replaceable {
            self.frames.put(frame as usize, bytes);
            if self.sources.is_unused(frame) {
                self.frames.mark(frame as usize);
            }
        } else {
            self.lasting_frames[(frame - self.replaceable) as usize] = Some(bytes);
        }
    }

    /// A free frame for a page that stays for good.
    pub fn take_lasting(&mut self) -> Option<u32> {
        self.lasting.pop()
    }

    /// How many frames there are.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there are no frames at all.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// How many resident pages are newer than on the medium.
    pub fn dirty_count(&self) -> usize {
        self.dirty
    }

    /// States how many pages the partition's file has room for.
    pub fn set_capacity(&mut self, partition: PartitionId, pages: u32) {
        let index = usize::from(partition.0);
        if self.capacities.len() <= index {
            self.capacities.resize(index + 1, 0);
        }
        self.capacities[index] = pages;
    }

    /// Where the page is.
    pub fn presence(&self, id: PageId) -> Presence {
        match self.table.get(id) {
            None => Presence::Absent,
            Some(frame) if self.slots[frame as usize].state == FrameState::Loading => Presence::Loading(frame),
            Some(frame) => Presence::Resident(frame),
        }
    }

    /// The bytes in a resident frame.
    pub fn bytes(&self, frame: u32) -> &[u8] {
        self.frame_bytes(frame).expect("a resident frame is not lent")
    }

    /// The page in a frame that is not free.
    pub fn page_of(&self, frame: u32) -> PageId {
        self.slots[frame as usize].page
    }

    /// Keeps the frame's page from leaving until [`Pool::unpin`].
    pub fn pin(&mut self, frame: u32) {
        self.slots[frame as usize].pins += 1;
    }

    /// Takes one pin back.
    pub fn unpin(&mut self, frame: u32) {
        let pins = &mut self.slots[frame as usize].pins;
        *pins = pins.checked_sub(1).expect("each unpin has its pin");
    }

    /// How many references there were to pages that may be replaced.
    pub fn references(&self) -> u64 {
        self.replacement.references()
    }

    /// Whether there was one to this frame's page after the first `before` references; a page that stays for good counts as
    /// referenced.
    pub fn is_referenced_since(&self, frame: u32, before: u64) -> bool {
        frame >= self.replaceable || self.replacement.latest(frame) > before
    }

    /// How many frames are free.
    pub fn free_count(&self) -> usize {
        self.free.len()
    }

    /// A free frame's number, if there is one.
    pub fn take_free(&mut self) -> Option<u32> {
        self.free.pop()
    }

    /// Gives back a frame from [`Pool::take_free`] or [`Pool::evict`] that was not used.
    pub fn give_free(&mut self, frame: u32) {
        debug_assert_eq!(self.slots[frame as usize].state, FrameState::Free);
        self.free_list(frame).push(frame);
    }

    fn free_list(&mut self, frame: u32) -> &mut Vec<u32> {
        if frame < self.replaceable { &mut self.free } else { &mut self.lasting }
    }

    /// Dirty frames whose changes begin before `lsn`, ordered by page so that they are written in the order of the file.
    pub fn dirty_before(&self, lsn: Lsn) -> Vec<u32> {
        let old = |slot: &FrameDescriptor| slot.dirty && !slot.writing && slot.recovery_lsn < lsn;
        let mut frames: Vec<u32> =
            (0..self.slots.len() as u32).filter(|frame| old(&self.slots[*frame as usize])).collect();
        frames.sort_by_key(|frame| self.slots[*frame as usize].page);
        frames
    }

    /// The pages that are newer than on the medium.
    pub fn dirty_pages(&self) -> impl Iterator<Item = PageId> {
        self.slots.iter().filter(|slot| slot.dirty).map(|slot| slot.page)
    }

    /// The log position from which redo has to begin so that no page on the medium lacks a change; `None` if all are clean.
    pub fn recovery_lsn(&self) -> Option<Lsn> {
        let dirty = self.slots.iter().filter(|slot| slot.dirty).map(|slot| slot.recovery_lsn);
        let writing = self.slots.iter().filter(|slot| slot.writing).map(|slot| slot.writing_lsn);
        dirty.chain(writing).min()
    }

    /// The frame of a resident page.
    pub fn frame_of(&self, id: PageId) -> Option<u32> {
        match self.presence(id) {
            Presence::Resident(frame) => Some(frame),
            _ => None,
        }
    }

    /// Whether the frame's page is newer than on the medium.
    pub fn is_dirty(&self, frame: u32) -> bool {
        self.slots[frame as usize].dirty
    }

    /// Whether a copy of the frame's page is being written.
    pub fn is_writing(&self, frame: u32) -> bool {
        self.slots[frame as usize].writing
    }

    /// Whether the frame's page was changed since it came into the buffer.
    pub fn is_modified(&self, frame: u32) -> bool {
        self.slots[frame as usize].modified
    }

    /// How the frame's page came to be read.
    pub fn pattern(&self, frame: u32) -> Pattern {
        self.slots[frame as usize].pattern
    }

    /// The copy that is being written stands for older changes, too, that begin there.
    pub fn extend_writing(&mut self, frame: u32, lsn: Lsn) {
        let slot = &mut self.slots[frame as usize];
        debug_assert!(slot.writing);
        slot.writing_lsn = slot.writing_lsn.min(lsn);
    }

    /// Where the changes of the copy that is being written begin.
    pub fn writing_lsn(&self, frame: u32) -> Lsn {
        self.slots[frame as usize].writing_lsn
    }

    /// Whether the frame holds a clean page without users.
    pub fn may_leave(&self, frame: u32) -> bool {
        let slot = &self.slots[frame as usize];
        frame < self.replaceable && slot.state == FrameState::Resident && slot.pins == 0 && !slot.dirty && !slot.writing
    }

    /// Removes a clean, unpinned page from its frame; `leave` tells the policy.
    fn remove_page(&mut self, frame: u32, leave: fn(&mut (dyn Replacement + 'static), u32)) {
        assert!(self.may_leave(frame), "only a clean page that is not in use leaves the buffer");
        if let Some(departure) = &self.departure {
            departure(self.page_of(frame), self.bytes(frame));
        }
        self.note_floor(frame);
        self.forget_source(frame);
        let slot = &mut self.slots[frame as usize];
        slot.state = FrameState::Free;
        self.table.remove(slot.page);
        leave(&mut *self.replacement, frame);
        self.hated.forget(frame);
        self.permissions.forget(frame);
    }

    /// Empties every frame of a partition's pages from `first` on, which are not used any more, changed or not. Whether all are empty.
    pub fn discard(&mut self, partition: PartitionId, first: u32) -> bool {
        let mut is_done = true;
        for frame in 0..self.slots.len() as u32 {
            let slot = &mut self.slots[frame as usize];
            let is_of = slot.page.partition == partition && slot.page.number >= first;
            if slot.state == FrameState::Free || !is_of {
                continue;
            }
            if slot.state == FrameState::Loading || slot.pins > 0 || slot.writing {
                is_done = false;
                continue;
            }
            self.empty(frame);
        }
        if is_done && first == 0 {
            self.table.forget(partition);
        }
        is_done
    }

    /// Pages of a partition from this number on are as on the medium.
    pub fn end_of_changes(&self, partition: PartitionId) -> u32 {
        let is_changed = |slot: &&FrameDescriptor| slot.state != FrameState::Free && (slot.dirty || slot.writing);
        let changed = self.slots.iter().filter(is_changed).map(|slot| slot.page);
        changed.filter(|page| page.partition == partition).map(|page| page.number + 1).max().unwrap_or(0)
    }

    /// Empties the frame of a page, if it is here and its bytes are not the device's any more. Whether it is not here then.
    pub fn discard_page(&mut self, id: PageId) -> bool {
        let Some(frame) = self.table.get(id) else { return true };
        let slot = &self.slots[frame as usize];
        let is_free = slot.state == FrameState::Resident && slot.pins == 0 && !slot.writing;
        if is_free {
            self.empty(frame);
        }
        is_free
    }

    fn empty(&mut self, frame: u32) {
        self.note_floor(frame);
        self.forget_source(frame);
        let slot = &mut self.slots[frame as usize];
        self.dirty -= usize::from(std::mem::take(&mut slot.dirty));
        slot.state = FrameState::Free;
        self.table.remove(slot.page);
        if frame < self.replaceable {
            self.replacement.remove(frame);
            self.hated.forget(frame);
        }
        self.permissions.forget(frame);
        self.free_list(frame).push(frame);
    }

    /// Lends a free frame to the read of `id`.
    pub fn begin_load(&mut self, frame: u32, id: PageId, pattern: Pattern) -> Frame {
        debug_assert!(self.table.get(id).is_none(), "a page is read into one frame only");
        let slot = &mut self.slots[frame as usize];
        debug_assert_eq!(slot.state, FrameState::Free);
        slot.state = FrameState::Loading;
        slot.modified = false;
        slot.pattern = pattern;
        slot.page = id;
        self.table.insert(id, frame);
        self.lend(frame)
    }

    /// The read into the frame ended well: the page is resident.
    pub fn loaded(&mut self, frame: u32, bytes: Frame, woken: &mut Vec<TaskId>) {
        self.take_back(frame, bytes);
        self.slots[frame as usize].state = FrameState::Resident;
        if frame < self.replaceable {
            self.replacement.insert(frame, self.slots[frame as usize].page);
        }
        self.slots[frame as usize].pins += self.loading.loaded(frame, woken);
    }

    /// The read into the frame failed: the frame is free again.
    pub fn load_failed(&mut self, frame: u32, bytes: Frame, woken: &mut Vec<TaskId>) {
        self.take_back(frame, bytes);
        self.forget_source(frame);
        let slot = &mut self.slots[frame as usize];
        slot.state = FrameState::Free;
        self.table.remove(slot.page);
        self.free_list(frame).push(frame);
        self.loading.failed(frame, woken);
    }

    /// A task waits for the read into the frame from now on.
    pub fn begin_wait(&mut self, frame: u32, task: TaskId) -> u64 {
        self.loading.begin(frame, task)
    }

    /// It does so no longer. True if the page is there and pinned for it.
    pub fn end_wait(&mut self, frame: u32, ticket: u64) -> bool {
        self.loading.end(frame, ticket)
    }

    /// Copies a page for writing, sealed with its checksum, and notes that its changes up to now are on their way.
    pub fn begin_write(&mut self, frame: u32, copy: &mut [u8]) -> PageId {
        copy.copy_from_slice(self.bytes(frame));
        header::seal(copy);
        let slot = &mut self.slots[frame as usize];
        assert!(slot.dirty && !slot.writing, "only a dirty page is written, once at a time");
        slot.dirty = false;
        self.dirty -= 1;
        slot.writing = true;
        slot.writing_lsn = slot.recovery_lsn;
        slot.page
    }

    /// Copies a clean page, sealed with its checksum, for the cache.
    pub fn begin_migration(&mut self, frame: u32, copy: &mut [u8]) {
        assert!(self.may_leave(frame), "only a clean page that is not in use migrates");
        copy.copy_from_slice(self.bytes(frame));
        header::seal(copy);
        let slot = &mut self.slots[frame as usize];
        slot.writing = true;
        slot.writing_lsn = Lsn::MAX;
    }

    /// The write of the clean page's copy ended.
    pub fn end_migration(&mut self, frame: u32) {
        let slot = &mut self.slots[frame as usize];
        debug_assert!(slot.writing);
        slot.writing = false;
    }

    /// The write of the copy ended. If it failed, the page is as dirty as before.
    pub fn end_write(&mut self, frame: u32, written: bool) {
        let slot = &mut self.slots[frame as usize];
        debug_assert!(slot.writing);
        slot.writing = false;
        if !written {
            // A change meanwhile may stand for others that are older.
            let since = if slot.dirty { slot.recovery_lsn } else { Lsn::MAX };
            self.dirty += usize::from(!slot.dirty);
            slot.dirty = true;
            slot.recovery_lsn = slot.writing_lsn.min(since);
        }
    }

    /// The frame of a page that the caller has just seen here.
    ///
    /// # Panics
    /// If it is not here.
    #[inline]
    pub fn frame_in_use(&self, id: PageId) -> u32 {
        self.table.get(id).expect("the plan of the change saw the page")
    }

    /// Makes one change of the page in a frame. `start` and `end` bound its log record.
    #[inline]
    pub fn edit(&mut self, frame: u32, change: &Change<'_>, start: Lsn, end: Lsn) {
        change.apply(self.bytes_mut(frame), end);
        self.note_change(frame, start);
    }

    /// The page in a frame is newer than on the medium, by changes that the log describes from `start` on.
    #[inline]
    pub fn note_change(&mut self, frame: u32, start: Lsn) {
        let slot = &mut self.slots[frame as usize];
        if !slot.dirty {
            slot.dirty = true;
            slot.modified = true;
            slot.recovery_lsn = start;
            self.dirty += 1;
            if let Some(lsn) = self.levels.note_update(slot.page) {
                slot.recovery_lsn = start.min(lsn);
            }
        }
    }

    /// Gives a page that is made anew its sequence number.
    pub fn renumber(&mut self, frame: u32, sequence: u64) {
        header::set_sequence(self.bytes_mut(frame), sequence);
    }

    /// The page's bytes without counting a reference.
    #[inline]
    pub fn peek(&self, id: PageId) -> Option<&[u8]> {
        self.frame_bytes(self.table.get(id)?)
    }
}

impl Pages for Pool {
    #[inline]
    fn page(&self, id: PageId) -> Result<&[u8], Need> {
        let frame = self.table.get(id).ok_or(Need::Page(id))?;
        let Some(bytes) = self.frames.get_unmarked(frame as usize) else { return self.page_apart(id, frame) };
        self.replacement.touch(frame);
        Ok(bytes)
    }

    #[inline]
    fn write_permission(&self, id: PageId) -> Result<(), Need> {
        if self.permissions.are_all_here() || self.may_write(id) { Ok(()) } else { Err(Need::Write(id)) }
    }

    #[inline]
    fn prefetch(&self, id: PageId) {
        let Some(frame) = self.table.get(id) else { return };
        if let Some(bytes) = self.frame_bytes(frame) {
            driver::prefetch(slotted::front(bytes));
            driver::prefetch(std::slice::from_ref(&self.slots[frame as usize]));
        }
    }

    fn prefetch_header(&self, id: PageId) -> Option<&[u8]> {
        let frame = self.table.get(id)?;
        let bytes = self.frame_bytes(frame)?;
        driver::prefetch(&bytes[..HEADER_SIZE]);
        driver::prefetch(std::slice::from_ref(&self.slots[frame as usize]));
        Some(bytes)
    }

    fn capacity(&self, partition: PartitionId) -> u32 {
        self.capacities.get(usize::from(partition.0)).copied().unwrap_or(0)
    }

    fn page_size(&self, _: PartitionId) -> usize {
        self.page_size
    }
}

impl FrameDescriptor {
    const FREE: FrameDescriptor = FrameDescriptor {
        page: PageId { partition: PartitionId(u16::MAX), number: u32::MAX },
        pins: 0,
        state: FrameState::Free,
        dirty: false,
        writing: false,
        modified: false,
        pattern: Pattern::Random,
        recovery_lsn: Lsn::ZERO,
        writing_lsn: Lsn::ZERO,
    };
}

/// The error of a buffer in which nothing can leave.
pub fn exhausted(pool: &Pool) -> Error {
    Error::BufferExhausted { frames: pool.len() }
}
