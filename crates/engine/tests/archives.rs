//! The archive of the log: everything that was acknowledged is in it, once and without a gap, whatever comes in between.

use crate::ground::archived::{PAGE, added_keys, hardware, histories, on, put_archive, settings, under};
use base::time::{MILLISECOND_NS, SECOND_NS};
use base::{Instant, Random};
use devices::Hardware;
use driver::OpKind;
use entresol_engine::checkpoint::Policy;
use entresol_engine::log::{self, Second};
use entresol_engine::{Asked, Database, Error, Internals, PartitionSpec, Result, Settings};
use executor::{Executor, Order};
use std::cell::RefCell;
use virtual_driver::{ErrorAt, FaultPlan, Injury, Media, Options, PowerCut, Slow, VirtualDriver};

/// Keys that were acknowledged.
type Acknowledged = RefCell<Vec<Vec<u8>>>;

async fn open_or_create(executor: &Executor, settings: Settings) -> Result<Database> {
    match Database::open(executor, settings.clone(), "here").await {
        Err(Error::NotADatabase { .. } | Error::Unfinished { .. }) => Database::create(executor, settings).await,
        opened => opened,
    }
}

/// Adds `count` records, one a transaction.
async fn add(database: &Database, count: usize, acknowledged: &Acknowledged) -> Result<()> {
    let rows = match database.partition("rows") {
        Ok(rows) => rows,
        Err(_) => database.create_partition(PartitionSpec::b_tree("rows")).await?,
    };
    for _ in 0..count {
        let key = (acknowledged.borrow().len() as u64).to_be_bytes();
        database.transaction(async |tx| tx.put(rows, &key, &[7; 200]).await).await?;
        acknowledged.borrow_mut().push(key.to_vec());
        database.executor().sleep_ns(MILLISECOND_NS).await;
    }
    Ok(())
}

/// The archive has one history, with every acknowledged key, in order.
///
/// # Errors
/// What is wrong.
fn check(media: &Media, acknowledged: &Acknowledged) -> Result<(), String> {
    let found = histories(media, PAGE)?;
    let [history] = &found.values().collect::<Vec<_>>()[..] else {
        return Err(format!("there are {} histories", found.len()));
    };
    let keys = added_keys(history, PAGE);
    if !keys.is_sorted() {
        return Err("the log's records are not in their order".into());
    }
    let lacked = acknowledged.borrow().iter().find(|key| keys.binary_search(key).is_err()).cloned();
    lacked.map_or(Ok(()), |key| Err(format!("key {key:?} of {} is not there", acknowledged.borrow().len())))
}

#[test]
fn the_archive_has_the_log_of_several_laps_and_openings() {
    let (media, acknowledged) = (Media::new(), Acknowledged::default());
    for opening in 0..3 {
        on(&media, async |executor| {
            let database = open_or_create(executor, settings()).await?;
            add(&database, 1_500, &acknowledged).await?;
            let archive = database.log().archive().expect("it is archived");
            assert!(archive.segments() > 3 && archive.failures() == 0 && archive.failure().is_none());
            database.close().await
        })
        .unwrap_or_else(|error| panic!("{opening}: {error}"));
        assert_eq!(check(&media, &acknowledged), Ok(()), "{opening}");
    }
}

#[test]
fn what_was_logged_is_in_the_archive_after_a_while() {
    let (media, acknowledged) = (Media::new(), Acknowledged::default());
    on(&media, async |executor| {
        let database = open_or_create(executor, settings()).await?;
        add(&database, 3, &acknowledged).await?;
        executor.sleep_ns(11 * SECOND_NS).await;
        Ok::<(), Error>(())
    })
    .expect("works");
    assert_eq!(check(&media, &acknowledged), Ok(()));
}

