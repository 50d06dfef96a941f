//! Pages that cannot be written to their own places, for a while or for good, keep no others from theirs.

use crate::ground::cached::{self, ONCE, cache, change, create, goes_home, read};
use crate::ground::holding::refusing;
use crate::ground::machine::run;
use base::time::SECOND_NS;
use base::{PageId, PartitionId};
use driver::Op;
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::second_level::CacheSettings;
use entresol_engine::{Database, Error, Internals, PartitionSpec, Settings, Transaction, buffer, checkpoint, log};
use structures::page::header;
use virtual_driver::{Hardware, Media};

/// Pages lie apart from each other, so each is written by itself.
const APART: usize = 2;

/// Pages are staged against tearing if it may `tear` them.
fn machine(tears: bool) -> Hardware {
    let mut hardware = Hardware::ideal();
    if tears {
        hardware.device_mut("disk").atomic_write = 512;
    }
    hardware
}

/// Without a cache, and with a log that is nowhere near full though such a page keeps it.
fn settings() -> Settings {
    let settings = cached::settings(None::<CacheSettings>);
    Settings { log: log::Settings { capacity: 64 << 20, ..settings.log }, ..settings }
}

/// Room for `frames` pages.
fn roomy(settings: Settings, frames: usize) -> Settings {
    Settings { buffer: buffer::Settings { frames, ..settings.buffer }, ..settings }
}

async fn create_other(database: &Database, name: &str, objects: u64) -> PartitionId {
    let organization = Organization::Direct { objects, blocking_factor: 1, record_size: 100 };
    database.create_partition(PartitionSpec::new(name, organization, Locking::Page)).await.expect("creates")
}

async fn set(database: &Database, partition: PartitionId, numbers: impl IntoIterator<Item = u64>, value: u8) {
    for number in numbers {
        let modify = async |tx: &mut Transaction| tx.modify_object(partition, number, |bytes| bytes[0] = value).await;
        database.transaction(modify).await.expect("changes");
    }
}

fn dirty(database: &Database) -> Vec<PageId> {
    database.buffer().pool().borrow().dirty_pages().collect()
}

fn id(database: &Database, number: u32) -> PageId {
    PageId::new(database.partition("objects").expect("it exists"), number)
}

/// It comes first where pages are written, and is the last to be changed. The others hold the log from before it.
#[test]
fn a_page_that_cannot_be_written_keeps_no_other_one_from_its_place() {
    for (has_cache, tears) in [(false, false), (false, true), (true, false)] {
        let media = Media::new();
        let settings = if has_cache { cached::settings(cache(ONCE, 300)) } else { settings() };
        let settings = roomy(settings, 400);
        let what = format!("a cache: {has_cache}, pages may tear: {tears}");
        refusing(machine(tears), &media, async |executor, holder| {
            let database = create(executor, settings.clone(), 200).await;
            let other = create_other(&database, "other", 100).await;
            database.checkpoint().await.expect("succeeds");
            let (page, tiers) = (id(&database, 2), database.buffer().tiers());
            let slots = tiers.and_then(|tiers| Some(tiers.cache.as_ref()?.file));
            holder
                .refuse(move |op| goes_home(op, page) && !matches!(op, Op::Write { file, .. } if Some(*file) == slots));
            if has_cache {
                // Each goes past the cache when it is written again.
                change(&database, (2..200).step_by(APART), 1).await;
                set(&database, other, (0..100).step_by(APART), 1).await;
                database.checkpoint().await.expect_err("its own place takes nothing");
            }
            set(&database, other, (0..100).step_by(APART), 2).await;
            change(&database, (4..200).step_by(APART), 2).await;
            let before = database.log().end();
            change(&database, [2], 2).await;
            for _ in 0..3 {
                database.checkpoint().await.expect_err("its own place takes nothing");
                assert_eq!(dirty(&database), [page], "{what}");
            }
            assert!(has_cache || database.log().oldest() >= before, "{what}: others keep the log");
        });
        run(&media, async |executor| {
            let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
            let values = read(&database, (2..200).step_by(APART)).await;
            assert!(values.iter().all(|value| *value == 2), "{what}: {values:?}");
        });
    }
}

/// Checkpoints by the size of the log write what has been dirty for long, however often one page fails.
#[test]
fn a_page_that_cannot_be_written_keeps_no_other_one_from_growing_old() {
    let policy = checkpoint::Policy { log_bytes: Some(32 << 10), interval_ns: None };
    let settings = Settings { checkpoint: policy, ..roomy(settings(), 200) };
    refusing(Hardware::ideal(), &Media::new(), async |executor, holder| {
        let database = create(executor, settings, 100).await;
        let page = id(&database, 2);
        holder.refuse(move |op| goes_home(op, page));
        let grow = async |value: u8| {
            // Enough of the log for a checkpoint, which comes in time.
            for round in 0..300 {
                change(&database, [50], value.wrapping_add(round as u8)).await;
            }
            executor.sleep_ns(2 * SECOND_NS).await;
        };
        change(&database, [2], 1).await;
        for round in 0..4 {
            grow(round).await;
        }
        change(&database, (4..40).step_by(APART), 1).await;
        assert!(dirty(&database).contains(&page), "its own place takes nothing");
        for round in 0..4 {
            grow(round).await;
        }
        let mut left = dirty(&database);
        left.retain(|left| *left != id(&database, 50));
        assert_eq!(left, [page]);
    });
}

