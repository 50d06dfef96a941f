//! What a directory's file system is like.
#![allow(unsafe_code)]

use crate::fault::{fault_of, kind_of};
use crate::job::sync_directory;
use base::units::format_size;
use driver::{DeviceTraits, Fault, FaultKind};
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// The unit of direct I/O that is good everywhere, and the block of nearly every file system: a write of whole blocks needs
/// no lock that excludes others.
const BLOCK: u32 = 4096;
/// What every device writes in one piece.
const SECTOR: u32 = 512;
const RAMFS_MAGIC: libc::c_long = 0x8584_58f6;

/// A directory as a place for files.
#[derive(Clone, Debug)]
pub(crate) struct Medium {
    pub(crate) traits: DeviceTraits,
    /// Why files are not opened for direct I/O; `None` if they are.
    pub(crate) buffered: Option<String>,
    /// Whether files are memory (tmpfs), so that reserved room is as good as written room.
    pub(crate) memory: bool,
}

impl Medium {
    /// Creates the directory if it is missing, so that a power cut cannot take it, and asks what it is like.
    ///
    /// # Errors
    /// A [`Fault`] naming the directory if it cannot be created, reached or written.
    pub(crate) fn probe(directory: &Path, direct: bool) -> Result<Medium, Fault> {
        let fail = |error: io::Error| fault_of(&format!("opening the directory '{}'", directory.display()), &error);
        if directory.exists() && !directory.is_dir() {
            let is_device = std::fs::metadata(directory).is_ok_and(|found| found.file_type().is_block_device());
            let what = match is_device {
                true => "a block device, and devices are used through a file system: name a directory of one on it",
                false => "a file; name a directory",
            };
            let words = format!("opening the directory '{}': it is {what}", directory.display());
            return Err(Fault::new(FaultKind::Exists, words));
        }
        create_durably(directory).map_err(fail)?;
        let path = CString::new(directory.as_os_str().as_bytes()).map_err(|error| fail(error.into()))?;
        let memory = has_files_in_memory(&path).map_err(fail)?;
        let buffered = match (direct, memory) {
            (false, _) => Some("direct I/O not wanted".to_owned()),
            (true, true) => Some("its files are memory".to_owned()),
            (true, false) => refusal_of_direct(&path),
        };
        let nature = nature(&path, buffered.is_none());
        Ok(Medium { traits: nature.traits(memory), buffered, memory })
    }

    /// What a power cut leaves of a write, in words.
    pub(crate) fn tearing(&self) -> String {
        let whole = format_size(u64::from(self.traits.atomic_write));
        match self.traits.untorn_on_request {
            0 => format!("writes are whole by {whole}"),
            offered => {
                let offered = format_size(u64::from(offered));
                format!("writes are whole by {whole} (RWF_ATOMIC, offered up to {offered}, is not used)")
            }
        }
    }
}

/// Creates what is missing of the path. Its name survives a power cut when this returns.
fn create_durably(directory: &Path) -> io::Result<()> {
    let parent = |of: &Path| of.parent().map(|parent| parent.join(".")).unwrap_or_else(|| of.to_owned());
    let missing: Vec<&Path> = directory.ancestors().take_while(|path| !path.join(".").is_dir()).collect();
    std::fs::create_dir_all(directory)?;
    missing.iter().try_for_each(|created| sync_directory(&parent(created)))?;
    if !missing.is_empty() {
        return Ok(());
    }
    // The process that created it may have been killed before its name was durable. A parent may lack the permission for a
    // sync.
    match sync_directory(&parent(directory)) {
        Err(error) if matches!(kind_of(error.raw_os_error().unwrap_or(0)), FaultKind::Device | FaultKind::NoSpace) => {
            Err(error)
        }
        _ => Ok(()),
    }
}

