//! Long values that another node writes, replaces and deletes.

use crate::ground::copies::{CopiedPages, spacious};
use crate::ground::shipments::{cause, contents, create_pages, run, whole};
use base::time::SECOND_NS;
use base::{PageId, PartitionId};
use entresol_engine::organization::b_tree::{self, stored};
use entresol_engine::page::slotted;
use entresol_engine::{Database, Error, Internals, PartitionSpec, Result};
use virtual_driver::{FaultPlan, Media};

/// A value as a leaf has it whose pages begin with this one.
fn elsewhere(length: usize, first: u32) -> Vec<u8> {
    let mut stored = Vec::new();
    stored::store_elsewhere(length, first, &mut stored);
    stored
}

const LENGTH: usize = 1_000;
/// Where the long value begins that is there.
const FIRST: u32 = 4;

/// A tree with a long value.
async fn create(database: &Database) -> Result<PartitionId> {
    let tree = database.create_partition(PartitionSpec::b_tree("tree")).await?;
    database.transaction(async |tx| tx.put(tree, b"long", &[7; LENGTH]).await).await?;
    let root = contents(database, PageId::new(tree, b_tree::ROOT)).await?;
    assert_eq!(slotted::value(&root, 0), elsewhere(LENGTH, FIRST));
    Ok(tree)
}

async fn read(database: &Database, tree: PartitionId, key: &[u8]) -> Result<Option<Vec<u8>>> {
    database.transaction(async |tx| tx.get(tree, key).await).await
}

async fn check(database: &Database) -> Result<()> {
    let report = database.check(|_| {}).await?;
    assert!(report.is_clean(), "{:?}", report.findings);
    Ok(())
}

#[test]
fn a_node_writes_replaces_and_deletes_long_values() -> Result<()> {
    for sends_pages in [false, true] {
        whole(async |executor| {
            let database = Database::create(executor, spacious()).await?;
            let tree = create(&database).await?;
            let mut node = CopiedPages::default();
            let other = node.store_elsewhere(&database, tree, &[8; 2_000]).await?;
            node.insert_stored(&database, tree, b"other", &other).await?;
            let new = node.store_elsewhere(&database, tree, &[9; 700]).await?;
            node.replace(&database, tree, b"long", &new).await?;
            node.free(&database, tree, FIRST).await?;
            // Pages that are new are sent in any case.
            node.commit(&database, true).await?;
            assert_eq!(read(&database, tree, b"long").await?, Some(vec![9; 700]));
            assert_eq!(read(&database, tree, b"other").await?, Some(vec![8; 2_000]));
            check(&database).await?;
            let mut node = CopiedPages::default();
            node.delete(&database, tree, b"other").await?;
            let stored::Stored::Elsewhere(_, first) = stored::read(&other) else { panic!("it is a long one") };
            node.free(&database, tree, first).await?;
            node.commit(&database, sends_pages).await?;
            assert_eq!(read(&database, tree, b"other").await?, None);
            check(&database).await
        })?;
    }
    Ok(())
}

/// What was deleted is found at moments before, as it is when a transaction of the engine's deletes it: its pages are free by then.
#[test]
fn a_long_value_that_a_node_has_deleted_is_read_as_it_was_after_an_opening() -> Result<()> {
    let (media, mut kept) = (Media::new(), spacious());
    kept.undo.retention_ns = 3_600 * SECOND_NS;
    let created = run(&media, FaultPlan::default(), async |executor| {
        let database = Database::create(executor, kept.clone()).await?;
        let tree = create(&database).await?;
        database.transaction(async |tx| tx.put(tree, b"short", b"value").await).await?;
        let before = database.snapshot().await?.moment();
        let mut node = CopiedPages::default();
        // It is replaced by what is of no moment, and that by what is there then.
        node.replace(&database, tree, b"short", &elsewhere(5, 99)).await?;
        let between = node.store_elsewhere(&database, tree, &[8; 600]).await?;
        node.replace(&database, tree, b"short", &between).await?;
        node.delete(&database, tree, b"long").await?;
        node.free(&database, tree, FIRST).await?;
        node.commit(&database, true).await?;
        Ok::<_, Error>((tree, before))
    });
    let (tree, before) = created.expect("the machine goes on")?;
    let found = run(&media, FaultPlan::default(), async |executor| {
        let database = Database::open(executor, kept.clone(), "here").await?;
        let mut now = database.snapshot().await?;
        assert_eq!((now.get(tree, b"long").await?, now.get(tree, b"short").await?), (None, Some(vec![8; 600])));
        check(&database).await?;
        let mut past = database.as_of(before).await?;
        Ok::<_, Error>((past.get(tree, b"long").await?, past.get(tree, b"short").await?))
    });
    assert_eq!(found.expect("the machine goes on")?, (Some(vec![7; LENGTH]), Some(b"value".to_vec())));
    Ok(())
}

