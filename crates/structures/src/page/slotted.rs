//! Slotted pages: an array of slots grows from the front, a heap of records from the back.
//!
//! ```text
//! 32 heap     u16  bytes from the heap's start to the page's end, fences and garbage included
//! 34 garbage  u16  bytes of the heap that belong to no record
//! 36 prefix   u16  bytes that every key of the node shares and no record stores
//! 38 lower    u16  length of the lower fence: every key is at or above it
//! 40 upper    u16  length of the upper fence: every key is below it; 0 if there is no bound
//! 42 slots, free space, heap, lower fence, upper fence
//! ```
//!
//! The fences of a b-tree node (Graefe, "Write-Optimized B-Trees", VLDB 2004) are the separators around it. What they have in
//! common is cut off from the node's keys. The next eight bytes of a key, its head, stand in the slot as a number, so a
//! search seldom leaves the slots (Graefe and Larson, "B-Tree Indexes and CPU Caches", ICDE 2001; Leis et al., "LeanStore",
//! ICDE 2018); only the rest of the key stands with the value in the heap.
//!
//! ```text
//! slot of a node:            position u16, length of the key behind the prefix u16, head u64
//! slot of an append page:    position u16 (its records have no keys)
//! record:                    length of the value u16, rest of the key, value
//! ```
//!
//! Zeros behind the header are a page without records. Everything here is a function of the page's bytes and the arguments, so
//! redo gives exactly the same page.

mod builder;
mod inspect;
#[cfg(test)]
mod tests;

pub use builder::Builder;
pub use builder::common_prefix_len;
pub use inspect::inspect;

use super::header::PageKind;
use std::cmp::Ordering;
use std::ops::Range;

const HEAP: usize = 32;
const GARBAGE: usize = 34;
const PREFIX: usize = 36;
const LOWER: usize = 38;
const UPPER: usize = 40;
/// Where the slots begin.
pub const SLOTS: usize = 42;
/// The size of a node's slot in bytes.
pub const NODE_SLOT: usize = 12;
/// The size of an append page's slot in bytes.
pub const APPEND_SLOT: usize = 2;
/// Bytes of a key that its slot holds.
pub const HEAD_SIZE: usize = 8;
/// How many bytes [`front`] takes at most.
const FRONT_SIZE_MAX: usize = 2048;
/// Bytes before a record's key and value.
const LENGTH_SIZE: usize = 2;

type NodeSlot = [u8; NODE_SLOT];

#[inline]
fn get(page: &[u8], at: usize) -> usize {
    usize::from(u16::from_le_bytes(page[at..at + 2].try_into().expect("two bytes")))
}

#[inline]
fn set(page: &mut [u8], at: usize, value: usize) {
    page[at..at + 2].copy_from_slice(&u16::try_from(value).expect("fits a page").to_le_bytes());
}

/// How many records the page holds.
#[inline]
pub fn count(page: &[u8]) -> u16 {
    get(page, 6) as u16
}

/// The page's height above the leaves.
#[inline]
pub fn level(page: &[u8]) -> u8 {
    page[5]
}

#[inline]
fn slot_size(page: &[u8]) -> usize {
    if page[4] == PageKind::Append as u8 { APPEND_SLOT } else { NODE_SLOT }
}

#[inline]
fn node_slots(page: &[u8]) -> &[NodeSlot] {
    page[SLOTS..SLOTS + get(page, 6) * NODE_SLOT].as_chunks().0
}

#[inline]
fn slot_key_len(slot: &NodeSlot) -> usize {
    usize::from(u16::from_le_bytes([slot[2], slot[3]]))
}

#[inline]
fn slot_head(slot: &NodeSlot) -> u64 {
    u64::from_le_bytes(slot[4..].try_into().expect("eight bytes"))
}

/// How many bytes all keys of the node share.
#[inline]
pub fn prefix_len(page: &[u8]) -> usize {
    get(page, PREFIX)
}

/// The bytes that all keys of the node share.
pub fn prefix(page: &[u8]) -> &[u8] {
    &lower(page)[..prefix_len(page)]
}

/// The node's lower fence; empty if there is no bound.
pub fn lower(page: &[u8]) -> &[u8] {
    let end = page.len() - get(page, UPPER);
    &page[end - get(page, LOWER)..end]
}

/// The node's upper fence; empty if there is no bound.
pub fn upper(page: &[u8]) -> &[u8] {
    &page[page.len() - get(page, UPPER)..]
}

/// How many bytes of a key's part behind the prefix stand in the heap.
#[inline]
fn rest_len(suffix_len: usize) -> usize {
    suffix_len.saturating_sub(HEAD_SIZE)
}

