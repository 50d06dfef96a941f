//! Transactions and pages that another node has sent: what fits is committed and survives, what does not is refused by name and
//! leaves nothing behind. And what the buffer tells a node of its pages.

use base::{Lsn, PageId, PartitionId, TransactionId};
use entresol_engine::buffer::{self, Pins};
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::log::record::{self, Body};
use entresol_engine::page::{Change, Edit, header};
use entresol_engine::second_level::design::Pattern;
use entresol_engine::undo::Undo;
use entresol_engine::{Database, Error, Need, PartitionSpec, Result, Settings};
use executor::{Executor, Order};
use std::cell::RefCell;
use std::rc::Rc;
use virtual_driver::{Hardware, Media, Options, VirtualDriver};

const SIZE: usize = 512;

/// Pages with their bytes.
type Shipped<'a> = Vec<(PageId, &'a [u8])>;

fn settings() -> Settings {
    let buffer = buffer::Settings { frames: 8, page_size: SIZE, cleaner: false, ..buffer::Settings::default() };
    Settings { buffer, ..Settings::default() }
}

fn machine(media: &Media) -> Executor {
    let driver = VirtualDriver::new(Hardware::ideal(), Options::default(), media.clone());
    Executor::new(Box::new(driver), Order::FirstInFirstOut)
}

async fn with_pages(executor: &Executor) -> Result<(Database, PartitionId)> {
    let database = Database::create(executor, settings()).await?;
    let organization = Organization::Direct { objects: 64, blocking_factor: 1, record_size: 8 };
    let pages = database.create_partition(PartitionSpec::new("pages", organization, Locking::None)).await?;
    Ok((database, pages))
}

/// A page and the record of one change that it has seen, as another node would make them.
fn changed(page: PageId, value: u8) -> (Vec<u8>, Vec<u8>) {
    let mut bytes = vec![0; SIZE];
    header::format(&mut bytes, page);
    header::set_kind(&mut bytes, entresol_engine::page::PageKind::Direct);
    let undo = Undo::PatchPage { page, offset: 32, bytes: &[0] }.stored();
    let edit = Edit { page, change: Change::Patch { offset: 32, bytes: &[value] } };
    let mut record = Vec::new();
    record::encode(TransactionId::SYSTEM, &Body::Update(&undo), [(1, &edit)], &mut record);
    edit.change.apply(&mut bytes, Lsn::ZERO);
    assert_eq!(header::sequence(&bytes), 1);
    header::seal(&mut bytes);
    (record, bytes)
}

async fn value(database: &Database, page: PageId) -> Result<u8> {
    let mut pins = Pins::new(database.buffer());
    database.buffer().resolve(Need::Page(page), Pattern::Random, &mut pins).await?;
    let pool = database.buffer().pool().borrow();
    Ok(pool.bytes(pool.frame_in_use(page))[32])
}

#[test]
fn what_another_node_commits_survives_a_restart() -> Result<()> {
    let media = Media::new();
    let executor = machine(&media);
    let committed = executor.run(async {
        let (database, pages) = with_pages(&executor).await?;
        // More pages than there are frames.
        for number in 0..20 {
            let page = PageId::new(pages, number);
            let (record, bytes) = changed(page, number as u8 + 1);
            database.commit_shipped(&record, &[(page, &bytes)]).await?;
            assert_eq!(value(&database, page).await?, number as u8 + 1);
        }
        Ok::<_, Error>(pages)
    });
    let pages = committed.expect("the machine goes on")?;
    executor.stop();
    let executor = machine(&media);
    let read = executor.run(async {
        let database = Database::open(&executor, settings(), "pages").await?;
        assert!(database.recovery().records >= 40, "{:?}", database.recovery());
        for number in 0..20 {
            assert_eq!(value(&database, PageId::new(pages, number)).await?, number as u8 + 1);
        }
        Ok::<_, Error>(())
    });
    executor.stop();
    read.expect("the machine goes on")
}

#[test]
fn what_does_not_fit_together_is_refused_and_leaves_nothing() -> Result<()> {
    let executor = machine(&Media::new());
    let done = executor.run(async {
        let (database, pages) = with_pages(&executor).await?;
        let (page, other) = (PageId::new(pages, 3), PageId::new(pages, 4));
        let (record, bytes) = changed(page, 9);
        let (_, other_bytes) = changed(other, 9);
        let beyond = PageId::new(pages, 1_000_000);
        let (beyond_record, beyond_bytes) = changed(beyond, 9);
        let mut torn = bytes.clone();
        torn[100] ^= 1;
        let mut later = bytes.clone();
        header::set_sequence(&mut later, 2);
        header::seal(&mut later);
        let mut commit = record.clone();
        record::encode(TransactionId::SYSTEM, &Body::Commit { chains: &[], changes: &[] }, [], &mut commit);
        let end = database.log().end();
        let refused: [(&[u8], Shipped<'_>, &str); 8] = [
            (&record[..record.len() - 1], vec![(page, &bytes)], "damaged"),
            (&record, vec![], "does not come with it"),
            (&record, vec![(page, &bytes), (other, &other_bytes)], "is not as its log records leave it"),
            (&record, vec![(page, &torn)], "checksum"),
            (&record, vec![(page, &later)], "is not as its log records leave it"),
            (&record, vec![(page, &bytes[..SIZE / 2])], "is none of this database"),
            (&beyond_record, vec![(beyond, &beyond_bytes)], "is none of this database"),
            (&commit, vec![(page, &bytes)], "no update"),
        ];
        for (records, shipped, why) in refused {
            let error = database.commit_shipped(records, &shipped).await.expect_err(why);
            assert!(matches!(error, Error::Shipment(_)) && error.to_string().contains(why), "{error}: {why}");
        }
        assert_eq!(database.log().end(), end, "nothing was logged");
        assert_eq!(value(&database, page).await?, 0);
        let strange = PageId::new(PartitionId(77), 0);
        assert!(database.keep_shipped(strange, &bytes).await.is_err());
        Ok::<_, Error>(())
    });
    executor.stop();
    done.expect("the machine goes on")
}

#[test]
fn a_hated_page_leaves_first_and_departures_are_told() -> Result<()> {
    let executor = machine(&Media::new());
    let done = executor.run(async {
        let (database, pages) = with_pages(&executor).await?;
        let page = |number| PageId::new(pages, number);
        for number in 0..8 {
            value(&database, page(number)).await?;
        }
        let left: Rc<RefCell<Vec<u32>>> = Rc::default();
        let seen = Rc::clone(&left);
        let departure = Box::new(move |id: PageId, bytes: &[u8]| {
            assert_eq!(header::id(bytes), id);
            seen.borrow_mut().push(id.number);
        });
        {
            let mut pool = database.buffer().pool().borrow_mut();
            pool.set_departure(departure);
            for number in [5, 6, 7] {
                let frame = pool.frame_in_use(page(number));
                pool.hate(frame);
            }
            // It was used since.
            pool.touch(pool.frame_in_use(page(6)));
        }
        for number in 8..12 {
            value(&database, page(number)).await?;
        }
        assert_eq!(*left.borrow(), [7, 5, 0, 1], "the last that was hated first, then what was used least recently");
        Ok::<_, Error>(())
    });
    executor.stop();
    done.expect("the machine goes on")
}
