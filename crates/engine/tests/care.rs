//! Caring for partitions: those that are to be there, and the room that each takes.

use crate::ground::database::with_database;
use entresol_engine::catalog::{IndexSpec, Locking, Organization};
use entresol_engine::set::{FieldType, RecordType};
use entresol_engine::{Database, Error, Internals, PartitionSpec};

fn users() -> PartitionSpec {
    let record = RecordType::new([("name", FieldType::Text), ("age", FieldType::U8)]).expect("different names");
    PartitionSpec::b_tree("users").record(record).secondary("by_name", &["name"])
}

#[test]
fn what_exists_and_differs_is_named_and_left_alone() {
    with_database(async |database| {
        let id = database.ensure_partition(users()).await?;
        let before = database.describe(id)?;
        let other_record = RecordType::new([("name", FieldType::Text)]).expect("different names");
        let direct = Organization::Direct { objects: 10, blocking_factor: 5, record_size: 8 };
        let others = [
            (PartitionSpec::append("users"), "it is organized as b-tree, not as append"),
            (PartitionSpec { device: "flash".into(), ..users() }, "it is on device 'disk', not on 'flash'"),
            (PartitionSpec { locking: Locking::None, ..users() }, "its transactions lock record, not none"),
            (PartitionSpec { record: Some(other_record), ..users() }, "its records are of another type"),
            (PartitionSpec { secondaries: Vec::new(), ..users() }.secondary("by_name", &["age"]), "over other fields"),
            (
                PartitionSpec { secondaries: Vec::new(), ..users() }
                    .index(IndexSpec::new("by_name", &["name"]).unique()),
                "its index 'by_name' is not unique",
            ),
            (PartitionSpec::new("users", direct, Locking::Record), "organized as b-tree, not as direct"),
        ];
        for (spec, expected) in others {
            let error = database.ensure_partition(spec).await.expect_err(expected);
            let Error::PartitionDiffers { name, difference } = &error else { panic!("{error}") };
            assert!(name == "users" && difference.contains(expected), "{difference}");
        }
        assert_eq!(database.describe(id)?, before);
        Ok(())
    });
}

#[test]
fn many_tasks_that_want_a_partition_at_once_have_the_same_one_with_all_its_indexes() {
    with_database(async |database| {
        database.ensure_partition(PartitionSpec { secondaries: Vec::new(), ..users() }).await?;
        let want = |spec: PartitionSpec| {
            let database = database.clone();
            database.executor().clone().spawn(async move { database.ensure_partition(spec).await })
        };
        let asked: Vec<_> = (0..5).map(|_| want(PartitionSpec::set("cities"))).collect();
        let mut found = Vec::new();
        for task in asked {
            found.push(task.join().await?);
        }
        assert!(found.iter().all(|id| *id == found[0]), "{found:?}");
        let one = users().secondary("by_age", &["age"]);
        let other = PartitionSpec { secondaries: Vec::new(), ..users() }.secondary("by_age", &["age"]);
        let asked: Vec<_> = [one.clone(), other.clone(), users(), one].map(want).into_iter().collect();
        for (task, indexes) in
            asked.into_iter().zip([&["by_name", "by_age"][..], &["by_age"], &["by_name"], &["by_name", "by_age"]])
        {
            let id = task.join().await?;
            for index in indexes {
                assert!(database.secondary(id, index).is_ok(), "{index}");
            }
        }
        Ok(())
    });
}

#[test]
fn a_set_gets_the_indexes_that_it_lacks() {
    with_database(async |database| {
        let set = PartitionSpec { organization: Organization::set(false), ..users() };
        let users = database.ensure_partition(PartitionSpec { secondaries: Vec::new(), ..set.clone() }).await?;
        assert!(database.secondary(users, "by_name").is_err());
        assert_eq!(database.ensure_partition(set).await, Ok(users));
        assert!(database.secondary(users, "by_name").is_ok());
        Ok(())
    });
}

async fn fill(database: &Database, spec: PartitionSpec, records: u64) -> entresol_engine::Result<base::PartitionId> {
    let id = database.create_partition(spec).await?;
    for number in 0..records {
        database.transaction(async |tx| tx.put(id, &number.to_be_bytes(), &[7; 500]).await).await?;
    }
    Ok(id)
}

#[test]
fn the_room_of_a_partition_is_what_is_in_use_what_is_free_and_no_more() {
    with_database(async |database| {
        for spec in [PartitionSpec::b_tree("tree"), PartitionSpec::set("set")] {
            let id = fill(database, spec, 2_000).await?;
            let full = database.size(id).await?;
            assert!(full.used >= 1_000_000 && full.used < 2_500_000, "{full:?}");
            for number in 0..2_000_u64 {
                database.transaction(async |tx| tx.delete(id, &number.to_be_bytes()).await).await?;
            }
            let empty = database.size(id).await?;
            assert!(empty.used < full.used / 10 && empty.free > full.free + 500_000, "{full:?}, {empty:?}");
        }
        database.checkpoint().await?;
        let set = database.size(database.partition("set")?).await?;
        assert!(set.file > 0, "a sweep has written its copy: {set:?}");
        let direct = Organization::Direct { objects: 1_000, blocking_factor: 100, record_size: 8 };
        let direct = database.create_partition(PartitionSpec::new("numbers", direct, Locking::Record)).await?;
        let page_size = database.settings().buffer.page_size as u64;
        let size = database.size(direct).await?;
        assert_eq!((size.used, size.file), (10 * page_size, size.used + size.free));
        database.drop_partition(direct).await?;
        assert!(matches!(database.size(direct).await, Err(Error::NoPartition(_))));
        Ok(())
    });
}
