//! Records that are appended to a file whose pages have to be read: the pages are read while others are filled, by one read
//! each, and each counts as one miss.

use base::time::MILLISECOND_NS;
use devices::Hardware;
use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::{Database, PartitionSpec, Settings, buffer, log};
use executor::{Executor, Order};
use virtual_driver::{Media, Options, VirtualDriver};

const RECORDS: u64 = 400;
const RECORDS_PER_PAGE: u32 = 20;

/// Appends records at this interval, each by a task of its own; returns the longest that one took, and the misses.
fn append_all(interval_ns: u64, frames: usize) -> (u64, u64) {
    let hardware =
        "[device.disk]\nmedium.service = \"16 ms\"\nmedium.servers = 64\n[device.flash]\nmedium.service = \"10 us\"\n";
    let hardware = Hardware::parse(hardware, "test").expect("a description");
    let driver = VirtualDriver::new(hardware, Options::default(), Media::default());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let result = executor.run(async {
        let settings = Settings {
            home_device: "flash".into(),
            log_device: "flash".into(),
            log: log::Settings { capacity: 4 << 20, ..log::Settings::default() },
            buffer: buffer::Settings { frames, ..buffer::Settings::default() },
            ..Settings::default()
        };
        let database = Database::create(&executor, settings).await.expect("creates");
        let organization = Organization::Append { blocking_factor: RECORDS_PER_PAGE };
        let spec = PartitionSpec::new("history", organization, Locking::None);
        let spec = PartitionSpec { device: "disk".into(), assumed: true, ..spec };
        let history = database.create_partition(spec).await.expect("creates");
        // The first page of all is read on demand.
        database.transaction(async |tx| tx.append(history, &[0; 40]).await).await.expect("appends");
        database.statistics().restart();
        let mut tasks = Vec::new();
        for _ in 1..RECORDS {
            let (database, clock) = (database.clone(), executor.clone());
            tasks.push(executor.spawn(async move {
                let began = clock.now();
                let mut tx = database.begin().await.expect("begins");
                tx.append(history, &[0; 40]).await.expect("appends");
                let ended = clock.now();
                tx.commit().await.expect("commits");
                ended.since_ns(began)
            }));
            executor.sleep_ns(interval_ns).await;
        }
        let mut longest_ns = 0;
        for task in tasks {
            longest_ns = longest_ns.max(task.join().await);
        }
        let references = database.statistics().references()[usize::from(history.0)];
        assert_eq!(references.count(), RECORDS - 1, "each record is one reference");
        (longest_ns, references.misses())
    });
    executor.stop();
    result.expect("the machine goes on")
}

#[test]
fn a_stream_of_records_waits_for_no_page_and_misses_each_once() {
    let (longest_ns, misses) = append_all(2 * MILLISECOND_NS, 64);
    assert!(longest_ns < MILLISECOND_NS, "the longest append took {longest_ns} ns");
    assert_eq!(misses, RECORDS / u64::from(RECORDS_PER_PAGE) - 1, "the page of the first record is not counted");
}

#[test]
fn pages_that_are_needed_sooner_than_they_come_are_waited_for() {
    let (longest_ns, misses) = append_all(MILLISECOND_NS / 4, 64);
    assert!(longest_ns < 40 * MILLISECOND_NS, "the longest append took {longest_ns} ns");
    assert_eq!(misses, RECORDS / u64::from(RECORDS_PER_PAGE) - 1);
}
