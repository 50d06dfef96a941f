//! Partitions that are emptied, and ones that get other names.

use crate::ground::kinds::{
    KINDS, count, cut, judge, prepared, run, settings, spec, strangers, tiered, whole, with_old, write,
};
use base::{Lsn, PartitionId};
use driver::OpKind;
use entresol_engine::catalog::IndexSpec;
use entresol_engine::checkpoint::{Strategy, SweepSettings};
use entresol_engine::set::{FieldType, FieldValue, Logging, RecordType};
use entresol_engine::{Database, Direction, Error, Isolation, PartitionSpec, Procedures, Result, Settings};
use std::ops::Bound;
use virtual_driver::{ErrorAt, FaultPlan, Media};

fn users(name: &str) -> PartitionSpec {
    let record = RecordType::new([("name", FieldType::Text), ("born", FieldType::U32)]).expect("different names");
    PartitionSpec::b_tree(name).record(record).secondary("by_name", &["name"])
}

async fn add_user(database: &Database, users: PartitionId, number: u32) -> Result<()> {
    let name = format!("user {number}");
    let values = [FieldValue::Text(&name), FieldValue::U32(number)];
    database.transaction(async |tx| tx.insert_record(users, &number.to_be_bytes(), &values).await).await
}

/// How many entries an index has.
async fn entries(database: &Database, partition: PartitionId, index: &str) -> Result<usize> {
    let index = database.secondary(partition, index)?;
    let mut found = 0;
    let look = |_: &[u8], _: &[u8]| {
        found += 1;
        true
    };
    let all = (Bound::Unbounded, Bound::Unbounded);
    database.snapshot().await?.range(partition, index, all, Direction::Forward, look).await?;
    Ok(found)
}

/// How many of the first ten records an empty partition has: object 0 is full of zeros from the start.
fn none_of(kind: usize) -> u64 {
    u64::from(kind == 2)
}

#[test]
fn a_truncation_that_is_cut_off_leaves_all_records_or_none() {
    for kind in 0..KINDS {
        let media = with_old(kind);
        let mut both = [0; 2];
        for event in 1.. {
            let media = media.copy();
            let faults = FaultPlan { power_cut_at: Some(event), ..FaultPlan::default() };
            let truncated = run(&media, faults, async |executor| {
                let database = Database::open(executor, tiered(), "here").await?;
                let old = database.partition("old")?;
                write(&database, (0, database.partition("first")?), 3).await?;
                let empty = database.truncate_partition(old).await?;
                assert_ne!(empty, old);
                for number in 0..10 {
                    write(&database, (kind, empty), number).await?;
                }
                Ok::<_, Error>(())
            });
            cut(&media, event);
            whole(&media, async |executor| {
                let database = Database::open(executor, tiered(), "here").await?;
                assert_eq!(strangers(&media, &database), [""; 0]);
                let old = database.partition("old").expect("there is always one");
                let found = count(&database, (kind, old), 10).await?;
                let is_full = found == 10 && truncated.is_err() && database.describe(old)?.files.is_none();
                both[usize::from(is_full)] += 1;
                assert!(truncated.is_err() || found == 10, "what was written after it is there: {found}");
                for number in found..10 {
                    write(&database, (kind, old), number).await?;
                }
                judge(&database, kind, "old").await?;
                database.close().await
            })
            .unwrap_or_else(|error| panic!("{kind} {event}: {error}"));
            if truncated.is_ok() {
                break;
            }
        }
        assert!(both[0] > 10 && both[1] > 10, "{both:?}");
    }
}

#[test]
fn a_truncation_that_fails_leaves_all_records_or_none() {
    let mut both = [0; 2];
    for kind in 0..KINDS {
        let media = with_old(kind);
        for nth in 1..60 {
            let media = media.copy();
            let errors = vec![ErrorAt { kind: OpKind::Write, device: Some("disk".into()), nth }];
            let truncated = run(&media, FaultPlan { errors, ..FaultPlan::default() }, async |executor| {
                let Ok(database) = Database::open(executor, tiered(), "here").await else { return Ok(None) };
                let old = database.partition("old")?;
                let truncated = database.truncate_partition(old).await;
                if truncated.is_err() && database.describe(old).is_ok() {
                    judge(&database, kind, "old").await?;
                    // It was not to be had then, but now it is.
                    write(&database, (kind, database.truncate_partition(old).await?), 0).await?;
                    return Ok(None);
                }
                Ok::<_, Error>(Some(truncated.is_ok()))
            });
            let truncated = truncated.expect("the machine goes on");
            let truncated = truncated.unwrap_or_else(|error| panic!("{kind} {nth}: {error}"));
            cut(&media, nth);
            whole(&media, async |executor| {
                let database = Database::open(executor, tiered(), "here").await?;
                assert_eq!(strangers(&media, &database), [""; 0]);
                let found = count(&database, (kind, database.partition("old")?), 10).await?;
                if let Some(truncated) = truncated {
                    both[usize::from(truncated)] += 1;
                    assert_eq!(found, if truncated { none_of(kind) } else { 10 });
                }
                database.close().await
            })
            .unwrap_or_else(|error| panic!("{kind} {nth}: {error}"));
        }
    }
    assert!(both[1] > 5, "{both:?}");
}

