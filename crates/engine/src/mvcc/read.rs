//! Reading records as they were at a moment.

use crate::Result;
use crate::engine::{Engine, resolve_refusal};
use crate::statistics::FoundIn;
use crate::version::{ReaderPace, View};
use base::{PageId, PartitionId};
use std::rc::Rc;
use structures::key_hash;
use structures::lock::Resource;
use structures::organization::append::{self, LIVE, Position};
use structures::organization::b_tree;
use structures::organization::b_tree::stored::{self, Stored};
use structures::organization::direct::Place;
use structures::page::{Pages, slotted};

/// The value of `key` that a view sees in a b-tree or a set; with a `pace` if that read counts for others.
///
/// # Errors
/// A damaged page, or the driver's.
pub(crate) async fn read_at(
    engine: &Rc<Engine>,
    view: View,
    (partition, is_set): (PartitionId, bool),
    key: &[u8],
    pace: Option<&ReaderPace>,
) -> Result<Option<Vec<u8>>> {
    loop {
        let Some(found) = stored_at(engine, view, (partition, is_set), key, pace).await? else { return Ok(None) };
        if is_set {
            return Ok(Some(found));
        }
        match stored::read(&found) {
            Stored::Here(value) => return Ok(Some(value.to_vec())),
            Stored::Elsewhere(length, first) => {
                let value = engine.core.fetch(partition, length, first).await;
                // The pages of a long value may be freed while this reader reads them, but then the value is kept elsewhere.
                if stored_at(engine, view, (partition, is_set), key, None).await?.as_ref() == Some(&found) {
                    return value.map(Some);
                }
            }
        }
    }
}

/// The stored value that a view sees.
async fn stored_at(
    engine: &Rc<Engine>,
    view: View,
    (partition, is_set): (PartitionId, bool),
    key: &[u8],
    pace: Option<&ReaderPace>,
) -> Result<Option<Vec<u8>>> {
    if !is_set {
        let stored = || {
            let state = {
                let pool = engine.core.buffer.pool().borrow();
                let (place, leaf) = b_tree::find(&*pool, partition, key)?;
                let found = place.exact.then(|| slotted::value(leaf, place.slot).to_vec());
                engine.core.buffer.charge_value(place.page, place.slot, found.as_ref().map_or(0, Vec::len));
                found
            };
            Ok(engine.versions.reconstruct_in_memory(view, partition, key, state)?)
        };
        let past = engine.core.resolve_access(partition, || engine.versions.single_step_of(pace, stored)).await?;
        return engine.versions.reconstruct(view, partition, key, past).await;
    }
    let hash = key_hash(key);
    let stored = || {
        let state = engine.sets.sets.borrow().peek(partition, key, hash)?.map(<[u8]>::to_vec);
        engine.core.executor.charge_value(state.as_ref().map_or(0, Vec::len));
        Ok(engine.versions.reconstruct_in_memory(view, partition, key, state))
    };
    loop {
        match engine.versions.single_step_of(pace, stored) {
            Err(refusal) => resolve_refusal(engine, partition, refusal).await?,
            Ok(past) => {
                engine.core.statistics.count_reference(usize::from(partition.0), FoundIn::Memory);
                return engine.versions.reconstruct(view, partition, key, past?).await;
            }
        }
    }
}

/// Object `number` of a direct partition, `length` bytes at `place`, as a view sees it; with a `pace` if that read counts
/// for others.
///
/// # Errors
/// [`Error::SnapshotTooOld`], a damaged page, or the driver's.
pub(crate) async fn object_at(
    engine: &Engine,
    view: View,
    number: u64,
    (place, length): (Place, usize),
    pace: Option<&ReaderPace>,
) -> Result<Vec<u8>> {
    let (partition, start, key) = (place.page.partition, usize::from(place.offset), number.to_be_bytes());
    let seen = || {
        let state = {
            let pool = engine.core.buffer.pool().borrow();
            let object = &pool.page(place.page)?[start..start + length];
            engine.core.buffer.charge_value(place.page, place.slot(length), length);
            object.to_vec()
        };
        let (name, versions) = (Resource::record(partition, number), engine.versions.versions().borrow());
        Ok(versions.reconstruct_in_memory(view, name, (partition, &key), Some(state))?)
    };
    let past = engine.core.resolve_access(partition, || engine.versions.single_step_of(pace, seen)).await?;
    let state = engine.versions.reconstruct(view, partition, &key, past).await?;
    Ok(state.expect("objects are there always"))
}

/// The appended records of a page that a view sees, with their places, and whether the page had to be fetched.
///
/// # Errors
/// As [`object_at`].
pub(crate) async fn appended_in(
    engine: &Engine,
    view: View,
    page: PageId,
    pace: &ReaderPace,
) -> Result<(Vec<(Position, Vec<u8>)>, bool)> {
    let read = || {
        let (records, versions) = (engine.core.appended(page)?, engine.versions.versions().borrow());
        let number = |slot| append::number(Position { page, slot });
        records.iter().for_each(|(slot, _)| versions.prefetch(Resource::record(page.partition, number(*slot))));
        let mut pasts = Vec::with_capacity(records.len());
        for (slot, record) in records {
            let (position, number) = (Position { page, slot }, number(slot));
            let (name, key) = (Resource::record(page.partition, number), number.to_be_bytes());
            pasts.push((position, versions.reconstruct_in_memory(view, name, (page.partition, &key), Some(record))?));
        }
        Ok(pasts)
    };
    let mut seen = Vec::new();
    let (mut found, read) = (FoundIn::default(), || engine.versions.step_of(pace, read));
    let share = engine.core.resolve_share((page.partition, &mut found), (false, false), |_| true, read);
    let (pasts, missed) = share.await?;
    for (position, past) in pasts {
        let key = append::number(position).to_be_bytes();
        let record = engine.versions.reconstruct(view, page.partition, &key, past).await?;
        seen.extend(record.filter(|record| record.first() == Some(&LIVE)).map(|record| (position, record)));
    }
    Ok((seen, missed))
}

/// Shows every record of a set that a view sees to `look`, in no particular order, until that returns false: in many small
/// steps, between which others go on.
///
/// # Errors
/// As [`object_at`].
pub(crate) async fn scan_set_at(
    engine: &Rc<Engine>,
    view: View,
    partition: PartitionId,
    pace: &ReaderPace,
    mut look: impl FnMut(&[u8], &[u8]) -> bool,
) -> Result<()> {
    let mut next = Some(0);
    while let Some(from) = next {
        if from > 0 {
            rest(engine, pace).await;
        }
        let mut seen = Vec::new();
        next = loop {
            match engine
                .versions
                .step_of(pace, || engine.versions.visit_set(engine.records(), view, partition, from, &mut seen))?
            {
                Ok(next) => break next,
                Err(refusal) => resolve_refusal(engine, partition, refusal).await?,
            }
        };
        for (key, past) in seen {
            let value = engine.versions.reconstruct(view, partition, &key, past).await?;
            if value.is_some_and(|value| !look(&key, &value)) {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Yields between two steps of a reader; a long reader also pauses if a transaction is active.
pub(crate) async fn rest(engine: &Engine, pace: &ReaderPace) {
    engine.versions.pace(pace, || engine.transactions.active.get()).await;
}
