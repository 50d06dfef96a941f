//! Transactions and pages that another node has sent: what fits is committed and survives, what does not is refused by name and
//! leaves nothing behind. And what the buffer tells a node of its pages.

use crate::ground::shipments::*;
use base::time::{MICROSECOND_NS, SECOND_NS};
use base::{Lsn, PageId, PartitionId, Random, TransactionId};
use driver::OpKind;
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::log::record::{self, Body};
use entresol_engine::page::{Change, Edit, HEADER_SIZE, PageKind, header};
use entresol_engine::undo::Undo;
use entresol_engine::{CommitFailure, Database, Error, Internals, PartitionSpec, Result};
use std::cell::RefCell;
use std::rc::Rc;
use virtual_driver::{ErrorAt, FaultPlan, Media, PowerCut};

#[test]
fn what_another_node_commits_survives_a_restart() -> Result<()> {
    let media = Media::new();
    let committed = run(&media, FaultPlan::default(), async |executor| {
        let (database, pages) = with_pages(executor).await?;
        // More pages than there are frames.
        for number in 0..20 {
            let page = PageId::new(pages, number);
            let (record, bytes) = changed(page, number as u8 + 1);
            commit(&database, &record, &[(page, &bytes)]).await?;
            assert_eq!(value(&database, page).await?, number as u8 + 1);
        }
        Ok::<_, Error>(pages)
    });
    let pages = committed.expect("the machine goes on")?;
    let read = run(&media, FaultPlan::default(), async |executor| {
        let database = Database::open(executor, settings(), "pages").await?;
        assert!(database.recovery().records >= 40, "{:?}", database.recovery());
        for number in 0..20 {
            assert_eq!(value(&database, PageId::new(pages, number)).await?, number as u8 + 1);
        }
        Ok::<_, Error>(())
    });
    read.expect("the machine goes on")
}

#[test]
fn what_a_node_has_changed_is_read_as_it_was_after_an_opening() -> Result<()> {
    let (media, mut kept) = (Media::new(), settings());
    kept.undo.retention_ns = 3_600 * SECOND_NS;
    let created = run(&media, FaultPlan::default(), async |executor| {
        let database = Database::create(executor, kept.clone()).await?;
        let organization = Organization::Direct { objects: 64, blocking_factor: 2, record_size: 8 };
        let locked = PartitionSpec::new("locked", organization, Locking::Page);
        let partition = database.create_partition(locked).await?;
        database.transaction(async |tx| tx.modify_object(partition, 9, |object| object[0] = 1).await).await?;
        let before = database.snapshot().await?.moment();
        let page = PageId::new(partition, 0);
        // Parts of an object, one of them twice, in one transaction.
        let (mut copy, mut records) = (blank(page), Vec::new());
        for (offset, byte) in [(3, 7), (3, 8), (6, 9)] {
            patch(&mut copy, HEADER_SIZE as u16 + offset, &[byte], &mut records);
        }
        commit(&database, &records, &[(page, &copy)]).await?;
        Ok::<_, Error>((partition, before))
    });
    let (partition, before) = created.expect("the machine goes on")?;
    let read = run(&media, FaultPlan::default(), async |executor| {
        let database = Database::open(executor, kept.clone(), "pages").await?;
        let present = database.snapshot().await?.read_object(partition, 0, <[u8]>::to_vec).await?;
        let past = database.as_of(before).await?.read_object(partition, 0, <[u8]>::to_vec).await?;
        assert_eq!((present, past), (vec![0, 0, 0, 8, 0, 0, 9, 0], vec![0; 8]));
        // A change that is of no object, or of two.
        let page = PageId::new(partition, 1);
        let (mut copy, mut records) = (blank(page), Vec::new());
        patch(&mut copy, HEADER_SIZE as u16 + 6, &[1, 2, 3, 4], &mut records);
        patch(&mut copy, HEADER_SIZE as u16 + 20, &[5], &mut records);
        commit(&database, &records, &[(page, &copy)]).await
    });
    read.expect("the machine goes on")?;
    let refused = run(&media, FaultPlan::default(), async |executor| {
        let database = Database::open(executor, kept.clone(), "pages").await?;
        database.as_of(before).await?.read_object(partition, 2, <[u8]>::to_vec).await
    });
    assert!(matches!(refused.expect("the machine goes on"), Err(Error::SnapshotTooOld { .. })));
    Ok(())
}

