//! What the engine was doing when something went wrong.

use crate::Kind;
use serde::Serialize;

/// What the world does to a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum FaultKind {
    /// The power goes: writes that are not durable are kept, lost or torn.
    PowerCut,
    /// The program is killed: what was written stays, durable or not.
    Kill,
    /// An operation fails.
    Error,
    /// A bit flips as it is written.
    Flip,
    /// A bit flips while nothing runs.
    Decay,
    /// A device is slow.
    Slow,
    /// One of two log devices answers nothing any more.
    Hung,
}

impl FaultKind {
    /// Every kind.
    pub const ALL: [FaultKind; 7] = [
        FaultKind::PowerCut,
        FaultKind::Kill,
        FaultKind::Error,
        FaultKind::Flip,
        FaultKind::Decay,
        FaultKind::Slow,
        FaultKind::Hung,
    ];

    /// The kind in a few words.
    pub fn name(self) -> &'static str {
        match self {
            FaultKind::PowerCut => "power cut",
            FaultKind::Kill => "kill",
            FaultKind::Error => "error",
            FaultKind::Flip => "flipped bit",
            FaultKind::Decay => "decay",
            FaultKind::Slow => "slow",
            FaultKind::Hung => "hung",
        }
    }
}

/// A step of the engine, told from the file, the operation and the phase of the life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Step {
    /// Any operation while the database is created.
    Create,
    /// Files are opened or removed.
    Open,
    /// The home file is read and made durable.
    HomeRead,
    /// A checkpoint, or a new partition, is stored in the home file.
    HomeWrite,
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
    /// Tiers of an earlier opening are read, and what they hold is brought home.
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
    /// A file grows.
    Resize,
    /// What records were is read back from the undo space.
    UndoSpaceRead,
    /// What records were leaves memory for the undo space.
    UndoSpaceWrite,
}

impl Step {
    /// Every step.
    pub const ALL: [Step; 29] = [
        Step::Create,
        Step::Open,
        Step::HomeRead,
        Step::HomeWrite,
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
        Step::UndoSpaceRead,
        Step::UndoSpaceWrite,
    ];

    /// The step in a few words.
    pub fn name(self) -> &'static str {
        match self {
            Step::Create => "create",
            Step::Open => "open files",
            Step::HomeRead => "home read",
            Step::HomeWrite => "home write (checkpoint)",
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
            Step::UndoSpaceRead => "undo space read",
            Step::UndoSpaceWrite => "undo space write",
        }
    }

    /// Whether the step writes what a flipped bit would damage detectably. The log's last pages are no such place: a page
    /// that no later one vouches for may be missing after any power cut.
    pub fn flips(self) -> bool {
        let pages = matches!(self, Step::RedoWrite | Step::UndoWrite | Step::PageWrite | Step::TierWrite);
        pages
            || matches!(
                self,
                Step::HomeWrite | Step::Staging | Step::SegmentWrite | Step::UndoSpaceWrite | Step::TempWrite
            )
    }

    /// Whether seeds of this kind come by the step: only those of isolation read the past, and only the
    /// others sort and join.
    pub fn is_met_by(self, kind: Kind) -> bool {
        match self {
            Step::UndoSpaceRead | Step::UndoSpaceWrite => kind == Kind::Isolation,
            step => kind == Kind::Durability || !step.is_temporary(),
        }
    }

    /// Whether the step reads, writes or syncs, and so can fail or be slow.
    pub fn transfers(self) -> bool {
        !matches!(self, Step::Open | Step::Resize)
    }

    /// Whether the step is one of temporary space, which few seeds use.
    pub fn is_temporary(self) -> bool {
        matches!(self, Step::TempWrite | Step::TempRead)
    }

    /// Whether what the step wrote is let decay.
    pub fn decays(self) -> bool {
        matches!(self, Step::HomeWrite | Step::LogWrite | Step::Staging | Step::PageWrite | Step::SegmentWrite)
    }

    /// Whether this kind of fault can hit the step.
    pub fn admits(self, kind: FaultKind) -> bool {
        match kind {
            FaultKind::PowerCut | FaultKind::Kill => true,
            FaultKind::Error | FaultKind::Slow => self.transfers(),
            FaultKind::Flip => self.flips(),
            FaultKind::Decay => self.decays(),
            FaultKind::Hung => matches!(self, Step::LogWrite | Step::LogSync),
        }
    }
}
