//! Levels of isolation.

/// What a transaction sees of others (Berenson, Bernstein, Gray, Melton, O'Neil and O'Neil: A Critique of ANSI SQL Isolation
/// Levels, SIGMOD 1995; Adya, Liskov and O'Neil, ICDE 2000).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isolation {
    /// Each call sees what was committed when it began. A cursor is one call.
    ReadCommitted,
    /// All calls see what was committed when the transaction began, and what it has done itself. Of two that change the same
    /// record, the second gives up. One whose moment is too long ago ([`SnapshotTooOld`](crate::Error::SnapshotTooOld)) can
    /// change no more than it can read, because it is unknown what was changed since then.
    Snapshot,
    /// As if transactions ran one after the other, in the order of their commits.
    #[default]
    Serializable,
}

impl Isolation {
    /// Every level, the weakest first.
    pub const ALL: [Isolation; 3] = [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable];
}