/// The head of a key: its first eight bytes behind `prefix_len` as a big-endian number, zeros where it ends earlier.
#[inline]
fn head(key: &[u8], prefix_len: usize) -> u64 {
    let suffix = key.get(prefix_len..).unwrap_or_default();
    if let Some(bytes) = suffix.first_chunk() {
        return u64::from_be_bytes(*bytes);
    }
    if let Some(bytes) = key.last_chunk() {
        let cut = 8 * (HEAD_SIZE - suffix.len()) as u32;
        return u64::from_be_bytes(*bytes).checked_shl(cut).unwrap_or(0);
    }
    suffix.iter().enumerate().fold(0, |head, (index, byte)| head | u64::from(*byte) << (56 - 8 * index))
}

/// Where the record at `slot` begins, and the length of its key behind the prefix.
#[inline]
fn locate(page: &[u8], slot: u16) -> (usize, usize) {
    let size = slot_size(page);
    let at = SLOTS + usize::from(slot) * size;
    let entry = &page[at..at + size];
    let suffix_len = if size == NODE_SLOT { get(entry, 2) } else { 0 };
    (get(entry, 0), suffix_len)
}

/// Where on the page the value of the record at `slot` is.
///
/// # Panics
/// If there is no such slot, in builds with debug assertions.
#[inline]
pub fn value_range(page: &[u8], slot: u16) -> Range<usize> {
    debug_assert!(slot < count(page), "slot {slot} of {}", count(page));
    let (position, suffix_len) = locate(page, slot);
    let start = position + LENGTH_SIZE + rest_len(suffix_len);
    start..start + get(page, position)
}

/// The value of the record at `slot`.
///
/// # Panics
/// If there is no such slot.
#[inline]
pub fn value(page: &[u8], slot: u16) -> &[u8] {
    &page[value_range(page, slot)]
}

/// The value of the record at `slot`, to be changed in place.
///
/// # Panics
/// If there is no such slot.
#[inline]
pub fn value_mut(page: &mut [u8], slot: u16) -> &mut [u8] {
    let range = value_range(page, slot);
    &mut page[range]
}

/// The length of the key at `slot` of a node, prefix included, in bytes.
pub fn key_len(page: &[u8], slot: u16) -> usize {
    prefix_len(page) + slot_key_len(&node_slots(page)[usize::from(slot)])
}

/// Puts the whole key at `slot` of a node into `key`, whose previous contents go.
///
/// # Panics
/// If there is no such slot.
pub fn key_into(page: &[u8], slot: u16, key: &mut Vec<u8>) {
    let entry = &node_slots(page)[usize::from(slot)];
    let suffix_len = slot_key_len(entry);
    key.clear();
    key.extend_from_slice(prefix(page));
    key.extend_from_slice(&slot_head(entry).to_be_bytes()[..suffix_len.min(HEAD_SIZE)]);
    key.extend_from_slice(slot_rest(page, entry));
}

#[inline]
fn slot_rest<'a>(page: &'a [u8], slot: &NodeSlot) -> &'a [u8] {
    let start = usize::from(u16::from_le_bytes([slot[0], slot[1]])) + LENGTH_SIZE;
    &page[start..start + rest_len(slot_key_len(slot))]
}

/// The bytes in which slots may stand. A search that met their lines one by one would wait for the memory at each, so they
/// are asked for at once, before the header tells how many there are.
#[inline]
pub fn front(page: &[u8]) -> &[u8] {
    &page[..(page.len() / 8).min(FRONT_SIZE_MAX)]
}

/// The bytes in which the node's slots stand.
#[inline]
pub fn slots(page: &[u8]) -> &[u8] {
    node_slots(page).as_flattened()
}

/// The first bytes of the record at `slot`, which say how long it is.
///
/// # Panics
/// If there is no such slot.
#[inline]
pub fn record_start(page: &[u8], slot: u16) -> &[u8] {
    let (position, _) = locate(page, slot);
    &page[position..position + LENGTH_SIZE]
}

/// Finds `key`, which lies within the node's fences: `Ok` with its slot, or `Err` with the slot that it would get.
#[inline]
pub fn search(page: &[u8], key: &[u8]) -> Result<u16, u16> {
    let prefix_len = prefix_len(page);
    let wanted = head(key, prefix_len);
    let slots = node_slots(page);
    let first = lower_bound(slots, wanted);
    match slots.get(first) {
        Some(slot) if slot_head(slot) == wanted => break_tie(page, first, key.get(prefix_len..).unwrap_or_default()),
        _ => Err(first as u16),
    }
}

/// The first slot whose head is not below `wanted`. The steps are jumps, half of which the processor guesses wrongly; but it
/// asks for the next lines by its guesses, where conditional moves would wait for one after another.
#[inline]
fn lower_bound(slots: &[NodeSlot], wanted: u64) -> usize {
    let mut first = 0;
    let mut left = slots;
    while left.len() > 1 {
        let (front, back) = left.split_at(left.len() / 2);
        let rest = left.len() - front.len();
        if slot_head(&front[front.len() - 1]) < wanted {
            first += front.len();
            left = back;
        } else {
            left = &left[..rest];
        }
    }
    first + usize::from(left.first().is_some_and(|slot| slot_head(slot) < wanted))
}

