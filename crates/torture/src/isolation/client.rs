//! A client's random small transactions.

use super::Contention;
use super::actor::{Actor, Look, New};
use super::reader::SnapshotReader;
use super::store::Store;
use crate::abandon::at_most;
use crate::context::{After, RunContext};
use crate::debit_credit::roll_back;
use crate::event::ClientEvent;
use crate::history::{History, Level, Span};
use base::time::MILLISECOND_NS;
use base::{Lsn, Random};
use engine::catalog::Locking;
use engine::{Database, Direction, Error, Isolation, Result, Transaction};
use std::cell::RefMut;
use std::rc::Rc;
use std::time::Duration;

/// For how long one that is patient rests at most, in nanoseconds.
const PATIENCE_NS_MAX: u64 = 3 * MILLISECOND_NS;

/// One client at work.
struct Client<'a> {
    context: &'a RunContext,
    contention: &'a Contention,
    database: Database,
    random: Random,
    /// For what is done after an error.
    afterwards: Random,
    /// For how long calls wait for locks.
    patience: Random,
    /// Moments that were read: their log positions, and the first reader of each.
    moments: Vec<(Lsn, usize)>,
    /// The age of a transaction that was in others' way and is to be tried again.
    began: Option<u64>,
}

/// Runs one client's transactions.
pub async fn client(context: Rc<RunContext>, database: Database, number: usize) {
    let Some(contention) = &context.configuration.contention else { return };
    let random = context.random(&format!("contention {number}"));
    let afterwards = context.random(&format!("contention {number} afterwards"));
    let patience = context.random(&format!("contention {number} patience"));
    let (moments, began) = (Vec::new(), None);
    let mut client = Client { context: &context, contention, database, random, afterwards, patience, moments, began };
    for _ in 0..context.configuration.transactions {
        context.pause(&mut client.random).await;
        if context.over.get() || client.run().await == After::Reopen {
            return;
        }
    }
}

/// Begins a transaction of a level.
async fn begin(database: &Database, level: Level, began: Option<u64>) -> Result<Transaction> {
    match level {
        Level::Serializable => database.begin_aged(began).await,
        Level::ReadCommitted => database.begin_at(Isolation::ReadCommitted).await,
        Level::Snapshot => database.begin_at(Isolation::Snapshot).await,
    }
}

