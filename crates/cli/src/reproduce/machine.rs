//! A process of a study's run over TCP: its server or one of its clients. It is asked for things on standard input, in a line of JSON each,
//! answers on standard output, and ends where its input ends: so it does not outlive who started it.

use crate::node::joining::on_a_machine;
use crate::progress::Progress;
use crate::{Failure, bench::terms, experiment, opening, print};
use base::PartitionId;
use base::time::MILLISECOND_NS;
use engine::catalog::{Locking, Organization};
use entresol::configuration::{Configuration, DEFAULT_DEVICE, Device};
use entresol::{OpenError, Opening, Store};
use executor::{Executor, WholeExecutor};
use node::channel::Plain;
use node::message::ClientId;
use node::page_client::{NodeInternals, PageClient};
use node::page_server::{PageServer, ServerInternals};
use papers::experiment::{Setting, Work};
use papers::{Extent, over_tcp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::BufRead;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use workload::page_server::{
    ClientCounts, ClientLoad, ClientTotals, DATABASE_PAGES, PageServerModel, Processing, Served, ServerCounts,
    client_settings, resident, server_settings,
};

/// What the partition and its device are called.
const PAGES: &str = "pages";
/// The log of a run holds all that is written in it, for none is given up meanwhile. In bytes.
const LOG: u64 = 1 << 30;
/// How often it is looked whether something was asked, in nanoseconds.
const LOOK_NS: u64 = 10 * MILLISECOND_NS;

/// What a process is.
#[derive(Serialize, Deserialize)]
pub struct Part {
    pub experiment: String,
    pub quick: bool,
    /// The number of the run among the experiment's.
    pub point: usize,
    pub seed: u64,
    pub role: MachineRole,
}

#[derive(Serialize, Deserialize)]
pub enum MachineRole {
    /// Its database is in this directory.
    Server {
        directory: PathBuf,
    },
    Client {
        number: u32,
        server: SocketAddr,
        pages: u16,
    },
}

/// What a process is asked for.
#[derive(Serialize, Deserialize)]
pub enum Ask {
    /// The clients have these names, in the order of their numbers: the server counts their requests from now on.
    Count(Vec<u32>),
    /// Transactions, one after the other.
    Begin,
    /// What it has counted so far.
    Look,
}

/// What it answers.
#[derive(Serialize, Deserialize)]
pub enum Said {
    Serving { address: SocketAddr, pages: u16 },
    Joined(u32),
    Seen(Box<Sighting>),
    Failed(String),
}

/// What a process has done until a moment.
#[derive(Serialize, Deserialize)]
pub struct Sighting {
    /// By the clock that all processes of a machine have in common, in nanoseconds.
    pub at_ns: u64,
    pub cpu_ns: u64,
    pub client: ClientCounts,
    pub server: ServerCounts,
    /// Which pages are in its memory: a one for each that is, else a zero.
    resident: String,
}

impl Sighting {
    fn now((client, server): (ClientCounts, ServerCounts), resident: &[bool]) -> Box<Sighting> {
        let resident = resident.iter().map(|is_there| if *is_there { '1' } else { '0' }).collect();
        let (at_ns, cpu_ns) = (real_driver::wall_ns(), real_driver::process_cpu_ns());
        Box::new(Sighting { at_ns, cpu_ns, client, server, resident })
    }

    /// Which pages are in its memory.
    pub fn resident(&self) -> Vec<bool> {
        self.resident.bytes().map(|byte| byte == b'1').collect()
    }
}

/// Is such a process until its input ends.
pub fn run() -> Result<(), Failure> {
    let asks = Asks::start();
    let Ok(first) = asks.0.recv() else { return Ok(()) };
    play(&serde_json::from_str(&first)?, &asks).or_else(|failure| say(&Said::Failed(failure.to_string())))
}

fn say(said: &Said) -> Result<(), Failure> {
    print(&serde_json::to_string(said)?)
}

/// The lines of standard input.
struct Asks(Receiver<String>);

impl Asks {
    #[expect(clippy::disallowed_methods, reason = "what may be asked at any time is waited for beside the engine")]
    fn start() -> Asks {
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            let lines = std::io::stdin().lock().lines();
            lines.map_while(Result::ok).take_while(|line| sender.send(line.clone()).is_ok()).for_each(drop);
        });
        Asks(receiver)
    }

    /// The next one; `None` at the end.
    async fn next(&self, executor: &Executor) -> Result<Option<Ask>, Failure> {
        loop {
            match self.0.try_recv() {
                Ok(line) => return Ok(Some(serde_json::from_str(&line)?)),
                Err(TryRecvError::Disconnected) => return Ok(None),
                Err(TryRecvError::Empty) => executor.sleep_ns(LOOK_NS).await,
            }
        }
    }
}

fn play(part: &Part, asks: &Asks) -> Result<(), Failure> {
    let extent = if part.quick { Extent::Quick } else { Extent::Full };
    let experiment = over_tcp::experiment(&part.experiment, extent, &experiment::KEYS)?;
    let point = experiment.points.into_iter().nth(part.point).ok_or("the experiment has no such run")?;
    let Setting { configuration, work: Work::PageServer { model, client }, .. } = point.setting else {
        return Err("the experiment has no page server".into());
    };
    match &part.role {
        MachineRole::Server { directory } => {
            let served = serve(&model, configuration, directory, asks);
            // Who has started this may be dead.
            let _gone_already = std::fs::remove_dir_all(directory);
            served
        }
        MachineRole::Client { number, server, pages } => {
            let mips = client.cpu.ok_or("the client has no CPU")?.mips;
            let load = ClientLoad::new(&model, *number, PartitionId(*pages), (part.seed, Processing::Asleep { mips }));
            let page_size = configuration.buffer.page_size as usize;
            join((&model, page_size), (*server, PartitionId(*pages)), load, asks)
        }
    }
}

