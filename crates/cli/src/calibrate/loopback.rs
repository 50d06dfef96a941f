//! What messages between two machines cost: one asks, the other one answers. The same exchange measures the loopback of this machine,
//! over the driver's own sockets and between two threads, and the description that is fitted to it.

use super::closed_loop::{ProbeTimes, Until};
use super::nodes::NodesSeen;
use crate::Failure;
use crate::node::joining::on_a_machine;
use base::statistics::Histogram;
use base::time::SECOND_NS;
use base::{Instant, Random};
use devices::{Cpu, Hardware, LOOPBACK, Network as Description};
use driver::{Fault, FaultKind};
use executor::{Cluster, Connection, Executor, Order};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc;
use virtual_driver::{Media, Network, NetworkOptions, Options, VirtualDriver};

/// Bytes of a question.
pub const QUESTION: usize = 64;
/// Bytes of the longest answer.
pub const ANSWER_MAX: u32 = 64 << 10;
/// How long the side that answers waits for the one that asks, in nanoseconds.
const PATIENCE_NS: u64 = 10 * SECOND_NS;
/// The port of the described machine that answers.
const PORT: u16 = 7000;

/// What goes back and forth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExchangeMix {
    /// Bytes of an answer.
    pub size: u32,
    /// Questions under way at once.
    pub depth: u32,
}

/// What was seen of a mix.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Exchanged {
    /// What went back and forth.
    pub mix: ExchangeMix,
    /// For how long, in seconds.
    pub seconds: f64,
    /// From a question to its whole answer.
    pub times: ProbeTimes,
    /// CPU time of both sides, in nanoseconds.
    pub cpu_ns: u64,
}

impl Exchanged {
    /// Answers per second.
    pub fn per_second(&self) -> f64 {
        self.times.count as f64 / self.seconds.max(1e-9)
    }

    /// CPU time of a question with its answer, of both sides, in nanoseconds.
    pub fn cpu_ns_each(&self) -> f64 {
        self.cpu_ns as f64 / self.times.count.max(1) as f64
    }
}

/// How much is measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoopbackExtent {
    /// Lengths of answers, ascending from that of a question.
    pub sizes: Vec<u32>,
    /// Questions under way, ascending from 1.
    pub depths: Vec<u32>,
    /// How long each is measured, in nanoseconds.
    pub span_ns: u64,
}

impl LoopbackExtent {
    /// Everything, in some ten seconds.
    pub fn full() -> LoopbackExtent {
        let sizes = vec![QUESTION as u32, 1 << 10, 8 << 10, 32 << 10, ANSWER_MAX];
        LoopbackExtent { sizes, depths: vec![1, 4, 16], span_ns: 600_000_000 }
    }

    /// Less, in a second or two.
    pub fn quick() -> LoopbackExtent {
        let sizes = vec![QUESTION as u32, 8 << 10, ANSWER_MAX];
        LoopbackExtent { sizes, depths: vec![1, 16], span_ns: 200_000_000 }
    }

    /// What goes back and forth.
    pub fn mixes(&self) -> Vec<ExchangeMix> {
        self.depths
            .iter()
            .flat_map(|depth| self.sizes.iter().map(|size| ExchangeMix { size: *size, depth: *depth }))
            .collect()
    }
}

/// What was measured of the loopback.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoopbackMeasured {
    /// What was to be measured.
    pub extent: LoopbackExtent,
    /// In the order of [`LoopbackExtent::mixes`].
    pub exchanged: Vec<Exchanged>,
    /// A page server and its nodes.
    #[serde(default)]
    pub nodes: Option<NodesSeen>,
}

/// Measures the loopback of this machine.
pub fn measure(extent: &LoopbackExtent, progress: impl FnMut(usize, usize)) -> Result<LoopbackMeasured, Failure> {
    let (tell, told) = mpsc::channel();
    let exchanged = std::thread::scope(|scope| {
        let answering = scope.spawn(move || {
            let answered = on_a_machine(async |executor| {
                let listener = executor.listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await?;
                tell.send(listener.address()).map_err(|_| "no side asks")?;
                let accepted = executor.within(PATIENCE_NS, listener.accept()).await;
                let connection = accepted.ok_or("no connection comes over the loopback")??;
                Ok(answer(executor, &connection).await?)
            });
            answered.map_err(|failure| failure.to_string())
        });
        let asked = match told.recv() {
            Ok(address) => on_a_machine(async |executor| {
                let cpu_ns = real_driver::process_cpu_ns;
                Ok(ask((executor, address), &extent.mixes(), Until::Time(extent.span_ns), &cpu_ns, progress).await?)
            }),
            Err(_) => Ok(Vec::new()),
        };
        let answered = answering.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        // The side that has failed first says more.
        match (asked, answered) {
            (Err(failure), _) => Err(failure),
            (_, Err(failure)) => Err(failure.into()),
            (Ok(exchanged), Ok(())) => Ok(exchanged),
        }
    })?;
    Ok(LoopbackMeasured { extent: extent.clone(), exchanged, nodes: None })
}

