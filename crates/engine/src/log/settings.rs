use super::duplex::WATCHES;
use super::group_commit::GroupCommit;
use super::measured::Measured;
use super::page::{HEADER_SIZE, PAGE_SIZE_MAX, PAGE_SIZE_MIN};
use crate::{Error, Result};
use base::units::format_size;

/// How log writes become durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncMethod {
    /// Each write is a data-sync write: best for single and few writes (`PROBES.md`, durable writes).
    SyncWrite,
    /// Plain writes, followed by a sync that covers all that have completed.
    WriteThenSync,
}

/// When a write to two log devices counts as durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Acknowledged {
    /// When both have it: one may be lost with all that it holds.
    #[default]
    Both,
    /// When one of them has it, and everything before: a power cut loses nothing, and the faster device sets the pace.
    First,
}

/// A second device that every log write goes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Second {
    /// The device's name.
    pub device: String,
    /// When a write counts as durable.
    pub acknowledged: Acknowledged,
}

/// How many writes are in flight without a setting and without a measurement.
const WRITES_IN_FLIGHT_MAX: usize = 4;

/// How the log is laid out and written.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The log's file on its device.
    pub file: String,
    /// The size of a log page in bytes, a multiple of the device's alignment. Fixed when the log is created.
    pub page_size: usize,
    /// The size that the circular file grows to in bytes, a multiple of the page size. Fixed when the log is created.
    pub capacity: u64,
    /// How many bytes of the file are there from the beginning; it grows as it is filled.
    pub first_extent: u64,
    /// The largest single log write in bytes, a multiple of the page size: the size of a frame of the log buffer.
    pub write_size_max: usize,
    /// How many log writes may be in flight at once, except under [`GroupCommit::None`], where each commit submits its own,
    /// and on a device that is accessed synchronously, where it is one. `None`: as measured when the log was created, four if
    /// nothing was.
    pub writes_in_flight_max: Option<usize>,
    /// Whether the device serves one write at a time, according to a measurement: then a group takes every ready commit,
    /// because two halves would wait for each other.
    pub is_serial: bool,
    /// When commits are written.
    pub group_commit: GroupCommit,
    /// Whether commits wait until they are durable. If not, a commit returns at once; the log is written when pages fill up
    /// or a tenth of a second later, and synced a second after a commit at the latest, or as soon as pages or the superblock file are written
    /// that rely on it. The end of the process loses what was not written, and a power cut what was not synced: of the transactions
    /// those that committed last, and no others.
    pub durable: bool,
    /// How writes become durable. `None`: as measured when the log was created, by data-sync writes if nothing was.
    pub sync_method: Option<SyncMethod>,
    /// A second device that every write goes to.
    pub second: Option<Second>,
    /// One of two log devices that is to be done without, because it was lost.
    pub without: Option<String>,
    /// How long one of two log devices may leave a write, a sync or a read of what is copied unanswered, in nanoseconds: it is lost after
    /// that, as one that fails is. At most an eighth of it passes before that is noticed.
    pub silence_ns_max: u64,
    /// Log bytes waiting in memory, in flight or not, beyond which [`super::Log::throttle`] holds new work back.
    pub buffer_size_max: u64,
    /// The share of the capacity, 0 to 1, that new work leaves free for rollbacks and for the checkpointer.
    pub reserve: f64,
    /// Where it is archived before its space is given up: a directory, by its absolute path, or a device. Nowhere if this is absent.
    pub archive: Option<String>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            file: "log".into(),
            page_size: 4096,
            capacity: 1 << 30,
            first_extent: 4 << 20,
            write_size_max: 256 << 10,
            writes_in_flight_max: Some(WRITES_IN_FLIGHT_MAX),
            is_serial: false,
            group_commit: GroupCommit::Adaptive,
            durable: true,
            sync_method: Some(SyncMethod::SyncWrite),
            second: None,
            without: None,
            silence_ns_max: 30 * base::time::SECOND_NS,
            buffer_size_max: 16 << 20,
            reserve: 0.25,
            archive: None,
        }
    }
}

impl Settings {
    /// The same with what is left to a measurement decided by it.
    pub(crate) fn decided_by(&self, measured: Option<Measured>) -> Settings {
        let writes_in_flight_max = measured.map(|measured| measured.writes_in_flight_max());
        Settings {
            is_serial: self.is_serial || (self.writes_in_flight_max, writes_in_flight_max) == (None, Some(1)),
            sync_method: self.sync_method.or(measured.map(|measured| measured.sync_method())),
            writes_in_flight_max: self.writes_in_flight_max.or(writes_in_flight_max),
            ..self.clone()
        }
    }

