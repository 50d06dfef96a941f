//! A shell without a database: it looks at the server that has it.

use super::converse;
use super::request::{self, ShellCommand};
use crate::Failure;
use crate::node::joining::with_machine;
use crate::node::protection::{Protection, Way, address};
use crate::progress::Progress;
use clap::Args;
use std::io::BufRead;
use std::net::SocketAddr;

/// The server that is looked at.
#[derive(Args)]
pub struct Attached {
    /// Looks at the nodes of the server at this address
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    server: Option<SocketAddr>,
    /// Prints what is known of nodes as JSON, an answer in a line
    #[arg(long, requires = "server")]
    json: bool,
    /// The server's name in its certificate [default: its address]
    #[arg(long, value_name = "NAME", requires_all = ["server", "tls_certificate"])]
    tls_server_name: Option<String>,
    #[command(flatten)]
    protection: Protection,
}

const OTHERS: &str =
    "its server has the database: from here 'nodes', 'copies', 'callbacks', 'holders' and 'messages' are answered";

impl Attached {
    /// Answers requests until the end of the input. Returns how many failed.
    pub fn converse(&self, input: &mut impl BufRead, interactive: bool) -> Result<u64, Failure> {
        let server = self.server.expect("there is a directory or a server");
        self.protection.permits(server)?;
        let progress = Progress::start("shell");
        with_machine(|executor| {
            let users = executor.for_users();
            let way = self.protection.way(&users, self.tls_server_name.as_deref(), &progress);
            progress.finish();
            let Way { transport, .. } = way?;
            converse(input, interactive, |line| {
                let Some(command) = ShellCommand::parse(line)? else { return Ok(Some(String::new())) };
                match command {
                    ShellCommand::Quit => Ok(None),
                    ShellCommand::Help => Ok(Some(request::HELP.trim_end().to_owned())),
                    ShellCommand::Nodes(question) => {
                        let page = question.page();
                        let asked = executor.run(node::survey::ask(&users, &*transport, server, page));
                        let survey = asked.map_err(|halt| format!("the shell has halted: {halt:?}"))??;
                        Ok(Some(question.answer(&survey, self.json)?))
                    }
                    _ => Err(OTHERS.into()),
                }
            })
        })
    }
}
