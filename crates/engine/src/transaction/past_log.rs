//! What the log keeps of what records were, where moments can be read after the next opening, beside undo records: those of sets, whose
//! changes are logged as what they become, and long values, whose pages are freed. It is logged in the step of the commit.

use crate::engine::{Engine, TransactionState};
use crate::log::record::{self, Body};
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
    of_sets + long_values.iter().map(|long| RECORD_SIZE + long.length).sum::<usize>()
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
    let versions = engine.versions.versions().borrow();
    for ReplacedValue { update, version, .. } in long_values(engine, state) {
        // What could not be read is not copied.
        if let Some(Stored::Here(value)) = versions.own_value(state.owner, version).map(stored::read) {
            log.append(state.id, &Body::LongValue { update: update as u32, value }, std::iter::empty());
        }
    }
}

/// Encodes what it is of sets, for a transaction that is logged as one record.
pub(super) fn encode_sets(engine: &Engine, sets: &Sets, state: &TransactionState, out: &mut Vec<u8>) {
    if is_kept(engine)
        && let Some(undos) = sets_before(sets, state)
    {
        record::encode(state.id, &Body::SetsBefore { undos: &undos }, [], out);
    }
}

/// What records of sets were before the transaction.
fn sets_before(sets: &Sets, state: &TransactionState) -> Option<Vec<u8>> {
    let states = sets.states_before(state.owner);
    let mut undos = Vec::new();
    for ((partition, key), value) in &states {
        let partition = *partition;
        match value {
            None => encode_undo(&Undo::Remove { partition, key }, &mut undos),
            Some(value) => encode_undo(&Undo::Replace { partition, key, value }, &mut undos),
        }
    }
    (!undos.is_empty()).then_some(undos)
}

/// A long value that is replaced or deleted.
struct ReplacedValue {
    update: usize,
    /// The number of the transaction's version that has it.
    version: usize,
    length: usize,
}

/// Those that were there before the transaction: what it has put and replaced itself has no version.
fn long_values(engine: &Engine, state: &TransactionState) -> Vec<ReplacedValue> {
    if state.chains.is_empty() {
        return Vec::new();
    }
    let (partitions, undo) = (engine.catalog.partitions.borrow(), state.undo.borrow());
    let length_of = |undo: &Undo<'_>| match *undo {
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
    let (versions, mut from) = (engine.versions.versions().borrow(), 0);
    let mut found = Vec::new();
    for (update, stored) in undo.iter().enumerate() {
        let Some(length) = length_of(&UndoList::decode(stored)) else { continue };
        let (version, is_found) = versions.own_version(state.owner, from, update);
        from = version;
        if is_found {
            found.push(ReplacedValue { update, version, length });
        }
    }
    found
}