#[test]
fn a_log_that_gets_another_size_goes_on_in_the_archive() {
    let (media, acknowledged) = (Media::new(), Acknowledged::default());
    let sized = |size| {
        let asked = Asked { log_size: Some(size), ..Asked::default() };
        Settings { asked, ..settings() }
    };
    for settings in [settings(), sized(1 << 20), sized(128 << 10), sized(128 << 10)] {
        on(&media, async |executor| {
            let database = open_or_create(executor, settings).await?;
            add(&database, 200, &acknowledged).await?;
            database.close().await
        })
        .expect("works");
        assert_eq!(check(&media, &acknowledged), Ok(()));
    }
    let errors = (1..100).map(|nth| ErrorAt { kind: OpKind::Write, device: Some("archive".into()), nth }).collect();
    let refused = under(FaultPlan { errors, ..FaultPlan::default() }, &media, async |executor| {
        Database::open(executor, sized(1 << 20), "here").await.map(drop)
    });
    assert!(
        matches!(&refused, Err(Error::Setting(why)) if why.contains("its end is not in its archive")),
        "{refused:?}"
    );
    on(&media, async |executor| {
        let database = open_or_create(executor, sized(1 << 20)).await?;
        add(&database, 50, &acknowledged).await?;
        database.close().await
    })
    .expect("works");
    assert_eq!(check(&media, &acknowledged), Ok(()));
}

/// Adds records beside an archive that cannot be written for a while, until one is refused; then more.
fn beside_failures(plan: FaultPlan, is_expected: impl Fn(&Error) -> bool) {
    let (media, acknowledged) = (Media::new(), Acknowledged::default());
    under(plan, &media, async |executor| {
        let database = open_or_create(executor, settings()).await?;
        let refused = add(&database, 10_000, &acknowledged).await.expect_err("the log is full");
        let Error::LogNotArchived { cause } = &refused else { panic!("{refused}") };
        assert!(is_expected(cause), "{cause}");
        assert!(database.log().used() > 128 << 10, "only a full log refuses them");
        let archive = database.log().archive().expect("it is archived");
        assert!(archive.failures() > 0 && archive.failure().as_ref() == Some(cause));
        executor.sleep_ns(200 * SECOND_NS).await;
        assert_eq!(archive.failure(), None);
        add(&database, 1_000, &acknowledged).await?;
        database.close().await
    })
    .expect("it recovers");
    assert_eq!(check(&media, &acknowledged), Ok(()));
}

#[test]
fn a_full_archive_keeps_the_log_and_it_goes_on_when_there_is_room() {
    let at = |nth| ErrorAt { kind: OpKind::Write, device: Some("archive".into()), nth };
    let injuries = (3..100).map(|nth| (at(nth), Injury::NoSpace)).collect();
    beside_failures(FaultPlan { injuries, ..FaultPlan::default() }, |error| {
        error.to_string().contains("'archive' has no room for the archive of the log")
    });
}

#[test]
fn an_archive_that_fails_keeps_the_log_and_it_goes_on_when_it_works_again() {
    for kind in [OpKind::Write, OpKind::Sync] {
        let errors = (3..100).map(|nth| ErrorAt { kind, device: Some("archive".into()), nth }).collect();
        beside_failures(FaultPlan { errors, ..FaultPlan::default() }, |error| matches!(error, Error::Input(_)));
    }
}

#[test]
fn an_archive_that_does_not_answer_keeps_no_transaction_and_no_closing_for_ever() {
    let (media, acknowledged) = (Media::new(), Acknowledged::default());
    let [from, until] = [1, 1_000].map(|second| Instant::from_ns(second * SECOND_NS));
    let slow = vec![Slow { device: "archive".into(), from, until, factor: Slow::HUNG }];
    under(FaultPlan { slow, ..FaultPlan::default() }, &media, async |executor| {
        let database = open_or_create(executor, settings()).await?;
        executor.sleep_ns(SECOND_NS).await;
        let refused = add(&database, 10_000, &acknowledged).await.expect_err("the log is full");
        let is_named = refused.to_string().contains("the archive 'archive' has not answered for");
        assert!(matches!(refused, Error::LogNotArchived { .. }) && is_named, "{refused}");
        assert!(executor.now() < Instant::from_ns(400 * SECOND_NS), "{:?}", executor.now());
        let began = executor.now();
        database.close().await?;
        assert!(executor.now().since_ns(began) < 30 * SECOND_NS);
        let database = open_or_create(executor, settings()).await?;
        executor.sleep_ns(1_000 * SECOND_NS).await;
        assert_eq!(database.log().archive().and_then(|archive| archive.failure()), None);
        add(&database, 100, &acknowledged).await?;
        database.close().await
    })
    .expect("it recovers");
    assert_eq!(check(&media, &acknowledged), Ok(()));
}

