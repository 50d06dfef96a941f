//! Partitions that come to be, or not, and go.

use crate::ground::kinds::{
    KINDS, count, cut, judge, prepared, run, settings, spec, strangers, tiered, whole, with_old, write,
};
use base::Random;
use driver::OpKind;
use entresol_engine::set::{FieldType, RecordType};
use entresol_engine::{Database, Error, PartitionSpec, Settings, log};
use virtual_driver::{ErrorAt, FaultPlan, Media, PowerCut};

/// What a drop could not remove is removed by an opening, also if its name was given again meanwhile, on another device.
#[test]
fn a_file_that_could_not_be_removed_is_removed_once_its_name_is_free() {
    let media = prepared();
    let notes = |device: &str| PartitionSpec { device: device.into(), ..PartitionSpec::b_tree("notes") };
    whole(&media, async |executor| {
        let database = Database::open(executor, settings(), "here").await?;
        database.create_partition(notes("flash")).await?;
        database.close().await
    })
    .expect("is made");
    let error = |nth| ErrorAt { kind: OpKind::Remove, device: Some("flash".into()), nth };
    let faults = FaultPlan { errors: (0..99).map(error).collect(), ..FaultPlan::default() };
    run(&media, faults, async |executor| {
        let database = Database::open(executor, settings(), "here").await?;
        database.drop_partition(database.partition("notes")?).await?;
        database.create_partition(notes("disk")).await?;
        database.close().await
    })
    .expect("the machine goes on")
    .expect("the file is no partition's any more");
    for _ in 0..2 {
        whole(&media, async |executor| Database::open(executor, settings(), "here").await?.close().await)
            .expect("opens");
    }
    assert!(media.length("flash", "notes.pages").is_some(), "two devices may be one directory");
    for _ in 0..2 {
        whole(&media, async |executor| {
            let database = Database::open(executor, settings(), "here").await?;
            if let Ok(notes) = database.partition("notes") {
                database.drop_partition(notes).await?;
            }
            database.close().await
        })
        .expect("drops it");
    }
    assert_eq!(["disk", "flash"].map(|device| media.length(device, "notes.pages")), [None, None]);
}

#[test]
fn a_creation_that_fails_leaves_nothing_but_its_number() {
    let media = prepared();
    let mut failed = 0;
    for (kind, operation) in (0..KINDS).flat_map(|kind| [(kind, OpKind::Write), (kind, OpKind::Sync)]) {
        for nth in 1..40 {
            let media = media.copy();
            let errors = vec![ErrorAt { kind: operation, device: Some("disk".into()), nth }];
            let other = (kind + 1 + nth as usize % 3) % KINDS;
            let worked = run(&media, FaultPlan { errors, ..FaultPlan::default() }, async |executor| {
                let Ok(database) = Database::open(executor, settings(), "here").await else { return Ok(false) };
                let Err(_) = database.create_partition(spec(kind, "dead")).await else { return Ok(false) };
                assert!(database.partition("dead").is_err());
                assert_eq!(strangers(&media, &database), [""; 0]);
                let id = database.create_partition(spec(other, "alive")).await?;
                let again = database.create_partition(spec(kind, "dead")).await?;
                write(&database, (kind, again), 0).await?;
                database.drop_partition(again).await?;
                for number in 0..5 {
                    write(&database, (other, id), number).await?;
                }
                database.checkpoint().await?;
                for number in 5..10 {
                    write(&database, (other, id), number).await?;
                }
                Ok::<_, Error>(true)
            });
            let worked = worked.expect("the machine goes on").unwrap_or_else(|error| panic!("{kind} {nth}: {error}"));
            if !worked {
                continue;
            }
            failed += 1;
            cut(&media, nth);
            whole(&media, async |executor| {
                let database = Database::open(executor, settings(), "here").await?;
                judge(&database, other, "alive").await?;
                assert!(database.partition("dead").is_err());
                let again = database.create_partition(spec(kind, "dead")).await?;
                write(&database, (kind, again), 0).await
            })
            .unwrap_or_else(|error| panic!("{kind} {operation:?} {nth}: {error}"));
        }
    }
    assert!(failed > 20, "{failed} creations failed");
}

