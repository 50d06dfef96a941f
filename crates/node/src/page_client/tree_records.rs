//! Records of b-trees of which a transaction wants no more than one: by way of a copy of their leaf, or by locks of their own while several nodes
//! want different records of the leaf, as with objects (`objects.rs`).
//!
//! What goes on without the leaf are reads, and changes of values that stay as long as they are: whatever else changes a leaf moves its records,
//! and takes all of it. So the ways to a leaf are those that its parents show, which are locked whole; and where the root is the only leaf, it is
//! one as long as a record of it is locked.

use super::PageTransaction;
use super::view::{Intent, LockedPages};
use crate::client::Granule;
use crate::leaf_records;
use base::{PageId, PartitionId};
use engine::Result;
use engine::canary::{self, Canary};
use engine::log::record::Body;
use engine::organization::b_tree;
use engine::organization::b_tree::stored::{self, Stored, VERSION_SIZE};
use engine::page::{Change, Edit, Pages, slotted};
use engine::undo::Undo;
use structures::Need;
use structures::difference::difference;

/// Pages on the way to a leaf: itself, where it is the root, is not locked by that.
struct Descent<'a>(&'a LockedPages<'a>);

impl Pages for Descent<'_> {
    fn page(&self, id: PageId) -> std::result::Result<&[u8], Need> {
        match self.0.peek(id) {
            Some(page) if leaf_records::is_leaf(page) => Ok(page),
            _ => self.0.page(id),
        }
    }

    fn write_permission(&self, id: PageId) -> std::result::Result<(), Need> {
        self.0.write_permission(id)
    }

    fn capacity(&self, partition: PartitionId) -> u32 {
        self.0.capacity(partition)
    }

    fn page_size(&self, partition: PartitionId) -> usize {
        self.0.page_size(partition)
    }
}

impl PageTransaction {
    /// The stored value of `key`, if there is one; of one that will probably be changed if `is_for_update`.
    pub(super) async fn read_stored(
        &mut self,
        partition: PartitionId,
        key: &[u8],
        is_for_update: bool,
    ) -> Result<Option<Vec<u8>>> {
        let intent = if is_for_update { Intent::Change } else { Intent::Read };
        while self.may_fall() {
            let leaf = self.leaf_for_record(partition, key).await?;
            if self.granule(leaf) == Granule::Record {
                let bytes = self.records_alone(leaf, key, is_for_update).await?;
                let found = leaf_records::find(&bytes, key).map(|found| (found.slot, bytes[found.value].to_vec()));
                return Ok(self.charged(leaf, found));
            }
            if self.bring_leaf(leaf, intent).await? && self.is_leaf(leaf).await? {
                let found = |page: &[u8]| on_leaf(page, key).map(|(slot, stored)| (slot, stored.to_vec()));
                let found = self.with_page(leaf, found);
                if !canary::is_planted(Canary::UnnotedKey) {
                    self.note_record(leaf, (leaf_records::number_of(key), false));
                }
                return Ok(self.charged(leaf, found));
            }
        }
        let found = self.resolve(intent, |pages| {
            let (place, leaf) = b_tree::find(pages.to_search(), partition, key)?;
            Ok((place.page, place.exact.then(|| (place.slot, slotted::value(leaf, place.slot).to_vec()))))
        });
        let (leaf, found) = found.await?;
        Ok(self.charged(leaf, found))
    }

    /// Shows the stored value of `key`, if there is one, which is locked for a change, to `change`, and gives it what that makes of it: as many
    /// bytes, if any.
    pub(super) async fn change_stored<R>(
        &mut self,
        partition: PartitionId,
        key: &[u8],
        change: impl FnOnce(Option<&[u8]>) -> (Option<Vec<u8>>, R),
    ) -> Result<R> {
        while self.may_fall() {
            let leaf = self.leaf_for_record(partition, key).await?;
            if self.granule(leaf) == Granule::Record {
                let bytes = self.records_alone(leaf, key, true).await?;
                let found = leaf_records::find(&bytes, key).map(|found| (found.slot, &bytes[found.value]));
                self.charge(leaf, found);
                let (new, answer) = change(found.map(|(_, old)| old));
                new.inspect(|new| self.patch_alone(leaf, key, bytes, new));
                return Ok(answer);
            }
            if self.lock_leaf(leaf).await? && self.is_leaf(leaf).await? {
                let found = |page: &[u8]| on_leaf(page, key).map(|(slot, stored)| (slot, stored.to_vec()));
                let found = self.with_page(leaf, found);
                self.charge(leaf, found.as_ref().map(|(slot, old)| (*slot, &old[..])));
                let answer = self.change_on_leaf(leaf, key, found, change);
                self.note_record(leaf, (leaf_records::number_of(key), true));
                return Ok(answer);
            }
        }
        let found = self.find_to_change(partition, key).await?;
        let leaf = found.as_ref().map_or_else(PageId::default, |(place, _)| place.page);
        Ok(self.change_on_leaf(leaf, key, found.map(|(place, old)| (place.slot, old)), change))
    }

    fn change_on_leaf<R>(
        &mut self,
        leaf: PageId,
        key: &[u8],
        found: Option<(u16, Vec<u8>)>,
        change: impl FnOnce(Option<&[u8]>) -> (Option<Vec<u8>>, R),
    ) -> R {
        let (new, answer) = change(found.as_ref().map(|(_, old)| &old[..]));
        if let (Some((slot, old)), Some(new)) = (found, new) {
            self.patch_on_leaf((leaf, slot), key, &old, &new);
        }
        answer
    }

    /// Whether its server is known to have locks fall to records: until it is, records are not noted, and leaves are used whole.
    pub(super) fn may_fall(&self) -> bool {
        self.client.protocol.borrow().may_see_falls()
    }

