//! Files mapped into memory: read and written by copying, on the calling thread, never through the I/O queue.
//!
//! On a DAX mount that grants `MAP_SYNC` the bytes of the mapping are the medium's: every write is flushed from the
//! processor's caches before it completes, so that what has completed is durable. Elsewhere the mapping shows the page cache:
//! a durable write ends with `msync`, a sync with `fdatasync`.
#![allow(unsafe_code)]

use crate::fault::fault_of;
use crate::flush::Flush;
use driver::{DeviceTraits, Fault, FaultKind};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::NonNull;

/// The unit of mappings and of `msync`.
const PAGE: usize = 4096;

/// How the files of a device are mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MapMode {
    /// The mapping is the medium (`MAP_SYNC`); writes are flushed by these instructions.
    Dax(Flush),
    /// The mapping is the page cache.
    Shared,
}

impl MapMode {
    /// What a file without a name in this directory is granted.
    pub(crate) fn probe(nameless: Option<File>) -> MapMode {
        let (Some(flush), Some(file)) = (Flush::detect(), nameless) else { return MapMode::Shared };
        let granted = file.set_len(PAGE as u64).and_then(|()| map(&file, PAGE, true));
        match granted {
            Ok(start) => {
                // SAFETY: just mapped with this length, and nothing else knows of it.
                unsafe { libc::munmap(start.as_ptr(), PAGE) };
                MapMode::Dax(flush)
            }
            Err(_) => MapMode::Shared,
        }
    }

    /// What the engine must know of a mapped device, from what is known of the directory. A DAX write is torn at eight bytes.
    pub(crate) fn traits(self, directory: DeviceTraits) -> DeviceTraits {
        let atomic_write = if matches!(self, MapMode::Dax(_)) { 8 } else { directory.atomic_write.min(512) };
        DeviceTraits { atomic_write, untorn_on_request: 0, alignment: 64, synchronous: true, ..directory }
    }

    /// The same in words, for the driver's description.
    pub(crate) fn describe(self, memory: bool) -> String {
        match (self, memory) {
            (MapMode::Dax(flush), _) => format!("mapped with MAP_SYNC (DAX), flushed by {} and sfence", flush.name()),
            (MapMode::Shared, true) => "mapped, its files are memory: not durable".to_owned(),
            (MapMode::Shared, false) => "mapped with MAP_SHARED (no DAX), durable by msync".to_owned(),
        }
    }
}

fn map(file: &File, length: usize, sync: bool) -> io::Result<NonNull<libc::c_void>> {
    let flags = if sync { libc::MAP_SHARED_VALIDATE | libc::MAP_SYNC } else { libc::MAP_SHARED };
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at a place of the kernel's choice touches no existing memory, and the descriptor is open.
    let address = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, file.as_raw_fd(), 0) };
    if address == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    Ok(NonNull::new(address).expect("the kernel maps nothing at address zero by itself"))
}

/// One file's mapping. Its bytes are only ever copied, never referred to, so that the kernel may change them as it likes.
pub(crate) struct Mapping {
    mode: MapMode,
    /// `None` while the file is empty.
    start: Option<NonNull<libc::c_void>>,
    /// Bytes mapped: the file's length when it was mapped.
    mapped: usize,
    /// Bytes that may be accessed; fewer than are mapped while the file shrinks.
    length: usize,
    /// Changes of the file's length that are under way.
    resizes: u32,
}

impl Mapping {
    /// Maps a file of this length, whose blocks are all allocated: a hole that the device has no room for would end the
    /// process at the first write to it.
    ///
    /// # Errors
    /// A [`Fault`] naming the file if the kernel refuses.
    pub(crate) fn new(file: &File, length: u64, mode: MapMode, path: &Path) -> Result<Mapping, Fault> {
        let mut mapping = Mapping { mode, start: None, mapped: 0, length: 0, resizes: 0 };
        mapping.remap(file, length, path)?;
        Ok(mapping)
    }

