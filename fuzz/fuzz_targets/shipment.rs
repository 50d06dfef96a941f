//! A commit of another node whose log records and pages are any: it is committed or refused. No page changes that it does not name; those that it
//! names are what its records leave, now and after the power has gone; and whatever is on them can be read. So it is with the records of a set
//! that it changes.
#![no_main]

use base::{Lsn, PageId, PartitionId, Random, TransactionId};
use driver::Halt;
use engine::buffer::{self, Pins};
use engine::catalog::{Locking, Organization};
use engine::log::record::{self, Body};
use engine::page::{Change, Edit, HEADER_SIZE, PageKind, header, slotted};
use engine::second_level::design::Pattern;
use engine::undo::Undo;
use engine::{
    CommitFailure, Database, Direction, Internals, Need, PartitionSpec, Result, SetChange, Settings, Shipment,
    Transaction, checkpoint, log,
};
use executor::{Executor, Order};
use libfuzzer_sys::fuzz_target;
use std::collections::BTreeMap;
use std::ops::Bound;
use virtual_driver::{FaultPlan, Hardware, Media, Options, PowerCut, VirtualDriver};

const PAGE_SIZE: usize = 512;
/// What the other node may write, with its pages; one more may lie beyond.
const GRANTED: [(&str, u32); 3] = [("objects", 4), ("tree", 6), ("appended", 3)];
/// The set of which it may change records.
const SET: &str = "stock";
/// What it may not, with its pages.
const OTHERS: (&str, u32) = ("others", 4);

thread_local! {
    /// What each input begins with.
    static START: Media = create();
}

fn settings() -> Settings {
    Settings {
        buffer: buffer::Settings { frames: 48, page_size: PAGE_SIZE, cleaner: false, ..buffer::Settings::default() },
        log: log::Settings { capacity: 128 << 10, first_extent: 128 << 10, ..log::Settings::default() },
        checkpoint: checkpoint::Policy::OFF,
        ..Settings::default()
    }
}

/// Runs `work` on a machine that does not outlive it.
fn run<T>(media: &Media, work: impl AsyncFnOnce(&Executor) -> T) -> std::result::Result<T, Halt> {
    let options = Options { faults: Some(FaultPlan::default()), ..Options::default() };
    let driver = VirtualDriver::new(Hardware::ideal(), options, media.clone());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let result = executor.run(work(&executor));
    executor.stop();
    result
}

fn create() -> Media {
    let media = Media::new();
    let created = run(&media, async |executor| {
        let database = Database::create(executor, settings()).await?;
        let organization = Organization::Direct { objects: 4, blocking_factor: 1, record_size: 8 };
        let objects = PartitionSpec::new("objects", organization, Locking::None);
        let objects = database.create_partition(objects).await?;
        let appended = database.create_partition(PartitionSpec::append("appended")).await?;
        for name in ["tree", OTHERS.0] {
            let tree = database.create_partition(PartitionSpec::b_tree(name)).await?;
            let filled = database.transaction(async |tx| {
                for key in 0..40 {
                    tx.put(tree, &[key], &[key; 20]).await?;
                }
                tx.modify_object(objects, 1, |bytes| bytes.fill(7)).await?;
                tx.append(appended, b"record").await
            });
            filled.await?;
        }
        let set = database.create_partition(PartitionSpec::set(SET)).await?;
        database.transaction(async |tx| tx.put(set, &[7], &[7; 20]).await).await?;
        database.close().await
    });
    created.expect("the machine goes on").expect("a database");
    media
}

/// What an input says, as far as it goes.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or(0)
    }

    fn word(&mut self) -> u16 {
        u16::from(self.byte()) | u16::from(self.byte()) << 8
    }

    fn bytes(&mut self, length: usize) -> &'a [u8] {
        let (front, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        front
    }

    /// Of a length that it says.
    fn some(&mut self) -> &'a [u8] {
        let length = usize::from(self.byte() % 48);
        self.bytes(length)
    }
}

/// The records of the set.
type Records = BTreeMap<Vec<u8>, Vec<u8>>;

async fn all_records(database: &Database) -> Records {
    let set = database.partition(SET).expect("it was created");
    let (tx, mut found) = (database.begin().await.expect("it begins"), Records::new());
    let look = |key: &[u8], value: &[u8]| {
        found.insert(key.to_vec(), value.to_vec());
        true
    };
    tx.scan_set(set, look).await.expect("it is a set");
    tx.rollback().await.expect("it has changed nothing");
    found
}

