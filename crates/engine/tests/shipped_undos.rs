//! What takes the updates of another node back: only what does is accepted, for an opening reads from it what was there before.

#[cfg(feature = "canary")]
use crate::ground::planting::is_found;
use crate::ground::shipments::*;
use base::{PageId, PartitionId};
#[cfg(feature = "canary")]
use entresol_engine::canary::Canary;
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::organization::b_tree;
use entresol_engine::page::{Change, PageKind, slotted};
use entresol_engine::undo::Undo;
use entresol_engine::{CommitFailure, Database, Error, Internals, PartitionSpec, Result, Settings, Transaction};
use executor::Executor;

/// The leaf of a tree with records 'b' and 'd', the tail of an append partition with one record, and an object's page.
struct Places {
    leaf: PageId,
    tail: PageId,
    object: PageId,
}

async fn create(executor: &Executor) -> Result<(Database, Places)> {
    let (database, pages) = with_pages(executor).await?;
    let tree = database.create_partition(PartitionSpec::b_tree("tree")).await?;
    let organization = Organization::Append { blocking_factor: 0 };
    let journal = database.create_partition(PartitionSpec::new("journal", organization, Locking::Page)).await?;
    let filled = database.transaction(async |tx| {
        tx.put(tree, b"b", b"two").await?;
        tx.put(tree, b"d", b"four").await?;
        tx.append(journal, b"one").await
    });
    let tail = filled.await?.page;
    Ok((database, Places { leaf: PageId::new(tree, b_tree::ROOT), tail, object: PageId::new(pages, 3) }))
}

#[test]
fn every_kind_of_update_is_committed_with_what_takes_it_back() -> Result<()> {
    for sends_pages in [false, true] {
        whole(async |executor| {
            let (database, Places { leaf, tail, object }) = create(executor).await?;
            let partition = leaf.partition;
            let (two, four, new) = (kept(b"two"), kept(b"four"), kept(b"other"));
            let steps = [
                (
                    leaf,
                    Some(Undo::Remove { partition, key: b"c" }),
                    Change::InsertSlot { slot: 1, key: b"c", value: &two },
                ),
                (
                    leaf,
                    Some(Undo::Replace { partition, key: b"b", value: &two }),
                    Change::ReplaceValue { slot: 0, value: &new },
                ),
                (leaf, Some(Undo::Insert { partition, key: b"d", value: &four }), Change::RemoveSlot { slot: 2 }),
                (
                    leaf,
                    Some(Undo::PatchValue { partition, key: b"b", offset: 9, bytes: b"th" }),
                    Change::PatchValue { slot: 0, offset: 9, bytes: b"TH" },
                ),
                (
                    tail,
                    Some(Undo::EraseAppended { page: tail, slot: 1 }),
                    Change::InsertSlot { slot: 1, key: &[], value: b"\x01two" },
                ),
                (
                    object,
                    Some(Undo::PatchPage { page: object, offset: 32, bytes: &[0; 2] }),
                    Change::Patch { offset: 32, bytes: &[7; 2] },
                ),
            ];
            ship(&database, &steps, sends_pages).await.map_err(cause)?;
            let read = |key| database.transaction(async move |tx| tx.get(partition, key).await);
            assert_eq!(read(b"b").await?.as_deref(), Some(&b"oTHer"[..]));
            assert_eq!(read(b"c").await?.as_deref(), Some(&b"two"[..]));
            assert_eq!(read(b"d").await?, None);
            assert_eq!(value(&database, object).await?, 7);
            assert!(database.check(|_| {}).await?.is_clean());
            Ok::<_, Error>(())
        })?;
    }
    Ok(())
}

