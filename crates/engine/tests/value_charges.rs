//! What values are charged with, in partitions that caches hold and in one that they do not.

use base::PartitionId;
use devices::Hardware;
use driver::Work;
use entresol_engine::{Database, Error, PartitionSpec, Settings, Transaction, buffer};
use executor::{Executor, Order};
use virtual_driver::{Media, Options, VirtualDriver};

const READS: u64 = 400;

/// Reads [`READS`] records of a b-tree that has this many of 1,000 bytes each, and changes as many: what a step was charged for, before a
/// change and behind it.
async fn charged(database: &Database, name: &str, records: u64) -> [[u64; 2]; 2] {
    let partition = database.create_partition(PartitionSpec::b_tree(name)).await.expect("creates");
    let values = (0..records).map(|number| (number.to_be_bytes(), [7; 1_000]));
    database.load_b_tree(partition, values, |_| {}).await.expect("loads");
    database.warm(partition, |_| {}).await.expect("reads");
    let counts = || [Work::ValueCopy, Work::DistantValue].map(|work| database.executor().work_counts()[work as usize]);
    let before = counts();
    each(database, partition, records, false).await;
    let between = counts();
    each(database, partition, records, true).await;
    let after = counts();
    [0, 1].map(|step| [between[step] - before[step], after[step] - between[step]])
}

async fn each(database: &Database, partition: PartitionId, records: u64, changes: bool) {
    let all = async |tx: &mut Transaction| {
        for number in (0..READS).map(|number| number * records / READS) {
            match changes {
                true => tx.modify(partition, &number.to_be_bytes(), |value| value[5] ^= 1).await?,
                false => assert!(tx.get(partition, &number.to_be_bytes()).await?.is_some()),
            }
        }
        Ok::<_, Error>(())
    };
    database.transaction(all).await.expect("commits");
}

#[test]
fn values_are_charged_by_their_length_and_by_how_many_caches_do_not_hold() {
    let driver = VirtualDriver::new(Hardware::ideal(), Options::default(), Media::new());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let run = executor.run(async {
        let buffer = buffer::Settings { frames: 5_000, ..buffer::Settings::default() };
        let database = Database::create(&executor, Settings { buffer, ..Settings::default() }).await.expect("creates");
        let [copies, distant] = charged(&database, "few", 1_000).await;
        assert_eq!((copies, distant), ([4 * READS; 2], [0; 2]), "a MiB");
        let [copies, distant] = charged(&database, "many", 21_000).await;
        assert_eq!(copies, [4 * READS; 2]);
        // Some 24 MiB, of which 8 are near.
        let shares = distant.map(|count| count as f64 / READS as f64);
        assert!(shares.iter().all(|share| (0.6..0.72).contains(share)), "{shares:?}");
    });
    executor.stop();
    run.expect("the machine goes on");
}
