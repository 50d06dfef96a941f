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

pub use join::{JoinKind, JoinReport, Joined};
pub use row::{Iterated, Row, Rows};
pub use scan::Scan;
pub use sort::{SortReport, Sorted};
pub(crate) use space::Space;
pub use space::{FILE, Statistics};

use crate::transaction::{Cursor, Transaction};
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

impl Settings {
    /// The cluster sizes that there are.
    pub const CLUSTER_SIZES: std::ops::RangeInclusive<u64> = 512..=16 << 20;
}

impl Default for Settings {
    /// Clusters of 256 KiB and up to 64 GiB on the device of the home file.
    fn default() -> Settings {
        Settings { device: None, cluster_size: 256 << 10, size: 64 << 30 }
    }
}

impl Settings {
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
    /// # with_database_of(settings(), async |database| {
    /// # fn settings() -> entresol_engine::Settings {
    /// #     let temp = entresol_engine::temp::Settings { cluster_size: 512, ..Default::default() };
    /// #     entresol_engine::Settings { temp, ..Default::default() }
    /// # }
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

    /// Joins rows of equal keys by hashing, in so many bytes of memory and as much temporary space as the rows need beyond it.
    /// `take` gets every answer, in any order, and has the join wait until it is done. The right input should be the smaller.
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// # with_database(async |database| {
    /// use entresol_engine::temp::{Iterated, JoinKind};
    ///
    /// let orders = [("milk", "ann"), ("bread", "bob"), ("tea", "eve")];
    /// let prices = [("bread", "3"), ("milk", "2")];
    /// let inputs = (Iterated::new(orders.into_iter()), Iterated::new(prices.into_iter()));
    /// let mut unknown = Vec::new();
    /// let report = database
    ///     .hash_join(inputs, JoinKind::Left, 16 << 20, async |answer| {
    ///         if answer.right.is_none() {
    ///             unknown.push(answer.key.to_vec());
    ///         }
    ///         Ok(())
    ///     })
    ///     .await?;
    /// assert_eq!((report.answers, unknown), (3, vec![b"tea".to_vec()]));
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// Those of the rows and of `take`; [`Error::Setting`] if the memory is less than 56 clusters, [`Error::RowTooLong`],
    /// [`Error::TempFull`], [`Error::DamagedTemp`], or the driver's.
    pub async fn hash_join(
        &self,
        inputs: (impl Rows, impl Rows),
        kind: JoinKind,
        memory: u64,
        mut take: impl AsyncFnMut(Joined<'_>) -> Result<()>,
    ) -> Result<JoinReport> {
        hash_join::join(&self.0.temp, inputs, kind, memory, &mut take).await
    }

    /// The same by sorting both inputs: answers come in the order of their keys.
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// # with_database(async |database| {
    /// use entresol_engine::temp::{Iterated, JoinKind};
    ///
    /// let orders = [("milk", "ann"), ("bread", "bob"), ("milk", "eve")];
    /// let prices = [("bread", "3"), ("milk", "2")];
    /// let inputs = (Iterated::new(orders.into_iter()), Iterated::new(prices.into_iter()));
    /// let mut keys = Vec::new();
    /// let take = async |answer: entresol_engine::temp::Joined<'_>| Ok(keys.push(answer.key.to_vec()));
    /// database.sort_merge_join(inputs, JoinKind::Inner, 16 << 20, take).await?;
    /// assert_eq!(keys, [&b"bread"[..], b"milk", b"milk"]);
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// As [`Database::hash_join`].
    pub async fn sort_merge_join(
        &self,
        inputs: (impl Rows, impl Rows),
        kind: JoinKind,
        memory: u64,
        mut take: impl AsyncFnMut(Joined<'_>) -> Result<()>,
    ) -> Result<JoinReport> {
        let space = &self.0.temp;
        let budget = budget::Budget::third(memory, space.cluster_size(), 0)?;
        merge_join::join(space, inputs, kind, budget, &mut take).await
    }

    /// What temporary space has done since the database was opened.
    pub fn temp_statistics(&self) -> Statistics {
        self.0.temp.statistics()
    }
}

impl Transaction {
    /// Sorts what a cursor shows by the keys that `key` makes of its records, in so many bytes of memory.
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// # with_database(async |database| {
    /// use entresol_engine::Direction;
    /// use entresol_engine::temp::Rows;
    /// use std::ops::Bound;
    ///
    /// let notes = database.create_partition(PartitionSpec::b_tree("notes")).await?;
    /// let mut tx = database.begin().await?;
    /// tx.put(notes, b"bread", b"3").await?;
    /// tx.put(notes, b"milk", b"2").await?;
    /// let all = tx.cursor(notes, Bound::Unbounded, Bound::Unbounded, Direction::Forward);
    /// // By amount, which is the value.
    /// let mut sorted = tx.sort(all, |_, value| value.to_vec(), 8 << 20).await?;
    /// assert_eq!(sorted.next().await?.map(|row| row.value), Some(&b"milk"[..]));
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// The sorted rows have the made key as their key and the record's key as their value.
    ///
    /// # Errors
    /// Those of [`Transaction::next`] and of [`Database::sort`].
    pub async fn sort(
        &mut self,
        cursor: Cursor,
        key: impl FnMut(&[u8], &[u8]) -> Vec<u8>,
        memory: u64,
    ) -> Result<Sorted> {
        let space = self.database().0.temp.clone();
        sort::sort(&space, scan::Keyed::new(Scan::new(self, cursor), key), memory).await
    }
}
