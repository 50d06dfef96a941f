//! What the log keeps of what records were, where moments can be read after the next opening, beside undo records: those of sets, whose
//! changes are logged as what they become, and long values, whose pages are freed. It is logged in the step of the commit.

use crate::engine::{Engine, TransactionState};
use crate::log::record::{self, Body};
use base::PartitionId;
use std::collections::BTreeSet;
use structures::organization::b_tree::stored::{self, Stored};
use structures::set::Sets;
use structures::undo::{Undo, UndoList, encode_undo};

/// Bytes of a record of these, beside what it keeps.
const RECORD_SIZE: usize = record::Record::FIXED_SIZE + 8;

#[inline]
fn is_kept(engine: &Engine) -> bool {
    engine.versions.is_kept() && engine.versions.keeps_moments()
}

/// How many bytes it takes at most.
#[inline]
pub(super) fn length(engine: &Engine, sets: &Sets, state: &TransactionState) -> usize {
    if is_kept(engine) { kept_length(engine, sets, state) } else { 0 }
}

#[cold]
fn kept_length(engine: &Engine, sets: &Sets, state: &TransactionState) -> usize {
    let of_sets = sets_before(sets, state).map_or(0, |undos| RECORD_SIZE + undos.len());
    let long_values = long_values(engine, state);
    of_sets + long_values.iter().map(|(_, length)| RECORD_SIZE + length).sum::<usize>()
}

/// Appends it.
#[inline]
pub(super) fn append(engine: &Engine, sets: &Sets, state: &TransactionState) {
    if is_kept(engine) {
        append_kept(engine, sets, state);
    }
}

#[cold]
fn append_kept(engine: &Engine, sets: &Sets, state: &TransactionState) {
    let log = &engine.core.log;
    if let Some(undos) = sets_before(sets, state) {
        log.append(state.id, &Body::SetsBefore { undos: &undos }, std::iter::empty());
    }
    for (update, _) in long_values(engine, state) {
        let versions = engine.versions.versions().borrow();
        // Only the first of a transaction's updates of a record has a version, and one that could not be copied has none.
        if let Some(Stored::Here(value)) = versions.own_value(state.owner, update).map(stored::read) {
            log.append(state.id, &Body::LongValue { update: update as u32, value }, std::iter::empty());
        }
    }
}

/// What records of sets were before the transaction.
fn sets_before(sets: &Sets, state: &TransactionState) -> Option<Vec<u8>> {
    let changes = sets.changes(state.owner);
    if changes == 0 {
        return None;
    }
    let (mut undos, mut changed) = (Vec::new(), BTreeSet::<(PartitionId, Vec<u8>)>::new());
    for version in sets.versions_before(state.owner, 0..changes) {
        let (partition, key) = (version.partition, &version.key[..]);
        if changed.insert((partition, key.to_vec())) {
            let undo = match &version.before {
                None => Undo::Remove { partition, key },
                Some(value) => Undo::Replace { partition, key, value },
            };
            encode_undo(&undo, &mut undos);
        }
    }
    Some(undos)
}

/// The updates that have replaced or deleted long values, and how long these are.
fn long_values(engine: &Engine, state: &TransactionState) -> Vec<(usize, usize)> {
    if state.chains.is_empty() {
        return Vec::new();
    }
    let partitions = engine.catalog.partitions.borrow();
    let long = |undo: &Undo<'_>| match *undo {
        Undo::Insert { partition, value, .. } | Undo::Replace { partition, value, .. }
            if partitions.is_tree(partition) =>
        {
            match stored::read(value) {
                Stored::Elsewhere(length, _) => Some(length),
                Stored::Here(_) => None,
            }
        }
        _ => None,
    };
    let undo = state.undo.borrow();
    undo.iter().enumerate().filter_map(|(update, stored)| Some((update, long(&UndoList::decode(stored))?))).collect()
}
