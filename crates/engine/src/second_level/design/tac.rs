//! TAC, temperature-aware caching (Canim et al. 2010, as Do et al. 2011 describe it in section 2.5). Each extent of a partition
//! has a temperature, which rises with each of its misses by the time that the cache would save. A page enters just after it
//! was read from its own device; once the cache is full, only if its extent is hotter than that of the coldest cached page,
//! which leaves. A page that is changed keeps its slot, and is written to it and to its own place when it leaves main
//! memory; one that has no slot then, as one that was created there, does not enter.

use super::{CachePolicy, Contents, Decision, Leaving, Outdated, Pattern, Read, Setting, check_written_through};
use base::{PageId, PartitionId};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use structures::SparseArray;
use structures::canary::{self, Canary};
use structures::replacement::{Order, Replacement};

/// Pages of an extent.
const EXTENT_PAGES: u32 = 32;

/// What a read from the cache saves, in microseconds, by Table 1: one of its eight disks against its SSD, at random and in
/// sequence. Only how the two compare matters here.
const SAVED_AT_RANDOM_US: u64 = 7_800;
const SAVED_IN_SEQUENCE_US: u64 = 240;

/// The temperatures of extents, by their first pages; the others are cold.
#[derive(Clone, Default)]
struct Temperatures(Rc<RefCell<BTreeMap<PageId, u64>>>);

impl Temperatures {
    fn extent(page: PageId) -> PageId {
        PageId { number: page.number - page.number % EXTENT_PAGES, ..page }
    }

    fn of(&self, page: PageId) -> u64 {
        self.0.borrow().get(&Temperatures::extent(page)).copied().unwrap_or(0)
    }

    fn note_miss(&self, read: &Read) {
        let saved = if read.pattern == Pattern::Random { SAVED_AT_RANDOM_US } else { SAVED_IN_SEQUENCE_US };
        *self.0.borrow_mut().entry(Temperatures::extent(read.page)).or_default() += saved;
    }
}

pub struct Tac {
    temperatures: Temperatures,
    /// The share of the cache, in percent, that is filled with whatever is read.
    fill_threshold_percent: u8,
    is_filled: bool,
    throttle: u32,
}

impl Tac {
    pub fn new(setting: &Setting) -> Tac {
        Tac {
            temperatures: Temperatures::default(),
            fill_threshold_percent: setting.parameters.fill_threshold_percent,
            is_filled: false,
            throttle: setting.parameters.throttle,
        }
    }

    /// Whether a page's extent is hotter than that of the coldest cached page.
    fn is_hotter(&self, page: PageId, contents: &Contents<'_>) -> bool {
        let mut coldest = None;
        contents.coldest(&mut |candidate| {
            coldest = Some(candidate.page);
            false
        });
        coldest.is_none_or(|coldest| self.temperatures.of(page) > self.temperatures.of(coldest))
    }
}

impl CachePolicy for Tac {
    fn is_inclusive(&self) -> bool {
        true
    }

    fn on_read(&mut self, read: &Read, contents: &Contents<'_>) -> Decision {
        self.temperatures.note_miss(read);
        let [used, capacity] = [contents.used(), contents.capacity()].map(u64::from);
        self.is_filled |= used * 100 >= capacity * u64::from(self.fill_threshold_percent);
        let is_taken = !self.is_filled || self.is_hotter(read.page, contents);
        if is_taken { Decision::WriteThrough } else { Decision::Skip }
    }

    fn on_hit(&mut self, read: &Read) {
        self.temperatures.note_miss(read);
    }

    fn on_eviction(&mut self, leaving: &Leaving, contents: &Contents<'_>) -> Decision {
        match leaving.dirty && contents.holds(leaving.page) {
            true if canary::is_planted(Canary::BrokenPromise) => Decision::WriteBack,
            true => Decision::WriteThrough,
            false => Decision::Skip,
        }
    }

    fn on_update(&mut self, _: PageId) -> Outdated {
        Outdated::Kept
    }

    fn order(&self, slots: usize) -> Box<dyn Replacement> {
        Box::new(ByTemperature {
            temperatures: self.temperatures.clone(),
            pages: SparseArray::new(NO_PAGE, slots),
            references: Cell::new(0),
            order: RefCell::new(Order::new(slots)),
        })
    }

    fn throttle(&self) -> Option<u32> {
        Some(self.throttle)
    }

    fn check(&self, contents: &Contents<'_>) -> Result<(), String> {
        let (mut before, mut warmer) = (0, None);
        contents.coldest(&mut |candidate| {
            let temperature = self.temperatures.of(candidate.page);
            warmer = (temperature < before).then_some(candidate.page);
            before = temperature;
            warmer.is_none()
        });
        match warmer {
            Some(page) => Err(format!("{page} would leave the cache after a page of a warmer extent")),
            None => check_written_through(contents),
        }
    }
}

const NO_PAGE: PageId = PageId::new(PartitionId(u16::MAX), u32::MAX);

/// The pages of the coldest extents leave first.
struct ByTemperature {
    temperatures: Temperatures,
    pages: SparseArray<PageId>,
    references: Cell<u64>,
    order: RefCell<Order<u64>>,
}

impl Replacement for ByTemperature {
    fn insert(&mut self, frame: u32, page: PageId) {
        self.touch(frame);
        self.pages[frame as usize] = page;
        self.order.get_mut().insert(frame, self.temperatures.of(page));
    }

    /// A reference by itself changes nothing: the miss that it follows has made the extent hotter.
    fn touch(&self, _: u32) {
        self.references.set(self.references.get() + 1);
    }

    fn references(&self) -> u64 {
        self.references.get()
    }

    /// Not known of single pages.
    fn latest(&self, _: u32) -> u64 {
        0
    }

    fn remove(&mut self, frame: u32) {
        self.pages[frame as usize] = NO_PAGE;
    }

    fn coldest(&self, visit: &mut dyn FnMut(u32) -> bool) {
        let temperature = |frame: u32| {
            let page = self.pages[frame as usize];
            (page != NO_PAGE).then(|| self.temperatures.of(page))
        };
        self.order.borrow_mut().visit(temperature, visit);
    }
}