#[test]
fn a_partition_in_use_is_not_truncated_before_that_ends() {
    for kind in 0..KINDS {
        let media = with_old(kind);
        whole(&media, async |executor| {
            let database = Database::open(executor, tiered(), "here").await?;
            let old = database.partition("old")?;
            let mine = database.begin().await?;
            assert_eq!(database.truncate_partition(old).await, Err(Error::PartitionInUse("old".into())));
            mine.rollback().await?;
            judge(&database, kind, "old").await?;
            let mut snapshot = database.snapshot().await?;
            let truncating = {
                let database = database.clone();
                executor.spawn(async move { database.truncate_partition(old).await })
            };
            executor.sleep_ns(base::time::SECOND_NS).await;
            assert_eq!(database.partition("old"), Err(Error::NoPartition("old".into())));
            let taken = database.create_partition(spec(kind, "old"));
            let _seen = snapshot.get(database.partition("first")?, b"1").await?;
            drop(snapshot);
            let empty = truncating.join().await?;
            assert_eq!(taken.await, Err(Error::PartitionExists("old".into())));
            assert_eq!(database.partition("old"), Ok(empty));
            assert_eq!(count(&database, (kind, empty), 10).await?, none_of(kind));
            assert!(matches!(database.size(old).await, Err(Error::NoPartition(_))));
            assert_eq!(strangers(&media, &database), [""; 0]);
            database.close().await
        })
        .unwrap_or_else(|error| panic!("{kind}: {error}"));
    }
}

#[test]
fn a_truncation_gives_space_back_and_takes_entries_along() {
    let media = prepared();
    whole(&media, async |executor| {
        let database = Database::open(executor, settings(), "here").await?;
        let mut users = database.create_partition(users("users")).await?;
        database.create_index(users, IndexSpec::new("by_birth", &["born"])).await?;
        for round in 0..3 {
            for number in 0..500 {
                add_user(&database, users, number).await?;
            }
            database.checkpoint().await?;
            let full = database.size(users).await?;
            assert_eq!(entries(&database, users, "by_birth").await?, 500);
            let by_name = database.secondary(users, "by_name")?;
            users = database.truncate_partition(users).await?;
            let empty = database.size(users).await?;
            assert!(empty.file * 4 < full.file, "{round}: {full:?}, {empty:?}");
            let files: Vec<String> = media.names("disk").into_iter().filter(|name| name.starts_with("users")).collect();
            assert_eq!(files.len(), 3, "{files:?}");
            assert_ne!(database.secondary(users, "by_name")?, by_name);
            assert_eq!(entries(&database, users, "by_name").await?, 0);
            let index = PartitionId(database.secondary(users, "by_name")? as u16);
            let refused = database.truncate_partition(index).await;
            assert!(matches!(refused, Err(Error::WrongOrganization { .. })), "{refused:?}");
        }
        add_user(&database, users, 7).await
    })
    .expect("works");
    cut(&media, 1);
    whole(&media, async |executor| {
        let database = Database::open(executor, settings(), "here").await?;
        let users = database.partition("users")?;
        assert_eq!(entries(&database, users, "by_name").await?, 1);
        assert_eq!(entries(&database, users, "by_birth").await?, 1);
        assert!(database.check(|_| {}).await?.is_clean());
        database.drop_partition(users).await?;
        assert_eq!(strangers(&media, &database), [""; 0]);
        database.create_partition(self::users("users")).await?;
        database.close().await
    })
    .expect("opens");
}

