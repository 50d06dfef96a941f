//! What a backup has written that does not come to its end, for whatever reason: it is removed, once nothing writes to it any more.

use super::manifest::MANIFEST_FILE;
use super::run::BackupRun;
use super::target::BackupPlace;
use super::{DATA_FILE, LOG_FILE};
use base::time::MILLISECOND_NS;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;

/// How often it is looked whether something still writes, in nanoseconds.
const LOOK_NS: u64 = MILLISECOND_NS;

/// A backup that has not ended. Dropped before its end, because it has failed or its caller has gone, it leaves nothing.
pub(super) struct UnfinishedBackup {
    pub target: BackupPlace,
    run: RefCell<Option<Rc<BackupRun>>>,
    is_ended: Cell<bool>,
}

impl UnfinishedBackup {
    pub fn new(target: BackupPlace) -> UnfinishedBackup {
        UnfinishedBackup { target, run: RefCell::default(), is_ended: Cell::new(false) }
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
        let (target, run) = (self.target.clone(), self.run.take());
        if let Some(run) = &run {
            run.is_over.set(true);
        }
        async move {
            while run.as_ref().is_some_and(|run| Rc::strong_count(run) > 1) {
                target.executor.sleep_ns(LOOK_NS).await;
            }
            target.remove(&[MANIFEST_FILE, DATA_FILE, LOG_FILE]).await;
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
