//! The slots of both tiers and what is in them: plain synchronous bookkeeping, no I/O.

mod adopting;
mod changes;
mod check;
mod contents;
mod destaging;
mod free;
mod groups;
mod online;
mod pending;
mod turns;

pub use contents::{CacheContents, Candidate, Contents, Occupant};
pub use destaging::{DestageEnd, PendingDestage};

use changes::ChangedSlots;

use super::design::CachePolicy;
use crate::tier_file::table::PageVersion;
use base::{Lsn, PageId, PartitionId};
use free::FreeSlots;
use pending::PendingSlots;
use std::collections::VecDeque;
use std::ops::Range;
use structures::canary::{self, Canary};
use structures::replacement::Replacement;
use structures::{PageTable, SparseArray};
use turns::Turns;

/// Which tier a slot belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// The second-level cache.
    Cache,
    /// The write buffer.
    WriteBuffer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SlotState {
    Free,
    /// Its copy is being written into it.
    Filling,
    /// The page's own device has this version or a newer one.
    Kept,
    /// Newer than on the page's own device, and nothing is under way to change that.
    Dirty,
    /// Newer than on the page's own device; its write there waits for that of an older version.
    Waiting,
    /// Newer than on the page's own device, and being written there.
    Destaging,
    /// Newer than on the page's own device; the write there failed, or there was no memory for it.
    Failed,
    /// Newer than on the page's own device; it could not be read back to be written there.
    Unreadable,
    /// Nothing is there, and nothing comes there any more: what was could not be read.
    Unusable,
}

impl SlotState {
    fn is_pending(self) -> bool {
        !matches!(self, SlotState::Free | SlotState::Filling | SlotState::Kept | SlotState::Unusable)
    }

    /// Whether the slot, or the page's own place, is being written, or is about to be.
    fn is_under_way(self) -> bool {
        matches!(self, SlotState::Filling | SlotState::Waiting | SlotState::Destaging)
    }

    /// Whether it is newer than on the page's own device, and nothing is under way to change that.
    fn is_idle(self) -> bool {
        matches!(self, SlotState::Dirty | SlotState::Failed | SlotState::Unreadable)
    }
}

#[derive(Clone)]
struct Slot {
    page: PageId,
    state: SlotState,
    /// Which version of the page it holds.
    version: PageVersion,
    /// Whether only the table of an earlier opening says so.
    unverified: bool,
    /// Whether a power cut or a failed write may have torn the page in its own place, so that the slot is needed until a newer
    /// copy is whole.
    home_unsure: bool,
    /// Whether the copy counts as cached: it stands in the replacement order.
    listed: bool,
    reading: bool,
    /// Whether it was read in vain. A slot that takes writes and gives nothing back would take one page after another.
    read_in_vain: bool,
    /// Of a pending copy: redo of its page begins no earlier. While the copy is pending it changes by [`Slots::extend_redo`] alone.
    recovery_lsn: Lsn,
    /// A newer version, whose write waits for the end of this one's.
    newer: Option<u32>,
    /// The older version that is being written.
    older: Option<u32>,
    /// Where a free slot stands in its list.
    listed_at: u32,
}

/// What became of a copy that is newer than on its page's own device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filled {
    /// Whether its write to the page's own device is to start now.
    pub destage: bool,
    /// A slot whose copy will not be written any more, because this one replaces it.
    pub superseded: Option<u32>,
}

/// Where a page finds room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Room {
    /// In this slot, which is taken.
    Slot(u32),
    /// In that of this page, once its own device has it.
    Dirty(PageId),
    /// In one of these, once they have made room.
    Group(Range<u32>),
    /// Nowhere.
    None,
}

/// Which dirty copies are wanted beside those that are on their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirtyWanted {
    /// None.
    None,
    /// Those with old changes.
    Old,
    /// All.
    All,
}

/// What became of a dropped partition's slots.
#[derive(Debug, Default)]
pub struct Discarded {
    /// Emptied ones whose pages' own devices lacked what they held.
    pub emptied: Vec<u32>,
    /// How many are being written or read.
    pub rest: usize,
}

