//! The checkpoint server of the memory-resident sets: sweeps over their segments that bring one copy of the backup up to
//! date (Garcia-Molina and Salem, System M, 1988, sections 2.3 and 3).
//!
//! Segments are taken one after the other while transactions run. What is taken of one is committed state always; the
//! strategy decides of which moment (see [`Capture`]). What was committed since the sweep began is repeated from the log at a
//! restart. A copy counts when it is durable, and the log up to the last image with it, and the home file names it.
//!
//! Sweeps have a clock of their own beside the checkpoints of pages, and the log is kept for whichever needs it longer.
//! TCCOU can be told to wait for transactions to end, as System M does, so that the cost of that can be measured; its
//! backup is the same without.

use super::pace::Pace;
use crate::backup::DEPTH;
use crate::database::{Database, Painting};
use crate::home::Current;
use crate::statistics::add;
use crate::{Error, Result};
use base::time::MICROSECOND_NS;
use base::{Instant, Lsn, PartitionId, TransactionId};
use driver::{Frame, Work};
use executor::JoinHandle;
use std::collections::VecDeque;
use structures::canary::{self, Canary};
use structures::set::{Capture, Logging, Unit};

/// What a sweep takes of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Strategy {
    /// The state at the moment at which the segment is taken; nobody waits, nothing is consistent (FUZZY).
    #[default]
    Fuzzy,
    /// The same, but no call touches segments of which some were taken and some not (ACBW).
    ActionBlackWhite,
    /// The same, but no transaction does, unless it only reads (TCBW).
    TransactionBlackWhite,
    /// The state at the beginning of the sweep: a segment is copied before it is first changed (ACCOU). System M completes
    /// every action before the sweep begins; here an action is one synchronous step, so that none is ever under way.
    ActionCopyOnUpdate,
    /// The same after every transaction has been completed, if [`Settings::quiesce`] says so (TCCOU). Without it this is the
    /// same as ACCOU: images leave unfinished changes out, so what both take is transaction-consistent at any moment.
    TransactionCopyOnUpdate,
    /// The state at the beginning of the sweep: a record is copied before it is first changed (CALC: Ren, Diamond, Abadi and
    /// Thomson, SIGMOD 2016). It costs transactions least among the consistent ones: nobody waits or begins again, and no
    /// transaction copies more than the records that it changes.
    StableVersions,
}

impl Strategy {
    /// Every strategy.
    pub const ALL: [Strategy; 6] = [
        Strategy::Fuzzy,
        Strategy::ActionBlackWhite,
        Strategy::TransactionBlackWhite,
        Strategy::ActionCopyOnUpdate,
        Strategy::TransactionCopyOnUpdate,
        Strategy::StableVersions,
    ];

    fn capture(self) -> Option<Capture> {
        match self {
            Strategy::Fuzzy => None,
            Strategy::ActionBlackWhite => Some(Capture::BlackWhite(Unit::Action)),
            Strategy::TransactionBlackWhite => Some(Capture::BlackWhite(Unit::Transaction)),
            Strategy::ActionCopyOnUpdate | Strategy::TransactionCopyOnUpdate => Some(Capture::CopyOnUpdate),
            Strategy::StableVersions => Some(Capture::StableVersions),
        }
    }
}

/// How the checkpoint server sweeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// What it takes of a segment.
    pub strategy: Strategy,
    /// Whether a segment is copied, so that it can be changed while the copy is written. Without spooling a consistent sweep
    /// writes the segment itself, and whoever wants to use it waits. FUZZY copies always, because nobody waits for it; System M
    /// writes segments while they change, so that on described hardware these copies cost nothing unless it spools.
    pub spool: bool,
    /// Whether TCCOU lets transactions come to their ends before it begins, while no other begins, as System M does. What it
    /// takes is the same without.
    pub quiesce: bool,
    /// The least time from the beginning of one sweep to that of the next in nanoseconds (System M, section 2.3: the
    /// checkpoint interval floor); 0: one follows the other. `None`: sets are swept when the policy asks for checkpoints.
    pub interval_ns: Option<u64>,
    /// Over how much of that interval a sweep that nobody waits for spreads its writes, in percent, up to 90: the fewer a
    /// second, the fewer log writes find one before them at the device. What a restart has to repeat is two intervals of log
    /// at most in any case.
    pub spread_percent: u8,
    /// For which share of the time a sweep that nobody waits for writes, in percent, 1 to 100, where it has no interval to be
    /// spread over: after each write it rests, so that the log has the device to itself, unless the log would fill up meanwhile.
    /// With 100 it writes as fast as copies allow, `segments_in_flight` at once.
    pub device_percent: u8,
    /// How many segments are being written at once, at least 1; without spooling so many are locked. System M: 1.
    pub segments_in_flight: usize,
    /// The least time from taking one segment that is written to taking the next, in nanoseconds: 0 for as fast as the device
    /// takes them. A pace spares whoever else uses the device; on described hardware it can stand for what a sweep waits for
    /// a processor that is shared by time slices.
    pub segment_interval_ns: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            strategy: Strategy::default(),
            spool: true,
            quiesce: false,
            interval_ns: None,
            spread_percent: 50,
            device_percent: 10,
            segments_in_flight: DEPTH,
            segment_interval_ns: 0,
        }
    }
}

