// Copies of pages on which another node makes its changes, as organizations plan them.

use super::shipments::{SIZE, add_change, cause, settings, with_images, with_records};
use base::{PageId, PartitionId};
use entresol_engine::buffer::Pins;
use entresol_engine::log::record::{self, Body};
use entresol_engine::organization::allocator;
use entresol_engine::organization::b_tree::{self, overflow, stored};
use entresol_engine::page::{Change, Edit, OwnedEdit, Pages, header, slotted};
use entresol_engine::second_level::design::Pattern;
use entresol_engine::undo::Undo;
use entresol_engine::{Database, Internals, Need, Result, Settings, UNNUMBERED};
use std::collections::BTreeMap;
use structures::Need as PageNeed;

/// Copies of pages at a node, as it has changed them, and the records of that.
#[derive(Default)]
pub struct CopiedPages {
    pages: BTreeMap<PageId, Vec<u8>>,
    changed: Vec<PageId>,
    records: Vec<u8>,
}

impl Pages for CopiedPages {
    fn page(&self, id: PageId) -> std::result::Result<&[u8], PageNeed> {
        self.pages.get(&id).map(Vec::as_slice).ok_or(PageNeed::Page(id))
    }

    fn capacity(&self, _: PartitionId) -> u32 {
        u32::MAX
    }

    fn page_size(&self, _: PartitionId) -> usize {
        SIZE
    }
}

impl CopiedPages {
    /// Calls this until it lacks nothing, fetching pages from the database in between.
    pub async fn ask<T>(
        &mut self,
        database: &Database,
        ask: impl Fn(&CopiedPages) -> std::result::Result<T, PageNeed>,
    ) -> Result<T> {
        loop {
            let page = match ask(self) {
                Ok(answer) => return Ok(answer),
                Err(PageNeed::Page(page)) => page,
                Err(need) => panic!("{need:?}"),
            };
            let mut pins = Pins::new(database.buffer());
            if page.number >= database.buffer().space(page.partition).capacity() {
                database.buffer().resolve(Need::Space(page.partition), Pattern::Random, &mut pins).await?;
            }
            database.buffer().resolve(Need::Page(page), Pattern::Random, &mut pins).await?;
            let pool = database.buffer().pool().borrow();
            self.pages.insert(page, pool.bytes(pool.frame_in_use(page)).to_vec());
        }
    }

