//! Unique secondary indexes of b-trees and of sets: one rule decides which record gets a place, which transaction waits for another, and which is refused.

use crate::ground::machine::run;
use crate::ground::things::*;
use base::{PartitionId, Random};
use entresol_engine::set::FieldValue;
use entresol_engine::{Database, Direction, Error, Isolation, PartitionSpec, Result, Savepoint, Transaction};
use executor::{Executor, JoinHandle, WholeExecutor};
use std::collections::{BTreeMap, BTreeSet};
use virtual_driver::Media;

const SOON_NS: u64 = 1_000_000;

/// A b-tree and a set, each with a unique index.
fn kinds() -> [PartitionSpec; 2] {
    [PartitionSpec::b_tree("things"), PartitionSpec::set("things")].map(|spec| spec.record(record()).index(by_name()))
}

fn named(name: &str) -> Vec<u8> {
    stored(&thing(1, 2, name))
}

/// Runs `work` with a new database and each kind of partition in turn.
fn with_each<T>(work: impl AsyncFn(&Database, PartitionId, usize) -> T) -> Vec<T> {
    let each = kinds().map(|spec| {
        run(&Media::new(), async |executor| {
            let database = Database::create(executor, settings()).await.expect("creates");
            let things = database.create_partition(spec).await.expect("creates");
            let index = database.secondary(things, "by_name").expect("it exists");
            let done = work(&database, things, index).await;
            check(&database).await;
            done
        })
    });
    each.into()
}

async fn put(database: &Database, things: PartitionId, key: &[u8], name: &str) -> Result<()> {
    database.transaction(async |tx| tx.put(things, key, &named(name)).await).await
}

#[test]
fn a_second_record_is_refused_and_its_transaction_goes_on() {
    with_each(async |database, things, index| {
        let mut tx = database.begin().await.expect("begins");
        tx.insert(things, b"a", &named("Ada")).await.expect("inserts");
        tx.insert(things, b"b", &named("Bob")).await.expect("inserts");
        let refused = |key: &[u8]| Err(not_unique("Ada", b"a", key));
        assert_eq!(tx.insert(things, b"c", &named("Ada")).await, refused(b"c"));
        assert_eq!(tx.put(things, b"b", &named("Ada")).await, refused(b"b"));
        assert_eq!(tx.set_field(things, b"b", 2, FieldValue::Text("Ada")).await, refused(b"b"));
        let whole = named("Ada");
        let modified = tx.modify(things, b"b", |value| value.copy_from_slice(&whole)).await;
        assert_eq!(modified, refused(b"b"));
        let values = [FieldValue::U32(1), FieldValue::I64(1), FieldValue::Text("Ada")];
        assert_eq!(tx.insert_record(things, b"d", &values).await, refused(b"d"));
        assert_eq!(tx.get(things, b"c").await, Ok(None));
        assert_eq!(tx.get(things, b"b").await, Ok(Some(named("Bob"))));
        // The same contents again, and other fields, are no matter.
        tx.put(things, b"a", &stored(&thing(7, 7, "Ada"))).await.expect("stays where it is");
        tx.delete(things, b"a").await.expect("deletes");
        tx.put(things, b"b", &named("Ada")).await.expect("the name is free");
        tx.put(things, b"a", &named("Bob")).await.expect("so is the other one");
        let by_name = keys(&mut tx, (things, index), ALL, Direction::Forward).await;
        assert_eq!(by_name, Ok(vec![b"b".to_vec(), b"a".to_vec()]));
        tx.commit().await.expect("commits");
        let text = put(database, things, b"c", "Ada").await.expect_err("there is one").to_string();
        let detail = "the record with key 63 cannot have name \"Ada\", as the one with key 62 has: the index 'by_name' is unique";
        assert_eq!(text, format!("partition 'things': {detail}"));
    });
}

