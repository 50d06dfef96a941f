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
    /// Pages whose writes in place have ended.
    ended: BTreeSet<PageId>,
    /// What was not written in place, and was not staged again since.
    failed: BTreeSet<PageId>,
    is_durable: bool,
}

impl Staged {
    fn is_needed(&self) -> bool {
        self.writers > 0 || !self.failed.is_empty() || !self.is_durable
    }

    /// Whether a page is being written in place from here.
    fn is_open(&self, page: PageId) -> bool {
        self.writers > 0 && self.pages.contains(&page) && !self.ended.contains(&page)
    }

    /// The pages of the call that ends next.
    fn of_next_call(&self) -> Vec<PageId> {
        let nth = self.calls - self.writers;
        self.pages.iter().copied().skip(nth as usize).step_by(self.calls as usize).collect()
    }

    /// The writes of these pages in place end, as far as they are under way.
    fn end(&mut self, regions: &mut Regions, pages: &[PageId], written: bool) {
        for page in pages {
            if self.ended.insert(*page) && !written {
                self.failed.insert(*page);
                regions.fail(self.region, *page);
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Take { first: u32, pages: usize, writers: u32, partition: u16 },
    Stage { nth: usize },
    End { nth: usize, page: usize, written: bool },
    Finish { nth: usize, written: bool },
    WrittenElsewhere { number: u32, partition: u16 },
    Dropped { from: u32, partition: u16 },
    BeginCompaction { pages: usize },
    EndCompaction { durable: bool },
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
        2 => (0..64usize, 0..64usize, prop::bool::weighted(0.8))
            .prop_map(|(nth, page, written)| Step::End { nth, page, written }),
        8 => (0..64usize, prop::bool::weighted(0.8)).prop_map(|(nth, written)| Step::Finish { nth, written }),
        2 => (0..32u32, 0..4u16).prop_map(|(number, partition)| Step::WrittenElsewhere { number, partition }),
        1 => (0..32u32, 0..4u16).prop_map(|(from, partition)| Step::Dropped { from, partition }),
        2 => (1..=PAGES).prop_map(|pages| Step::BeginCompaction { pages }),
        2 => prop::bool::weighted(0.8).prop_map(|durable| Step::EndCompaction { durable }),
        2 => Just(Step::BeginSync),
        1 => (0..64usize).prop_map(|nth| Step::SyncIsLate { nth }),
        4 => (0..64usize, prop::bool::weighted(0.9)).prop_map(|(nth, durable)| Step::EndSync { nth, durable }),
        1 => prop::bool::weighted(0.1).prop_map(|adds| if adds { Step::Add } else { Step::BeginSync }),
    ]
}

proptest! {
    /// No copy is overwritten before its page is durable in place, or a later copy of it in the area, or this one elsewhere there, if it
    /// could not be written, nor is any other of its block; room is refused only where it is needed, but for a region that compactions
    /// need; and none is kept for pages that have not failed.
    #[test]
    fn regions_are_used_as_a_list_of_needed_copies_allows(
        block_pages in prop::sample::select(vec![1, 2, 4, 8]),
        regions_max in REGIONS..REGIONS + 3,
        steps in prop::collection::vec(step(), 1..400),
    ) {
        let mut regions = Regions::limited(PAGES, block_pages, regions_max);
        let block = |page: usize| page / block_pages;
        let mut staged: Vec<Staged> = Vec::new();
        let (mut syncing, mut late): (Vec<usize>, Vec<usize>) = (Vec::new(), Vec::new());
        let mut compaction: Option<RegionCompaction> = None;
        for step in steps {
            match step {
                // One write is under way at a time.
                Step::Take { .. } | Step::Stage { .. } if compaction.is_some() => {}
                Step::Take { first, pages, writers, partition } => {
                    let partition = PartitionId(partition);
                    let is_open = |page: &PageId| staged.iter().any(|one| one.is_open(*page));
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
                                ended: BTreeSet::new(),
                                failed: BTreeSet::new(),
                                is_durable: false,
                            });
                        }
                        None => {
                            let is_in_use = |region: &usize| staged.iter().any(|one| one.region == *region && one.is_needed());
                            let free = (0..regions.count()).filter(|region| !is_in_use(region)).count();
                            prop_assert!(free <= usize::from(!regions.may_grow()));
                        }
                    }
                }
                Step::Stage { nth } => {
                    let new: Vec<usize> = (0..staged.len()).filter(|at| !staged[*at].is_staged).collect();
                    if !new.is_empty() {
                        let at = new[nth % new.len()];
                        staged[at].is_staged = true;
                        let pages = staged[at].pages.clone();
                        regions.staged((staged[at].region, staged[at].places.start), &pages);
                        staged.iter_mut().for_each(|one| one.failed.retain(|page| !pages.contains(page)));
                    }
                }
                Step::End { nth, page, written } => {
                    let mut open: Vec<_> = staged.iter_mut().filter(|one| one.is_staged && one.writers > 0).collect();
                    if !open.is_empty() {
                        let count = open.len();
                        let one = &mut open[nth % count];
                        let pages = one.of_next_call();
                        let page = pages.get(page % PAGES).copied();
                        one.end(&mut regions, page.as_slice(), written);
                    }
                }
                Step::Finish { nth, written } => {
                    let mut open: Vec<_> = staged.iter_mut().filter(|one| one.is_staged && one.writers > 0).collect();
                    if !open.is_empty() {
                        let count = open.len();
                        let one = &mut open[nth % count];
                        let pages = one.of_next_call();
                        one.end(&mut regions, &pages, written);
                        one.writers -= 1;
                        regions.finish(one.region);
                    }
                }
                Step::WrittenElsewhere { number, partition } => {
                    let page = PageId::new(PartitionId(partition), number);
                    regions.release(std::iter::once(page));
                    staged.iter_mut().for_each(|one| one.failed.retain(|failed| *failed != page));
                }
                Step::Dropped { from, partition } => {
                    let partition = PartitionId(partition);
                    regions.forget(partition, from);
                    let is_left = |page: &PageId| page.partition != partition || page.number < from;
                    staged.iter_mut().for_each(|one| one.failed.retain(is_left));
                }
                Step::BeginCompaction { pages } => {
                    if compaction.is_none() && staged.iter().all(|one| one.is_staged) {
                        compaction = regions.begin_compaction(pages);
                    }
                    if let Some(RegionCompaction { region, copies }) = &compaction {
                        prop_assert!(copies.len() <= PAGES);
                        prop_assert!(!staged.iter().any(|one| one.region == *region && one.is_needed()));
                    }
                }
                Step::EndCompaction { durable } => if let Some(ended) = compaction.take() {
                    regions.end_compaction(&ended, durable);
                    let RegionCompaction { region, copies } = ended;
                    let mut failed = BTreeSet::new();
                    for (page, (from, _)) in copies.iter().filter(|_| durable) {
                        let of = staged.iter_mut().find(|one| one.region == *from && one.failed.contains(page));
                        failed.extend(of.and_then(|one| one.failed.take(page)));
                    }
                    staged.push(Staged {
                        region,
                        places: 0..copies.len(),
                        pages: copies.iter().map(|(page, _)| *page).collect(),
                        calls: 0,
                        writers: 0,
                        is_staged: true,
                        ended: BTreeSet::new(),
                        failed,
                        is_durable: true,
                    });
                },
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
                Step::Add => if regions.may_grow() {
                    regions.add();
                },
            }
            let failed: BTreeSet<PageId> = staged.iter().flat_map(|one| one.failed.iter().copied()).collect();
            prop_assert_eq!(regions.failed_count(), failed.len());
            prop_assert!(failed.iter().all(|page| regions.has_failed(*page) && regions.is_failing(page.partition)));
            prop_assert!(!failed.is_empty() || regions.count_of(State::Kept) == 0, "one is kept for nothing");
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
        regions.finish(region);
    }
    regions.take(1, 1, &[]).expect("there is room");
    assert!(regions.are_scarce());
    assert_eq!(regions.begin_sync().len(), REGIONS - FREE_MIN - 1);
}

