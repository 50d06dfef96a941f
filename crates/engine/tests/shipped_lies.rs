//! Restructurings of a node that lies: its updates could not be taken back on what they leave. Wherever the power goes in its commit, or a
//! restore ends, the database opens, with all of that or nothing, and with what others have committed.

use crate::ground::backups;
#[cfg(feature = "canary")]
use crate::ground::planting::is_found;
use crate::ground::restoring::{backup, plain, settings as archived, to};
use crate::ground::shipments::*;
use base::{Lsn, PageId, Random};
#[cfg(feature = "canary")]
use entresol_engine::canary::Canary;
use entresol_engine::organization::b_tree::{self, stored};
use entresol_engine::page::{Change, HEADER_SIZE, PageKind, slotted};
use entresol_engine::undo::Undo;
use entresol_engine::{CommitFailure, Database, Error, Internals, PartitionSpec, RestoreTarget, Result, Settings};
use executor::Executor;
use virtual_driver::{FaultPlan, Media, PowerCut};

#[derive(Clone, Copy, Debug)]
enum Lie {
    /// A leaf is made anew without a record that was changed before.
    DroppedRecord,
    /// It is made anew with a value that is shorter than what was patched in it.
    ShortenedValue,
    /// The entry of the leaf goes out of its parent.
    RemovedEntry,
    /// The leaf is full where a record was removed, and the first page that is said to be free is in use.
    UsedPageFree,
}

/// The records of the tree.
const RECORDS: u8 = 40;
/// Where page 0 has the first free page.
const FREE_HEAD: u16 = HEADER_SIZE as u16 + 4;

/// A tree of two levels, and what others have committed.
async fn create(executor: &Executor, settings: Settings) -> Result<Database> {
    let database = Database::create(executor, settings).await?;
    create_pages(&database, "pages").await?;
    let tree = database.create_partition(PartitionSpec::b_tree("tree")).await?;
    let others = database.create_partition(PartitionSpec::b_tree("others")).await?;
    let filled = database.transaction(async |tx| {
        for key in 0..RECORDS {
            tx.put(tree, &[key], &[key; 30]).await?;
        }
        tx.put(others, b"key", b"value").await
    });
    filled.await?;
    Ok(database)
}

/// The last leaf and its parent.
struct Branch {
    root: (PageId, Vec<u8>),
    leaf: (PageId, Vec<u8>),
}

impl Branch {
    async fn find(database: &Database) -> Result<Branch> {
        let id = PageId::new(database.partition("tree")?, b_tree::ROOT);
        let root = contents(database, id).await?;
        assert_eq!(slotted::level(&root), 1);
        let leaf = PageId { number: b_tree::child(&root, slotted::count(&root) - 1), ..id };
        Ok(Branch { root: (id, root), leaf: (leaf, contents(database, leaf).await?) })
    }

    /// The leaf as these changes would leave it.
    fn changed(&self, changes: &[Change<'_>]) -> Vec<u8> {
        let mut copy = self.leaf.1.clone();
        changes.iter().for_each(|change| change.apply(&mut copy, Lsn::ZERO));
        copy
    }

    /// The leaf without its first record, whose place others take that are as long as values in a leaf may be.
    fn filled_up(&self) -> Vec<u8> {
        let mut filled = self.changed(&[Change::RemoveSlot { slot: 0 }]);
        let removed = slotted::value(&self.leaf.1, 0).len();
        for number in RECORDS.. {
            let key = [number];
            let most = b_tree::value_len_max(filled.len(), key.len());
            let fitting = (stored::VERSION_SIZE..=most).rev().find(|length| slotted::fits(&filled, key.len(), *length));
            let Some(length) = fitting else { break };
            let value = kept(&vec![7; length - stored::VERSION_SIZE]);
            let slot = slotted::count(&filled);
            Change::InsertSlot { slot, key: &key, value: &value }.apply(&mut filled, Lsn::ZERO);
        }
        assert!(!slotted::fits(&filled, 1, removed), "nothing comes back into it");
        filled
    }
}

/// Makes a page a leaf that is as this copy.
fn as_in(copy: &[u8]) -> Change<'_> {
    Change::Format { kind: PageKind::Node, level: 0, count: slotted::count(copy), image: &copy[HEADER_SIZE..] }
}

