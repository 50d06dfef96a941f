//! What is known of one transaction.

use std::fmt;

/// The isolation that a transaction was promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// It is shown what is committed, at each read anew.
    ReadCommitted,
    /// It is shown the state of its beginning and overwrites nothing younger.
    Snapshot,
    /// It is as if it had been alone, at a moment between its beginning and its acknowledgement.
    Serializable,
}

impl Level {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Level::ReadCommitted => "read committed",
            Level::Snapshot => "snapshot",
            Level::Serializable => "serializable",
        }
    }
}

/// A record: a store and a number in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// What it is part of; only records of one store are found by one scan.
    pub store: &'static str,
    /// Which of its records.
    pub number: u64,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.store, self.number)
    }
}

/// What one write installs: no two write the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u64);

impl Version {
    /// The version before the first write.
    pub const INITIAL: Version = Version(0);
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Version::INITIAL { f.write_str("the initial version") } else { write!(f, "v{}", self.0) }
    }
}

/// Places from the first to the last, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first.
    pub first: u64,
    /// The last.
    pub last: u64,
}

impl Span {
    /// Every place.
    pub const ALL: Span = Span { first: 0, last: u64::MAX };

    /// Whether a version that lies there, or nowhere, is found.
    pub fn contains(self, place: Option<u64>) -> bool {
        place.is_some_and(|place| (self.first..=self.last).contains(&place))
    }
}

/// A position in the history: what happened later has a greater one.
pub type Moment = u64;

/// Something that a transaction has done.
#[derive(Clone, Debug)]
pub enum Operation {
    /// A record was written, or deleted: then it has no place.
    Wrote { key: Key, version: Version, place: Option<u64> },
    /// A record was read.
    Read { key: Key, found: Option<Version> },
    /// All records were read whose places are in a span.
    Scanned { store: &'static str, span: Span, found: Vec<(Key, Version)> },
    /// The writes from the operation of this position on were undone.
    RolledBackTo { savepoint: usize },
    /// Something that is not judged.
    LeftOut,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The client was told nothing.
    Open,
    /// The commit was acknowledged.
    Committed(Moment),
    /// It was rolled back.
    Aborted,
    /// It was rolled back, and so may have been what it had seen, of which it was to be told only when it commits.
    Lost,
    /// It was rolled back, and the client was told so: the values that it was shown count as those of a read-only transaction.
    RolledBack(Moment),
}

/// One transaction.
#[derive(Clone, Debug)]
pub struct Transaction {
    pub level: Level,
    /// When it was asked for.
    pub begun: Moment,
    /// When it was there.
    pub started: Option<Moment>,
    pub operations: Vec<(Moment, Operation)>,
    /// When its commit was asked for, or a rollback that was acknowledged.
    pub asked: Option<Moment>,
    pub end: End,
}

impl Transaction {
    pub fn new(level: Level, begun: Moment) -> Transaction {
        Transaction { level, begun, started: None, operations: Vec::new(), asked: None, end: End::Open }
    }

    /// The versions that it was shown.
    pub fn seen(&self) -> impl Iterator<Item = Version> {
        self.operations.iter().flat_map(|(_, operation)| match operation {
            Operation::Read { found, .. } => found.as_slice().to_vec(),
            Operation::Scanned { found, .. } => found.iter().map(|(_, version)| *version).collect(),
            _ => Vec::new(),
        })
    }

    /// Whether its commit was asked for and never answered.
    pub fn is_in_doubt(&self) -> bool {
        self.asked.is_some() && self.end == End::Open
    }

    /// When the acknowledgement of its end came, if it came.
    pub fn acknowledged(&self) -> Option<Moment> {
        match self.end {
            End::Committed(at) | End::RolledBack(at) => Some(at),
            _ => None,
        }
    }
}
