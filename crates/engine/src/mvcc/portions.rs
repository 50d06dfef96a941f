//! Records of sets as they follow each other, some at a time, also as they were at a moment.

use super::rest;
use crate::engine::{Engine, resolve_refusal};
use crate::version::{ReaderPace, Rest, View};
use crate::{Error, Result};
use base::PartitionId;
use std::rc::Rc;

/// From how many records, or bytes of their keys, on those of one step are refused. There may be more keys of one hash.
const EXCESSIVE_RECORDS: usize = 1 << 16;
const EXCESSIVE_BYTES: usize = 32 << 20;
/// How many records a portion has at most, and how many bytes before it ends with the record that it is at.
const RECORDS_MAX: usize = 1_024;
const BYTES_MAX: usize = 128 << 10;
/// A record of a set, as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundInSet {
    /// What the index orders it by through which it was found; nothing where it was found without one.
    pub of: Vec<u8>,
    /// Its key.
    pub key: Vec<u8>,
    /// Its value; nothing where the values before it are as much as a portion has.
    pub value: Option<Vec<u8>>,
}

/// Records of a set that follow each other, in an index or in the set's own order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetPortion {
    /// The records.
    pub records: Vec<FoundInSet>,
    bytes: usize,
    /// Whether there are more than fit, of those that cannot come apart.
    is_excessive: bool,
}

impl SetPortion {
    /// It, unless it has more than fits.
    ///
    /// # Errors
    /// [`Error::TooLarge`].
    pub(crate) fn whole(self, partition: &str) -> Result<SetPortion> {
        if self.is_excessive {
            let (what, partition) = ("the records of one step through a set", partition.to_owned());
            return Err(Error::TooLarge { what, found: EXCESSIVE_BYTES + 1, limit: EXCESSIVE_BYTES, partition });
        }
        Ok(self)
    }

    /// How many bytes its values have.
    pub(crate) fn length_of_values(&self) -> usize {
        self.records.iter().filter_map(|record| record.value.as_ref()).map(Vec::len).sum()
    }

    /// Whether it takes no more.
    pub(crate) fn is_full(&self) -> bool {
        self.records.len() >= RECORDS_MAX || self.bytes >= BYTES_MAX
    }

    /// The number of this record, if it does not take it any more and others may follow from there on: in the order of arrival.
    pub(crate) fn cut(&self, is_of_arrivals: bool, key: &[u8]) -> Option<u64> {
        let number = key.try_into().map(u64::from_be_bytes).ok();
        number.filter(|_| is_of_arrivals && self.is_full())
    }

    pub(crate) fn add(&mut self, of: &[u8], key: &[u8], value: &[u8]) {
        if self.records.len() >= EXCESSIVE_RECORDS || self.bytes >= EXCESSIVE_BYTES {
            self.is_excessive = true;
            return;
        }
        let value = (self.bytes < BYTES_MAX).then(|| value.to_vec());
        self.bytes += of.len() + key.len() + value.as_ref().map_or(0, Vec::len);
        self.records.push(FoundInSet { of: of.to_vec(), key: key.to_vec(), value });
    }
}

/// How many steps through a set a portion takes at most.
pub(crate) const STEPS_MAX: usize = 256;

/// Records of a set that a view sees, from a position of the set's own order on, and from which on others follow.
///
/// # Errors
/// As [`super::object_at`].
pub(crate) async fn portion_at(
    engine: &Rc<Engine>,
    (view, pace): (View, &ReaderPace),
    (partition, is_of_arrivals): (PartitionId, bool),
    from: u64,
) -> Result<(SetPortion, Option<u64>)> {
    let (mut portion, mut next, mut steps) = (SetPortion::default(), Some(from), 0);
    while let Some(from) = next.filter(|_| !portion.is_full() && steps < STEPS_MAX) {
        if steps > 0 {
            rest(engine, pace).await;
        }
        let mut seen = Vec::new();
        let visit = |seen: &mut Vec<_>| engine.versions.visit_set(engine.records(), view, partition, from, seen);
        match engine.versions.step_of(pace, || visit(&mut seen))? {
            Ok(then) => next = then,
            Err(refusal) => {
                resolve_refusal(engine, partition, refusal).await?;
                continue;
            }
        }
        for (key, past) in seen {
            if let Some(cut) = portion.cut(is_of_arrivals, &key) {
                return Ok((portion, Some(cut)));
            }
            if let Some(value) = engine.versions.reconstruct(view, partition, &key, past).await? {
                portion.add(&[], &key, &value);
            }
        }
        steps += 1;
    }
    Ok((portion, next))
}

/// Records of a set that a view sees within what is left of a range of an index, and whether none follow.
///
/// # Errors
/// As [`super::object_at`].
pub(crate) async fn index_portion_at(
    engine: &Rc<Engine>,
    (view, pace): (View, &ReaderPace),
    (partition, secondary): (PartitionId, usize),
    mut left: Rest,
) -> Result<(SetPortion, bool)> {
    let mut portion = SetPortion::default();
    loop {
        let visit = || engine.versions.visit_entries(engine.records(), view, (partition, secondary), &left);
        let (found, next) = match engine.versions.step_of(pace, visit)? {
            Ok(found) => found,
            Err(refusal) => {
                resolve_refusal(engine, partition, refusal).await?;
                continue;
            }
        };
        for ((of, key), past) in found {
            if portion.is_full() {
                return Ok((portion, false));
            }
            let Some(value) = engine.versions.reconstruct(view, partition, &key, past).await? else { continue };
            let has_entry = engine.sets.sets.borrow().secondary_key(partition, secondary, &value).as_ref() == Some(&of);
            if has_entry {
                portion.add(&of, &key, &value);
            }
        }
        match next {
            None => return Ok((portion, true)),
            Some(next) => left = next,
        }
        rest(engine, pace).await;
    }
}
