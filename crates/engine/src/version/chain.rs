//! The chain of a record's versions: from its present state backward, each says what the record was before one change.
//!
//! ```text
//!  0 length u32, checksum u32 (set when it leaves memory: of the bytes from 8 on and of the place)      all little-endian
//!  8 below: place u64, commit u64
//! 24 partition u16, kind u8, zero u8, key length u32
//! 32 key; for a patch its offset u32; bytes to the end
//! ```

use super::part::Part;
use base::{Lsn, PartitionId};
use structures::lock::Owner;

/// Bytes before the key.
pub(super) const HEAD: usize = 32;

/// A place: whether it is private; the part that it is of, if it is one; then the owner and the number of its version, or the
/// extent and the position in it.
const PRIVATE: u64 = 1 << 63;
const PART_SHIFT: u32 = 54;
const OWNER_SHIFT: u32 = 32;
const EXTENT_SHIFT: u32 = 24;
/// Bytes of an extent at most, unless a version of its own is longer: a link tells no position beyond.
pub(super) const EXTENT_BYTES_MAX: usize = 1 << EXTENT_SHIFT;
/// How many extents a link can tell from each other by their numbers.
pub(super) const EXTENT_NUMBERS: u32 = 1 << (PART_SHIFT - EXTENT_SHIFT);
/// The record was added: there is nothing before, and nothing stored that says so.
const ADDED: u64 = u64::MAX - 1;
const NOWHERE: u64 = u64::MAX;

/// Where a version is, and when the change that it precedes was committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    place: u64,
    /// [`Lsn::MAX`] while it is not.
    pub(super) commit: Lsn,
}

/// What a link leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// Nothing: the record has not changed before.
    Nowhere,
    /// Nothing: the record did not exist.
    Added,
    /// This one of a transaction's own, which has not ended.
    Private(Owner, usize),
    /// A rollback segment's extent, by as much of its number as a link tells, and the position in it.
    Extent(u32, usize),
}

impl Link {
    /// The end of a chain.
    pub(super) const NOWHERE: Link = Link { place: NOWHERE, commit: Lsn::ZERO };

    /// Of a record that was added by the commit at `commit`.
    pub(super) fn added(commit: Lsn) -> Link {
        Link { place: ADDED, commit }
    }

    pub(super) fn private(owner: Owner, number: usize, part: Option<Part>) -> Link {
        let place = PRIVATE | u64::from(owner.0 & 0xf_ffff) << OWNER_SHIFT | number as u64;
        Link { place, commit: Lsn::MAX }.with(part)
    }

    pub(super) fn extent(extent: u32, at: usize, commit: Lsn, part: Option<Part>) -> Link {
        assert!(extent < EXTENT_NUMBERS, "extents are numbered in thirty bits");
        assert!(at < EXTENT_BYTES_MAX, "only a version of its own is longer than the longest extent");
        Link { place: u64::from(extent) << EXTENT_SHIFT | at as u64, commit }.with(part)
    }

    pub(super) fn words(self) -> [u64; 2] {
        [self.place, self.commit.0]
    }

    pub(super) fn of_words([place, commit]: [u64; 2]) -> Link {
        Link { place, commit: Lsn(commit) }
    }

    fn with(self, part: Option<Part>) -> Link {
        Link { place: self.place | part.map_or(0, Part::bits) << PART_SHIFT, ..self }
    }

    /// Which part of the record it leads to, if it is not all of it: a part needs the state after it.
    pub(super) fn part(self) -> Option<Part> {
        if self.place < ADDED { Part::of_bits(self.place >> PART_SHIFT) } else { None }
    }

    /// Whether the state that this leads to covers everything that a change of `part`, or of all, left unchanged: then a reader
    /// that goes back behind both changes does not need the state between them.
    pub(super) fn covers(self, part: Option<Part>) -> bool {
        self.part().is_none_or(|own| part.is_some_and(|part| own.covers(part)))
    }

    pub(super) fn target(self) -> Target {
        match self.place {
            NOWHERE => return Target::Nowhere,
            ADDED => return Target::Added,
            _ => {}
        }
        let place = self.place & ((1 << PART_SHIFT) - 1);
        if self.place & PRIVATE != 0 {
            Target::Private(Owner((place >> OWNER_SHIFT) as u32), place as u32 as usize)
        } else {
            Target::Extent((place >> EXTENT_SHIFT) as u32, (place & ((1 << EXTENT_SHIFT) - 1)) as usize)
        }
    }
}

/// What a record was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before<'a> {
    /// There was none.
    Absent,
    /// There was none, and its name is its own: it was added at the end of a partition whose records are named by numbers.
    Added,
    /// It had this value, in the form in which it is stored.
    Value(&'a [u8]),
    /// These bytes stood at this offset of the stored value, whose length was the same.
    Patch(u32, &'a [u8]),
}

impl Before<'_> {
    /// Of a whole value this part alone, if there is one.
    pub(super) fn narrowed(self, part: Option<Part>) -> Self {
        match (self, part) {
            (Before::Value(value), Some(part)) => {
                let bytes = part.within(value.len());
                Before::Patch(bytes.start as u32, &value[bytes])
            }
            _ => self,
        }
    }

    /// Takes the change back from the state after it.
    pub(super) fn undo_change(&self, state: &mut Option<Vec<u8>>) {
        match *self {
            Before::Absent | Before::Added => *state = None,
            Before::Value(value) => {
                let bytes = state.get_or_insert_default();
                bytes.clear();
                bytes.extend_from_slice(value);
            }
            Before::Patch(offset, bytes) => {
                // A node may have committed a log record that does not fit what it has changed.
                let part = state.as_mut().and_then(|state| state.get_mut(offset as usize..)?.get_mut(..bytes.len()));
                part.into_iter().for_each(|part| part.copy_from_slice(bytes));
            }
        }
    }
}

