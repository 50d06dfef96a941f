//! Backups and restores of which something comes in between: drops, faults, and what an earlier database has left.

use crate::ground::backups as ground;
use crate::ground::cut_machine::run_up_to;
use base::time::{MICROSECOND_NS, MILLISECOND_NS};
use base::{PartitionId, Random};
use devices::Hardware;
use driver::{Access, Op, OpKind};
use entresol_engine::catalog::{IndexSpec, Locking, Organization};
use entresol_engine::checkpoint::{Strategy, SweepSettings};
use entresol_engine::set::{FieldType, Logging, RecordType};
use entresol_engine::{
    BackupError, BackupSettings, Database, Error, Internals, PartitionSpec, Procedures, RestoreReport, RestoreSource,
    Result, Settings, Transaction, checkpoint, log,
};
use executor::Executor;
use ground::{lose, names, on, on_hardware, restored, under};
use virtual_driver::{ErrorAt, FaultPlan, Media, PowerCut};

/// Puts a record into "stock" whose value says whether there is a partition "flag", and 2 if it has an index.
async fn note(tx: &mut Transaction, key: &[u8]) -> Result<Vec<u8>> {
    let stock = tx.partition("stock")?;
    let index = |flag| 1 + u8::from(tx.catalog().secondary(flag, "by_group").is_ok());
    let answer = vec![tx.partition("flag").map_or(0, index)];
    tx.put(stock, key, &answer).await?;
    Ok(answer)
}

fn settings() -> Settings {
    let mut procedures = Procedures::new();
    procedures.register("note", note);
    Settings {
        procedures,
        logging: Logging::Procedures,
        sweep: SweepSettings { strategy: Strategy::StableVersions, ..SweepSettings::default() },
        log: log::Settings { capacity: 1 << 20, ..log::Settings::default() },
        checkpoint: checkpoint::Policy::OFF,
        ..Settings::default()
    }
}

fn set(name: &str) -> PartitionSpec {
    let organization = Organization::Set { arrivals: false, segment_size: 16 << 10, reserve_percent: 10 };
    PartitionSpec::new(name, organization, Locking::Record)
}

fn source() -> RestoreSource {
    RestoreSource { backup: "backup".into(), ..RestoreSource::default() }
}

/// Restores a backup during whose copy of the sets a procedure is called and the catalog is changed; what the call has noted then.
fn noted(
    flag: &PartitionSpec,
    change: impl AsyncFn(&Database, PartitionId) -> Result<()>,
) -> (Vec<u8>, Option<Vec<u8>>) {
    on(&Media::new(), async |executor| {
        let database = Database::create(executor, settings()).await?;
        for name in ["stock", "some", "more"] {
            let id = database.create_partition(set(name)).await?;
            database.transaction(async |tx| tx.put(id, b"first", b"x").await).await?;
        }
        let flag = database.create_partition(flag.clone()).await?;
        let other = database.clone();
        // One segment a second.
        let slow = BackupSettings { target: "backup".into(), bytes_per_second: Some(1 << 14), base: None };
        let backup = executor.spawn(async move { other.backup(&slow, |_| {}).await });
        executor.sleep_ns(300 * MILLISECOND_NS).await;
        let noted = database.call("note", &[0]).await?;
        change(&database, flag).await?;
        backup.join().await?;
        database.close().await?;
        let (database, _) = restored(executor, &settings(), &source()).await?;
        let stock = database.partition("stock")?;
        let found = database.transaction(async |tx| tx.get(stock, &[0]).await).await?;
        database.close().await?;
        Ok::<_, Error>((noted, found))
    })
    .expect("works")
}

#[test]
fn a_partition_that_is_dropped_behind_the_copy_of_the_sets_changes_no_call() {
    let dropped = noted(&set("flag"), async |database, flag| database.drop_partition(flag).await);
    assert_eq!(dropped, (vec![1], Some(vec![1])));
}