impl Client<'_> {
    fn history(&self) -> RefMut<'_, History> {
        RefMut::map(self.context.oracle.borrow_mut(), |oracle| &mut oracle.history)
    }

    async fn run(&mut self) -> After {
        if self.random.chance(self.contention.past) {
            return self.read_past().await;
        }
        let level = *self.random.choose(self.contention.levels).expect("there are some");
        let number = self.history().begin(level);
        let tx = match begin(&self.database, level, self.began.take()).await {
            Ok(tx) => tx,
            Err(error) => return self.context.judge(&error, "begin"),
        };
        self.history().started(number);
        let mut actor = Actor::new(tx, number, self.context);
        // A transaction that lives until its versions are discarded, and then only writes.
        let is_patient = self.contention.flood.is_some() && level == Level::Snapshot && self.afterwards.chance(0.4);
        // A transaction that reads a few records and rolls back.
        let is_glance = self.afterwards.chance(0.12);
        let operations = self.random.between(1, if is_glance { 2 } else { self.contention.operations_max });
        for number in 0..operations {
            self.rest().await;
            if is_patient && number == 1 {
                self.context.executor.sleep_ns(self.afterwards.below(PATIENCE_NS_MAX)).await;
            }
            if self.context.over.get() {
                self.history().aborted(actor.number);
                return After::Reopen;
            }
            if self.contention.is_impatient {
                let wait_ns_max = 2 * self.contention.rest_ns_max;
                let limit_ns = self.patience.chance(0.3).then(|| self.patience.below(wait_ns_max));
                actor.tx.wait_at_most(limit_ns.map(Duration::from_nanos));
            }
            let polls = if self.random.chance(0.01) { self.random.between(1, 4) } else { u64::MAX };
            let act = async {
                match is_patient && number > 0 {
                    true => self.write(&mut actor).await,
                    false => self.act(&mut actor).await,
                }
            };
            match at_most(polls, act).await {
                Some(Ok(())) => {}
                // The transaction may go on, with what it has done before.
                Some(Err(Error::LockTimeout { .. })) if self.contention.is_impatient => {
                    self.context.event(ClientEvent::WaitedOut);
                }
                Some(Err(error)) => {
                    self.began = error.is_conflict().then(|| actor.tx.began());
                    if error.is_conflict() && self.afterwards.chance(0.3) {
                        return self.go_on(actor, &error).await;
                    }
                    if self.context.judge(&error, "contention") == After::Reopen {
                        self.history().aborted(actor.number);
                        return After::Reopen;
                    }
                    return self.undo(actor).await;
                }
                // It is unknown whether the abandoned call was done.
                None => return self.undo(actor).await,
            }
        }
        if is_glance {
            return self.turn_away(actor).await;
        }
        self.rest().await;
        if self.random.chance(0.12) { self.undo(actor).await } else { self.commit(actor).await }
    }

    /// A snapshot of the present, or of a moment that was read before.
    async fn read_past(&mut self) -> After {
        self.ask_for_the_future().await;
        let again = self.random.chance(0.5).then(|| self.random.choose(&self.moments).copied()).flatten();
        let number = match again {
            Some((_, other)) => self.history().begin_as_of(other),
            None => self.history().begin(Level::Snapshot),
        };
        let snapshot = match again {
            Some((moment, _)) => self.database.as_of(moment).await,
            None => self.database.snapshot().await,
        };
        let snapshot = match snapshot {
            Ok(snapshot) => snapshot,
            Err(error) => return self.context.judge(&error, "a snapshot"),
        };
        if again.is_none() {
            self.history().started(number);
            self.moments.push((snapshot.moment(), number));
            self.context.oracle.borrow_mut().moments.push((snapshot.moment(), number));
        }
        let (database, oracle) = (self.database.clone(), Rc::clone(&self.context.oracle));
        let mut reader = SnapshotReader { database, snapshot, number, oracle };
        for _ in 0..self.random.between(1, 2 * self.contention.operations_max) {
            self.rest().await;
            if self.context.over.get() {
                self.history().aborted(number);
                return After::Reopen;
            }
            if let Err(error) = self.look(&mut reader).await {
                // What it was shown before counts.
                self.history().aborted(number);
                return self.context.judge(&error, "reading the past");
            }
        }
        self.history().asks(number);
        self.history().committed(number);
        After::Retry
    }

    /// What is committed at a moment that is still to come is not known.
    async fn ask_for_the_future(&self) {
        let ahead_ns = 1 + 1_000_000 * self.moments.len() as u64;
        match self.database.as_of_time(self.context.executor.now().plus_ns(ahead_ns)).await {
            Err(Error::FutureMoment { .. } | Error::SnapshotTooOld { .. }) => {}
            answer => self.context.wrong(format!("the database of {ahead_ns} ns ahead: {:?}", answer.map(drop))),
        }
    }

    async fn look(&mut self, reader: &mut SnapshotReader) -> Result<()> {
        let store = *self.random.choose(&self.contention.stores).expect("there are some");
        if store == Store::Appended {
            return reader.scan_appended().await;
        }
        if store.is_ordered() && self.random.chance(0.5) {
            let direction = if self.random.chance(0.5) { Direction::Forward } else { Direction::Backward };
            return reader.scan(store, self.span(store), direction).await;
        }
        reader.read(store, self.random.below(self.contention.keys)).await
    }

    /// Sometimes yields to other clients.
    async fn rest(&mut self) {
        match self.random.below(4) {
            0 => {}
            1 => self.context.executor.yield_now().await,
            _ => self.context.executor.sleep_ns(self.random.below(self.contention.rest_ns_max)).await,
        }
    }

    async fn undo(&mut self, actor: Actor<'_>) -> After {
        if self.afterwards.chance(0.5) {
            self.history().aborted(actor.number);
            return if roll_back(self.context, actor.tx, &mut self.random).await {
                After::Retry
            } else {
                After::Reopen
            };
        }
        self.turn_away(actor).await
    }

    /// Rolls back and waits for the answer, with which what the transaction was shown leaves.
    async fn turn_away(&mut self, actor: Actor<'_>) -> After {
        let asked = self.history().moment();
        match actor.tx.rollback().await {
            Ok(()) => {
                self.history().rolled_back(actor.number, asked);
                After::Retry
            }
            Err(error) => {
                self.context.judge(&error, "rollback");
                self.context.over.set(true);
                After::Reopen
            }
        }
    }

    /// Goes on with a transaction that was in others' way: nothing of it may be committed.
    async fn go_on(&mut self, mut actor: Actor<'_>, error: &Error) -> After {
        self.history().aborted(actor.number);
        if self.afterwards.chance(0.5) {
            let written = self.write(&mut actor).await;
            if written.is_ok() {
                self.context.wrong(format!("a transaction goes on after an error: {error}"));
            }
        }
        match actor.tx.commit().await {
            Ok(()) => self.context.wrong(format!("a transaction commits after an error: {error}")),
            Err(_) => return After::Retry,
        }
        After::Reopen
    }

    /// Writes some record without a look at it.
    async fn write(&mut self, actor: &mut Actor<'_>) -> Result<()> {
        let store = *self.afterwards.choose(&self.contention.stores).expect("there are some");
        let number = self.afterwards.below(self.contention.keys);
        let new = New { place: if store == Store::Index { 0 } else { number }, length: 10 };
        match store {
            Store::Appended => actor.append(store, new).await,
            _ => actor.put(store, number, new).await,
        }
    }

    async fn commit(&mut self, actor: Actor<'_>) -> After {
        let abandoned = if self.random.chance(0.05) { self.random.between(1, 4) } else { u64::MAX };
        self.history().asks(actor.number);
        match at_most(abandoned, actor.tx.commit()).await {
            Some(Ok(())) => {
                self.history().committed(actor.number);
                self.context.oracle.borrow_mut().acknowledged += 1;
                After::Retry
            }
            Some(Err(error)) => {
                if error.is_conflict() {
                    self.history().aborted(actor.number);
                }
                self.context.judge(&error, "commit")
            }
            None => After::Retry,
        }
    }

    async fn act(&mut self, actor: &mut Actor<'_>) -> Result<()> {
        let store = *self.random.choose(&self.contention.stores).expect("there are some");
        let number = self.random.below(self.contention.keys);
        let look = *self.random.choose(&[Look::Copy, Look::InPlace, Look::ForUpdate]).expect("there are some");
        let new = self.new_value(store, number);
        if self.contention.several && store.has_keys() && self.afterwards.chance(0.3) {
            return self.act_on_several(actor, store, new).await;
        }
        if store == Store::Direct {
            return match self.random.below(4) {
                0 | 1 => actor.read(store, number, look).await,
                2 => actor.modify(store, number, number).await,
                _ => actor.put(store, number, new).await,
            };
        }
        if store == Store::Appended {
            // Without locks nothing keeps others from adding records behind what a serializable transaction has scanned.
            let has_order = self.contention.appended_locking != Locking::None || self.contention.takes_turns;
            let may_scan = has_order || actor.tx.isolation() != Isolation::Serializable;
            return match self.random.below(8) {
                0 => {
                    actor.set_savepoint();
                    Ok(())
                }
                1 => actor.roll_back(self.random.word()).await,
                2..=4 if may_scan => actor.scan(store, Span::ALL, Direction::Forward).await,
                _ => actor.append(store, new).await,
            };
        }
        match self.random.below(20) {
            0..=4 => actor.read(store, number, look).await,
            5 | 6 => {
                actor.read(store, number, look).await?;
                actor.put(store, number, new).await
            }
            7 | 8 => actor.put(store, number, new).await,
            9 | 10 => actor.modify(store, number, new.place).await,
            11 | 12 => actor.insert(store, number, new).await,
            13 | 14 => actor.delete(store, number).await,
            15 => {
                actor.set_savepoint();
                Ok(())
            }
            16 => actor.roll_back(self.random.word()).await,
            _ if store.is_ordered() => {
                let direction = if self.random.chance(0.5) { Direction::Forward } else { Direction::Backward };
                let span = self.span(store);
                actor.scan(store, span, direction).await?;
                if self.afterwards.chance(0.4) {
                    return self.scan_again(actor, store, span).await;
                }
                Ok(())
            }
            _ => actor.read(store, number, look).await,
        }
    }

    /// One call for several records, in any order or in that of their keys.
    async fn act_on_several(&mut self, actor: &mut Actor<'_>, store: Store, new: New) -> Result<()> {
        let count = self.afterwards.between(2, 4);
        let mut numbers: Vec<u64> = (0..count).map(|_| self.afterwards.below(self.contention.keys)).collect();
        if self.afterwards.chance(0.5) {
            numbers.sort_unstable();
        }
        // A write to a place of which a unique index has another record is refused, and it is not told for which.
        match self.afterwards.below(4) {
            0 if store != Store::Unique => {
                numbers.sort_unstable();
                numbers.dedup();
                // It would be unknown how many are inserted.
                actor.tx.wait_at_most(None);
                actor.insert_each(store, &numbers, new).await
            }
            1 if store != Store::Unique => actor.modify_each(store, &numbers, new.place).await,
            _ => actor.read_each(store, &numbers).await,
        }
    }

    /// Scans the same once more, after a while in which others may have changed something that should be locked.
    async fn scan_again(&mut self, actor: &mut Actor<'_>, store: Store, span: Span) -> Result<()> {
        self.context.executor.sleep_ns(self.afterwards.below(2 * self.contention.rest_ns_max)).await;
        let direction = if self.afterwards.chance(0.5) { Direction::Forward } else { Direction::Backward };
        actor.scan(store, span, direction).await
    }

    fn new_value(&mut self, store: Store, number: u64) -> New {
        let place = if store.is_indexed() { self.random.below(self.contention.places(store)) } else { number };
        let is_long = store == Store::Tree && self.random.chance(0.03);
        let length_max =
            if is_long { self.context.configuration.value_max.min(4_000) } else { self.contention.value_max };
        New { place, length: self.random.between(1, length_max) as usize }
    }

    fn span(&mut self, store: Store) -> Span {
        let places = self.contention.places(store);
        if self.random.chance(0.2) {
            return Span::ALL;
        }
        let (one, other) = (self.random.below(places), self.random.below(places));
        Span { first: one.min(other), last: one.max(other) }
    }
}
