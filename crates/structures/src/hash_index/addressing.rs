//! Which bucket a hash leads to, and how the buckets' number grows (linear hashing: Litwin, VLDB 1980).

/// The entries of a bucket, in seven words of a cache line; the eighth links it to an overflow bucket.
pub const ENTRIES: usize = 7;
/// The word of the link: an overflow bucket's number, plus 1.
pub const LINK: usize = ENTRIES;
/// Hash bits that the first buckets consume.
pub(super) const FIRST_LEVEL: u32 = 4;
/// Entries per bucket, on average, above which there is to be one more: three quarters of a bucket.
const LOAD_NUMERATOR: usize = 21;
const LOAD_DENOMINATOR: usize = 4;

/// Bucket numbers below `split` use `level + 1` bits of the hash, the others `level`: those of `mask`.
#[derive(Clone, Copy, Debug)]
pub struct Addressing {
    level: u32,
    split: usize,
    mask: u64,
}

/// A bucket that is split.
#[derive(Clone, Copy, Debug)]
pub struct Split {
    /// The bucket that is split.
    pub from: usize,
    /// The new bucket, behind all others.
    pub to: usize,
    /// The hash's bit that says where an entry goes.
    pub bit: u32,
}

impl Addressing {
    /// That of `buckets` buckets, at least [`Addressing::BUCKETS_MIN`].
    pub fn of(buckets: usize) -> Addressing {
        let level = buckets.ilog2();
        debug_assert!(level >= FIRST_LEVEL);
        Addressing { level, split: buckets - (1 << level), mask: (1 << level) - 1 }
    }

    /// The first buckets.
    pub const BUCKETS_MIN: usize = 1 << FIRST_LEVEL;

    /// How many buckets `entries` entries need.
    pub fn buckets_for(entries: usize) -> usize {
        (entries * LOAD_DENOMINATOR).div_ceil(LOAD_NUMERATOR).max(Addressing::BUCKETS_MIN)
    }

    /// About how many bytes one entry takes, with buckets of `bucket_bytes` bytes.
    pub const fn bytes_each(bucket_bytes: usize) -> usize {
        (bucket_bytes * LOAD_DENOMINATOR).div_ceil(LOAD_NUMERATOR)
    }

    /// Whether the entries are too many for the buckets.
    #[inline]
    pub fn is_crowded(entries: usize, buckets: usize) -> bool {
        entries * LOAD_DENOMINATOR > buckets * LOAD_NUMERATOR
    }

    /// How many bits of the hash all buckets consume.
    pub fn level(&self) -> u32 {
        self.level
    }

    /// The bucket of a hash.
    #[inline]
    pub fn bucket(&self, hash: u64) -> usize {
        let number = (hash & self.mask) as usize;
        if number >= self.split { number } else { (hash & (self.mask << 1 | 1)) as usize }
    }

    /// Goes on to one more bucket.
    pub fn split(&mut self) -> Split {
        let split = Split { from: self.split, to: self.split + (1 << self.level), bit: self.level };
        self.split += 1;
        if self.split == 1 << self.level {
            self.split = 0;
            self.level += 1;
            self.mask = self.mask << 1 | 1;
        }
        split
    }
}

/// A bit for each of a line's entries that is so. All are tested without a branch that cannot be predicted.
#[inline]
pub fn which(line: &[u64; 8], is_so: impl Fn(u64) -> bool) -> u32 {
    let mut bits = 0;
    for (position, entry) in line[..ENTRIES].iter().enumerate() {
        bits |= u32::from(is_so(*entry)) << position;
    }
    bits
}

/// The position of the lowest bit.
#[inline]
pub fn lowest(bits: u32) -> usize {
    bits.trailing_zeros() as usize % 8
}
