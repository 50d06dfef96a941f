//! How much memory the locks of a serializable scan take: as one range, and as they would with a lock on each record and on the gap
//! below it.
//!
//! `cargo run --release -p entresol-engine --example scan_locks [RECORDS]`

use base::PartitionId;
use entresol_engine::lock::{LockTable, Mode, Outcome, Owner, Resource, VictimPolicy};
use entresol_engine::{Database, Direction, Error, Internals, PartitionSpec, Result, Settings, buffer};
use executor::{Executor, Order};
use virtual_driver::{Hardware, Media, Options, VirtualDriver};

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// The bytes of a table in which one owner has locked each record and the gap below it.
fn bytes_by_record(records: u64) -> usize {
    let mut table = LockTable::new(VictimPolicy::Requester);
    let before = table.bytes();
    for number in 0..records {
        for resource in [Resource::record(PartitionId(1), number), Resource::secondary_gap(PartitionId(1), 0, number)] {
            let granted = table.request(Owner(0), resource, Mode::Shared, 0);
            assert_eq!(granted, Outcome::Granted);
        }
    }
    table.bytes() - before
}

async fn bytes_by_range(executor: &Executor, records: u64) -> Result<usize> {
    let buffer = buffer::Settings { frames: 1 << 16, ..buffer::Settings::default() };
    let database = Database::create(executor, Settings { buffer, ..Settings::default() }).await?;
    let tree = database.create_partition(PartitionSpec::b_tree("tree")).await?;
    database.load_b_tree(tree, (0..records).map(|number| (key(number), [7; 16])), |_| {}).await?;
    let before = database.locks().bytes();
    let scan = async |tx: &mut entresol_engine::Transaction| {
        let mut count = 0;
        let look = |_: &[u8], _: &[u8]| {
            count += 1;
            true
        };
        tx.scan(tree, .., Direction::Forward).look(look).await?;
        assert_eq!(count, records);
        Ok::<_, Error>(database.locks().bytes() - before)
    };
    database.transaction(scan).await
}

fn main() {
    let records = std::env::args().nth(1).map_or(1_000_000, |count| count.parse().expect("a number of records"));
    let driver = VirtualDriver::new(Hardware::ideal(), Options::default(), Media::new());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let by_range = executor.run(bytes_by_range(&executor, records)).expect("runs").expect("scans");
    executor.stop();
    println!("a serializable scan of {records} records, bytes of locks:");
    println!("{:>14} with a lock on each record and gap", bytes_by_record(records));
    println!("{by_range:>14} with a range");
}
