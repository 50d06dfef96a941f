//! The tiers of an open database: their files, their slots, and the copies on their way to the pages' own devices.

use super::header::{HEADER_BYTES, Kind, Record, file_length, open_file, write_header};
use super::slots::{Slots, Tier};
use super::{Admission, Settings, Statistics, TierReport};
use crate::{Error, Result};
use driver::{Access, DeviceId, DeviceTraits, FileId, Frame, Op};
use executor::{Executor, WaitQueue};
use std::cell::RefCell;

/// A tier's file.
pub struct TierFile {
    /// What it is for.
    pub kind: Kind,
    /// The name of its device.
    pub device: String,
    /// The file.
    pub file: FileId,
    /// How many pages it holds.
    pub pages: u32,
    /// Whether it loses its contents with the power.
    pub volatile: bool,
    /// What it did.
    pub statistics: Statistics,
    traits: DeviceTraits,
    page_size: usize,
}

impl TierFile {
    /// Creates the file that `record` describes, in place of any of that name.
    ///
    /// # Errors
    /// The driver's.
    pub async fn create(
        executor: &Executor,
        device: DeviceId,
        record: &Record,
        page_size: usize,
        volatile: bool,
    ) -> Result<TierFile> {
        executor.perform(Op::Remove { device, name: record.kind.file_name().to_owned() }).await.result?;
        let (file, _) = open_file(executor, device, record.kind, true).await?.expect("created if it is missing");
        let slots = record.capacity * page_size as u64;
        executor.perform(Op::Resize { file, length: file_length(slots), prewrite: true }).await.result?;
        write_header(executor, file, record, (page_size, slots)).await?;
        Ok(TierFile::adopt(executor, device, record, file, page_size, volatile))
    }

    /// Takes a file over that holds the tier that `record` describes.
    pub fn adopt(
        executor: &Executor,
        device: DeviceId,
        record: &Record,
        file: FileId,
        page_size: usize,
        volatile: bool,
    ) -> TierFile {
        TierFile {
            kind: record.kind,
            device: record.device.clone(),
            file,
            pages: record.capacity as u32,
            volatile,
            statistics: Statistics::default(),
            traits: executor.traits(device),
            page_size,
        }
    }

    /// Where the slot lies in the file, in bytes.
    pub fn offset(&self, slot: u32) -> u64 {
        HEADER_BYTES + u64::from(slot) * self.page_size as u64
    }

    /// Pays for one access and says how it is made.
    pub async fn access(&self, executor: &Executor) -> Access {
        crate::buffer::access(executor, &self.traits).await
    }

    /// What the tier is and did.
    pub fn report(&self) -> TierReport {
        let Statistics { reads, writes, modified, fallbacks, damaged } = &self.statistics;
        TierReport {
            name: if self.kind == Kind::Cache { "cache" } else { "write-buffer" },
            device: self.device.clone(),
            pages: u64::from(self.pages),
            volatile: self.volatile,
            reads: reads.get(),
            writes: writes.get(),
            modified: modified.get(),
            fallbacks: fallbacks.get(),
            damaged: damaged.get(),
        }
    }
}

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
