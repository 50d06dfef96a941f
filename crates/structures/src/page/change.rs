//! Changes of pages: what log records carry and redo replays.
//!
//! One log record describes the changes of several pages, so a restructuring is atomic without nested top actions or
//! redo and undo page by page.

use super::header::{self, HEADER_SIZE, PageKind};
use super::slotted;
use base::{Lsn, PageId};

/// One change of one page. Offsets count from the front of the page, slots from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// The page becomes of this kind and level, its contents are `image` followed by zeros.
    Format {
        /// The new kind.
        kind: PageKind,
        /// The new level (b-tree nodes; else 0).
        level: u8,
        /// The new slot count in the header (slotted pages; else 0).
        count: u16,
        /// The bytes from [`HEADER_SIZE`] on.
        image: &'a [u8],
    },
    /// The page becomes of this kind and level, its contents are `front`, zeros, `back`: a slotted page without the gap
    /// between its slots and its heap.
    FormatEnds {
        /// The new kind.
        kind: PageKind,
        /// The new level.
        level: u8,
        /// The new slot count.
        count: u16,
        /// The bytes from [`HEADER_SIZE`] on.
        front: &'a [u8],
        /// The bytes up to the page's end.
        back: &'a [u8],
    },
    /// `bytes` overwrite the page at `offset`, which lies behind the header.
    Patch {
        /// Where, from the front of the page.
        offset: u16,
        /// The new bytes.
        bytes: &'a [u8],
    },
    /// A record comes in before the present slot `slot` of a slotted page.
    InsertSlot {
        /// Its position.
        slot: u16,
        /// Its key (empty on append pages).
        key: &'a [u8],
        /// Its value.
        value: &'a [u8],
    },
    /// The record at `slot` goes; later slots move down by one.
    RemoveSlot {
        /// Its position.
        slot: u16,
    },
    /// The record at `slot` gets another value, whose length may differ.
    ReplaceValue {
        /// Its position.
        slot: u16,
        /// The new value.
        value: &'a [u8],
    },
    /// `bytes` overwrite a part of the value at `slot`.
    PatchValue {
        /// Its position.
        slot: u16,
        /// Where in the value.
        offset: u16,
        /// The new bytes.
        bytes: &'a [u8],
    },
}

impl Change<'_> {
    /// Whether it replaces all that is on the page.
    pub fn is_format(&self) -> bool {
        matches!(self, Change::Format { .. } | Change::FormatEnds { .. })
    }

    /// Whether it is one of a record of a slotted page, whose slots and heap stay in order.
    pub fn is_of_slot(&self) -> bool {
        !self.is_format() && !matches!(self, Change::Patch { .. })
    }

    /// About as how many bytes of records it moves on this page, which it fits, beside its own. Slots are moved together, which is as quick as
    /// to move an eighth of as many bytes of records.
    pub fn moves(&self, page: &[u8]) -> usize {
        match *self {
            Change::Format { .. } | Change::FormatEnds { .. } => page.len(),
            Change::InsertSlot { key, value, .. } if slotted::is_insert_compacting(page, key.len(), value.len()) => {
                page.len()
            }
            Change::ReplaceValue { slot, value } if slotted::is_replacement_compacting(page, slot, value.len()) => {
                page.len()
            }
            Change::InsertSlot { slot, .. } | Change::RemoveSlot { slot } => slotted::slots_from(page, slot) / 8,
            _ => 0,
        }
    }

    /// Whether it can be made on this page. One of a slot only if slots and heap are in order ([`slotted::inspect`]); that keys
    /// stay in order is not looked at.
    pub fn fits(&self, page: &[u8]) -> bool {
        let room = page.len() - HEADER_SIZE;
        let has = |slot: u16| slot < slotted::count(page);
        match *self {
            Change::Format { image, .. } => image.len() <= room,
            Change::FormatEnds { front, back, .. } => front.len() + back.len() <= room,
            Change::Patch { offset, bytes } => {
                usize::from(offset) >= HEADER_SIZE && usize::from(offset) + bytes.len() <= page.len()
            }
            Change::InsertSlot { slot, key, value } => {
                let is_within = slot <= slotted::count(page) && key.len() >= slotted::prefix_len(page);
                is_within && slotted::fits(page, key.len(), value.len())
            }
            Change::RemoveSlot { slot } => has(slot),
            Change::ReplaceValue { slot, value } => has(slot) && slotted::fits_replacing(page, slot, value.len()),
            Change::PatchValue { slot, offset, bytes } => {
                has(slot) && usize::from(offset) + bytes.len() <= slotted::value(page, slot).len()
            }
        }
    }
}

