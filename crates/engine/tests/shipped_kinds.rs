//! What a restructuring of another node makes of pages: what partitions of their organization have, and sound.

use crate::ground::copies::{CopiedPages, spacious};
use crate::ground::shipments::*;
use crate::ground::things::record as thing_type;
use base::PageId;
use entresol_engine::log::record;
use entresol_engine::organization::b_tree::{self, stored};
use entresol_engine::page::{Change, OwnedChange, PageKind, slotted};
use entresol_engine::set::{FieldError, FieldValue};
use entresol_engine::{CommitFailure, Database, Error, Internals, PartitionSpec, Result, Shipment, Transaction};

fn format(kind: PageKind, image: &[u8]) -> Change<'_> {
    Change::Format { kind, level: 0, count: 0, image }
}

async fn refuse(database: &Database, what: &str, page: PageId, change: Change<'_>) -> Result<()> {
    let before = contents(database, page).await?;
    for sends_pages in [false, true] {
        let refused = ship(database, &[(page, None, change)], sends_pages).await;
        let is_refused = matches!(&refused, Err(CommitFailure::NothingLogged(Error::Shipment(_))));
        assert!(is_refused, "{what}, with pages: {sends_pages}: {refused:?}");
        assert_eq!(contents(database, page).await?, before, "{what}");
    }
    Ok(())
}

#[test]
fn no_page_becomes_what_its_partition_has_none_of() -> Result<()> {
    whole(async |executor| {
        let (database, pages) = with_pages(executor).await?;
        let tree = database.create_partition(PartitionSpec::b_tree("tree")).await?;
        let log = database.create_partition(PartitionSpec::append("log")).await?;
        let filled = async |tx: &mut Transaction| {
            tx.put(tree, b"long", &[7; 3_000]).await?;
            tx.append(log, b"record").await
        };
        let tail = database.transaction(filled).await?.page;
        let (root, part) = (PageId::new(tree, b_tree::ROOT), PageId::new(tree, 2));
        let first = |partition| PageId::new(partition, 0);
        let object = PageId::new(pages, 3);
        use PageKind::{Allocator, Append, Direct, Free, Node, Overflow};
        for kind in [Allocator, Append, Direct, Free, Node, Overflow] {
            refuse(&database, "a page of objects", object, format(kind, &[])).await?;
            refuse(&database, "the first page of a tree", first(tree), format(kind, &[])).await?;
            refuse(&database, "the first page of a log", first(log), format(kind, &[])).await?;
        }
        for kind in [Allocator, Append, Direct] {
            refuse(&database, "a page of a tree", part, format(kind, &[])).await?;
        }
        for kind in [Free, Overflow] {
            refuse(&database, "the root", root, format(kind, &[1, 0, 0, 0, 1, 0, 0, 0, 7])).await?;
        }
        for kind in [Allocator, Direct, Free, Node, Overflow] {
            refuse(&database, "a page of records that were added", tail, format(kind, &[])).await?;
        }
        // It has slots, says its header, and nothing else does.
        let node = Change::Format { kind: Node, level: 0, count: 9, image: &[9; SIZE - 32] };
        refuse(&database, "slots out of order", part, node).await?;
        refuse(&database, "nothing of a value", part, format(Overflow, &[2, 0, 0, 0, 0, 0, 0, 0])).await?;
        refuse(&database, "more than a page has", part, format(Overflow, &[2, 0, 0, 0, 0, 2, 0, 0])).await?;
        // Who follows such a chain, or circle, would be long on the way.
        refuse(
            &database,
            "little of a value of which more follows",
            part,
            format(Overflow, &[2, 0, 0, 0, 1, 0, 0, 0, 7]),
        )
        .await?;
        assert!(database.check(|_| {}).await?.is_clean());
        Ok(())
    })
}

/// A node of this level with one entry behind those that it has to have.
fn node_with(level: u8, (lower, upper): (&[u8], &[u8]), key: &[u8], value: &[u8]) -> OwnedChange {
    let mut node = slotted::Builder::new(SIZE, level, lower, upper);
    if level > 0 {
        node.push(lower, &2_u32.to_le_bytes());
    }
    node.push(key, value);
    node.finish()
}

