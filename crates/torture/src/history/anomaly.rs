//! What should not have happened, by name and so that one can follow it.

use super::cycle::Path;
use super::dependencies::{DependencyKind, Edge};
use super::graph::{Arc, Reason, is_beginning, transaction};
use super::transaction::{End, Operation, Transaction, Version};
use super::{History, Level, Span};
use std::fmt;

/// A kind of anomaly. Unless it says otherwise: Adya, Liskov and O'Neil, ICDE 2000, section 5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phenomenon {
    /// A read returned a version that was never written to that key.
    Garbage,
    /// A transaction's read disagrees with its own writes (Kingsbury and Alvaro, section 6.1).
    Internal,
    /// A cycle of writes: dirty writes.
    G0,
    /// A read of what was taken back.
    G1a,
    /// A read of what its writer replaced before it committed.
    G1b,
    /// A cycle of writes and reads: circular information flow.
    G1c,
    /// Two have read a version and both replaced it (Kingsbury and Alvaro, section 4.1).
    LostUpdate,
    /// A cycle with one anti-dependency: read skew.
    GSingle,
    /// A cycle with several anti-dependencies, no two of which follow each other (Kingsbury and Alvaro, Elle's catalogue).
    GNonadjacent,
    /// A cycle with several anti-dependencies, all on records that were read: write skew.
    G2Item,
    /// The same with predicates: a scan did not show a record.
    G2,
}

impl Phenomenon {
    /// Its name in the literature.
    pub fn name(self) -> &'static str {
        match self {
            Phenomenon::Garbage => "garbage read",
            Phenomenon::Internal => "internal inconsistency",
            Phenomenon::G0 => "G0 (dirty write)",
            Phenomenon::G1a => "G1a (aborted read)",
            Phenomenon::G1b => "G1b (intermediate read)",
            Phenomenon::G1c => "G1c (circular information flow)",
            Phenomenon::LostUpdate => "lost update",
            Phenomenon::GSingle => "G-single (read skew)",
            Phenomenon::GNonadjacent => "G-nonadjacent",
            Phenomenon::G2Item => "G2-item (write skew)",
            Phenomenon::G2 => "G2 (phantom)",
        }
    }
}

/// An anomaly: a read, or a cycle of dependencies, that the levels of the transactions in it forbid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anomaly {
    /// Its kind.
    pub phenomenon: Phenomenon,
    /// Whether it is one only because of what was acknowledged before something else began.
    pub real_time: bool,
    /// What happened, dependency by dependency.
    pub steps: Vec<String>,
    /// What the transactions in it have done.
    pub transactions: Vec<String>,
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let real_time = if self.real_time { " in real time" } else { "" };
        write!(f, "{}{real_time}: {}", self.phenomenon.name(), self.steps.join("; "))?;
        self.transactions.iter().try_for_each(|line| write!(f, "\n    {line}"))
    }
}

impl Anomaly {
    /// What one transaction's read shows.
    pub(super) fn of_one(history: &History, phenomenon: Phenomenon, number: usize, what: &str) -> Anomaly {
        let transactions = vec![summary(number, &history.transactions[number])];
        Anomaly { phenomenon, real_time: false, steps: vec![format!("T{number} {what}")], transactions }
    }

    /// A cycle.
    pub(super) fn of_cycle(history: &History, edges: &[Edge], cycle: &Path) -> Anomaly {
        let arcs: Vec<(usize, Arc)> = cycle.iter().copied().filter(|(_, arc)| arc.reason != Reason::Within).collect();
        let of = |arc: &Arc| match arc.reason {
            Reason::Dependency(edge) => Some(edges[edge]),
            _ => None,
        };
        let mut involved: Vec<usize> = Vec::new();
        for (point, _) in &arcs {
            if !involved.contains(&transaction(*point)) {
                involved.push(transaction(*point));
            }
        }
        let steps = arcs.iter().map(|(point, arc)| match of(arc) {
            Some(edge) => told(&edge),
            None => in_time(history, *point, arc.to),
        });
        Anomaly {
            phenomenon: phenomenon(&arcs.iter().map(|(_, arc)| of(arc)).collect::<Vec<_>>()),
            real_time: arcs.iter().any(|(_, arc)| arc.reason == Reason::RealTime),
            steps: steps.collect(),
            transactions: involved.iter().map(|number| summary(*number, &history.transactions[*number])).collect(),
        }
    }
}

