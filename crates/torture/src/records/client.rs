mod several;

use super::owner::{RecordsByKey, difference, key, owner_of, tag, value, version_of};
use crate::ClientEvent;
use crate::abandon::at_most;
use crate::context::{After, RunContext};
use crate::debit_credit::roll_back;
use base::time::MILLISECOND_NS;
use base::{PartitionId, Random};
use engine::organization::b_tree;
use engine::{Database, Direction, Error, Internals, Result, Savepoint, Transaction};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::rc::Rc;

/// One client at work.
struct Client {
    context: Rc<RunContext>,
    database: Database,
    partition: PartitionId,
    number: usize,
    random: Random,
    /// The random numbers of calls on several records.
    several: Random,
    /// How long it waits for a change of a record, in nanoseconds; for ever if this is absent.
    patience_ns: Option<u64>,
}

/// A transaction and what it has done.
struct RecordWork {
    tx: Transaction,
    version: u64,
    /// What the client's records are now, as this transaction sees them.
    contents: RecordsByKey,
    savepoints: Vec<(Savepoint, RecordsByKey)>,
    /// The latest transaction of each other client of which it was shown a value.
    shown: BTreeMap<usize, u64>,
    half: Half,
}

/// Whether a transaction has gone back to a savepoint in part, after which it can only be rolled back.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Half {
    No,
    /// It was not seen yet.
    Perhaps,
    /// It was told so.
    Refused,
}

/// Runs one client's transactions.
pub async fn client(context: Rc<RunContext>, database: Database, number: usize) {
    let Some(partition) = context.partition(&database, "records") else { return };
    let random = context.random(&format!("records {number}"));
    let patience_ns = patience_ns(&mut context.random(&format!("patience {number}")));
    let several = context.random(&format!("several {number}"));
    let mut client = Client { context, database, partition, number, random, several, patience_ns };
    for _ in 0..client.context.configuration.transactions {
        client.context.pause(&mut client.random).await;
        if client.context.over.get() || client.run().await == After::Reopen {
            return;
        }
    }
}

/// Whether a transaction is told that half of a change was given up.
fn is_abandoned(error: &Error) -> bool {
    matches!(error, Error::Abandoned | Error::Aborted { .. })
}

/// Every other client gives up calls whose operations take much longer than they should.
fn patience_ns(random: &mut Random) -> Option<u64> {
    random.chance(0.5).then(|| random.between(1, 20) * MILLISECOND_NS)
}

impl Client {
    async fn run(&mut self) -> After {
        let tx = match self.database.begin().await {
            Ok(tx) => tx,
            Err(error) => return self.context.judge(&error, "begin"),
        };
        let (version, contents) = {
            let owner = &mut self.context.oracle.borrow_mut().owners[self.number];
            (owner.begin(), owner.committed.clone())
        };
        let mut work =
            RecordWork { tx, version, contents, savepoints: Vec::new(), shown: BTreeMap::new(), half: Half::No };
        let long = self.random.chance(self.context.configuration.long_transactions);
        for _ in 0..self.random.between(1, if long { 80 } else { 10 }) {
            if let Err(error) = self.change(&mut work).await {
                if work.half == Half::Perhaps && is_abandoned(&error) {
                    return self.commit_half(work).await;
                }
                if self.context.judge(&error, "records") == After::Reopen {
                    return After::Reopen;
                }
                return self.undo(work.tx).await;
            }
            if self.context.over.get() {
                return After::Reopen;
            }
            if work.half == Half::Refused {
                return self.commit_half(work).await;
            }
        }
        if self.random.chance(0.15) { self.undo(work.tx).await } else { self.commit(work).await }
    }

    async fn undo(&mut self, tx: Transaction) -> After {
        let context = Rc::clone(&self.context);
        if roll_back(&context, tx, &mut self.random).await { After::Retry } else { After::Reopen }
    }