impl Settings {
    /// # Errors
    /// [`Error::Setting`].
    pub(crate) fn check(&self) -> Result<()> {
        let (spread, device) = (self.spread_percent, self.device_percent);
        if spread > 90 {
            let why = format!("a sweep spreads its writes over up to 90 percent of the interval, not {spread}");
            return Err(Error::Setting(why));
        }
        if !(1..=100).contains(&device) {
            let why = format!("a sweep writes for 1 to 100 percent of the time, not {device}");
            return Err(Error::Setting(why));
        }
        Ok(())
    }
}

/// How long a sweep waits for transactions that keep every segment that is left from being taken, in nanoseconds.
const BUSY_WAIT_NS: u64 = 20 * MICROSECOND_NS;

/// What is being written.
enum Source {
    /// A copy, in a frame of the sweep's own.
    Spooled,
    /// A copy that was made when the segment was first changed.
    Snapshot,
    /// The segment itself.
    Lent,
}

struct Written {
    segment: u32,
    source: Source,
    /// Ends with the segment's memory and how long it took, in nanoseconds.
    write: JoinHandle<(Option<Frame>, Result<u64>)>,
}

/// A sweep over one set.
struct Sweep<'a> {
    database: &'a Database,
    partition: PartitionId,
    copy: usize,
    pace: &'a mut Pace,
    under_way: VecDeque<Written>,
    spare: Vec<Frame>,
}

/// Ends what a sweep has the sets do, also if it is given up.
struct Capturing<'a>(&'a Database);

impl Drop for Capturing<'_> {
    fn drop(&mut self) {
        self.0.0.sets.borrow_mut().end_capture();
        self.0.0.painting.set(None);
    }
}

