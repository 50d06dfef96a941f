use crate::SeedKind;
use serde::Serialize;

/// Something that a client met in a run, apart from transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum ClientEvent {
    /// A trace was replayed.
    Replayed,
    /// The creation of the database failed, and left nothing.
    NothingCreated,
    /// The database was dropped while clients worked, and opened again in the same process.
    NotClosed,
    /// A partition was created.
    Created,
    /// The creation of a partition failed, and the run continued or the database was opened again.
    CreationFailed,
    /// A partition was created under a name that one had before.
    CreatedAnew,
    /// A partition was loaded at once.
    Loaded,
    /// A load failed.
    LoadFailed,
    /// A partition was dropped.
    Dropped,
    /// A drop was refused, because the partition stayed in use for too long.
    DropRefused,
    /// A drop failed.
    DropFailed,
    /// A partition was given another name.
    Renamed,
    /// A rename failed, or was refused.
    RenameFailed,
    /// All records were taken out of a partition.
    Truncated,
    /// A truncation failed, or was refused.
    TruncationFailed,
    /// A partition with pages that are allocated was compacted, and its file was shorter then.
    Compacted,
    /// A set was compacted, and took less memory then or had a shorter backup.
    SetCompacted,
    /// A partition of objects found by number was compacted, and its file was shorter then.
    ObjectsCompacted,
    /// A compaction failed, or was refused.
    CompactionFailed,
    /// A secondary index of a b-tree was created while others changed records.
    IndexCreated,
    /// A secondary index of a b-tree was dropped.
    IndexDropped,
    /// A set got a secondary index while others changed records.
    SetIndexCreated,
    /// A secondary index of a set was dropped.
    SetIndexDropped,
    /// The creation or the drop of a secondary index failed, or was refused.
    IndexFailed,
    /// A partition got a unique index while others changed records.
    UniqueIndexMade,
    /// One was refused, because two records had the same contents.
    IndexNotUnique,
    /// A write was refused that would have given a record what another one has in a unique index.
    ContentsTaken,
    /// More than a thousand partitions were there at once.
    Crowded,
    /// The catalog was to grow and found no room.
    CatalogFull,
    /// A transaction was told that the log has no room for it.
    LogFull,
    /// The log's file was to grow and found no room, so what had not begun was refused.
    LogNotGrown,
    /// The database was opened with a log that had come to another device or size, then or before.
    LogMoved,
    /// The power, or the end of the process, has taken the end of the log, of which clients were told that it is committed.
    EndLost,
    /// The undo space was to grow and found no room.
    UndoFull,
    /// A page was read while a sync of its file was under way that forgot what had been written.
    ReadOvertaken,
    /// All reads of a file failed for a while.
    Outage,
    /// The cache was changed while clients worked.
    CacheChanged,
    /// A change of the cache failed.
    CacheChangeFailed,
    /// The cache was switched off, because its device did not answer.
    CacheLost,
    /// A page could not be had that only a cache had which was switched off.
    CacheMissed,
    /// While nothing ran the cache was replaced by an empty one.
    CacheEmptied,
    /// By what it was some runs before.
    CacheOlder,
    /// Pages in its slots, by older versions, while its table stays.
    SlotsOlder,
    /// By that of another database.
    CacheForeign,
    /// It was away for one opening.
    CacheAway,
    /// A backup was taken while clients worked.
    BackedUp,
    /// One that has what was changed since another one.
    IncrementTaken,
    /// A backup failed.
    BackupFailed,
    /// A backup was given up.
    BackupGivenUp,
    /// A backup was cut off, and its place does not pass for a backup.
    BackupCut,
    /// A database was made from a backup, and has what was committed when that ended.
    Restored,
    /// The same from a backup that builds on another one.
    IncrementRestored,
    /// A restore was cut off, or failed, and was begun again.
    RestoredAgain,
    /// A restore has said which piece of a backup or of the archive is damaged or missing.
    RestoreRefused,
    /// A run has written segments of the log's archive.
    LogArchived,
    /// A transaction was told that the log is full and cannot be archived.
    LogNotArchived,
    /// A database was made from a backup and all that the archive has.
    RestoredFurther,
    /// The same up to a position of the log.
    RestoredTo,
    /// What was wanted of an archive is behind a bulk load, or a change that calls find, and was refused.
    RestoreWithoutLoad,
    /// A file of a database that exists could not be opened.
    FileNotOpened,
    /// Or not be created.
    FileNotCreated,
    /// Or not be removed.
    FileNotRemoved,
    /// The names of a device could not be listed.
    NamesNotListed,
    /// A record that fills a page or a segment, or nearly, was written.
    RecordAtLimit,
    /// One that is larger was refused.
    RecordTooLarge,
    /// A transaction committed that takes a quarter of the log.
    LargeTransaction,
    /// More records were changed than the table of the latest versions takes without a sweep.
    VersionsSwept,
    /// After a restart the database was read as it was at a moment before that.
    MomentRead,
    /// A call gave up waiting for a lock, and its transaction went on.
    WaitedOut,
    /// Damage was reported, and the medium repaired, on which the scenario went on.
    Repaired,
    /// The sync of a load failed, and what it was to make durable was gone.
    LoadNotSynced,
    /// A call on several records was not waited for to its end.
    SeveralGivenUp,
    /// A rollback to a savepoint was not waited for to its end.
    SavepointGivenUp,
    /// A rollback to a savepoint failed.
    SavepointFailed,
    /// A transaction was to be committed that may have half of a change.
    HalfCommitted,
    /// The database was closed while transactions were under way, and had a little time for that.
    ClosedAtWork,
    /// The database was given up because a device did not answer.
    SilenceEnded,
    /// An opening failed, and another one followed in the same process.
    OpenedBehindFailure,
}

