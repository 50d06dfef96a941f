//! The turn to sweep over sets, for those who have more to do in it than a sweep: bulk loads and drops.

use super::{Checkpointer, News, SETS};
use crate::Result;
use crate::database::Database;
use base::Lsn;

/// The turn to sweep. While this lives nobody else sweeps.
pub(crate) struct Sweeping {
    database: Database,
    loads: bool,
}

impl Drop for Sweeping {
    fn drop(&mut self) {
        let inner = &*self.database.0;
        if self.loads {
            inner.checkpointer.is_loading.set(false);
        }
        inner.checkpointer.sweeping.give_back(&inner.executor);
    }
}

/// While this lives sweeps do not rest.
pub(super) struct Hurry<'a>(&'a Checkpointer);

impl Drop for Hurry<'_> {
    fn drop(&mut self) {
        self.0.urgent.set(self.0.urgent.get() - 1);
    }
}

impl Database {
    /// Somebody waits for a sweep to end.
    pub(super) fn hurry(&self) -> Hurry<'_> {
        let checkpointer = &self.0.checkpointer;
        checkpointer.urgent.set(checkpointer.urgent.get() + 1);
        Hurry(checkpointer)
    }

    async fn take_sweeping(&self, loads: bool) -> Sweeping {
        let checkpointer = &self.0.checkpointer;
        checkpointer.sweeping.take(&self.0.executor).await.keep();
        if loads {
            checkpointer.is_loading.set(true);
            self.note_load();
        }
        Sweeping { database: self.clone(), loads }
    }

    /// Has nobody sweep while a set is loaded, for a sweep would take what is there of it by then.
    pub(crate) async fn begin_sweeping_load(&self) -> Sweeping {
        self.take_sweeping(true).await
    }

    /// Has the backup begin no earlier than `begin` in the log, by a sweep if need be, and keeps the turn. To be run in a task of
    /// its own, so that no write of the home file is abandoned.
    pub(crate) async fn sweep_since(&self, begin: Lsn) -> Result<Sweeping> {
        let hurry = self.hurry();
        let sweeping = self.take_sweeping(false).await;
        let swept = self.0.contents.borrow().backup.as_ref().map(|backup| Lsn(backup.begin));
        if swept.is_some_and(|swept| swept < begin) {
            let result = self.write_backup_in_turn(false).await;
            self.note_end(SETS, &result);
            result?;
            self.give_up_log().await?;
        }
        drop(hurry);
        Ok(sweeping)
    }

    /// Writes what a bulk load has brought, for whom it is the turn to sweep. If that fails, the next opening finds nothing of
    /// it.
    pub(crate) async fn back_up_load(&self) -> Result<()> {
        let checkpointer = &self.0.checkpointer;
        let hurry = self.hurry();
        let result = self.write_backup_in_turn(true).await;
        drop(hurry);
        self.note_end(SETS, &result);
        if result.is_err() {
            let restated = self.persist(async || {
                let _turn = checkpointer.turn.take(&self.0.executor).await;
                if !checkpointer.home_unsure.get() {
                    return Ok(());
                }
                self.store_home(self.pages_begin(), News::default()).await
            });
            if let Err(error) = restated.await {
                // What is acknowledged from now on would rest on a backup that may be another at the next opening.
                self.0.log.fail(&format!("a load failed, and the home file cannot say so: {error}"));
            }
        }
        result
    }
}
