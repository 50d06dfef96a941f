use super::held::Held;
use super::known::Known;
use super::name;
use super::read::{find, read, spec_of, with_known};
use super::shape::{RecordsByNumber, Shape, ShapeKind, changes_its_index, stored_key};
use crate::ClientEvent;
use crate::abandon::at_most;
use crate::context::{After, RunContext};
use base::{PartitionId, Random};
use engine::{Database, Error, Result};
use std::collections::BTreeSet;
use std::rc::Rc;

/// How many names a client has.
const NAMES: u64 = 4;

/// The number of records that a set's load takes in before it yields.
const LOADED_AT_ONCE: u64 = 1_024;

/// One client at work.
pub struct Client {
    pub context: Rc<RunContext>,
    pub database: Database,
    pub random: Random,
    /// The random numbers that choose which partitions are dropped.
    pub(super) drops: Random,
    /// Those that choose which are renamed and truncated.
    pub(super) care: Random,
    pub held: Option<Held>,
    /// Whether a compaction or a change of an index that this client does not wait for may still go on.
    pub(super) goes_on: bool,
    number: usize,
    /// Names with an abandoned operation that may still be under way: they are left alone for the rest of this run.
    pub avoided: BTreeSet<String>,
}

/// Creates, loads, changes and compares partitions.
pub async fn client(context: Rc<RunContext>, database: Database, number: usize) {
    let mut client = Client::new(context, database, number);
    for _ in 0..client.context.configuration.transactions {
        client.context.pause(&mut client.random).await;
        if client.context.over.get() || client.step().await == After::Reopen {
            return;
        }
    }
}

impl Client {
    pub(super) fn new(context: Rc<RunContext>, database: Database, number: usize) -> Client {
        let random = context.random(&format!("partitions {number}"));
        let drops = context.random(&format!("drops {number}"));
        let care = context.random(&format!("care {number}"));
        Client { context, database, random, drops, care, held: None, goes_on: false, number, avoided: BTreeSet::new() }
    }

    /// The names at which nothing is under way.
    pub fn usable_names(&self) -> Vec<String> {
        let names = (0..NAMES).map(|number| name(self.number, number));
        names.filter(|name| !self.avoided.contains(name)).collect()
    }

    async fn step(&mut self) -> After {
        let Some(name) = self.random.choose(&self.usable_names()).cloned() else { return After::Retry };
        let shape = match with_known(&self.context, &name, |known| known.state().cloned()) {
            None => return self.reconcile(&name).await,
            Some(None) => return self.create(&name).await,
            Some(Some(shape)) => shape,
        };
        if self.drops.chance(0.1) {
            return self.drop_partition(&name, &shape).await;
        }
        let changes_index = match shape.kind {
            ShapeKind::TypedTree => self.drops.chance(0.4),
            ShapeKind::Typed => changes_its_index(&name) && self.drops.chance(0.4),
            _ => false,
        };
        if changes_index {
            return self.change_index(&name, &shape).await;
        }
        // A backup is to meet all of that.
        match self.care.below(if self.context.observed.is_backing_up.get() { 8 } else { 20 }) {
            0 | 1 => return self.rename(&name, &shape).await,
            2 | 3 => return self.truncate(&name, &shape).await,
            4 | 5 => return self.compact(&name).await,
            _ => {}
        }
        let is_fresh = shape.kind.is_loaded() && shape.contents.is_empty();
        match self.random.below(12) {
            0 => self.create_again(&name).await,
            1 => self.reconcile(&name).await,
            // An open snapshot counts as a transaction.
            2 | 3 if self.context.configuration.settings.multiprogramming_level > 4 => self.look_back().await,
            4..=7 if is_fresh && shape.kind == ShapeKind::Tree && self.has_its_sync_fail(&name) => {
                self.load_without_sync(&name, &shape).await
            }
            4..=7 if is_fresh => self.load(&name, &shape).await,
            _ => self.transact(&name).await,
        }
    }

