//! An opening serves before it has undone large transactions that had not ended: what they have changed stays locked until it is undone.

use crate::ground::losers::{
    FIRST_MAX, ROWS, at_moment, change_much, compare, create, cut, judge, key, killed, on, settings, slowly, under,
    undone,
};
use base::time::{MICROSECOND_NS, MILLISECOND_NS, SECOND_NS};
use entresol_engine::{Database, Direction, Error, Internals, PartitionSpec, Transaction, UndoProgress};
use std::mem::forget;
use std::ops::Bound;
use std::time::Duration;
use virtual_driver::{FaultPlan, Media};

#[test]
fn an_opening_serves_before_a_large_transaction_is_undone() {
    let (media, wanted) = killed(&settings());
    on(&media, async |executor| {
        let database = Database::open(executor, settings(), "here").await.expect("opens");
        let report = database.recovery();
        assert_eq!((report.unfinished, report.undos_left), (1, 1), "{report:?}");
        let progress = database.undoing();
        assert!(progress.transactions == 1 && progress.changes > 1_000, "{progress:?}");
        let rows = database.partition("rows").expect("it exists");
        // What it has not changed is there at once, to be read and to be changed.
        let untouched = database.transaction(async |tx| tx.get(rows, &key(0)).await).await.expect("reads");
        assert!(untouched.is_some_and(|value| value[0] == 1));
        database.transaction(async |tx| tx.put(rows, b"other", b"1").await).await.expect("commits");
        database.transaction(async |tx| tx.delete(rows, b"other").await).await.expect("commits");
        assert!(database.undoing().changes > 0, "it was waited for");
        // So is what it had changed, as it was committed, for those who read without locks.
        let mut snapshot = database.snapshot().await.expect("begins");
        let found = snapshot.get(rows, &key(1)).await.expect("reads");
        assert_eq!(found.as_ref(), wanted.get(&("rows".to_owned(), key(1).to_vec())));
        drop(snapshot);
        assert!(database.undoing().changes > 0, "it was waited for");
        // What it has changed is waited for.
        let limited = async |tx: &mut Transaction| {
            tx.wait_at_most(Some(Duration::from_micros(1)));
            tx.get(rows, &key(1)).await
        };
        let refused = database.transaction(limited).await;
        assert!(matches!(refused, Err(Error::LockTimeout { .. })), "{refused:?}");
        let waited = database.transaction(async |tx| tx.get(rows, &key(1)).await).await.expect("reads");
        assert!(waited.is_some_and(|value| value[0] == 1));
        assert_eq!(database.undoing(), UndoProgress::default());
        judge(&database, &wanted).await;
        assert_eq!(database.locks().check(), Ok(()));
    });
    // Nothing is left for the next one.
    on(&media, async |executor| {
        let database = Database::open(executor, settings(), "here").await.expect("opens");
        assert_eq!(database.recovery().unfinished, 0);
        judge(&database, &wanted).await;
        database.close().await.expect("closes");
    });
}

/// A scan does not see what the transaction has deleted, and must not pass it over; nor does it show what that has inserted.
#[test]
fn ranges_wait_for_what_is_left_to_be_undone() {
    let (media, wanted) = killed(&settings());
    on(&media, async |executor| {
        let database = Database::open(executor, settings(), "here").await.expect("opens");
        assert!(database.undoing().changes > 0);
        let rows = database.partition("rows").expect("it exists");
        for (from, to) in [(0, 16), (ROWS - 5, ROWS + 10)] {
            let read = async |tx: &mut Transaction| {
                let (from, to) = (key(from), key(to));
                let mut cursor = tx.cursor(rows, Bound::Included(&from), Bound::Excluded(&to), Direction::Forward);
                let mut found = Vec::new();
                while let Some(record) = tx.next(&mut cursor).await? {
                    found.push(record);
                }
                Ok::<_, Error>(found)
            };
            let found = database.transaction(read).await.expect("reads");
            let of_rows = wanted
                .iter()
                .filter(|((name, of), _)| name == "rows" && (&key(from)[..]..&key(to)[..]).contains(&&of[..]));
            let expected: Vec<_> = of_rows.map(|((_, key), value)| (key.clone(), value.clone())).collect();
            assert_eq!(found, expected);
        }
        judge(&database, &wanted).await;
    });
}