#[test]
fn an_index_that_is_created_or_dropped_behind_the_copy_of_the_sets_changes_no_call() {
    let record = RecordType::new([("group", FieldType::U32)]).expect("sound");
    let tree = PartitionSpec::b_tree("flag").record(record);
    let create = async |database: &Database, flag| {
        database.create_index(flag, IndexSpec::new("by_group", &["group"])).await.map(drop)
    };
    assert_eq!(noted(&tree, create), (vec![1], Some(vec![1])));
    let indexed = tree.secondary("by_group", &["group"]);
    let dropped = noted(&indexed, async |database, flag| database.drop_index(flag, "by_group").await);
    assert_eq!(dropped, (vec![2], Some(vec![2])));
}

#[test]
fn a_partition_that_is_renamed_or_truncated_behind_the_copy_of_the_sets_changes_no_call() {
    let renamed = async |database: &Database, flag| database.rename_partition(flag, "banner").await;
    assert_eq!(noted(&set("flag"), renamed), (vec![1], Some(vec![1])));
    let truncated = async |database: &Database, flag| database.truncate_partition(flag).await.map(drop);
    assert_eq!(noted(&set("flag"), truncated), (vec![1], Some(vec![1])));
}

#[test]
fn a_backup_knows_the_files_of_partitions_that_were_renamed_and_truncated() {
    let spec = |kind: usize, name: &str| if kind == 0 { PartitionSpec::b_tree(name) } else { set(name) };
    for kind in 0..2 {
        on(&Media::new(), async |executor| {
            let database = Database::create(executor, plain()).await?;
            let put = async |id, value: &[u8]| database.transaction(async |tx| tx.put(id, b"key", value).await).await;
            let old = database.create_partition(spec(kind, "notes")).await?;
            put(old, b"old").await?;
            database.rename_partition(old, "old_notes").await?;
            let new = database.create_partition(spec(kind, "notes")).await?;
            put(new, b"new").await?;
            let full = database.create_partition(spec(kind, "full")).await?;
            put(full, b"full").await?;
            let empty = database.truncate_partition(full).await?;
            let base = BackupSettings { target: "archive".into(), bytes_per_second: None, base: None };
            database.backup(&base, |_| {}).await?;
            put(empty, b"fuller").await?;
            put(old, b"older").await?;
            let increment = BackupSettings { target: "backup".into(), base: Some("archive".into()), ..base };
            database.backup(&increment, |_| {}).await?;
            database.rename_partition(old, "too_late").await?;
            database.close().await?;
            let (database, _) = restored(executor, &plain(), &source()).await?;
            for (name, value) in [("old_notes", &b"older"[..]), ("notes", b"new"), ("full", b"fuller")] {
                let id = database.partition(name)?;
                let found = database.transaction(async |tx| tx.get(id, b"key").await).await?;
                assert_eq!(found.as_deref(), Some(value), "{kind} {name}");
            }
            database.close().await
        })
        .unwrap_or_else(|error| panic!("{kind}: {error}"));
    }
}

/// A backup of a small database without calls, which is closed.
fn backed_up() -> Media {
    let media = Media::new();
    on(&media, async |executor| {
        let database = Database::create(executor, plain()).await?;
        let tree = database.create_partition(PartitionSpec::b_tree("tree")).await?;
        database.transaction(async |tx| tx.put(tree, b"milk", b"two litres").await).await?;
        database
            .backup(&BackupSettings { target: "backup".into(), bytes_per_second: None, base: None }, |_| {})
            .await?;
        database.close().await
    })
    .expect("backs up");
    media
}

fn plain() -> Settings {
    Settings { procedures: Procedures::new(), logging: Logging::Values, ..settings() }
}

/// Restores the backup in this place.
async fn restore(executor: &Executor, from: &str) -> Result<RestoreReport> {
    let source = RestoreSource { backup: from.into(), ..RestoreSource::default() };
    Database::restore(executor, &plain(), &source, |_| {}).await
}

