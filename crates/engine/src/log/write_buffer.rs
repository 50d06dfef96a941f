//! A write buffer for the log on non-volatile memory: commits are durable when their log pages stand there; the log's own
//! device gets them afterwards (Rahm 1991, section 3.3).
//!
//! The buffer is a ring of whole log pages, which carry their position, opening and checksum. Room is given free in the order
//! in which it was taken.

use super::page::{self, HEADER_SIZE};
use super::{Circle, Settings};
use crate::Result;
use crate::io::{device, salvage};
use crate::statistics::add;
use crate::tier_file::{
    self, HEADER_BYTES, Kind, TierMark, TierRecord, TierReport, TierStatistics, WriteBufferSettings,
};
use base::Lsn;
use driver::{Access, DeviceId, DeviceTraits, FileId, Op};
use executor::Executor;
use std::cell::RefCell;
use std::collections::VecDeque;

/// A piece of log in the ring.
struct RingPart {
    offset: u64,
    length: u64,
    /// Its place in the log.
    position: u64,
    drained: bool,
}

/// The ring and its file.
pub struct WriteBuffer {
    file: FileId,
    device: String,
    capacity: u64,
    traits: DeviceTraits,
    pieces: RefCell<VecDeque<RingPart>>,
    statistics: TierStatistics,
}

impl WriteBuffer {
    /// Brings to the log's own device what a write buffer of an earlier opening holds. Returns what the superblock file is to say of
    /// it if it goes on as it is; else the superblock file has to forget it before another takes its place. The log is `needed` from there on.
    ///
    /// # Errors
    /// [`crate::Error::TierMissing`], or the driver's.
    pub async fn restore(
        executor: &Executor,
        (log_device, log, circle): (DeviceId, &Settings, Circle),
        settings: Option<&WriteBufferSettings>,
        (records, needed): (&[TierRecord], Lsn),
    ) -> Result<Option<TierRecord>> {
        let Some(record) = records.iter().find(|record| record.kind == Kind::LogBuffer) else { return Ok(None) };
        let found = restore(executor, (log_device, log, circle), record, needed).await?;
        let suits = |settings: &WriteBufferSettings| {
            (&settings.device, capacity(settings, log)) == (&record.device, record.capacity) && log.durable
        };
        let kept = found && settings.is_some_and(suits);
        Ok(kept.then(|| TierRecord { in_use: true, ..record.clone() }))
    }

    /// Opens the write buffer that `settings` ask for, if they do: `kept`, or a new one with this stamp. Returns it, and what
    /// the superblock file is to say of it before it is used.
    ///
    /// # Errors
    /// [`crate::Error::Setting`], or the driver's.
    pub async fn open(
        executor: &Executor,
        log: &Settings,
        settings: Option<&WriteBufferSettings>,
        kept: Option<TierRecord>,
        mark: TierMark,
    ) -> Result<Option<(WriteBuffer, TierRecord)>> {
        let wanted = |settings: &&WriteBufferSettings| capacity(settings, log) > 0 && log.durable;
        let Some(settings) = settings.filter(wanted) else { return Ok(None) };
        let device = device(executor, &settings.device)?;
        let traits = executor.traits(device);
        settings.check(traits.durable)?;
        let (capacity, name, kind) = (capacity(settings, log), settings.device.clone(), Kind::LogBuffer);
        let is_new = kept.is_none();
        let record =
            kept.unwrap_or(TierRecord { kind, device: name.clone(), stamp: mark.stamp, capacity, in_use: true });
        if is_new {
            executor.perform(Op::Remove { device, name: kind.file_name().to_owned() }).await.result?;
        }
        let (file, _) = tier_file::open_file(executor, device, kind, true).await?.expect("created if missing");
        if is_new {
            let length = tier_file::file_length(capacity);
            executor.perform(Op::Resize { file, length, prewrite: true }).await.result?;
            tier_file::write_header(executor, file, (&record, mark.database), (log.page_size, capacity)).await?;
        }
        let (pieces, statistics) = (RefCell::default(), TierStatistics::default());
        Ok(Some((WriteBuffer { file, device: name, capacity, traits, pieces, statistics }, record)))
    }

    /// The file.
    pub(super) fn file(&self) -> FileId {
        self.file
    }

    /// Whether a write of `length` bytes would find room.
    pub(super) fn has_room(&self, length: u64) -> bool {
        self.place(length).is_some()
    }

    /// Where a piece would go in the ring.
    fn place(&self, length: u64) -> Option<u64> {
        let pieces = self.pieces.borrow();
        let (Some(first), Some(last)) = (pieces.front(), pieces.back()) else {
            return (length <= self.capacity).then_some(0);
        };
        let (tail, head) = (first.offset, last.offset + last.length);
        if head > tail {
            if self.capacity - head >= length {
                return Some(head);
            }
            return (tail >= length).then_some(0);
        }
        (tail - head >= length).then_some(head)
    }

    /// Takes room for a piece of the log and says where in the file.
    pub(super) fn take(&self, position: u64, length: u64) -> Option<u64> {
        let Some(offset) = self.place(length) else {
            add(&self.statistics.fallbacks, 1);
            return None;
        };
        self.statistics.count_write(length);
        self.pieces.borrow_mut().push_back(RingPart { offset, length, position, drained: false });
        Some(HEADER_BYTES + offset)
    }

    /// The piece stands on the log's own device, or never stood here.
    pub(super) fn drained(&self, position: u64) {
        let mut pieces = self.pieces.borrow_mut();
        pieces.iter_mut().filter(|piece| piece.position == position).for_each(|piece| piece.drained = true);
        while pieces.front().is_some_and(|piece| piece.drained) {
            pieces.pop_front();
        }
    }

