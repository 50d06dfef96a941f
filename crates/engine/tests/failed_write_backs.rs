//! Writes of pages to their own places that fail for a while: each miss that needs a frame is told, and afterwards all goes on.

use base::time::MILLISECOND_NS;
use devices::Hardware;
use driver::{FaultKind, OpKind};
use entresol_engine::{Database, Error, Internals, PartitionSpec, Settings, buffer};
use executor::{Executor, Order};
use virtual_driver::{ErrorAt, FaultPlan, Media, Options, VirtualDriver};

const RECORDS: u32 = 3_000;

/// Runs `work` on a machine whose device `data`, where no page is ever torn, fails at these writes.
fn on<T>(failing: std::ops::Range<u64>, work: impl AsyncFnOnce(&Executor) -> T) -> T {
    let text = "[device.disk]\nmedium.service = \"20 us\"\n\
                [device.data]\nmedium.service = \"20 us\"\natomic_write = \"1 KiB\"\n";
    let error = |nth| ErrorAt { kind: OpKind::Write, device: Some("data".into()), nth };
    let faults = Some(FaultPlan { errors: failing.map(error).collect(), ..FaultPlan::default() });
    let hardware = Hardware::parse(text, "test").expect("a description");
    let driver = VirtualDriver::new(hardware, Options { faults, ..Options::default() }, Media::new());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let result = executor.run(work(&executor));
    executor.stop();
    result.expect("the machine goes on")
}

/// A tree of many more pages than the buffer has frames, on the device that will fail; and how often that was written.
async fn prepare(executor: &Executor) -> (Database, base::PartitionId, u64) {
    let buffer = buffer::Settings { frames: 64, page_size: 1024, ..buffer::Settings::default() };
    let database = Database::create(executor, Settings { buffer, ..Settings::default() }).await.expect("creates");
    let spec = PartitionSpec { device: "data".into(), ..PartitionSpec::b_tree("rows") };
    let rows = database.create_partition(spec).await.expect("creates a tree");
    let records = (0..RECORDS).map(|number| (number.to_be_bytes(), [1; 150]));
    database.load_b_tree(rows, records, |_| {}).await.expect("loads");
    let writes = database.buffer().space(rows).writes.get();
    (database, rows, writes)
}

/// Changes records of one page after the other until the writes that fail are over; returns how many changes were told so.
fn told(failing: u64) -> usize {
    let before = on(0..0, async |executor| prepare(executor).await.2);
    // The first writes of a creation are few; what the load wrote is counted.
    on(before + 8..before + 8 + failing, async |executor| {
        let (database, rows, _) = prepare(executor).await;
        let (mut told, mut untroubled) = (0, 0);
        for round in 0_u32.. {
            let number = round.wrapping_mul(617) % RECORDS;
            let changing = database.clone();
            let change = executor.spawn(async move {
                let mut tx = changing.begin().await?;
                let changed = tx.modify(rows, &number.to_be_bytes(), |value| value.fill(9)).await;
                match changed {
                    Ok(_) => tx.commit().await.map(drop),
                    Err(error) => tx.rollback().await.and(Err(error)),
                }
            });
            let waits_until = executor.now().plus_ns(500 * MILLISECOND_NS);
            while !change.is_finished() {
                assert!(executor.now() < waits_until, "a miss waits for writes that fail, and is not told");
                executor.sleep_ns(MILLISECOND_NS).await;
            }
            match change.join().await {
                Ok(()) => untroubled += 1,
                Err(Error::Input(fault)) if fault.kind == FaultKind::Device => (told, untroubled) = (told + 1, 0),
                Err(error) => panic!("{error}"),
            }
            if told > 0 && untroubled == 200 || round == 20_000 {
                return told;
            }
        }
        unreachable!("the rounds end")
    })
}

#[test]
fn a_miss_whose_pages_cannot_be_written_is_told() {
    assert!(told(2_000) > 0);
}
