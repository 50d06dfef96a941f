//! Registered procedures of a database, by name.

use super::Database;
use crate::engine::Isolation;
use crate::procedure::Prefetcher;
use crate::{Result, Transaction};
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
    /// [`NoProcedure`](crate::Error::NoProcedure) if there is none of this name, or the procedure's.
    pub async fn call(&self, name: &str, parameters: &[u8]) -> Result<Vec<u8>> {
        let procedures = &self.settings().procedures;
        let Some(found) = procedures.bodies.get(name) else {
            return Err(procedures.unknown(name));
        };
        let run = async |tx: &mut Transaction| {
            found.enter(tx, name, parameters).await?;
            found.body.run(tx, parameters).await
        };
        self.transaction(run).await
    }

    /// Whether the log would have a call of this procedure instead of what the call changes: a restart runs it again then.
    pub fn logs_calls_of(&self, name: &str) -> bool {
        let settings = self.settings();
        let found = settings.procedures.bodies.get(name);
        settings.logging == Logging::Procedures && found.is_some_and(|found| found.isolation == Isolation::Serializable)
    }
}