#[test]
fn a_restore_that_fails_anywhere_can_be_begun_again() {
    let media = backed_up();
    on(&media, async |executor| lose(executor, &["disk", "flash"]).await);
    for kind in [OpKind::Write, OpKind::Resize, OpKind::Sync, OpKind::Remove] {
        for nth in 1..40 {
            let media = media.copy();
            let errors = vec![ErrorAt { kind, device: Some("disk".into()), nth }];
            let plan = FaultPlan { errors, ..FaultPlan::default() };
            let first = under(plan, &media, async |executor| restore(executor, "backup").await);
            let again = on(&media, async |executor| match Database::open(executor, plain(), "disk").await {
                Ok(database) => database.close().await,
                Err(Error::NotADatabase { .. } | Error::Unfinished { .. }) => {
                    restore(executor, "backup").await.map(drop)
                }
                Err(error) => Err(error),
            });
            assert_eq!(again, Ok(()), "{kind:?} {nth}, {first:?}");
        }
    }
}

/// An attempt with a backup of another database has come as far as the list of backups, which then cannot be removed.
#[test]
fn a_restored_database_has_taken_no_backup_that_only_an_earlier_attempt_was_made_from() {
    let media = backed_up();
    let to = |target: &str, base: Option<&str>| BackupSettings {
        target: target.into(),
        base: base.map(Into::into),
        bytes_per_second: None,
    };
    on(&media, async |executor| {
        lose(executor, &["disk"]).await;
        let database = Database::create(executor, plain()).await?;
        let tree = database.create_partition(PartitionSpec::b_tree("tree")).await?;
        database.transaction(async |tx| tx.put(tree, b"bread", b"one").await).await?;
        // At another time than the other database's backup, of which its number is made.
        executor.sleep_ns(MILLISECOND_NS).await;
        database.backup(&to("archive", None), |_| {}).await?;
        database.close().await?;
        lose(executor, &["disk"]).await;
        Ok::<_, Error>(())
    })
    .expect("backs up");
    let failing = |kind, nth| FaultPlan {
        errors: vec![ErrorAt { kind, device: Some("disk".into()), nth }],
        ..FaultPlan::default()
    };
    let mut lists = 0;
    for nth in 1..40 {
        let media = media.copy();
        let first = under(failing(OpKind::Write, nth), &media, async |executor| restore(executor, "archive").await);
        let has_list =
            on(&media, async |executor| names(executor, "disk").await.contains(&"entresol.backups".to_owned()));
        if first.is_ok() || !has_list {
            continue;
        }
        lists += 1;
        for nth in 1..10 {
            let media = media.copy();
            let second =
                under(failing(OpKind::Remove, nth), &media, async |executor| restore(executor, "backup").await);
            if second.is_err() {
                continue;
            }
            on(&media, async |executor| {
                let database = Database::open(executor, plain(), "disk").await?;
                let tree = database.partition("tree")?;
                for number in 0..200_u32 {
                    database.transaction(async |tx| tx.put(tree, &number.to_be_bytes(), &[2; 100]).await).await?;
                }
                let increment = database.backup(&to("next", Some("archive")), |_| {}).await;
                assert!(
                    matches!(increment, Err(Error::Backup(BackupError::ForeignBase { .. }))),
                    "removal {nth}: {increment:?}"
                );
                database.close().await
            })
            .expect("goes on");
        }
    }
    assert!(lists > 0, "an attempt comes that far");
}

#[test]
fn copies_of_pages_that_an_earlier_database_has_left_are_none_of_the_restored_ones() {
    let media = backed_up();
    on(&media, async |executor| {
        let device = executor.device("disk").expect("the machine has it");
        for name in names(executor, "disk").await.into_iter().filter(|name| name != "double-write") {
            executor.perform(Op::Remove { device, name }).await.result.expect("removes");
        }
        assert_eq!(names(executor, "disk").await, ["double-write"]);
        Database::restore(executor, &plain(), &source(), |_| {}).await.expect("restores");
        assert!(!names(executor, "disk").await.contains(&"double-write".to_owned()));
    });
}