    async fn commit(&mut self, work: RecordWork) -> After {
        let RecordWork { tx, version, contents, shown, half, .. } = work;
        let failed = self.database.log().failure().is_some();
        let changes = {
            let owner = &mut self.context.oracle.borrow_mut().owners[self.number];
            let changes = owner.committed != contents;
            owner.doubt = Some((version, contents));
            changes
        };
        self.context.note_owner(self.number);
        let abandoned = if self.random.chance(0.08) { self.random.between(1, 4) } else { u64::MAX };
        match at_most(abandoned, tx.commit()).await {
            Some(Ok(())) => {
                self.acknowledge(shown);
                if failed && changes {
                    self.context.wrong(format!("version {version} commits though the log has failed"));
                }
                // All of it is there, since it has not gone back at all.
                if half == Half::No { After::Retry } else { self.resolve().await }
            }
            // After a conflict there is no commit, and of half a transaction there is none.
            Some(Err(error)) if error.is_conflict() || half != Half::No && is_abandoned(&error) => {
                if half != Half::No {
                    self.context.event(ClientEvent::HalfCommitted);
                }
                self.context.oracle.borrow_mut().owners[self.number].doubt = None;
                self.context.note_owner(self.number);
                After::Retry
            }
            Some(Err(error)) => match self.context.judge(&error, "commit") {
                After::Retry => self.resolve().await,
                After::Reopen => After::Reopen,
            },
            None => self.resolve().await,
        }
    }

    /// Tries to commit one that was told that it has half of a change.
    async fn commit_half(&mut self, work: RecordWork) -> After {
        self.context.event(ClientEvent::HalfCommitted);
        match work.tx.commit().await {
            Ok(()) => {
                self.context.wrong(format!("version {} commits though half of it was taken back", work.version));
                After::Reopen
            }
            Err(error) if error.is_conflict() || is_abandoned(&error) => After::Retry,
            Err(error) => self.context.judge(&error, "commit"),
        }
    }

    /// The commit of one that was shown these is told.
    fn acknowledge(&self, shown: BTreeMap<usize, u64>) {
        let oracle = &mut *self.context.oracle.borrow_mut();
        oracle.owners[self.number].acknowledge();
        oracle.acknowledged += 1;
        for (owner, version) in shown {
            oracle.owners[owner].seen = oracle.owners[owner].seen.max(version);
        }
        self.context.note_owner_of(oracle, self.number);
    }

    /// Looks whether a commit whose answer never came was made.
    async fn resolve(&mut self) -> After {
        for _ in 0..50 {
            match self.read_committed().await {
                Ok(found) => {
                    let reconciled = self.context.oracle.borrow_mut().owners[self.number].reconcile(&found);
                    self.context.note_owner(self.number);
                    if let Err(what) = reconciled {
                        self.context
                            .differs(&["records"], format!("client {} after an abandoned commit: {what}", self.number));
                        return After::Reopen;
                    }
                    return After::Retry;
                }
                Err(error) if self.context.judge(&error, "resolving a doubt") == After::Reopen => return After::Reopen,
                Err(_) => {}
            }
        }
        // The next restart tells.
        self.context.over.set(true);
        After::Reopen
    }

    /// The client's own records, by a transaction that reads nothing else.
    async fn read_committed(&self) -> Result<RecordsByKey> {
        let mut tx = self.database.begin().await?;
        let found = self.read_own(&mut tx, (Bound::Unbounded, Bound::Unbounded), Direction::Forward).await?;
        tx.commit().await?;
        Ok(found)
    }

    fn any_key(&mut self) -> Vec<u8> {
        let length_max = b_tree::key_len_max(self.database.settings().buffer.page_size);
        key(self.number, self.random.below(self.context.configuration.keys), length_max)
    }

    fn any_length(&mut self) -> usize {
        let length = match self.random.below(10) {
            0 => self.random.between(0, self.context.configuration.value_max),
            1 | 2 => self.random.between(0, 1_500),
            _ => self.random.between(0, 120),
        };
        length as usize
    }

    /// One call, or a few that belong together.
    async fn change(&mut self, work: &mut RecordWork) -> Result<()> {
        if self.context.configuration.haste && self.several.chance(0.4) {
            return self.change_several(work).await;
        }
        match self.random.below(24) {
            0..=3 => self.delete(work).await,
            4..=6 => self.modify(work).await,
            7..=8 => self.insert(work).await,
            9..=10 => self.get(work).await,
            11..=12 => self.scan_own(work).await,
            13 if self.random.chance(0.5) => self.scan_all(work).await,
            14..=15 => {
                work.savepoints.push((work.tx.savepoint(), work.contents.clone()));
                Ok(())
            }
            16 => self.roll_back_to_savepoint(work).await,
            17 => self.abandon(work).await,
            _ => self.put(work).await,
        }
    }

