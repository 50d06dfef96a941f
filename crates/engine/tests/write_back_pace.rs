//! Write-back ahead of misses: a miss finds a clean page to replace, and small batches cost few syncs.

use base::time::MICROSECOND_NS;
use base::{Instant, Random};
use devices::Hardware;
use driver::OpKind;
use entresol_engine::{Database, PartitionSpec, Settings, buffer, log};
use executor::{Executor, Order, Step};
use virtual_driver::{Media, Options, VirtualDriver};

const RECORDS: u64 = 10_000;
const UPDATES: u64 = 3_000;
const SERVICE_NS: u64 = 100 * MICROSECOND_NS;

/// What came of updates of records in a tree that is larger than the buffer.
struct Outcome {
    /// How long each took without its commit, sorted.
    latencies_ns: Vec<u64>,
    /// Syncs of files meanwhile.
    syncs: usize,
}

/// Updates one record after another at this interval, each by a task of its own.
fn update(interval_ns: u64, cleaner: bool) -> Outcome {
    let hardware = "[device.disk]\nmedium.service = \"100 us\"\nmedium.servers = 64\natomic_write = \"512 B\"\n\
                    [device.flash]\nmedium.service = \"10 us\"\nmedium.servers = 8\n";
    let hardware = Hardware::parse(hardware, "test").expect("a description");
    let driver = VirtualDriver::new(hardware, Options::default(), Media::default());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let settings = Settings {
        home_device: "disk".into(),
        log_device: "flash".into(),
        log: log::Settings { capacity: 64 << 20, ..log::Settings::default() },
        buffer: buffer::Settings { frames: 400, page_size: 1024, cleaner, ..buffer::Settings::default() },
        ..Settings::default()
    };
    let result = executor.run(async {
        let database = Database::create(&executor, settings).await.expect("creates");
        let spec = PartitionSpec { device: "disk".into(), ..PartitionSpec::b_tree("records") };
        let tree = database.create_partition(spec).await.expect("creates");
        let records = (0..RECORDS).map(|number| (number.to_be_bytes(), [7; 150]));
        database.load_b_tree(tree, records, |_| {}).await.expect("loads");
        let mut random = Random::stream(1, "keys");
        let mut tasks = Vec::new();
        executor.record_steps();
        for _ in 0..UPDATES {
            let key = random.between(0, RECORDS - 1).to_be_bytes();
            let (database, clock) = (database.clone(), executor.clone());
            tasks.push(executor.spawn(async move {
                let began: Instant = clock.now();
                let mut tx = database.begin().await.expect("begins");
                tx.put(tree, &key, &[9; 150]).await.expect("puts");
                let latency_ns = clock.now().since_ns(began);
                tx.commit().await.expect("commits");
                latency_ns
            }));
            executor.sleep_ns(interval_ns).await;
        }
        let mut latencies_ns = Vec::new();
        for task in tasks {
            latencies_ns.push(task.join().await);
        }
        latencies_ns.sort_unstable();
        let syncs = executor.take_steps().into_iter().filter(|step| *step == Step::Op(OpKind::Sync)).count();
        Outcome { latencies_ns, syncs }
    });
    executor.stop();
    result.expect("the machine goes on")
}

#[test]
fn a_miss_finds_a_clean_page_to_replace() {
    let cleaned = update(SERVICE_NS / 2, true);
    let p99 = |outcome: &Outcome| outcome.latencies_ns[outcome.latencies_ns.len() * 99 / 100];
    // A miss of a page and of one above it.
    assert!(p99(&cleaned) <= 2 * SERVICE_NS, "{} ns", p99(&cleaned));
    let uncleaned = update(SERVICE_NS / 2, false);
    assert!(p99(&uncleaned) > 3 * SERVICE_NS, "without a cleaner a miss waits for a write: {} ns", p99(&uncleaned));
}

#[test]
fn syncs_are_few_however_small_the_batches_are() {
    for cleaner in [true, false] {
        let outcome = update(2 * SERVICE_NS, cleaner);
        assert!(outcome.syncs > 0, "the area is smaller than what was written");
        // The area has four regions of 64 pages, and two of them are filled before a sync.
        let pages_per_sync = UPDATES as usize / outcome.syncs;
        assert!(pages_per_sync >= 100, "cleaner {cleaner}: {} syncs", outcome.syncs);
    }
}