/// An older copy of the database goes on beside a backup that has more of the log: what it does then is another history.
#[test]
fn an_increment_does_not_build_on_a_backup_whose_end_the_log_has_lost() {
    let settings = || Settings { log_device: "flash".into(), ..plain() };
    let to = |target: &str, base: Option<&str>| BackupSettings {
        target: target.into(),
        base: base.map(Into::into),
        bytes_per_second: None,
    };
    let media = Media::new();
    let hardware: String = ["disk", "flash", "backup", "next"]
        .map(|name| format!("[device.{name}]\nwrite_cache = \"volatile\"\nmedium.service = \"20 us\"\n"))
        .concat();
    let mut hardware = Hardware::parse(&hardware, "test").expect("a description");
    let created = on_hardware(hardware.clone(), FaultPlan::default(), &media, async |executor| {
        let database = Database::create(executor, settings()).await?;
        let tree = database.create_partition(PartitionSpec::b_tree("tree")).await?;
        database.load_b_tree(tree, (5_000..45_000_u32).map(|number| (number.to_be_bytes(), [1; 100])), |_| {}).await?;
        database.close().await
    });
    created.expect("is created");
    let older = media.copy();
    let end = on_hardware(hardware.clone(), FaultPlan::default(), &media, async |executor| {
        let database = Database::open(executor, settings(), "disk").await?;
        let tree = database.partition("tree")?;
        let other = database.clone();
        let slow = BackupSettings { bytes_per_second: Some(10 << 20), ..to("backup", None) };
        let backup = executor.spawn(async move { other.backup(&slow, |_| {}).await });
        for number in 0..500_u32 {
            executor.sleep_ns(MILLISECOND_NS).await;
            database.transaction(async |tx| tx.put(tree, &number.to_be_bytes(), &[1; 100]).await).await?;
        }
        backup.join().await.map(|report| report.end)
    })
    .expect("backs up");
    let place = hardware.device_mut("backup").clone();
    for file in media.names("backup") {
        let mut bytes = vec![0; media.length("backup", &file).expect("it is named") as usize];
        media.read("backup", &file, 0, &mut bytes).expect("it is sound");
        older.put(("backup", &place), &file, 0, &bytes);
    }
    on_hardware(hardware.clone(), FaultPlan::default(), &older, async |executor| {
        let database = Database::open(executor, settings(), "disk").await?;
        let tree = database.partition("tree")?;
        assert!(database.log().end() < end, "some is lost: {} of {end}", database.log().end());
        for number in 0..2_000_u32 {
            database.transaction(async |tx| tx.put(tree, &number.to_be_bytes(), &[2; 100]).await).await?;
        }
        assert!(database.log().end() > end, "there is other log in its place");
        let increment = database.backup(&to("next", Some("backup")), |_| {}).await;
        assert!(matches!(increment, Err(Error::Backup(BackupError::ForeignBase { .. }))), "{increment:?}");
        database.close().await
    })
    .expect("goes on");
}

/// A file of another's, beside the mark of an attempt that was cut off.
#[test]
fn a_restore_writes_over_nothing_that_an_earlier_attempt_has_not_made() {
    let media = backed_up();
    on(&media, async |executor| {
        lose(executor, &["disk"]).await;
        let database = Database::create(executor, plain()).await?;
        for name in ["tree", "notes"] {
            database.create_partition(PartitionSpec::b_tree(name)).await?;
        }
        let other = BackupSettings { target: "archive".into(), bytes_per_second: None, base: None };
        database.backup(&other, |_| {}).await?;
        database.close().await?;
        lose(executor, &["disk"]).await;
        Ok::<_, Error>(())
    })
    .expect("backs up");
    let errors = vec![ErrorAt { kind: OpKind::Resize, device: Some("disk".into()), nth: 1 }];
    let plan = FaultPlan { errors, ..FaultPlan::default() };
    under(plan, &media, async |executor| restore(executor, "backup").await).expect_err("is cut off");
    on(&media, async |executor| {
        let device = executor.device("disk").expect("the machine has it");
        let (file, _) = executor.open(device, "notes.pages", true).await.expect("is created");
        executor.perform(Op::Sync { file }).await.result.expect("is durable");
        let refused = restore(executor, "archive").await;
        let is_named = |file: &str| file == "notes.pages";
        assert!(
            matches!(&refused, Err(Error::Backup(BackupError::Occupied { file, .. })) if is_named(file)),
            "{refused:?}"
        );
        assert!(names(executor, "disk").await.contains(&"notes.pages".to_owned()));
        restore(executor, "backup").await?;
        Database::open(executor, plain(), "disk").await?.close().await
    })
    .expect("what the attempt has made it may write over");
}