/// The slots. The cache's come first. Invariants, checked by [`Slots::check`]: the directory names the newest copy of each
/// page; a slot that is pending or being read is never free or taken; what is listed is in the directory, and so is what is
/// dirty in the cache; at most one version of a page is being written to its own device.
pub struct Slots {
    slots: SparseArray<Slot>,
    cache: u32,
    free: [FreeSlots; 2],
    /// Slots whose writes have failed, the latest at the end: while they are free, others are taken before them.
    bad: VecDeque<u32>,
    /// How many slots of the cache nothing comes to any more.
    unusable: u32,
    newest: PageTable,
    order: Box<dyn Replacement>,
    /// Those whose copies are newer than on their pages' own devices.
    pending: PendingSlots,
    dirty: usize,
    /// How many slots are being read, or written somewhere.
    busy: usize,
    checkpoints: usize,
    /// Partitions whose devices do not answer: what is dirty of them makes no room.
    silent: Vec<PartitionId>,
    /// Slots of the cache that its table is to state anew, if it has one.
    changes: Option<ChangedSlots>,
    /// Whether a circular design names slots one behind the other.
    turns: Turns,
}

/// How many slots are known as bad at most: where more are, it is the device that fails.
const BAD_MAX: usize = 64;

const NO_PAGE: PageId = PageId::new(PartitionId(u16::MAX), u32::MAX);

impl Slots {
    /// Empty slots: `cache` of the cache, which leave in this order, and `write_buffer` of the write buffer.
    pub fn new(cache: u32, write_buffer: u32, order: Box<dyn Replacement>) -> Slots {
        let slot = Slot {
            page: NO_PAGE,
            state: SlotState::Free,
            version: PageVersion::default(),
            unverified: false,
            home_unsure: false,
            listed: false,
            reading: false,
            read_in_vain: false,
            recovery_lsn: Lsn::MAX,
            newer: None,
            older: None,
            listed_at: 0,
        };
        let count = cache + write_buffer;
        Slots {
            slots: SparseArray::new(slot, count as usize),
            cache,
            free: [FreeSlots::new(0..cache), FreeSlots::new(cache..count)],
            bad: VecDeque::new(),
            unusable: 0,
            newest: PageTable::default(),
            order,
            pending: PendingSlots::default(),
            dirty: 0,
            busy: 0,
            checkpoints: 0,
            silent: Vec::new(),
            changes: None,
            turns: Turns::default(),
        }
    }

    /// The slots that may be other than free and as they were at first, and what they are.
    fn used(&self) -> impl Iterator<Item = (u32, &Slot)> {
        self.slots.present().map(|(number, slot)| (number as u32, slot))
    }