#[test]
fn what_does_not_fit_together_is_refused_and_leaves_nothing() -> Result<()> {
    whole(async |executor| {
        let (database, pages) = with_pages(executor).await?;
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
            (&commit, vec![(page, &bytes)], "changes no pages"),
        ];
        for (records, shipped, why) in refused {
            let error = database.commit_shipped(&with_images(records, &shipped)).await.expect_err(why);
            assert!(
                matches!(error, CommitFailure::NothingLogged(Error::Shipment(_))) && error.to_string().contains(why),
                "{error}: {why}"
            );
        }
        assert_eq!(database.log().end(), end, "nothing was logged");
        assert_eq!(value(&database, page).await?, 0);
        let strange = PageId::new(PartitionId(77), 0);
        assert!(database.keep_shipped(strange, &bytes).await.is_err());
        Ok(())
    })
}

/// A node that is ill, or has kept a page that others have changed since, overwrites nothing, and leaves no log that cannot be redone.
#[test]
fn what_does_not_follow_from_the_page_that_is_here_is_refused() {
    let media = Media::new();
    let done = run(&media, FaultPlan::default(), async |executor| {
        let (database, pages) = with_pages(executor).await?;
        let (page, other) = (PageId::new(pages, 3), PageId::new(pages, 4));
        let (records, present) = changed(page, 5);
        commit(&database, &records, &[(page, &present)]).await?;
        let patched = |at: u16, bytes: &[u8]| {
            let (mut copy, mut records) = (present.clone(), Vec::new());
            patch(&mut copy, at, bytes, &mut records);
            (records, copy)
        };
        let edited = |undo: Option<Undo<'_>>, change: Change<'_>| {
            let (mut copy, mut records) = (present.clone(), Vec::new());
            add_change(undo, (2, Edit { page, change }), &mut records);
            header::set_sequence(&mut copy, 2);
            header::seal(&mut copy);
            (records, copy)
        };
        let stale = changed(page, 9);
        let ahead = {
            let (mut copy, mut records) = (present.clone(), Vec::new());
            header::set_sequence(&mut copy, 7);
            patch(&mut copy, 32, &[9], &mut records);
            (records, copy)
        };
        let another = (patched(32, &[8]).0, patched(32, &[9]).1);
        let own = |offset, bytes| Some(Undo::PatchPage { page, offset, bytes });
        let strange = Some(Undo::PatchPage { page: other, offset: 32, bytes: &[5] });
        let beyond = Change::Patch { offset: SIZE as u16 - 1, bytes: &[9; 2] };
        let in_header = Change::Patch { offset: 8, bytes: &[9; 2] };
        let image = [9; SIZE];
        let larger = Change::Format { kind: PageKind::Direct, level: 0, count: 0, image: &image };
        let patch_32 = Change::Patch { offset: 32, bytes: &[5] };
        let refused = [
            (stale, "has seen 1 changes"),
            (ahead, "has seen 1 changes"),
            (another, "is not as its log records leave it"),
            (edited(own(SIZE as u16 - 1, &[0; 2]), beyond), "does not fit"),
            (edited(own(8, &[0; 2]), in_header), "does not fit"),
            (edited(None, larger), "does not fit"),
            (edited(None, Change::RemoveSlot { slot: 0 }), "does not fit"),
            (edited(None, Change::InsertSlot { slot: 0, key: b"k", value: b"v" }), "does not fit"),
            (edited(strange, patch_32), "would take back what it has not changed"),
            (edited(own(SIZE as u16, &[5]), patch_32), "would take back"),
            (edited(Some(Undo::Remove { partition: PartitionId(77), key: b"k" }), patch_32), "would take back"),
        ];
        for ((records, copy), why) in refused {
            let error = database.commit_shipped(&with_images(&records, &[(page, &copy)])).await.expect_err(why);
            let is_refusal = matches!(error, CommitFailure::NothingLogged(Error::Shipment(_)));
            assert!(is_refusal && error.to_string().contains(why), "{error}: {why}");
            assert_eq!(contents(&database, page).await?[32..], present[32..], "{why}");
        }
        let (records, copy) = patched(32, &[6]);
        commit(&database, &records, &[(page, &copy)]).await?;
        Ok::<_, Error>(page)
    });
    let page = done.expect("the machine goes on").expect("works");
    let read = run(&media, FaultPlan::default(), async |executor| {
        let database = Database::open(executor, settings(), "here").await?;
        value(&database, page).await
    });
    assert_eq!(read, Ok(Ok(6)));
}

