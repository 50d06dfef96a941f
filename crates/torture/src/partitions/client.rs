use super::held::Held;
use super::known::Known;
use super::name;
use super::read::{find, read, spec_of, with_known};
use super::shape::{Contents, Kind, Shape, stored_key};
use crate::Act;
use crate::abandon::at_most;
use crate::stage::{After, Stage};
use base::{PartitionId, Random};
use engine::{Database, Error, Result};
use std::collections::BTreeSet;
use std::rc::Rc;

/// How many names a client has.
const NAMES: u64 = 4;

/// So many records a set takes in before it lets others run.
const LOADED_AT_ONCE: u64 = 1_024;

/// One client at work.
pub struct Client {
    pub stage: Rc<Stage>,
    pub database: Database,
    pub random: Random,
    /// What decides which are dropped.
    drops: Random,
    pub held: Option<Held>,
    number: usize,
    /// Names at which something that was abandoned may still be under way: they are left alone for the rest of this life.
    pub avoided: BTreeSet<String>,
}

/// Creates, loads, changes and compares partitions.
pub async fn client(stage: Rc<Stage>, database: Database, number: usize) {
    let mut client = Client::new(stage, database, number);
    for _ in 0..client.stage.configuration.transactions {
        client.stage.pause(&mut client.random).await;
        if client.stage.over.get() || client.step().await == After::Reopen {
            return;
        }
    }
}

impl Client {
    pub(super) fn new(stage: Rc<Stage>, database: Database, number: usize) -> Client {
        let random = stage.random(&format!("partitions {number}"));
        let drops = stage.random(&format!("drops {number}"));
        Client { stage, database, random, drops, held: None, number, avoided: BTreeSet::new() }
    }

    /// The names at which nothing is under way.
    pub fn usable_names(&self) -> Vec<String> {
        let names = (0..NAMES).map(|number| name(self.number, number));
        names.filter(|name| !self.avoided.contains(name)).collect()
    }

    async fn step(&mut self) -> After {
        let Some(name) = self.random.choose(&self.usable_names()).cloned() else { return After::Retry };
        let shape = match with_known(&self.stage, &name, |known| known.state().cloned()) {
            None => return self.settle(&name).await,
            Some(None) => return self.create(&name).await,
            Some(Some(shape)) => shape,
        };
        if self.drops.chance(0.1) {
            return self.drop_partition(&name, &shape).await;
        }
        let is_fresh = shape.kind.is_loaded() && shape.contents.is_empty();
        match self.random.below(12) {
            0 => self.create_again(&name).await,
            1 => self.settle(&name).await,
            // What is held counts as a transaction.
            2 | 3 if self.stage.configuration.settings.multiprogramming_level > 4 => self.look_back().await,
            4..=7 if is_fresh => self.load(&name, &shape).await,
            _ => self.transact(&name).await,
        }
    }

    /// The number of a partition that is there for certain.
    pub fn number_of(&self, name: &str) -> Option<PartitionId> {
        self.stage.partition(&self.database, name)
    }

    async fn create(&mut self, name: &str) -> After {
        let page_size = self.stage.configuration.settings.buffer.page_size;
        let shape = Rc::new(Kind::draw(name, page_size, &mut self.random));
        self.create_as(name, shape).await
    }

