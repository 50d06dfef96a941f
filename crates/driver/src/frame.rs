//! Frame memory: the only `unsafe` outside the real driver.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::Cell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

/// The smallest alignment that direct I/O accepts everywhere.
const ALIGNMENT: usize = 4096;

/// A contiguous region that frames are cut from. A driver with an allocator of its own (the real driver maps huge pages)
/// implements this to free the region when its last frame is dropped.
pub trait Memory: Send + Sync {}

/// A piece of memory with one owner, fit for direct I/O. It moves into an operation and comes back with the completion, so it
/// cannot be touched while a device uses it.
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
        // The allocator writes zeros over what is to be aligned, so that all of it is touched; it gets other memory from the system as zeros.
        let layout = bytes.checked_add(ALIGNMENT).and_then(|bytes| Layout::from_size_align(bytes, 1).ok());
        let layout = layout.expect("the region fits the address space");
        // SAFETY: the layout has a size above zero.
        let allocated = unsafe { alloc_zeroed(layout) };
        let Some(allocated) = NonNull::new(allocated) else { std::alloc::handle_alloc_error(layout) };
        let memory = Arc::new(Heap { start: allocated, layout });
        // SAFETY: the first aligned place lies less than `ALIGNMENT` bytes behind the beginning, and `count * size` bytes follow it.
        let start = unsafe { allocated.add(allocated.align_offset(ALIGNMENT)) };
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

/// Asks the processor to bring these bytes into its cache, and does not wait for them.
#[inline]
pub fn prefetch<T>(items: &[T]) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let start = items.as_ptr().cast::<i8>();
        for offset in (0..size_of_val(items)).step_by(64) {
            // SAFETY: a prefetch reads nothing that the program sees and never faults; the address is inside the slice.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(start.add(offset)) };
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = items;
}

/// The frames of one region, in order. Frames in the array are reached by arithmetic instead of a pointer each, so that finding
/// the bytes of a frame loads no memory but one bit; frames that were taken out belong to their taker.
pub struct FrameArray {
    start: NonNull<u8>,
    size: usize,
    count: usize,
    /// One bit for each frame: set while it is in the array.
    present: Vec<u64>,
    /// The same, but for frames that are marked.
    unmarked: Vec<Cell<u64>>,
    /// Keeps the region; absent if there are no frames.
    memory: Option<Arc<dyn Memory>>,
}

// SAFETY: the array is the only owner of the bytes of the frames in it, and plain bytes may move between threads.
unsafe impl Send for FrameArray {}

impl FrameArray {
    /// Takes all frames of a region in, in the order in which they were cut.
    ///
    /// # Panics
    /// If they are not.
    pub fn new(frames: Vec<Frame>) -> FrameArray {
        let count = frames.len();
        let (start, size) = frames.first().map_or((NonNull::dangling(), 1), |first| (first.start, first.len()));
        let memory = frames.first().map(|first| Arc::clone(&first.memory));
        let words = count.div_ceil(64);
        let (present, unmarked) = (vec![0; words], vec![Cell::new(0); words]);
        let mut array = FrameArray { start, size, count, present, unmarked, memory };
        for (index, frame) in frames.into_iter().enumerate() {
            array.put(index, frame);
        }
        array
    }

    /// How many frames there are, taken or not.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are no frames at all.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    #[inline]
    fn is_present(&self, index: usize) -> bool {
        self.present.get(index / 64).is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    /// The bytes of frame `index`, unless it was taken.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        self.is_present(index).then(|| self.bytes(index))
    }

    /// The bytes of frame `index`, unless it was taken or marked: as quick as [`FrameArray::get`], for what has to look at marked frames apart.
    #[inline]
    pub fn get_unmarked(&self, index: usize) -> Option<&[u8]> {
        let word = self.unmarked.get(index / 64)?.get();
        (word >> (index % 64) & 1 == 1).then(|| self.bytes(index))
    }

