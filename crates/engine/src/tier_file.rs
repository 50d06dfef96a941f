//! A tier's file: slots between main memory and the devices that pages and the log live on.

mod header;
mod statistics;
pub mod table;

use header::check_replaceable;
pub use header::{HEADER_BYTES, Kind, TierMark, TierRecord, file_length, open_file, read_header, write_header};
pub use statistics::{TierReport, TierStatistics};

use crate::{Error, Result};
use base::units::format_size;
use driver::{Access, DeviceId, DeviceTraits, Fault, FaultKind, FileId, Op};
use executor::Executor;
use std::cell::Cell;

/// A write buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteBufferSettings {
    /// The device that holds it, one that keeps its contents without power.
    pub device: String,
    /// How many pages of partitions it holds; zero for none.
    pub pages: u32,
    /// How many bytes of log it holds; zero if the log does without.
    pub log_bytes: u64,
    /// Whether it loses its contents with the power, which is refused; `None`: as its device says.
    pub volatile: Option<bool>,
}

impl WriteBufferSettings {
    /// Refuses a device that loses its contents.
    pub(crate) fn check(&self, durable: bool) -> Result<()> {
        if !self.volatile.unwrap_or(!durable) {
            return Ok(());
        }
        Err(Error::Setting(format!(
            "the write buffer's device '{}' loses its contents with the power; name one that keeps them",
            self.device
        )))
    }
}

/// Where a tier's device has no room for it: which setting asks for that.
fn too_large(fault: Fault, kind: Kind, bytes: u64) -> Error {
    if fault.kind != FaultKind::NoSpace {
        return Error::Input(fault);
    }
    let (tier, size, setting) = (kind.name(), format_size(bytes), kind.section());
    let message = format!("{}; make room for the {tier} of {size}, or give {setting} a smaller size", fault.message);
    Error::Input(Fault::new(fault.kind, message))
}

/// A tier's file.
#[derive(Clone)]
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
    pub statistics: TierStatistics,
    traits: DeviceTraits,
    pub(crate) page_size: usize,
    under_way: Cell<u32>,
}

impl TierFile {
    /// Creates the file that `record` describes, in place of one of that name which is the same database's, or damaged. A tier that
    /// is made anew at each opening takes the place of any.
    ///
    /// # Errors
    /// [`Error::ForeignTier`], or the driver's.
    pub async fn create(
        executor: &Executor,
        device: DeviceId,
        (record, mark, known): (&TierRecord, TierMark, &[u64]),
        page_size: usize,
        volatile: bool,
    ) -> Result<TierFile> {
        if !volatile && record.kind != Kind::UpperCache {
            check_replaceable(executor, device, record, (mark, known)).await?;
        }
        executor.perform(Op::Remove { device, name: record.kind.file_name().to_owned() }).await.result?;
        let (file, _) = open_file(executor, device, record.kind, true).await?.expect("created if it is missing");
        let slots = record.capacity * page_size as u64;
        let resized = executor.perform(Op::Resize { file, length: file_length(slots), prewrite: true }).await;
        if let Err(fault) = resized.result {
            // What there was of it fills the device. If that cannot be removed, the next creation does it.
            let _tried = executor.perform(Op::Remove { device, name: record.kind.file_name().to_owned() }).await;
            return Err(too_large(fault, record.kind, slots));
        }
        write_header(executor, file, (record, mark.database), (page_size, slots)).await?;
        Ok(TierFile::adopt(executor, device, record, file, page_size, volatile))
    }

    /// Takes a file over that holds the tier that `record` describes.
    pub fn adopt(
        executor: &Executor,
        device: DeviceId,
        record: &TierRecord,
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
            statistics: TierStatistics::default(),
            traits: executor.traits(device),
            page_size,
            under_way: Cell::new(0),
        }
    }

    /// Where the slot lies in the file, in bytes.
    pub fn offset(&self, slot: u32) -> u64 {
        HEADER_BYTES + u64::from(slot) * self.page_size as u64
    }

    /// An operation on the file begins.
    pub fn begin(&self) {
        self.under_way.set(self.under_way.get() + 1);
    }

    /// An operation on the file has ended.
    pub fn end(&self) {
        self.under_way.set(self.under_way.get() - 1);
    }

    /// How many operations on the file are under way.
    pub fn under_way(&self) -> u32 {
        self.under_way.get()
    }

    /// Whether its device is accessed like memory.
    pub fn is_memory(&self) -> bool {
        self.traits.synchronous
    }

    /// Pays for one access and says how it is made.
    pub async fn access(&self, executor: &Executor) -> Access {
        crate::io::access(executor, &self.traits).await
    }

    /// What the tier is and did.
    pub fn report(&self) -> TierReport {
        let TierStatistics {
            reads,
            dirty_reads,
            read_times,
            writes,
            bytes_written,
            modified,
            fallbacks,
            declined,
            damaged,
            ..
        } = &self.statistics;
        TierReport {
            name: self.kind.label(),
            device: self.device.clone(),
            pages: u64::from(self.pages),
            size: u64::from(self.pages) * self.page_size as u64,
            volatile: self.volatile,
            reads: reads.get(),
            read_ns_mean: read_times.mean_ns(),
            saved_ns: None,
            dirty_reads: dirty_reads.get(),
            writes: writes.get(),
            bytes_written: bytes_written.get(),
            modified: modified.get(),
            fallbacks: fallbacks.get(),
            declined: declined.get(),
            damaged: damaged.get(),
            unusable: 0,
            write_budget_bytes_per_day: None,
            rated_bytes: None,
            lost: None,
        }
    }
}
