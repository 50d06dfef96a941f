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
}

impl Work {
    /// Every kind of work, in the order of their declaration.
    pub const ALL: [Work; 5] =
        [Work::BeginTransaction, Work::ObjectReference, Work::EndTransaction, Work::InputOutput, Work::NvemAccess];
}

/// The mean number of instructions of each kind of work on described hardware.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prices {
    /// Mean instructions, indexed by `Work as usize`.
    pub instructions: [u64; Work::ALL.len()],
    /// Whether the actual numbers are exponentially distributed about these means (TPSIM) or exactly these.
    pub exponential: bool,
    /// Seeds the stream that draws them.
    pub seed: u64,
}
