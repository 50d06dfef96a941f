//! Durable writes that fail, and what was written before them or is under way beside them.

use base::{PageId, PartitionId};
use driver::{Access, OpKind};
use entresol_engine::page_store::{DataFile, PageStore, Transfer};
use executor::{Executor, Order};
use std::rc::Rc;
use virtual_driver::{ErrorAt, FaultPlan, Hardware, Injury, Media, Options, VirtualDriver};

/// Runs `work` where this happens to the second write to the device `flash`.
fn injured<T>(injury: Injury, nth: u64, work: impl AsyncFnOnce(&Executor, Rc<dyn PageStore>) -> T) -> T {
    let at = ErrorAt { kind: OpKind::Write, device: Some("flash".into()), nth };
    let faults = Some(FaultPlan { injuries: vec![(at, injury)], ..FaultPlan::default() });
    let driver = VirtualDriver::new(Hardware::ideal(), Options { faults, ..Options::default() }, Media::new());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let result = executor.run(async {
        let device = executor.device("flash").expect("the ideal machine has it");
        let file = DataFile::open(&executor, device, "file", 1024, true).await.expect("creates");
        file.reserve(&executor, 8).await.expect("there is room");
        let file: Rc<dyn PageStore> = Rc::new(file);
        work(&executor, file).await
    });
    executor.stop();
    result.expect("the machine goes on")
}

fn transfer(executor: &Executor, number: u32) -> Transfer {
    let buffer = executor.frame(1024).expect("memory");
    Transfer { first: PageId::new(PartitionId(0), number), buffer, length: 1024, access: Access::Asynchronous }
}

/// What the system could not write back it may report as a lack of room: thin volumes, network and copy-on-write file systems. A
/// sync that fails so counts; a durable write that does ought to.
#[test]
fn a_durable_write_that_finds_no_room_may_be_the_report_of_what_was_written_before() {
    injured(Injury::NoSpace, 2, async |executor, file| {
        file.write_now(executor, transfer(executor, 0), false).await.result.expect("writes");
        file.write_now(executor, transfer(executor, 1), true).await.result.expect_err("it fails");
        assert!(file.failure().is_some(), "the first write may be lost, and no sync will tell");
    });
}

/// A write that was under way when a durable one failed may have been among what that has lost.
#[test]
fn a_write_that_is_under_way_when_a_durable_one_fails_may_be_lost_with_it() {
    let mut met = 0;
    for delay_us in 0..20 {
        injured(Injury::Fail, 1, async |executor, file| {
            let (own, other) = (Rc::clone(&file), executor.clone());
            let durable = executor.spawn(async move {
                let result = own.write_now(&other, transfer(&other, 1), true).await.result;
                (result, other.now())
            });
            executor.sleep_ns(delay_us * 1_000).await;
            let began = executor.now();
            let written = file.write_now(executor, transfer(executor, 0), false).await.result;
            let (failed, ended) = durable.join().await;
            if failed.is_err() && began < ended {
                written.expect("only one fails");
                met += 1;
                assert!(file.failure().is_some(), "no sync will tell");
            }
        });
    }
    assert!(met > 0, "some were under way");
}

/// The system tells of it once, perhaps to the other.
#[test]
fn a_durable_write_beside_one_that_fails_may_have_failed_itself() {
    injured(Injury::Fail, 1, async |executor, file| {
        let write = |number| {
            let (own, other) = (Rc::clone(&file), executor.clone());
            executor.spawn(async move { own.write_now(&other, transfer(&other, number), true).await.result })
        };
        let (first, second) = (write(0), write(1));
        first.join().await.expect_err("it fails");
        second.join().await.expect_err("it was under way");
        assert_eq!(file.failure(), None, "nothing waits for a sync");
        write(1).join().await.expect("it is alone");
    });
}

#[cfg(feature = "canary")]
mod planted {
    use super::*;
    use crate::ground::planting::is_found;
    use entresol_engine::canary::Canary;

    #[test]
    fn a_durable_write_that_is_believed_beside_one_that_failed_is_found() {
        is_found(Canary::BelievedBeside, a_durable_write_beside_one_that_fails_may_have_failed_itself);
    }
}
