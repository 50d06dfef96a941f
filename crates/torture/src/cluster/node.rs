//! The program of a node: it joins the server, and runs transactions as long as it can.

use super::actor::{NodeActor, Tables};
use super::course::{Course, Departure};
use super::named::Named;
use super::set_orders;
use super::sets::SetOperation;
use super::shape::{LOG, PAGES, TREE};
use super::snapshots::ClusterReader;
use super::things::{self, ThingOperation};
use super::unseen::LockedUnseen;
use super::{ClusterEvent, ClusterStep};
use crate::history::{Level, Span};
use base::Random;
use base::time::MILLISECOND_NS;
use engine::{Error, Result};
use executor::{Executor, JoinHandle};
use node::page_client::{ClientSettings, PageClient};
use std::net::SocketAddr;
use std::rc::Rc;

pub(super) struct NodeProgram {
    pub executor: Executor,
    pub course: Rc<Course>,
    pub number: u32,
    pub server: SocketAddr,
    pub own: SocketAddr,
    pub random: Random,
    pub departure: Rc<Departure>,
}

/// How long a node that cannot join waits before it tries again.
const PAUSE_NS: u64 = 50 * MILLISECOND_NS;

impl NodeProgram {
    pub async fn run(mut self) {
        while !self.course.over.get() {
            let Some((client, tables)) = self.join().await else { continue };
            self.course.note_answer(self.number, &self.executor);
            self.course.set_client(self.number, Some(client.clone()));
            self.departure = self.course.begin_stay(self.number);
            let mut workers: Vec<_> =
                (0..self.course.shape.transactions).map(|_| self.start_worker(&client, tables)).collect();
            if self.course.shape.snapshot_readers.contains(&self.number) {
                workers.push(self.start_reader(&client, tables));
            }
            for worker in workers {
                worker.join().await;
            }
            self.course.set_client(self.number, None);
        }
        self.course.enter(self.number, ClusterStep::Rest);
    }

    async fn join(&mut self) -> Option<(PageClient, Tables)> {
        self.course.enter(self.number, ClusterStep::Join);
        match self.try_join().await {
            Ok(joined) => Some(joined),
            Err(error) => {
                let begun = self.course.begun(self.number, &self.executor);
                self.course.judge(begun, &error, "joining");
                self.executor.sleep_ns(PAUSE_NS).await;
                None
            }
        }
    }

    async fn try_join(&mut self) -> Result<(PageClient, Tables)> {
        let shape = &self.course.shape;
        let settings = ClientSettings {
            buffer: shape.buffer(shape.frames.0),
            address: self.own,
            message_size_min: 0,
            transactions: shape.transactions as usize,
            keeps_write_locks: shape.keeps_write_locks,
            commits_pages: !shape.record_committers.contains(&self.number),
            lock_wait_ns_max: shape.lock_wait_ns_max,
            patience_ns: shape.patience_ns,
        };
        let transport = Rc::new(Named {
            executor: self.executor.clone(),
            at_once: shape.sends_at_once,
            shares_names: shape.shares_names,
        });
        let client = PageClient::join(&self.executor, transport, self.server, settings).await?;
        // Another one in this program may find that its place is still held.
        self.own.set_port(0);
        let number = async |name| client.partition(name).await.map(|found| found.id());
        let things = if shape.things > 0 { Some(things::find(&client).await?) } else { None };
        let (pages, tree, log) = (number(PAGES).await?, number(TREE).await?, number(LOG).await?);
        let sets = if shape.set_records > 0 { Some(set_orders::find(&client).await?) } else { None };
        let tables = Tables { pages, tree, log, things, sets };
        Ok((client, tables))
    }

    fn start_worker(&mut self, client: &PageClient, tables: Tables) -> JoinHandle<()> {
        let word = self.random.word();
        let mut worker = NodeWorker {
            executor: self.executor.clone(),
            course: Rc::clone(&self.course),
            number: self.number,
            random: Random::stream(word, "transactions"),
            of_savepoints: Random::stream(word, "savepoints"),
            of_unseen: Random::stream(word, "unseen"),
        };
        let (client, executor, departure) = (client.clone(), self.executor.clone(), Rc::clone(&self.departure));
        self.executor.spawn(async move { departure.precedes(&executor, worker.work(&client, tables)).await })
    }
}