#[test]
fn a_creation_that_is_cut_off_leaves_its_number_unused() {
    let media = prepared();
    for kind in 0..KINDS {
        let mut both = [0; 2];
        for event in 1.. {
            let media = media.copy();
            let other = (kind + 1 + event as usize % 3) % KINDS;
            let faults = FaultPlan { power_cut_at: Some(event), ..FaultPlan::default() };
            let created = run(&media, faults, async |executor| {
                let database = Database::open(executor, settings(), "here").await?;
                database.create_partition(spec(kind, "doubtful")).await
            });
            cut(&media, event);
            whole(&media, async |executor| {
                let database = Database::open(executor, settings(), "here").await?;
                let is_there = database.partition("doubtful").is_ok();
                assert!(is_there || created.is_err(), "what was acknowledged is there");
                both[usize::from(is_there)] += 1;
                let id = database.create_partition(spec(other, "alive")).await?;
                for number in 0..10 {
                    write(&database, (other, id), number).await?;
                }
                Ok::<_, Error>(())
            })
            .unwrap_or_else(|error| panic!("{kind} {event}: {error}"));
            cut(&media, event);
            whole(&media, async |executor| {
                let database = Database::open(executor, settings(), "here").await?;
                judge(&database, other, "alive").await?;
                if database.partition("doubtful").is_err() {
                    database.create_partition(spec(kind, "doubtful")).await?;
                }
                write(&database, (kind, database.partition("doubtful")?), 3).await
            })
            .unwrap_or_else(|error| panic!("{kind} {event}: {error}"));
            if created.is_ok() {
                break;
            }
        }
        assert!(both[0] > 3 && both[1] > 0, "{both:?}");
    }
}

#[test]
fn thousands_of_partitions_have_room() {
    let media = Media::new();
    let partitions = 5_000;
    let name = |number| format!("partition-with-a-name-of-some-length-{number}");
    whole(&media, async |executor| {
        let settings = Settings { log: log::Settings { capacity: 64 << 20, ..settings().log }, ..settings() };
        let database = Database::create(executor, settings).await?;
        let fields = ["customer", "amount", "paid"].map(|name| (name, FieldType::U32));
        let record = RecordType::new(fields).expect("different names");
        for number in 0..partitions {
            let spec = match number % 10 {
                0 => PartitionSpec::set(&name(number)).record(record.clone()).secondary("index", &["amount", "paid"]),
                _ => spec(number % 3, &name(number)),
            };
            database.create_partition(spec).await?;
        }
        database.close().await
    })
    .expect("they are created");
    whole(&media, async |executor| {
        let database = Database::open(executor, settings(), "here").await?;
        assert_eq!(database.partitions().len(), partitions);
        let typed = database.describe(database.partition(&name(40))?)?;
        assert_eq!(typed.schema.as_ref().map(|schema| schema.secondaries.len()), Some(1));
        write(&database, (1, database.partition(&name(1))?), 0).await?;
        database.close().await
    })
    .expect("they are found");
}

#[test]
fn an_unreadable_copy_of_the_superblock_file_does_no_harm_and_is_written_again() {
    let media = prepared();
    for copy in 0..2 {
        for at in [0, 4096, 65_535] {
            let media = media.copy();
            let at = copy * 65_536 + at;
            media.make_unreadable("disk", "entresol.home", at, 1).expect("exists");
            whole(&media, async |executor| {
                let database = Database::open(executor, settings(), "here").await?;
                assert_eq!(count(&database, (0, database.partition("first")?), 10).await?, 10);
                database.close().await
            })
            .unwrap_or_else(|error| panic!("copy {copy} at {at}: {error}"));
            if at % 65_536 == 0 {
                media.read("disk", "entresol.home", at, &mut [0]).expect("it was written again");
            }
        }
    }
}

#[test]
fn the_only_whole_copy_of_the_superblock_file_is_never_written_over() {
    let media = prepared();
    for copy in 0..2 {
        let media = media.copy();
        media.make_unreadable("disk", "entresol.home", copy * 65_536, 1).expect("exists");
        for event in 1.. {
            let media = media.copy();
            let faults = FaultPlan { power_cut_at: Some(event), ..FaultPlan::default() };
            let opened =
                run(&media, faults, async |executor| Database::open(executor, settings(), "here").await?.close().await);
            // Of what was being written nothing survives whole.
            media.power_cut(&mut Random::stream(event, "home"), &PowerCut { lost: 0.0, torn: 1.0 });
            whole(&media, async |executor| {
                let database = Database::open(executor, settings(), "here").await?;
                assert_eq!(count(&database, (0, database.partition("first")?), 10).await?, 10);
                Ok::<_, Error>(())
            })
            .unwrap_or_else(|error| panic!("copy {copy}, event {event}: {error}"));
            if opened.is_ok() {
                break;
            }
        }
    }
}

