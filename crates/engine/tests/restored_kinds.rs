//! Partitions of every kind, and calls of procedures, that a restore from an archive of the log finds behind the backup.

use crate::ground::backups::{on, restored};
use crate::ground::restoring::{backup, plain, set, settings, to};
use base::time::{MICROSECOND_NS, SECOND_NS};
use entresol_engine::catalog::{IndexSpec, Locking, Organization};
use entresol_engine::checkpoint::{Strategy, SweepSettings};
use entresol_engine::set::{FieldType, FieldValue, Logging, RecordType};
use entresol_engine::{
    BackupError, Database, Error, Internals, PartitionSpec, Procedures, RestoreTarget, Result, Settings, Transaction,
};
use virtual_driver::Media;

#[test]
fn partitions_and_indexes_of_every_kind_that_are_made_behind_the_backup_are_restored() {
    on(&Media::new(), async |executor| {
        let database = Database::create(executor, settings()).await?;
        let record = RecordType::new([("group", FieldType::U32), ("text", FieldType::Bytes)]).expect("sound");
        let old = database.create_partition(PartitionSpec::b_tree("old").record(record.clone())).await?;
        database.backup(&backup(), |_| {}).await?;
        let objects = Organization::Direct { objects: 300, blocking_factor: 4, record_size: 100 };
        let objects = database.create_partition(PartitionSpec::new("objects", objects, Locking::Record)).await?;
        let append = Organization::Append { blocking_factor: 0 };
        let history = database.create_partition(PartitionSpec::new("history", append, Locking::Record)).await?;
        let typed = PartitionSpec::b_tree("typed").record(record.clone()).secondary("by_group", &["group"]);
        let typed = database.create_partition(typed).await?;
        let set = database.create_partition(set("set")).await?;
        for number in 0..150_u32 {
            let put = async |tx: &mut Transaction| {
                let mut row = Vec::new();
                record
                    .encode(&[FieldValue::U32(number % 7), FieldValue::Bytes(&[number as u8; 300])], &mut row)
                    .expect("fits");
                for tree in [old, typed] {
                    tx.put(tree, &number.to_be_bytes(), &row).await?;
                }
                tx.put(set, &number.to_be_bytes(), &[number as u8; 40]).await?;
                tx.modify_object(objects, u64::from(2 * number), |bytes| bytes[0] = number as u8 + 1).await?;
                tx.append(history, &[number as u8; 90]).await.map(drop)
            };
            database.transaction(put).await?;
        }
        database.create_index(old, IndexSpec::new("by_group", &["group"])).await?;
        let long = vec![9; 50_000];
        let trees = database.create_partition(PartitionSpec::b_tree("long")).await?;
        database.transaction(async |tx| tx.put(trees, b"long", &long).await).await?;
        database.close().await?;
        let (database, _) = restored(executor, &plain(), &to(RestoreTarget::End)).await?;
        for name in ["old", "typed"] {
            let id = database.partition(name)?;
            assert!(database.catalog().secondary(id, "by_group").is_ok(), "{name}");
        }
        let [objects, history, set, trees] =
            ["objects", "history", "set", "long"].map(|name| database.partition(name).expect(name));
        let mut tx = database.begin().await?;
        for number in [0_u32, 77, 149] {
            let object = tx.modify_object(objects, u64::from(2 * number), |bytes| bytes[0]).await?;
            assert_eq!(object, number as u8 + 1);
            assert_eq!(tx.get(set, &number.to_be_bytes()).await?, Some(vec![number as u8; 40]));
        }
        assert_eq!(tx.get(trees, b"long").await?, Some(long));
        tx.append(history, b"one more").await?;
        tx.commit().await?;
        assert!(database.check(|_| {}).await?.is_clean());
        database.close().await
    })
    .expect("works");
}

/// Says in "first" whether there is a partition "flag".
async fn note(tx: &mut Transaction, key: &[u8]) -> Result<Vec<u8>> {
    let (first, answer) = (tx.partition("first")?, vec![u8::from(tx.partition("flag").is_ok())]);
    tx.put(first, key, &answer).await?;
    Ok(answer)
}

#[test]
fn calls_behind_the_backup_are_repeated_unless_the_catalog_has_changed_since() {
    let mut procedures = Procedures::new();
    procedures.register("note", note);
    let sweep = SweepSettings { strategy: Strategy::StableVersions, ..SweepSettings::default() };
    let logged = Settings { procedures, logging: Logging::Procedures, sweep, ..settings() };
    on(&Media::new(), async |executor| {
        let database = Database::create(executor, logged.clone()).await?;
        database.create_partition(set("first")).await?;
        database.backup(&backup(), |_| {}).await?;
        assert_eq!(database.call("note", &[1]).await?, [0]);
        let flag = database.create_partition(set("flag")).await?;
        assert_eq!(database.call("note", &[2]).await?, [1]);
        let before = database.log().end();
        database.drop_partition(flag).await?;
        assert_eq!(database.call("note", &[3]).await?, [0]);
        database.close().await?;
        let restored_settings = Settings { log: plain().log, ..logged };
        let position = RestoreTarget::Position(before);
        let (database, _) = restored(executor, &restored_settings, &to(position)).await?;
        let first = database.partition("first")?;
        let mut tx = database.begin().await?;
        let found = [tx.get(first, &[1]).await?, tx.get(first, &[2]).await?, tx.get(first, &[3]).await?];
        assert_eq!(found, [Some(vec![0]), Some(vec![1]), None]);
        tx.commit().await?;
        database.close().await?;
        let refused = restored(executor, &restored_settings, &to(RestoreTarget::End)).await.map(drop);
        assert!(matches!(refused, Err(Error::Backup(BackupError::CallBeforeChange { .. }))), "{refused:?}");
        Ok::<(), Error>(())
    })
    .expect("works");
}

#[test]
fn an_index_that_is_entered_behind_a_backup_that_has_its_pages_is_restored() {
    on(&Media::new(), async |executor| {
        let database = Database::create(executor, settings()).await?;
        let record = RecordType::new([("group", FieldType::U32)]).expect("sound");
        let old = database.create_partition(PartitionSpec::b_tree("old").record(record)).await?;
        let other = database.create_partition(PartitionSpec::b_tree("other")).await?;
        for number in 0..1_000_u32 {
            database.transaction(async |tx| tx.put(old, &number.to_be_bytes(), &number.to_le_bytes()).await).await?;
        }
        let this = database.clone();
        let indexing =
            executor.spawn(async move { this.create_index(old, IndexSpec::new("by_group", &["group"])).await });
        while database.describe(old)?.schema.as_ref().is_none_or(|schema| schema.secondaries.is_empty()) {
            executor.sleep_ns(10 * MICROSECOND_NS).await;
        }
        // The index does not wait for this one any more; the drop does, and has the turn to change the catalog.
        let reader = database.begin().await?;
        let this = database.clone();
        let dropping = executor.spawn(async move { this.drop_partition(other).await });
        executor.sleep_ns(SECOND_NS).await;
        assert!(!indexing.is_finished());
        database.backup(&backup(), |_| {}).await?;
        reader.rollback().await?;
        dropping.join().await?;
        indexing.join().await?;
        database.close().await?;
        let (database, _) = restored(executor, &plain(), &to(RestoreTarget::End)).await?;
        assert!(database.secondary(database.partition("old")?, "by_group").is_ok());
        assert!(database.check(|_| {}).await?.is_clean());
        database.close().await
    })
    .expect("works");
}
