//! Which regions of the double-write area hold copies that are still needed: plain bookkeeping.

use base::{PageId, PartitionId};
use std::collections::BTreeMap;
use structures::canary::{self, Canary};

/// How many regions the area has, unless devices that do not answer or fail keep some of them.
pub(super) const REGIONS: usize = 4;

/// How many it has at most.
pub(super) const REGIONS_MAX: usize = 64;

/// When no more are free, those whose pages are written are made free again: the last one takes what comes meanwhile.
const FREE_MIN: usize = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    /// Staged pages are being written in place, or more are staged here.
    Busy,
    /// All are written, not yet durable.
    Written,
    /// At least one could not be written and may be torn in place: these copies are kept until such pages are durable in place, or
    /// their copies elsewhere in the area, or they are not needed any more, or the database is opened again.
    Kept,
    /// They are being made durable.
    Syncing,
    /// They have been for so long that no other region waits for that.
    Late,
}

#[derive(Debug)]
struct Region {
    state: State,
    /// Calls whose pages are not all written in place.
    writers: u32,
    /// How many of its copies are kept because their pages could not be written in place.
    failed: usize,
    /// Which copies it has, with their places in it, in the order of their writes.
    copies: Vec<(usize, PageId)>,
    /// Whose pages are staged here.
    partitions: Vec<PartitionId>,
}

impl Region {
    fn new(state: State) -> Region {
        Region { state, writers: 0, failed: 0, copies: Vec::new(), partitions: Vec::new() }
    }
}

/// Where a copy lies: the region, and the place in it.
pub(super) type CopyPlace = (usize, usize);

/// Kept copies of several regions that find room in one.
#[derive(Debug)]
pub(super) struct RegionCompaction {
    /// That one. They lie side by side at its front then, in this order.
    pub(super) region: usize,
    /// The pages, and where their copies are.
    pub(super) copies: Vec<(PageId, CopyPlace)>,
}

/// The regions, and how far the present one is filled. A place that was taken is not taken again before its region was free.
#[derive(Debug)]
pub(super) struct Regions {
    regions: Vec<Region>,
    /// The region that is being filled, and how many of its pages are taken.
    present: Option<(usize, usize)>,
    /// Pages that could not be written in place, and where their latest copies are.
    failed: BTreeMap<PageId, CopyPlace>,
    /// How many pages a region holds.
    pages: usize,
    /// How many pages share a block of the device. Two writes never do: one that is torn may damage all of its blocks.
    block_pages: usize,
    /// How many regions there are at most. The last of them is free for compactions.
    regions_max: usize,
}

impl Regions {
    /// Free ones of this many pages.
    pub(super) fn new(pages: usize, block_pages: usize) -> Regions {
        Regions::limited(pages, block_pages, REGIONS_MAX)
    }

    fn limited(pages: usize, block_pages: usize, regions_max: usize) -> Regions {
        let regions = (0..REGIONS).map(|_| Region::new(State::Free)).collect();
        Regions { regions, present: None, failed: BTreeMap::new(), pages, block_pages, regions_max }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.regions.len()
    }

    /// Whether there may be one more.
    pub(super) fn may_grow(&self) -> bool {
        self.count() < self.regions_max
    }

    /// There is one more, which is free.
    pub(super) fn add(&mut self) {
        assert!(self.may_grow(), "the area has a limit");
        self.regions.push(Region::new(State::Free));
    }

    fn count_of(&self, state: State) -> usize {
        self.regions.iter().filter(|region| region.state == state).count()
    }

    /// Whether a free region may be filled.
    fn has_free(&self) -> bool {
        self.count_of(State::Free) > usize::from(!self.may_grow())
    }

