//! The versions of a database with the space that they leave memory for.

use super::{FILE, Readers, UndoSettings, VersionReport, Versions};
use crate::buffer::Buffer;
use crate::catalog::Partitions;
use crate::{Result, temp};
use base::{Instant, Lsn};
use executor::{Executor, WaitQueue};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use structures::lock::Owner;
use structures::set::Sets;
use structures::undo::UndoList;

/// The old versions of records, as far as a view may read them.
pub(crate) struct VersionStore {
    pub(super) executor: Executor,
    pub(super) versions: RefCell<Versions>,
    /// The undo space: where versions go that memory has no room for.
    pub(super) space: temp::Space,
    /// Tasks waiting for versions to move to the undo space.
    pub(super) room: WaitQueue,
    /// The pacing of long readers.
    pub readers: Readers,
    /// Whether anything is kept.
    pub(super) is_kept: Cell<bool>,
    /// The last commit record.
    pub(super) last_commit: Cell<Lsn>,
    /// Whether what is kept stays although nothing reads it at present: making it anew for the next reader would take long.
    pub(super) stays_kept: Cell<bool>,
    pub(super) is_closing: Cell<bool>,
    /// Whether the undo space has left a write unanswered for too long.
    pub(super) is_silent: Cell<bool>,
    /// Whether moments before the opening can be read.
    pub(super) is_rebuilt: Cell<bool>,
    /// What the calendar showed at the beginning of the executor's clock, in nanoseconds since 1970: moments are remembered by the
    /// calendar, which goes on over openings, but not set back or forth within one.
    unix_began_ns: u64,
}

/// What records are now, from which versions of them are taken.
#[derive(Clone, Copy)]
pub(crate) struct Records<'a> {
    pub buffer: &'a Buffer,
    pub partitions: &'a RefCell<Partitions>,
    pub sets: &'a RefCell<Sets>,
}

/// The undo list of every active transaction.
pub(crate) type UndoLists = Vec<(Owner, Rc<RefCell<UndoList>>)>;

impl VersionStore {
    /// An empty store; the undo space is on `device`. Nothing before `began` can be read.
    pub fn new(executor: &Executor, settings: UndoSettings, device: &str, began: Lsn) -> Rc<VersionStore> {
        let space = temp::Space::new(executor, FILE, (device, &settings.space()));
        let versions = Versions::new(settings, space.extent_bytes() as usize, began);
        Rc::new(VersionStore {
            executor: executor.clone(),
            versions: RefCell::new(versions),
            space,
            room: WaitQueue::new(),
            readers: Readers::default(),
            is_kept: Cell::new(false),
            last_commit: Cell::new(began),
            stays_kept: Cell::new(false),
            is_closing: Cell::new(false),
            is_silent: Cell::new(false),
            is_rebuilt: Cell::new(false),
            unix_began_ns: executor.unix_ns().saturating_sub(executor.now().ns()),
        })
    }

    /// Whether anything is kept.
    #[inline]
    pub fn is_kept(&self) -> bool {
        self.is_kept.get()
    }

    /// Whether moments are held, or can be travelled to: there is more to keep than for readers of what is committed.
    pub fn has_moments(&self) -> bool {
        let versions = self.versions.borrow();
        self.is_kept() && (versions.keeps_all() || versions.snapshots.count() > 0)
    }

    /// Whether readers find what transactions under way have changed in their undo lists alone.
    pub fn is_lazy(&self) -> bool {
        self.versions.borrow().is_lazy
    }

    /// Where the last commit is in the log: the moment of a snapshot that begins now.
    pub fn present(&self) -> Lsn {
        self.last_commit.get()
    }

    /// The oldest moment that can be read.
    pub fn oldest_moment(&self) -> Lsn {
        self.versions.borrow().oldest_moment(self.present())
    }

    /// The moment of the last commit at or before a time of the executor's clock, if it is known.
    pub fn moment_at(&self, time: Instant) -> Option<Lsn> {
        self.moment_at_unix(time.plus_ns(self.unix_began_ns).ns())
    }

    /// The same of a time by the calendar, in nanoseconds since 1970.
    pub fn moment_at_unix(&self, unix_ns: u64) -> Option<Lsn> {
        self.versions.borrow().moment_at(Instant::from_ns(unix_ns))
    }

    /// The earliest time that can be read, as [`VersionStore::unix_ns`] tells times.
    pub fn earliest_unix_ns(&self) -> u64 {
        self.versions.borrow().readable_since((self.present(), self.now())).ns()
    }

    /// A time by the calendar on the executor's clock, which began with it at the earliest.
    pub fn on_clock(&self, unix_ns: u64) -> Instant {
        Instant::from_ns(unix_ns.saturating_sub(self.unix_began_ns))
    }

    /// The present moment by the calendar as the opening found it.
    pub(super) fn now(&self) -> Instant {
        self.executor.now().plus_ns(self.unix_began_ns)
    }

    /// The same in nanoseconds since 1970.
    pub fn unix_ns(&self) -> u64 {
        self.now().ns()
    }

    /// Whether moments can be travelled to for a time.
    pub fn keeps_moments(&self) -> bool {
        self.versions.borrow().keeps_all()
    }

    /// Whether a view of this moment is open.
    pub fn is_held(&self, moment: Lsn) -> bool {
        self.versions.borrow().snapshots.is_held(moment)
    }

    /// The versions themselves.
    pub fn versions(&self) -> &RefCell<Versions> {
        &self.versions
    }

    /// What the versions cost.
    pub fn report(&self) -> VersionReport {
        self.versions.borrow().report(self.now())
    }

    /// Ends the background tasks.
    pub fn stop(&self) {
        self.is_closing.set(true);
        self.room.wake_all(&self.executor);
    }

    /// Removes the undo space.
    ///
    /// # Errors
    /// The driver's.
    pub async fn remove_space(&self) -> Result<()> {
        self.space.remove().await
    }
}