#[test]
fn small_transactions_are_undone_before_the_opening_ends_and_others_one_after_the_other() {
    let media = Media::new();
    let wanted = on(&media, async |executor| {
        let database = create(executor, settings()).await;
        let rows = database.partition("rows").expect("it exists");
        for (first, count) in [(1_000, FIRST_MAX as u32), (2_000, 100), (3_000, 50), (4_000, FIRST_MAX as u32 + 1)] {
            let mut tx = database.begin().await.expect("begins");
            for number in first..first + count {
                tx.put(rows, &key(number), b"lost").await.expect("puts");
            }
            forget(tx);
        }
        database.transaction(async |tx| tx.put(rows, b"behind", b"1").await).await.expect("commits");
        at_moment(&database).await
    });
    on(&media, async |executor| {
        let database = Database::open(executor, settings(), "here").await.expect("opens");
        let report = database.recovery();
        assert_eq!((report.unfinished, report.undos_left), (4, 3));
        assert_eq!(database.undoing(), UndoProgress { transactions: 3, changes: 100 + 50 + FIRST_MAX + 1 });
        undone(executor, &database).await;
        judge(&database, &wanted).await;
        assert_eq!(database.statistics().rollbacks.get(), 3);
    });
}

/// However often the power goes, each opening goes on where the one before was.
#[test]
fn a_machine_that_stops_at_any_point_of_the_undoing_goes_on_there() {
    let (media, wanted) = killed(&settings());
    let (mut at, mut cuts, mut halves) = (50, 0, 0);
    loop {
        let (media, mut changes, mut was_whole) = (media.copy(), Vec::new(), false);
        for life in 0..3 {
            let faults = FaultPlan { power_cut_at: Some(at + 57 * life), ..FaultPlan::default() };
            let ended = under(faults, &media, async |executor| {
                let database = Database::open(executor, settings(), "here").await.expect("opens");
                changes.push(database.undoing().changes);
                if life == 1 {
                    database.checkpoint().await.expect("takes a checkpoint");
                }
                undone(executor, &database).await;
            });
            was_whole |= life == 0 && ended.is_ok();
            cuts += u64::from(ended.is_err());
            cut(&media, at + life);
        }
        assert!(changes.is_sorted_by(|before, after| before >= after), "{changes:?}");
        halves += u64::from(changes.windows(2).any(|pair| pair[0] > pair[1] && pair[1] > 0));
        on(&media, async |executor| {
            let database = Database::open(executor, settings(), "here").await.expect("opens");
            judge(&database, &wanted).await;
        });
        if was_whole {
            break;
        }
        at += at / 10;
    }
    assert!(cuts > 20 && halves > 2, "{cuts} {halves}");
}

#[test]
fn a_database_that_is_closed_before_gives_it_ten_seconds_and_leaves_the_rest() {
    let (media, wanted) = killed(&settings());
    let whole = media.copy();
    on(&whole, async |executor| {
        let database = Database::open(executor, settings(), "here").await.expect("opens");
        assert!(database.undoing().changes > 0);
        database.close().await.expect("closes");
    });
    on(&whole, async |executor| {
        let database = Database::open(executor, settings(), "here").await.expect("opens");
        assert_eq!(database.recovery().unfinished, 0, "it was there in time");
        judge(&database, &wanted).await;
    });
    // On a machine that is so slow that it is not.
    let mut left = Vec::new();
    for _ in 0..2 {
        let closed = slowly(&media, async |executor| {
            let database = Database::open(executor, settings(), "here").await.expect("opens");
            left.push(database.undoing().changes);
            let began = executor.now();
            let closed = database.close().await;
            assert!(executor.now().since_ns(began) < 60 * SECOND_NS);
            closed
        });
        assert_eq!(closed, Ok(()));
    }
    assert!(left[0] > left[1] && left[1] > 0, "each opening goes on: {left:?}");
    on(&media, async |executor| {
        let database = Database::open(executor, settings(), "here").await.expect("opens");
        judge(&database, &wanted).await;
    });
}

