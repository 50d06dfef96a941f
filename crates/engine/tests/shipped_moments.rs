//! What moments show of records that nodes change: what these were then, whatever was done to them since.

use crate::ground::copies::{CopiedPages, spacious};
use crate::ground::shipments::*;
use base::time::SECOND_NS;
use base::{Lsn, PageId, PartitionId};
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::organization::b_tree::stored::{self, Stored};
use entresol_engine::page::HEADER_SIZE;
use entresol_engine::{
    Database, Direction, Error, Internals, PartitionSpec, Result, SetChange, Settings, Shipment, Snapshot,
};

/// A tree, objects with locks and a set, each with what a node changes.
#[derive(Clone, Copy)]
struct Things {
    tree: PartitionId,
    objects: PartitionId,
    set: PartitionId,
}

impl Things {
    async fn create(database: &Database) -> Result<Things> {
        let tree = database.create_partition(PartitionSpec::b_tree("tree")).await?;
        let organization = Organization::Direct { objects: 64, blocking_factor: 2, record_size: 8 };
        let objects = database.create_partition(PartitionSpec::new("objects", organization, Locking::Page)).await?;
        let set = database.create_partition(PartitionSpec::set("set")).await?;
        let things = Things { tree, objects, set };
        database
            .transaction(async |tx| {
                tx.put(tree, b"gone", &[7; 1_000]).await?;
                tx.put(tree, b"kept", b"before").await?;
                tx.put(set, b"key", b"before").await?;
                tx.modify_object(objects, 1, |object| object[0] = 1).await
            })
            .await?;
        Ok(things)
    }

    /// A node deletes a long value, changes a record and adds one.
    async fn change_tree(self, database: &Database) -> Result<()> {
        let (tree, mut node) = (self.tree, CopiedPages::default());
        let gone = node.delete_stored(database, tree, b"gone").await?;
        let Stored::Elsewhere(_, first) = stored::read(&gone) else { panic!("it is a long one") };
        node.free(database, tree, first).await?;
        node.replace(database, tree, b"kept", &kept(b"behind")).await?;
        node.insert(database, tree, b"new", b"behind").await?;
        node.commit(database, true).await
    }

    /// A node changes a part of an object, and a record of a set beside it.
    async fn change_others(self, database: &Database) -> Result<()> {
        let page = PageId::new(self.objects, 0);
        let (mut copy, mut records) = (contents(database, page).await?, Vec::new());
        patch(&mut copy, (HEADER_SIZE + 8) as u16, &[2, 2], &mut records);
        let sets = [SetChange { partition: self.set, key: b"key", value: Some(b"behind") }];
        let shipment = Shipment { records: &records, images: &[], redone: &[page], sets: &sets };
        database.commit_shipped(&shipment).await.map_err(cause)
    }

    async fn look(self, snapshot: &mut Snapshot) -> Result<Seen> {
        let mut seen =
            Seen { tree: snapshot.scan(self.tree, .., Direction::Forward).take(9).await?, ..Seen::default() };
        for (key, value) in &seen.tree {
            assert_eq!(snapshot.get(self.tree, key).await?.as_ref(), Some(value));
        }
        for key in [&b"gone"[..], b"new"] {
            let is_seen = seen.tree.iter().any(|(seen, _)| seen == key);
            assert_eq!(snapshot.get(self.tree, key).await?.is_some(), is_seen);
        }
        seen.object = snapshot.read_object(self.objects, 1, <[u8]>::to_vec).await?;
        seen.in_set = snapshot.get(self.set, b"key").await?;
        Ok(seen)
    }
}

/// What a snapshot shows.
#[derive(Clone, Debug, Default, PartialEq)]
struct Seen {
    tree: Vec<(Vec<u8>, Vec<u8>)>,
    object: Vec<u8>,
    in_set: Option<Vec<u8>>,
}