    /// Follows the file to a new length.
    ///
    /// # Errors
    /// As [`Mapping::new`]; then nothing is mapped.
    fn remap(&mut self, file: &File, length: u64, path: &Path) -> Result<(), Fault> {
        let fail = |error: io::Error| fault_of(&format!("mapping {length} bytes of '{}'", path.display()), &error);
        let length = usize::try_from(length).map_err(|_| fail(io::Error::from_raw_os_error(libc::ENOMEM)))?;
        match (self.start, length) {
            (Some(start), 1..) => {
                // SAFETY: `start` was mapped with `mapped` bytes and nothing points into the mapping between two calls.
                let address = unsafe { libc::mremap(start.as_ptr(), self.mapped, length, libc::MREMAP_MAYMOVE) };
                if address == libc::MAP_FAILED {
                    let error = io::Error::last_os_error();
                    self.unmap();
                    return Err(fail(error));
                }
                self.start = NonNull::new(address);
            }
            (None, 1..) => self.start = Some(map(file, length, matches!(self.mode, MapMode::Dax(_))).map_err(fail)?),
            (_, 0) => self.unmap(),
        }
        (self.mapped, self.length) = (length, length);
        Ok(())
    }

    /// The file is about to get this length: no access goes beyond it any more.
    pub(crate) fn begin_resize(&mut self, length: u64) {
        self.resizes += 1;
        self.length = self.length.min(usize::try_from(length).unwrap_or(usize::MAX));
    }

    /// A change of the file's length has ended, as asked for or not. With the last of them the mapping follows the file.
    ///
    /// # Errors
    /// As [`Mapping::new`].
    pub(crate) fn end_resize(&mut self, file: &File, path: &Path) -> Result<(), Fault> {
        self.resizes -= 1;
        self.follow(file, path)
    }

    /// Takes in what a write beyond the end has added to the file.
    ///
    /// # Errors
    /// As [`Mapping::new`].
    pub(crate) fn follow(&mut self, file: &File, path: &Path) -> Result<(), Fault> {
        if self.resizes > 0 {
            return Ok(());
        }
        let fail = |error: io::Error| fault_of(&format!("asking '{}' for its length", path.display()), &error);
        let length = file.metadata().map_err(fail)?.len();
        self.remap(file, length, path)
    }

    /// How many bytes may be accessed.
    pub(crate) fn length(&self) -> u64 {
        self.length as u64
    }

    /// Copies the bytes at `offset` into `buffer`.
    ///
    /// # Errors
    /// [`FaultKind::EndOfFile`] with the words of `what` if the file ends before.
    pub(crate) fn read(&self, offset: u64, buffer: &mut [u8], what: impl Fn() -> String) -> Result<(), Fault> {
        let source = self.place(offset, buffer.len(), what)?;
        // SAFETY: `place` checked that the bytes from there on are mapped; the buffer is memory of a frame, which is no
        // part of any file's mapping. The file is not cut meanwhile: this driver cuts it only after `limit`, and other
        // processes are kept away by the directory's lock.
        unsafe { std::ptr::copy_nonoverlapping(source.as_ptr(), buffer.as_mut_ptr(), buffer.len()) };
        Ok(())
    }

    /// Copies `data` to `offset`; on return it is durable if that is asked for.
    ///
    /// # Errors
    /// [`FaultKind::EndOfFile`] with the words of `what` if the file ends before, [`FaultKind::Device`] if `msync` fails.
    pub(crate) fn write(
        &self,
        offset: u64,
        data: &[u8],
        durable: bool,
        what: impl Fn() -> String,
    ) -> Result<(), Fault> {
        let target = self.place(offset, data.len(), &what)?;
        // SAFETY: as in `read`, the other way round; nothing holds a reference into the mapping.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), target.as_ptr(), data.len()) };
        match self.mode {
            // SAFETY: the bytes just written are mapped.
            MapMode::Dax(flush) => unsafe { flush.flush(target, data.len()) },
            MapMode::Shared if durable && !data.is_empty() => {
                let skipped = offset as usize % PAGE;
                // SAFETY: the page's beginning lies in the mapping, which begins at a page; `msync` changes no byte.
                let result =
                    unsafe { libc::msync(target.as_ptr().sub(skipped).cast(), skipped + data.len(), libc::MS_SYNC) };
                if result != 0 {
                    return Err(fault_of(&what(), &io::Error::last_os_error()));
                }
            }
            MapMode::Shared => {}
        }
        Ok(())
    }

