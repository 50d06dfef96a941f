//! CPUs whose tasks keep them until they wait, held against what their descriptions state.

use super::{Bench, read};
use crate::{FaultPlan, Media, Network, NetworkOptions, Options, VirtualDriver};
use base::Instant;
use devices::{Hardware, Law};
use driver::{Access, Driver, FileId, Frame, Halt, Op, ThreadUse, Token, Work};
use executor::{Cluster, Connection, Executor, Order};
use std::cell::RefCell;
use std::rc::Rc;

/// One instruction takes a nanosecond. A read takes 50 us.
pub(super) fn hardware(cpu: &str, instructions: &str) -> Hardware {
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
fn a_thread_with_much_under_way_sleeps_until_several_have_ended() {
    for (cpu, ends, ns) in [("count = 1", 1, 50_000), ("count = 1\ngathering = true", 2, 51_000)] {
        let (mut bench, file) = bench(cpu, "", None);
        let start = bench.driver.now();
        let mut reads = Vec::new();
        for _ in 0..16 {
            reads.push(bench.submit(read(file, 0, 512)));
            assert!(bench.driver.park(Some(Instant::START), &mut Vec::new()).is_ok(), "the operation is given away");
            assert!(bench.driver.compute_alone(1_000, None));
        }
        bench.driver.restart_statistics();
        assert_eq!(park(&mut bench, start), (reads[..ends].to_vec(), ns), "{cpu}");
        assert_eq!(bench.driver.thread_use(), ThreadUse { sleeps: 1, ..ThreadUse::default() });
    }
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
fn steps_are_slower_while_caches_are_cold() {
    let cold = "cold_caches = { instructions = 1_000, slowdown = 0.5 }";
    let (mut bench, file) = bench(&format!("count = 1\n{cold}"), "wake_up = 3_000\ninterrupt = 2_000", None);
    let steps_take = |bench: &mut Bench, instructions, ns| {
        let start = bench.driver.now();
        assert!(bench.driver.compute_alone(instructions, None));
        assert_eq!(bench.driver.now().since_ns(start), ns);
    };
    let start = bench.driver.now();
    bench.submit(read(file, 0, 512));
    assert_eq!(park(&mut bench, start).1, 50_000 + 3_000, "waking up has its price");
    steps_take(&mut bench, 400, 600);
    steps_take(&mut bench, 1_000, 1_300);
    steps_take(&mut bench, 1_000, 1_000);
    // The read ends while the thread runs, which finds so when it looks.
    bench.submit(read(file, 0, 512));
    assert!(bench.driver.park(Some(Instant::START), &mut Vec::new()).is_ok());
    steps_take(&mut bench, 60_000, 60_000);
    let start = bench.driver.now();
    assert_eq!(park(&mut bench, start).1, 2_000);
    steps_take(&mut bench, 2_000, 2_500);
}

#[test]
fn caches_are_colder_behind_longer_sleeps() {
    let cold = "cold_caches = [{ instructions = 1_000, slowdown = 0.5 }, { sleep = \"1 ms\", instructions = 10_000, slowdown = 2.0 }]";
    let (mut bench, file) = bench(&format!("count = 1\n{cold}"), "", None);
    let steps_take = |instructions, ns, bench: &mut Bench| {
        let start = bench.driver.now();
        assert!(bench.driver.compute_alone(instructions, None));
        assert_eq!(bench.driver.now().since_ns(start), ns);
    };
    let sleep_for = |bench: &mut Bench, ns| {
        let until = bench.driver.now().plus_ns(ns);
        bench.driver.park(Some(until), &mut Vec::new()).expect("time goes on");
        assert_eq!(bench.driver.now(), until);
    };
    sleep_for(&mut bench, 999_999);
    steps_take(4_000, 4_500, &mut bench);
    sleep_for(&mut bench, 1_000_000);
    steps_take(4_000, 12_000, &mut bench);
    // A short one does not warm what a long one has cooled.
    bench.run(read(file, 0, 512));
    steps_take(4_000, 12_000, &mut bench);
    steps_take(4_000, 8_000, &mut bench);
    // Nor does it make them colder than it alone would.
    bench.run(read(file, 0, 512));
    steps_take(4_000, 4_500, &mut bench);
}

#[test]
fn a_synchronous_access_keeps_the_thread_and_one_cpu() {
    for cpus in [1, 2] {
        let (mut bench, file) = bench(&format!("count = {cpus}"), "interrupt = 9_000\nwake_up = 9_000", None);
        bench.driver.restart_statistics();
        let start = bench.driver.now();
        let access = Access::Synchronous { instructions: 1_000 };
        let [first, second] = [0, 512].map(|offset| {
            let buffer = Frame::allocate(1, 512).remove(0);
            bench.submit(Op::Read { file, offset, length: 512, buffer, access })
        });
        assert_eq!(bench.driver.now().since_ns(start), 2 * 51_000, "one after the other, of {cpus} CPUs");
        assert_eq!(park(&mut bench, start), (vec![first, second], 102_000), "it neither slept nor was interrupted");
        let cpu = bench.driver.stations().into_iter().find(|station| station.name == "cpu").expect("described");
        assert!((cpu.utilization - 1.0 / f64::from(cpus)).abs() < 1e-9, "{cpu:?}");
        assert_eq!(bench.driver.thread_use(), ThreadUse::default());
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

/// Machines whose messages cost 1 us at each end and are 10 us on their way.
fn machines(count: u32) -> (Vec<Executor>, Cluster, std::net::SocketAddr) {
    machines_with(count, "submission = 2_000")
}

fn machines_with(count: u32, prices: &str) -> (Vec<Executor>, Cluster, std::net::SocketAddr) {
    let prices = format!("network_message = 1_000\nwake_up = 3_000\n{prices}");
    let described = hardware("count = 1\nwake_latency = \"4 us\"", &prices);
    let mut options = NetworkOptions::default();
    options.description.latency = Law::Fixed(10_000);
    machines_on(&described, options, count)
}

/// Machines like this on such a network, and the address at which the first one listens.
pub(super) fn machines_on(
    described: &Hardware,
    options: NetworkOptions,
    count: u32,
) -> (Vec<Executor>, Cluster, std::net::SocketAddr) {
    let network = Network::new(options);
    let machine = |number| {
        let port = network.attach(number);
        let driver = VirtualDriver::on_network(described.clone(), Options::default(), Media::new(), port);
        Executor::new(Box::new(driver), Order::FirstInFirstOut)
    };
    let machines: Vec<Executor> = (0..count).map(machine).collect();
    let cluster = Cluster::new(machines.iter().cloned());
    (machines, cluster, (network.address(0), 7_000).into())
}

/// Takes one message of 8 bytes, which is paid for.
async fn take(executor: &Executor, connection: &Connection) -> bool {
    let mut message = Vec::new();
    while message.len() < 8 {
        if connection.receive(&mut message).await.expect("it lasts") == 0 {
            return false;
        }
    }
    executor.pay_message(8).await;
    true
}

/// Answers each message after this number of instructions.
async fn answer(executor: Executor, address: std::net::SocketAddr, clients: u32, instructions: u64) {
    let listener = executor.listen(address).await.expect("the port is free");
    for _ in 0..clients {
        let (connection, own) = (listener.accept().await.expect("clients come"), executor.clone());
        executor.spawn(async move {
            while take(&own, &connection).await {
                own.charge_instructions(instructions);
                own.pay_debt().await;
                connection.send(&[1; 8]).await.expect("it listens");
            }
        });
    }
    std::future::pending::<()>().await;
}

/// How long a client waits for each of `count` answers, in nanoseconds.
async fn ask(executor: Executor, address: std::net::SocketAddr, count: u32) -> Vec<u64> {
    executor.sleep_ns(1_000).await;
    let connection = executor.connect(address).await.expect("it listens");
    let mut times = Vec::new();
    for _ in 0..count {
        let began = executor.now();
        connection.send(&[0; 8]).await.expect("it listens");
        assert!(take(&executor, &connection).await, "it is answered");
        times.push(executor.now().since_ns(began));
    }
    times
}

#[test]
fn machines_on_a_network_pay_for_batches_and_sleep() {
    let (machines, mut cluster, address) = machines(2);
    machines[0].spawn(answer(machines[0].clone(), address, 1, 0));
    let asked = machines[1].spawn(ask(machines[1].clone(), address, 20));
    let times = cluster.run(asked).expect("no machine stops");
    // Each message: its price, the batch, the way, waking up, its price.
    assert_eq!(times[1..], [2 * (1_000 + 2_000 + 10_000 + 4_000 + 3_000 + 1_000); 19]);
}

#[test]
fn a_batch_without_devices_has_a_price_of_its_own() {
    let prices = "submission = 2_000\nnotification = 9_000\nnetwork_submission = 500";
    let (machines, mut cluster, address) = machines_with(2, prices);
    machines[0].spawn(answer(machines[0].clone(), address, 1, 0));
    let asked = machines[1].spawn(ask(machines[1].clone(), address, 20));
    let times = cluster.run(asked).expect("no machine stops");
    assert_eq!(times[1..], [2 * (1_000 + 500 + 10_000 + 4_000 + 3_000 + 1_000); 19]);
}

#[test]
fn waking_up_by_a_message_has_a_price_of_its_own() {
    let (machines, mut cluster, address) = machines_with(2, "submission = 2_000\nnetwork_wake_up = 700");
    machines[0].spawn(answer(machines[0].clone(), address, 1, 0));
    let asked = machines[1].spawn(ask(machines[1].clone(), address, 20));
    let times = cluster.run(asked).expect("no machine stops");
    assert_eq!(times[1..], [2 * (1_000 + 2_000 + 10_000 + 4_000 + 700 + 1_000); 19]);
}

#[test]
fn what_a_machine_ahead_has_done_is_noticed_when_others_have_come_as_far() {
    let (machines, mut cluster, address) = machines(2);
    let [receiver, sender] = [machines[0].clone(), machines[1].clone()];
    let reading = machines[0].spawn(async move {
        let connection = receiver.listen(address).await?.accept().await?;
        receiver.charge_instructions(500_000);
        receiver.pay_debt().await;
        let (began, mut received) = (receiver.now(), Vec::new());
        while received.len() < 100_000 {
            connection.receive(&mut received).await?;
        }
        Ok::<_, driver::Fault>(began)
    });
    let sending = machines[1].spawn(async move {
        sender.sleep_ns(1_000).await;
        let connection = sender.connect(address).await?;
        let (ticking, ticker) = (Rc::new(()), sender.clone());
        let ends = Rc::downgrade(&ticking);
        sender.spawn(async move {
            while ends.upgrade().is_some() {
                ticker.sleep_ns(10_000).await;
            }
        });
        // More than a connection carries that is not read.
        connection.send(&[7; 100_000]).await?;
        connection.flush().await?;
        Ok::<_, driver::Fault>((sender.now(), connection, ticking))
    });
    let (sent, _connection, _ticking) = cluster.run(sending).expect("no machine stops").expect("it is read");
    let began = cluster.run(reading).expect("no machine stops").expect("it is sent");
    assert!(began.ns() > 500_000 && sent >= began, "sent at {sent:?}, read from {began:?} on");
}

#[test]
fn what_comes_while_a_machine_is_busy_waits_for_it() {
    let (machines, mut cluster, address) = machines(3);
    machines[0].spawn(answer(machines[0].clone(), address, 2, 100_000));
    let asked = [1, 2].map(|number: usize| machines[number].spawn(ask(machines[number].clone(), address, 50)));
    let times = asked.map(|asked| cluster.run(asked).expect("no machine stops"));
    // One alone waits for 42 us and its 100; beside another one it waits for the other's 100, too: both are answered in one batch.
    for times in times {
        let mean_ns = times.iter().sum::<u64>() / times.len() as u64;
        assert!((200_000..250_000).contains(&mean_ns), "{mean_ns}");
        assert!(times.iter().all(|ns| *ns >= 100_000 + 2 * 10_000), "{times:?}");
    }
}
