//! Temporary space: where sorts and joins put what their memory does not hold (Lee et al. 2008, section 6).
//!
//! It is a file on any device, used in clusters, the unit of its input and output. Nothing in it is logged, synced or
//! recovered; a crash loses it harmlessly, and the operation with it. Operators take a memory budget and rows from any source
//! ([`Rows`]), write clusters asynchronously, read ahead, and leave the comparing and copying to computations beside the
//! engine's thread. An operation that is dropped gives back whatever it had.

mod background;
mod budget;
mod cluster;
mod frames;
mod hash_join;
mod hash_table;
mod join;
mod losers;
mod merge;
mod merge_join;
mod reads;
mod record_stream;
mod row;
mod run;
mod sort;
mod space;
mod spool;
mod stream;
mod workspace;

#[cfg(test)]
mod tests;

pub(crate) use join::join;
pub use join::{JoinKind, JoinMethod, JoinReport, JoinSettings, Joined};
pub(crate) use record_stream::KeyValue;
pub use record_stream::RecordStream;
pub use row::{Iterated, Row, Rows};
pub(crate) use sort::sort;
pub use sort::{SortReport, Sorted};
pub(crate) use space::{Extent, Space};
pub use space::{FILE, TempStatistics};

use crate::{Error, Result};
use base::units::format_size;
use executor::Executor;

/// Where temporary space is, and how it is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TempSettings {
    /// The device that holds it; `None`: that of the superblock file.
    pub device: Option<String>,
    /// Bytes of a cluster, the unit of input and output: a power of two, a multiple of the device's alignment.
    pub cluster_size: usize,
    /// The most bytes that it takes.
    pub size: u64,
}

impl Default for TempSettings {
    /// Clusters of 256 KiB and up to 64 GiB on the device of the superblock file.
    fn default() -> TempSettings {
        TempSettings { device: None, cluster_size: 256 << 10, size: 64 << 30 }
    }
}

impl TempSettings {
    /// The cluster sizes that there are.
    pub const CLUSTER_SIZES: std::ops::RangeInclusive<u64> = 512..=16 << 20;

    /// Checks the size of clusters against the device, and that some fit.
    fn check(&self, executor: &Executor, name: &str) -> Result<()> {
        let device = crate::io::device(executor, name)?;
        let (size, alignment) = (self.cluster_size as u64, executor.traits(device).alignment);
        let known = TempSettings::CLUSTER_SIZES.contains(&size) && size.is_power_of_two();
        if !known || !size.is_multiple_of(alignment.into()) || self.size < size {
            return Err(Error::Setting(format!(
                "temporary space of {} in clusters of {}: clusters are a power of two from 512 B to 16 MiB, a multiple of \
                 the {alignment} bytes of device '{name}', and no larger than the space",
                format_size(self.size),
                format_size(size),
            )));
        }
        Ok(())
    }
}
