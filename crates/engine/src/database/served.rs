//! That other nodes use the database. They keep copies of its pages, and know its partitions and indexes as they were when they first used
//! them; copies are called back before a page is changed in a transaction, and for nothing else. So what gives partitions other pages or other
//! indexes is refused meanwhile.

use super::Database;
use crate::catalog::Partition;
use crate::engine::{Engine, NotedPartition};
use crate::{Error, Result};
use std::rc::Rc;

/// Nodes use the database as long as this is there.
pub struct Served {
    engine: Rc<Engine>,
}

impl Drop for Served {
    fn drop(&mut self) {
        let served = &self.engine.catalog.served;
        served.set(served.get() - 1);
    }
}

impl Database {
    /// Nodes use the database from now on.
    ///
    /// # Errors
    /// [`Error::PartitionInUse`] if an index is being built or dropped, or a partition is being compacted. [`Error::Setting`] if nodes use it
    /// already: what one server tells its nodes of locks and copies another one does not know.
    pub(crate) fn serve_nodes(&self) -> Result<Served> {
        let engine = &self.0.engine;
        if engine.catalog.served.get() > 0 {
            let message = "this database has a page server, which has not ended: two would not know of each other's locks and copies";
            return Err(Error::Setting(message.to_owned()));
        }
        let moving = engine.catalog.moving.get();
        let is_in_use = |found: &&Rc<Partition>| found.has_unready_index() || moving == Some(found.id());
        if let Some(found) = engine.catalog.partitions.borrow().iter().find(is_in_use) {
            return Err(Error::PartitionInUse(found.name.clone()));
        }
        let served = &engine.catalog.served;
        served.set(served.get() + 1);
        Ok(Served { engine: Rc::clone(engine) })
    }

    /// Refuses what may not happen to a partition while nodes use the database.
    pub(super) fn check_unserved(&self, found: &Partition, refused: &str) -> Result<()> {
        if self.0.engine.catalog.served.get() == 0 {
            return Ok(());
        }
        Err(Error::Setting(format!(
            "partition '{}' {refused} while nodes use it; open the database with one engine for that",
            found.name
        )))
    }

    /// Begins to move pages of a partition, unless nodes use them; until what this returns is dropped none may begin to use the database.
    pub(super) fn begin_moving(&self, found: &Partition) -> Result<NotedPartition<'_>> {
        self.check_unserved(found, "is not compacted")?;
        Ok(NotedPartition::new(&self.0.engine.catalog.moving, found.id()))
    }
}
