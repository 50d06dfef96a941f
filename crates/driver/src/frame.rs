//! Frame memory: the only `unsafe` outside the real driver.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

/// The smallest alignment that direct I/O accepts everywhere.
const ALIGNMENT: usize = 4096;

/// A contiguous region that frames are cut from. Whoever allocates otherwise (the real driver maps huge pages) implements
/// this to free the region when its last frame is dropped.
pub trait Memory: Send + Sync {}

/// A piece of memory with one owner, fit for direct I/O. It moves into an operation and comes back with the completion, so
/// nobody can touch it while a device does.
///
/// ```
/// use entresol_driver::Frame;
///
/// let mut frames = Frame::allocate(2, 8192);
/// frames[1][..5].copy_from_slice(b"hello");
/// assert_eq!((frames[1].len(), frames[1].index(), &frames[1][..6]), (8192, 1, &b"hello\0"[..]));
/// ```
pub struct Frame {
    start: NonNull<u8>,
    length: u32,
    index: u32,
    memory: Arc<dyn Memory>,
}

// SAFETY: a frame is the only owner of its bytes (see `Frame::cut`), and plain bytes may move between threads.
unsafe impl Send for Frame {}
// SAFETY: a shared frame gives shared bytes only.
unsafe impl Sync for Frame {}

impl Frame {
    /// Allocates `count` zeroed frames of `size` bytes on the heap, in one region.
    ///
    /// # Panics
    /// If `size` is zero or the region exceeds the address space.
    pub fn allocate(count: usize, size: usize) -> Vec<Frame> {
        assert!(size > 0, "a frame holds at least one byte");
        if count == 0 {
            return Vec::new();
        }
        let bytes = count.checked_mul(size).expect("the region fits the address space");
        let layout = Layout::from_size_align(bytes, ALIGNMENT).expect("the region fits the address space");
        // SAFETY: the layout has a size above zero.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else { std::alloc::handle_alloc_error(layout) };
        let memory = Arc::new(Heap { start, layout });
        // SAFETY: the region is `count * size` bytes, initialized, owned by `memory` and cut only here.
        unsafe { Frame::cut(start, count, size, memory) }
    }

    /// Cuts a region into frames.
    ///
    /// # Safety
    /// `start` points to `count * size` initialized bytes that live as long as `memory`, and that nothing else refers to.
    pub unsafe fn cut(start: NonNull<u8>, count: usize, size: usize, memory: Arc<dyn Memory>) -> Vec<Frame> {
        let length = u32::try_from(size).expect("a frame is smaller than 4 GiB");
        (0..count)
            .map(|index| {
                // SAFETY: `index * size` lies inside the region by this function's contract.
                let start = unsafe { start.add(index * size) };
                Frame { start, length, index: index as u32, memory: Arc::clone(&memory) }
            })
            .collect()
    }

    /// The frame's position in the region it was cut from, counted in frames.
    pub fn index(&self) -> usize {
        self.index as usize
    }

    /// The region that the frame was cut from; two frames of one region return pointers to the same object.
    pub fn memory(&self) -> &Arc<dyn Memory> {
        &self.memory
    }
}

impl Deref for Frame {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the bytes are initialized, live as long as `memory`, and only this frame refers to them.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length as usize) }
    }
}

impl DerefMut for Frame {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the frame is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length as usize) }
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Frame {} of {} bytes", self.index, self.length)
    }
}

struct Heap {
    start: NonNull<u8>,
    layout: Layout,
}

impl Memory for Heap {}

// SAFETY: the region is only freed through this value; its bytes are reached through frames alone.
unsafe impl Send for Heap {}
// SAFETY: as above.
unsafe impl Sync for Heap {}

impl Drop for Heap {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout in `Frame::allocate`; no frame is left, each holds an `Arc` of this value.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_disjoint_and_outlive_each_other() {
        let mut frames = Frame::allocate(3, 128);
        for (index, frame) in frames.iter_mut().enumerate() {
            frame.fill(index as u8 + 1);
        }
        let last = frames.pop().expect("three frames");
        assert!(frames[0].iter().all(|b| *b == 1) && frames[1].iter().all(|b| *b == 2));
        drop(frames);
        assert!(last.iter().all(|b| *b == 3));
        let moved = std::thread::scope(|scope| scope.spawn(move || last[127]).join().expect("no panic"));
        assert_eq!(moved, 3);
    }
}