/// The objects of a page get their numbers here, and the former value is read before.
#[test]
fn a_commit_deletes_a_long_value_and_changes_objects_of_others_pages() -> Result<()> {
    let mut kept = spacious();
    kept.undo.retention_ns = 3_600 * SECOND_NS;
    let done = run(&Media::new(), FaultPlan::default(), async |executor| {
        let database = Database::create(executor, kept.clone()).await?;
        let tree = create(&database).await?;
        let page = PageId::new(create_pages(&database, "pages").await?, 3);
        contents(&database, page).await?;
        for (offset, is_long) in [(32, false), (40, true)] {
            let mut node = CopiedPages::default();
            if is_long {
                node.delete(&database, tree, b"long").await?;
                node.free(&database, tree, FIRST).await?;
            }
            node.patch_object(page, offset, [0, 7]);
            node.commit(&database, false).await?;
        }
        assert_eq!(read(&database, tree, b"long").await?, None);
        let bytes = contents(&database, page).await?;
        assert_eq!((bytes[32], bytes[40]), (7, 7));
        check(&database).await
    });
    done.expect("the machine goes on")
}

/// A value that is said to be somewhere else than any can be, or longer, is never written.
#[test]
fn no_value_is_committed_that_no_pages_can_have() -> Result<()> {
    whole(async |executor| {
        let database = Database::create(executor, spacious()).await?;
        let tree = create(&database).await?;
        let end = database.log().end();
        for (length, first) in [(0, FIRST), (stored::VALUE_LEN_MAX + 1, FIRST), (LENGTH, 0), (LENGTH, b_tree::ROOT)] {
            let mut node = CopiedPages::default();
            node.insert_stored(&database, tree, b"other", &elsewhere(length, first)).await?;
            let refused = node.commit(&database, true).await;
            assert!(matches!(refused, Err(Error::Shipment(_))), "{length} bytes from {first} on: {refused:?}");
            let mut node = CopiedPages::default();
            node.replace(&database, tree, b"long", &elsewhere(length, first)).await?;
            let refused = node.commit(&database, true).await;
            assert!(matches!(refused, Err(Error::Shipment(_))), "{length} bytes from {first} on: {refused:?}");
        }
        assert_eq!(database.log().end(), end, "nothing was logged");
        Ok(())
    })
}

/// A node that lies: the pages of a value lead in a circle, or to those of others. Who reads it gets an error, in the end.
#[test]
fn a_value_whose_pages_lead_nowhere_is_named() -> Result<()> {
    whole(async |executor| {
        let database = Database::create(executor, spacious()).await?;
        let tree = create(&database).await?;
        for (length, first) in [(LENGTH + 1, FIRST), (LENGTH, b_tree::ROOT + 1), (LENGTH, 9_999)] {
            let mut node = CopiedPages::default();
            node.insert_stored(&database, tree, b"other", &elsewhere(length, first)).await?;
            node.commit(&database, true).await?;
            let found = read(&database, tree, b"other").await;
            assert!(found.is_err(), "{length} bytes from {first} on: {found:?}");
            assert_eq!(read(&database, tree, b"long").await?, Some(vec![7; LENGTH]), "others are as they were");
            let mut node = CopiedPages::default();
            node.delete(&database, tree, b"other").await?;
            node.commit(&database, true).await?;
        }
        check(&database).await
    })
}

#[test]
fn a_commit_that_deletes_more_than_the_log_could_keep_is_refused() -> Result<()> {
    whole(async |executor| {
        let mut kept = spacious();
        kept.undo.retention_ns = 3_600 * SECOND_NS;
        let database = Database::create(executor, kept).await?;
        let tree = create(&database).await?;
        // It is not as long as that.
        let capacity = database.log().capacity() as usize;
        let mut node = CopiedPages::default();
        node.insert_stored(&database, tree, b"other", &elsewhere(capacity, FIRST)).await?;
        node.commit(&database, true).await?;
        let mut node = CopiedPages::default();
        node.delete(&database, tree, b"other").await?;
        let refused = node.commit(&database, true).await;
        assert!(matches!(refused, Err(Error::LogFull { .. })), "{refused:?}");
        let nothing = database.commit_shipped(&Default::default()).await;
        assert_eq!(nothing.map_err(cause), Ok::<(), Error>(()));
        Ok(())
    })
}

/// What the log keeps of values that a node deletes is no more than has been on the pages that come with that, whatever it says of them.
#[test]
fn a_commit_that_deletes_more_than_it_frees_is_refused() -> Result<()> {
    whole(async |executor| {
        let mut kept = spacious();
        kept.undo.retention_ns = 3_600 * SECOND_NS;
        let database = Database::create(executor, kept).await?;
        let tree = create(&database).await?;
        let names: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];
        let mut node = CopiedPages::default();
        for name in names {
            node.insert_stored(&database, tree, name, &elsewhere(LENGTH, FIRST)).await?;
        }
        node.commit(&database, true).await?;
        let end = database.log().end();
        for frees in [false, true] {
            let mut node = CopiedPages::default();
            for name in names {
                node.delete(&database, tree, name).await?;
            }
            if frees {
                node.free(&database, tree, FIRST).await?;
            }
            let refused = node.commit(&database, frees).await;
            assert!(matches!(refused, Err(Error::Shipment(_))), "{refused:?}");
        }
        assert_eq!(database.log().end(), end, "nothing was logged");
        Ok(())
    })
}
