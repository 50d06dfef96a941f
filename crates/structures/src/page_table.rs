//! Where each page is: a sparse array from page number to frame, one per partition. One memory access and no hashing on a hit.
//!
//! It takes four bytes for each page of the file that was touched.

use base::{PageId, PartitionId};

const CHUNK: usize = 1024;
const ABSENT: u32 = u32::MAX;

/// Maps resident pages to frame numbers. Costs four bytes per page of the file, in steps of 4 KiB, where pages were touched.
#[derive(Default)]
pub struct PageTable {
    partitions: Vec<Vec<Option<Box<[u32; CHUNK]>>>>,
}

impl PageTable {
    /// The frame that holds the page.
    #[inline]
    pub fn get(&self, id: PageId) -> Option<u32> {
        let number = id.number as usize;
        let chunk = self.partitions.get(usize::from(id.partition.0))?.get(number / CHUNK)?.as_ref()?;
        let frame = chunk[number % CHUNK];
        (frame != ABSENT).then_some(frame)
    }

    /// The page is in this frame from now on.
    pub fn insert(&mut self, id: PageId, frame: u32) {
        let (partition, chunk) = (usize::from(id.partition.0), id.number as usize / CHUNK);
        if self.partitions.len() <= partition {
            self.partitions.resize_with(partition + 1, Vec::new);
        }
        let chunks = &mut self.partitions[partition];
        if chunks.len() <= chunk {
            chunks.resize_with(chunk + 1, || None);
        }
        chunks[chunk].get_or_insert_with(|| Box::new([ABSENT; CHUNK]))[id.number as usize % CHUNK] = frame;
    }

    /// The partition's pages from this number on, by number, and the frames that hold them.
    pub fn pages_of(&self, partition: PartitionId, first: u32) -> impl Iterator<Item = (PageId, u32)> {
        let chunks = self.partitions.get(usize::from(partition.0)).map_or(&[][..], |chunks| &chunks[..]);
        let present = chunks.iter().enumerate().skip(first as usize / CHUNK);
        let present = present.filter_map(|(number, chunk)| Some((number * CHUNK, chunk.as_ref()?)));
        let entries = present.flat_map(|(from, chunk)| (from as u32..).zip(chunk.iter().copied()));
        let held = entries.filter(move |(number, frame)| *number >= first && *frame != ABSENT);
        held.map(move |(number, frame)| (PageId::new(partition, number), frame))
    }

    /// No page of the partition is in any frame.
    pub fn forget(&mut self, partition: PartitionId) {
        if let Some(chunks) = self.partitions.get_mut(usize::from(partition.0)) {
            *chunks = Vec::new();
        }
    }

    /// The page is in no frame from now on.
    pub fn remove(&mut self, id: PageId) {
        let number = id.number as usize;
        let chunks = self.partitions.get_mut(usize::from(id.partition.0));
        if let Some(Some(chunk)) = chunks.and_then(|chunks| chunks.get_mut(number / CHUNK)) {
            chunk[number % CHUNK] = ABSENT;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pages_of_a_partition_are_those_that_are_there() {
        let (mut table, [one, other]) = (PageTable::default(), [PartitionId(3), PartitionId(4)]);
        for number in [0, 7, 1_023, 1_024, 5_000, 70_000] {
            table.insert(PageId::new(one, number), number + 1);
        }
        table.insert(PageId::new(other, 8), 9);
        table.remove(PageId::new(one, 1_023));
        let numbers =
            |partition, first| table.pages_of(partition, first).map(|(page, _)| page.number).collect::<Vec<_>>();
        assert_eq!(numbers(one, 0), [0, 7, 1_024, 5_000, 70_000]);
        assert_eq!(numbers(one, 1_024), [1_024, 5_000, 70_000]);
        assert_eq!(numbers(one, 5_001), [70_000]);
        assert_eq!(numbers(one, u32::MAX), []);
        assert_eq!(numbers(PartitionId(2), 0), []);
        assert_eq!(numbers(PartitionId(9), 0), []);
        assert_eq!(table.pages_of(other, 0).collect::<Vec<_>>(), [(PageId::new(other, 8), 9)]);
    }
}
