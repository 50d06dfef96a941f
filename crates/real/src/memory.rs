//! Memory for frames: mapped in huge pages where the kernel has them, and known to the ring so that it need not be pinned
//! for every transfer.
#![allow(unsafe_code)]

use crate::fault::fault_of;
use driver::{Fault, Frame, Memory};
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// Regions up to this many bytes are touched when they are mapped and registered with the ring; larger ones come into being
/// page by page, as they are used.
pub const PREFAULT_MAX: usize = 8 << 30;

/// The kernel registers buffers of at most this many bytes.
const CHUNK_MAX: usize = 1 << 30;
const HUGE_PAGE: usize = 2 << 20;

/// An anonymous mapping, unmapped when its last frame is dropped.
struct AnonymousMapping {
    start: NonNull<libc::c_void>,
    length: usize,
    dropped: Arc<AtomicUsize>,
}

impl Memory for AnonymousMapping {}

// SAFETY: the mapping is only unmapped through this value; its bytes are reached through frames alone.
unsafe impl Send for AnonymousMapping {}
// SAFETY: as above.
unsafe impl Sync for AnonymousMapping {}

impl Drop for AnonymousMapping {
    fn drop(&mut self) {
        // SAFETY: mapped with this length in `AnonymousMapping::new`; no frame is left, each holds an `Arc` of this value.
        unsafe { libc::munmap(self.start.as_ptr(), self.length) };
        self.dropped.fetch_add(1, Ordering::Release);
    }
}

impl AnonymousMapping {
    /// Maps `bytes` zeroed bytes and room to begin at a huge page's boundary, and has them in memory if `touch` is set. Returns the mapping and that beginning.
    fn new(bytes: usize, touch: bool, dropped: Arc<AtomicUsize>) -> io::Result<(AnonymousMapping, NonNull<u8>)> {
        let huge = bytes >= HUGE_PAGE;
        let too_long = || io::Error::from_raw_os_error(libc::ENOMEM);
        let length = if huge { bytes.checked_add(HUGE_PAGE).ok_or_else(too_long)? } else { bytes };
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new anonymous mapping at a place of the kernel's choice touches no existing memory.
        let address = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, -1, 0) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(address).expect("the kernel maps nothing at address zero by itself");
        let mapping = AnonymousMapping { start, length, dropped };
        let skip = if huge { start.as_ptr().align_offset(HUGE_PAGE) } else { 0 };
        // SAFETY: `skip` is smaller than the huge page that was mapped beyond `bytes`.
        let first = unsafe { start.cast::<u8>().add(skip) };
        if huge {
            // SAFETY: the range lies in the new mapping; the advice changes no byte. Refused, small pages do.
            unsafe { libc::madvise(first.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
        }
        if touch {
            // SAFETY: as above. Old kernels do not know this advice; the pages then come on first use.
            let result = unsafe { libc::madvise(first.as_ptr().cast(), bytes, libc::MADV_POPULATE_WRITE) };
            let error = io::Error::last_os_error();
            if result != 0 && matches!(error.raw_os_error(), Some(libc::ENOMEM | libc::EFAULT)) {
                return Err(error);
            }
        }
        Ok((mapping, first))
    }
}

/// A ring's table of registered buffers, as the regions see it.
pub(crate) trait BufferTable {
    /// How many places the table has; zero if nothing can be registered.
    fn places(&self) -> usize;
    /// Fills the places from `first` with these pieces of memory.
    fn fill(&mut self, first: usize, pieces: &[libc::iovec]) -> io::Result<()>;
    /// Empties `count` places from `first`.
    fn clear(&mut self, first: usize, count: usize);
}

struct Region {
    memory: Weak<AnonymousMapping>,
    start: usize,
    chunk: usize,
    first_place: usize,
    places: usize,
}

/// The regions that a ring knows.
#[derive(Default)]
pub(crate) struct Regions {
    regions: Vec<Region>,
    dropped: Arc<AtomicUsize>,
    pruned: usize,
    refusal: Option<String>,
}

impl Regions {
    /// Maps frames and registers them in `table` as far as it has room and the system allows it.
    pub(crate) fn frames(
        &mut self,
        count: usize,
        size: usize,
        table: Option<&mut dyn BufferTable>,
    ) -> Result<Vec<Frame>, Fault> {
        self.map(count, size, true, table)
    }

    /// Maps frames whose pages come into being where they are first written. The ring does not know them: it would touch them.
    pub(crate) fn untouched_frames(&mut self, count: usize, size: usize) -> Result<Vec<Frame>, Fault> {
        self.map(count, size, false, None)
    }

    fn map(
        &mut self,
        count: usize,
        size: usize,
        touch: bool,
        table: Option<&mut dyn BufferTable>,
    ) -> Result<Vec<Frame>, Fault> {
        assert!(size > 0, "a frame holds at least one byte");
        if count == 0 {
            return Ok(Vec::new());
        }
        let attempt = || format!("mapping {count} frames of {size} bytes");
        let no_memory = || fault_of(&attempt(), &io::Error::from_raw_os_error(libc::ENOMEM));
        let bytes = count.checked_mul(size).filter(|bytes| *bytes <= isize::MAX as usize).ok_or_else(no_memory)?;
        let (mapping, start) = AnonymousMapping::new(bytes, touch && bytes <= PREFAULT_MAX, Arc::clone(&self.dropped))
            .map_err(|error| fault_of(&attempt(), &error))?;
        let memory = Arc::new(mapping);
        if let Some(table) = table {
            self.register(&memory, start, bytes, size, table);
        }
        // SAFETY: the mapping holds `bytes` zeroed bytes from `start`, lives as long as `memory` and is cut only here.
        Ok(unsafe { Frame::cut(start, count, size, memory) })
    }

