//! Redo that an opening behind a cache has left until its pages are read, and what else becomes of these pages meanwhile.

use crate::quick_restarts::{DESIGNS, End, change, check_all, filled, objects, read, run, run_with, settings};
use base::time::{MILLISECOND_NS, SECOND_NS};
use base::{PageId, Random};
use driver::{Op, OpKind};
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::second_level::{self, CacheSettings, Design};
use entresol_engine::{
    BackupSettings, Database, Error, Internals, PartitionSpec, RestoreSource, Settings, Transaction, buffer, checkpoint,
};
use virtual_driver::{ErrorAt, Media, PowerCut};

pub const SLOTS: u32 = 500;
const PAGE_SIZE: u64 = 4096;

fn page(database: &Database, number: u64) -> PageId {
    PageId::new(database.partition("objects").expect("it exists"), number as u32)
}

/// Which objects' pages redo is left of.
pub fn left(database: &Database) -> Vec<u64> {
    (0..objects(SLOTS)).filter(|number| database.buffer().is_left(page(database, *number))).collect()
}

/// Flips a bit of this object's page in its own place.
fn flip(media: &Media, number: u64) {
    media.flip_bit("volume", "objects.pages", number * PAGE_SIZE + 500, 3).expect("it is there");
}

#[test]
fn two_readers_of_a_torn_page_get_the_same() {
    for design in DESIGNS {
        let media = Media::new();
        let values = filled(&media, (design, SLOTS), End::Kill);
        (0..objects(SLOTS)).for_each(|number| flip(&media, number));
        let settings = settings(design, SLOTS, checkpoint::Policy::OFF);
        let whole = run(&media, async |executor| {
            let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
            let mut whole = 0;
            for number in left(&database).into_iter().rev().take(100) {
                let [one, other] = [0, 1].map(|_| {
                    let database = database.clone();
                    executor.spawn(async move { read(&database, number).await })
                });
                let (one, other) = (one.join().await, other.join().await);
                match (&one, &other) {
                    (Ok(one), Ok(other)) => {
                        assert_eq!([*one, *other], [values[number as usize]; 2], "{design}, {number}");
                        whole += 1;
                    }
                    (Err(Error::DamagedPage { .. }), Err(Error::DamagedPage { .. })) => {}
                    _ => panic!("{design}, {number}: {one:?} and {other:?}"),
                }
            }
            whole
        });
        assert!(whole > 10, "{design}: {whole} pages have a copy in some slot");
    }
}

#[test]
fn a_page_on_its_way_whose_place_is_not_given_to_a_load_keeps_its_changes() {
    let media = Media::new();
    let values = filled(&media, ("face", SLOTS), End::Kill);
    let settings = settings("face", SLOTS, checkpoint::Policy::OFF);
    run(&media, async |executor| {
        let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
        let numbers = left(&database);
        let at_home =
            |number: &&u64| database.buffer().tiers().expect("a cache").tier_of(page(&database, **number)).is_none();
        let number = *numbers.iter().rev().find(at_home).expect("some are in no slot");
        let reading = {
            let database = database.clone();
            executor.spawn(async move { read(&database, number).await })
        };
        executor.sleep_ns(MILLISECOND_NS / 2).await;
        let id = page(&database, number);
        assert!(!database.buffer().make_way(id.partition, id.number..id.number + 1), "it is being read");
        assert_eq!(reading.join().await.expect("reads"), values[number as usize]);
    });
}

#[test]
fn a_partition_is_dropped_while_a_checkpoint_reads_its_pages() {
    for design in DESIGNS {
        let media = Media::new();
        let values = filled(&media, (design, SLOTS), End::Kill);
        let settings = settings(design, SLOTS, checkpoint::Policy::OFF);
        for wait_ns in [0, 1, 3, 10].map(|ms| ms * MILLISECOND_NS) {
            let media = media.copy();
            run(&media, async |executor| {
                let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
                assert_eq!(read(&database, 0).await.expect("reads"), values[0]);
                assert!(!left(&database).is_empty(), "{design}");
                let checkpoint = {
                    let database = database.clone();
                    executor.spawn(async move { database.checkpoint().await })
                };
                executor.sleep_ns(wait_ns).await;
                database.drop_partition(database.partition("objects").expect("it is there")).await.expect("drops");
                checkpoint.join().await.unwrap_or_else(|error| panic!("{design}, {wait_ns}: {error}"));
                database.close().await.expect("closes");
            });
            run(&media, async |executor| {
                let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
                assert!(database.partition("objects").is_err());
            });
        }
    }
}