/// Changes of a few records, and now and then of what is no set; what comes of them.
fn changes<'a>(database: &Database, input: &mut Input<'a>, records: &Records) -> (Vec<SetChange<'a>>, Records) {
    let (set, mut changed, mut after) = (database.partition(SET).expect("it was created"), Vec::new(), records.clone());
    let count = input.byte() % 8;
    for _ in 0..count.saturating_sub(3) {
        let choice = input.byte();
        let partition = if choice > 250 { PartitionId(u16::from(input.byte())) } else { set };
        let key = input.bytes(usize::from(choice % 3));
        let value = (choice & 4 == 0).then(|| input.some());
        changed.push(SetChange { partition, key, value });
        match value {
            Some(value) => drop(after.insert(key.to_vec(), value.to_vec())),
            None => drop(after.remove(key)),
        }
    }
    (changed, after)
}

/// Pages with what is on them.
type Pages = BTreeMap<PageId, Vec<u8>>;

async fn contents(database: &Database, page: PageId) -> Result<Vec<u8>> {
    let mut pins = Pins::new(database.buffer());
    database.buffer().resolve(Need::Page(page), Pattern::Random, &mut pins).await?;
    let pool = database.buffer().pool().borrow();
    Ok(pool.bytes(pool.frame_in_use(page)).to_vec())
}

/// Every page that may be meant, where it can be read; what may not be written comes last.
async fn all_pages(database: &Database) -> Pages {
    let mut pages = Pages::new();
    for (name, count) in GRANTED.into_iter().chain([OTHERS]) {
        let partition = database.partition(name).expect("it was created");
        for page in (0..=count).map(|number| PageId::new(partition, number)) {
            if let Ok(bytes) = contents(database, page).await {
                pages.insert(page, bytes);
            }
        }
    }
    pages
}

/// Whether a page has what it is to have, but for where the log has its latest change. One that could not be read, because none like it had
/// been used, has nothing.
fn is_as(bytes: &[u8], expected: Option<&Vec<u8>>) -> bool {
    match expected {
        Some(expected) => {
            header::sequence(bytes) == header::sequence(expected) && bytes[HEADER_SIZE..] == expected[HEADER_SIZE..]
        }
        None => bytes[HEADER_SIZE..].iter().all(|byte| *byte == 0),
    }
}

/// A page that is there, most of the time.
fn draw_page(input: &mut Input<'_>, pages: &Pages) -> PageId {
    let choice = usize::from(input.byte());
    let strange = || PageId::new(PartitionId(77), 0);
    pages.keys().nth(choice % (pages.len() + 1)).copied().unwrap_or_else(strange)
}

fn draw_kind(input: &mut Input<'_>) -> PageKind {
    PageKind::from_byte(input.byte() % 7).unwrap_or(PageKind::Node)
}

fn draw_change<'copy, 'input: 'copy>(input: &mut Input<'input>, copy: &'copy [u8]) -> Change<'copy> {
    let slot = |input: &mut Input<'_>| u16::from(input.byte() % 32);
    match input.byte() % 10 {
        0 | 1 => Change::Patch { offset: input.word() % 600, bytes: input.some() },
        2 => Change::InsertSlot { slot: slot(input), key: input.some(), value: input.some() },
        3 => Change::InsertSlot { slot: slot(input), key: input.some(), value: &copy[HEADER_SIZE..HEADER_SIZE + 12] },
        4 => Change::RemoveSlot { slot: slot(input) },
        5 => Change::ReplaceValue { slot: slot(input), value: input.some() },
        6 => Change::PatchValue { slot: slot(input), offset: input.word() % 40, bytes: input.some() },
        7 => {
            let (kind, level, count) = (draw_kind(input), input.byte() % 3, input.word() % 40);
            Change::Format { kind, level, count, image: input.some() }
        }
        8 => {
            let (kind, level, count) = (draw_kind(input), input.byte() % 3, input.word() % 40);
            Change::FormatEnds { kind, level, count, front: input.some(), back: input.some() }
        }
        // As it is but for its level.
        _ => {
            let (kind, count) = (header::kind(copy).unwrap_or(PageKind::Node), slotted::count(copy));
            Change::Format { kind, level: input.byte() % 3, count, image: &copy[HEADER_SIZE..] }
        }
    }
}

