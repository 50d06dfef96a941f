//! Sets of a cluster that are read in an order: one whose records have a type and an index, and one that numbers its records. The place of a
//! record of the first is its group, by which the index orders it, so that what a range of that has shown is looked for phantoms.

use super::ClusterStep;
use super::actor::{NodeActor, version};
use super::shape::{ARRIVALS, OFFERS, STOCK};
use crate::history::{History, Key, Span, Version};
use base::{PartitionId, Random};
use engine::catalog::{Locking, Organization};
use engine::set::{FieldType, FieldValue, RecordType};
use engine::{Database, Direction, PartitionSpec, Result, Transaction};
use node::page_client::{PageClient, PageSnapshot};
use std::ops::Bound;

/// The groups that offers are of.
const GROUPS: u64 = 4;
const BY_GROUP: &str = "by_group";

/// Where the sets are, and the number of the index.
#[derive(Clone, Copy)]
pub(super) struct SetTables {
    pub stock: PartitionId,
    pub offers: PartitionId,
    pub by_group: usize,
    pub arrivals: PartitionId,
}

/// What is done with such sets.
#[derive(Clone, Copy)]
pub(super) enum OrderOperation {
    Range(Span, Direction),
    Scan,
    ScanStock,
    ScanArrivals,
    Get { number: u64 },
    Put { number: u64, group: u64 },
    Delete { number: u64 },
    Arrive,
}

impl OrderOperation {
    pub fn draw(random: &mut Random, records: u64, writes: bool) -> OrderOperation {
        let (number, group) = (random.below(records), random.below(GROUPS));
        match (writes, random.below(10)) {
            (false, 0..5) => {
                let (span, direction) = draw_range(random, group);
                OrderOperation::Range(span, direction)
            }
            (false, 5) => OrderOperation::Scan,
            (false, 6) => OrderOperation::ScanStock,
            (false, 7) => OrderOperation::ScanArrivals,
            (false, _) => OrderOperation::Get { number },
            (true, 0..2) => OrderOperation::Delete { number },
            (true, 2..4) => OrderOperation::Arrive,
            (true, _) => OrderOperation::Put { number, group },
        }
    }
}

fn draw_range(random: &mut Random, group: u64) -> (Span, Direction) {
    let other = random.below(GROUPS);
    let direction = if random.chance(0.5) { Direction::Forward } else { Direction::Backward };
    (Span { first: group.min(other), last: group.max(other) }, direction)
}

fn record() -> RecordType {
    RecordType::new([("version", FieldType::U64), ("group", FieldType::U32), ("words", FieldType::Text)])
        .expect("sound")
}

/// The partitions.
pub(super) fn specs() -> [PartitionSpec; 2] {
    [
        PartitionSpec::set(OFFERS).record(record()).secondary(BY_GROUP, &["group"]),
        PartitionSpec::new(ARRIVALS, Organization::set(true), Locking::Record),
    ]
}

/// Where the sets are, as a node is told.
pub(super) async fn find(client: &PageClient) -> Result<SetTables> {
    let number = async |name| client.partition(name).await.map(|found| found.id());
    let (stock, offers, arrivals) = (number(STOCK).await?, number(OFFERS).await?, number(ARRIVALS).await?);
    let by_group = client.begin().await.secondary(offers, BY_GROUP).await?;
    Ok(SetTables { stock, offers, by_group, arrivals })
}

fn offer_key(number: u64) -> Key {
    Key { store: OFFERS, number }
}

/// The record of a key of a set, and its version.
pub(super) fn shown(store: &'static str, key: &[u8], value: &[u8]) -> (Key, Version) {
    let number = u64::from_be_bytes(key.try_into().expect("keys have eight bytes"));
    (Key { store, number }, version(value))
}

pub(super) fn arrived(record: &[u8]) -> (Key, Version) {
    let version = version(record);
    (Key { store: ARRIVALS, number: version.0 }, version)
}

