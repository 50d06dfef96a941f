//! The tiers of an open database: their slots, and the requests to them.

use super::design::{CachePolicy, DirtyMaximum, Setting};
use super::groups::GroupWriter;
use super::host::Host;
use super::loading::TableLoading;
use super::slots::{CacheContents, Discarded, Slots, Tier};
use super::supervision::Supervision;
use super::table::StatedTable;
use super::write_budget::Spending;
use super::{CacheSettings, Placement, Settings};
use crate::Error;
use crate::statistics::add;
use crate::tier_file::table::HeldVersion;
use crate::tier_file::{Kind, TierFile, TierReport};
use base::{Lsn, PageId, PartitionId};
use driver::Frame;
use executor::{Executor, Turn, WaitQueue};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use structures::canary::{self, Canary};

/// The tiers between main memory and the partitions' own devices.
pub struct Tiers {
    /// The second-level cache.
    pub cache: Option<TierFile>,
    /// The write buffer.
    pub write_buffer: Option<TierFile>,
    pub(super) executor: Executor,
    pub(super) host: Weak<dyn Host>,
    /// What is where.
    pub(super) slots: RefCell<Slots>,
    /// What the cache's design decides.
    pub(super) policy: RefCell<Box<dyn CachePolicy>>,
    /// By slot: copies that are kept in memory until they are on their own devices, because their writes there begin at
    /// once. A slot without one is read back to be cleaned.
    pub(super) copies: RefCell<BTreeMap<u32, Frame>>,
    /// By slot: why its copy could not be read back or written to its own device.
    pub(super) failures: RefCell<BTreeMap<u32, Error>>,
    /// Pages that are being copied to the cache just after they were read, and whether they have been changed meanwhile.
    pub(super) entering: RefCell<BTreeMap<PageId, bool>>,
    /// Told when a write to a page's own device ends.
    pub(super) destages_ended: WaitQueue,
    /// What is left of the bytes that may be written to the cache, if they are limited.
    pub(super) spending: RefCell<Option<Spending>>,
    /// How many bytes the cache's device is rated for.
    rated_bytes: Cell<Option<u64>>,
    /// Whether nothing enters any more, because the cache is being changed.
    pub(super) is_closed: Cell<bool>,
    /// Whether the cache is off although an opening may look for it: nothing enters it, and nothing is read from it.
    pub(super) is_given_up: Cell<bool>,
    /// How many operations of the cache may be under way before it is passed over where that is possible.
    throttle: Cell<Option<u32>>,
    /// When dirty pages are cleaned that nothing else needs on their own devices.
    pub(super) dirty_max: Cell<Option<DirtyMaximum>>,
    /// The most pages that are written to their own places together.
    pub(super) group_pages: Cell<u32>,
    /// How many pages of each partition are on their way there, read back and written in groups.
    pub(super) being_cleaned: RefCell<BTreeMap<PartitionId, usize>>,
    /// Whether the cleaner is at work.
    pub(super) is_cleaning: Cell<bool>,
    /// Whether it cleans nothing any more.
    pub(super) has_ended: Cell<bool>,
    /// Memory for the copies of such groups.
    pub(super) group_copies: RefCell<Vec<Frame>>,
    /// The most pages that are written to slots by one operation, and those that are on their way there.
    pub(super) write_group: Cell<u32>,
    pub(super) groups: GroupWriter,
    /// Only one task has a group of slots make room.
    pub(super) emptying: Turn,
    /// Whether the cache's device works.
    pub(super) supervision: Supervision,
    /// What says beside the cache's slots what they hold.
    pub(super) table: RefCell<Option<Rc<StatedTable>>>,
    /// How many bytes of that an opening reads at once.
    pub(super) table_ahead: Cell<u64>,
    /// Whether that was believed when the database was opened.
    pub(super) is_taken_over: Cell<bool>,
    /// What is not known of its slots yet.
    pub(super) loading: TableLoading,
    /// Where redo began, until it is over of every page, over a cache whose table was believed: nothing is written into the slots
    /// meanwhile.
    pub(super) replaying_from: Cell<Option<Lsn>>,
    /// Where redo begins whose doing it is what happens to pages: that of all while the log is read, and that of one page in the steps
    /// that make what was left then.
    pub(super) redoing_from: Cell<Option<Lsn>>,
}

