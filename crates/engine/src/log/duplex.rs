//! A log on two devices: every write goes to both (duplexed logs, Gray and Reuter 1993, chapter 9).
//!
//! Each device gets all pages in their order, in writes of its own: what waits for a busy one goes there together. Durable is
//! what both have, or what one of them has up to there without a gap. If one fails, or does not answer for too long, nothing
//! is acknowledged until the superblock file says so; then the log goes on with the other.
//!
//! One of the devices has everything that was acknowledged, and both have it where both acknowledge. A restart takes
//! each page from the device with the version of the latest opening, gives the other device what it lacks, and only
//! then begins a new opening on both. A device that is missing at an opening is named. The setting `without` opens the
//! database without it, unless the first acknowledgement of either device sufficed. The faster device runs ahead by as
//! much as the log may keep in memory.

use super::batches::{Batches, FIRST, Taken};
use super::buffer::ClosedPages;
use super::{Acknowledged, Log, SyncMethod};
use base::Instant;
use base::Lsn;
use base::units::format_duration_ns;
use driver::{Access, Completion, Fault, FaultKind, FileId, Op};
use executor::{Executor, WaitQueue};
use std::cell::{Cell, OnceCell, RefCell};
use std::pin::pin;
use std::rc::Weak;

/// How often a device is found not to have answered before it counts as lost. Looks are counted, not time, so that a program
/// which was itself stopped for long does not blame the device.
pub(super) const WATCHES: u64 = 8;

/// One of the two files, open for writing.
#[derive(Clone)]
pub(super) struct SideFile {
    /// The device's name.
    pub device: String,
    /// The file.
    pub file: FileId,
    /// How its writes become durable.
    pub method: SyncMethod,
    /// How many of them may be in flight.
    pub in_flight_max: usize,
}

/// One of the two files, and what is under way there.
struct Side {
    place: SideFile,
    batches: Batches,
    /// It has everything before this, if power stays.
    written: u64,
    /// It has everything before this, whatever happens to the power.
    durable: u64,
    /// When the sync under way was submitted.
    syncing_since: Option<Instant>,
    /// Whether it is watched that the device answers.
    watched: bool,
    lost: bool,
}

impl Side {
    fn new(place: SideFile, durable: u64) -> Side {
        let (written, batches) = (durable, Batches::default());
        Side { place, batches, written, durable, syncing_since: None, watched: false, lost: false }
    }

    /// Since when the device owes an answer.
    fn waits_since(&self) -> Option<Instant> {
        self.batches.oldest_in_flight().into_iter().chain(self.syncing_since).min()
    }
}

/// Both.
pub(super) struct Duplex {
    acknowledged: Acknowledged,
    sides: RefCell<[Side; 2]>,
    /// Which one was lost, and why.
    lost: RefCell<Option<(usize, String)>>,
    /// Nothing is acknowledged: the superblock file does not know yet that one was lost.
    frozen: Cell<bool>,
    /// Told when one is lost, and when the other has more.
    alarm: WaitQueue,
    /// Called when one is lost.
    on_loss: OnceCell<Box<dyn Fn()>>,
}

impl Duplex {
    /// Both have everything before `durable`.
    pub fn new(places: [SideFile; 2], acknowledged: Acknowledged, durable: u64) -> Duplex {
        let (lost, frozen, alarm, on_loss) = Default::default();
        Duplex {
            acknowledged,
            sides: RefCell::new(places.map(|place| Side::new(place, durable))),
            lost,
            frozen,
            alarm,
            on_loss,
        }
    }

    /// Before this everything is written as it is to be.
    fn written(&self) -> u64 {
        self.acknowledged(|side| side.written)
    }

    /// Before this everything is durable as it is to be.
    fn durable(&self) -> u64 {
        self.acknowledged(|side| side.durable)
    }

    /// How far as many of the devices have it as are to.
    fn acknowledged(&self, has: impl Fn(&Side) -> u64) -> u64 {
        let sides = self.sides.borrow();
        let kept = sides.iter().filter(|side| !side.lost).map(has);
        match self.acknowledged {
            Acknowledged::Both => kept.min().unwrap_or(0),
            Acknowledged::First => kept.max().unwrap_or(0),
        }
    }

    /// The files that have everything before [`Duplex::complete`], and of which device each is.
    pub fn files(&self) -> Vec<(usize, FileId)> {
        let sides = self.sides.borrow();
        let kept = sides.iter().enumerate().filter(|(_, side)| !side.lost);
        kept.map(|(index, side)| (index, side.place.file)).collect()
    }

    /// Whether something is on its way to a device that is not lost.
    pub fn is_writing(&self) -> bool {
        self.sides.borrow().iter().any(|side| !side.lost && side.waits_since().is_some())
    }

