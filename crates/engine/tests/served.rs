//! What is refused while other nodes use a database.

use crate::ground::machine::run;
use crate::ground::things::*;
use base::time::SECOND_NS;
use entresol_engine::catalog::IndexSpec;
use entresol_engine::{Database, Error, Internals, PartitionSpec};
use virtual_driver::Media;

fn by_group() -> IndexSpec {
    IndexSpec::new("by_group", &["group", "weight"])
}

#[test]
fn while_nodes_use_a_database_partitions_stay_and_keep_their_pages_and_indexes() {
    run(&Media::new(), async |executor| {
        let database = Database::create(executor, settings()).await.expect("creates");
        let tree = database.create_partition(PartitionSpec::b_tree("tree").record(record()).index(by_group()));
        let tree = tree.await.expect("creates");
        let set = database.create_partition(PartitionSpec::set("set").record(record())).await.expect("creates");
        put_all(&database, tree, &some(2_000)).await;
        let served = database.serve_nodes().await.expect("nothing is in their way");
        let refused = [
            (database.drop_partition(tree).await.err(), "is not dropped"),
            (database.truncate_partition(tree).await.err(), "is not truncated"),
            (database.compact_partition(tree).await.err(), "is not compacted"),
            (database.drop_index(tree, "by_group").await.err(), "keeps its index 'by_group'"),
        ];
        for (error, words) in refused {
            let error = error.expect("nodes have copies of its pages").to_string();
            assert!(error.contains(&format!("partition 'tree' {words} while nodes use it")), "{error}");
        }
        database.compact_partition(set).await.expect("nodes have no copies of it");
        drop(served);
        let compacting = executor.spawn({
            let database = database.clone();
            async move { database.compact_partition(tree).await }
        });
        let mut early = None;
        while early.is_none() && !compacting.is_finished() {
            early = database.serve_nodes().await.err();
            executor.yield_now().await;
        }
        assert!(matches!(early, Some(Error::PartitionInUse(_))), "{early:?}");
        compacting.join().await.expect("none uses it");
        drop(database.serve_nodes().await.expect("it is over"));
        database.drop_index(tree, "by_group").await.expect("none uses it");
        let tree = database.truncate_partition(tree).await.expect("none uses it");
        database.drop_partition(tree).await.expect("none uses it");
    });
}

#[test]
fn while_nodes_use_a_database_no_partition_gets_an_index() {
    run(&Media::new(), async |executor| {
        let database = Database::create(executor, settings()).await.expect("creates");
        for spec in [PartitionSpec::set("things").record(record()), PartitionSpec::b_tree("tree").record(record())] {
            let id = database.create_partition(spec).await.expect("creates");
            let served = database.serve_nodes().await.expect("no index is being built");
            let refused = database.create_index(id, by_group()).await.expect_err("nodes know nothing of it");
            assert!(refused.to_string().contains("gets no index 'by_group' while nodes use it"), "{refused}");
            drop(served);
            put_all(&database, id, &some(2_000)).await;
            let creating = executor.spawn({
                let database = database.clone();
                async move { database.create_index(id, by_group()).await }
            });
            while database.index_builds().is_empty() {
                executor.sleep_ns(1_000).await;
            }
            let refused = database.serve_nodes().await.err();
            assert!(creating.is_finished() || matches!(refused, Some(Error::PartitionInUse(_))), "{refused:?}");
            creating.join().await.expect("is created");
            assert!(database.serve_nodes().await.is_ok());
        }
    });
}

