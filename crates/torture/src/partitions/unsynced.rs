//! Loads whose sync fails, into files of which the buffer has written pages that no sync has made durable.

use super::client::Client;
use super::read::{find, with_known};
use super::shape::{Shape, stored_key};
use crate::ClientEvent;
use crate::context::After;
use base::PartitionId;
use engine::{Internals, Result};
use std::rc::Rc;

impl Client {
    /// Whether this load is to be one of those.
    pub(super) fn has_its_sync_fail(&self, name: &str) -> bool {
        self.context.fails_loads && self.context.random(&format!("load of '{name}'")).chance(0.7)
    }

    /// Has the sync of a tree's load fail. What the buffer wrote before may be gone as well as the load's pages, so no checkpoint may give
    /// up the log that has it.
    pub(super) async fn load_without_sync(&mut self, name: &str, shape: &Rc<Shape>) -> After {
        let Some(partition) = find(&self.database, name) else { return After::Reopen };
        with_known(&self.context, name, |known| known.is_used = true);
        if let Err(error) = self.leave_unsynced(partition.id()).await {
            return self.context.judge(&error, "changing what is about to be loaded");
        }
        let file = partition.file_name();
        self.context.observed.failing_loads.borrow_mut().insert(file.clone());
        let after = self.load(name, shape).await;
        if !self.context.observed.failing_loads.borrow_mut().remove(&file) {
            self.context.event(ClientEvent::LoadNotSynced);
        }
        if after == After::Reopen {
            return after;
        }
        match self.database.checkpoint().await {
            Err(error) => self.context.judge(&error, "checkpoint behind a load"),
            Ok(()) => After::Retry,
        }
    }

    /// Changes the tree's pages, though it is as empty afterwards as before, and has the buffer write them.
    async fn leave_unsynced(&self, partition: PartitionId) -> Result<()> {
        let key = stored_key(0);
        let change = self.database.transaction(async |tx| {
            tx.put(partition, &key, &[0; 8]).await?;
            tx.delete(partition, &key).await
        });
        change.await?;
        self.database.buffer().write_back_before(self.database.log().end(), true).await
    }
}
