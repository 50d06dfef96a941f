//! Looking after a database: checkpoints, and looking for damage.

use super::Database;
#[cfg(doc)]
use crate::Error;
use crate::Result;
use crate::check::{self, CheckReport, Progress};
use crate::checkpoint;
use crate::engine::lengthen_unstated;
use base::PageId;
use executor::WholeExecutor;

impl Database {
    /// Takes a checkpoint that writes back every page changed before this call.
    ///
    /// # Errors
    /// The driver's or the log's, and [`Error::Closed`]. The checkpoint before stays valid, or
    /// redo begins later, as far as pages were written.
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// # with_database(async |database| {
    /// # let notes = database.create_partition(PartitionSpec::b_tree("notes")).await?;
    /// database.transaction(async |tx| tx.put(notes, b"milk", b"two litres").await).await?;
    /// assert_eq!(database.buffer().space(notes).writes.get(), 0, "the log suffices");
    /// database.checkpoint().await?;
    /// assert!(database.buffer().space(notes).writes.get() > 0, "a restart need not redo this");
    /// # Ok(())
    /// # });
    /// ```
    pub async fn checkpoint(&self) -> Result<()> {
        self.0.engine.core.check_open()?;
        checkpoint::checkpoint(&self.0.engine).await
    }

    /// Checks every page and every structure of every partition, after a checkpoint, so that the files are current. To be
    /// called while no transaction is active: pages that one has allocated and not yet put into a tree look lost. While a rollback is
    /// tried again, or the log has no room for it yet to free the pages of deleted long values, pages that are neither in use nor free
    /// are not reported ([`CheckReport::unsearched`]). What the opening has left to be undone is undone before. A compaction that is under way ends before, and another one waits.
    ///
    /// # Errors
    /// [`Error::StillUndoing`] if what the opening has left to be undone has not got on for ten seconds, [`Error::RollbackStalled`] if that
    /// fails; those of the checkpoint, without which nothing is checked; why the cache was switched off, if only it has what is to be looked
    /// at: that is not lost, a restart makes it anew. What else cannot be read is a finding.
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// # with_database(async |database| {
    /// # let notes = database.create_partition(PartitionSpec::b_tree("notes")).await?;
    /// database.transaction(async |tx| tx.put(notes, b"milk", b"two litres").await).await?;
    /// let report = database.check(|_| {}).await?;
    /// assert!(report.is_clean(), "{:?}", report.findings);
    /// assert!(report.pages > 0);
    /// # Ok(())
    /// # });
    /// ```
    pub async fn check(&self, progress: impl FnMut(Progress)) -> Result<CheckReport> {
        // A compaction moves pages from step to step.
        let _turn = self.0.engine.catalog.compaction.take(self.executor().whole()).await;
        self.await_undone().await?;
        self.checkpoint().await?;
        if self.is_freeing() {
            self.finish_endings().await;
            self.checkpoint().await?;
        }
        check::check(&self.0.engine, progress).await
    }

    /// Has the file of a direct partition have room for a page of it, which may have been cut off: before another node changes its objects.
    ///
    /// # Errors
    /// [`Error::NoPartition`], and the driver's.
    pub(crate) async fn make_room_for_objects(&self, page: PageId) -> Result<()> {
        let space = self.0.engine.core.buffer.find_space(page.partition)?;
        let has_object = page.number < self.describe(page.partition)?.first_pages()?;
        if has_object && page.number >= space.capacity() {
            lengthen_unstated(&self.0.engine, page).await
        } else {
            Ok(())
        }
    }

    /// Whether pages of deleted long values wait to be freed, which goes on beside everything else once the log has room for that.
    pub fn is_freeing(&self) -> bool {
        self.0.engine.transactions.endings.get() > 0
    }

    /// Checks that nothing is changed but by transactions that run.
    ///
    /// # Errors
    /// [`Error::RollbackStalled`] if a rollback fails and is tried again, [`Error::StillUndoing`] if the opening has left some that are not
    /// undone, [`Error::StillFreeing`] if pages wait to be freed.
    pub fn check_ended(&self) -> Result<()> {
        self.0.engine.transactions.check_ended()
    }
}
