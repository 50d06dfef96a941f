//! Pages on which the changes of another node are tried one by one: each has to fit what the one before has left, to leave the
//! page in order, and to come with what takes it back, from which an opening learns what was there at moments before.
//!
//! The first change of a page is held against the page as it is here. Only a second one needs a copy, on which the first is made.

use crate::buffer::{LOADED, begins_page};
use crate::catalog::Organization;
use base::{Lsn, PageId};
use std::borrow::Cow;
use structures::canary::{self, Canary};
use structures::organization::append::LIVE;
use structures::organization::b_tree::stored::{self, Stored, VALUE_LEN_MAX, VERSION_SIZE};
use structures::organization::b_tree::{self, Expected, overflow};
use structures::page::{Change, Edit, HEADER_SIZE, PageKind, header, slotted};
use structures::undo::Undo;

/// A page on which shipped changes are tried.
pub(super) struct TriedPage<'a> {
    /// The page as it is here, or a copy once changes are made on it.
    bytes: Cow<'a, [u8]>,
    /// A change that fits, and that no other one has followed.
    last: Option<Change<'a>>,
    /// That of its partition.
    organization: Organization,
    /// Whether slots and heap are known to be in order.
    is_in_order: bool,
    /// Whether its bytes have come: then it may have been used for the first time, or anew.
    may_begin: bool,
}

/// The pages of a shipment, in their order.
pub(super) struct TriedPages<'a>(Vec<(PageId, TriedPage<'a>)>);