impl ClientEvent {
    /// Every event.
    pub const ALL: [ClientEvent; 78] = [
        ClientEvent::Replayed,
        ClientEvent::NothingCreated,
        ClientEvent::NotClosed,
        ClientEvent::Created,
        ClientEvent::CreationFailed,
        ClientEvent::CreatedAnew,
        ClientEvent::Loaded,
        ClientEvent::LoadFailed,
        ClientEvent::Dropped,
        ClientEvent::DropRefused,
        ClientEvent::DropFailed,
        ClientEvent::Renamed,
        ClientEvent::RenameFailed,
        ClientEvent::Truncated,
        ClientEvent::TruncationFailed,
        ClientEvent::Compacted,
        ClientEvent::SetCompacted,
        ClientEvent::ObjectsCompacted,
        ClientEvent::CompactionFailed,
        ClientEvent::IndexCreated,
        ClientEvent::IndexDropped,
        ClientEvent::SetIndexCreated,
        ClientEvent::SetIndexDropped,
        ClientEvent::IndexFailed,
        ClientEvent::UniqueIndexMade,
        ClientEvent::IndexNotUnique,
        ClientEvent::ContentsTaken,
        ClientEvent::Crowded,
        ClientEvent::CatalogFull,
        ClientEvent::LogFull,
        ClientEvent::LogNotGrown,
        ClientEvent::LogMoved,
        ClientEvent::EndLost,
        ClientEvent::UndoFull,
        ClientEvent::ReadOvertaken,
        ClientEvent::Outage,
        ClientEvent::CacheChanged,
        ClientEvent::CacheChangeFailed,
        ClientEvent::CacheLost,
        ClientEvent::CacheMissed,
        ClientEvent::CacheEmptied,
        ClientEvent::CacheOlder,
        ClientEvent::SlotsOlder,
        ClientEvent::CacheForeign,
        ClientEvent::CacheAway,
        ClientEvent::BackedUp,
        ClientEvent::IncrementTaken,
        ClientEvent::BackupFailed,
        ClientEvent::BackupGivenUp,
        ClientEvent::BackupCut,
        ClientEvent::Restored,
        ClientEvent::IncrementRestored,
        ClientEvent::RestoredAgain,
        ClientEvent::RestoreRefused,
        ClientEvent::LogArchived,
        ClientEvent::LogNotArchived,
        ClientEvent::RestoredFurther,
        ClientEvent::RestoredTo,
        ClientEvent::RestoreWithoutLoad,
        ClientEvent::FileNotOpened,
        ClientEvent::FileNotCreated,
        ClientEvent::FileNotRemoved,
        ClientEvent::NamesNotListed,
        ClientEvent::RecordAtLimit,
        ClientEvent::RecordTooLarge,
        ClientEvent::LargeTransaction,
        ClientEvent::VersionsSwept,
        ClientEvent::MomentRead,
        ClientEvent::WaitedOut,
        ClientEvent::Repaired,
        ClientEvent::LoadNotSynced,
        ClientEvent::SeveralGivenUp,
        ClientEvent::SavepointGivenUp,
        ClientEvent::SavepointFailed,
        ClientEvent::HalfCommitted,
        ClientEvent::ClosedAtWork,
        ClientEvent::SilenceEnded,
        ClientEvent::OpenedBehindFailure,
    ];