/// Goes on where heads are equal: compares what follows them, from slot `first` on.
#[inline]
fn break_tie(page: &[u8], first: usize, suffix: &[u8]) -> Result<u16, u16> {
    let slots = node_slots(page);
    match compare_equal_heads(page, &slots[first], suffix) {
        Ordering::Equal => return Ok(first as u16),
        Ordering::Greater => return Err(first as u16),
        Ordering::Less => {}
    }
    let wanted = slot_head(&slots[first]);
    let ties = slots[first..].partition_point(|slot| slot_head(slot) == wanted);
    slots[first..first + ties]
        .binary_search_by(|slot| compare_equal_heads(page, slot, suffix))
        .map(|found| (first + found) as u16)
        .map_err(|place| (first + place) as u16)
}

/// Compares the key of `slot` with a key of the same head.
#[inline]
fn compare_equal_heads(page: &[u8], slot: &NodeSlot, suffix: &[u8]) -> Ordering {
    let length = slot_key_len(slot);
    if length <= HEAD_SIZE && suffix.len() <= HEAD_SIZE {
        return length.cmp(&suffix.len());
    }
    let rest = suffix.get(HEAD_SIZE..).unwrap_or_default();
    slot_rest(page, slot).cmp(rest).then(length.cmp(&suffix.len()))
}

#[inline]
fn heap_start(page: &[u8]) -> usize {
    page.len() - get(page, HEAP)
}

/// Free bytes between the slots and the heap.
#[inline]
fn gap(page: &[u8]) -> usize {
    heap_start(page) - SLOTS - usize::from(count(page)) * slot_size(page)
}

/// Free bytes in all, for slots and records.
#[inline]
pub fn room(page: &[u8]) -> usize {
    gap(page) + get(page, GARBAGE)
}

/// What a record takes of a node's room, slot included, in bytes.
#[inline]
pub fn entry_size(prefix_len: usize, key_len: usize, value_len: usize) -> usize {
    NODE_SLOT + LENGTH_SIZE + rest_len(key_len.saturating_sub(prefix_len)) + value_len
}

/// The longest value in bytes that an empty append page of this size takes.
pub const fn append_value_len_max(page_size: usize) -> usize {
    let room = page_size - SLOTS - APPEND_SLOT - LENGTH_SIZE;
    if room < u16::MAX as usize { room } else { u16::MAX as usize }
}

/// Whether a record with these lengths in bytes can come in.
#[inline]
pub fn fits(page: &[u8], key_len: usize, value_len: usize) -> bool {
    let slot = slot_size(page);
    let size = if slot == NODE_SLOT {
        entry_size(prefix_len(page), key_len, value_len)
    } else {
        APPEND_SLOT + LENGTH_SIZE + value_len
    };
    size <= room(page) && value_len <= usize::from(u16::MAX)
}

/// Whether the value at `slot` can become one of `value_len` bytes.
#[inline]
pub fn fits_replacing(page: &[u8], slot: u16, value_len: usize) -> bool {
    value_len <= room(page) + value(page, slot).len() && value_len <= usize::from(u16::MAX)
}

/// How many bytes the slots from this one on have.
pub fn slots_from(page: &[u8], slot: u16) -> usize {
    usize::from(count(page) - slot) * slot_size(page)
}

/// Whether a record with these lengths, which [`fits`], comes in only after all others have been moved.
pub fn is_insert_compacting(page: &[u8], key_len: usize, value_len: usize) -> bool {
    let size = slot_size(page);
    let suffix_len = if size == NODE_SLOT { key_len.saturating_sub(prefix_len(page)) } else { 0 };
    gap(page) < size + LENGTH_SIZE + rest_len(suffix_len) + value_len
}

/// Whether the value at `slot` becomes one of `value_len` bytes, which [`fits_replacing`], only after all others have been moved.
pub fn is_replacement_compacting(page: &[u8], slot: u16, value_len: usize) -> bool {
    let (_, suffix_len) = locate(page, slot);
    value_len > value(page, slot).len() && gap(page) < LENGTH_SIZE + rest_len(suffix_len) + value_len
}

/// How many of the records before `slot` came in one after the other, the one before `slot` last of all: a run of ascending keys, as
/// far as the heap tells. It grows towards the front, so each lies where the one before it begins.
pub fn run_before(page: &[u8], slot: u16) -> u16 {
    let mut start = heap_start(page);
    let follows = |slot: &u16| {
        let is_next = locate(page, *slot).0 == start;
        start = value_range(page, *slot).end;
        is_next
    };
    (0..slot).rev().take_while(follows).count() as u16
}

