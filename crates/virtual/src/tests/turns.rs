//! Machines that take turns while their tasks keep their CPUs, held against queueing calculated by hand.

use super::thread::{hardware, machines_on};
use crate::NetworkOptions;
use base::{Instant, Random};
use devices::{Bandwidth, Law, Medium};
use driver::Fault;
use executor::{Cluster, Connection, Executor, JoinHandle};
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

/// Prices in nanoseconds: of waking up, of a batch of operations, and of a message at each end.
#[derive(Clone, Copy)]
struct Costs {
    wake_up: u64,
    submission: u64,
    message: u64,
}

const FREE: Costs = Costs { wake_up: 0, submission: 0, message: 0 };
const PRICED: Costs = Costs { wake_up: 7_000, submission: 2_000, message: 1_000 };
/// How long a message is on its way beside its transmission, which takes a microsecond for each byte.
const LATENCY_NS: u64 = 10_000;
/// When all are connected and wait.
const BEGIN_NS: u64 = 5_000_000;

/// Machines, the first of which listens.
struct World {
    machines: Vec<Executor>,
    cluster: Cluster,
    address: SocketAddr,
}

fn world(count: u32, medium: Medium, costs: Costs) -> World {
    world_on((None, count), medium, costs)
}

/// The same as programs of a computer with this many processors.
fn world_on((processors, count): (Option<u32>, u32), medium: Medium, costs: Costs) -> World {
    let Costs { wake_up, submission, message } = costs;
    let latency_ns = wake_up / 2;
    let prices = format!("network_message = {message}\nsubmission = {submission}\nwake_up = {}", wake_up - latency_ns);
    let described = hardware(&format!("count = 1\nwake_latency = \"{latency_ns} ns\""), &prices);
    let mut options = NetworkOptions { processors, ..NetworkOptions::default() };
    options.description.medium = medium;
    options.description.bandwidth = Some(Bandwidth(1e6));
    options.description.latency = Law::Fixed(LATENCY_NS);
    let (machines, cluster, address) = machines_on(&described, options, count);
    World { machines, cluster, address }
}

impl World {
    /// A task of the first machine for each connection of another one, in the order in which they connect.
    fn serve<T: 'static>(
        &self,
        count: usize,
        serve: impl AsyncFn(&Executor, Connection) -> T + Clone + 'static,
    ) -> JoinHandle<Vec<T>> {
        let (executor, address) = (self.machines[0].clone(), self.address);
        self.machines[0].spawn(async move {
            let listener = executor.listen(address).await.expect("the port is free");
            let mut tasks = Vec::new();
            for _ in 0..count {
                let connection = listener.accept().await.expect("clients come");
                let (own, serve) = (executor.clone(), serve.clone());
                tasks.push(executor.spawn(async move { serve(&own, connection).await }));
            }
            let mut served = Vec::new();
            for task in tasks {
                served.push(task.join().await);
            }
            served
        })
    }

    /// A connection of each other machine, one after the other, and what it does with it.
    fn connect<T: 'static>(
        &self,
        talk: impl AsyncFn(&Executor, Connection, usize) -> T + Clone + 'static,
    ) -> Vec<JoinHandle<T>> {
        let others = self.machines.iter().enumerate().skip(1);
        let talking = others.map(|(number, executor)| {
            let (own, talk, address) = (executor.clone(), talk.clone(), self.address);
            executor.spawn(async move {
                own.sleep_ns(1_000_000 * number as u64).await;
                let connection = own.connect(address).await.expect("it listens");
                sleep_until(&own, BEGIN_NS).await;
                talk(&own, connection, number).await
            })
        });
        talking.collect()
    }
}

async fn sleep_until(executor: &Executor, ns: u64) {
    let now_ns = executor.now().ns();
    if ns > now_ns {
        executor.sleep_ns(ns - now_ns).await;
    }
}

async fn burst(executor: &Executor, ns: u64) {
    executor.charge_instructions(ns);
    executor.pay_debt().await;
}