impl NodeProgram {
    fn start_reader(&mut self, client: &PageClient, tables: Tables) -> JoinHandle<()> {
        let random = Random::stream(self.random.word(), "snapshots");
        let (executor, course) = (self.executor.clone(), Rc::clone(&self.course));
        let mut reader = ClusterReader { executor, course, number: self.number, random, tables };
        let (client, executor, departure) = (client.clone(), self.executor.clone(), Rc::clone(&self.departure));
        self.executor.spawn(async move { departure.precedes(&executor, reader.work(&client)).await })
    }
}

/// Runs transactions of a node, one after the other, beside others that do so.
struct NodeWorker {
    executor: Executor,
    course: Rc<Course>,
    number: u32,
    random: Random,
    of_savepoints: Random,
    of_unseen: Random,
}

impl NodeWorker {
    /// Runs transactions until the node is of no use any more, or all is over.
    async fn work(&mut self, client: &PageClient, tables: Tables) {
        let only_reads = self.course.shape.only_reads(self.number);
        while !self.course.over.get() {
            self.course.enter(self.number, ClusterStep::Rest);
            let rest_ns_max = self.course.shape.rest_ns_max;
            let rest_ns = self.random.below(if only_reads { rest_ns_max / 4 } else { rest_ns_max });
            self.executor.sleep_ns(rest_ns).await;
            if let Some(cause) = client.failure() {
                let begun = self.course.begun(self.number, &self.executor);
                self.course.give_up(begun, &cause, &self.executor);
                return;
            }
            self.transact(client, tables, only_reads).await;
        }
    }

    async fn transact(&mut self, client: &PageClient, tables: Tables, only_reads: bool) {
        let course = Rc::clone(&self.course);
        course.enter(self.number, ClusterStep::Begin);
        let number = course.history.borrow_mut().begin(Level::Serializable);
        let begun = course.begun(self.number, &self.executor);
        let tx = client.begin().await;
        course.history.borrow_mut().started(number);
        let executor = self.executor.clone();
        let mut actor =
            NodeActor { executor, course, begun, tables, tx, number, has_written: false, savepoints: Vec::new() };
        let patience_ns = if only_reads || self.random.chance(0.3) {
            Some(self.random.between(5, 150) * MILLISECOND_NS)
        } else {
            None
        };
        let goes_back = self.of_savepoints.chance(self.course.shape.savepoints);
        for _ in 0..self.random.between(1, self.course.shape.operations_max) {
            if self.random.chance(0.3) {
                self.executor.sleep_ns(self.random.below(4 * MILLISECOND_NS)).await;
            }
            if goes_back && let Err(error) = self.go_back(&mut actor).await {
                self.course.judge(begun, &error, "rollback to a savepoint");
                return actor.abort();
            }
            match self.operate(&mut actor, only_reads, patience_ns).await {
                Ok(true) => {}
                Ok(false) => return actor.abort(),
                Err(error) => {
                    self.course.judge(begun, &error, "transaction");
                    return actor.abort();
                }
            }
        }
        if self.random.chance(0.06) {
            self.course.event(ClusterEvent::RolledBack);
            return actor.abort();
        }
        let is_hasty = !only_reads && self.random.chance(0.05);
        let patience_ns = is_hasty.then(|| self.random.below(3 * MILLISECOND_NS));
        actor.commit(patience_ns).await;
    }

    /// Remembers this moment, or goes back to such a one, or neither.
    async fn go_back(&mut self, actor: &mut NodeActor) -> Result<()> {
        match self.of_savepoints.below(10) {
            0..5 => actor.set_savepoint(),
            5..8 => actor.roll_back(self.of_savepoints.word()).await?,
            _ => {}
        }
        Ok(())
    }