/// One of two backups that begin in one place is given up, which removes what it has written.
#[test]
fn a_backup_that_was_taken_is_whole_whatever_becomes_of_another_in_its_place() {
    let to_backup = |bytes_per_second| BackupSettings { target: "backup".into(), bytes_per_second, base: None };
    on(&Media::new(), async |executor| {
        let database = Database::create(executor, plain()).await?;
        let tree = database.create_partition(PartitionSpec::b_tree("tree")).await?;
        database.load_b_tree(tree, (0..20_000_u32).map(|number| (number.to_be_bytes(), [1; 100])), |_| {}).await?;
        let given_up = database.clone();
        let given_up = executor.spawn({
            let (executor, slow) = (executor.clone(), to_backup(Some(1 << 20)));
            async move { executor.within(100 * MILLISECOND_NS, given_up.backup(&slow, |_| {})).await.is_none() }
        });
        executor.yield_now().await;
        let taken = database.backup(&to_backup(None), |_| {}).await;
        assert!(given_up.join().await, "it takes longer");
        executor.sleep_ns(100 * MILLISECOND_NS).await;
        if let Err(error) = taken {
            assert!(matches!(error, Error::Backup(BackupError::InUse { .. })), "{error}");
            database.backup(&to_backup(None), |_| {}).await?;
        }
        database.close().await?;
        let (database, _) = restored(executor, &plain(), &source()).await?;
        database.close().await
    })
    .expect("what was taken is restored");
}

#[test]
fn of_two_backups_that_end_together_both_may_have_increments() {
    let to = |target: &str| BackupSettings { target: target.into(), bytes_per_second: None, base: None };
    let device = |(name, us)| format!("[device.{name}]\nmedium.service = \"{us} us\"\n");
    // The list, at home, is read and written for long.
    let text: String =
        [("disk", 2_000), ("backup", 20), ("archive", 20), ("next", 20)].into_iter().map(device).collect();
    let hardware = Hardware::parse(&text, "test").expect("a description");
    for apart_us in (0..60_000).step_by(500) {
        on_hardware(hardware.clone(), FaultPlan::default(), &Media::new(), async |executor| {
            let database = Database::create(executor, plain()).await?;
            let tree = database.create_partition(PartitionSpec::b_tree("tree")).await?;
            database.transaction(async |tx| tx.put(tree, b"milk", b"two litres").await).await?;
            let first = database.clone();
            let first = executor.spawn(async move { first.backup(&to("backup"), |_| {}).await.map(|_| ()) });
            executor.sleep_ns(apart_us * MICROSECOND_NS).await;
            database.backup(&to("archive"), |_| {}).await?;
            first.join().await?;
            for base in ["backup", "archive"] {
                let increment = BackupSettings { base: Some(base.into()), ..to("next") };
                let taken = database.backup(&increment, |_| {}).await;
                taken.unwrap_or_else(|error| panic!("{apart_us} us apart, since {base}: {error}"));
                let next = executor.device("next").expect("described");
                for name in names(executor, "next").await {
                    executor.perform(Op::Remove { device: next, name }).await.result?;
                }
            }
            database.close().await
        })
        .expect("the machine goes on");
    }
}

/// What there is in the backup's place.
async fn in_place(executor: &Executor) -> Vec<String> {
    names(executor, "backup").await
}

