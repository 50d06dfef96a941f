//! How a process joins a server.

use super::protection::{Protection, Way, address, usage};
use crate::progress::Progress;
use crate::{Failure, files};
use ::node::page_client::PageClient;
use base::time::{MILLISECOND_NS, SECOND_NS};
use clap::Args;
use driver::FaultKind;
use entresol::Error;
use entresol::configuration::Configuration;
use entresol::network::client_settings;
use executor::{Executor, Order};
use real_driver::{Options, RealDriver};
use std::net::SocketAddr;
use std::rc::Rc;

/// For how long a server that is gone, or still recovers, is sought, in nanoseconds.
const PATIENCE_NS: u64 = 60 * SECOND_NS;
/// How long it is waited before a server is tried again, in nanoseconds.
pub const PAUSE_NS: u64 = 100 * MILLISECOND_NS;

/// How a server is joined.
#[derive(Args, Clone, Debug)]
pub struct Joining {
    /// Where other nodes send this one pages [default: any free port of the server's loopback]
    #[arg(long, value_name = "ADDRESS", value_parser = address, requires = "join")]
    listen: Option<SocketAddr>,
    /// The server's name in its certificate [default: its address]
    #[arg(long, value_name = "NAME", requires_all = ["join", "tls_certificate"])]
    tls_server_name: Option<String>,
    #[command(flatten)]
    pub protection: Protection,
}

impl Joining {
    fn listens(&self, server: SocketAddr) -> Result<SocketAddr, Failure> {
        self.protection.permits(server)?;
        match self.listen {
            Some(listen) => self.protection.permits(listen).map(|()| listen),
            None if server.ip().is_loopback() => Ok(SocketAddr::new(server.ip(), 0)),
            None => {
                let words = "off loopback a node has to say where others reach it: give --listen ADDRESS";
                Err(usage(words.to_owned()))
            }
        }
    }

    /// Joins a server, which may not have come up yet.
    pub async fn join(
        &self,
        executor: &Executor,
        server: SocketAddr,
        configuration: &Configuration,
        progress: &Progress,
    ) -> Result<PageClient, Failure> {
        let settings = client_settings(configuration, None, self.listens(server)?);
        let Way { transport, .. } =
            self.protection.way(&executor.for_users(), self.tls_server_name.as_deref(), progress)?;
        let end = executor.now().plus_ns(PATIENCE_NS);
        loop {
            let fault = match PageClient::join(executor, Rc::clone(&transport), server, settings).await {
                Ok(client) => return Ok(client),
                Err(Error::Input(mut fault)) if fault.kind == FaultKind::AddressInUse => {
                    fault.message += "; name another --listen, where other nodes reach this one";
                    return Err(fault.into());
                }
                Err(Error::Input(fault)) => fault,
                Err(error) => return Err(error.into()),
            };
            let may_come = matches!(fault.kind, FaultKind::Refused | FaultKind::Reset | FaultKind::TimedOut);
            if !may_come || executor.now() >= end || real_driver::is_end_requested() {
                return Err(fault.into());
            }
            progress.say(format!("waiting for a server at {server}"));
            executor.sleep_ns(PAUSE_NS).await;
        }
    }
}

/// Does this on a machine that writes no files.
pub fn on_a_machine<T>(work: impl AsyncFnOnce(&Executor) -> Result<T, Failure>) -> Result<T, Failure> {
    with_machine(|executor| executor.run(work(executor)).map_err(|halt| format!("the node has halted: {halt:?}"))?)
}

/// Does this with such a machine, which runs when it is told to. Its driver has a device all the same.
pub fn with_machine<T>(work: impl FnOnce(&Executor) -> Result<T, Failure>) -> Result<T, Failure> {
    let directory = files::Directory::new()?;
    let driver = RealDriver::open(Options::new("disk", directory.path()))?;
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let done = work(&executor);
    executor.stop();
    done
}
