//! That other nodes use the database. They keep copies of its pages, and know its partitions and indexes as they were when they first used
//! them; copies are called back before a page is changed in a transaction of a node, and for nothing else. So what changes records otherwise,
//! or gives partitions other names, pages or indexes, is refused meanwhile, and has ended before.
//!
//! A server that ends may leave nodes behind that have not heard of it: they use their copies until their leases are over. So the same waits
//! for that, and for the last commits of the server.

use super::Database;
use crate::catalog::Partition;
use crate::engine::{Engine, NotedPartition, Serving};
use crate::{Error, Result};
use base::Instant;
use base::time::{MILLISECOND_NS, SECOND_NS};
use executor::WholeExecutor;
use std::rc::Rc;
use structures::canary::{self, Canary};

/// How long transactions of the database's own are waited for before nodes use it, and how often it is looked, in nanoseconds.
const PATIENCE_NS: u64 = 10 * SECOND_NS;
const LOOK_NS: u64 = MILLISECOND_NS / 2;
/// The same while leases last: it may be closed meanwhile.
const LEASES_LOOK_NS: u64 = 100 * MILLISECOND_NS;

/// Nodes use the database as long as this is there, and until their leases are over.
pub struct Served {
    engine: Rc<Engine>,
}

impl Served {
    fn new(engine: &Rc<Engine>) -> Served {
        engine.catalog.served.set(Serving::Begun);
        Served { engine: Rc::clone(engine) }
    }

    /// No node may begin to use it any more, but some may have leases up to this moment. What is under way ends by itself: until this is
    /// dropped.
    pub fn end(&self, leased: Instant) {
        let catalog = &self.engine.catalog;
        catalog.served.set(Serving::Ending);
        catalog.leased.set(leased.max(catalog.leased.get()));
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.engine.catalog.served.set(Serving::Ended);
    }
}

impl Database {
    /// Nodes use the database from now on. Changes of its partitions that are under way end before, and so do its own transactions; no other
    /// ones begin meanwhile. Snapshots stay, and others begin.
    ///
    /// # Errors
    /// [`Error::PartitionInUse`] if an index is being built or dropped, or a partition is being compacted or loaded;
    /// [`Error::StillRunning`] if transactions have not ended in ten seconds. [`Error::Setting`] if nodes use it already: what one server
    /// tells its nodes of locks and copies another one does not know. One that has been told to end is waited for.
    pub(crate) async fn serve_nodes(&self) -> Result<Served> {
        let engine = &self.0.engine;
        self.check_at_rest()?;
        let turn = engine.catalog.creation.take(&engine.core.executor).await;
        engine.core.check_open()?;
        while engine.catalog.served.get() == Serving::Ending {
            engine.core.executor.sleep_ns(LOOK_NS).await;
            engine.core.check_open()?;
        }
        if engine.catalog.served.get() == Serving::Begun {
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
        if self.is_unserved() || canary::is_planted(Canary::DroppedBesideNodes) {
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
        if self.is_unserved() { Ok(()) } else { Err(Error::ServesNodes) }
    }

    /// No node has a copy.
    #[inline]
    fn is_unserved(&self) -> bool {
        let catalog = &self.0.engine.catalog;
        match catalog.served.get() {
            Serving::Never => true,
            Serving::Begun | Serving::Ending => false,
            Serving::Ended => {
                catalog.leased.get() <= self.executor().now() || canary::is_planted(Canary::ForgottenLeases)
            }
        }
    }

    /// Waits until a server has ended that was told to, with the leases of its nodes. None is waited for that serves.
    ///
    /// # Errors
    /// [`Error::Closed`].
    #[inline]
    pub(super) async fn await_leases(&self) -> Result<()> {
        match self.0.engine.catalog.served.get() {
            Serving::Never | Serving::Begun => Ok(()),
            Serving::Ending | Serving::Ended => Box::pin(self.await_end_of_leases()).await,
        }
    }

    #[cold]
    async fn await_end_of_leases(&self) -> Result<()> {
        let (engine, executor) = (&self.0.engine, self.executor().whole());
        loop {
            let (serving, now) = (engine.catalog.served.get(), executor.now());
            match serving {
                Serving::Ending => executor.sleep_ns(LOOK_NS).await,
                Serving::Ended if now < engine.catalog.leased.get() && !canary::is_planted(Canary::ForgottenLeases) => {
                    executor.sleep_ns(LEASES_LOOK_NS.min(engine.catalog.leased.get().since_ns(now))).await;
                }
                _ => return Ok(()),
            }
            engine.core.check_open()?;
        }
    }

    /// Begins to move pages of a partition, unless nodes use them; until what this returns is dropped none may begin to use the database.
    pub(super) fn begin_moving(&self, found: &Partition) -> Result<NotedPartition<'_>> {
        self.check_unserved(found, "is not compacted")?;
        Ok(NotedPartition::new(&self.0.engine.catalog.moving, found.id()))
    }
}
