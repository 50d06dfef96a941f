use super::measured::ratio;
use super::{CONTROL_MESSAGE, DATABASE_PAGES, Figures, Hits, PAGE_INSTRUCTIONS, PageServerModel, references};
use base::{PageId, PartitionId, Random};
use engine::{Error, Result, buffer};
use executor::{Cluster, Executor, JoinHandle};
use node::algorithm::{self, Algorithm};
use node::channel::Plain;
use node::message::ClientId;
use node::page_client::{self, PageClient};
use node::page_server::{self, PageServer};
use node::server::Found;
use std::cell::{Cell, RefCell};
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
    "read", "page", "forward", BETWEEN_CLIENTS, "refused", "returned", "write", "granted", "call back", "called back", "in use",
    "commit", "committed", OTHERS,
];

/// What the clients share.
#[derive(Default)]
struct Totals {
    commits: Cell<u64>,
    victims: Cell<u64>,
    response_ns: Cell<u64>,
    hits: Hits,
    failure: RefCell<Option<Error>>,
}

fn add(cell: &Cell<u64>, more: u64) {
    cell.set(cell.get() + more);
}

/// Where requests for pages were served.
#[derive(Default)]
struct Served {
    hits: Hits,
    forwards: Cell<u64>,
}

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
    let server = start(model, algorithm, &mut machines, seed)?;
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
    running.totals.failure.borrow().clone().map_or(Ok(()), Err)
}

fn start(
    model: &PageServerModel,
    algorithm: &'static Algorithm,
    machines: &mut Machines<'_>,
    seed: u64,
) -> Result<Running> {
    let executor = machines.database.executor().clone();
    let address = SocketAddr::new(machines.addresses[0], PORT);
    let settings = page_server::ServerSettings {
        algorithm,
        chances: model.chances,
        message_size_min: CONTROL_MESSAGE,
        has_leases: false,
        grants: None,
    };
    let serving: JoinHandle<_> = {
        let database = machines.database.clone();
        let transport = Rc::new(Plain(executor.clone()));
        executor.spawn(async move { PageServer::serve(&database, transport, address, settings).await })
    };
    let server = machines.cluster.run(serving).expect("described machines go on")?;
    // The server's clock is ahead, for it has made the database.
    let ahead_ns = executor.now().ns();
    let totals: Rc<Totals> = Rc::default();
    let mut clients = Vec::new();
    for (number, executor) in machines.clients.iter().enumerate() {
        let (executor, own) = (executor.clone(), SocketAddr::new(machines.addresses[number + 1], PORT));
        let settings = page_client::ClientSettings {
            buffer: buffer::Settings {
                frames: model.client_pages as usize,
                page_size: machines.database.settings().buffer.page_size,
                cleaner: false,
                ..buffer::Settings::default()
            },
            address: own,
            message_size_min: CONTROL_MESSAGE,
            transactions: 1,
            keeps_write_locks: false,
            commits_pages: model.commits_pages,
            patience_ns: 0,
        };
        let joining = executor.clone().spawn(async move {
            executor.sleep_ns(ahead_ns.saturating_sub(executor.now().ns()) + 1).await;
            let transport = Rc::new(Plain(executor.clone()));
            PageClient::join(&executor, transport, address, settings).await
        });
        let client = machines.cluster.run(joining).expect("described machines go on")?;
        client.attach(machines.pages);
        clients.push(client);
    }
    let running = Running { server, clients, totals, served: Rc::default() };
    running.observe(model);
    let working = model.working.map_or(machines.clients.len(), |working| working as usize);
    for (number, executor) in machines.clients.iter().enumerate().take(working) {
        let (client, totals) = (running.clients[number].clone(), Rc::clone(&running.totals));
        let source = ReferenceSource {
            model: model.clone(),
            client: number as u32,
            pages: machines.pages,
            random: Random::stream(seed, &format!("client {number}")),
            processing: Random::stream(seed, &format!("processing {number}")),
        };
        executor.spawn(source.run_all(executor.clone(), client, totals));
    }
    Ok(running)
}