    /// Makes everything written durable.
    ///
    /// # Errors
    /// A [`Fault`] with the words of `what` if the device fails.
    pub(crate) fn sync(&self, file: &File, what: impl Fn() -> String) -> Result<(), Fault> {
        match self.mode {
            // Every write was flushed, and the file's length is durable since it was set.
            MapMode::Dax(_) => Ok(()),
            MapMode::Shared => file.sync_data().map_err(|error| fault_of(&what(), &error)),
        }
    }

    fn place(&self, offset: u64, length: usize, what: impl Fn() -> String) -> Result<NonNull<u8>, Fault> {
        let inside =
            usize::try_from(offset).ok().and_then(|from| from.checked_add(length)).filter(|end| *end <= self.length);
        match (inside, self.start) {
            // SAFETY: `offset` lies in the mapping.
            (Some(_), Some(start)) => Ok(unsafe { start.cast::<u8>().add(offset as usize) }),
            (Some(_), None) => Ok(NonNull::dangling()),
            _ => Err(Fault::new(FaultKind::EndOfFile, format!("{}: the file ends at {}", what(), self.length))),
        }
    }

    fn unmap(&mut self) {
        if let Some(start) = self.start.take() {
            // SAFETY: mapped with this length in `remap`, and nothing points into it between two calls.
            unsafe { libc::munmap(start.as_ptr(), self.mapped) };
        }
        (self.mapped, self.length) = (0, 0);
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.unmap();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn what() -> String {
        "copying".to_owned()
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "the file mapped below")]
    fn a_mapping_follows_its_file_and_ends_where_it_ends() {
        let path = std::env::temp_dir().join(format!("entresol-mapping-{}", std::process::id()));
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path).expect("a file");
        // Any memory can be flushed: what DAX would do is done to the page cache here.
        let manners = Flush::detect().map(MapMode::Dax).into_iter().chain([MapMode::Shared]);
        for mode in manners {
            file.set_len(0).expect("room");
            let mut mapping = Mapping::new(&file, 0, MapMode::Shared, &path).expect("nothing to map");
            mapping.mode = mode;
            assert_eq!(mapping.read(0, &mut [], what), Ok(()));
            assert_eq!(mapping.read(0, &mut [0], what).map_err(|fault| fault.kind), Err(FaultKind::EndOfFile));
            for pages in [1, 600, 3] {
                file.set_len(pages * PAGE as u64).expect("room");
                mapping.mode = MapMode::Shared;
                mapping.remap(&file, pages * PAGE as u64, &path).expect("mapped");
                mapping.mode = mode;
                let offset = (pages - 1) * PAGE as u64 + 100;
                mapping.write(offset, &[pages as u8; 300], true, what).expect("written");
                mapping.sync(&file, what).expect("durable");
                let mut back = [0; 300];
                mapping.read(offset, &mut back, what).expect("read");
                assert_eq!(back, [pages as u8; 300]);
                let beyond = mapping.write(pages * PAGE as u64 - 10, &[1; 11], false, what).expect_err("beyond");
                assert_eq!((beyond.kind, beyond.message.as_str().contains("ends at")), (FaultKind::EndOfFile, true));
            }
            mapping.begin_resize(PAGE as u64);
            assert_eq!(mapping.length(), PAGE as u64);
            assert!(mapping.read(PAGE as u64, &mut [0], what).is_err(), "the file is about to be cut");
            mapping.mode = MapMode::Shared;
            mapping.end_resize(&file, &path).expect("mapped");
            assert_eq!(mapping.length(), 3 * PAGE as u64, "it was not cut after all");
        }
        std::fs::remove_file(&path).expect("it is there");
    }

    #[test]
    fn the_manner_is_said() {
        assert!(MapMode::Shared.describe(true).contains("not durable"));
        assert!(MapMode::Shared.describe(false).contains("msync"));
        if let Some(flush) = Flush::detect() {
            assert!(MapMode::Dax(flush).describe(false).contains(flush.name()));
        }
        assert_eq!(MapMode::probe(None), MapMode::Shared);
    }
}