#[test]
fn what_a_killed_backup_has_left_is_removed_by_the_next_one() {
    let to_backup = BackupSettings { target: "backup".into(), bytes_per_second: None, base: None };
    let media = Media::new();
    on(&media, async |executor| {
        let database = Database::create(executor, plain()).await?;
        let tree = database.create_partition(PartitionSpec::b_tree("tree")).await?;
        database.transaction(async |tx| tx.put(tree, b"milk", b"two litres").await).await?;
        database.close().await
    })
    .expect("is made");
    let (mut left, mut whole, mut empty) = (0, 0, 0);
    for event in 1.. {
        let media = media.copy();
        let ended = run_up_to(&media, ground::hardware(), Some(event), async |executor| {
            let database = Database::open(executor, plain(), "here").await?;
            database.backup(&to_backup, |_| {}).await
        });
        // The kernel keeps what a process has written that is killed, a power cut takes some of it along.
        let mut random = Random::stream(event, "end");
        match event % 3 {
            0 => media.process_end(&mut random),
            1 => drop(media.power_cut(&mut random, &PowerCut { lost: 1.0, torn: 0.0 })),
            _ => drop(media.power_cut(&mut random, &PowerCut { lost: 0.4, torn: 0.3 })),
        }
        on(&media, async |executor| {
            let found = in_place(executor).await;
            let database = Database::open(executor, plain(), "here").await?;
            match database.backup(&to_backup, |_| {}).await {
                Err(Error::Backup(BackupError::NotEmpty { .. })) => {
                    assert!(found.contains(&"entresol.backup".to_owned()), "{event}: {found:?}");
                    whole += 1;
                }
                Err(error) => panic!("{event}: {error}, {found:?}"),
                Ok(_) if found.is_empty() => empty += 1,
                Ok(_) => left += 1,
            }
            database.close().await?;
            let (database, _) = restored(executor, &plain(), &source()).await?;
            let tree = database.partition("tree")?;
            let milk = database.transaction(async |tx| tx.get(tree, b"milk").await).await?;
            assert_eq!(milk.as_deref(), Some(&b"two litres"[..]), "{event}");
            database.close().await
        })
        .unwrap_or_else(|error| panic!("{event}: {error}"));
        if ended.is_ok() {
            break;
        }
    }
    assert!(left > 10 && whole > 0 && empty > 3, "{left} {whole} {empty}");
}

#[test]
fn a_backup_takes_nothing_away_that_is_not_what_one_has_left() {
    let to_backup = BackupSettings { target: "backup".into(), bytes_per_second: None, base: None };
    let begun = "a backup has begun here and not ended";
    let media = Media::new();
    on(&media, async |executor| {
        let database = Database::create(executor, plain()).await?;
        database.backup(&to_backup, |_| {}).await?;
        assert_eq!(in_place(executor).await, ["data", "entresol.backup", "log"]);
        let device = executor.device("backup").expect("it is there");
        let put = async |name: &str, text: &str| {
            let (file, _) = executor.open(device, name, true).await.expect("creates");
            let mut buffer = executor.frame(4096).expect("memory");
            buffer[..text.len()].copy_from_slice(text.as_bytes());
            let (offset, length, access) = (0, 4096, Access::Asynchronous);
            let op = Op::Write { file, offset, length, buffer, durable: true, access };
            executor.perform(op).await.result.expect("writes");
        };
        let refused = async |named: &str| {
            let before = in_place(executor).await;
            let result = database.backup(&to_backup, |_| {}).await;
            let (place, file) = ("backup".to_owned(), named.to_owned());
            assert_eq!(result, Err(BackupError::NotEmpty { place, file }.into()));
            assert_eq!(in_place(executor).await, before);
        };
        // A whole one, whose last step was lost.
        put("entresol.begun", begun).await;
        refused("data").await;
        lose(executor, &["backup"]).await;
        // Files of others, with or without such a line.
        put("data", "mine").await;
        refused("data").await;
        put("entresol.begun", "what I have begun").await;
        refused("data").await;
        lose(executor, &["backup"]).await;
        put("letters", "mine").await;
        put("entresol.begun", begun).await;
        refused("letters").await;
        database.close().await
    })
    .expect("goes on");
}
