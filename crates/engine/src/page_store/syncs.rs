//! Syncs of one file: one at a time, and none that succeeds after one has failed.
//!
//! After a sync that fails, what was written before it may be gone for good, and the system says so once, to one caller; the
//! next sync succeeds. A durable write is such a caller, too. So a failure is kept with the file and reported to every task
//! whose writes it may have taken.

use crate::{Error, Result};
use driver::{Fault, FaultKind, FileId, Op, Output};
use executor::{Executor, WaitQueue};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use structures::canary::{self, Canary};

/// Which writes of a file completed, and which of them are durable.
#[derive(Default)]
pub struct Syncs {
    /// Writes that completed, and how many of them are known durable.
    completed: Cell<u64>,
    synced: Cell<u64>,
    /// The latest of them that was not durable when it completed, and how many such writes are under way.
    buffered: Cell<u64>,
    buffering: Cell<u64>,
    /// How many durable writes have failed, and why the latest of them did.
    durable_failures: Cell<u64>,
    durable_fault: RefCell<Option<Fault>>,
    /// Whether a sync is under way.
    under_way: Cell<bool>,
    /// The error of a failed sync: what the medium holds is unknown since.
    failure: RefCell<Option<Error>>,
    ended: WaitQueue,
}

impl Syncs {
    /// Of a file that has `completed` writes which may not be durable.
    pub fn after(completed: u64) -> Rc<Syncs> {
        Rc::new(Syncs { completed: Cell::new(completed), buffered: Cell::new(completed), ..Syncs::default() })
    }

    /// Notes that a write begins, and whether it is to be durable. Returns how many of those have failed before.
    pub fn note_begun(&self, is_durable: bool) -> u64 {
        self.buffering.set(self.buffering.get() + u64::from(!is_durable));
        self.durable_failures.get()
    }

    /// Notes that a write completed that began when this many durable ones had failed, and whether it was to be durable. If another
    /// one has failed while it was under way, the system may have told that one of the failure of this one: it has failed, too.
    pub fn note_written(&self, (is_durable, failures): (bool, u64), result: &mut std::result::Result<Output, Fault>) {
        let is_doubtful = is_durable && failures != self.durable_failures.get();
        match result {
            Err(fault) if is_durable => self.note_failed(fault),
            Ok(_) if is_doubtful && !canary::is_planted(Canary::BelievedBeside) => {
                let cause = self.durable_fault.borrow().clone().expect("it was noted");
                let message = format!("a durable write beside this one has failed: {cause}");
                *result = Err(Fault::new(cause.kind, message));
            }
            _ => {}
        }
        self.completed.set(self.completed.get() + 1);
        if !is_durable {
            self.buffering.set(self.buffering.get() - 1);
            self.buffered.set(self.completed.get());
        }
    }

    /// Notes that a durable write failed. Its failure may be that of writing back what was written before, be it for lack of room,
    /// and no sync will tell of that any more.
    fn note_failed(&self, fault: &Fault) {
        if matches!(fault.kind, FaultKind::Cancelled | FaultKind::NoMemory | FaultKind::Unsupported) {
            // It says nothing of the medium.
            return;
        }
        self.durable_failures.set(self.durable_failures.get() + 1);
        self.durable_fault.replace(Some(fault.clone()));
        if self.is_unsynced() && !canary::is_planted(Canary::SyncTriedAgain) {
            self.failure.borrow_mut().get_or_insert_with(|| Error::Input(fault.clone()));
        }
    }

    /// Whether something was written, or is being written, that is durable only once a sync has succeeded.
    pub fn is_unsynced(&self) -> bool {
        self.buffered.get() > self.synced.get() || self.buffering.get() > 0
    }

    /// Why the file's contents cannot be relied on, if a sync has failed.
    pub fn failure(&self) -> Option<Error> {
        self.failure.borrow().clone()
    }

    /// Makes every write durable that completed before this call. A sync is completed even if its caller does not wait for it,
    /// because the system reports a failure only once.
    ///
    /// # Errors
    /// The driver's, also if an earlier sync has failed.
    pub async fn sync(self: &Rc<Self>, executor: &Executor, file: FileId) -> Result<()> {
        if canary::is_planted(Canary::SyncTriedAgain) {
            executor.perform(Op::Sync { file }).await.result?;
            return Ok(());
        }
        let wanted = self.completed.get();
        loop {
            if let Some(error) = self.failure() {
                return Err(error);
            }
            if self.synced.get() >= wanted {
                return Ok(());
            }
            if !self.under_way.replace(true) {
                let (syncs, covered, other) = (Rc::clone(self), self.completed.get(), executor.clone());
                executor.submit(Op::Sync { file }, move |completion| {
                    syncs.under_way.set(false);
                    match completion.result {
                        Ok(_) => syncs.synced.set(covered),
                        Err(fault) => drop(syncs.failure.replace(Some(Error::Input(fault)))),
                    }
                    syncs.ended.wake_all(&other);
                });
            }
            self.ended.wait(executor).await;
        }
    }
}
