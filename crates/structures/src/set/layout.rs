//! The bytes of a segment: its header and its items.

use crate::checksum::block_checksum;

/// Bytes in front of the items.
pub(super) const SEGMENT_HEADER_SIZE: usize = 64;
/// Bytes in front of a record's key.
pub(super) const ITEM_HEADER_SIZE: usize = 16;
/// The smallest item: a hole needs its header, two links and its length at its end.
pub(super) const ITEM_SIZE_MIN: usize = 24;
/// The longest key in bytes.
pub(super) const KEY_LENGTH_MAX: usize = u16::MAX as usize;

const MAGIC: u32 = u32::from_le_bytes(*b"SEG1");
const HOLE: u64 = 1 << 59;
const DELETED: u64 = 1 << 60;
const AFTER_HOLE: u64 = 1 << 61;
const SAVED: u64 = 1 << 62;

/// The first word of an item: size in units of 8 bytes (20 bits), key length (16 bits), value length (23 bits), flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Item(u64);

impl Item {
    /// A record.
    #[inline]
    pub(super) fn record(size: usize, key_length: usize, value_length: usize) -> Item {
        Item((size as u64 / 8) | (key_length as u64) << 20 | (value_length as u64) << 36)
    }

    /// A hole.
    #[inline]
    pub(super) fn hole(size: usize) -> Item {
        Item((size as u64 / 8) | HOLE)
    }

    /// The item's bytes, all told.
    #[inline]
    pub(super) fn size(self) -> usize {
        (self.0 & 0xf_ffff) as usize * 8
    }

    #[inline]
    pub(super) fn key_length(self) -> usize {
        (self.0 >> 20 & 0xffff) as usize
    }

    #[inline]
    pub(super) fn value_length(self) -> usize {
        (self.0 >> 36 & 0x7f_ffff) as usize
    }

    /// The bytes that its record needs.
    #[inline]
    pub(super) fn needed(self) -> usize {
        needed(self.key_length(), self.value_length())
    }

    #[inline]
    pub(super) fn is_hole(self) -> bool {
        self.0 & HOLE != 0
    }

    /// Whether its record was deleted or moved away by a transaction that has not ended.
    #[inline]
    pub(super) fn is_deleted(self) -> bool {
        self.0 & DELETED != 0
    }

    /// Whether the item in front of it is a hole.
    #[inline]
    pub(super) fn is_after_hole(self) -> bool {
        self.0 & AFTER_HOLE != 0
    }

    /// Whether the sweep in progress has what it wants of this record: see [`super::stable`].
    #[inline]
    pub(super) fn is_saved(self) -> bool {
        self.0 & SAVED != 0
    }

    #[inline]
    pub(super) fn with_size(self, size: usize) -> Item {
        Item(self.0 & !0xf_ffff | (size as u64 / 8))
    }

    #[inline]
    pub(super) fn with_value_length(self, length: usize) -> Item {
        Item(self.0 & !(0x7f_ffff << 36) | (length as u64) << 36)
    }

    #[inline]
    pub(super) fn with_deleted(self, deleted: bool) -> Item {
        Item(if deleted { self.0 | DELETED } else { self.0 & !DELETED })
    }

    #[inline]
    pub(super) fn with_after_hole(self, after_hole: bool) -> Item {
        Item(if after_hole { self.0 | AFTER_HOLE } else { self.0 & !AFTER_HOLE })
    }

    #[inline]
    pub(super) fn with_saved(self, saved: bool) -> Item {
        Item(if saved { self.0 | SAVED } else { self.0 & !SAVED })
    }
}

/// The size of an item for a record of this key and value, in bytes.
#[inline]
pub(super) fn needed(key_length: usize, value_length: usize) -> usize {
    (ITEM_HEADER_SIZE + key_length + value_length).next_multiple_of(8).max(ITEM_SIZE_MIN)
}

#[inline]
pub(super) fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[inline]
pub(super) fn set_word(bytes: &mut [u8], at: usize, word: u64) {
    bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
}

/// The first word of the item at `at`.
#[inline]
pub(super) fn item(bytes: &[u8], at: usize) -> Item {
    Item(word(bytes, at))
}

