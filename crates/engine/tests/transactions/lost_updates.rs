//! Changes at snapshot level once versions were discarded: it is unknown whether the record was changed meanwhile.

use crate::ground::machine::run;
use base::PartitionId;
use base::time::SECOND_NS;
use devices::Hardware;
use driver::OpKind;
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::set::{FieldType, FieldValue, RecordType};
use entresol_engine::{Database, Error, Isolation, PartitionSpec, Result, Settings, Transaction, version};
use executor::{Executor, Order};
use virtual_driver::{ErrorAt, FaultPlan, Media, Options, VirtualDriver};

/// Settings whose versions may take `size` bytes.
fn settings(size: u64) -> Settings {
    let undo =
        version::UndoSettings { cluster_size: 4 << 10, memory: 8 << 10, size, ..version::UndoSettings::default() };
    Settings { undo, ..Settings::default() }
}

/// Partitions of every organization whose records can be changed, each with the record that is changed.
struct Tables {
    tree: PartitionId,
    set: PartitionId,
    typed: PartitionId,
    objects: PartitionId,
    others: PartitionId,
}

const KEY: &[u8] = b"the record";

impl Tables {
    async fn create(database: &Database) -> Result<Tables> {
        let set = Organization::Set { arrivals: false, segment_size: 16 << 10, reserve_percent: 10 };
        let direct = Organization::Direct { objects: 4, blocking_factor: 2, record_size: 8 };
        let record = RecordType::new([("balance", FieldType::I64)]).expect("sound");
        let tables = Tables {
            tree: database.create_partition(PartitionSpec::b_tree("tree")).await?,
            set: database.create_partition(PartitionSpec::new("set", set, Locking::Record)).await?,
            typed: database.create_partition(PartitionSpec::new("typed", set, Locking::Record).record(record)).await?,
            objects: database.create_partition(PartitionSpec::new("objects", direct, Locking::Record)).await?,
            others: database.create_partition(PartitionSpec::b_tree("others")).await?,
        };
        database.transaction(async |tx| tables.write(tx, 1).await).await?;
        tables.change_much(database).await?;
        Ok(tables)
    }

    /// Gives every record this value.
    async fn write(&self, tx: &mut Transaction, value: i64) -> Result<()> {
        for partition in [self.tree, self.set, self.typed] {
            tx.put(partition, KEY, &value.to_le_bytes()).await?;
        }
        tx.modify_object(self.objects, 3, |bytes| bytes.copy_from_slice(&value.to_le_bytes())).await
    }

    /// Changes enough other records that versions have to be discarded.
    async fn change_much(&self, database: &Database) -> Result<()> {
        for number in 0..400_u32 {
            database.transaction(async |tx| tx.put(self.others, &number.to_be_bytes(), &[7; 100]).await).await?;
        }
        Ok(())
    }

    /// Every call that changes a record, or locks it for that, in a transaction of its own.
    async fn changes(&self, mut transactions: Vec<Transaction>) -> Result<Vec<(&'static str, Result<()>)>> {
        let Tables { tree, set, typed, objects, .. } = *self;
        let mut done = Vec::new();
        let mut next = || transactions.pop().expect("there is one for each call");
        macro_rules! each {
            ($($name:literal: |$tx:ident| $call:expr;)*) => {$(
                let mut $tx = next();
                let result: Result<()> = $call.await.map(|_| ());
                let ended = if result.is_err() { $tx.rollback().await } else { $tx.commit().await };
                done.push(($name, result.and(ended)));
            )*};
        }
        let value = 9_i64.to_le_bytes();
        each! {
            "insert into a tree": |tx| tx.insert(tree, KEY, &value);
            "put into a tree": |tx| tx.put(tree, KEY, &value);
            "modify in a tree": |tx| tx.modify(tree, KEY, |bytes| bytes[0] = 9);
            "delete from a tree": |tx| tx.delete(tree, KEY);
            "add in a tree": |tx| tx.add(tree, KEY, 0..8, 5);
            "get for update from a tree": |tx| tx.get_for_update(tree, KEY);
            "insert into a set": |tx| tx.insert(set, KEY, &value);
            "put into a set": |tx| tx.put(set, KEY, &value);
            "modify in a set": |tx| tx.modify(set, KEY, |bytes| bytes[0] = 9);
            "delete from a set": |tx| tx.delete(set, KEY);
            "add in a set": |tx| tx.add(set, KEY, 0..8, 5);
            "get for update from a set": |tx| tx.get_for_update(set, KEY);
            "put into a typed set": |tx| tx.put(typed, KEY, &value);
            "set a field": |tx| tx.set_field(typed, KEY, 0, FieldValue::I64(9));
            "add to a field": |tx| tx.add_to_field(typed, KEY, 0, 5);
            "delete from a typed set": |tx| tx.delete(typed, KEY);
            "modify an object": |tx| tx.modify_object(objects, 3, |bytes| bytes[0] = 9);
        }
        Ok(done)
    }
}

