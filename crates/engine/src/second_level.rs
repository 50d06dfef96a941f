//! Tiers between main memory and a partition's own device: a second-level cache and a write buffer (Rahm 1991, section 3.2).
//!
//! A tier is a file of slots on some device; a slot holds the copy of one page, which carries its own id, sequence number,
//! log position and checksum, so the slots are their own directory and a torn one gives itself away.
//!
//! In place of a partitioned table of what is cached (Do et al. 2011, section 3.3.4), whose latches many threads share, stand one
//! thread and one hash index of pages (`slots`), which nothing has to latch.
//!
//! Which pages enter the cache, and when what only it has is written to its own place, is decided by a [`CachePolicy`];
//! this room does what that says. It knows the buffer above as its [`Host`], and a page's own device as a `PageStore`.
//!
//! The rules that keep this safe, whatever the design:
//! * A page that is newer than on its own device enters a tier only if that survives a power cut, by a durable write after
//!   the log's, or is the upper cache, whose slots no opening relies on. While its write to its own device is under way the slot is
//!   neither reused nor overwritten: if the power goes, it is the whole copy of a page that may be torn in its place, as the
//!   double-write area is elsewhere.
//! * Until its own device has it the page also counts as not yet written for checkpoints, so the log goes back far enough to
//!   make it anew.
//! * Writes of one page to its own device never overtake each other.
//! * What a volatile tier holds stands on the page's own device, too, unless it is the upper cache.
//!
//! A copy whose write to its own device begins at once stays in memory until that has ended, or a newer one replaces it. One
//! that stays dirty has no copy in memory: it is read back from its slot when a checkpoint, the cleaner, or another page that
//! needs the slot, wants it on its own device. If it cannot be read back it goes on counting as not yet written, so the log keeps what
//! a restart makes it from; what main memory has of the page replaces it: a newer version, or the same one, which counts as changed from
//! then on. Nothing else comes to that slot any more: it would be lost there as well.
//!
//! A table beside the slots ([`table`](crate::tier_file::table)) says what they hold, so that an opening reads neither slots
//! nor the pages' own places, and the cache is warm at once. It may disagree with the slots; so each slot is verified when it is
//! read: the copy must be the version that the table states. The table of a large cache is loaded while the database is in use
//! (`loading`). What must not happen is that the table states a version, the slot
//! holds it, and a later one exists that no redo would come by. Therefore every change of the slots up to then is stated
//! before redo begins later. A version with changes behind the beginning of redo counts as missing on its page's own device.
//!
//! * While redo goes on, and until what it has left of pages that it did not read is made, nothing is written into the slots: what a
//!   power cut has torn on its way from there is looked for in all of them.
//! * Redo does not look at the own place of a page that it finds in a slot, and a power cut may have torn it there. So that slot is
//!   not given up before the page's own device has the copy, or another slot a newer one.
//! * Where the table is missing, damaged or not kept, an opening passes once over the slots and looks at each page's own place.
//!   Where that is damaged, a copy from before the beginning of redo counts if redo goes on where it ends. Such slots stay as they
//!   are until redo is over.
//!
//! Two caches are two instances of this room, one above the other (`buffer/levels`). To the upper one what is below it is what a page's own
//! device is to the other: its [`Host`] writes there. It is volatile, whatever its device is.
//!
//! The log's write buffer is the exception to the rule that the log suffices when an idle tier is lost: what only the write
//! buffer holds is nowhere else, so the superblock says which tiers are in use.

mod cleaning;
pub mod design;
mod destage;
mod entering;
mod groups;
mod host;
mod loading;
mod online;
mod slots;
mod supervision;
mod table;
mod tiers;
mod write_budget;

pub use design::{CachePolicy, DESIGNS, Design, Parameter, Parameters};
pub(crate) use entering::DirtyWrite;
pub use host::Host;
pub(crate) use host::{FAILURES_NS_MAX, SILENCE_NS};
pub use slots::CacheContents;
pub(crate) use slots::Tier;
pub(crate) use table::TableGrowth;
pub use tiers::{Checkpointing, Tiers};
pub(crate) use write_budget::Spending;
pub use write_budget::WriteBudget;

use crate::tier_file::WriteBufferSettings;
use crate::{Error, Result};
use std::collections::BTreeMap;

/// Which tiers a database has, and which partitions use them.
///
/// ```
/// use entresol_engine::second_level::{self, CacheSettings};
/// # use entresol_engine::catalog::{Locking, Organization};
/// # use entresol_engine::{Database, PartitionSpec, Settings, buffer};
/// # use executor::{Executor, Order};
/// # use virtual_driver::{Hardware, Media, Options, VirtualDriver};
/// # let driver = VirtualDriver::new(Hardware::ideal(), Options::default(), Media::new());
/// # let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
///
/// // A buffer of 32 pages, and a cache of 200 behind it.
/// let cache = CacheSettings::new("nvem", 200);
/// let hierarchy = second_level::Settings { cache: Some(cache), ..second_level::Settings::default() };
/// let buffer = buffer::Settings { frames: 32, ..buffer::Settings::default() };
/// # let done = executor.run(async {
/// let database = Database::create(&executor, Settings { buffer, hierarchy, ..Settings::default() }).await?;
/// # let organization = Organization::Direct { objects: 100, blocking_factor: 1, record_size: 8 };
/// # let spec = PartitionSpec::new("objects", organization, Locking::Page);
/// let objects = database.create_partition(spec).await?;
/// for number in (0..100).chain(0..100) {
///     database.transaction(async |tx| tx.modify_object(objects, number, |bytes| bytes[0] += 1).await).await?;
/// }
/// let cache = database.tiers().into_iter().find(|tier| tier.name == "cache").expect("it was asked for");
/// assert!(cache.reads > 50, "the second round finds most pages there");
/// # Ok::<(), entresol_engine::Error>(())
/// # });
/// # executor.stop();
/// # done.expect("the machine goes on").expect("the example works");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The second-level cache.
    pub cache: Option<CacheSettings>,
    /// A cache above the other tiers. It begins empty, whatever its device keeps: what was changed and only it had is redone from the
    /// log.
    pub upper_cache: Option<CacheSettings>,
    /// The write buffer.
    pub write_buffer: Option<WriteBufferSettings>,
    /// Where partitions differ from [`Placement::default`], by name.
    pub placements: BTreeMap<String, Placement>,
}

