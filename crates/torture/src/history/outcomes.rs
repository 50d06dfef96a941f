//! Which transactions are committed, and the version order of each key.

use super::transaction::{End, Key, Moment, Operation, Transaction, Version};
use super::{History, Span};
use std::collections::BTreeMap;

/// A version that counts: a committed transaction's last of its key.
#[derive(Clone, Copy, Debug)]
pub struct Installed {
    pub version: Version,
    /// The writer; the initial version has none.
    pub writer: Option<usize>,
    pub place: Option<u64>,
    pub at: Moment,
}

/// What became of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionOutcome {
    /// It counts: its position in its key's order.
    Installed(usize),
    /// Its transaction, which is committed, has replaced it.
    Intermediate,
    /// Its transaction, or a part of that, was taken back, or the write was never done.
    TakenBack,
    /// No transaction has written it to this key.
    Unknown,
}

/// The outcomes of all transactions and of all their versions.
pub struct Outcomes {
    /// By transaction.
    pub committed: Vec<bool>,
    /// By transaction: whether what it was shown has to be explained. That of those which were rolled back, too: they may have
    /// acted on it before.
    pub judged: Vec<bool>,
    /// Each key's versions, the initial one first.
    orders: BTreeMap<Key, Vec<Installed>>,
    /// Versions of commits in doubt that no reader has seen. They may be installed all the same: a deletion cannot be seen.
    doubtful: BTreeMap<Key, Vec<Installed>>,
    /// By version.
    outcomes: Vec<VersionOutcome>,
}

impl Outcomes {
    pub fn of(history: &History) -> Outcomes {
        let committed = committed(history);
        let mut orders: BTreeMap<Key, Vec<Installed>> = BTreeMap::new();
        let mut doubtful: BTreeMap<Key, Vec<Installed>> = BTreeMap::new();
        let mut outcomes = vec![VersionOutcome::TakenBack; history.versions.len() + 1];
        for (number, transaction) in history.transactions.iter().enumerate() {
            if !committed[number] {
                if transaction.is_in_doubt() {
                    let writes = surviving(&transaction.operations).into_iter();
                    let writes = writes.map(|(installed, key)| (key, Installed { writer: Some(number), ..installed }));
                    writes.for_each(|(key, installed)| doubtful.entry(key).or_default().push(installed));
                }
                continue;
            }
            let mut last: BTreeMap<Key, Installed> = BTreeMap::new();
            for (installed, key) in surviving(&transaction.operations) {
                let replaced = last.insert(key, Installed { writer: Some(number), ..installed });
                if let Some(replaced) = replaced {
                    outcomes[replaced.version.0 as usize] = VersionOutcome::Intermediate;
                }
            }
            last.into_iter().for_each(|(key, installed)| orders.entry(key).or_default().push(installed));
        }
        for (_, key) in &history.versions {
            orders.entry(*key).or_default();
        }
        for order in orders.values_mut() {
            order.sort_by_key(|installed| installed.at);
            order.insert(0, Installed { version: Version::INITIAL, writer: None, place: None, at: 0 });
            for (position, installed) in order.iter().enumerate().skip(1) {
                outcomes[installed.version.0 as usize] = VersionOutcome::Installed(position);
            }
        }
        let is_judged = |(number, transaction): (usize, &Transaction)| {
            committed[number] || matches!(transaction.end, End::Aborted | End::RolledBack(_))
        };
        let judged = history.transactions.iter().enumerate().map(is_judged).collect();
        Outcomes { committed, judged, orders, doubtful, outcomes }
    }

    /// The versions of a key in their order.
    pub fn order(&self, key: Key) -> &[Installed] {
        const UNTOUCHED: &[Installed] = &[Installed { version: Version::INITIAL, writer: None, place: None, at: 0 }];
        self.orders.get(&key).map_or(UNTOUCHED, Vec::as_slice)
    }

    /// The versions of a key that may have been installed and that no reader has seen.
    pub fn doubtful(&self, key: Key) -> &[Installed] {
        self.doubtful.get(&key).map_or(&[], Vec::as_slice)
    }

    /// The keys that a transaction wrote or wanted to write.
    pub fn keys(&self) -> impl Iterator<Item = (Key, &[Installed])> {
        self.orders.iter().map(|(key, order)| (*key, order.as_slice()))
    }

    /// What became of a version that was found under a key.
    pub fn outcome(&self, history: &History, key: Key, version: Version) -> VersionOutcome {
        match version.0.checked_sub(1).map(|index| history.versions.get(index as usize)) {
            None => VersionOutcome::Installed(0),
            Some(Some((_, of))) if *of == key => self.outcomes[version.0 as usize],
            Some(_) => VersionOutcome::Unknown,
        }
    }
}

/// The transactions whose commit was acknowledged, and those in doubt whose commit must have been made, because a committed
/// transaction has seen it. A commit that no transaction has seen is left out: what follows for the others does not depend on
/// it.
fn committed(history: &History) -> Vec<bool> {
    let mut committed: Vec<bool> =
        history.transactions.iter().map(|transaction| matches!(transaction.end, End::Committed(_))).collect();
    // A rollback that was acknowledged lets its client go by what it was shown.
    let is_told = |number: &usize| history.transactions[*number].acknowledged().is_some();
    let mut fresh: Vec<usize> = (0..committed.len()).filter(is_told).collect();
    while let Some(number) = fresh.pop() {
        for version in history.transactions[number].seen() {
            let Some((writer, _)) = version.0.checked_sub(1).and_then(|index| history.versions.get(index as usize))
            else {
                continue;
            };
            if history.transactions[*writer].is_in_doubt() && !committed[*writer] {
                committed[*writer] = true;
                fresh.push(*writer);
            }
        }
    }
    committed
}

/// The writes that no return to a savepoint has taken back.
fn surviving(operations: &[(Moment, Operation)]) -> Vec<(Installed, Key)> {
    let mut writes: Vec<(usize, Installed, Key)> = Vec::new();
    for (position, (at, operation)) in operations.iter().enumerate() {
        match operation {
            Operation::Wrote { key, version, place } => {
                let installed = Installed { version: *version, writer: None, place: *place, at: *at };
                writes.push((position, installed, *key));
            }
            Operation::RolledBackTo { savepoint } => writes.retain(|(written, ..)| written < savepoint),
            Operation::Read { .. } | Operation::Scanned { .. } | Operation::LeftOut => {}
        }
    }
    writes.into_iter().map(|(_, installed, key)| (installed, key)).collect()
}

impl Installed {
    /// Whether a read of this span that does not show the key may have met this version.
    pub fn is_outside(&self, span: Span) -> bool {
        !span.contains(self.place)
    }
}
