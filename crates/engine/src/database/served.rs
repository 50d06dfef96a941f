//! That other nodes use the database. They keep copies of its pages, and know its partitions and indexes as they were when they first used
//! them; copies are called back before a page is changed in a transaction of a node, and for nothing else. So what changes records otherwise,
//! or gives partitions other names, pages or indexes, is refused meanwhile, and has ended before.

use super::Database;
use crate::catalog::Partition;
use crate::engine::{Engine, NotedPartition};
use crate::{Error, Result};
use base::time::{MILLISECOND_NS, SECOND_NS};
use std::rc::Rc;

/// How long transactions of the database's own are waited for before nodes use it, and how often it is looked, in nanoseconds.
const PATIENCE_NS: u64 = 10 * SECOND_NS;
const LOOK_NS: u64 = MILLISECOND_NS / 2;

/// Nodes use the database as long as this is there.
pub struct Served {
    engine: Rc<Engine>,
}

impl Served {
    fn new(engine: &Rc<Engine>) -> Served {
        let served = &engine.catalog.served;
        served.set(served.get() + 1);
        Served { engine: Rc::clone(engine) }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let served = &self.engine.catalog.served;
        served.set(served.get() - 1);
    }
}

impl Database {
    /// Nodes use the database from now on. Changes of its partitions that are under way end before, and so do its own transactions; no other
    /// ones begin meanwhile. Snapshots stay, and others begin.
    ///
    /// # Errors
    /// [`Error::PartitionInUse`] if an index is being built or dropped, or a partition is being compacted or loaded;
    /// [`Error::StillRunning`] if transactions have not ended in ten seconds. [`Error::Setting`] if nodes use it already: what one server
    /// tells its nodes of locks and copies another one does not know.
    pub(crate) async fn serve_nodes(&self) -> Result<Served> {
        let engine = &self.0.engine;
        self.check_at_rest()?;
        let turn = engine.catalog.creation.take(&engine.core.executor).await;
        engine.core.check_open()?;
        if engine.catalog.served.get() > 0 {
            let message = "this database has a page server, which has not ended: two would not know of each other's locks and copies";
            return Err(Error::Setting(message.to_owned()));
        }
        // Others may have begun while this has waited. From the same step on they are refused.
        self.check_at_rest()?;
        let served = Served::new(engine);
        drop(turn);
        let until = engine.core.executor.now().plus_ns(PATIENCE_NS);
        while engine.transactions.may_change() > 0 {
            if engine.core.executor.now() >= until {
                return Err(Error::StillRunning { count: engine.transactions.may_change() });
            }
            engine.core.executor.sleep_ns(LOOK_NS).await;
        }
        Ok(served)
    }

    /// No partition is getting other pages or indexes beside transactions.
    fn check_at_rest(&self) -> Result<()> {
        let catalog = &self.0.engine.catalog;
        let is_changing = |found: &&Rc<Partition>| {
            found.has_unready_index() || catalog.moving.get() == Some(found.id()) || catalog.is_loading(found.id())
        };
        match catalog.partitions.borrow().iter().find(is_changing) {
            Some(found) => Err(Error::PartitionInUse(found.name.clone())),
            None => Ok(()),
        }
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

    /// Refuses a transaction of the database's own while nodes use it: they would not be asked for their copies.
    #[inline]
    pub(super) fn check_own(&self) -> Result<()> {
        if self.0.engine.catalog.served.get() == 0 { Ok(()) } else { Err(Error::ServesNodes) }
    }

    /// Begins to move pages of a partition, unless nodes use them; until what this returns is dropped none may begin to use the database.
    pub(super) fn begin_moving(&self, found: &Partition) -> Result<NotedPartition<'_>> {
        self.check_unserved(found, "is not compacted")?;
        Ok(NotedPartition::new(&self.0.engine.catalog.moving, found.id()))
    }
}