impl Settings {
    /// How the partition of this name uses the hierarchy.
    pub fn placement(&self, partition: &str) -> Placement {
        self.placements.get(partition).copied().unwrap_or_default()
    }

    /// Refuses caches that no page of this size could enter, or that cannot be had together.
    pub(crate) fn check(&self, page_size: usize) -> Result<()> {
        self.cache.as_ref().map_or(Ok(()), |cache| cache.check(page_size))?;
        let Some(upper) = &self.upper_cache else { return Ok(()) };
        upper.check_upper(page_size)?;
        match self.cache {
            Some(_) => Ok(()),
            None => {
                Err(Error::Setting("an upper cache stands above a cache, and there is none: make it the cache".into()))
            }
        }
    }
}

/// A second-level cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheSettings {
    /// The device that holds it.
    pub device: String,
    /// How many pages it holds.
    pub pages: u32,
    /// Which pages enter it.
    pub design: Design,
    /// Numbers that some designs go by.
    pub parameters: Parameters,
    /// Whether it loses its contents with the power; `None`: as its device says.
    pub volatile: Option<bool>,
    /// How much may be written to it; `None`: as much as the design likes.
    pub write_budget: Option<WriteBudget>,
    /// How many bytes its device is rated to be written with in its life, for reports.
    pub rated_bytes: Option<u64>,
    /// Whether a table beside the slots says what they hold, so that an opening need not look at them; `None`: unless its device
    /// is accessed like memory, where looking costs little.
    pub table: Option<bool>,
    /// How many bytes of its table an opening reads before it redoes the log, beside up to as many, at least 64 KiB, that were
    /// stated behind what the superblock names, and those that redo gains from. The rest is read while the database is in use.
    pub table_ahead: u64,
    /// How long its device may take for an operation before the cache is switched off, in nanoseconds; 0 for any time. A device
    /// that is accessed like memory has any time.
    pub silence_ns_max: u64,
}

impl CacheSettings {
    /// A cache of a number of pages on a device, of the usual design.
    pub fn new(device: impl Into<String>, pages: u32) -> CacheSettings {
        CacheSettings {
            device: device.into(),
            pages,
            design: Design::default(),
            parameters: Parameters::default(),
            volatile: None,
            write_budget: None,
            rated_bytes: None,
            table: None,
            table_ahead: 4 << 20,
            silence_ns_max: 10 * base::time::SECOND_NS,
        }
    }
}

/// How long the device of a new cache may take for a byte of its file, in nanoseconds, beside the time that it has for an answer:
/// 20 megabytes a second.
const BYTE_NS_MAX: u64 = 50;

impl CacheSettings {
    /// How long its device may take to create a file of this many bytes, in nanoseconds; 0 for any time.
    pub(crate) fn creation_ns_max(&self, bytes: u64, is_memory: bool) -> u64 {
        if is_memory || self.silence_ns_max == 0 {
            return 0;
        }
        self.silence_ns_max.saturating_add(bytes.saturating_mul(BYTE_NS_MAX))
    }

    /// Refuses a cache that no page of this size could enter.
    pub(crate) fn check(&self, page_size: usize) -> Result<()> {
        if self.pages == 0 || self.pages >= 1 << 31 {
            return Err(Error::Setting(format!(
                "the cache on device '{}' has {} pages; one has 1 to 2,147,483,647",
                self.device, self.pages
            )));
        }
        self.write_budget.map_or(Ok(()), |budget| budget.check(page_size))
    }

    /// The same for a cache above the others, which no restart looks for.
    pub(crate) fn check_upper(&self, page_size: usize) -> Result<()> {
        if self.volatile == Some(false) || self.table == Some(true) {
            return Err(Error::Setting(format!(
                "the upper cache on device '{}' is to outlive an opening; it begins empty, and the log has what only it had",
                self.device
            )));
        }
        self.check(page_size)
    }

    /// This cache above the others: it begins empty at each opening, and no table says what it holds.
    pub(crate) fn upper(self) -> CacheSettings {
        CacheSettings { volatile: Some(true), table: Some(false), ..self }
    }
}

/// How one partition uses the hierarchy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Whether its pages stay in main memory for good, in frames of their own beside the buffer's.
    pub resident: bool,
    /// Whether its pages may enter the caches below main memory.
    pub cache: bool,
    /// Whether its pages may be written to the write buffer.
    pub write_buffer: bool,
}

impl Default for Placement {
    fn default() -> Placement {
        Placement { resident: false, cache: true, write_buffer: true }
    }
}

#[cfg(test)]
mod tests;
