//! The server: opens the database and serves its pages until this process is asked to end.

use super::Arguments;
use super::protection::{GrantsFile, Way, usage};
use crate::progress::Progress;
use crate::table::{fact, facts};
use crate::{Failure, opening, print};
use ::node::algorithm;
use ::node::grants::Grants;
use ::node::page_server::{PageServer, ServerSettings};
use base::time::{MILLISECOND_NS, SECOND_NS};
use base::units::grouped;
use driver::FaultKind;
use engine::Internals;
use entresol::configuration::{Configuration, FILE_NAME};
use entresol::{Error, Opening, Store};
use node::page_server::ServerInternals;
use serde::Serialize;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::pin;
use tls::Tls;

/// How often it is looked whether this process is to end, in nanoseconds.
const LOOK_NS: u64 = 50 * MILLISECOND_NS;
/// At every how manieth of these looks it is looked for changed grants.
const LOOKS_AT_GRANTS: u64 = 20;
/// How long nodes may take to hear that this is the end, in nanoseconds.
const FAREWELL_NS: u64 = SECOND_NS / 4;

/// What was served.
#[derive(Default, Serialize)]
struct Served {
    seconds: f64,
    joined: u64,
    commits: u64,
    pages_sent: u64,
    from_memory: u64,
    forwarded: u64,
    callbacks: u64,
    victims: u64,
    /// Requests without a grant.
    denied: u64,
    /// Peers that have not proven who they are.
    refused: u64,
    messages_sent: u64,
    bytes_sent: u64,
}

pub fn run(arguments: &Arguments, address: SocketAddr, data: &Path) -> Result<(), Failure> {
    let protection = &arguments.joining.protection;
    protection.permits(address)?;
    let grants = match &arguments.grants {
        Some(path) => Some(GrantsFile::open(path)?),
        None if protection.is_given() => {
            let words = "with TLS nodes may do what they are granted and nothing else: give --grants FILE";
            return Err(usage(words.to_owned()));
        }
        None => None,
    };
    real_driver::note_end_requests();
    let progress = Progress::start("node");
    let file = arguments.config.clone().unwrap_or_else(|| data.join(FILE_NAME));
    let file = (arguments.config.is_some() || file.is_file()).then_some(file);
    let configuration = Configuration::read(file.as_deref(), None)?;
    if configuration.hardware.is_some() {
        return Err("the configuration names hardware; what is served must be stored".into());
    }
    let store = opening::open_existing(Opening::new(data, configuration), &progress)?;
    let served = serve(&store, (arguments, address, data), grants, &progress)?;
    progress.phase("closing", 0);
    store.close()?;
    progress.finish();
    print(&if arguments.json { serde_json::to_string_pretty(&served)? } else { served.to_text() })
}

fn serve(
    store: &Store,
    (arguments, address, data): (&Arguments, SocketAddr, &Path),
    mut grants: Option<(GrantsFile, Grants)>,
    progress: &Progress,
) -> Result<Served, Failure> {
    let executor = store.executor().clone();
    let Way { transport, tls } = arguments.joining.protection.way(&executor, None, progress)?;
    let served = store.run(async |database| {
        let settings = ServerSettings {
            algorithm: algorithm::named(&arguments.algorithm).expect("the arguments name one that there is"),
            chances: arguments.chances,
            message_size_min: 0,
            has_leases: true,
            grants: grants.as_ref().map(|(_, grants)| grants.clone()),
        };
        let mut serving = pin!(PageServer::serve(database, transport, address, settings));
        // What transactions have left may take long.
        let server = loop {
            match executor.within(LOOK_NS, serving.as_mut()).await {
                Some(Err(Error::Input(mut fault))) if fault.kind == FaultKind::AddressInUse => {
                    fault.message += "; name another port, or 0 for any free one";
                    return Err(Error::Input(fault));
                }
                Some(server) => break server?,
                None if real_driver::is_end_requested() => return Ok(Served::default()),
                None => progress.say("finishing what was deleted or rolled back".to_owned()),
            }
        };
        // A reader that has gone away is no reason not to serve.
        let _told = print(&format!("serving '{}' at {}", data.display(), server.address()));
        let began = executor.now();
        let mut looks = 0_u64;
        while !real_driver::is_end_requested() {
            executor.sleep_ns(LOOK_NS).await;
            progress.say(status(&server));
            looks += 1;
            if let Some((file, _)) = grants.as_mut().filter(|_| looks.is_multiple_of(LOOKS_AT_GRANTS)) {
                file.follow(&server, progress);
            }
            if let Some(failure) = database.log().failure() {
                return Err(failure);
            }
        }
        server.close();
        let seconds = executor.now().since_ns(began) as f64 / 1e9;
        executor.sleep_ns(FAREWELL_NS).await;
        Ok(Served::of(&server, tls.as_ref(), seconds))
    })?;
    Ok(served)
}

/// How it goes, in a line.
fn status(server: &PageServer) -> String {
    let (protocol, counts) = (server.protocol(), server.counts());
    let (nodes, copies) = (protocol.clients().count() as u64, protocol.registered() as u64);
    format!(
        "serving at {}: {} nodes, {} copies, {} commits",
        server.address(),
        grouped(nodes),
        grouped(copies),
        grouped(counts.commits)
    )
}

impl Served {
    fn of(server: &PageServer, tls: Option<&Tls>, seconds: f64) -> Served {
        let (counts, traffic) = (server.counts(), server.traffic());
        Served {
            seconds,
            joined: counts.joined,
            commits: counts.commits,
            pages_sent: counts.reads,
            from_memory: counts.hits,
            forwarded: counts.forwards,
            callbacks: counts.callbacks,
            victims: counts.victims,
            denied: counts.denials,
            refused: tls.map_or(0, |tls| tls.refusals().count),
            messages_sent: traffic.messages.get(),
            bytes_sent: traffic.bytes.get(),
        }
    }

    fn to_text(&self) -> String {
        let row = |name: &str, number: u64, more: String| fact(name, grouped(number), more);
        facts([
            row("nodes", self.joined, format!("joined, in {:.1} s", self.seconds)),
            row("commits", self.commits, format!("and {} victims of deadlocks", grouped(self.victims))),
            row("pages", self.pages_sent, format!("asked for, {} of them in memory", grouped(self.from_memory))),
            row("forwarded", self.forwarded, "of them, to nodes that had copies".to_owned()),
            row("callbacks", self.callbacks, "of copies that were to be written".to_owned()),
            row(
                "denied",
                self.denied,
                format!("for want of a grant; {} strangers were refused", grouped(self.refused)),
            ),
            row("messages", self.messages_sent, format!("sent, of {} bytes", grouped(self.bytes_sent))),
        ])
    }
}