/// Each of these could not be taken back, or would be taken back to something else.
fn made_up<'a>(places: &Places, parts: &'a [Vec<u8>; 4]) -> Vec<(&'static str, Vec<Step<'a>>)> {
    let Places { leaf, tail, object } = *places;
    let partition = leaf.partition;
    let [two, four, long_key, long_value] = parts;
    let insert = Change::InsertSlot { slot: 1, key: b"c", value: two };
    let append = Change::InsertSlot { slot: 1, key: &[], value: b"\x01two" };
    let replace = Change::ReplaceValue { slot: 0, value: four };
    let remove = Change::RemoveSlot { slot: 1 };
    let patch = Change::Patch { offset: 32, bytes: &[7; 2] };
    let patch_value = Change::PatchValue { slot: 0, offset: 9, bytes: b"W" };
    let of = |page, undo, change| vec![(page, Some(undo), change)];
    vec![
        ("another slot", of(tail, Undo::EraseAppended { page: tail, slot: 9_999 }, append)),
        (
            "erased from the beginning",
            of(tail, Undo::EraseAppended { page: tail, slot: 1 }, Change::InsertSlot { slot: 1, key: &[], value: b"" }),
        ),
        (
            "before others",
            of(
                tail,
                Undo::EraseAppended { page: tail, slot: 0 },
                Change::InsertSlot { slot: 0, key: &[], value: b"\x01" },
            ),
        ),
        ("erased in a tree", of(leaf, Undo::EraseAppended { page: leaf, slot: 1 }, insert)),
        ("absent key", of(leaf, Undo::Remove { partition, key: b"x" }, insert)),
        ("removed from no tree", of(tail, Undo::Remove { partition: tail.partition, key: b"" }, append)),
        (
            "wrong place",
            of(leaf, Undo::Remove { partition, key: b"c" }, Change::InsertSlot { slot: 0, key: b"c", value: two }),
        ),
        (
            "there already",
            of(leaf, Undo::Remove { partition, key: b"b" }, Change::InsertSlot { slot: 0, key: b"b", value: two }),
        ),
        (
            "long key",
            of(
                leaf,
                Undo::Remove { partition, key: long_key },
                Change::InsertSlot { slot: 2, key: long_key, value: two },
            ),
        ),
        (
            "long value",
            of(
                leaf,
                Undo::Remove { partition, key: b"c" },
                Change::InsertSlot { slot: 1, key: b"c", value: long_value },
            ),
        ),
        (
            "no value",
            of(leaf, Undo::Remove { partition, key: b"c" }, Change::InsertSlot { slot: 1, key: b"c", value: b"no" }),
        ),
        ("inserted with a long key", of(leaf, Undo::Insert { partition, key: long_key, value: four }, remove)),
        ("inserted with another value", of(leaf, Undo::Insert { partition, key: b"d", value: two }, remove)),
        ("replaced elsewhere", of(leaf, Undo::Replace { partition, key: b"d", value: two }, replace)),
        ("replaced by another", of(leaf, Undo::Replace { partition, key: b"b", value: four }, replace)),
        (
            "behind the value",
            of(leaf, Undo::PatchValue { partition, key: b"b", offset: 60_000, bytes: b"w" }, patch_value),
        ),
        ("other bytes", of(leaf, Undo::PatchValue { partition, key: b"b", offset: 9, bytes: b"W" }, patch_value)),
        ("more bytes", of(leaf, Undo::PatchValue { partition, key: b"b", offset: 9, bytes: b"wo" }, patch_value)),
        (
            "where it lies",
            of(
                leaf,
                Undo::PatchValue { partition, key: b"b", offset: 7, bytes: &[0] },
                Change::PatchValue { slot: 0, offset: 7, bytes: &[128] },
            ),
        ),
        ("a page's other bytes", of(object, Undo::PatchPage { page: object, offset: 32, bytes: &[5; 2] }, patch)),
        ("fewer of a page's bytes", of(object, Undo::PatchPage { page: object, offset: 32, bytes: &[0] }, patch)),
        ("a patched leaf", of(leaf, Undo::PatchPage { page: leaf, offset: 32, bytes: &[0; 2] }, patch)),
        ("freed", of(leaf, Undo::FreePage { page: leaf }, insert)),
        ("a record that is never undone", vec![(leaf, None, insert)]),
        ("one that goes", vec![(leaf, None, remove)]),
        (
            "records that go",
            vec![(tail, None, Change::Format { kind: PageKind::Append, level: 0, count: 0, image: &[] })],
        ),
        ("a leaf that is patched and never undone", vec![(leaf, None, patch)]),
    ]
}

/// Another node changes a value of the leaf and changes it back: the leaf is known from that, and has the records that it had.
async fn change_to_and_fro(database: &Database, leaf: PageId, sends_pages: bool) -> Result<()> {
    let patch = |old, new| {
        let undo = Undo::PatchValue { partition: leaf.partition, key: b"b", offset: 9, bytes: old };
        (leaf, Some(undo), Change::PatchValue { slot: 0, offset: 9, bytes: new })
    };
    ship(database, &[patch(b"w", b"W"), patch(b"W", b"w")], sends_pages).await.map_err(cause)
}