    /// Takes room for `pages` pages of these partitions side by side, which `writers` calls are going to write in place: a region and
    /// the first page in it. `None` if no region is free.
    pub(super) fn take(&mut self, pages: usize, writers: u32, partitions: &[PartitionId]) -> Option<CopyPlace> {
        assert!(pages <= self.pages, "{pages} pages do not fit a region of {}", self.pages);
        let next = self.present.map(|(region, filled)| (region, filled.next_multiple_of(self.block_pages)));
        let (region, first) = match next {
            Some((region, next)) if next + pages <= self.pages => (region, next),
            _ => (self.begin_region()?, 0),
        };
        self.present = Some((region, first + pages));
        let this = &mut self.regions[region];
        this.writers += writers;
        for partition in partitions {
            if !this.partitions.contains(partition) {
                this.partitions.push(*partition);
            }
        }
        Some((region, first))
    }

    /// The present region is full, another one becomes it.
    fn begin_region(&mut self) -> Option<usize> {
        if let Some((full, _)) = self.present.take() {
            self.end_staging(full);
        }
        self.has_free().then(|| self.take_free()).flatten()
    }

    fn take_free(&mut self) -> Option<usize> {
        let free = self.regions.iter().position(|region| region.state == State::Free)?;
        self.regions[free] = Region::new(State::Busy);
        Some(free)
    }

    /// How many pages could not be written in place.
    pub(super) fn failed_count(&self) -> usize {
        self.failed.len()
    }

    /// Whether a page could not be written in place.
    pub(super) fn has_failed(&self, page: PageId) -> bool {
        self.failed.contains_key(&page)
    }

    /// Whether that is so of a page of this partition.
    pub(super) fn is_failing(&self, partition: PartitionId) -> bool {
        self.failed.range(PageId::new(partition, 0)..).next().is_some_and(|(page, _)| page.partition == partition)
    }

    /// Copies of these pages were staged side by side just now, the first of them there, and are durable: earlier ones are needed no more.
    pub(super) fn staged(&mut self, (region, first): CopyPlace, pages: &[PageId]) {
        self.release(pages.iter().copied());
        self.regions[region].copies.extend((first..).zip(pages.iter().copied()));
    }

    /// The copies of these pages are not needed any more.
    pub(super) fn release(&mut self, pages: impl Iterator<Item = PageId>) {
        if self.failed.is_empty() {
            return;
        }
        for page in pages {
            if let Some((region, _)) = self.failed.remove(&page) {
                self.note_released(region);
            }
        }
    }

    /// The pages of a partition from this number on are not used any more.
    pub(super) fn forget(&mut self, partition: PartitionId, from: u32) {
        let range = PageId::new(partition, from)..=PageId::new(partition, u32::MAX);
        let forgotten: Vec<PageId> = self.failed.range(range).map(|(page, _)| *page).collect();
        self.release(forgotten.into_iter());
    }

    fn note_released(&mut self, region: usize) {
        let this = &mut self.regions[region];
        this.failed -= 1;
        if this.failed == 0 && this.state == State::Kept {
            // From a compaction's region nothing was written in place.
            this.state = if this.partitions.is_empty() { State::Free } else { State::Written };
        }
    }

    /// A page that is staged here could not be written in place. To be said before it may be staged again.
    pub(super) fn fail(&mut self, region: usize, page: PageId) {
        if canary::is_planted(Canary::DroppedCopy) {
            return;
        }
        let this = &mut self.regions[region];
        debug_assert_eq!(this.state, State::Busy);
        let copy = this.copies.iter().rfind(|(_, copy)| *copy == page);
        let (place, _) = *copy.expect("what is written in place was staged");
        this.failed += 1;
        if let Some((before, _)) = self.failed.insert(page, (region, place)) {
            self.note_released(before);
        }
    }

    /// One call's pages were written in place, but for those that are known to have failed.
    pub(super) fn finish(&mut self, region: usize) {
        let this = &mut self.regions[region];
        debug_assert_eq!(this.state, State::Busy);
        this.writers = this.writers.checked_sub(1).expect("each call finishes once");
        if self.present.is_none_or(|(present, _)| present != region) {
            self.end_staging(region);
        }
    }

    /// Nothing more is staged in a region: it counts as written, or is kept, once the last call has finished.
    fn end_staging(&mut self, region: usize) {
        let this = &mut self.regions[region];
        if this.writers == 0 {
            this.state = if this.failed == 0 { State::Written } else { State::Kept };
        }
    }