    /// The name of the file on the second device.
    pub fn second_file(&self) -> String {
        self.file_of(1)
    }

    /// The name of the file on the log's device (0) or on the second one (1).
    pub(crate) fn file_of(&self, index: usize) -> String {
        if index == 0 { self.file.clone() } else { format!("{}-2", self.file) }
    }

    /// Refuses a device that two do not go together with.
    pub(super) fn check_device(&self, name: &str, synchronous: bool) -> Result<()> {
        if self.second.is_some() && synchronous {
            return Err(Error::Setting(format!(
                "a log on two devices is written asynchronously, and device '{name}' is not; use it as a write buffer"
            )));
        }
        Ok(())
    }

    /// Whether anything is left to a measurement.
    pub(super) fn asks_to_measure(&self) -> bool {
        self.sync_method.is_none() || self.writes_in_flight_max.is_none()
    }

    /// How writes become durable.
    pub fn method(&self) -> SyncMethod {
        self.sync_method.unwrap_or(SyncMethod::SyncWrite)
    }

    /// How many writes may be in flight on a device that is accessed asynchronously, if commits share them.
    pub fn in_flight_max(&self) -> usize {
        self.writes_in_flight_max.unwrap_or(WRITES_IN_FLIGHT_MAX)
    }

    /// Checks what does not depend on the file: sizes and limits, against the device's alignment in bytes.
    pub(super) fn check(&self, alignment: u32) -> Result<()> {
        let page = self.page_size;
        if !(PAGE_SIZE_MIN..=PAGE_SIZE_MAX).contains(&page) || !page.is_multiple_of(alignment.max(1) as usize) {
            return Err(Error::Setting(format!(
                "log page size {page} is not between {PAGE_SIZE_MIN} and {PAGE_SIZE_MAX} bytes and a multiple of the \
                 device's alignment of {alignment} bytes"
            )));
        }
        if self.write_size_max == 0 || !self.write_size_max.is_multiple_of(page) || self.write_size_max > 1 << 30 {
            return Err(Error::Setting(format!(
                "the largest log write of {} bytes is not a multiple of the log page size {page} up to 1 GiB",
                self.write_size_max
            )));
        }
        if self.silence_ns_max < WATCHES {
            return Err(Error::Setting(format!(
                "a log device cannot answer within {} ns; give it seconds, or milliseconds on described hardware",
                self.silence_ns_max
            )));
        }
        if self.writes_in_flight_max == Some(0) {
            return Err(Error::Setting("the number of log writes in flight must be at least 1".into()));
        }
        if !(0.0..=0.9).contains(&self.reserve) {
            return Err(Error::Setting(format!("the log's reserve {} is not between 0 and 0.9", self.reserve)));
        }
        self.group_commit.check()
    }

    /// How many bytes of the file a creation makes: whole pages, at least as many as the smallest log has.
    pub(crate) fn first_extent(&self) -> u64 {
        let page = self.page_size as u64;
        self.first_extent.next_multiple_of(page).max(16 * page).min(self.capacity)
    }

    /// At most what a record of `length` bytes takes in the log, with the page that it begins on and the rest of the last one.
    pub(crate) fn bytes_for(&self, length: u64) -> u64 {
        let page_size = self.page_size as u64;
        (length.div_ceil(page_size - HEADER_SIZE as u64) + 1) * page_size
    }

    /// Refuses a circular file of this size in which records of `length` bytes would never find room beside others.
    pub(crate) fn check_catalog(&self, length: u64, capacity: u64) -> Result<()> {
        let needed = self.bytes_for(length) + self.bytes_for(0);
        if length == 0 || needed <= capacity {
            return Ok(());
        }
        Err(Error::Setting(format!(
            "a log of {} has no room for what its archive has to be told of all partitions, which takes {} of it; ask for a larger log, \
             and leave the archive out of the opening that makes it larger",
            format_size(capacity),
            format_size(needed)
        )))
    }

    /// Checks the size of the circular file.
    pub(crate) fn check_capacity(&self, capacity: u64) -> Result<()> {
        let page = self.page_size as u64;
        if capacity < 8 * page || !capacity.is_multiple_of(page) {
            return Err(Error::Setting(format!(
                "the log's size of {capacity} bytes (file '{}') is not a multiple of its page size {page} and at least \
                 eight pages",
                self.file
            )));
        }
        Ok(())
    }
}
