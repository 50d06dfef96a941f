//! What may come in the way of undoing large transactions behind an opening: devices that fail, a backup, others that do much.

use crate::ground::losers::{ROWS, at_moment, compare, cut, judge, key, killed, on, settings, under, undone};
use base::time::{MILLISECOND_NS, SECOND_NS};
use driver::{Op, OpKind};
use entresol_engine::{BackupSettings, Database, Error, RestoreSource, Transaction, UndoProgress, checkpoint::Policy};
use executor::Executor;
use std::time::Duration;
use virtual_driver::{ErrorAt, FaultPlan, Media};

/// The reads of the pages' device from this one on fail, this number of them.
fn failing(first: u64, count: u64) -> FaultPlan {
    let error = |nth| ErrorAt { kind: OpKind::Read, device: Some("data".into()), nth };
    FaultPlan { errors: (first..first + count).map(error).collect(), ..FaultPlan::default() }
}

/// A read that comes behind the opening.
fn read_behind_opening(media: &Media) -> u64 {
    let opens = |first: &u64| {
        let opened = under(failing(*first, 5_000), &media.copy(), async |executor| {
            let database = Database::open(executor, settings(), "here").await?;
            Ok::<_, Error>(database.undoing().changes > 0)
        });
        opened == Ok(Ok(true))
    };
    (100..).step_by(50).find(opens).expect("one is behind it") + 20
}

#[test]
fn a_device_that_fails_for_a_while_keeps_it_waiting_and_others_are_told() {
    let (media, wanted) = killed(&settings());
    let ended = under(failing(read_behind_opening(&media), 60), &media, async |executor| {
        let database = Database::open(executor, settings(), "here").await.expect("opens");
        let rows = database.partition("rows").expect("it exists");
        let waited = database.transaction(async |tx| tx.get(rows, &key(1)).await).await;
        let told = waited.expect_err("the undoing fails");
        assert!(matches!(&told, Error::RollbackStalled { .. }), "{told}");
        assert!(database.undoing().changes > 0);
        assert!(matches!(database.check_ended(), Err(Error::RollbackStalled { .. })));
        let dropped = database.drop_partition(rows).await;
        assert!(matches!(dropped, Err(Error::RollbackStalled { .. })), "{dropped:?}");
        undone(executor, &database).await;
        judge(&database, &wanted).await;
        assert_eq!(database.active_transactions(), 0);
        database.close().await.expect("closes");
    });
    assert_eq!(ended, Ok(()));
}

/// Also where the last change is undone and what follows it fails.
#[test]
fn wherever_a_device_fails_for_a_while_nothing_seems_to_fail_when_that_is_over() {
    let (media, _) = killed(&settings());
    let first = read_behind_opening(&media);
    for from in (first..first + 400).step_by(7) {
        let ended = under(failing(from, 30), &media.copy(), async |executor| {
            let database = Database::open(executor, settings(), "here").await.expect("opens");
            undone(executor, &database).await;
            database.check_ended().unwrap_or_else(|error| panic!("from read {from}: {error}"));
            database.close().await.expect("closes");
        });
        assert_eq!(ended, Ok(()));
    }
}

/// The next opening goes on, on a device that answers again.
#[test]
fn a_device_that_fails_for_good_leaves_it_to_the_next_opening() {
    let (media, wanted) = killed(&settings());
    let first = read_behind_opening(&media);
    for closes in [true, false] {
        let media = media.copy();
        let ended = under(failing(first, 5_000), &media, async |executor| {
            let database = Database::open(executor, settings(), "here").await.expect("opens");
            executor.sleep_ns(3 * SECOND_NS).await;
            assert!(database.undoing().changes > 0);
            if closes {
                let began = executor.now();
                database.close().await.expect("writes back what is in memory");
                assert!(executor.now().since_ns(began) < 8 * SECOND_NS, "a failing device is not waited for");
            }
        });
        assert_eq!(ended, Ok(()));
        cut(&media, 1);
        on(&media, async |executor| {
            let database = Database::open(executor, settings(), "here").await.expect("opens");
            judge(&database, &wanted).await;
        });
    }
}

async fn lose(executor: &Executor) {
    for name in ["disk", "data"] {
        let device = executor.device(name).expect("the machine has it");
        for name in executor.names(device).await.expect("lists") {
            executor.perform(Op::Remove { device, name }).await.result.expect("removes");
        }
    }
}

