//! The tiers of an open database: their slots, and the copies on their way to the pages' own devices.

use super::slots::{Slots, Tier};
use super::{Admission, Settings};
use crate::Error;
use crate::tier_file::{TierFile, TierReport};
use driver::Frame;
use executor::WaitQueue;
use std::cell::RefCell;

/// The tiers between main memory and the partitions' own devices.
pub struct Tiers {
    /// The second-level cache.
    pub cache: Option<TierFile>,
    /// The write buffer.
    pub write_buffer: Option<TierFile>,
    /// What is where.
    pub slots: RefCell<Slots>,
    /// Which pages enter the cache.
    pub admission: Box<dyn Admission>,
    /// FORCE: pages stay in the cache while they are in main memory. Otherwise a page is in one of both.
    pub replicates: bool,
    /// By slot: the copies that are yet to be written to their own devices.
    copies: RefCell<Vec<Option<Frame>>>,
    /// Told when a write to a page's own device ends.
    pub settled: WaitQueue,
    /// Why the latest of those that failed did.
    pub failure: RefCell<Option<Error>>,
}

impl Tiers {
    /// Empty tiers in these files.
    pub fn new(settings: &Settings, files: [Option<TierFile>; 2], force: bool) -> Tiers {
        let [cache, write_buffer] = files;
        let pages = |file: &Option<TierFile>| file.as_ref().map_or(0, |file| file.pages);
        let slots = Slots::new(pages(&cache), pages(&write_buffer));
        let copies = (0..pages(&cache) + pages(&write_buffer)).map(|_| None).collect();
        Tiers {
            cache,
            write_buffer,
            slots: RefCell::new(slots),
            admission: settings.cache.as_ref().map(|cache| cache.design).unwrap_or_default().build(),
            replicates: force,
            copies: RefCell::new(copies),
            settled: WaitQueue::new(),
            failure: RefCell::default(),
        }
    }

    /// The file of a tier that exists.
    pub fn file(&self, tier: Tier) -> &TierFile {
        let file = if tier == Tier::Cache { &self.cache } else { &self.write_buffer };
        file.as_ref().expect("only a tier that exists has slots")
    }

    /// Keeps a copy until it is written to its own device.
    pub fn keep(&self, slot: u32, copy: Frame) {
        self.copies.borrow_mut()[slot as usize] = Some(copy);
    }

    /// Takes a copy to write it.
    pub fn take_copy(&self, slot: u32) -> Option<Frame> {
        self.copies.borrow_mut()[slot as usize].take()
    }

    /// What the tiers are and did.
    pub fn reports(&self) -> Vec<TierReport> {
        self.cache.iter().chain(&self.write_buffer).map(TierFile::report).collect()
    }

    /// Forgets what was counted: the end of a warm-up.
    pub fn restart_statistics(&self) {
        self.cache.iter().chain(&self.write_buffer).for_each(|file| file.statistics.restart());
    }
}
