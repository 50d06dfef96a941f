//! Transactions on a client's own partitions: records near the limits of pages and segments, and now and then changes nearly
//! as large as the log.

use super::client::Client;
use super::known::difference;
use super::read::with_known;
use super::shape::{INDEX_NAME, RecordsByNumber, Shape, ShapeKind, group, stored_key};
use crate::ClientEvent;
use crate::abandon::at_most;
use crate::context::After;
use crate::debit_credit::roll_back;
use base::PartitionId;
use engine::set::FieldError;
use engine::{Direction, Error, Internals, Isolation, Result, Transaction};
use std::ops::Bound;
use std::rc::Rc;

/// A partition that a transaction changes.
struct Changed {
    name: String,
    id: PartitionId,
    shape: Rc<Shape>,
    /// What is there now, as the transaction sees it.
    contents: RecordsByNumber,
}

/// A partition by its place among those that are changed, the number of a record of it, and what that becomes.
type Meant = (usize, u64, Option<Rc<[u8]>>);

/// What a transaction has done.
struct PartitionWork {
    changed: Vec<Changed>,
    /// Bytes of values written, and of what a scan's changes log at least.
    written: u64,
    /// Whether it writes as much as it may.
    is_large: bool,
    /// What the last call is to do, of which partition: its record of this number gets a value, or goes. Nothing if that is not known.
    meant: Option<Meant>,
    /// Whether it may be large beside the log: it is meant to be, or changes what a scan meets.
    may_be_large: bool,
}

impl PartitionWork {
    fn new(changed: Vec<Changed>, is_large: bool) -> PartitionWork {
        PartitionWork { changed, written: 0, is_large, meant: None, may_be_large: is_large }
    }
}

/// About what the log has of a small record's deletion on the smallest pages, with its share of the merges, in bytes.
const LOGGED_BY_DELETE: u64 = 256;

/// How many calls are given up before their end, where most of their transactions roll back and where they are to commit.
const GIVEN_UP: f64 = 0.01;
const GIVEN_UP_OF_SEVERAL: f64 = 0.08;

const LEVELS: [Isolation; 4] =
    [Isolation::Serializable, Isolation::Serializable, Isolation::Snapshot, Isolation::ReadCommitted];

impl Client {
    /// One transaction on this partition, and perhaps others.
    pub(super) async fn transact(&mut self, name: &str) -> After {
        let mut names = vec![name.to_owned()];
        if self.random.chance(0.4) {
            names.extend(self.random.choose(&self.usable_names()).filter(|other| *other != name).cloned());
        }
        let mut changed = Vec::new();
        for name in names {
            let state = with_known(&self.context, &name, |known| {
                known.is_used = true;
                known.state().cloned()
            });
            let Some(Some(shape)) = state else { continue };
            let Some(id) = self.number_of(&name) else { return After::Reopen };
            let contents = shape.contents.clone();
            changed.push(Changed { name, id, shape, contents });
        }
        let level = *self.random.choose(&LEVELS).expect("there are some");
        let mut tx = match self.database.begin_at(level).await {
            Ok(tx) => tx,
            Err(error) => return self.context.judge(&error, "begin"),
        };
        let capacity = self.context.configuration.settings.log.capacity;
        let is_large = capacity <= 1 << 20 && self.random.chance(0.1);
        let bytes_max = if is_large { self.random.between(capacity / 8, 5 * capacity / 4) } else { u64::MAX };
        let changes_max = if is_large { 300 } else { self.random.between(1, 8) };
        let mut work = PartitionWork::new(changed, is_large);
        for _ in 0..changes_max {
            let given_up = if self.context.configuration.haste { GIVEN_UP_OF_SEVERAL } else { GIVEN_UP };
            let polls = if self.random.chance(given_up) { self.random.between(1, 4) } else { u64::MAX };
            match at_most(polls, self.change(&mut tx, &mut work)).await {
                Some(Ok(())) => {}
                Some(Err(error)) => {
                    if self.judge(&error, &work, "changing a partition") == After::Reopen {
                        return After::Reopen;
                    }
                    return self.undo(tx).await;
                }
                None if self.context.configuration.haste && work.meant.is_some() => {
                    return self.commit_half(tx, work).await;
                }
                None => return self.undo(tx).await,
            }
            if self.context.over.get() {
                return After::Reopen;
            }
            if work.written > bytes_max {
                break;
            }
        }
        if self.random.chance(0.15) { self.undo(tx).await } else { self.commit(tx, work).await }
    }

    /// The log may be too small only for a transaction that is large beside it; for others that error is a failure.
    fn judge(&self, error: &Error, work: &PartitionWork, doing: &str) -> After {
        if self.is_too_large(error, work) { After::Retry } else { self.context.judge(error, doing) }
    }

