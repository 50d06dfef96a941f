//! The engine's step at which a fault was injected.

use crate::SeedKind;
use serde::Serialize;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum FaultKind {
    /// The power goes: writes that are not durable are kept, lost or torn.
    PowerCut,
    /// The program is killed: what was written stays, durable or not.
    Kill,
    /// An operation fails.
    Error,
    /// A write, a creation or a resize finds no room.
    NoSpace,
    /// A sync fails and what it was to make durable is gone; the next one succeeds.
    LostSync,
    /// A device is slow.
    Slow,
    /// A device answers nothing for a while, or ever.
    Hung,
    /// An operation happens late, as one whose thread hangs, and cannot be given up.
    Late,
    /// The clock jumps ahead.
    Jump,
    /// A bit flips as it is written.
    Flip,
    /// A sector that was written cannot be read until it is written again.
    Unreadable,
    /// A write is acknowledged and never happens.
    LostWrite,
    /// A write is acknowledged and lands elsewhere in its file.
    Misdirected,
    /// A read is given what was there before the latest write.
    StaleRead,
    /// A bit flips while nothing runs.
    Decay,
    /// A sector becomes unreadable while nothing runs.
    Rot,
    /// A page becomes blank while nothing runs: a tool that frees what is unused has taken it for that.
    Hole,
}

impl FaultKind {
    /// The kinds that interrupt the engine or refuse it something.
    pub const DISTURBANCES: [FaultKind; 9] = [
        FaultKind::PowerCut,
        FaultKind::Kill,
        FaultKind::Error,
        FaultKind::NoSpace,
        FaultKind::LostSync,
        FaultKind::Slow,
        FaultKind::Hung,
        FaultKind::Late,
        FaultKind::Jump,
    ];
    /// The kinds after which a medium holds or returns something other than what was written.
    pub const DAMAGE: [FaultKind; 8] = [
        FaultKind::Flip,
        FaultKind::Unreadable,
        FaultKind::LostWrite,
        FaultKind::Misdirected,
        FaultKind::StaleRead,
        FaultKind::Decay,
        FaultKind::Rot,
        FaultKind::Hole,
    ];

    /// Every kind.
    pub fn all() -> impl Iterator<Item = FaultKind> {
        FaultKind::DISTURBANCES.into_iter().chain(FaultKind::DAMAGE)
    }

    /// The kind in a few words.
    pub fn name(self) -> &'static str {
        match self {
            FaultKind::PowerCut => "power cut",
            FaultKind::Kill => "kill",
            FaultKind::Error => "error",
            FaultKind::NoSpace => "no space",
            FaultKind::LostSync => "lost sync",
            FaultKind::Slow => "slow",
            FaultKind::Hung => "hung",
            FaultKind::Late => "late",
            FaultKind::Jump => "jump",
            FaultKind::Flip => "flip",
            FaultKind::Unreadable => "unreadable",
            FaultKind::LostWrite => "lost write",
            FaultKind::Misdirected => "misdirected",
            FaultKind::StaleRead => "stale read",
            FaultKind::Decay => "decay",
            FaultKind::Rot => "rot",
            FaultKind::Hole => "hole",
        }
    }

    /// Whether the medium answers as if nothing were wrong.
    pub fn is_silent(self) -> bool {
        matches!(self, FaultKind::LostWrite | FaultKind::Misdirected | FaultKind::StaleRead)
    }
}

/// A step of the engine, recognized by the file, the operation and the phase of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Step {
    /// Any operation while the database is created.
    Create,
    /// Files are opened or removed.
    Open,
    /// The superblock file is read and made durable.
    SuperblockRead,
    /// A checkpoint, or a new partition, is stored in the superblock file.
    SuperblockWrite,
    /// The catalog is written anew, at another place of the superblock file.
    CatalogAnew,
    /// The log is read.
    LogScan,
    /// The first log page is written while a database is being opened: redo is over, and there is something to undo.
    LogOpening,
    /// Log pages are written.
    LogWrite,
    /// The log is made durable.
    LogSync,
    /// The double-write area is read.
    CopiesRead,
    /// Pages are staged in the double-write area.
    Staging,
    /// A page is read before redo is over.
    RedoRead,
    /// A page is written before redo is over, or at the checkpoint after it if nothing was undone.
    RedoWrite,
    /// A page is read while a restart takes back what was not committed.
    UndoRead,
    /// A page is written in that time, that of the checkpoint at its end included.
    UndoWrite,
    /// A page is read in normal operation.
    PageRead,
    /// A page is written in place in normal operation.
    PageWrite,
    /// Tiers of an earlier opening are read, and what they hold is written to its own devices.
    TierScan,
    /// A page is read from a tier.
    TierRead,
    /// A page is written to a tier.
    TierWrite,
    /// Log pages are written to the log's write buffer.
    LogBuffer,
    /// Segments of memory-resident sets are loaded from their backup.
    SegmentRead,
    /// A sweep writes a segment to the backup.
    SegmentWrite,
    /// A sweep makes a copy of the backup durable.
    SegmentSync,
    /// A sort or a join writes what its memory does not hold.
    TempWrite,
    /// A sort or a join reads it back.
    TempRead,
    /// Pages are made durable.
    DataSync,
    /// A file gets its length, or a shorter one.
    Resize,
    /// A partition's file becomes longer while transactions run.
    DataGrowth,
    /// The log's file grows, or is made anew.
    LogGrowth,
    /// Old versions are read back from the undo space.
    UndoSpaceRead,
    /// Old versions leave memory for the undo space.
    UndoSpaceWrite,
    /// Any operation in the place of a backup that is being taken of the running database, or on the list of those that were taken.
    OnlineBackup,
    /// Any operation in the archive of the log.
    LogArchive,
    /// Any operation while a database is made from a backup.
    Restore,
    /// Frames are allocated.
    Memory,
}