/// The kind of a cycle of these dependencies; in place of one that comes of real time, nothing.
fn phenomenon(cycle: &[Option<Edge>]) -> Phenomenon {
    let is = |edge: &Option<Edge>, kind| edge.is_some_and(|edge| edge.kind == kind);
    let count = |kind| cycle.iter().filter(|edge| is(edge, kind)).count();
    match count(DependencyKind::Rw) {
        0 if count(DependencyKind::Wr) == 0 => Phenomenon::G0,
        0 => Phenomenon::G1c,
        1 => {
            let keys: Vec<_> = cycle.iter().flatten().map(|edge| edge.key).collect();
            let is_update = cycle.len() == 2 && count(DependencyKind::Ww) == 1 && keys[0] == keys[1];
            if is_update { Phenomenon::LostUpdate } else { Phenomenon::GSingle }
        }
        _ => {
            let mut neighbours = cycle.iter().zip(cycle.iter().cycle().skip(1));
            if !neighbours.any(|(one, next)| is(one, DependencyKind::Rw) && is(next, DependencyKind::Rw)) {
                return Phenomenon::GNonadjacent;
            }
            let of_predicate = |edge: &Edge| edge.kind == DependencyKind::Rw && edge.is_of_predicate();
            if cycle.iter().flatten().any(of_predicate) { Phenomenon::G2 } else { Phenomenon::G2Item }
        }
    }
}

fn told(edge: &Edge) -> String {
    let Edge { from, to, kind, key, earlier, later, scan } = *edge;
    let name = |version: Option<Version>| version.map_or_else(|| "none".to_owned(), |version| version.to_string());
    let missing = |reader: usize| match scan {
        Some(span) => format!("T{reader}'s scan {} does not show {key}", Spanned(span)),
        None => format!("T{reader} finds no {key}"),
    };
    match (kind, earlier, later) {
        (DependencyKind::Ww, ..) => {
            format!("T{from} wrote {} of {key}, which T{to} replaced by {}", name(earlier), name(later))
        }
        (DependencyKind::Wr, _, Some(_)) => format!("T{from} wrote {} of {key}, which T{to} read", name(earlier)),
        (DependencyKind::Wr, _, None) => format!("T{from} wrote {} of {key}, so that {}", name(earlier), missing(to)),
        (DependencyKind::Rw, Some(_), _) => {
            format!("T{from} read {} of {key}, which T{to} replaced by {}", name(earlier), name(later))
        }
        (DependencyKind::Rw, None, _) => format!("{}, of which T{to} wrote {} afterwards", missing(from), name(later)),
    }
}

fn in_time(history: &History, from: usize, to: usize) -> String {
    // A serializable transaction has one point, somewhere between its beginning and its acknowledgement.
    let has_one = history.transactions[transaction(to)].level == Level::Serializable;
    let earlier = if is_beginning(from) { "had begun" } else { "was acknowledged" };
    let later = if has_one || is_beginning(to) { "began" } else { "asked for its commit" };
    format!("T{} {earlier} before T{} {later}", transaction(from), transaction(to))
}

/// A span in words.
struct Spanned(Span);

impl fmt::Display for Spanned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Span::ALL => f.write_str("of everything"),
            Span { first, last } => write!(f, "from {first} to {last}"),
        }
    }
}

/// All that a transaction has done, in one line.
fn summary(number: usize, transaction: &Transaction) -> String {
    let mut words = vec![format!("T{number} ({:?}, from {})", transaction.level, transaction.begun)];
    let name = |version: &Version| version.to_string();
    for (at, operation) in &transaction.operations {
        let what = match operation {
            Operation::Wrote { key, version, place: Some(_) } => format!("writes {key} = {version}"),
            Operation::Wrote { key, version, place: None } => format!("deletes {key} ({version})"),
            Operation::Read { key, found } => {
                format!("reads {key}: {}", found.as_ref().map_or("none".to_owned(), name))
            }
            Operation::Scanned { store, span, found } => {
                let found: Vec<String> =
                    found.iter().map(|(key, version)| format!("{} {version}", key.number)).collect();
                format!("scans {store} {}: {}", Spanned(*span), found.join(" "))
            }
            Operation::RolledBackTo { savepoint } => format!("rolls back to operation {savepoint}"),
            Operation::LeftOut => "does what is left out".to_owned(),
        };
        words.push(format!("{at} {what}"));
    }
    words.extend(transaction.asked.map(|at| format!("{at} asks to commit")));
    words.push(match transaction.end {
        End::Open => "not answered".to_owned(),
        End::Committed(at) => format!("{at} committed"),
        End::Aborted => "aborted".to_owned(),
        End::Lost => "lost".to_owned(),
        End::RolledBack(at) => format!("{at} rolled back"),
    });
    words.join(", ")
}