#[test]
fn readers_of_a_moment_before_a_truncation_are_told_so() {
    for kind in 0..KINDS {
        let media = with_old(kind);
        whole(&media, async |executor| {
            let mut settings = tiered();
            settings.undo.retention_ns = 3_600 * base::time::SECOND_NS;
            let database = Database::open(executor, settings, "here").await?;
            let (first, old) = (database.partition("first")?, database.partition("old")?);
            write(&database, (0, first), 3).await?;
            let before: Lsn = database.snapshot().await?.moment();
            let empty = database.truncate_partition(old).await?;
            // Without a commit in between.
            assert_eq!(count_at(&database, (kind, empty), None).await?, 0);
            write(&database, (kind, empty), 1).await?;
            assert_eq!(count_at(&database, (kind, empty), None).await?, 1);
            let refused = count_at(&database, (kind, empty), Some(before)).await;
            assert!(
                matches!(refused, Err(Error::SnapshotTooOld { oldest, .. }) if oldest > before),
                "{kind}: {refused:?}"
            );
            assert_eq!(count_at(&database, (0, first), Some(before)).await?, 10, "others are as they were");
            let refused = count_at(&database, (kind, old), Some(before)).await;
            assert!(matches!(refused, Err(Error::NoPartition(_))), "{kind}: {refused:?}");
            Ok::<_, Error>(())
        })
        .unwrap_or_else(|error| panic!("{kind}: {error}"));
    }
}

/// A transaction that reads a moment which lies in the midst of a truncation.
#[test]
fn a_transaction_that_began_during_a_truncation_is_not_shown_an_empty_past() {
    let media = with_old(0);
    whole(&media, async |executor| {
        let database = Database::open(executor, tiered(), "here").await?;
        let old = database.partition("old")?;
        let holder = database.snapshot().await?;
        let truncating = {
            let database = database.clone();
            executor.spawn(async move { database.truncate_partition(old).await })
        };
        executor.sleep_ns(base::time::MILLISECOND_NS).await;
        let mut during = database.begin_at(Isolation::Snapshot).await?;
        drop(holder);
        let empty = truncating.join().await?;
        let read = during.get(empty, &1_u64.to_be_bytes()).await;
        assert!(matches!(read, Err(Error::SnapshotTooOld { .. })), "{read:?}");
        drop(during);
        assert_eq!(count(&database, (0, empty), 10).await?, 0);
        Ok::<_, Error>(())
    })
    .expect("works");
}

/// How many of the first ten records a snapshot of that moment or of this one shows.
#[test]
fn a_commit_beside_a_truncation_that_waits_for_a_sweep_is_seen_by_snapshots_behind_both() {
    let sweep = SweepSettings { segments_in_flight: 1, segment_interval_ns: 5_000_000, ..SweepSettings::default() };
    whole(&prepared(), async |executor| {
        let database = Database::open(executor, Settings { sweep, ..settings() }, "here").await?;
        let stock = database.create_partition(spec(3, "stock")).await?;
        let old = database.create_partition(spec(3, "old")).await?;
        let first = database.partition("first")?;
        let records = (0..20_000_u32).map(|number| (number.to_be_bytes(), [7; 100]));
        database.load_set(stock, records, |_| {}).await?;
        write(&database, (3, old), 1).await?;
        let (sweeping, truncating) = (database.clone(), database.clone());
        let swept = executor.spawn(async move { sweeping.checkpoint().await });
        executor.sleep_ns(1_000_000).await;
        let truncated = executor.spawn(async move { truncating.truncate_partition(old).await });
        executor.sleep_ns(1_000_000).await;
        // Versions are kept for it.
        let earlier = database.snapshot().await?;
        write(&database, (0, first), 77).await?;
        assert!(!swept.is_finished() && !truncated.is_finished(), "it waits for the sweep");
        truncated.join().await?;
        let found = database.snapshot().await?.get(first, &77_u64.to_be_bytes()).await?;
        assert!(found.is_some(), "it was acknowledged");
        drop(earlier);
        Ok::<_, Error>(())
    })
    .expect("nothing fails");
}

async fn count_at(database: &Database, (kind, id): (usize, PartitionId), at: Option<Lsn>) -> Result<u64> {
    let mut snapshot = match at {
        Some(at) => database.as_of(at).await?,
        None => database.snapshot().await?,
    };
    let mut found = 0;
    match kind {
        1 => {
            let look = |_, _: &[u8]| {
                found += 1;
                true
            };
            snapshot.scan_appended(id, look).await?;
        }
        2 => {
            for number in 0..10 {
                found += u64::from(snapshot.read_object(id, number, |object| object == [number as u8; 32]).await?);
            }
            found -= none_of(kind);
        }
        _ => {
            for number in 0..10_u64 {
                found += u64::from(snapshot.get(id, &number.to_be_bytes()).await?.is_some());
            }
        }
    }
    Ok(found)
}

