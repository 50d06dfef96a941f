//! Transactions of another node that send log records alone: what comes of these is what the node has, now and after a restart, and
//! records that do not follow from the pages that are here change nothing.

use crate::ground::shipments::*;
use base::{Lsn, PageId, PartitionId, Random};
use entresol_engine::buffer::Pins;
use entresol_engine::log::record::{self, Body};
use entresol_engine::organization::b_tree;
use entresol_engine::page::{Change, Edit, HEADER_SIZE, PageKind, header};
use entresol_engine::second_level::design::Pattern;
use entresol_engine::undo::Undo;
use entresol_engine::{CommitFailure, Database, Error, Internals, Need, PartitionSpec, Result, Shipment, UNNUMBERED};
use virtual_driver::{FaultPlan, Media};

const PAGES: u32 = 20;

/// What pages have behind their headers.
async fn contents_of_all(database: &Database, pages: PartitionId) -> Result<Vec<Vec<u8>>> {
    let mut all = Vec::new();
    for number in 0..PAGES {
        all.push(contents(database, PageId::new(pages, number)).await?.split_off(32));
    }
    Ok(all)
}

/// Transactions of a node that change some bytes of some pages each. Those for which `sends` says so send the pages.
async fn change_pages(database: &Database, pages: PartitionId, sends: impl Fn(u64) -> bool) -> Result<()> {
    let mut random = Random::stream(7, "changes");
    for number in 0..60 {
        let (mut records, mut copies) = (Vec::new(), Vec::new());
        let first = random.below(u64::from(PAGES)) as u32;
        for page in [first, (first + 7) % PAGES, (first + 13) % PAGES].map(|number| PageId::new(pages, number)) {
            let mut copy = contents(database, page).await?;
            for _ in 0..random.between(1, 4) {
                patch(&mut copy, random.between(32, 500) as u16, &[number as u8 + 1; 6], &mut records);
            }
            copies.push((page, copy));
        }
        let images: Vec<(PageId, &[u8])> = copies.iter().map(|(page, copy)| (*page, &copy[..])).collect();
        let named: Vec<PageId> = copies.iter().map(|(page, _)| *page).collect();
        let shipment = if sends(number) { with_images(&records, &images) } else { with_records(&records, &named) };
        database.commit_shipped(&shipment).await.map_err(cause)?;
    }
    Ok(())
}

#[test]
fn pages_on_which_records_are_redone_are_what_the_node_has_also_after_a_restart() -> Result<()> {
    let found = [|_: u64| true, |_: u64| false, |number: u64| number.is_multiple_of(3)].map(|sends| {
        let media = Media::new();
        let done = run(&media, FaultPlan::default(), async |executor| {
            let (database, pages) = with_pages(executor).await?;
            change_pages(&database, pages, sends).await?;
            contents_of_all(&database, pages).await
        });
        let again = run(&media, FaultPlan::default(), async |executor| {
            let database = Database::open(executor, settings(), "here").await?;
            assert!(database.recovery().records > 4, "{:?}", database.recovery());
            contents_of_all(&database, database.partition("pages")?).await
        });
        let (done, again) = (done.expect("the machine goes on"), again.expect("the machine goes on"));
        assert_eq!(done, again);
        done
    });
    let [sent, redone, mixed] = found;
    assert_eq!((&sent, &sent), (&redone, &mixed));
    assert!(sent?.iter().all(|page| page.iter().any(|byte| *byte > 0)));
    Ok(())
}

async fn refuse(database: &Database, shipment: Shipment<'_>, why: &str) {
    let end = database.log().end();
    let error = database.commit_shipped(&shipment).await.expect_err(why);
    let is_refusal = matches!(error, CommitFailure::NothingLogged(Error::Shipment(_)));
    assert!(is_refusal && error.to_string().contains(why), "{error}: {why}");
    assert_eq!(database.log().end(), end, "{why}: nothing was logged");
}