/// A restart would leave out what comes behind it, or could not number it.
#[test]
fn a_page_does_not_begin_with_any_sequence_number() -> Result<()> {
    whole(async |executor| {
        let (database, pages) = with_pages(executor).await?;
        let page = PageId::new(pages, 3);
        contents(&database, page).await?;
        let filled = |sequence: u64| {
            let (mut copy, mut records) = (blank(page), Vec::new());
            let undo = Undo::PatchPage { page, offset: 32, bytes: &[0; SIZE - 32] };
            let change = Change::Patch { offset: 32, bytes: &[9; SIZE - 32] };
            add_change(Some(undo), (sequence, Edit { page, change }), &mut records);
            change.apply(&mut copy, Lsn::ZERO);
            header::set_sequence(&mut copy, sequence);
            header::seal(&mut copy);
            (records, copy)
        };
        for sequence in [0, 3, u64::MAX] {
            let (records, copy) = filled(sequence);
            let error = database
                .commit_shipped(&with_images(&records, &[(page, &copy)]))
                .await
                .expect_err("it begins elsewhere");
            let is_refusal = matches!(error, CommitFailure::NothingLogged(Error::Shipment(_)));
            assert!(is_refusal && error.to_string().contains("has seen 0 changes"), "{sequence}: {error}");
        }
        let (records, copy) = filled(1);
        commit(&database, &records, &[(page, &copy)]).await?;
        assert_eq!(value(&database, page).await?, 9);
        Ok(())
    })
}

#[test]
fn a_hated_page_leaves_first_and_departures_are_told() -> Result<()> {
    whole(async |executor| {
        let (database, pages) = with_pages(executor).await?;
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
        Ok(())
    })
}

/// The shipments of one transaction that overwrites all of this many pages, over and over.
fn large(pages: PartitionId, count: u32, times: u8) -> (Vec<u8>, Vec<(PageId, Vec<u8>)>) {
    let mut records = Vec::new();
    let mut copies: Vec<_> = (0..count).map(|number| (PageId::new(pages, number), Vec::new())).collect();
    for (page, copy) in &mut copies {
        *copy = blank(*page);
        for time in 1..=times {
            patch(copy, 32, &[time; SIZE - 32], &mut records);
        }
    }
    (records, copies)
}

fn borrowed(copies: &[(PageId, Vec<u8>)]) -> Shipped<'_> {
    copies.iter().map(|(page, copy)| (*page, &copy[..])).collect()
}

#[test]
fn what_the_log_cannot_hold_is_refused_at_once() -> Result<()> {
    whole(async |executor| {
        let (database, pages) = with_pages(executor).await?;
        for times in [64, 100] {
            let (records, copies) = large(pages, 4, times);
            let began = executor.now();
            let refused =
                database.commit_shipped(&with_images(&records, &borrowed(&copies))).await.expect_err("it is too large");
            assert!(refused.to_string().contains("of a log of 262144 bytes"), "{refused}");
            assert_eq!(executor.now(), began, "no time passes");
            assert_eq!(database.log().failure(), None);
        }
        let (records, copies) = large(pages, 4, 40);
        assert!(records.len() as u64 > database.log().capacity() / 2, "{}", records.len());
        commit(&database, &records, &borrowed(&copies)).await?;
        Ok(())
    })
}

