//! A client's random small transactions.

use super::Contention;
use super::actor::{Actor, Look, New};
use super::past::Past;
use super::store::Store;
use crate::abandon::at_most;
use crate::debit_credit::roll_back;
use crate::history::{History, Level, Span};
use crate::stage::{After, Stage};
use base::{Lsn, Random};
use engine::catalog::Locking;
use engine::{Database, Direction, Isolation, Result, Transaction};
use std::cell::RefMut;
use std::rc::Rc;

/// One client at work.
struct Client<'a> {
    stage: &'a Stage,
    contention: &'a Contention,
    database: Database,
    random: Random,
    /// Moments that were read: their log positions, and who read first.
    moments: Vec<(Lsn, usize)>,
    /// The age of a transaction that was in others' way and is to be tried again.
    began: Option<u64>,
}

/// Runs one client's transactions.
pub async fn client(stage: Rc<Stage>, database: Database, number: usize) {
    let Some(contention) = &stage.configuration.contention else { return };
    let random = stage.random(&format!("contention {number}"));
    let mut client = Client { stage: &stage, contention, database, random, moments: Vec::new(), began: None };
    for _ in 0..stage.configuration.transactions {
        stage.pause(&mut client.random).await;
        if stage.over.get() || client.run().await == After::Reopen {
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
        RefMut::map(self.stage.truth.borrow_mut(), |truth| &mut truth.history)
    }

    async fn run(&mut self) -> After {
        if self.random.chance(self.contention.past) {
            return self.read_past().await;
        }
        let level = *self.random.choose(self.contention.levels).expect("there are some");
        let number = self.history().begin(level);
        let tx = match begin(&self.database, level, self.began.take()).await {
            Ok(tx) => tx,
            Err(error) => return self.stage.judge(&error, "begin"),
        };
        self.history().started(number);
        let mut actor = Actor::new(tx, number, Rc::clone(&self.stage.truth));
        for _ in 0..self.random.between(1, self.contention.acts_max) {
            self.rest().await;
            if self.stage.over.get() {
                return After::Reopen;
            }
            let polls = if self.random.chance(0.01) { self.random.between(1, 4) } else { u64::MAX };
            match at_most(polls, self.act(&mut actor)).await {
                Some(Ok(())) => {}
                Some(Err(error)) => {
                    self.began = error.is_conflict().then(|| actor.tx.began());
                    if self.stage.judge(&error, "contention") == After::Reopen {
                        return After::Reopen;
                    }
                    return self.undo(actor).await;
                }
                // Whether what was abandoned was done, nobody knows.
                None => return self.undo(actor).await,
            }
        }
        self.rest().await;
        if self.random.chance(0.12) { self.undo(actor).await } else { self.commit(actor).await }
    }

    /// A snapshot of the present, or of a moment that was read before.
    async fn read_past(&mut self) -> After {
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
            Err(error) => return self.stage.judge(&error, "a snapshot"),
        };
        if again.is_none() {
            self.history().started(number);
            self.moments.push((snapshot.moment(), number));
        }
        let (database, truth) = (self.database.clone(), Rc::clone(&self.stage.truth));
        let mut past = Past { database, snapshot, number, truth };
        for _ in 0..self.random.between(1, 2 * self.contention.acts_max) {
            self.rest().await;
            if self.stage.over.get() {
                return After::Reopen;
            }
            if let Err(error) = self.look(&mut past).await {
                return self.stage.judge(&error, "reading the past");
            }
        }
        self.history().asks(number);
        self.history().committed(number);
        After::Retry
    }

    async fn look(&mut self, past: &mut Past) -> Result<()> {
        let store = *self.random.choose(&self.contention.stores).expect("there are some");
        if store == Store::Appended {
            return past.scan_appended().await;
        }
        if store.is_ordered() && self.random.chance(0.5) {
            let direction = if self.random.chance(0.5) { Direction::Forward } else { Direction::Backward };
            return past.scan(store, self.span(store), direction).await;
        }
        past.read(store, self.random.below(self.contention.keys)).await
    }

    /// Lets others have their turn, mostly.
    async fn rest(&mut self) {
        match self.random.below(4) {
            0 => {}
            1 => self.stage.executor.yield_now().await,
            _ => self.stage.executor.sleep_ns(self.random.below(self.contention.rest_ns_max)).await,
        }
    }

    async fn undo(&mut self, actor: Actor) -> After {
        self.history().aborted(actor.number);
        if roll_back(self.stage, actor.tx, &mut self.random).await { After::Retry } else { After::Reopen }
    }

    async fn commit(&mut self, actor: Actor) -> After {
        let abandoned = if self.random.chance(0.05) { self.random.between(1, 4) } else { u64::MAX };
        self.history().asks(actor.number);
        match at_most(abandoned, actor.tx.commit()).await {
            Some(Ok(())) => {
                self.history().committed(actor.number);
                self.stage.truth.borrow_mut().acknowledged += 1;
                After::Retry
            }
            Some(Err(error)) => {
                if error.is_conflict() {
                    self.history().aborted(actor.number);
                }
                self.stage.judge(&error, "commit")
            }
            None => After::Retry,
        }
    }

    async fn act(&mut self, actor: &mut Actor) -> Result<()> {
        let store = *self.random.choose(&self.contention.stores).expect("there are some");
        let number = self.random.below(self.contention.keys);
        let look = *self.random.choose(&[Look::Copy, Look::InPlace, Look::ForUpdate]).expect("there are some");
        let new = self.new_value(store, number);
        if store == Store::Direct {
            return match self.random.below(4) {
                0 | 1 => actor.read(store, number, look).await,
                2 => actor.modify(store, number, number).await,
                _ => actor.put(store, number, new).await,
            };
        }
        if store == Store::Appended {
            // Without locks nothing keeps others from adding records behind what a serializable transaction has scanned.
            let has_locks = self.contention.appended_locking != Locking::None;
            let may_scan = has_locks || actor.tx.isolation() != Isolation::Serializable;
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
                actor.scan(store, self.span(store), direction).await
            }
            _ => actor.read(store, number, look).await,
        }
    }

    fn new_value(&mut self, store: Store, number: u64) -> New {
        let place = if store == Store::Index { self.random.below(self.contention.groups) } else { number };
        let is_long = store == Store::Tree && self.random.chance(0.03);
        let length_max =
            if is_long { self.stage.configuration.value_max.min(4_000) } else { self.contention.value_max };
        New { place, length: self.random.between(1, length_max) as usize }
    }

    fn span(&mut self, store: Store) -> Span {
        let places = if store == Store::Index { self.contention.groups } else { self.contention.keys };
        if self.random.chance(0.2) {
            return Span::ALL;
        }
        let (one, other) = (self.random.below(places), self.random.below(places));
        Span { first: one.min(other), last: one.max(other) }
    }
}
