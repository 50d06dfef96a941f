//! CPUs whose tasks keep them until they wait, held against what their descriptions state.

use super::{Bench, read};
use crate::{FaultPlan, Media, Options, VirtualDriver};
use base::Instant;
use devices::Hardware;
use driver::{Driver, FileId, Halt, Op, Token, Work};
use executor::{Executor, Order};
use std::cell::RefCell;
use std::rc::Rc;

/// One instruction takes a nanosecond. A read takes 50 us.
fn hardware(cpu: &str, instructions: &str) -> Hardware {
    let text = format!(
        "[cpu]\nmips = 1_000\ndiscipline = \"run-until-wait\"\n{cpu}\n[cpu.instructions]\nbegin_transaction = 1_000\n\
         object_reference = 1_000\nend_transaction = 1_000\ninput_output = 0\nnvem_access = 0\n{instructions}\n\
         [device.disk]\nmedium.service = \"50 us\"\nalignment = \"1 B\""
    );
    Hardware::parse(&text, "test").unwrap_or_else(|error| panic!("{error}"))
}

fn bench(cpu: &str, instructions: &str, faults: Option<FaultPlan>) -> (Bench, FileId) {
    let options = Options { faults, ..Options::default() };
    let mut bench = Bench::new(hardware(cpu, instructions), options, &Media::new());
    let file = bench.open("disk", "data");
    assert!(bench.run(Op::Resize { file, length: 1 << 20, prewrite: true }).result.is_ok());
    (bench, file)
}

/// What completes at the next look, and when.
fn park(bench: &mut Bench, start: Instant) -> (Vec<Token>, u64) {
    let mut done = Vec::new();
    bench.driver.park(None, &mut done).expect("operations are under way");
    (done.into_iter().map(|completion| completion.token).collect(), bench.driver.now().since_ns(start))
}

#[test]
fn devices_go_on_while_a_burst_passes() {
    let (mut bench, file) = bench("count = 1", "", None);
    let start = bench.driver.now();
    let first = bench.submit(read(file, 0, 512));
    assert!(bench.driver.park(Some(Instant::START), &mut Vec::new()).is_ok(), "the operation is given away");
    assert!(bench.driver.compute_alone(70_000, None), "longer than the read");
    assert_eq!(bench.driver.now().since_ns(start), 70_000);
    let second = bench.submit(read(file, 0, 512));
    assert_eq!(park(&mut bench, start), (vec![first], 70_000), "it has waited for this");
    assert_eq!(park(&mut bench, start), (vec![second], 120_000));
    assert_eq!(bench.driver.park(None, &mut Vec::new()), Err(Halt::Idle));
}

#[test]
fn batches_sleep_and_waking_up_are_paid() {
    let (mut bench, file) = bench("count = 1\nwake_latency = \"4 us\"", "submission = 2_000\nwake_up = 3_000", None);
    for batch in [1, 8, 64] {
        let start = bench.driver.now();
        for _ in 0..batch {
            bench.submit(read(file, 0, 512));
        }
        let (done, ns) = park(&mut bench, start);
        assert_eq!((done.len(), ns), (batch, 2_000 + 50_000 + 4_000 + 3_000));
    }
    // The CPU is busy for all but the read and the latency.
    bench.driver.restart_statistics();
    for _ in 0..100 {
        bench.run(read(file, 0, 512));
    }
    let cpu = bench.driver.stations().into_iter().find(|station| station.name == "cpu").expect("described");
    assert!((cpu.utilization - 5.0 / 59.0).abs() < 1e-9 && cpu.little_error < 1e-9, "{cpu:?}");
    // One that finds something to do at once does not sleep.
    let start = bench.driver.now();
    bench.submit(read(file, 0, 512));
    assert!(bench.driver.park(Some(Instant::START), &mut Vec::new()).is_ok());
    assert!(bench.driver.compute_alone(60_000, None));
    assert_eq!(park(&mut bench, start).1, 62_000);
}

#[test]
fn a_cpu_is_as_fast_as_its_footprint_lets_it() {
    let footprint = "footprint = { \"1 MiB\" = 1.0, \"64 MiB\" = 0.8, \"4 GiB\" = 0.5 }";
    let (mut bench, _) = bench(&format!("count = 1\n{footprint}"), "", None);
    for (bytes, ns) in [(0, 80_000), (1 << 20, 80_000), (64 << 20, 100_000), (8 << 20, 88_889), (1 << 40, 160_000)] {
        bench.driver.set_footprint(bytes);
        let start = bench.driver.now();
        assert!(bench.driver.compute_alone(80_000, None));
        assert_eq!(bench.driver.now().since_ns(start), ns, "{bytes} bytes");
    }
}

#[test]
fn computations_on_other_threads_share_the_cpus() {
    for (cpus, ns) in [(1, 160_000), (2, 80_000)] {
        let (mut bench, _) = bench(&format!("count = {cpus}"), "", None);
        let start = bench.driver.now();
        bench.submit(Op::Compute { run: Box::new(|| ()), instructions: 200_000 });
        assert!(bench.driver.park(Some(Instant::START), &mut Vec::new()).is_ok());
        assert!(bench.driver.compute_alone(80_000, None));
        assert_eq!(bench.driver.now().since_ns(start), ns);
    }
}

#[test]
fn the_power_fails_in_a_burst_too() {
    let (mut bench, file) = bench("count = 1", "", Some(FaultPlan::default()));
    bench.submit(read(file, 0, 512));
    assert!(bench.driver.park(Some(Instant::START), &mut Vec::new()).is_ok());
    bench.driver.cut_power_after(0);
    assert!(bench.driver.compute_alone(90_000, None));
    assert_eq!(bench.driver.park(None, &mut Vec::new()), Err(Halt::PowerCut));
}

/// Two tasks that each take two steps, read, and take another one: the order of their steps.
fn steps(hardware: Hardware) -> (Vec<(u32, &'static str)>, u64) {
    let driver = VirtualDriver::new(hardware, Options::default(), Media::new());
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let device = executor.device("disk").expect("described");
    let (order, start) = (Rc::new(RefCell::new(Vec::new())), executor.now());
    let tasks = [1, 2].map(|task| {
        let (executor, order) = (executor.clone(), Rc::clone(&order));
        executor.clone().spawn(async move {
            for word in ["first", "second"] {
                executor.charge(Work::ObjectReference);
                executor.pay_debt().await;
                order.borrow_mut().push((task, word));
            }
            executor.open(device, &format!("file {task}"), true).await.expect("it can be created");
            executor.charge(Work::EndTransaction);
            executor.pay_debt().await;
            order.borrow_mut().push((task, "third"));
        })
    });
    executor
        .run(async {
            for task in tasks {
                task.join().await;
            }
        })
        .expect("the machine goes on");
    (order.take(), executor.now().since_ns(start))
}

#[test]
fn a_task_keeps_the_cpu_until_it_waits() {
    let until_wait = hardware("count = 1", "");
    let (order, ns) = steps(until_wait.clone());
    let expected = [(1, "first"), (1, "second"), (2, "first"), (2, "second"), (1, "third"), (2, "third")];
    assert_eq!(order, expected);
    let mut turns = until_wait;
    turns.cpu.as_mut().expect("described").discipline = devices::Discipline::Fifo;
    let (order, _) = steps(turns);
    assert_eq!(order[..4], [(1, "first"), (2, "first"), (1, "second"), (2, "second")]);
    assert_eq!(ns, 6_000, "creating a file takes no time here");
}
