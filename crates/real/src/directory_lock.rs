use crate::fault::fault_of;
use crate::job::sync_directory;
use crate::medium::file_system;
use driver::{Fault, FaultKind};
use std::cell::RefCell;
use std::ffi::CString;
use std::fs::{File, OpenOptions, TryLockError};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

/// How often a lock is tried, and how long after each other: the kernel needs a while to let go of what a killed process had.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(10);

/// Holds a database directory against other processes. The kernel lets go when the process has ended, however it ends, and with
/// it every transfer of a driver that knows the lock ([`Options::locks`](crate::Options::locks)).
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
    file: File,
    path: PathBuf,
    /// Whether the file was not there before.
    is_new: bool,
}

impl DirectoryLock {
    /// The name of the file that is locked. It stays in the directory, unless a creation there fails.
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
        options.truncate(false).read(true).write(true);
        let created = options.clone().create_new(true).open(&path);
        let is_new = created.is_ok();
        let file = created.or_else(|_| options.create(true).open(&path)).map_err(fail)?;
        match try_patiently(&file) {
            // The last holder may have removed the file before it released the lock.
            Ok(()) if !is_same(&file, &path) => DirectoryLock::acquire(directory),
            Ok(()) => {
                sync_directory(directory).map_err(fail)?;
                Ok(DirectoryLock { file, path, is_new })
            }
            Err(TryLockError::WouldBlock) => Err(Fault::new(
                FaultKind::Busy,
                format!(
                    "'{}' is open already, or a process that was killed still has writes under way: close it there first, or \
                     open another directory",
                    directory.display()
                ),
            )),
            Err(TryLockError::Error(error)) => Err(fail(error)),
        }
    }
}

impl Drop for DirectoryLock {
    /// The kernel may keep the file for longer, as one that a ring knows.
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

#[allow(clippy::disallowed_methods, reason = "no driver is open yet that could wait")]
fn try_patiently(file: &File) -> Result<(), TryLockError> {
    for _ in 1..TRIES {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => std::thread::sleep(PAUSE),
            tried => return tried,
        }
    }
    file.try_lock()
}

/// File systems on which a lock may be known to one machine alone: it depends on the server or on options of the mount.
const REMOTE: [(libc::c_long, &str); 8] = [
    (0x6969, "NFS"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB"),
    (0x6573_5546, "FUSE"),
    (0x0102_1997, "9P"),
    (0x00c3_6400, "Ceph"),
    (0x5346_414f, "AFS"),
    (0x0bd0_0bd0, "Lustre"),
];

impl DirectoryLock {
    /// Why a lock of this directory may not keep other machines out, in words for people; `None` if it does, or if that cannot
    /// be found out. Such a directory is not refused: one machine alone uses it as safely as any other.
    pub fn doubt(directory: &Path) -> Option<String> {
        let path = CString::new(directory.as_os_str().as_bytes()).ok()?;
        Self::doubt_on(directory, file_system(&path).ok()?)
    }

    /// The same of a directory on a file system of this type, as `statfs` tells it.
    fn doubt_on(directory: &Path, file_system: libc::c_long) -> Option<String> {
        let name = remote(file_system)?;
        let directory = directory.display();
        Some(format!(
            "'{directory}' is on {name}, where a lock may be known to this machine alone: see to it that no other machine opens \
             the database meanwhile"
        ))
    }
}

fn remote(file_system: libc::c_long) -> Option<&'static str> {
    // Some kernels give the number as a negative one of 32 bits.
    let number = file_system & 0xffff_ffff;
    REMOTE.iter().find(|(magic, _)| *magic == number).map(|(_, name)| *name)
}

/// Whether the path leads to this file.
fn is_same(file: &File, path: &Path) -> bool {
    let identity = |found: std::fs::Metadata| (found.dev(), found.ino());
    let (of_file, of_path) = (file.metadata(), std::fs::metadata(path));
    of_file.ok().map(identity).is_some_and(|of_file| of_path.ok().map(identity) == Some(of_file))
}

/// The locks of the directories that a driver writes to. The driver keeps a clone until it has nothing under way there any
/// more, so that no late write lands in a database that another process has opened. If a device never answers, the locks stay
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

    /// Removes the files of locks that were not there before, because what was to be created beside them could not be. The
    /// locks stay. What cannot be removed stays as well.
    ///
    /// ```
    /// # use entresol_real::{DirectoryLock, DirectoryLocks};
    /// # let directory = tempfile::tempdir().unwrap();
    /// # let directory = directory.path();
    /// let locks = DirectoryLocks::default();
    /// locks.acquire(directory)?;
    /// locks.remove_created();
    /// assert_eq!(directory.read_dir().unwrap().count(), 0);
    /// drop(locks);
    ///
    /// drop(DirectoryLock::acquire(directory)?);
    /// let again = DirectoryLocks::default();
    /// again.acquire(directory)?;
    /// again.remove_created();
    /// assert_eq!(directory.read_dir().unwrap().count(), 1, "it was there before");
    /// # Ok::<(), driver::Fault>(())
    /// ```
    pub fn remove_created(&self) {
        for lock in self.0.borrow().iter().filter(|lock| lock.is_new && is_same(&lock.file, &lock.path)) {
            let _tried = std::fs::remove_file(&lock.path);
        }
    }

    /// The descriptor of the `number`th lock, in the order in which they were taken.
    pub(crate) fn descriptor(&self, number: usize) -> Option<RawFd> {
        self.0.borrow().get(number).map(|lock| lock.file.as_raw_fd())
    }

    /// Keeps the locks until the process ends.
    pub(crate) fn keep_for_good(&self) {
        std::mem::forget(self.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_of_network_file_systems_are_doubted_and_no_others() {
        assert_eq!(remote(0x6969), Some("NFS"));
        assert_eq!(remote(0xff53_4d42_u32 as i32 as libc::c_long), Some("CIFS"));
        assert_eq!(remote(libc::EXT4_SUPER_MAGIC), None);
        for (file_system, name) in [(0x6969, "NFS"), (0x6573_5546, "FUSE")] {
            let doubt = DirectoryLock::doubt_on(Path::new("/mnt/far"), file_system).expect("it is doubted");
            assert!(
                doubt.starts_with("'/mnt/far' is on ") && doubt.contains(name) && doubt.contains("no other machine"),
                "{doubt}"
            );
        }
        assert_eq!(DirectoryLock::doubt_on(Path::new("/mnt/near"), libc::XFS_SUPER_MAGIC), None);
        assert_eq!(DirectoryLock::doubt(Path::new("/proc")), None);
        assert_eq!(DirectoryLock::doubt(Path::new("/there/is/no/such/directory")), None);
    }
}