/// The largest shipment that is accepted, and a cut of the power at each event of its commit.
#[test]
fn a_large_shipment_is_committed_or_lost_whole_whenever_the_power_goes() {
    let (mut committed, mut lost) = (0, 0);
    for event in 1.. {
        let media = Media::new();
        let prepared = run(&media, FaultPlan::default(), async |executor| with_pages(executor).await?.0.close().await);
        prepared.expect("the machine goes on").expect("it is created");
        let faults = FaultPlan { power_cut_at: Some(event), ..FaultPlan::default() };
        let done = run(&media, faults, async |executor| {
            let database = Database::open(executor, settings(), "here").await?;
            let pages = database.partition("pages")?;
            let mut times = 70;
            loop {
                let (records, copies) = large(pages, 4, times);
                match database.commit_shipped(&with_images(&records, &borrowed(&copies))).await {
                    Err(error) if error.to_string().contains("of a log of") => times -= 1,
                    done => {
                        done.map_err(cause)?;
                        return Ok::<_, Error>(());
                    }
                }
            }
        });
        media.power_cut(&mut Random::stream(event, "shipments"), &PowerCut::default());
        let found = run(&media, FaultPlan::default(), async |executor| {
            let database = Database::open(executor, settings(), "here").await?;
            let pages = database.partition("pages")?;
            let mut values = Vec::new();
            for number in 0..4 {
                values.push(value(&database, PageId::new(pages, number)).await?);
            }
            database.close().await?;
            Ok::<_, Error>(values)
        });
        let found = found.expect("the machine goes on").unwrap_or_else(|error| panic!("event {event}: {error}"));
        assert!(found.iter().all(|value| *value == found[0]), "event {event}: {found:?}");
        committed += u32::from(found[0] > 0);
        lost += u32::from(found[0] == 0);
        if done.is_ok() {
            assert!(found[0] > 0, "it is durable");
            break;
        }
    }
    assert!(committed > 0 && lost > 0, "{committed} {lost}");
}

/// A commit to two partitions begins this long after the drop of one of them. Whether it was committed.
fn commit_beside_drop(delay_ns: u64) -> Result<bool> {
    whole(async |executor| {
        let (database, pages) = with_pages(executor).await?;
        let going = create_pages(&database, "going").await?;
        // Every frame has a page that must be written before another one gets it.
        for number in 10..10 + FRAMES as u32 {
            let (records, copy) = changed(PageId::new(pages, number), 1);
            commit(&database, &records, &[(PageId::new(pages, number), &copy)]).await?;
        }
        let own = database.clone();
        let dropping = executor.spawn(async move { own.drop_partition(going).await });
        executor.sleep_ns(delay_ns).await;
        let (first, second) = (PageId::new(pages, 1), PageId::new(going, 1));
        let ((mut records, copy), (more, other)) = (changed(first, 5), changed(second, 5));
        records.extend(more);
        let committed = database.commit_shipped(&with_images(&records, &[(first, &copy), (second, &other)])).await;
        dropping.join().await?;
        if let Err(refused) = &committed {
            assert!(refused.to_string().contains("there is no partition"), "{refused}");
        }
        assert_eq!(value(&database, first).await? == 5, committed.is_ok());
        Ok(committed.is_ok())
    })
}

#[test]
fn a_commit_beside_the_drop_of_a_partition_is_whole_or_refused() -> Result<()> {
    let mut both = [0; 2];
    for delay_ns in (0..400 * MICROSECOND_NS).step_by(5 * MICROSECOND_NS as usize) {
        both[usize::from(commit_beside_drop(delay_ns)?)] += 1;
    }
    assert!(both[0] > 0 && both[1] > 0, "{both:?}");
    Ok(())
}

#[test]
fn more_pages_than_there_is_memory_for_are_refused_and_nothing_is_logged() -> Result<()> {
    whole(async |executor| {
        let (database, pages) = with_pages(executor).await?;
        let (records, copies) = large(pages, FRAMES as u32 + 1, 1);
        let end = database.log().end();
        let refused = database
            .commit_shipped(&with_images(&records, &borrowed(&copies)))
            .await
            .expect_err("it has too many pages");
        let expected = CommitFailure::NothingLogged(Error::BufferExhausted { frames: FRAMES });
        assert_eq!(refused, expected);
        assert_eq!(database.log().end(), end);
        for (page, _) in copies {
            assert_eq!(value(&database, page).await?, 0);
        }
        Ok(())
    })
}

