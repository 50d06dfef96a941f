//! What is under way in the second level when its database is given up.

use base::time::{MICROSECOND_NS, SECOND_NS};
use devices::Hardware;
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::second_level::{self, CacheSettings, Design, Parameters};
use entresol_engine::{Database, PartitionSpec, Settings, buffer, checkpoint, log};
use executor::{Executor, Order};
use virtual_driver::{Media, Options, VirtualDriver};

const PAGES: u64 = 60;

/// Runs `work` on a machine whose cache takes `cache_us` microseconds for each operation.
fn on(media: &Media, cache_us: u64, work: impl AsyncFnOnce(&Executor)) {
    let text =
        format!("[device.disk]\nmedium.service = \"20 us\"\n[device.nvem]\nmedium.service = \"{cache_us} us\"\n");
    let hardware = Hardware::parse(&text, "test").expect("a description");
    let driver = VirtualDriver::new(hardware, Options::default(), media.clone());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    executor.run(work(&executor)).expect("the machine goes on");
    executor.stop();
}

fn settings(design: Design, pages: u32, parameters: Parameters) -> Settings {
    let cache = CacheSettings { design, parameters, volatile: Some(false), ..CacheSettings::new("nvem", pages) };
    let frames = buffer::Settings { frames: 20, page_size: 1024, cleaner: false, ..buffer::Settings::default() };
    Settings {
        buffer: frames,
        log: log::Settings { capacity: 1 << 20, ..log::Settings::default() },
        hierarchy: second_level::Settings { cache: Some(cache), ..second_level::Settings::default() },
        checkpoint: checkpoint::Policy::OFF,
        ..Settings::default()
    }
}

async fn create(executor: &Executor, settings: Settings) -> Database {
    let database = Database::create(executor, settings).await.expect("creates");
    let organization = Organization::Direct { objects: PAGES, blocking_factor: 1, record_size: 100 };
    database.create_partition(PartitionSpec::new("objects", organization, Locking::Page)).await.expect("creates");
    database
}

async fn change(database: &Database, numbers: impl Iterator<Item = u64>, value: u8) {
    let partition = database.partition("objects").expect("it exists");
    for number in numbers {
        let mut tx = database.begin().await.expect("begins");
        tx.modify_object(partition, number, |bytes| bytes[0] = value).await.expect("modifies");
        tx.commit().await.expect("commits");
    }
}

async fn read(database: &Database, number: u64) -> u8 {
    let partition = database.partition("objects").expect("it exists");
    let mut tx = database.begin().await.expect("begins");
    let found = tx.read_object(partition, number, |bytes| bytes[0]).await.expect("reads");
    tx.commit().await.expect("commits");
    found
}

#[test]
fn a_database_may_be_given_up_whatever_its_cache_is_doing() {
    let parameters = Parameters { dirty_max_percent: 5, group_pages: 1, ..Parameters::default() };
    let design = Design::named("lazy-cleaning").expect("it has this name");
    for after_us in 0..120 {
        let media = Media::new();
        on(&media, 7, async |executor| {
            let database = create(executor, settings(design, 40, parameters)).await;
            change(&database, 0..18, 1).await;
            let reads = async {
                for number in 20..PAGES {
                    read(&database, number).await;
                }
            };
            executor.within(after_us * MICROSECOND_NS, reads).await;
            drop(database);
            executor.sleep_ns(SECOND_NS).await;
        });
        on(&media, 7, async |executor| {
            let database = Database::open(executor, settings(design, 40, parameters), "here").await.expect("opens");
            for number in 0..18 {
                assert_eq!(read(&database, number).await, 1);
            }
        });
    }
}
