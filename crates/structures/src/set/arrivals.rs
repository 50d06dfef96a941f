//! From a record's number, in order of arrival, to its place.

use std::collections::VecDeque;

const NUMBERS: u64 = 512;

/// Places by number, in blocks of consecutive numbers. A block exists while one of its numbers has a place, so that memory
/// follows the records that there are, whatever their numbers.
#[derive(Default)]
pub(super) struct Arrivals {
    /// In the order of their numbers. Seldom is one missing between two others, so that most are where their distance from
    /// the first one says; and new ones come at the end, old ones go at the front.
    blocks: VecDeque<Block>,
    count: usize,
}

struct Block {
    /// The block's numbers are those of which this is the [`NUMBERS`]th part.
    number: u64,
    places: Box<[u64]>,
    count: usize,
}

impl Arrivals {
    /// How many numbers have a place.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The position of the block of this number, else where it would stand.
    #[inline]
    fn position(&self, number: u64) -> Result<usize, usize> {
        let first = self.blocks.front().ok_or(0_usize)?.number;
        let guess = number.wrapping_sub(first) as usize;
        match self.blocks.get(guess) {
            Some(block) if block.number == number => Ok(guess),
            _ => self.blocks.binary_search_by_key(&number, |block| block.number),
        }
    }

    /// The block of this number, made if there is none.
    fn block(&mut self, number: u64) -> &mut Block {
        let position = self.position(number).unwrap_or_else(|position| {
            self.blocks.insert(position, Block { number, places: vec![0; NUMBERS as usize].into(), count: 0 });
            position
        });
        &mut self.blocks[position]
    }

    /// The place of `number`.
    #[inline]
    pub(super) fn find(&self, number: u64) -> Option<u64> {
        let block = &self.blocks[self.position(number / NUMBERS).ok()?];
        Some(block.places[(number % NUMBERS) as usize]).filter(|place| *place != 0)
    }

    /// The least number from this one on that has a place, and that.
    pub(super) fn next(&self, from: u64) -> Option<(u64, u64)> {
        let position = self.position(from / NUMBERS).unwrap_or_else(|position| position);
        self.blocks.range(position..).find_map(|block| {
            let first = block.number * NUMBERS;
            let skipped = from.saturating_sub(first) as usize;
            let at = skipped + block.places.get(skipped..)?.iter().position(|place| *place != 0)?;
            Some((first + at as u64, block.places[at]))
        })
    }

    /// Gives `number` a place, which is not 0.
    pub(super) fn set(&mut self, number: u64, place: u64) {
        let block = self.block(number / NUMBERS);
        let old = std::mem::replace(&mut block.places[(number % NUMBERS) as usize], place);
        if old == 0 {
            block.count += 1;
            self.count += 1;
        }
    }

    /// Gives each number its place; `taken` hears of those whose numbers have one already. Neighbours are quick.
    pub(super) fn fill(&mut self, entries: &[(u64, u64)], mut taken: impl FnMut(u64, u64)) {
        for run in entries.chunk_by(|(one, _), (other, _)| one / NUMBERS == other / NUMBERS) {
            let block = self.block(run[0].0 / NUMBERS);
            let before = block.count;
            for &(number, place) in run {
                let slot = &mut block.places[(number % NUMBERS) as usize];
                if *slot == 0 {
                    *slot = place;
                    block.count += 1;
                } else {
                    taken(number, place);
                }
            }
            let added = block.count - before;
            self.count += added;
        }
    }

    /// Takes the place of `number` away; false if it has none.
    pub(super) fn remove(&mut self, number: u64) -> bool {
        let Ok(position) = self.position(number / NUMBERS) else { return false };
        let block = &mut self.blocks[position];
        if std::mem::take(&mut block.places[(number % NUMBERS) as usize]) == 0 {
            return false;
        }
        block.count -= 1;
        self.count -= 1;
        if block.count == 0 {
            self.blocks.remove(position);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Random;
    use std::collections::BTreeMap;

    #[test]
    fn numbers_near_and_far_agree_with_a_model() {
        let mut random = Random::stream(1, "arrivals");
        let (mut arrivals, mut model) = (Arrivals::default(), BTreeMap::new());
        for step in 1..=40_000 {
            let number = match random.below(4) {
                0 => step,
                1 => random.below(step),
                2 => random.below(8) * 1000 * NUMBERS + random.below(3),
                _ => u64::MAX / 4 - random.below(2 * NUMBERS),
            };
            match random.below(3) {
                0 => assert_eq!(arrivals.remove(number), model.remove(&number).is_some()),
                1 => {
                    arrivals.set(number, step);
                    model.insert(number, step);
                }
                _ => {
                    let mut taken = Vec::new();
                    let entries: Vec<(u64, u64)> = (number..number + random.below(600)).zip(step..).collect();
                    arrivals.fill(&entries, |number, place| taken.push((number, place)));
                    let is_taken = |(number, _): &&(u64, u64)| model.contains_key(number);
                    assert!(entries.iter().filter(is_taken).eq(&taken));
                    for (number, place) in entries {
                        model.entry(number).or_insert(place);
                    }
                }
            }
            assert_eq!(arrivals.find(number), model.get(&number).copied());
            let next = model.range(number..).next().map(|(number, place)| (*number, *place));
            assert_eq!(arrivals.next(number), next);
        }
        assert_eq!(arrivals.count(), model.len());
        assert!(model.iter().all(|(number, place)| arrivals.find(*number) == Some(*place)));
        let blocks = arrivals.blocks.iter().map(|block| block.number);
        assert!(blocks.is_sorted() && arrivals.blocks.iter().all(|block| block.count > 0));
        for number in model.into_keys() {
            assert!(arrivals.remove(number) && !arrivals.remove(number));
        }
        assert!(arrivals.blocks.is_empty());
    }
}