/// The database on this machine: its pages in `directory`, on a device that behaves as the described one unless it `is_quick`, and all else
/// beside them.
fn stored(mut configuration: Configuration, directory: &Path, is_quick: bool) -> Result<Configuration, Failure> {
    let disk = configuration.partition(PAGES).device;
    let hardware = configuration.hardware.take().ok_or("the study's hardware is described")?;
    let described = hardware.devices.get(&disk).filter(|_| !is_quick).cloned();
    let path = directory.join(PAGES);
    std::fs::create_dir_all(&path).map_err(|error| format!("'{}' cannot be made: {error}", path.display()))?;
    let pages = Device { path: Some(path), described, ..Device::default() };
    configuration.devices = BTreeMap::from([(DEFAULT_DEVICE.to_owned(), Device::default()), (PAGES.to_owned(), pages)]);
    for device in [&mut configuration.log.device, &mut configuration.undo.device, &mut configuration.temp.device] {
        *device = DEFAULT_DEVICE.to_owned();
    }
    configuration.log.size = LOG;
    configuration.asked = engine::Asked::default();
    configuration.driver.direct = false;
    let organization = Organization::Direct { objects: DATABASE_PAGES.into(), blocking_factor: 1, record_size: 8 };
    terms::place(&mut configuration, PAGES, organization, Some(Locking::None));
    if let Some(partition) = configuration.partitions.get_mut(PAGES) {
        partition.device = PAGES.to_owned();
    }
    Ok(configuration)
}

/// Makes the database, all whose pages are on the disk and none in memory, and opens it.
fn prepared(configuration: Configuration, directory: &Path) -> Result<(Store, PartitionId), Failure> {
    let quick = Opening::new(directory, stored(configuration.clone(), directory, true)?);
    let store = opening::open(quick, &Progress::hidden())?;
    let spec = terms::placed(&store, PAGES)?;
    let pages = store.run(async |database| {
        let pages = database.create_partition(spec).await?;
        // What was never written is not read; the last page is behind all others.
        let last = u64::from(DATABASE_PAGES) - 1;
        database.transaction(async |tx| tx.modify_object(pages, last, |object| object.fill(1)).await).await?;
        Ok(pages)
    })?;
    store.close()?;
    let described = Opening::new(directory, stored(configuration, directory, false)?);
    Ok((opening::open_existing(described, &Progress::hidden())?, pages))
}

fn serve(model: &PageServerModel, configuration: Configuration, directory: &Path, asks: &Asks) -> Result<(), Failure> {
    let (store, pages) = prepared(configuration, directory)?;
    let database = store.database();
    let executor = store.executor().whole();
    executor
        .run(async {
            let transport = Rc::new(Plain(executor.for_users()));
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            let server = PageServer::serve(database, transport, address, server_settings(model)).await?;
            say(&Said::Serving { address: server.address(), pages: pages.0 })?;
            let mut served: Rc<Served> = Rc::default();
            while let Some(ask) = asks.next(executor).await? {
                match ask {
                    Ask::Count(names) => {
                        let names = names.into_iter().map(ClientId).collect();
                        served = Served::observe(&server, model.pattern, names);
                    }
                    Ask::Begin => {}
                    Ask::Look => {
                        let counts = (ClientCounts::default(), served.counts(&server, pages));
                        say(&Said::Seen(Sighting::now(counts, &resident(server.buffer(), pages))))?;
                    }
                }
                if let Some(failure) = server.failure() {
                    return Err(failure.into());
                }
            }
            server.close();
            Ok::<(), Failure>(())
        })
        .map_err(OpenError::from)?
}

fn join(
    (model, page_size): (&PageServerModel, usize),
    (server, pages): (SocketAddr, PartitionId),
    load: ClientLoad,
    asks: &Asks,
) -> Result<(), Failure> {
    on_a_machine(async |executor| {
        let own = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let transport = Rc::new(Plain(executor.for_users()));
        let client = PageClient::join(executor, transport, server, client_settings(model, page_size, own)).await?;
        client.attach(pages);
        say(&Said::Joined(client.id().0))?;
        let totals: Rc<ClientTotals> = Rc::default();
        let mut load = Some(load);
        while let Some(ask) = asks.next(executor).await? {
            match ask {
                Ask::Count(_) => {}
                Ask::Begin => {
                    if let Some(load) = load.take() {
                        executor.spawn(load.run(executor.clone(), client.clone(), Rc::clone(&totals)));
                    }
                }
                Ask::Look => {
                    let mut counts = totals.counts();
                    counts.messages = client.traffic().messages.get();
                    counts.bytes = client.traffic().bytes.get();
                    let resident = resident(client.buffer(), pages);
                    say(&Said::Seen(Sighting::now((counts, ServerCounts::default()), &resident)))?;
                }
            }
            if let Some(failure) = totals.failure() {
                return Err(failure.into());
            }
        }
        Ok(())
    })
}
