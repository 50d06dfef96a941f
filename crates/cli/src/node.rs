//! `entresol node`: one database, many nodes. The server has the disks and the log, the others run transactions on copies of pages.

mod serve;

use crate::Failure;
use clap::Args;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Serves the pages of a database to other nodes, until it is interrupted
///
/// The server has the disks and the log. Nodes that join it keep copies of pages in their own
/// memories, run transactions on them and send what these have changed. `bench debit-credit
/// --join ADDRESS` is such a node. While a database is served, no other process has it open.
///
/// It ends in order at SIGINT or SIGTERM: nodes are told, and everything is written back.
/// Nodes go on when it is started again: nothing that was acknowledged is lost.
#[derive(Args)]
#[command(
    verbatim_doc_comment,
    after_help = "Example:\n  entresol node --serve 127.0.0.1:7171 --data debit-credit.data"
)]
pub struct Arguments {
    /// Serves at this address of the loopback; port 0 is any free one
    #[arg(long, value_name = "ADDRESS", value_parser = loopback)]
    serve: SocketAddr,
    /// Directory of the database
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Configuration file [default: DIR/entresol.toml]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// What becomes of copies: cbl, fwd, fwd-h, fwd-s, fwd-hs
    #[arg(long, value_name = "NAME", default_value = "cbl", value_parser = algorithm)]
    algorithm: String,
    /// Prints what was served as JSON
    #[arg(long)]
    json: bool,
}

/// An address that may be served without protection of what is sent.
pub fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr = text.parse().map_err(|_| "no address like 127.0.0.1:7171 or [::1]:7171".to_owned())?;
    if address.ip().is_loopback() {
        return Ok(address);
    }
    let why = "off loopback nothing is served without TLS and mutual authentication, which this release";
    Err(format!("{why} does not have: use an address such as 127.0.0.1:{}", address.port()))
}

fn algorithm(text: &str) -> Result<String, String> {
    match ::node::algorithm::named(text) {
        Some(found) => Ok(found.name().to_owned()),
        None => {
            let known: Vec<&str> = ::node::algorithm::ALGORITHMS.iter().map(|algorithm| algorithm.name()).collect();
            Err(format!("one of {}", known.join(", ")))
        }
    }
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    serve::run(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_served_off_the_loopback() {
        for text in ["127.0.0.1:7171", "127.8.0.1:0", "[::1]:7171"] {
            assert!(loopback(text).is_ok(), "{text}");
        }
        for text in ["0.0.0.0:7171", "192.168.0.1:7171", "[::]:7171", "[2001:db8::1]:7171"] {
            let refused = loopback(text).expect_err(text);
            assert!(refused.contains("TLS and mutual authentication"), "{refused}");
        }
        for text in ["127.0.0.1", "localhost:7171", "7171", ""] {
            assert!(loopback(text).expect_err(text).contains("no address"), "{text}");
        }
    }

    #[test]
    fn algorithms_have_names() {
        assert!(algorithm("fwd-hs").is_ok());
        assert_eq!(algorithm("magic"), Err("one of cbl, fwd, fwd-h, fwd-s, fwd-hs".to_owned()));
    }
}
