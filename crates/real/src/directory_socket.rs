//! A socket in a database's directory, by which other programs of its user reach the one that has it open.
#![allow(unsafe_code)]

use crate::fault::fault_of;
use driver::{Fault, FaultKind};
use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long it waits before it tries again to accept a connection, for which the process may lack a descriptor.
const PAUSE: Duration = Duration::from_millis(200);

/// Where other programs of the same user, and root's, reach the one that has a database's directory locked. No others do: the socket is its
/// owner's alone, and who connects is asked for by the kernel's word.
///
/// ```
/// use entresol_real::DirectorySocket;
/// use std::io::{Read, Write};
///
/// # let directory = tempfile::tempdir().unwrap();
/// # let directory = directory.path();
/// assert!(DirectorySocket::connect(directory)?.is_none());
/// let socket = DirectorySocket::listen(directory)?;
/// let mut client = DirectorySocket::connect(directory)?.expect("it listens");
/// let mut served = socket.accept().expect("it is not closed");
/// client.write_all(b"ping").unwrap();
/// let mut said = [0; 4];
/// served.read_exact(&mut said).unwrap();
/// assert_eq!(&said, b"ping");
/// socket.close();
/// assert!(socket.accept().is_none());
/// drop(socket);
/// assert_eq!(directory.read_dir().unwrap().count(), 0);
/// # Ok::<(), driver::Fault>(())
/// ```
#[derive(Debug)]
pub struct DirectorySocket {
    listener: UnixListener,
    path: PathBuf,
    /// Which file it has in the directory.
    file: (u64, u64),
    is_closed: AtomicBool,
}

impl DirectorySocket {
    /// The name of its file. A process that was killed leaves that behind, and no one listens there.
    pub const NAME: &'static str = "entresol.socket";

    /// Listens in a directory that the caller has locked: what is there under the name is of a process that is gone.
    ///
    /// # Errors
    /// [`FaultKind::Exists`] if that is no socket, or what the system says: not every file system has sockets.
    pub fn listen(directory: &Path) -> Result<DirectorySocket, Fault> {
        let path = directory.join(Self::NAME);
        let fail = |error| fault_of(&format!("listening at '{}'", path.display()), &error);
        match path.symlink_metadata() {
            Ok(found) if found.file_type().is_socket() => std::fs::remove_file(&path).map_err(fail)?,
            Ok(_) => return Err(Fault::new(FaultKind::Exists, format!("'{}' is no socket", path.display()))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(fail(error)),
        }
        #[expect(clippy::disallowed_methods, reason = "this is where the fence points to")]
        let listener = addressed(directory, |address| UnixListener::bind(address)).map_err(fail)?;
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).map_err(fail)?;
        let file = number(&path.symlink_metadata().map_err(fail)?);
        Ok(DirectorySocket { listener, path, file, is_closed: AtomicBool::new(false) })
    }

    /// Connects to the program that has the directory's database open; nothing if none listens there.
    ///
    /// # Errors
    /// What the system says, such as that another user's program listens there.
    #[expect(clippy::disallowed_methods, reason = "this is where the fence points to")]
    pub fn connect(directory: &Path) -> Result<Option<UnixStream>, Fault> {
        match addressed(directory, |address| UnixStream::connect(address)) {
            Ok(stream) => Ok(Some(stream)),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
                Ok(None)
            }
            Err(error) => Err(fault_of(&format!("connecting to '{}'", directory.join(Self::NAME).display()), &error)),
        }
    }

    /// Waits for the next connection of the same user's or root's; nothing once it is closed.
    pub fn accept(&self) -> Option<UnixStream> {
        loop {
            let accepted = self.listener.accept();
            if self.is_closed.load(Ordering::Acquire) {
                return None;
            }
            match accepted {
                Ok((stream, _)) if is_of_same_user(&stream) => return Some(stream),
                Ok(_) => {}
                // Of a client that has gone already, or for want of a descriptor.
                Err(_) => std::thread::park_timeout(PAUSE),
            }
        }
    }

    /// Has [`DirectorySocket::accept`] return, also if it waits on another thread.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        // As a stream the socket can be shut down, which is what wakes it; its path may lead elsewhere by now.
        let shut = self.listener.try_clone().map(|listener| UnixStream::from(OwnedFd::from(listener)));
        let _ends_at_once = shut.and_then(|listener| listener.shutdown(Shutdown::Both));
    }
}