    /// The number of a partition that is there for certain.
    pub fn number_of(&self, name: &str) -> Option<PartitionId> {
        self.context.partition(&self.database, name)
    }

    async fn create(&mut self, name: &str) -> After {
        let page_size = self.context.configuration.settings.buffer.page_size;
        let shape = Rc::new(ShapeKind::draw(name, page_size, &mut self.random));
        self.create_as(name, shape).await
    }

    /// Creates a partition of this shape.
    pub(super) async fn create_as(&mut self, name: &str, shape: Rc<Shape>) -> After {
        with_known(&self.context, name, |known| {
            known.may_become(Some(Rc::clone(&shape)));
            known.note_index(Some(true));
            known.is_used = false;
        });
        let polls = if self.random.chance(0.15) { self.random.between(1, 8) } else { u64::MAX };
        match at_most(polls, self.database.create_partition(shape.spec.clone())).await {
            Some(Ok(id)) => self.created(name, shape, id),
            Some(Err(error)) => self.not_created(name, &error),
            None => {
                // The creation continues without this client; a second request for the name waits for it.
                match self.database.create_partition(shape.spec.clone()).await {
                    Ok(id) => self.created(name, shape, id),
                    Err(Error::PartitionExists(_)) if find(&self.database, name).is_some() => {
                        with_known(&self.context, name, |known| known.is(Some(shape)));
                        After::Retry
                    }
                    Err(error) => {
                        self.avoided.insert(name.to_owned());
                        self.not_created(name, &error)
                    }
                }
            }
        }
    }

    fn created(&mut self, name: &str, shape: Rc<Shape>, id: PartitionId) -> After {
        self.context.event(ClientEvent::Created);
        let is_anew = with_known(&self.context, name, |known| known.is_created(shape));
        if is_anew {
            self.context.event(ClientEvent::CreatedAnew);
        }
        if self.number_of(name) != Some(id) {
            self.context.wrong(format!("partition '{name}' was created as {id:?} and is not found as that"));
        }
        After::Retry
    }

    /// A creation that failed has left nothing visible, and the run continues. The next restart may still find the partition
    /// created.
    fn not_created(&mut self, name: &str, error: &Error) -> After {
        if find(&self.database, name).is_some() {
            self.context.wrong(format!("partition '{name}' is there though its creation failed: {error}"));
        }
        self.context.event(ClientEvent::CreationFailed);
        self.context.judge(error, "creating a partition")
    }

    /// A name that is taken is refused.
    async fn create_again(&mut self, name: &str) -> After {
        let page_size = self.context.configuration.settings.buffer.page_size;
        let shape = ShapeKind::draw(name, page_size, &mut self.random);
        match self.database.create_partition(shape.spec).await {
            Ok(_) => self.context.wrong(format!("partition '{name}' is created twice")),
            Err(Error::PartitionExists(_)) => {}
            Err(error) => return self.context.judge(&error, "creating a partition twice"),
        }
        After::Retry
    }

    /// Reads all of a partition of which there may be doubt, and compares it with what is known.
    pub async fn reconcile(&mut self, name: &str) -> After {
        let Some(partition) = find(&self.database, name) else {
            if with_known(&self.context, name, |known| known.may_be_absent()) {
                return self.create(name).await;
            }
            self.context.wrong(format!("partition '{name}' is not there any more"));
            return After::Reopen;
        };
        let reading = async {
            let mut snapshot = self.database.snapshot().await?;
            read(&self.context, &mut snapshot, &partition).await
        };
        let found = match reading.await {
            Ok(found) => found,
            Err(error) => return self.context.judge(&error, "reading a partition"),
        };
        let reconciled =
            with_known(&self.context, name, |known: &mut Known| known.reconcile(&spec_of(&partition), &found));
        if let Err(what) = reconciled {
            self.context.differs(&[name], format!("partition '{name}': {what}"));
        }
        After::Retry
    }