/// A backup begins and ends while it goes on, or begins before its end and ends behind it.
#[test]
fn a_backup_beside_it_has_what_was_committed() {
    for bytes_per_second in [None, Some(200_000)] {
        let (media, wanted) = killed(&settings());
        on(&media, async |executor| {
            let database = Database::open(executor, settings(), "here").await.expect("opens");
            let backup = BackupSettings { target: "backup".into(), base: None, bytes_per_second };
            assert!(database.undoing().changes > 0);
            database.backup(&backup, |_| {}).await.expect("is taken");
            assert_eq!(database.undoing().changes == 0, bytes_per_second.is_some());
            lose(executor).await;
        });
        on(&media, async |executor| {
            let source = RestoreSource { backup: "backup".into(), archive: None };
            Database::restore(executor, &settings(), &source, |_| {}).await.expect("is restored");
            let database = Database::open(executor, settings(), "restored").await.expect("opens");
            compare(&at_moment(&database).await, &wanted, "restored");
            judge(&database, &wanted).await;
        });
    }
}

/// An opening locks again what is left to be undone, so others change what was undone before it, and the transaction goes on having not ended.
#[test]
fn what_others_change_of_what_is_undone_in_part_takes_no_moment_away() {
    let mut settings = settings();
    settings.undo.retention_ns = 3_600 * SECOND_NS;
    let (media, wanted) = killed(&settings);
    // Inserted last, so undone first.
    let undone_first = key(ROWS + 59);
    let moment = on(&media, async |executor| {
        let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
        let left = database.undoing().changes;
        while database.undoing().changes + 200 > left {
            executor.sleep_ns(MILLISECOND_NS).await;
        }
        let moment = database.snapshot().await.expect("begins").moment();
        let rows = database.partition("rows").expect("it exists");
        // What is undone is so for certain.
        database.transaction(async |tx| tx.put(rows, b"other", b"1").await).await.expect("commits");
        assert!(database.undoing().changes > 0);
        moment
    });
    let shows_moment = async |database: &Database| {
        let (mut past, rows) =
            (database.as_of(moment).await.expect("is known"), database.partition("rows").expect("it exists"));
        assert_eq!(past.get(rows, &undone_first).await, Ok(None));
        assert_eq!(past.get(rows, &key(67)).await.as_ref().map(Option::as_ref), Ok(wanted.get(&of_rows(67))));
    };
    for round in 0..2_u8 {
        on(&media, async |executor| {
            let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
            let rows = database.partition("rows").expect("it exists");
            shows_moment(&database).await;
            let write = async |tx: &mut Transaction| {
                tx.wait_at_most(Some(Duration::from_millis(1)));
                tx.put(rows, &undone_first, &[round]).await
            };
            database.transaction(write).await.expect("it is locked no more");
            assert!(database.undoing().changes > 0, "round {round}");
        });
    }
    on(&media, async |executor| {
        let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
        let rows = database.partition("rows").expect("it exists");
        shows_moment(&database).await;
        undone(executor, &database).await;
        assert_eq!(database.snapshot().await.expect("begins").get(rows, &undone_first).await, Ok(Some(vec![1])));
    });
}

fn of_rows(number: u32) -> (String, Vec<u8>) {
    ("rows".to_owned(), key(number).to_vec())
}

/// Beside checkpoints by size, readers and writers of all kinds, it comes to its end.
#[test]
fn much_beside_it_keeps_it_from_nothing() {
    let mut settings = settings();
    settings.checkpoint = Policy { log_bytes: Some(64 << 10), interval_ns: Some(20 * MILLISECOND_NS) };
    settings.multiprogramming_level = 2;
    let (media, wanted) = killed(&settings);
    on(&media, async |executor| {
        let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
        let [rows, stock] = ["rows", "stock"].map(|name| database.partition(name).expect("it exists"));
        let writers: Vec<_> = (0..4_u32)
            .map(|writer| {
                let database = database.clone();
                executor.spawn(async move {
                    for round in 0..30_u32 {
                        let number = (writer * 30 + round) * 2;
                        // What it has changed, and what it has not.
                        let write = async |tx: &mut Transaction| {
                            let value = tx.get(rows, &key(number)).await?.unwrap_or_default();
                            tx.put(rows, &key(number), b"for a moment").await?;
                            tx.put(rows, &key(number), &value).await?;
                            tx.put(stock, b"busy", &round.to_be_bytes()).await
                        };
                        database.transaction(write).await?;
                    }
                    Ok::<_, Error>(())
                })
            })
            .collect();
        for writer in writers {
            writer.join().await.expect("commits");
        }
        undone(executor, &database).await;
        // What it had deleted is there, and what it had inserted is not, though others have written that since.
        let found = at_moment(&database).await;
        let differs = |(key, value): &(&(String, Vec<u8>), &Vec<u8>)| wanted.get(key) != Some(value);
        assert_eq!(found.iter().find(differs), None);
        assert_eq!(database.undoing(), UndoProgress::default());
        assert!(database.check(|_| {}).await.expect("checks").is_clean());
    });
}
