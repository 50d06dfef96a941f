//! FORCE: what a commit has acknowledged is in its own place.

use base::time::MICROSECOND_NS;
use devices::Hardware;
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::{Database, PartitionSpec, Settings, buffer, checkpoint, log};
use executor::{Executor, Order};
use virtual_driver::{Media, Options, VirtualDriver};

const PAGE: usize = 1024;
const BATCH: usize = 4;
const FRAMES: usize = 32;

async fn objects(database: &Database, name: &str, device: &str, objects: u64) -> base::PartitionId {
    let organization = Organization::Direct { objects, blocking_factor: 1, record_size: 100 };
    let spec = PartitionSpec::new(name, organization, Locking::Page);
    database.create_partition(PartitionSpec { device: device.into(), ..spec }).await.expect("creates")
}

/// A transaction forces more pages than one batch, and the cleaner begins to write one of them, on a slow device, while the first
/// batch is being written.
#[test]
fn a_forced_commit_waits_for_writes_that_others_have_begun() {
    let hardware = "[device.disk]\nmedium.service = \"50 ms\"\natomic_write = \"64 KiB\"\n\
                    [device.flash]\nmedium.service = \"1 ms\"\nmedium.servers = 64\natomic_write = \"64 KiB\"\n\
                    [device.nvem]\nmedium.service = \"10 us\"\natomic_write = \"64 KiB\"\n";
    let hardware = Hardware::parse(hardware, "test").expect("a description");
    let media = Media::default();
    let driver = VirtualDriver::new(hardware, Options::default(), media.clone());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let settings = Settings {
        home_device: "nvem".into(),
        log_device: "nvem".into(),
        log: log::Settings { capacity: 4 << 20, ..log::Settings::default() },
        buffer: buffer::Settings { frames: FRAMES, page_size: PAGE, batch: BATCH, ..buffer::Settings::default() },
        checkpoint: checkpoint::Policy::OFF,
        force: true,
        ..Settings::default()
    };
    let result = executor.run(async {
        let database = Database::create(&executor, settings).await.expect("creates");
        let fast = objects(&database, "fast", "flash", 8).await;
        let slow = objects(&database, "slow", "disk", 1).await;
        let others = objects(&database, "others", "flash", 100).await;
        for number in 0..100 {
            let change = async |tx: &mut entresol_engine::Transaction| {
                tx.modify_object(others, number, |bytes| bytes[0] = 1).await
            };
            database.transaction(change).await.expect("changes");
        }
        database.checkpoint().await.expect("writes everything");
        let mut tx = database.begin().await.expect("begins");
        for number in 0..BATCH as u64 {
            tx.modify_object(fast, number, |bytes| bytes[0] = 7).await.expect("modifies");
        }
        tx.modify_object(slow, 0, |bytes| bytes[0] = 7).await.expect("modifies");
        tx.modify_object(fast, BATCH as u64, |bytes| bytes[0] = 7).await.expect("modifies");
        let readers: Vec<_> = (0..24)
            .map(|number| {
                let (database, clock) = (database.clone(), executor.clone());
                executor.spawn(async move {
                    // In the middle of the first batch.
                    clock.sleep_ns(500 * MICROSECOND_NS).await;
                    let read =
                        async |tx: &mut entresol_engine::Transaction| tx.read_object(others, number, |_| ()).await;
                    database.transaction(read).await.expect("reads");
                })
            })
            .collect();
        tx.commit().await.expect("commits");
        let mut page = [0; PAGE];
        let name = media.names("disk").into_iter().find(|name| name.contains("slow")).expect("its file");
        media.read("disk", &name, 0, &mut page).expect("it is there");
        assert!(page.contains(&7), "the page is in its place when the commit is acknowledged");
        for reader in readers {
            reader.join().await;
        }
    });
    executor.stop();
    result.expect("the machine goes on");
}