impl Drop for DirectorySocket {
    fn drop(&mut self) {
        // The directory may have been moved away.
        if self.path.symlink_metadata().is_ok_and(|found| number(&found) == self.file) {
            let _tried = std::fs::remove_file(&self.path);
        }
    }
}

fn number(found: &Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}

/// Does something with the socket's path, which the kernel takes up to 107 bytes of: a longer one goes by the descriptor of the directory.
fn addressed<T>(directory: &Path, act: impl Fn(&Path) -> io::Result<T>) -> io::Result<T> {
    match act(&directory.join(DirectorySocket::NAME)) {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            let entered = open_directory(directory)?;
            act(&Path::new("/proc/self/fd").join(entered.as_raw_fd().to_string()).join(DirectorySocket::NAME))
        }
        done => done,
    }
}

#[allow(clippy::disallowed_methods, reason = "this is the driver that the fence points to")]
fn open_directory(directory: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY).open(directory)
}

/// Whether the process at the other end is one of the same user or of root.
fn is_of_same_user(stream: &UnixStream) -> bool {
    // SAFETY: all-zero bytes are a valid `ucred`.
    let mut peer: libc::ucred = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    let (level, option) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
    // SAFETY: the descriptor is open, and `peer` has the length that is given.
    let result =
        unsafe { libc::getsockopt(stream.as_raw_fd(), level, option, (&raw mut peer).cast(), &raw mut length) };
    // SAFETY: the call cannot fail.
    let own = unsafe { libc::geteuid() };
    result == 0 && (peer.uid == 0 || peer.uid == own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    fn mode(path: &Path) -> u32 {
        path.symlink_metadata().expect("it is there").permissions().mode() & 0o777
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test leaves a dead socket")]
    fn a_socket_is_its_owners_alone_and_takes_the_place_of_a_dead_ones_only() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join(DirectorySocket::NAME);
        drop(UnixListener::bind(&path).expect("binds"));
        assert!(path.exists() && DirectorySocket::connect(directory.path()).expect("no fault").is_none());
        let socket = DirectorySocket::listen(directory.path()).expect("takes it over");
        assert_eq!(mode(&path), 0o600);
        assert!(DirectorySocket::connect(directory.path()).expect("no fault").is_some());
        drop(socket);
        assert!(!path.exists());
        std::fs::create_dir(&path).expect("creates");
        let refused = DirectorySocket::listen(directory.path()).expect_err("something else is there");
        assert_eq!(refused.kind, FaultKind::Exists);
        assert!(path.is_dir());
    }

    #[test]
    fn a_path_longer_than_an_address_is_reached_and_one_that_was_moved_away_is_closed() {
        let parent = tempfile::tempdir().expect("a directory");
        let directory = parent.path().join("d".repeat(120)).join("e".repeat(120));
        std::fs::create_dir_all(&directory).expect("creates");
        let socket = DirectorySocket::listen(&directory).expect("listens");
        let mut client = DirectorySocket::connect(&directory).expect("no fault").expect("it listens");
        client.write_all(b"x").expect("writes");
        let mut served = socket.accept().expect("it is not closed");
        let mut said = [0];
        served.read_exact(&mut said).expect("reads");
        let moved = parent.path().join("moved");
        std::fs::rename(&directory, &moved).expect("moves");
        std::fs::create_dir(&directory).expect("creates");
        let other = DirectorySocket::listen(&directory).expect("listens");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| socket.accept().is_none());
            socket.close();
            assert!(waiting.join().expect("it does not panic"));
        });
        drop(socket);
        assert!(DirectorySocket::connect(&directory).expect("no fault").is_some(), "it is the other one's");
        drop(other);
    }
}
