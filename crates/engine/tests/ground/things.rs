//! A database with a partition of typed records and an index of them.

use crate::ground::machine::run;
use base::PartitionId;
use entresol_engine::catalog::IndexSpec;
use entresol_engine::set::{FieldError, FieldType, FieldValue, NotUnique, RecordType};
use entresol_engine::{Database, Direction, Error, PartitionSpec, Result, Settings, Transaction, checkpoint, log};
use std::collections::BTreeMap;
use std::ops::Bound;
use virtual_driver::Media;

pub fn settings() -> Settings {
    Settings {
        log: log::Settings { capacity: 8 << 20, ..log::Settings::default() },
        checkpoint: checkpoint::Policy::OFF,
        ..Settings::default()
    }
}

pub fn record() -> RecordType {
    let fields = [("group", FieldType::U32), ("weight", FieldType::I64), ("name", FieldType::Text)];
    RecordType::new(fields).expect("sound")
}

pub fn spec(name: &str) -> PartitionSpec {
    PartitionSpec::b_tree(name).record(record()).secondary("by_group", &["group", "weight"])
}

pub fn by_name() -> IndexSpec {
    IndexSpec::new("by_name", &["name"]).unique()
}

/// The error of a record that cannot have a name in a unique index, as another one has.
pub fn not_unique(name: &str, present: &[u8], refused: &[u8]) -> Error {
    let (present, refused) = (present.to_vec(), refused.to_vec());
    let what = NotUnique { index: "by_name".into(), contents: format!("name {name:?}"), present, refused };
    Error::Field { partition: "things".into(), error: FieldError::NotUnique(Box::new(what)) }
}

pub type Thing = (u32, i64, String);

pub fn thing(group: u32, weight: i64, name: &str) -> Thing {
    (group, weight, name.to_owned())
}

pub fn stored((group, weight, name): &Thing) -> Vec<u8> {
    let mut value = Vec::new();
    let contents = [FieldValue::U32(*group), FieldValue::I64(*weight), FieldValue::Text(name)];
    record().encode(&contents, &mut value).expect("suits");
    value
}

pub type Model = BTreeMap<Vec<u8>, Thing>;

pub const ALL: (Bound<&[FieldValue<'_>]>, Bound<&[FieldValue<'_>]>) = (Bound::Unbounded, Bound::Unbounded);

/// The keys of a range, in its order.
pub async fn keys(
    tx: &mut Transaction,
    (things, index): (PartitionId, usize),
    bounds: (Bound<&[FieldValue<'_>]>, Bound<&[FieldValue<'_>]>),
    direction: Direction,
) -> Result<Vec<Vec<u8>>> {
    let mut found = Vec::new();
    let keep = |key: &[u8], _: &[u8]| {
        found.push(key.to_vec());
        true
    };
    tx.range(things, index, bounds, direction, keep).await?;
    Ok(found)
}

/// What the model has, by group and weight.
pub fn by_group_in(model: &Model) -> Vec<Vec<u8>> {
    let mut all: Vec<_> = model.iter().map(|(key, (group, weight, _))| (*group, *weight, key.clone())).collect();
    all.sort();
    all.into_iter().map(|(.., key)| key).collect()
}

pub async fn check(database: &Database) {
    let report = database.check(|_| {}).await.expect("checks");
    assert!(report.is_clean(), "{:?}", report.findings);
}

/// Runs `work` with a new database and an indexed partition in it.
pub fn with_things<T>(work: impl AsyncFnOnce(&Database, PartitionId, usize) -> T) -> T {
    run(&Media::new(), async |executor| {
        let database = Database::create(executor, settings()).await.expect("creates");
        let things = database.create_partition(spec("things")).await.expect("creates");
        let index = database.secondary(things, "by_group").expect("it exists");
        work(&database, things, index).await
    })
}

pub async fn put_all(database: &Database, things: PartitionId, model: &Model) {
    for (key, thing) in model {
        database.transaction(async |tx| tx.put(things, key, &stored(thing)).await).await.expect("puts");
    }
}

/// Some records.
pub fn some(count: u32) -> Model {
    let made = |n: u32| (n.to_be_bytes().to_vec(), thing(n % 5, 7 - i64::from(n % 11), &format!("name {n}")));
    (0..count).map(made).collect()
}
