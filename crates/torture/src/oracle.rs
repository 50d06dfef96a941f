//! What the clients were told: every restart is compared with it.

use crate::backups::{Past, Taken};
use crate::history::History;
use crate::ledger::Ledger;
use crate::lost_end::LogEnd;
use crate::partitions::Known;
use crate::records::Owner;
use crate::unlocked::Versions;
use base::Lsn;
use std::collections::{BTreeMap, BTreeSet};

/// What the clients were told about the database's contents, kept from one run to the next.
#[derive(Clone, Debug, Default)]
pub struct Oracle {
    /// Whether the database's creation was acknowledged.
    pub created: bool,
    /// Whether the database may count one of two copies of its log as lost: the other is then the only one.
    pub log_copy_lost: bool,
    /// Whether the rows' load was.
    pub loaded: bool,
    /// The partitions whose creation was.
    pub partitions: BTreeSet<String>,
    /// Debit-Credit.
    pub ledger: Ledger,
    /// The records, by client.
    pub owners: Vec<Owner>,
    /// The partitions that clients create themselves, by name.
    pub own: BTreeMap<String, Known>,
    /// Their renames that were not answered, or refused: the next restart shows which name each has.
    pub renames: Vec<(String, String)>,
    /// The partitions without locks.
    pub unlocked: Versions,
    /// What clients that meet on few records were shown.
    pub history: History,
    /// Moments that snapshots were of: their log positions, and the first reader of each in the history.
    pub moments: Vec<(Lsn, usize)>,
    /// Transactions acknowledged, of all kinds.
    pub acknowledged: u64,
    /// What was known earlier, if backups are taken, or the end of the log may be lost.
    pub past: Option<Past>,
    /// How far the log had come when the last run ended, if commits do not wait until they are durable.
    pub log_end: LogEnd,
    /// The backups that were begun, at most one in each place.
    pub backups: Vec<Taken>,
    /// Whether the database's list of them may be damaged: one was not answered, or has failed.
    pub is_list_in_doubt: bool,
}