#[test]
fn a_failure_at_any_operation_on_the_archive_leaves_nothing_out() {
    for kind in [OpKind::Open, OpKind::Write, OpKind::Sync, OpKind::Remove, OpKind::List, OpKind::Read] {
        for nth in 1..8 {
            let (media, acknowledged) = (Media::new(), Acknowledged::default());
            let errors = vec![ErrorAt { kind, device: Some("archive".into()), nth }];
            under(FaultPlan { errors, ..FaultPlan::default() }, &media, async |executor| {
                let database = open_or_create(executor, settings()).await?;
                add(&database, 600, &acknowledged).await?;
                executor.sleep_ns(2 * SECOND_NS).await;
                database.close().await
            })
            .unwrap_or_else(|error| panic!("{kind:?} {nth}: {error}"));
            assert_eq!(check(&media, &acknowledged), Ok(()), "{kind:?} {nth}");
        }
    }
}

/// Cuts the power at this event of a run, opens the database again, and returns what is wrong with the archive; `None` if the run ended before.
fn cut_at(event: u64, policy: &PowerCut) -> Option<Result<(), String>> {
    let (media, acknowledged) = (Media::new(), Acknowledged::default());
    let faults = Some(FaultPlan { power_cut_at: Some(event), ..FaultPlan::default() });
    let driver = VirtualDriver::new(hardware(), Options { faults, ..Options::default() }, media.clone());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let ended = executor.run(async {
        let database = open_or_create(&executor, settings()).await?;
        add(&database, 700, &acknowledged).await?;
        database.close().await
    });
    executor.stop();
    if ended.is_ok() {
        return None;
    }
    media.power_cut(&mut Random::stream(event, "cut"), policy);
    let before = acknowledged.borrow().len();
    let reopened = on(&media, async |executor| {
        let database = open_or_create(executor, settings()).await?;
        // The transaction that was cut off may be there.
        let rows = database.partition("rows");
        if let Ok(rows) = rows {
            let key = (before as u64).to_be_bytes();
            let is_there = database.transaction(async |tx| tx.get(rows, &key).await).await?;
            is_there.iter().for_each(|_| acknowledged.borrow_mut().push(key.to_vec()));
        }
        add(&database, 50, &acknowledged).await?;
        database.close().await
    });
    Some(reopened.map_err(|error| error.to_string()).and_then(|()| check(&media, &acknowledged)))
}

/// What is wrong after cuts at events of a run, the first of them.
fn cut_everywhere(step: usize, policies: &[PowerCut]) -> Result<(), String> {
    for (event, policy) in (50..).step_by(step).zip(policies.iter().cycle()) {
        match cut_at(event, policy) {
            None => return Ok(()),
            Some(found) => found.map_err(|what| format!("at event {event}: {what}"))?,
        }
    }
    Ok(())
}

#[test]
fn a_cut_at_any_event_leaves_an_archive_that_goes_on_without_a_gap() {
    let policies = [PowerCut { lost: 0.5, torn: 0.0 }, PowerCut { lost: 0.5, torn: 1.0 }];
    assert_eq!(cut_everywhere(61, &policies), Ok(()));
}

#[test]
fn an_opening_without_the_archive_begins_another_history() {
    let (media, acknowledged) = (Media::new(), Acknowledged::default());
    let without = || Settings { log: log::Settings { archive: None, ..settings().log }, ..settings() };
    for settings in [settings(), without(), settings(), settings()] {
        on(&media, async |executor| {
            let database = open_or_create(executor, settings).await?;
            add(&database, 300, &acknowledged).await?;
            database.close().await
        })
        .expect("works");
    }
    let found = histories(&media, PAGE).expect("each of them is whole");
    let mut counts: Vec<usize> = found.values().map(|history| added_keys(history, PAGE).len()).collect();
    counts.sort_unstable();
    assert_eq!(counts.len(), 2);
    assert_eq!(counts[0], 300, "nothing of the opening without an archive is in the first one");
}

