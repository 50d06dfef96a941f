use crate::Kind;
use serde::Serialize;

/// Something that clients met in their lives, apart from transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Act {
    /// A partition was created.
    Created,
    /// The creation of a partition failed, and life went on or began anew.
    CreationFailed,
    /// A partition was created under a name that one had before.
    CreatedAnew,
    /// A partition was loaded at once.
    Loaded,
    /// A load failed.
    LoadFailed,
    /// A partition was dropped.
    Dropped,
    /// A drop was refused, because somebody used the partition for long.
    DropRefused,
    /// A drop failed.
    DropFailed,
    /// More than a thousand partitions were there at once.
    Crowded,
    /// The catalog was to grow and found no room.
    CatalogFull,
    /// A transaction was told that the log has no room for it.
    LogFull,
    /// The undo space was to grow and found no room.
    UndoFull,
    /// A page was read while a sync of its file was under way that forgot what had been written.
    ReadOvertaken,
    /// All reads of a file failed for a while.
    Outage,
}

impl Act {
    /// Every act.
    pub const ALL: [Act; 14] = [
        Act::Created,
        Act::CreationFailed,
        Act::CreatedAnew,
        Act::Loaded,
        Act::LoadFailed,
        Act::Dropped,
        Act::DropRefused,
        Act::DropFailed,
        Act::Crowded,
        Act::CatalogFull,
        Act::LogFull,
        Act::UndoFull,
        Act::ReadOvertaken,
        Act::Outage,
    ];

    /// The act in a few words.
    pub fn name(self) -> &'static str {
        match self {
            Act::Created => "partition created",
            Act::CreationFailed => "creation failed",
            Act::CreatedAnew => "name used again",
            Act::Loaded => "partition loaded",
            Act::LoadFailed => "load failed",
            Act::Dropped => "partition dropped",
            Act::DropRefused => "drop refused",
            Act::DropFailed => "drop failed",
            Act::Crowded => "1,000 partitions",
            Act::CatalogFull => "catalog full",
            Act::LogFull => "log full",
            Act::UndoFull => "undo space full",
            Act::ReadOvertaken => "read overtaken",
            Act::Outage => "no read succeeds",
        }
    }

    /// Whether seeds of this kind come by it.
    pub fn is_met_by(self, kind: Kind) -> bool {
        match self {
            Act::ReadOvertaken | Act::Outage => true,
            _ => (self == Act::UndoFull) == (kind == Kind::Isolation),
        }
    }

    /// Whether it may take thousands of seeds to meet it.
    pub fn is_rare(self) -> bool {
        let failed = matches!(self, Act::LoadFailed | Act::DropFailed | Act::UndoFull);
        failed || matches!(self, Act::DropRefused | Act::Crowded | Act::ReadOvertaken | Act::Outage)
    }
}
