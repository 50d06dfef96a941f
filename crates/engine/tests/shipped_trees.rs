//! Another node's restructurings of trees: they come with its updates, or go with them.

use base::{PageId, PartitionId, Random};
use entresol_engine::buffer::Pins;
use entresol_engine::log::record::{self, Body};
use entresol_engine::organization::b_tree::{self, stored};
use entresol_engine::page::{Change, Edit, OwnedEdit, Pages, header};
use entresol_engine::second_level::design::Pattern;
use entresol_engine::undo::Undo;
use entresol_engine::{Database, Direction, Error, Need, PartitionSpec, Result};
use std::collections::BTreeMap;
use std::ops::Bound;
use structures::Need as PageNeed;
use virtual_driver::{FaultPlan, Media, PowerCut};

#[allow(dead_code, reason = "other tests ship other things")]
use crate::ground::shipments::{SIZE, cause, run, settings, with_images, with_records};

/// Copies of pages at a node, as it has changed them, and the records of that.
#[derive(Default)]
struct Node {
    pages: BTreeMap<PageId, Vec<u8>>,
    changed: Vec<PageId>,
    records: Vec<u8>,
}

impl Pages for Node {
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

impl Node {
    /// Calls this until it lacks nothing, fetching pages from the database in between.
    async fn ask<T>(
        &mut self,
        database: &Database,
        ask: impl Fn(&Node) -> std::result::Result<T, PageNeed>,
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

    fn apply(&mut self, body: &Body<'_>, edits: &[Edit<'_>]) {
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

    async fn insert(&mut self, database: &Database, tree: PartitionId, key: &[u8], value: &[u8]) -> Result<()> {
        let mut kept = Vec::new();
        stored::store_here(value, &mut kept);
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
        let change = Change::InsertSlot { slot: place.slot, key, value: &kept };
        self.apply(&Body::Update(&undo), &[Edit { page: place.page, change }]);
        Ok(())
    }

    async fn commit(mut self, database: &Database, sends_pages: bool) -> Result<()> {
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

fn spacious() -> entresol_engine::Settings {
    let mut settings = settings();
    settings.buffer.frames = 200;
    settings
}

/// The power goes at each event of the commit of a transaction of another node that divides the root, inner nodes and leaves.
fn commit_and_cut(sends_pages: bool) {
    let key = |number: u32| format!("key {:04}", number * 7 % 300).into_bytes();
    let (mut committed, mut lost) = (0, 0);
    for event in 1.. {
        let media = Media::new();
        let prepared = run(&media, FaultPlan::default(), async |executor| {
            let database = Database::create(executor, spacious()).await?;
            database.create_partition(PartitionSpec::b_tree("tree")).await?;
            database.close().await
        });
        prepared.expect("the machine goes on").expect("it is created");
        let faults = FaultPlan { power_cut_at: Some(event), ..FaultPlan::default() };
        let done = run(&media, faults, async |executor| {
            let database = Database::open(executor, spacious(), "here").await?;
            let (tree, mut node) = (database.partition("tree")?, Node::default());
            for number in 0..300 {
                node.insert(&database, tree, &key(number), &[number as u8; 40]).await?;
            }
            node.commit(&database, sends_pages).await
        });
        media.power_cut(&mut Random::stream(event, "shipped trees"), &PowerCut::default());
        let found = run(&media, FaultPlan::default(), async |executor| {
            let database = Database::open(executor, spacious(), "here").await?;
            let report = database.check(|_| {}).await?;
            assert!(report.is_clean(), "event {event}: {:?}", report.findings);
            let (tree, mut found) = (database.partition("tree")?, 0);
            let mut tx = database.begin().await?;
            let mut cursor = tx.cursor(tree, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
            while tx.next(&mut cursor).await?.is_some() {
                found += 1;
            }
            tx.rollback().await?;
            database.close().await?;
            Ok::<_, Error>(found)
        });
        let found = found.expect("the machine goes on").unwrap_or_else(|error| panic!("event {event}: {error}"));
        assert!(found == 0 || found == 300, "event {event}: {found}");
        committed += u32::from(found > 0);
        lost += u32::from(found == 0);
        match done {
            Ok(Ok(())) => {
                assert_eq!(found, 300, "it is durable");
                break;
            }
            Ok(Err(error)) => panic!("event {event}: {error}"),
            Err(_) => {}
        }
    }
    assert!(committed > 0 && lost > 10, "{committed} {lost}");
}

#[test]
fn a_tree_is_sound_whenever_the_power_goes_in_a_commit_that_divides_its_nodes() {
    commit_and_cut(true);
}

#[test]
fn a_tree_is_sound_whenever_the_power_goes_in_a_commit_whose_records_are_redone() {
    commit_and_cut(false);
}