    /// The first position that the log's own device may lack.
    pub fn oldest(&self) -> Option<u64> {
        self.pieces.borrow().iter().filter(|piece| !piece.drained).map(|piece| piece.position).min()
    }

    /// Pays for one access and says how it is made.
    pub(super) async fn access(&self, executor: &Executor) -> Access {
        crate::io::access(executor, &self.traits).await
    }

    /// What the buffer is and did; sizes are in log writes.
    pub fn report(&self) -> TierReport {
        let TierStatistics { writes, bytes_written, fallbacks, .. } = &self.statistics;
        TierReport {
            name: Kind::LogBuffer.label(),
            device: self.device.clone(),
            pages: self.capacity / 4096,
            size: self.capacity,
            volatile: false,
            writes: writes.get(),
            bytes_written: bytes_written.get(),
            modified: writes.get(),
            fallbacks: fallbacks.get(),
            ..TierReport::default()
        }
    }

    /// Forgets what was counted: the end of a warm-up.
    pub fn restart_statistics(&self) {
        self.statistics.restart();
    }
}

/// How many bytes of log the buffer holds: whole pages.
fn capacity(settings: &WriteBufferSettings, log: &Settings) -> u64 {
    settings.log_bytes - settings.log_bytes % log.page_size as u64
}

/// Writes to the log's file the pages that a write buffer holds and the file lacks. Returns whether the buffer is there.
async fn restore(
    executor: &Executor,
    (log_device, settings, circle): (DeviceId, &Settings, Circle),
    record: &TierRecord,
    needed: Lsn,
) -> Result<bool> {
    let missing = |detail: &str| if record.in_use { Err(record.missing(detail)) } else { Ok(false) };
    let Some(device) = executor.device(&record.device) else { return missing(&crate::io::undescribed(&record.device)) };
    let Some((file, length)) = tier_file::open_file(executor, device, record.kind, false).await? else {
        return missing(&format!("it holds no file '{}'", record.kind.file_name()));
    };
    let sizes = (settings.page_size, record.capacity, None);
    if let Err(detail) = tier_file::read_header(executor, (file, length), record, sizes).await? {
        return missing(&detail);
    }
    let (log, log_length) = executor.open(log_device, &settings.file, false).await?;
    let size = settings.page_size;
    let mut frames = executor.frames(2, size)?;
    let (mut copy, mut present) = (frames.pop().expect("two frames"), frames.pop().expect("two frames"));
    for offset in (0..record.capacity).step_by(size) {
        let read = salvage::read(executor, file, (HEADER_BYTES + offset, size), size, copy).await?;
        if let Some(fault) = read.fault.filter(|_| record.in_use) {
            // It may have held the last commit, and then nothing tells of that.
            let (name, at) = (record.kind.file_name(), HEADER_BYTES + offset);
            return missing(&format!("the log page at byte {at} of its file '{name}' cannot be read: {fault}"));
        }
        copy = read.frame;
        let Some((position, epoch)) = place(&copy[..size]) else { continue };
        if circle.end_of(log_length).is_some_and(|end| position + size as u64 > end.0) || position < circle.origin {
            // It was written for an earlier file of the log.
            continue;
        }
        let read = salvage::read(executor, log, (circle.offset(position), size), size, present).await?;
        present = read.frame;
        // Where the log's own page cannot be read, it may be a later one in that place, unless this one is still needed.
        let is_outdated = !read.unreadable.is_empty() && position + (size as u64) <= needed.0;
        if is_outdated || place(&present[..size]).is_some_and(|other| other >= (position, epoch)) {
            continue;
        }
        let access = Access::Asynchronous;
        let (offset, length) = (circle.offset(position), size as u32);
        let op = Op::Write { file: log, offset, length, buffer: copy, durable: true, access };
        let completion = executor.perform(op).await;
        completion.result?;
        copy = completion.buffer.expect("a write gives its buffer back");
    }
    Ok(true)
}

/// Where in the log a page says that it belongs, and in which opening it was written; `None` if it is no log page.
fn place(bytes: &[u8]) -> Option<(u64, u32)> {
    debug_assert!(bytes.len() >= HEADER_SIZE);
    let position = u64::from_le_bytes(bytes[8..16].try_into().expect("eight bytes"));
    page::verify(bytes, position).ok().map(|header| (position, header.epoch))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(capacity: u64) -> WriteBuffer {
        let traits =
            DeviceTraits { atomic_write: 512, untorn_on_request: 0, alignment: 64, synchronous: true, durable: true };
        let (pieces, device, statistics) = (RefCell::default(), String::new(), TierStatistics::default());
        WriteBuffer { file: FileId(0), device, capacity, traits, pieces, statistics }
    }

    #[test]
    fn pieces_never_overlap_and_all_room_comes_back() {
        let mut random = base::Random::stream(5, "ring");
        let ring = ring(64);
        let mut held: Vec<(u64, u64, u64)> = Vec::new();
        let (mut position, mut taken) = (0, 0);
        for _ in 0..20_000 {
            let length = random.between(1, 20);
            if random.chance(0.5) {
                if let Some(offset) = ring.take(position, length) {
                    let offset = offset - HEADER_BYTES;
                    assert!(offset + length <= 64);
                    assert!(held.iter().all(|(_, at, long)| offset + length <= *at || at + long <= offset));
                    held.push((position, offset, length));
                    taken += 1;
                }
                position += length;
            } else if !held.is_empty() {
                let (position, ..) = held.swap_remove(random.below(held.len() as u64) as usize);
                ring.drained(position);
            }
            assert_eq!(ring.oldest(), held.iter().map(|(position, ..)| *position).min());
        }
        assert!(taken > 2_000);
        held.drain(..).for_each(|(position, ..)| ring.drained(position));
        assert!(ring.has_room(64) && !ring.has_room(65));
    }
}
