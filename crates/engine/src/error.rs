//! What can go wrong.

mod backup;
mod judging;
mod moment;
mod need;
pub(crate) mod position;

pub use backup::BackupError;
pub use moment::AskedMoment;
pub use need::Need;

use base::{Lsn, PageId};
use driver::{Fault, FaultKind};
use thiserror::Error;

/// The result of an engine call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Transactions in a message.
fn named(transactions: &[base::TransactionId]) -> String {
    let numbers: Vec<String> = transactions.iter().map(|id| format!("transaction {}", id.0)).collect();
    if numbers.is_empty() { "others".to_owned() } else { numbers.join(", ") }
}

/// Why an engine call failed. Every variant names what it is about and says what to do next.
///
/// ```
/// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
/// # use ground::*;
/// # with_database(async |database| {
/// # let tree = database.create_partition(PartitionSpec::b_tree("notes")).await?;
/// let result = database.transaction(async |tx| tx.append(tree, b"milk").await).await;
/// match result.unwrap_err() {
///     error @ Error::WrongOrganization { .. } => assert_eq!(
///         error.to_string(),
///         "partition 'notes' is organized as b-tree: records are added to it by key or number"
///     ),
///     other => return Err(other),
/// }
/// # Ok(())
/// # });
/// ```
#[derive(Clone, Debug, Error, PartialEq)]
pub enum Error {
    /// The driver could not do what was asked.
    #[error("{0}")]
    Input(#[from] Fault),
    /// A backup could not be taken or restored.
    #[error(transparent)]
    Backup(#[from] BackupError),
    /// What another node has sent cannot be committed or kept.
    #[error("what another node has sent is refused: {0}; its transaction is rolled back, run it again")]
    Shipment(String),
    /// A server has refused to commit a node's transaction. Nothing of it was logged: it is as if it had been rolled back.
    #[error("the server commits nothing of the transaction: {0}")]
    CommitRefused(String),
    /// A page's bytes are not what was written.
    #[error("{page} in file '{file}' is damaged: {detail}; restore the file from a backup")]
    DamagedPage {
        /// The page.
        page: PageId,
        /// The file that holds it.
        file: String,
        /// What is wrong with it.
        detail: String,
    },
    /// A segment of the sets' backup is not what was written.
    #[error("segment {segment} in file '{file}' is damaged: {detail}; restore the file from a copy")]
    DamagedBackup {
        /// The file of the sets' backup.
        file: String,
        /// The segment's position in it.
        segment: u32,
        /// What is wrong.
        detail: String,
    },
    /// A copy of a set's backup is not the one that the last sweep has left.
    #[error("file '{file}' has an older image of a segment: a write of it was lost; restore the file from a copy")]
    OlderBackup {
        /// The file of the sets' backup.
        file: String,
    },
    /// The log is damaged before its tail: records that were durable are unreadable.
    #[error("the log is damaged at {lsn} (file '{file}'), before its end: {detail}; restore the log from a copy")]
    DamagedLog {
        /// The first unreadable position.
        lsn: Lsn,
        /// The file that holds it.
        file: String,
        /// What is wrong with it.
        detail: String,
    },
    /// The directory holds something else, or nothing.
    #[error("'{path}' is not an Entresol database: {detail}")]
    NotADatabase {
        /// The directory.
        path: String,
        /// What is missing or foreign.
        detail: String,
    },
    /// The database's creation was cut off before anything was stated in its superblock file, so it never held anything.
    #[error("the creation of the database in '{path}' was cut off; create it again, or empty the directory")]
    Unfinished {
        /// The directory.
        path: String,
    },
    /// The database was written by a newer release.
    #[error("'{path}' has format {found}; this release reads up to format {supported}: open it with a newer release")]
    NewerFormat {
        /// The directory.
        path: String,
        /// The format found.
        found: u32,
        /// The newest format that this release reads.
        supported: u32,
    },
    /// The transaction was chosen as a deadlock's victim and has to be rolled back; it may be tried again.
    #[error("the transaction was rolled back to end a deadlock; run it again")]
    Deadlock,
    /// The transaction touched records on both sides of a black/white sweep in progress and has to be rolled back; it may be
    /// tried again (Garcia-Molina and Salem, System M, 1988, section 3.2).
    #[error(
        "the transaction was rolled back because a sweep over set '{0}' has reached a part of its records; run it again"
    )]
    MixedColours(String),
    /// The transaction, at snapshot level, would have changed a record that was changed after its moment, and has to be rolled
    /// back; it may be tried again, on a new snapshot.
    #[error("a record of '{0}' was changed after the transaction's snapshot; run it again")]
    WriteConflict(String),
    /// A call of the transaction has failed before with a conflict ([`Error::is_conflict`]), so nothing more can be done in it
    /// and nothing of it is committed; it has to be rolled back and may be tried again.
    #[error("the transaction was aborted before: {cause}")]
    Aborted {
        /// What it was told then.
        cause: Box<Error>,
    },
    /// What a snapshot sees is not there any more, or a moment that was asked for: versions took more room than they have, or it is too long
    /// ago.
    #[error("{}", moment::too_old(*.oldest, .asked.as_deref()))]
    SnapshotTooOld {
        /// The oldest moment that can be read.
        oldest: Lsn,
        /// What was asked for, if a snapshot was to begin.
        asked: Option<Box<AskedMoment>>,
    },
    /// A snapshot was asked for of a moment that is still to come.
    #[error("{moment} is still to come, it is {now} now; read as of now or of a moment before")]
    FutureMoment {
        /// The moment that was asked for: a time, or a position of the log.
        moment: String,
        /// The present time, or the end of the log.
        now: String,
    },
    /// Of a change that consists of several, as that of a record with secondary indexes, only a part was made: its future was dropped
    /// before its end, or at a node it has failed. So nothing of the transaction can be committed.
    #[error(
        "a change of a record was given up halfway or has failed there, so its transaction has to be rolled back; await what changes \
         records to its end"
    )]
    Abandoned,
    /// The log could not be written; nothing commits until the database is opened again.
    #[error("the log failed ({0}); no transaction commits until the database is opened again")]
    LogFailed(String),
    /// The database was closed, or its thread has ended, before there was an answer.
    #[error("the database is closed; what was asked of it and not answered shows when it is opened again")]
    Closed,
    /// A node of the database has ended before it answered: its thread has panicked, or was closed. Others go on.
    #[error(
        "node {node} of the database has ended; what was asked of it and not answered is to be looked up, others go on"
    )]
    NodeEnded {
        /// The node's number, the first of them 0.
        node: u32,
    },
    /// One of the two copies of the log is missing, and the settings do not allow opening without it, or that would not be
    /// safe.
    #[error(
        "the log's copy on device '{device}' is missing: {detail}; bring it back, or if every commit is on the other device, \
         too, say without = \"{device}\" in [log]"
    )]
    LogCopyMissing {
        /// The device.
        device: String,
        /// What is wrong there.
        detail: String,
    },
    /// The log's file is not all there yet, and its device has no room for the next part of it. What was begun can end.
    #[error(
        "the log's file '{file}' cannot grow from {size} to {wanted} bytes: {fault}; nothing is lost: make room on its device \
         and try again"
    )]
    LogNotGrown {
        /// The file.
        file: String,
        /// How many bytes of it are there.
        size: u64,
        /// How many were to be.
        wanted: u64,
        /// What the device said.
        fault: driver::Fault,
    },
    /// A transaction needs more log than there is.
    #[error(
        "the transaction's records and its rollback need {needed} bytes of a log of {capacity} bytes, which keeps some for \
         others; commit more often, or give [log] a larger size and open the database again"
    )]
    LogFull {
        /// What the transaction needs at least, in bytes.
        needed: u64,
        /// The size of the log's file in bytes.
        capacity: u64,
    },
    /// Others held the room in the log that a transaction needs, at its commit or, behind its own first record, in its midst,
    /// and may wait for its locks; it has to be rolled back and may be tried again: begun at its age ([`crate::Database::begin_aged`]), it gets its room first.
    #[error("the log had no room for the {needed} bytes that are needed beside what others hold of it; run it again")]
    LogCrowded {
        /// What it takes of the log, in bytes.
        needed: u64,
    },
    /// A database is to be served whose log has no room yet for freeing the pages of long values that were deleted: nodes would not learn
    /// of that.
    #[error(
        "the log has no room yet to free the pages of values that were deleted; let the database run alone until it has, \
         or give [log] a larger size, and serve it then"
    )]
    StillFreeing,
    /// A database is to be served, and transactions or snapshots of its own have not ended for ten seconds.
    #[error("{count} transactions or snapshots of the database's own have not ended; end them, and serve it then")]
    StillRunning {
        /// How many.
        count: usize,
    },
    /// A transaction was to begin in a database that nodes use, whose copies of pages it would not ask for.
    #[error("nodes use the database, which runs no transactions of its own meanwhile; run it at a node")]
    ServesNodes,
    /// What the opening has left of unfinished transactions is not undone yet, and what was asked for cannot be done beside it.
    #[error(
        "transactions that had not ended when the database was last closed or stopped are still being undone; let it run until \
         they are, then try again"
    )]
    StillUndoing,
    /// The log is full, and what it could give up cannot be archived.
    #[error(
        "the log is full, and what it could give up could not be archived: {cause}; make room in the archive or mend its device: \
         it is tried again until it succeeds, and transactions go on then"
    )]
    LogNotArchived {
        /// Why it could not be archived; names the place.
        cause: Box<Error>,
    },
    /// The log is full, and the checkpoint that was to make room in it failed.
    #[error(
        "the log is full, and the checkpoint that was to make room in it failed: {cause}; mend that device or make room on \
         it, then open the database again: nothing that was committed is lost"
    )]
    LogNotRelieved {
        /// Why the checkpoint failed; names the file.
        cause: Box<Error>,
    },
    /// A transaction that is being rolled back, or frees the long values that it deleted, holds the lock, or the log, that is
    /// waited for, and fails at that.
    #[error(
        "the end of another transaction holds what this one waits for, and fails: {cause}; mend that device: it is tried \
         again until it succeeds, and the next opening completes it"
    )]
    RollbackStalled {
        /// Why it failed; names the file.
        cause: Box<Error>,
    },
    /// No partition of this name exists.
    #[error("there is no partition '{0}'; create it or correct the name")]
    NoPartition(String),
    /// A partition cannot be dropped, truncated or renamed while transactions, snapshots, a change of its indexes or others use
    /// it that began before, nor a set while others keep sets from being swept.
    #[error(
        "partition '{0}' stays as it is while others use it, or keep sets from being swept; end their transactions, \
         snapshots and loads, then try again"
    )]
    PartitionInUse(String),
    /// The call does not suit the partition's organization.
    #[error("partition '{partition}' is organized as {organization}: {detail}")]
    WrongOrganization {
        /// The partition's name.
        partition: String,
        /// Its organization.
        organization: &'static str,
        /// What does suit it.
        detail: String,
    },
    /// A transaction has changed so much in sets, or its call has parameters so long, that no log record can hold it.
    #[error(
        "the transaction's commit record of {found} bytes is over the limit of {limit} bytes; commit more often, or load in \
         bulk"
    )]
    RecordTooLong {
        /// Bytes of the record at most.
        found: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// A partition has all the pages that it can have, and none of them has room.
    #[error(
        "the partition in file '{file}' has all the {pages} pages that it can have; delete records of it, or create another \
         one, in a database with larger pages if need be"
    )]
    PartitionFull {
        /// The file that holds it.
        file: String,
        /// How many pages it has.
        pages: u32,
    },
    /// A key or value does not fit. [`PartitionSpec::b_tree`](crate::PartitionSpec::b_tree) and its neighbours say what does.
    #[error("{what} of {found} bytes is over the limit of {limit} bytes in partition '{partition}'")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// Its size in bytes.
        found: usize,
        /// The limit in bytes.
        limit: usize,
        /// The partition's name.
        partition: String,
    },
    /// An insert met a record of the same key.
    #[error("partition '{0}' already holds a record with this key; put takes its place, or use another key")]
    Duplicate(String),
    /// The record to be changed does not exist.
    #[error("partition '{0}' holds no record with this key; insert it, or correct the key")]
    NoRecord(String),
    /// A record or a field does not suit the type of the partition's records, or a record has the contents of another one in a unique index.
    #[error("partition '{partition}': {error}")]
    Field {
        /// The partition's name.
        partition: String,
        /// What does not suit.
        error: structures::set::FieldError,
    },
    /// A setting is outside its range, or does not go with others.
    #[error("{0}")]
    Setting(String),
    /// An argument of a call, or a procedure's parameters, do not suit it.
    #[error("{0}")]
    Argument(String),
    /// What the database holds is not what the caller needs.
    #[error("{0}")]
    Unsuitable(String),
    /// A read returned something other than an earlier read of the same state.
    #[error("{0}")]
    Inconsistent(String),
    /// No device of this name exists.
    #[error("there is no device '{0}'; describe it in a section [device.{0}], or correct the name")]
    NoDevice(String),
    /// A part of a database is on a device of a name that none has, or is to be there.
    #[error(
        "{part} is on device '{device}' ({key}), and there is none of that name; describe it in a section [device.{device}], or correct the name"
    )]
    MissingDevice {
        /// What is there.
        part: String,
        /// The key of the configuration that says where it is.
        key: String,
        /// The name.
        device: String,
    },
    /// A partition of this name exists.
    #[error("there is a partition '{0}' already; use another name, or ensure it where it may be there")]
    PartitionExists(String),
    /// A partition of this name exists and is another one than was asked for.
    #[error("partition '{name}' exists, and {difference}; use another name, or ask for what it is")]
    PartitionDiffers {
        /// Its name.
        name: String,
        /// In what it differs.
        difference: String,
    },
    /// The database has given all numbers that partitions can have.
    #[error("a database has at most 65,536 partitions in its life, those counted that were dropped")]
    PartitionLimit,
    /// A bulk load is for empty partitions only.
    #[error("partition '{0}' is not empty; load into a new one")]
    NotEmpty(String),
    /// No procedure of this name is registered.
    #[error("there is no procedure '{name}'; registered are: {registered}")]
    NoProcedure {
        /// The name.
        name: String,
        /// The names that are registered.
        registered: String,
    },
    /// A procedure that is replayed does what it did not do when it was logged.
    #[error("{0}")]
    ReplayDiverged(&'static str),
    /// A tier that survives power cuts is gone although it may hold the only copy of something.
    #[error(
        "the {tier} on device '{device}' is gone: {detail}. It may hold what is nowhere else; bring it back, or restore \
         the database from a backup"
    )]
    TierMissing {
        /// Which tier.
        tier: &'static str,
        /// The device that held it.
        device: String,
        /// What is wrong with it.
        detail: String,
    },
    /// A tier's file is another one's: of another database, or of another time of this one.
    #[error("{detail}")]
    ForeignTier {
        /// The tier's device.
        device: String,
        /// The identity of the database that has made the file; `None` if that is this one, or if an earlier release has made it.
        database: Option<u64>,
        /// Whether this database has a tier of its own there, whose place the file has taken; otherwise it was to make one.
        is_wanted: bool,
        /// Which file it is, whose, and what to do.
        detail: String,
    },
    /// The cache cannot be changed now: what is under way in it, or on its way from it to the pages' own devices, does not end.
    #[error("the cache was not changed: what is under way in it does not end; its device or one of its pages may hang")]
    CacheBusy,
    /// Temporary space has no room for what a sort or a join has to put there.
    #[error(
        "temporary space on device '{device}' is full with {}: {advice} give the operation more memory, or run fewer at once",
        base::units::format_size(*.bytes)
    )]
    TempFull {
        /// The device that holds it.
        device: String,
        /// How much of it there is, in bytes.
        bytes: u64,
        /// Why there is no more, and what helps.
        advice: &'static str,
    },
    /// A cluster of temporary space is not what was written. No lasting data was in it: the operation may be repeated.
    #[error(
        "the cluster at byte {offset} of file '{file}' is damaged: {detail}; run the operation again on another device"
    )]
    DamagedTemp {
        /// The file of temporary space.
        file: String,
        /// Where the cluster begins, in bytes.
        offset: u64,
        /// What is wrong with it.
        detail: String,
    },
    /// A sort or a join met a row that is too long for its memory.
    #[error("a row of {found} bytes is over the limit of {limit} bytes: give the operation four times as much memory")]
    RowTooLong {
        /// Bytes of the row's key and value.
        found: usize,
        /// The limit in bytes: about a quarter of the memory.
        limit: usize,
    },
    /// All frames of the buffer are pinned or being read.
    #[error("the buffer of {frames} frames is too small for what runs at once; enlarge it or admit fewer transactions")]
    BufferExhausted {
        /// The number of frames.
        frames: usize,
    },
    /// A procedure in the log could not be run again; what was committed is in the log until it can.
    #[error(
        "the log has procedure '{procedure}' at {lsn}, which cannot be run again: {detail}; open the database with the \
         procedure as it was when it was logged: nothing is lost"
    )]
    NotRepeated {
        /// Its name.
        procedure: String,
        /// Where its commit record begins.
        lsn: Lsn,
        /// What is wrong.
        detail: String,
    },
    /// The caller asked for the rollback.
    #[error("rolled back by the caller: {0}")]
    RolledBack(String),
    /// A request's own code panicked: a procedure, a closure that a handle was given, or a task that one of these has spawned and joined. Its
    /// transactions are rolled back; the database goes on.
    #[error("{what} panicked: {message}; its transactions are rolled back, mend its code")]
    Panicked {
        /// The procedure's name, or where the closure is.
        what: String,
        /// What the panic says.
        message: String,
    },
    /// The engine's own thread was to wait for an answer that only it can give, or a node's for one of another node of the same database.
    #[error("an engine's thread cannot wait for its own answer, nor for another node's: await it, or ask from outside")]
    OwnThread,
    /// A lock was waited for longer than the limit of the configuration or of the transaction. What the call was to do was
    /// not done; the transaction itself is sound.
    #[error(
        "{resource} was waited for {}, which {} held; run the transaction again, or allow more in [locks] wait_at_most",
        base::units::format_duration_ns(*.waited_ns as f64), named(.holders)
    )]
    LockTimeout {
        /// What was waited for: a record, a range that was read, a page or all of a partition.
        resource: String,
        /// The transactions in its way.
        holders: Vec<base::TransactionId>,
        /// How long it was waited for, in nanoseconds.
        waited_ns: u64,
    },
    /// A transaction was to wait for a lock that another one of its own task holds, or one of a task that awaits its answer, as that of a
    /// handle's call is awaited, and these for nothing else: for ever. What the call was to do was not done; the transaction itself is sound.
    #[error(
        "{resource} is held by {} of the same task, or one that awaits this, which would wait for itself; end that one before, \
         or do both in one",
        named(.holders)
    )]
    OwnLock {
        /// What was to be waited for.
        resource: String,
        /// The transactions in its way.
        holders: Vec<base::TransactionId>,
    },
    /// A transaction was to wait for room in the log, all of which is kept for others that wait for the same task, and the task for
    /// nothing else: for ever. It has not begun, or was rolled back.
    #[error(
        "the log is full of what {} keeps, and the same task is to end that one and waits itself for room; end it before, do both \
         in one, or enlarge [log] size",
        named(.holders)
    )]
    OwnLog {
        /// The transactions that keep the log.
        holders: Vec<base::TransactionId>,
    },
    /// A checkpoint was to wait for the end of a transaction that has changed sets, and the task of that for the checkpoint: for ever. It
    /// is taken when the transaction has ended; the transaction itself is sound.
    #[error(
        "sets are swept black/white, so a checkpoint waits for the end of {}, which the same task is to end; end it before, or \
         take the checkpoint in another task",
        named(.holders)
    )]
    OwnCheckpoint {
        /// The transactions in its way.
        holders: Vec<base::TransactionId>,
    },
    /// The database is closed, and transactions have not ended that its checkpoint waits for. What was committed is safe, and the next opening
    /// takes back what was not.
    #[error(
        "the database is closed, and {} has not ended, for which a checkpoint of sets that are swept black/white waits: end it before",
        named(.holders)
    )]
    Unended {
        /// The transactions in its way.
        holders: Vec<base::TransactionId>,
    },
    /// A snapshot of a node was to begin while as many as it may have are open, and none of them has ended for as long as a lock would
    /// have been waited for.
    #[error("{level} snapshots of this node are open, as many as may be; end one before, or read more in each")]
    TooManySnapshots {
        /// How many may be open.
        level: usize,
    },
    /// A transaction was to begin while as many as may run at once are active, each of which waits for its own task to go on
    /// that waits for this to begin, or for the answer of one that does: for ever.
    #[error(
        "{level} transactions are active, as many as mpl allows, and their tasks wait to begin another one; end one before, \
         or raise mpl"
    )]
    TooManyTransactions {
        /// How many may run at once.
        level: usize,
    },
}

impl Error {
    /// The same as what a driver says.
    pub(crate) fn into_fault(self) -> Fault {
        match self {
            Error::Input(fault) => fault,
            error => Fault::new(FaultKind::Device, error.to_string()),
        }
    }
}