impl Database {
    /// Brings the older copy of the sets' backup up to date. Returns what the home file is to say of it; `None` if there are
    /// no sets. `unlogged`: sets have changed beside the log.
    ///
    /// # Errors
    /// The driver's or the log's. The other copy stays valid.
    pub(super) async fn sweep(&self, unlogged: bool) -> Result<Option<Current>> {
        let Some(current) = self.0.contents.borrow().backup.clone() else { return Ok(None) };
        let Settings { strategy, quiesce, .. } = self.0.settings.sweep;
        let quiet = match strategy {
            Strategy::TransactionCopyOnUpdate if quiesce => Some(self.quiesce().await),
            _ => None,
        };
        if self.0.log.end() == Lsn(current.begin) {
            if self.0.log.is_full() && !unlogged {
                // Nothing was logged since the last sweep began, so its copy has everything; and each sweep would take a page
                // of the reserve, for as long as something else keeps the log from being given up.
                return Ok(Some(current));
            }
            // Commits know a sweep by where it begins, so no two begin at the same place.
            self.change(&[]);
        }
        let (copy, begin) = (1 - usize::from(current.copy), self.0.log.end());
        let partitions = self.0.partitions.borrow().kept();
        let sets = || partitions.iter().filter(|found| found.set_settings().is_some());
        let counts: Vec<(PartitionId, u32)> = {
            let mut memory = self.0.sets.borrow_mut();
            if let Some(capture) = strategy.capture() {
                memory.begin_capture(capture);
                if self.0.settings.logging != Logging::Values && matches!(capture, Capture::BlackWhite(_)) {
                    let first = TransactionId(self.0.registry.borrow().next());
                    self.0.painting.set(Some(Painting { begin, first }));
                }
            }
            sets().map(|partition| (partition.id(), memory.segments(partition.id()))).collect()
        };
        let capturing = Capturing(self);
        drop(quiet);
        let segments = counts.iter().map(|(_, count)| u64::from(*count)).sum();
        let mut pace = Pace::new(&self.0.settings.sweep, (self.0.executor.now(), begin), segments);
        for (partition, count) in &counts {
            let (partition, under_way, spare) = (*partition, VecDeque::new(), Vec::new());
            Sweep { database: self, partition, copy, pace: &mut pace, under_way, spare }.pass(*count).await?;
        }
        drop(capturing);
        if !canary::is_planted(Canary::UnsyncedBackup)
            && let swept = counts.iter().filter(|(_, count)| *count > 0).map(|(partition, _)| *partition)
            && let Err(error) = self.0.backup.sync(&self.0.executor, copy, swept).await
        {
            // What was written may be lost, although it was noted as done.
            let mut memory = self.0.sets.borrow_mut();
            for (partition, count) in counts {
                (0..count).for_each(|segment| memory.mark_dirty(partition, segment, copy));
            }
            return Err(error);
        }
        // The images hold what was committed up to now; the log must not end before that.
        self.0.log.flush(self.0.log.end()).await?;
        add(&self.0.statistics.sweeps, 1);
        let segments = counts.iter().map(|(partition, count)| (partition.0, *count)).collect();
        let images = counts.iter().map(|&(set, count)| (set.0, self.0.backup.images((set, copy), count))).collect();
        Ok(Some(Current { copy: copy as u8, begin: begin.0, segments, images }))
    }
}