/// Sends a message of this many bytes. Returns when the network has taken it.
async fn send(executor: &Executor, connection: &Connection, bytes: usize) -> Result<u64, Fault> {
    connection.send(&vec![1; bytes]).await?;
    connection.flush().await?;
    Ok(executor.now().ns())
}

/// Takes a message of this many bytes. Returns when it has it.
async fn receive(executor: &Executor, connection: &Connection, bytes: usize) -> Result<u64, Fault> {
    let mut message = Vec::new();
    while message.len() < bytes {
        assert!(connection.receive(&mut message).await? > 0, "it lasts");
    }
    Ok(executor.now().ns())
}

#[test]
fn a_message_travels_while_its_receiver_is_busy() {
    let mut world = world(2, Medium::Switched, FREE);
    let served = world.serve(1, async |executor: &Executor, connection| {
        sleep_until(executor, BEGIN_NS).await;
        burst(executor, 500_000).await;
        receive(executor, &connection, 100).await.expect("it comes")
    });
    let talking = world.connect(async |executor: &Executor, connection, _| {
        burst(executor, 30_000).await;
        (send(executor, &connection, 100).await.expect("it is taken"), connection)
    });
    let served = world.cluster.run(served).expect("no machine stops");
    let sent = talking.into_iter().map(|task| world.cluster.run(task).expect("no machine stops").0).next();
    // It is there after 30 us and two links of 100 us each, long before the burst ends.
    assert_eq!((sent, served), (Some(BEGIN_NS + 30_000), vec![BEGIN_NS + 500_000]));
}

#[test]
fn a_shared_medium_carries_first_what_was_sent_first() {
    let mut world = world(3, Medium::Shared, FREE);
    let served = world
        .serve(2, async |executor: &Executor, connection| receive(executor, &connection, 100).await.expect("it comes"));
    // The first machine has its turn first, and computes up to a moment at which the other one's message has long arrived.
    let talking = world.connect(async |executor: &Executor, connection, number| {
        match number {
            1 => burst(executor, 900_000).await,
            _ => sleep_until(executor, BEGIN_NS + 300_000).await,
        }
        (send(executor, &connection, 100).await.expect("it is taken"), connection)
    });
    let served = world.cluster.run(served).expect("no machine stops");
    let sent = talking.into_iter().map(|task| world.cluster.run(task).expect("no machine stops").0);
    assert_eq!(sent.collect::<Vec<_>>(), [BEGIN_NS + 900_000, BEGIN_NS + 300_000]);
    assert_eq!(served, [BEGIN_NS + 900_000 + 110_000, BEGIN_NS + 300_000 + 110_000]);
}

#[test]
fn a_timer_wakes_its_machine_at_the_same_price_on_a_network_as_alone() {
    let sleep = async |executor: &Executor| {
        executor.sleep_ns(100_000).await;
        executor.now().ns()
    };
    let alone = world(1, Medium::Shared, PRICED).machines.remove(0);
    assert_eq!(alone.run(sleep(&alone)), Ok(107_000));
    let mut world = world(2, Medium::Shared, PRICED);
    let own = world.machines[1].clone();
    let asleep = world.machines[1].spawn(async move { [sleep(&own).await, sleep(&own).await] });
    assert_eq!(world.cluster.run(asleep), Ok([107_000, 214_000]));
}

/// What a machine sends.
struct Sends {
    /// When it begins to work on each message, if it is not late.
    due: Vec<u64>,
    /// For how long it works on each.
    work: Vec<u64>,
}

const BYTES: usize = 20;
const SERVICE_NS: u64 = 30_000;

