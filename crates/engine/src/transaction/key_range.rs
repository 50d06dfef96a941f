//! Ranges of keys, as they are written.

use std::ops::{Bound, Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

/// A range of keys: any range of Rust's over what is bytes, a pair of bounds, or [`prefix`].
///
/// ```
/// use entresol_engine::{KeyRange, prefix};
/// use std::ops::Bound;
///
/// assert_eq!((b"a"..b"c").into_bounds(), (Bound::Included(b"a".to_vec()), Bound::Excluded(b"c".to_vec())));
/// assert_eq!((..).into_bounds(), (Bound::Unbounded, Bound::Unbounded));
/// assert_eq!((.."m").into_bounds(), (Bound::Unbounded, Bound::Excluded(b"m".to_vec())));
/// assert_eq!(prefix([7, 255]).into_bounds(), (Bound::Included(vec![7, 255]), Bound::Excluded(vec![8])));
/// ```
pub trait KeyRange {
    /// Where it begins and where it ends.
    fn into_bounds(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>);
}

fn own<K: AsRef<[u8]>>(key: K) -> Vec<u8> {
    key.as_ref().to_vec()
}

impl KeyRange for RangeFull {
    fn into_bounds(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        (Bound::Unbounded, Bound::Unbounded)
    }
}

impl<K: AsRef<[u8]>> KeyRange for Range<K> {
    fn into_bounds(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        (Bound::Included(own(self.start)), Bound::Excluded(own(self.end)))
    }
}

impl<K: AsRef<[u8]>> KeyRange for RangeInclusive<K> {
    fn into_bounds(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        let (start, end) = self.into_inner();
        (Bound::Included(own(start)), Bound::Included(own(end)))
    }
}

impl<K: AsRef<[u8]>> KeyRange for RangeFrom<K> {
    fn into_bounds(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        (Bound::Included(own(self.start)), Bound::Unbounded)
    }
}

impl<K: AsRef<[u8]>> KeyRange for RangeTo<K> {
    fn into_bounds(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        (Bound::Unbounded, Bound::Excluded(own(self.end)))
    }
}

impl<K: AsRef<[u8]>> KeyRange for RangeToInclusive<K> {
    fn into_bounds(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        (Bound::Unbounded, Bound::Included(own(self.end)))
    }
}

impl<K: AsRef<[u8]>> KeyRange for (Bound<K>, Bound<K>) {
    fn into_bounds(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        (self.0.map(own), self.1.map(own))
    }
}

/// All keys that begin with these bytes.
pub fn prefix(bytes: impl AsRef<[u8]>) -> impl KeyRange {
    let lower = own(bytes);
    let mut upper = lower.clone();
    // The least key above all of them: one more in the last byte that can be one more.
    while upper.pop_if(|last| *last == u8::MAX).is_some() {}
    let upper = match upper.last_mut() {
        Some(last) => {
            *last += 1;
            Bound::Excluded(upper)
        }
        None => Bound::Unbounded,
    };
    (Bound::Included(lower), upper)
}