/// A page that redo is left of, that is in no slot, and of which no slot has a copy that makes it whole when it is damaged: the media
/// with that damage, and the page's number.
fn with_damage(media: &Media, settings: &Settings) -> (Media, u64) {
    let numbers = run(&media.copy(), async |executor| {
        let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
        let tiers = database.buffer().tiers().expect("there is a cache");
        let mut numbers = left(&database);
        numbers.retain(|number| tiers.tier_of(page(&database, *number)).is_none());
        numbers
    });
    let damaged = numbers.into_iter().rev().map(|number| {
        let media = media.copy();
        flip(&media, number);
        (media, number)
    });
    let is_damaged = |(media, number): &(Media, u64)| {
        run(&media.copy(), async |executor| {
            let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
            matches!(read(&database, *number).await, Err(Error::DamagedPage { .. }))
        })
    };
    damaged.into_iter().find(is_damaged).expect("there is one")
}

/// A left page that is damaged is told of by its readers and by checkpoints. These write all else, and keep what it needs of the log.
#[test]
fn a_left_page_that_is_damaged_costs_no_other_one_and_keeps_its_log() {
    for design in DESIGNS {
        let media = Media::new();
        let values = filled(&media, (design, SLOTS), End::Kill);
        let settings = settings(design, SLOTS, checkpoint::Policy::OFF);
        let (media, damaged) = with_damage(&media, &settings);
        let before = run(&media, async |executor| {
            let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
            let failed = database.checkpoint().await;
            assert!(matches!(failed, Err(Error::DamagedPage { .. })), "{design}: {failed:?}");
            assert!(matches!(read(&database, damaged).await, Err(Error::DamagedPage { .. })), "{design}");
            assert_eq!(left(&database), [damaged], "{design}");
            for number in (0..objects(SLOTS)).filter(|number| *number != damaged) {
                assert_eq!(read(&database, number).await.expect("reads"), values[number as usize], "{design}");
            }
            assert!(database.clone().close().await.is_err(), "{design}");
            database.recovery().log_bytes
        });
        // The copy is sound after all.
        flip(&media, damaged);
        run(&media, async |executor| {
            let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
            assert_eq!(read(&database, damaged).await.expect("reads"), values[damaged as usize], "{design}");
            check_all(&database, &values, design).await;
            let after = database.recovery().log_bytes;
            // FaCE's cache keeps what only it has, and the log what would make that anew.
            assert!(after < before || design == "face", "{design}: {after} bytes are redone after {before}");
            database.close().await.expect("closes");
        });
    }
}

/// Far more is to be redone than the buffer has memory for: it is made from the log, page by page, and is as good.
pub fn much_filled(media: &Media, settings: &Settings, seed: u64) -> Vec<u8> {
    let mut values = filled(media, ("lazy-cleaning", SLOTS), End::Kill);
    run(media, async |executor| {
        let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
        let (objects, mut random) = (database.partition("objects").expect("it exists"), Random::stream(seed, "much"));
        for _ in 0..40 {
            let numbers: Vec<usize> = (0..50).map(|_| random.below(values.len() as u64) as usize).collect();
            let value = random.below(256) as u8;
            let fill = async |tx: &mut Transaction| {
                for number in &numbers {
                    tx.modify_object(objects, *number as u64, |bytes| bytes.fill(value)).await?;
                }
                Ok::<(), Error>(())
            };
            database.transaction(fill).await.expect("changes");
            numbers.iter().for_each(|number| values[*number] = value);
        }
    });
    values
}

pub fn with_few_frames() -> Settings {
    let settings = settings("lazy-cleaning", SLOTS, checkpoint::Policy::OFF);
    Settings { buffer: buffer::Settings { frames: 48, ..settings.buffer }, ..settings }
}