/// One version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version<'a> {
    pub(super) below: Link,
    pub(super) partition: PartitionId,
    pub(super) key: &'a [u8],
    pub(super) before: Before<'a>,
}

impl<'a> Version<'a> {
    /// Appends its stored form.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let mut head = [0; HEAD];
        head[8..16].copy_from_slice(&self.below.place.to_le_bytes());
        head[16..24].copy_from_slice(&self.below.commit.0.to_le_bytes());
        head[24..26].copy_from_slice(&self.partition.0.to_le_bytes());
        head[26] = match self.before {
            Before::Absent => 0,
            Before::Value(_) => 1,
            Before::Patch(..) => 2,
            Before::Added => 3,
        };
        head[28..32].copy_from_slice(&(self.key.len() as u32).to_le_bytes());
        out.extend_from_slice(&head);
        out.extend_from_slice(self.key);
        match self.before {
            Before::Absent | Before::Added => {}
            Before::Value(value) => out.extend_from_slice(value),
            Before::Patch(offset, bytes) => {
                out.extend_from_slice(&offset.to_le_bytes());
                out.extend_from_slice(bytes);
            }
        }
        let length = (out.len() - start) as u32;
        out[start..start + 4].copy_from_slice(&length.to_le_bytes());
    }

    /// The version at the front of `bytes`; `None` if there is none.
    pub(super) fn decode(bytes: &'a [u8]) -> Option<Version<'a>> {
        let bytes = bytes.get(..length(bytes)?)?;
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let below = Link { place: word(8), commit: Lsn(word(16)) };
        let partition = PartitionId(u16::from_le_bytes([bytes[24], bytes[25]]));
        let key_length = u32::from_le_bytes(bytes[28..32].try_into().expect("four bytes")) as usize;
        let (key, rest) = bytes[HEAD..].split_at_checked(key_length)?;
        let before = match bytes[26] {
            0 => Before::Absent,
            1 => Before::Value(rest),
            2 => {
                let (offset, bytes) = rest.split_first_chunk()?;
                Before::Patch(u32::from_le_bytes(*offset), bytes)
            }
            3 => Before::Added,
            _ => return None,
        };
        Some(Version { below, partition, key, before })
    }
}

/// Bytes of the version at the front; `None` if there can be none.
pub(super) fn length(bytes: &[u8]) -> Option<usize> {
    let length = u32::from_le_bytes(*bytes.first_chunk()?) as usize;
    (length >= HEAD).then_some(length)
}

/// Has a stored version lead to another one below.
pub(super) fn set_below(bytes: &mut [u8], below: Link) {
    bytes[8..16].copy_from_slice(&below.place.to_le_bytes());
    bytes[16..24].copy_from_slice(&below.commit.0.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_survive_encoding_and_refuse_truncation() {
        let below = Link::extent(3, 77, Lsn(9), Some(Part::UNKNOWN));
        for before in
            [Before::Absent, Before::Added, Before::Value(b"value"), Before::Value(b""), Before::Patch(4, b"old")]
        {
            let version = Version { below, partition: PartitionId(5), key: b"key", before };
            let mut bytes = Vec::new();
            version.encode(&mut bytes);
            assert_eq!(Version::decode(&bytes), Some(version));
            for end in 0..bytes.len() {
                assert_eq!(Version::decode(&bytes[..end]), None);
            }
            set_below(&mut bytes, Link::NOWHERE);
            assert_eq!(Version::decode(&bytes).map(|version| version.below.target()), Some(Target::Nowhere));
        }
    }

    #[test]
    fn links_tell_where_they_lead() {
        assert_eq!(Link::NOWHERE.target(), Target::Nowhere);
        assert_eq!(Link::added(Lsn(4)).target(), Target::Added);
        assert_eq!((Link::NOWHERE.part(), Link::added(Lsn(4)).part()), (None, None));
        for part in [None, Some(Part::UNKNOWN), Part::around(0..1), Part::around(496..500)] {
            let (owner, extent, at) = (Owner(0xf_ffff), (1 << 30) - 1, (16 << 20) - 1);
            let link = Link::private(owner, u32::MAX as usize, part);
            assert_eq!((link.target(), link.part()), (Target::Private(owner, u32::MAX as usize), part));
            let link = Link::extent(extent, at, Lsn(1), part);
            assert_eq!((link.target(), link.part()), (Target::Extent(extent, at), part));
        }
    }

    #[test]
    fn all_of_a_record_covers_every_part_and_no_part_covers_all() {
        let (all, part) = (Link::extent(0, 0, Lsn(1), None), Part::around(8..16));
        assert!(all.covers(part) && all.covers(None) && Link::NOWHERE.covers(part) && Link::added(Lsn(1)).covers(None));
        let link = Link::extent(0, 0, Lsn(1), part);
        assert!(link.covers(part) && !link.covers(None) && !link.covers(Part::around(8..17)));
    }
}
