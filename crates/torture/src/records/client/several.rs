//! Calls on several records at a time, and rollbacks to savepoints, that are given up: each has done something of the beginning of what it was
//! to do, or its transaction can only be rolled back.

use super::{Client, Half, RecordWork, is_abandoned};
use crate::ClientEvent;
use crate::abandon::at_most;
use crate::context::After;
use crate::records::owner::{RecordsByKey, difference, tag, value};
use engine::organization::b_tree;
use engine::{Direction, Error, Internals, Result};
use std::ops::Bound;
use std::rc::Rc;

/// How many records a call is for, and how long their values are, at most: the shortest log has room for many such calls.
const RECORDS_MAX: u64 = 8;
const LENGTH_MAX: u64 = 120;

impl Client {
    /// One of these.
    pub(super) async fn change_several(&mut self, work: &mut RecordWork) -> Result<()> {
        match self.several.below(7) {
            0 | 1 => self.insert_each(work).await,
            2 | 3 => self.modify_each(work).await,
            4 => self.get_each(work).await,
            5 if work.savepoints.is_empty() => {
                work.savepoints.push((work.tx.savepoint(), work.contents.clone()));
                Ok(())
            }
            _ => self.roll_back_halfway(work).await,
        }
    }

    /// After how many polls a call is given up.
    fn polls(&mut self) -> u64 {
        if self.several.chance(0.4) { self.several.between(1, 8) } else { u64::MAX }
    }

    async fn insert_each(&mut self, work: &mut RecordWork) -> Result<()> {
        let count = self.several.between(2, RECORDS_MAX);
        let mut records: Vec<(Vec<u8>, Rc<[u8]>)> = (0..count)
            .map(|_| {
                let (key, length) = (self.any_key(), self.several.below(LENGTH_MAX) as usize);
                (key, value(self.number, work.version, length, &mut self.several))
            })
            .collect();
        if self.several.chance(0.5) {
            records.sort_by(|(one, _), (other, _)| one.cmp(other));
        }
        // What there is after each of them.
        let mut states = vec![work.contents.clone()];
        for (key, value) in &records {
            let mut state = states.last().expect("there is one").clone();
            if state.insert(key.clone(), Rc::clone(value)).is_some() {
                break;
            }
            states.push(state);
        }
        let is_refused = states.len() <= records.len();
        match at_most(self.polls(), work.tx.insert_each(self.partition, &records)).await {
            Some(Err(Error::Duplicate(_))) if is_refused => {}
            Some(done) => {
                done?;
                if is_refused {
                    self.context.differs(&["records"], "an insert of several replaced a record");
                }
            }
            None => return self.look_at_several(work, &states).await,
        }
        work.contents = states.pop().expect("there is one");
        Ok(())
    }

    async fn modify_each(&mut self, work: &mut RecordWork) -> Result<()> {
        let page_size = self.database.settings().buffer.page_size;
        let suits = |key: &Vec<u8>, value: &Rc<[u8]>| {
            value.len() + 8 <= b_tree::value_len_max(page_size, key.len()) && !value.is_empty()
        };
        let mut keys = Vec::new();
        for _ in 0..self.several.between(2, RECORDS_MAX) {
            let key = self.any_key();
            // Some are not there.
            if work.contents.get(&key).map_or(self.several.chance(0.1), |value| suits(&key, value)) {
                keys.push(key);
            }
        }
        if self.several.chance(0.5) {
            keys.sort();
        }
        let (mut states, mut old, mut new) = (vec![work.contents.clone()], Vec::new(), Vec::new());
        for key in &keys {
            let mut state = states.last().expect("there is one").clone();
            let Some(present) = state.get(key) else { break };
            let mut changed = present.to_vec();
            let at = self.several.below(changed.len() as u64) as usize;
            changed[at] ^= 0xa5;
            tag(&mut changed, self.number, work.version);
            old.push(Rc::clone(present));
            new.push(changed.clone());
            state.insert(key.clone(), changed.into());
            states.push(state);
        }
        let is_refused = states.len() <= keys.len();
        let mut shown: Vec<(usize, Rc<[u8]>)> = Vec::new();
        let change = |position: usize, value: &mut [u8]| {
            shown.push((position, (*value).into()));
            if let Some(new) = new.get(position).filter(|new| new.len() == value.len()) {
                value.copy_from_slice(new);
            }
        };
        let done = at_most(self.polls(), work.tx.modify_each(self.partition, &keys, change)).await;
        if shown
            .iter()
            .enumerate()
            .any(|(index, (position, value))| index != *position || old.get(index) != Some(value))
        {
            self.context.differs(&["records"], format!("client {} is shown other records to change", self.number));
        }
        match done {
            Some(Err(Error::NoRecord(_))) if is_refused => {}
            Some(done) => {
                done?;
                if is_refused || shown.len() < keys.len() {
                    self.context.differs(&["records"], "a change of several passes over records");
                }
            }
            None => return self.look_at_several(work, &states).await,
        }
        work.contents = states.pop().expect("there is one");
        Ok(())
    }