    /// One operation. False if the transaction has to be rolled back.
    async fn operate(&mut self, actor: &mut NodeActor, only_reads: bool, patience_ns: Option<u64>) -> Result<bool> {
        let shape = &self.course.shape;
        let is_of_records = !only_reads && self.random.chance(shape.records);
        let writes = !only_reads && self.random.chance(shape.writes);
        let numbers = if is_of_records { shape.keys } else { shape.pages * shape.objects_on_page };
        // Some are wanted more often than others.
        let wanted = if self.random.chance(0.5) { numbers } else { numbers.div_ceil(8) };
        let number = self.random.below(wanted);
        let (choice, mut length, last) =
            (self.random.below(100), self.random.below(120), self.random.below(shape.keys));
        let of_things = if shape.things > 0 && !only_reads {
            // Some values are too long for a leaf.
            length = if self.random.chance(0.25) { self.random.between(400, 3_000) } else { length };
            self.random.chance(0.4).then(|| ThingOperation::draw(&mut self.random, shape.things, writes))
        } else {
            None
        };
        let of_set = if shape.set_records > 0 && !only_reads && self.random.chance(0.4) {
            Some(SetOperation::draw(&mut self.random, shape.set_records, writes))
        } else {
            None
        };
        let unseen = LockedUnseen::draw(&mut self.of_unseen, shape.looks_unseen && !only_reads);
        let is_of_records = is_of_records || of_things.is_some() || of_set.is_some() || unseen.is_some();
        let does_with_objects = shape.objects_on_page > 1 && choice >= 12;
        // Where records are changed in place, what is not waited for is taken back, and its transaction goes on with the locks that it has.
        let is_taken_back = shape.stays_in_place && is_of_records && patience_ns.is_some();
        if is_taken_back {
            actor.set_savepoint();
        }
        let operation = async {
            if let Some(unseen) = unseen {
                return actor.look_at_locked(unseen, last).await;
            }
            if let Some(of_set) = of_set {
                return actor.use_set(of_set).await;
            }
            if let Some(of_things) = of_things {
                return actor.use_things(of_things).await;
            }
            match (is_of_records, writes) {
                (false, false) if does_with_objects => actor.read_object(number).await,
                (false, true) if does_with_objects => actor.modify_object(number).await,
                (false, false) => actor.read_page(number).await,
                (false, true) => match choice {
                    0..5 => actor.lock_page(number).await,
                    5..25 => actor.modify_object(number).await,
                    25..50 => actor.write_page(number).await,
                    _ => {
                        actor.read_page(number).await?;
                        actor.write_page(number).await
                    }
                },
                (true, false) => match choice {
                    0..4 => actor.scan_appended().await,
                    4..30 => actor.scan(Span { first: number.min(last), last: number.max(last) }).await,
                    _ => actor.get(number).await,
                },
                (true, true) if shape.stays_in_place && choice >= 5 => actor.change_in_place(number, choice < 25).await,
                (true, true) => match choice {
                    0..8 => actor.append().await,
                    8..25 => actor.delete(number).await,
                    25..45 => actor.modify(number).await,
                    _ => actor.put(number, length).await,
                },
            }
        };
        let done = match patience_ns {
            Some(ns) => self.executor.within(ns, operation).await,
            None => Some(operation.await),
        };
        // A call that has waited for long enough stops where one does that is dropped.
        let is_over = matches!(done, Some(Err(Error::LockTimeout { .. }))) && shape.lock_wait_ns_max.is_some();
        if let Some(done) = done.filter(|_| !is_over) {
            if is_taken_back {
                actor.savepoints.pop();
            }
            return done.map(|()| true);
        }
        self.course.event(if is_over { ClusterEvent::WaitedOut } else { ClusterEvent::Abandoned });
        if is_taken_back {
            return actor.take_back().await;
        }
        // What was not waited for may be done in part with records; with a page it is not done at all.
        Ok(!is_of_records && self.random.chance(0.5))
    }
}
