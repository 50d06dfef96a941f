//! Ranges of the past against every record of the past.

use crate::catalog::{Locking, Organization};
use crate::version::tests::{on_a_machine, unless_blocked};
use crate::version::{self, Reconstruction};
use crate::{Database, Direction, Error, Isolation, PartitionSpec, Result, Savepoint, Settings, Snapshot, Transaction};
use base::{PartitionId, Random};
use executor::Executor;
use std::collections::BTreeMap;
use std::ops::Bound;
use structures::set::{FieldType, FieldValue, RecordType, SEGMENT_SIZES};

/// A record: a group, a weight, a name.
type Thing = (u32, i64, String);
type State = BTreeMap<Vec<u8>, Thing>;
type Changes = BTreeMap<Vec<u8>, Option<Thing>>;

const KEYS: u64 = 300;
const GROUPS: u64 = 6;

struct Client {
    tx: Transaction,
    own: Changes,
    began: State,
    savepoints: Vec<(Savepoint, Changes)>,
}

fn record() -> RecordType {
    let fields = [("group", FieldType::U32), ("weight", FieldType::I64), ("name", FieldType::Text)];
    RecordType::new(fields).expect("sound")
}

fn stored((group, weight, name): &Thing) -> Vec<u8> {
    let (mut value, fields) = (Vec::new(), [FieldValue::U32(*group), FieldValue::I64(*weight), FieldValue::Text(name)]);
    record().encode(&fields, &mut value).expect("suits");
    value
}

fn thing(random: &mut Random) -> Thing {
    let name = &"ababbbabaabbab"[random.below(4) as usize..][..random.below(9) as usize];
    (random.below(GROUPS) as u32, random.below(5) as i64 - 2, name.to_owned())
}

fn overlaid(state: &State, own: &Changes) -> State {
    let mut seen = state.clone();
    for (key, thing) in own {
        match thing {
            Some(thing) => drop(seen.insert(key.clone(), thing.clone())),
            None => drop(seen.remove(key)),
        }
    }
    seen
}

/// Compares both indexes over random ranges, and all records, with what a transaction should see.
async fn compare(tx: &mut Transaction, set: PartitionId, seen: &State, random: &mut Random) -> Result<()> {
    let note = |all: &mut Vec<(Vec<u8>, Vec<u8>)>, key: &[u8], value: &[u8]| all.push((key.to_vec(), value.to_vec()));
    let mut found = Vec::new();
    tx.scan_set(set, |key, value| {
        note(&mut found, key, value);
        true
    })
    .await?;
    found.sort();
    let expected = |things: Vec<(&Vec<u8>, &Thing)>| -> Vec<(Vec<u8>, Vec<u8>)> {
        things.into_iter().map(|(key, thing)| (key.clone(), stored(thing))).collect()
    };
    assert_eq!(found, expected(seen.iter().collect()), "the naive scan");
    // By group and weight; the bounds name groups only, or both.
    let (low, high) = (random.below(GROUPS) as u32, random.below(GROUPS) as u32);
    let weight = random.below(5) as i64 - 2;
    let (from, to) = ([FieldValue::U32(low)], [FieldValue::U32(high), FieldValue::I64(weight)]);
    let bounds = match random.below(3) {
        0 => (Bound::Unbounded, Bound::Included(&to[..])),
        1 => (Bound::Excluded(&from[..]), Bound::Unbounded),
        _ => (Bound::Included(&from[..]), Bound::Excluded(&to[..])),
    };
    let is_within = |(group, of, _): &Thing| {
        let above = match bounds.0 {
            Bound::Included(_) => *group >= low,
            Bound::Excluded(_) => *group > low,
            Bound::Unbounded => true,
        };
        let below = match bounds.1 {
            Bound::Included(_) => (*group, *of) <= (high, weight),
            Bound::Excluded(_) => (*group, *of) < (high, weight),
            Bound::Unbounded => true,
        };
        above && below
    };
    let mut within: Vec<_> = seen.iter().filter(|(_, thing)| is_within(thing)).collect();
    within.sort_by_key(|(key, (group, weight, _))| (*group, *weight, (*key).clone()));
    let (mut found, mut left) = (Vec::new(), random.below(2 * KEYS));
    tx.range(set, 0, bounds, Direction::Forward, |key, value| {
        note(&mut found, key, value);
        left = left.saturating_sub(1);
        left > 0
    })
    .await?;
    let mut expected_first = expected(within);
    if left == 0 {
        expected_first.truncate(found.len());
    }
    assert_eq!(found, expected_first, "{bounds:?}");
    // By name.
    let name = thing(random).2;
    let mut within: Vec<_> = seen.iter().filter(|(_, (.., of))| *of >= name).collect();
    within.sort_by_key(|(key, (.., name))| (name.clone(), (*key).clone()));
    let mut found = Vec::new();
    let from = [FieldValue::Text(&name)];
    tx.range(set, 1, (Bound::Included(&from[..]), Bound::Unbounded), Direction::Forward, |key, value| {
        note(&mut found, key, value);
        true
    })
    .await?;
    assert_eq!(found, expected(within), "from {name}");
    Ok(())
}