#[test]
fn no_leaf_comes_with_what_is_no_value_or_is_over_the_limits() -> Result<()> {
    whole(async |executor| {
        let database = Database::create(executor, spacious()).await?;
        let tree = database.create_partition(PartitionSpec::b_tree("tree")).await?;
        database.transaction(async |tx| tx.put(tree, b"long", &[7; 3_000]).await).await?;
        let (root, part) = (PageId::new(tree, b_tree::ROOT), PageId::new(tree, 2));
        let (key_max, no_fences) = (b_tree::key_len_max(SIZE), (&b""[..], &b""[..]));
        let long_key = vec![7; key_max + 1];
        let elsewhere = |length, first| {
            let mut stored = Vec::new();
            stored::store_elsewhere(length, first, &mut stored);
            stored
        };
        let mut cut = elsewhere(3_000, 2);
        cut.truncate(12);
        let values = [
            Vec::new(),
            vec![0; stored::VERSION_SIZE - 1],
            cut,
            elsewhere(0, 2),
            elsewhere(stored::VALUE_LEN_MAX + 1, 2),
            elsewhere(3_000, b_tree::ROOT),
            kept(&vec![1; b_tree::value_len_max(SIZE, 3)]),
        ];
        for page in [root, part] {
            for value in &values {
                let leaf = node_with(0, no_fences, b"key", value);
                refuse(&database, &format!("a value {value:?}"), page, leaf.as_change()).await?;
            }
            for level in [0, 1] {
                let value = if level == 0 { kept(b"value") } else { 3_u32.to_le_bytes().to_vec() };
                let long = node_with(level, no_fences, &long_key, &value);
                refuse(&database, "a key that is too long", page, long.as_change()).await?;
                let long = node_with(level, (&[1], &long_key), &[2], &value);
                refuse(&database, "a fence that is too long", page, long.as_change()).await?;
                let long = node_with(level, (&long_key, &[]), &[8], &value);
                refuse(&database, "a fence that is too long", page, long.as_change()).await?;
            }
        }
        assert!(database.check(|_| {}).await?.is_clean());
        Ok(())
    })
}

/// What a node that lies calls a record of a type is named where its fields are asked for, and goes when it is deleted.
#[test]
fn a_record_that_is_none_of_its_type_is_named() -> Result<()> {
    whole(async |executor| {
        let database = Database::create(executor, spacious()).await?;
        let things = database.create_partition(PartitionSpec::b_tree("things").record(thing_type())).await?;
        let mut node = CopiedPages::default();
        node.insert(&database, things, b"key", &[1; 5]).await?;
        node.commit(&database, true).await?;
        let is_field = |found: &Result<()>| matches!(found, Err(Error::Field { error: FieldError::Damaged(_), .. }));
        for (field, value) in [(0, FieldValue::U32(1)), (1, FieldValue::I64(1)), (2, FieldValue::Text("name"))] {
            let set = database.transaction(async |tx| tx.set_field(things, b"key", field, value).await).await;
            assert!(is_field(&set), "{field}: {set:?}");
        }
        let add = async |tx: &mut Transaction| tx.add_to_field(things, b"key", 1, 1).await.map(drop);
        let added = database.transaction(add).await;
        assert!(is_field(&added), "{added:?}");
        let reported = database.check(|_| {}).await?;
        assert!(reported.findings[0].to_string().contains("is not of this type"), "{:?}", reported.findings);
        assert!(database.transaction(async |tx| tx.delete(things, b"key").await).await?);
        assert!(database.check(|_| {}).await?.is_clean());
        Ok(())
    })
}

/// Where there are indexes, in which it has no entry, it goes when these have gone.
#[test]
fn a_record_that_is_none_of_its_type_is_in_no_index() -> Result<()> {
    whole(async |executor| {
        let database = Database::create(executor, spacious()).await?;
        let spec = PartitionSpec::b_tree("things").record(thing_type());
        let things = database.create_partition(spec.clone().secondary("by_name", &["name"])).await?;
        let mut node = CopiedPages::default();
        node.insert(&database, things, b"key", &[1; 5]).await?;
        node.commit(&database, true).await?;
        let delete = async || database.transaction(async |tx| tx.delete(things, b"key").await).await;
        let refused = delete().await;
        assert!(matches!(refused, Err(Error::Field { error: FieldError::Damaged(_), .. })), "{refused:?}");
        database.drop_index(things, "by_name").await?;
        assert_eq!(delete().await, Ok(true));
        assert_eq!(database.ensure_partition(spec.secondary("by_name", &["name"])).await, Ok(things));
        assert!(database.check(|_| {}).await?.is_clean());
        Ok(())
    })
}

#[test]
fn records_that_are_too_long_for_the_log_are_refused_before_they_are_looked_at() -> Result<()> {
    whole(async |executor| {
        let (database, pages) = with_pages(executor).await?;
        // No memory is touched.
        let records = vec![0; record::SIZE_MAX as usize];
        let refused =
            database.commit_shipped(&Shipment { records: &records, images: &[], redone: &[], sets: &[] }).await;
        assert!(matches!(refused, Err(CommitFailure::NothingLogged(Error::RecordTooLong { .. }))), "{refused:?}");
        let page = PageId::new(pages, 3);
        let (records, copy) = changed(page, 9);
        commit(&database, &records, &[(page, &copy)]).await
    })
}