/// A change with the page it is for and that page's sequence number after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edit<'a> {
    /// The page.
    pub page: PageId,
    /// The change.
    pub change: Change<'a>,
}

/// A [`Change`] that owns its bytes, for the rare plans that build them (splits, merges, allocation).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnedChange {
    /// See [`Change::Format`].
    Format {
        /// The new kind.
        kind: PageKind,
        /// The new level.
        level: u8,
        /// The new slot count.
        count: u16,
        /// The bytes from [`HEADER_SIZE`] on.
        image: Vec<u8>,
    },
    /// See [`Change::FormatEnds`].
    FormatEnds {
        /// The new kind.
        kind: PageKind,
        /// The new level.
        level: u8,
        /// The new slot count.
        count: u16,
        /// The bytes from [`HEADER_SIZE`] on.
        front: Vec<u8>,
        /// The bytes up to the page's end.
        back: Vec<u8>,
    },
    /// See [`Change::Patch`].
    Patch {
        /// Where, from the front of the page.
        offset: u16,
        /// The new bytes.
        bytes: Vec<u8>,
    },
    /// See [`Change::InsertSlot`].
    InsertSlot {
        /// Its position.
        slot: u16,
        /// Its key.
        key: Vec<u8>,
        /// Its value.
        value: Vec<u8>,
    },
    /// See [`Change::RemoveSlot`].
    RemoveSlot {
        /// Its position.
        slot: u16,
    },
    /// See [`Change::ReplaceValue`].
    ReplaceValue {
        /// Its position.
        slot: u16,
        /// The new value.
        value: Vec<u8>,
    },
}

impl OwnedChange {
    /// The same change, borrowed.
    pub fn as_change(&self) -> Change<'_> {
        match self {
            OwnedChange::Format { kind, level, count, image } => {
                Change::Format { kind: *kind, level: *level, count: *count, image }
            }
            OwnedChange::FormatEnds { kind, level, count, front, back } => {
                Change::FormatEnds { kind: *kind, level: *level, count: *count, front, back }
            }
            OwnedChange::Patch { offset, bytes } => Change::Patch { offset: *offset, bytes },
            OwnedChange::InsertSlot { slot, key, value } => Change::InsertSlot { slot: *slot, key, value },
            OwnedChange::RemoveSlot { slot } => Change::RemoveSlot { slot: *slot },
            OwnedChange::ReplaceValue { slot, value } => Change::ReplaceValue { slot: *slot, value },
        }
    }
}

/// An [`Edit`] that owns its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedEdit {
    /// The page.
    pub page: PageId,
    /// The change.
    pub change: OwnedChange,
}

impl OwnedEdit {
    /// The same edit, borrowed.
    pub fn as_edit(&self) -> Edit<'_> {
        Edit { page: self.page, change: self.change.as_change() }
    }
}