/// What a client runs.
struct ReferenceSource {
    model: PageServerModel,
    client: u32,
    pages: PartitionId,
    random: Random,
    /// Of what pages take and what is written to them: a victim that is run again draws that again, and what is referenced behind it
    /// stays the same under every algorithm.
    processing: Random,
}

impl ReferenceSource {
    async fn run_all(mut self, executor: Executor, client: PageClient, totals: Rc<Totals>) {
        loop {
            let drawn = references(self.model.pattern, self.model.write_probability, self.client, &mut self.random);
            let began = executor.now();
            loop {
                match self.run(&executor, &client, &totals, &drawn).await {
                    Ok(()) => break,
                    Err(Error::Deadlock) => add(&totals.victims, 1),
                    Err(error) => {
                        totals.failure.borrow_mut().get_or_insert(error);
                        return;
                    }
                }
            }
            add(&totals.commits, 1);
            add(&totals.response_ns, executor.now().since_ns(began));
        }
    }

    async fn run(
        &mut self,
        executor: &Executor,
        client: &PageClient,
        totals: &Totals,
        drawn: &[super::PageReference],
    ) -> Result<()> {
        let mut transaction = client.begin().await;
        for reference in drawn {
            let page = PageId::new(self.pages, reference.page);
            let (_, was_here) = transaction.read(page, |_| ()).await?;
            totals.hits.count(self.model.pattern.is_hot(self.client, reference.page), was_here);
            self.process(executor).await;
            if reference.writes {
                let number = self.processing.word().to_le_bytes();
                transaction.write(page, FIRST_BYTE, &number).await?;
                self.process(executor).await;
            }
        }
        executor.pay_debt().await;
        transaction.commit().await
    }

    /// The processing of a page.
    async fn process(&mut self, executor: &Executor) {
        executor.charge_instructions(self.processing.exponential(PAGE_INSTRUCTIONS).round() as u64);
        executor.pay_debt().await;
    }
}

/// The first byte behind a page's header.
const FIRST_BYTE: u16 = engine::page::header::HEADER_SIZE as u16;

struct Running {
    server: PageServer,
    clients: Vec<PageClient>,
    totals: Rc<Totals>,
    served: Rc<Served>,
}

impl Running {
    /// Has it counted where the server finds what clients ask for.
    fn observe(&self, model: &PageServerModel) {
        let (served, pattern) = (Rc::clone(&self.served), model.pattern);
        let numbers: Vec<ClientId> = self.clients.iter().map(PageClient::id).collect();
        self.server.observe(Box::new(move |client, page, found| {
            let number = numbers.iter().position(|other| *other == client).unwrap_or(0) as u32;
            let is_hot = pattern.is_hot(number, page.number);
            match found {
                Some(Found::Memory) => served.hits.count(is_hot, true),
                Some(Found::Disk) => served.hits.count(is_hot, false),
                // Its request was counted when it was forwarded.
                Some(Found::Refused) => {}
                None => {
                    served.hits.count(is_hot, false);
                    add(&served.forwards, 1);
                }
            }
        }));
    }

    fn restart(&self, machines: &Machines<'_>) {
        self.totals.hits.restart();
        self.served.hits.restart();
        [&self.totals.commits, &self.totals.victims, &self.totals.response_ns, &self.served.forwards]
            .into_iter()
            .for_each(|cell| cell.set(0));
        self.server.restart_counts();
        machines.database.buffer().restart_statistics();
        machines.database.executor().restart_statistics();
        for (client, executor) in self.clients.iter().zip(&machines.clients) {
            client.traffic().restart();
            executor.restart_statistics();
        }
    }