fn may_have_slots(copy: &[u8]) -> bool {
    matches!(header::kind(copy), Some(PageKind::Node | PageKind::Append)) && slotted::inspect(copy).is_empty()
}

/// What takes a change back that fits, as an honest node says it.
fn undo_of<'a>(page: PageId, change: &Change<'a>, copy: &'a [u8], key: &'a mut Vec<u8>) -> Option<Undo<'a>> {
    let partition = page.partition;
    let is_append = header::kind(copy) == Some(PageKind::Append);
    let mut key_of = |slot| {
        slotted::key_into(copy, slot, key);
    };
    match *change {
        Change::Patch { offset, bytes } => {
            Some(Undo::PatchPage { page, offset, bytes: &copy[usize::from(offset)..][..bytes.len()] })
        }
        Change::InsertSlot { slot, .. } if is_append => Some(Undo::EraseAppended { page, slot }),
        Change::InsertSlot { key, .. } => Some(Undo::Remove { partition, key }),
        _ if is_append => None,
        Change::RemoveSlot { slot } => {
            key_of(slot);
            Some(Undo::Insert { partition, key, value: slotted::value(copy, slot) })
        }
        Change::ReplaceValue { slot, .. } => {
            key_of(slot);
            Some(Undo::Replace { partition, key, value: slotted::value(copy, slot) })
        }
        Change::PatchValue { slot, offset, bytes } => {
            key_of(slot);
            let bytes = &slotted::value(copy, slot)[usize::from(offset)..][..bytes.len()];
            Some(Undo::PatchValue { partition, key, offset, bytes })
        }
        Change::Format { .. } | Change::FormatEnds { .. } => None,
    }
}

/// Adds the record of a change of a copy, and makes it there if it fits.
fn add_step(input: &mut Input<'_>, pages: &mut Pages, changed: &mut Pages, records: &mut Vec<u8>) {
    let page = draw_page(input, pages);
    let before = changed.get(&page).or_else(|| pages.get(&page)).cloned().unwrap_or_else(|| vec![0; PAGE_SIZE]);
    let (change, choice, mut key) = (draw_change(input, &before), input.byte(), Vec::new());
    let is_fit = (!change.is_of_slot() || may_have_slots(&before)) && change.fits(&before);
    if !is_fit && choice < 224 {
        // Most of the others are to be looked at for more than that.
        return;
    }
    let undo = match choice % 16 {
        0 => None,
        1 => Some(Undo::PatchPage { page, offset: input.word(), bytes: input.some() }),
        2 => Some(Undo::Replace { partition: page.partition, key: input.some(), value: input.some() }),
        _ if is_fit => undo_of(page, &change, &before, &mut key),
        _ => None,
    };
    let sequence = if choice > 250 { u64::from(input.word()) } else { header::sequence(&before) + 1 };
    let undo = undo.map(|undo| undo.stored());
    let body = undo.as_ref().map_or(Body::System, |undo| Body::Update(undo));
    record::encode(TransactionId::SYSTEM, &body, [(sequence, &Edit { page, change })], records);
    let mut copy = before.clone();
    if is_fit {
        change.apply(&mut copy, Lsn::ZERO);
    }
    header::seal(&mut copy);
    changed.insert(page, copy);
}

/// Whether another node may name it: it could not have got the write lock of any other.
fn is_granted(database: &Database, page: PageId) -> bool {
    GRANTED.iter().any(|(name, _)| database.partition(name).is_ok_and(|partition| partition == page.partition))
}