impl Step {
    /// Every step.
    pub const ALL: [Step; 36] = [
        Step::Create,
        Step::Open,
        Step::SuperblockRead,
        Step::SuperblockWrite,
        Step::CatalogAnew,
        Step::LogScan,
        Step::LogOpening,
        Step::LogWrite,
        Step::LogSync,
        Step::CopiesRead,
        Step::Staging,
        Step::RedoRead,
        Step::RedoWrite,
        Step::UndoRead,
        Step::UndoWrite,
        Step::PageRead,
        Step::PageWrite,
        Step::TierScan,
        Step::TierRead,
        Step::TierWrite,
        Step::LogBuffer,
        Step::SegmentRead,
        Step::SegmentWrite,
        Step::SegmentSync,
        Step::TempWrite,
        Step::TempRead,
        Step::DataSync,
        Step::Resize,
        Step::DataGrowth,
        Step::LogGrowth,
        Step::UndoSpaceRead,
        Step::UndoSpaceWrite,
        Step::OnlineBackup,
        Step::LogArchive,
        Step::Restore,
        Step::Memory,
    ];

    /// The step in a few words.
    pub fn name(self) -> &'static str {
        match self {
            Step::Create => "create",
            Step::Open => "open files",
            Step::SuperblockRead => "superblock read",
            Step::SuperblockWrite => "superblock write",
            Step::CatalogAnew => "catalog anew",
            Step::LogScan => "log scan",
            Step::LogOpening => "log opening",
            Step::LogWrite => "log write",
            Step::LogSync => "log sync",
            Step::CopiesRead => "double-write read",
            Step::Staging => "double-write",
            Step::RedoRead => "redo read",
            Step::RedoWrite => "redo write",
            Step::UndoRead => "undo read",
            Step::UndoWrite => "undo write",
            Step::PageRead => "read miss",
            Step::PageWrite => "page write",
            Step::TierScan => "tier scan",
            Step::TierRead => "tier read",
            Step::TierWrite => "tier write",
            Step::LogBuffer => "log to buffer",
            Step::SegmentRead => "segment read",
            Step::SegmentWrite => "segment write",
            Step::SegmentSync => "backup sync",
            Step::TempWrite => "temp write",
            Step::TempRead => "temp read",
            Step::DataSync => "data sync",
            Step::Resize => "resize",
            Step::DataGrowth => "data growth",
            Step::LogGrowth => "log growth",
            Step::UndoSpaceRead => "undo space read",
            Step::UndoSpaceWrite => "undo space write",
            Step::OnlineBackup => "online backup",
            Step::LogArchive => "log archive",
            Step::Restore => "restore",
            Step::Memory => "memory",
        }
    }

    /// Whether the step writes what a flipped bit would damage detectably. The log's last pages are no such place: a page
    /// that no later one vouches for may be missing after any power cut.
    pub fn flips(self) -> bool {
        self.writes_pages()
            || matches!(
                self,
                Step::SuperblockWrite | Step::Staging | Step::SegmentWrite | Step::UndoSpaceWrite | Step::TempWrite
            )
    }

    /// Whether seeds of this kind come by the step: only those of isolation read the past, and only the
    /// others sort and join, have many partitions, and are backed up.
    pub fn is_met_by(self, kind: SeedKind) -> bool {
        match self {
            Step::UndoSpaceRead | Step::UndoSpaceWrite => kind == SeedKind::Isolation,
            step => kind == SeedKind::Durability || !step.is_of_durability(),
        }
    }

    /// Whether only seeds of durability come by the step.
    pub fn is_of_durability(self) -> bool {
        self.is_temporary() || self.is_of_backups() || self == Step::CatalogAnew
    }

    /// Whether the step is one of backups, which few seeds take.
    pub fn is_of_backups(self) -> bool {
        matches!(self, Step::OnlineBackup | Step::LogArchive | Step::Restore)
    }

    /// Whether the step reads, writes or syncs, and so can be slow.
    pub fn transfers(self) -> bool {
        !matches!(self, Step::Open | Step::Resize | Step::DataGrowth | Step::LogGrowth | Step::Memory)
    }

    /// Whether the step writes pages to their own places or to a tier.
    pub fn writes_pages(self) -> bool {
        matches!(self, Step::RedoWrite | Step::UndoWrite | Step::PageWrite | Step::TierWrite)
    }

    /// Whether the step writes the superblock file.
    pub fn writes_superblock(self) -> bool {
        matches!(self, Step::SuperblockWrite | Step::CatalogAnew)
    }

    /// Whether the step is one of temporary space, which few seeds use.
    pub fn is_temporary(self) -> bool {
        matches!(self, Step::TempWrite | Step::TempRead)
    }

    /// Whether the step makes something durable by a sync.
    pub fn syncs(self) -> bool {
        matches!(self, Step::LogSync | Step::DataSync | Step::SegmentSync | Step::OnlineBackup | Step::LogArchive)
    }

    /// Whether a write of this step may be acknowledged and lost, or misdirected.
    pub fn may_vanish(self) -> bool {
        self.flips() || matches!(self, Step::LogWrite | Step::LogBuffer)
    }

    /// Whether the step reads what a page or a cluster that was written before may still show.
    pub fn may_be_stale(self) -> bool {
        matches!(self, Step::PageRead | Step::TierRead | Step::TempRead)
    }

    /// Whether the step waits where a device hangs.
    fn hangs(self) -> bool {
        let log = matches!(self, Step::LogWrite | Step::LogSync | Step::SuperblockWrite | Step::Staging);
        let tiers = matches!(self, Step::TierScan | Step::TierRead | Step::TierWrite);
        let pages = tiers || matches!(self, Step::PageRead | Step::PageWrite | Step::DataSync);
        let segments = matches!(self, Step::SegmentRead | Step::SegmentWrite | Step::SegmentSync);
        let space = self.is_temporary() || matches!(self, Step::UndoSpaceRead | Step::UndoSpaceWrite);
        log || pages || segments || space || matches!(self, Step::OnlineBackup | Step::LogArchive)
    }

    /// Whether the step may find no room.
    fn takes_room(self) -> bool {
        let names = matches!(self, Step::Create | Step::Open | Step::Resize | Step::DataGrowth | Step::LogGrowth);
        let writes = matches!(self, Step::LogWrite | Step::PageWrite | Step::SegmentWrite | Step::SuperblockWrite);
        names || writes || self.is_of_backups()
    }

    /// Whether what the step wrote is let decay.
    pub fn decays(self) -> bool {
        let pages = matches!(self, Step::SuperblockWrite | Step::Staging | Step::PageWrite | Step::SegmentWrite);
        pages || matches!(self, Step::LogWrite | Step::TierWrite)
    }

    /// Whether this kind of fault can hit the step.
    pub fn admits(self, kind: FaultKind) -> bool {
        match kind {
            FaultKind::PowerCut | FaultKind::Kill => self != Step::Memory,
            FaultKind::Error => true,
            // Devices are slow early in a run, before there are many partitions.
            FaultKind::Slow => self.transfers() && !matches!(self, Step::CatalogAnew | Step::Restore),
            FaultKind::NoSpace => self.takes_room(),
            FaultKind::LostSync => self.syncs(),
            FaultKind::Hung => self.hangs(),
            // What a pool of threads does.
            FaultKind::Late => matches!(self, Step::Open | Step::Resize | Step::DataGrowth | Step::LogGrowth),
            FaultKind::Jump => matches!(self, Step::LogWrite | Step::LogScan | Step::PageRead | Step::PageWrite),
            FaultKind::Flip => self.flips(),
            FaultKind::Unreadable => self.flips(),
            FaultKind::LostWrite | FaultKind::Misdirected => self.may_vanish(),
            FaultKind::StaleRead => self.may_be_stale(),
            FaultKind::Decay => self.decays(),
            FaultKind::Rot => self.decays(),
            FaultKind::Hole => self == Step::PageWrite,
        }
    }
}
