//! A directory as it was found. Its files are reached in that one alone, whatever its path leads to by now: what belongs together must not
//! be written to several, nor over another one's files.
#![allow(unsafe_code)]

use driver::{Fault, FaultKind};
use std::ffi::{CStr, CString};
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// What tells a directory from others: its device, its number on that and when it was made. One that was removed leaves its number to the
/// next one.
pub(crate) type Identity = (u64, u64, SystemTime);

/// Which directory a path leads to; nothing if to none, or if its file system does not say when it was made.
pub(crate) fn identity(directory: &Path) -> Option<Identity> {
    std::fs::metadata(directory).ok().and_then(|found| identity_in(&found))
}

fn identity_in(found: &Metadata) -> Option<Identity> {
    Some((found.dev(), found.ino(), found.created().ok()?))
}

/// A directory by its path, and which one that has led to.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) path: PathBuf,
    pub(crate) identity: Option<Identity>,
}

impl Place {
    /// Opens the directory; `fail` says what is attempted there.
    ///
    /// # Errors
    /// [`FaultKind::Displaced`] if another one is there by now, or what the system says.
    #[allow(clippy::disallowed_methods, reason = "this is the driver that the fence points to")]
    pub(crate) fn enter(&self, fail: &dyn Fn(io::Error) -> Fault) -> Result<Entered, Fault> {
        let flags = libc::O_PATH | libc::O_DIRECTORY;
        let handle = OpenOptions::new().read(true).custom_flags(flags).open(&self.path).map_err(fail)?;
        let found = identity_in(&handle.metadata().map_err(fail)?);
        match (self.identity, found) {
            (Some(known), Some(found)) if known != found => {
                let message = format!("'{}' is another directory than the one that was opened", self.path.display());
                Err(Fault::new(FaultKind::Displaced, message))
            }
            _ => Ok(Entered { handle }),
        }
    }
}

/// A directory that is open.
pub(crate) struct Entered {
    handle: File,
}

impl Entered {
    /// Opens a file of the directory for reading and writing, with more `flags`.
    pub(crate) fn open(&self, name: &str, flags: libc::c_int) -> io::Result<File> {
        self.open_as(&CString::new(name)?, libc::O_RDWR | flags)
    }

    fn open_as(&self, name: &CStr, flags: libc::c_int) -> io::Result<File> {
        loop {
            // SAFETY: the name ends with a zero byte and the descriptor is open; a result that is not negative is a descriptor with no
            // other owner.
            let opened = unsafe {
                let fd = libc::openat(self.handle.as_raw_fd(), name.as_ptr(), flags | libc::O_CLOEXEC, 0o666);
                if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(File::from_raw_fd(fd)) }
            };
            match opened {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                opened => return opened,
            }
        }
    }

    /// Removes a file of the directory.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        let name = CString::new(name)?;
        // SAFETY: the name ends with a zero byte and the descriptor is open.
        match unsafe { libc::unlinkat(self.handle.as_raw_fd(), name.as_ptr(), 0) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Makes the names of its files durable.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.open_as(c".", libc::O_RDONLY | libc::O_DIRECTORY)?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::fault_of;

    #[test]
    #[allow(clippy::disallowed_methods, reason = "the file system's clock is waited for, without a driver")]
    fn a_directory_that_was_removed_and_made_again_is_another_one() {
        let parent = tempfile::tempdir().expect("a directory");
        let path = parent.path().join("latest");
        let make = || std::fs::create_dir(&path).expect("creates");
        make();
        let (first, same) = (identity(&path), identity(&path));
        assert_eq!(first, same);
        std::fs::remove_dir(&path).expect("removes");
        assert_eq!(identity(&path), None);
        // Longer than the clock of the file system takes for a step.
        std::thread::sleep(std::time::Duration::from_millis(30));
        make();
        assert!(first.is_none() || identity(&path) != first, "{first:?}");
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "the test writes the files itself")]
    fn what_was_entered_is_one_directory_wherever_its_path_leads_meanwhile() {
        let parent = tempfile::tempdir().expect("a directory");
        let (path, moved) = (parent.path().join("latest"), parent.path().join("moved"));
        std::fs::create_dir(&path).expect("creates");
        let place = Place { identity: identity(&path), path: path.clone() };
        let fail = |error| fault_of("entering it", &error);
        let entered = place.enter(&fail).expect("it is there");
        std::fs::rename(&path, &moved).expect("moves");
        assert_eq!(place.enter(&fail).map(|_| ()).expect_err("it is gone").kind, FaultKind::NotFound);
        std::fs::create_dir(&path).expect("creates");
        std::fs::write(path.join("log"), b"another one's").expect("writes");
        let refused = place.enter(&fail).map(|_| ());
        assert!(place.identity.is_none() || refused.expect_err("another one").kind == FaultKind::Displaced);
        entered.open("log", libc::O_CREAT).expect("creates");
        entered.sync().expect("syncs");
        assert_eq!(std::fs::read(moved.join("log")).expect("it is there"), b"");
        entered.remove("log").expect("removes");
        assert!(!moved.join("log").exists());
        assert_eq!(std::fs::read(path.join("log")).expect("it is left"), b"another one's");
    }
}
