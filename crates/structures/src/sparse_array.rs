//! An array that takes memory where it is written: that of a large cache is made at once, whatever its size.

use std::ops::{Index, IndexMut};

const CHUNK: usize = 4096;

/// An array of elements that are all alike at first. Costs memory in chunks of 4,096 elements, where one was changed.
///
/// ```
/// use entresol_structures::SparseArray;
///
/// let mut array = SparseArray::new(7_u8, 1 << 30);
/// array[5_000] = 8;
/// assert_eq!((array[4_999], array[5_000], array[1 << 29]), (7, 8, 7));
/// assert_eq!(array.present().count(), 4096);
/// ```
pub struct SparseArray<T> {
    chunks: Vec<Option<Box<[T]>>>,
    /// Stands for every element of a chunk that is not there. Must not be changed through a shared reference.
    unchanged: T,
    length: usize,
}

impl<T: Clone> SparseArray<T> {
    /// An array of `length` elements like this one.
    pub fn new(element: T, length: usize) -> SparseArray<T> {
        let mut chunks = Vec::new();
        chunks.resize_with(length.div_ceil(CHUNK), || None);
        SparseArray { chunks, unchanged: element, length }
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
        chunks.flat_map(|(number, chunk)| chunk.iter().enumerate().map(move |(at, one)| (number * CHUNK + at, one)))
    }

    /// The index of the first element at or behind `from` that may differ from what all were at first.
    pub fn next_present(&self, from: usize) -> Option<usize> {
        let first = from / CHUNK;
        let found = (first..self.chunks.len()).find(|number| self.chunks[*number].is_some())?;
        Some(if found == first { from } else { found * CHUNK }).filter(|index| *index < self.length)
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
        let first = index - index % CHUNK;
        let chunk = self.chunks[index / CHUNK]
            .get_or_insert_with(|| vec![self.unchanged.clone(); CHUNK.min(self.length - first)].into_boxed_slice());
        &mut chunk[index % CHUNK]
    }
}