    /// The regions whose kept copies, at most `pages_max`, are to be copied to a free one, so that two or more become free for it. None if
    /// there is room without that, or none of it would come.
    fn compactable(&self, pages_max: usize) -> Vec<usize> {
        if self.count_of(State::Free) > FREE_MIN {
            return Vec::new();
        }
        let kept = self.regions.iter().enumerate().filter(|(_, region)| region.state == State::Kept);
        let mut kept: Vec<(usize, usize)> = kept.map(|(number, region)| (region.failed, number)).collect();
        kept.sort_unstable();
        let mut pages = 0;
        let fits = |(failed, _): &(usize, usize)| {
            pages += failed;
            pages <= pages_max
        };
        let from: Vec<usize> = kept.into_iter().take_while(fits).map(|(_, number)| number).collect();
        if from.len() < 2 { Vec::new() } else { from }
    }

    /// Whether a compaction is worth a region, which there is not.
    pub(super) fn lacks_for_compaction(&self, pages_max: usize) -> bool {
        self.count_of(State::Free) == 0 && !self.compactable(pages_max).is_empty()
    }

    /// Begins to copy kept copies, at most `pages_max`, to one region, if that is of use. [`Regions::end_compaction`] follows, and nothing
    /// is staged before.
    pub(super) fn begin_compaction(&mut self, pages_max: usize) -> Option<RegionCompaction> {
        let from = self.compactable(pages_max);
        let region = if from.is_empty() { None } else { self.take_free() }?;
        let moved = self.failed.iter().filter(|(_, (region, _))| from.contains(region));
        let copies = moved.map(|(page, place)| (*page, *place)).collect();
        Some(RegionCompaction { region, copies })
    }

    /// Such copies are durable there, or that has failed.
    pub(super) fn end_compaction(&mut self, RegionCompaction { region, copies }: &RegionCompaction, is_durable: bool) {
        for (place, (page, from)) in copies.iter().enumerate().filter(|_| is_durable) {
            // It may be needed no more.
            if self.failed.get(page) == Some(from) {
                self.failed.insert(*page, (*region, place));
                self.regions[*region].failed += 1;
                self.note_released(from.0);
            }
        }
        let this = &mut self.regions[*region];
        this.state = if this.failed == 0 { State::Free } else { State::Kept };
    }

    /// Whether the written ones should become free before they are missed.
    pub(super) fn are_scarce(&self) -> bool {
        let is_scarce = self.count_of(State::Free) <= FREE_MIN;
        is_scarce && self.count_of(State::Written) > 0 && self.count_of(State::Syncing) == 0
    }

    /// Whether one is free, or can be made free; or none will be.
    pub(super) fn have_room(&self) -> bool {
        self.has_free() || self.count_of(State::Written) > 0 || self.are_all_kept()
    }

    /// Whether none will become free: a later copy of a page that could not be written has no place.
    pub(super) fn are_all_kept(&self) -> bool {
        !self.has_free() && self.regions.iter().all(|region| matches!(region.state, State::Kept | State::Free))
    }

    /// The regions whose pages are written, from now on being made durable, and whose pages these are.
    pub(super) fn begin_sync(&mut self) -> Vec<(usize, Vec<PartitionId>)> {
        let written = self.regions.iter_mut().enumerate().filter(|(_, region)| region.state == State::Written);
        let begin = |(number, region): (usize, &mut Region)| {
            region.state = State::Syncing;
            (number, region.partitions.clone())
        };
        written.map(begin).collect()
    }

    /// It takes long to make a region's pages durable: others are not to wait for that.
    pub(super) fn sync_is_late(&mut self, region: usize) {
        debug_assert_eq!(self.regions[region].state, State::Syncing);
        self.regions[region].state = State::Late;
    }

    /// A region's pages are durable and it is free, or that failed.
    pub(super) fn end_sync(&mut self, region: usize, durable: bool) {
        debug_assert!(matches!(self.regions[region].state, State::Syncing | State::Late));
        self.regions[region].state = if durable { State::Free } else { State::Written };
    }
}

#[cfg(test)]
mod tests;
