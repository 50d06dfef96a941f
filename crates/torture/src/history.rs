//! Histories of transactions, and whether the isolation that was promised was kept.
//!
//! Clients record what they asked for and what they were shown ([`History`]). Every write installs a version of its own, so
//! that a read tells whose version it has seen. The dependencies between transactions (write-write, write-read and read-write)
//! follow from that, and an anomaly is a cycle of them, in the definitions of Adya, Liskov and O'Neil ("Generalized isolation
//! level definitions", ICDE 2000). That such histories can be searched in linear time, and reported so that one can follow
//! them, is from Kingsbury and Alvaro ("Elle: inferring isolation anomalies from experimental observations", VLDB 2020).
//!
//! The order of a key's versions is the order of the writes: from read committed on, no transaction overwrites what another one
//! has written before that one has ended.
//!
//! What each level promises, in terms of two moments of each transaction, its beginning and its commit
//! (`history/graph.rs` has the arcs):
//!
//! * *read committed*: no G0, G1a, G1b, G1c; what was acknowledged before it began is not missed;
//! * *snapshot*: besides, what it reads is the state of its beginning, and what it overwrites was committed before that: no
//!   G-single, no lost update, no cycle in which no two anti-dependencies follow each other (Cerone and Gotsman, "Analysing
//!   snapshot isolation", JACM 2018);
//! * *serializable*: no cycle at all, real time included (strict).
//!
//! Isolation is judged by what clients were shown and not by the engine's tables. A restart is one more reader, so
//! durability and isolation are one check there.
//!
//! ```
//! use entresol_torture::history::{History, Key, Level, Phenomenon};
//!
//! // Two transactions that each read what the other writes: write skew.
//! let skew = |level| {
//!     let mut history = History::default();
//!     let (x, y) = (Key { store: "tree", number: 1 }, Key { store: "tree", number: 2 });
//!     let (first, second) = (history.begin(level), history.begin(level));
//!     for (transaction, seen, written) in [(first, x, y), (second, y, x)] {
//!         history.started(transaction);
//!         history.read(transaction, seen, None);
//!         let version = history.new_version(transaction, written);
//!         history.wrote(transaction, version, Some(written.number));
//!     }
//!     for transaction in [first, second] {
//!         history.asks(transaction);
//!         history.committed(transaction);
//!     }
//!     history.anomalies()
//! };
//! assert_eq!(skew(Level::Snapshot), []);
//! assert_eq!(skew(Level::Serializable)[0].phenomenon, Phenomenon::G2Item);
//! ```

mod anomaly;
mod cycle;
mod dependencies;
mod graph;
mod outcomes;
mod real_time;
mod transaction;

#[cfg(test)]
mod tests;

pub use anomaly::{Anomaly, Phenomenon};
pub use transaction::{Key, Level, Moment, Span, Version};

use dependencies::Dependencies;
use graph::Graph;
use outcomes::Outcomes;
use transaction::{End, Operation, Transaction};

/// What clients asked for and what they were shown, in the order in which that happened.
#[derive(Clone, Debug, Default)]
pub struct History {
    transactions: Vec<Transaction>,
    /// By version, counted from 1: for which transaction and key it was made.
    versions: Vec<(usize, Key)>,
    now: Moment,
}

impl History {
    fn tick(&mut self) -> Moment {
        self.now += 1;
        self.now
    }

    fn add(&mut self, transaction: usize, operation: Operation) {
        let now = self.tick();
        self.transactions[transaction].operations.push((now, operation));
    }

    /// Notes that a client asks for a transaction to begin; gives its number.
    pub fn begin(&mut self, level: Level) -> usize {
        let begun = self.tick();
        self.transactions.push(Transaction::new(level, begun));
        self.transactions.len() - 1
    }

    /// Notes a transaction that reads what another one at the level of a snapshot was to read, whenever that was; gives its
    /// number.
    pub fn begin_as_of(&mut self, other: usize) -> usize {
        let Transaction { begun, started, .. } = self.transactions[other];
        self.transactions.push(Transaction { started, ..Transaction::new(Level::Snapshot, begun) });
        self.transactions.len() - 1
    }

    /// Notes that it has begun: what it reads at the level of a snapshot is chosen.
    pub fn started(&mut self, transaction: usize) {
        self.transactions[transaction].started = Some(self.tick());
    }

