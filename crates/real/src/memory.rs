//! Memory for frames: mapped in huge pages where the kernel has them, and known to the ring so that it need not be pinned
//! for every transfer.
//!
//! Small regions are brought into being and registered at once. Larger ones, such as the buffer's, are so by pieces of 4 MiB,
//! when a transfer first uses a frame of the piece: a database that was just created takes little memory, however large
//! its buffer may become.
#![allow(unsafe_code)]

use crate::fault::fault_of;
use driver::{Fault, Frame, Memory};
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// Regions up to this many bytes are registered with the ring, piece by piece; larger ones come into being page by page, as
/// they are used.
pub const REGISTERED_MAX: usize = 8 << 30;
/// Regions of fewer bytes are one piece, which is touched when it is mapped.
const PIECED_MIN: usize = 2 * PIECE;
/// How many bytes of a region come into being together, about.
const PIECE: usize = 4 << 20;

/// The kernel registers buffers of at most this many bytes.
const CHUNK_MAX: usize = 1 << 30;
const HUGE_PAGE: usize = 2 << 20;
const PAGE: usize = 4096;

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

/// What has become of a piece of a region.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Piece {
    /// No transfer has used it.
    Unused,
    /// The ring knows it.
    Registered,
    /// It was to, and the system has refused that.
    Plain,
}

struct Region {
    memory: Weak<AnonymousMapping>,
    start: NonNull<u8>,
    bytes: usize,
    chunk: usize,
    first_place: usize,
    pieces: Vec<Piece>,
}

// SAFETY: `start` is only an address here; what lies there is reached through frames alone.
unsafe impl Send for Region {}

impl Region {
    /// Where this piece lies.
    fn vector(&self, piece: usize) -> libc::iovec {
        let from = piece * self.chunk;
        // SAFETY: `from` lies inside the region.
        let base = unsafe { self.start.add(from) };
        libc::iovec { iov_base: base.as_ptr().cast(), iov_len: self.chunk.min(self.bytes - from) }
    }
}

/// A region that comes into being piece by piece.
struct Promised {
    memory: Weak<AnonymousMapping>,
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: as for `Region`.
unsafe impl Send for Promised {}

impl Promised {
    /// How many of its bytes are not in memory yet; nothing if it is gone.
    fn absent_bytes(&self) -> usize {
        let Some(_alive) = self.memory.upgrade() else { return 0 };
        let mut states = vec![0_u8; self.bytes.div_ceil(PAGE)];
        // SAFETY: the range is mapped while the mapping is alive, begins at a page, and has a byte of `states` for each of its pages.
        let result = unsafe { libc::mincore(self.start.as_ptr().cast(), self.bytes, states.as_mut_ptr().cast()) };
        if result == 0 { states.iter().filter(|state| **state & 1 == 0).count() * PAGE } else { 0 }
    }
}

/// The regions that a ring knows.
#[derive(Default)]
pub(crate) struct Regions {
    regions: Vec<Region>,
    /// All of them that come into being piece by piece, whether a ring knows them or not.
    promised: Vec<Promised>,
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
        let is_pieced = bytes >= PIECED_MIN;
        let is_limited = touch && is_pieced && bytes <= REGISTERED_MAX;
        if is_limited && available_bytes().is_some_and(|available| bytes > available.saturating_sub(self.promised())) {
            return Err(no_memory());
        }
        let (mapping, start) = AnonymousMapping::new(bytes, touch && !is_pieced, Arc::clone(&self.dropped))
            .map_err(|error| fault_of(&attempt(), &error))?;
        let memory = Arc::new(mapping);
        if is_limited {
            self.promised.push(Promised { memory: Arc::downgrade(&memory), start, bytes });
        }
        if let Some(table) = table {
            self.register(&memory, start, bytes, size, table);
        }
        // SAFETY: the mapping holds `bytes` zeroed bytes from `start`, lives as long as `memory` and is cut only here.
        Ok(unsafe { Frame::cut(start, count, size, memory) })
    }

