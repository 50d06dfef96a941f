//! Renaming and truncating partitions: what was acknowledged stays so, what failed or was cut off was done or not, and nothing between.

use super::client::Client;
use super::read::{find, with_known};
use super::shape::{RecordsByNumber, Shape};
use crate::ClientEvent;
use crate::abandon::at_most;
use crate::context::After;
use base::PartitionId;
use engine::catalog::Organization;
use engine::{Database, Error};
use std::rc::Rc;

impl Client {
    /// Gives a partition that is there another of this client's names, which is taken now and then.
    pub(super) async fn rename(&mut self, name: &str, shape: &Rc<Shape>) -> After {
        self.context.note_change();
        let Some(id) = self.number_of(name) else { return After::Reopen };
        let others: Vec<String> = self.usable_names().into_iter().filter(|other| other != name).collect();
        let Some(other) = self.care.choose(&others).cloned() else { return After::Retry };
        match with_known(&self.context, &other, |known| known.state().cloned()) {
            None => self.reconcile(&other).await,
            Some(Some(_)) => self.rename_to_taken(id, (name, &other)).await,
            Some(None) => self.rename_to_free(id, (name, &other), shape).await,
        }
    }

    async fn rename_to_taken(&mut self, id: PartitionId, (name, other): (&str, &str)) -> After {
        match self.database.rename_partition(id, other).await {
            Ok(()) => self.context.wrong(format!("'{name}' is renamed '{other}', which is taken")),
            Err(Error::PartitionExists(_)) => {}
            Err(error) => return self.context.judge(&error, "renaming a partition to a name that is taken"),
        }
        After::Retry
    }

    async fn rename_to_free(&mut self, id: PartitionId, (name, other): (&str, &str), shape: &Rc<Shape>) -> After {
        let renamed = Rc::new(shape.renamed(other));
        let index = with_known(&self.context, name, |known| {
            known.may_become(None);
            known.index()
        });
        with_known(&self.context, other, |known| {
            known.may_become(Some(Rc::clone(&renamed)));
            known.note_index(index);
        });
        let polls = if self.care.chance(0.2) { self.care.between(1, 8) } else { u64::MAX };
        let done = at_most(polls, self.database.rename_partition(id, other)).await;
        let is_found = |name| find(&self.database, name).is_some_and(|found| found.id() == id);
        match done {
            Some(Ok(())) => {
                self.context.event(ClientEvent::Renamed);
                if let Some(held) = &mut self.held {
                    held.rename(name, other);
                }
                let is_used = with_known(&self.context, name, |known| {
                    known.is(None);
                    std::mem::take(&mut known.is_used)
                });
                with_known(&self.context, other, |known| {
                    known.is(Some(renamed));
                    known.is_used = is_used;
                });
                if find(&self.database, name).is_some() || !is_found(other) {
                    self.context.wrong(format!("'{name}' was renamed '{other}', and is not found as that alone"));
                }
                After::Retry
            }
            Some(Err(error)) => {
                self.context.event(ClientEvent::RenameFailed);
                // This run knows it by the name that it had; the next may find either.
                if !is_found(name) || find(&self.database, other).is_some() {
                    self.context.wrong(format!("'{name}' is not what it was though '{other}' was refused: {error}"));
                }
                self.doubt_name(name, other);
                self.judge_care(&error, "renaming a partition")
            }
            // It goes on without this client.
            None => {
                self.doubt_name(name, other);
                After::Retry
            }
        }
    }

    /// Leaves a partition alone that has one of two names.
    fn doubt_name(&mut self, name: &str, other: &str) {
        if let Some(held) = &mut self.held {
            held.forget(name);
            held.forget(other);
        }
        self.avoided.extend([name.to_owned(), other.to_owned()]);
        self.context.oracle.borrow_mut().renames.push((name.to_owned(), other.to_owned()));
    }

