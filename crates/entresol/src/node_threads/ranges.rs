//! Which keys are whose.

/// Ranges of keys, in order: the first has those before the first bound, the next one those from there to before the second, and so on.
///
/// ```
/// use entresol::KeyRanges;
///
/// let ranges = KeyRanges::split_at(["g", "p"]);
/// assert_eq!([&b"ann"[..], b"g", b"zoe"].map(|key| ranges.range_of(key)), [0, 1, 2]);
/// // Eight bytes each, the greatest first: as keys that are numbers are.
/// let halves = KeyRanges::of_numbers(0..1_000, 2);
/// assert_eq!([499, 500].map(|number: u64| halves.range_of(&number.to_be_bytes())), [0, 1]);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyRanges {
    bounds: Vec<Vec<u8>>,
}

impl KeyRanges {
    /// Ranges between these bounds, in any order: one more than there are bounds.
    pub fn split_at<K: Into<Vec<u8>>>(bounds: impl IntoIterator<Item = K>) -> KeyRanges {
        let mut bounds: Vec<Vec<u8>> = bounds.into_iter().map(Into::into).collect();
        bounds.sort();
        bounds.dedup();
        KeyRanges { bounds }
    }

    /// This number of ranges, of as many numbers each as can be, where keys are numbers in eight bytes, the greatest first.
    pub fn of_numbers(numbers: std::ops::Range<u64>, count: u64) -> KeyRanges {
        let width = u128::from(numbers.end.saturating_sub(numbers.start));
        let bound = |index: u64| numbers.start + (width * u128::from(index) / u128::from(count.max(1))) as u64;
        KeyRanges::split_at((1..count).map(|index| bound(index).to_be_bytes()))
    }

    /// The range that a key is in, the first of them 0.
    pub fn range_of(&self, key: &[u8]) -> usize {
        self.bounds.partition_point(|bound| bound.as_slice() <= key)
    }
}
