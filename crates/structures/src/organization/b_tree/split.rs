//! Making room: splits of leaves and inner nodes, growth of the root.

use super::{CHILD_SIZE, Location, ROOT, Step, body_size, descend_to_leaf, key_len_max, path, slot_for, value_len_max};
use crate::organization::allocator;
use crate::page::slotted::{self, Builder, common_prefix_len};
use crate::page::{OwnedChange, OwnedEdit, Pages};
use crate::{Error, Need};
use base::{PageId, PartitionId};
use std::ops::Range;

/// The edits of one step towards room for a record with this key and a value of `value_len` bytes, be it new or a replacement
/// of the present one; `None` once the leaf has the room.
///
/// # Errors
/// [`Need::Page`] and [`Need::Space`]; [`Need::Fail`] if the record is over the limits ([`key_len_max`],
/// [`value_len_max`]) or a page is damaged.
pub fn make_room(
    pages: &impl Pages,
    partition: PartitionId,
    key: &[u8],
    value_len: usize,
) -> Result<Option<Vec<OwnedEdit>>, Need> {
    let page_size = pages.page_size(partition);
    if key.len() > key_len_max(page_size) || value_len > value_len_max(page_size, key.len()) {
        return Err(too_large(page_size, partition, key, value_len));
    }
    let (_, leaf) = descend_to_leaf(pages, partition, |page| slot_for(page, key))?;
    let found = slotted::search(leaf, key);
    if fits(leaf, found, key.len(), value_len) {
        return Ok(None);
    }
    debug_assert!(slotted::count(leaf) > 1, "two records within the limits fit a leaf");
    let path = path(pages, partition, key)?;
    for depth in (1..path.len()).rev() {
        let (at, separator) = division(&path[depth], found.is_err().then_some(key));
        if slotted::fits(path[depth - 1].page, separator.len(), CHILD_SIZE) {
            return split(pages, &path[depth - 1], &path[depth], at, &separator).map(Some);
        }
    }
    grow(pages, &path[0]).map(Some)
}

/// Whether the leaf has room at a key's place, which was found since the tree was last changed, for a value of `value_len`
/// bytes: [`make_room`] would have nothing to do, provided that the record is within the limits.
#[inline]
pub fn has_room(leaf: &[u8], place: &Location, key_len: usize, value_len: usize) -> bool {
    fits(leaf, if place.exact { Ok(place.slot) } else { Err(place.slot) }, key_len, value_len)
}

fn fits(leaf: &[u8], found: Result<u16, u16>, key_len: usize, value_len: usize) -> bool {
    match found {
        Ok(slot) => slotted::fits_replacing(leaf, slot, value_len),
        Err(_) => slotted::fits(leaf, key_len, value_len),
    }
}

#[cold]
fn too_large(page_size: usize, partition: PartitionId, key: &[u8], value_len: usize) -> Need {
    let limit = key_len_max(page_size);
    Need::Fail(if key.len() > limit {
        Error::TooLarge { what: "a key", found: key.len(), limit, partition }
    } else {
        let limit = value_len_max(page_size, key.len());
        Error::TooLarge { what: "a stored value", found: value_len, limit, partition }
    })
}

/// The shortest key above `left` and not above `right`, which is above `left`.
pub(super) fn separator<'a>(left: &[u8], right: &'a [u8]) -> &'a [u8] {
    &right[..right.len().min(common_prefix_len(left, right) + 1)]
}

/// Where to divide a node, and the separator there. `new` is the key to come in if the node is a leaf.
fn division(step: &Step<'_>, new: Option<&[u8]>) -> (u16, Vec<u8>) {
    let page = step.page;
    let is_leaf = slotted::level(page) == 0;
    let new = new.filter(|_| is_leaf);
    let place = match new {
        Some(key) => slotted::search(page, key).err(),
        None => (!is_leaf).then_some(step.slot + 1),
    };
    let ascending = place.filter(|place| is_ascending(page, *place)).and_then(|place| behind(page, place, new));
    ascending.unwrap_or_else(|| {
        let at = middle(page);
        (at, separator_at(page, at))
    })
}

/// Whether entries come in at `place` of a node, one behind the other: such never come back to what they leave behind, so that is left
/// full. At the end of a tree that is taken for granted; elsewhere the latest of the node's entries tell, a quarter of them.
fn is_ascending(page: &[u8], place: u16) -> bool {
    let at_end = place == slotted::count(page);
    place > 0
        && (at_end && slotted::upper(page).is_empty() || slotted::run_before(page, place) > slotted::count(page) / 4)
}