    /// Takes all records out of a partition, now and then while this client still uses it.
    pub(super) async fn truncate(&mut self, name: &str, shape: &Rc<Shape>) -> After {
        self.context.note_change();
        let Some(id) = self.number_of(name) else { return After::Reopen };
        let shows = self.held.as_ref().is_some_and(|held| held.shows(id));
        // A truncation waits for a snapshot for as long as it has patience.
        let is_held = shows && self.care.chance(0.2);
        if !is_held {
            self.held = None;
        }
        let empty = Rc::new(shape.with(RecordsByNumber::new()));
        with_known(&self.context, name, |known| known.may_become(Some(Rc::clone(&empty))));
        let work = async |database: &Database| database.truncate_partition(id).await;
        let truncated = match self.care.below(8) {
            0 | 1 => self.beside_a_transaction((name, id), shape, work).await,
            2 => {
                let polls = self.care.between(1, 8);
                match at_most(polls, self.database.truncate_partition(id)).await {
                    Some(truncated) => truncated,
                    None => {
                        // It goes on without this client, and may begin after the next one has ended.
                        self.context.drop_refused();
                        self.avoided.insert(name.to_owned());
                        return After::Retry;
                    }
                }
            }
            _ => work(&self.database).await,
        };
        match truncated {
            Ok(_) if is_held => {
                self.context.wrong(format!("'{name}' is truncated while a snapshot shows it"));
                After::Reopen
            }
            Ok(new) => {
                self.context.event(ClientEvent::Truncated);
                with_known(&self.context, name, |known| {
                    known.is(Some(empty));
                    known.is_used = false;
                });
                if self.number_of(name) != Some(new) || new == id || self.database.describe(id).is_ok() {
                    self.context.wrong(format!("'{name}' was truncated and is not found as {new:?} alone"));
                }
                After::Retry
            }
            Err(Error::PartitionInUse(_)) if self.is_used_by_a_client() => {
                self.context.event(ClientEvent::TruncationFailed);
                self.context.drop_refused();
                with_known(&self.context, name, |known| known.is(Some(Rc::clone(shape))));
                if self.number_of(name) != Some(id) {
                    self.context.wrong(format!("'{name}' is another one though its truncation was refused"));
                }
                After::Retry
            }
            Err(error) => {
                self.context.event(ClientEvent::TruncationFailed);
                self.avoided.insert(name.to_owned());
                self.context.judge(&error, "truncating a partition")
            }
        }
    }

    /// Gives the room of a partition back, in which nothing changes, or of the one in which the clients of records have theirs.
    pub(super) async fn compact(&mut self, name: &str) -> After {
        let name = if self.care.chance(0.5) { "records" } else { name };
        let Some(id) = self.number_of(name) else { return After::Reopen };
        let polls = if self.care.chance(0.2) { self.care.between(1, 40) } else { u64::MAX };
        match at_most(polls, self.database.compact_partition(id)).await {
            Some(Ok(done)) if done.given_back + done.memory > 0 => {
                let organization = self.database.describe(id).map(|found| found.organization);
                self.context.event(match organization {
                    Ok(Organization::Set { .. }) => ClientEvent::SetCompacted,
                    Ok(Organization::Direct { .. }) => ClientEvent::ObjectsCompacted,
                    _ => ClientEvent::Compacted,
                });
            }
            None => {
                // It goes on without this client, and may wait for transactions.
                self.context.drop_refused();
                self.goes_on = true;
            }
            // There was nothing to give back.
            Some(Ok(_)) => {}
            // It waits for all that has begun before its end.
            Some(Err(Error::PartitionInUse(_))) => {
                self.context.event(ClientEvent::CompactionFailed);
                self.context.drop_refused();
            }
            Some(Err(Error::LogCrowded { .. })) => self.context.event(ClientEvent::CompactionFailed),
            Some(Err(error)) => {
                self.context.event(ClientEvent::CompactionFailed);
                return self.judge_care(&error, "compacting a partition");
            }
        }
        After::Retry
    }

    /// Others may keep from being done for long what sweeps all sets.
    fn judge_care(&self, error: &Error, doing: &str) -> After {
        if matches!(error, Error::PartitionInUse(_)) && self.is_used_by_a_client() {
            self.context.drop_refused();
            return After::Retry;
        }
        self.context.judge(error, doing)
    }
}

/// What is wrong with the renames that a run has left in doubt: a partition has one of its two names, and not both.
pub(super) fn misnamed(renames: &[(String, String)], is_there: impl Fn(&str) -> bool) -> Option<String> {
    let is_wrong = |(name, other): &&(String, String)| is_there(name) == is_there(other);
    let (name, other) = renames.iter().find(is_wrong)?;
    let found = if is_there(name) { "both" } else { "neither" };
    Some(format!("a partition that was '{name}' and may be '{other}' is {found}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_partition_in_doubt_has_one_name() {
        let renames = [("old".to_owned(), "new".to_owned())];
        let judge = |there: &[&str]| {
            let there: BTreeSet<&str> = there.iter().copied().collect();
            misnamed(&renames, |name| there.contains(name))
        };
        assert_eq!((judge(&["old"]), judge(&["new", "third"])), (None, None));
        assert!(judge(&["old", "new"]).is_some_and(|what| what.contains("both")));
        assert!(judge(&["third"]).is_some_and(|what| what.contains("neither")));
    }
}
