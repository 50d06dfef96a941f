//! A restart of memory-resident sets uses every core, also where one set has all the changes.

use base::Random;
use devices::Hardware;
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::{Database, PartitionSpec, Result, Settings, checkpoint};
use executor::{Executor, Order};
use virtual_driver::{Media, Options, VirtualDriver};

const RECORDS: u64 = 10_000;

/// A machine of `processors` slow processors, on which only computations cost time.
fn machine(media: &Media, processors: u32) -> Executor {
    let text = format!(
        "[cpu]\ncount = {processors}\nmips = 1\n[cpu.instructions]\nbegin_transaction = 0\nobject_reference = 0\n\
         end_transaction = 0\ninput_output = 0\nnvem_access = 0\n[device.disk]\nmedium.service = \"20 us\"\n"
    );
    let hardware = Hardware::parse(&text, "test").expect("a description");
    let driver = VirtualDriver::new(hardware, Options::default(), media.clone());
    Executor::new(Box::new(driver), Order::FirstInFirstOut)
}

fn settings() -> Settings {
    Settings { checkpoint: checkpoint::Policy::OFF, ..Settings::default() }
}

/// A set of many segments, each of its records changed twice since its backup.
async fn fill(executor: &Executor) -> Result<()> {
    let database = Database::create(executor, settings()).await?;
    let organization = Organization::Set { arrivals: false, segment_size: 16 << 10, reserve_percent: 10 };
    let stock = database.create_partition(PartitionSpec::new("stock", organization, Locking::Record)).await?;
    database.load_set(stock, (0..RECORDS).map(|number| (number.to_be_bytes(), [0; 100])), |_| {}).await?;
    let mut random = Random::stream(1, "changes");
    for _ in 0..RECORDS / 50 {
        let change = async |tx: &mut entresol_engine::Transaction| {
            for _ in 0..100 {
                let key = random.below(RECORDS).to_be_bytes();
                tx.modify(stock, &key, |value| value[5] = value[5].wrapping_add(1)).await?;
            }
            Ok::<_, entresol_engine::Error>(())
        };
        database.transaction(change).await?;
    }
    Ok(())
}

/// How long that is repeated, in nanoseconds.
fn redo_ns(media: &Media, processors: u32) -> u64 {
    let executor = machine(&media.copy(), processors);
    let opened = executor.run(async {
        let database = Database::open(&executor, settings(), "test").await.expect("opens");
        let stock = database.partition("stock").expect("it exists");
        let tx = database.begin().await.expect("begins");
        let mut changes = 0;
        let count = |_: &[u8], value: &[u8]| {
            changes += u64::from(value[5]);
            true
        };
        tx.scan_set(stock, count).await.expect("scans");
        tx.rollback().await.expect("rolls back");
        assert_eq!(changes, 2 * RECORDS, "each change is repeated once");
        database.recovery().redo_ns
    });
    executor.stop();
    opened.expect("the machine goes on")
}

#[test]
fn changes_of_one_set_are_repeated_by_every_processor() {
    let media = Media::new();
    let executor = machine(&media, 1);
    executor.run(fill(&executor)).expect("the machine goes on").expect("works");
    executor.stop();
    let [one, eight] = [1, 8].map(|processors| redo_ns(&media, processors));
    // Reading and decoding so short a log is one computation.
    assert!(one > 2 * eight, "{one} ns with one processor, {eight} ns with eight");
}
