//! Which regions of the double-write area hold copies that are still needed: plain bookkeeping.

use base::{PageId, PartitionId};
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
    /// At least one could not be written and may be torn in place: these copies are kept until later ones of all such pages are
    /// staged elsewhere, or the database is opened again.
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
    /// Pages that could not be written in place, and of which no later copy is staged.
    failed: Vec<PageId>,
    /// Whose pages are staged here.
    partitions: Vec<PartitionId>,
}

impl Region {
    fn new(state: State) -> Region {
        Region { state, writers: 0, failed: Vec::new(), partitions: Vec::new() }
    }
}

/// The regions, and how far the present one is filled. A place that was taken is not taken again before its region was free.
#[derive(Debug)]
pub(super) struct Regions {
    regions: Vec<Region>,
    /// The region that is being filled, and how many of its pages are taken.
    present: Option<(usize, usize)>,
    /// How many pages a region holds.
    pages: usize,
    /// How many pages share a block of the device. Two writes never do: one that is torn may damage all of its blocks.
    block_pages: usize,
}

impl Regions {
    /// Free regions of this number of pages, of which `block_pages` share a block of the device.
    pub(super) fn new(pages: usize, block_pages: usize) -> Regions {
        let regions = (0..REGIONS).map(|_| Region::new(State::Free)).collect();
        Regions { regions, present: None, pages, block_pages }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.regions.len()
    }

    /// There is one more, which is free.
    pub(super) fn add(&mut self) {
        assert!(self.count() < REGIONS_MAX, "the area has a limit");
        self.regions.push(Region::new(State::Free));
    }

    /// Takes room for `pages` pages of these partitions side by side, which `writers` calls are going to write in place: a region and
    /// the first page in it. `None` if no region is free.
    pub(super) fn take(&mut self, pages: usize, writers: u32, partitions: &[PartitionId]) -> Option<(usize, usize)> {
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
        let free = self.regions.iter().position(|region| region.state == State::Free)?;
        self.regions[free] = Region::new(State::Busy);
        Some(free)
    }

    /// How many have pages that could not be written in place.
    pub(super) fn failed_count(&self) -> usize {
        self.regions.iter().filter(|region| !region.failed.is_empty()).count()
    }

    /// Copies of these pages were staged just now, and are durable: earlier ones are needed no more.
    pub(super) fn staged(&mut self, pages: impl Iterator<Item = PageId>) {
        let pages: Vec<PageId> = pages.collect();
        for region in &mut self.regions {
            region.failed.retain(|page| !pages.contains(page));
            if region.state == State::Kept && region.failed.is_empty() {
                region.state = State::Written;
            }
        }
    }

    /// One call's pages were written in place, but for those that failed to be.
    pub(super) fn finish(&mut self, region: usize, failed: &[PageId]) {
        let this = &mut self.regions[region];
        debug_assert_eq!(this.state, State::Busy);
        this.writers = this.writers.checked_sub(1).expect("each call finishes once");
        if !canary::is_planted(Canary::DroppedCopy) {
            this.failed.extend(failed);
        }
        if self.present.is_none_or(|(present, _)| present != region) {
            self.end_staging(region);
        }
    }

    /// Nothing more is staged in a region: it counts as written, or is kept, once the last call has finished.
    fn end_staging(&mut self, region: usize) {
        let this = &mut self.regions[region];
        if this.writers == 0 {
            this.state = if this.failed.is_empty() { State::Written } else { State::Kept };
        }
    }

    /// Whether the written ones should become free before they are missed.
    pub(super) fn are_scarce(&self) -> bool {
        let count = |state| self.regions.iter().filter(|region| region.state == state).count();
        count(State::Written) > 0 && count(State::Syncing) == 0 && count(State::Free) <= FREE_MIN
    }

    /// Whether one is free, or can be made free; or none will be.
    pub(super) fn have_room(&self) -> bool {
        let is_room = |region: &Region| matches!(region.state, State::Free | State::Written);
        self.regions.iter().any(is_room) || self.are_all_kept()
    }

