//! Bytes from outside may be anything, with a right checksum or a wrong one: whatever reads them says so and never panics.

use base::{Lsn, PageId, PartitionId, Random, TransactionId};
use driver::{Access, Op, Output};
use engine::log::page as log_page;
use engine::log::record::{self, Body, Record};
use engine::organization::b_tree::{self, Expected, overflow};
use engine::page::{Change, Edit, PageKind, header, slotted};
use engine::second_level::CacheSettings;
use engine::tier_file::WriteBufferSettings;
use engine::undo::Undo;
use engine::{Database, PartitionSpec, Settings, buffer, checkpoint, log};
use entresol_engine as engine;
use executor::{Executor, Order};
use virtual_driver::{Hardware, Media, Options, VirtualDriver};

/// Changes some of the bytes, the length now and then.
fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..random.between(1, 4) {
        let at = random.below(bytes.len() as u64) as usize;
        match random.below(8) {
            0 => bytes.truncate(at.max(1)),
            1 => bytes.insert(at, random.word() as u8),
            2 => bytes[at] = 0xFF,
            3 => bytes[at] = 0,
            _ => bytes[at] ^= 1 << random.below(8),
        }
    }
}

fn sample_record(random: &mut Random) -> Vec<u8> {
    let partition = PartitionId(random.below(4) as u16);
    let page = PageId::new(partition, random.below(9) as u32);
    let (key, value) = (b"a key", b"a value of some length");
    let undos = [
        Undo::Remove { partition, key }.stored(),
        Undo::Replace { partition, key, value }.stored(),
        Undo::PatchPage { page, offset: 40, bytes: value }.stored(),
    ];
    let bodies = [
        Body::Update(&undos[0]),
        Body::Update(&undos[1]),
        Body::Update(&undos[2]),
        Body::System,
        Body::Compensation { remaining: 3 },
        Body::Commit { chains: &[1; 16], changes: b"redo" },
        Body::ChainStep { chain: 1, next: 5 },
        Body::RolledBack,
        Body::Time { unix_ns: 5, oldest: None },
        Body::Time { unix_ns: 5, oldest: Some(Lsn(77)) },
        Body::Catalog { is_whole: true, changes: b"changes" },
        Body::Loaded { partition: PartitionId(3) },
        Body::LoadUndone { partition: PartitionId(3), loaded: Lsn(77) },
    ];
    let changes = [
        Change::Format { kind: PageKind::Node, level: 2, count: 3, image: value },
        Change::FormatEnds { kind: PageKind::Node, level: 0, count: 3, front: key, back: value },
        Change::Patch { offset: 32, bytes: key },
        Change::InsertSlot { slot: 1, key, value },
        Change::RemoveSlot { slot: 8 },
        Change::PatchValue { slot: 2, offset: 1, bytes: key },
    ];
    let edits: Vec<_> = (0..random.below(4))
        .map(|_| Edit { page, change: *random.choose(&changes).expect("there are some") })
        .collect();
    let mut bytes = Vec::new();
    let body = random.choose(&bodies).expect("there are some");
    record::encode(TransactionId(random.word()), body, (0..).zip(&edits), &mut bytes);
    bytes
}

#[test]
fn records_of_any_bytes_are_decoded_or_refused() {
    let mut random = Random::stream(1, "records");
    let mut accepted = 0;
    for _ in 0..40_000 {
        let mut bytes = sample_record(&mut random);
        mutate(&mut bytes, &mut random);
        if random.chance(0.7) && bytes.len() >= 4 {
            let length = bytes.len() as u32;
            bytes[..4].copy_from_slice(&length.to_le_bytes());
        }
        if let Some(record) = Record::decode(&bytes) {
            let mut again = Vec::new();
            let edits: Vec<_> = record.edits().collect();
            let edits = edits.iter().map(|(sequence, edit)| (*sequence, edit));
            record::encode(record.transaction, &record.body, edits, &mut again);
            let decoded = Record::decode(&again).expect("what is encoded is decoded");
            assert!(decoded.body == record.body && decoded.edits().eq(record.edits()));
            accepted += 1;
        }
    }
    assert!((1_000..39_000).contains(&accepted), "{accepted} of 40,000 accepted prove little");
}