/// Commits a change of the leaf's first record, what makes that impossible to take back, and so much behind it that the log is written in
/// several parts. Returns whether that is accepted.
async fn commit_lie(database: &Database, lie: Lie) -> Result<bool> {
    let branch = Branch::find(database).await?;
    let ((root, parent), (leaf, bytes)) = (&branch.root, &branch.leaf);
    let (root, leaf, partition) = (*root, *leaf, leaf.partition);
    let mut first = Vec::new();
    slotted::key_into(bytes, 0, &mut first);
    let (key, value, other, short) = (&first[..], slotted::value(bytes, 0), kept(&[99; 30]), kept(b""));
    let removed = branch.changed(&[Change::RemoveSlot { slot: 0 }]);
    let shortened = branch.changed(&[Change::ReplaceValue { slot: 0, value: &short }]);
    let (full, number) = (branch.filled_up(), leaf.number.to_le_bytes());
    let replace =
        (leaf, Some(Undo::Replace { partition, key, value }), Change::ReplaceValue { slot: 0, value: &other });
    let patch = Undo::PatchValue { partition, key, offset: 9, bytes: &value[9..12] };
    let mut steps: Vec<Step<'_>> = match lie {
        Lie::DroppedRecord => vec![replace, (leaf, None, as_in(&removed))],
        Lie::ShortenedValue => vec![
            (leaf, Some(patch), Change::PatchValue { slot: 0, offset: 9, bytes: b"new" }),
            (leaf, None, as_in(&shortened)),
        ],
        Lie::RemovedEntry => vec![replace, (root, None, Change::RemoveSlot { slot: slotted::count(parent) - 1 })],
        Lie::UsedPageFree => vec![
            (leaf, Some(Undo::Insert { partition, key, value }), Change::RemoveSlot { slot: 0 }),
            (leaf, None, as_in(&full)),
            (PageId { number: 0, ..leaf }, None, Change::Patch { offset: FREE_HEAD, bytes: &number }),
        ],
    };
    let object = PageId::new(database.partition("pages")?, 3);
    let overwrite = |bytes| {
        (
            object,
            Some(Undo::PatchPage { page: object, offset: 32, bytes }),
            Change::Patch { offset: 32, bytes: &[7; 400] },
        )
    };
    steps.push(overwrite(&[0; 400]));
    steps.extend(vec![overwrite(&[7; 400]); 60]);
    Ok(ship(database, &steps, false).await.is_ok())
}

/// Whether the lie is committed, by what is found. What is not is not there in part, and what others have committed is.
async fn is_committed(database: &Database) -> Result<bool> {
    let (tree, others) = (database.partition("tree")?, database.partition("others")?);
    let found = database.transaction(async |tx| tx.get(others, b"key").await).await?;
    assert_eq!(found.as_deref(), Some(&b"value"[..]));
    let is_committed = value(database, PageId::new(database.partition("pages")?, 3)).await? == 7;
    if !is_committed {
        for key in 0..RECORDS {
            let found = database.transaction(async |tx| tx.get(tree, &[key]).await).await?;
            assert_eq!(found, Some(vec![key; 30]));
        }
        let report = database.check(|_| {}).await?;
        assert!(report.is_clean(), "{:?}", report.findings);
    }
    Ok(is_committed)
}

/// An inner node becomes a leaf: its entries are page numbers, and no values of records.
#[test]
fn a_leaf_whose_values_cannot_be_read_is_refused() -> Result<()> {
    for sends_pages in [true, false] {
        whole(async |executor| {
            let database = create(executor, settings()).await?;
            let (root, bytes) = Branch::find(&database).await?.root;
            let refused = ship(&database, &[(root, None, as_in(&bytes))], sends_pages).await;
            assert!(matches!(refused, Err(CommitFailure::NothingLogged(Error::Shipment(_)))), "{refused:?}");
            assert!(!is_committed(&database).await?);
            Ok::<_, Error>(())
        })?;
    }
    Ok(())
}

