//! What is under way in the second level when its database is given up.

use crate::ground::cached::{cache, change, create, read, settings};
use base::time::{MICROSECOND_NS, SECOND_NS};
use devices::Hardware;
use entresol_engine::Database;
use entresol_engine::second_level::{CacheSettings, Design, Parameters};
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

#[test]
fn a_database_may_be_given_up_whatever_its_cache_is_doing() {
    let parameters = Parameters { dirty_max_percent: 5, group_pages: 1, ..Parameters::default() };
    let design = Design::named("lazy-cleaning").expect("it has this name");
    let settings = settings(CacheSettings { parameters, ..cache(design, 40) });
    for after_us in 0..120 {
        let media = Media::new();
        on(&media, 7, async |executor| {
            let database = create(executor, settings.clone(), PAGES).await;
            change(&database, 0..18, 1).await;
            let reads = async { _ = read(&database, 20..PAGES).await };
            executor.within(after_us * MICROSECOND_NS, reads).await;
            drop(database);
            executor.sleep_ns(SECOND_NS).await;
        });
        on(&media, 7, async |executor| {
            let database = Database::open(executor, settings.clone(), "here").await.expect("opens");
            assert_eq!(read(&database, 0..18).await, [1; 18]);
        });
    }
}