#[test]
fn pages_and_records_that_do_not_name_the_same_are_refused() -> Result<()> {
    whole(async |executor| {
        let (database, pages) = with_pages(executor).await?;
        let (page, other) = (PageId::new(pages, 3), PageId::new(pages, 4));
        let (records, bytes) = changed(page, 9);
        let beyond = PageId::new(pages, 1_000_000);
        let (of_beyond, _) = changed(beyond, 9);
        refuse(&database, with_records(&records, &[page, other]), "no log record changes it").await;
        refuse(&database, with_records(&records, &[]), "does not come with it").await;
        refuse(&database, with_records(&records, &[page, page]), "no log record changes it").await;
        let both = Shipment { records: &records, images: &[(page, &bytes)], redone: &[page], sets: &[] };
        refuse(&database, both, "no log record changes it").await;
        refuse(&database, with_records(&of_beyond, &[beyond]), "is none of this database").await;
        refuse(&database, with_records(&records[..records.len() - 1], &[page]), "damaged").await;
        let strange = PageId::new(PartitionId(77), 0);
        let (records, _) = changed(strange, 9);
        let error = database.commit_shipped(&with_records(&records, &[strange])).await;
        assert!(matches!(error, Err(CommitFailure::NothingLogged(Error::NoPartition(_)))), "{error:?}");
        Ok(())
    })
}

#[test]
fn records_that_do_not_follow_from_the_page_that_is_here_are_not_redone() -> Result<()> {
    let media = Media::new();
    let done = run(&media, FaultPlan::default(), async |executor| {
        let (database, pages) = with_pages(executor).await?;
        let (page, other) = (PageId::new(pages, 3), PageId::new(pages, 4));
        let (records, present) = changed(page, 5);
        database.commit_shipped(&with_records(&records, &[page])).await.map_err(cause)?;
        let edited = |sequence: u64, undo: Option<Undo<'_>>, change: Change<'_>| {
            let mut records = Vec::new();
            add_change(undo, (sequence, Edit { page, change }), &mut records);
            records
        };
        let patched = |offset, bytes| Some(Undo::PatchPage { page, offset, bytes });
        let (own, strange) = (patched(32, &[5]), Some(Undo::PatchPage { page: other, offset: 32, bytes: &[5] }));
        let byte = Change::Patch { offset: 32, bytes: &[6] };
        let image = [9; SIZE];
        let format = |image| Change::Format { kind: PageKind::Direct, level: 0, count: 0, image };
        let node = Change::Format { kind: PageKind::Node, level: 0, count: 9, image: &image[..SIZE - 32] };
        for (records, why) in [
            (records, "has seen 1 changes"),
            (edited(7, own, byte), "has seen 1 changes"),
            (edited(u64::MAX, own, byte), "has seen 1 changes"),
            (edited(1, None, format(&image[..8])), "has seen 1 changes"),
            (
                edited(2, patched(SIZE as u16 - 1, &[0; 2]), Change::Patch { offset: SIZE as u16 - 1, bytes: &[9; 2] }),
                "does not fit",
            ),
            (edited(2, patched(8, &[0; 2]), Change::Patch { offset: 8, bytes: &[9; 2] }), "does not fit"),
            (edited(2, None, format(&image)), "does not fit"),
            (edited(2, None, Change::RemoveSlot { slot: 0 }), "does not fit"),
            (edited(2, None, node), "no restructuring makes"),
            (edited(2, strange, byte), "would take back what it has not changed"),
            (edited(2, patched(SIZE as u16, &[5]), byte), "would take back"),
        ] {
            refuse(&database, with_records(&records, &[page]), why).await;
            assert_eq!(contents(&database, page).await?[32..], present[32..], "{why}");
        }
        // All or nothing: of two changes the second one does not follow, or the second page's.
        let (mut both, _) = changed(other, 5);
        both.extend(edited(7, own, byte));
        refuse(&database, with_records(&both, &[other, page]), "has seen 1 changes").await;
        assert_eq!((value(&database, other).await?, value(&database, page).await?), (0, 5));
        let records = edited(2, own, byte);
        database.commit_shipped(&with_records(&records, &[page])).await.map_err(cause)?;
        Ok::<_, Error>(page)
    });
    let page = done.expect("the machine goes on")?;
    let read = run(&media, FaultPlan::default(), async |executor| {
        let database = Database::open(executor, settings(), "here").await?;
        value(&database, page).await
    });
    assert_eq!(read, Ok(Ok(6)));
    Ok(())
}