    /// How many bytes earlier regions will take that are not in memory yet.
    fn promised(&mut self) -> usize {
        self.promised.retain(|region| region.memory.strong_count() > 0);
        self.promised.iter().map(Promised::absent_bytes).sum()
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
        if table.places() == 0 || bytes > REGISTERED_MAX || size > CHUNK_MAX {
            return;
        }
        // Every frame lies in one piece.
        let chunk = if bytes < PIECED_MIN { bytes } else { PIECE.max(size) / size * size };
        let places = bytes.div_ceil(chunk);
        let Some(first_place) = self.free_places(places, table.places()) else { return };
        let memory = Arc::downgrade(memory);
        let pieces = vec![Piece::Unused; places];
        self.regions.push(Region { memory, start, bytes, chunk, first_place, pieces });
        // Whether the system allows it at all is known from the first one.
        self.register_piece(self.regions.len() - 1, 0, table);
    }

    /// Has the ring know a piece, which brings it into being.
    #[cold]
    fn register_piece(&mut self, region: usize, piece: usize, table: &mut dyn BufferTable) {
        let region = &mut self.regions[region];
        match table.fill(region.first_place + piece, &[region.vector(piece)]) {
            Ok(()) => region.pieces[piece] = Piece::Registered,
            Err(error) => {
                table.clear(region.first_place + piece, 1);
                // The others would be refused as well.
                let unused = region.pieces.iter_mut().filter(|piece| **piece == Piece::Unused);
                let bytes = unused.map(|piece| *piece = Piece::Plain).count() * region.chunk;
                let advice = if error.raw_os_error() == Some(libc::ENOMEM) { ", see RLIMIT_MEMLOCK" } else { "" };
                self.refusal = Some(format!("{} MiB not registered ({error}{advice})", bytes.min(region.bytes) >> 20));
            }
        }
    }

