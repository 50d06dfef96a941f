//! Debit-Credit on nodes that share a database: a server has the disks and the log, and the nodes run transactions on copies of its
//! pages, as those of `entresol node` do. On this machine they are threads that the loopback joins; on described hardware they are
//! programs of one machine, too, if the described network is a loopback, and machines that it joins otherwise. Server and nodes are
//! the same code on both clocks.

mod nodes_run;
mod report;

pub use report::PageServerReport;

use super::bank;
use super::terms::Terms;
use crate::node::joining;
use crate::progress::Progress;
use crate::report::Clock;
use crate::{Failure, opening};
use clap::Args;
use devices::{Hardware, LOOPBACK};
use driver::FaultKind;
use entresol::configuration::Configuration;
use entresol::network::client_settings;
use entresol::{Opening, Store};
use executor::{Cluster, Executor, Order, WholeExecutor};
use nodes_run::{NodesRun, Stages};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use virtual_driver::{Media, Network, NetworkOptions, Options, VirtualDriver};
use workload::debit_credit::Scale;
use workload::{Load, Plan};

/// Debit-Credit on nodes of a page server, over loopback or a described network
///
/// A server has the disks and the log. The nodes join it and run transactions on copies of its
/// pages, as 'entresol node --join' does; the section 'nodes' of the configuration says how.
/// On this machine each is a thread. On described hardware the network 'loopback' joins them, and
/// they share its processors, as here ('entresol calibrate' describes it); without one, each is a
/// machine of its own, and the only network that is described joins them.
#[derive(Args, Clone, Debug)]
#[command(
    verbatim_doc_comment,
    next_line_help = true,
    after_help = "Examples:\n  \
    entresol bench page-server --nodes 2 --clients 4 --seconds 10\n  \
    entresol predict page-server --hardware here.toml --nodes 2"
)]
pub struct Arguments {
    /// Directory of the database, created if missing
    #[arg(long, value_name = "DIR", default_value = "page-server.data")]
    pub data: PathBuf,
    /// Branches of 100,000 accounts [default: as loaded, or 10]
    #[arg(long, value_name = "BRANCHES", value_parser = clap::value_parser!(u32).range(1..=40_000))]
    pub scale: Option<u32>,
    /// How many nodes join the server
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=24))]
    pub nodes: u32,
    /// Clients of each node, each with one transaction at a time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub clients: u32,
    #[command(flatten)]
    pub terms: Terms,
}

/// The port of the server's described machine; those of this machine take any that is free.
const PORT: u16 = 7000;

/// What runs on how many nodes, and where the server's database is.
#[derive(Clone, Debug)]
pub struct NodesLoad {
    /// The directory, as far as the database is on this machine.
    pub data: PathBuf,
    /// Branches of 100,000 accounts, or as many as there are.
    pub scale: Option<u32>,
    /// How many nodes join the server.
    pub nodes: u32,
    /// Of each node.
    pub clients: u32,
    /// For how long. Its load is that of each node.
    pub plan: Plan,
}

/// Loads the database if it is new, lets the nodes join, warms up, measures.
pub fn run(arguments: &Arguments, progress: &Progress) -> Result<PageServerReport, Failure> {
    let Arguments { data, scale, nodes, clients, terms } = arguments;
    if terms.is_cold() || terms.like.is_some() {
        return Err("nodes are measured as a whole and warm: leave --course, --cold and --like away".into());
    }
    let plan = terms.plan(Load::Closed { clients: *clients });
    let load = NodesLoad { data: data.clone(), scale: *scale, nodes: *nodes, clients: *clients, plan };
    run_with(&load, terms.configuration(data)?, None, progress)
}

/// The same with this configuration, on the clock of its hardware, whose devices have these media.
pub fn run_with(
    load: &NodesLoad,
    mut configuration: Configuration,
    media: Option<&Media>,
    progress: &Progress,
) -> Result<PageServerReport, Failure> {
    configuration.nodes.transactions = configuration.nodes.transactions.max(load.clients);
    match configuration.hardware.clone() {
        None => on_this_machine(load, configuration, progress),
        Some(hardware) => on_described(load, (configuration, &hardware), media, progress),
    }
}

fn planned(load: &NodesLoad, configuration: &Configuration, clock: Clock) -> NodesRun {
    NodesRun {
        clock,
        plan: load.plan,
        nodes: load.nodes,
        clients: load.clients,
        algorithm: configuration.nodes.algorithm,
        chances: configuration.nodes.chances,
        stages: Arc::new(Stages::new(load.nodes)),
    }
}

/// Opens the server's database, and brings it into memory.
fn prepared(store: Result<Store, Failure>, load: &NodesLoad, progress: &Progress) -> Result<(Store, Scale), Failure> {
    let store = store?;
    let scale = bank::prepare(&store, load.scale, progress)?;
    let warm = |page, pages| progress.step("reading", page, pages);
    store.run(async |database| bank::warm(database, &bank::WARMED, warm).await)?;
    Ok((store, scale))
}

fn opening_of(load: &NodesLoad, configuration: &Configuration) -> Opening {
    Opening::new(&load.data, configuration.clone()).seed(load.plan.seed)
}

