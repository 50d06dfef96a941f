//! A client that alone uses partitions without locks, and gives all their records a new version in each transaction: what an opening has left
//! to be undone of one is waited for by the first that uses them, so all records are always of one version.

use crate::context::{After, RunContext};
use base::{PartitionId, Random};
use engine::catalog::{Locking, Organization};
use engine::{Database, Direction, Error, Isolation, PartitionSpec, Result, Transaction};
use std::collections::BTreeSet;
use std::ops::Bound;
use std::rc::Rc;

const OBJECTS: &str = "free-objects";
const TREE: &str = "free-tree";
const RECORDS: u64 = 40;
/// The bytes of a record.
const SIZE: usize = 24;
/// The log that it takes at least, in bytes.
const LOG_MIN: u64 = 256 << 10;

/// What the client was told of them. Version 0 is that nothing was ever written.
#[derive(Clone, Debug)]
pub struct Versions {
    /// Those that may be there.
    may_be: BTreeSet<u64>,
    latest: u64,
}

impl Default for Versions {
    fn default() -> Versions {
        Versions { may_be: BTreeSet::from([0]), latest: 0 }
    }
}

/// Whether a seed has such partitions, whose log has this capacity.
pub fn is_of(seed: u64, log_capacity: u64) -> bool {
    Random::stream(seed, "unlocked").chance(0.15) && log_capacity >= LOG_MIN
}

/// The partitions.
pub fn specs() -> [PartitionSpec; 2] {
    let organization = Organization::Direct { objects: RECORDS, blocking_factor: 5, record_size: SIZE as u32 };
    let tree = PartitionSpec { locking: Locking::None, ..PartitionSpec::b_tree(TREE) };
    [PartitionSpec::new(OBJECTS, organization, Locking::None), tree]
}

/// Changes them a few times, or until the run is over.
pub async fn client(context: Rc<RunContext>, database: Database) {
    let random = &mut context.random("unlocked");
    let Some(objects) = context.partition(&database, OBJECTS) else { return };
    let Some(tree) = context.partition(&database, TREE) else { return };
    for _ in 0..context.configuration.transactions {
        context.pause(random).await;
        if context.over.get() || step(&context, &database, (objects, tree), random).await == After::Reopen {
            return;
        }
    }
}

/// One transaction. What was not taken back for certain may still be under way: then nothing follows.
async fn step(
    context: &RunContext,
    database: &Database,
    places: (PartitionId, PartitionId),
    random: &mut Random,
) -> After {
    let mut tx = match database.begin().await {
        Ok(tx) => tx,
        Err(error) => return context.judge(&error, "beginning to change partitions without locks"),
    };
    let version = {
        let versions = &mut context.oracle.borrow_mut().unlocked;
        versions.latest += 1;
        versions.latest
    };
    let written = write_all(context, &mut tx, places, (version, random)).await;
    if written.is_ok() && !random.chance(0.2) {
        context.oracle.borrow_mut().unlocked.may_be.insert(version);
        return match tx.commit().await {
            Ok(()) => {
                context.oracle.borrow_mut().unlocked.may_be = BTreeSet::from([version]);
                After::Retry
            }
            Err(error) => {
                context.judge(&error, "committing a change of partitions without locks");
                After::Reopen
            }
        };
    }
    let judged =
        written.map_or_else(|error| context.judge(&error, "changing partitions without locks"), |()| After::Retry);
    match tx.rollback().await {
        Ok(()) => judged,
        Err(error) => {
            context.judge(&error, "taking back a change of partitions without locks");
            After::Reopen
        }
    }
}

async fn write_all(
    context: &RunContext,
    tx: &mut Transaction,
    (objects, tree): (PartitionId, PartitionId),
    (version, random): (u64, &mut Random),
) -> Result<()> {
    let (first, step) = (random.below(RECORDS), *random.choose(&[1, 3, 7, 11, 13, 39]).expect("there are some"));
    for number in (0..RECORDS).map(|number| (first + number * step) % RECORDS) {
        if random.chance(0.1) {
            context.pause(random).await;
        }
        let mut record = [number as u8; SIZE];
        record[..8].copy_from_slice(&version.to_be_bytes());
        tx.modify_object(objects, number, |object| object.copy_from_slice(&record)).await?;
        if random.chance(0.2) {
            tx.delete(tree, &number.to_be_bytes()).await?;
        }
        tx.put(tree, &number.to_be_bytes(), &record).await?;
    }
    Ok(())
}

/// Compares them with what is known; false if the run is over. To be called before anything else that may wait for what is undone, and while
/// no client works.
pub async fn contents(context: &RunContext, database: &Database) -> bool {
    if !context.configuration.has_unlocked {
        return true;
    }
    match versions(context, database).await {
        Ok(found) => {
            let versions = &mut context.oracle.borrow_mut().unlocked;
            if found.len() == 1 && found.is_subset(&versions.may_be) {
                versions.may_be = found;
            } else {
                let may_be = &versions.may_be;
                let what = format!("partitions without locks have versions {found:?}, and may have one of {may_be:?}");
                context.differs(&[OBJECTS, TREE], what);
            }
        }
        Err(error @ Error::BufferExhausted { .. }) => context.wrong(format!("reading alone: {error}")),
        Err(error) => {
            context.judge(&error, "reading partitions without locks");
            return false;
        }
    }
    !context.over.get()
}

/// The versions of all records that there are.
async fn versions(context: &RunContext, database: &Database) -> Result<BTreeSet<u64>> {
    let (objects, tree) = (database.partition(OBJECTS)?, database.partition(TREE)?);
    let mut random = context.random("reading without locks");
    let isolation = *random.choose(&[Isolation::Serializable, Isolation::Snapshot]).expect("two levels");
    let mut tx = database.begin_at(isolation).await?;
    let version = |record: &[u8]| record.first_chunk().map_or(u64::MAX, |version| u64::from_be_bytes(*version));
    let mut found = BTreeSet::new();
    let mut keys = BTreeSet::new();
    if random.chance(0.5) {
        let mut cursor = tx.cursor(tree, Bound::Unbounded, Bound::Unbounded, Direction::Backward);
        while let Some((key, record)) = tx.next(&mut cursor).await? {
            found.insert(version(&record));
            keys.insert(key);
        }
    } else {
        for number in 0..RECORDS {
            if let Some(record) = tx.get(tree, &number.to_be_bytes()).await? {
                found.insert(version(&record));
                keys.insert(number.to_be_bytes().to_vec());
            }
        }
    }
    if (keys.len() as u64) < RECORDS {
        found.insert(0);
    }
    for number in 0..RECORDS {
        found.insert(tx.read_object(objects, number, version).await?);
    }
    tx.commit().await?;
    Ok(found)
}
