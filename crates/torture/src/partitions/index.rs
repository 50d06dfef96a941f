//! Creating and dropping the secondary index of a b-tree or a set of typed records, beside transactions and snapshots on it. Each check
//! compares the index with the records.

use super::client::Client;
use super::read::{find, with_known};
use super::shape::{INDEX_NAME, Shape, ShapeKind};
use crate::ClientEvent;
use crate::abandon::at_most;
use crate::context::After;
use engine::Error;
use engine::set::FieldError;
use std::pin::pin;

/// How often an index is changed in a row at most.
const CHANGES_MAX: u64 = 4;

impl Client {
    /// Changes the index once or several times.
    pub(super) async fn change_index(&mut self, name: &str, shape: &Shape) -> After {
        self.context.note_change();
        for _ in 0..self.drops.between(1, CHANGES_MAX) {
            if self.context.over.get() || self.change_index_once(name, shape).await == After::Reopen {
                return After::Reopen;
            }
            if self.avoided.contains(name) {
                break;
            }
        }
        After::Retry
    }

    /// Drops the index if it is there, and creates it otherwise.
    async fn change_index_once(&mut self, name: &str, shape: &Shape) -> After {
        let Some(id) = self.number_of(name) else { return After::Reopen };
        // What had begun before is waited for.
        self.held = None;
        let is_set = shape.kind == ShapeKind::Typed;
        let (creates, drops) = match is_set {
            true => (ClientEvent::SetIndexCreated, ClientEvent::SetIndexDropped),
            false => (ClientEvent::IndexCreated, ClientEvent::IndexDropped),
        };
        let database = self.database.clone();
        if database.secondary(id, INDEX_NAME).is_ok() {
            with_known(&self.context, name, |known| known.note_index(None));
            let dropped = database.drop_index(id, INDEX_NAME).await;
            if dropped.is_ok() && database.secondary(id, INDEX_NAME).is_ok() {
                self.context.wrong(format!("the index of '{name}' is there though it was dropped"));
            }
            return self.changed_index(name, dropped.map(|()| false), drops);
        }
        let polls = if self.drops.chance(0.15) { self.drops.between(1, 8) } else { u64::MAX };
        with_known(&self.context, name, |known| known.note_index(None));
        let mut had_twice = self.has_twice(name);
        let mut creating = pin!(database.create_index(id, shape.index()));
        // Its transactions go on beside the creation.
        let mut created = at_most(1, creating.as_mut()).await;
        if is_set && created.is_none() && self.drops.chance(0.2) {
            let dropped = database.drop_index(id, INDEX_NAME).await;
            let _given_up = creating.await;
            return self.changed_index(name, dropped.map(|()| false), drops);
        }
        if created.is_none() && self.drops.chance(0.7) {
            if self.change_beside(name, &mut had_twice).await == After::Reopen {
                return After::Reopen;
            }
            created = at_most(polls, creating.as_mut()).await;
        } else if created.is_none() {
            created = Some(creating.await);
        }
        match created {
            Some(Err(Error::Field { error: FieldError::NotUnique(_), .. })) if shape.is_unique => {
                self.refused_index(name, had_twice)
            }
            Some(created) => {
                if created.is_ok() && shape.is_unique {
                    self.made_unique(name);
                }
                self.changed_index(name, created.map(|_| true), creates)
            }
            // The creation continues without this client.
            None => {
                self.avoided.insert(name.to_owned());
                After::Retry
            }
        }
    }

    /// Whether two records have, or may have, the same contents in the index.
    fn has_twice(&self, name: &str) -> bool {
        with_known(&self.context, name, |known| known.shapes().any(|shape| shape.has_twice()))
    }

    /// A unique index is there: no two records have the same contents.
    fn made_unique(&self, name: &str) {
        self.context.event(ClientEvent::UniqueIndexMade);
        if with_known(&self.context, name, |known| known.state().is_some()) && self.has_twice(name) {
            self.context
                .differs(&[name], format!("'{name}' gets a unique index though two records are the same in it"));
        }
    }

    /// A unique index is refused, and nothing is left of it, because two records have, or had, the same contents.
    fn refused_index(&self, name: &str, had_twice: bool) -> After {
        self.context.event(ClientEvent::IndexNotUnique);
        with_known(&self.context, name, |known| known.note_index(Some(false)));
        if !had_twice {
            self.context
                .differs(&[name], format!("'{name}' gets no unique index though no records are the same in it"));
        }
        After::Retry
    }

    /// Changes records, and notes whether two have the same contents in between.
    async fn change_beside(&mut self, name: &str, had_twice: &mut bool) -> After {
        for _ in 0..self.drops.between(1, 4) {
            if with_known(&self.context, name, |known| known.state().is_none()) || self.avoided.contains(name) {
                break;
            }
            if self.context.over.get() || Box::pin(self.transact(name)).await == After::Reopen {
                return After::Reopen;
            }
            *had_twice |= self.has_twice(name);
        }
        After::Retry
    }

    /// Notes whether the index is there now.
    fn changed_index(&mut self, name: &str, changed: Result<bool, Error>, event: ClientEvent) -> After {
        match changed {
            // Of a failed change the next restart may still find that it was done.
            Ok(is_there) => {
                with_known(&self.context, name, |known| known.note_index(Some(is_there)));
                self.context.event(event);
                After::Retry
            }
            // Others use it, or a creation or a drop that was given up goes on.
            Err(Error::PartitionInUse(_)) => {
                self.context.event(ClientEvent::IndexFailed);
                self.context.drop_refused();
                self.goes_on = true;
                After::Retry
            }
            Err(Error::PartitionExists(_) | Error::Field { .. }) if find(&self.database, name).is_some() => {
                self.context.event(ClientEvent::IndexFailed);
                After::Retry
            }
            Err(error) => {
                self.context.event(ClientEvent::IndexFailed);
                self.context.judge(&error, "creating or dropping an index")
            }
        }
    }
}