/// A page of any bytes, or a sound node with some of them changed.
fn any_page(random: &mut Random, size: usize) -> Vec<u8> {
    let mut page = vec![0; size];
    if random.chance(0.2) {
        random.fill(&mut page);
        page[4] = PageKind::Node as u8;
        return page;
    }
    header::format(&mut page, PageId::new(PartitionId(0), 7));
    let level = random.below(3) as u8;
    let mut builder = slotted::Builder::new(size, level, b"k", b"l");
    for number in 0..random.below(size as u64 / 40) {
        let (key, value) = (format!("k{number:04}"), (number as u32).to_le_bytes());
        let key = if level > 0 && number == 0 { "k" } else { &key };
        builder.push(key.as_bytes(), &value);
    }
    builder.finish().as_change().apply(&mut page, Lsn(1));
    for _ in 0..random.below(5) {
        let front = random.chance(0.7);
        let at = if front { random.between(4, 120) } else { random.between(4, size as u64 - 1) };
        page[at as usize] = if random.chance(0.3) { 0xFF } else { random.word() as u8 };
    }
    page
}

#[test]
fn pages_of_any_bytes_are_checked_and_sound_ones_can_be_used() {
    let mut random = Random::stream(2, "pages");
    let id = PageId::new(PartitionId(0), 7);
    let (mut sound, mut damaged) = (0, 0);
    for _ in 0..30_000 {
        let size = 256 << random.below(4);
        let mut page = any_page(&mut random, size);
        let _ = (overflow::read(&page), header::verify(&page, id));
        let expected = Expected { level: None, lower: b"k".to_vec(), upper: b"l".to_vec() };
        let _ = b_tree::check_node(&page, id, &expected);
        if !slotted::inspect(&page).is_empty() {
            damaged += 1;
            continue;
        }
        sound += 1;
        let mut key = Vec::new();
        for slot in 0..slotted::count(&page) {
            slotted::key_into(&page, slot, &mut key);
            assert_eq!(slotted::search(&page, &key), Ok(slot), "a key of a sound page is found where it is");
            assert!(slotted::value(&page, slot).len() < size);
        }
        while slotted::count(&page) > 0 {
            slotted::remove(&mut page, 0);
        }
        assert_eq!(slotted::inspect(&page), Vec::<String>::new(), "a sound page stays sound");
    }
    assert!(sound > 1_000 && damaged > 1_000, "{sound} sound and {damaged} damaged prove little");
}

#[test]
fn log_pages_of_any_bytes_are_verified_or_refused() {
    let mut random = Random::stream(3, "log pages");
    let mut accepted = 0;
    for _ in 0..20_000 {
        let mut page = vec![0; 256];
        random.fill(&mut page);
        page[4..8].copy_from_slice(&[0x45, 0x4c, 1, 0]);
        for (at, value) in [(28, 256), (32, random.below(300) as u32), (36, random.below(300) as u32)] {
            page[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        page[8..16].copy_from_slice(&1024_u64.to_le_bytes());
        let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &page[4..]) as u32;
        page[..4].copy_from_slice(&sum.to_le_bytes());
        if let Ok(header) = log_page::verify(&page, 1024) {
            assert!(header.used <= 256 && header.first < header.used);
            accepted += 1;
        }
    }
    assert!((1_000..19_000).contains(&accepted), "{accepted} of 20,000 accepted prove little");
}

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

/// Overwrites the front of the superblock file.
fn write_superblock(media: &Media, bytes: &[u8]) {
    let executor = machine(media);
    let work = async {
        let device = executor.device("disk").expect("the ideal machine has a disk");
        let op = Op::Open { device, name: engine::SUPERBLOCK_FILE.into(), create: false };
        let Ok(Output::Opened { file, .. }) = executor.perform(op).await.result else { panic!("the file exists") };
        let mut buffer = executor.frames(1, bytes.len()).expect("memory").remove(0);
        buffer.copy_from_slice(bytes);
        let (length, access) = (bytes.len() as u32, Access::Asynchronous);
        let op = Op::Write { file, offset: 0, length, buffer, durable: true, access };
        executor.perform(op).await.result.expect("writes");
    };
    executor.run(work).expect("the machine does not stop");
}

const COPY_SIZE: usize = 64 << 10;

/// Gives each copy the checksum that belongs to its bytes.
fn seal_superblock(bytes: &mut [u8]) {
    for copy in bytes.chunks_exact_mut(COPY_SIZE) {
        let length = u32::from_le_bytes(copy[12..16].try_into().expect("four bytes")) as usize;
        if let Some(checked) = copy.get(24..32 + length) {
            let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, checked) as u32;
            copy[16..20].copy_from_slice(&sum.to_le_bytes());
        }
    }
}

