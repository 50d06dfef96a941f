//! What can go wrong with a backup, and with a restore from one.

use base::Lsn;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Why a backup could not be taken or restored. Every variant names the place and says what to do next.
#[derive(Clone, Debug, Error, PartialEq, Serialize, Deserialize)]
pub enum BackupError {
    /// The target holds something else, perhaps another backup.
    #[error("'{place}' is not empty, it holds '{file}'; give a backup an empty directory")]
    NotEmpty {
        /// The target.
        place: String,
        /// One of the files that it holds.
        file: String,
    },
    /// Another backup of the same database is being written there, or what is left of one that was given up is being removed.
    #[error(
        "another backup is being written to '{place}', or taken back there; wait for its end, or name another directory"
    )]
    InUse {
        /// The target.
        place: String,
    },
    /// The target has no room for more. What was written of the backup is removed.
    #[error("'{place}' has no room for the backup: {detail}; make room there, or name another place, and begin again")]
    TargetFull {
        /// The target.
        place: String,
        /// What did not fit.
        detail: String,
    },
    /// The place is no more where it was, or what was written there is not: its directory was moved away or removed while it was written to,
    /// and perhaps another one is there by now. That is left as it is.
    #[error(
        "'{place}' is not the directory any more that was written to: {detail}; leave it where it is until that has ended, and begin \
         again"
    )]
    Displaced {
        /// The target.
        place: String,
        /// What was found there.
        detail: String,
    },
    /// The archive has no room for more of the log, which is kept meanwhile.
    #[error(
        "'{place}' has no room for the archive of the log: {detail}; make room there: the log is archived then by itself"
    )]
    ArchiveFull {
        /// The archive.
        place: String,
        /// What did not fit.
        detail: String,
    },
    /// The place holds nothing that was a whole backup once: another file, nothing, or one that was cut off.
    #[error("'{place}' holds no whole backup: {detail}; name the directory of a backup that has ended")]
    NotABackup {
        /// The place.
        place: String,
        /// What is missing.
        detail: String,
    },
    /// The backup was taken by a newer release.
    #[error("the backup in '{place}' has format {found}, this release reads up to {supported}; use a newer release")]
    NewerFormat {
        /// The place.
        place: String,
        /// The format found.
        found: u32,
        /// The newest format that this release reads.
        supported: u32,
    },
    /// A file of the backup is not what was written.
    #[error("file '{file}' of the backup in '{place}' is damaged at byte {offset}: {detail}; use another backup")]
    Damaged {
        /// The place.
        place: String,
        /// The file.
        file: String,
        /// Where the damage begins, in bytes.
        offset: u64,
        /// What is wrong.
        detail: String,
    },
    /// Transactions needed the log's space before the backup had copied it. Commits do not wait for backups.
    #[error(
        "the log was needed before the backup in '{place}' had copied it from {position}; give the backup a faster \
         target or a higher rate, or the log a larger size, and begin again"
    )]
    Overtaken {
        /// The target.
        place: String,
        /// What was copied up to.
        #[serde(with = "crate::error::position")]
        position: Lsn,
    },
    /// A backup is to be restored with an archive of the log, and its log was not archived.
    #[error(
        "the backup in '{place}' was taken while its log was not archived: restore it without an archive, or use a backup \
         that was taken since the log is"
    )]
    NotArchived {
        /// The backup.
        place: String,
    },
    /// An archive has nothing of the log that a backup is of.
    #[error(
        "'{archive}' has no log that goes on from the backup in '{place}': {detail}; name the archive of that database"
    )]
    ForeignArchive {
        /// The archive.
        archive: String,
        /// The backup.
        place: String,
        /// What it has.
        detail: String,
    },
    /// A segment is missing that a restore needs.
    #[error(
        "the archive '{archive}' lacks the log from {position} on: there is no segment '{file}'; put it back there, restore to a \
         position before that, or use a backup that was taken behind it"
    )]
    ArchiveGap {
        /// The archive.
        archive: String,
        /// The segment that would go on.
        file: String,
        /// Up to where the archive has the log.
        #[serde(with = "crate::error::position")]
        position: Lsn,
    },
    /// A segment is not what was written.
    #[error(
        "segment '{file}' of the archive '{archive}' is damaged at byte {offset}: {detail}; put a sound copy of it there, restore \
         to a position before {position}, or use a backup that was taken behind it"
    )]
    DamagedSegment {
        /// The archive.
        archive: String,
        /// The segment.
        file: String,
        /// Where the damage begins, in bytes.
        offset: u64,
        /// Which position of the log that is.
        #[serde(with = "crate::error::position")]
        position: Lsn,
        /// What is wrong.
        detail: String,
    },
    /// A restore is to end before the backup does.
    #[error("the backup in '{place}' ends at {end}, {time}, which is after {target}; use an earlier backup")]
    TargetBeforeBackup {
        /// The backup.
        place: String,
        /// Where it ends.
        #[serde(with = "crate::error::position")]
        end: Lsn,
        /// When that was.
        time: String,
        /// Where the restore was to end.
        target: String,
    },
    /// A restore is to end behind the archive.
    #[error(
        "the archive '{archive}' has the log up to {end}, {time}, which is before {target}; name a target up to there, or none \
         for all that it has"
    )]
    TargetBehindArchive {
        /// The archive.
        archive: String,
        /// Where it ends.
        #[serde(with = "crate::error::position")]
        end: Lsn,
        /// When its last commit was made.
        time: String,
        /// Where the restore was to end.
        target: String,
    },
    /// The log behind a backup lacks what a bulk load has written.
    #[error(
        "partition '{partition}' was bulk-loaded at {position}, which the log does not have: take a backup after the load, and \
         use one of those; or restore to a position before it"
    )]
    LoadNotLogged {
        /// The partition.
        partition: String,
        /// Where the load has ended.
        #[serde(with = "crate::error::position")]
        position: Lsn,
    },
    /// A procedure that was called behind a backup would be run again with another catalog than it had.
    #[error(
        "a procedure was called at {call}, and a partition or index was dropped, renamed or indexed at {position}, after which \
         the call cannot be repeated: use a backup that was taken after that, or restore to a position before it"
    )]
    CallBeforeChange {
        /// Where it was called.
        #[serde(with = "crate::error::position")]
        call: Lsn,
        /// Where the catalog changed.
        #[serde(with = "crate::error::position")]
        position: Lsn,
    },
    /// What an increment builds on is not where it was, or is another backup.
    #[error("the backup in '{place}' is an increment of one that is not in '{base}': {detail}; put that back there")]
    BaseMissing {
        /// The increment.
        place: String,
        /// Where its base was.
        base: String,
        /// What is there.
        detail: String,
    },
    /// An increment is to build on a backup that this database has not taken, or whose history is another since it was restored.
    #[error("the backup in '{base}' is none of this database's latest: {detail}; take a full backup")]
    ForeignBase {
        /// The base that was named.
        base: String,
        /// What tells it.
        detail: String,
    },
    /// A restore would write over files that are there.
    #[error("device '{device}' holds '{file}' already; restore into empty directories, or remove the file")]
    Occupied {
        /// The device.
        device: String,
        /// The file.
        file: String,
    },
}