#[test]
fn what_memory_has_no_room_for_is_made_from_the_log() {
    let settings = with_few_frames();
    for seed in 0..3 {
        let media = Media::new();
        let values = much_filled(&media, &settings, seed);
        let what = format!("seed {seed}");
        run(&media.copy(), async |executor| {
            let began = executor.now();
            let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
            let took_ns = executor.now().since_ns(began);
            assert!(took_ns < SECOND_NS / 4, "{what}: {took_ns} ns, {:?}", database.recovery());
            let left = database.recovery().pages_left;
            assert!(left * 10 > objects(SLOTS) * 9, "{what}: redo is left of {left} pages");
            // Before the task that reads them in turn comes by.
            for number in (0..values.len()).rev() {
                assert_eq!(read(&database, number as u64).await.expect("reads"), values[number], "{what}: {number}");
            }
            database.checkpoint().await.expect("succeeds");
        });
        for wait_ns in [0, 20 * MILLISECOND_NS, SECOND_NS] {
            run(&media, async |executor| {
                let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
                executor.sleep_ns(wait_ns).await;
                check_all(&database, &values, &what).await;
            });
        }
        run(&media, async |executor| {
            let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
            database.close().await.expect("closes");
            let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
            check_all(&database, &values, &what).await;
        });
    }
}

/// Where the log cannot be read any more of which redo is left, the pages that lack it are refused, and nothing is given up of it.
#[test]
fn a_page_whose_redo_cannot_be_read_any_more_is_refused() {
    let (media, settings) = (Media::new(), with_few_frames());
    let values = much_filled(&media, &settings, 7);
    let before = media.copy();
    run(&media, async |executor| {
        let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
        for offset in (0..16 << 20).step_by(4096) {
            let _unwritten = media.flip_bit("disk", "log", offset + 1000, 2);
        }
        let mut refused = 0;
        for number in (0..values.len()).rev() {
            match read(&database, number as u64).await {
                Ok(value) => assert_eq!(value, values[number], "{number}"),
                Err(Error::DamagedLog { .. }) => refused += 1,
                Err(error) => panic!("{number}: {error}"),
            }
        }
        assert!(refused > 100, "{refused} pages are refused");
        let failed = database.checkpoint().await;
        assert!(matches!(failed, Err(Error::DamagedLog { .. })), "{failed:?}");
    });
    // The log as it was: pages that were written meanwhile have their changes already.
    let mut log = vec![0; before.length("disk", "log").expect("it is there") as usize];
    before.read("disk", "log", 0, &mut log).expect("it can be read");
    for offset in (0..log.len() as u64).step_by(4096) {
        let mut now = [0; 1];
        media.read("disk", "log", offset + 1000, &mut now).expect("it can be read");
        if now[0] != log[offset as usize + 1000] {
            media.flip_bit("disk", "log", offset + 1000, 2).expect("it is there");
        }
    }
    run(&media, async |executor| {
        let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
        check_all(&database, &values, "mended").await;
    });
}

#[test]
fn a_cache_that_is_changed_or_fails_behind_an_opening_costs_nothing() {
    for design in DESIGNS {
        let media = Media::new();
        let values = filled(&media, (design, SLOTS), End::PowerCut);
        let settings = settings(design, SLOTS, checkpoint::Policy::OFF);
        let cache = settings.hierarchy.cache.clone().expect("there is one");
        let others = [
            None,
            Some(CacheSettings { pages: SLOTS / 2, ..cache.clone() }),
            Some(CacheSettings { design: Design::named("tac").expect("it has this name"), ..cache.clone() }),
        ];
        for other in others {
            let (media, what) = (media.copy(), format!("{design}, {other:?}"));
            run(&media, async |executor| {
                let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
                assert!(!left(&database).is_empty(), "{what}");
                let changing = {
                    let (database, other) = (database.clone(), other.clone());
                    executor.spawn(async move { database.set_cache(other).await })
                };
                for number in 0..50 {
                    assert_eq!(read(&database, number).await.expect("reads"), values[number as usize], "{what}");
                }
                changing.join().await.expect("is changed");
                assert!(left(&database).is_empty(), "{what}");
                check_all(&database, &values, &what).await;
            });
            let hierarchy = second_level::Settings { cache: other, ..settings.hierarchy.clone() };
            run(&media, async |executor| {
                let settings = Settings { hierarchy, ..settings.clone() };
                let database = Database::open(executor, settings, "here").await.expect("opens");
                check_all(&database, &values, &what).await;
            });
        }
        // Its device fails, or hangs, from some moment behind the opening on.
        for nth in [1, 5, 40, 200] {
            let (media, what) = (media.copy(), format!("{design}, read {nth}"));
            let errors =
                (nth..nth + 3_000).map(|nth| ErrorAt { kind: OpKind::Read, device: Some("flash".into()), nth });
            run_with(errors.collect(), &media, async |executor| {
                let Ok(database) = Database::open(executor, settings.clone(), "here").await else { return };
                for number in 0..objects(SLOTS) {
                    // What only the cache has, and was read by no redo, may be refused, but is never another value.
                    if let Ok(value) = read(&database, number).await {
                        assert_eq!(value, values[number as usize], "{what}: {number}");
                    }
                }
                let _may_fail = database.checkpoint().await;
            });
            run(&media, async |executor| {
                let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
                check_all(&database, &values, &what).await;
            });
        }
    }
}

