//! What a backup has written that does not come to its end, for whatever reason: it is removed, once nothing writes to it any more.

use super::manifest::{BLOCK, MANIFEST_FILE, Manifest};
use super::run::BackupRun;
use super::target::BackupPlace;
use super::{BEGUN_FILE, DATA_FILE, LOG_FILE};
use crate::engine::Engine;
use crate::error::BackupError;
use crate::{Error, Result};
use base::time::MILLISECOND_NS;
use driver::DeviceId;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;

/// How often it is looked whether something still writes, in nanoseconds.
const LOOK_NS: u64 = MILLISECOND_NS;

/// What a backup writes, in the order in which it is removed: without the manifest there is no backup, and the last file says what the
/// others are.
const FILES: [&str; 4] = [MANIFEST_FILE, DATA_FILE, LOG_FILE, BEGUN_FILE];
/// What a place says where a backup has begun.
pub(super) const BEGUN: &str = "a backup has begun here and not ended; the next one to this place begins again. It makes these files: \
                                data, log, entresol.backup\n";

/// Refuses a place that holds anything but what a backup has left whose process was killed, and removes that. If it is given up it
/// goes on, and keeps the place: what is removed late would be the next backup's.
///
/// # Errors
/// [`BackupError::NotEmpty`], also of a whole backup, or the driver's.
pub(super) async fn make_way(target: &BackupPlace, claimed: &Rc<ClaimedPlace>) -> Result<()> {
    let (this, claimed) = (target.clone(), Rc::clone(claimed));
    let making = async move {
        let _claimed = claimed;
        remove_remains(&this).await
    };
    target.executor.spawn(making).join().await
}

async fn remove_remains(target: &BackupPlace) -> Result<()> {
    let names = target.contents().await?;
    let Some(first) = names.first() else { return Ok(()) };
    let stranger = names.iter().find(|name| !FILES.contains(&name.as_str()));
    if stranger.is_some() || !has_begun(target, names.len()).await? || is_whole(target).await? {
        let file = stranger.unwrap_or(first).clone();
        return Err(BackupError::NotEmpty { place: target.name.clone(), file }.into());
    }
    target.remove(&FILES).await
}

/// Whether a backup has begun in a place with this number of files. If there is no other file, one that says so may have been cut off.
async fn has_begun(target: &BackupPlace, files: usize) -> Result<bool> {
    let Some((file, length)) = target.find(BEGUN_FILE).await? else { return Ok(false) };
    if files == 1 || length < BLOCK as u64 {
        return Ok(files == 1);
    }
    Ok(target.read(&file, (0, BLOCK)).await?.starts_with(BEGUN.as_bytes()))
}

/// Whether a place has a whole backup.
async fn is_whole(target: &BackupPlace) -> Result<bool> {
    match Manifest::read(target).await {
        Ok(_) | Err(Error::Backup(BackupError::NewerFormat { .. })) => Ok(true),
        Err(Error::Backup(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// A place that no other backup of the database goes to until this is dropped. If it is a directory that was missing, and nothing is in it by then, it
/// goes, too.
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
        self.engine.core.executor.remove_attached(self.device);
    }
}

/// A backup that has not ended. Dropped before its end, because it has failed or its caller has gone, it leaves nothing.
pub(super) struct UnfinishedBackup {
    pub target: BackupPlace,
    /// Kept until nothing of it is left that could be taken for another's.
    claimed: RefCell<Option<Rc<ClaimedPlace>>>,
    run: RefCell<Option<Rc<BackupRun>>>,
    is_ended: Cell<bool>,
}

impl UnfinishedBackup {
    pub fn new(target: BackupPlace, claimed: Rc<ClaimedPlace>) -> UnfinishedBackup {
        let claimed = RefCell::new(Some(claimed));
        UnfinishedBackup { target, claimed, run: RefCell::default(), is_ended: Cell::new(false) }
    }

    /// Does something there, which goes on to its end if the backup is given up: nothing is removed before.
    pub async fn undisturbed<T: 'static>(&self, work: impl Future<Output = T> + 'static) -> T {
        let claimed = self.claimed.borrow().clone();
        let working = async move {
            let _claimed = claimed;
            work.await
        };
        self.target.executor.spawn(working).join().await
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
        let (target, run, claimed) = (self.target.clone(), self.run.take(), self.claimed.take());
        if let Some(run) = &run {
            run.is_over.set(true);
        }
        async move {
            let is_used = |claimed: &Rc<ClaimedPlace>| Rc::strong_count(claimed) > 1;
            let is_running = |run: &Rc<BackupRun>| Rc::strong_count(run) > 1;
            while claimed.as_ref().is_some_and(is_used) || run.as_ref().is_some_and(is_running) {
                target.executor.sleep_ns(LOOK_NS).await;
            }
            // By the last one the next backup knows what could not be removed.
            let _tried = target.remove(&FILES).await;
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
