/// A step of the engine that costs CPU time on described hardware. The engine marks its steps; the executor adds up the
/// price and the virtual driver's CPU executes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Work {
    /// Begin of transaction.
    BeginTransaction,
    /// One object reference.
    ObjectReference,
    /// End of transaction.
    EndTransaction,
    /// One I/O through a channel or queue.
    InputOutput,
    /// One access to non-volatile extended memory.
    NvemAccess,
    /// One lock, requested and released (System M, 1988, table 4.4: 'lock request').
    LockPair,
    /// One record of the log: what describes one change, and the beginning and the end of a transaction that changes anything.
    LogRecord,
    /// One page of the log buffer, prepared because the one before it is full or on its way ('log page allocation').
    LogPage,
    /// One look whether the log is durable up to some position ('log sequence number').
    LogCheck,
    /// Memory for a copy of a segment, taken and given back ('segment allocation').
    SegmentAllocation,
    /// Copying 1 KiB of a segment.
    SegmentCopy,
    /// One message between a client and the transaction server: a request or its response (section 2.2).
    Message,
    /// One comparison of two keys in a sort or a merge, or one key looked for in a hash table.
    KeyComparison,
    /// One row copied from one place in memory to another.
    RowCopy,
    /// One message to or from another machine, at each end, whatever its length (Franklin 1992, table 4: 'fixed no. of
    /// instructions per message').
    NetworkMessage,
    /// 256 bytes of such a message, or the rest of it, at each end.
    NetworkBytes,
    /// One look at, entry into or removal from the directory of the copies of pages that other machines have ('register copy').
    CopyRegistration,
    /// One change of a page that a log record describes, looked at and made again: by a restart, or for a node that has made it on a
    /// copy.
    Redo,
    /// One search of a b-tree from its root to a record, or to the place where it would be.
    TreeSearch,
    /// One row entered into a hash table, or looked for in it: what that costs beside its copy or the comparison, for memory is touched
    /// at random places.
    HashEntry,
    /// One message of a page server and its nodes, made or read at one end: its form, its queue, and what follows from it in the state of
    /// this end. What the system takes for it is beside that ([`Work::NetworkMessage`]).
    NodeMessage,
    /// One page in such a message, at one end: its checksum and its copies in memory.
    PageImage,
    /// One change of a page that a node has made, looked through and tried on a copy of the page before it is logged.
    ShippedChange,
    /// One request of another thread, taken by the engine's and answered: what that costs beyond the same work of a task.
    Request,
    /// 256 bytes of a record's value, or the rest of it: read, shown where it lies, written, or kept because it is deleted.
    ValueCopy,
    /// One value that the CPU's caches do not hold, as far as that is known by what was referred to before: looking for it and copying it
    /// wait for memory.
    DistantValue,
}

impl Work {
    /// Every kind of work, in the order of their declaration.
    pub const ALL: [Work; 26] = [
        Work::BeginTransaction,
        Work::ObjectReference,
        Work::EndTransaction,
        Work::InputOutput,
        Work::NvemAccess,
        Work::LockPair,
        Work::LogRecord,
        Work::LogPage,
        Work::LogCheck,
        Work::SegmentAllocation,
        Work::SegmentCopy,
        Work::Message,
        Work::KeyComparison,
        Work::RowCopy,
        Work::NetworkMessage,
        Work::NetworkBytes,
        Work::CopyRegistration,
        Work::Redo,
        Work::TreeSearch,
        Work::HashEntry,
        Work::NodeMessage,
        Work::PageImage,
        Work::ShippedChange,
        Work::Request,
        Work::ValueCopy,
        Work::DistantValue,
    ];
}

/// The mean number of instructions of each kind of work on described hardware.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prices {
    /// Mean instructions, indexed by `Work as usize`.
    pub instructions: [u64; Work::ALL.len()],
    /// Whether the actual numbers are exponentially distributed about these means (TPSIM) or exactly these.
    pub exponential: bool,
    /// How long an instruction takes, in nanoseconds.
    pub instruction_ns: f64,
    /// Seeds the stream that draws them.
    pub seed: u64,
}