    /// Before this everything is durable on each device that is not lost.
    fn complete(&self) -> u64 {
        self.least(|side| side.durable)
    }

    /// Before this everything is written to each device that is not lost.
    fn released(&self) -> u64 {
        self.least(|side| side.written)
    }

    fn least(&self, has: impl Fn(&Side) -> u64) -> u64 {
        self.sides.borrow().iter().filter(|side| !side.lost).map(has).min().unwrap_or(0)
    }
}

impl Log {
    /// Gives a piece to both devices.
    pub(super) fn submit_twice(&self, duplex: &Duplex, piece: ClosedPages) {
        let ClosedPages { position, length, frame } = piece;
        for index in 0..2 {
            {
                let side = &mut duplex.sides.borrow_mut()[index];
                if side.lost {
                    continue;
                }
                if !side.batches.extend_last(position, &frame[..length], self.circle) {
                    let mut own = self.inner.borrow_mut().buffer.spare_frame();
                    own[..length].copy_from_slice(&frame[..length]);
                    side.batches.push(ClosedPages { position, length, frame: own }, 0, false);
                }
            }
            self.pump(duplex, index);
        }
        self.inner.borrow_mut().buffer.recycle(frame);
    }

    /// Submits what waits for a device, as much as may be in flight there.
    fn pump(&self, duplex: &Duplex, index: usize) {
        loop {
            let (taken, file, durable) = {
                let side = &mut duplex.sides.borrow_mut()[index];
                if side.lost || side.batches.in_flight() >= side.place.in_flight_max {
                    return;
                }
                let Some(taken) = side.batches.take_ready(self.executor.now()) else { return };
                self.watch(side, index);
                (taken, side.place.file, self.settings.durable && side.place.method == SyncMethod::SyncWrite)
            };
            let Taken { number, piece: ClosedPages { position, length, frame }, .. } = taken;
            let durable = durable || number == FIRST;
            let (offset, access) = (self.circle.offset(position), Access::Asynchronous);
            let op = Op::Write { file, offset, length: length as u32, buffer: frame, durable, access };
            let log = self.this.upgrade().expect("borrowed from an Rc");
            self.executor.submit(op, move |completion| log.side_written(index, number, completion));
        }
    }

    /// Reacts to the end of a write to one of the devices.
    fn side_written(&self, index: usize, number: u64, completion: Completion) {
        if let Some(frame) = completion.buffer {
            self.inner.borrow_mut().buffer.recycle(frame);
        }
        let duplex = self.duplex.as_ref().expect("one of two devices was written to");
        if self.failed.borrow().is_some() || duplex.sides.borrow()[index].lost {
            return;
        }
        if let Err(fault) = completion.result {
            return self.lose_side(duplex, index, &fault);
        }
        {
            let side = &mut duplex.sides.borrow_mut()[index];
            let needs_sync = self.settings.durable && side.place.method == SyncMethod::WriteThenSync;
            side.batches.written(number, needs_sync);
        }
        self.sync_side(duplex, index);
        self.side_advanced(duplex, index);
        self.pump(duplex, index);
    }

    /// Submits a sync for what a device has written, unless one is in flight there.
    fn sync_side(&self, duplex: &Duplex, index: usize) {
        let file = {
            let side = &mut duplex.sides.borrow_mut()[index];
            if side.syncing_since.is_some() || !side.batches.begin_sync() {
                return;
            }
            side.syncing_since = Some(self.executor.now());
            self.watch(side, index);
            side.place.file
        };
        let log = self.this.upgrade().expect("borrowed from an Rc");
        self.executor.submit(Op::Sync { file }, move |completion| log.side_synced(index, completion));
    }

    /// The end of a sync of one of the devices; `None` if it has failed, or does not matter any more.
    fn end_side_sync(&self, index: usize, completion: Completion) -> Option<&Duplex> {
        let duplex = self.duplex.as_ref().expect("one of two devices was synced");
        if self.failed.borrow().is_some() || duplex.sides.borrow()[index].lost {
            return None;
        }
        if let Err(fault) = completion.result {
            self.lose_side(duplex, index, &fault);
            return None;
        }
        duplex.sides.borrow_mut()[index].syncing_since = None;
        self.inner.borrow_mut().statistics.syncs += 1;
        Some(duplex)
    }

    fn side_synced(&self, index: usize, completion: Completion) {
        let Some(duplex) = self.end_side_sync(index, completion) else { return };
        duplex.sides.borrow_mut()[index].batches.end_sync();
        self.sync_side(duplex, index);
        self.side_advanced(duplex, index);
        self.pump(duplex, index);
    }

