//! Pages that cannot be written to their own places, for a while or for good, keep no others from theirs.

use crate::ground::cached::{self, ONCE, cache, change, create, goes_home, is_written, read};
use crate::ground::holding::{Holder, refusing};
use crate::ground::machine::run;
use base::time::SECOND_NS;
use base::{PageId, PartitionId};
use driver::{FileId, Op};
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::second_level::{CacheSettings, DESIGNS, Design, Parameters};
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
    for (has_cache, tears) in [(false, false), (false, true), (true, false), (true, true)] {
        let media = Media::new();
        let settings = if has_cache { cached::settings(cache(ONCE, 300)) } else { settings() };
        let settings = roomy(settings, 400);
        let what = format!("a cache: {has_cache}, pages may tear: {tears}");
        refusing(machine(tears), &media, async |executor, holder| {
            let database = create(executor, settings.clone(), 200).await;
            let other = create_other(&database, "other", 100).await;
            database.checkpoint().await.expect("succeeds");
            let (page, home) = (id(&database, 2), holder.file("objects.pages"));
            holder.refuse(move |op| is_written(op, home, page));
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

/// Neither does it keep others from being read, nor from giving up the log, be they in a cache or past it: by each design. A miss that
/// meets it as its victim takes another one.
#[test]
fn a_page_that_cannot_be_written_keeps_no_other_one_from_being_read() {
    let mut failures = 0;
    for (design, group_pages) in DESIGNS.iter().flat_map(|design| [(*design, 1), (*design, 4)]) {
        let media = Media::new();
        let parameters = Parameters { dirty_max_percent: 100, group_pages, ..Parameters::default() };
        let settings = cached::settings(CacheSettings { parameters, ..cache(design, 40) });
        let settings = Settings { log: log::Settings { capacity: 64 << 20, ..settings.log }, ..settings };
        let what = format!("{design:?}, {group_pages} together");
        refusing(machine(true), &media, async |executor, holder| {
            let database = create(executor, settings.clone(), 60).await;
            let other = create_other(&database, "other", 200).await;
            set(&database, other, 0..200, 1).await;
            change(&database, 0..60, 1).await;
            let changed = database.log().end();
            database.checkpoint().await.expect("succeeds");
            let cleans = database.log().oldest() >= changed;
            let (page, home) = (id(&database, 3), holder.file("objects.pages"));
            holder.refuse(move |op| is_written(op, home, page));
            let mut before = database.log().end();
            for value in 2..6 {
                change(&database, (0..60).filter(|number| *number != 3), value).await;
                if value == 2 {
                    before = database.log().end();
                    change(&database, [3], value).await;
                }
                failures += u32::from(database.checkpoint().await.is_err());
                change(&database, 20..40, value).await;
                failures += u32::from(database.checkpoint().await.is_err());
                let values = read(&database, 0..60).await;
                let is_read = |(number, read): (usize, &u8)| *read == if number == 3 { 2 } else { value };
                assert!(values.iter().enumerate().all(is_read), "{what}: {values:?}");
                for number in 0..200 {
                    let read = async |tx: &mut Transaction| tx.read_object(other, number, |bytes| bytes[0]).await;
                    assert_eq!(database.transaction(read).await, Ok::<u8, Error>(1), "{what}");
                }
                assert!(!cleans || database.log().oldest() >= before, "{what}: others keep the log");
            }
        });
        run(&media, async |executor| {
            let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
            let values = read(&database, 0..60).await;
            let is_there = |(number, read): (usize, &u8)| *read == if number == 3 { 2 } else { 5 };
            assert!(values.iter().enumerate().all(is_there), "{what}: {values:?}");
        });
    }
    assert!(failures > 40, "{failures} checkpoints have failed");
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

/// Refuses what is written to the files of these partitions.
fn refuse_files(holder: &Holder, names: &[String]) {
    let files: Vec<FileId> = names.iter().map(|name| holder.file(&format!("{name}.pages"))).collect();
    holder.refuse(move |op| matches!(op, Op::Write { file, .. } if files.contains(file)));
}

/// Also where its pages leave main memory for a cache meanwhile, and come to their own places from there.
#[test]
fn a_device_that_fails_for_a_while_below_a_cache_leaves_room_in_the_double_write_area() {
    let parameters = Parameters { dirty_max_percent: 100, ..Parameters::default() };
    let cache = CacheSettings { parameters, ..cache(Design::named("lazy-cleaning").expect("it exists"), 6_000) };
    let settings = roomy(cached::settings(cache), 400);
    let settings = Settings { log: log::Settings { capacity: 64 << 20, ..settings.log }, ..settings };
    refusing(machine(true), &Media::new(), async |executor, holder| {
        let database = create(executor, settings, 1_000).await;
        let names: Vec<String> = (0..12).map(|number| format!("other{number}")).collect();
        let mut partitions = Vec::new();
        for name in &names {
            partitions.push(create_other(&database, name, 400).await);
        }
        read(&database, 0..1_000).await;
        database.checkpoint().await.expect("succeeds");
        refuse_files(holder, &names);
        for round in 0..12 {
            for partition in &partitions {
                set(&database, *partition, round * 32..round * 32 + 32, 7).await;
            }
            database.checkpoint().await.expect_err("nothing comes to its own place");
            read(&database, 0..1_000).await;
        }
        change(&database, 0..100, 1).await;
        database.checkpoint().await.expect_err("nothing comes to its own place");
        assert!(dirty(&database).iter().all(|page| partitions.contains(&page.partition)), "others do");
        holder.refuse(|_| false);
        database.checkpoint().await.expect("the device works again");
        assert!(dirty(&database).is_empty(), "all come to their own places");
        for partition in &partitions {
            let read = async |tx: &mut Transaction| tx.read_object(*partition, 383, |bytes| bytes[0]).await;
            assert_eq!(database.transaction(read).await, Ok::<u8, Error>(7));
        }
    });
}

/// Pages that fail one by one among many others keep no regions of their own.
#[test]
fn pages_that_fail_one_by_one_leave_room_in_the_double_write_area() {
    refusing(machine(true), &Media::new(), async |executor, holder| {
        let database = create(executor, roomy(settings(), 1_000), 100).await;
        let failing = create_other(&database, "failing", 100).await;
        database.checkpoint().await.expect("succeeds");
        refuse_files(holder, &["failing".to_owned()]);
        let others: Vec<PageId> = (0..100).map(|number| id(&database, number)).collect();
        for number in 0..80 {
            set(&database, failing, [u64::from(number)], 1).await;
            write(&database, &[PageId::new(failing, number)]).await.expect_err("its own place takes nothing");
            for round in 0..2 {
                change(&database, (round..100).step_by(APART), number as u8).await;
                for page in others.iter().skip(round as usize).step_by(APART) {
                    write(&database, &[*page]).await.expect("others are written");
                }
            }
        }
        holder.refuse(|_| false);
        database.checkpoint().await.expect("the device works again");
        assert!(dirty(&database).is_empty(), "all come to their own places");
    });
}

/// However many fail at once, pages of others are staged.
#[test]
fn a_device_whose_pages_all_fail_leaves_others_room_in_the_double_write_area() {
    let media = Media::new();
    let settings = roomy(settings(), 6_000);
    refusing(machine(true), &media, async |executor, holder| {
        let database = create(executor, settings.clone(), 10).await;
        let failing = create_other(&database, "failing", 5_000).await;
        database.checkpoint().await.expect("succeeds");
        refuse_files(holder, &["failing".to_owned()]);
        for number in 0..5_000 {
            set(&database, failing, [u64::from(number)], 1).await;
            write(&database, &[PageId::new(failing, number)]).await.expect_err("nothing comes to its own place");
            if number % 100 == 0 {
                change(&database, [3], (number / 100) as u8).await;
                write(&database, &[id(&database, 3)]).await.expect("others are written");
            }
        }
        database.checkpoint().await.expect_err("nothing comes to its own place");
        holder.refuse(|_| false);
        database.checkpoint().await.expect("the device works again");
        assert!(dirty(&database).is_empty(), "all come to their own places");
    });
    run(&media, async |executor| {
        let database = Database::open(executor, settings, "here").await.expect("opens");
        assert_eq!(read(&database, [3]).await, [49]);
    });
}

/// Writes these pages by themselves, as far as they are dirty.
async fn write(database: &Database, pages: &[PageId]) -> Result<(), Error> {
    let frames = pages.iter().filter_map(|page| database.buffer().pool().borrow().frame_of(*page)).collect();
    database.buffer().write_back(frames).await
}

/// Failed writes have torn pages in their own places, together or one by one. Many others are staged before the machine stops.
#[test]
fn a_page_that_a_failed_write_has_torn_is_whole_after_a_restart() {
    for together in [4, 1] {
        let (media, settings) = (Media::new(), roomy(settings(), 100));
        let torn = [2, 6, 10, 14];
        refusing(machine(true), &media, async |executor, holder| {
            let database = create(executor, settings.clone(), 60).await;
            change(&database, 0..60, 1).await;
            database.checkpoint().await.expect("succeeds");
            let pages = torn.map(|number| id(&database, number));
            holder.refuse(move |op| pages.iter().any(|page| goes_home(op, *page)));
            for pages in pages.chunks(together) {
                change(&database, pages.iter().map(|page| page.number.into()), 2).await;
                write(&database, pages).await.expect_err("their own places take nothing");
                for round in 0..600_u64 {
                    let other = 20 + round % 20 * APART as u64;
                    change(&database, [other], 3).await;
                    write(&database, &[id(&database, other as u32)]).await.expect("others are written");
                }
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
