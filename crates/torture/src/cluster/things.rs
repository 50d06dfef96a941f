//! Records of a cluster that have a type and two indexes, one of them unique. The place of a record is its group, by which an index orders
//! them, so that what a range of that has shown is looked for phantoms; that each record has its entries, and no other is there, is what the
//! last check looks at.

use super::actor::{NodeActor, version};
use super::shape::THINGS;
use super::{ClusterEvent, ClusterStep};
use crate::history::{Key, Span, Version};
use base::{PartitionId, Random};
use engine::catalog::IndexSpec;
use engine::set::{FieldError, FieldType, FieldValue, RecordType};
use engine::{Database, Direction, Error, PartitionSpec, Result, Snapshot, Transaction};
use node::page_client::PageClient;
use std::ops::Bound;

/// The groups that things are of.
const GROUPS: u64 = 4;
const BY_GROUP: &str = "by_group";
const BY_NAME: &str = "by_name";

/// Where the things are, and the numbers of their indexes.
#[derive(Clone, Copy)]
pub(super) struct ThingTables {
    things: PartitionId,
    by_group: usize,
    by_name: usize,
}

/// What is done with things.
#[derive(Clone, Copy)]
pub(super) enum ThingOperation {
    Get { number: u64 },
    Range(Span, Direction),
    Put { number: u64, group: u64, name: u64 },
    Delete { number: u64 },
}

impl ThingOperation {
    pub fn draw(random: &mut Random, things: u64, writes: bool) -> ThingOperation {
        let number = random.below(things);
        let (group, other) = (random.below(GROUPS), random.below(GROUPS));
        let direction = if random.chance(0.5) { Direction::Forward } else { Direction::Backward };
        match (writes, random.below(10)) {
            (false, 0..5) => ThingOperation::Get { number },
            (false, _) => ThingOperation::Range(Span { first: group.min(other), last: group.max(other) }, direction),
            (true, 0..2) => ThingOperation::Delete { number },
            // Now and then one has the name of another one.
            (true, _) => {
                let name = if random.chance(0.8) { number } else { random.below(2 * things) };
                ThingOperation::Put { number, group, name }
            }
        }
    }
}

fn record() -> RecordType {
    let fields = [("version", FieldType::U64), ("group", FieldType::U32), ("name", FieldType::Text)];
    RecordType::new(fields).expect("sound")
}

/// The partition, with the index that is not unique.
pub(super) fn spec() -> PartitionSpec {
    PartitionSpec::b_tree(THINGS).record(record()).secondary(BY_GROUP, &["group"])
}

pub(super) async fn create_index(database: &Database) -> Result<()> {
    let by_name = IndexSpec::new(BY_NAME, &["name"]).unique();
    database.create_index(database.partition(THINGS)?, by_name).await.map(drop)
}

/// Where things are, as a node is told.
pub(super) async fn find(client: &PageClient) -> Result<ThingTables> {
    let things = client.partition(THINGS).await?.id();
    let tx = client.begin().await;
    Ok(ThingTables {
        things,
        by_group: tx.secondary(things, BY_GROUP).await?,
        by_name: tx.secondary(things, BY_NAME).await?,
    })
}

