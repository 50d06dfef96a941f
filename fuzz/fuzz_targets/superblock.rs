//! A database whose superblock file says anything, with the checksum that belongs to it, is opened or refused.
#![no_main]

use driver::{Access, Op, Output};
use engine::{Database, PartitionSpec, Settings, buffer, checkpoint, log};
use executor::{Executor, Order};
use libfuzzer_sys::fuzz_target;
use std::cell::RefCell;
use virtual_driver::{Hardware, Media, Options, VirtualDriver};

const COPY_SIZE: usize = 64 << 10;
/// Where the contents begin.
const CONTENTS: usize = 32;

fn settings() -> Settings {
    Settings {
        buffer: buffer::Settings { frames: 32, page_size: 1024, cleaner: false, ..buffer::Settings::default() },
        log: log::Settings { capacity: 256 << 10, ..log::Settings::default() },
        checkpoint: checkpoint::Policy::OFF,
        multiprogramming_level: 4,
        ..Settings::default()
    }
}

fn machine(media: &Media) -> Executor {
    let driver = VirtualDriver::new(Hardware::ideal(), Options::default(), media.clone());
    Executor::new(Box::new(driver), Order::FirstInFirstOut)
}

/// A database with one partition.
fn create() -> Media {
    let media = Media::new();
    let executor = machine(&media);
    let work = async {
        let database = Database::create(&executor, settings()).await?;
        database.create_partition(PartitionSpec::b_tree("notes")).await?;
        database.close().await
    };
    executor.run(work).expect("the machine does not stop").expect("creates");
    executor.stop();
    media
}

async fn write_superblock(executor: &Executor, bytes: &[u8]) {
    let device = executor.device("disk").expect("the ideal machine has a disk");
    let op = Op::Open { device, name: engine::SUPERBLOCK_FILE.into(), create: false };
    let Ok(Output::Opened { file, .. }) = executor.perform(op).await.result else { panic!("the file exists") };
    let mut buffer = executor.frames(1, bytes.len()).expect("memory").remove(0);
    buffer.copy_from_slice(bytes);
    let (length, access) = (bytes.len() as u32, Access::Asynchronous);
    let op = Op::Write { file, offset: 0, length, buffer, durable: true, access };
    executor.perform(op).await.result.expect("writes");
}

/// The superblock file with these contents in its first copy and nothing in the second.
fn superblock_file(media: &Media, contents: &[u8]) -> Vec<u8> {
    let mut file = vec![0; 2 * COPY_SIZE];
    media.read("disk", engine::SUPERBLOCK_FILE, 0, &mut file).expect("it exists");
    let newer = if file[24..32] > file[COPY_SIZE + 24..COPY_SIZE + 32] { 0 } else { COPY_SIZE };
    let length = contents.len().min(COPY_SIZE - CONTENTS);
    let copy = &mut file[newer..newer + COPY_SIZE];
    copy[12..16].copy_from_slice(&(length as u32).to_le_bytes());
    copy[CONTENTS..CONTENTS + length].copy_from_slice(&contents[..length]);
    let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &copy[24..CONTENTS + length]) as u32;
    copy[16..20].copy_from_slice(&sum.to_le_bytes());
    let older = COPY_SIZE - newer;
    file[older..older + COPY_SIZE].fill(0);
    file
}

thread_local! {
    static ORIGINAL: RefCell<Option<Media>> = const { RefCell::new(None) };
}

fuzz_target!(|contents: &[u8]| {
    let media = ORIGINAL.with_borrow_mut(|original| original.get_or_insert_with(create).copy());
    let file = superblock_file(&media, contents);
    let executor = machine(&media);
    executor.run(write_superblock(&executor, &file)).expect("the machine does not stop");
    let outcome = executor.run(Database::open(&executor, settings(), "here")).expect("the machine does not stop");
    if let Err(error) = outcome {
        assert!(!error.to_string().is_empty());
    }
    executor.stop();
});
