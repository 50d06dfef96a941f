//! Renaming partitions.
//!
//! 1. Calls of procedures may have asked for either name, and a restart must give them the same answer: sets are swept, and until
//!    this is over nothing is logged as a call (`catalog_change`).
//! 2. The superblock file has the other name, and those of the partition's indexes, in one change. That is the moment.
//! 3. So has memory.
//!
//! The number stays, so those who have looked the partition up go on; and so do the files, which keep the name that they have had. A name that is
//! given to another partition later leads to other files.

use super::Database;
use crate::catalog::Partition;
use crate::checkpoint::state_catalog;
use crate::superblock::CatalogChange;
use crate::{Error, Result};
use base::PartitionId;
use std::rc::Rc;

impl Database {
    /// Gives a partition another name, beside its users. It keeps its number, its records and its indexes; its files keep their names. It is
    /// durable when this returns, and goes on to its end even if its future is dropped. The old name is free then.
    ///
    /// Names are those of the present: a reader of an earlier moment finds the partition under its new name, too. What the
    /// configuration says of partitions by name (memory, second-level cache) is that of the new name from the next opening on. Where
    /// procedures are logged as calls, all sets are swept.
    ///
    /// # Errors
    /// [`Error::NoPartition`]; [`Error::Setting`] while nodes use the database; [`Error::PartitionExists`] if the name is taken, be it its own; [`Error::Setting`] if it is no
    /// name; [`Error::WrongOrganization`] for a secondary index; [`Error::PartitionInUse`] if an index of it is being created or dropped, or others
    /// keep the sweep from going on for ten seconds; the log's or the driver's: it keeps its name then, unless the superblock file
    /// cannot be written at all, and the next opening shows which one it has.
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// # with_database(async |database| {
    /// let orders = database.create_partition(PartitionSpec::b_tree("orders")).await?;
    /// database.rename_partition(orders, "orders_2024").await?;
    /// assert_eq!(database.partition("orders_2024"), Ok(orders));
    /// let new = database.create_partition(PartitionSpec::b_tree("orders")).await?;
    /// assert!(matches!(database.rename_partition(new, "orders_2024").await, Err(Error::PartitionExists(_))));
    /// # Ok(())
    /// # });
    /// ```
    pub async fn rename_partition(&self, partition: PartitionId, name: &str) -> Result<()> {
        let (database, name) = (self.clone(), name.to_owned());
        let renaming = async move { database.rename_undisturbed(partition, name).await };
        self.0.engine.core.executor.spawn(renaming).join().await
    }

    async fn rename_undisturbed(&self, id: PartitionId, name: String) -> Result<()> {
        let engine = &self.0.engine;
        self.await_leases().await?;
        let _turn = engine.catalog.creation.take(&engine.core.executor).await;
        engine.core.check_open()?;
        // A name that is taken is refused whatever is done to the partition's indexes.
        self.check_free(&name)?;
        let found =
            self.describe_at_rest(id, "it is a secondary index, and has the name of its partition and its own")?;
        self.check_unserved(&found, "is not renamed")?;
        let renamed = self.plan_names(&found, name)?;
        let change = self.begin_catalog_change();
        self.sweep_calls(&found).await?;
        let changes = renamed.iter().map(|partition| CatalogChange::Rename(partition.id, partition.name.clone()));
        if let Err(error) = state_catalog(engine, changes.collect()).await {
            // The next opening may find either name.
            let partitions = engine.catalog.partitions.borrow().kept();
            let as_before = |partition: &Rc<Partition>| renamed.iter().any(|other| other.id == partition.id);
            let before = partitions.into_iter().filter(as_before);
            let changes = before.map(|partition| CatalogChange::Rename(partition.id, partition.name.clone()));
            if state_catalog(engine, changes.collect()).await.is_err() {
                change.leave_undecided();
            }
            return Err(error);
        }
        engine.catalog.note_swept_change();
        let mut partitions = engine.catalog.partitions.borrow_mut();
        renamed.into_iter().for_each(|partition| partitions.rename(Rc::new(partition)));
        Ok(())
    }

    /// A partition and its indexes under their new names.
    fn plan_names(&self, found: &Partition, name: String) -> Result<Vec<Partition>> {
        let renamed = found.renamed(name);
        renamed.validate(self.0.settings.buffer.page_size)?;
        let partitions = self.0.engine.catalog.partitions.borrow();
        let mut planned = Vec::new();
        for index in found.schema.iter().flat_map(|schema| &schema.secondaries) {
            let Some(tree) = index.tree else { continue };
            planned.push(partitions.find(tree.id)?.renamed(renamed.index_name(&index.name)));
        }
        planned.push(renamed);
        planned.iter().try_for_each(|partition| self.check_free(&partition.name))?;
        Ok(planned)
    }

    fn check_free(&self, name: &str) -> Result<()> {
        match self.0.engine.catalog.partitions.borrow().is_taken(name) {
            true => Err(Error::PartitionExists(name.to_owned())),
            false => Ok(()),
        }
    }
}
