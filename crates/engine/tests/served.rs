//! What is refused while other nodes use a database.

use crate::ground::machine::run;
use crate::ground::things::*;
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
        let served = database.serve_nodes().expect("nothing is in their way");
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
            early = database.serve_nodes().err();
            executor.yield_now().await;
        }
        assert!(matches!(early, Some(Error::PartitionInUse(_))), "{early:?}");
        compacting.join().await.expect("none uses it");
        drop(database.serve_nodes().expect("it is over"));
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
            let served = database.serve_nodes().expect("no index is being built");
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
            let refused = database.serve_nodes().err();
            assert!(creating.is_finished() || matches!(refused, Some(Error::PartitionInUse(_))), "{refused:?}");
            creating.join().await.expect("is created");
            assert!(database.serve_nodes().is_ok());
        }
    });
}