impl Change<'_> {
    /// Makes the change and advances the page's sequence number and log position. The planner of the change has checked on the
    /// same page contents that it fits.
    ///
    /// Part of its callers, which know mostly which one it is.
    #[inline(always)]
    pub fn apply(&self, page: &mut [u8], lsn: Lsn) {
        match *self {
            Change::Format { kind, level, count, image } => format(page, kind, level, count, image, &[]),
            Change::FormatEnds { kind, level, count, front, back } => format(page, kind, level, count, front, back),
            Change::Patch { offset, bytes } => {
                let start = usize::from(offset);
                debug_assert!(start >= HEADER_SIZE, "a patch never touches the header");
                page[start..start + bytes.len()].copy_from_slice(bytes);
            }
            Change::InsertSlot { slot, key, value } => slotted::insert(page, slot, key, value),
            Change::RemoveSlot { slot } => slotted::remove(page, slot),
            Change::ReplaceValue { slot, value } => slotted::replace(page, slot, value),
            Change::PatchValue { slot, offset, bytes } => {
                let start = usize::from(offset);
                slotted::value_mut(page, slot)[start..start + bytes.len()].copy_from_slice(bytes);
            }
        }
        header::set_sequence(page, header::sequence(page) + 1);
        header::set_lsn(page, lsn);
    }

    /// Appends the stored form: a tag byte, then the fields in little-endian order with 32-bit lengths before bytes.
    ///
    /// Part of its callers, as [`Change::apply`] is.
    #[inline(always)]
    pub fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Change::Format { kind, level, count, image } => {
                out.extend_from_slice(&[1, kind as u8, level]);
                out.extend_from_slice(&count.to_le_bytes());
                put_bytes(out, image);
            }
            Change::Patch { offset, bytes } => {
                out.push(2);
                out.extend_from_slice(&offset.to_le_bytes());
                put_bytes(out, bytes);
            }
            Change::InsertSlot { slot, key, value } => {
                out.push(3);
                out.extend_from_slice(&slot.to_le_bytes());
                put_bytes(out, key);
                put_bytes(out, value);
            }
            Change::RemoveSlot { slot } => {
                out.push(4);
                out.extend_from_slice(&slot.to_le_bytes());
            }
            Change::ReplaceValue { slot, value } => {
                out.push(5);
                out.extend_from_slice(&slot.to_le_bytes());
                put_bytes(out, value);
            }
            Change::PatchValue { slot, offset, bytes } => {
                let ([s0, s1], [o0, o1]) = (slot.to_le_bytes(), offset.to_le_bytes());
                let [b0, b1, b2, b3] = (bytes.len() as u32).to_le_bytes();
                out.extend_from_slice(&[6, s0, s1, o0, o1, b0, b1, b2, b3]);
                out.extend_from_slice(bytes);
            }
            Change::FormatEnds { kind, level, count, front, back } => {
                out.extend_from_slice(&[7, kind as u8, level]);
                out.extend_from_slice(&count.to_le_bytes());
                put_bytes(out, front);
                put_bytes(out, back);
            }
        }
    }

    /// Reads the stored form from the front of `input` and moves `input` behind it; `None` if it is not one.
    pub fn decode<'a>(input: &mut &'a [u8]) -> Option<Change<'a>> {
        Some(match take_u8(input)? {
            1 => Change::Format {
                kind: PageKind::from_byte(take_u8(input)?)?,
                level: take_u8(input)?,
                count: take_u16(input)?,
                image: take_bytes(input)?,
            },
            2 => Change::Patch { offset: take_u16(input)?, bytes: take_bytes(input)? },
            3 => Change::InsertSlot { slot: take_u16(input)?, key: take_bytes(input)?, value: take_bytes(input)? },
            4 => Change::RemoveSlot { slot: take_u16(input)? },
            5 => Change::ReplaceValue { slot: take_u16(input)?, value: take_bytes(input)? },
            6 => Change::PatchValue { slot: take_u16(input)?, offset: take_u16(input)?, bytes: take_bytes(input)? },
            7 => Change::FormatEnds {
                kind: PageKind::from_byte(take_u8(input)?)?,
                level: take_u8(input)?,
                count: take_u16(input)?,
                front: take_bytes(input)?,
                back: take_bytes(input)?,
            },
            _ => return None,
        })
    }
}

fn format(page: &mut [u8], kind: PageKind, level: u8, count: u16, front: &[u8], back: &[u8]) {
    header::set_kind(page, kind);
    page[5] = level;
    page[6..8].copy_from_slice(&count.to_le_bytes());
    let contents = &mut page[HEADER_SIZE..];
    let gap = front.len()..contents.len() - back.len();
    contents[..gap.start].copy_from_slice(front);
    contents[gap.end..].copy_from_slice(back);
    contents[gap].fill(0);
}

/// Appends a 32-bit length and the bytes.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

/// Takes `length` bytes off the front of `input`; `None` if it has fewer.
pub fn take<'a>(input: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (front, rest) = input.split_at_checked(length)?;
    *input = rest;
    Some(front)
}

/// Takes a byte off the front of `input`.
pub fn take_u8(input: &mut &[u8]) -> Option<u8> {
    Some(take(input, 1)?[0])
}

/// Takes two bytes, little-endian, off the front of `input`.
pub fn take_u16(input: &mut &[u8]) -> Option<u16> {
    Some(u16::from_le_bytes(take(input, 2)?.try_into().expect("two bytes")))
}

/// Takes four bytes, little-endian, off the front of `input`.
pub fn take_u32(input: &mut &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(take(input, 4)?.try_into().expect("four bytes")))
}

/// Takes eight bytes, little-endian, off the front of `input`.
pub fn take_u64(input: &mut &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(take(input, 8)?.try_into().expect("eight bytes")))
}

/// Takes what [`put_bytes`] wrote off the front of `input`.
pub fn take_bytes<'a>(input: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = take_u32(input)? as usize;
    take(input, length)
}
