//! Checks of b-trees that change meanwhile: what differs between two moments is no damage.

use base::Random;
use base::time::MICROSECOND_NS;
use devices::Hardware;
use entresol_engine::check::CheckReport;
use entresol_engine::{Database, Error, PartitionSpec, Result, Settings, buffer, checkpoint};
use executor::{Executor, Order};
use virtual_driver::{Media, Options, VirtualDriver};

/// A check in the midst of which leaves are divided: this many times, with pauses of this many microseconds at most.
async fn check_within(executor: &Executor, seed: u64, (times, pause_us): (u64, u64)) -> Result<CheckReport> {
    let buffer = buffer::Settings { frames: 32, page_size: 1024, ..buffer::Settings::default() };
    let settings = Settings { buffer, checkpoint: checkpoint::Policy::OFF, ..Settings::default() };
    let database = Database::create(executor, settings).await?;
    let notes = database.create_partition(PartitionSpec::b_tree("notes")).await?;
    database.load_b_tree(notes, (0..2_000_u32).map(|number| ((number * 100).to_be_bytes(), [7; 60])), |_| {}).await?;
    let (writer, mut random) = (database.clone(), Random::stream(seed, "hasty checks"));
    let writes = executor.spawn(async move {
        for _ in 0..times {
            writer.executor().sleep_ns(random.below(pause_us) * MICROSECOND_NS).await;
            let first = random.below(200_000) as u32;
            let write = writer.transaction(async |tx| {
                for number in first..first + 30 {
                    tx.put(notes, &number.to_be_bytes(), &[8; 60]).await?;
                }
                Ok::<_, Error>(())
            });
            write.await?;
        }
        Ok::<_, Error>(())
    });
    let report = database.check(|_| {}).await?;
    writes.join().await?;
    Ok(report)
}

fn is_clean(seed: u64) -> bool {
    let text = "[device.disk]\nmedium.service = \"100 us\"\nsync = \"100 us\"\natomic_write = \"512 B\"\n";
    let hardware = Hardware::parse(text, "test").expect("a description");
    let options = Options { seed, ..Options::default() };
    let driver = VirtualDriver::new(hardware, options, Media::new());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let report = executor.run(check_within(&executor, seed, (20, 2_000))).expect("the machine goes on").expect("works");
    executor.stop();
    report.findings.is_empty()
}

#[test]
fn a_check_compares_no_two_moments() {
    assert!((0..10).all(is_clean));
}

/// A tree that never rests: what differs between two moments is not told of as damage, and that it was not looked through is.
#[test]
fn a_check_beside_changes_without_end_finds_no_damage() {
    let hardware = Hardware::parse("[device.disk]\nmedium.service = \"100 us\"\n", "test").expect("a description");
    let driver = VirtualDriver::new(hardware, Options::default(), Media::new());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let report = executor.run(check_within(&executor, 1, (500, 2_000))).expect("the machine goes on").expect("works");
    executor.stop();
    assert_eq!(report.findings, []);
    assert!(report.unsearched.iter().any(|why| why.to_string().contains("changed all the time")));
}

#[cfg(feature = "canary")]
#[test]
fn a_check_that_compares_two_moments_is_found() {
    use entresol_engine::canary::{Canary, plant};
    plant(Some(Canary::HastyCheck));
    let is_found = !(0..10).all(is_clean);
    plant(None);
    assert!(is_found, "a check that compares two moments is not found");
}
