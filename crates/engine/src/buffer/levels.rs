//! What lies between main memory and the pages' own devices, from the top down: a cache (`[upper_cache]`), and the tiers below it
//! (`[cache]`, `[write_buffer]`). Each level is an instance of `second_level` with a design of its own. What it has alone it writes to
//! what is below it, be that the next level or the pages' own places (`below`).
//!
//! Of each page main memory has the newest version, then the upper cache, the tiers, and its own place; none has a newer one than what
//! is above it:
//!
//! * A page is pending on a level that has a version which what is below it lacks. Then it is read from nowhere further below, and no
//!   level below takes a copy of it as clean.
//! * A changed page enters the first level from the top that takes it. Each one that declines it gives up its older version before it is
//!   written further below, or first ends writing that there ([`Tiers::make_way`]), so none is written over a newer one. What levels
//!   below the taker have of it stays as it is, older, and is replaced or makes way when the newer version comes there.
//! * The log has what a page says before a cache has it, and is kept for what is pending on any level. A page that goes down is
//!   pending on the level below, or written to its own place, before it counts so no longer on the one above; what a level gives up
//!   for a newer version is kept in the log as long as that one is pending.
//! * A checkpoint cleans the upper cache first, for what comes from there may stay on the level below.
//! * Each level is told of each change of a page. Pages that are dropped or overwritten are forgotten from the top down, until nothing
//!   is under way for them on any level.
//!
//! The upper cache begins empty behind each opening, whatever its device keeps, so redo makes what it had alone, over the newest
//! version below; the superblock says nothing of it. If it is lost at work, what it had alone is out of reach until then, as of any
//! cache. Where a page has left it for a fault, the level below serves, if that has the same version.

use super::Buffer;
use super::wanted::Fetching;
use crate::second_level::{Settings, Tier, Tiers};
use crate::tier_file::TierFile;
use base::{Lsn, PageId};
use driver::Access;
use std::rc::{Rc, Weak};
use structures::canary::{self, Canary};

/// The levels below main memory.
#[derive(Clone, Default)]
pub struct Levels {
    /// The cache above the others.
    pub upper: Option<Rc<Tiers>>,
    /// The tiers below it.
    pub tiers: Option<Rc<Tiers>>,
}

impl Levels {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.upper.is_none() && self.tiers.is_none()
    }

    /// All levels, from the top down.
    pub fn from_top(&self) -> impl Iterator<Item = &Rc<Tiers>> {
        self.upper.iter().chain(&self.tiers)
    }

    /// A page in main memory is changed for the first time since it was read or written. Returns where redo of it begins if
    /// that was below alone.
    pub fn note_update(&self, page: PageId) -> Option<Lsn> {
        let upper = self.upper.as_ref().filter(|_| !canary::is_planted(Canary::StaleAbove));
        let levels = upper.into_iter().chain(&self.tiers);
        levels.filter_map(|tiers| tiers.note_update(page)).min()
    }

    /// Whether a level has a version of the page that is newer than what is below it.
    pub fn is_pending(&self, page: PageId) -> bool {
        self.from_top().any(|tiers| tiers.is_pending(page))
    }

    /// How many copies are newer than what is below them.
    pub fn pending_count(&self) -> usize {
        self.from_top().map(|tiers| tiers.pending_count()).sum()
    }

    /// Where redo has to begin at the latest, for the pages that are newer on a level than below it.
    pub fn recovery_lsn(&self) -> Option<Lsn> {
        self.from_top().filter_map(|tiers| tiers.recovery_lsn()).min()
    }

    /// Checks each level, and that none has a newer version of a page than one above it.
    ///
    /// # Errors
    /// Words that say what does not hold.
    pub fn check(&self) -> Result<(), String> {
        self.from_top().try_for_each(|tiers| tiers.check())?;
        match (&self.upper, &self.tiers) {
            (Some(upper), Some(tiers)) => upper.check_above(tiers),
            _ => Ok(()),
        }
    }
}