/// A checkpoint that is under way.
pub struct Checkpointing(Rc<Tiers>);

/// A page whose changes are made that redo has left.
pub struct PageRedo {
    tiers: Rc<Tiers>,
    before: Option<Lsn>,
}

impl Drop for PageRedo {
    fn drop(&mut self) {
        self.tiers.redoing_from.set(self.before);
    }
}

impl Drop for Checkpointing {
    fn drop(&mut self) {
        self.0.slots.borrow_mut().end_checkpoint();
    }
}

impl Tiers {
    /// Empty tiers in these files, below `host`.
    pub fn new(
        executor: &Executor,
        (settings, force): (&Settings, bool),
        files: [Option<TierFile>; 2],
        host: Weak<dyn Host>,
    ) -> Tiers {
        let [cache, write_buffer] = files;
        let pages = |file: &Option<TierFile>| file.as_ref().map_or(0, |file| file.pages);
        let design = settings.cache.as_ref().map(|cache| cache.design).unwrap_or_default();
        let parameters = settings.cache.as_ref().map(|cache| cache.parameters).unwrap_or_default();
        let policy = design.build(&Setting { force, parameters });
        let capacity = pages(&cache);
        let slots = Slots::new(pages(&cache), pages(&write_buffer), policy.order(pages(&cache) as usize));
        let tiers = Tiers {
            cache,
            write_buffer,
            spending: RefCell::default(),
            rated_bytes: Cell::default(),
            is_closed: Cell::new(false),
            is_given_up: Cell::new(false),
            executor: executor.clone(),
            host,
            slots: RefCell::new(slots),
            policy: RefCell::new(policy),
            copies: RefCell::default(),
            failures: RefCell::default(),
            entering: RefCell::default(),
            destages_ended: WaitQueue::new(),
            throttle: Cell::default(),
            dirty_max: Cell::default(),
            group_pages: Cell::new(1),
            being_cleaned: RefCell::default(),
            is_cleaning: Cell::new(false),
            has_ended: Cell::new(false),
            group_copies: RefCell::default(),
            write_group: Cell::new(1),
            groups: GroupWriter::default(),
            supervision: Supervision::default(),
            emptying: Turn::new(),
            table: RefCell::default(),
            table_ahead: Cell::default(),
            is_taken_over: Cell::default(),
            loading: TableLoading::default(),
            replaying_from: Cell::new(None),
            redoing_from: Cell::new(None),
        };
        tiers.go_by(&**tiers.policy.borrow(), capacity);
        if let Some(cache) = &settings.cache {
            tiers.limit(cache);
            tiers.supervision.set_silence(tiers.silence_ns_max(cache));
        }
        tiers
    }

    /// Takes what a design of a cache of this many pages says when it is chosen.
    pub(super) fn go_by(&self, policy: &dyn CachePolicy, capacity: u32) {
        self.throttle.set(policy.throttle());
        self.dirty_max.set(policy.dirty_max(capacity));
        self.group_pages.set(policy.group_pages().max(1));
        self.write_group.set(policy.write_group());
        self.group_copies.take();
        self.groups.forget_memory();
    }

    /// How long an operation of the cache may take, in nanoseconds; 0 for any time.
    pub(super) fn silence_ns_max(&self, settings: &CacheSettings) -> u64 {
        if self.cache.as_ref().is_some_and(TierFile::is_memory) { 0 } else { settings.silence_ns_max }
    }