    fn free_places(&self, wanted: usize, places: usize) -> Option<usize> {
        let mut taken: Vec<_> = self.regions.iter().map(|r| (r.first_place, r.first_place + r.pieces.len())).collect();
        taken.sort_unstable();
        let mut free = 0;
        for (first, end) in taken {
            if first - free >= wanted {
                return Some(free);
            }
            free = end;
        }
        (free + wanted <= places).then_some(free)
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
                table.clear(region.first_place, region.pieces.len());
            }
            alive
        });
    }

    /// Where in the table a frame's memory is, if it is there. It comes there with the first use of its piece.
    #[inline]
    pub(crate) fn place(&mut self, frame: &Frame, table: Option<&mut dyn BufferTable>) -> Option<u16> {
        let memory = Arc::as_ptr(frame.memory()).cast::<u8>();
        // A region's weak reference keeps the address of its mapping from being used again.
        let at = self.regions.iter().position(|region| region.memory.as_ptr().cast::<u8>() == memory)?;
        let region = &self.regions[at];
        let piece = (frame.as_ptr().addr() - region.start.as_ptr().addr()) / region.chunk;
        let place = (region.first_place + piece) as u16;
        match region.pieces[piece] {
            Piece::Registered => Some(place),
            Piece::Plain => None,
            Piece::Unused => {
                self.register_piece(at, piece, table?);
                (self.regions[at].pieces[piece] == Piece::Registered).then_some(place)
            }
        }
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

/// How much memory the machine could give now, if it says so.
fn available_bytes() -> Option<usize> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let kibibytes = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        line.split_ascii_whitespace().nth(1)?.parse::<usize>().ok()
    };
    Some((kibibytes("MemAvailable:")? + kibibytes("SwapFree:").unwrap_or(0)) << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Table {
        taken: Vec<usize>,
        refuses: bool,
        room: usize,
    }

    impl BufferTable for Table {
        fn places(&self) -> usize {
            self.room.max(4)
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
        assert_eq!([&pages[1023], &small[2]].map(|frame| regions.place(frame, None)), [Some(0), Some(1)]);
        assert_eq!(regions.place(&Frame::allocate(1, 64)[0], None), None);
        let last = pages.pop().expect("there are 1024");
        drop(pages);
        assert!(!regions.has_dropped());
        drop(last);
        assert!(regions.has_dropped());
        regions.prune(&mut table);
        assert_eq!(table.taken, [1]);
        assert!(!regions.has_dropped());
    }

    /// How many bytes of these frames are in memory.
    fn resident_bytes(frames: &[Frame]) -> usize {
        let count = |frame: &Frame| {
            let mut state = 0_u8;
            // SAFETY: the page is mapped, and one byte is written for it.
            let result = unsafe { libc::mincore(frame.as_ptr().cast_mut().cast(), 4096, (&raw mut state).cast()) };
            assert_eq!(result, 0);
            usize::from(state & 1) * 4096
        };
        frames.iter().map(count).sum()
    }

    #[test]
    fn a_large_region_comes_into_being_and_into_the_table_piece_by_piece() {
        let mut table = Table { room: 64, ..Table::default() };
        let mut regions = Regions::default();
        let mut frames = regions.frames(16 << 10, 4096, Some(&mut table)).expect("64 MiB");
        assert_eq!(table.taken, [0], "the first piece alone");
        assert_eq!(resident_bytes(&frames), 0, "this table touches none");
        frames[5_000].fill(1);
        assert!((4096..=2 << 20).contains(&resident_bytes(&frames)), "{}", resident_bytes(&frames));
        for frame in [5_000, 5_001, 16_383] {
            let place = regions.place(&frames[frame], Some(&mut table));
            assert_eq!(place, Some((frame / 1_024) as u16));
        }
        assert_eq!(table.taken, [0, 4, 15]);
        assert_eq!(regions.place(&frames[9_000], None), None, "nothing is registered without the ring");
        table.refuses = true;
        assert_eq!(regions.place(&frames[9_000], Some(&mut table)), None);
        table.refuses = false;
        assert_eq!(regions.place(&frames[9_000], Some(&mut table)), None, "it is not tried again");
        assert_eq!(regions.place(&frames[5_000], None), Some(4));
        drop(frames);
        regions.prune(&mut table);
        assert!(table.taken.is_empty(), "{:?}", table.taken);
    }

    #[test]
    fn more_than_the_machine_has_is_refused() {
        let available = available_bytes().expect("Linux says so");
        if available < REGISTERED_MAX / 2 {
            let frames = Regions::default().frames(2 * available / 4096, 4096, None);
            assert_eq!(frames.expect_err("too much").kind, driver::FaultKind::NoMemory);
        }
    }

    /// None of them is in memory yet.
    #[test]
    fn regions_that_are_more_than_the_machine_has_together_are_refused() {
        let mut regions = Regions::default();
        let available = available_bytes().expect("Linux says so");
        let each = (available / 2).min(REGISTERED_MAX) / 4096 * 3 / 4;
        let fitting = available / (each * 4096) + 1;
        let mapped: Vec<_> = (0..=fitting).map_while(|_| regions.frames(each, 4096, None).ok()).collect();
        assert!(!mapped.is_empty() && mapped.len() <= fitting, "{} of {fitting}", mapped.len());
        drop(mapped);
        assert!(regions.frames(each, 4096, None).is_ok(), "they have gone");
    }

    #[test]
    fn a_refused_registration_leaves_usable_frames_and_is_stated() {
        let mut table = Table { refuses: true, ..Table::default() };
        let mut regions = Regions::default();
        let mut frames = regions.frames(2, 4096, Some(&mut table)).expect("two pages");
        frames[1].fill(7);
        assert_eq!(regions.place(&frames[1], None), None);
        assert!(regions.describe(4).contains("RLIMIT_MEMLOCK"), "{}", regions.describe(4));
    }

    #[test]
    fn impossible_amounts_are_a_fault() {
        let fault = Regions::default().frames(usize::MAX / 2, 4096, None).expect_err("beyond the address space");
        assert_eq!(fault.kind, driver::FaultKind::NoMemory);
    }
}
