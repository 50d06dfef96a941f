//! What goes wrong with a cluster, what its machines are doing then, and what else may come of it.

use serde::Serialize;

/// Something that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum ClusterFault {
    /// A node and its server do not reach each other.
    Cut,
    /// What a node sends its server waits.
    CutOut,
    /// What a server sends one node waits.
    CutIn,
    /// What a node sends its server is late.
    SlowOut,
    /// What a server sends one node is late.
    SlowIn,
    /// The connections of a node and its server break.
    Broken,
    /// The connections of a node and its server carry nothing any more, in one direction, and no end is told.
    Hung,
    /// A node and another one do not reach each other.
    PeerCut,
    /// What a node sends another one is late.
    PeerSlow,
    /// The connections of a node and another one break.
    PeerBroken,
    /// A program is killed: its kernel closes what it had open.
    Kill,
    /// A machine loses its power, and says nothing to its peers.
    PowerCut,
    /// A node leaves its server, whatever its program is doing, and comes again as another one.
    Left,
    /// A node may do other things than before.
    Grant,
    /// A server is closed, as an operator does it, and started again.
    Closed,
    /// A machine does nothing for a while, and goes on where it was: its clock has gone on.
    Paused,
    /// A write of the server's log fails: its program ends, and is started again.
    LogFailed,
    /// The server's data device has no room for files that become longer.
    Full,
}

impl ClusterFault {
    /// Every one.
    pub const ALL: [ClusterFault; 18] = [
        ClusterFault::Cut,
        ClusterFault::CutOut,
        ClusterFault::CutIn,
        ClusterFault::SlowOut,
        ClusterFault::SlowIn,
        ClusterFault::Broken,
        ClusterFault::Hung,
        ClusterFault::PeerCut,
        ClusterFault::PeerSlow,
        ClusterFault::PeerBroken,
        ClusterFault::Kill,
        ClusterFault::PowerCut,
        ClusterFault::Left,
        ClusterFault::Grant,
        ClusterFault::Closed,
        ClusterFault::Paused,
        ClusterFault::LogFailed,
        ClusterFault::Full,
    ];

    /// It in a few words.
    pub fn name(self) -> &'static str {
        match self {
            ClusterFault::Cut => "cut",
            ClusterFault::CutOut => "cut out",
            ClusterFault::CutIn => "cut in",
            ClusterFault::SlowOut => "slow out",
            ClusterFault::SlowIn => "slow in",
            ClusterFault::Broken => "broken",
            ClusterFault::Hung => "hung",
            ClusterFault::PeerCut => "peer cut",
            ClusterFault::PeerSlow => "peer slow",
            ClusterFault::PeerBroken => "peer broken",
            ClusterFault::Kill => "kill",
            ClusterFault::PowerCut => "power cut",
            ClusterFault::Left => "left",
            ClusterFault::Grant => "grant",
            ClusterFault::Closed => "closed",
            ClusterFault::Paused => "paused",
            ClusterFault::LogFailed => "log failed",
            ClusterFault::Full => "data full",
        }
    }

    /// Whether it is one of what is between two nodes.
    pub fn is_of_peers(self) -> bool {
        matches!(self, ClusterFault::PeerCut | ClusterFault::PeerSlow | ClusterFault::PeerBroken)
    }
}

/// What a machine is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum ClusterStep {
    /// A node joins for the first time since it was started.
    Join,
    /// A node waits until it may begin a transaction: it joins again, or an abandoned commit has to end.
    Begin,
    /// No transaction waits at a node.
    Rest,
    /// A transaction reads.
    Read,
    /// A transaction writes.
    Write,
    /// A transaction commits.
    Commit,
    /// A node has no lease.
    Leaseless,
    /// The server opens its database.
    Recovery,
    /// The server waits for the end of leases that an earlier one has given.
    Gathering,
    /// The server commits for a node.
    ServerCommit,
    /// The server does none of these.
    Serving,
}

impl ClusterStep {
    /// Every one.
    pub const ALL: [ClusterStep; 11] = [
        ClusterStep::Join,
        ClusterStep::Begin,
        ClusterStep::Rest,
        ClusterStep::Read,
        ClusterStep::Write,
        ClusterStep::Commit,
        ClusterStep::Leaseless,
        ClusterStep::Recovery,
        ClusterStep::Gathering,
        ClusterStep::ServerCommit,
        ClusterStep::Serving,
    ];