/// A page may be used anew, with any of some numbers, only by who sends it.
#[test]
fn a_page_is_begun_only_with_the_number_that_follows() -> Result<()> {
    whole(async |executor| {
        let (database, _) = with_pages(executor).await?;
        let tree = database.create_partition(PartitionSpec::b_tree("tree")).await?;
        let page = PageId::new(tree, database.buffer().space(tree).capacity());
        let mut none = Pins::new(database.buffer());
        database.buffer().resolve(Need::Space(tree), Pattern::Random, &mut none).await?;
        let present = header::sequence(&contents(&database, page).await?);
        // A part of a long value, in front of page 7: it is full.
        let length = SIZE - HEADER_SIZE - 8;
        let image = [&[7, 0, 0, 0][..], &(length as u32).to_le_bytes(), &vec![9; length]].concat();
        let formatted = |sequence: u64| {
            let change = Change::Format { kind: PageKind::Overflow, level: 0, count: 0, image: &image };
            let mut records = Vec::new();
            let edit = Edit { page, change };
            record::encode(base::TransactionId::SYSTEM, &Body::System, [(sequence, &edit)], &mut records);
            records
        };
        for sequence in [present, present + 2, u64::MAX] {
            refuse(&database, with_records(&formatted(sequence), &[page]), "changes, and its log records").await;
        }
        let records = formatted(present + 1);
        database.commit_shipped(&with_records(&records, &[page])).await.map_err(cause)?;
        assert_eq!(value(&database, page).await?, 7);
        let lsn = header::lsn(&contents(&database, page).await?);
        assert!(lsn > Lsn::ZERO && lsn <= database.log().end(), "it is not written before its commit record is");
        Ok(())
    })
}

#[test]
fn more_pages_to_redo_than_there_is_memory_for_are_refused() -> Result<()> {
    whole(async |executor| {
        let (database, pages) = with_pages(executor).await?;
        let (mut records, mut named) = (Vec::new(), Vec::new());
        for number in 0..=FRAMES as u32 {
            named.push(PageId::new(pages, number));
            records.extend(changed(PageId::new(pages, number), 6).0);
        }
        let end = database.log().end();
        let refused = database.commit_shipped(&with_records(&records, &named)).await;
        assert_eq!(refused, Err(CommitFailure::NothingLogged(Error::BufferExhausted { frames: FRAMES })));
        assert_eq!(database.log().end(), end);
        let fewer = changed(named[0], 6).0;
        database.commit_shipped(&with_records(&fewer, &named[..1])).await.map_err(cause)
    })
}

