use crate::fault::fault_of;
use driver::{Fault, FaultKind};
use std::fs::{File, OpenOptions, TryLockError};
use std::path::Path;

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

    /// Takes the lock.
    ///
    /// # Errors
    /// [`FaultKind::Busy`] if another process (or another store of this one) has it, or what the system says of the file.
    #[expect(clippy::disallowed_methods, reason = "the real driver is where files are opened")]
    pub fn acquire(directory: &Path) -> Result<DirectoryLock, Fault> {
        let path = directory.join(Self::NAME);
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(&path)
            .map_err(|error| fault_of(&format!("locking '{}'", path.display()), &error))?;
        match file.try_lock() {
            Ok(()) => Ok(DirectoryLock { _file: file }),
            Err(TryLockError::WouldBlock) => Err(Fault::new(
                FaultKind::Busy,
                format!("'{}' is open already: close it there first, or open another directory", directory.display()),
            )),
            Err(TryLockError::Error(error)) => Err(fault_of(&format!("locking '{}'", path.display()), &error)),
        }
    }
}
