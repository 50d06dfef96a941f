//! An array that takes memory where it is written: that of a large cache is made at once, whatever its size.

use std::ops::{Index, IndexMut};

/// Few: openings write elements all over an array that is large.
const CHUNK: usize = 64;

/// An array of elements that are all alike at first. Costs memory in chunks of 64 elements, where one was changed, and a pointer for
/// each chunk, which the system gives once it is looked at.
///
/// ```
/// use entresol_structures::SparseArray;
///
/// let mut array = SparseArray::new(7_u8, 1 << 30);
/// array[5_000] = 8;
/// assert_eq!((array[4_999], array[5_000], array[1 << 29]), (7, 8, 7));
/// assert_eq!(array.present().count(), 64);
/// ```
pub struct SparseArray<T> {
    chunks: Vec<Option<Box<[T; CHUNK]>>>,
    /// Stands for every element of a chunk that is not there. Must not be changed through a shared reference.
    unchanged: T,
    length: usize,
}

impl<T: Clone> SparseArray<T> {
    /// An array of `length` elements like this one.
    pub fn new(element: T, length: usize) -> SparseArray<T> {
        // Made this way the memory is zeros of the system, and not written.
        SparseArray { chunks: vec![None; length.div_ceil(CHUNK)], unchanged: element, length }
    }

    /// How many elements it has.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The elements that take memory, by ascending index.
    pub fn present(&self) -> impl Iterator<Item = (usize, &T)> {
        let chunks = self.chunks.iter().enumerate().filter_map(|(number, chunk)| Some((number, chunk.as_ref()?)));
        let elements = chunks
            .flat_map(|(number, chunk)| chunk.iter().enumerate().map(move |(at, one)| (number * CHUNK + at, one)));
        elements.take_while(|(index, _)| *index < self.length)
    }
}

impl<T> Index<usize> for SparseArray<T> {
    type Output = T;

    #[inline]
    fn index(&self, index: usize) -> &T {
        match &self.chunks[index / CHUNK] {
            Some(chunk) => &chunk[index % CHUNK],
            None => &self.unchanged,
        }
    }
}

impl<T: Clone> IndexMut<usize> for SparseArray<T> {
    #[inline]
    fn index_mut(&mut self, index: usize) -> &mut T {
        let chunk = &mut self.chunks[index / CHUNK];
        let unchanged = &self.unchanged;
        &mut chunk.get_or_insert_with(|| Box::new(std::array::from_fn(|_| unchanged.clone())))[index % CHUNK]
    }
}