fn page(number: u32) -> PageId {
    PageId::new(PartitionId(1), number)
}

/// Fills a region, of whose pages this one fails.
fn fill(regions: &mut Regions, failed: PageId) -> usize {
    let place = regions.take(PAGES, 2, &[failed.partition]).expect("there is room");
    regions.staged(place, &[failed]);
    regions.fail(place.0, failed);
    regions.finish(place.0);
    regions.finish(place.0);
    place.0
}

#[test]
fn a_page_that_was_not_written_keeps_its_region_until_it_is_staged_again() {
    let mut regions = Regions::new(PAGES, 1);
    for number in 0..REGIONS as u32 {
        fill(&mut regions, page(number));
    }
    assert!(!regions.are_all_kept(), "the last may be filled further");
    assert_eq!(regions.take(1, 1, &[]), None);
    assert!(regions.are_all_kept());
    assert!(regions.begin_sync().is_empty());
    regions.add();
    let place = regions.take(3, 1, &[]).expect("there is room");
    regions.staged(place, &[page(0), page(2), page(9)]);
    let freed: Vec<usize> = regions.begin_sync().into_iter().map(|(region, _)| region).collect();
    assert_eq!(freed, [0, 2], "of these the fifth has later copies");
    regions.fail(place.0, page(2));
    regions.finish(place.0);
    assert_eq!(regions.failed_count(), 3);
}

/// However many regions fail one page each, those that are kept find room in few.
#[test]
fn pages_that_fail_in_many_regions_keep_few() {
    let mut regions = Regions::new(PAGES, 1);
    for number in 0..100 {
        if regions.lacks_for_compaction(PAGES) {
            regions.add();
        }
        if let Some(compaction) = regions.begin_compaction(PAGES) {
            regions.end_compaction(&compaction, true);
        }
        regions.begin_sync().into_iter().for_each(|(region, _)| regions.end_sync(region, true));
        while !regions.has_free() {
            regions.add();
        }
        fill(&mut regions, page(number));
    }
    assert_eq!(regions.failed_count(), 100);
    assert!(regions.count() <= 2 * 100 / PAGES + REGIONS, "there are {} regions", regions.count());
    regions.release((0..100).map(page));
    assert_eq!(regions.count_of(State::Kept), 0);
}