/// Checks, backups and their increments, and what makes a partition smaller, beside redo that is left.
#[test]
fn maintenance_beside_left_redo_takes_it_into_account() {
    for design in DESIGNS {
        let media = Media::new();
        let mut values = filled(&media, (design, SLOTS), End::PowerCut);
        let settings = settings(design, SLOTS, checkpoint::Policy::OFF);
        let backup = |target: &str, base: Option<&str>| BackupSettings {
            target: target.into(),
            base: base.map(Into::into),
            bytes_per_second: None,
        };
        run(&media.copy(), async |executor| {
            let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
            assert!(!left(&database).is_empty(), "{design}");
            let checked = database.check(|_| {}).await.expect("reads");
            assert!(checked.is_clean(), "{design}: {:?}", checked.findings);
            check_all(&database, &values, design).await;
        });
        run(&media, async |executor| {
            let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
            assert!(!left(&database).is_empty(), "{design}");
            database.backup(&backup("backup", None), |_| {}).await.expect("succeeds");
            for number in (0..values.len()).step_by(3) {
                values[number] = 77;
                change(&database, number as u64, 77).await.expect("changes");
            }
        });
        run(&media, async |executor| {
            let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
            assert!(!left(&database).is_empty(), "{design}");
            database.backup(&backup("next", Some("backup")), |_| {}).await.expect("succeeds");
        });
        for shrinks in [false, true] {
            run(&media.copy(), async |executor| {
                let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
                let objects = database.partition("objects").expect("it exists");
                if shrinks {
                    database.compact_partition(objects).await.expect("succeeds");
                    check_all(&database, &values, design).await;
                } else {
                    let emptied = database.truncate_partition(objects).await.expect("succeeds");
                    let first = async |tx: &mut Transaction| tx.read_object(emptied, 3, |bytes| bytes[0]).await;
                    assert_eq!(database.transaction(first).await.expect("reads"), 0, "{design}");
                }
                database.close().await.expect("closes");
            });
        }
        run(&media, async |executor| {
            for device in ["disk", "volume", "flash"] {
                let found = executor.device(device).expect("the machine has it");
                for name in executor.names(found).await.expect("lists") {
                    executor.perform(Op::Remove { device: found, name }).await.result.expect("removes");
                }
            }
            let source = RestoreSource { backup: "next".into(), archive: None };
            Database::restore(executor, &settings, &source, |_| {}).await.expect("restores");
            let database = Database::open(executor, settings.clone(), "restored").await.expect("opens");
            check_all(&database, &values, design).await;
        });
    }
}