    /// Sees to it that a device which does not answer is lost.
    fn watch(&self, side: &mut Side, index: usize) {
        if !std::mem::replace(&mut side.watched, true) {
            let (log, executor) = (self.this.clone(), self.executor.clone());
            let interval_ns = self.settings.silence_ns_max / WATCHES;
            self.executor.spawn_in(self.group, 0, watch_side(log, index, executor, interval_ns));
        }
    }

    /// Since when a device owes an answer; if it owes none or is lost, it is not watched from now on.
    fn side_waits_since(&self, index: usize) -> Option<Instant> {
        let duplex = self.duplex.as_ref().expect("one of two devices is watched");
        let side = &mut duplex.sides.borrow_mut()[index];
        let since = side.waits_since().filter(|_| !side.lost);
        side.watched = since.is_some();
        since
    }

    /// Reads from one of two devices, or the only one. A read is given up once its device counts as lost or the log has failed, or if it
    /// is unanswered for too long while there is the other one.
    pub(super) async fn read_side(&self, index: usize, op: Op) -> Option<Completion> {
        let mut read = pin!(self.executor.perform(op));
        let Some(duplex) = &self.duplex else { return Some(read.await) };
        let mut looks = 0;
        loop {
            let interval_ns = self.settings.silence_ns_max / WATCHES;
            let done = self.executor.within(interval_ns, read.as_mut()).await;
            if done.is_some() {
                return done;
            }
            looks += 1;
            let is_silent = looks >= WATCHES && duplex.lost.borrow().is_none();
            if is_silent || self.failed.borrow().is_some() || duplex.sides.borrow()[index].lost {
                return None;
            }
        }
    }

    /// A device of two has left something unanswered for too long: it is lost, unless one is already.
    pub(super) fn side_is_silent(&self, index: usize) {
        let duplex = self.duplex.as_ref().expect("one of two devices is watched");
        if self.failed.borrow().is_none() && !duplex.sides.borrow()[index].lost {
            self.lose_side(duplex, index, &self.silence_of("it"));
        }
    }

    /// What is said of a device that does not answer.
    pub(super) fn silence_of(&self, device: &str) -> Fault {
        let silence = format_duration_ns(self.settings.silence_ns_max as f64);
        Fault::new(FaultKind::Device, format!("{device} has not answered for {silence}"))
    }

    fn side_advanced(&self, duplex: &Duplex, index: usize) {
        {
            let side = &mut duplex.sides.borrow_mut()[index];
            let Some(end) = side.batches.advance() else { return };
            side.written = end;
            if self.settings.durable {
                side.durable = end;
            }
        }
        self.advance_both(duplex);
        duplex.alarm.wake_all(&self.executor);
    }

    /// Moves the positions to where both devices, or the first of them, allow it.
    fn advance_both(&self, duplex: &Duplex) {
        if !duplex.frozen.get() {
            let written = duplex.written();
            loop {
                let ended = self.inner.borrow().batches.in_flight_up_to(written);
                let Some((number, length)) = ended else { break };
                self.note_written(number, length, false);
            }
            self.advance();
            if !self.settings.durable {
                self.note_durable(Lsn(duplex.durable()).min(self.written.get()));
            }
        }
        self.complete.set(Lsn(duplex.complete()).min(self.durable.get()));
        self.released.set(Lsn(duplex.released()).min(self.written.get()));
        self.room.wake_all(&self.executor);
        self.sync_lazily();
    }

    /// Notes that a device is about to be synced for the sake of what is before `wanted`. Returns its file, and up to where that makes it
    /// durable; `None` if nothing of that is written there, or a sync is under way.
    pub(super) fn begin_side_sync(&self, duplex: &Duplex, index: usize, wanted: Lsn) -> Option<(FileId, u64)> {
        let side = &mut duplex.sides.borrow_mut()[index];
        let is_wanted = !side.lost && side.durable < side.written.min(wanted.0);
        if !is_wanted || side.syncing_since.is_some() {
            return None;
        }
        side.syncing_since = Some(self.executor.now());
        self.watch(side, index);
        Some((side.place.file, side.written))
    }

    /// Reacts to the end of such a sync.
    pub(super) fn side_synced_up_to(&self, index: usize, up_to: u64, completion: Completion) {
        let Some(duplex) = self.end_side_sync(index, completion) else { return };
        duplex.sides.borrow_mut()[index].durable = up_to;
        self.advance_both(duplex);
        duplex.alarm.wake_all(&self.executor);
    }

