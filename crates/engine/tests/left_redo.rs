//! Redo that an opening behind a cache has left until its pages are read, and what else becomes of these pages meanwhile.

use crate::quick_restarts::{DESIGNS, End, check_all, filled, objects, read, run, settings};
use base::PageId;
use base::time::MILLISECOND_NS;
use entresol_engine::{Database, Error, Settings, checkpoint};
use virtual_driver::Media;

const SLOTS: u32 = 500;
const PAGE_SIZE: u64 = 4096;

fn page(database: &Database, number: u64) -> PageId {
    PageId::new(database.partition("objects").expect("it exists"), number as u32)
}

/// Which objects' pages redo is left of.
fn left(database: &Database) -> Vec<u64> {
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
}