/// Redo begins no later than at the first change of what is left.
#[test]
fn checkpoints_beside_it_keep_the_log_that_it_needs() {
    let (media, wanted) = killed(&settings());
    for round in 0..4 {
        on(&media, async |executor| {
            let database = Database::open(executor, settings(), "here").await.expect("opens");
            database.checkpoint().await.expect("takes a checkpoint");
            database.checkpoint().await.expect("takes another one");
            executor.sleep_ns(MILLISECOND_NS).await;
            database.checkpoint().await.expect("takes a third one");
            assert!(database.undoing().changes > 0, "round {round}");
        });
        cut(&media, round);
    }
    on(&media, async |executor| {
        let database = Database::open(executor, settings(), "here").await.expect("opens");
        judge(&database, &wanted).await;
    });
}

/// Where moments are kept, and where a reader comes later, snapshots see what was committed while it is undone and afterwards.
#[test]
fn readers_of_moments_see_what_was_committed_at_any_point_of_it() {
    for retention_ns in [0, 3_600 * SECOND_NS] {
        let mut settings = settings();
        settings.undo.retention_ns = retention_ns;
        let (media, wanted) = killed(&settings);
        on(&media, async |executor| {
            let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
            let mut early = database.snapshot().await.expect("begins");
            let rows = database.partition("rows").expect("it exists");
            let mut looks = 0;
            while database.undoing().changes > 0 {
                compare(&at_moment(&database).await, &wanted, "beside the undoing");
                looks += 1;
                executor.sleep_ns(MILLISECOND_NS).await;
            }
            assert!(looks > 1, "{looks}");
            undone(executor, &database).await;
            let found = early.get(rows, &key(1)).await.expect("reads");
            assert_eq!(found.as_ref(), wanted.get(&("rows".to_owned(), key(1).to_vec())));
            drop(early);
            judge(&database, &wanted).await;
        });
    }
}

/// They would be met by what is undone, or see what is not.
#[test]
fn what_cannot_go_on_beside_it_waits_for_its_end() {
    let (media, wanted) = killed(&settings());
    for what in ["check", "drop", "truncate", "compact", "load", "index"] {
        let media = media.copy();
        on(&media, async |executor| {
            let database = Database::open(executor, settings(), "here").await.expect("opens");
            let [rows, things] = ["rows", "things"].map(|name| database.partition(name).expect("it exists"));
            let empty = database.create_partition(PartitionSpec::b_tree("empty")).await.expect("creates");
            assert!(database.undoing().changes > 0, "{what}");
            assert_eq!(database.check_ended(), Err(Error::StillUndoing));
            match what {
                "check" => assert!(database.check(|_| {}).await.expect("checks").is_clean()),
                "drop" => database.drop_partition(rows).await.expect("drops"),
                "truncate" => drop(database.truncate_partition(rows).await.expect("truncates")),
                "compact" => drop(database.compact_partition(rows).await.expect("compacts")),
                "load" => database.load_b_tree(empty, [(b"a", b"1")], |_| {}).await.expect("loads"),
                _ => drop(database.create_index(things, crate::ground::things::by_name()).await.expect("creates")),
            }
            assert_eq!(database.undoing(), UndoProgress::default(), "{what}");
            assert_eq!(database.check_ended(), Ok(()));
            if !["drop", "truncate"].contains(&what) {
                judge(&database, &wanted).await;
            }
        });
        cut(&media, 3);
        on(&media, async |executor| {
            let database = Database::open(executor, settings(), "here").await.expect("opens");
            assert!(database.check(|_| {}).await.expect("checks").is_clean());
        });
    }
}

