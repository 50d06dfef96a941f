//! What a backup has written that does not come to its end, for whatever reason: it is removed, once nothing writes to it any more.

use super::manifest::MANIFEST_FILE;
use super::run::BackupRun;
use super::target::BackupPlace;
use super::{DATA_FILE, LOG_FILE};
use crate::Result;
use crate::engine::Engine;
use crate::error::BackupError;
use base::time::MILLISECOND_NS;
use driver::DeviceId;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;

/// How often it is looked whether something still writes, in nanoseconds.
const LOOK_NS: u64 = MILLISECOND_NS;

/// A place that no other backup of the database goes to until this is dropped.
pub(super) struct ClaimedPlace {
    engine: Rc<Engine>,
    device: DeviceId,
}

impl ClaimedPlace {
    /// Claims the place for one backup.
    ///
    /// # Errors
    /// [`BackupError::InUse`].
    pub fn claim(engine: &Rc<Engine>, target: &BackupPlace) -> Result<ClaimedPlace> {
        if !engine.catalog.backed_up_to.borrow_mut().insert(target.device) {
            return Err(BackupError::InUse { place: target.name.clone() }.into());
        }
        Ok(ClaimedPlace { engine: Rc::clone(engine), device: target.device })
    }
}

impl Drop for ClaimedPlace {
    fn drop(&mut self) {
        self.engine.catalog.backed_up_to.borrow_mut().remove(&self.device);
    }
}

/// A backup that has not ended. Dropped before its end, because it has failed or its caller has gone, it leaves nothing.
pub(super) struct UnfinishedBackup {
    pub target: BackupPlace,
    /// Kept until nothing of it is left that could be taken for another's.
    claimed: Rc<ClaimedPlace>,
    run: RefCell<Option<Rc<BackupRun>>>,
    is_ended: Cell<bool>,
}

impl UnfinishedBackup {
    pub fn new(target: BackupPlace, claimed: ClaimedPlace) -> UnfinishedBackup {
        UnfinishedBackup { target, claimed: Rc::new(claimed), run: RefCell::default(), is_ended: Cell::new(false) }
    }

    /// Has what is under way come to its end before anything is removed.
    pub fn note_run(&self, run: &Rc<BackupRun>) {
        self.run.replace(Some(Rc::clone(run)));
    }

    /// It is whole.
    pub fn end(&self) {
        self.is_ended.set(true);
    }

    /// Removes what was written, also if nothing waits for that.
    pub async fn remove(self) {
        self.is_ended.set(true);
        self.target.executor.spawn(self.removal()).join().await;
    }

    /// What removes it, once that is awaited.
    fn removal(&self) -> impl Future<Output = ()> + 'static {
        let (target, run, claimed) = (self.target.clone(), self.run.take(), Rc::clone(&self.claimed));
        if let Some(run) = &run {
            run.is_over.set(true);
        }
        async move {
            while run.as_ref().is_some_and(|run| Rc::strong_count(run) > 1) {
                target.executor.sleep_ns(LOOK_NS).await;
            }
            target.remove(&[MANIFEST_FILE, DATA_FILE, LOG_FILE]).await;
            drop(claimed);
        }
    }
}

impl Drop for UnfinishedBackup {
    fn drop(&mut self) {
        if !self.is_ended.get() {
            drop(self.target.executor.spawn(self.removal()));
        }
    }
}
