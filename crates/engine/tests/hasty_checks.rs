//! Checks of b-trees that change meanwhile: what differs between two moments is no damage.

use base::Random;
use base::time::MICROSECOND_NS;
use devices::Hardware;
use entresol_engine::catalog::IndexSpec;
use entresol_engine::check::CheckReport;
use entresol_engine::set::{FieldType, FieldValue, RecordType};
use entresol_engine::{Database, Error, PartitionSpec, Result, Settings, buffer, checkpoint};
use executor::{Executor, Order};
use std::cell::Cell;
use std::rc::Rc;
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

fn noted() -> RecordType {
    RecordType::new([("state", FieldType::U32), ("name", FieldType::Text)]).expect("sound")
}

fn stored(state: u32) -> Vec<u8> {
    let mut value = Vec::new();
    let contents = [FieldValue::U32(state), FieldValue::Text("some thirty letters or digits")];
    noted().encode(&contents, &mut value).expect("suits");
    value
}

/// A record whose indexed field is another one whenever a check has come from it to its entry.
async fn check_indexed(executor: &Executor) -> Result<CheckReport> {
    let buffer = buffer::Settings { frames: 32, page_size: 1024, ..buffer::Settings::default() };
    let settings = Settings { buffer, checkpoint: checkpoint::Policy::OFF, ..Settings::default() };
    let database = Database::create(executor, settings).await?;
    let notes = database.create_partition(PartitionSpec::b_tree("notes").record(noted())).await?;
    // The entries of a leaf's records are far from each other.
    let records = (0..2_000_u32).map(|number| ((number * 2).to_be_bytes(), stored(number * 7_919 % 2_000)));
    database.load_b_tree(notes, records, |_| {}).await?;
    database.create_index(notes, IndexSpec::new("by_state", &["state"])).await?;
    let (writer, is_over) = (database.clone(), Rc::new(Cell::new(false)));
    let ended = Rc::clone(&is_over);
    let writes = executor.spawn(async move {
        for state in 2_000_u32.. {
            if ended.get() {
                break;
            }
            let hot = 2_000_u32.to_be_bytes();
            writer.transaction(async |tx| tx.put(notes, &hot, &stored(state)).await).await?;
        }
        Ok::<_, Error>(())
    });
    let report = database.check(|_| {}).await?;
    is_over.set(true);
    writes.join().await?;
    Ok(report)
}

#[test]
fn a_record_that_is_changed_again_and_again_is_no_damage_of_its_index() {
    let hardware = Hardware::parse("[device.disk]\nmedium.service = \"100 us\"\n", "test").expect("a description");
    let driver = VirtualDriver::new(hardware, Options::default(), Media::new());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let report = executor.run(check_indexed(&executor)).expect("the machine goes on").expect("works");
    executor.stop();
    assert_eq!(report.findings, []);
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
