//! Which pages enter the second-level cache, which leave it, and when what only the cache has is written to its own place.
//! A design is one file behind [`CachePolicy`] and one line in [`DESIGNS`]: configuration, torture and help read them there.

mod admission;
mod clean_write;
mod dual_write;
mod exclusive;
mod face;
mod frequency;
mod lazy_cleaning;
mod migrate;
mod parameters;
mod rotating;
pub(super) mod sketch;
mod tac;

pub use super::slots::{Candidate, Contents, Occupant};
pub use parameters::{Parameter, Parameters};

use Parameter::{DirtyMax, FillThreshold, GroupPages, Throttle};
use base::PageId;
use clean_write::CleanWrite;
use dual_write::DualWrite;
use exclusive::Exclusive;
use face::Face;
use frequency::Frequency;
use lazy_cleaning::LazyCleaning;
use migrate::Migrate;
use rotating::Rotating;
use std::ops::Range;
use structures::replacement::{Policy, Replacement};
use tac::Tac;

/// The designs, the usual one first.
pub const DESIGNS: &[Design] = &[
    Design::new("migrate-all", |setting| Box::new(Migrate::new([true, true], setting))),
    Design::new("migrate-modified", |setting| Box::new(Migrate::new([false, true], setting))),
    Design::new("migrate-unmodified", |setting| Box::new(Migrate::new([true, false], setting))),
    Design::new("clean-write", |setting| Box::new(CleanWrite::new(setting))).with(&[FillThreshold, Throttle]),
    Design::new("dual-write", |setting| Box::new(DualWrite::new(setting))).with(&[FillThreshold, Throttle]),
    Design::new("lazy-cleaning", |setting| Box::new(LazyCleaning::new(setting))).with(&[
        FillThreshold,
        DirtyMax,
        GroupPages,
        Throttle,
    ]),
    Design::new("tac", |setting| Box::new(Tac::new(setting))).with(&[FillThreshold, Throttle]),
    Design::new("rotating", |_| Box::new(Rotating::default())),
    Design::new("exclusive", |_| Box::new(Exclusive)),
    Design::new("face", |setting| Box::new(Face::new(setting))).with(&[GroupPages]),
    Design::new("frequency", |setting| Box::new(Frequency::new(setting))).with(&[
        FillThreshold,
        DirtyMax,
        GroupPages,
        Throttle,
    ]),
];

/// What a design decides. Each call is synchronous, and made when its event happens; the room around it does the work.
///
/// Whatever a design decides, these hold: a page that is newer than on its own device enters only a cache that keeps its
/// contents without power, after the log; while the cache alone has the newest version, its slot is not reused and the log
/// keeps what would make that version anew.
pub trait CachePolicy {
    /// Whether a page may be in main memory and in the cache at once. Otherwise a page that is read from the cache leaves it
    /// (unless its own device lacks that version), and one that is written while it stays in main memory does not count as
    /// cached.
    fn is_inclusive(&self) -> bool;

    /// A page was not in the cache, and has been read from its own device. Nothing is written back for a page that enters then:
    /// the cache has what the device has.
    fn on_read(&mut self, _: &Read, _: &Contents<'_>) -> Decision {
        Decision::Skip
    }

    /// A page is read from the cache.
    fn on_hit(&mut self, _: &Read) {}

    /// A page leaves main memory, or is written while it stays there. A clean one is not asked about if the cache holds it.
    fn on_eviction(&mut self, leaving: &Leaving, contents: &Contents<'_>) -> Decision;

    /// A page in main memory that the cache has a copy of is changed for the first time since it was read or written.
    fn on_update(&mut self, _: PageId) -> Outdated {
        Outdated::Kept
    }

    /// Whether a checkpoint writes to their own places all pages that only the cache has; otherwise the log is kept as far back
    /// as they need. Once half of the log is in use every checkpoint writes what holds the log back, whatever the design says.
    fn cleans_at_checkpoint(&self) -> bool {
        true
    }

    /// A restart has found a sound copy in the cache that is the same as on the page's own device. Whether it stays.
    fn on_restart(&mut self, _: PageId) -> bool {
        true
    }

    /// The order in which cached pages should leave; slots are its frames.
    fn order(&self, slots: usize) -> Box<dyn Replacement> {
        Policy::sparse_lru(slots)
    }

    /// Whether a cached page counts as used when an unchanged copy of it leaves main memory, and not only when it is read.
    fn is_used_when_it_leaves(&self) -> bool {
        true
    }

    /// The slot that makes room for another page. One that is dirty is written to its own place first, and the page that is
    /// to enter waits for that.
    fn victim(&mut self, contents: &Contents<'_>) -> Option<u32> {
        contents.coldest_clean()
    }

    /// Whether [`CachePolicy::victim`] names the slot of every page that enters, also while slots are free: one behind the other,
    /// which the table of slots checks.
    fn is_circular(&self) -> bool {
        false
    }

    /// The slots of a cache for `capacity` that are to make room together once [`CachePolicy::victim`] finds none; `None` if the
    /// design does not work in groups.
    fn next_group(&self, _capacity: u32) -> Option<Range<u32>> {
        None
    }

    /// The slots that [`CachePolicy::next_group`] has named have made room, as far as nothing was under way for them.
    fn open_group(&mut self, _: Range<u32>) {}

    /// Whether a page stays in the cache whose slot is to make room with its group.
    fn second_chance(&mut self, _: PageId) -> bool {
        false
    }

    /// The page that entered last before a restart is in this slot.
    fn resume_behind(&mut self, _slot: u32) {}

    /// The most pages that are written to slots which follow each other by one operation.
    fn write_group(&self) -> u32 {
        1
    }

    /// How many pages of a cache for `capacity` may be dirty; `None` if they wait for checkpoints and for pages that need
    /// their slots.
    fn dirty_max(&self, _capacity: u32) -> Option<DirtyMaximum> {
        None
    }

    /// The most pages side by side in their partition that are written to it from the cache by one operation.
    fn group_pages(&self) -> u32 {
        1
    }

    /// Checks what the design promises of the cache's contents while nothing is being cleaned.
    ///
    /// # Errors
    /// Words that say which promise does not hold.
    fn check(&self, _: &Contents<'_>) -> Result<(), String> {
        Ok(())
    }

    /// How many operations of the cache may be under way before pages that need not go through it go past it; `None`: any
    /// number.
    fn throttle(&self) -> Option<u32> {
        None
    }
}

/// The order in which cached pages leave under the designs of Do et al. (2011, section 2.2).
fn lru_2(slots: usize) -> Box<dyn Replacement> {
    Policy::named("lru-2").expect("it has this name").build(slots)
}

/// Checks that no page is in the cache alone but those that are on their way to their own places.
fn check_written_through(contents: &Contents<'_>) -> Result<(), String> {
    match contents.left_dirty().next() {
        Some(page) => Err(format!("{page} is in the cache alone, by a design that leaves nothing there")),
        None => Ok(()),
    }
}

/// When dirty pages are cleaned that nothing else needs on their own devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirtyMaximum {
    /// Cleaning begins when more are dirty.
    pub above: u32,
    /// It ends when no more than that are.
    pub down_to: u32,
}

