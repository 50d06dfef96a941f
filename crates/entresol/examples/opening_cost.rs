//! What an opening behind a large cache that is full takes:
//! `cargo run --release -p entresol --example opening_cost -- make DIR 16GiB`, then `... -- open DIR 16GiB`, which can be repeated, each
//! time behind a kill.
//!
//! The cache is of pages of 4 KiB and lies on DIR/large, best a file system in a sparse file. A database of 0.2 GB fills some of
//! its slots; the others are stated in the cache's table as if they held pages, and no more than that is read of them. So openings meet the whole
//! table of a cache that is larger than the disk. What is stated of the real slots is spread over the table.
#![allow(
    clippy::disallowed_methods,
    reason = "a kill at a moment of wall time, and files as they are, are what is measured"
)]

use base::units::{format_size, parse_size};
use base::{Lsn, PageId, PartitionId, Random};
use engine::catalog::{Locking, Organization};
use engine::tier_file::table::{BLOCK_BYTES, BLOCKS_AT_ONCE, CHANGES_MAX, HeldVersion, PageVersion, SlotTable};
use engine::tier_file::table::{TABLE_FILE, TablePosition, block_number};
use engine::{Database, PartitionSpec, Transaction};
use entresol::configuration::Configuration;
use entresol::{Opening, Store};
use real_driver::wall_ns;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::error::Error;
use std::io::Read;
use std::path::Path;
use std::rc::Rc;

#[global_allocator]
static HEAP: real_driver::Heap = real_driver::Heap;

const PAGE_BYTES: u64 = 4096;
/// Objects that are there, each on a page of its own.
const OBJECTS: u64 = 50_000;
/// Behind them, the first page that the cache only seems to hold.
const SEEMING: u32 = 1 << 20;
const READERS: u64 = 8;
const SECONDS: u64 = 10;
const SECOND_NS: u64 = 1_000_000_000;

fn opened(directory: &Path, cache_bytes: u64, design: &str) -> Result<Store, Box<dyn Error>> {
    let text = format!(
        "[device.large]\npath = \"{}\"\n[buffer]\nsize = \"64 MiB\"\npage_size = \"4 KiB\"\n[log]\nsize = \"256 MiB\"\n\
         [cache]\ndevice = \"large\"\nsize = \"{} MiB\"\ndesign = \"{design}\"\n",
        directory.join("large").display(),
        cache_bytes >> 20
    );
    Ok(Opening::new(directory, Configuration::parse(&text)?).open()?)
}

async fn change(database: &Database, objects: PartitionId, numbers: impl Iterator<Item = u64>) -> engine::Result<()> {
    let numbers: Vec<u64> = numbers.collect();
    let write = async |tx: &mut Transaction| {
        for number in &numbers {
            tx.modify_object(objects, *number, |bytes| bytes[0] = *number as u8).await?;
        }
        Ok::<(), engine::Error>(())
    };
    database.transaction(write).await
}

async fn read(database: &Database, objects: PartitionId, number: u64) -> engine::Result<()> {
    let read = async |tx: &mut Transaction| tx.read_object(objects, number, |bytes| bytes[0]).await;
    let found = database.transaction(read).await?;
    assert_eq!(found, number as u8, "object {number} is what it was");
    Ok(())
}

/// The stamp of the table, and the number of its last block.
fn end_of_table(path: &Path) -> Result<TablePosition, Box<dyn Error>> {
    let (mut file, mut bytes) = (std::fs::File::open(path)?, vec![0; BLOCK_BYTES]);
    let mut position = TablePosition { stamp: 0, number: 0 };
    while file.read_exact(&mut bytes).is_ok() {
        if let Some(number) = block_number(&bytes).filter(|number| *number > position.number) {
            position = TablePosition { stamp: u64::from_le_bytes(bytes[8..16].try_into()?), number };
        }
    }
    Ok(position)
}

/// Has the table state of every slot that it holds a page.
async fn fill_table(
    store: &Store,
    directory: &Path,
    (slots, objects): (u32, PartitionId),
) -> Result<(), Box<dyn Error>> {
    let position = end_of_table(&directory.join("large").join(TABLE_FILE))?;
    let executor = store.executor();
    let device = executor.device("large").ok_or("no such device")?;
    let (table, mut rest) = SlotTable::open(executor, device, (slots, 1), position).await??;
    let mut real = BTreeMap::new();
    while let Some(read) = rest.read(executor, 256).await?? {
        real.extend(read.into_iter().filter_map(|(slot, held)| Some((slot, held?))));
    }
    println!("{} slots hold pages", real.len());
    let held = |slot: u32| {
        let page = PageId::new(objects, SEEMING + slot);
        let seeming = HeldVersion { page, version: PageVersion { sequence: 1, lsn: Lsn(1) } };
        Some(real.get(&slot).copied().unwrap_or(seeming))
    };
    // All of them, once, in an order that is none.
    let step = (u64::from(slots) * 5 / 8) | 1;
    let at_once = BLOCKS_AT_ONCE * CHANGES_MAX;
    for first in (0..u64::from(slots)).step_by(at_once) {
        let numbers = first..(first + at_once as u64).min(u64::from(slots));
        let changed: Vec<u32> = numbers.map(|number| (number * step % u64::from(slots)) as u32).collect();
        table.state(executor, &changed, held).await?;
    }
    Ok(())
}

