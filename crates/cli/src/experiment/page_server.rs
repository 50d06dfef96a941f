//! One run of a page server and its clients on described machines.

use super::point::PointRun;
use crate::Failure;
use crate::bench::terms;
use crate::report::Station;
use devices::Hardware;
use engine::catalog::{Locking, Organization};
use entresol::Opening;
use entresol::configuration::Configuration;
use executor::{Cluster, Executor, Order, WholeExecutor};
use serde_json::{Value, json};
use virtual_driver::{Media, Network, NetworkOptions, Options, VirtualDriver};
use workload::page_server::{self, DATABASE_PAGES, Figures, Machines, PageServerModel};
use workload::{Length, Load, Plan};

/// What the partition is called.
const PAGES: &str = "pages";

/// Runs one replication: the server on the configuration's hardware, each client on a machine of its own.
pub fn run(
    (model, client): (&PageServerModel, &Hardware),
    mut configuration: Configuration,
    plan: &Plan,
    batches: u32,
) -> Result<PointRun, Failure> {
    let (Load::Closed { clients }, Length::Time(warm_up), Length::Time(measured)) =
        (plan.load, plan.warm_up, plan.measure)
    else {
        return Err("a page server has 'clients', and its runs take 'seconds'".into());
    };
    let hardware = configuration.hardware.as_ref().ok_or("a page server's experiments run on described hardware")?;
    let description = hardware.networks.get(&model.network);
    let description = description.ok_or_else(|| format!("the hardware has no network '{}'", model.network))?.clone();
    let options =
        NetworkOptions { name: model.network.clone(), description, seed: plan.seed, ..NetworkOptions::default() };
    let network = Network::new(options);
    let pages = Organization::Direct { objects: u64::from(DATABASE_PAGES), blocking_factor: 1, record_size: 8 };
    terms::place(&mut configuration, PAGES, pages, Some(Locking::None));
    let store = Opening::new("experiment", configuration).nodes(1).seed(plan.seed).open_at(network.attach(0))?;
    let spec = terms::placed(&store, PAGES)?;
    let pages = store.run(async |database| database.create_partition(spec).await)?;
    let machine = |number: u32| {
        let options = Options { seed: plan.seed + u64::from(number), ..Options::default() };
        let driver = VirtualDriver::on_network(client.clone(), options, Media::new(), network.attach(number));
        Executor::new(Box::new(driver), Order::FirstInFirstOut)
    };
    let clients = ClientMachines((1..=clients).map(machine).collect());
    let cluster = Cluster::new([store.executor().whole().clone()].into_iter().chain(clients.0.iter().cloned()));
    let addresses = (0..=clients.0.len() as u32).map(|number| network.address(number)).collect();
    let machines = Machines { database: store.database(), pages, clients: clients.0.clone(), addresses, cluster };
    let figures = page_server::run(model, machines, (warm_up, measured, batches), plan.seed)?;
    Ok(PointRun { reports: figures.into_iter().map(report).collect(), saturated: None })
}

/// Machines that stop when the run is over: their tasks hold them, and with them their memories.
struct ClientMachines(Vec<Executor>);

impl Drop for ClientMachines {
    fn drop(&mut self) {
        self.0.iter().for_each(Executor::stop);
    }
}

fn report(figures: Figures) -> Value {
    let stations: Vec<Station> = figures.stations.iter().cloned().map(Station::from).collect();
    json!({
        "throughput_per_s": figures.throughput_per_s,
        "response_us": { "mean": figures.response_ns_mean / 1e3 },
        "transactions": figures.transactions,
        "aborts": figures.victims,
        "utilization": stations,
        "page_server": figures,
    })
}