fn key_of(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

fn thing_key(number: u64) -> Key {
    Key { store: THINGS, number }
}

/// The record of a key, and its version.
pub(super) fn shown(key: &[u8], value: &[u8]) -> (Key, Version) {
    (thing_key(u64::from_be_bytes(key.try_into().expect("keys have eight bytes"))), version(value))
}

fn stored(version: Version, group: u64, name: u64) -> Vec<u8> {
    let mut value = Vec::new();
    let name = format!("name {name}");
    let contents = [FieldValue::U64(version.0), FieldValue::U32(group as u32), FieldValue::Text(&name)];
    record().encode(&contents, &mut value).expect("it suits");
    value
}

impl NodeActor {
    pub async fn use_things(&mut self, operation: ThingOperation) -> Result<()> {
        let Some(tables) = self.tables.things else { return Ok(()) };
        match operation {
            ThingOperation::Get { number } => {
                self.enter(ClusterStep::Read);
                let found = self.tx.get(tables.things, &key_of(number)).await?;
                self.history().read(self.number, thing_key(number), found.map(|value| version(&value)));
                Ok(())
            }
            ThingOperation::Range(span, direction) => self.range_things(tables, span, direction).await,
            ThingOperation::Put { number, group, name } => self.put_thing(tables, number, (group, name)).await,
            ThingOperation::Delete { number } => {
                self.enter(ClusterStep::Write);
                let version = self.history().new_version(self.number, thing_key(number));
                if self.tx.delete(tables.things, &key_of(number)).await? {
                    self.note_write(version, None);
                } else {
                    self.history().read(self.number, thing_key(number), None);
                }
                Ok(())
            }
        }
    }

    async fn range_things(&mut self, tables: ThingTables, span: Span, direction: Direction) -> Result<()> {
        self.enter(ClusterStep::Read);
        let (first, last) = ([FieldValue::U32(span.first as u32)], [FieldValue::U32(span.last as u32)]);
        let bounds = (Bound::Included(&first[..]), Bound::Included(&last[..]));
        let mut found = Vec::new();
        let look = |key: &[u8], value: &[u8]| {
            found.push(shown(key, value));
            true
        };
        self.tx.range(tables.things, tables.by_group, bounds, direction, look).await?;
        self.history().scanned(self.number, THINGS, span, found);
        Ok(())
    }

    async fn put_thing(&mut self, tables: ThingTables, number: u64, (group, name): (u64, u64)) -> Result<()> {
        self.enter(ClusterStep::Write);
        let version = self.history().new_version(self.number, thing_key(number));
        match self.tx.put(tables.things, &key_of(number), &stored(version, group, name)).await {
            Ok(()) => {
                self.note_write(version, Some(group));
                Ok(())
            }
            Err(Error::Field { error: FieldError::NotUnique(_), .. }) => {
                self.course.event(ClusterEvent::NotUnique);
                self.read_by_name(tables, number, name).await
            }
            Err(error) => Err(error),
        }
    }

    /// Whose a name is that another one was not to have.
    async fn read_by_name(&mut self, tables: ThingTables, number: u64, name: u64) -> Result<()> {
        let words = format!("name {name}");
        let wanted = [FieldValue::Text(&words)];
        let exactly = (Bound::Included(&wanted[..]), Bound::Included(&wanted[..]));
        let mut found = Vec::new();
        let look = |key: &[u8], value: &[u8]| {
            found.push(shown(key, value));
            true
        };
        self.tx.range(tables.things, tables.by_name, exactly, Direction::Forward, look).await?;
        match found[..] {
            [(key, version)] if key != thing_key(number) => self.history().read(self.number, key, Some(version)),
            _ => self
                .course
                .wrong(format!("thing {number} is refused because of '{words}', which these have: {found:?}")),
        }
        Ok(())
    }
}

/// All things by an index, as they were at the moment of a snapshot.
pub(super) async fn range_of(database: &Database, snapshot: &mut Snapshot) -> Result<Vec<(Key, Version)>> {
    let things = database.partition(THINGS)?;
    let (by_group, mut found) = (database.secondary(things, BY_GROUP)?, Vec::new());
    let look = |key: &[u8], value: &[u8]| {
        found.push(shown(key, value));
        true
    };
    snapshot.range(things, by_group, (Bound::Unbounded, Bound::Unbounded), Direction::Forward, look).await?;
    Ok(found)
}

/// All things, by their keys and by an index.
pub(super) async fn read_last(database: &Database, tx: &mut Transaction) -> Result<[Vec<(Key, Version)>; 2]> {
    let things = database.partition(THINGS)?;
    let all = tx.scan(things, .., Direction::Forward).take(usize::MAX).await?;
    let (by_group, mut found) = (database.secondary(things, BY_GROUP)?, Vec::new());
    let look = |key: &[u8], value: &[u8]| {
        found.push(shown(key, value));
        true
    };
    tx.range(things, by_group, (Bound::Unbounded, Bound::Unbounded), Direction::Forward, look).await?;
    Ok([all.iter().map(|(key, value)| shown(key, value)).collect(), found])
}
