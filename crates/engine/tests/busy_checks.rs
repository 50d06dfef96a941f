//! Checks of b-trees that never rest: damage is named, whatever its numbers are at the moment, and of each tree that could not be looked
//! through it is said.

use base::time::MICROSECOND_NS;
use devices::Hardware;
use entresol_engine::check::CheckReport;
use entresol_engine::organization::allocator;
use entresol_engine::page::header;
use entresol_engine::{Database, PartitionSpec, Settings, Transaction, buffer, checkpoint};
use executor::{Executor, Order};
use std::cell::Cell;
use std::rc::Rc;
use virtual_driver::{Media, Options, VirtualDriver};

const PAGE_SIZE: usize = 1024;
/// The record that is damaged, and how many others come and go before it on its page.
const DAMAGED: u32 = 100_050;
const BESIDE: u32 = 8;

fn settings() -> Settings {
    let buffer = buffer::Settings { frames: 40, page_size: PAGE_SIZE, ..buffer::Settings::default() };
    Settings { buffer, checkpoint: checkpoint::Policy::OFF, ..Settings::default() }
}

fn hardware() -> Hardware {
    Hardware::parse("[device.disk]\nmedium.service = \"100 us\"\n", "test").expect("a description")
}

fn on<T>(media: &Media, work: impl AsyncFnOnce(&Executor) -> T) -> T {
    let driver = VirtualDriver::new(hardware(), Options::default(), media.clone());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let result = executor.run(work(&executor)).expect("the machine goes on");
    executor.stop();
    result
}

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

/// A database of trees with these names, which was closed.
fn closed(names: &[&str]) -> Media {
    let media = Media::new();
    on(&media, async |executor| {
        let database = Database::create(executor, settings()).await.expect("creates");
        for name in names {
            let tree = database.create_partition(PartitionSpec::b_tree(name)).await.expect("creates");
            let records = (0..2_000_u32).map(|number| (key(number * 100), [7; 60]));
            database.load_b_tree(tree, records, |_| {}).await.expect("loads");
            // Whatever comes and goes later finds room on its page.
            let fill = async |tx: &mut Transaction| {
                tx.put(tree, &key(DAMAGED), &[9; 60]).await?;
                for number in 1..=2 * BESIDE {
                    tx.put(tree, &key(DAMAGED - number), &[6; 60]).await?;
                }
                for number in 1..=2 * BESIDE {
                    tx.delete(tree, &key(DAMAGED - number)).await?;
                }
                Ok::<_, entresol_engine::Error>(())
            };
            database.transaction(fill).await.expect("commits");
        }
        database.close().await.expect("closes");
    });
    media
}

/// Changes a page in the file of a partition as what is ill may, but seals it.
fn damage(media: &Media, name: &str, is_page: impl Fn(&[u8]) -> bool, change: impl Fn(&mut [u8])) -> u32 {
    let file = media.names("disk").into_iter().find(|file| file.contains(name)).expect("its file");
    let pages = media.length("disk", &file).expect("it is there") / PAGE_SIZE as u64;
    let mut page = [0; PAGE_SIZE];
    for number in 0..pages {
        let offset = number * PAGE_SIZE as u64;
        media.read("disk", &file, offset, &mut page).expect("it can be read");
        if is_page(&page) {
            change(&mut page);
            header::seal(&mut page);
            media.put(("disk", &hardware().devices["disk"]), &file, offset, &page);
            return number as u32;
        }
    }
    panic!("there is no such page");
}

