//! From a record's number, in order of arrival, to its place.

use std::collections::BTreeMap;

const NUMBERS: u64 = 512;

/// Places by number, in blocks of consecutive numbers. A block exists while one of its numbers has a place, so that memory
/// follows the records that there are, whatever their numbers.
#[derive(Default)]
pub(super) struct Arrivals {
    blocks: BTreeMap<u64, Block>,
    count: usize,
}

struct Block {
    places: Box<[u64]>,
    count: usize,
}

impl Arrivals {
    /// How many numbers have a place.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The place of `number`.
    #[inline]
    pub(super) fn find(&self, number: u64) -> Option<u64> {
        let block = self.blocks.get(&(number / NUMBERS))?;
        Some(block.places[(number % NUMBERS) as usize]).filter(|place| *place != 0)
    }

    /// Gives `number` a place, which is not 0.
    pub(super) fn set(&mut self, number: u64, place: u64) {
        let empty = || Block { places: vec![0; NUMBERS as usize].into(), count: 0 };
        let block = self.blocks.entry(number / NUMBERS).or_insert_with(empty);
        let old = std::mem::replace(&mut block.places[(number % NUMBERS) as usize], place);
        if old == 0 {
            block.count += 1;
            self.count += 1;
        }
    }

    /// Gives each number its place; `taken` hears of those whose numbers have one already. Neighbours are quick.
    pub(super) fn fill(&mut self, entries: &[(u64, u64)], mut taken: impl FnMut(u64, u64)) {
        let empty = || Block { places: vec![0; NUMBERS as usize].into(), count: 0 };
        for run in entries.chunk_by(|(one, _), (other, _)| one / NUMBERS == other / NUMBERS) {
            let block = self.blocks.entry(run[0].0 / NUMBERS).or_insert_with(empty);
            for &(number, place) in run {
                let slot = &mut block.places[(number % NUMBERS) as usize];
                if *slot == 0 {
                    *slot = place;
                    block.count += 1;
                    self.count += 1;
                } else {
                    taken(number, place);
                }
            }
        }
    }

    /// Takes the place of `number` away; false if it has none.
    pub(super) fn remove(&mut self, number: u64) -> bool {
        let Some(block) = self.blocks.get_mut(&(number / NUMBERS)) else { return false };
        if std::mem::take(&mut block.places[(number % NUMBERS) as usize]) == 0 {
            return false;
        }
        block.count -= 1;
        self.count -= 1;
        if block.count == 0 {
            self.blocks.remove(&(number / NUMBERS));
        }
        true
    }
}
