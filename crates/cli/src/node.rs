//! `entresol node`: one database, many nodes. The server has the disks and the log, the others run transactions on copies of pages.

mod join;
pub mod joining;
pub mod protection;
mod serve;

use crate::Failure;
use clap::{ArgGroup, Args, ValueEnum};
use joining::Joining;
use protection::address;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Serves the pages of a database to other nodes, or is such a node, until interrupted
///
/// The server has the disks and the log. Nodes that join it keep copies of pages in their own
/// memories, run transactions on them and send what these have changed. While a database is
/// served, no other process has it open. `bench debit-credit --join ADDRESS` measures a node,
/// and so do `bench ycsb` and `bench tpcc`.
///
/// Both end in order at SIGINT or SIGTERM: nodes are told, and everything is written back.
/// Nodes go on when the server is started again: nothing that was acknowledged is lost.
///
/// Off loopback each node needs a certificate of an authority that has issued none to others.
/// A node is known by the one DNS name in it, and may do what a file of grants says:
///
///   [node.teller-1]
///   write = ["account", "teller", "branch", "history"]
///   [node.auditor]
///   read = ["*"]
///
/// Changed files are read again: a node that has lost a grant has to join anew.
#[derive(Args)]
#[command(
    verbatim_doc_comment,
    next_line_help = true,
    group = ArgGroup::new("part").args(["serve", "join"]).required(true),
    after_help = "Examples:\n  \
    entresol node --serve 127.0.0.1:7171 --data debit-credit.data\n  \
    entresol node --join 127.0.0.1:7171 --load debit-credit\n  \
    entresol node --serve 10.0.0.1:7171 --data debit-credit.data --grants grants.toml \\\n    \
    --tls-certificate server.pem --tls-key server.key --tls-authority nodes.pem"
)]
pub struct Arguments {
    /// Serves at this address; port 0 is any free one
    #[arg(long, value_name = "ADDRESS", value_parser = address, requires = "data")]
    serve: Option<SocketAddr>,
    /// Joins the server at this address
    #[arg(long, value_name = "ADDRESS", value_parser = address, conflicts_with_all = ["data", "algorithm", "chances", "grants"])]
    join: Option<SocketAddr>,
    /// Directory of the database that is served
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Configuration file [default: DIR/entresol.toml]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Algorithm: cbl, fwd, fwd-h, fwd-s, fwd-hs, adaptive, n-chance, ps-aa
    #[arg(long, value_name = "NAME", default_value = "cbl", value_parser = algorithm)]
    algorithm: String,
    /// How often n-chance passes a page on to idle nodes before one has used it
    #[arg(long, value_name = "N", default_value_t = ::node::algorithm::CHANCES)]
    chances: u8,
    /// What nodes may do (TOML), by the names in their certificates
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    grants: Option<PathBuf>,
    /// What a node that joins runs: nothing if left out
    #[arg(long, value_enum, requires = "join", conflicts_with = "serve")]
    load: Option<NodeLoad>,
    /// Seeds the load
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    joining: Joining,
    /// Prints what was done as JSON
    #[arg(long)]
    json: bool,
}

/// What a node runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum NodeLoad {
    /// Debit-Credit (TPC-B), one transaction at a time
    DebitCredit,
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
    match (arguments.serve, &arguments.data, arguments.join) {
        (Some(address), Some(data), None) => serve::run(arguments, address, data),
        (None, None, Some(server)) => join::run(arguments, server),
        _ => unreachable!("the arguments are of one part"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn algorithms_have_names() {
        assert!(algorithm("fwd-hs").is_ok());
        assert_eq!(
            algorithm("magic"),
            Err("one of cbl, fwd, fwd-h, fwd-s, fwd-hs, adaptive, n-chance, ps-aa".to_owned())
        );
    }
}
