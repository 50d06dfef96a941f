use std::collections::BTreeMap;
use std::ops::Range;

/// Ranges of a file in which nothing was ever written: their ends by their beginnings, none touching another.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fresh(BTreeMap<u64, u64>);

impl Fresh {
    pub fn add(&mut self, range: Range<u64>) {
        self.take(range.clone());
        let mut range = range;
        if let Some((&start, &end)) = self.0.range(..range.start).next_back()
            && end == range.start
        {
            range.start = start;
        }
        if let Some(end) = self.0.remove(&range.end) {
            range.end = end;
        }
        if !range.is_empty() {
            self.0.insert(range.start, range.end);
        }
    }

    /// Something is written there; whether it is the first in a part of the range.
    pub fn take(&mut self, range: Range<u64>) -> bool {
        let mut found = false;
        if range.is_empty() {
            return false;
        }
        while let Some((&start, &end)) = self.0.range(..range.end).next_back().filter(|(_, end)| **end > range.start) {
            found = true;
            self.0.remove(&start);
            if start < range.start {
                self.0.insert(start, range.start);
            }
            if end > range.end {
                self.0.insert(range.end, end);
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Random;

    #[test]
    fn it_is_what_a_list_of_bytes_says() {
        let (mut random, mut fresh, mut bytes) = (Random::stream(3, "fresh"), Fresh::default(), [false; 64]);
        for _ in 0..4_000 {
            let start = random.below(64);
            let end = start + random.below(65 - start);
            let inside = &mut bytes[start as usize..end as usize];
            if random.below(2) == 0 {
                fresh.add(start..end);
                inside.fill(true);
            } else {
                assert_eq!(fresh.take(start..end), inside.contains(&true), "{start}..{end}");
                inside.fill(false);
            }
            let count: u64 = fresh.0.iter().map(|(start, end)| end - start).sum();
            assert_eq!(count, bytes.iter().filter(|is_fresh| **is_fresh).count() as u64);
            let apart = fresh.0.iter().zip(fresh.0.iter().skip(1)).all(|((_, end), (start, _))| end < start);
            assert!(apart && fresh.0.iter().all(|(start, end)| start < end), "{fresh:?}");
        }
    }
}
