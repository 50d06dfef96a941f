use super::{
    ClientLoad, ClientTotals, Figures, PageServerModel, Processing, Served, client_settings, in_memory_ratio, resident,
    server_settings,
};
use base::PartitionId;
use engine::{Internals, Result};
use executor::{Cluster, Executor, JoinHandle, WholeExecutor};
use node::algorithm::{self, Algorithm};
use node::channel::Plain;
use node::page_client::{NodeInternals, PageClient};
use node::page_server::{PageServer, ServerInternals};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

/// The machines of a run, joined by one network: the server first.
pub struct Machines<'a> {
    /// The database whose pages are served.
    pub database: &'a engine::Database,
    /// Its partition.
    pub pages: PartitionId,
    /// The clients.
    pub clients: Vec<Executor>,
    /// The addresses of all, the server's first.
    pub addresses: Vec<IpAddr>,
    /// Has all of them go on together.
    pub cluster: Cluster,
}

/// The port of every node.
const PORT: u16 = 7000;
/// Looks at what is in memory in each batch.
const LOOKS: u64 = 10;

/// A page that one client sends another.
const BETWEEN_CLIENTS: &str = "page between clients";
/// Kinds of messages that are not counted by themselves.
const OTHERS: &str = "others";
/// The kinds of messages that the paper's algorithms take.
const KINDS: [&str; 14] = [
    "read",
    "page",
    "forward",
    BETWEEN_CLIENTS,
    "refused",
    "returned",
    "write",
    "granted",
    "call back",
    "called back",
    "in use",
    "commit",
    "committed",
    OTHERS,
];

/// Runs the model for `warm_up_ns`, and then for `measured_ns` in batches. Returns the figures of each.
///
/// # Errors
/// Those of a server that cannot be started or a client that cannot join or go on.
pub fn run(
    model: &PageServerModel,
    mut machines: Machines<'_>,
    (warm_up_ns, measured_ns, batches): (u64, u64, u32),
    seed: u64,
) -> Result<Vec<Figures>> {
    let algorithm = algorithm::named(&model.algorithm).expect("a model names one that there is");
    let server = start(model, &mut machines, seed)?;
    let began = machines.cluster.now().plus_ns(warm_up_ns);
    go(&mut machines, &server, began)?;
    let length = measured_ns / u64::from(batches);
    let mut figures = Vec::new();
    for batch in 0..u64::from(batches) {
        server.restart(&machines);
        let mut in_memory = 0.0;
        for look in 1..=LOOKS {
            go(&mut machines, &server, began.plus_ns(batch * length + look * length / LOOKS))?;
            in_memory += server.in_memory(algorithm, machines.pages) / LOOKS as f64;
        }
        figures.push(server.figures(&machines, length, in_memory));
    }
    Ok(figures)
}

/// All machines go on until this moment.
fn go(machines: &mut Machines<'_>, running: &Running, until: base::Instant) -> Result<()> {
    machines.cluster.run_until(until).expect("described machines go on");
    running.totals.failure().map_or(Ok(()), Err)
}