    /// Takes from the cache's settings what its design does not go by. A budget of writes is not filled again, be it another one.
    pub(super) fn limit(&self, settings: &CacheSettings) {
        self.rated_bytes.set(settings.rated_bytes);
        self.table_ahead.set(settings.table_ahead);
        let (mut spending, now) = (self.spending.borrow_mut(), self.executor.now());
        *spending = settings.write_budget.map(|budget| match spending.take() {
            Some(before) => before.go_on_with(budget, now),
            None => Spending::full(budget, now),
        });
    }

    /// The log is read to its end: what the cache's table says of later changes than the beginning of redo is of no use any more.
    pub fn end_reading_log(&self) {
        self.redoing_from.set(None);
    }

    /// The changes of one page are made that redo has left, until what this returns is dropped. They begin there: the log may have been
    /// given up as far as that.
    pub fn begin_page_redo(self: &Rc<Self>, since: Lsn) -> PageRedo {
        let began = self.replaying_from.get().unwrap_or(Lsn::ZERO);
        let from = if canary::is_planted(Canary::LongGoneRedo) { began } else { since.max(began) };
        PageRedo { before: self.redoing_from.replace(Some(from)), tiers: Rc::clone(self) }
    }

    /// Redo is over of every page: pages may enter a cache whose table was believed.
    pub fn end_replay(&self) {
        self.replaying_from.set(None);
        self.redoing_from.set(None);
    }

    /// Whether redo of a page goes on, or is left, over a cache whose table was believed.
    pub(super) fn is_in_redo(&self, page: PageId) -> bool {
        let is_left = || self.host_if_there().is_some_and(|host| host.is_left(page));
        self.replaying_from.get().is_some() && (self.redoing_from.get().is_some() || is_left())
    }

    /// Whether the cache goes on as an earlier opening has left it, by its table.
    pub fn is_taken_over(&self) -> bool {
        self.is_taken_over.get()
    }

    /// Whether pages may enter the cache.
    pub(super) fn is_cache_open(&self) -> bool {
        let is_off = self.is_closed.get() || self.is_given_up.get() || self.is_lost();
        self.cache.is_some() && !is_off && self.replaying_from.get().is_none() && !self.is_loading()
    }

    /// A checkpoint begins, and lasts until what this returns is dropped.
    pub fn begin_checkpoint(self: &Rc<Self>) -> Checkpointing {
        self.slots.borrow_mut().begin_checkpoint();
        Checkpointing(Rc::clone(self))
    }

    /// Whether so much is under way in the cache that pages which need not go through it go past it.
    pub(super) fn is_throttled(&self) -> bool {
        let under_way = || self.cache.as_ref().map_or(0, TierFile::under_way);
        self.throttle.get().is_some_and(|throttle| under_way() > throttle)
    }

    /// Whether a page that is to enter the cache goes past it, because its budget of writes is spent. That is counted.
    pub(super) fn is_spent(&self) -> bool {
        let mut spending = self.spending.borrow_mut();
        let (Some(spending), Some(cache)) = (&mut *spending, &self.cache) else { return false };
        let is_spent = !spending.has(self.executor.now(), cache.page_size as u64);
        if is_spent {
            add(&cache.statistics.declined, 1);
        }
        is_spent
    }

    /// Takes what a write of a page to this tier costs out of the budget, if that has so much left.
    pub(super) fn take_budget(&self, tier: Tier, bytes: u64) -> bool {
        let mut spending = self.spending.borrow_mut();
        let Some(spending) = spending.as_mut().filter(|_| tier == Tier::Cache) else { return true };
        let is_taken = spending.take(self.executor.now(), bytes);
        if !is_taken {
            add(&self.file(tier).statistics.declined, 1);
        }
        is_taken
    }

    /// Counts bytes that had to be written to the cache's device although they are no page that enters: pages wait the longer.
    pub fn note_forced_write(&self, bytes: u64) {
        let Some(cache) = &self.cache else { return };
        add(&cache.statistics.bytes_written, bytes);
        if let Some(spending) = &mut *self.spending.borrow_mut() {
            spending.force(self.executor.now(), bytes);
        }
    }