/// What the first of two transactions does before the second one asks for the name "Ada" for "z".
type First = (&'static str, Vec<(&'static [u8], Option<&'static str>)>);

/// The outcomes of the second one when the first one commits and when it is rolled back: who has the name then, if one has.
type Outcomes = (Option<&'static [u8]>, Option<&'static [u8]>);

/// With a record "a" of the name "Ada" before, or without.
fn interleavings() -> Vec<(bool, First, Outcomes)> {
    let (a, b): (&[u8], &[u8]) = (b"a", b"b");
    vec![
        (false, ("adds one", vec![(b, Some("Ada"))]), (Some(b), None)),
        (false, ("adds one and deletes it", vec![(b, Some("Ada")), (b, None)]), (None, None)),
        (false, ("takes it and leaves it", vec![(b, Some("Ada")), (b, Some("Eve"))]), (None, None)),
        (true, ("deletes the one that has it", vec![(a, None)]), (None, Some(a))),
        (true, ("renames the one that has it", vec![(a, Some("Eve"))]), (None, Some(a))),
        (true, ("renames it away and back", vec![(a, Some("Eve")), (a, Some("Ada"))]), (Some(a), Some(a))),
        (true, ("deletes it and adds it again", vec![(a, None), (a, Some("Ada"))]), (Some(a), Some(a))),
        (true, ("gives it to another one", vec![(a, None), (b, Some("Ada"))]), (Some(b), Some(a))),
    ]
}

fn second(database: &Database, things: PartitionId, isolation: Isolation) -> JoinHandle<Result<()>> {
    let again = database.clone();
    database.executor().spawn(async move {
        again.transaction_at(isolation, async |tx| tx.insert(things, b"z", &named("Ada")).await).await
    })
}

async fn change(tx: &mut Transaction, things: PartitionId, (key, name): (&[u8], Option<&str>)) -> Result<()> {
    match name {
        Some(name) => tx.put(things, key, &named(name)).await,
        None => tx.delete(things, key).await.map(drop),
    }
}

#[test]
fn who_asks_for_a_place_waits_for_who_changes_it_at_every_level() {
    for isolation in Isolation::ALL {
        for (commits, (is_there, (what, steps), outcomes)) in
            [true, false].into_iter().flat_map(|commits| interleavings().into_iter().map(move |case| (commits, case)))
        {
            with_each(async |database, things, _| {
                if is_there {
                    put(database, things, b"a", "Ada").await.expect("puts");
                }
                let mut first = database.begin_at(isolation).await.expect("begins");
                for step in &steps {
                    change(&mut first, things, *step).await.expect("changes");
                }
                let second = second(database, things, isolation);
                database.executor().sleep_ns(SOON_NS).await;
                assert!(!second.is_finished(), "{what}: the second one waits, {isolation:?}");
                let has_it = if commits {
                    first.commit().await.expect("commits");
                    outcomes.0
                } else {
                    first.rollback().await.expect("rolls back");
                    outcomes.1
                };
                let expected = has_it.map_or(Ok(()), |key| Err(not_unique("Ada", key, b"z")));
                assert_eq!(second.join().await, expected, "{what}, {isolation:?}, commits: {commits}");
            });
        }
    }
}

#[test]
fn a_savepoint_gives_a_place_back_at_the_end_only() {
    for (is_there, (what, steps), (_, outcome)) in interleavings() {
        with_each(async |database, things, _| {
            if is_there {
                put(database, things, b"a", "Ada").await.expect("puts");
            }
            let mut first = database.begin().await.expect("begins");
            first.put(things, b"first", &named("First")).await.expect("puts");
            let before = first.savepoint();
            for step in &steps {
                change(&mut first, things, *step).await.expect("changes");
            }
            first.rollback_to(before).await.expect("goes back");
            let second = second(database, things, Isolation::Serializable);
            database.executor().sleep_ns(SOON_NS).await;
            assert!(!second.is_finished(), "{what}: it may come to be changed again");
            first.commit().await.expect("commits");
            let expected = outcome.map_or(Ok(()), |key| Err(not_unique("Ada", key, b"z")));
            assert_eq!(second.join().await, expected, "{what}");
        });
    }
}

/// The record that is in the way may not go while the one who was refused may ask again.
#[test]
fn a_refusal_comes_out_the_same_until_the_transaction_ends() {
    with_each(async |database, things, _| {
        put(database, things, b"a", "Ada").await.expect("puts");
        let mut tx = database.begin().await.expect("begins");
        let refused = Err(not_unique("Ada", b"a", b"z"));
        assert_eq!(tx.insert(things, b"z", &named("Ada")).await, refused);
        let other = database.clone();
        let deleting = database
            .executor()
            .spawn(async move { other.transaction(async |tx| tx.delete(things, b"a").await.map(drop)).await });
        database.executor().sleep_ns(SOON_NS).await;
        assert!(!deleting.is_finished());
        assert_eq!(tx.insert(things, b"z", &named("Ada")).await, refused);
        tx.commit().await.expect("commits");
        deleting.join().await.expect("goes on");
        put(database, things, b"z", "Ada").await.expect("is free");
    });
}

#[test]
fn two_that_wait_for_each_others_places_are_a_deadlock() {
    with_each(async |database, things, _| {
        let mut first = database.begin().await.expect("begins");
        first.put(things, b"a", &named("Ada")).await.expect("puts");
        let other = database.clone();
        let second = database.executor().spawn(async move {
            let mut tx = other.begin().await?;
            tx.put(things, b"m", &named("Mary")).await?;
            other.executor().sleep_ns(SOON_NS).await;
            let done = tx.put(things, b"n", &named("Ada")).await;
            match done {
                Ok(()) => tx.commit().await,
                Err(error) => tx.rollback().await.and(Err(error)),
            }
        });
        database.executor().sleep_ns(2 * SOON_NS).await;
        let crossed = first.put(things, b"b", &named("Mary")).await;
        if crossed.is_ok() {
            first.commit().await.expect("commits");
        } else {
            assert_eq!(crossed, Err(Error::Deadlock));
            drop(first);
        }
        let second = second.join().await;
        assert!(crossed.is_err() != (second == Err(Error::Deadlock)), "one of both: {crossed:?}, {second:?}");
    });
}

#[test]
fn a_snapshot_does_not_take_a_place_that_was_changed_since_its_moment() {
    let steps: [&[(&[u8], Option<&str>)]; 4] = [
        &[(b"a", None)],
        &[(b"a", Some("Eve"))],
        &[(b"a", None), (b"b", Some("Ada")), (b"b", Some("Bob"))],
        &[(b"a", Some("Eve")), (b"b", Some("Ada"))],
    ];
    for steps in steps {
        with_each(async |database, things, _| {
            put(database, things, b"a", "Ada").await.expect("puts");
            let mut tx = database.begin_at(Isolation::Snapshot).await.expect("begins");
            assert!(tx.get(things, b"a").await.expect("reads").is_some());
            for step in steps {
                database.transaction(async |other| change(other, things, *step).await).await.expect("changes");
            }
            let taken = tx.insert(things, b"z", &named("Ada")).await;
            assert_eq!(taken, Err(Error::WriteConflict("things.by_name".into())), "{steps:?}");
            assert!(matches!(tx.commit().await, Err(Error::Aborted { .. })));
        });
    }
    // What it has changed itself, and what others have done before its moment, is in no one's way.
    with_each(async |database, things, _| {
        put(database, things, b"a", "Ada").await.expect("puts");
        let kept = database.snapshot().await.expect("reads");
        put(database, things, b"a", "Eve").await.expect("puts");
        let mut tx = database.begin_at(Isolation::Snapshot).await.expect("begins");
        tx.put(things, b"z", &named("Ada")).await.expect("is free");
        tx.delete(things, b"a").await.expect("deletes");
        tx.put(things, b"y", &named("Eve")).await.expect("is free, too");
        assert_eq!(tx.insert(things, b"x", &named("Ada")).await, Err(not_unique("Ada", b"z", b"x")));
        tx.commit().await.expect("commits");
        drop(kept);
    });
}

/// A savepoint, and what the model has changed by then.
type SavedState = (Savepoint, BTreeMap<Vec<u8>, Option<String>>);

/// The naive model: what is committed, and for each transaction under way what it has changed and which names it has met.
#[derive(Default)]
struct Open {
    tx: Option<Transaction>,
    own: BTreeMap<Vec<u8>, Option<String>>,
    names: BTreeSet<String>,
    saved: Option<SavedState>,
}

type Names = BTreeMap<Vec<u8>, String>;

/// What a transaction sees of the committed records and its own.
fn seen(committed: &Names, own: &BTreeMap<Vec<u8>, Option<String>>) -> Names {
    let mut seen = committed.clone();
    for (key, name) in own {
        match name {
            Some(name) => drop(seen.insert(key.clone(), name.clone())),
            None => drop(seen.remove(key)),
        }
    }
    seen
}

/// What became of a change: it was made or refused, or waited for another transaction, perhaps for what the model does not know, as gaps.
#[derive(PartialEq, Eq)]
enum Outcome {
    Made,
    Waits,
    WaitsForGap,
}

/// Makes a random change in one of the transactions. It must come out as the model says.
async fn step(
    executor: &Executor,
    (things, is_unique): (PartitionId, bool),
    (committed, open): (&Names, &mut [Open]),
    (at, random): (usize, &mut Random),
) -> Outcome {
    let key = vec![b'a' + random.below(8) as u8];
    let name = (!random.chance(0.25)).then(|| format!("name {}", random.below(6)));
    let present = seen(committed, &open[at].own);
    let old = present.get(&key).cloned();
    let places: BTreeSet<String> =
        if old == name { BTreeSet::new() } else { old.iter().chain(&name).cloned().collect() };
    let others = || open.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, other)| other);
    let meets_key = others().any(|other| other.own.contains_key(&key));
    let meets_name = is_unique && others().any(|other| !other.names.is_disjoint(&places));
    let twin = present.iter().find(|(other, has)| **other != key && Some(*has) == name.as_ref() && old != name);
    let expected = match (twin.filter(|_| is_unique), &name) {
        (Some((twin, name)), _) => Err(not_unique(name, twin, &key)),
        _ => Ok(()),
    };
    let me = &mut open[at];
    let tx = me.tx.as_mut().expect("it is under way");
    let done = executor.within(SOON_NS, change(tx, things, (&key, name.as_deref()))).await;
    me.own.entry(key.clone()).or_insert_with(|| old.clone());
    match done {
        Some(done) => {
            assert!(!meets_key && !meets_name, "{key:?} to {name:?}: another one has changed it");
            assert_eq!(done, expected);
            me.names.extend(places);
            if done.is_ok() {
                me.own.insert(key, name);
            }
            Outcome::Made
        }
        None if meets_key || meets_name => Outcome::Waits,
        None => Outcome::WaitsForGap,
    }
}