/// Whose superblock files are mutated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Made {
    /// Of a database without tiers, which was closed. The others were killed.
    Plain,
    /// One whose cache has a table.
    Tabled,
    /// One whose cache has slots alone, beside a write buffer for pages and the log.
    Scanned,
    /// One whose log is archived, and from which moments can be read.
    Archived,
}

fn settings_of(made: Made) -> Settings {
    let mut settings = settings();
    if matches!(made, Made::Tabled | Made::Scanned) {
        let table = Some(made == Made::Tabled);
        let cache = CacheSettings { table, volatile: Some(false), ..CacheSettings::new("nvem", 40) };
        settings.hierarchy.cache = Some(cache);
    }
    if made == Made::Archived {
        settings.log.archive = Some("nvem".into());
        settings.undo.retention_ns = base::time::SECOND_NS;
    }
    if made == Made::Scanned {
        let buffer = WriteBufferSettings { device: "nvem".into(), pages: 8, log_bytes: 32 << 10, volatile: None };
        settings.hierarchy.write_buffer = Some(buffer);
    }
    settings
}

/// The media of such a database.
fn media_of(made: Made) -> Media {
    let media = Media::new();
    let executor = machine(&media);
    let create = async {
        let database = Database::create(&executor, settings_of(made)).await?;
        let mut last = PartitionId(0);
        for name in ["first", "second"] {
            last = database.create_partition(PartitionSpec::b_tree(name)).await?;
        }
        for key in 0..if made == Made::Plain { 0 } else { 400_u32 } {
            database.transaction(async |tx| tx.put(last, &key.to_be_bytes(), &[7; 100]).await).await?;
            if key == 200 {
                database.checkpoint().await?;
            }
        }
        if made == Made::Plain { database.close().await } else { Ok(()) }
    };
    executor.run(create).expect("the machine does not stop").expect("creates");
    executor.stop();
    media
}

/// How many files are opened and how many refused that have some bytes changed: of their first `span`, or of all that they say.
fn opened_and_refused(made: Made, span: Option<usize>, seed: u64) -> (u64, u64) {
    let media = media_of(made);
    let mut original = vec![0; 2 * COPY_SIZE];
    media.read("disk", engine::SUPERBLOCK_FILE, 0, &mut original).expect("reads");
    let said = u32::from_le_bytes(original[12..16].try_into().expect("four bytes")) as usize;
    let mut random = Random::stream(seed, "homes");
    let (mut opened, mut refused) = (0, 0);
    for _ in 0..400 {
        let mut bytes = original.clone();
        for copy in 0..2 {
            for _ in 0..random.between(1, 3) {
                let at = match span {
                    Some(span) => random.below(span as u64) as usize,
                    None => 32 + random.below(said as u64) as usize,
                };
                let at = copy * COPY_SIZE + at;
                bytes[at] = if random.chance(0.5) { random.word() as u8 } else { bytes[at] ^ (1 << random.below(8)) };
            }
        }
        seal_superblock(&mut bytes);
        let media = media.copy();
        write_superblock(&media, &bytes);
        let executor = machine(&media);
        let open = Database::open(&executor, settings_of(made), "here");
        match executor.run(open).expect("the machine does not stop") {
            Ok(_) => opened += 1,
            Err(error) => {
                assert!(!error.to_string().is_empty());
                refused += 1;
            }
        }
        executor.stop();
    }
    (opened, refused)
}

#[test]
fn superblock_files_of_any_bytes_are_opened_or_refused() {
    let (opened, refused) = opened_and_refused(Made::Plain, Some(110), 4);
    assert!(opened > 5 && refused > 50, "{opened} opened and {refused} refused prove little");
}

#[test]
fn superblock_files_that_lie_of_tiers_and_archives_are_opened_or_refused() {
    for (made, seed) in [(Made::Tabled, 5), (Made::Tabled, 6), (Made::Scanned, 7), (Made::Archived, 8)] {
        let (opened, refused) = opened_and_refused(made, None, seed);
        assert!(opened > 5 && refused > 50, "{made:?}: {opened} opened and {refused} refused prove little");
    }
}
