//! The memory-resident sets of a database, and what their calls wait for.

use super::Engine;
use super::growth::{Growth, add_segment};
use crate::backup::Backup;
use crate::statistics::add;
use crate::{Error, Result};
use base::{Lsn, PartitionId, TransactionId};
use executor::{Executor, WaitQueue};
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use structures::canary::{self, Canary};
use structures::set::{Refusal, Sets};

/// The memory-resident sets.
pub(crate) struct SetStore {
    pub sets: RefCell<Sets>,
    /// Their backup.
    pub backup: Backup,
    /// Tasks waiting for a segment that is lent to a write.
    pub segment_returned: WaitQueue,
    /// Memory on its way to sets.
    pub growth: Growth,
    /// The black/white sweep in progress, where the log has to say what is in its backup.
    pub black_white_sweep: Cell<Option<BlackWhiteSweep>>,
    /// Copies of their backup that are being read.
    pins: RefCell<Vec<Weak<PinnedCopy>>>,
}

/// A copy of the sets' backup that is being read.
struct PinnedCopy {
    copy: u8,
    is_broken: Cell<bool>,
}

/// Keeps sweeps from writing over a copy of the sets' backup, as long as nothing waits for them.
pub(crate) struct CopyPin(Rc<PinnedCopy>);

impl CopyPin {
    /// Whether a sweep could not wait.
    pub fn is_broken(&self) -> bool {
        self.0.is_broken.get()
    }
}

/// A black/white sweep in progress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlackWhiteSweep {
    /// Where it began in the log.
    pub begin: Lsn,
    /// Transactions with smaller numbers had begun before it.
    pub first: TransactionId,
}

impl SetStore {
    /// These sets with their backup.
    pub fn new(sets: RefCell<Sets>, backup: Backup) -> SetStore {
        let (segment_returned, growth, black_white_sweep) = (WaitQueue::new(), Growth::default(), Cell::new(None));
        SetStore { sets, backup, segment_returned, growth, black_white_sweep, pins: RefCell::default() }
    }

    /// Asks sweeps to leave a copy of the backup alone, for as long as the pin is held.
    pub fn pin(&self, copy: u8) -> CopyPin {
        let pinned = Rc::new(PinnedCopy { copy, is_broken: Cell::new(false) });
        self.pins.borrow_mut().push(Rc::downgrade(&pinned));
        CopyPin(pinned)
    }

    /// Whether a copy of the backup is being read.
    pub fn is_pinned(&self, copy: u8) -> bool {
        let mut pins = self.pins.borrow_mut();
        pins.retain(|pin| pin.strong_count() > 0);
        pins.iter().filter_map(Weak::upgrade).any(|pin| pin.copy == copy && !pin.is_broken.get())
    }

    /// A sweep writes over a copy of the backup, read or not.
    pub fn break_pins(&self, copy: u8) {
        let pins = self.pins.borrow();
        pins.iter().filter_map(Weak::upgrade).filter(|pin| pin.copy == copy).for_each(|pin| pin.is_broken.set(true));
    }
}

/// Resolves what a set lacks, or says why it cannot be had.
#[cold]
pub(crate) async fn resolve_refusal(engine: &Rc<Engine>, partition: PartitionId, refusal: Refusal) -> Result<()> {
    let name = || engine.catalog.describe(partition).map(|found| found.name.clone());
    match refusal {
        Refusal::NoSegment => add_segment(engine, partition).await,
        Refusal::Lent(_) => {
            let began = engine.core.executor.now();
            engine.sets.segment_returned.wait(&engine.core.executor).await;
            add(&engine.core.statistics.segment_waits, 1);
            add(&engine.core.statistics.segment_wait_ns, engine.core.executor.now().since_ns(began));
            Ok(())
        }
        Refusal::Duplicate => Err(Error::Duplicate(name()?)),
        Refusal::Missing => Err(Error::NoRecord(name()?)),
        Refusal::TooLarge { what, found, limit } => Err(Error::TooLarge { what, found, limit, partition: name()? }),
        Refusal::MixedColours(_) => {
            add(&engine.core.statistics.restarts_by_colour, 1);
            Err(Error::MixedColours(name()?))
        }
    }
}

/// Waits for a moment at which every record of a set can be looked at, until the caller waits again.
pub(crate) async fn set_returned(engine: &Engine, partition: PartitionId) {
    while engine.sets.sets.borrow().is_any_lent_of(partition) && !canary::is_planted(Canary::UnseenSegment) {
        engine.sets.segment_returned.wait(&engine.core.executor).await;
    }
}

/// Waits for a moment at which no sweep is writing a segment itself. None is until the caller waits again.
pub(crate) async fn segments_returned(executor: &Executor, sets: &SetStore) {
    while sets.sets.borrow().is_any_lent() {
        sets.segment_returned.wait(executor).await;
    }
}
