//! What is done to files as a whole. Such work waits for the disk several times and is rare: it has threads of its own.
#![allow(unsafe_code)]

use crate::fault::fault_of;
use crate::mailbox::{JobResult, Opened};
use crate::place::{Entered, Place};
use driver::{Fault, FaultKind, Frame, Output};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// Growth of up to this many bytes in one resize is written with zeros; larger growth is only reserved.
pub const PREWRITE_MAX: u64 = 256 << 20;

const PIECE: u64 = 1 << 20;
const BLOCK: u64 = 4096;

/// Work on a whole file.
pub(crate) enum Job {
    Open {
        place: Place,
        name: String,
        create: bool,
        direct: bool,
        /// Whether all of its blocks are to be allocated, because it will be mapped.
        allocate: bool,
    },
    Resize {
        file: Arc<File>,
        path: PathBuf,
        length: u64,
        prewrite: bool,
    },
    Remove {
        place: Place,
        name: String,
    },
    List {
        place: Place,
    },
    /// Frees a removed file's room, which can take long if the file is fragmented.
    Close {
        file: Arc<File>,
    },
}

impl Job {
    /// Does the work on this thread. Closing has no operation and reports nothing.
    pub(crate) fn run(self) -> Option<JobResult> {
        match self {
            Job::Open { place, name, create, direct, allocate } => {
                Some(match open((&place, &name), create, direct, allocate) {
                    Ok(opened) => JobResult::Opened(opened),
                    Err(fault) => JobResult::Ended(Err(fault)),
                })
            }
            Job::Resize { file, path, length, prewrite } => {
                let fail = |error| fault_of(&format!("resizing '{}' to {length} bytes", path.display()), &error);
                let result = resize(&file, length, prewrite).map(|()| Output::Done).map_err(fail);
                Some(JobResult::Ended(result))
            }
            Job::Remove { place, name } => Some(JobResult::Ended(remove(&place, &name).map(|()| Output::Done))),
            Job::List { place } => Some(JobResult::Ended(list(&place).map(Output::Names))),
            Job::Close { file } => {
                drop(file);
                None
            }
        }
    }
}

/// The path of a file that lies directly in the directory.
fn path_of(directory: &Path, name: &str) -> Result<PathBuf, Fault> {
    let mut components = Path::new(name).components();
    match (components.next(), components.next()) {
        (Some(Component::Normal(only)), None) if only == name => Ok(directory.join(name)),
        _ => {
            let message = format!("'{name}' is not the name of a file in '{}'", directory.display());
            Err(Fault::new(FaultKind::Unsupported, message))
        }
    }
}

fn open((place, name): (&Place, &str), create: bool, direct: bool, allocate: bool) -> Result<Opened, Fault> {
    let path = path_of(&place.path, name)?;
    let fail = |error: io::Error| fault_of(&format!("opening '{}'", path.display()), &error);
    let entered = place.enter(&fail)?;
    let (file, direct, created) = match open_with(&entered, name, 0, direct) {
        Err(error) if create && error.kind() == io::ErrorKind::NotFound => {
            let (file, direct) = open_with(&entered, name, libc::O_CREAT, direct).map_err(fail)?;
            (file, direct, true)
        }
        result => {
            let (file, direct) = result.map_err(fail)?;
            (file, direct, false)
        }
    };
    if created {
        file.sync_all().map_err(fail)?;
        entered.sync().map_err(fail)?;
    }
    let status = file.metadata().map_err(fail)?;
    if !created && !direct && status.is_file() {
        drop_cache(&file).map_err(fail)?;
    }
    let length = status.len();
    if allocate && length > 0 {
        allocate_holes(&file, length).map_err(fail)?;
    }
    Ok(Opened { file, length, direct })
}

/// Makes reads of the file go to the device. After a failed sync the system continues to return the data that it could not
/// write, and marks it clean: a program killed then leaves data behind that looks durable and will never be written.
///
/// This is advice to the system: what another program has mapped at this moment stays in the cache.
fn drop_cache(file: &File) -> io::Result<()> {
    // Only clean pages can be dropped. If this fails, the unwritten data is not returned any more, which is what matters here;
    // pages that stay dirty are left to the next sync and its caller.
    let _ = file.sync_data();
    // SAFETY: the call takes no memory and the descriptor is open.
    match unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Opens for direct I/O if that is wanted and the file system does not refuse it. Returns whether it is direct.
fn open_with(entered: &Entered, name: &str, flags: libc::c_int, direct: bool) -> io::Result<(File, bool)> {
    if direct {
        match entered.open(name, flags | libc::O_DIRECT) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
            result => return Ok((result?, true)),
        }
    }
    Ok((entered.open(name, flags)?, false))
}

#[allow(clippy::disallowed_methods, reason = "this is the driver that the fence points to")]
pub(crate) fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