    /// What lies above.
    pub(super) fn host(&self) -> Rc<dyn Host> {
        self.host.upgrade().expect("only what lies above uses the tiers")
    }

    /// The same, unless that is gone.
    pub(super) fn host_if_there(&self) -> Option<Rc<dyn Host>> {
        self.host.upgrade()
    }

    /// The file of a tier that exists.
    pub fn file(&self, tier: Tier) -> &TierFile {
        let file = if tier == Tier::Cache { &self.cache } else { &self.write_buffer };
        file.as_ref().expect("only a tier that exists has slots")
    }

    /// Whether this is the cache above the other tiers.
    pub fn is_upper(&self) -> bool {
        self.cache.as_ref().is_some_and(|cache| cache.kind == Kind::UpperCache)
    }

    /// Whether pages of a partition may be in a tier.
    pub fn serves(&self, placement: Placement) -> bool {
        (placement.cache && self.cache.is_some()) || (placement.write_buffer && self.write_buffer.is_some())
    }

    /// The tier that this page is to be read from: one that has a copy, unless that is the cache, which is busy, and the page's
    /// own device does as well.
    pub fn source_of(&self, page: PageId) -> Option<Tier> {
        let is_off = |tier: Tier| self.is_closed.get() || (tier == Tier::Cache && self.is_given_up.get());
        let is_passed = |tier: &Tier| match is_off(*tier) {
            true => !self.is_pending(page),
            false => *tier == Tier::Cache && self.is_throttled() && self.may_be_passed(page),
        };
        self.tier_of(page).filter(|tier| !is_passed(tier))
    }

    /// Whether a page that the cache has may be read from its own device instead: that has the same version. During redo it may have a newer
    /// one, of which the cache's table did not hear; so redo looks at every copy that it finds stated there.
    pub fn may_be_passed(&self, page: PageId) -> bool {
        !self.is_pending(page) && (!self.is_in_redo(page) || canary::is_planted(Canary::PassedRedo))
    }

    /// The tier that has a copy of this page.
    pub fn tier_of(&self, page: PageId) -> Option<Tier> {
        let slots = self.slots.borrow();
        slots.lookup(page).map(|slot| slots.place(slot).0)
    }

    /// Takes over sound copies that an earlier opening left in the slots of an empty cache, the least recently used first,
    /// as far as the design wants them. The pages' own devices hold them, too.
    pub fn adopt(&self, copies: impl Iterator<Item = (u32, HeldVersion)>) {
        let (mut policy, mut slots) = (self.policy.borrow_mut(), self.slots.borrow_mut());
        let mut last = None;
        for (slot, held) in copies {
            if policy.on_restart(held.page) {
                slots.adopt(slot, held);
                last = Some(slot);
            }
        }
        last.into_iter().for_each(|slot| policy.resume_behind(slot));
    }

    /// How many copies are newer than on their pages' own devices.
    pub fn pending_count(&self) -> usize {
        self.slots.borrow().pending_count()
    }

    /// Whether a tier has a version of the page that is newer than on its own device.
    pub fn is_pending(&self, page: PageId) -> bool {
        self.slots.borrow().pending_destage(page).is_some()
    }

    /// Where redo has to begin at the latest, for the pages that are newer here than on their own devices.
    pub fn recovery_lsn(&self) -> Option<Lsn> {
        self.slots.borrow().recovery_lsn()
    }

    /// Empties the slots of a partition's pages from `first` on, which are not used any more, that nothing is under way for. Whether all
    /// are empty.
    pub fn discard(&self, partition: PartitionId, first: u32) -> bool {
        let Discarded { emptied, rest } = self.slots.borrow_mut().discard(partition, first);
        emptied.into_iter().for_each(|slot| self.forget_copy(slot));
        let is_of = |page: &PageId| page.partition == partition && page.number >= first;
        rest == 0 && !self.entering.borrow().keys().any(is_of)
    }