#[test]
fn a_renaming_that_is_cut_off_leaves_one_name_and_all_records() {
    for kind in 0..KINDS {
        let media = with_old(kind);
        let mut both = [0; 2];
        for event in 1.. {
            let media = media.copy();
            let other = (kind + 1 + event as usize % 3) % KINDS;
            let faults = FaultPlan { power_cut_at: Some(event), ..FaultPlan::default() };
            let renamed = run(&media, faults, async |executor| {
                let database = Database::open(executor, tiered(), "here").await?;
                let old = database.partition("old")?;
                database.rename_partition(old, "new").await?;
                let again = database.create_partition(spec(other, "old")).await?;
                write(&database, (other, again), 4).await?;
                write(&database, (kind, old), 4).await
            });
            cut(&media, event);
            whole(&media, async |executor| {
                let database = Database::open(executor, tiered(), "here").await?;
                assert_eq!(strangers(&media, &database), [""; 0]);
                let is_renamed = database.partition("new").is_ok();
                both[usize::from(is_renamed)] += 1;
                assert!(is_renamed || renamed.is_err(), "what was acknowledged is there");
                let name = if is_renamed { "new" } else { "old" };
                let found = count(&database, (kind, database.partition(name)?), 10).await?;
                assert!(found == 10 || kind == 1 && found == 11, "{found}");
                if !is_renamed {
                    database.rename_partition(database.partition("old")?, "new").await?;
                }
                if database.partition("old").is_err() {
                    database.create_partition(spec(other, "old")).await?;
                }
                write(&database, (other, database.partition("old")?), 4).await?;
                assert!(database.check(|_| {}).await?.is_clean());
                assert_eq!(strangers(&media, &database), [""; 0]);
                database.drop_partition(database.partition("new")?).await?;
                assert!(count(&database, (other, database.partition("old")?), 10).await? > 0);
                database.close().await
            })
            .unwrap_or_else(|error| panic!("{kind} {event}: {error}"));
            if renamed.is_ok() {
                break;
            }
        }
        assert!(both[0] > 10 && both[1] > 3, "{both:?}");
    }
}

#[test]
fn a_renaming_that_fails_leaves_a_partition_with_one_name() {
    let mut failed = 0;
    for kind in 0..KINDS {
        let media = with_old(kind);
        for (first, count) in (1..30).flat_map(|first| [(first, 1), (first, 1_000)]) {
            let media = media.copy();
            let error = |nth| ErrorAt { kind: OpKind::Write, device: Some("disk".into()), nth };
            let errors = (first..first + count).map(error).collect();
            let renamed = run(&media, FaultPlan { errors, ..FaultPlan::default() }, async |executor| {
                let Ok(database) = Database::open(executor, tiered(), "here").await else { return Ok(None) };
                let old = database.partition("old")?;
                let renamed = database.rename_partition(old, "new").await;
                assert_eq!(database.partition(if renamed.is_ok() { "new" } else { "old" }), Ok(old));
                assert!(database.partition(if renamed.is_ok() { "old" } else { "new" }).is_err());
                Ok::<_, Error>(Some(renamed.is_ok()))
            });
            let renamed = renamed.expect("the machine goes on").unwrap_or_else(|error| panic!("{first}: {error}"));
            failed += u32::from(renamed == Some(false));
            cut(&media, first);
            whole(&media, async |executor| {
                let database = Database::open(executor, tiered(), "here").await?;
                let names = ["old", "new"].map(|name| database.partition(name).is_ok());
                assert_ne!(names[0], names[1], "one of both");
                assert!(renamed != Some(true) || names[1]);
                assert!(renamed != Some(false) || count > 1 || names[0], "it was taken back");
                judge(&database, kind, if names[0] { "old" } else { "new" }).await
            })
            .unwrap_or_else(|error| panic!("{kind} {first} {count}: {error}"));
        }
    }
    assert!(failed > 10, "{failed} failed");
}