    async fn put(&mut self, work: &mut RecordWork) -> Result<()> {
        let (key, length) = (self.any_key(), self.any_length());
        let value = value(self.number, work.version, length, &mut self.random);
        match self.in_time(work.tx.put(self.partition, &key, &value)).await {
            Some(result) => result?,
            None => return self.look(work, key, Some(value)).await,
        }
        work.contents.insert(key, value);
        Ok(())
    }

    /// What a call comes to while the client has the patience.
    async fn in_time<T>(&self, call: impl Future<Output = T>) -> Option<T> {
        match self.patience_ns {
            Some(ns) => self.context.executor.within(ns, call).await,
            None => Some(call.await),
        }
    }

    async fn insert(&mut self, work: &mut RecordWork) -> Result<()> {
        let (key, length) = (self.any_key(), self.any_length());
        let value = value(self.number, work.version, length, &mut self.random);
        match work.tx.insert(self.partition, &key, &value).await {
            Err(Error::Duplicate(_)) if work.contents.contains_key(&key) => return Ok(()),
            result => result?,
        }
        if work.contents.insert(key, value).is_some() {
            self.context.differs(&["records"], "an insert replaced a record");
        }
        Ok(())
    }

    async fn delete(&mut self, work: &mut RecordWork) -> Result<()> {
        let key = self.any_key();
        let deleted = match self.in_time(work.tx.delete(self.partition, &key)).await {
            Some(result) => result?,
            None => return self.look(work, key, None).await,
        };
        if deleted != work.contents.remove(&key).is_some() {
            self.context.differs(&["records"], format!("a delete says {deleted}"));
        }
        Ok(())
    }

    async fn modify(&mut self, work: &mut RecordWork) -> Result<()> {
        let key = self.any_key();
        let limit = b_tree::value_len_max(self.database.settings().buffer.page_size, key.len());
        let Some(old) = work.contents.get(&key).filter(|value| value.len() + 8 <= limit && !value.is_empty()) else {
            return Ok(());
        };
        let mut new = old.to_vec();
        let at = self.random.below(new.len() as u64) as usize;
        new[at] ^= 0x5a;
        tag(&mut new, self.number, work.version);
        work.tx.modify(self.partition, &key, |value| value.copy_from_slice(&new)).await?;
        work.contents.insert(key, new.into());
        Ok(())
    }

    async fn get(&mut self, work: &mut RecordWork) -> Result<()> {
        let key = self.any_key();
        let found = work.tx.get(self.partition, &key).await?;
        if found.as_deref() != work.contents.get(&key).map(|value| &value[..]) {
            self.context
                .differs(&["records"], format!("client {} reads another value of {key:?} than it wrote", self.number));
        }
        Ok(())
    }

    async fn roll_back_to_savepoint(&mut self, work: &mut RecordWork) -> Result<()> {
        if work.savepoints.is_empty() {
            return Ok(());
        }
        let index = self.random.below(work.savepoints.len() as u64) as usize;
        let (savepoint, contents) = work.savepoints[index].clone();
        work.tx.rollback_to(savepoint).await?;
        work.contents = contents;
        work.savepoints.truncate(index + 1);
        Ok(())
    }

    /// A call that is dropped before it is done has happened or not.
    async fn abandon(&mut self, work: &mut RecordWork) -> Result<()> {
        let (key, length, polls) = (self.any_key(), self.any_length(), self.random.between(1, 5));
        let value = value(self.number, work.version, length, &mut self.random);
        let deletes = self.random.chance(0.3);
        let ended = if deletes {
            at_most(polls, work.tx.delete(self.partition, &key)).await.map(|result| result.map(|_| ()))
        } else {
            at_most(polls, work.tx.put(self.partition, &key, &value)).await
        };
        ended.unwrap_or(Ok(()))?;
        self.look(work, key, (!deletes).then_some(value)).await
    }

    /// Looks whether a call whose answer never came has made this of a record.
    async fn look(&self, work: &mut RecordWork, key: Vec<u8>, new: Option<Rc<[u8]>>) -> Result<()> {
        let found = work.tx.get(self.partition, &key).await?;
        if found.as_deref() != new.as_deref() && found.as_deref() != work.contents.get(&key).map(|value| &value[..]) {
            self.context.differs(
                &["records"],
                format!("client {} finds neither the old nor the new value of {key:?}", self.number),
            );
        }
        match found {
            Some(found) => work.contents.insert(key, found.into()),
            None => work.contents.remove(&key),
        };
        Ok(())
    }