#[test]
fn a_drop_that_is_cut_off_leaves_the_whole_partition_or_nothing() {
    for kind in 0..KINDS {
        let media = with_old(kind);
        let mut both = [0; 2];
        for event in 1.. {
            let media = media.copy();
            let other = (kind + 1 + event as usize % 3) % KINDS;
            let faults = FaultPlan { power_cut_at: Some(event), ..FaultPlan::default() };
            let dropped = run(&media, faults, async |executor| {
                let database = Database::open(executor, tiered(), "here").await?;
                let old = database.partition("old")?;
                write(&database, (0, database.partition("first")?), 3).await?;
                database.drop_partition(old).await?;
                let new = database.create_partition(spec(other, "old")).await?;
                assert_ne!(new, old);
                for number in 0..10 {
                    write(&database, (other, new), number).await?;
                }
                Ok::<_, Error>(())
            });
            cut(&media, event);
            whole(&media, async |executor| {
                let database = Database::open(executor, tiered(), "here").await?;
                assert_eq!(strangers(&media, &database), [""; 0]);
                let found = database.partition("old").and_then(|id| database.describe(id));
                let is_there = found.is_ok_and(|found| found.organization == spec(kind, "old").organization);
                assert!(!(is_there && dropped.is_ok()), "what was dropped is gone");
                both[usize::from(is_there)] += 1;
                let last = if is_there { kind } else { other };
                if is_there || dropped.is_ok() {
                    judge(&database, last, "old").await?;
                } else if let Ok(id) = database.partition("old") {
                    let found = count(&database, (other, id), 10).await?;
                    write(&database, (other, id), 9).await?;
                    assert!(found <= 10);
                }
                database.close().await
            })
            .unwrap_or_else(|error| panic!("{kind} {event}: {error}"));
            if dropped.is_ok() {
                break;
            }
        }
        assert!(both[0] > 10 && both[1] > 10, "{both:?}");
    }
}

#[test]
fn a_drop_that_fails_leaves_the_whole_partition_or_nothing() {
    let mut both = [0; 2];
    for kind in 0..KINDS {
        let media = with_old(kind);
        for nth in 1..60 {
            let media = media.copy();
            let errors = vec![ErrorAt { kind: OpKind::Write, device: Some("disk".into()), nth }];
            let dropped = run(&media, FaultPlan { errors, ..FaultPlan::default() }, async |executor| {
                let Ok(database) = Database::open(executor, tiered(), "here").await else { return Ok(None) };
                let old = database.partition("old")?;
                let dropped = database.drop_partition(old).await;
                if dropped.is_err() && database.describe(old).is_ok() {
                    judge(&database, kind, "old").await?;
                }
                Ok::<_, Error>(Some(dropped.is_ok()))
            });
            let dropped = dropped.expect("the machine goes on").unwrap_or_else(|error| panic!("{kind} {nth}: {error}"));
            let Some(dropped) = dropped else { continue };
            both[usize::from(dropped)] += 1;
            cut(&media, nth);
            whole(&media, async |executor| {
                let database = Database::open(executor, tiered(), "here").await?;
                assert_eq!(strangers(&media, &database), [""; 0]);
                assert_eq!(database.partition("old").is_err(), dropped);
                if !dropped {
                    judge(&database, kind, "old").await?;
                }
                Ok::<_, Error>(())
            })
            .unwrap_or_else(|error| panic!("{kind} {nth}: {error}"));
        }
    }
    assert!(both[0] > 5 && both[1] > 5, "{both:?}");
}