#[test]
fn no_update_is_committed_that_could_not_be_taken_back() -> Result<()> {
    for (sends_pages, is_known) in [(false, false), (false, true), (true, false), (true, true)] {
        whole(async |executor| {
            let (database, places) = create(executor).await?;
            if is_known {
                change_to_and_fro(&database, places.leaf, sends_pages).await?;
            }
            let parts = [kept(b"two"), kept(b"four"), vec![b'e'; 200], kept(&[7; 200])];
            let end = database.log().end();
            for (what, steps) in made_up(&places, &parts) {
                let refused = ship(&database, &steps, sends_pages).await;
                assert!(
                    matches!(refused, Err(CommitFailure::NothingLogged(Error::Shipment(_)))),
                    "{what}, with pages: {sends_pages}, known: {is_known}: {refused:?}"
                );
            }
            assert_eq!(database.log().end(), end, "nothing was logged");
            change_to_and_fro(&database, places.leaf, sends_pages).await?;
            assert!(database.check(|_| {}).await?.is_clean());
            Ok::<_, Error>(())
        })?;
    }
    Ok(())
}

#[cfg(feature = "canary")]
#[test]
fn an_undo_that_is_believed_is_found() {
    is_found(Canary::BelievedUndo, || no_update_is_committed_that_could_not_be_taken_back().expect("works"));
}

/// Changes of one leaf of 64 KiB that is full, so that each second one moves all of its records.
async fn move_records(database: &Database, tree: PartitionId, times: usize) -> std::result::Result<(), CommitFailure> {
    let leaf = PageId::new(tree, b_tree::ROOT);
    let page = contents(database, leaf).await.map_err(CommitFailure::NothingLogged)?;
    let (long, short) = (kept(&[1; 20]), kept(&[1; 10]));
    let key: &[u8] = b"a";
    assert_eq!((slotted::value(&page, 0), slotted::room(&page) < 10), (&long[..], true));
    let undo = |value| Some(Undo::Replace { partition: tree, key, value });
    let pair = [
        (leaf, undo(&long), Change::ReplaceValue { slot: 0, value: &short }),
        (leaf, undo(&short), Change::ReplaceValue { slot: 0, value: &long }),
    ];
    ship(database, &pair.repeat(times), false).await
}

/// A database with pages of 64 KiB.
const PAGE: usize = 64 << 10;

fn large() -> Settings {
    let mut large = settings();
    large.buffer.page_size = PAGE;
    large.log.capacity = 64 << 20;
    large
}

#[test]
fn no_commit_moves_slots_for_long() -> Result<()> {
    whole(async |executor| {
        let database = Database::create(executor, large()).await?;
        let tree = database.create_partition(PartitionSpec::b_tree("tree")).await?;
        let fill = async |tx: &mut Transaction| {
            for key in 0_u16..2_000 {
                tx.put(tree, &[&b"b"[..], &key.to_be_bytes()].concat(), b"").await?;
            }
            Ok::<(), Error>(())
        };
        database.transaction(fill).await?;
        let (leaf, end, nothing) = (PageId::new(tree, b_tree::ROOT), database.log().end(), kept(b""));
        assert!(slotted::count(&contents(&database, leaf).await?) == 2_000, "all are in one leaf");
        let (key, there): (&[u8], &[u8]) = (b"a", &nothing);
        let pair = [
            (leaf, Some(Undo::Remove { partition: tree, key }), Change::InsertSlot { slot: 0, key, value: there }),
            (leaf, Some(Undo::Insert { partition: tree, key, value: there }), Change::RemoveSlot { slot: 0 }),
        ];
        // Each time some 24 KB of slots move to and fro.
        ship(&database, &pair.repeat(10_000), false).await.map_err(cause)?;
        let end_of_pairs = database.log().end();
        assert!(end_of_pairs > end);
        let refused = ship(&database, &pair.repeat(200_000), false).await.expect_err("it moves too much");
        assert!(refused.to_string().contains("commit more often"), "{refused}");
        assert_eq!(database.log().end(), end_of_pairs, "nothing was logged");
        Ok(())
    })
}

#[test]
fn no_commit_moves_records_for_long() -> Result<()> {
    whole(async |executor| {
        let database = Database::create(executor, large()).await?;
        let tree = database.create_partition(PartitionSpec::b_tree("tree")).await?;
        database
            .transaction(async |tx| {
                tx.put(tree, b"a", &[1; 20]).await?;
                for key in 0_u8..9 {
                    tx.put(tree, &[b'b', key], &[2; 7_000]).await?;
                }
                let leaf = contents(&database, PageId::new(tree, b_tree::ROOT)).await?;
                tx.put(tree, b"c", &vec![3; slotted::room(&leaf) - slotted::entry_size(0, 1, 8)]).await
            })
            .await?;
        let moves_max = (1 << 30) / PAGE;
        let end = database.log().end();
        let refused = move_records(&database, tree, moves_max + 1).await.expect_err("it moves too much");
        assert!(refused.to_string().contains("commit more often"), "{refused}");
        assert_eq!(database.log().end(), end, "nothing was logged");
        move_records(&database, tree, moves_max).await.map_err(cause)
    })
}