/// Pages that were changed and written to their own places since the table was written are in the slots as they were before. A scan must
/// not go past the cache for them while redo of them is left: the newer pages lack nothing, and the slots would serve again.
#[test]
fn a_scan_behind_an_opening_leaves_no_older_version_in_a_slot() {
    for design in second_level::DESIGNS.iter().map(|design| design.name()) {
        let (media, settings) = (Media::new(), settings(design, SLOTS, checkpoint::Policy::OFF));
        let frames = settings.buffer.frames as u64;
        run(&media, async |executor| {
            let database = Database::create(executor, settings.clone()).await.expect("creates");
            let organization = Organization::Direct { objects: 1_100, blocking_factor: 1, record_size: 100 };
            let spec = PartitionSpec::new("objects", organization, Locking::Page);
            database.create_partition(PartitionSpec { device: "volume".into(), ..spec }).await.expect("creates");
            for number in 0..1_100 {
                change(&database, number, 1).await.expect("changes");
            }
            for number in [905].into_iter().chain(930..930 + frames) {
                read(&database, number).await.expect("reads");
            }
            database.checkpoint().await.expect("succeeds");
            // Main memory is full of changed pages then, and whatever leaves it goes to its own place where the design wants that.
            for number in (0..800).chain([905]).chain(1_050 - frames..1_050).chain(800..900) {
                change(&database, number, 3).await.expect("changes");
            }
            executor.sleep_ns(SECOND_NS).await;
        });
        run(&media, async |executor| {
            let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
            let objects = database.partition("objects").expect("it exists");
            let mut seen = Vec::new();
            let scan = async |tx: &mut Transaction| {
                tx.scan_objects(objects, 900..910, |number, bytes| seen.push((number, bytes[0]))).await
            };
            database.transaction(scan).await.expect("scans");
            assert_eq!(seen, (900..910).map(|number| (number, if number == 905 { 3 } else { 1 })).collect::<Vec<_>>());
            for number in 0..2 * frames {
                assert_eq!(read(&database, number).await.expect("reads"), 3, "{design}, {number}");
            }
            assert_eq!(read(&database, 905).await.expect("reads"), 3, "{design}: what is newest");
        });
    }
}

/// Redo goes on from a slot's copy while the page is written to its own place, where the same power cut may tear it.
#[test]
fn what_slots_hold_is_durable_once_an_opening_goes_on_from_it() {
    let copies = |media: &Media| {
        let mut bytes = vec![0; SLOTS as usize * PAGE_SIZE as usize];
        media.read("flash", "cache.tier", 4096, &mut bytes).expect("it can be read");
        bytes.chunks_exact(PAGE_SIZE as usize).map(<[u8]>::to_vec).collect::<Vec<_>>()
    };
    for design in DESIGNS.into_iter().chain(["clean-write"]) {
        let media = Media::new();
        filled(&media, (design, SLOTS), End::Kill);
        let before = copies(&media);
        let lost = media.copy();
        let everything = PowerCut { lost: 1.0, torn: 0.0 };
        lost.power_cut(&mut Random::stream(5, "power cut"), &everything);
        assert!(design != "clean-write" || copies(&lost) != before, "some are not durable");
        let settings = settings(design, SLOTS, checkpoint::Policy::OFF);
        run(&media, async |executor| drop(Database::open(executor, settings, "here").await.expect("opens")));
        let kept: Vec<bool> = copies(&media).iter().zip(&before).map(|(copy, before)| copy == before).collect();
        media.power_cut(&mut Random::stream(5, "power cut"), &everything);
        let after = copies(&media);
        let is_there = |slot: &usize| after[*slot] == before[*slot];
        assert!((0..SLOTS as usize).filter(|slot| kept[*slot]).all(|slot| is_there(&slot)), "{design}");
    }
}

#[cfg(feature = "canary")]
mod planted {
    use super::*;
    use crate::ground::planting::is_found;
    use entresol_engine::canary::Canary;

    #[test]
    fn a_checkpoint_behind_which_redo_is_left_is_found() {
        is_found(Canary::LeftBehind, a_left_page_that_is_damaged_costs_no_other_one_and_keeps_its_log);
    }

    #[test]
    fn a_page_without_what_is_left_of_redo_is_found() {
        is_found(Canary::ForgottenRedo, crate::quick_restarts::a_database_that_is_closed_at_once_has_redone_everything);
    }

    #[test]
    fn a_scan_past_redo_is_found() {
        is_found(Canary::PassedRedo, a_scan_behind_an_opening_leaves_no_older_version_in_a_slot);
    }

    #[test]
    fn copies_that_are_not_durable_are_found() {
        is_found(Canary::UnsyncedSlots, what_slots_hold_is_durable_once_an_opening_goes_on_from_it);
    }
}