/// What becomes of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It does not enter the cache; if its own device lacks this version, it is written there.
    Skip,
    /// It enters the cache; if its own device lacks this version, it is written there as soon as the cache has it.
    WriteThrough,
    /// It enters the cache, and is written to its own place when a checkpoint or another page needs that.
    WriteBack,
}

/// What becomes of a cached copy that main memory has a newer version of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outdated {
    /// Its slot waits for the newer version, unless another page needs it.
    Kept,
    /// Its slot becomes free, as soon as nothing is under way for it.
    Freed,
}

/// How a page came to be read. Decided when it is read into main memory, and kept while it is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pattern {
    /// For itself.
    #[default]
    Random,
    /// In the course of a scan behind its first page, or by the engine's own read-ahead.
    Sequential,
}

/// A page that was read from its own device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// The page.
    pub page: PageId,
    /// How it came to be read.
    pub pattern: Pattern,
}

/// A page that leaves main memory, or is written while it stays there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaving {
    /// The page.
    pub page: PageId,
    /// Whether it is newer than on its own device.
    pub dirty: bool,
    /// Whether it was changed since it came into main memory.
    pub modified: bool,
    /// Why it is written, or leaves.
    pub reason: Reason,
    /// How it came to be read into main memory.
    pub pattern: Pattern,
}

/// Why a page is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It stays in main memory: a checkpoint, or the cleaner.
    Background,
    /// Its transaction ends (FORCE).
    Force,
    /// Main memory needs its frame.
    Replacement,
}

/// What a design is built for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Setting {
    /// FORCE: transactions write what they have changed before they end.
    pub force: bool,
    /// Numbers that some designs go by.
    pub parameters: Parameters,
}

/// A design by its name.
#[derive(Clone, Copy)]
pub struct Design {
    name: &'static str,
    build: fn(&Setting) -> Box<dyn CachePolicy>,
    parameters: &'static [Parameter],
}

impl Design {
    /// A design of this name, with what makes its decisions for an open database.
    pub const fn new(name: &'static str, build: fn(&Setting) -> Box<dyn CachePolicy>) -> Design {
        Design { name, build, parameters: &[] }
    }

    /// The same; it goes by these parameters.
    pub const fn with(self, parameters: &'static [Parameter]) -> Design {
        Design { parameters, ..self }
    }

    /// Whether the design goes by this parameter.
    pub fn uses(self, parameter: Parameter) -> bool {
        self.parameters.contains(&parameter)
    }

    /// What the design is called.
    pub fn name(self) -> &'static str {
        self.name
    }

    /// The design of this name, if there is one.
    ///
    /// ```
    /// use entresol_engine::second_level::Design;
    ///
    /// assert_eq!(Design::named("migrate-modified").map(Design::name), Some("migrate-modified"));
    /// assert_eq!(Design::named("magic"), None);
    /// ```
    pub fn named(name: &str) -> Option<Design> {
        DESIGNS.iter().copied().find(|design| design.name == name)
    }

    /// The design's decisions.
    pub fn build(self, setting: &Setting) -> Box<dyn CachePolicy> {
        (self.build)(setting)
    }
}

impl Default for Design {
    /// Every page that is replaced in main memory enters the cache.
    fn default() -> Design {
        DESIGNS[0]
    }
}

impl PartialEq for Design {
    fn eq(&self, other: &Design) -> bool {
        self.name == other.name
    }
}

impl Eq for Design {}

impl std::fmt::Debug for Design {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(self.name)
    }
}
