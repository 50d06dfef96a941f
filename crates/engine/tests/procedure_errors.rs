//! Procedures that take no notice of an error that does not follow from what is stored: a restart would not meet it again.

use crate::ground::failing_reads::on;
use base::time::MILLISECOND_NS;
use entresol_engine::checkpoint::{Policy, Strategy, SweepSettings};
use entresol_engine::set::Logging;
use entresol_engine::{
    Database, Direction, Error, Internals, PartitionSpec, Procedures, Result, Settings, Transaction, buffer,
};
use executor::Executor;
use std::ops::Bound;
use virtual_driver::Media;

/// Takes note of the parameters beside a record that it cannot have.
async fn note(tx: &mut Transaction, key: &[u8]) -> Result<Vec<u8>> {
    let stock = tx.partition("stock")?;
    match tx.put(stock, b"held", key).await {
        Err(error) if error.is_conflict() => Err(error),
        Err(Error::RollbackStalled { .. }) => tx.put(stock, key, b"instead").await.map(|()| Vec::new()),
        other => other.map(|()| Vec::new()),
    }
}

fn settings() -> Settings {
    let mut procedures = Procedures::new();
    procedures.register("note", note);
    let sweep = SweepSettings { strategy: Strategy::StableVersions, ..SweepSettings::default() };
    Settings {
        buffer: buffer::Settings { frames: 64, page_size: 1024, cleaner: false, ..buffer::Settings::default() },
        checkpoint: Policy::OFF,
        logging: Logging::Procedures,
        procedures,
        sweep,
        ..Settings::default()
    }
}

/// A transaction that has changed a record of the set `stock`, and rows on the device that will fail which are not in memory any
/// more.
async fn prepare(executor: &Executor) -> (Database, Transaction) {
    let database = Database::create(executor, settings()).await.expect("creates");
    let stock = database.create_partition(PartitionSpec::set("stock")).await.expect("creates");
    let mut trees = Vec::new();
    for name in ["rows", "filler"] {
        let spec = PartitionSpec { device: "data".into(), ..PartitionSpec::b_tree(name) };
        let tree = database.create_partition(spec).await.expect("creates a tree");
        let records = (0..600_u32).map(|number| (number.to_be_bytes(), [1; 150]));
        database.load_b_tree(tree, records, |_| {}).await.expect("loads");
        trees.push(tree);
    }
    let mut tx = database.begin().await.expect("begins");
    tx.put(stock, b"held", b"before").await.expect("puts");
    for number in (0..600_u32).step_by(40) {
        tx.modify(trees[0], &number.to_be_bytes(), |value| value.fill(9)).await.expect("changes");
    }
    let mut scan = database.begin().await.expect("begins");
    let mut cursor = scan.cursor(trees[1], Bound::Unbounded, Bound::Unbounded, Direction::Forward);
    while scan.next(&mut cursor).await.expect("reads").is_some() {}
    scan.commit().await.expect("ends");
    (database, tx)
}

fn reads(database: &Database) -> u64 {
    let of = |name| database.buffer().space(database.partition(name).expect("there")).reads.get();
    of("rows") + of("filler")
}

async fn found(database: &Database) -> [Option<Vec<u8>>; 2] {
    let stock = database.partition("stock").expect("it exists");
    let read =
        async |tx: &mut Transaction| Ok::<_, Error>([tx.get(stock, b"held").await?, tx.get(stock, b"key").await?]);
    database.transaction(read).await.expect("reads")
}

#[test]
fn a_call_that_goes_on_after_a_passing_error_has_the_effects_that_it_had() {
    let first = on(&Media::new(), 0..0, async |executor| reads(&prepare(executor).await.0)) + 1;
    let media = Media::new();
    on(&media, first..first + 1_000, async |executor| {
        let (database, tx) = prepare(executor).await;
        let failed = tx.rollback().await;
        assert!(matches!(failed, Err(Error::Input(_))), "{failed:?}");
        executor.sleep_ns(MILLISECOND_NS).await;
        database.call("note", b"key").await.expect("commits");
    });
    on(&media, 0..0, async |executor| {
        let database = Database::open(executor, settings(), "here").await.expect("opens");
        assert_eq!(found(&database).await, [None, Some(b"instead".to_vec())]);
    });
}