    /// Loads an empty partition: all records are there, or none.
    pub(super) async fn load(&mut self, name: &str, shape: &Rc<Shape>) -> After {
        let Some(id) = self.number_of(name) else { return After::Reopen };
        let mut records = self.records(shape);
        let full = Rc::new(shape.with(records.iter().cloned().collect()));
        // A record that does not suit ends the load.
        let is_spoiled = shape.kind != ShapeKind::Tree && self.random.chance(0.3);
        if is_spoiled {
            let count = records.len() as u64;
            // The record that is refused comes after the load has yielded at least once.
            let first = if count > LOADED_AT_ONCE && self.random.chance(0.7) { LOADED_AT_ONCE } else { 0 };
            let at = self.random.between(first, count - 1) as usize;
            let is_unique = shape.is_unique && with_known(&self.context, name, |known| known.index() == Some(true));
            records[at].1 = match at.checked_sub(1) {
                Some(before) if is_unique => shape.value(records[before].0, 10, &mut self.random),
                _ => vec![0; 1 << 16].into(),
            };
        } else {
            with_known(&self.context, name, |known| known.may_become(Some(Rc::clone(&full))));
        }
        self.context.note_load();
        let polls_max = *self.random.choose(&[3, 12, 40]).expect("there are some");
        let polls = if self.random.chance(0.25) { self.random.between(1, polls_max) } else { u64::MAX };
        match at_most(polls, self.load_all(id, shape.kind, &records)).await {
            Some(Ok(())) if is_spoiled => {
                self.context.wrong(format!("'{name}' is loaded with a record that does not suit"));
                After::Reopen
            }
            Some(Ok(())) => {
                self.context.event(ClientEvent::Loaded);
                with_known(&self.context, name, |known| known.is(Some(full)));
                After::Retry
            }
            Some(Err(Error::TooLarge { .. } | Error::Field { .. })) if is_spoiled => self.reconcile(name).await,
            // A tree that has once had records has pages.
            Some(Err(Error::NotEmpty(_))) if with_known(&self.context, name, |known| known.is_used) => {
                self.reconcile(name).await
            }
            Some(Err(error)) => {
                self.context.event(ClientEvent::LoadFailed);
                match self.context.judge(&error, "loading a partition") {
                    After::Retry => self.reconcile(name).await,
                    After::Reopen => After::Reopen,
                }
            }
            None if self.random.chance(0.5) => {
                self.avoided.insert(name.to_owned());
                After::Retry
            }
            None => {
                // A load whose last record was there ends by itself, and is seen then: not before the next sweep may begin.
                if shape.kind != ShapeKind::Tree
                    && let Err(error) = self.database.checkpoint().await
                    && self.context.judge(&error, "checkpoint") == After::Reopen
                {
                    return After::Reopen;
                }
                self.reconcile(name).await
            }
        }
    }

    async fn load_all(&self, id: PartitionId, kind: ShapeKind, records: &[(u64, Rc<[u8]>)]) -> Result<()> {
        let records = records.iter().map(|(number, value)| (stored_key(*number), value));
        match kind {
            ShapeKind::Tree => self.database.load_b_tree(id, records, |_| {}).await,
            _ => self.database.load_set(id, records, |_| {}).await,
        }
    }

    /// Records to be loaded, in the order of their numbers.
    fn records(&mut self, shape: &Shape) -> Vec<(u64, Rc<[u8]>)> {
        let page_size = self.context.configuration.settings.buffer.page_size;
        // Sometimes more records than the load takes in before it yields.
        let count =
            if self.random.chance(0.15) { self.random.between(1_000, 2_200) } else { self.random.between(1, 80) };
        // Loaded values have to be short enough for a leaf.
        let length_max = (shape.length_max(page_size) - 8).min(60) as u64;
        let mut contents = RecordsByNumber::new();
        for number in 0..count {
            let length = self.random.between(0, length_max) as usize;
            contents.insert(number, shape.value(number, length, &mut self.random));
        }
        contents.into_iter().collect()
    }
}