/// Where to divide a node that fills up with ascending keys, of which the next one comes in at `place`: behind them. What lies behind
/// is of others, and parts from them first. `None` if the parts do not fit between their new fences.
fn behind(page: &[u8], place: u16, new: Option<&[u8]>) -> Option<(u16, Vec<u8>)> {
    let count = slotted::count(page);
    let at_place = match new {
        Some(new) if place < count => Some(separator(new, &key_at(page, place)).to_vec()),
        Some(new) => Some(separator(&key_at(page, count - 1), new).to_vec()),
        None => (place < count).then(|| key_at(page, place)),
    };
    // At the end a longer fence may have to take the place of the last entry, and an inner node is never without one.
    let before_last = (place == count && count > 2).then(|| (count - 1, separator_at(page, count - 1)));
    let fits = |(at, separator): &(u16, Vec<u8>)| {
        let left = size(page, 0..*at, slotted::lower(page), separator);
        let right = size(page, *at..count, separator, slotted::upper(page));
        left.max(right) <= body_size(page.len())
    };
    at_place.map(|separator| (place, separator)).into_iter().chain(before_last).find(fits)
}

/// The separator between the entries before slot `at` and those from there on.
fn separator_at(page: &[u8], at: u16) -> Vec<u8> {
    let mut right = key_at(page, at);
    if slotted::level(page) == 0 {
        right.truncate(separator(&key_at(page, at - 1), &right).len());
    }
    right
}

fn key_at(page: &[u8], slot: u16) -> Vec<u8> {
    let mut key = Vec::new();
    slotted::key_into(page, slot, &mut key);
    key
}

/// The slot before which half of the node's bytes lie.
fn middle(page: &[u8]) -> u16 {
    let count = slotted::count(page);
    let sizes = |slot| entry_size(page, slot, slotted::prefix_len(page));
    let total: usize = (0..count).map(sizes).sum();
    let mut before = 0;
    for slot in 0..count - 1 {
        before += sizes(slot);
        if 2 * before >= total {
            return slot + 1;
        }
    }
    count - 1
}

fn entry_size(page: &[u8], slot: u16, prefix_len: usize) -> usize {
    slotted::entry_size(prefix_len, slotted::key_len(page, slot), slotted::value(page, slot).len())
}

/// What the entries would take in a node with these fences, in bytes.
pub(super) fn size(page: &[u8], slots: Range<u16>, lower: &[u8], upper: &[u8]) -> usize {
    let prefix_len = common_prefix_len(lower, upper);
    slots.map(|slot| entry_size(page, slot, prefix_len)).sum::<usize>() + lower.len() + upper.len()
}

/// The change that makes a page the node of these entries.
pub(super) fn rebuilt(page: &[u8], slots: Range<u16>, lower: &[u8], upper: &[u8]) -> OwnedChange {
    let mut builder = Builder::new(page.len(), slotted::level(page), lower, upper);
    builder.copy(page, slots);
    builder.finish()
}

/// The entries from `at` on go to a new page behind `separator`.
fn split(
    pages: &impl Pages,
    parent: &Step<'_>,
    node: &Step<'_>,
    at: u16,
    separator: &[u8],
) -> Result<Vec<OwnedEdit>, Need> {
    let (number, mut edits) = allocator::allocate(pages, node.id.partition)?;
    let page = node.page;
    let right = rebuilt(page, at..slotted::count(page), separator, slotted::upper(page));
    let left = rebuilt(page, 0..at, slotted::lower(page), separator);
    let value = number.to_le_bytes().to_vec();
    let entry = OwnedChange::InsertSlot { slot: parent.slot + 1, key: separator.to_vec(), value };
    edits.extend([
        OwnedEdit { page: PageId::new(node.id.partition, number), change: right },
        OwnedEdit { page: node.id, change: left },
        OwnedEdit { page: parent.id, change: entry },
    ]);
    Ok(edits)
}

/// The root's contents move to a new page, the root becomes that page's parent.
fn grow(pages: &impl Pages, root: &Step<'_>) -> Result<Vec<OwnedEdit>, Need> {
    debug_assert_eq!(root.id.number, ROOT);
    let (number, mut edits) = allocator::allocate(pages, root.id.partition)?;
    let page = root.page;
    let mut builder = Builder::new(page.len(), slotted::level(page) + 1, &[], &[]);
    builder.push(&[], &number.to_le_bytes());
    edits.extend([
        OwnedEdit {
            page: PageId::new(root.id.partition, number),
            change: rebuilt(page, 0..slotted::count(page), &[], &[]),
        },
        OwnedEdit { page: root.id, change: builder.finish() },
    ]);
    Ok(edits)
}
