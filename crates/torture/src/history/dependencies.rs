//! How transactions depend on each other, and what a single read shows to be wrong.

use super::outcomes::{Installed, Outcomes, VersionOutcome};
use super::transaction::{End, Operation, Transaction};
use super::{Anomaly, History, Key, Phenomenon, Span, Version};
use std::collections::BTreeMap;

/// The kinds of dependencies (Adya, Liskov and O'Neil, section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DependencyKind {
    /// One overwrites the version of the other.
    Ww,
    /// One has read the version of the other.
    Wr,
    /// The other overwrites what one has read: an anti-dependency.
    Rw,
}

/// A committed transaction depends on another, or is overlooked by it.
#[derive(Clone, Copy, Debug)]
pub struct Edge {
    pub from: usize,
    pub to: usize,
    pub kind: DependencyKind,
    pub key: Key,
    /// What `from` wrote or was shown; `None` if the key was not shown to it.
    pub earlier: Option<Version>,
    /// What `to` wrote or was shown; `None` if the key was not shown to it.
    pub later: Option<Version>,
    /// What was scanned, if a scan did not show the key.
    pub scan: Option<Span>,
}

impl Edge {
    /// Whether it comes of a predicate and of no record that was shown.
    pub fn is_of_predicate(&self) -> bool {
        self.scan.is_some()
    }
}

/// All dependencies, and what shows without looking at cycles.
pub struct Dependencies {
    pub edges: Vec<Edge>,
    pub anomalies: Vec<Anomaly>,
}

impl Dependencies {
    pub fn of(history: &History, outcomes: &Outcomes) -> Dependencies {
        let mut found = Dependencies { edges: Vec::new(), anomalies: Vec::new() };
        for (key, order) in outcomes.keys() {
            for pair in order.windows(2) {
                if let (Some(from), Some(to)) = (pair[0].writer, pair[1].writer) {
                    let (earlier, later) = (Some(pair[0].version), Some(pair[1].version));
                    found.edges.push(Edge { from, to, kind: DependencyKind::Ww, key, earlier, later, scan: None });
                }
            }
        }
        for (number, transaction) in
            history.transactions.iter().enumerate().filter(|(number, _)| outcomes.judged[*number])
        {
            Reader { history, outcomes, number, transaction, own: Vec::new(), found: &mut found }.read();
        }
        found
    }
}

/// A transaction whose reads are looked at.
struct Reader<'a> {
    history: &'a History,
    outcomes: &'a Outcomes,
    number: usize,
    transaction: &'a Transaction,
    /// What it has written so far and not taken back: position, key, version, place.
    own: Vec<(usize, Key, Version, Option<u64>)>,
    found: &'a mut Dependencies,
}