    fn is_too_large(&self, error: &Error, work: &PartitionWork) -> bool {
        let capacity = self.context.configuration.settings.log.capacity;
        let is_too_large = matches!(error, Error::LogFull { .. }) && work.may_be_large && work.written > capacity / 16;
        if is_too_large {
            self.context.event(ClientEvent::LogFull);
        }
        is_too_large
    }

    /// Changes or reads something of a partition that is there for certain.
    pub(super) async fn touch(
        &mut self,
        tx: &mut Transaction,
        (name, id): (&str, PartitionId),
        shape: &Rc<Shape>,
    ) -> Result<()> {
        with_known(&self.context, name, |known| known.is_used = true);
        let (shape, contents) = (Rc::clone(shape), shape.contents.clone());
        let changed = vec![Changed { name: name.to_owned(), id, shape, contents }];
        let mut work = PartitionWork::new(changed, false);
        for _ in 0..self.random.between(1, 3) {
            self.change(tx, &mut work).await?;
        }
        Ok(())
    }

    async fn undo(&mut self, tx: Transaction) -> After {
        let context = Rc::clone(&self.context);
        if roll_back(&context, tx, &mut self.random).await { After::Retry } else { After::Reopen }
    }

    async fn commit(&mut self, tx: Transaction, work: PartitionWork) -> After {
        let failed = self.database.log().failure().is_some();
        let polls = if self.random.chance(0.08) { self.random.between(1, 4) } else { u64::MAX };
        for changed in &work.changed {
            with_known(&self.context, &changed.name, |known| known.may_become(Some(changed.after())));
        }
        match at_most(polls, tx.commit()).await {
            Some(Ok(())) => {
                for changed in &work.changed {
                    with_known(&self.context, &changed.name, |known| known.is(Some(changed.after())));
                }
                self.context.oracle.borrow_mut().acknowledged += 1;
                if work.written >= self.context.configuration.settings.log.capacity / 4 {
                    self.context.event(ClientEvent::LargeTransaction);
                }
                if failed && work.changed.iter().any(|changed| changed.shape.contents != changed.contents) {
                    self.context.wrong("a transaction on partitions commits though the log has failed");
                }
                After::Retry
            }
            Some(Err(error)) if error.is_conflict() || self.is_too_large(&error, &work) => {
                for changed in work.changed {
                    with_known(&self.context, &changed.name, |known| known.is(Some(changed.shape)));
                }
                After::Retry
            }
            Some(Err(error)) => {
                self.avoid(work);
                self.context.judge(&error, "commit")
            }
            None => {
                self.avoid(work);
                After::Retry
            }
        }
    }

    /// Commits a transaction whose last call was given up: that was done, or not, or it is refused because half of it may be.
    async fn commit_half(&mut self, tx: Transaction, work: PartitionWork) -> After {
        let name_of = |index: usize| &work.changed[index].name;
        let (index, number, value) = work.meant.as_ref().expect("it is known");
        let done = work.changed[*index].with(*number, value.clone());
        for changed in &work.changed {
            with_known(&self.context, &changed.name, |known| known.may_become(Some(changed.after())));
        }
        with_known(&self.context, name_of(*index), |known| known.may_become(Some(Rc::clone(&done))));
        match tx.commit().await {
            Ok(()) => {
                for changed in &work.changed {
                    with_known(&self.context, &changed.name, |known| known.is(Some(changed.after())));
                }
                with_known(&self.context, name_of(*index), |known| known.may_become(Some(done)));
                self.context.oracle.borrow_mut().acknowledged += 1;
                self.reconcile(&name_of(*index).clone()).await
            }
            Err(error)
                if error.is_conflict()
                    || self.is_too_large(&error, &work)
                    || matches!(error, Error::Abandoned | Error::Aborted { .. }) =>
            {
                self.context.event(ClientEvent::HalfCommitted);
                for changed in work.changed {
                    with_known(&self.context, &changed.name, |known| known.is(Some(changed.shape)));
                }
                After::Retry
            }
            Err(error) => {
                self.avoid(work);
                self.context.judge(&error, "commit")
            }
        }
    }

    /// Whether the commit was made the next restart tells.
    fn avoid(&mut self, work: PartitionWork) {
        self.avoided.extend(work.changed.into_iter().map(|changed| changed.name));
    }