/// A log that the transaction and its undoing take most of keeps no room for others: they would wait for it whatever was left.
#[test]
fn what_the_log_has_no_room_for_is_undone_before_the_opening_ends() {
    let mut small = settings();
    small.log.capacity = 2 << 20;
    let media = Media::new();
    let wanted = on(&media, async |executor| {
        let database = create(executor, small.clone()).await;
        let rows = database.partition("rows").expect("it exists");
        database.checkpoint().await.expect("takes a checkpoint");
        let mut tx = database.begin().await.expect("begins");
        for number in 1_000..2_500 {
            tx.put(rows, &key(number), &[7; 200]).await.expect("puts");
        }
        forget(tx);
        database.transaction(async |tx| tx.put(rows, b"behind", b"1").await).await.expect("commits");
        at_moment(&database).await
    });
    on(&media, async |executor| {
        let database = Database::open(executor, small.clone(), "here").await.expect("opens");
        assert_eq!((database.recovery().unfinished, database.recovery().undos_left), (1, 0));
        judge(&database, &wanted).await;
    });
}

/// Others use the log meanwhile, as far as it was not promised.
#[test]
fn writers_beside_it_leave_it_the_log_that_it_needs() {
    let mut tight = settings();
    tight.log.capacity = 4 << 20;
    let (media, wanted) = killed(&tight);
    on(&media, async |executor| {
        let database = Database::open(executor, tight.clone(), "here").await.expect("opens");
        let progress = database.undoing();
        assert!(progress.changes > 0);
        let rows = database.partition("rows").expect("it exists");
        let mut written = 0;
        while database.undoing().changes > 0 {
            let write = async |tx: &mut Transaction| {
                for number in 0..8 {
                    tx.put(rows, &[9, 9, 9, 9, 9, number], &[5; 900]).await?;
                }
                Ok::<_, Error>(())
            };
            database.transaction(write).await.expect("commits");
            written += 8;
        }
        assert!(written > 100, "{written}");
        let delete = async |tx: &mut Transaction| {
            for number in 0..8 {
                tx.delete(rows, &[9, 9, 9, 9, 9, number]).await?;
            }
            Ok::<_, Error>(())
        };
        database.transaction(delete).await.expect("commits");
        judge(&database, &wanted).await;
        assert_eq!(database.log().failure(), None);
    });
}

/// Nothing of a rollback that was under way when the machine stopped is done twice.
#[test]
fn a_rollback_that_was_cut_off_is_left_where_it_was() {
    let mut left = Vec::new();
    for us in [300, 5_000, 20_000, 50_000] {
        let media = Media::new();
        let (changes, wanted) = on(&media, async |executor| {
            let database = create(executor, settings()).await;
            let tx = change_much(&database).await;
            let wanted = at_moment(&database).await;
            drop(executor.spawn(tx.rollback()));
            executor.sleep_ns(us * MICROSECOND_NS).await;
            let stock = database.partition("stock").expect("it exists");
            database.transaction(async |tx| tx.put(stock, b"behind", b"1").await).await.expect("commits");
            (database.statistics().rollbacks.get(), wanted)
        });
        assert_eq!(changes, 0, "it has ended after {us} us");
        on(&media, async |executor| {
            let database = Database::open(executor, settings(), "here").await.expect("opens");
            left.push(database.undoing().changes);
            compare(&at_moment(&database).await, &wanted, "a cut rollback");
            judge(&database, &wanted).await;
        });
    }
    assert!(left.is_sorted_by(|before, after| before > after), "{left:?}");
}

#[cfg(feature = "canary")]
#[test]
fn locks_that_are_not_taken_again_are_noticed() {
    use entresol_engine::canary::Canary;
    crate::ground::planting::is_found(Canary::UnlockedLoser, ranges_wait_for_what_is_left_to_be_undone);
}