    /// What a design may know.
    pub fn contents(&self) -> Contents<'_> {
        Contents(self)
    }

    /// How many copies are dirty.
    pub fn dirty_count(&self) -> usize {
        self.dirty
    }

    /// From now on the devices of these partitions count as silent, and no others do. Whether others did so before.
    pub fn set_silent(&mut self, silent: Vec<PartitionId>) -> bool {
        std::mem::replace(&mut self.silent, silent) != self.silent
    }

    /// Whether a partition's device counts as silent.
    pub fn is_silent(&self, partition: PartitionId) -> bool {
        self.silent.contains(&partition)
    }

    /// A checkpoint begins.
    pub fn begin_checkpoint(&mut self) {
        self.checkpoints += 1;
    }

    /// A checkpoint has ended.
    pub fn end_checkpoint(&mut self) {
        self.checkpoints -= 1;
    }

    /// The tier that the slot belongs to, and its number there.
    pub fn place(&self, slot: u32) -> (Tier, u32) {
        if slot < self.cache { (Tier::Cache, slot) } else { (Tier::WriteBuffer, slot - self.cache) }
    }

    /// How many copies are newer than on their pages' own devices.
    pub fn pending_count(&self) -> usize {
        self.pending.count()
    }

    /// How many copies count as cached.
    pub fn listed_count(&self) -> usize {
        self.used().filter(|(_, slot)| slot.listed).count()
    }

    /// The slot of the page's newest copy.
    pub fn lookup(&self, page: PageId) -> Option<u32> {
        self.newest.get(page)
    }

    /// Room for a copy of `page`: the page's own slot if that may be overwritten, else a free one, else in the cache the one
    /// that its design gives up. A circular design names the slot whether others are free or not.
    pub fn take(&mut self, tier: Tier, page: PageId, policy: &mut dyn CachePolicy) -> Room {
        let is_circular = tier == Tier::Cache && policy.is_circular();
        let own = self.newest.get(page).filter(|own| {
            let slot = &self.slots[*own as usize];
            !is_circular && slot.state == SlotState::Kept && !slot.reading && self.place(*own).0 == tier
        });
        let is_full = self.free_beside_bad(tier) == 0;
        let named = match own {
            None if is_circular || (is_full && tier == Tier::Cache) => policy.victim(&Contents(self)),
            own => own,
        };
        if is_circular {
            named.into_iter().for_each(|slot| self.note_turn(slot, &*policy));
        }
        match named.map(|slot| (slot, self.slots[slot as usize].state)) {
            Some((slot, SlotState::Dirty)) if !canary::is_planted(Canary::UncleanReuse) => {
                return Room::Dirty(self.slots[slot as usize].page);
            }
            Some((_, SlotState::Free)) => {}
            Some((slot, _)) => {
                self.empty(slot);
                if self.slots[slot as usize].state == SlotState::Unusable {
                    return self.take(tier, page, policy);
                }
            }
            None if is_circular => return policy.next_group(self.cache).map_or(Room::None, Room::Group),
            None => {}
        }
        let Some(taken) = self.take_free(tier, named) else { return Room::None };
        self.set_state(taken, SlotState::Filling);
        Room::Slot(taken)
    }

    /// The slot's copy is in this state from now on.
    fn set_state(&mut self, slot: u32, state: SlotState) {
        let before = std::mem::replace(&mut self.slots[slot as usize].state, state);
        let [was_dirty, is_dirty] = [before, state].map(|state| state == SlotState::Dirty);
        self.busy = self.busy + usize::from(state.is_under_way()) - usize::from(before.is_under_way());
        self.pending.change((self.slots[slot as usize].recovery_lsn, slot), before, state);
        self.dirty = self.dirty + usize::from(is_dirty) - usize::from(was_dirty);
        if was_dirty != is_dirty && self.slots[slot as usize].listed {
            self.order.set_dirty(slot, is_dirty);
        }
    }

    /// Gives back a slot from [`Slots::take`] that was not filled.
    pub fn give_back(&mut self, slot: u32) {
        assert_eq!(self.slots[slot as usize].state, SlotState::Filling, "only a taken slot is given back");
        self.empty(slot);
    }

    /// The slot holds a copy of a page that its own device holds, too. `listed`: it counts as cached.
    pub fn filled_clean(&mut self, slot: u32, page: PageId, listed: bool) {
        assert!(self.newest.get(page).is_none(), "a page that has a copy is not copied anew while it is unchanged");
        self.fill(slot, page, SlotState::Kept, listed);
        self.note_change(slot);
        self.release_if_unneeded(slot);
    }

    /// The slot durably holds a copy of a page that is newer than on its own device. `recovery_lsn` is where redo of the page
    /// begins as long as that is so; `listed`: it counts as cached; `at_once`: it is not to stay dirty.
    pub fn filled_dirty(
        &mut self,
        slot: u32,
        page: PageId,
        (recovery_lsn, listed): (Lsn, bool),
        at_once: bool,
    ) -> Filled {
        let old = self.newest.get(page);
        let (mut older, mut superseded, mut lsn) = (None, None, recovery_lsn);
        let mut home_unsure = false;
        if let Some(old) = old {
            lsn = lsn.min(self.slots[old as usize].recovery_lsn);
            home_unsure = self.slots[old as usize].home_unsure;
            self.unlist(old);
            match self.slots[old as usize].state {
                // The older version may be written after the newer one.
                SlotState::Destaging if canary::is_planted(Canary::OvertakenClean) => self.newest.remove(page),
                SlotState::Destaging => {
                    self.newest.remove(page);
                    self.note_change(old);
                    self.slots[old as usize].newer = Some(slot);
                    older = Some(old);
                }
                SlotState::Waiting | SlotState::Dirty | SlotState::Failed | SlotState::Unreadable => {
                    older = self.slots[old as usize].older.take();
                    older.into_iter().for_each(|first| self.slots[first as usize].newer = Some(slot));
                    superseded = Some(old);
                    self.empty(old);
                }
                SlotState::Kept => self.empty(old),
                state => unreachable!("a copy in the directory is not {state:?}"),
            }
        }
        let destage = at_once && older.is_none();
        let state = match (at_once, older) {
            (false, _) => SlotState::Dirty,
            (true, None) => SlotState::Destaging,
            (true, Some(_)) => SlotState::Waiting,
        };
        self.slots[slot as usize].recovery_lsn = lsn;
        self.fill(slot, page, state, listed);
        self.note_change(slot);
        let filled = &mut self.slots[slot as usize];
        (filled.older, filled.home_unsure) = (older, home_unsure);
        Filled { destage, superseded }
    }

    /// The write of a taken slot has failed. It may fail there again.
    pub fn note_bad(&mut self, slot: u32) {
        if self.bad.contains(&slot) {
            return;
        }
        if self.bad.len() == BAD_MAX {
            self.bad.pop_front();
        }
        self.bad.push_back(slot);
    }

    /// A slot could not be read, or gave back what was not written there: nothing else is to come there.
    pub fn note_read_in_vain(&mut self, slot: u32) {
        self.slots[slot as usize].read_in_vain = true;
    }

    fn fill(&mut self, slot: u32, page: PageId, state: SlotState, listed: bool) {
        assert_eq!(self.slots[slot as usize].state, SlotState::Filling, "only a taken slot is filled");
        self.slots[slot as usize].page = page;
        self.set_state(slot, state);
        self.newest.insert(page, slot);
        if listed {
            self.list(slot);
        }
    }

    fn list(&mut self, slot: u32) {
        if slot < self.cache && !self.slots[slot as usize].listed {
            self.slots[slot as usize].listed = true;
            self.order.insert(slot, self.slots[slot as usize].page);
            self.order.set_dirty(slot, self.slots[slot as usize].state == SlotState::Dirty);
        }
    }

    fn unlist(&mut self, slot: u32) {
        if std::mem::take(&mut self.slots[slot as usize].listed) {
            self.order.evict(slot);
        }
    }

    /// Nothing is in the slot any more.
    fn empty(&mut self, slot: u32) {
        self.unlist(slot);
        let is_usable = !self.slots[slot as usize].read_in_vain;
        self.set_state(slot, if is_usable { SlotState::Free } else { SlotState::Unusable });
        let entry = &mut self.slots[slot as usize];
        let page = std::mem::replace(&mut entry.page, NO_PAGE);
        (entry.newer, entry.older, entry.recovery_lsn) = (None, None, Lsn::MAX);
        (entry.unverified, entry.home_unsure) = (false, false);
        if page != NO_PAGE && self.newest.get(page) == Some(slot) {
            self.newest.remove(page);
        }
        match is_usable {
            true => self.add_free(slot),
            false => self.unusable += u32::from(slot < self.cache),
        }
        if page != NO_PAGE {
            self.note_change(slot);
        }
    }

    fn release_if_unneeded(&mut self, slot: u32) {
        let entry = &self.slots[slot as usize];
        if entry.state == SlotState::Kept && !entry.listed && !entry.reading {
            self.empty(slot);
        }
    }

    /// Main memory has a newer version of the page. Its copy is not used again: the slot is emptied, now or when what is under
    /// way for it has ended. Returns where redo of the page begins, if its own device lacked the copy that was emptied.
    pub fn outdate(&mut self, page: PageId) -> Option<Lsn> {
        let slot = self.newest.get(page)?;
        let entry = &self.slots[slot as usize];
        match entry.state {
            SlotState::Kept if !entry.reading => self.empty(slot),
            SlotState::Dirty if entry.home_unsure => {}
            SlotState::Dirty if !entry.reading && entry.older.is_none() => return Some(self.supersede(slot)),
            SlotState::Waiting | SlotState::Destaging => self.unlist(slot),
            _ => {}
        }
        None
    }

    /// The copy is not needed any more, although its page's own device lacks it: a newer version is about to be written there.
    /// Returns where redo of the page begins until then.
    pub fn supersede(&mut self, slot: u32) -> Lsn {
        let entry = &self.slots[slot as usize];
        assert!(entry.state.is_idle() && entry.older.is_none() && !entry.reading, "only an idle copy is superseded");
        let lsn = entry.recovery_lsn;
        self.empty(slot);
        lsn
    }

    /// The page's copy is being read: its slot stays as it is.
    pub fn begin_read(&mut self, slot: u32) {
        self.busy += usize::from(!std::mem::replace(&mut self.slots[slot as usize].reading, true));
    }

    /// The read ended. `leaves`: the page is in main memory now and counts as cached no longer, unless it is dirty here; else
    /// it was used just now.
    pub fn end_read(&mut self, slot: u32, leaves: bool) {
        let entry = &mut self.slots[slot as usize];
        self.busy -= usize::from(std::mem::take(&mut entry.reading));
        if leaves && entry.state == SlotState::Dirty && entry.older.is_none() && canary::is_planted(Canary::LeftDirty) {
            return self.empty(slot);
        }
        if leaves && entry.state != SlotState::Dirty {
            self.unlist(slot);
        } else if entry.listed {
            self.order.touch(slot);
        }
        self.release_if_unneeded(slot);
    }

    /// An unchanged page leaves main memory: a copy of it that is still in the cache stays there, and counts as used just now
    /// if that `is_use`. False if there is none.
    pub fn refresh(&mut self, page: PageId, is_use: bool) -> bool {
        match self.newest.get(page) {
            Some(slot) if self.slots[slot as usize].listed => {
                if is_use {
                    self.order.touch(slot);
                }
            }
            Some(slot) => self.list(slot),
            None => return false,
        }
        true
    }

    /// The page's copy is out of date or damaged.
    pub fn forget(&mut self, page: PageId) {
        if let Some(slot) = self.newest.get(page) {
            let entry = &self.slots[slot as usize];
            assert!(entry.state == SlotState::Kept && !entry.reading, "only a copy that is not needed is forgotten");
            self.empty(slot);
        }
    }

    /// Empties the slot with a page's copy, if there is one that nothing is under way for: the page's contents are not needed
    /// any more. Whether there is none then.
    pub fn discard_page(&mut self, page: PageId) -> bool {
        let Some(slot) = self.newest.get(page) else { return true };
        let entry = &self.slots[slot as usize];
        let is_idle = (entry.state == SlotState::Kept || entry.state.is_idle()) && entry.older.is_none();
        let is_free = is_idle && !entry.reading;
        if is_free {
            self.empty(slot);
        }
        is_free
    }

    /// Empties every slot of a partition's pages from `first` on that nothing is under way for.
    pub fn discard(&mut self, partition: PartitionId, first: u32) -> Discarded {
        let mut discarded = Discarded::default();
        let is_page = |page: PageId| page.partition == partition && page.number >= first && page != NO_PAGE;
        // What the directory does not name gives way to a newer version.
        let older = self.pending().filter(|(_, slot)| is_page(slot.page)).map(|(number, _)| number);
        let newest = self.newest.pages_of(partition, first).map(|(_, slot)| slot);
        let mut found: Vec<u32> = newest.chain(older).collect();
        found.sort_unstable();
        found.dedup();
        for slot in found {
            let entry = &self.slots[slot as usize];
            match entry.state {
                SlotState::Kept | SlotState::Failed | SlotState::Unreadable if !entry.reading => {
                    if entry.state != SlotState::Kept {
                        discarded.emptied.push(slot);
                    }
                    self.empty(slot);
                }
                SlotState::Dirty if !entry.reading && entry.older.is_none() => self.empty(slot),
                _ => discarded.rest += 1,
            }
        }
        discarded
    }

    /// Whether the slot's copy is newer than on its page's own device.
    pub fn is_pending(&self, slot: u32) -> bool {
        self.slots[slot as usize].state.is_pending()
    }

    /// Whether the slot's copy may stay in memory, too: its write to its page's own device has begun, waits for another one, or
    /// has failed.
    pub fn may_be_kept(&self, slot: u32) -> bool {
        self.is_pending(slot) && self.slots[slot as usize].state != SlotState::Dirty
    }

    /// The page whose copy is in the slot.
    pub fn page_of(&self, slot: u32) -> PageId {
        self.slots[slot as usize].page
    }

    /// The cached pages, in the order in which they should leave.
    pub fn listed(&self) -> Vec<PageId> {
        let mut pages = Vec::new();
        self.order.coldest(&mut |slot| {
            pages.push(self.slots[slot as usize].page);
            true
        });
        pages
    }
}
