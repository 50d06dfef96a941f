//! Operations on the archive of the log that happen late, and openings that cannot reach it: what it has stays there, and goes on.

use crate::ground::archived::{PAGE, added_keys, hardware, histories, on, put_archive, settings};
use crate::ground::holding::{Holder, holding};
use base::Instant;
use base::time::{MILLISECOND_NS, SECOND_NS};
use driver::Op;
use entresol_engine::{Database, Error, PartitionSpec, Result, Settings};
use executor::Executor;
use std::cell::{Cell, RefCell};
use virtual_driver::Media;

/// How many records were added.
type Added = RefCell<Vec<u64>>;

async fn open_or_create(executor: &Executor, settings: Settings) -> Result<Database> {
    match Database::open(executor, settings.clone(), "here").await {
        Err(Error::NotADatabase { .. }) => Database::create(executor, settings).await,
        opened => opened,
    }
}

async fn add(database: &Database, count: u64, added: &Added) -> Result<()> {
    let rows = match database.partition("rows") {
        Ok(rows) => rows,
        Err(_) => database.create_partition(PartitionSpec::b_tree("rows")).await?,
    };
    for _ in 0..count {
        let key = added.borrow().len() as u64;
        database.transaction(async |tx| tx.put(rows, &key.to_be_bytes(), &[7; 200]).await).await?;
        added.borrow_mut().push(key);
        database.executor().sleep_ns(MILLISECOND_NS).await;
    }
    Ok(())
}

fn check(media: &Media, added: &Added) -> Result<(), String> {
    let found = histories(media, PAGE)?;
    let keys: Vec<_> = found.values().flat_map(|history| added_keys(history, PAGE)).collect();
    let lacked = added.borrow().iter().find(|key| !keys.contains(&key.to_be_bytes().to_vec())).copied();
    lacked.map_or(Ok(()), |key| Err(format!("{key} of {} is not there", added.borrow().len())))
}

/// Holds this operation on the archive's directory back until then.
fn hold(executor: &Executor, holder: &Holder, number: usize, second: u64) {
    let (archive, met) = (executor.device("archive").expect("it is there"), Cell::new(0));
    holder.hold(Instant::from_ns(second * SECOND_NS), move |op| {
        let is_there = match op {
            Op::Open { device, .. } | Op::Remove { device, .. } | Op::List { device } => *device == archive,
            _ => false,
        };
        met.set(met.get() + usize::from(is_there));
        is_there && met.get() == number
    });
}

#[test]
fn what_happens_late_in_the_archive_takes_nothing_away() {
    for number in 1..8 {
        let (media, added) = (Media::new(), Added::default());
        holding(hardware(), &media, async |executor, holder| {
            hold(executor, holder, number, 75);
            let database = open_or_create(executor, settings()).await?;
            add(&database, 1_500, &added).await?;
            executor.sleep_ns(100 * SECOND_NS).await;
            add(&database, 100, &added).await?;
            assert!(holder.has_held(), "{number}");
            database.close().await
        })
        .unwrap_or_else(|error| panic!("{number}: {error}"));
        assert_eq!(check(&media, &added), Ok(()), "{number}");
    }
}

#[test]
fn what_a_closing_has_left_under_way_in_the_archive_leaves_the_next_opening_alone() {
    for number in 1..4 {
        let (media, added) = (Media::new(), Added::default());
        holding(hardware(), &media, async |executor, holder| {
            hold(executor, holder, number, 40);
            let database = open_or_create(executor, settings()).await?;
            add(&database, 30, &added).await?;
            executor.sleep_ns(15 * SECOND_NS).await;
            add(&database, 5, &added).await?;
            database.close().await?;
            assert!(holder.has_held() && executor.now() < Instant::from_ns(30 * SECOND_NS), "{number}");
            let database = open_or_create(executor, settings()).await?;
            add(&database, 2_000, &added).await?;
            executor.sleep_ns(60 * SECOND_NS).await;
            add(&database, 1_000, &added).await?;
            database.close().await
        })
        .unwrap_or_else(|error| panic!("{number}: {error}"));
        assert_eq!(check(&media, &added), Ok(()), "{number}");
    }
}

/// A database whose archive has more than its log: an older copy of it, beside what was archived since.
fn archived_ahead() -> Media {
    let (media, added) = (Media::new(), Added::default());
    on(&media, async |executor| {
        let database = open_or_create(executor, settings()).await?;
        add(&database, 100, &added).await?;
        database.close().await
    })
    .expect("works");
    let older = media.copy();
    on(&media, async |executor| {
        let database = open_or_create(executor, settings()).await?;
        add(&database, 200, &added).await?;
        database.close().await
    })
    .expect("works");
    put_archive(&media, &older);
    older
}

#[test]
fn an_opening_that_wrote_what_the_archive_has_otherwise_and_could_not_reach_it_is_noticed_by_the_next_one() {
    let (media, added) = (archived_ahead(), Added::default());
    holding(hardware(), &media, async |executor, holder| {
        hold(executor, holder, 1, 1_000);
        let database = open_or_create(executor, settings()).await?;
        add(&database, 200, &added).await?;
        executor.sleep_ns(SECOND_NS).await;
        Ok::<(), Error>(())
    })
    .expect("works");
    on(&media, async |executor| {
        let database = open_or_create(executor, settings()).await?;
        add(&database, 400, &added).await?;
        database.close().await
    })
    .expect("works");
    let found = histories(&media, PAGE).expect("each of them is whole");
    assert_eq!(found.len(), 2, "what follows is not of the first one's log");
}

#[test]
fn a_closing_that_does_not_wait_for_the_archive_abandons_no_write_of_the_superblock_file() {
    let media = archived_ahead();
    holding(hardware(), &media, async |executor, holder| {
        let database = open_or_create(executor, settings()).await?;
        let (archive, is_listed) = (executor.device("archive").expect("it is there"), Cell::new(false));
        holder.hold(executor.now().plus_ns(100 * SECOND_NS), move |op| {
            is_listed.set(is_listed.get() || matches!(op, Op::List { device } if *device == archive));
            is_listed.get() && matches!(op, Op::Write { .. })
        });
        database.close().await?;
        assert!(holder.has_held());
        open_or_create(executor, settings()).await?.close().await
    })
    .expect("works");
}