/// Sets the first word of the item at `at`.
#[inline]
pub(super) fn set_item(bytes: &mut [u8], at: usize, item: Item) {
    set_word(bytes, at, item.0);
}

/// Orders the copies of one record that a backup may hold.
#[inline]
pub(super) fn sequence(bytes: &[u8], at: usize) -> u64 {
    word(bytes, at + 8)
}

/// Key and value of the record at `at`.
#[inline]
pub(super) fn record(bytes: &[u8], at: usize) -> (&[u8], &[u8]) {
    let item = item(bytes, at);
    let from = at + ITEM_HEADER_SIZE;
    bytes[from..from + item.key_length() + item.value_length()].split_at(item.key_length())
}

/// Key and value of the record at `at`, to be overwritten.
#[inline]
pub(super) fn record_mut(bytes: &mut [u8], at: usize) -> (&mut [u8], &mut [u8]) {
    let item = item(bytes, at);
    let from = at + ITEM_HEADER_SIZE;
    bytes[from..from + item.key_length() + item.value_length()].split_at_mut(item.key_length())
}

/// The key of the record at `at`.
#[inline]
pub(super) fn key(bytes: &[u8], at: usize) -> &[u8] {
    record(bytes, at).0
}

/// The value of the record at `at`.
#[inline]
pub(super) fn value(bytes: &[u8], at: usize) -> &[u8] {
    record(bytes, at).1
}

/// The value of the record at `at`, to be overwritten.
#[inline]
pub(super) fn value_mut(bytes: &mut [u8], at: usize) -> &mut [u8] {
    record_mut(bytes, at).1
}

/// Writes a record into an item of `size` bytes.
#[inline]
pub(super) fn write_record(bytes: &mut [u8], at: usize, size: usize, sequence: u64, key: &[u8], value: &[u8]) {
    let (head, rest) = bytes[at..at + size].split_at_mut(ITEM_HEADER_SIZE);
    set_item(head, 0, Item::record(size, key.len(), value.len()));
    set_word(head, 8, sequence);
    let (key_part, rest) = rest.split_at_mut(key.len());
    key_part.copy_from_slice(key);
    rest[..value.len()].copy_from_slice(value);
}

/// What a segment's header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentHeader {
    /// The set.
    pub(super) partition: u16,
    /// The segment's position in the set.
    pub(super) number: u32,
    /// Where the items end.
    pub(super) used: u32,
    /// The highest sequence number given out in the set so far.
    pub(super) sequence: u64,
    /// The number that the set's next arrival gets.
    pub(super) arrival: u64,
}

impl SegmentHeader {
    /// Writes the header and then the checksum: the last step before the segment's bytes go out.
    pub(super) fn seal(&self, bytes: &mut [u8]) {
        bytes[..SEGMENT_HEADER_SIZE].fill(0);
        bytes[4..8].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[8..10].copy_from_slice(&self.partition.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.number.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.used.to_le_bytes());
        set_word(bytes, 24, self.sequence);
        set_word(bytes, 32, self.arrival);
        let sum = block_checksum(bytes);
        bytes[..4].copy_from_slice(&sum.to_le_bytes());
    }

    /// Reads the header of a sealed segment; words that say what is wrong if it is none.
    pub(super) fn read(bytes: &[u8]) -> Result<SegmentHeader, String> {
        let half = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let (stored, computed) = (half(0), block_checksum(bytes));
        if stored != computed {
            return Err(format!("its checksum is {stored:08x}, its contents give {computed:08x}"));
        }
        if half(4) != MAGIC {
            return Err(format!("it begins with {:08x}, a segment with {MAGIC:08x}", half(4)));
        }
        Ok(SegmentHeader {
            partition: half(8) as u16,
            number: half(12),
            used: half(16),
            sequence: word(bytes, 24),
            arrival: word(bytes, 32),
        })
    }
}

/// Makes the checksum of altered bytes right.
#[cfg(test)]
pub(super) fn reseal(bytes: &mut [u8]) {
    let sum = block_checksum(bytes);
    bytes[..4].copy_from_slice(&sum.to_le_bytes());
}