#[test]
fn an_archive_that_has_more_than_a_log_which_lost_its_end_begins_another_history() {
    let media = Media::new();
    let acknowledged = Acknowledged::default();
    on(&media, async |executor| {
        let database = open_or_create(executor, settings()).await?;
        add(&database, 100, &acknowledged).await?;
        database.close().await
    })
    .expect("works");
    // An older copy of the database goes on beside what was archived since.
    let older = media.copy();
    on(&media, async |executor| {
        let database = open_or_create(executor, settings()).await?;
        add(&database, 200, &acknowledged).await?;
        database.close().await
    })
    .expect("works");
    put_archive(&media, &older);
    let acknowledged = Acknowledged::default();
    on(&older, async |executor| {
        let database = open_or_create(executor, settings()).await?;
        add(&database, 400, &acknowledged).await?;
        database.close().await
    })
    .expect("works");
    let media = older;
    let found = histories(&media, PAGE).expect("each of them is whole");
    assert_eq!(found.len(), 2, "what the older copy lacks is in the first");
}

#[cfg(feature = "canary")]
mod canaries {
    use super::*;
    use entresol_engine::canary::{Canary, plant};

    #[test]
    fn cuts_find_segments_that_are_named_too_early_and_log_that_is_not_kept() {
        for canary in [Canary::EarlySegmentHead, Canary::UnkeptForArchive] {
            plant(Some(canary));
            let found = cut_everywhere(5, &[PowerCut { lost: 0.0, torn: 1.0 }]);
            plant(None);
            assert!(found.is_err(), "nothing notices {canary:?}");
        }
    }
}

/// The superblock file says that less is archived than is, and what has been given up since was used again.
#[test]
fn an_opening_does_not_keep_again_what_rollbacks_need_the_room_of() {
    let (media, acknowledged) = (Media::new(), Acknowledged::default());
    let quiet = || Settings { checkpoint: Policy::OFF, ..settings() };
    let errors = (1..8).map(|nth| ErrorAt { kind: OpKind::Write, device: Some("archive".into()), nth }).collect();
    under(FaultPlan { errors, ..FaultPlan::default() }, &media, async |executor| {
        let database = open_or_create(executor, quiet()).await?;
        let late = database.create_partition(PartitionSpec::b_tree("late")).await?;
        while database.log().used() < 150 << 10 {
            add(&database, 1, &acknowledged).await?;
        }
        // It states that nothing is archived yet; soon all is.
        database.checkpoint().await?;
        executor.sleep_ns(20 * SECOND_NS).await;
        assert!(database.log().used() < 64 << 10);
        let mut tx = database.begin().await?;
        for number in 0..8_u8 {
            tx.put(late, &[number], &[1; 2000]).await?;
        }
        while database.log().end().0 < (256 + 16) << 10 {
            add(&database, 1, &acknowledged).await?;
        }
        std::mem::forget(tx);
        Ok::<(), Error>(())
    })
    .expect("works");
    let opened = on(&media, async |executor| Database::open(executor, quiet(), "here").await.map(drop));
    assert_eq!(opened.err(), None);
}

#[test]
fn an_archive_that_fails_refuses_nothing_while_the_logs_file_can_grow() {
    let errors = (1..1_000).map(|nth| ErrorAt { kind: OpKind::Write, device: Some("archive".into()), nth }).collect();
    let large = Settings { log: log::Settings { capacity: 64 << 20, ..settings().log }, ..settings() };
    under(FaultPlan { errors, ..FaultPlan::default() }, &Media::new(), async |executor| {
        let database = Database::create(executor, large).await?;
        let stock = database.create_partition(PartitionSpec::set("stock")).await?;
        database.transaction(async |tx| tx.put(stock, b"one", b"value").await).await?;
        database.checkpoint().await?;
        executor.sleep_ns(30 * SECOND_NS).await;
        let mut tx = database.begin().await?;
        for key in 0..5_000_u32 {
            tx.put(stock, &key.to_be_bytes(), &[7; 1000]).await?;
        }
        tx.commit().await
    })
    .expect("the log is nearly empty");
}