    /// One call.
    async fn change(&mut self, tx: &mut Transaction, work: &mut PartitionWork) -> Result<()> {
        let index = self.random.below(work.changed.len() as u64) as usize;
        work.meant = None;
        let changed = &mut work.changed[index];
        let (kind, objects) = (changed.shape.kind, changed.shape.objects());
        if kind.is_appended() {
            let number = changed.contents.last_key_value().map_or(0, |(last, _)| last + 1);
            let value = self.value(changed, number, work.is_large);
            if self.fits(tx.append(changed.id, &value).await.map(|_| ()), changed, (number, &value))? {
                work.written += value.len() as u64;
                changed.contents.insert(number, value);
            }
            return Ok(());
        }
        if kind.is_tree() && !work.is_large && self.random.chance(0.08) {
            work.may_be_large = true;
            return self.scan(tx, changed, &mut work.written).await;
        }
        let number = match kind {
            ShapeKind::Direct => self.random.below(objects),
            _ => self.random.below(30.max(changed.contents.len() as u64)),
        };
        let value = self.value(changed, number, work.is_large);
        let key = stored_key(number);
        let reads = self.random.below(8);
        let is_written = kind != ShapeKind::Direct && (reads > 2 || work.is_large);
        work.meant = (is_written || reads == 0).then(|| (index, number, is_written.then(|| Rc::clone(&value))));
        if kind == ShapeKind::Direct {
            work.meant = None;
            if reads < 2 {
                let found = tx.read_object(changed.id, number, <[u8]>::to_vec).await?;
                let found = found.iter().any(|byte| *byte != 0).then_some(found);
                return self.compare(changed, number, found);
            }
            tx.modify_object(changed.id, number, |object| object.copy_from_slice(&value)).await?;
            work.written += value.len() as u64;
            changed.contents.insert(number, value);
            return Ok(());
        }
        match if work.is_large { 7 } else { reads } {
            0 => {
                let deleted = tx.delete(changed.id, &key).await?;
                if deleted != changed.contents.remove(&number).is_some() {
                    self.context.differs(
                        &[&changed.name],
                        format!("a delete of record {number} of '{}' says {deleted}", changed.name),
                    );
                }
            }
            1 => {
                let found = tx.get(changed.id, &key).await?;
                self.compare(changed, number, found)?;
            }
            2 => {
                let inserted = match tx.insert(changed.id, &key, &value).await {
                    Err(Error::Duplicate(_)) if changed.contents.contains_key(&number) => return Ok(()),
                    inserted => self.fits(inserted, changed, (number, &value))?,
                };
                if inserted && changed.contents.insert(number, value).is_some() {
                    self.context
                        .differs(&[&changed.name], format!("an insert replaced record {number} of '{}'", changed.name));
                }
            }
            _ => {
                if self.fits(tx.put(changed.id, &key, &value).await, changed, (number, &value))? {
                    work.written += value.len() as u64;
                    changed.contents.insert(number, value);
                }
            }
        }
        Ok(())
    }

    /// A cursor meets what its own transaction changes before it comes there.
    async fn scan(&mut self, tx: &mut Transaction, changed: &mut Changed, written: &mut u64) -> Result<()> {
        let direction = if self.random.chance(0.5) { Direction::Forward } else { Direction::Backward };
        let mut cursor = tx.cursor(changed.id, Bound::Unbounded, Bound::Unbounded, direction);
        let mut last: Option<u64> = None;
        loop {
            let expected = match (direction, last) {
                (Direction::Forward, None) => changed.contents.first_key_value(),
                (Direction::Backward, None) => changed.contents.last_key_value(),
                (Direction::Forward, Some(last)) => changed.contents.range(last + 1..).next(),
                (Direction::Backward, Some(last)) => changed.contents.range(..last).next_back(),
            };
            let expected = expected.map(|(number, value)| (stored_key(*number).to_vec(), value.to_vec()));
            let found = tx.next(&mut cursor).await?;
            if found != expected {
                let name = |record: &Option<(Vec<u8>, Vec<u8>)>| {
                    record.as_ref().map(|(key, value)| (key.clone(), value.len()))
                };
                let (found, expected) = (name(&found), name(&expected));
                self.context.differs(
                    &[&changed.name],
                    format!("a scan of '{}' shows {found:?} in place of {expected:?}", changed.name),
                );
                return Ok(());
            }
            let Some((key, _)) = expected else { return Ok(()) };
            let number = key.try_into().map_or(0, u64::from_be_bytes);
            last = Some(number);
            if self.random.chance(0.3) {
                let near = (number + self.random.below(7)).saturating_sub(3);
                let value = changed.shape.value(near, 10, &mut self.random);
                *written += LOGGED_BY_DELETE + changed.contents.get(&near).map_or(0, |old| old.len() as u64);
                if self.random.chance(0.5) {
                    tx.delete(changed.id, &stored_key(near)).await?;
                    changed.contents.remove(&near);
                } else if near < 60
                    && self.fits(tx.put(changed.id, &stored_key(near), &value).await, changed, (near, &value))?
                {
                    changed.contents.insert(near, value);
                }
            }
        }
    }

