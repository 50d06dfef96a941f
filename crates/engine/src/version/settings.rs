//! Where versions go, and for how long.

use crate::{Error, Result, temp};
use base::units::format_size;

/// The undo space's file on its device.
pub const FILE: &str = "undo.space";

/// The most bytes that are read for one version, unless it is longer.
const BLOCK_SIZE: usize = 4 << 10;

const LAZY_COMMITS: u32 = if cfg!(test) { 0 } else { 1024 };

/// How versions are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndoSettings {
    /// The device of the undo space; `None`: that of the superblock file.
    pub device: Option<String>,
    /// Bytes of a cluster of the undo space, the unit in which it is written; a power of two, a multiple of the device's
    /// alignment.
    pub cluster_size: usize,
    /// Bytes of versions of committed changes that stay in memory; older ones go to the undo space.
    pub memory: u64,
    /// How old versions of committed changes become in memory, in nanoseconds, before they go to the undo space without need;
    /// `None`: any age, because their share of memory is there for them.
    pub age_ns: Option<u64>,
    /// The most bytes of versions, in memory and in the undo space; beyond it the oldest are discarded, even if readers need
    /// them.
    pub size: u64,
    /// For how long what was committed can be read as it was, in nanoseconds, also over openings as far as the log reaches back; 0: as
    /// long as a snapshot is held.
    pub retention_ns: u64,
    /// The most of the engine's thread that long readers of the past take together while others are active, in percent, 1 to
    /// 100. A reader has it to itself otherwise. On described hardware readers are not throttled.
    pub reader_percent: u8,
    /// After this number of commits without a new snapshot, changes are kept only for the snapshots that exist; the next one to
    /// begin looks into the undo lists of transactions under way.
    pub lazy_commits: u32,
}

impl UndoSettings {
    /// Bytes of the undo space that are read together.
    pub(super) fn block_size(&self) -> usize {
        self.cluster_size.min(BLOCK_SIZE)
    }

    /// The undo space as a space of clusters.
    pub(crate) fn space(&self) -> temp::TempSettings {
        temp::TempSettings {
            device: None,
            cluster_size: self.cluster_size,
            size: self.size.max(self.cluster_size as u64),
        }
    }

    /// # Errors
    /// [`Error::Setting`].
    pub(crate) fn check(&self) -> Result<()> {
        if !(1..=100).contains(&self.reader_percent) {
            let percent = self.reader_percent;
            return Err(Error::Setting(format!("readers take 1 to 100 percent of the thread, not {percent}")));
        }
        if self.memory <= self.size {
            return Ok(());
        }
        let (memory, size) = (format_size(self.memory), format_size(self.size));
        Err(Error::Setting(format!("versions may take {memory} of memory, but only {size} in all")))
    }
}

impl Default for UndoSettings {
    /// Clusters of 64 KiB, 64 MiB of memory, up to 16 GiB on the device of the superblock file, as long as a snapshot is held; readers
    /// take 3 percent of the thread beside others.
    fn default() -> UndoSettings {
        UndoSettings {
            device: None,
            cluster_size: 64 << 10,
            memory: 64 << 20,
            age_ns: None,
            size: 16 << 30,
            retention_ns: 0,
            reader_percent: 3,
            lazy_commits: LAZY_COMMITS,
        }
    }
}
