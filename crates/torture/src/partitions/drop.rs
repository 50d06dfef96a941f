//! Dropping partitions: one whose drop was acknowledged stays dropped, one whose drop failed or was cut off is dropped or whole.

use super::client::Client;
use super::read::{find, with_known};
use super::shape::Shape;
use crate::ClientEvent;
use crate::abandon::at_most;
use crate::context::After;
use base::PartitionId;
use base::time::MILLISECOND_NS;
use engine::{Database, Error, Result};
use std::pin::pin;
use std::rc::Rc;

/// How long a transaction goes on beside a drop that waits for it at most, in nanoseconds.
const REST_NS_MAX: u64 = MILLISECOND_NS;

impl Client {
    /// Drops a partition that is there, now and then while this client still uses it.
    pub(super) async fn drop_partition(&mut self, name: &str, shape: &Rc<Shape>) -> After {
        self.context.note_change();
        let Some(id) = self.number_of(name) else { return After::Reopen };
        let shows = self.held.as_ref().is_some_and(|held| held.shows(id));
        // A drop waits for a snapshot for as long as it has patience.
        let is_held = shows && self.random.chance(0.2);
        if !is_held {
            self.held = None;
        }
        with_known(&self.context, name, |known| known.may_become(None));
        let dropped = match self.random.below(8) {
            0 | 1 => {
                let work = async |database: &Database| database.drop_partition(id).await;
                self.beside_a_transaction((name, id), shape, work).await
            }
            2 => {
                let polls = self.random.between(1, 8);
                match at_most(polls, self.database.drop_partition(id)).await {
                    Some(dropped) => dropped,
                    None => {
                        // The drop continues without this client, and may begin after the next one has ended.
                        self.context.drop_refused();
                        self.avoided.insert(name.to_owned());
                        if self.random.chance(0.5) {
                            return After::Retry;
                        }
                        match self.database.drop_partition(id).await {
                            Err(Error::PartitionInUse(_)) if self.is_used_by_a_client() => {
                                self.context.drop_refused();
                                return After::Retry;
                            }
                            dropped => dropped,
                        }
                    }
                }
            }
            _ => self.database.drop_partition(id).await,
        };
        match dropped {
            Ok(()) if is_held => {
                self.context.wrong(format!("'{name}' is dropped while a snapshot shows it"));
                After::Reopen
            }
            Ok(()) => self.dropped(name, id),
            Err(error) => self.not_dropped(name, shape, &error),
        }
    }

    /// Drops or truncates a partition that a transaction under way has changed: it is there until that has ended.
    pub(super) async fn beside_a_transaction<T>(
        &mut self,
        (name, id): (&str, PartitionId),
        shape: &Rc<Shape>,
        work: impl AsyncFn(&Database) -> Result<T>,
    ) -> Result<T> {
        let mut tx = self.database.begin().await?;
        if let Err(error) = self.touch(&mut tx, (name, id), shape).await {
            return match self.context.judge(&error, "changing a partition") {
                After::Retry => {
                    drop(tx);
                    work(&self.database).await
                }
                After::Reopen => Err(error),
            };
        }
        let database = self.database.clone();
        let mut dropping = pin!(work(&database));
        // Of what has ended already nothing more may be asked.
        let mut dropped = at_most(1, dropping.as_mut()).await;
        if dropped.is_none() {
            self.context.executor.sleep_ns(self.random.below(REST_NS_MAX)).await;
            dropped = at_most(1, dropping.as_mut()).await;
        }
        if matches!(dropped, Some(Ok(_))) {
            self.context.wrong(format!("'{name}' is dropped or truncated while a transaction has changed it"));
        }
        let ended = tx.rollback().await;
        let dropped = match dropped {
            Some(dropped) => dropped,
            None => dropping.await,
        };
        ended.and(dropped)
    }

    fn dropped(&mut self, name: &str, id: PartitionId) -> After {
        self.context.event(ClientEvent::Dropped);
        with_known(&self.context, name, |known| known.is(None));
        if self.context.observed.is_hung.get() {
            // A device that does not answer may still have to let go of it, and the name is free after that only.
            self.avoided.insert(name.to_owned());
        }
        if find(&self.database, name).is_some() || self.database.describe(id).is_ok() {
            self.context.wrong(format!("partition '{name}' is there though it was dropped"));
        }
        After::Retry
    }

    fn not_dropped(&mut self, name: &str, shape: &Rc<Shape>, error: &Error) -> After {
        match error {
            // The drop that this client had given up was done.
            Error::NoPartition(_) if find(&self.database, name).is_none() => {
                self.avoided.insert(name.to_owned());
                After::Retry
            }
            Error::PartitionInUse(_) if self.is_used_by_a_client() => {
                self.context.event(ClientEvent::DropRefused);
                self.context.drop_refused();
                with_known(&self.context, name, |known| known.is(Some(Rc::clone(shape))));
                if self.number_of(name).is_none() {
                    self.context.wrong(format!("partition '{name}' is gone though it was in use"));
                }
                After::Retry
            }
            error => {
                self.context.event(ClientEvent::DropFailed);
                self.avoided.insert(name.to_owned());
                self.context.judge(error, "dropping a partition")
            }
        }
    }

    /// Whether partitions may be in use for longer than a drop waits: by a snapshot that a client holds, by what goes on without one,
    /// or because a device does not answer.
    pub(super) fn is_used_by_a_client(&self) -> bool {
        let (context, observed) = (&self.context, &self.context.observed);
        let is_slow = observed.is_hung.get() || observed.jumped_ns.get() > 0 || context.is_crippled(&self.database);
        let others = context.configuration.partition_clients + usize::from(context.configuration.crowd > 0);
        self.held.is_some() || self.goes_on || is_slow || others > 1
    }
}
