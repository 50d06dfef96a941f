use crate::fault::fault_of;
use crate::job::sync_directory;
use driver::{Fault, FaultKind};
use std::cell::RefCell;
use std::fs::{File, OpenOptions, TryLockError};
use std::path::Path;
use std::rc::Rc;

/// Holds a database directory against other processes. The kernel lets go when the process ends, however it ends.
///
/// ```
/// use driver::FaultKind;
/// use entresol_real::DirectoryLock;
///
/// # let directory = tempfile::tempdir().unwrap();
/// # let directory = directory.path();
/// let lock = DirectoryLock::acquire(directory)?;
/// assert_eq!(DirectoryLock::acquire(directory).unwrap_err().kind, FaultKind::Busy);
/// drop(lock);
/// assert!(DirectoryLock::acquire(directory).is_ok());
/// # Ok::<(), driver::Fault>(())
/// ```
#[derive(Debug)]
pub struct DirectoryLock {
    _file: File,
}

impl DirectoryLock {
    /// The name of the file that is locked. It stays in the directory.
    pub const NAME: &'static str = "entresol.lock";

    /// Takes the lock. Its file survives a power cut from then on: it tells a creation that was cut off from foreign files.
    ///
    /// # Errors
    /// [`FaultKind::Busy`] if another process (or another store of this one) has it, or what the system says of the file.
    #[expect(clippy::disallowed_methods, reason = "the real driver is where files are opened")]
    pub fn acquire(directory: &Path) -> Result<DirectoryLock, Fault> {
        let path = directory.join(Self::NAME);
        let fail = |error| fault_of(&format!("locking '{}'", path.display()), &error);
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).read(true).write(true);
        let file = options.open(&path).map_err(fail)?;
        match file.try_lock() {
            Ok(()) => {
                sync_directory(directory).map_err(fail)?;
                Ok(DirectoryLock { _file: file })
            }
            Err(TryLockError::WouldBlock) => Err(Fault::new(
                FaultKind::Busy,
                format!("'{}' is open already: close it there first, or open another directory", directory.display()),
            )),
            Err(TryLockError::Error(error)) => Err(fail(error)),
        }
    }
}

/// The locks of the directories that a driver writes to. The driver keeps a clone until it has nothing under way there any
/// more, so that no late write lands in a database that somebody else has opened. If a device never answers, the locks stay
/// until the process ends.
///
/// ```
/// use entresol_real::{DirectoryLock, DirectoryLocks, Options, RealDriver};
///
/// # let directory = tempfile::tempdir().unwrap();
/// # let directory = directory.path();
/// let locks = DirectoryLocks::default();
/// let driver = RealDriver::open(Options { locks: locks.clone(), ..Options::new("disk", directory) })?;
/// locks.acquire(directory)?;
/// drop(locks);
/// assert!(DirectoryLock::acquire(directory).is_err());
/// drop(driver);
/// assert!(DirectoryLock::acquire(directory).is_ok());
/// # Ok::<(), driver::Fault>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct DirectoryLocks(Rc<RefCell<Vec<DirectoryLock>>>);

impl DirectoryLocks {
    /// Takes the lock of one more directory.
    ///
    /// # Errors
    /// Those of [`DirectoryLock::acquire`].
    pub fn acquire(&self, directory: &Path) -> Result<(), Fault> {
        let lock = DirectoryLock::acquire(directory)?;
        self.0.borrow_mut().push(lock);
        Ok(())
    }

    /// Keeps the locks until the process ends.
    pub(crate) fn keep_for_good(&self) {
        std::mem::forget(self.clone());
    }
}
