//! Databases whose files hold everything that the document describes, as bytes.

use engine::catalog::{IndexSpec, Locking, Organization};
use engine::lock;
use engine::second_level::{self, CacheSettings};
use engine::set::{FieldType, FieldValue, Logging, RecordType};
use engine::tier_file::WriteBufferSettings;
use engine::{Database, PartitionSpec, Result, Settings, buffer, checkpoint, log, temp, version};
use executor::{Executor, Order};
use std::collections::BTreeMap;
use virtual_driver::{Hardware, Media, Options, VirtualDriver};

pub const PAGE: usize = 8192;
pub const LOG_PAGE: usize = 4096;
pub const SEGMENT: u32 = 16 << 10;
pub const CLUSTER: usize = 4096;
pub const VERSIONS: usize = 512;
pub const CACHE_PAGES: u32 = 16;
pub const LOG_BUFFER: u64 = 64 << 10;
/// Of an object, and how many are on a page.
pub const OBJECT: (u32, u32) = (100, 10);
pub const LONG_VALUE: usize = 20_000;

/// The bytes of files by device and name.
pub struct Files(BTreeMap<(String, String), Vec<u8>>);

impl Files {
    pub fn get(&self, device: &str, name: &str) -> &[u8] {
        let found = self.0.get(&(device.to_owned(), name.to_owned()));
        found.unwrap_or_else(|| panic!("no file '{name}' on '{device}', there are {:?}", self.0.keys()))
    }

    /// The names of all files, with those of partitions left out.
    pub fn names(&self) -> impl Iterator<Item = String> {
        let plain = self.0.keys().map(|(_, name)| name.split(' ').next().unwrap_or_default());
        plain.map(|name| match name.split_once('.') {
            Some((_, kind)) if kind == "pages" || kind.starts_with("backup-") => format!("NAME.{kind}"),
            Some((_, "log")) => "HISTORY-POSITION.log".to_owned(),
            _ => name.to_owned(),
        })
    }

    /// The segments of the archive, by name.
    pub fn segments(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let archived = self.0.iter().filter_map(|((_, name), bytes)| Some((name.strip_suffix(" (archived)")?, bytes)));
        archived.filter(|(name, _)| name.ends_with(".log")).map(|(name, bytes)| (name, &bytes[..]))
    }

    fn take(&mut self, media: &Media, suffix: &str) {
        for device in ["disk", "flash", "nvem"] {
            for name in media.names(device) {
                let mut bytes = vec![0; media.length(device, &name).expect("it exists") as usize];
                media.read(device, &name, 0, &mut bytes).expect("it can be read");
                self.0.insert((device.to_owned(), format!("{name}{suffix}")), bytes);
            }
        }
    }

    /// Three databases: one with a log on two devices and a cache, one with write buffers, one with an archive of the log.
    pub fn write() -> Files {
        let mut files = Files(BTreeMap::new());
        let media = Media::new();
        on(&media, async |executor| {
            let database = Database::create(executor, settings()).await?;
            fill(&database, &media, &mut files).await?;
            database.close().await
        });
        files.take(&media, "");
        let media = Media::new();
        on(&media, async |executor| {
            let database = Database::create(executor, buffered()).await?;
            let tree = database.create_partition(PartitionSpec::b_tree("tree")).await?;
            database.transaction(async |tx| tx.put(tree, b"key", b"value").await).await?;
            database.close().await
        });
        files.take(&media, " (buffered)");
        let media = Media::new();
        on(&media, async |executor| {
            let database = Database::create(executor, archived()).await?;
            let tree = database.create_partition(PartitionSpec::b_tree("tree")).await?;
            database.transaction(async |tx| tx.put(tree, b"key", b"value").await).await?;
            database.close().await
        });
        files.take(&media, " (archived)");
        files
    }
}

fn on(media: &Media, work: impl AsyncFnOnce(&Executor) -> Result<()>) {
    let driver = VirtualDriver::new(Hardware::ideal(), Options::default(), media.clone());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let result = executor.run(work(&executor)).expect("the machine goes on");
    executor.stop();
    result.unwrap_or_else(|error| panic!("{error}"));
}

fn settings() -> Settings {
    let cache = CacheSettings { volatile: Some(false), table: Some(true), ..CacheSettings::new("nvem", CACHE_PAGES) };
    let second = log::Second { device: "flash".into(), acknowledged: log::Acknowledged::Both };
    Settings {
        buffer: buffer::Settings { frames: 24, page_size: PAGE, cleaner: false, ..buffer::Settings::default() },
        log: log::Settings {
            page_size: LOG_PAGE,
            capacity: 2 << 20,
            second: Some(second),
            sync_method: None,
            ..log::Settings::default()
        },
        hierarchy: second_level::Settings { cache: Some(cache), ..second_level::Settings::default() },
        checkpoint: checkpoint::Policy::OFF,
        logging: Logging::Actions,
        sweep: checkpoint::SweepSettings { strategy: checkpoint::Strategy::StableVersions, ..Default::default() },
        temp: temp::TempSettings { cluster_size: CLUSTER, ..temp::TempSettings::default() },
        undo: version::UndoSettings { cluster_size: VERSIONS, memory: 0, ..version::UndoSettings::default() },
        victim: lock::VictimPolicy::default(),
        ..Settings::default()
    }
}

fn buffered() -> Settings {
    let buffer = WriteBufferSettings { device: "nvem".into(), pages: 8, log_bytes: LOG_BUFFER, volatile: Some(false) };
    Settings {
        hierarchy: second_level::Settings { write_buffer: Some(buffer), ..second_level::Settings::default() },
        log: log::Settings { page_size: LOG_PAGE, capacity: 2 << 20, ..log::Settings::default() },
        ..settings_without_tiers()
    }
}

