//! Registered procedures of a database, by name.

use super::Database;
use crate::engine::Isolation;
use crate::procedure::Prefetcher;
use crate::{Error, Result, Transaction};
use executor::{Panic, WholeExecutor, catch_panic};
use std::rc::Rc;
use structures::PrefetchDistance;
use structures::set::Logging;

impl Database {
    /// Brings memory near that is about to be used: at once, or in a while.
    #[inline]
    pub fn prefetcher(&self, distance: PrefetchDistance) -> Prefetcher<'_> {
        Prefetcher::new(&self.0.engine, distance)
    }

    /// Runs a procedure that the database was opened with.
    ///
    /// # Errors
    /// [`NoProcedure`](crate::Error::NoProcedure) if there is none of this name, [`Panicked`](crate::Error::Panicked) if it
    /// panics, or the procedure's.
    pub async fn call(&self, name: &str, parameters: &[u8]) -> Result<Vec<u8>> {
        let procedures = &self.settings().procedures;
        let Some(found) = procedures.bodies.get(name) else {
            return Err(procedures.unknown(name));
        };
        let run = async |tx: &mut Transaction| {
            found.enter(tx, name, parameters).await?;
            let done = catch_panic(found.body.run(tx, parameters)).await;
            done.unwrap_or_else(|panic| Err(self.panicked(name, panic)))
        };
        self.transaction(run).await
    }

    /// What the panic of a request's own code means for it: [`Panicked`](crate::Error::Panicked).
    ///
    /// # Panics
    /// Goes on panicking if the panic has ended a change of pages halfway: then the engine must not go on. What is committed
    /// is safe.
    pub(crate) fn panicked(&self, what: &str, panic: Panic) -> Error {
        self.0.engine.panicked(what, panic)
    }

    /// Contains panics of tasks that its users spawn ([`executor::Executor::contain_panics`]), but for those that have ended a change of
    /// pages halfway.
    pub(crate) fn contain_panics(&self) {
        let engine = Rc::downgrade(&self.0.engine);
        let contained = move |panic| match engine.upgrade() {
            Some(engine) => engine.contained(panic),
            None => panic,
        };
        self.executor().whole().contain_panics(contained);
    }

    /// Whether the log would have a call of this procedure instead of what the call changes: a restart runs it again then.
    pub fn logs_calls_of(&self, name: &str) -> bool {
        let settings = self.settings();
        let found = settings.procedures.bodies.get(name);
        settings.logging == Logging::Procedures && found.is_some_and(|found| found.isolation == Isolation::Serializable)
    }
}