fn resize(file: &File, length: u64, prewrite: bool) -> io::Result<()> {
    let present = file.metadata()?.len();
    if length <= present {
        file.set_len(length)?;
        return sync_whole(file);
    }
    let grown = grow(file, present, length, prewrite);
    if grown.is_err() {
        // The file stays as it was, so that the room is not lost; the first error is the one to tell.
        let _ = file.set_len(present);
    }
    grown
}

fn grow(file: &File, present: u64, length: u64, prewrite: bool) -> io::Result<()> {
    if length - present > free_bytes(file)? {
        // Some file systems take all that is left before they find that it is not enough.
        return Err(io::Error::from_raw_os_error(libc::ENOSPC));
    }
    match reserve(file, present, length - present) {
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => file.set_len(length)?,
        result => result?,
    }
    if prewrite && length - present <= PREWRITE_MAX {
        // What is left beside whole blocks reads as zeros without being written.
        write_zeros(file, present.next_multiple_of(BLOCK), length / BLOCK * BLOCK)?;
    }
    sync_whole(file)
}

fn sync_whole(file: &File) -> io::Result<()> {
    file.sync_all().map_err(of_sync)
}

/// What a sync tells may be of earlier writes to the file, and is told once. So it is never a mere lack of room for the growth.
fn of_sync(error: io::Error) -> io::Error {
    io::Error::other(format!("syncing it: {error}"))
}

/// How much room this user has on the file's file system.
fn free_bytes(file: &File) -> io::Result<u64> {
    // SAFETY: all-zero bytes are a valid `statvfs`.
    let mut status: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open and `status` is written before it is read.
    if unsafe { libc::fstatvfs(file.as_raw_fd(), &mut status) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // A file system without a limit, such as some memory file systems, says that it has no blocks at all.
    if status.f_blocks == 0 { Ok(u64::MAX) } else { Ok(status.f_bavail.saturating_mul(status.f_frsize)) }
}

/// Gives every hole of a file its block, where the file system can.
pub(crate) fn allocate_holes(file: &File, length: u64) -> io::Result<()> {
    match reserve(file, 0, length) {
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(()),
        result => result,
    }
}

fn reserve(file: &File, from: u64, bytes: u64) -> io::Result<()> {
    loop {
        // SAFETY: the call takes no memory and the descriptor is open.
        let result = unsafe { libc::fallocate(file.as_raw_fd(), 0, from as libc::off_t, bytes as libc::off_t) };
        if result == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

fn write_zeros(file: &File, mut from: u64, to: u64) -> io::Result<()> {
    let zeros = Frame::allocate(1, PIECE as usize).pop().expect("one frame was asked for");
    while from < to {
        let piece = PIECE.min(to - from);
        file.write_all_at(&zeros[..piece as usize], from)?;
        from += piece;
    }
    Ok(())
}

fn remove(place: &Place, name: &str) -> Result<(), Fault> {
    let path = path_of(&place.path, name)?;
    let fail = |error: io::Error| fault_of(&format!("removing '{}'", path.display()), &error);
    let entered = match place.enter(&fail) {
        Err(fault) if fault.kind == FaultKind::NotFound => return Ok(()),
        entered => entered?,
    };
    match entered.remove(name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result.and_then(|()| entered.sync()).map_err(fail),
    }
}

fn list(place: &Place) -> Result<Vec<String>, Fault> {
    let fail = |error: io::Error| fault_of(&format!("listing '{}'", place.path.display()), &error);
    // Held, so that no other directory gets its number meanwhile.
    let entered = place.enter(&fail)?;
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&place.path).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        // What is no regular file or has a name that is no text was not made through this driver.
        if entry.file_type().map_err(fail)?.is_file() {
            names.extend(entry.file_name().into_string());
        }
    }
    // What is said of another one, which has taken its place since, would be taken for its own.
    place.enter(&fail)?;
    drop(entered);
    names.sort_unstable();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_that_finds_no_room_is_a_failure_of_the_device() {
        let error = of_sync(io::Error::from_raw_os_error(libc::ENOSPC));
        let fault = fault_of("resizing 'log' to 8192 bytes", &error);
        assert_eq!(fault.kind, FaultKind::Device);
        assert!(fault.message.starts_with("resizing 'log' to 8192 bytes: syncing it: No space left"), "{fault}");
    }

    #[test]
    fn only_plain_names_are_files_of_a_device() {
        let directory = Path::new("/data");
        assert_eq!(path_of(directory, "log.1"), Ok(PathBuf::from("/data/log.1")));
        for name in ["", ".", "..", "/etc/passwd", "a/b", "../a", "a/", "./a"] {
            assert_eq!(path_of(directory, name).map_err(|fault| fault.kind), Err(FaultKind::Unsupported), "{name}");
        }
    }
}