fn archived() -> Settings {
    let archive = Some("flash".to_owned());
    let log = log::Settings { page_size: LOG_PAGE, capacity: 2 << 20, archive, ..log::Settings::default() };
    Settings { log, ..settings_without_tiers() }
}

fn settings_without_tiers() -> Settings {
    Settings { checkpoint: checkpoint::Policy::OFF, ..Settings::default() }
}

/// A type with every type of field.
fn record_type() -> RecordType {
    let types = [
        ("u8", FieldType::U8),
        ("u16", FieldType::U16),
        ("u32", FieldType::U32),
        ("u64", FieldType::U64),
        ("i64", FieldType::I64),
        ("f64", FieldType::F64),
        ("array", FieldType::Array(3)),
        ("bytes", FieldType::Bytes),
        ("text", FieldType::Text),
    ];
    RecordType::new(types).expect("sound")
}

pub fn typed_values() -> [FieldValue<'static>; 9] {
    [
        FieldValue::U8(1),
        FieldValue::U16(2),
        FieldValue::U32(3),
        FieldValue::U64(4),
        FieldValue::I64(-5),
        FieldValue::F64(0.5),
        FieldValue::Bytes(b"abc"),
        FieldValue::Bytes(b"bytes"),
        FieldValue::Text("text"),
    ]
}

fn key(number: u32) -> [u8; 12] {
    let mut key = *b"key-....----";
    key[4..8].copy_from_slice(&number.to_be_bytes());
    key
}

async fn fill(database: &Database, media: &Media, files: &mut Files) -> Result<()> {
    let tree = database.create_partition(PartitionSpec::b_tree("tree")).await?;
    let (record_size, blocking_factor) = OBJECT;
    let organization = Organization::Direct { objects: 50, blocking_factor, record_size };
    let objects = database.create_partition(PartitionSpec::new("objects", organization, Locking::Page)).await?;
    let history = database
        .create_partition(PartitionSpec::new("history", Organization::Append { blocking_factor: 0 }, Locking::Record))
        .await?;
    let organization = Organization::Set { arrivals: false, segment_size: SEGMENT, reserve_percent: 10 };
    let stock = database.create_partition(PartitionSpec::new("stock", organization, Locking::Record)).await?;
    let typed = PartitionSpec::new("typed", organization, Locking::Record).record(record_type());
    let typed = database.create_partition(typed.secondary("by_number", &["u32"])).await?;
    // Few commits, so that the log has everything from its beginning.
    for first in (0..2000_u32).step_by(200) {
        database
            .transaction(async |tx| {
                for number in first..first + 200 {
                    tx.put(tree, &key(number), &[7; 60]).await?;
                }
                Ok::<_, engine::Error>(())
            })
            .await?;
    }
    let snapshot = database.snapshot().await?;
    let mut tx = database.begin().await?;
    tx.put(tree, b"long", &[9; LONG_VALUE]).await?;
    tx.put(tree, b"longer", &[9; LONG_VALUE]).await?;
    tx.put(tree, &key(3), b"another length").await?;
    tx.modify(tree, &key(4), |value| value[9] = 1).await?;
    tx.delete(tree, &key(5)).await?;
    tx.commit().await?;
    database.transaction(async |tx| tx.delete(tree, b"longer").await).await?;
    for number in 0..50 {
        database.transaction(async |tx| tx.modify_object(objects, number, |bytes| bytes[0] = 5).await).await?;
    }
    database.transaction(async |tx| tx.append(history, b"a live record").await.map(drop)).await?;
    let mut tx = database.begin().await?;
    tx.append(history, b"an erased one").await?;
    tx.put(tree, &key(6), b"rolled back").await?;
    tx.rollback().await?;
    database
        .transaction(async |tx| {
            for name in ["one", "two", "three", "four"] {
                tx.insert(stock, name.as_bytes(), &[1; 100]).await?;
            }
            tx.insert_record(typed, b"typed", &typed_values()).await
        })
        .await?;
    database
        .transaction(async |tx| {
            tx.put(stock, b"one", &[2; 300]).await?;
            tx.modify(stock, b"two", |value| value[50] = 7).await?;
            tx.delete(stock, b"three").await?;
            tx.add(stock, b"four", 8..16, -3).await.map(drop)
        })
        .await?;
    let rows = (0..2000_u32).map(|number| (number.to_be_bytes(), [3; 20]));
    let sorted = database.sort(temp::Iterated::new(rows), 16 * CLUSTER as u64).await?;
    database.executor().sleep_ns(base::time::SECOND_NS).await;
    files.take(media, " (open)");
    drop((sorted, snapshot));
    let passing = database.create_partition(PartitionSpec::b_tree("passing")).await?;
    let index = IndexSpec::new("by_number", &["u32"]).record(record_type());
    database.create_index(passing, index).await?;
    database.rename_partition(passing, "passed").await?;
    let ordered = database.create_partition(PartitionSpec::set("ordered").record(record_type())).await?;
    database.create_index(ordered, IndexSpec::new("by_number", &["u32"])).await?;
    database.drop_index(ordered, "by_number").await?;
    database.drop_partition(ordered).await?;
    let again = database.create_partition(PartitionSpec::b_tree("passing")).await?;
    database.drop_partition(again).await?;
    database.drop_partition(passing).await?;
    database.checkpoint().await?;
    database.checkpoint().await
}