impl Sweep<'_> {
    /// Takes the first `count` segments and writes the dirty ones among them. All writes have ended when this returns.
    async fn pass(&mut self, count: u32) -> Result<()> {
        let inner = &self.database.0;
        let (size, settings) = (inner.sets.borrow().segment_size(self.partition), inner.settings.sweep);
        let mut outcome = inner.backup.reserve(&inner.executor, (self.partition, self.copy), (count, size)).await;
        let mut left: Vec<u32> = (0..count).collect();
        while outcome.is_ok() && !left.is_empty() {
            let before = left.len();
            let mut busy = Vec::new();
            for segment in left {
                if outcome.is_err() {
                    break;
                }
                let (began, under_way) = (inner.executor.now(), self.under_way.len());
                if self.may_take(segment) {
                    let began = inner.executor.now();
                    outcome = self.take(segment);
                    let taken_ns = inner.executor.now().since_ns(began);
                    inner.executor.settle().await;
                    self.pace.took();
                    if taken_ns > 0 && !self.is_urgent() {
                        inner.executor.sleep_ns(Pace::after_copy_ns(taken_ns)).await;
                    }
                } else {
                    busy.push(segment);
                }
                let written = self.under_way.get(under_way).map(|written| !matches!(written.source, Source::Snapshot));
                if self.under_way.len() >= settings.segments_in_flight.max(1) {
                    let ended = self.end_first().await;
                    outcome = outcome.and(ended);
                }
                if let Some(was_copied) = written {
                    let ended = self.pause(began, was_copied).await;
                    outcome = outcome.and(ended);
                }
            }
            if busy.len() == before {
                // Whoever keeps a segment from being taken may wait for one that is lent.
                if self.under_way.is_empty() {
                    self.database.note_stall();
                    inner.executor.sleep_ns(BUSY_WAIT_NS).await;
                } else {
                    let ended = self.end_first().await;
                    outcome = outcome.and(ended);
                }
            }
            left = busy;
        }
        let ended = self.end_all().await;
        outcome.and(ended)
    }

    /// After a segment was taken at `began` and is being written: waits until the next one may be. What was copied long ago is
    /// not kept waiting, so that its memory is given back soon.
    async fn pause(&mut self, began: Instant, was_copied: bool) -> Result<()> {
        let inner = &self.database.0;
        let mut pause_ns = inner.settings.sweep.segment_interval_ns;
        let mut outcome = Ok(());
        if was_copied && !self.is_urgent() {
            if let Some(spread_ns) = self.pace.spread_ns() {
                pause_ns = pause_ns.max(spread_ns);
            } else {
                outcome = self.end_all().await;
                let (now, end, room) = (inner.executor.now(), inner.log.end(), inner.log.room());
                pause_ns = pause_ns.max(now.since_ns(began) + self.pace.after_write_ns((now, end), room));
            }
        }
        if pause_ns > 0 {
            inner.executor.sleep_until(began.plus_ns(pause_ns)).await;
        }
        outcome
    }

    /// Whether somebody waits for the end of the sweep, or for segments that it has been lent. Transactions that would mix
    /// colours wait for it, too: the longer segments of both are there, the more of them begin again in vain.
    fn is_urgent(&self) -> bool {
        let inner = &self.database.0;
        let Settings { strategy, spool, .. } = inner.settings.sweep;
        let lends = strategy != Strategy::Fuzzy && !spool;
        let refuses = strategy == Strategy::TransactionBlackWhite;
        lends || refuses || inner.checkpointer.urgent.get() > 0 || inner.log.is_full()
    }

    fn may_take(&self, segment: u32) -> bool {
        let is_fuzzy = self.database.0.settings.sweep.strategy == Strategy::Fuzzy;
        is_fuzzy || self.database.0.sets.borrow().may_take(self.partition, segment)
    }

    /// Takes a segment and starts to write it, if it is dirty.
    fn take(&mut self, segment: u32) -> Result<()> {
        let inner = &self.database.0;
        let Settings { strategy, spool, .. } = inner.settings.sweep;
        let mut sets = inner.sets.borrow_mut();
        if sets.is_dirty(self.partition, segment, self.copy) {
            // First of all that may fail.
            let spare = match self.spare.pop() {
                Some(frame) => frame,
                None => {
                    let size = sets.segment_size(self.partition);
                    inner.executor.frame(size)?
                }
            };
            sets.clear_dirty(self.partition, segment, self.copy);
            let lends = strategy != Strategy::Fuzzy && !spool;
            let (source, image) = if let Some(snapshot) = sets.take_snapshot(self.partition, segment) {
                self.spare.push(spare);
                (Source::Snapshot, snapshot)
            } else if let Some(own) = lends.then(|| sets.lend(self.partition, segment)).flatten() {
                self.spare.push(spare);
                (Source::Lent, own)
            } else {
                let mut image = spare;
                sets.image(self.partition, segment, &mut image);
                if spool {
                    inner.executor.charge(Work::SegmentAllocation);
                    inner.executor.charge_times(Work::SegmentCopy, image.len() as u64 >> 10);
                }
                (Source::Spooled, image)
            };
            self.write(segment, source, image);
        }
        if strategy != Strategy::Fuzzy {
            inner.executor.charge(Work::LockPair);
            sets.paint(self.partition, segment);
        }
        Ok(())
    }

    fn write(&mut self, segment: u32, source: Source, image: Frame) {
        let (database, place) = (self.database.clone(), (self.partition, self.copy));
        let write = self.database.0.executor.spawn(async move {
            let began = database.0.executor.now();
            let (frame, result) = database.0.backup.write(&database.0.executor, place, segment, image).await;
            (frame, result.map(|()| database.0.executor.now().since_ns(began)))
        });
        self.under_way.push_back(Written { segment, source, write });
    }

    async fn end_all(&mut self) -> Result<()> {
        let mut outcome = Ok(());
        while !self.under_way.is_empty() {
            let ended = self.end_first().await;
            outcome = outcome.and(ended);
        }
        outcome
    }

    async fn end_first(&mut self) -> Result<()> {
        let Written { segment, source, write } = self.under_way.pop_front().expect("a write is under way");
        let (frame, result) = write.join().await;
        let inner = &self.database.0;
        let mut sets = inner.sets.borrow_mut();
        let frame = frame.expect("a write gives its buffer back");
        match source {
            Source::Spooled => self.spare.push(frame),
            Source::Snapshot => sets.reuse(frame),
            Source::Lent => {
                sets.take_back(self.partition, segment, frame);
                inner.segment_returned.wake_all(&inner.executor);
            }
        }
        match &result {
            Ok(write_ns) => {
                self.pace.wrote(*write_ns);
                add(&inner.statistics.segments_written, 1);
            }
            Err(_) => sets.mark_dirty(self.partition, segment, self.copy),
        }
        result.map(drop)
    }
}
