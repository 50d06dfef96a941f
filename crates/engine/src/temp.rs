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
mod row;
mod run;
mod scan;
mod sort;
mod space;
mod spool;
mod stream;
mod workspace;

#[cfg(test)]
mod tests;

pub use join::{JoinKind, JoinMethod, JoinReport, JoinSettings, Joined};
pub use row::{Iterated, Row, Rows};
pub use scan::Scan;
pub use sort::{SortReport, Sorted};
pub(crate) use space::{Extent, Space};
pub use space::{FILE, Statistics};

use crate::{Database, Error, Result};
use base::units::format_size;
use executor::Executor;

/// Where temporary space is, and how it is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The device that holds it; `None`: that of the home file.
    pub device: Option<String>,
    /// Bytes of a cluster, the unit of input and output: a power of two, a multiple of the device's alignment.
    pub cluster_size: usize,
    /// The most bytes that it takes.
    pub size: u64,
}

impl Default for Settings {
    /// Clusters of 256 KiB and up to 64 GiB on the device of the home file.
    fn default() -> Settings {
        Settings { device: None, cluster_size: 256 << 10, size: 64 << 30 }
    }
}

impl Settings {
    /// The cluster sizes that there are.
    pub const CLUSTER_SIZES: std::ops::RangeInclusive<u64> = 512..=16 << 20;

    /// Checks the size of clusters against the device, and that some fit.
    fn check(&self, executor: &Executor, name: &str) -> Result<()> {
        let device = crate::database::device(executor, name)?;
        let (size, alignment) = (self.cluster_size as u64, executor.traits(device).alignment);
        let known = Settings::CLUSTER_SIZES.contains(&size) && size.is_power_of_two();
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

impl Database {
    /// Sorts rows by their keys, in so many bytes of memory and as much temporary space as the rows need beyond it.
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// # let temp = entresol_engine::temp::Settings { cluster_size: 512, ..Default::default() };
    /// # let settings = entresol_engine::Settings { temp, ..Default::default() };
    /// # with_database_of(settings, async |database| {
    /// use entresol_engine::temp::{Iterated, Rows};
    ///
    /// let numbers = (0..1_000_u32).map(|n| (n.wrapping_mul(2_654_435_761).to_be_bytes(), n.to_be_bytes()));
    /// let mut sorted = database.sort(Iterated::new(numbers), 8 << 10).await?;
    /// assert!(sorted.report().runs > 1, "there are more rows than 8 KiB hold");
    /// let mut before = 0;
    /// while let Some(row) = sorted.next().await? {
    ///     let key = u32::from_be_bytes(row.key.try_into().unwrap());
    ///     assert!(before <= key);
    ///     before = key;
    /// }
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// Those of the rows; [`Error::Setting`] if the memory is less than 16 clusters, [`Error::RowTooLong`],
    /// [`Error::TempFull`], [`Error::DamagedTemp`], or the driver's.
    pub async fn sort(&self, rows: impl Rows, memory: u64) -> Result<Sorted> {
        sort::sort(&self.0.temp, rows, memory).await
    }

    /// Joins a left and a right input by equal keys, in as much temporary space as they need beyond the memory. `take` gets every
    /// answer, and has the join wait until it is done.
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// # with_database(async |database| {
    /// use entresol_engine::temp::{Iterated, JoinKind, JoinMethod, JoinSettings};
    ///
    /// let orders = [("milk", "ann"), ("tea", "eve"), ("bread", "bob")];
    /// let prices = [("milk", "2"), ("bread", "3")];
    /// for method in [JoinMethod::Hash, JoinMethod::SortMerge] {
    ///     let inputs = (Iterated::new(orders.into_iter()), Iterated::new(prices.into_iter()));
    ///     let settings = JoinSettings { method, kind: JoinKind::Left, memory: 16 << 20 };
    ///     let mut unknown = Vec::new();
    ///     let report = database
    ///         .join(inputs, settings, async |answer| {
    ///             if answer.right.is_none() {
    ///                 unknown.push(answer.key.to_vec());
    ///             }
    ///             Ok(())
    ///         })
    ///         .await?;
    ///     assert_eq!((report.answers, unknown), (3, vec![b"tea".to_vec()]));
    /// }
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// Those of the rows and of `take`; [`Error::Setting`] if the memory is too little, [`Error::RowTooLong`],
    /// [`Error::TempFull`], [`Error::DamagedTemp`], or the driver's.
    pub async fn join(
        &self,
        inputs: (impl Rows, impl Rows),
        settings: JoinSettings,
        mut take: impl AsyncFnMut(Joined<'_>) -> Result<()>,
    ) -> Result<JoinReport> {
        join::join(&self.0.temp, inputs, settings, &mut take).await
    }

    /// What temporary space has done since the database was opened.
    pub fn temp_statistics(&self) -> Statistics {
        self.0.temp.statistics()
    }
}