fn start(model: &PageServerModel, machines: &mut Machines<'_>, seed: u64) -> Result<Running> {
    let executor = machines.database.executor().whole().clone();
    let address = SocketAddr::new(machines.addresses[0], PORT);
    let settings = server_settings(model);
    let serving: JoinHandle<_> = {
        let database = machines.database.clone();
        let transport = Rc::new(Plain(executor.for_users()));
        executor.spawn(async move { PageServer::serve(&database, transport, address, settings).await })
    };
    let server = machines.cluster.run(serving).expect("described machines go on")?;
    // The server's clock is ahead, for it has made the database.
    let ahead_ns = executor.now().ns();
    let totals: Rc<ClientTotals> = Rc::default();
    let mut clients = Vec::new();
    for (number, executor) in machines.clients.iter().enumerate() {
        let (executor, own) = (executor.clone(), SocketAddr::new(machines.addresses[number + 1], PORT));
        let settings = client_settings(model, machines.database.settings().buffer.page_size, own);
        let joining = executor.clone().spawn(async move {
            executor.sleep_ns(ahead_ns.saturating_sub(executor.now().ns()) + 1).await;
            let transport = Rc::new(Plain(executor.for_users()));
            PageClient::join(&executor, transport, address, settings).await
        });
        let client = machines.cluster.run(joining).expect("described machines go on")?;
        client.attach(machines.pages);
        clients.push(client);
    }
    let served = Served::observe(&server, model.pattern, clients.iter().map(PageClient::id).collect());
    let running = Running { server, clients, totals, served };
    let working = model.working.map_or(machines.clients.len(), |working| working as usize);
    for (number, executor) in machines.clients.iter().enumerate().take(working) {
        let (client, totals) = (running.clients[number].clone(), Rc::clone(&running.totals));
        let load = ClientLoad::new(model, number as u32, machines.pages, (seed, Processing::Cpu));
        executor.spawn(load.run(executor.clone(), client, totals));
    }
    Ok(running)
}

struct Running {
    server: PageServer,
    clients: Vec<PageClient>,
    totals: Rc<ClientTotals>,
    served: Rc<Served>,
}

impl Running {
    fn restart(&self, machines: &Machines<'_>) {
        self.totals.restart();
        self.served.restart();
        self.server.restart_counts();
        machines.database.buffer().restart_statistics();
        machines.database.executor().whole().restart_statistics();
        for (client, executor) in self.clients.iter().zip(&machines.clients) {
            client.traffic().restart();
            executor.restart_statistics();
        }
    }

    fn figures(&self, machines: &Machines<'_>, length_ns: u64, in_memory_ratio: f64) -> Figures {
        let mut counts = self.totals.counts();
        for traffic in self.clients.iter().map(PageClient::traffic) {
            counts.messages += traffic.messages.get();
            counts.bytes += traffic.bytes.get();
        }
        let server = self.served.counts(&self.server, machines.pages);
        let cpu = |executor: &Executor| {
            executor.stations().iter().find(|at| at.name == "cpu").map_or(0.0, |at| at.utilization)
        };
        let throughput_per_s = counts.commits as f64 / (length_ns as f64 / 1e9);
        Figures {
            stations: machines.database.executor().whole().stations(),
            client_cpu_utilization: machines.clients.iter().map(cpu).sum::<f64>() / machines.clients.len() as f64,
            messages: self
                .kinds()
                .into_iter()
                .map(|(kind, count)| (kind, super::measured::ratio(count, counts.commits)))
                .collect(),
            ..Figures::of((&counts, &server), throughput_per_s, in_memory_ratio)
        }
    }

    /// How many messages of each kind were sent.
    fn kinds(&self) -> BTreeMap<&'static str, u64> {
        let mut sent: BTreeMap<&str, u64> = KINDS.into_iter().map(|kind| (kind, 0)).collect();
        let mut add =
            |kind, messages| *sent.entry(if KINDS.contains(&kind) { kind } else { OTHERS }).or_default() += messages;
        for client in &self.clients {
            for (kind, amount) in client.traffic().kinds.borrow().iter() {
                add(if kind == "page" { BETWEEN_CLIENTS } else { kind }, amount.messages);
            }
        }
        self.server.traffic().kinds.borrow().iter().for_each(|(kind, amount)| add(kind, amount.messages));
        sent
    }

    /// The share of the database that a client can have without a disk, on average over the clients.
    fn in_memory(&self, algorithm: &Algorithm, pages: PartitionId) -> f64 {
        let clients: Vec<_> = self.clients.iter().map(|client| resident(client.buffer(), pages)).collect();
        in_memory_ratio(&resident(self.server.buffer(), pages), &clients, algorithm.forwards())
    }
}