/// Where below main memory a page is read from.
pub(super) struct Source {
    pub tiers: Rc<Tiers>,
    pub tier: Tier,
}

impl Source {
    /// Whether an access holds the processor until it is done.
    pub fn is_synchronous(&self) -> bool {
        self.tiers.file(self.tier).is_memory()
    }

    /// Pays for one access and says how it is made.
    pub async fn access(&self, buffer: &Buffer) -> Access {
        self.tiers.file(self.tier).access(&buffer.executor).await
    }
}

impl Buffer {
    /// The tiers below this buffer, but for the upper cache.
    pub fn tiers(&self) -> Option<Rc<Tiers>> {
        self.levels.borrow().tiers.clone()
    }

    /// The cache above the tiers.
    pub fn upper_cache(&self) -> Option<Rc<Tiers>> {
        self.levels.borrow().upper.clone()
    }

    /// The levels below this buffer as they are now, from the top down.
    pub fn levels(&self) -> Levels {
        self.levels.borrow().clone()
    }

    /// A level below this buffer: a cache in this file alone, and nothing in it.
    pub fn new_tiers(self: &Rc<Self>, settings: (&Settings, bool), cache: TierFile) -> Rc<Tiers> {
        let host: Weak<Buffer> = Rc::downgrade(self);
        Rc::new(Tiers::new(&self.executor, settings, [Some(cache), None], host))
    }

    /// From now on there are these tiers below this buffer, or none. Those before are at rest.
    pub fn set_tiers(&self, tiers: Option<Rc<Tiers>>) {
        let before = std::mem::replace(&mut self.levels.borrow_mut().tiers, tiers);
        self.use_levels(before);
    }

    /// From now on there is this cache above the tiers, or none. The one before is at rest.
    pub fn set_upper_cache(&self, upper: Option<Rc<Tiers>>) {
        let before = std::mem::replace(&mut self.levels.borrow_mut().upper, upper);
        self.use_levels(before);
    }

    fn use_levels(&self, before: Option<Rc<Tiers>>) {
        self.pool.borrow_mut().set_levels(self.levels());
        before.iter().for_each(|before| before.retire());
    }

    /// Whether a level below has a copy of this page that may be read.
    pub(super) fn is_below(&self, id: PageId) -> bool {
        self.levels.borrow().from_top().any(|tiers| tiers.source_of(id).is_some())
    }

    /// Where below a page is read from by the task that has the turn to fetch it.
    ///
    /// Part of its callers: each miss asks it twice, most often to learn that there are no levels.
    #[inline(always)]
    pub(super) fn source_of(&self, turn: &Fetching) -> Option<Source> {
        let levels = self.levels.borrow();
        if levels.is_empty() { None } else { source_in(&levels, turn) }
    }

    /// Whether a page can still be read from there.
    pub(super) fn is_still(&self, source: &Source, id: PageId) -> bool {
        let is_present = self.levels.borrow().from_top().any(|tiers| Rc::ptr_eq(tiers, &source.tiers));
        is_present && source.tiers.source_of(id) == Some(source.tier)
    }

    /// The uppermost copy of a page, also on a level that is passed over.
    pub(super) fn copy_of(&self, id: PageId) -> Option<Source> {
        let levels = self.levels.borrow();
        levels.from_top().find_map(|tiers| Some(Source { tiers: Rc::clone(tiers), tier: tiers.tier_of(id)? }))
    }
}

fn source_in(levels: &Levels, turn: &Fetching) -> Option<Source> {
    levels.from_top().find_map(|tiers| {
        let tier = tiers.source_of(turn.page())?;
        let is_passed = tier == Tier::Cache && turn.is_past_cache() && tiers.may_be_passed(turn.page());
        (!is_passed).then(|| Source { tiers: Rc::clone(tiers), tier })
    })
}