/// What is staged of a page that fails is needed only of its latest version.
#[test]
fn a_page_that_fails_for_long_leaves_room_in_the_double_write_area() {
    let media = Media::new();
    refusing(machine(true), &media, async |executor, holder| {
        let database = create(executor, roomy(settings(), 100), 60).await;
        let page = id(&database, 2);
        holder.refuse(move |op| goes_home(op, page));
        for round in 0..600_u64 {
            change(&database, [2, 4 + round % 20 * APART as u64], round as u8).await;
            database.checkpoint().await.expect_err("its own place takes nothing");
        }
        holder.refuse(|_| false);
        database.checkpoint().await.expect("its own place takes it again");
        assert!(dirty(&database).is_empty(), "all come to their own places");
    });
}

/// However many fail at a time.
#[test]
fn a_device_that_fails_for_a_while_leaves_room_in_the_double_write_area() {
    let media = Media::new();
    refusing(machine(true), &media, async |executor, holder| {
        let database = create(executor, roomy(settings(), 1_000), 2).await;
        let mut partitions = Vec::new();
        for number in 0..12 {
            partitions.push(create_other(&database, &format!("other-{number}"), 100).await);
        }
        database.checkpoint().await.expect("succeeds");
        for partition in &partitions {
            set(&database, *partition, (0..100).step_by(APART), 7).await;
        }
        let failing = partitions.clone();
        holder.refuse(move |op| match op {
            Op::Write { buffer, .. } => {
                let page = header::id(buffer);
                failing.contains(&page.partition) && goes_home(op, page)
            }
            _ => false,
        });
        for _ in 0..50 {
            database.checkpoint().await.expect_err("nothing comes to its own place");
        }
        holder.refuse(|_| false);
        database.checkpoint().await.expect("the device works again");
        assert!(dirty(&database).is_empty(), "all come to their own places");
        for partition in &partitions {
            let read = async |tx: &mut Transaction| tx.read_object(*partition, 8, |bytes| bytes[0]).await;
            assert_eq!(database.transaction(read).await, Ok::<u8, Error>(7));
        }
    });
}

/// Writes these pages by themselves, as far as they are dirty.
async fn write(database: &Database, pages: &[PageId]) -> Result<(), Error> {
    let frames = pages.iter().filter_map(|page| database.buffer().pool().borrow().frame_of(*page)).collect();
    database.buffer().write_back(frames).await
}

/// Failed writes have torn pages in their own places. Many others are staged before the machine stops.
#[test]
fn a_page_that_a_failed_write_has_torn_is_whole_after_a_restart() {
    let (media, settings) = (Media::new(), roomy(settings(), 100));
    let torn = [2, 6, 10, 14];
    refusing(machine(true), &media, async |executor, holder| {
        let database = create(executor, settings.clone(), 60).await;
        change(&database, 0..60, 1).await;
        database.checkpoint().await.expect("succeeds");
        let pages = torn.map(|number| id(&database, number));
        holder.refuse(move |op| pages.iter().any(|page| goes_home(op, *page)));
        change(&database, torn.map(u64::from), 2).await;
        write(&database, &pages).await.expect_err("their own places take nothing");
        assert_eq!(dirty(&database).len(), torn.len());
        for round in 0..600_u64 {
            let other = 20 + round % 20 * APART as u64;
            change(&database, [other], 3).await;
            write(&database, &[id(&database, other as u32)]).await.expect("others are written");
        }
        assert_eq!(dirty(&database).len(), torn.len());
    });
    for number in torn {
        let offset = u64::from(number) * settings.buffer.page_size as u64 + 500;
        media.flip_bit("disk", "objects.pages", offset, 3).expect("it is there");
    }
    refusing(machine(true), &media, async |executor, _| {
        let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
        let values = read(&database, 0..60).await;
        assert!(torn.iter().all(|number| values[*number as usize] == 2), "{values:?}");
        assert_eq!((values[0], values[20]), (1, 3));
    });
}

#[cfg(feature = "canary")]
mod planted {
    use super::*;
    use crate::ground::planting::is_found;
    use entresol_engine::canary::Canary;

    #[test]
    fn a_copy_that_is_dropped_although_its_page_was_not_written_is_found() {
        is_found(Canary::DroppedCopy, a_page_that_a_failed_write_has_torn_is_whole_after_a_restart);
    }
}