    async fn scan_own(&mut self, work: &mut RecordWork) -> Result<()> {
        let (from, to) = (self.any_key(), self.any_key());
        let (from, to) = if from <= to { (from, to) } else { (to, from) };
        let bounds = match self.random.below(4) {
            0 => (Bound::Unbounded, Bound::Unbounded),
            1 => (Bound::Excluded(from), Bound::Unbounded),
            2 => (Bound::Unbounded, Bound::Excluded(to)),
            _ => (Bound::Included(from), Bound::Included(to)),
        };
        let direction = if self.random.chance(0.5) { Direction::Forward } else { Direction::Backward };
        let expected: RecordsByKey =
            work.contents.range(bounds.clone()).map(|(key, value)| (key.clone(), Rc::clone(value))).collect();
        let found = self.read_own(&mut work.tx, bounds, direction).await?;
        if found != expected {
            let what = difference(&expected, &found);
            self.context.differs(&["records"], format!("client {} scans {direction:?} and finds: {what}", self.number));
        }
        Ok(())
    }

    /// Reads the client's own records between these bounds.
    async fn read_own(
        &self,
        tx: &mut Transaction,
        (from, to): (Bound<Vec<u8>>, Bound<Vec<u8>>),
        direction: Direction,
    ) -> Result<RecordsByKey> {
        let (first, end) = (vec![b'a' + self.number as u8], vec![b'a' + self.number as u8 + 1]);
        let from = if from == Bound::Unbounded { Bound::Included(first) } else { from };
        let to = if to == Bound::Unbounded { Bound::Excluded(end) } else { to };
        let as_slice = |bound| Bound::map(bound, |key: &Vec<u8>| key.as_slice());
        let mut cursor = tx.cursor(self.partition, as_slice(from.as_ref()), as_slice(to.as_ref()), direction);
        let mut found = RecordsByKey::new();
        let mut last: Option<Vec<u8>> = None;
        while let Some((key, value)) = tx.next(&mut cursor).await? {
            let ordered = last.is_none_or(|last| (last < key) == (direction == Direction::Forward) && last != key);
            if !ordered {
                self.context.differs(&["records"], format!("a scan {direction:?} shows {key:?} out of order"));
            }
            last = Some(key.clone());
            found.insert(key, value.into());
        }
        Ok(found)
    }

    /// Reads all clients' records twice: both reads must agree and show nothing that was never committed.
    async fn scan_all(&mut self, work: &mut RecordWork) -> Result<()> {
        let mut scans = Vec::new();
        for direction in [Direction::Forward, Direction::Backward] {
            let mut cursor = work.tx.cursor(self.partition, Bound::Unbounded, Bound::Unbounded, direction);
            let mut found = RecordsByKey::new();
            while let Some((key, value)) = work.tx.next(&mut cursor).await? {
                found.insert(key, value.into());
            }
            scans.push(found);
        }
        if scans[0] != scans[1] {
            self.context
                .differs(&["records"], format!("a repeated scan differs: {}", difference(&scans[0], &scans[1])));
        }
        let own = |key: &Vec<u8>| owner_of(key) == self.number;
        let mine: RecordsByKey =
            scans[0].iter().filter(|(key, _)| own(key)).map(|(k, v)| (k.clone(), v.clone())).collect();
        if mine != work.contents {
            self.context.differs(&["records"], format!("a scan of everything: {}", difference(&work.contents, &mine)));
        }
        for (key, value) in scans[0].iter().filter(|(key, _)| !own(key)) {
            self.note_shown(work, owner_of(key), value);
        }
        Ok(())
    }

    fn note_shown(&self, work: &mut RecordWork, owner: usize, value: &[u8]) {
        let Some(version) = version_of(value) else { return };
        let fair = self.context.oracle.borrow().owners.get(owner).is_some_and(|owner| owner.may_show(version));
        if !fair {
            self.context.differs(
                &["records"],
                format!("client {} is shown version {version} of client {owner}, uncommitted", self.number),
            );
        }
        let latest = work.shown.entry(owner).or_default();
        *latest = version.max(*latest);
    }
}
