//! The heap of a process that keeps much in memory.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};

/// Pieces of at least this many bytes are worth huge pages: the kernel gives them whole pages of it, and part of one at
/// either end stays small.
const LARGE: usize = 4 << 20;
const HUGE_PAGE: usize = 2 << 20;

/// The system's allocator, with huge pages for large allocations: lookups in the index of a memory-resident set go all over it,
/// and with small pages most of them would wait for page tables as well.
///
/// ```
/// #[global_allocator]
/// static HEAP: entresol_real::Heap = entresol_real::Heap;
///
/// let table = vec![0_u64; 1 << 20];
/// assert!(table.iter().all(|word| *word == 0));
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Heap;

/// Asks for huge pages where a large piece has whole ones.
#[inline]
fn advised(start: *mut u8, length: usize) -> *mut u8 {
    if length >= LARGE && !start.is_null() {
        let skipped = start.addr().next_multiple_of(HUGE_PAGE) - start.addr();
        let whole = (length - skipped) / HUGE_PAGE * HUGE_PAGE;
        // SAFETY: the range lies in the piece that was just allocated; the advice changes no byte. Refused, small pages do.
        unsafe { libc::madvise(start.wrapping_add(skipped).cast(), whole, libc::MADV_HUGEPAGE) };
    }
    start
}

// SAFETY: every call is passed on to the system's allocator with the caller's own arguments and promises.
unsafe impl GlobalAlloc for Heap {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: see above.
        advised(unsafe { System.alloc(layout) }, layout.size())
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: see above.
        advised(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    #[inline]
    unsafe fn realloc(&self, start: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: see above.
        advised(unsafe { System.realloc(start, layout, size) }, size)
    }

    #[inline]
    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: see above.
        unsafe { System.dealloc(start, layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_every_size_keep_their_bytes() {
        for size in [1, 4096, LARGE - 1, LARGE, LARGE + 4097, 9 << 20] {
            let layout = Layout::from_size_align(size, 64).expect("a sound layout");
            // SAFETY: the layout is not empty, the bytes that are looked at lie within the piece, and it is freed once.
            unsafe {
                let piece = Heap.alloc_zeroed(layout);
                assert!(!piece.is_null() && *piece == 0 && *piece.add(size - 1) == 0);
                *piece.add(size - 1) = 7;
                let longer = Heap.realloc(piece, layout, size + LARGE);
                assert_eq!(*longer.add(size - 1), 7);
                Heap.dealloc(longer, Layout::from_size_align(size + LARGE, 64).expect("a sound layout"));
            }
        }
    }
}