    /// The event in a few words.
    pub fn name(self) -> &'static str {
        match self {
            ClientEvent::Replayed => "trace replayed",
            ClientEvent::NothingCreated => "nothing created",
            ClientEvent::NotClosed => "dropped at work",
            ClientEvent::Created => "partition created",
            ClientEvent::CreationFailed => "creation failed",
            ClientEvent::CreatedAnew => "name used again",
            ClientEvent::Loaded => "partition loaded",
            ClientEvent::LoadFailed => "load failed",
            ClientEvent::Dropped => "partition dropped",
            ClientEvent::DropRefused => "drop refused",
            ClientEvent::DropFailed => "drop failed",
            ClientEvent::Renamed => "partition renamed",
            ClientEvent::RenameFailed => "rename failed",
            ClientEvent::Truncated => "partition truncated",
            ClientEvent::TruncationFailed => "truncation failed",
            ClientEvent::Compacted => "partition compacted",
            ClientEvent::SetCompacted => "set compacted",
            ClientEvent::ObjectsCompacted => "objects compacted",
            ClientEvent::CompactionFailed => "compaction failed",
            ClientEvent::IndexCreated => "index created",
            ClientEvent::IndexDropped => "index dropped",
            ClientEvent::SetIndexCreated => "set index created",
            ClientEvent::SetIndexDropped => "set index dropped",
            ClientEvent::IndexFailed => "index failed",
            ClientEvent::UniqueIndexMade => "unique index made",
            ClientEvent::IndexNotUnique => "index not unique",
            ClientEvent::ContentsTaken => "contents taken",
            ClientEvent::Crowded => "1,000 partitions",
            ClientEvent::CatalogFull => "catalog full",
            ClientEvent::LogFull => "log full",
            ClientEvent::LogNotGrown => "log not grown",
            ClientEvent::LogMoved => "log moved",
            ClientEvent::EndLost => "end of log lost",
            ClientEvent::UndoFull => "undo space full",
            ClientEvent::ReadOvertaken => "read overtaken",
            ClientEvent::Outage => "no read succeeds",
            ClientEvent::CacheChanged => "cache changed",
            ClientEvent::CacheChangeFailed => "cache change failed",
            ClientEvent::CacheLost => "cache switched off",
            ClientEvent::CacheMissed => "page in lost cache",
            ClientEvent::CacheEmptied => "cache emptied",
            ClientEvent::CacheOlder => "older cache",
            ClientEvent::SlotsOlder => "older slots",
            ClientEvent::CacheForeign => "foreign cache",
            ClientEvent::CacheAway => "cache away",
            ClientEvent::BackedUp => "backup taken",
            ClientEvent::IncrementTaken => "increment taken",
            ClientEvent::BackupFailed => "backup failed",
            ClientEvent::BackupGivenUp => "backup given up",
            ClientEvent::BackupCut => "backup cut off",
            ClientEvent::Restored => "restored",
            ClientEvent::IncrementRestored => "increment restored",
            ClientEvent::RestoredAgain => "restored again",
            ClientEvent::RestoreRefused => "restore refused",
            ClientEvent::LogArchived => "log archived",
            ClientEvent::LogNotArchived => "log not archived",
            ClientEvent::RestoredFurther => "restored further",
            ClientEvent::RestoredTo => "restored up to",
            ClientEvent::RestoreWithoutLoad => "load not in log",
            ClientEvent::FileNotOpened => "file not opened",
            ClientEvent::FileNotCreated => "file not created",
            ClientEvent::FileNotRemoved => "file not removed",
            ClientEvent::NamesNotListed => "names not listed",
            ClientEvent::RecordAtLimit => "record at limit",
            ClientEvent::RecordTooLarge => "record too large",
            ClientEvent::LargeTransaction => "large transaction",
            ClientEvent::VersionsSwept => "versions swept",
            ClientEvent::MomentRead => "earlier moment read",
            ClientEvent::WaitedOut => "lock not awaited",
            ClientEvent::Repaired => "medium repaired",
            ClientEvent::LoadNotSynced => "load not synced",
            ClientEvent::SeveralGivenUp => "several given up",
            ClientEvent::SavepointGivenUp => "savepoint given up",
            ClientEvent::SavepointFailed => "savepoint failed",
            ClientEvent::HalfCommitted => "commit of half a change",
            ClientEvent::ClosedAtWork => "closed at work",
            ClientEvent::SilenceEnded => "given up: no answer",
            ClientEvent::OpenedBehindFailure => "opened behind failure",
        }
    }

    /// Whether seeds of this kind come by it.
    pub fn is_met_by(self, kind: SeedKind) -> bool {
        match self {
            ClientEvent::NothingCreated
            | ClientEvent::NotClosed
            | ClientEvent::LogNotGrown
            | ClientEvent::LogMoved
            | ClientEvent::ReadOvertaken
            | ClientEvent::Outage
            | ClientEvent::CacheChanged
            | ClientEvent::CacheChangeFailed
            | ClientEvent::CacheLost
            | ClientEvent::CacheMissed
            | ClientEvent::CacheEmptied
            | ClientEvent::CacheOlder
            | ClientEvent::SlotsOlder
            | ClientEvent::CacheForeign
            | ClientEvent::CacheAway
            | ClientEvent::ContentsTaken
            | ClientEvent::ClosedAtWork
            | ClientEvent::SilenceEnded
            | ClientEvent::Repaired => true,
            ClientEvent::UndoFull | ClientEvent::VersionsSwept | ClientEvent::MomentRead | ClientEvent::WaitedOut => {
                kind == SeedKind::Isolation
            }
            _ => kind == SeedKind::Durability,
        }
    }

    /// Whether it may take thousands of seeds to meet.
    pub fn is_rare(self) -> bool {
        let failed = matches!(
            self,
            ClientEvent::LoadFailed
                | ClientEvent::DropFailed
                | ClientEvent::RenameFailed
                | ClientEvent::TruncationFailed
                | ClientEvent::CompactionFailed
                | ClientEvent::IndexFailed
                | ClientEvent::UndoFull
        );
        failed
            || matches!(
                self,
                ClientEvent::DropRefused
                    | ClientEvent::Crowded
                    | ClientEvent::ReadOvertaken
                    | ClientEvent::Outage
                    | ClientEvent::CacheChangeFailed
                    | ClientEvent::CacheLost
                    | ClientEvent::CacheMissed
                    | ClientEvent::LogNotArchived
                    | ClientEvent::RestoredFurther
                    | ClientEvent::RestoredTo
                    | ClientEvent::RestoreWithoutLoad
                    | ClientEvent::FileNotOpened
                    | ClientEvent::FileNotCreated
                    | ClientEvent::FileNotRemoved
                    | ClientEvent::NamesNotListed
                    | ClientEvent::LargeTransaction
                    | ClientEvent::VersionsSwept
                    | ClientEvent::LoadNotSynced
                    | ClientEvent::SavepointFailed
            )
    }
}