    fn figures(&self, machines: &Machines<'_>, length_ns: u64, in_memory_ratio: f64) -> Figures {
        let Totals { commits, victims, response_ns, hits, .. } = &*self.totals;
        let (commits, counts) = (commits.get(), self.server.counts());
        let space = machines.database.buffer().space(machines.pages);
        let traffics = || self.clients.iter().map(PageClient::traffic).chain([self.server.traffic()]);
        let [client, server] = [hits.ratios(), self.served.hits.ratios()];
        let served = self.served.hits.references();
        let misses = served - (server[0] * served as f64).round() as u64;
        let per_commit = |count: u64| ratio(count, commits);
        let cpu = |executor: &Executor| {
            executor.stations().iter().find(|at| at.name == "cpu").map_or(0.0, |at| at.utilization)
        };
        Figures {
            throughput_per_s: commits as f64 / (length_ns as f64 / 1e9),
            response_ns_mean: ratio(response_ns.get(), commits),
            transactions: commits,
            victims: victims.get(),
            stations: machines.database.executor().stations(),
            client_cpu_utilization: machines.clients.iter().map(cpu).sum::<f64>() / machines.clients.len() as f64,
            client_hit_ratio: client[0],
            client_hot_hit_ratio: client[1],
            client_cold_hit_ratio: client[2],
            server_hit_ratio: server[0],
            server_hot_hit_ratio: server[1],
            server_cold_hit_ratio: server[2],
            forwarded_ratio: ratio(self.served.forwards.get(), misses),
            disk_reads_per_commit: per_commit(space.reads.get()),
            disk_writes_per_commit: per_commit(space.writes.get()),
            disk_io_per_commit: per_commit(space.reads.get() + space.writes.get()),
            messages: self.kinds().into_iter().map(|(kind, count)| (kind, per_commit(count))).collect(),
            messages_per_commit: per_commit(traffics().map(|traffic| traffic.messages.get()).sum()),
            message_bytes_per_commit: per_commit(traffics().map(|traffic| traffic.bytes.get()).sum()),
            redone_per_commit: per_commit(counts.redone),
            in_memory_ratio,
            dropped_sent_ratio: ratio(counts.returned, counts.leaving),
            passed_on_ratio: ratio(counts.passed_on, counts.leaving),
            callbacks_per_commit: per_commit(counts.callbacks),
            refusals_per_commit: per_commit(counts.refusals),
            victims_per_commit: per_commit(counts.victims),
        }
    }

    /// How many messages of each kind were sent.
    fn kinds(&self) -> BTreeMap<&'static str, u64> {
        let mut sent: BTreeMap<&str, u64> = KINDS.into_iter().map(|kind| (kind, 0)).collect();
        let mut add = |kind, messages| *sent.entry(if KINDS.contains(&kind) { kind } else { OTHERS }).or_default() += messages;
        for (kind, amount) in self.clients.iter().flat_map(|client| client.traffic().kinds.borrow().clone()) {
            add(if kind == "page" { BETWEEN_CLIENTS } else { kind }, amount.messages);
        }
        self.server.traffic().kinds.borrow().iter().for_each(|(kind, amount)| add(kind, amount.messages));
        sent
    }

    /// The share of the database that a client can have without a disk, on average over the clients.
    fn in_memory(&self, algorithm: &Algorithm, pages: PartitionId) -> f64 {
        let is_forwarded = algorithm.forwards();
        let all = || (0..DATABASE_PAGES).map(|number| PageId::new(pages, number));
        let server = self.server.buffer().pool().borrow();
        let pools: Vec<_> = self.clients.iter().map(|client| client.buffer().pool().borrow()).collect();
        let mut found = 0;
        for page in all() {
            let holders = pools.iter().filter(|pool| pool.frame_of(page).is_some()).count();
            found += match server.frame_of(page) {
                Some(_) => pools.len(),
                None if is_forwarded && holders > 0 => pools.len(),
                None => holders,
            };
        }
        ratio(found as u64, u64::from(DATABASE_PAGES) * pools.len() as u64)
    }
}