    /// A version to write. Until [`History::wrote`] says so it is installed nowhere.
    pub fn new_version(&mut self, transaction: usize, key: Key) -> Version {
        self.versions.push((transaction, key));
        Version(self.versions.len() as u64)
    }

    /// A version to write that is the only one of its record, which has no name before it is written: it gets the version's
    /// number.
    pub fn new_record(&mut self, transaction: usize, store: &'static str) -> Version {
        self.new_version(transaction, Key { store, number: self.versions.len() as u64 + 1 })
    }

    /// Notes that a version is written; `place` is where scans find it, `None` if it is the absence of the record: a deletion.
    pub fn wrote(&mut self, transaction: usize, version: Version, place: Option<u64>) {
        let (_, key) = self.versions[version.0 as usize - 1];
        self.add(transaction, Operation::Wrote { key, version, place });
    }

    /// Notes a read of one record and what it showed: a version, [`Version::INITIAL`] for what was there before all, or nothing.
    pub fn read(&mut self, transaction: usize, key: Key, found: Option<Version>) {
        self.add(transaction, Operation::Read { key, found });
    }

    /// Notes a read of all records of a store whose places lie in a span: which were shown, in which versions.
    pub fn scanned(&mut self, transaction: usize, store: &'static str, span: Span, found: Vec<(Key, Version)>) {
        self.add(transaction, Operation::Scanned { store, span, found });
    }

    /// The transaction as it is now, to be handed to [`History::rolled_back_to`].
    pub fn savepoint(&self, transaction: usize) -> usize {
        self.transactions[transaction].operations.len()
    }

    /// Notes that what was written behind a savepoint is taken back.
    pub fn rolled_back_to(&mut self, transaction: usize, savepoint: usize) {
        self.add(transaction, Operation::RolledBackTo { savepoint });
    }

    /// Notes that a client asks for a commit: from here on, until there is an answer, the transaction is in doubt.
    pub fn asks(&mut self, transaction: usize) {
        self.transactions[transaction].asked = Some(self.tick());
    }

    /// Notes that the commit was acknowledged.
    pub fn committed(&mut self, transaction: usize) {
        self.transactions[transaction].end = End::Committed(self.tick());
    }

    /// Notes that the transaction was rolled back. One that never asked for its commit counts as such without that.
    pub fn aborted(&mut self, transaction: usize) {
        self.transactions[transaction].end = End::Aborted;
    }

    /// Notes that the transaction was rolled back, and that what it had seen was not known to be committed.
    pub fn lost(&mut self, transaction: usize) {
        self.transactions[transaction].end = End::Lost;
    }

    /// Notes that a client asked for a rollback at this moment and was told that it is done: what it was shown leaves with it.
    pub fn rolled_back(&mut self, transaction: usize, asked: Moment) {
        let at = self.tick();
        let transaction = &mut self.transactions[transaction];
        (transaction.asked, transaction.end) = (Some(asked), End::RolledBack(at));
    }

    /// The same without what was done to these stores, or shown of them.
    pub fn without(&self, is_left_out: impl Fn(&str) -> bool) -> History {
        let mut history = self.clone();
        for transaction in &mut history.transactions {
            for (_, operation) in &mut transaction.operations {
                let store = match operation {
                    Operation::Wrote { key, .. } | Operation::Read { key, .. } => key.store,
                    Operation::Scanned { store, .. } => store,
                    Operation::RolledBackTo { .. } | Operation::LeftOut => continue,
                };
                if is_left_out(store) {
                    // Savepoints are positions, so something must stand here.
                    *operation = Operation::LeftOut;
                }
            }
        }
        history
    }

    /// This moment.
    pub fn moment(&mut self) -> Moment {
        self.tick()
    }

    /// How many transactions began.
    pub fn len(&self) -> usize {
        self.transactions.len()
    }

    /// Whether none did.
    pub fn is_empty(&self) -> bool {
        self.transactions.is_empty()
    }

    /// Everything that should not have happened: what a single read shows to be wrong, and one cycle of each strongly
    /// connected part of the dependencies, the plainest there is.
    pub fn anomalies(&self) -> Vec<Anomaly> {
        let outcomes = Outcomes::of(self);
        let Dependencies { edges, mut anomalies } = Dependencies::of(self, &outcomes);
        let graph = Graph::of(self, &outcomes, &edges);
        anomalies.extend(graph.components().iter().map(|component| cycle::plainest(self, &graph, &edges, component)));
        anomalies
    }
}