    /// Creates a partition of this shape.
    pub(super) async fn create_as(&mut self, name: &str, shape: Rc<Shape>) -> After {
        with_known(&self.stage, name, |known| {
            known.may_become(Some(Rc::clone(&shape)));
            known.is_used = false;
        });
        let polls = if self.random.chance(0.15) { self.random.between(1, 8) } else { u64::MAX };
        match at_most(polls, self.database.create_partition(shape.spec.clone())).await {
            Some(Ok(id)) => self.created(name, shape, id),
            Some(Err(error)) => self.not_created(name, &error),
            None => {
                // It goes on without us; who asks again waits for it.
                match self.database.create_partition(shape.spec.clone()).await {
                    Ok(id) => self.created(name, shape, id),
                    Err(Error::Setting(_)) if find(&self.database, name).is_some() => {
                        with_known(&self.stage, name, |known| known.is(Some(shape)));
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
        self.stage.act(Act::Created);
        let is_anew = with_known(&self.stage, name, |known| known.is_created(shape));
        if is_anew {
            self.stage.act(Act::CreatedAnew);
        }
        if self.number_of(name) != Some(id) {
            self.stage.wrong(format!("partition '{name}' was created as {id:?} and is not found as that"));
        }
        After::Retry
    }

    /// A creation that failed has left nothing that is seen, and life goes on. The next restart may find it done all the same.
    fn not_created(&mut self, name: &str, error: &Error) -> After {
        if find(&self.database, name).is_some() {
            self.stage.wrong(format!("partition '{name}' is there though its creation failed: {error}"));
        }
        self.stage.act(Act::CreationFailed);
        self.stage.judge(error, "creating a partition")
    }

    /// A name that is taken is refused.
    async fn create_again(&mut self, name: &str) -> After {
        let page_size = self.stage.configuration.settings.buffer.page_size;
        let shape = Kind::draw(name, page_size, &mut self.random);
        match self.database.create_partition(shape.spec).await {
            Ok(_) => self.stage.wrong(format!("partition '{name}' is created twice")),
            Err(Error::Setting(_)) => {}
            Err(error) => return self.stage.judge(&error, "creating a partition twice"),
        }
        After::Retry
    }

    /// Reads all of a partition of which there may be doubt, and compares it with what is known.
    pub async fn settle(&mut self, name: &str) -> After {
        let Some(partition) = find(&self.database, name) else {
            if with_known(&self.stage, name, |known| known.may_be_absent()) {
                return self.create(name).await;
            }
            self.stage.wrong(format!("partition '{name}' is not there any more"));
            return After::Reopen;
        };
        let reading = async {
            let mut snapshot = self.database.snapshot().await?;
            read(&self.stage, &mut snapshot, &partition).await
        };
        let found = match reading.await {
            Ok(found) => found,
            Err(error) => return self.stage.judge(&error, "reading a partition"),
        };
        let settled = with_known(&self.stage, name, |known: &mut Known| known.settle(&spec_of(&partition), &found));
        if let Err(what) = settled {
            self.stage.differs(format!("partition '{name}': {what}"));
        }
        After::Retry
    }

    /// Loads an empty partition: all records are there, or none.
    async fn load(&mut self, name: &str, shape: &Rc<Shape>) -> After {
        let Some(id) = self.number_of(name) else { return After::Reopen };
        let mut records = self.records(shape);
        let full = Rc::new(shape.with(records.iter().cloned().collect()));
        // A record that does not suit ends the load.
        let is_spoiled = shape.kind != Kind::Tree && self.random.chance(0.3);
        if is_spoiled {
            let count = records.len() as u64;
            // More have come before it than wait in one step, if there are so many.
            let first = if count > LOADED_AT_ONCE && self.random.chance(0.7) { LOADED_AT_ONCE } else { 0 };
            let at = self.random.between(first, count - 1) as usize;
            records[at].1 = vec![0; 1 << 16].into();
        } else {
            with_known(&self.stage, name, |known| known.may_become(Some(Rc::clone(&full))));
        }
        let polls_max = *self.random.choose(&[3, 12, 40]).expect("there are some");
        let polls = if self.random.chance(0.25) { self.random.between(1, polls_max) } else { u64::MAX };
        match at_most(polls, self.load_all(id, shape.kind, &records)).await {
            Some(Ok(())) if is_spoiled => {
                self.stage.wrong(format!("'{name}' is loaded with a record that does not suit"));
                After::Reopen
            }
            Some(Ok(())) => {
                self.stage.act(Act::Loaded);
                with_known(&self.stage, name, |known| known.is(Some(full)));
                After::Retry
            }
            Some(Err(Error::TooLarge { .. } | Error::Field { .. })) if is_spoiled => self.settle(name).await,
            // A tree that has once had records has pages.
            Some(Err(Error::Setting(_))) if with_known(&self.stage, name, |known| known.is_used) => {
                self.settle(name).await
            }
            Some(Err(error)) => {
                self.stage.act(Act::LoadFailed);
                match self.stage.judge(&error, "loading a partition") {
                    After::Retry => self.settle(name).await,
                    After::Reopen => After::Reopen,
                }
            }
            None if self.random.chance(0.5) => {
                self.avoided.insert(name.to_owned());
                After::Retry
            }
            None => {
                // A load whose last record was there ends by itself, and is seen then: not before the next sweep may begin.
                if shape.kind != Kind::Tree
                    && let Err(error) = self.database.checkpoint().await
                    && self.stage.judge(&error, "checkpoint") == After::Reopen
                {
                    return After::Reopen;
                }
                self.settle(name).await
            }
        }
    }

    async fn load_all(&self, id: PartitionId, kind: Kind, records: &[(u64, Rc<[u8]>)]) -> Result<()> {
        let records = records.iter().map(|(number, value)| (stored_key(*number), value));
        match kind {
            Kind::Tree => self.database.load_b_tree(id, records, |_| {}).await,
            _ => self.database.load_set(id, records, |_| {}).await,
        }
    }

    /// Records to be loaded, in the order of their numbers.
    fn records(&mut self, shape: &Shape) -> Vec<(u64, Rc<[u8]>)> {
        let page_size = self.stage.configuration.settings.buffer.page_size;
        // Now and then more than a set takes in before it is told.
        let count =
            if self.random.chance(0.15) { self.random.between(1_000, 2_200) } else { self.random.between(1, 80) };
        // Loaded values have to be short enough for a leaf.
        let length_max = (shape.length_max(page_size) - 8).min(60) as u64;
        let mut contents = Contents::new();
        for number in 0..count {
            let length = self.random.between(0, length_max) as usize;
            contents.insert(number, shape.value(number, length, &mut self.random));
        }
        contents.into_iter().collect()
    }
}
