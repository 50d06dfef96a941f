//! The checkpoint server of the memory-resident sets: sweeps over their segments that bring one copy of the backup up to
//! date (Garcia-Molina and Salem, System M, 1988, sections 2.3 and 3).
//!
//! Segments are taken one after the other while transactions run. The image of a segment is always a committed state; the
//! strategy decides of which moment (see [`Capture`]). Changes that were committed after the sweep began are replayed from the
//! log at a restart. A copy counts when it is durable, when the log is durable up to its last image, and when the superblock
//! names it.
//!
//! Sweeps have a clock of their own beside the checkpoints of pages, and the log is kept for whichever needs it longer.
//! TCCOU can be told to wait for transactions to end, as System M does, so that the cost of that can be measured; its
//! backup is the same without.

use super::pace::SweepPace;
use super::relief::note_stall;
use crate::engine::{BlackWhiteSweep, Engine, SetStore, Strategy, SweepSettings};
use crate::log::record::Body;
use crate::statistics::add;
use crate::superblock::CurrentBackup;
use crate::transaction::changer_ids;
use crate::{Error, Result};
use base::time::{MICROSECOND_NS, SECOND_NS};
use base::{Instant, Lsn, PartitionId, TransactionId};
use driver::{Frame, Work};
use executor::JoinHandle;
use std::collections::VecDeque;
use std::rc::Rc;
use structures::canary::{self, Canary};
use structures::set::{Capture, Logging};

/// How long a sweep waits for transactions that keep every segment that is left from being taken, in nanoseconds.
const BUSY_WAIT_NS: u64 = 20 * MICROSECOND_NS;

/// How long it waits for them at most once the database is closed, in nanoseconds.
const CLOSING_NS_MAX: u64 = SECOND_NS;

/// What is being written.
enum SegmentSource {
    /// A copy, in a frame of the sweep's own.
    Spooled,
    /// A copy that was made when the segment was first changed.
    Snapshot,
    /// The segment itself.
    Lent,
}

struct Written {
    segment: u32,
    source: SegmentSource,
    /// Ends with the segment's memory and how long it took, in nanoseconds.
    write: JoinHandle<(Option<Frame>, Result<u64>)>,
}

/// A sweep over one set.
struct Sweep<'a> {
    engine: &'a Rc<Engine>,
    partition: PartitionId,
    copy: usize,
    pace: &'a mut SweepPace,
    under_way: VecDeque<Written>,
    spare: Vec<Frame>,
}

/// Ends what a sweep has the sets do, also if it is given up.
struct Capturing<'a>(&'a SetStore);

impl Drop for Capturing<'_> {
    fn drop(&mut self) {
        self.0.sets.borrow_mut().end_capture();
        self.0.black_white_sweep.set(None);
    }
}

/// Brings the older copy of the sets' backup up to date. Returns what the superblock file is to say of it; `None` if there are
/// no sets. `unlogged`: sets have changed beside the log.
///
/// # Errors
/// The driver's or the log's. The other copy stays valid.
pub(super) async fn sweep(engine: &Rc<Engine>, unlogged: bool) -> Result<Option<CurrentBackup>> {
    let Some(current) = engine.catalog.superblock.borrow().backup.clone() else { return Ok(None) };
    let SweepSettings { strategy, quiesce, .. } = engine.checkpointer.sweep;
    let quiet = match strategy {
        Strategy::TransactionCopyOnUpdate if quiesce => Some(super::quiesce::quiesce(engine).await),
        _ => None,
    };
    if engine.core.log.end() == Lsn(current.begin) {
        let (is_named, lacks) = (names_sweeps(engine), lacks_segment(engine, &current));
        let has_room = !engine.core.log.is_full() || is_named && lacks;
        let may_log = unlogged || has_room && engine.has_unpromised_log(0);
        if may_log || canary::is_planted(Canary::UnadmittedCreation) {
            // Commits know a sweep by where it begins, so no two begin at the same place.
            engine.core.log_and_apply(TransactionId::SYSTEM, &Body::System, &[]);
        } else if is_named || !lacks {
            // Nothing was logged since the last sweep began, so its copy has everything; and each sweep would take a page of
            // the reserve, or of what rollbacks were promised, for as long as something else keeps the log from being given up.
            return Ok(Some(current));
        }
        // A copy that a backup has found to lack a segment is followed by the other one all the same.
    }
    let (copy, begin) = (1 - usize::from(current.copy), engine.core.log.end());
    let partitions = engine.catalog.partitions.borrow().kept();
    let sets = || partitions.iter().filter(|found| found.set_settings().is_some());
    let counts: Vec<(PartitionId, u32)> = {
        let mut memory = engine.sets.sets.borrow_mut();
        if let Some(capture) = strategy.capture() {
            memory.begin_capture(capture);
            if names_sweeps(engine) {
                let first = TransactionId(engine.transactions.registry.borrow().next());
                engine.sets.black_white_sweep.set(Some(BlackWhiteSweep { begin, first }));
            }
        }
        sets().map(|partition| (partition.id(), memory.segments(partition.id()))).collect()
    };
    let capturing = Capturing(&engine.sets);
    drop(quiet);
    let segments = counts.iter().map(|(_, count)| u64::from(*count)).sum();
    let mut pace = SweepPace::new(&engine.checkpointer.sweep, (engine.core.executor.now(), begin), segments);
    for (partition, count) in &counts {
        let (partition, under_way, spare) = (*partition, VecDeque::new(), Vec::new());
        Sweep { engine, partition, copy, pace: &mut pace, under_way, spare }.pass(*count).await?;
    }
    drop(capturing);
    if !canary::is_planted(Canary::UnsyncedBackup)
        && let swept = counts.iter().filter(|(_, count)| *count > 0).map(|(partition, _)| *partition)
        && let Err(error) = engine.sets.backup.sync(&engine.core.executor, copy, swept).await
    {
        // What was written may be lost, although it was noted as done.
        let mut memory = engine.sets.sets.borrow_mut();
        for (partition, count) in counts {
            (0..count).for_each(|segment| memory.mark_dirty(partition, segment, copy));
        }
        return Err(error);
    }
    // The images hold what was committed up to now; the log must not end before that.
    engine.core.log.flush(engine.core.log.end()).await?;
    add(&engine.core.statistics.sweeps, 1);
    let segments = counts.iter().map(|(partition, count)| (partition.0, *count)).collect();
    let images = counts.iter().map(|&(set, count)| (set.0, engine.sets.backup.images((set, copy), count))).collect();
    Ok(Some(CurrentBackup { copy: copy as u8, begin: begin.0, segments, images }))
}