/// Which file system a path lies on, as a magic number.
pub(crate) fn file_system(path: &CStr) -> io::Result<libc::c_long> {
    // SAFETY: all-zero bytes are a valid `statfs`.
    let mut status: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path ends with a zero byte and `status` is written before it is read.
    if unsafe { libc::statfs(path.as_ptr(), &mut status) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(status.f_type)
}

fn has_files_in_memory(path: &CStr) -> io::Result<bool> {
    Ok(matches!(file_system(path)?, libc::TMPFS_MAGIC | RAMFS_MAGIC))
}

/// Whether files of the directory are memory (tmpfs), which loses them with the power; of one that is missing, where it would be created.
pub fn is_memory(directory: &Path) -> bool {
    let place = directory.ancestors().map(|path| path.join(".")).find(|path| path.is_dir());
    let path = place.and_then(|place| CString::new(place.as_os_str().as_bytes()).ok());
    path.is_some_and(|path| has_files_in_memory(&path).unwrap_or(false))
}

/// A file without a name in the directory, where the file system has such.
pub(crate) fn nameless_file(directory: &Path) -> Option<File> {
    let path = CString::new(directory.as_os_str().as_bytes()).ok()?;
    nameless(&path, 0).ok().map(File::from)
}

/// Opens a file without a name, which vanishes when it is closed.
fn nameless(path: &CStr, flags: libc::c_int) -> io::Result<OwnedFd> {
    let flags = libc::O_TMPFILE | libc::O_RDWR | libc::O_CLOEXEC | flags;
    // SAFETY: the path ends with a zero byte; a result that is not negative is a descriptor with no other owner.
    unsafe {
        let fd = libc::open(path.as_ptr(), flags, 0o600);
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd)) }
    }
}

fn refusal_of_direct(path: &CStr) -> Option<String> {
    // Only a file system that has nameless files at all can show here that it refuses direct ones; elsewhere opening finds
    // out, file by file.
    nameless(path, 0).ok()?;
    nameless(path, libc::O_DIRECT).err().map(|error| format!("direct I/O refused: {error}"))
}

struct Nature {
    alignment: u32,
    untorn_on_request: u32,
    dax: bool,
}

impl Nature {
    /// What the engine must know. The unit of untorn writes holds for writes with `RWF_ATOMIC`, and none of ours has it: made by
    /// copying on write, as XFS does on every device, they were not reliably faster than the double-write area
    /// (`BENCHMARKS.md`). So a sector is all that is promised.
    fn traits(&self, memory: bool) -> DeviceTraits {
        DeviceTraits {
            atomic_write: SECTOR,
            untorn_on_request: self.untorn_on_request,
            alignment: self.alignment.max(BLOCK),
            synchronous: memory || self.dax,
            durable: !memory,
        }
    }
}

/// What `statx` says of a file in the directory; zeros where the kernel does not know.
fn nature(path: &CStr, direct: bool) -> Nature {
    let unknown = Nature { alignment: 0, untorn_on_request: 0, dax: false };
    let Ok(file) = nameless(path, if direct { libc::O_DIRECT } else { 0 }) else { return unknown };
    // SAFETY: all-zero bytes are a valid `statx`.
    let mut status: libc::statx = unsafe { std::mem::zeroed() };
    let mask = libc::STATX_DIOALIGN | libc::STATX_WRITE_ATOMIC;
    // SAFETY: the empty path ends with a zero byte, the descriptor is open and `status` is written before it is read.
    let result = unsafe { libc::statx(file.as_raw_fd(), c"".as_ptr(), libc::AT_EMPTY_PATH, mask, &mut status) };
    if result != 0 {
        return unknown;
    }
    Nature {
        alignment: if direct { status.stx_dio_offset_align.max(status.stx_dio_mem_align) } else { 0 },
        untorn_on_request: if direct { status.stx_atomic_write_unit_max } else { 0 },
        dax: status.stx_attributes & libc::STATX_ATTR_DAX as u64 != 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_of_untorn_writes_that_is_not_asked_for_is_no_promise() {
        let xfs = Nature { alignment: 512, untorn_on_request: 2 << 20, dax: false };
        assert_eq!(xfs.traits(false).atomic_write, 512);
        let medium = Medium { traits: xfs.traits(false), buffered: None, memory: false };
        assert_eq!(medium.tearing(), "writes are whole by 512 B (RWF_ATOMIC, offered up to 2 MiB, is not used)");
        let traits = DeviceTraits { untorn_on_request: 0, ..medium.traits };
        assert_eq!(Medium { traits, ..medium }.tearing(), "writes are whole by 512 B");
    }
}