/// When each message arrives that these machines send over one medium: by sender, in order.
fn arrivals(senders: &[Sends], costs: Costs) -> Vec<Vec<u64>> {
    let mut departures = Vec::new();
    for (number, sends) in senders.iter().enumerate() {
        let mut now = BEGIN_NS + costs.wake_up;
        for (due, work) in sends.due.iter().zip(&sends.work) {
            now = if *due > now { due + costs.wake_up } else { now };
            now += work + costs.message + costs.submission;
            departures.push((now, number));
        }
    }
    departures.sort_unstable();
    let (mut free_at, mut arrivals) = (0, vec![Vec::new(); senders.len()]);
    for (departs, number) in departures {
        free_at = departs.max(free_at) + BYTES as u64 * 1_000;
        arrivals[number].push(free_at + LATENCY_NS);
    }
    arrivals
}

/// When a machine has served each message that arrives on its connections. It looks, serves what it sees, asks for more in one batch, and
/// sleeps if it sees nothing.
fn services(arrivals: &[Vec<u64>], costs: Costs) -> Vec<u64> {
    let (mut now, mut served) = (0, Vec::new());
    let (mut asked, mut taken) = (vec![0; arrivals.len()], vec![0; arrivals.len()]);
    loop {
        let ends = (0..arrivals.len()).filter_map(|number| {
            let first = arrivals[number].get(taken[number])?;
            Some((asked[number].max(*first), number))
        });
        let mut ends: Vec<(u64, usize)> = ends.collect();
        ends.sort_unstable();
        let Some((first, _)) = ends.first() else { return served };
        if *first > now {
            now = first + costs.wake_up;
        }
        ends.retain(|(end, _)| *end <= now);
        for (end, number) in &ends {
            for _ in arrivals[*number][taken[*number]..].iter().filter(|arrival| *arrival <= end) {
                taken[*number] += 1;
                now += costs.message + SERVICE_NS;
                served.push(now);
            }
        }
        now += costs.submission;
        ends.iter().for_each(|(_, number)| asked[*number] = now);
    }
}

#[test]
fn messages_of_busy_machines_queue_as_calculated_by_hand() {
    let mut slept = 0;
    for seed in 0..20 {
        let mut random = Random::stream(seed, "sends");
        let senders: Rc<[Sends]> = (0..3)
            .map(|_| {
                let gaps = (0..40).map(|_| random.exponential(150_000.0) as u64);
                let due = gaps.scan(BEGIN_NS, |due, gap| {
                    *due += gap;
                    Some(*due)
                });
                let due = due.collect();
                Sends { due, work: (0..40).map(|_| random.exponential(60_000.0) as u64 + 1).collect() }
            })
            .collect();
        let mut world = world(4, Medium::Shared, PRICED);
        let finished = Rc::new(RefCell::new(Vec::new()));
        let times = Rc::clone(&finished);
        let served = world.serve(3, async move |executor: &Executor, connection: Connection| {
            let mut received = Vec::new();
            while connection.receive(&mut received).await.expect("it lasts") > 0 {
                while received.len() >= BYTES {
                    received.drain(..BYTES);
                    executor.pay_message(BYTES).await;
                    burst(executor, SERVICE_NS).await;
                    times.borrow_mut().push(executor.now().ns());
                }
            }
        });
        let sends = Rc::clone(&senders);
        let talking = world.connect(async move |executor: &Executor, connection, number| {
            let Sends { due, work } = &sends[number - 1];
            for (due, work) in due.iter().zip(work) {
                sleep_until(executor, *due).await;
                burst(executor, *work).await;
                send(executor, &connection, BYTES).await.expect("it is taken");
            }
            connection
        });
        let connections = talking.into_iter().map(|task| world.cluster.run(task).expect("no machine stops"));
        let connections: Vec<_> = connections.collect();
        world.cluster.run_until(Instant::from_ns(BEGIN_NS + 1_000_000_000)).expect("no machine stops");
        let arrivals = arrivals(&senders, PRICED);
        let expected = services(&arrivals, PRICED);
        assert_eq!(*finished.borrow(), expected, "seed {seed}");
        slept += arrivals.iter().flatten().filter(|at| expected.contains(&(*at + 7_000 + 1_000 + SERVICE_NS))).count();
        drop((connections, served));
    }
    assert!((200..2_000).contains(&slept), "{slept} of 2,400 messages have woken their receiver");
}