    /// A value for the record of this number: short, or near the limit of a page or a segment, or beyond it.
    fn value(&mut self, changed: &Changed, number: u64, is_large: bool) -> Rc<[u8]> {
        let configuration = &self.context.configuration;
        let limit = changed.shape.length_max(configuration.settings.buffer.page_size) as u64;
        let long = if changed.shape.kind.is_tree() { configuration.value_max.min(8_000) } else { limit };
        let length = match self.random.below(24) {
            _ if is_large => self.random.between(long / 2, long),
            0 | 1 => limit.saturating_sub(self.random.below(3)),
            2 => limit + self.random.between(1, 3),
            3 => self.random.between(0, long),
            _ => self.random.between(0, limit.min(120)),
        };
        // Now and then what another record has in a unique index.
        let of = if changed.shape.is_unique && self.random.chance(0.2) { self.random.below(30) } else { number };
        changed.shape.value(of, length as usize, &mut self.random)
    }

    /// Whether a value was taken; one over the limit is refused, or of which another record has the contents in a unique index, and the
    /// transaction goes on.
    fn fits(&self, result: Result<()>, changed: &Changed, (number, value): (u64, &[u8])) -> Result<bool> {
        if changed.shape.is_unique && self.is_taken(&result, changed, (number, value)) {
            return Ok(false);
        }
        let limit = changed.shape.length_max(self.context.configuration.settings.buffer.page_size);
        let is_over = !changed.shape.kind.is_tree() && value.len() > limit;
        match result {
            Err(Error::TooLarge { .. }) if is_over => {
                self.context.event(ClientEvent::RecordTooLarge);
                Ok(false)
            }
            Ok(()) if is_over => {
                self.context.wrong(format!("'{}' takes a value of {} bytes", changed.name, value.len()));
                Ok(true)
            }
            result => {
                if result.is_ok() && !changed.shape.kind.is_tree() && value.len() + 2 >= limit {
                    self.context.event(ClientEvent::RecordAtLimit);
                }
                result.map(|()| true)
            }
        }
    }

    /// Whether a write was refused because another record has its contents in the unique index. Where that is there, such a one must be.
    fn is_taken(&self, written: &Result<()>, changed: &Changed, (number, value): (u64, &[u8])) -> bool {
        let (name, of) = (&changed.name, group(value));
        let index = with_known(&self.context, name, |known| known.index());
        let has_it = |(other, value): &(&u64, &Rc<[u8]>)| **other != number && group(value) == of;
        let mut others = changed.contents.iter().filter(has_it).map(|(other, _)| *other);
        match written {
            Err(Error::Field { error: FieldError::NotUnique(why), .. }) => {
                let is_true =
                    others.any(|other| stored_key(other) == why.present[..]) && why.refused == stored_key(number);
                if !is_true || why.index != INDEX_NAME || index == Some(false) {
                    self.context.differs(&[name], format!("a record of '{name}' is refused, which is not so: {why}"));
                }
                self.context.event(ClientEvent::ContentsTaken);
                true
            }
            Ok(()) if index == Some(true) => {
                if let Some(other) = others.next() {
                    let what = format!("'{name}' takes record {number} with what record {other} has in a unique index");
                    self.context.differs(&[name], what);
                }
                false
            }
            _ => false,
        }
    }

    fn compare(&self, changed: &Changed, number: u64, found: Option<Vec<u8>>) -> Result<()> {
        let expected = changed.contents.get(&number);
        if found.as_deref() != expected.map(|value| &value[..]) {
            let found: RecordsByNumber = found.into_iter().map(|value| (number, value.into())).collect();
            let expected: RecordsByNumber = expected.into_iter().map(|value| (number, Rc::clone(value))).collect();
            let what = difference(&expected, &found);
            self.context.differs(
                &[&changed.name],
                format!("a transaction on '{}' reads another record: it {what}", changed.name),
            );
        }
        Ok(())
    }
}

impl Changed {
    /// The partition as the transaction leaves it if a record of it gets this value besides, or goes.
    fn with(&self, number: u64, value: Option<Rc<[u8]>>) -> Rc<Shape> {
        let mut contents = self.contents.clone();
        match value {
            Some(value) => contents.insert(number, value),
            None => contents.remove(&number),
        };
        Rc::new(self.shape.with(contents))
    }

    /// The partition as the transaction leaves it.
    fn after(&self) -> Rc<Shape> {
        Rc::new(self.shape.with(self.contents.clone()))
    }
}