/// Sends one commit. `pages` is what is on the pages before it, and then behind it.
async fn ship(database: &Database, input: &mut Input<'_>, pages: &mut Pages, stock: &mut Records) {
    let (steps, choice, mask) = (input.byte() % 6 + 1, input.byte(), input.word());
    let (mut changed, mut records) = (Pages::new(), Vec::new());
    for _ in 0..steps {
        add_step(input, pages, &mut changed, &mut records);
    }
    match choice % 16 {
        0 => records = input.some().to_vec(),
        1 => records.extend_from_slice(input.some()),
        2 if !records.is_empty() => {
            let place = usize::from(input.word()) % records.len();
            records[place] ^= input.byte();
        }
        _ => {}
    }
    let are_as_made = choice % 16 > 2;
    changed.retain(|page, _| is_granted(database, *page));
    let mut sent = changed.clone();
    if choice % 16 == 3 {
        let (place, byte) = (usize::from(input.word()) % PAGE_SIZE, input.byte());
        sent.values_mut().for_each(|bytes| {
            bytes[place] ^= byte;
            header::seal(bytes);
        });
    }
    let is_sent = |index: usize| mask >> (index % 16) & 1 == 1;
    let named = || sent.iter().enumerate();
    let images: Vec<(PageId, &[u8])> =
        named().filter(|(index, _)| is_sent(*index)).map(|(_, (page, bytes))| (*page, &bytes[..])).collect();
    let redone: Vec<PageId> = named().filter(|(index, _)| !is_sent(*index)).map(|(_, (page, _))| *page).collect();
    let (sets, after) = changes(database, input, stock);
    let (end, before) = (database.log().end(), pages.clone());
    let committed =
        database.commit_shipped(&Shipment { records: &records, images: &images, redone: &redone, sets: &sets }).await;
    *pages = all_pages(database).await;
    match committed {
        Ok(()) => {
            *stock = after;
            for (page, bytes) in pages.iter().filter(|(page, _)| are_as_made || !changed.contains_key(page)) {
                let expected = changed.get(page).or_else(|| before.get(page));
                assert!(is_as(bytes, expected), "{page} is not what the records leave");
            }
        }
        Err(CommitFailure::NothingLogged(_)) => {
            assert_eq!(database.log().end(), end, "nothing was logged");
            assert!(pages.iter().all(|(page, bytes)| is_as(bytes, before.get(page))), "nothing was changed");
        }
        Err(failure) => panic!("the log goes on: {failure}"),
    }
    assert_eq!(all_records(database).await, *stock, "what is committed of the set, and nothing else");
}

async fn read_tree(tx: &mut Transaction, tree: PartitionId, found: &mut Vec<(Vec<u8>, Vec<u8>)>) -> Result<()> {
    let mut cursor = tx.cursor(tree, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
    while let Some(record) = tx.next(&mut cursor).await? {
        found.push(record);
        assert!(found.len() < 10_000, "there are not that many");
    }
    Ok(())
}

/// Reads all that can be read, whatever it says; what the other node may not write is what it was.
async fn read_all(database: &Database) {
    for (name, _) in GRANTED.into_iter().chain([OTHERS]) {
        let partition = database.partition(name).expect("it was created");
        let mut tx = database.begin().await.expect("it begins");
        let mut found = Vec::new();
        let looked = match name {
            "objects" => tx.read_object(partition, 1, |_| ()).await,
            "appended" => tx.scan_appended(partition, |_, _| true).await,
            _ => read_tree(&mut tx, partition, &mut found).await,
        };
        tx.rollback().await.expect("it has changed nothing");
        if name == OTHERS.0 {
            looked.expect("it can be read");
            assert!(found.iter().eq((0..40).map(|key| (vec![key], vec![key; 20])).collect::<Vec<_>>().iter()));
        }
    }
    let report = database.check(|_| {}).await.expect("it is checked");
    assert!(report.findings.iter().all(|finding| finding.partition != OTHERS.0), "{:?}", report.findings);
}

fuzz_target!(|bytes: &[u8]| {
    let media = START.with(Media::copy);
    let (mut left, mut left_records) = (Pages::new(), Records::new());
    let ran = run(&media, async |executor| {
        let database = Database::open(executor, settings(), "here").await.expect("it opens");
        let (mut input, mut pages) = (Input(bytes), all_pages(&database).await);
        let mut stock = all_records(&database).await;
        for _ in 0..4 {
            if !input.0.is_empty() {
                ship(&database, &mut input, &mut pages, &mut stock).await;
            }
        }
        read_all(&database).await;
        (left, left_records) = (all_pages(&database).await, stock);
    });
    ran.expect("the machine goes on");
    media.power_cut(&mut Random::stream(1, "cut"), &PowerCut { lost: 1.0, torn: 0.0 });
    let ran = run(&media, async |executor| {
        let database = Database::open(executor, settings(), "here").await.expect("it opens");
        for (page, bytes) in all_pages(&database).await {
            assert!(is_as(&bytes, left.get(&page)), "{page} is not what was committed");
        }
        assert_eq!(all_records(&database).await, left_records);
        read_all(&database).await;
    });
    ran.expect("the machine goes on");
});