    async fn get_each(&mut self, work: &mut RecordWork) -> Result<()> {
        let mut keys: Vec<Vec<u8>> = (0..self.several.between(2, 2 * RECORDS_MAX)).map(|_| self.any_key()).collect();
        if self.several.chance(0.5) {
            keys.sort();
        }
        let mut shown: Vec<(usize, Option<Rc<[u8]>>)> = Vec::new();
        let look = |position: usize, value: Option<&[u8]>| shown.push((position, value.map(Rc::from)));
        let done = at_most(self.polls(), work.tx.get_each_with(self.partition, &keys, look)).await;
        let expected = keys.iter().map(|key| work.contents.get(key)).enumerate();
        let is_in_order =
            shown.iter().zip(expected).all(|((position, value), next)| (*position, value.as_ref()) == next);
        let is_whole = !matches!(done, Some(Ok(()))) || shown.len() == keys.len();
        if !is_whole || !is_in_order {
            self.context.differs(&["records"], format!("client {} reads other values of several records", self.number));
        }
        done.unwrap_or(Ok(()))
    }

    /// Looks which of these a call has come to whose answer never came.
    async fn look_at_several(&mut self, work: &mut RecordWork, states: &[RecordsByKey]) -> Result<()> {
        self.context.event(ClientEvent::SeveralGivenUp);
        let found = self.read_own(&mut work.tx, (Bound::Unbounded, Bound::Unbounded), Direction::Forward).await?;
        if !states.contains(&found) {
            let what = difference(&states[0], &found);
            self.context.differs(&["records"], format!("client {} after a call on several: {what}", self.number));
        }
        work.contents = found;
        Ok(())
    }

    /// Goes back to a savepoint, perhaps not to the end. What has not come to its end, or has failed, has taken nothing back, or its transaction
    /// can only be rolled back.
    async fn roll_back_halfway(&mut self, work: &mut RecordWork) -> Result<()> {
        if work.savepoints.is_empty() {
            return Ok(());
        }
        let index = self.several.below(work.savepoints.len() as u64) as usize;
        let (savepoint, contents) = work.savepoints[index].clone();
        let polls = if self.several.chance(0.7) { self.several.between(1, 12) } else { u64::MAX };
        match at_most(polls, work.tx.rollback_to(savepoint)).await {
            Some(Ok(())) => {
                work.contents = contents;
                work.savepoints.truncate(index + 1);
                return Ok(());
            }
            Some(Err(error)) => {
                let is_over = error.is_conflict() || is_abandoned(&error);
                if is_over || self.context.judge(&error, "rollback to a savepoint") == After::Reopen {
                    return Err(error);
                }
                self.context.event(ClientEvent::SavepointFailed);
            }
            None => self.context.event(ClientEvent::SavepointGivenUp),
        }
        work.half = Half::Perhaps;
        if self.several.chance(0.5) {
            return Ok(());
        }
        match self.read_own(&mut work.tx, (Bound::Unbounded, Bound::Unbounded), Direction::Forward).await {
            Ok(found) if found == work.contents => Ok(()),
            Ok(found) => {
                let what = difference(&work.contents, &found);
                self.context.differs(&["records"], format!("client {} has gone back halfway: {what}", self.number));
                Ok(())
            }
            Err(error) if is_abandoned(&error) => {
                work.half = Half::Refused;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}