#[test]
fn while_nodes_use_a_database_it_is_changed_by_nothing_else() {
    run(&Media::new(), async |executor| {
        let database = Database::create(executor, settings()).await.expect("creates");
        let tree = database.create_partition(PartitionSpec::b_tree("tree")).await.expect("creates");
        let set = database.create_partition(PartitionSpec::set("set")).await.expect("creates");
        let served = database.serve_nodes().await.expect("nothing is in their way");
        let refused = database.rename_partition(tree, "other").await.expect_err("nodes know it by its name");
        assert!(refused.to_string().contains("partition 'tree' is not renamed while nodes use it"), "{refused}");
        for (name, id) in [("tree", tree), ("set", set)] {
            let words = format!("partition '{name}' is not loaded while nodes use it");
            let records = [(b"milk", b"two litres")];
            let refused = match name {
                "tree" => database.load_b_tree(id, records, |_| {}).await,
                _ => database.load_set(id, records, |_| {}).await,
            };
            let refused = refused.expect_err("nodes have copies of its pages").to_string();
            assert!(refused.contains(&words), "{refused}");
        }
        let own = database.transaction(async |tx| tx.put(tree, b"milk", b"two litres").await).await;
        assert_eq!(own, Err(Error::ServesNodes));
        assert_eq!(database.begin().await.err(), Some(Error::ServesNodes));
        drop(served);
        database.rename_partition(tree, "other").await.expect("none uses it");
        database.load_b_tree(tree, [(b"milk", b"two litres")], |_| {}).await.expect("none uses it");
        let found = database.transaction(async |tx| tx.get(tree, b"milk").await).await;
        assert_eq!(found, Ok(Some(b"two litres".to_vec())));
    });
}

#[test]
fn a_snapshot_that_is_held_keeps_no_nodes_from_a_database() {
    run(&Media::new(), async |executor| {
        let database = Database::create(executor, settings()).await.expect("creates");
        let tree = database.create_partition(PartitionSpec::b_tree("tree")).await.expect("creates");
        database.transaction(async |tx| tx.put(tree, b"milk", b"two litres").await).await.expect("there is room");
        let mut held = database.snapshot().await.expect("the log goes on");
        let began = executor.now();
        let served = database.serve_nodes().await.expect("it changes nothing");
        assert!(executor.now().since_ns(began) < SECOND_NS, "none waits for its end");
        assert_eq!(held.get(tree, b"milk").await, Ok(Some(b"two litres".to_vec())));
        drop(served);
        let own = database.begin().await.expect("no node uses it");
        assert_eq!(database.serve_nodes().await.err(), Some(Error::StillRunning { count: 1 }), "it is no snapshot");
        drop(own);
        drop(held);
        drop(database.serve_nodes().await.expect("nothing is in their way"));
    });
}

#[test]
fn nodes_use_a_database_once_what_it_does_by_itself_has_ended() {
    run(&Media::new(), async |executor| {
        let database = Database::create(executor, settings()).await.expect("creates");
        let tree = database.create_partition(PartitionSpec::b_tree("tree")).await.expect("creates");
        let mut own = database.begin().await.expect("nothing is in its way");
        own.put(tree, b"milk", b"two litres").await.expect("there is room");
        let serving = executor.spawn({
            let database = database.clone();
            async move { database.serve_nodes().await }
        });
        executor.sleep_ns(SECOND_NS).await;
        assert!(!serving.is_finished(), "they would be sent what is not committed");
        assert_eq!(database.begin().await.err(), Some(Error::ServesNodes), "another one would keep them waiting");
        own.commit().await.expect("it began before");
        drop(serving.join().await.expect("it has ended"));
        let own = database.begin().await.expect("no node uses it");
        assert_eq!(database.serve_nodes().await.err(), Some(Error::StillRunning { count: 1 }));
        drop(own);
        drop(database.begin().await.expect("none came to use it"));
        let empty = database.create_partition(PartitionSpec::b_tree("empty")).await.expect("creates");
        let records = (0..100_000_u32).map(|number| (number.to_be_bytes(), [7; 100]));
        let loading = executor.spawn({
            let database = database.clone();
            async move { database.load_b_tree(empty, records, |_| {}).await }
        });
        executor.yield_now().await;
        assert_eq!(database.serve_nodes().await.err(), Some(Error::PartitionInUse("empty".to_owned())));
        assert!(!loading.is_finished());
        loading.join().await.expect("nothing is in its way");
        drop(database.serve_nodes().await.expect("it has ended"));
    });
}

#[cfg(feature = "canary")]
#[test]
fn a_partition_that_is_dropped_beside_nodes_is_found() {
    use entresol_engine::canary::{Canary, plant};
    run(&Media::new(), async |executor| {
        let database = Database::create(executor, settings()).await.expect("creates");
        let tree = database.create_partition(PartitionSpec::b_tree("tree")).await.expect("creates");
        let _served = database.serve_nodes().await.expect("nothing is in their way");
        plant(Some(Canary::DroppedBesideNodes));
        let dropped = database.drop_partition(tree).await;
        plant(None);
        assert_eq!(dropped, Ok(()), "it is planted");
    });
}
