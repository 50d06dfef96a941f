//! Reading all of a partition, and comparing it with what is known.

use super::care::misnamed;
use super::known::Known;
use super::shape::{INDEX_NAME, RecordsByNumber, arrival, group, stored_key};
use crate::context::RunContext;
use engine::catalog::{Organization, Partition};
use engine::{Database, Direction, Error, PartitionSpec, Result, Snapshot, Transaction};
use std::collections::BTreeSet;
use std::ops::Bound;
use std::rc::Rc;

/// The partition of this name, if there is one.
pub fn find(database: &Database, name: &str) -> Option<Rc<Partition>> {
    database.partition(name).and_then(|id| database.describe(id)).ok()
}

/// What a partition was created as.
pub fn spec_of(partition: &Partition) -> PartitionSpec {
    let spec = PartitionSpec::new(&partition.name, partition.organization, partition.locking);
    let record = partition.schema.as_ref().map(|schema| schema.record.clone());
    PartitionSpec { device: partition.device.clone(), record, ..spec }
}

fn number_of(key: &[u8]) -> u64 {
    key.try_into().map_or(u64::MAX, u64::from_be_bytes)
}

/// All that a snapshot sees of a partition.
pub async fn read(context: &RunContext, snapshot: &mut Snapshot, partition: &Partition) -> Result<RecordsByNumber> {
    let (id, mut found) = (partition.id(), RecordsByNumber::new());
    let mut twice = None;
    let mut keep = |number: u64, value: &[u8]| {
        if found.insert(number, value.into()).is_some() {
            twice = Some(number);
        }
        true
    };
    match partition.organization {
        Organization::Direct { objects, .. } => {
            for number in 0..objects {
                let object = snapshot.read_object(id, number, <[u8]>::to_vec).await?;
                if object.iter().any(|byte| *byte != 0) {
                    keep(number, &object);
                }
            }
        }
        Organization::BTree => {
            let mut cursor = snapshot.cursor(id, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
            while let Some((key, value)) = snapshot.next(&mut cursor).await? {
                keep(number_of(&key), &value);
            }
        }
        Organization::Append { .. } | Organization::Set { arrivals: true, .. } => {
            snapshot.scan_appended(id, |_, record| keep(arrival(record), record)).await?;
        }
        Organization::Set { .. } => {
            snapshot.scan_set(id, |key, value| keep(number_of(key), value)).await?;
        }
    }
    if let Some(number) = twice {
        context.differs(&[&partition.name], format!("record {number} of '{}' is there twice", partition.name));
    }
    if partition.schema.is_some() {
        compare_index(context, snapshot, partition, &found).await?;
    }
    Ok(found)
}

/// The secondary index shows the same records in its order.
async fn compare_index(
    context: &RunContext,
    snapshot: &mut Snapshot,
    partition: &Partition,
    found: &RecordsByNumber,
) -> Result<()> {
    let schema = partition.typed()?;
    // It may be without it for a while.
    let Ok(index) = schema.secondary(INDEX_NAME) else { return Ok(()) };
    let is_unique = schema.index(index).is_ok_and(|index| index.is_unique);
    let (mut shown, mut groups) = (RecordsByNumber::new(), Vec::new());
    let keep = |key: &[u8], value: &[u8]| {
        shown.insert(number_of(key), value.into());
        groups.push(group(value));
        true
    };
    let all = (Bound::Unbounded, Bound::Unbounded);
    match snapshot.range(partition.id(), index, all, Direction::Forward, keep).await {
        // It is dropped beside this, or was created after the snapshot.
        Err(Error::NoPartition(_) | Error::Field { .. } | Error::SnapshotTooOld { .. }) => return Ok(()),
        read => read?,
    }
    let is_sorted = groups.is_sorted_by(|one, next| one < next || one == next && !is_unique);
    if shown != *found || groups.len() != found.len() || !is_sorted {
        let (records, name) = (found.len(), &partition.name);
        context
            .differs(&[name], format!("the index of '{name}' shows {} of {records} records: {groups:?}", groups.len()));
    }
    Ok(())
}

/// All that a transaction with locks sees, if the partition has keys or numbers.
async fn read_locked(
    tx: &mut Transaction,
    partition: &Partition,
    expected: &RecordsByNumber,
) -> Result<RecordsByNumber> {
    let (id, mut found) = (partition.id(), RecordsByNumber::new());
    match partition.organization {
        Organization::Direct { objects, .. } => {
            for number in 0..objects {
                let object = tx.read_object(id, number, <[u8]>::to_vec).await?;
                if object.iter().any(|byte| *byte != 0) {
                    found.insert(number, object.into());
                }
            }
        }
        Organization::BTree => {
            let mut cursor = tx.cursor(id, Bound::Unbounded, Bound::Unbounded, Direction::Backward);
            while let Some((key, value)) = tx.next(&mut cursor).await? {
                found.insert(number_of(&key), value.into());
            }
        }
        Organization::Set { arrivals: false, .. } => {
            for number in expected.keys() {
                if let Some(value) = tx.get(id, &stored_key(*number)).await? {
                    found.insert(*number, value.into());
                }
            }
        }
        Organization::Append { .. } | Organization::Set { .. } => {
            tx.scan_appended(id, |_, record| {
                found.insert(arrival(record), record.into());
                true
            })
            .await?;
        }
    }
    Ok(found)
}

/// Compares every existing partition with what is known; false if the run is over. Must be called while no client works.
pub async fn contents(context: &RunContext, database: &Database) -> bool {
    if context.configuration.partition_clients == 0 && context.configuration.crowd == 0 {
        return true;
    }
    match compare_all(context, database).await {
        Ok(()) => {}
        Err(error @ Error::BufferExhausted { .. }) => context.wrong(format!("reading partitions alone: {error}")),
        Err(error) => {
            context.judge(&error, "reading all partitions");
            return false;
        }
    }
    !context.over.get()
}

async fn compare_all(context: &RunContext, database: &Database) -> Result<()> {
    let names: BTreeSet<String> = context.oracle.borrow().own.keys().cloned().collect();
    for partition in database.partitions() {
        let name = &partition.name;
        if partition.index_of.is_none() && !names.contains(name) && !context.oracle.borrow().partitions.contains(name) {
            context.wrong(format!("partition '{name}' is there and was never created"));
        }
    }
    let mut snapshot = database.snapshot().await?;
    let mut tx = database.begin().await?;
    for name in &names {
        let reconciled = match find(database, name) {
            Some(partition) => {
                let found = read(context, &mut snapshot, &partition).await?;
                let locked = read_locked(&mut tx, &partition, &found).await?;
                if locked != found {
                    let what = super::known::difference(&found, &locked);
                    context.differs(&[name], format!("a snapshot of '{name}' is not what a transaction reads: {what}"));
                }
                let has_index = partition.schema.as_ref().map(|schema| schema.secondary(INDEX_NAME).is_ok());
                with_known(context, name, |known| {
                    known.reconcile(&spec_of(&partition), &found)?;
                    has_index.map_or(Ok(()), |found| known.compare_index(found))?;
                    // Nothing is under way here that could still change it.
                    known.note_index(has_index.or(Some(true)));
                    Ok(())
                })
            }
            None => with_known(context, name, Known::reconcile_absent),
        };
        if let Err(what) = reconciled {
            context.differs(&[name], format!("partition '{name}': {what}"));
        }
    }
    let renames = std::mem::take(&mut context.oracle.borrow_mut().renames);
    if let Some(what) = misnamed(&renames, |name| find(database, name).is_some()) {
        context.differs(&[], what);
    }
    tx.commit().await
}

/// Hands what is known of a partition to `change`.
pub fn with_known<T>(context: &RunContext, name: &str, change: impl FnOnce(&mut Known) -> T) -> T {
    let oracle = &mut *context.oracle.borrow_mut();
    let known = oracle.own.entry(name.to_owned()).or_default();
    let changed = change(known);
    if let Some(past) = &mut oracle.past {
        past.note_partition(name, known, context.position());
    }
    changed
}