/// What is there before nodes change it, behind the changes of the tree, and behind all.
fn states() -> [Seen; 3] {
    let record = |key: &[u8], value: &[u8]| (key.to_vec(), value.to_vec());
    let before = Seen {
        tree: vec![record(b"gone", &[7; 1_000]), record(b"kept", b"before")],
        object: vec![1, 0, 0, 0, 0, 0, 0, 0],
        in_set: Some(b"before".to_vec()),
    };
    let between = Seen { tree: vec![record(b"kept", b"behind"), record(b"new", b"behind")], ..before.clone() };
    let behind = Seen { object: vec![2, 2, 0, 0, 0, 0, 0, 0], in_set: Some(b"behind".to_vec()), ..between.clone() };
    [before, between, behind]
}

#[test]
fn a_snapshot_that_is_held_shows_nothing_of_what_nodes_change() -> Result<()> {
    whole(async |executor| {
        let database = Database::create(executor, spacious()).await?;
        let things = Things::create(&database).await?;
        let mut before = database.snapshot().await?;
        let _served = database.serve_nodes().await?;
        things.change_tree(&database).await?;
        let mut between = database.snapshot().await?;
        things.change_others(&database).await?;
        let mut behind = database.snapshot().await?;
        let snapshots = [&mut before, &mut between, &mut behind];
        for (snapshot, state) in snapshots.into_iter().zip(states()) {
            assert_eq!(things.look(snapshot).await?, state);
        }
        assert!(before.moment() < between.moment() && between.moment() < behind.moment());
        drop((before, between, behind));
        assert_eq!(database.versions().versions, 0, "none is read any more");
        Ok(())
    })
}

fn kept_for_an_hour() -> Settings {
    let mut settings = spacious();
    settings.undo.retention_ns = 3_600 * SECOND_NS;
    settings
}

#[test]
fn earlier_moments_show_nothing_of_what_nodes_have_changed_since() -> Result<()> {
    whole(async |executor| {
        let database = Database::create(executor, kept_for_an_hour()).await?;
        let things = Things::create(&database).await?;
        let (mut moments, mut times) = (Vec::<Lsn>::new(), Vec::new());
        for step in 0..3 {
            match step {
                0 => {}
                1 => things.change_tree(&database).await?,
                _ => things.change_others(&database).await?,
            }
            moments.push(database.snapshot().await?.moment());
            executor.sleep_ns(SECOND_NS).await;
            times.push(executor.now());
            executor.sleep_ns(SECOND_NS).await;
        }
        for ((moment, time), state) in moments.into_iter().zip(times).zip(states()) {
            assert_eq!(things.look(&mut database.as_of(moment).await?).await?, state);
            assert_eq!(things.look(&mut database.as_of_time(time).await?).await?, state);
        }
        Ok(())
    })
}

/// A node may change any part of a page, which is a part of no object then.
#[test]
fn a_moment_before_a_change_of_no_object_is_too_old() -> Result<()> {
    whole(async |executor| {
        let database = Database::create(executor, spacious()).await?;
        let things = Things::create(&database).await?;
        let mut before = database.snapshot().await?;
        let page = PageId::new(things.objects, 0);
        let (mut copy, mut records) = (contents(&database, page).await?, Vec::new());
        patch(&mut copy, (HEADER_SIZE + 6) as u16, &[1, 2, 3, 4], &mut records);
        commit(&database, &records, &[(page, &copy)]).await?;
        let refused = before.read_object(things.objects, 1, <[u8]>::to_vec).await;
        assert!(matches!(refused, Err(Error::SnapshotTooOld { .. })), "{refused:?}");
        assert_eq!(before.get(things.tree, b"kept").await?.as_deref(), Some(&b"before"[..]));
        let present = database.snapshot().await?.read_object(things.objects, 1, <[u8]>::to_vec).await?;
        assert_eq!(present, [3, 4, 0, 0, 0, 0, 0, 0]);
        Ok(())
    })
}