#[test]
fn a_partition_in_use_is_not_dropped_before_that_ends() {
    for kind in 0..KINDS {
        let media = with_old(kind);
        whole(&media, async |executor| {
            let database = Database::open(executor, tiered(), "here").await?;
            let old = database.partition("old")?;
            let mut mine = database.begin().await?;
            if kind == 0 {
                mine.put(old, b"new", b"value").await?;
            }
            let began = executor.now();
            let refused = database.drop_partition(old).await;
            assert_eq!(refused, Err(Error::PartitionInUse("old".into())));
            assert!(executor.now().since_ns(began) >= 10 * base::time::SECOND_NS);
            mine.rollback().await?;
            let snapshot = database.snapshot().await?;
            let dropping = {
                let database = database.clone();
                executor.spawn(async move { database.drop_partition(old).await })
            };
            executor.sleep_ns(base::time::SECOND_NS).await;
            assert_eq!(database.partition("old"), Err(Error::NoPartition("old".into())));
            let taken = database.create_partition(spec(kind, "other"));
            // Neither is a name free, nor a commit lost, nor another client kept waiting.
            write(&database, (0, database.partition("first")?), 4).await?;
            drop(snapshot);
            assert_eq!(dropping.join().await, Ok(()));
            taken.await?;
            assert!(matches!(write(&database, (kind, old), 1).await, Err(Error::NoPartition(_))));
            let new = database.create_partition(spec(kind, "old")).await?;
            for number in 0..10 {
                write(&database, (kind, new), number).await?;
            }
            Ok::<_, Error>(())
        })
        .unwrap_or_else(|error| panic!("{kind}: {error}"));
        cut(&media, 1);
        whole(&media, async |executor| {
            let database = Database::open(executor, tiered(), "here").await?;
            judge(&database, kind, "old").await
        })
        .unwrap_or_else(|error| panic!("{kind}: {error}"));
    }
}

#[test]
fn partitions_come_and_go_beside_transactions_and_checkpoints() {
    let media = prepared();
    for opening in 0..6 {
        let result = run(&media, FaultPlan::default(), async |executor| {
            let database = Database::open(executor, tiered(), "here").await?;
            let first = database.partition("first")?;
            let writer = {
                let (database, executor) = (database.clone(), executor.clone());
                executor.clone().spawn(async move {
                    for number in 0..400 {
                        write(&database, (0, first), number % 10).await?;
                        executor.sleep_ns(100_000).await;
                    }
                    Ok::<_, Error>(())
                })
            };
            let sweeper = {
                let (database, executor) = (database.clone(), executor.clone());
                executor.clone().spawn(async move {
                    for _ in 0..10 {
                        database.checkpoint().await?;
                        executor.sleep_ns(1_000_000).await;
                    }
                    Ok::<_, Error>(())
                })
            };
            let mut comings = Vec::new();
            for task in 0..3 {
                let database = database.clone();
                comings.push(executor.spawn(async move {
                    for round in 0..6 {
                        let (kind, name) = ((task + round) % KINDS, format!("guest-{task}"));
                        let id = match database.partition(&name) {
                            Ok(left) => left,
                            Err(_) => database.create_partition(spec(kind, &name)).await?,
                        };
                        if database.describe(id)?.organization == spec(kind, &name).organization {
                            for number in 0..20 {
                                write(&database, (kind, id), number).await?;
                            }
                        }
                        database.drop_partition(id).await?;
                    }
                    let kept = format!("guest-{task}");
                    database.create_partition(spec(task, &kept)).await.map(drop)
                }));
            }
            for coming in comings {
                coming.join().await?;
            }
            writer.join().await?;
            sweeper.join().await?;
            judge(&database, 0, "first").await
        });
        result.expect("the machine goes on").unwrap_or_else(|error| panic!("opening {opening}: {error}"));
        cut(&media, opening);
    }
}

#[cfg(feature = "canary")]
mod planted {
    use crate::ground::planting::is_found;
    use entresol_engine::canary::Canary;

    #[test]
    fn a_number_that_is_given_twice_is_found() {
        is_found(Canary::ReusedNumber, super::a_creation_that_is_cut_off_leaves_its_number_unused);
    }

    #[test]
    fn redo_of_what_no_catalog_knows_is_found() {
        is_found(Canary::RedoneStranger, super::a_drop_that_is_cut_off_leaves_the_whole_partition_or_nothing);
    }

    #[test]
    fn a_drop_that_does_not_wait_is_found() {
        is_found(Canary::HastyDrop, super::a_partition_in_use_is_not_dropped_before_that_ends);
    }
}