#[test]
fn a_log_that_has_moved_and_rests_is_not_called_damaged() {
    let media = Media::new();
    let asked = Asked { log_size: Some(1 << 20), ..Asked::default() };
    for settings in [settings(), Settings { asked, ..settings() }] {
        on(&media, async |executor| {
            let database = open_or_create(executor, settings).await?;
            executor.sleep_ns(5 * SECOND_NS).await;
            assert_eq!(database.log().archive().and_then(|archive| archive.failure()), None);
            database.close().await
        })
        .expect("works");
    }
}

/// With a log on two devices, perhaps without one of them.
fn two_logs(without: Option<&str>) -> Settings {
    let second = Some(Second { device: "b".into(), acknowledged: log::Acknowledged::Both });
    let without = without.map(str::to_owned);
    let log = log::Settings { capacity: 4 << 20, second, without, ..settings().log };
    Settings { log, log_device: "a".into(), ..settings() }
}

/// Adds records on a machine with these, and takes a checkpoint.
fn add_twice_logged(
    media: &Media,
    (without, errors): (Option<&str>, Vec<ErrorAt>),
    acknowledged: &Acknowledged,
) -> Result<()> {
    let device = |name: &str| format!("[device.{name}]\nmedium.service = \"20 us\"\n");
    let hardware = Hardware::parse(&["disk", "a", "b", "archive"].map(device).concat(), "test").expect("a description");
    let options = Options { faults: Some(FaultPlan { errors, ..FaultPlan::default() }), ..Options::default() };
    let driver = VirtualDriver::new(hardware, options, media.clone());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let worked = executor.run(async {
        let database = open_or_create(&executor, two_logs(without)).await?;
        add(&database, 50, acknowledged).await?;
        database.checkpoint().await?;
        executor.sleep_ns(20 * SECOND_NS).await;
        Ok(())
    });
    executor.stop();
    worked.expect("the machine goes on")
}

/// The archive cannot be written.
fn refused_archive() -> Vec<ErrorAt> {
    (1..1000).map(|nth| ErrorAt { kind: OpKind::Write, device: Some("archive".into()), nth }).collect()
}

/// A device that had been lost gets all that the archive lacks, also what no redo needs: the other one may be lost next.
#[test]
fn a_new_copy_of_the_log_has_what_the_archive_lacks() {
    let (media, acknowledged) = (Media::new(), Acknowledged::default());
    let openings =
        [(None, refused_archive()), (Some("b"), refused_archive()), (None, refused_archive()), (Some("a"), Vec::new())];
    for opening in openings {
        assert_eq!(add_twice_logged(&media, opening.clone(), &acknowledged), Ok(()), "{:?}", opening.0);
    }
    assert_eq!(check(&media, &acknowledged), Ok(()));
}

/// Where one copy lacks what the archive does, a read of the other one that fails once gives nothing up.
#[test]
fn a_failed_read_of_the_only_copy_leaves_no_gap_in_the_archive() {
    let (media, acknowledged) = (Media::new(), Acknowledged::default());
    assert_eq!(add_twice_logged(&media, (None, refused_archive()), &acknowledged), Ok(()));
    (1..40).for_each(|page| media.flip_bit("b", "log-2", page * PAGE as u64 + 100, 3).expect("it is there"));
    for nth in 1..40 {
        let (media, acknowledged) = (media.copy(), Acknowledged::new(acknowledged.borrow().clone()));
        let failing = vec![ErrorAt { kind: OpKind::Read, device: Some("a".into()), nth }];
        let _perhaps_refused = add_twice_logged(&media, (None, failing), &acknowledged);
        assert_eq!(add_twice_logged(&media, (None, Vec::new()), &acknowledged), Ok(()), "{nth}");
        assert_eq!(check(&media, &acknowledged), Ok(()), "{nth}");
    }
}
