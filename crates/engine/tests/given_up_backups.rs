//! Backups that are given up, and what others make of what they leave; and what an increment has of partitions that its base does not
//! know.

use crate::ground::backups::{hardware, names, on, restored};
use crate::ground::holding::holding;
use base::time::{MICROSECOND_NS, MILLISECOND_NS, SECOND_NS};
use driver::Op;
use entresol_engine::{BackupError, BackupSettings, Database, Error, PartitionSpec, RestoreSource, Result, Settings};
use virtual_driver::Media;

fn to(target: &str, base: Option<&str>) -> BackupSettings {
    BackupSettings { target: target.into(), base: base.map(Into::into), bytes_per_second: None }
}

/// What comes late removes the files of the next backup, if that begins meanwhile.
#[test]
fn a_backup_that_is_given_up_while_it_makes_way_keeps_the_place() {
    let media = Media::new();
    holding(hardware(), &media, async |executor, _| {
        let database = Database::create(executor, Settings::default()).await?;
        let tree = database.create_partition(PartitionSpec::b_tree("tree")).await?;
        database.transaction(async |tx| tx.put(tree, b"milk", b"two litres").await).await?;
        database.checkpoint().await?;
        let other = database.clone();
        executor.spawn(async move { other.backup(&to("backup", None), |_| {}).await });
        // The machine ends in the midst of a backup.
        while !names(executor, "backup").await.contains(&"data".to_owned()) {
            executor.sleep_ns(MICROSECOND_NS).await;
        }
        assert!(names(executor, "backup").await.contains(&"entresol.begun".to_owned()));
        Ok::<_, Error>(())
    })
    .expect("is made");
    holding(hardware(), &media, async |executor, holder| {
        let database = Database::open(executor, Settings::default(), "here").await?;
        let end = executor.now().plus_ns(5 * SECOND_NS);
        holder.hold(end, |op| matches!(op, Op::Remove { name, .. } if name == "data"));
        let given_up = executor.within(SECOND_NS, database.backup(&to("backup", None), |_| {})).await;
        assert!(given_up.is_none() && holder.has_held(), "it makes way");
        loop {
            match database.backup(&to("backup", None), |_| {}).await {
                Err(Error::Backup(BackupError::InUse { .. })) => executor.sleep_ns(SECOND_NS).await,
                done => {
                    done?;
                    break;
                }
            };
        }
        executor.sleep_ns(10 * SECOND_NS).await;
        database.close().await
    })
    .expect("is taken");
    on(&media, async |executor| {
        let source = RestoreSource { backup: "backup".into(), ..RestoreSource::default() };
        let (database, _) = restored(executor, &Settings::default(), &source).await?;
        let tree = database.partition("tree")?;
        let milk = database.transaction(async |tx| tx.get(tree, b"milk").await).await?;
        assert_eq!(milk.as_deref(), Some(&b"two litres"[..]));
        database.close().await
    })
    .expect("is restored");
}

/// A truncation waits for others with the pages of the empty partition made; its base has been taken by the time that it ends.
#[test]
fn an_increment_has_all_of_a_partition_that_its_base_does_not_have() -> Result<()> {
    on(&Media::new(), async |executor| {
        let database = Database::create(executor, Settings::default()).await?;
        let tree = database.create_partition(PartitionSpec::b_tree("tree")).await?;
        let mut long = database.begin().await?;
        assert_eq!(long.get(tree, b"milk").await?, None);
        let other = database.clone();
        let truncating = executor.spawn(async move { other.truncate_partition(tree).await });
        executor.sleep_ns(100 * MILLISECOND_NS).await;
        database.backup(&to("backup", None), |_| {}).await?;
        assert!(!truncating.is_finished());
        long.commit().await?;
        let tree = truncating.join().await?;
        database.transaction(async |tx| tx.put(tree, b"bread", b"one").await).await?;
        database.backup(&to("next", Some("backup")), |_| {}).await?;
        database.close().await?;
        let source = RestoreSource { backup: "next".into(), ..RestoreSource::default() };
        let (database, _) = restored(executor, &Settings::default(), &source).await?;
        let found = database.transaction(async |tx| tx.get(tree, b"bread").await).await?;
        assert_eq!(found.as_deref(), Some(&b"one"[..]));
        let fill = async |tx: &mut entresol_engine::Transaction| {
            for number in 0..2_000_u32 {
                tx.put(tree, &number.to_be_bytes(), &[7; 100]).await?;
            }
            Ok::<_, Error>(())
        };
        database.transaction(fill).await?;
        database.close().await
    })
}