    /// Whether none will become free: a later copy of a page that could not be written has no place.
    pub(super) fn are_all_kept(&self) -> bool {
        self.regions.iter().all(|region| region.state == State::Kept)
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
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const PAGES: usize = 8;

    /// What one write stages, as a list of the pages would have it.
    struct Staged {
        region: usize,
        places: std::ops::Range<usize>,
        pages: Vec<PageId>,
        /// Calls that bring pages by turns, and how many of them have not ended.
        calls: u32,
        writers: u32,
        /// Whether the copies are durable here.
        is_staged: bool,
        /// What was not written in place, and was not staged again since.
        failed: BTreeSet<PageId>,
        is_durable: bool,
    }

    impl Staged {
        fn is_needed(&self) -> bool {
            self.writers > 0 || !self.failed.is_empty() || !self.is_durable
        }

        /// The pages of the call that ends next.
        fn of_next_call(&self) -> Vec<PageId> {
            let nth = self.calls - self.writers;
            self.pages.iter().copied().skip(nth as usize).step_by(self.calls as usize).collect()
        }
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Take { first: u32, pages: usize, writers: u32, partition: u16 },
        Stage { nth: usize },
        Finish { nth: usize, written: bool },
        BeginSync,
        SyncIsLate { nth: usize },
        EndSync { nth: usize, durable: bool },
        Add,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..24u32, 1..=PAGES, 1..4u32, 0..4u16)
                .prop_map(|(first, pages, writers, partition)| Step::Take { first, pages, writers, partition }),
            4 => (0..64usize).prop_map(|nth| Step::Stage { nth }),
            8 => (0..64usize, prop::bool::weighted(0.9)).prop_map(|(nth, written)| Step::Finish { nth, written }),
            2 => Just(Step::BeginSync),
            1 => (0..64usize).prop_map(|nth| Step::SyncIsLate { nth }),
            4 => (0..64usize, prop::bool::weighted(0.9)).prop_map(|(nth, durable)| Step::EndSync { nth, durable }),
            1 => prop::bool::weighted(0.1).prop_map(|adds| if adds { Step::Add } else { Step::BeginSync }),
        ]
    }

    proptest! {
        /// No copy is overwritten before its page is durable in place, or staged again if it could not be written, nor is any other of
        /// its block, and room is refused only where it is needed.
        #[test]
        fn regions_are_used_as_a_list_of_needed_copies_allows(
            block_pages in prop::sample::select(vec![1, 2, 4, 8]),
            steps in prop::collection::vec(step(), 1..400),
        ) {
            let mut regions = Regions::new(PAGES, block_pages);
            let block = |page: usize| page / block_pages;
            let mut staged: Vec<Staged> = Vec::new();
            let (mut syncing, mut late): (Vec<usize>, Vec<usize>) = (Vec::new(), Vec::new());
            for step in steps {
                match step {
                    Step::Take { first, pages, writers, partition } => {
                        let partition = PartitionId(partition);
                        // One write of a page is under way at a time.
                        let is_open = |page: &PageId| staged.iter().any(|one| one.writers > 0 && one.pages.contains(page));
                        let numbers = (first..).map(|number| PageId::new(partition, number));
                        let ids: Vec<PageId> = numbers.filter(|page| !is_open(page)).take(pages).collect();
                        match regions.take(pages, writers, &[partition]) {
                            Some((region, first)) => {
                                let places = first..first + pages;
                                prop_assert!(places.end <= PAGES);
                                let overlaps = |other: &Staged| {
                                    other.region == region
                                        && block(other.places.start) <= block(places.end - 1)
                                        && block(places.start) <= block(other.places.end - 1)
                                };
                                prop_assert!(!staged.iter().any(|other| other.is_needed() && overlaps(other)));
                                staged.retain(|other| other.is_needed());
                                staged.push(Staged {
                                    region,
                                    places,
                                    pages: ids,
                                    calls: writers,
                                    writers,
                                    is_staged: false,
                                    failed: BTreeSet::new(),
                                    is_durable: false,
                                });
                            }
                            None => {
                                let is_in_use = |region| staged.iter().any(|one| one.region == region && one.is_needed());
                                prop_assert!((0..regions.count()).all(is_in_use));
                            }
                        }
                    }
                    Step::Stage { nth } => {
                        let new: Vec<usize> = (0..staged.len()).filter(|at| !staged[*at].is_staged).collect();
                        if !new.is_empty() {
                            let at = new[nth % new.len()];
                            staged[at].is_staged = true;
                            let pages = staged[at].pages.clone();
                            regions.staged(pages.iter().copied());
                            staged.iter_mut().for_each(|one| one.failed.retain(|page| !pages.contains(page)));
                        }
                    }
                    Step::Finish { nth, written } => {
                        let mut open: Vec<_> = staged.iter_mut().filter(|one| one.is_staged && one.writers > 0).collect();
                        if !open.is_empty() {
                            let count = open.len();
                            let one = &mut open[nth % count];
                            let failed = if written { Vec::new() } else { one.of_next_call() };
                            one.writers -= 1;
                            one.failed.extend(&failed);
                            regions.finish(one.region, &failed);
                        }
                    }
                    Step::BeginSync => for (region, partitions) in regions.begin_sync() {
                        for one in staged.iter().filter(|one| one.region == region && one.is_needed()) {
                            prop_assert!(one.writers == 0 && one.failed.is_empty());
                            prop_assert!(one.pages.iter().all(|page| partitions.contains(&page.partition)));
                        }
                        syncing.push(region);
                    },
                    Step::SyncIsLate { nth } => if !syncing.is_empty() {
                        let region = syncing.swap_remove(nth % syncing.len());
                        regions.sync_is_late(region);
                        late.push(region);
                    },
                    Step::EndSync { nth, durable } => {
                        let begun = if late.is_empty() || nth % 2 == 0 { &mut syncing } else { &mut late };
                        if !begun.is_empty() {
                            let region = begun.swap_remove(nth % begun.len());
                            regions.end_sync(region, durable);
                            let covered = staged.iter_mut().filter(|one| one.region == region);
                            covered.for_each(|one| one.is_durable |= durable);
                        }
                    }
                    Step::Add => if regions.count() < REGIONS_MAX {
                        regions.add();
                    },
                }
            }
        }
    }

    #[test]
    fn small_batches_share_a_region_and_a_sync() {
        let mut regions = Regions::new(PAGES, 1);
        for batch in 0..PAGES * (REGIONS - FREE_MIN - 1) {
            assert!(!regions.are_scarce(), "after {batch} batches of one page");
            let (region, page) = regions.take(1, 1, &[]).expect("there is room");
            assert_eq!((region, page), (batch / PAGES, batch % PAGES));
            regions.finish(region, &[]);
        }
        regions.take(1, 1, &[]).expect("there is room");
        assert!(regions.are_scarce());
        assert_eq!(regions.begin_sync().len(), REGIONS - FREE_MIN - 1);
    }

    #[test]
    fn a_page_that_was_not_written_keeps_its_region_until_it_is_staged_again() {
        let mut regions = Regions::new(PAGES, 1);
        let page = |number| PageId::new(PartitionId(1), number);
        for number in 0..REGIONS as u32 {
            let (region, _) = regions.take(PAGES, 2, &[]).expect("there is room");
            regions.finish(region, &[page(number)]);
            regions.finish(region, &[]);
        }
        assert!(!regions.are_all_kept(), "the last may be filled further");
        assert_eq!(regions.take(1, 1, &[]), None);
        assert!(regions.are_all_kept());
        assert!(regions.begin_sync().is_empty());
        regions.add();
        let (region, _) = regions.take(3, 1, &[]).expect("there is room");
        regions.staged([page(0), page(2), page(9)].into_iter());
        let freed: Vec<usize> = regions.begin_sync().into_iter().map(|(region, _)| region).collect();
        assert_eq!(freed, [0, 2], "of these the fifth has later copies");
        regions.finish(region, &[page(2)]);
        assert_eq!(regions.failed_count(), 3);
    }
}