/// When each of these programs of one computer has ended its work, of which each piece is shorter than a slice: the first that is awake has
/// the processor that is free first.
fn ends_on(processors: usize, programs: &[Sends], costs: Costs) -> Vec<Vec<u64>> {
    let (mut free_at, mut ends) = (vec![0; processors], vec![Vec::new(); programs.len()]);
    let mut awake = vec![0; programs.len()];
    loop {
        let left = programs.iter().enumerate().filter_map(|(number, program)| {
            let due = program.due.get(ends[number].len())?;
            Some((awake[number].max(*due), number))
        });
        let Some((wakes, number)) = left.min() else { return ends };
        let processor = (0..processors).min_by_key(|processor| free_at[*processor]).expect("there is one");
        // The latency of half of the price passes while it waits.
        let runs = (wakes + costs.wake_up / 2).max(free_at[processor]);
        let mut now = runs + costs.wake_up - costs.wake_up / 2;
        let Sends { due, work } = &programs[number];
        loop {
            now += work[ends[number].len()];
            ends[number].push(now);
            if due.get(ends[number].len()).is_none_or(|due| *due > now) {
                break;
            }
        }
        (free_at[processor], awake[number]) = (now, now);
    }
}

#[test]
fn programs_of_one_computer_wait_for_its_processors() {
    let mut waited = 0;
    for seed in 0..20 {
        let mut random = Random::stream(seed, "programs");
        let programs: Vec<Sends> = (0..4)
            .map(|_| {
                let due = (0..40).scan(BEGIN_NS, |due, _| {
                    *due += 20_000 + random.exponential(60_000.0) as u64;
                    Some(*due)
                });
                let due: Vec<u64> = due.collect();
                Sends { due, work: (0..40).map(|_| random.below(60_000) + 1).collect() }
            })
            .collect();
        let mut world = world_on((Some(2), 4), Medium::Shared, PRICED);
        let tasks: Vec<_> = programs
            .iter()
            .zip(&world.machines)
            .map(|(program, executor)| {
                let (own, due, work) = (executor.clone(), program.due.clone(), program.work.clone());
                executor.spawn(async move {
                    let mut ends = Vec::new();
                    for (due, work) in due.into_iter().zip(work) {
                        sleep_until(&own, due).await;
                        burst(&own, work).await;
                        ends.push(own.now().ns());
                    }
                    ends
                })
            })
            .collect();
        let ends: Vec<_> = tasks.into_iter().map(|task| world.cluster.run(task).expect("no machine stops")).collect();
        let expected = ends_on(2, &programs, PRICED);
        assert_eq!(ends, expected, "seed {seed}");
        let own = ends_on(4, &programs, PRICED);
        waited += expected.iter().flatten().zip(own.iter().flatten()).filter(|(shared, own)| shared > own).count();
    }
    assert!(
        (800..3_100).contains(&waited),
        "{waited} of 3,200 pieces of work have ended later for want of a processor"
    );
}

#[test]
fn programs_that_never_wait_have_a_processor_in_turn() {
    let mut world = world_on((Some(1), 3), Medium::Shared, FREE);
    let tasks: Vec<_> = world
        .machines
        .iter()
        .map(|executor| {
            let own = executor.clone();
            executor.spawn(async move {
                for _ in 0..300 {
                    own.yield_now().await;
                    burst(&own, 10_000).await;
                }
                own.now().ns()
            })
        })
        .collect();
    let ends = tasks.into_iter().map(|task| world.cluster.run(task).expect("no machine stops"));
    // Three milliseconds of work each, in slices of 750 us.
    assert_eq!(ends.collect::<Vec<_>>(), [7_500_000, 8_250_000, 9_000_000]);
}