/// The server on this thread, each node on another one.
fn on_this_machine(
    load: &NodesLoad,
    configuration: Configuration,
    progress: &Progress,
) -> Result<PageServerReport, Failure> {
    let opened = opening::open(opening_of(load, &configuration), progress);
    let (store, scale) = prepared(opened, load, progress)?;
    let run = planned(load, &configuration, Clock::Real);
    let (run, configuration) = (&run, &configuration);
    let (served, nodes) = std::thread::scope(|scope| {
        let mut nodes = Vec::new();
        let start = |address: SocketAddr| {
            nodes = (0..load.nodes)
                .map(|number| {
                    scope.spawn(move || {
                        let own = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
                        let ran = joining::on_a_machine(async |executor| {
                            let settings = client_settings(configuration, configuration.nodes.buffer, own);
                            run.run_node(executor, (address, settings), number).await
                        });
                        // A node that has failed is waited for no more.
                        ran.map_err(|failure| run.stages.give_up(&failure))
                    })
                })
                .collect();
        };
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let served = store.run(async |database| Ok(run.serve(database, address, start, progress).await));
        let served = served.map_err(Failure::from).and_then(|served| served);
        let served = served.map_err(|failure| run.stages.give_up(&failure));
        let ended: Vec<_> = nodes
            .into_iter()
            .map(|node| node.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect();
        (served, ended)
    });
    let (served, nodes) = run.outcome(served, nodes)?;
    progress.phase("verifying", 0);
    bank::agreed(&store.run(async |database| bank::totals(database, &scale).await)?)?;
    let report = PageServerReport::new((run, &scale), &served, &nodes);
    store.close()?;
    Ok(report)
}

/// The network of this hardware that joins the machines.
fn network_of(hardware: &Hardware) -> Result<(&String, &devices::Network), Failure> {
    let loopback = hardware.networks.get_key_value(LOOPBACK);
    let only = hardware.networks.iter().next().filter(|_| hardware.networks.len() == 1);
    loopback.or(only).ok_or_else(|| {
        let name = &hardware.name;
        let how = "'entresol calibrate' describes that of this machine";
        format!("the hardware '{name}' has no network 'loopback' for the nodes; {how}").into()
    })
}

/// Described machines.
struct NodeMachines(Vec<Executor>);

impl Drop for NodeMachines {
    fn drop(&mut self) {
        self.0.iter().for_each(Executor::stop);
    }
}

/// The server and each node on a described machine.
fn on_described(
    load: &NodesLoad,
    (configuration, hardware): (Configuration, &Hardware),
    media: Option<&Media>,
    progress: &Progress,
) -> Result<PageServerReport, Failure> {
    let (name, description) = network_of(hardware)?;
    let seed = load.plan.seed;
    let is_one_machine = name == LOOPBACK;
    let network = Network::new(NetworkOptions {
        name: name.clone(),
        description: description.clone(),
        seed,
        processors: hardware.cpu.as_ref().filter(|_| is_one_machine).map(|cpu| cpu.count),
        ..NetworkOptions::default()
    });
    let (opening, port) = (opening_of(load, &configuration).nodes(1), network.attach(0));
    let opened = match media {
        Some(media) => opening.open_on_at(media, port),
        None => opening.open_at(port),
    };
    let opened = opened.map_err(Failure::from);
    let (store, scale) = prepared(opened, load, progress)?;
    let run = planned(load, &configuration, Clock::Virtual);
    let machine = |number: u32| {
        let hardware = Hardware { devices: BTreeMap::new(), ..hardware.clone() };
        let options = Options { seed: seed.wrapping_add(number.into()), ..Options::default() };
        let driver = VirtualDriver::on_network(hardware, options, Media::new(), network.attach(number));
        Executor::new(Box::new(driver), Order::FirstInFirstOut)
    };
    let machines = NodeMachines((1..=load.nodes).map(machine).collect());
    let executor = store.executor().whole();
    // The server's clock is ahead, for it has loaded the database.
    let begin_ns = executor.now().ns() + 1;
    let address = SocketAddr::from((network.address(0), PORT));
    let serving = {
        let (run, database) = (run.clone(), store.database().clone());
        executor.spawn(async move {
            let hidden = Progress::hidden();
            let served = run.serve(&database, address, |_| (), &hidden).await;
            served.map_err(|failure| run.stages.give_up(&failure))
        })
    };
    let nodes = machines.0.iter().zip(0..).map(|(executor, number)| {
        let own = SocketAddr::from((network.address(number + 1), PORT));
        let settings = client_settings(&configuration, configuration.nodes.buffer, own);
        let (run, executor) = (run.clone(), executor.clone());
        executor.clone().spawn(async move {
            executor.sleep_ns(begin_ns.saturating_sub(executor.now().ns())).await;
            let ran = run.run_node(&executor, (address, settings), number).await;
            ran.map_err(|failure| run.stages.give_up(&failure))
        })
    });
    let nodes: Vec<_> = nodes.collect();
    progress.phase("running", 0);
    let mut cluster = Cluster::new([executor.clone()].into_iter().chain(machines.0.iter().cloned()));
    let stopped = |stop| format!("the described machines have stopped: {stop:?}");
    let ended = nodes.into_iter().map(|node| cluster.run(node)).collect::<Result<Vec<_>, _>>().map_err(stopped)?;
    let served = cluster.run(serving).map_err(stopped)?;
    let (served, nodes) = run.outcome(served, ended)?;
    Ok(PageServerReport::new((&run, &scale), &served, &nodes))
}

/// Whether a server that is not there yet may come.
fn may_come(kind: FaultKind) -> bool {
    matches!(kind, FaultKind::Refused | FaultKind::Reset | FaultKind::TimedOut)
}