fn follows_the_model(kind: PartitionSpec, is_unique: bool, seed: u64) -> (u64, u64) {
    run(&Media::new(), async |executor| {
        let database = Database::create(executor, settings()).await.expect("creates");
        let index = if is_unique { by_name() } else { entresol_engine::catalog::IndexSpec::new("by_name", &["name"]) };
        let things = database.create_partition(kind.record(record()).index(index)).await.expect("creates");
        let random = &mut Random::stream(seed, "unique");
        let (mut committed, mut open) = (Names::new(), [(); 3].map(|()| Open::default()));
        let (mut made, mut unknown) = (0, 0);
        for _ in 0..250 {
            let at = random.below(3) as usize;
            if open[at].tx.is_none() {
                let isolation = if random.chance(0.3) { Isolation::ReadCommitted } else { Isolation::Serializable };
                open[at].tx = Some(database.begin_at(isolation).await.expect("begins"));
            }
            let executor = database.executor().whole().clone();
            let me = &mut open[at];
            match random.below(12) {
                0 => me.saved = Some((me.tx.as_ref().expect("is open").savepoint(), me.own.clone())),
                1 if me.saved.is_some() => {
                    let (savepoint, then) = me.saved.take().expect("there is one");
                    me.tx.as_mut().expect("is open").rollback_to(savepoint).await.expect("goes back");
                    // It keeps the locks of what it has met.
                    let met: Vec<Vec<u8>> = me.own.keys().cloned().collect();
                    me.own = then;
                    for key in met {
                        let before = committed.get(&key).cloned();
                        me.own.entry(key).or_insert(before);
                    }
                }
                2 | 3 => {
                    let Open { tx, own, .. } = std::mem::take(me);
                    let tx = tx.expect("is open");
                    if random.chance(0.3) {
                        tx.rollback().await.expect("rolls back");
                    } else {
                        tx.commit().await.expect("commits");
                        committed = seen(&committed, &own);
                    }
                }
                _ => {
                    let model = (&committed, &mut open[..]);
                    let outcome = step(&executor, (things, is_unique), model, (at, random)).await;
                    made += 1;
                    unknown += u64::from(outcome == Outcome::WaitsForGap);
                    if outcome != Outcome::Made {
                        drop(std::mem::take(&mut open[at]));
                        executor.sleep_ns(SOON_NS).await;
                    }
                }
            }
        }
        drop(open);
        database.executor().sleep_ns(SOON_NS).await;
        let mut found = Names::new();
        let mut tx = database.begin().await.expect("begins");
        let number = database.secondary(things, "by_name").expect("it exists");
        let keep = |key: &[u8], value: &[u8]| {
            let Ok(FieldValue::Text(name)) = record().decode(value, 2) else { panic!("it is a record") };
            found.insert(key.to_vec(), name.to_owned());
            true
        };
        tx.range(things, number, ALL, Direction::Forward, keep).await.expect("reads");
        tx.commit().await.expect("commits");
        assert_eq!(found, committed, "seed {seed}");
        check(&database).await;
        (made, unknown)
    })
}

#[test]
fn transactions_beside_each_other_come_out_as_a_naive_model_says() {
    for kind in [PartitionSpec::b_tree("things"), PartitionSpec::set("things")] {
        for is_unique in [true, false] {
            let (mut made, mut unknown) = (0, 0);
            for seed in 0..12 {
                let counted = follows_the_model(kind.clone(), is_unique, seed);
                (made, unknown) = (made + counted.0, unknown + counted.1);
            }
            assert!(unknown * 2 < made, "{unknown} of {made} changes met a gap");
        }
    }
}
