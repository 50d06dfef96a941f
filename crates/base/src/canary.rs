//! Planted bugs, by which torture shows that it would find such: compiled only with the feature `canary`, planted only by a
//! test, for its own thread.

macro_rules! canaries {
    ($($(#[$documentation:meta])* $name:ident,)+) => {
        /// A bug that can be planted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Canary {
            $($(#[$documentation])* $name,)+
        }

        impl Canary {
            /// Every bug that can be planted.
            pub const ALL: &[Canary] = &[$(Canary::$name,)+];
        }
    };
}

impl Canary {
    /// Whether torture cannot find it: it is in what devices without room refuse, in loads that come to nothing, in compactions,
    /// in pages that cannot be read, in changes of a record that hardly meet, in commits that a reader without locks hardly meets, or in what
    /// follows from how long a read of a page takes.
    pub fn is_beyond_torture(self) -> bool {
        self as usize >= Canary::UnpreparedLog as usize && !self.is_between_nodes()
    }

    /// Whether it is in the protocol between nodes, which torture of clusters runs.
    pub fn is_between_nodes(self) -> bool {
        self as usize >= Canary::UncalledCopies as usize
    }
}

canaries! {
    /// Commits are acknowledged while their log write is still under way.
    CommitBeforeSync,
    /// Pages are written once the log that explains them is written, whether or not it is synced.
    PageBeforeLogSync,
    /// A restart does not undo what was not committed.
    SkippedUndo,
    /// An opening does not lock again what it leaves to be undone behind it.
    UnlockedLoser,
    /// Pages that a power cut may tear are written in place without a copy.
    NoDoubleWrite,
    /// The double-write area does not keep the copy of a page whose write in place has failed.
    DroppedCopy,
    /// A tier's slot may be reused before the write of its page to the page's own device has ended.
    EarlyReuse,
    /// A cached copy stays in use although its page was changed in main memory and written past the cache.
    StaleCopy,
    /// The upper cache keeps its copy of a page that was changed in main memory and written below.
    StaleAbove,
    /// A page that the upper cache had alone is written to its own place, and the cache below keeps an older copy.
    StaleBelow,
    /// A slot of the cache is reused although only it has the latest version of its page.
    UncleanReuse,
    /// The cache's table goes on to state what is in slots that were emptied.
    UnstatedSlot,
    /// A copy is used that is not the version which its slot should hold.
    UncheckedVersion,
    /// A slot is believed whose statement in the cache's table is read after its page was changed.
    LateStatement,
    /// A page comes into main memory without the changes that redo has left to be made then.
    ForgottenRedo,
    /// An opening that misses a cache forgets it before it knows whether the cache has what redo needs.
    ForgottenCache,
    /// A page is written from the cache to its own place while an older version of it is being written there.
    OvertakenClean,
    /// Pages enter the cache although its budget of writes is spent.
    Overspent,
    /// A cache that is changed or turned off is given up with pages that only it has.
    UndrainedCache,
    /// A design of the cache breaks its own promise: clean-write takes what was changed; dual-write, TAC and those by which pages
    /// migrate write it to the cache alone; lazy cleaning and the design by frequency do not clean; the rotating one and FaCE leave
    /// slots out; an exclusive cache keeps what is read.
    BrokenPromise,
    /// A page enters the cache as it was read from its own device although it has been changed meanwhile.
    LateEntry,
    /// A page leaves the cache when it is read although its own device lacks that version.
    LeftDirty,
    /// The log is given up that would make anew what only the cache has.
    UnkeptLog,
    /// The superblock file names a copy of the sets' backup that is not durable yet.
    UnsyncedBackup,
    /// A restart replays values and actions twice.
    RepeatedAction,
    /// A restart replays actions and procedures that its backup holds already.
    IgnoredInclusion,
    /// A restart leaves procedures out.
    SkippedCall,
    /// A range read locks its records and not the gaps between them.
    UnlockedGap,
    /// The range that a range read locks lacks the last record that was read.
    ShortRange,
    /// A record is read by its key without a lock.
    UnlockedRead,
    /// A record is added behind the end up to which a serializable transaction has read.
    PassedEnd,
    /// A transaction at snapshot level changes what others have changed since its moment.
    LostUpdate,
    /// A transaction at snapshot level changes records although it is unknown whether they were changed since its snapshot,
    /// because versions were discarded.
    UncheckedHorizon,
    /// A cursor shows what it had read before its own transaction changed it.
    StaleCursor,
    /// A transaction that rolls back is over, and its error told, before what it has read is durable.
    EarlyRefusal,
    /// A deadlock's victim, or one that a conflict refuses, may go on and commit.
    RevivedVictim,
    /// A snapshot shows what is committed at each read.
    MovingSnapshot,
    /// A restart reads the second copy of a log on two devices alone.
    OneCopyRead,
    /// A restart takes that of two log devices which was lost for the one that was kept.
    LostCopyRead,
    /// Checkpoints give up log that dirty pages and active transactions need.
    EarlyTruncation,
    /// After a failed sync of pages another one is tried, and believed.
    SyncTriedAgain,
    /// A restart reads from the system's cache what a sync of an earlier run has failed to write and marked clean there.
    TrustedCache,
    /// A page is used although a sync of its file has failed while it was being read.
    LateRead,
    /// Clusters of temporary space are taken as they are read.
    UnverifiedCluster,
    /// Commits log whatever they have to log, room or not.
    UnadmittedCommit,
    /// Commits that give up long values log whatever they have to log, room or not.
    UnadmittedFreeing,
    /// Creations of partitions, ends of loads and sweeps log whatever they have to log, room or not.
    UnadmittedCreation,
    /// A committed transaction that frees long values keeps the room in the log that its rollback would have needed.
    KeptRollbackRoom,
    /// A bulk load of a set that fails leaves in memory what it has added.
    HalfLoad,
    /// A rollback that fails is not retried, and the tasks waiting for it are not told.
    AbandonedRollback,
    /// A restart fails at an unreadable sector, though its contents are stored elsewhere or are not needed.
    NoSalvage,
    /// A page that should be in its file and is not there is taken for one that was never written.
    MissingPageNew,
    /// A number of a partition that never came to be is given to the next one.
    ReusedNumber,
    /// A restart redoes changes of partitions that no catalog knows.
    RedoneStranger,
    /// A partition is dropped while transactions use it.
    HastyDrop,
    /// The catalog is written anew over what the superblock names.
    CatalogInPlace,
    /// A restart takes any sound image of a segment, also one that a later sweep has replaced.
    OlderImage,
    /// A scan of a set leaves out the segments that a sweep is writing.
    UnseenSegment,
    /// Sweeps do not write the segments between which a compaction has moved records.
    UnmarkedMove,
    /// A compaction cuts both copies of a set's backup at once, also the one that a restart would load.
    CutBackup,
    /// A restart leaves the sets' backup beginning where the log has no longer anything.
    LostBackupBegin,
    /// A record that changes leaves its old entry in a secondary index of its b-tree.
    KeptEntry,
    /// A restart forgets the secondary indexes of b-trees, and those of sets that came later or are unique.
    ForgottenIndex,
    /// Changes of records pass by a secondary index that is being filled.
    UnseenIndex,
    /// Changes of records of a set pass by a secondary index that is being filled.
    MissedInSet,
    /// Who changes a record of a set looks at its place in a unique index without a lock.
    UnlockedPlace,
    /// A unique index of a set is built although two records have the same contents.
    UncheckedTwice,
    /// A backup leaves out pages that are changed while it copies them.
    BackupPastChanges,
    /// A backup ends its log with the checkpoint that it has begun with, not with what was committed meanwhile.
    ForgottenTail,
    /// A backup does not copy a partition again that was bulk-loaded behind its back.
    UncopiedLoad,
    /// Sweeps write over the copy of the sets' backup that a backup reads, and it does not learn of that.
    UnpinnedCopy,
    /// A segment of the log's archive says that it is whole before its pages are there.
    EarlySegmentHead,
    /// An opening gives up what the log has behind the end of its archive.
    UnkeptForArchive,
    /// A restore goes on past a bulk load that the log does not have.
    UnnoticedLoad,
    /// A file goes on to become longer for a task that does not wait for it any more, and others use it meanwhile.
    AbandonedGrowth,
    /// A creation of a database that fails leaves behind what it has created.
    KeptRemains,
    /// What an operation keeps in the buffer stays there for ever where a file grows for it.
    KeptPins,
    /// The pages of a deleted long value are never freed where that waits for room in the log.
    EndlessFreeing,
    /// A database that goes leaves its machine running, with what is under way on its files.
    RunningMachine,
    /// A run goes on beyond its length.
    Overrun,
    /// A page stays in an exclusive cache when it is read, and takes the place of another one.
    HeldTwice,
    /// An opening believes the unit of untorn writes that a file system offers, though no write asks for it.
    BelievedOffer,
    /// A moment that is still to come can be read.
    ReadFuture,
    /// After an opening a set is taken to have been at earlier moments what it is.
    PresentForPast,
    /// The catalog has a fixed size.
    FixedCatalog,
    /// A check takes what it has found in a tree that changed meanwhile for damage.
    HastyCheck,
    /// A waker that was cloned, as other runtimes' futures and combinators do, wakes no task.
    DeafWaker,
    /// A bulk load whose sync fails says so to its caller alone, and the file goes on being used.
    ForgivenLoad,
    /// A restart passes over the changes of a page that it cannot read.
    PassedOver,
    /// A change of several that is given up halfway leaves its transaction free to commit.
    ForgottenHalf,
    /// A database waits for a device that does not answer for as long as it takes, whatever it is told.
    EndlessSilence,
    /// A thread that was woken with its answer wakes no other.
    KeptWake,
    /// Who wakes a thread with its answer takes one that has left by itself for woken.
    BlindWake,
    /// The log is written behind the end of what is there of its file, whether there is room for that or not.
    UnpreparedLog,
    /// A file becomes shorter while a restart would look for what was behind its end.
    EarlyShortening,
    /// Pages that were cut off the end of a file begin with their first sequence number when they are used anew.
    ForgottenFloor,
    /// Pages of a direct partition are cut off its file that were changed while the blank ones at its end were looked for.
    CutChanges,
    /// A bulk load comes to nothing, and the log goes on saying that it has ended.
    UnsaidUndoing,
    /// A checkpoint lets redo begin behind changes that are left to be made of a page which cannot be read.
    LeftBehind,
    /// Scans read pages from their own devices of which redo is left, whatever the cache's table says of them.
    PassedRedo,
    /// An opening goes on from copies in a cache that a power cut may take.
    UnsyncedSlots,
    /// A page whose redo is made late counts as changed since redo of the opening began, whose log may have been given up.
    LongGoneRedo,
    /// A durable write counts as done although another one of its file has failed while it was under way.
    BelievedBeside,
    /// What was read where there are no locks is told before it is durable.
    UnlockedSight,
    /// A reader takes a change that was left out for covered by a version of a later one of the same transaction.
    LateCover,
    /// A page server serves while its database goes on undoing what an opening has left.
    ServedLoser,
    /// A page server forgets the copies of a client that is gone though commits of it are under way.
    ForgottenReads,
    /// A page server grants write locks and does not call back the copies of others.
    UncalledCopies,
    /// A page server takes a late message about an earlier copy for one about the present copy.
    UnnumberedCopies,
    /// A client does not say that transactions use a copy which is called back.
    SilentUse,
    /// A page server releases the locks of a transaction whose commit is not done.
    EarlyRelease,
    /// A client goes on using a copy that it was called back while its page was on its way.
    KeptArrival,
    /// A client counts its lease from the server's answer on.
    LeaseFromAnswer,
    /// A page server counts a client's lease as if no clock gained on another one.
    MarginlessTerm,
    /// A client uses its copies however long it has not heard of the server.
    EndlessLease,
    /// A client whose lease is over keeps its copies when it joins again.
    KeptCopies,
    /// A server that is started again grants write locks while clients have leases of the one before.
    HastyGrant,
    /// A client takes a page of another one that was sent to the client that was at its address before.
    MisaddressedPage,
    /// A client takes a page of another one, late, though it has had the page meanwhile.
    OvertakenPage,
    /// A page server does what a client asks for that it has given up.
    HeededGhost,
    /// A page server forgets, when a client joins again, that a copy which the client keeps is in the way of a write.
    ForgottenCallback,
    /// A page server forgets a copy whose page it cannot read, though another client may have sent the page.
    ForgottenCopy,
    /// A node forgets the new entry of a record that has had another one in an index.
    ForgottenEntry,
    /// A page server takes a page back that its client was allowed to write after it had been asked back.
    StaleReturn,
    /// A page server takes copies over from an earlier session of a client that has no grant for them.
    UngrantedCopies,
    /// A page server gives a client up whose grants have changed, though it has a lease.
    HastyRevocation,
    /// A page server refuses commits now and then whose pages follow from its own.
    BaselessRefusal,
    /// Pages that another node has changed are taken to be described by the log from their commit record on.
    ShipmentFromEnd,
    /// Of a transaction of another node that sends no pages the last change is logged, and not made.
    UnredoneShipment,
    /// What another node says takes an update back is believed.
    BelievedUndo,
    /// The records of a transaction of another node are logged one by one.
    ScatteredShipment,
    /// A page server counts a client's lease from the beginning of its session, however often it hears the client.
    UnrenewedTerm,
    /// A page server says of a commit under which its log has failed that nothing of it is committed.
    DecidedFailure,
    /// A node lets two of its transactions change a page at a time.
    SharedChanges,
    /// A node that rolls a transaction back drops pages that have what others have committed and the server has not answered.
    UndoneTogether,
    /// A node does not say which of its transactions wait for others of it.
    UntoldWaits,
    /// A node acknowledges a commit that the server has not answered.
    UnansweredCommits,
    /// A node takes what it has locked for a transaction for what that has seen, and not as committed by one that is not answered.
    SeenUnnoted,
    /// What another node commits in sets is changed and not logged.
    UnloggedSets,
    /// A page server sends a record of a set that is only to be read, and does not enter its lock.
    UnlockedSetRead,
    /// A page server sends records of a part of a set and does not enter that they were read.
    UnlockedSetRange,
    /// A transaction of a node takes nothing back when it is rolled back to a savepoint.
    IgnoredSavepoint,
    /// A page server has a last copy passed on and does not enter the one that gets it.
    UnenteredReceiver,
    /// A page server has a last copy passed on however often that was done in vain.
    EndlessChances,
    /// A page server takes what a page is for what it was at the moment of a snapshot.
    PresentForMoment,
    /// A page server takes what a set is for what it was at the moment of a snapshot.
    PresentSetForMoment,
    /// A node takes copies that have come since for what a snapshot sees.
    YoungCopies,
    /// A page server does not look whether what waits for a page may have it when one that has waited before it does so no longer.
    ForgottenWaiter,
    /// A page server sends a record and does not enter its lock.
    UnlockedRecord,
    /// A node whose locks fall to records says only which ones it has changed.
    UntoldRecord,
    /// A node gives its server up when it has sought it for half as long as it was told to.
    ShortPatience,
    /// A page server that is closed tells none of its nodes.
    SilentClose,
    /// A database does with its partitions what it likes while nodes use it.
    DroppedBesideNodes,
    /// A database changes itself while nodes have leases whose server has ended.
    ForgottenLeases,
    /// A node does not note which records of a leaf a transaction has read, or has not found there.
    UnnotedKey,
}

#[cfg(feature = "canary")]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Canary>> = const { std::cell::Cell::new(None) };
}

/// Plants a bug in every database of this thread, or with `None` takes it out again.
#[cfg(feature = "canary")]
pub fn plant(canary: Option<Canary>) {
    PLANTED.set(canary);
}

/// Whether this bug is planted in this thread.
#[cfg(feature = "canary")]
pub fn is_planted(canary: Canary) -> bool {
    PLANTED.get() == Some(canary)
}

#[cfg(not(feature = "canary"))]
/// Whether this bug is planted in this thread: never in this build.
pub const fn is_planted(_: Canary) -> bool {
    false
}