    /// Gives the record of `key` this value if it has one that is as long and not elsewhere. False otherwise.
    pub(super) async fn overwrite(&mut self, partition: PartitionId, key: &[u8], value: &[u8]) -> Result<bool> {
        let overwritten = |old: Option<&[u8]>| {
            let is_alike = |old: &&[u8]| matches!(stored::read(old), Stored::Here(old) if old.len() == value.len());
            let new = old.filter(is_alike).map(|old| [&old[..VERSION_SIZE], value].concat());
            let is_done = new.is_some();
            (new, is_done)
        };
        self.change_stored(partition, key, overwritten).await
    }

    /// A stored value was looked for in a leaf: this is charged.
    fn charge(&self, leaf: PageId, found: Option<(u16, &[u8])>) {
        let (slot, length) = found.map_or((0, 0), |(slot, stored)| (slot, stored.len()));
        self.client.charge_value(leaf, slot, length);
    }

    fn charged(&self, leaf: PageId, found: Option<(u16, Vec<u8>)>) -> Option<Vec<u8>> {
        self.charge(leaf, found.as_ref().map(|(slot, stored)| (*slot, &stored[..])));
        found.map(|(_, stored)| stored)
    }

    /// The leaf of a key, whose way there is locked; or the root, if what it is shows only when it is here.
    async fn leaf_for_record(&mut self, partition: PartitionId, key: &[u8]) -> Result<PageId> {
        let root = PageId::new(partition, b_tree::ROOT);
        self.resolve(Intent::Read, |pages| {
            if pages.peek(root).is_none() && !pages.has_whole(root) {
                return Ok(root);
            }
            b_tree::leaf_of(&Descent(pages.to_search()), partition, key)
        })
        .await
    }

    /// Has a leaf here, locked in the node for a look at a record of it. False if it is to come to that in another way by now.
    async fn bring_leaf(&mut self, leaf: PageId, intent: Intent) -> Result<bool> {
        loop {
            let mode = self.mode(intent, leaf);
            if !self.bring_for_records(leaf, mode).await? {
                return Ok(false);
            }
            // What it is may show only now that it is here.
            if self.mode(intent, leaf) == mode {
                return Ok(true);
            }
        }
    }

    /// The same, for a change. The root is locked so when it is known to be a leaf.
    async fn lock_leaf(&mut self, leaf: PageId) -> Result<bool> {
        let is_root = leaf.number == b_tree::ROOT;
        if is_root && !(self.bring_leaf(leaf, Intent::Change).await? && self.is_leaf(leaf).await?) {
            return Ok(false);
        }
        self.lock_for_records(leaf).await
    }

    /// Whether a page, which is here and locked, is a leaf. If the root is none, all of it is used. Another page that is none is not what its
    /// parent says.
    async fn is_leaf(&mut self, page: PageId) -> Result<bool> {
        if self.client.buffer.pool().borrow().peek(page).is_some_and(leaf_records::is_leaf) {
            return Ok(true);
        }
        if page.number == b_tree::ROOT {
            let is_whole = self.client.protocol.borrow_mut().use_page(self.transaction, page);
            debug_assert!(is_whole, "it has come by way of the page");
            return Ok(false);
        }
        // It is said what is wrong with it.
        self.resolve(Intent::Read, |pages| b_tree::find_in(pages, page, &[]).map(drop)).await?;
        Ok(false)
    }

    /// Records of a leaf that have the number of a key, by a lock of their own.
    async fn records_alone(&mut self, leaf: PageId, key: &[u8], writes: bool) -> Result<Vec<u8>> {
        let number = leaf_records::number_of(key);
        self.record((leaf, number), writes, |bytes| leaf_records::are_sound(bytes, number)).await
    }

    /// Changes the stored value of a record on its leaf, which is here and locked.
    fn patch_on_leaf(&mut self, (leaf, slot): (PageId, u16), key: &[u8], old: &[u8], new: &[u8]) {
        let Some((from, to)) = difference(old, new) else { return };
        let (undo, change) = patch(leaf.partition, key, slot, from as u16, (&old[from..to], &new[from..to]));
        self.apply(&Body::Update(&undo.stored()), &[Edit { page: leaf, change }]);
    }

    /// The same of one of which it has the lock, among these that have come with it.
    fn patch_alone(&mut self, leaf: PageId, key: &[u8], mut picked: Vec<u8>, new: &[u8]) {
        let Some(found) = leaf_records::find(&picked, key) else { return };
        let old = picked[found.value.clone()].to_vec();
        let Some((from, to)) = difference(&old, new) else { return };
        let (undo, change) = patch(leaf.partition, key, found.slot, from as u16, (&old[from..to], &new[from..to]));
        let place = usize::from(found.place) + from;
        self.apply_alone((&undo, &Edit { page: leaf, change }), (place, &old[from..to]));
        picked[found.value].copy_from_slice(new);
        self.work.borrow_mut().objects.insert((leaf, leaf_records::number_of(key)), picked);
    }
}

/// The slot of a key on a leaf, and its stored value.
fn on_leaf<'a>(leaf: &'a [u8], key: &[u8]) -> Option<(u16, &'a [u8])> {
    slotted::search(leaf, key).ok().map(|slot| (slot, slotted::value(leaf, slot)))
}

/// A change of a part of a value, and what takes it back.
fn patch<'a>(
    partition: PartitionId,
    key: &'a [u8],
    slot: u16,
    offset: u16,
    (old, new): (&'a [u8], &'a [u8]),
) -> (Undo<'a>, Change<'a>) {
    (Undo::PatchValue { partition, key, offset, bytes: old }, Change::PatchValue { slot, offset, bytes: new })
}