#[test]
fn names_that_are_taken_or_none_are_refused() {
    let media = prepared();
    whole(&media, async |executor| {
        let database = Database::open(executor, settings(), "here").await?;
        let (first, users) = (database.partition("first")?, database.create_partition(users("users")).await?);
        let before = database.partitions();
        for taken in ["set", "first"] {
            assert_eq!(database.rename_partition(first, taken).await, Err(Error::PartitionExists(taken.into())));
        }
        for wrong in ["", "a.b", "a/b", "users~3", &"x".repeat(65)] {
            let refused = database.rename_partition(first, wrong).await;
            assert!(matches!(refused, Err(Error::Setting(_))), "{wrong}: {refused:?}");
        }
        let index = PartitionId(database.secondary(users, "by_name")? as u16);
        let refused = database.rename_partition(index, "by_name").await;
        assert!(matches!(refused, Err(Error::WrongOrganization { .. })), "{refused:?}");
        let strange = database.rename_partition(PartitionId(900), "none").await;
        assert!(matches!(strange, Err(Error::NoPartition(_))), "{strange:?}");
        assert_eq!(database.partitions(), before);
        Ok::<_, Error>(())
    })
    .expect("works");
}

#[test]
fn indexes_go_with_a_name_and_come_with_another() {
    let media = prepared();
    whole(&media, async |executor| {
        let database = Database::open(executor, settings(), "here").await?;
        let old = database.create_partition(users("users")).await?;
        add_user(&database, old, 1).await?;
        let mut open = database.begin().await?;
        database.rename_partition(old, "people").await?;
        // A transaction under way goes on.
        open.insert_record(old, b"2", &[FieldValue::Text("two"), FieldValue::U32(2)]).await?;
        open.commit().await?;
        let new = database.create_partition(users("users")).await?;
        add_user(&database, new, 1).await?;
        database.drop_index(old, "by_name").await?;
        database.create_index(old, IndexSpec::new("by_name", &["name"])).await?;
        assert_eq!(entries(&database, old, "by_name").await?, 2);
        // There and back again.
        database.rename_partition(new, "users2").await?;
        database.rename_partition(old, "users").await?;
        database.rename_partition(new, "people").await.map(drop)
    })
    .expect("works");
    for opening in 0..2 {
        cut(&media, opening);
        whole(&media, async |executor| {
            let database = Database::open(executor, settings(), "here").await?;
            let (old, new) = (database.partition("users")?, database.partition("people")?);
            assert_eq!(entries(&database, old, "by_name").await?, 2);
            assert_eq!(entries(&database, new, "by_name").await?, 1);
            assert!(database.check(|_| {}).await?.is_clean());
            assert_eq!(strangers(&media, &database), [""; 0]);
            // The first one goes on to have its files, and the name is another's.
            if opening == 1 {
                database.drop_partition(old).await?;
                assert_eq!(strangers(&media, &database), [""; 0]);
                database.create_partition(users("users")).await?;
                assert_eq!(entries(&database, new, "by_name").await?, 1);
            }
            Ok::<_, Error>(())
        })
        .expect("opens");
    }
}

/// A call that asked for a name before it was another partition's is not run again with the other one.
#[test]
fn calls_that_have_asked_for_a_name_are_not_repeated_after_it_has_changed() {
    let procedures = || {
        let mut procedures = Procedures::new();
        procedures.register("count", async |tx, parameters: &[u8]| {
            let counters = tx.partition(std::str::from_utf8(parameters).expect("a name"))?;
            let before = tx.get_for_update(counters, b"n").await?.map_or(0, |n| n[0]);
            tx.put(counters, b"n", &[before + 1]).await?;
            Ok(Vec::new())
        });
        procedures
    };
    let calling = || Settings {
        procedures: procedures(),
        logging: Logging::Procedures,
        sweep: SweepSettings { strategy: Strategy::StableVersions, ..SweepSettings::default() },
        ..settings()
    };
    let media = Media::new();
    whole(&media, async |executor| {
        let database = Database::create(executor, calling()).await?;
        let one = database.create_partition(spec(3, "one")).await?;
        let two = database.create_partition(spec(3, "two")).await?;
        for _ in 0..4 {
            database.call("count", b"two").await?;
        }
        let two = database.truncate_partition(two).await?;
        for (name, calls) in [("one", 3), ("two", 5)] {
            for _ in 0..calls {
                database.call("count", name.as_bytes()).await?;
            }
        }
        database.rename_partition(one, "three").await?;
        database.rename_partition(two, "one").await?;
        database.call("count", b"one").await.map(drop)
    })
    .expect("works");
    cut(&media, 1);
    whole(&media, async |executor| {
        let database = Database::open(executor, calling(), "here").await?;
        for (name, calls) in [("three", 3), ("one", 6)] {
            let id = database.partition(name)?;
            let found = database.transaction(async |tx| tx.get(id, b"n").await).await?;
            assert_eq!(found, Some(vec![calls]), "{name}");
        }
        Ok::<_, Error>(())
    })
    .expect("opens");
}