/// Puts a record before the present slot `slot`. `key` is the whole key (not looked at on append pages).
///
/// # Panics
/// If it does not fit ([`fits`]) or `slot` is beyond the count.
pub fn insert(page: &mut [u8], slot: u16, key: &[u8], value: &[u8]) {
    let size = slot_size(page);
    let prefix_len = prefix_len(page);
    let suffix = if size == NODE_SLOT { &key[prefix_len..] } else { &[] };
    let rest = suffix.get(HEAD_SIZE..).unwrap_or_default();
    let record = LENGTH_SIZE + rest.len() + value.len();
    if gap(page) < size + record {
        compact(page, None);
        assert!(gap(page) >= size + record, "a record of {record} bytes has no room");
    }
    let position = write_record(page, rest.len(), value);
    page[position + LENGTH_SIZE..][..rest.len()].copy_from_slice(rest);

    let count = usize::from(count(page));
    let at = SLOTS + usize::from(slot) * size;
    page.copy_within(at..SLOTS + count * size, at + size);
    set(page, at, position);
    if size == NODE_SLOT {
        set(page, at + 2, suffix.len());
        page[at + 4..at + NODE_SLOT].copy_from_slice(&head(key, prefix_len).to_le_bytes());
    }
    set(page, 6, count + 1);
}

/// Extends the heap by a record and writes all of it but the rest of its key; returns its position.
fn write_record(page: &mut [u8], rest_len: usize, value: &[u8]) -> usize {
    let position = heap_start(page) - LENGTH_SIZE - rest_len - value.len();
    set(page, HEAP, page.len() - position);
    set(page, position, value.len());
    page[position + LENGTH_SIZE + rest_len..][..value.len()].copy_from_slice(value);
    position
}

/// Takes the record at `slot` out; later slots move down by one.
///
/// # Panics
/// If there is no such slot.
pub fn remove(page: &mut [u8], slot: u16) {
    let size = slot_size(page);
    let count = usize::from(count(page));
    let (position, _) = locate(page, slot);
    discard(page, position, value_range(page, slot).end - position);
    let at = SLOTS + usize::from(slot) * size;
    page.copy_within(at + size..SLOTS + count * size, at);
    set(page, 6, count - 1);
}

/// Gives `length` bytes of the heap at `position` up.
fn discard(page: &mut [u8], position: usize, length: usize) {
    if position == heap_start(page) {
        set(page, HEAP, page.len() - position - length);
    } else {
        set(page, GARBAGE, get(page, GARBAGE) + length);
    }
}

/// Gives the record at `slot` another value.
///
/// # Panics
/// If it does not fit ([`fits_replacing`]) or there is no such slot.
pub fn replace(page: &mut [u8], slot: u16, value: &[u8]) {
    let range = value_range(page, slot);
    let (position, suffix_len) = locate(page, slot);
    if value.len() <= range.len() {
        set(page, position, value.len());
        page[range.start..range.start + value.len()].copy_from_slice(value);
        set(page, GARBAGE, get(page, GARBAGE) + range.len() - value.len());
        return;
    }
    let rest_len = rest_len(suffix_len);
    let new = if gap(page) >= LENGTH_SIZE + rest_len + value.len() {
        let new = write_record(page, rest_len, value);
        page.copy_within(position + LENGTH_SIZE..range.start, new + LENGTH_SIZE);
        set(page, GARBAGE, get(page, GARBAGE) + range.end - position);
        new
    } else {
        let rest = page[position + LENGTH_SIZE..range.start].to_vec();
        compact(page, Some(slot));
        assert!(gap(page) >= LENGTH_SIZE + rest_len + value.len(), "a value of {} bytes has no room", value.len());
        let new = write_record(page, rest_len, value);
        page[new + LENGTH_SIZE..][..rest_len].copy_from_slice(&rest);
        new
    };
    let at = SLOTS + usize::from(slot) * slot_size(page);
    set(page, at, new);
}

/// Moves all records, but not that of slot `except`, to the page's end in the order of their slots.
fn compact(page: &mut [u8], except: Option<u16>) {
    let start = heap_start(page);
    let old = page[start..].to_vec();
    let size = slot_size(page);
    let mut end = page.len() - get(page, LOWER) - get(page, UPPER);
    for slot in (0..count(page)).filter(|slot| Some(*slot) != except) {
        let (position, suffix_len) = locate(page, slot);
        let from = position - start;
        let length = LENGTH_SIZE + rest_len(suffix_len) + get(&old, from);
        end -= length;
        page[end..end + length].copy_from_slice(&old[from..from + length]);
        set(page, SLOTS + usize::from(slot) * size, end);
    }
    set(page, HEAP, page.len() - end);
    set(page, GARBAGE, 0);
}