/// Pages that have left the buffer are not taken for new ones because a commit of them has failed, or is not waited for any more.
#[test]
fn pages_of_a_commit_of_which_nothing_was_logged_are_what_they_were() -> Result<()> {
    whole(async |executor| {
        let (database, pages) = with_pages(executor).await?;
        let page = |number| PageId::new(pages, number);
        for number in 0..3 * FRAMES as u32 {
            let (records, copy) = changed(page(number), 5);
            commit(&database, &records, &[(page(number), &copy)]).await?;
        }
        let (mut records, mut copies) = (Vec::new(), Vec::new());
        for number in 0..=FRAMES as u32 {
            let mut copy = contents(&database, page(number)).await?;
            patch(&mut copy, 32, &[6], &mut records);
            copies.push((page(number), copy));
        }
        for number in FRAMES as u32 + 1..3 * FRAMES as u32 {
            assert_eq!(value(&database, page(number)).await?, 5);
        }
        let refused = database.commit_shipped(&with_images(&records, &borrowed(&copies))).await;
        assert_eq!(refused, Err(CommitFailure::NothingLogged(Error::BufferExhausted { frames: FRAMES })));
        for number in 0..=FRAMES as u32 {
            assert_eq!(value(&database, page(number)).await?, 5, "{number}");
        }
        for number in FRAMES as u32 + 1..=2 * FRAMES as u32 {
            let (mut copy, mut records) = (contents(&database, page(number)).await?, Vec::new());
            patch(&mut copy, 33, &[5], &mut records);
            commit(&database, &records, &[(page(number), &copy)]).await?;
        }
        // It waits for frames whose pages have to be written.
        let given_up = executor.within(1, database.commit_shipped(&with_images(&records, &borrowed(&copies)))).await;
        assert_eq!(given_up, None);
        for number in 0..FRAMES as u32 {
            assert_eq!(value(&database, page(number)).await?, 5, "{number}");
        }
        Ok(())
    })
}

/// The transactions of others may use the pages of one of which nothing was logged, and must not use those of one that may come back.
#[test]
fn a_commit_that_fails_says_whether_anything_was_logged() {
    let (media, mut undecided) = (Media::new(), 0);
    let prepared = run(&media, FaultPlan::default(), async |executor| with_pages(executor).await?.0.close().await);
    prepared.expect("the machine goes on").expect("it is created");
    for nth in 1.. {
        let errors = vec![ErrorAt { kind: OpKind::Write, device: None, nth }];
        let faults = FaultPlan { errors, ..FaultPlan::default() };
        let committed = run(&media.copy(), faults, async |executor| {
            let database = Database::open(executor, settings(), "here").await?;
            let page = PageId::new(database.partition("pages")?, 1);
            let (records, copy) = changed(page, 7);
            let end = database.log().end();
            let first = database.commit_shipped(&with_images(&records, &[(page, &copy)])).await;
            match &first {
                Ok(()) => {}
                Err(CommitFailure::NothingLogged(_)) => assert_eq!(database.log().end(), end),
                Err(CommitFailure::Undecided(error)) => {
                    assert!(matches!(error, Error::LogFailed(_)), "{error}");
                    undecided += 1;
                    let (other, end) = (PageId { number: 2, ..page }, database.log().end());
                    let (records, copy) = changed(other, 7);
                    let next = database.commit_shipped(&with_images(&records, &[(other, &copy)])).await;
                    assert!(matches!(next, Err(CommitFailure::NothingLogged(Error::LogFailed(_)))), "{next:?}");
                    assert_eq!(database.log().end(), end);
                }
            }
            Ok::<_, Error>(first.is_ok())
        });
        if committed == Ok(Ok(true)) {
            break;
        }
    }
    assert!(undecided > 0);
}