    /// A device has failed. With the other one the log goes on, once the superblock file says so.
    fn lose_side(&self, duplex: &Duplex, index: usize, fault: &Fault) {
        if duplex.lost.borrow().is_some() {
            return self.fail_by(fault);
        }
        {
            let side = &mut duplex.sides.borrow_mut()[index];
            side.lost = true;
            side.batches = Batches::default();
            let why = format!("device '{}': {fault}", side.place.device);
            duplex.lost.replace(Some((index, why)));
        }
        duplex.frozen.set(true);
        self.note_lost_extent(index);
        self.advance_both(duplex);
        duplex.on_loss.get().inspect(|on_loss| on_loss());
    }

    /// A device has failed to make room for the log's file. False if it is the only one.
    pub(super) fn lose_side_while_growing(&self, index: usize, fault: &Fault) -> bool {
        let Some(duplex) = &self.duplex else { return false };
        if !duplex.sides.borrow()[index].lost {
            self.lose_side(duplex, index, fault);
        }
        true
    }

    /// Calls this when one of two devices is lost, or at once if one is by now. Nothing is acknowledged from then on until
    /// [`Log::go_on_alone`].
    pub(crate) fn on_loss(&self, on_loss: impl Fn() + 'static) {
        if let Some(duplex) = &self.duplex {
            assert!(duplex.on_loss.set(Box::new(on_loss)).is_ok(), "a log is watched once");
            if duplex.lost.borrow().is_some() {
                duplex.on_loss.get().inspect(|on_loss| on_loss());
            }
        }
    }

    /// Whether it is written to two devices, of which one may have been lost since.
    pub fn is_duplexed(&self) -> bool {
        self.duplex.is_some()
    }

    /// Why one of two devices was lost since the log was opened, if it was; the log goes on with the other one.
    pub fn lost_device(&self) -> Option<String> {
        let lost = self.duplex.as_ref()?.lost.borrow();
        lost.as_ref().map(|(_, why)| why.clone())
    }

    /// Whether the log goes on without this file of its own if that does not answer: one of two, of which the other one was not lost.
    pub fn can_lose(&self, file: &str) -> bool {
        let Some(duplex) = &self.duplex else { return false };
        let index = [0, 1].into_iter().find(|index| self.settings.file_of(*index) == file);
        index.is_some_and(|index| duplex.lost.borrow().as_ref().is_none_or(|(lost, _)| *lost == index))
    }

    /// After the loss of one of two devices: waits until the other one has all that was acknowledged. Returns which was lost, 0
    /// or 1; `None` if the log has failed. To be followed by [`Log::go_on_alone`].
    pub(crate) async fn device_lost(&self) -> Option<u8> {
        let duplex = self.duplex.as_ref()?;
        loop {
            if self.failed.borrow().is_some() {
                return None;
            }
            let lost = duplex.lost.borrow().as_ref().map(|(index, _)| *index);
            let has_all = duplex.complete() >= self.durable.get().0 && duplex.released() >= self.written.get().0;
            if let Some(index) = lost.filter(|_| has_all) {
                return Some(index as u8);
            }
            duplex.alarm.wait(&self.executor).await;
        }
    }

    /// The superblock file says that one device was lost: what the other one has is durable.
    pub(crate) fn go_on_alone(&self) {
        let duplex = self.duplex.as_ref().expect("one of two was lost");
        duplex.frozen.set(false);
        self.advance_both(duplex);
    }

    /// The loss of a device could not be stated in the superblock file.
    pub(crate) fn fail_unstated(&self, why: &str) {
        self.fail(&format!("{}; and that cannot be stated: {why}", self.lost_device().unwrap_or_default()));
    }

    /// Waits until each device that is not lost has all that is durable.
    pub(crate) async fn complete(&self) {
        while self.complete.get() < self.durable.get() && self.failed.borrow().is_none() {
            self.room.wait(&self.executor).await;
        }
    }

    /// Waits until each device that is not lost has everything before `before`, which is durable. What follows that is not waited for:
    /// where the first of two devices suffices, the other one may lag for as long as there are commits.
    pub(super) async fn complete_before(&self, before: Lsn) {
        while self.complete.get() < before && self.failed.borrow().is_none() {
            self.room.wait(&self.executor).await;
        }
    }

    /// Wakes the tasks that wait for the loss of a device.
    pub(super) fn wake_alarm(&self) {
        self.duplex.as_ref().inspect(|duplex| duplex.alarm.wake_all(&self.executor));
    }
}

/// Looks at a device for as long as it owes answers.
async fn watch_side(log: Weak<Log>, index: usize, executor: Executor, interval_ns: u64) {
    let (mut since, mut looks) = (None, 0);
    loop {
        executor.sleep_ns(interval_ns).await;
        let Some(log) = log.upgrade() else { return };
        let present = log.side_waits_since(index);
        if present.is_none() {
            return;
        }
        looks = if present == since { looks + 1 } else { 0 };
        since = present;
        if looks == WATCHES {
            log.side_is_silent(index);
        }
    }
}