/// Makes some change, and notes what it should come to.
async fn change(client: &mut Client, set: PartitionId, committed: &State, random: &mut Random) -> Result<()> {
    let key = random.below(KEYS).to_be_bytes().to_vec();
    let present = overlaid(committed, &client.own).remove(&key);
    let (tx, mut new) = (&mut client.tx, thing(random));
    match (random.below(4), present) {
        (0, _) => {
            tx.delete(set, &key).await?;
            client.own.insert(key, None);
            return Ok(());
        }
        (1, Some(old)) => {
            // A part of the value that no index sees, or one does.
            let weight = new.1;
            new = (old.0, weight, old.2);
            let field = tx.catalog().field(set, "weight")?;
            tx.set_field(set, &key, field, FieldValue::I64(weight)).await?;
        }
        _ => tx.put(set, &key, &stored(&new)).await?,
    }
    client.own.insert(key, Some(new));
    Ok(())
}

async fn history(executor: &Executor, seed: u64) -> Result<u64> {
    let mut random = Random::stream(seed, "past ranges");
    let undo = version::UndoSettings {
        cluster_size: 512,
        age_ns: (seed % 2 == 1).then_some(0),
        retention_ns: if seed % 3 == 2 { 1_000_000_000_000 } else { 0 },
        ..version::UndoSettings::default()
    };
    let database = Database::create(executor, Settings { undo, ..Settings::default() }).await?;
    let organization =
        Organization::Set { segment_size: *SEGMENT_SIZES.start() as u32, reserve_percent: 10, arrivals: false };
    let spec = PartitionSpec::new("things", organization, Locking::Record).record(record());
    let set = spec.secondary("by_group", &["group", "weight"]).secondary("by_name", &["name"]);
    let set = database.create_partition(set).await?;
    let mut committed = State::new();
    let fill = async |tx: &mut Transaction| {
        for number in (0..KEYS).step_by(2) {
            let (key, new) = (number.to_be_bytes().to_vec(), thing(&mut random));
            tx.put(set, &key, &stored(&new)).await?;
            committed.insert(key, new);
        }
        Ok::<_, crate::Error>(())
    };
    database.transaction(fill).await?;
    let (mut clients, mut snapshots): (Vec<Client>, Vec<(Snapshot, State)>) = Default::default();
    for _ in 0..200 {
        let some = |random: &mut Random, count: usize| random.below(count as u64) as usize;
        match random.below(20) {
            0..2 if clients.len() < 4 => {
                let isolation = [Isolation::Snapshot, Isolation::Serializable][random.below(2) as usize];
                let (tx, began) = (database.begin_at(isolation).await?, committed.clone());
                clients.push(Client { tx, own: Changes::new(), began, savepoints: Vec::new() });
            }
            2 if snapshots.len() < 3 => snapshots.push((database.snapshot().await?, committed.clone())),
            3 if !snapshots.is_empty() => drop(snapshots.remove(some(&mut random, snapshots.len()))),
            4 | 5 if !clients.is_empty() => {
                let client = clients.remove(some(&mut random, clients.len()));
                client.tx.commit().await?;
                committed = overlaid(&committed, &client.own);
            }
            6 if !clients.is_empty() => {
                let index = some(&mut random, clients.len());
                let client = &mut clients[index];
                match client.savepoints.pop() {
                    Some((savepoint, own)) => {
                        client.tx.rollback_to(savepoint).await?;
                        client.own = own;
                    }
                    None => client.savepoints.push((client.tx.savepoint(), client.own.clone())),
                }
            }
            7 if !clients.is_empty() => clients.remove(some(&mut random, clients.len())).tx.rollback().await?,
            8..17 if !clients.is_empty() => {
                let index = some(&mut random, clients.len());
                let client = &mut clients[index];
                match unless_blocked(executor, change(client, set, &committed, &mut random)).await {
                    Some(Ok(())) => {}
                    Some(Err(Error::WriteConflict(_) | Error::Deadlock)) | None => {
                        clients.remove(index).tx.rollback().await?;
                    }
                    Some(Err(error)) => return Err(error),
                }
            }
            _ => {}
        }
        for client in clients.iter_mut().filter(|client| client.tx.isolation() == Isolation::Snapshot) {
            if random.chance(0.2) {
                compare(&mut client.tx, set, &overlaid(&client.began, &client.own), &mut random).await?;
            }
        }
        if let Some((snapshot, seen)) = snapshots.first_mut() {
            compare(snapshot.as_transaction(), set, seen, &mut random).await?;
        }
    }
    drop(snapshots);
    for client in clients {
        client.tx.rollback().await?;
    }
    assert_eq!(database.0.engine.versions.is_kept(), seed % 3 == 2);
    database.check(|_| ()).await?;
    Ok(database.0.engine.versions.space.statistics().reads)
}