    #[inline]
    fn bytes(&self, index: usize) -> &[u8] {
        debug_assert!(self.is_present(index), "only such a frame is unmarked");
        // SAFETY: the callers have seen the frame's bit in `present`, or in `unmarked`, which has no others. That is set only by `put`, which has seen that the frame lies at this place of the region and has taken
        // its ownership; the bytes are initialized and live as long as `memory`.
        unsafe { std::slice::from_raw_parts(self.start.add(index * self.size).as_ptr(), self.size) }
    }

    /// The bytes of frame `index`, unless it was taken.
    #[inline]
    pub fn get_mut(&mut self, index: usize) -> Option<&mut [u8]> {
        if !self.is_present(index) {
            return None;
        }
        // SAFETY: as above, and the array is borrowed exclusively.
        Some(unsafe { std::slice::from_raw_parts_mut(self.start.add(index * self.size).as_ptr(), self.size) })
    }

    /// Takes frame `index`, unless it was taken already.
    pub fn take(&mut self, index: usize) -> Option<Frame> {
        if !self.is_present(index) {
            return None;
        }
        self.mark(index);
        self.present[index / 64] &= !(1 << (index % 64));
        let memory = Arc::clone(self.memory.as_ref().expect("a frame in the array has its region"));
        // SAFETY: `index` is below `count`, so the frame lies inside the region; the bit is cleared, so the array gives its
        // bytes to no other owner.
        let start = unsafe { self.start.add(index * self.size) };
        Some(Frame { start, length: self.size as u32, index: index as u32, memory })
    }

    /// Puts frame `index` back.
    ///
    /// # Panics
    /// If this is another frame.
    pub fn put(&mut self, index: usize, frame: Frame) {
        let place = self.start.as_ptr().addr() + index * self.size;
        let region = self.memory.as_ref().expect("an array without frames takes none");
        let own = Arc::ptr_eq(region, &frame.memory) && frame.len() == self.size && frame.as_ptr().addr() == place;
        assert!(own && index < self.count, "{frame:?} is not frame {index} of this array");
        self.present[index / 64] |= 1 << (index % 64);
        self.unmark(index);
    }

    /// Marks frame `index` until it is unmarked, or taken and put back.
    ///
    /// # Panics
    /// If there is none.
    pub fn mark(&self, index: usize) {
        let word = &self.unmarked[index / 64];
        word.set(word.get() & !(1 << (index % 64)));
    }

    /// Takes the mark from frame `index`, unless that was taken.
    pub fn unmark(&self, index: usize) {
        if self.is_present(index) {
            let word = &self.unmarked[index / 64];
            word.set(word.get() | 1 << (index % 64));
        }
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

    #[test]
    fn an_array_gives_what_is_at_home() {
        let mut array = FrameArray::new(Frame::allocate(70, 64));
        assert_eq!((array.len(), array.get(70)), (70, None));
        array.get_mut(66).expect("in the array").fill(7);
        let taken = array.take(66).expect("in the array");
        assert!(array.get(66).is_none() && array.get_mut(66).is_none() && array.take(66).is_none());
        assert!(array.get(65).is_some_and(|bytes| bytes.iter().all(|byte| *byte == 0)));
        array.mark(65);
        assert!(
            array.get_unmarked(65).is_none() && array.get_unmarked(66).is_none() && array.get_unmarked(70).is_none()
        );
        assert!(array.get(65).is_some() && array.get_mut(65).is_some(), "a mark hides nothing else");
        array.unmark(65);
        array.unmark(66);
        assert!(array.get_unmarked(65).is_some() && array.get_unmarked(66).is_none(), "what was taken is not there");
        drop(array);
        assert!(taken.iter().all(|byte| *byte == 7), "a frame outlives the array it was taken from");
        assert!(FrameArray::new(Vec::new()).is_empty());
    }

    #[test]
    #[should_panic(expected = "is not frame 1")]
    fn an_array_refuses_foreign_frames() {
        let mut array = FrameArray::new(Frame::allocate(2, 64));
        array.take(1);
        array.put(1, Frame::allocate(2, 64).pop().expect("there are two"));
    }
}