fn bounds_of(span: Span) -> [[FieldValue<'static>; 1]; 2] {
    [[FieldValue::U32(span.first as u32)], [FieldValue::U32(span.last as u32)]]
}

impl NodeActor {
    pub(super) async fn use_orders(&mut self, tables: SetTables, operation: OrderOperation) -> Result<()> {
        let offers = tables.offers;
        match operation {
            OrderOperation::Range(span, direction) => self.range_offers(tables, span, direction).await,
            OrderOperation::Scan => self.scan_whole(offers, OFFERS).await,
            OrderOperation::ScanStock => self.scan_whole(tables.stock, STOCK).await,
            OrderOperation::ScanArrivals => {
                self.enter(ClusterStep::Read);
                let mut found = Vec::new();
                let look = |_, record: &[u8]| {
                    found.push(arrived(record));
                    true
                };
                self.tx.scan_appended(tables.arrivals, look).await?;
                self.history().scanned(self.number, ARRIVALS, Span::ALL, found);
                Ok(())
            }
            OrderOperation::Get { number } => {
                self.enter(ClusterStep::Read);
                let found = self.tx.get(offers, &number.to_be_bytes()).await?;
                self.history().read(self.number, offer_key(number), found.map(|value| version(&value)));
                Ok(())
            }
            OrderOperation::Put { number, group } => self.put_offer(offers, number, group).await,
            OrderOperation::Delete { number } => {
                self.enter(ClusterStep::Write);
                let version = self.history().new_version(self.number, offer_key(number));
                if self.tx.delete(offers, &number.to_be_bytes()).await? {
                    self.note_write(version, None);
                } else {
                    self.history().read(self.number, offer_key(number), None);
                }
                Ok(())
            }
            OrderOperation::Arrive => {
                self.enter(ClusterStep::Write);
                let version = self.history().new_record(self.number, ARRIVALS);
                self.tx.append(tables.arrivals, &version.0.to_le_bytes()).await?;
                self.note_write(version, Some(version.0));
                Ok(())
            }
        }
    }

    async fn range_offers(&mut self, tables: SetTables, span: Span, direction: Direction) -> Result<()> {
        self.enter(ClusterStep::Read);
        let [first, last] = bounds_of(span);
        let bounds = (Bound::Included(&first[..]), Bound::Included(&last[..]));
        let mut found = Vec::new();
        let look = |key: &[u8], value: &[u8]| {
            found.push(shown(OFFERS, key, value));
            true
        };
        self.tx.range(tables.offers, tables.by_group, bounds, direction, look).await?;
        self.history().scanned(self.number, OFFERS, span, found);
        Ok(())
    }

    async fn scan_whole(&mut self, set: PartitionId, store: &'static str) -> Result<()> {
        self.enter(ClusterStep::Read);
        let mut found = Vec::new();
        let look = |key: &[u8], value: &[u8]| {
            found.push(shown(store, key, value));
            true
        };
        self.tx.scan_set(set, look).await?;
        self.history().scanned(self.number, store, Span::ALL, found);
        Ok(())
    }

    async fn put_offer(&mut self, offers: PartitionId, number: u64, group: u64) -> Result<()> {
        self.enter(ClusterStep::Write);
        let version = self.history().new_version(self.number, offer_key(number));
        let (words, mut value) = ("x".repeat((version.0 % 90) as usize), Vec::new());
        let contents = [FieldValue::U64(version.0), FieldValue::U32(group as u32), FieldValue::Text(&words)];
        record().encode(&contents, &mut value).expect("it suits");
        self.tx.put(offers, &number.to_be_bytes(), &value).await?;
        self.note_write(version, Some(group));
        Ok(())
    }
}

/// Reads something of the sets as they were at the moment of a snapshot. What it is shown is written down by `note`.
pub(super) async fn look_back(
    snapshot: &mut PageSnapshot,
    (tables, records): (SetTables, u64),
    random: &mut Random,
    note: impl FnOnce(&mut dyn FnMut(&mut History, usize)),
) -> Result<()> {
    let mut found = Vec::new();
    let (store, span) = match random.below(6) {
        0 => {
            let number = random.below(records);
            let value = snapshot.get(tables.offers, &number.to_be_bytes()).await?;
            let seen = value.map(|value| version(&value));
            note(&mut |history, reader| history.read(reader, offer_key(number), seen));
            return Ok(());
        }
        1 | 2 => {
            let group = random.below(GROUPS);
            let (span, direction) = draw_range(random, group);
            let [first, last] = bounds_of(span);
            let bounds = (Bound::Included(&first[..]), Bound::Included(&last[..]));
            let look = |key: &[u8], value: &[u8]| {
                found.push(shown(OFFERS, key, value));
                true
            };
            snapshot.range_of_set(tables.offers, tables.by_group, bounds, direction, look).await?;
            (OFFERS, span)
        }
        3 => {
            let look = |_, record: &[u8]| {
                found.push(arrived(record));
                true
            };
            snapshot.scan_appended(tables.arrivals, look).await?;
            (ARRIVALS, Span::ALL)
        }
        which => {
            let (set, store) = if which == 4 { (tables.stock, STOCK) } else { (tables.offers, OFFERS) };
            let look = |key: &[u8], value: &[u8]| {
                found.push(shown(store, key, value));
                true
            };
            snapshot.scan_set(set, look).await?;
            (store, Span::ALL)
        }
    };
    note(&mut |history, reader| history.scanned(reader, store, span, found.clone()));
    Ok(())
}

/// All offers, by their keys and by the index, and all that have arrived.
pub(super) async fn read_last(
    database: &Database,
    tx: &mut Transaction,
) -> Result<[(&'static str, Vec<(Key, Version)>); 3]> {
    let (offers, mut found) = (database.partition(OFFERS)?, [Vec::new(), Vec::new(), Vec::new()]);
    let [all, by_group, arrivals] = &mut found;
    tx.scan_set(offers, |key, value| {
        all.push(shown(OFFERS, key, value));
        true
    })
    .await?;
    let look = |key: &[u8], value: &[u8]| {
        by_group.push(shown(OFFERS, key, value));
        true
    };
    let everything = (Bound::Unbounded, Bound::Unbounded);
    tx.range(offers, database.secondary(offers, BY_GROUP)?, everything, Direction::Forward, look).await?;
    let look = |_, record: &[u8]| {
        arrivals.push(arrived(record));
        true
    };
    tx.scan_appended(database.partition(ARRIVALS)?, look).await?;
    let [all, by_group, arrivals] = found;
    Ok([(OFFERS, all), (OFFERS, by_group), (ARRIVALS, arrivals)])
}