const CALLS: usize = 17;

/// As many transactions at snapshot level as there are calls, each of which has read the present.
async fn snapshots(database: &Database, tables: &Tables) -> Result<Vec<Transaction>> {
    let mut transactions = Vec::new();
    for _ in 0..CALLS {
        let mut tx = database.begin_at(Isolation::Snapshot).await?;
        assert_eq!(tx.get(tables.tree, KEY).await?, Some(1_i64.to_le_bytes().to_vec()));
        transactions.push(tx);
    }
    Ok(transactions)
}

#[test]
fn a_change_of_what_may_have_changed_since_the_snapshot_is_refused_when_versions_were_given_up() {
    run(&Media::new(), async |executor| {
        let database = Database::create(executor, settings(8 << 10)).await?;
        let tables = Tables::create(&database).await?;
        let transactions = snapshots(&database, &tables).await?;
        database.transaction(async |tx| tables.write(tx, 2).await).await?;
        tables.change_much(&database).await?;
        assert!(database.versions().given_up > 0);
        for (call, done) in tables.changes(transactions).await? {
            assert!(matches!(done, Err(Error::SnapshotTooOld { .. })), "{call}: {done:?}");
        }
        // A new snapshot may.
        let tx = async |tx: &mut Transaction| tx.modify(tables.tree, KEY, |bytes| bytes[0]).await;
        assert_eq!(database.transaction_at(Isolation::Snapshot, tx).await, Ok(2));
        Ok::<(), Error>(())
    })
    .expect("nothing fails");
}

#[test]
fn nor_when_one_write_of_undo_space_has_failed() {
    let device = |name: &str| format!("[device.{name}]\nmedium.service = \"20 us\"\n");
    let text: String = ["disk", "undo"].into_iter().map(device).collect();
    let errors = vec![ErrorAt { kind: OpKind::Write, device: Some("undo".into()), nth: 1 }];
    let faults = Some(FaultPlan { errors, ..FaultPlan::default() });
    let hardware = Hardware::parse(&text, "test").expect("a description");
    let driver = VirtualDriver::new(hardware, Options { faults, ..Options::default() }, Media::new());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let done: Result<()> = executor
        .run(async {
            let settings = settings(1 << 30);
            let undo = version::UndoSettings { device: Some("undo".into()), ..settings.undo };
            let database = Database::create(&executor, Settings { undo, ..settings }).await?;
            let tables = Tables::create(&database).await?;
            let transactions = snapshots(&database, &tables).await?;
            database.transaction(async |tx| tables.write(tx, 2).await).await?;
            tables.change_much(&database).await?;
            executor.sleep_ns(SECOND_NS).await;
            for number in 0..10_000_u32 {
                // The table of latest versions forgets what was given up as it grows.
                let put = async |tx: &mut Transaction| tx.put(tables.others, &number.to_be_bytes(), &[8]).await;
                database.transaction(put).await?;
            }
            let report = database.versions();
            assert!(report.given_up > 0 && report.failure.is_some(), "{report:?}");
            for (call, done) in tables.changes(transactions).await? {
                assert!(matches!(done, Err(Error::SnapshotTooOld { .. })), "{call}: {done:?}");
            }
            Ok(())
        })
        .expect("the machine goes on");
    executor.stop();
    done.expect("nothing else fails");
}
