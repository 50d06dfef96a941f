//! One database for many processes: a program that has it open serves its pages, and nodes in other programs join and run
//! transactions on copies of them, as `entresol node --serve` and `--join` do.
//!
//! [`PageServer::serve`] is for the program that has the database, [`NetworkNode::join`] for the others. [`Plain`] is the way between them on
//! the loopback of one machine, and goes nowhere else. The crate `entresol-tls` has the one for all other networks, which seals and
//! authenticates what goes over [`Bare`]; it is a crate of its own for what it is built from.
//!
//! ```
//! # let directory = tempfile::tempdir().unwrap();
//! # let directory = directory.path();
//! # std::fs::write(directory.join("entresol.toml"), "[log]\nsize = \"4 MiB\"\n[buffer]\nsize = \"4 MiB\"").unwrap();
//! use entresol::PartitionSpec;
//! use entresol::configuration::Configuration;
//! use entresol::network::{NetworkNode, PageServer, Plain, ServerSettings};
//! use std::rc::Rc;
//! use std::sync::mpsc;
//!
//! let store = entresol::open(directory)?;
//! let (tell, told) = mpsc::channel();
//! // A thread stands here for another program.
//! let elsewhere = std::thread::spawn(move || {
//!     let (server, visits) = told.recv().expect("it serves");
//!     let transport = |executor: &entresol::Executor| Rc::new(Plain(executor.clone())) as Rc<_>;
//!     let own = "127.0.0.1:0".parse().expect("an address");
//!     let node = NetworkNode::join(server, own, &Configuration::default(), transport)?;
//!     node.run(async |node| node.transaction(async |tx| tx.put(visits, b"ann", &[1]).await).await)?;
//!     node.leave()
//! });
//! store.run(async |database| {
//!     let visits = database.ensure_partition(PartitionSpec::b_tree("visits")).await?;
//!     let executor = database.executor();
//!     let any = "127.0.0.1:0".parse().expect("an address");
//!     let server = PageServer::serve(database, Rc::new(Plain(executor.clone())), any, ServerSettings::default()).await?;
//!     tell.send((server.address(), visits)).expect("someone wants to know");
//!     // Until that node has come and gone.
//!     while !elsewhere.is_finished() {
//!         executor.sleep_ns(10_000_000).await;
//!     }
//!     server.close();
//!     let ann = database.transaction(async |tx| tx.get(visits, b"ann").await).await?;
//!     assert_eq!(ann, Some(vec![1]));
//!     Ok(())
//! })?;
//! elsewhere.join().expect("it does not panic")?;
//! store.close()?;
//! # Ok::<(), entresol::OpenError>(())
//! ```

pub use node::algorithm;
pub use node::channel::{Acceptor, Bare, Channel, Plain, Transport};
pub use node::grants::Grants;
pub use node::page_client::ClientSettings;
pub use node::page_server::{PageServer, ServerSettings};

use crate::configuration::Configuration;
use crate::error::{OpenError, run};
use base::time::{MILLISECOND_NS, SECOND_NS};
use engine::{Machine, buffer};
use executor::{Executor, Order, UserExecutor};
use node::page_client::PageClient;
use node::server::COPIES_MAX;
use real_driver::RealDriver;
use std::net::SocketAddr;
use std::rc::Rc;

/// For how long a node seeks a server that is gone, or still recovers, in nanoseconds.
const PATIENCE_NS: u64 = 60 * SECOND_NS;
/// How long the server may take to hear that a node leaves, in nanoseconds.
const FAREWELL_NS: u64 = 100 * MILLISECOND_NS;

/// How a node works whose memory has this many bytes for copies of pages, or else as many as the configuration gives a buffer, and to which
/// other nodes send pages at this address.
pub fn client_settings(configuration: &Configuration, bytes: Option<u64>, address: SocketAddr) -> ClientSettings {
    let page_size = configuration.buffer.page_size as usize;
    let frames = (bytes.unwrap_or(configuration.buffer.size) / page_size as u64) as usize;
    ClientSettings {
        buffer: buffer::Settings {
            // A server gives a node no more copies than that at a time, those among them that leave its memory.
            frames: frames.min(COPIES_MAX / 2),
            page_size,
            replacement: configuration.buffer.replacement,
            cleaner: false,
            ..buffer::Settings::default()
        },
        address,
        message_size_min: 0,
        transactions: configuration.nodes.transactions as usize,
        keeps_write_locks: configuration.nodes.keeps_write_locks,
        commits_pages: configuration.nodes.commits_pages,
        lock_wait_ns_max: configuration.locks.wait_ns_max,
        patience_ns: PATIENCE_NS,
    }
}

/// A node that has joined a server, on the thread that has joined. It joins again by itself when the server or the connection was gone,
/// for a minute.
pub struct NetworkNode {
    client: PageClient,
    // Behind the client, which is dropped first.
    machine: Machine,
}

impl NetworkNode {
    /// Joins the server at this address. Other nodes send pages to `own`, of which port 0 is any free one. The configuration says how large
    /// pages are (as the server's), how much memory there is for copies of them, and what `[nodes]` and `[locks]` say.
    ///
    /// # Errors
    /// [`OpenError::Machine`] and [`Error::Input`](crate::Error::Input) with the [`FaultKind`](crate::FaultKind) of what is wrong: `Refused` where
    /// no server listens, which may recover still, so that it helps to try again; `AddressInUse` if `own` is; `Denied` if
    /// the server does not want this node, with its words.
    pub fn join(
        server: SocketAddr,
        own: SocketAddr,
        configuration: &Configuration,
        transport: impl FnOnce(&UserExecutor) -> Rc<dyn Transport>,
    ) -> Result<NetworkNode, OpenError> {
        // It has no files.
        let driver = RealDriver::open(real_driver::Options::default())?;
        let machine = Machine(Executor::new(Box::new(driver), Order::FirstInFirstOut));
        let settings = client_settings(configuration, configuration.nodes.buffer, own);
        let joining = PageClient::join(&machine.0, transport(&machine.0.for_users()), server, settings);
        let client = run(&machine.0, joining)??;
        Ok(NetworkNode { client, machine })
    }

    /// Runs `work` on this thread. While nothing runs, the node hears nothing, and after two seconds its copies are of no use: what it has to do is
    /// done in one run.
    ///
    /// # Errors
    /// Those of `work`.
    pub fn run<T>(&self, work: impl AsyncFnOnce(&PageClient) -> engine::Result<T>) -> Result<T, OpenError> {
        Ok(run(&self.machine.0, work(&self.client))??)
    }

    /// Leaves the server, which is told.
    ///
    /// # Errors
    /// [`OpenError::Halted`].
    pub fn leave(self) -> Result<(), OpenError> {
        let NetworkNode { client, machine } = self;
        drop(client);
        run(&machine.0, machine.0.sleep_ns(FAREWELL_NS))
    }
}
