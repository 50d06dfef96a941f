use std::collections::BTreeMap;
use std::ops::Range;

/// The places of a file that it has room for and that nothing was written to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unwritten {
    /// Ends by beginnings; neither empty nor touching each other.
    ranges: BTreeMap<u64, u64>,
}

impl Unwritten {
    /// The file has got this room at its end.
    pub(crate) fn grow(&mut self, room: Range<u64>) {
        match self.ranges.last_entry() {
            Some(mut last) if *last.get() == room.start => *last.get_mut() = room.end,
            _ if room.is_empty() => {}
            _ => _ = self.ranges.insert(room.start, room.end),
        }
    }

    /// Nothing is left from `length` on.
    pub(crate) fn truncate(&mut self, length: u64) {
        self.ranges.split_off(&length);
        if let Some(mut last) = self.ranges.last_entry() {
            *last.get_mut() = length.min(*last.get());
        }
    }

    /// These places are written to; whether that is the first time for any of them.
    pub(crate) fn take(&mut self, places: Range<u64>) -> bool {
        let mut was_there = false;
        if places.is_empty() {
            return was_there;
        }
        while let Some((&start, &end)) =
            self.ranges.range(..places.end).next_back().filter(|(_, end)| **end > places.start)
        {
            was_there = true;
            self.ranges.remove(&start);
            for (start, end) in [(start, places.start), (places.end, end)] {
                if start < end {
                    self.ranges.insert(start, end);
                }
            }
            if start <= places.start {
                break;
            }
        }
        was_there
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Random;

    #[test]
    fn it_knows_what_a_map_of_every_place_knows() {
        let mut random = Random::stream(3, "unwritten");
        let (mut known, mut places) = (Unwritten::default(), Vec::<bool>::new());
        for _ in 0..20_000 {
            let length = places.len();
            match random.below(40) {
                0 => {
                    let more = random.below(50) as usize;
                    known.grow(length as u64..(length + more) as u64);
                    places.resize(length + more, true);
                }
                1 if length > 400 => {
                    let kept = random.below(length as u64 + 1) as usize;
                    known.truncate(kept as u64);
                    places.truncate(kept);
                }
                2 => places.resize(length + random.below(4) as usize, false),
                _ if length > 0 => {
                    let start = random.below(length as u64) as usize;
                    let end = (start + random.below(30) as usize).min(length);
                    let is_fresh = places[start..end].iter().any(|fresh| *fresh);
                    assert_eq!(known.take(start as u64..end as u64), is_fresh, "{start} to {end}: {known:?}");
                    places[start..end].fill(false);
                }
                _ => {}
            }
            let ranges: Vec<(u64, u64)> = known.ranges.iter().map(|(start, end)| (*start, *end)).collect();
            assert!(ranges.windows(2).all(|pair| pair[0].1 < pair[1].0), "{ranges:?}");
            assert!(ranges.iter().all(|(start, end)| start < end), "{ranges:?}");
        }
    }
}
