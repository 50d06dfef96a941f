// Transactions on copies of pages, as another node runs them, and the database that they are sent to.

use base::{Lsn, PageId, PartitionId, TransactionId};
use driver::Halt;
use entresol_engine::buffer::{self, Pins};
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::log::record::{self, Body};
use entresol_engine::organization::b_tree::stored;
use entresol_engine::page::{Change, Edit, PageKind, header};
use entresol_engine::second_level::design::Pattern;
use entresol_engine::undo::Undo;
use entresol_engine::{
    CommitFailure, Database, Error, Internals, Need, PartitionSpec, Result, Settings, Shipment, checkpoint, log,
};
use executor::{Executor, Order};
use virtual_driver::{FaultPlan, Hardware, Media, Options, VirtualDriver};

pub const SIZE: usize = 512;
pub const FRAMES: usize = 8;

/// Pages with their bytes.
pub type Shipped<'a> = Vec<(PageId, &'a [u8])>;

pub fn settings() -> Settings {
    Settings {
        buffer: buffer::Settings { frames: FRAMES, page_size: SIZE, cleaner: false, ..buffer::Settings::default() },
        log: log::Settings { capacity: 256 << 10, write_size_max: 8 << 10, ..log::Settings::default() },
        checkpoint: checkpoint::Policy::OFF,
        ..Settings::default()
    }
}

/// Runs `work` on a machine that does not outlive it.
pub fn run<T>(media: &Media, faults: FaultPlan, work: impl AsyncFnOnce(&Executor) -> T) -> Result<T, Halt> {
    let options = Options { faults: Some(faults), ..Options::default() };
    let driver = VirtualDriver::new(Hardware::ideal(), options, media.clone());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let result = executor.run(work(&executor));
    executor.stop();
    result
}

/// The same without faults.
pub fn whole<T>(work: impl AsyncFnOnce(&Executor) -> T) -> T {
    run(&Media::new(), FaultPlan::default(), work).expect("the machine goes on")
}

pub async fn create_pages(database: &Database, name: &str) -> Result<PartitionId> {
    let organization = Organization::Direct { objects: 64, blocking_factor: 1, record_size: 8 };
    database.create_partition(PartitionSpec::new(name, organization, Locking::None)).await
}

pub async fn with_pages(executor: &Executor) -> Result<(Database, PartitionId)> {
    let database = Database::create(executor, settings()).await?;
    let pages = create_pages(&database, "pages").await?;
    Ok((database, pages))
}

/// A copy of a page that was never written.
pub fn blank(page: PageId) -> Vec<u8> {
    let mut bytes = vec![0; SIZE];
    header::format(&mut bytes, page);
    header::set_kind(&mut bytes, PageKind::Direct);
    bytes
}

/// Overwrites a part of a copy and adds the record of that.
pub fn patch(copy: &mut [u8], offset: u16, bytes: &[u8], records: &mut Vec<u8>) {
    let page = header::id(copy);
    let before = copy[usize::from(offset)..][..bytes.len()].to_vec();
    let (undo, change) = (Undo::PatchPage { page, offset, bytes: &before }, Change::Patch { offset, bytes });
    add_change(Some(undo), (header::sequence(copy) + 1, Edit { page, change }), records);
    change.apply(copy, Lsn::ZERO);
    header::seal(copy);
}

/// Adds the record of a change, and of what takes it back; nothing does if it is never undone.
pub fn add_change(undo: Option<Undo<'_>>, (sequence, edit): (u64, Edit<'_>), records: &mut Vec<u8>) {
    let undo = undo.map(|undo| undo.stored());
    let body = undo.as_ref().map_or(Body::System, |undo| Body::Update(undo));
    record::encode(TransactionId::SYSTEM, &body, [(sequence, &edit)], records);
}

/// A page of which one byte was changed since it was made, and the record of that.
pub fn changed(page: PageId, value: u8) -> (Vec<u8>, Vec<u8>) {
    let (mut copy, mut records) = (blank(page), Vec::new());
    patch(&mut copy, 32, &[value], &mut records);
    (records, copy)
}

/// What is on a page.
pub async fn contents(database: &Database, page: PageId) -> Result<Vec<u8>> {
    let mut pins = Pins::new(database.buffer());
    database.buffer().resolve(Need::Page(page), Pattern::Random, &mut pins).await?;
    let pool = database.buffer().pool().borrow();
    Ok(pool.bytes(pool.frame_in_use(page)).to_vec())
}

/// The first byte behind a page's header.
pub async fn value(database: &Database, page: PageId) -> Result<u8> {
    Ok(contents(database, page).await?[32])
}

/// A transaction that sends all pages that it has changed.
pub fn with_images<'a>(records: &'a [u8], images: &'a [(PageId, &'a [u8])]) -> Shipment<'a> {
    Shipment { records, images, redone: &[], sets: &[] }
}

/// A transaction that sends none of them.
pub fn with_records<'a>(records: &'a [u8], redone: &'a [PageId]) -> Shipment<'a> {
    Shipment { records, images: &[], redone, sets: &[] }
}

/// Commits what is right.
pub async fn commit(database: &Database, records: &[u8], pages: &[(PageId, &[u8])]) -> Result<()> {
    database.commit_shipped(&with_images(records, pages)).await.map_err(cause)
}

/// Why it failed.
pub fn cause(failure: CommitFailure) -> Error {
    match failure {
        CommitFailure::NothingLogged(error) | CommitFailure::Undecided(error) => error,
    }
}

/// A change of a page and what is to take it back; nothing if it is never undone.
pub type Step<'a> = (PageId, Option<Undo<'a>>, Change<'a>);

/// The records of these changes, and copies of their pages as these leave them.
fn records_of(steps: &[Step<'_>], copies: &mut [(PageId, Vec<u8>)]) -> Vec<u8> {
    let mut records = Vec::new();
    for (page, undo, change) in steps {
        let (_, copy) = copies.iter_mut().find(|(id, _)| id == page).expect("it is copied");
        add_change(*undo, (header::sequence(copy) + 1, Edit { page: *page, change: *change }), &mut records);
        if change.fits(copy) {
            change.apply(copy, Lsn::ZERO);
        }
        header::seal(copy);
    }
    records
}

async fn copies_of(database: &Database, steps: &[Step<'_>]) -> Result<Vec<(PageId, Vec<u8>)>> {
    let mut copies: Vec<(PageId, Vec<u8>)> = Vec::new();
    for (page, ..) in steps {
        if copies.iter().all(|(id, _)| id != page) {
            copies.push((*page, contents(database, *page).await?));
        }
    }
    Ok(copies)
}

/// Commits these changes of pages as they are in the database, with their pages or without.
pub async fn ship(
    database: &Database,
    steps: &[Step<'_>],
    sends_pages: bool,
) -> std::result::Result<(), CommitFailure> {
    let mut copies = copies_of(database, steps).await.map_err(CommitFailure::NothingLogged)?;
    let records = records_of(steps, &mut copies);
    let images: Vec<(PageId, &[u8])> = copies.iter().map(|(page, copy)| (*page, &copy[..])).collect();
    let named: Vec<PageId> = copies.iter().map(|(page, _)| *page).collect();
    let shipment = if sends_pages { with_images(&records, &images) } else { with_records(&records, &named) };
    database.commit_shipped(&shipment).await
}

/// A value as a leaf has it.
pub fn kept(value: &[u8]) -> Vec<u8> {
    let mut kept = Vec::new();
    stored::store_here(value, &mut kept);
    kept
}
