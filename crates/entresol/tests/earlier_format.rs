//! A database of format 9, which is older than indexes of b-trees, archives of the log and logs that grow. A process of that time was killed
//! in it, between two checkpoints and with a transaction under way.

#![allow(clippy::disallowed_methods, reason = "the test unpacks files")]

use entresol::{
    Database, Direction, Error, FieldType, FieldValue, IndexSpec, Opening, PartitionSpec, RecordType, Store,
};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::process::Command;

/// Made by `fixtures/format-9.rs.txt` as an example of the library at commit 96991c6c; [`contents`] says what it had committed.
const PACKED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/format-9.tar.gz");

/// The format that the first block of the superblock file says.
fn format(directory: &Path) -> u32 {
    let bytes = std::fs::read(directory.join(engine::SUPERBLOCK_FILE)).expect("it is there");
    u32::from_le_bytes(bytes[8..12].try_into().expect("four bytes"))
}

type Records = BTreeMap<Vec<u8>, Vec<u8>>;

/// What was committed in the b-tree and in the set of plain records.
fn contents() -> (Records, Records) {
    let (mut accounts, mut plain) = (Records::new(), Records::new());
    for number in (0..200_u32).filter(|number| number % 10 != 2) {
        let key = number.to_be_bytes().to_vec();
        accounts.insert(key.clone(), vec![number as u8; 20 + number as usize]);
        plain.insert(key.clone(), key);
    }
    accounts.insert(b"long".to_vec(), vec![9; 5_000]);
    accounts.insert(b"last".to_vec(), b"committed".to_vec());
    (accounts, plain)
}

fn opening(directory: &Path) -> Opening {
    Opening::in_directory(directory).expect("it is configured")
}

async fn read(database: &Database) -> entresol::Result<(Records, Records)> {
    let (accounts, plain) = (database.partition("accounts")?, database.partition("plain")?);
    let mut tx = database.begin().await?;
    let mut found = (Records::new(), Records::new());
    let mut scan = tx.scan(accounts, .., Direction::Forward);
    while let Some((key, value)) = scan.next().await? {
        found.0.insert(key, value);
    }
    tx.scan_set(plain, |key, value| found.1.insert(key.to_vec(), value.to_vec()).is_none()).await?;
    Ok(found)
}

/// The numbers of a customer's orders, by the set's index.
async fn orders_of(database: &Database, customer: u32) -> entresol::Result<Vec<u32>> {
    let orders = database.partition("orders")?;
    let (index, mut found) = (database.secondary(orders, "by_customer")?, Vec::new());
    let wanted = [FieldValue::U32(customer)];
    let look = |key: &[u8], _: &[u8]| {
        found.push(u32::from_be_bytes(key.try_into().expect("four bytes")));
        true
    };
    let bounds = (Bound::Included(&wanted[..]), Bound::Included(&wanted[..]));
    database.begin().await?.range(orders, index, bounds, Direction::Forward, look).await?;
    Ok(found)
}

/// What stands in the partitions that are added to, and that are found by number.
async fn added(database: &Database) -> entresol::Result<(Vec<u32>, Vec<u8>)> {
    let (history, counters) = (database.partition("history")?, database.partition("counters")?);
    let mut tx = database.begin().await?;
    let (mut arrived, mut counts) = (Vec::new(), Vec::new());
    let look = |_, record: &[u8]| {
        arrived.push(u32::from_be_bytes(record.try_into().expect("four bytes")));
        true
    };
    tx.scan_appended(history, look).await?;
    tx.scan_objects(counters, 0..100, |_, object| counts.push(object[0])).await?;
    Ok((arrived, counts))
}

fn checked(store: &Store) {
    let report = store.run(async |database| database.check(|_| {}).await).expect("checks");
    assert!(report.findings.is_empty(), "{report:?}");
}

#[test]
fn a_database_of_format_9_is_recovered_read_written_and_checked() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let at = directory.path();
    let unpacked = Command::new("tar").args(["-xzf", PACKED, "-C"]).arg(at).status();
    assert!(unpacked.expect("every system has tar").success());
    assert_eq!(format(at), 9);
    let (accounts, plain) = contents();
    let store = opening(at).open().expect("opens");
    assert!(store.database().recovery().records > 100, "{:?}", store.database().recovery());
    let found = store.run(read).expect("reads");
    assert!(found == (accounts.clone(), plain.clone()), "{found:?}");
    assert!(matches!(store.database().partition("gone"), Err(Error::NoPartition(_))));
    let of_three: Vec<u32> = (0..200).filter(|number| number % 7 == 3).collect();
    assert_eq!(store.run(async |database| orders_of(database, 3).await).expect("reads"), of_three);
    assert_eq!(store.run(added).expect("reads"), ((0..200).collect(), vec![2; 100]));
    checked(&store);

    // It is used as one of today.
    let written = store.run(async |database| {
        let (accounts, plain) = (database.partition("accounts")?, database.partition("plain")?);
        let (orders, history) = (database.partition("orders")?, database.partition("history")?);
        let note = RecordType::new([("text", FieldType::Text)]).expect("one name");
        let notes = database.create_partition(PartitionSpec::b_tree("notes").record(note)).await?;
        database.create_index(notes, IndexSpec::new("by_text", &["text"])).await?;
        database.create_index(orders, IndexSpec::new("by_note", &["note"])).await?;
        database
            .transaction(async |tx| {
                tx.put(accounts, b"new", b"account").await?;
                tx.delete(accounts, b"last").await?;
                tx.put(plain, b"new", b"record").await?;
                tx.insert_record(notes, b"1", &[FieldValue::Text("milk")]).await?;
                let order = [FieldValue::U32(3), FieldValue::I64(1_000), FieldValue::Text("order 200")];
                tx.insert_record(orders, &200_u32.to_be_bytes(), &order).await?;
                tx.append(history, &200_u32.to_be_bytes()).await.map(drop)
            })
            .await?;
        database.rename_partition(accounts, "customers").await
    });
    written.expect("writes");
    checked(&store);
    store.close().expect("closes");
    assert_eq!(format(at), engine::FORMAT);

    let store = opening(at).open().expect("opens");
    store
        .run(async |database| {
            let customers = database.partition("customers")?;
            database.rename_partition(customers, "accounts").await
        })
        .expect("renames");
    let (mut accounts, mut plain) = (accounts, plain);
    accounts.remove(&b"last"[..]);
    accounts.insert(b"new".to_vec(), b"account".to_vec());
    plain.insert(b"new".to_vec(), b"record".to_vec());
    assert_eq!(store.run(read).expect("reads"), (accounts, plain));
    let of_three: Vec<u32> = of_three.into_iter().chain([200]).collect();
    assert_eq!(store.run(async |database| orders_of(database, 3).await).expect("reads"), of_three);
    checked(&store);
    store.close().expect("closes");
}