/// Whether commits name the sweep in progress.
fn names_sweeps(engine: &Engine) -> bool {
    let is_black_white = matches!(engine.checkpointer.sweep.strategy.capture(), Some(Capture::BlackWhite(_)));
    is_black_white && engine.transactions.rules.logging != Logging::Values
}

/// Whether the complete copy of the backup lacks what a segment of it has in memory.
fn lacks_segment(engine: &Engine, current: &CurrentBackup) -> bool {
    let (memory, partitions) = (engine.sets.sets.borrow(), engine.catalog.partitions.borrow().kept());
    let mut sets = partitions.iter().filter(|found| found.set_settings().is_some()).map(|found| found.id());
    let is_dirty = |set, segment| memory.is_dirty(set, segment, usize::from(current.copy));
    sets.any(|set| {
        let count = current.segments_of(set).min(memory.segments(set));
        (0..count).any(|segment| is_dirty(set, segment))
    })
}

impl Sweep<'_> {
    /// Takes the first `count` segments and writes the dirty ones among them. All writes have ended when this returns.
    async fn pass(&mut self, count: u32) -> Result<()> {
        let engine = self.engine;
        let (size, settings) = (engine.sets.sets.borrow().segment_size(self.partition), engine.checkpointer.sweep);
        let mut outcome =
            engine.sets.backup.reserve(&engine.core.executor, (self.partition, self.copy), (count, size)).await;
        let (mut left, mut closing_since): (Vec<u32>, _) = ((0..count).collect(), None);
        while outcome.is_ok() && !left.is_empty() {
            let before = left.len();
            let mut busy = Vec::new();
            for segment in left {
                if outcome.is_err() {
                    break;
                }
                let (began, under_way) = (engine.core.executor.now(), self.under_way.len());
                if self.may_take(segment) {
                    let began = engine.core.executor.now();
                    outcome = self.take(segment);
                    let taken_ns = engine.core.executor.now().since_ns(began);
                    engine.core.executor.pay_debt().await;
                    self.pace.took();
                    if taken_ns > 0 && !self.is_urgent() {
                        engine.core.executor.sleep_ns(SweepPace::after_copy_ns(taken_ns)).await;
                    }
                } else {
                    busy.push(segment);
                }
                let written =
                    self.under_way.get(under_way).map(|written| !matches!(written.source, SegmentSource::Snapshot));
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
                // The transaction that keeps a segment from being taken may itself wait for one that is lent.
                if self.under_way.is_empty() {
                    outcome = self.await_ends(&mut closing_since).await;
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

    /// Waits for transactions that keep all that is left from being taken. Once the database is closed none of them can be committed any more,
    /// and those that do not end by themselves are not waited for without end.
    async fn await_ends(&self, closing_since: &mut Option<Instant>) -> Result<()> {
        let engine = self.engine;
        let (executor, checkpointer) = (&engine.core.executor, &engine.checkpointer);
        checkpointer.is_stalled.set(true);
        note_stall(&engine.core.log, &checkpointer.relief);
        executor.sleep_ns(BUSY_WAIT_NS).await;
        checkpointer.is_stalled.set(false);
        if !engine.core.closing.get() || engine.transactions.endings.get() > 0 {
            *closing_since = None;
            return Ok(());
        }
        let since = *closing_since.get_or_insert(executor.now());
        let is_over = executor.now().since_ns(since) >= CLOSING_NS_MAX;
        if is_over { Err(Error::Unended { holders: changer_ids(engine) }) } else { Ok(()) }
    }

    /// After a segment was taken at `began` and is being written: waits until the next one may be. What was copied long ago is
    /// not kept waiting, so that its memory is given back soon.
    async fn pause(&mut self, began: Instant, was_copied: bool) -> Result<()> {
        let engine = self.engine;
        let mut pause_ns = engine.checkpointer.sweep.segment_interval_ns;
        let mut outcome = Ok(());
        if was_copied && !self.is_urgent() {
            if let Some(spread_ns) = self.pace.spread_ns() {
                pause_ns = pause_ns.max(spread_ns);
            } else {
                outcome = self.end_all().await;
                let (now, end, room) = (engine.core.executor.now(), engine.core.log.end(), engine.core.log.room());
                pause_ns = pause_ns.max(now.since_ns(began) + self.pace.after_write_ns((now, end), room));
            }
        }
        if pause_ns > 0 {
            engine.core.executor.sleep_until(began.plus_ns(pause_ns)).await;
        }
        outcome
    }

    /// Whether tasks wait for the end of the sweep, or for segments lent to it. Transactions that would mix colours wait for
    /// it, too: the longer segments of both colours exist, the more of them start over in vain.
    fn is_urgent(&self) -> bool {
        let engine = self.engine;
        let SweepSettings { strategy, spool, .. } = engine.checkpointer.sweep;
        let lends = strategy != Strategy::Fuzzy && !spool;
        let refuses = strategy == Strategy::TransactionBlackWhite;
        lends || refuses || engine.checkpointer.urgent.get() > 0 || engine.core.log.is_full()
    }

    fn may_take(&self, segment: u32) -> bool {
        let is_fuzzy = self.engine.checkpointer.sweep.strategy == Strategy::Fuzzy;
        is_fuzzy || self.engine.sets.sets.borrow().may_take(self.partition, segment)
    }

    /// Takes a segment and starts to write it, if it is dirty.
    fn take(&mut self, segment: u32) -> Result<()> {
        let engine = self.engine;
        let SweepSettings { strategy, spool, .. } = engine.checkpointer.sweep;
        let mut sets = engine.sets.sets.borrow_mut();
        if sets.is_dirty(self.partition, segment, self.copy) {
            // First of all that may fail.
            let spare = match self.spare.pop() {
                Some(frame) => frame,
                None => {
                    let size = sets.segment_size(self.partition);
                    engine.core.executor.frame(size)?
                }
            };
            sets.clear_dirty(self.partition, segment, self.copy);
            let lends = strategy != Strategy::Fuzzy && !spool;
            let (source, image) = if let Some(snapshot) = sets.take_snapshot(self.partition, segment) {
                self.spare.push(spare);
                (SegmentSource::Snapshot, snapshot)
            } else if let Some(own) = lends.then(|| sets.lend(self.partition, segment)).flatten() {
                self.spare.push(spare);
                (SegmentSource::Lent, own)
            } else {
                let mut image = spare;
                sets.image(self.partition, segment, &mut image);
                if spool {
                    engine.core.executor.charge(Work::SegmentAllocation);
                    engine.core.executor.charge_times(Work::SegmentCopy, image.len() as u64 >> 10);
                }
                (SegmentSource::Spooled, image)
            };
            self.write(segment, source, image);
        }
        if strategy != Strategy::Fuzzy {
            engine.core.executor.charge(Work::LockPair);
            sets.mark_taken(self.partition, segment);
        }
        Ok(())
    }

    fn write(&mut self, segment: u32, source: SegmentSource, image: Frame) {
        let (engine, place) = (self.engine.clone(), (self.partition, self.copy));
        let write = self.engine.core.executor.spawn(async move {
            let began = engine.core.executor.now();
            let (frame, result) = engine.sets.backup.write(&engine.core.executor, place, segment, image).await;
            (frame, result.map(|()| engine.core.executor.now().since_ns(began)))
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
        let engine = self.engine;
        let mut sets = engine.sets.sets.borrow_mut();
        let frame = frame.expect("a write gives its buffer back");
        match source {
            SegmentSource::Spooled => self.spare.push(frame),
            SegmentSource::Snapshot => sets.reuse(frame),
            SegmentSource::Lent => {
                sets.take_back(self.partition, segment, frame);
                engine.sets.segment_returned.wake_all(&engine.core.executor);
            }
        }
        match &result {
            Ok(write_ns) => {
                self.pace.wrote(*write_ns);
                add(&engine.core.statistics.segments_written, 1);
            }
            Err(_) => sets.mark_dirty(self.partition, segment, self.copy),
        }
        result.map(drop)
    }
}