    fn register(
        &mut self,
        memory: &Arc<AnonymousMapping>,
        start: NonNull<u8>,
        bytes: usize,
        size: usize,
        table: &mut dyn BufferTable,
    ) {
        self.prune(table);
        if table.places() == 0 || bytes > PREFAULT_MAX || size > CHUNK_MAX {
            return;
        }
        // Every frame lies in one chunk.
        let chunk = CHUNK_MAX / size * size;
        let pieces: Vec<libc::iovec> = (0..bytes)
            .step_by(chunk)
            .map(|from| libc::iovec {
                // SAFETY: `from` lies inside the region.
                iov_base: unsafe { start.add(from) }.as_ptr().cast(),
                iov_len: chunk.min(bytes - from),
            })
            .collect();
        let places = pieces.len();
        let Some(first_place) = self.free_places(places, table.places()) else { return };
        match table.fill(first_place, &pieces) {
            Ok(()) => {
                let start = start.as_ptr().addr();
                self.regions.push(Region { memory: Arc::downgrade(memory), start, chunk, first_place, places });
            }
            Err(error) => {
                table.clear(first_place, places);
                let advice = if error.raw_os_error() == Some(libc::ENOMEM) { ", see RLIMIT_MEMLOCK" } else { "" };
                self.refusal = Some(format!("{} MiB not registered ({error}{advice})", bytes >> 20));
            }
        }
    }

    fn free_places(&self, wanted: usize, places: usize) -> Option<usize> {
        let taken =
            |place: usize| self.regions.iter().any(|r| (r.first_place..r.first_place + r.places).contains(&place));
        let mut run = 0;
        for place in 0..places {
            run = if taken(place) { 0 } else { run + 1 };
            if run == wanted {
                return Some(place + 1 - wanted);
            }
        }
        None
    }

    /// Whether a region's last frame was dropped since the last [`Regions::prune`].
    pub(crate) fn has_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire) != self.pruned
    }

    /// Takes regions without frames out of the table, which frees their memory at last.
    pub(crate) fn prune(&mut self, table: &mut dyn BufferTable) {
        self.pruned = self.dropped.load(Ordering::Acquire);
        self.regions.retain(|region| {
            let alive = region.memory.strong_count() > 0;
            if !alive {
                table.clear(region.first_place, region.places);
            }
            alive
        });
    }

    /// Where in the table a frame's memory is, if it is there.
    #[inline]
    pub(crate) fn place(&self, frame: &Frame) -> Option<u16> {
        let memory = Arc::as_ptr(frame.memory()).cast::<u8>();
        // A region's weak reference keeps the address of its mapping from being used again.
        let region = self.regions.iter().find(|region| region.memory.as_ptr().cast::<u8>() == memory)?;
        Some((region.first_place + (frame.as_ptr().addr() - region.start) / region.chunk) as u16)
    }

    /// Describes in a few words what happened to registration in a table of this many places.
    pub(crate) fn describe(&self, places: usize) -> String {
        match &self.refusal {
            None if places == 0 => "plain buffers: the kernel has no sparse table".to_owned(),
            None => "registered buffers".to_owned(),
            Some(refusal) => format!("plain buffers: {refusal}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Table {
        taken: Vec<usize>,
        refuses: bool,
    }

    impl BufferTable for Table {
        fn places(&self) -> usize {
            4
        }
        fn fill(&mut self, first: usize, pieces: &[libc::iovec]) -> io::Result<()> {
            if self.refuses {
                return Err(io::Error::from_raw_os_error(libc::ENOMEM));
            }
            self.taken.extend(first..first + pieces.len());
            Ok(())
        }
        fn clear(&mut self, first: usize, count: usize) {
            self.taken.retain(|place| !(first..first + count).contains(place));
        }
    }

    #[test]
    fn frames_are_zeroed_aligned_and_leave_the_table_with_their_last() {
        let mut table = Table::default();
        let mut regions = Regions::default();
        let mut pages = regions.frames(1024, 4096, Some(&mut table)).expect("4 MiB");
        let small = regions.frames(3, 512, Some(&mut table)).expect("a page");
        assert!(
            pages.iter().all(|page| page.as_ptr().addr().is_multiple_of(4096) && page.iter().all(|byte| *byte == 0))
        );
        assert_eq!((regions.place(&pages[1023]), regions.place(&small[2])), (Some(0), Some(1)));
        assert_eq!(regions.place(&Frame::allocate(1, 64)[0]), None);
        let last = pages.pop().expect("there are 1024");
        drop(pages);
        assert!(!regions.has_dropped());
        drop(last);
        assert!(regions.has_dropped());
        regions.prune(&mut table);
        assert_eq!(table.taken, [1]);
        assert!(!regions.has_dropped());
    }

    #[test]
    fn a_refused_registration_leaves_usable_frames_and_is_stated() {
        let mut table = Table { refuses: true, ..Table::default() };
        let mut regions = Regions::default();
        let mut frames = regions.frames(2, 4096, Some(&mut table)).expect("two pages");
        frames[1].fill(7);
        assert_eq!(regions.place(&frames[1]), None);
        assert!(regions.describe(4).contains("RLIMIT_MEMLOCK"), "{}", regions.describe(4));
    }

    #[test]
    fn impossible_amounts_are_a_fault() {
        let fault = Regions::default().frames(usize::MAX / 2, 4096, None).expect_err("beyond the address space");
        assert_eq!(fault.kind, driver::FaultKind::NoMemory);
    }
}