    /// It in a few words.
    pub fn name(self) -> &'static str {
        match self {
            ClusterStep::Join => "node joins",
            ClusterStep::Begin => "begins",
            ClusterStep::Rest => "rests",
            ClusterStep::Read => "reads",
            ClusterStep::Write => "writes",
            ClusterStep::Commit => "commits",
            ClusterStep::Leaseless => "has no lease",
            ClusterStep::Recovery => "server recovers",
            ClusterStep::Gathering => "gathers",
            ClusterStep::ServerCommit => "commits for a node",
            ClusterStep::Serving => "serves",
        }
    }

    /// Whether it is one of the server's, not of a node's.
    pub fn is_of_server(self) -> bool {
        use ClusterStep::{Gathering, Recovery, ServerCommit, Serving};
        matches!(self, Recovery | Gathering | ServerCommit | Serving)
    }

    /// Whether this can hit it.
    pub fn admits(self, fault: ClusterFault) -> bool {
        match fault {
            ClusterFault::Kill | ClusterFault::PowerCut => true,
            ClusterFault::Paused => true,
            ClusterFault::Closed => {
                matches!(self, ClusterStep::Gathering | ClusterStep::ServerCommit | ClusterStep::Serving)
            }
            ClusterFault::LogFailed | ClusterFault::Full => {
                matches!(self, ClusterStep::ServerCommit | ClusterStep::Serving)
            }
            _ if self.is_of_server() => false,
            ClusterFault::Left => self != ClusterStep::Join,
            // Seldom is there a connection at such a moment.
            ClusterFault::Broken | ClusterFault::Hung | ClusterFault::PeerBroken => {
                !matches!(self, ClusterStep::Join | ClusterStep::Begin | ClusterStep::Leaseless)
            }
            _ => true,
        }
    }
}

/// Something that a cluster has met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum ClusterEvent {
    /// A transaction that had written was committed.
    Committed,
    /// One that had only read was.
    CommittedReading,
    /// One was rolled back as it was planned.
    RolledBack,
    /// One went back to a savepoint, and on from there.
    WentBack,
    /// One was a deadlock's victim.
    Victim,
    /// One failed because the server was lost.
    Lost,
    /// One failed because its node had no frame for a page.
    Exhausted,
    /// One failed because its node may not do this.
    Denied,
    /// One was under way at the server when its log failed.
    Undecided,
    /// A read or a write was not waited for any longer.
    Abandoned,
    /// An operation had waited for a lock for as long as its node may.
    WaitedOut,
    /// A record was refused that has the place of another one in an index.
    NotUnique,
    /// A commit was not waited for any longer.
    AbandonedCommit,
    /// It is not known whether a transaction was committed.
    Unknown,
    /// It was found out, in another session, that a transaction was not committed.
    NotCommitted,
    /// A node was of no use any more, and another one took its place in the same program.
    GivenUp,
    /// A node had left its server, or was given up there, while a commit of it was under way.
    GoneCommitting,
    /// A client joined the server, again or for the first time.
    Joined,
    /// A page was to come from another node.
    Forwarded,
    /// The other node could not send it.
    Refused,
    /// A page came that was asked for ahead of a scan.
    CameAhead,
    /// One did not, because others had it.
    WouldBlock,
    /// A copy was called back.
    CalledBack,
    /// A copy was called back in use, and its locks fell to objects.
    Fell,
    /// An object came without its page.
    CameAlone,
    /// A record of a set came.
    CameOfSet,
    /// Records of a set came that follow each other.
    CameInOrder,
    /// A copy was asked back as it left a node.
    Returned,
    /// A page was changed by a commit that came without it.
    Redone,
    /// A node was started again.
    NodeStarted,
    /// The server was started again.
    ServerStarted,
    /// The server was stopped again before all nodes had come back.
    ServerStoppedAgain,
    /// A node's lease ran out, by its own clock, while it had copies.
    LeaseOver,
    /// A node whose lease had run out gave its copies up before it joined again.
    CopiesLost,
    /// The server gave a node up that had copies and was not heard although it was listened to.
    Unheard,
    /// A part of a stream that was late, or had waited, came when the connection had ended where it came to.
    CameTooLate,
    /// The clocks of a seed's machines ran at different rates.
    ClocksDiffered,
    /// The server's gained as much on a node's as leases allow for.
    ClocksAtBound,
    /// A snapshot was read to its end.
    SnapshotRead,
    /// A snapshot was too old before that.
    SnapshotTooOld,
    /// The server's program has read a snapshot of its database.
    OwnSnapshotRead,
    /// Something was refused because the server's data device was full.
    DeviceFull,
    /// A partition was made beside nodes.
    PartitionMade,
    /// One was not dropped, because nodes used the database.
    DropRefused,
}

