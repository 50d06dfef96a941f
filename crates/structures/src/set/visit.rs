//! Visiting every record of a set in many small steps, between which others may change it: in an order that does not depend on
//! where records are.
//!
//! The order is that of hashes: the part of the index first, then the lowest bits, reversed. A bucket that is split hands
//! records on to one that comes right behind it in this order, so a record is met once, however the index grows (the idea of
//! the scans of Redis, P. Noordhuis 2013). Arrivals come in the order of their numbers.

use super::memory::{Finder, Set};
use super::parts::{self, PARTS};
use super::{Refusal, Sets, layout};
use base::PartitionId;
use std::ops::Range;

/// Buckets of the index that a step looks at, and numbers of arrivals.
const STEP_BUCKETS: u64 = 32;
const STEP_ARRIVALS: u64 = 256;
/// Low bits of a hash that decide of the order.
const BITS: u32 = 32;

/// Where in the order a key of this hash comes.
pub fn position(hash: u64) -> u64 {
    (parts::part(hash) as u64) << BITS | u64::from((hash as u32).reverse_bits())
}

impl Sets {
    /// Shows the records from position `from` of the order on, as many as a step takes. Returns the positions that they had,
    /// and where the next step begins, if there is one. Beyond the end of the order there are none.
    ///
    /// # Errors
    /// [`Refusal::Lent`]; nothing was shown then.
    pub fn visit(
        &self,
        partition: PartitionId,
        from: u64,
        look: impl FnMut(&[u8], &[u8]),
    ) -> Result<(Range<u64>, Option<u64>), Refusal> {
        let set = self.set(partition);
        let mut places = Vec::new();
        let visited = match &set.finder {
            Finder::Keyed(_) if from >= (PARTS as u64) << BITS => (from..from, None),
            Finder::Keyed(index) => {
                let part = (from >> BITS) as usize;
                let (to, is_last) = index.visit(part, from as u32, STEP_BUCKETS, |place| places.push(place));
                let to = if is_last { (part as u64 + 1) << BITS } else { (part as u64) << BITS | u64::from(to) };
                (from..to, (to < (PARTS as u64) << BITS).then_some(to))
            }
            Finder::Arrival(arrivals) => {
                let to = from.saturating_add(STEP_ARRIVALS).min(set.arrival).max(from);
                places.extend((from..to).filter_map(|number| arrivals.find(number)));
                (from..to, (to < set.arrival).then_some(to))
            }
        };
        set.show(&places, look)?;
        Ok(visited)
    }
}

impl Sets {
    /// The first record of a set of arrivals whose number is this one or a later one: its number and its value.
    ///
    /// # Errors
    /// [`Refusal::Lent`].
    ///
    /// # Panics
    /// If the set's records have keys of the caller's.
    #[inline]
    pub fn arrival_from(&self, partition: PartitionId, from: u64) -> Result<Option<(u64, &[u8])>, Refusal> {
        let set = self.set(partition);
        let Finder::Arrival(arrivals) = &set.finder else { panic!("the set does not number its records") };
        let Some((number, place)) = arrivals.next(from) else { return Ok(None) };
        let (segment, at) = set.locate(place);
        let bytes = set.segments[segment].bytes_here().ok_or(Refusal::Lent(segment as u32))?;
        Ok(Some((number, layout::value(bytes, at))))
    }
}

impl Set {
    fn show(&self, places: &[u64], mut look: impl FnMut(&[u8], &[u8])) -> Result<(), Refusal> {
        for place in places {
            let (segment, _) = self.locate(*place);
            if self.segments[segment].is_lent() {
                return Err(Refusal::Lent(segment as u32));
            }
        }
        for place in places {
            let (bytes, at) = self.at(*place);
            let (key, value) = layout::record(bytes, at);
            look(key, value);
        }
        Ok(())
    }
}