#[test]
fn a_range_of_the_past_is_that_part_of_all_records_of_the_past() {
    let mut reads = 0;
    for seed in 0..12 {
        let done = on_a_machine(async |executor| history(executor, seed).await);
        reads += done.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    assert!(reads > 100, "the undo space was read {reads} times");
}

#[test]
fn a_range_of_the_past_looks_at_what_it_shows_and_at_what_has_changed() {
    on_a_machine(async |executor| {
        let database = Database::create(executor, Settings::default()).await?;
        let organization = Organization::Set { segment_size: 1 << 20, reserve_percent: 10, arrivals: false };
        let spec = PartitionSpec::new("things", organization, Locking::Record).record(record());
        let set = database.create_partition(spec.secondary("by_group", &["group"])).await?;
        let fill = |number: u32| (number.to_be_bytes(), stored(&(number / 10, 0, String::new())));
        database.load_set(set, (0..5_000).map(fill), |_| {}).await?;
        let snapshot = database.snapshot().await?;
        // One moves into the range, one out of it, one is deleted.
        let change = async |tx: &mut Transaction| {
            tx.put(set, &0_u32.to_be_bytes(), &stored(&(77, 0, String::new()))).await?;
            tx.put(set, &771_u32.to_be_bytes(), &stored(&(0, 0, String::new()))).await?;
            tx.delete(set, &772_u32.to_be_bytes()).await
        };
        database.transaction(change).await?;
        let view = version::View { at: snapshot.moment(), owner: structures::lock::Owner(u32::MAX) };
        let part = structures::set::RecordType::encode_bound;
        let mut bound = Vec::new();
        part(&record(), &[0], &[FieldValue::U32(77)], &mut bound).expect("suits");
        let rest = super::Rest { last: None, from: bound.clone(), to: Some([bound, vec![255]].concat()) };
        let Ok((found, next)) =
            database.0.engine.versions.visit_entries(database.0.engine.records(), view, (set, 0), &rest)?
        else {
            panic!("no segment is lent")
        };
        assert!(next.is_none());
        let numbers: Vec<u32> =
            found.iter().map(|((_, key), _)| u32::from_be_bytes(key[..].try_into().expect("four bytes"))).collect();
        assert_eq!(numbers, [0, 770, 771, 772, 773, 774, 775, 776, 777, 778, 779]);
        assert!(found.iter().all(|(_, past)| Reconstruction::is_done(past)));
        Ok(())
    })
    .expect("nothing fails");
}
