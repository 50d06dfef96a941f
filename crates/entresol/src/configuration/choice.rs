//! Settings that are one of a few words.

use engine::checkpoint::Strategy;
use engine::lock::VictimPolicy;
use engine::set::Logging;

/// A setting that is one of a few words.
pub trait Choice: Copy + Default + PartialEq + 'static {
    /// Every word that the file may hold, with its meaning.
    const WORDS: &'static [(&'static str, Self)];

    /// The word for this choice.
    fn word(self) -> &'static str {
        Self::WORDS.iter().find(|(_, choice)| *choice == self).map(|(word, _)| *word).expect("every choice has a word")
    }
}

/// How a device is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceKind {
    /// `"file"`: files that are read and written.
    #[default]
    File,
    /// `"mapped"`: files mapped into memory (NVEM): access is a copy that holds the CPU.
    Mapped,
    /// `"described"`: a description only; exists under the virtual clock alone.
    Described,
}

impl Choice for DeviceKind {
    const WORDS: &'static [(&'static str, DeviceKind)] =
        &[("file", DeviceKind::File), ("mapped", DeviceKind::Mapped), ("described", DeviceKind::Described)];
}

/// Until when a committing transaction keeps its locks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LockHold {
    /// `"until-logged"`: until its commit record stands in the log buffer (DeWitt et al. 1984); the acknowledgements of all
    /// transactions that saw its changes still wait for the log.
    #[default]
    UntilLogged,
    /// `"until-durable"`: until its commit record is durable (TPSIM, Rahm 1991).
    UntilDurable,
}

impl Choice for LockHold {
    const WORDS: &'static [(&'static str, LockHold)] =
        &[("until-logged", LockHold::UntilLogged), ("until-durable", LockHold::UntilDurable)];
}

/// What happens at commit to the pages that a transaction changed (Härder and Reuter 1983).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Update {
    /// `"noforce"`: they stay in the buffer; the log suffices.
    #[default]
    NoForce,
    /// `"force"`: they are written before the commit is acknowledged.
    Force,
}

impl Choice for Update {
    const WORDS: &'static [(&'static str, Update)] = &[("noforce", Update::NoForce), ("force", Update::Force)];
}

impl Choice for VictimPolicy {
    const WORDS: &'static [(&'static str, VictimPolicy)] =
        &[("requester", VictimPolicy::Requester), ("youngest", VictimPolicy::Youngest)];
}

/// How the records of a partition are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Organization {
    /// `"b-tree"`: by key, in order; keys and values of any length.
    #[default]
    BTree,
    /// `"direct"`: by number; fixed-length records, record `n` on page `n / blocking factor`.
    Direct,
    /// `"append"`: added at the end, read in order.
    Append,
    /// `"set"`: wholly in main memory, by key.
    Set,
    /// `"arrivals"`: wholly in main memory, added at the end, read by all or by number.
    Arrivals,
}

impl Choice for Organization {
    const WORDS: &'static [(&'static str, Organization)] = &[
        ("b-tree", Organization::BTree),
        ("direct", Organization::Direct),
        ("append", Organization::Append),
        ("set", Organization::Set),
        ("arrivals", Organization::Arrivals),
    ];
}

impl Choice for Logging {
    const WORDS: &'static [(&'static str, Logging)] =
        &[("value", Logging::Values), ("aoper", Logging::Actions), ("toper", Logging::Procedures)];
}

impl Choice for Strategy {
    const WORDS: &'static [(&'static str, Strategy)] = &[
        ("fuzzy", Strategy::Fuzzy),
        ("acbw", Strategy::ActionBlackWhite),
        ("tcbw", Strategy::TransactionBlackWhite),
        ("accou", Strategy::ActionCopyOnUpdate),
        ("tccou", Strategy::TransactionCopyOnUpdate),
        ("calc", Strategy::StableVersions),
    ];
}

/// What a transaction locks in a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LockGranule {
    /// `"record"`: records and the ranges between them.
    #[default]
    Record,
    /// `"page"`: whole pages.
    Page,
    /// `"none"`: nothing.
    None,
}

impl Choice for LockGranule {
    const WORDS: &'static [(&'static str, LockGranule)] =
        &[("record", LockGranule::Record), ("page", LockGranule::Page), ("none", LockGranule::None)];
}

/// Whether a partition's pages may leave main memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Residence {
    /// `"paged"`: they come and go through the buffer.
    #[default]
    Paged,
    /// `"memory"`: once read they are never replaced.
    Memory,
}

impl Choice for Residence {
    const WORDS: &'static [(&'static str, Residence)] = &[("paged", Residence::Paged), ("memory", Residence::Memory)];
}

/// The way to the kernel for input and output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// `"automatic"`: io_uring where the kernel permits it, else threads.
    #[default]
    Automatic,
    /// `"io-uring"`: io_uring, or an error.
    IoUring,
    /// `"thread-pool"`: threads that block in system calls.
    ThreadPool,
}

impl Choice for Backend {
    const WORDS: &'static [(&'static str, Backend)] =
        &[("automatic", Backend::Automatic), ("io-uring", Backend::IoUring), ("thread-pool", Backend::ThreadPool)];
}