/// A check while tasks change trees without end: `write` is called again and again with the number of the call.
fn check_beside(
    media: &Media,
    names: &'static [&'static str],
    write: impl AsyncFn(&mut Transaction, base::PartitionId, u32) -> entresol_engine::Result<()> + Copy + 'static,
) -> CheckReport {
    on(media, async |executor| {
        let database = Database::open(executor, settings(), "here").await.expect("opens");
        let is_over = Rc::new(Cell::new(false));
        let writers: Vec<_> = names
            .iter()
            .map(|name| {
                let tree = database.partition(name).expect("it exists");
                let (database, is_over) = (database.clone(), Rc::clone(&is_over));
                executor.spawn(async move {
                    for number in 0.. {
                        if is_over.get() {
                            break;
                        }
                        database.executor().sleep_ns(700 * MICROSECOND_NS).await;
                        let work = async |tx: &mut Transaction| write(tx, tree, number).await;
                        database.transaction(work).await.expect("commits");
                    }
                })
            })
            .collect();
        let report = database.check(|_| {}).await.expect("checks");
        is_over.set(true);
        for writer in writers {
            writer.join().await;
        }
        report
    })
}

/// Records before the damaged one come and go; others fill leaves, which are divided.
async fn come_and_go(tx: &mut Transaction, tree: base::PartitionId, number: u32) -> entresol_engine::Result<()> {
    let beside = key(DAMAGED - 1 - number % BESIDE);
    match number / BESIDE % 2 {
        0 => tx.put(tree, &beside, &[5; 10]).await?,
        _ => _ = tx.delete(tree, &beside).await?,
    }
    for fill in 0..20 {
        tx.put(tree, &key(number * 7_919 % 2_000 * 100 + 1 + fill), &[8; 60]).await?;
    }
    Ok(())
}

#[test]
fn damage_is_named_whose_place_on_its_page_changes_all_the_time() {
    let media = closed(&["notes"]);
    let value = |page: &[u8]| page.windows(60).position(|bytes| bytes == [9; 60]);
    let damaged = damage(
        &media,
        "notes",
        |page| value(page).is_some(),
        |page| {
            // The length of its stored value, and the bytes of the heap that are no record's.
            let length = value(page).expect("it is there") - 10;
            assert_eq!(page[length..length + 2], [68, 0]);
            page[length] = 4;
            let garbage = u16::from_le_bytes([page[34], page[35]]) + 64;
            page[34..36].copy_from_slice(&garbage.to_le_bytes());
        },
    );
    let report = check_beside(&media, &["notes"], come_and_go);
    let is_named = |page: u32, what: &str| page == damaged && what.contains("too few");
    assert!(report.findings.iter().any(|found| is_named(found.page, &found.what)), "{report:?}");
    assert!(report.findings.iter().all(|found| found.page == damaged), "{:?}", report.findings);
}

/// Long values come and go, and pages with them.
async fn come_and_go_long(tx: &mut Transaction, tree: base::PartitionId, number: u32) -> entresol_engine::Result<()> {
    let key = key(number % 11 * 3_001 + 7);
    match number % 3 {
        0 => tx.delete(tree, &key).await.map(drop),
        _ => tx.put(tree, &key, &vec![4; 3_000 + number as usize % 7 * 900]).await,
    }
}

#[test]
fn a_wrong_count_of_free_pages_is_named_where_pages_come_and_go() {
    let media = closed(&["notes"]);
    let clean = check_beside(&media.copy(), &["notes"], come_and_go_long);
    assert_eq!(clean.findings, []);
    let is_first = |page: &[u8]| header::id(page).number == 0;
    damage(&media, "notes", is_first, |page| {
        let state = allocator::read(page);
        page[40..44].copy_from_slice(&(state.free_count + 1).to_le_bytes());
    });
    let report = check_beside(&media, &["notes"], come_and_go_long);
    let is_named = |what: &str| what.contains("free pages, the list has");
    assert!(report.findings.iter().any(|found| found.page == 0 && is_named(&found.what)), "{report:?}");
}

#[test]
fn each_tree_is_named_that_could_not_be_looked_through() {
    let report = check_beside(&closed(&["notes", "others"]), &["notes", "others"], come_and_go);
    assert_eq!(report.findings, []);
    let told = format!("{:?}", report.unsearched);
    assert!(told.contains("notes") && told.contains("others"), "{told}");
}