impl ClusterEvent {
    /// Every one.
    pub const ALL: [ClusterEvent; 44] = [
        ClusterEvent::Committed,
        ClusterEvent::CommittedReading,
        ClusterEvent::RolledBack,
        ClusterEvent::WentBack,
        ClusterEvent::Victim,
        ClusterEvent::Lost,
        ClusterEvent::Exhausted,
        ClusterEvent::Denied,
        ClusterEvent::Undecided,
        ClusterEvent::Abandoned,
        ClusterEvent::WaitedOut,
        ClusterEvent::NotUnique,
        ClusterEvent::AbandonedCommit,
        ClusterEvent::Unknown,
        ClusterEvent::NotCommitted,
        ClusterEvent::GivenUp,
        ClusterEvent::GoneCommitting,
        ClusterEvent::Joined,
        ClusterEvent::Forwarded,
        ClusterEvent::Refused,
        ClusterEvent::CameAhead,
        ClusterEvent::WouldBlock,
        ClusterEvent::CalledBack,
        ClusterEvent::Fell,
        ClusterEvent::CameAlone,
        ClusterEvent::CameOfSet,
        ClusterEvent::CameInOrder,
        ClusterEvent::Returned,
        ClusterEvent::Redone,
        ClusterEvent::NodeStarted,
        ClusterEvent::ServerStarted,
        ClusterEvent::ServerStoppedAgain,
        ClusterEvent::LeaseOver,
        ClusterEvent::CopiesLost,
        ClusterEvent::Unheard,
        ClusterEvent::CameTooLate,
        ClusterEvent::ClocksDiffered,
        ClusterEvent::ClocksAtBound,
        ClusterEvent::SnapshotRead,
        ClusterEvent::SnapshotTooOld,
        ClusterEvent::OwnSnapshotRead,
        ClusterEvent::DeviceFull,
        ClusterEvent::PartitionMade,
        ClusterEvent::DropRefused,
    ];

    /// It in a few words.
    pub fn name(self) -> &'static str {
        match self {
            ClusterEvent::Committed => "committed",
            ClusterEvent::CommittedReading => "committed, only read",
            ClusterEvent::RolledBack => "rolled back",
            ClusterEvent::WentBack => "went back to a savepoint",
            ClusterEvent::Victim => "victim",
            ClusterEvent::Lost => "server lost",
            ClusterEvent::Exhausted => "no frame",
            ClusterEvent::Denied => "denied",
            ClusterEvent::Undecided => "undecided",
            ClusterEvent::Abandoned => "abandoned",
            ClusterEvent::WaitedOut => "lock waited for too long",
            ClusterEvent::NotUnique => "not unique",
            ClusterEvent::AbandonedCommit => "commit abandoned",
            ClusterEvent::Unknown => "outcome unknown",
            ClusterEvent::NotCommitted => "found not committed",
            ClusterEvent::GivenUp => "given up",
            ClusterEvent::GoneCommitting => "gone while it commits",
            ClusterEvent::Joined => "joined",
            ClusterEvent::Forwarded => "page forwarded",
            ClusterEvent::Refused => "forward refused",
            ClusterEvent::CameAhead => "page came ahead",
            ClusterEvent::WouldBlock => "page ahead not free",
            ClusterEvent::CalledBack => "copy called back",
            ClusterEvent::Fell => "locks fell",
            ClusterEvent::CameAlone => "object came alone",
            ClusterEvent::CameOfSet => "record of a set came",
            ClusterEvent::CameInOrder => "records of a set came",
            ClusterEvent::Returned => "copy returned",
            ClusterEvent::Redone => "page redone",
            ClusterEvent::NodeStarted => "node started",
            ClusterEvent::ServerStarted => "server started",
            ClusterEvent::ServerStoppedAgain => "server stopped again",
            ClusterEvent::LeaseOver => "lease ran out",
            ClusterEvent::CopiesLost => "copies lost with it",
            ClusterEvent::Unheard => "node not heard",
            ClusterEvent::CameTooLate => "came too late",
            ClusterEvent::ClocksDiffered => "clocks differed",
            ClusterEvent::ClocksAtBound => "clocks at the bound",
            ClusterEvent::SnapshotRead => "snapshot read",
            ClusterEvent::SnapshotTooOld => "snapshot too old",
            ClusterEvent::OwnSnapshotRead => "server's snapshot read",
            ClusterEvent::DeviceFull => "no room for data",
            ClusterEvent::PartitionMade => "partition made",
            ClusterEvent::DropRefused => "drop refused",
        }
    }
}