    pub fn apply(&mut self, body: &Body<'_>, edits: &[Edit<'_>]) {
        let mut numbered = Vec::new();
        for edit in edits {
            let page = self.pages.get_mut(&edit.page).expect("it was fetched");
            numbered.push((header::sequence(page) + 1, edit));
            edit.change.apply(page, base::Lsn::ZERO);
            header::seal(page);
            self.changed.push(edit.page);
        }
        record::encode(base::TransactionId::SYSTEM, body, numbered, &mut self.records);
    }

    pub async fn insert(&mut self, database: &Database, tree: PartitionId, key: &[u8], value: &[u8]) -> Result<()> {
        let mut kept = Vec::new();
        stored::store_here(value, &mut kept);
        self.insert_stored(database, tree, key, &kept).await
    }

    /// Inserts a record with a value that is stored so.
    pub async fn insert_stored(
        &mut self,
        database: &Database,
        tree: PartitionId,
        key: &[u8],
        kept: &[u8],
    ) -> Result<()> {
        loop {
            let plan = self.ask(database, |node| {
                let plan = b_tree::make_room(node, tree, key, kept.len())?;
                plan.iter().flatten().try_for_each(|edit| node.page(edit.page).map(drop))?;
                Ok(plan)
            });
            let Some(plan) = plan.await? else { break };
            let edits: Vec<Edit<'_>> = plan.iter().map(OwnedEdit::as_edit).collect();
            self.apply(&Body::System, &edits);
        }
        let place = self.ask(database, |node| b_tree::seek(node, tree, key)).await?;
        let undo = Undo::Remove { partition: tree, key }.stored();
        let change = Change::InsertSlot { slot: place.slot, key, value: kept };
        self.apply(&Body::Update(&undo), &[Edit { page: place.page, change }]);
        Ok(())
    }

    /// Makes the pages of a long value and returns its stored form.
    pub async fn store_elsewhere(&mut self, database: &Database, tree: PartitionId, value: &[u8]) -> Result<Vec<u8>> {
        let (mut next, mut end) = (0, value.len());
        while end > 0 {
            let start = overflow::tail_start(end, SIZE);
            let planned = self.ask(database, |node| {
                let (number, plan) = overflow::add(node, tree, next, &value[start..end])?;
                node.page(PageId::new(tree, number))?;
                Ok((number, plan))
            });
            let (number, plan) = planned.await?;
            self.apply(&Body::System, &plan.iter().map(OwnedEdit::as_edit).collect::<Vec<_>>());
            (next, end) = (number, start);
        }
        let mut kept = Vec::new();
        stored::store_elsewhere(value.len(), next, &mut kept);
        Ok(kept)
    }

    /// Where a record is, and its stored value.
    async fn find(&mut self, database: &Database, tree: PartitionId, key: &[u8]) -> Result<(PageId, u16, Vec<u8>)> {
        self.ask(database, |node| {
            let (place, leaf) = b_tree::find(node, tree, key)?;
            Ok((place.page, place.slot, slotted::value(leaf, place.slot).to_vec()))
        })
        .await
    }

    /// Gives a record that is there a value that is stored so. The pages of its old one are nowhere then.
    pub async fn replace(&mut self, database: &Database, tree: PartitionId, key: &[u8], kept: &[u8]) -> Result<()> {
        let (page, slot, old) = self.find(database, tree, key).await?;
        let undo = Undo::Replace { partition: tree, key, value: &old }.stored();
        self.apply(&Body::Update(&undo), &[Edit { page, change: Change::ReplaceValue { slot, value: kept } }]);
        Ok(())
    }

    /// Deletes a record that is there, and nothing of its pages.
    pub async fn delete(&mut self, database: &Database, tree: PartitionId, key: &[u8]) -> Result<()> {
        self.delete_stored(database, tree, key).await.map(drop)
    }

    /// The same; returns its stored value.
    pub async fn delete_stored(&mut self, database: &Database, tree: PartitionId, key: &[u8]) -> Result<Vec<u8>> {
        let (page, slot, old) = self.find(database, tree, key).await?;
        let undo = Undo::Insert { partition: tree, key, value: &old }.stored();
        self.apply(&Body::Update(&undo), &[Edit { page, change: Change::RemoveSlot { slot } }]);
        Ok(old)
    }

    /// Frees the pages of a long value from this one on.
    pub async fn free(&mut self, database: &Database, tree: PartitionId, first: u32) -> Result<()> {
        let mut page = PageId::new(tree, first);
        while page.number != 0 {
            let planned = self.ask(database, |node| Ok((stored::next(node, page)?, allocator::free(node, page)?)));
            let (next, plan) = planned.await?;
            self.apply(&Body::System, &plan.iter().map(OwnedEdit::as_edit).collect::<Vec<_>>());
            page.number = next;
        }
        Ok(())
    }

    /// Changes part of an object without a number for the change, as one does that has the object's lock and not its page.
    pub fn patch_object(&mut self, page: PageId, offset: u16, [before, after]: [u8; 2]) {
        let undo = Undo::PatchPage { page, offset, bytes: &[before] };
        let edit = Edit { page, change: Change::Patch { offset, bytes: &[after] } };
        add_change(Some(undo), (UNNUMBERED, edit), &mut self.records);
        self.changed.push(page);
    }

    pub async fn commit(mut self, database: &Database, sends_pages: bool) -> Result<()> {
        self.changed.sort();
        self.changed.dedup();
        if !sends_pages {
            let shipment = with_records(&self.records, &self.changed);
            return database.commit_shipped(&shipment).await.map_err(cause);
        }
        let shipped: Vec<(PageId, &[u8])> = self.changed.iter().map(|page| (*page, &self.pages[page][..])).collect();
        database.commit_shipped(&with_images(&self.records, &shipped)).await.map_err(cause)
    }
}

/// Settings with frames for all pages of a test.
pub fn spacious() -> Settings {
    let mut settings = settings();
    settings.buffer.frames = 200;
    settings
}