impl Reader<'_> {
    fn read(&mut self) {
        for (position, (_, operation)) in self.transaction.operations.iter().enumerate() {
            match operation {
                Operation::Wrote { key, version, place } => self.own.push((position, *key, *version, *place)),
                Operation::RolledBackTo { savepoint } => self.own.retain(|(written, ..)| written < savepoint),
                Operation::Read { key, found } => self.look(*key, *found, Span::ALL, false),
                Operation::Scanned { store, span, found } => self.scan(store, *span, found),
                Operation::LeftOut => {}
            }
        }
    }

    /// Whether its client may go by what it was shown.
    fn is_told(&self) -> bool {
        self.outcomes.committed[self.number] || self.transaction.acknowledged().is_some()
    }

    /// Whether the outcome of the transaction is unknown, except that its writes are absent.
    fn is_lost(&self, writer: Option<usize>) -> bool {
        writer.is_some_and(|writer| self.history.transactions[writer].end == End::Open)
    }

    fn scan(&mut self, store: &str, span: Span, found: &[(Key, Version)]) {
        let mut shown: BTreeMap<Key, Vec<Version>> = BTreeMap::new();
        found.iter().for_each(|(key, version)| shown.entry(*key).or_default().push(*version));
        let known: Vec<Key> = self.outcomes.keys().map(|(key, _)| key).filter(|key| key.store == store).collect();
        for key in known {
            match shown.remove(&key) {
                None => self.look(key, None, span, true),
                Some(versions) => {
                    if versions.windows(2).any(|pair| pair[0] == pair[1]) {
                        self.wrong(Phenomenon::Internal, format!("is shown {key} twice by one scan"));
                    }
                    versions.into_iter().for_each(|version| self.look(key, Some(version), span, true));
                }
            }
        }
        for (key, versions) in shown {
            self.wrong(Phenomenon::Garbage, format!("is shown {key} as {versions:?}, which were never written"));
        }
    }

    /// One key as a read has shown it, or not shown it.
    fn look(&mut self, key: Key, found: Option<Version>, span: Span, by_scan: bool) {
        let own = self.own.iter().rev().find(|(_, of, ..)| *of == key);
        if let Some((_, _, version, place)) = own {
            let expected = span.contains(*place).then_some(*version);
            if found != expected {
                let what = format!("reads {key} and finds {}, its own write is {}", shown(found), shown(expected));
                self.wrong(Phenomenon::Internal, what);
            }
            return;
        }
        match found {
            Some(version) => self.shown(key, version, span),
            None => self.not_shown(key, span, by_scan.then_some(span)),
        }
    }

    fn shown(&mut self, key: Key, version: Version, span: Span) {
        let writer = version.0.checked_sub(1).and_then(|index| self.history.versions.get(index as usize));
        let writer = writer.map(|(writer, _)| *writer);
        let told = |what: &str| match writer {
            Some(writer) => format!("reads {version} of {key}, which T{writer} {what}"),
            None => format!("reads {version} of {key}, which {what}"),
        };
        let is_own = writer == Some(self.number);
        match self.outcomes.outcome(self.history, key, version) {
            VersionOutcome::Unknown => self.wrong(Phenomenon::Garbage, told("it was never written there")),
            _ if is_own => self.wrong(Phenomenon::Internal, told("itself had not written by then, or not any more")),
            // A commit that a restart has lost may have been shown to transactions that were not acknowledged either.
            VersionOutcome::TakenBack if !self.is_told() && self.is_lost(writer) => {}
            VersionOutcome::TakenBack => self.wrong(Phenomenon::G1a, told("took back or never wrote")),
            VersionOutcome::Intermediate => self.wrong(Phenomenon::G1b, told("replaced before it committed")),
            VersionOutcome::Installed(position) => {
                let order = self.outcomes.order(key);
                if version != Version::INITIAL && order[position].is_outside(span) {
                    self.wrong(Phenomenon::Garbage, told("wrote outside of what was scanned"));
                }
                self.depend(key, (order[position], order.get(position + 1).copied()), (Some(version), None));
            }
        }
    }

    /// A read that does not show a key has met one of several versions: its absence, or versions that lie elsewhere. The read
    /// comes after the first of the versions that it may have met, and before the version that replaced the last. Real time
    /// tells which these are: a reader cannot meet a version that an acknowledged transaction had replaced before the reader
    /// began, nor one of a transaction that began after the reader ended.
    fn not_shown(&mut self, key: Key, span: Span, scan: Option<Span>) {
        let (order, doubtful) = (self.outcomes.order(key), self.outcomes.doubtful(key));
        let transactions = &self.history.transactions;
        let is_future = |installed: &Installed| match (installed.writer, self.transaction.acknowledged()) {
            (Some(writer), Some(end)) => transactions[writer].begun > end,
            _ => false,
        };
        // Whether the version behind this position replaced it too early.
        let is_past = |position: usize| {
            let next = order.get(position + 1).and_then(|next| transactions[next.writer?].acknowledged());
            next.is_some_and(|replaced| replaced < self.transaction.begun)
        };
        let may_be_met = |installed: &Installed| {
            installed.is_outside(span) && installed.writer != Some(self.number) && !is_future(installed)
        };
        let met: Vec<usize> = (0..order.len()).filter(|position| may_be_met(&order[*position])).collect();
        let current: Vec<usize> = met.iter().copied().filter(|position| !is_past(*position)).collect();
        // Behind which positions commits in doubt may have put something else.
        let behind = |installed: &Installed| order.partition_point(|certain| certain.at < installed.at) - 1;
        let doubts: Vec<usize> = doubtful.iter().filter(|installed| may_be_met(installed)).map(behind).collect();
        let doubts: Vec<usize> = doubts.into_iter().filter(|position| !is_past(*position)).collect();
        // If all are past, the latest of them is what was wrongly met.
        let latest = *met.last().expect("the initial version has no place and no writer");
        let first = *current.first().unwrap_or(&latest);
        let is_certain = doubts.iter().all(|doubt| *doubt >= first);
        let last = current.last().max(doubts.iter().max()).unwrap_or(&latest);
        let from = Installed { writer: order[first].writer.filter(|_| is_certain), ..order[first] };
        self.depend(key, (from, order.get(last + 1).copied()), (None, scan));
    }

    /// Adds the dependency on the writer of the version that was read, and the anti-dependency on the writer that replaced it.
    fn depend(
        &mut self,
        key: Key,
        (met, next): (Installed, Option<Installed>),
        (version, scan): (Option<Version>, Option<Span>),
    ) {
        let me = self.number;
        if let Some(from) = met.writer.filter(|writer| *writer != me) {
            let earlier = Some(met.version);
            self.found.edges.push(Edge { from, to: me, kind: DependencyKind::Wr, key, earlier, later: version, scan });
        }
        if let Some((to, next)) = next.and_then(|next| Some((next.writer.filter(|writer| *writer != me)?, next))) {
            let later = Some(next.version);
            self.found.edges.push(Edge { from: me, to, kind: DependencyKind::Rw, key, earlier: version, later, scan });
        }
    }

    fn wrong(&mut self, phenomenon: Phenomenon, what: String) {
        self.found.anomalies.push(Anomaly::of_one(self.history, phenomenon, self.number, &what));
    }
}

fn shown(version: Option<Version>) -> String {
    version.map_or_else(|| "nothing".to_owned(), |version| version.to_string())
}