/// What the same exchange shows between two described machines, `count` answers of each mix.
pub fn show(
    (cpu, description): (&Cpu, &Description),
    mixes: &[ExchangeMix],
    count: u64,
    seed: u64,
) -> Result<Vec<Exchanged>, Failure> {
    let name = LOOPBACK.to_owned();
    let options = NetworkOptions { name, description: description.clone(), seed, ..NetworkOptions::default() };
    let network = Network::new(options);
    let machine = |number: u32| {
        let networks = BTreeMap::new();
        let hardware =
            Hardware { name: "fitted".to_owned(), cpu: Some(cpu.clone()), devices: BTreeMap::new(), networks };
        let options = Options { seed: seed + u64::from(number), ..Options::default() };
        let driver = VirtualDriver::on_network(hardware, options, Media::new(), network.attach(number));
        Executor::new(Box::new(driver), Order::FirstInFirstOut)
    };
    let machines = TwoMachines([machine(0), machine(1)]);
    let [answering, asking] = machines.0.clone();
    let address = SocketAddr::from((network.address(0), PORT));
    let executor = answering.clone();
    answering.spawn(async move {
        let connection = executor.listen(address).await?.accept().await?;
        answer(&executor, &connection).await
    });
    let (executor, both, mixes) = (asking.clone(), machines.0.clone(), mixes.to_vec());
    let asked = asking.spawn(async move {
        executor.sleep_ns(1).await;
        let cpu_ns = || both.iter().map(|executor| busy_ns(executor, Instant::START)).sum();
        ask((&executor, address), &mixes, Until::Operations(count), &cpu_ns, |_, _| ()).await
    });
    let ended = Cluster::new(machines.0.iter().cloned()).run(asked);
    Ok(ended.map_err(|stop| format!("the described machines have stopped: {stop:?}"))??)
}

/// Described machines, which stop when they have done.
struct TwoMachines([Executor; 2]);

impl Drop for TwoMachines {
    fn drop(&mut self) {
        self.0.iter().for_each(Executor::stop);
    }
}

/// For how long a described CPU has been busy since its statistics were restarted at this moment, in nanoseconds.
pub fn busy_ns(executor: &Executor, since: Instant) -> u64 {
    let (stations, ns) = (executor.stations(), executor.now().since_ns(since) as f64);
    let cpus = stations.iter().filter(|station| station.name == "cpu");
    cpus.map(|cpu| (cpu.utilization * f64::from(cpu.servers) * ns) as u64).sum()
}

/// Answers questions until the peer has ended. Each says how long its answer is to be.
async fn answer(executor: &Executor, connection: &Connection) -> Result<(), Fault> {
    let mut bytes = vec![0; ANSWER_MAX as usize];
    Random::stream(1, "answer").fill(&mut bytes);
    let mut received = Vec::new();
    loop {
        while received.len() < QUESTION {
            if connection.receive(&mut received).await? == 0 {
                return Ok(());
            }
        }
        executor.pay_message(QUESTION).await;
        let size = u32::from_le_bytes([received[0], received[1], received[2], received[3]]).min(ANSWER_MAX);
        received.drain(..QUESTION);
        connection.send(&bytes[..size as usize]).await?;
    }
}

/// Asks: one mix after the other, over one connection.
async fn ask(
    (executor, address): (&Executor, SocketAddr),
    mixes: &[ExchangeMix],
    until: Until,
    cpu_ns: &impl Fn() -> u64,
    mut progress: impl FnMut(usize, usize),
) -> Result<Vec<Exchanged>, Fault> {
    let connection = executor.connect(address).await?;
    let mut exchanged = Vec::new();
    for (number, mix) in mixes.iter().enumerate() {
        progress(number, mixes.len());
        exchanged.push(exchange((executor, &connection), *mix, until, cpu_ns).await?);
    }
    connection.close().await?;
    Ok(exchanged)
}

async fn exchange(
    (executor, connection): (&Executor, &Connection),
    mix: ExchangeMix,
    until: Until,
    cpu_ns: &impl Fn() -> u64,
) -> Result<Exchanged, Fault> {
    let (mut times, mut received) = (Histogram::new(), Vec::new());
    let mut asked: VecDeque<Instant> = VecDeque::new();
    let mut question = [0; QUESTION];
    question[..4].copy_from_slice(&mix.size.to_le_bytes());
    let (cpu, start) = (cpu_ns(), executor.now());
    for _ in 0..mix.depth {
        asked.push_back(executor.now());
        connection.send(&question).await?;
    }
    while let Some(began) = asked.pop_front() {
        while received.len() < mix.size as usize {
            if connection.receive(&mut received).await? == 0 {
                return Err(Fault::new(FaultKind::Closed, "the side that answers has ended"));
            }
        }
        executor.pay_message(mix.size as usize).await;
        received.drain(..mix.size as usize);
        times.record(executor.now().since_ns(began));
        let is_over = match until {
            Until::Time(ns) => executor.now().since_ns(start) >= ns,
            Until::Operations(count) => times.count() >= count,
        };
        if !is_over {
            asked.push_back(executor.now());
            connection.send(&question).await?;
        }
    }
    let seconds = executor.now().since_ns(start) as f64 / 1e9;
    // A described CPU tells a share of its time, which is rounded: one that did nothing may have done less than before.
    Ok(Exchanged { mix, seconds, times: ProbeTimes::of(&times), cpu_ns: cpu_ns().saturating_sub(cpu) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_of_this_machine_is_measured() {
        let sizes = vec![QUESTION as u32, 8 << 10];
        let extent = LoopbackExtent { sizes, depths: vec![1, 4], span_ns: 20_000_000 };
        let measured = measure(&extent, |_, _| ()).expect("it has a loopback");
        assert_eq!(measured.exchanged.iter().map(|seen| seen.mix).collect::<Vec<_>>(), extent.mixes());
        for seen in &measured.exchanged {
            assert!(seen.times.count > 0 && seen.seconds >= 0.02, "{seen:?}");
            assert!(seen.times.p50_ns() > 0.0 && seen.times.p50_ns() <= seen.times.p99_ns(), "{seen:?}");
        }
        assert!(measured.exchanged.iter().map(|seen| seen.cpu_ns).sum::<u64>() > 0);
    }
}