fn make(directory: &Path, cache_bytes: u64, design: &str) -> Result<(), Box<dyn Error>> {
    let slots = (cache_bytes / PAGE_BYTES) as u32;
    let store = opened(directory, cache_bytes, design)?;
    let objects = store.run(async |database| {
        let pages = u64::from(SEEMING) + u64::from(slots) + 1;
        let organization = Organization::Direct { objects: pages, blocking_factor: 1, record_size: 100 };
        let spec = PartitionSpec::new("objects", organization, Locking::Page);
        let objects = database.create_partition(PartitionSpec { device: "large".into(), ..spec }).await?;
        for first in (0..OBJECTS).step_by(100) {
            change(database, objects, first..first + 100).await?;
        }
        change(database, objects, [pages - 1].into_iter()).await?;
        database.checkpoint().await?;
        database.clone().close().await?;
        Ok(objects)
    })?;
    let filled = store.executor().run(fill_table(&store, directory, (slots, objects)));
    filled.map_err(|halt| format!("{halt:?}"))??;
    drop(store);
    // The superblock file names the table's end from here on.
    let store = opened(directory, cache_bytes, design)?;
    let tiers = store.database().buffer().tiers().ok_or("there is no cache")?;
    let loaded = store.executor().run(async move { tiers.await_loading().await });
    loaded.map_err(|halt| format!("{halt:?}"))?;
    store.close()?;
    Ok(())
}

/// What this process took of memory at most, in bytes.
fn memory_max() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) << 10
}

fn open(directory: &Path, cache_bytes: u64, design: &str) -> Result<(), Box<dyn Error>> {
    let began = wall_ns();
    let store = opened(directory, cache_bytes, design)?;
    let opened_ns = wall_ns() - began;
    let memory = memory_max();
    let objects = store.database().partition("objects")?;
    let executor = store.executor();
    let longest = Rc::new(Cell::new([0; SECONDS as usize]));
    let done = Rc::new(Cell::new([0_u64; SECONDS as usize]));
    let ended = executor.run(async {
        let tasks: Vec<_> = (0..READERS)
            .map(|reader| {
                let (database, longest, done) = (store.database().clone(), Rc::clone(&longest), Rc::clone(&done));
                executor.spawn(async move {
                    let mut random = Random::stream(reader + began, "reading");
                    loop {
                        let from = wall_ns();
                        let number = random.below(OBJECTS);
                        let outcome = match number % 10 {
                            0 => change(&database, objects, [number].into_iter()).await,
                            _ => read(&database, objects, number).await,
                        };
                        let now = wall_ns();
                        let Some(second) = Some((now - began) / SECOND_NS).filter(|second| *second < SECONDS) else {
                            return outcome;
                        };
                        outcome?;
                        let (mut most, mut counts) = (longest.get(), done.get());
                        most[second as usize] = most[second as usize].max(now - from);
                        counts[second as usize] += 1;
                        longest.set(most);
                        done.set(counts);
                    }
                })
            })
            .collect();
        let tiers = store.database().buffer().tiers().expect("there is a cache");
        let hits = || store.database().tiers()[0].reads;
        let (mut first_ns, mut loaded_ns, mut by_second) = (None, None, Vec::new());
        for millisecond in 0..1_000 * SECONDS {
            let until = began + millisecond * SECOND_NS / 1_000;
            executor.sleep_ns(until.saturating_sub(wall_ns())).await;
            if hits() > 0 && first_ns.is_none() {
                first_ns = Some(wall_ns() - began);
            }
            if !tiers.is_loading() && loaded_ns.is_none() {
                loaded_ns = Some(wall_ns() - began);
            }
            if millisecond % 1_000 == 999 {
                by_second.push(hits());
            }
        }
        for task in tasks {
            task.join().await.expect("transactions succeed");
        }
        (first_ns, loaded_ns, by_second)
    });
    let (first_ns, loaded_ns, by_second) = ended.map_err(|halt| format!("{halt:?}"))?;
    let ms = |ns: u64| ns as f64 / 1e6;
    println!("opened after {:.0} ms, first hit {:.0} ms", ms(opened_ns), first_ns.map_or(f64::NAN, ms));
    println!("loaded after {:.0} ms", loaded_ns.map_or(f64::NAN, ms));
    println!("hits until the end of each second {by_second:?}");
    println!("transactions in each second {:?}", done.get());
    println!("longest in each second, ms {:?}", longest.get().map(|ns| (ms(ns) * 10.0).round() / 10.0));
    println!("memory when opened {}, at most {}", format_size(memory), format_size(memory_max()));
    // As a kill.
    std::process::exit(0);
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [what, directory, size, rest @ ..] = &arguments[..] else { return Err("make|open DIR SIZE [DESIGN]".into()) };
    let design = rest.first().map_or("lazy-cleaning", String::as_str);
    let bytes = parse_size(size)?;
    match what.as_str() {
        "make" => make(Path::new(directory), bytes, design),
        _ => open(Path::new(directory), bytes, design),
    }
}