/// Whether a root has a child that may be one is not seen by a restructuring itself, but by the next one of that node.
#[test]
fn no_inner_node_is_restructured_further_that_has_what_is_no_child() -> Result<()> {
    whole(async |executor| {
        let database = create(executor, settings()).await?;
        let (root, bytes) = Branch::find(&database).await?.root;
        let (itself, page) = (b_tree::ROOT.to_le_bytes(), 99_u32.to_le_bytes());
        let insert = |slot, key, value| (root, None, Change::InsertSlot { slot, key, value });
        let count = slotted::count(&bytes);
        ship(&database, &[insert(count, &[200], &page)], false).await.expect("it has room for a child more");
        ship(&database, &[insert(count + 1, &[201], &itself)], false).await.expect("it is not asked what that is");
        let refused = ship(&database, &[insert(count + 2, &[202], &page)], false).await;
        assert!(matches!(refused, Err(CommitFailure::NothingLogged(Error::Shipment(_)))), "{refused:?}");
        Ok::<_, Error>(())
    })
}

/// The power goes at each event of the commit.
fn commit_and_cut(lie: Lie) {
    let (mut committed, mut lost) = (0, 0);
    for event in 1.. {
        let media = Media::new();
        let prepared =
            run(&media, FaultPlan::default(), async |executor| create(executor, settings()).await?.close().await);
        prepared.expect("the machine goes on").expect("it is created");
        let faults = FaultPlan { power_cut_at: Some(event), ..FaultPlan::default() };
        let done = run(&media, faults, async |executor| {
            let database = Database::open(executor, settings(), "here").await?;
            commit_lie(&database, lie).await
        });
        media.power_cut(&mut Random::stream(event, "lies"), &PowerCut::default());
        let found = run(&media, FaultPlan::default(), async |executor| {
            let database = Database::open(executor, settings(), "here").await?;
            assert_eq!(database.recovery().unfinished, 0, "{lie:?}, event {event}: there is something to be undone");
            let is_committed = is_committed(&database).await?;
            database.close().await?;
            Ok::<_, Error>(is_committed)
        });
        let is_committed =
            found.expect("the machine goes on").unwrap_or_else(|error| panic!("{lie:?}, event {event}: {error}"));
        committed += u32::from(is_committed);
        lost += u32::from(!is_committed);
        if let Ok(done) = done {
            assert_eq!(done, Ok::<_, Error>(is_committed), "what is accepted is durable");
            break;
        }
    }
    assert!(committed > 0 && lost > 10, "{lie:?}: {committed} {lost}");
}

#[test]
fn a_database_opens_whatever_a_node_drops_behind_its_changes() {
    commit_and_cut(Lie::DroppedRecord);
}

#[test]
fn a_database_opens_whatever_a_node_shortens_behind_its_changes() {
    commit_and_cut(Lie::ShortenedValue);
}

#[test]
fn a_database_opens_whatever_a_node_makes_unreachable_behind_its_changes() {
    commit_and_cut(Lie::RemovedEntry);
}

#[test]
fn a_database_opens_whatever_a_node_says_is_free_behind_its_changes() {
    commit_and_cut(Lie::UsedPageFree);
}

#[test]
fn no_restore_ends_within_a_commit() {
    let restored = backups::on(&Media::new(), async |executor| {
        let database = create(executor, archived()).await?;
        database.backup(&backup(), |_| {}).await?;
        let begin = database.log().end();
        assert!(commit_lie(&database, Lie::DroppedRecord).await?);
        let end = database.log().end();
        database.close().await?;
        let step = (end.0 - begin.0) as usize / 16;
        for position in (begin.0..end.0).step_by(step).chain([end.0]) {
            let target = to(RestoreTarget::Position(Lsn(position)));
            let (database, _) = backups::restored(executor, &plain(), &target).await?;
            assert_eq!(is_committed(&database).await?, position == end.0, "{position} of {begin} to {end}");
            database.close().await?;
        }
        Ok::<_, Error>(())
    });
    restored.expect("restores");
}

#[cfg(feature = "canary")]
#[test]
fn a_commit_whose_records_are_logged_one_by_one_is_found() {
    is_found(Canary::ScatteredShipment, a_database_opens_whatever_a_node_drops_behind_its_changes);
    is_found(Canary::ScatteredShipment, no_restore_ends_within_a_commit);
}