/// Changes without numbers, of different objects of one page: each was made of the page as it was before all of them.
#[test]
fn changes_without_numbers_go_on_from_what_others_have_left() -> Result<()> {
    let media = Media::new();
    let done = run(&media, FaultPlan::default(), async |executor| {
        let (database, pages) = with_pages(executor).await?;
        let page = PageId::new(pages, 3);
        let edited = |offset: u16, (before, after): (u8, u8)| {
            let mut records = Vec::new();
            for (undo, bytes) in [([before], [after - 1]), ([after - 1], [after])] {
                let undo = Undo::PatchPage { page, offset, bytes: &undo };
                let edit = Edit { page, change: Change::Patch { offset, bytes: &bytes } };
                add_change(Some(undo), (UNNUMBERED, edit), &mut records);
            }
            records
        };
        for offset in 0..5 {
            let records = edited(32 + 8 * offset, (0, 7));
            database.commit_shipped(&with_records(&records, &[page])).await.map_err(cause)?;
        }
        assert_eq!(header::sequence(&contents(&database, page).await?), 10);
        let stale = edited(40, (0, 9));
        refuse(&database, with_records(&stale, &[page]), "would be taken back to what it was not").await;
        let mut format = Vec::new();
        let change = Change::Format { kind: PageKind::Direct, level: 0, count: 0, image: &[9; 8] };
        add_change(None, (UNNUMBERED, Edit { page, change }), &mut format);
        refuse(&database, with_records(&format, &[page]), "has seen 10 changes").await;
        let (_, whole) = changed(page, 7);
        let image = [(page, &whole[..])];
        refuse(&database, with_images(&edited(32, (7, 9)), &image), "is not as its log records leave it").await;
        contents(&database, page).await
    });
    let done = done.expect("the machine goes on")?;
    assert!((0..5).all(|object| done[32 + 8 * object] == 7), "{done:?}");
    let read = run(&media, FaultPlan::default(), async |executor| {
        let database = Database::open(executor, settings(), "here").await?;
        let found = contents(&database, PageId::new(database.partition("pages")?, 3)).await?;
        Ok::<_, Error>((header::sequence(&found), found[32..].to_vec()))
    });
    assert_eq!(read, Ok(Ok((10, done[32..].to_vec()))));
    Ok(())
}

/// Changes of parts of values without numbers, of different records of one leaf. What changes how long a value is has a number.
#[test]
fn values_without_numbers_go_on_from_what_others_have_left_of_their_leaf() -> Result<()> {
    let media = Media::new();
    let done = run(&media, FaultPlan::default(), async |executor| {
        let (database, _) = with_pages(executor).await?;
        let partition = database.create_partition(PartitionSpec::b_tree("tree")).await?;
        let filled = database.transaction(async |tx| {
            for key in b"abc" {
                tx.put(partition, &[*key], &[0; 4]).await?;
            }
            Ok::<_, Error>(())
        });
        filled.await?;
        let (page, offset) = (PageId::new(partition, b_tree::ROOT), 9);
        let edited = |slot: u16, (before, after): (u8, u8)| {
            let (mut records, key) = (Vec::new(), [b'a' + slot as u8]);
            for (undo, bytes) in [([before], [after - 1]), ([after - 1], [after])] {
                let undo = Undo::PatchValue { partition, key: &key, offset, bytes: &undo };
                let change = Change::PatchValue { slot, offset, bytes: &bytes };
                add_change(Some(undo), (UNNUMBERED, Edit { page, change }), &mut records);
            }
            records
        };
        let before = header::sequence(&contents(&database, page).await?);
        for slot in 0..3 {
            database.commit_shipped(&with_records(&edited(slot, (0, 7)), &[page])).await.map_err(cause)?;
        }
        assert_eq!(header::sequence(&contents(&database, page).await?), before + 6);
        let stale = edited(1, (0, 9));
        refuse(&database, with_records(&stale, &[page]), "would be taken back to what it was not").await;
        let (mut replaced, value) = (Vec::new(), [0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0]);
        let undo = Undo::Replace { partition, key: b"b", value: &value };
        let edit = Edit { page, change: Change::ReplaceValue { slot: 1, value: &value } };
        add_change(Some(undo), (UNNUMBERED, edit), &mut replaced);
        refuse(&database, with_records(&replaced, &[page]), "changes, and its log records go on").await;
        Ok::<_, Error>(())
    });
    done.expect("the machine goes on")?;
    let found = run(&media, FaultPlan::default(), async |executor| {
        let database = Database::open(executor, settings(), "here").await?;
        let partition = database.partition("tree")?;
        let mut transaction = database.begin().await?;
        let mut found = Vec::new();
        for key in b"abc" {
            found.push(transaction.get(partition, &[*key]).await?);
        }
        Ok::<_, Error>(found)
    });
    assert_eq!(found, Ok(Ok(vec![Some(vec![0, 7, 0, 0]); 3])));
    Ok(())
}
