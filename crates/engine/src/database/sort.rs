//! Sorts and joins of rows from any source.

use super::Database;
#[cfg(doc)]
use crate::Error;
use crate::Result;
use crate::temp::{self, JoinReport, JoinSettings, Joined, Rows, Sorted, TempStatistics};

impl Database {
    /// Sorts rows by their keys, in `memory` bytes and as much temporary space as the rows need beyond them.
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// # let temp = entresol_engine::temp::TempSettings { cluster_size: 512, ..Default::default() };
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
        temp::sort(&self.0.engine.temp, rows, memory).await
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
        temp::join(&self.0.engine.temp, inputs, settings, &mut take).await
    }

    /// What temporary space has done since the database was opened.
    pub fn temp_statistics(&self) -> TempStatistics {
        self.0.engine.temp.statistics()
    }
}