impl<'a> TriedPages<'a> {
    pub fn new(mut pages: Vec<(PageId, TriedPage<'a>)>) -> TriedPages<'a> {
        pages.sort_unstable_by_key(|(page, _)| *page);
        TriedPages(pages)
    }

    pub fn get_mut(&mut self, page: PageId) -> Option<&mut TriedPage<'a>> {
        let place = self.0.binary_search_by_key(&page, |(other, _)| *other).ok()?;
        Some(&mut self.0[place].1)
    }

    /// Those that are known to be in order, and how many changes they have seen.
    pub fn in_order(&self) -> Vec<(PageId, u64)> {
        self.0.iter().filter_map(|(page, tried)| Some((*page, tried.sequence_in_order()?))).collect()
    }
}

impl<'a> TriedPage<'a> {
    pub fn new(bytes: &'a [u8], organization: Organization, (may_begin, is_in_order): (bool, bool)) -> TriedPage<'a> {
        TriedPage { bytes: Cow::Borrowed(bytes), last: None, organization, is_in_order, may_begin }
    }

    /// How many changes it has seen, if its slots and heap are known to be in order behind them, and so is all else of it: the children of an
    /// inner node are looked at only before the changes.
    fn sequence_in_order(&self) -> Option<u64> {
        let is_inner = is_node(&self.bytes) && slotted::level(&self.bytes) > 0;
        (self.is_in_order && !is_inner).then(|| header::sequence(&self.bytes) + u64::from(self.last.is_some()))
    }

    /// Makes the change that was tried last, if that is not made.
    fn make_last(&mut self) {
        if let Some(change) = self.last.take() {
            change.apply(self.bytes.to_mut(), Lsn::ZERO);
        }
    }

    /// Tries the change, which `undo` takes back, or which is never undone. Returns how many bytes that may have moved beside its own.
    /// `floor` is the sequence number that pages of the partition begin with.
    pub fn try_change(
        &mut self,
        sequence: u64,
        edit: &Edit<'a>,
        undo: Option<&Undo<'_>>,
        floor: u64,
    ) -> Result<usize, String> {
        self.make_last();
        self.follow(sequence, edit, floor)?;
        let change = &edit.change;
        self.is_in_order = self.is_in_order || (change.is_of_slot() && is_in_order(&self.bytes));
        if change.is_of_slot() && !self.is_in_order || !change.fits(&self.bytes) || !self.keeps_order(change) {
            return Err(format!("is as change {sequence} of its log records does not fit it"));
        }
        match undo {
            Some(undo) if !takes_back(undo, edit, Some(&self.bytes)) => {
                return Err(format!("would be taken back to what it was not before change {sequence}"));
            }
            None if !self.may_restructure(change) => {
                return Err(format!("has change {sequence} of its log records, which no restructuring makes"));
            }
            _ => {}
        }
        let moved = change.moves(&self.bytes);
        self.last = Some(*change);
        if change.is_format() {
            self.make_last();
            self.is_in_order = is_in_order(&self.bytes);
            if is_slotted(&self.bytes) && !self.is_in_order {
                return Err("would have its slots out of order, or in them what no node writes".to_owned());
            }
            if header::kind(&self.bytes) == Some(PageKind::Overflow) {
                overflow::read(&self.bytes)?;
            }
        }
        Ok(moved)
    }

    /// The change goes on from where the page is, or begins it.
    fn follow(&mut self, sequence: u64, edit: &Edit<'_>, floor: u64) -> Result<(), String> {
        let present = header::sequence(&self.bytes);
        if present.checked_add(1) != Some(sequence) {
            let is_blank = self.bytes[HEADER_SIZE..].iter().all(|byte| *byte == 0);
            // Another node may not know that a load which failed has been here.
            let begins = floor.saturating_add(1)..=present.max(floor).max(LOADED).saturating_add(1);
            let may_begin = self.may_begin && is_blank && begins.contains(&sequence);
            if !may_begin || !begins_page(sequence, edit) {
                return Err(format!("has seen {present} changes, and its log records go on with change {sequence}"));
            }
            header::set_sequence(self.bytes.to_mut(), sequence - 1);
        }
        Ok(())
    }

    /// Whether a page in order, which the change fits, is in order behind it: then nothing of it has to be looked at again.
    fn keeps_order(&self, change: &Change<'_>) -> bool {
        let page = &self.bytes[..];
        match *change {
            // Positions of appended records stay.
            Change::Format { .. } | Change::FormatEnds { .. } => !is_append(page) || slotted::count(page) == 0,
            Change::Patch { .. } => !is_slotted(page),
            Change::InsertSlot { slot, key, .. } if is_append(page) => slot == slotted::count(page) && key.is_empty(),
            Change::InsertSlot { slot, key, .. } => {
                let upper = slotted::upper(page);
                let is_within = key >= slotted::lower(page) && (upper.is_empty() || key < upper);
                is_within && slotted::search(page, key) == Err(slot)
            }
            Change::RemoveSlot { .. } | Change::ReplaceValue { .. } | Change::PatchValue { .. } => !is_append(page),
        }
    }

    /// Whether a restructuring makes such a change: of records it moves all that a page has, and of inner nodes the first entry stays.
    fn may_restructure(&self, change: &Change<'_>) -> bool {
        let is_inner = is_node(&self.bytes) && slotted::level(&self.bytes) > 0;
        match *change {
            Change::Format { kind, .. } | Change::FormatEnds { kind, .. } => self.may_become(kind),
            Change::Patch { .. } => header::kind(&self.bytes) == Some(PageKind::Allocator),
            Change::InsertSlot { slot, key, value } => {
                let is_within = key.len() <= b_tree::key_len_max(self.bytes.len());
                is_inner && slot > 0 && is_within && value.len() == b_tree::CHILD_SIZE
            }
            Change::RemoveSlot { slot } => is_inner && slot > 0,
            Change::ReplaceValue { .. } | Change::PatchValue { .. } => false,
        }
    }

    /// Whether a restructuring makes it such a page: the first one of a partition stays what it is, and so do those of objects that are found
    /// by number.
    fn may_become(&self, kind: PageKind) -> bool {
        let number = header::id(&self.bytes).number;
        match (self.organization, kind) {
            (Organization::BTree, PageKind::Node) => number >= b_tree::ROOT,
            (Organization::BTree, PageKind::Overflow | PageKind::Free) => number > b_tree::ROOT,
            (Organization::Append { .. }, PageKind::Append) => number > 0,
            _ => false,
        }
    }

    /// Whether these bytes are what has come of it, wherever the log has its changes.
    pub fn has_become(&mut self, bytes: &[u8]) -> bool {
        self.make_last();
        let own = self.bytes.to_mut();
        header::set_lsn(own, header::lsn(bytes));
        header::seal(own);
        own.as_slice() == bytes
    }
}

fn is_append(page: &[u8]) -> bool {
    header::kind(page) == Some(PageKind::Append)
}

fn is_node(page: &[u8]) -> bool {
    header::kind(page) == Some(PageKind::Node)
}

fn is_slotted(page: &[u8]) -> bool {
    is_append(page) || is_node(page)
}

/// Whether it has slots and heap, which are in order, and in them what nodes write.
fn is_in_order(page: &[u8]) -> bool {
    if is_append(page) {
        return slotted::inspect(page).is_empty();
    }
    is_node(page) && slotted::inspect(page).is_empty() && is_within_limits(page) && has_children(page)
}

/// Whether a node whose slots are in order is a leaf, or has children, by keys that are in order.
fn has_children(page: &[u8]) -> bool {
    if slotted::level(page) == 0 {
        return true;
    }
    // Its fences are taken to be right before its children are asked for.
    let (lower, upper) = (slotted::lower(page).to_vec(), slotted::upper(page).to_vec());
    b_tree::check_node(page, header::id(page), &Expected { level: None, lower, upper }).is_ok()
}

/// Whether such a node has keys and fences within the limits, and, if it is a leaf, values that a node writes.
fn is_within_limits(page: &[u8]) -> bool {
    let key_max = b_tree::key_len_max(page.len());
    let is_kept = |slot: u16| {
        let key_len = slotted::key_len(page, slot);
        key_len <= key_max && (slotted::level(page) > 0 || is_kept_beside(page, key_len, slotted::value(page, slot)))
    };
    let fences_are_kept = slotted::lower(page).len() <= key_max && slotted::upper(page).len() <= key_max;
    fences_are_kept && (0..slotted::count(page)).all(is_kept)
}

/// Whether `undo` makes of the page, if it is here, what it was before the edit, which fits it.
pub(super) fn takes_back(undo: &Undo<'_>, edit: &Edit<'_>, page: Option<&[u8]>) -> bool {
    if canary::is_planted(Canary::BelievedUndo) {
        return true;
    }
    let is_of_page =
        |id: PageId, kind: PageKind| id == edit.page && page.is_none_or(|page| header::kind(page) == Some(kind));
    let is_of_leaf =
        undo.partition() == edit.page.partition && page.is_none_or(|page| is_node(page) && slotted::level(page) == 0);
    match (*undo, edit.change) {
        (Undo::Remove { key, .. }, Change::InsertSlot { key: inserted, value, .. }) => {
            is_of_leaf && key == inserted && page.is_none_or(|page| is_kept_in_leaf(page, key, value))
        }
        (Undo::Insert { key, value, .. }, Change::RemoveSlot { slot }) => {
            is_of_leaf && page.is_none_or(|page| has_record(page, slot, key, |old| old == value))
        }
        (Undo::Replace { key, value, .. }, Change::ReplaceValue { slot, value: new }) => {
            let is_right =
                |page: &[u8]| has_record(page, slot, key, |old| old == value) && is_kept_in_leaf(page, key, new);
            is_of_leaf && page.is_none_or(is_right)
        }
        (Undo::PatchValue { key, offset, bytes, .. }, Change::PatchValue { slot, offset: at, bytes: new }) => {
            let part = usize::from(offset)..usize::from(offset) + bytes.len();
            let is_same_part = offset == at && bytes.len() == new.len() && part.start >= VERSION_SIZE;
            let has_old = |old: &[u8]| old.get(part.clone()) == Some(bytes) && !stored::is_long(old);
            is_of_leaf && is_same_part && page.is_none_or(|page| has_record(page, slot, key, has_old))
        }
        (Undo::PatchPage { page: of, offset, bytes }, Change::Patch { offset: at, bytes: new }) => {
            let part = usize::from(offset)..usize::from(offset) + bytes.len();
            let is_same_part = offset == at && bytes.len() == new.len();
            is_of_page(of, PageKind::Direct) && is_same_part && page.is_none_or(|page| page.get(part) == Some(bytes))
        }
        (Undo::EraseAppended { page: of, slot }, Change::InsertSlot { slot: at, value, .. }) => {
            is_of_page(of, PageKind::Append) && slot == at && value.first() == Some(&LIVE)
        }
        _ => false,
    }
}

/// Whether a value of this key is one that a node writes: it, or where its pages begin, is in the leaf, and within the limits, so that it
/// can always come back there.
fn is_kept_in_leaf(page: &[u8], key: &[u8], value: &[u8]) -> bool {
    is_kept_beside(page, key.len(), value)
}

/// The same of the length of its key.
fn is_kept_beside(page: &[u8], key_len: usize, value: &[u8]) -> bool {
    let is_within = || value.len() <= b_tree::value_len_max(page.len(), key_len);
    key_len <= b_tree::key_len_max(page.len()) && is_within() && is_value(value)
}

/// Whether the leaf has such a record there.
fn has_record(page: &[u8], slot: u16, key: &[u8], is_old: impl Fn(&[u8]) -> bool) -> bool {
    let (mut present, value) = (Vec::new(), slotted::value(page, slot));
    slotted::key_into(page, slot, &mut present);
    present == key && is_value(value) && is_old(value)
}

/// Whether it is a stored value.
fn is_value(value: &[u8]) -> bool {
    stored::is_sound(value)
        && match stored::read(value) {
            Stored::Here(_) => true,
            Stored::Elsewhere(length, first) => (1..=VALUE_LEN_MAX).contains(&length) && first > b_tree::ROOT,
        }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::PartitionId;

    #[test]
    fn the_first_change_of_a_page_is_tried_without_a_copy_and_the_second_on_what_it_leaves() {
        let id = PageId::new(PartitionId(3), 7);
        let mut present = vec![0; 512];
        header::format(&mut present, id);
        header::set_kind(&mut present, PageKind::Direct);
        let organization = Organization::Direct { objects: 1000, blocking_factor: 8, record_size: 32 };
        let mut tried = TriedPage::new(&present, organization, (false, false));
        let offset = HEADER_SIZE as u16;
        let mut change = |sequence, old: &[u8], new: &'static [u8]| {
            let edit = Edit { page: id, change: Change::Patch { offset, bytes: new } };
            let is_tried =
                tried.try_change(sequence, &edit, Some(&Undo::PatchPage { page: id, offset, bytes: old }), 0);
            (is_tried.is_ok(), matches!(tried.bytes, Cow::Borrowed(_)))
        };
        assert_eq!(change(1, &[1], &[5]), (false, true), "that was never there");
        assert_eq!(change(1, &[0], &[5]), (true, true));
        assert_eq!(change(2, &[0], &[6]), (false, false), "that is there no longer");
        assert_eq!(change(2, &[5], &[6]), (true, false));
        assert_eq!(tried.sequence_in_order(), None, "it has no slots");
        assert_eq!((header::sequence(&present), present[HEADER_SIZE]), (0, 0), "a page in use is not changed");
    }
}