    /// Pages of a partition from this number on are in no tier, but for copies of what their own device has.
    pub fn end_of_changes(&self, partition: PartitionId) -> u32 {
        let entering = self.entering.borrow();
        let entering = entering.keys().filter(|page| page.partition == partition).map(|page| page.number + 1).max();
        self.slots.borrow().end_of_changes(partition).max(entering.unwrap_or(0))
    }

    /// Empties the slot with a copy of a page whose contents are not needed any more, if there is one that nothing is under way
    /// for. Whether there is none then.
    pub fn discard_page(&self, page: PageId) -> bool {
        self.pass_over(page);
        if self.entering.borrow().contains_key(&page) {
            return false;
        }
        let slot = self.slots.borrow().lookup(page);
        let is_gone = self.slots.borrow_mut().discard_page(page);
        slot.into_iter().filter(|_| is_gone).for_each(|slot| self.forget_copy(slot));
        is_gone
    }

    /// Releases what is kept of a slot's copy, which is not needed any more.
    pub(super) fn forget_copy(&self, slot: u32) {
        self.failures.borrow_mut().remove(&slot);
        if let Some(copy) = self.take_copy(slot) {
            self.host().return_copy(copy);
        }
    }

    pub(super) fn take_copy(&self, slot: u32) -> Option<Frame> {
        self.copies.borrow_mut().remove(&slot)
    }

    /// What the tiers are and did.
    pub fn reports(&self) -> Vec<TierReport> {
        let budget = self.spending.borrow().as_ref().map(Spending::budget);
        let lost = self.lost_cache();
        let cache = self.cache.iter().filter(|_| !self.is_given_up.get()).map(|cache| TierReport {
            write_budget_bytes_per_day: budget.map(|budget| budget.bytes_per_day),
            rated_bytes: self.rated_bytes.get(),
            unusable: self.slots.borrow().unusable_count(),
            lost: lost.as_ref().map(ToString::to_string),
            ..cache.report()
        });
        cache.chain(self.write_buffer.iter().map(TierFile::report)).collect()
    }

    /// What is in the cache now, if there is one; `changed` are the pages of which main memory has newer versions.
    pub fn cache_contents(&self, changed: impl Iterator<Item = PageId>) -> Option<CacheContents> {
        self.cache.as_ref().filter(|_| !self.is_given_up.get())?;
        Some(self.slots.borrow().cache_contents(changed))
    }

    /// Forgets what was counted: the end of a warm-up.
    pub fn restart_statistics(&self) {
        self.cache.iter().chain(&self.write_buffer).for_each(|file| file.statistics.restart());
    }

    /// Checks that the tiers below this cache have no newer version of a page.
    ///
    /// # Errors
    /// Words that say of which page they do.
    pub fn check_above(&self, below: &Tiers) -> Result<(), String> {
        self.slots.borrow().check_above(&below.slots.borrow())
    }

    /// Checks the invariants of the slots, that memory is kept only for copies whose writes to their own devices have begun, that
    /// the design keeps what it promises, and that no more was written to the cache than its budget allows.
    ///
    /// # Errors
    /// Words that say which does not hold.
    pub fn check(&self) -> Result<(), String> {
        let slots = self.slots.borrow();
        let copies = self.copies.borrow();
        if let Some(spending) = &*self.spending.borrow() {
            spending.check(self.executor.now())?;
        }
        if let Some(slot) = copies.keys().find(|slot| !slots.may_be_kept(**slot)) {
            return Err(format!("memory is kept for slot {slot}, which needs none"));
        }
        if self.is_cache_open() && !self.is_cleaning.get() {
            self.policy.borrow().check(&slots.contents())?;
        }
        slots.check()
    }
}
