//! B-trees whose records and indexes the configuration describes.

use entresol::configuration::{Configuration, Partition};
use entresol::{Direction, Error, FieldValue, Opening, Store};
use std::ops::Bound;
use std::path::Path;

const PLAIN: &str = "[log]\nsize = \"4 MiB\"\n[partition.stock]\nrecord = { count = \"u32\", name = \"text\" }\n";

fn open(directory: &Path, text: &str) -> Store {
    Opening::new(directory, Configuration::parse(text).expect("right")).open().expect("opens")
}

/// The keys of the records by an index, in its order.
fn keys_by(store: &Store, index: &str) -> Vec<Vec<u8>> {
    let found = store.run(async |database| {
        let stock = database.partition("stock")?;
        let (index, mut found) = (database.secondary(stock, index)?, Vec::new());
        let look = |key: &[u8], _: &[u8]| {
            found.push(key.to_vec());
            true
        };
        let all = (Bound::Unbounded, Bound::Unbounded);
        database.snapshot().await?.range(stock, index, all, Direction::Forward, look).await?;
        Ok(found)
    });
    found.expect("it is there")
}

#[test]
fn a_b_tree_gets_the_records_and_the_indexes_that_its_section_describes() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("there is a scratch directory");
    let by_name = format!("{PLAIN}secondary = {{ by_name = \"name\" }}\n");
    let store = open(directory.path(), &by_name);
    let spec = store.configuration().partition_spec("stock", &Partition::default()).expect("it is described");
    let filled = store.run(async |database| {
        let stock = database.create_partition(spec).await?;
        let add = async |tx: &mut entresol::Transaction| {
            tx.insert_record(stock, b"1", &[FieldValue::U32(3), FieldValue::Text("pens")]).await?;
            tx.insert_record(stock, b"2", &[FieldValue::U32(2), FieldValue::Text("ink")]).await?;
            Ok::<_, Error>(())
        };
        database.transaction(add).await
    });
    filled.expect("there is room");
    assert_eq!(keys_by(&store, "by_name"), [b"2", b"1"]);
    store.close().expect("closes");
    // One that it lacks is built at the next opening.
    let both = format!("{PLAIN}secondary = {{ by_name = \"name\", by_count = [\"count\", \"name\"] }}\n");
    let store = open(directory.path(), &both);
    assert_eq!(keys_by(&store, "by_count"), [b"2", b"1"]);
    store.close().expect("closes");
    let other = PLAIN.replace("u32", "u64");
    let refused = Opening::new(directory.path(), Configuration::parse(&other).expect("right")).open().err();
    let words = refused.expect("it is another type").to_string();
    assert!(
        words.contains("[partition.stock] record: the partition exists, and its records are of another"),
        "{words}"
    );
}
