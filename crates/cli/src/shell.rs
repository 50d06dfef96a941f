//! `entresol shell`: the interactive message server (Garcia-Molina and Salem 1988, section 2.2: "interactive message servers
//! prompt a user for transaction requests"). This thread reads and prints; the transaction server works on its own.

mod attached;
mod cache;
mod elsewhere;
mod nodes;
mod partitions;
mod procedures;
mod request;
mod waits;

use crate::progress::Progress;
use crate::{Failure, backup, bench, opening, print};
use cache::CachesBefore;
use clap::Args;
use engine::Internals;
use entresol::configuration::{Configuration, Nodes};
use entresol::{DatabaseThread, Handle, Opening, Procedures};
use request::{Request, ShellCommand};
use std::io::{BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};

/// Reads requests line by line and prints the responses; 'help' lists them
///
/// Each request is a transaction, run by the transaction server as the section 'server'
/// of the configuration describes it. Where the input is no terminal, the exit code
/// says whether all requests succeeded.
///
/// Where another program of the same user has the database open, that is asked: 'waits' and
/// 'backup' are answered then. While a database is served to nodes, its server has it. With
/// --server the shell shows what that knows: 'nodes', 'copies', 'callbacks', 'holders' and
/// 'messages'. Where nodes have grants, a certificate is needed whose node may read all
/// partitions.
#[derive(Args)]
#[command(
    verbatim_doc_comment,
    next_line_help = true,
    after_help = "Examples:\n  entresol shell debit-credit.data\n  echo 'get account 17' | entresol shell debit-credit.data\n  \
                  echo copies | entresol shell --server 127.0.0.1:7171"
)]
pub struct Arguments {
    /// Directory of the database
    #[arg(value_name = "DIR", required_unless_present = "server", conflicts_with = "server")]
    directory: Option<PathBuf>,
    #[command(flatten)]
    attached: attached::Attached,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let interactive = std::io::stdin().is_terminal();
    let mut input = std::io::stdin().lock();
    let failures = match &arguments.directory {
        None => arguments.attached.converse(&mut input, interactive)?,
        Some(directory) => of_directory(&Opening::in_directory(directory)?, &mut input, interactive)?,
    };
    if failures > 0 && !interactive {
        return Err(format!("{failures} requests failed").into());
    }
    Ok(())
}

fn of_directory(opening: &Opening, input: &mut impl BufRead, interactive: bool) -> Result<u64, Failure> {
    let (handle, thread) = match start(opening) {
        Ok(started) => started,
        Err(refused) if elsewhere::is_asked(opening, &refused) => return elsewhere::ask(opening, input, interactive),
        Err(refused) => return Err(refused),
    };
    let mut before = CachesBefore::default();
    let failures = converse(input, interactive, |line| answer(&handle, &mut before, line))?;
    thread.close()?;
    Ok(failures)
}

fn start(opening: &Opening) -> Result<(Handle, DatabaseThread), Failure> {
    let directory = opening.path();
    let configuration = opening.configuration().clone();
    if configuration.hardware.is_some() {
        return Err("the configuration names hardware; a shell needs a database that is stored".into());
    }
    // Only what is there is served: nothing is created.
    let scale = bench::bank::scale(&configuration, None);
    let procedures = move || {
        let mut all = Procedures::new();
        procedures::register(&mut all);
        bench::bank::register(&mut all, &scale);
        workload::credit_card::register(&mut all);
        all
    };
    let progress = Progress::start("shell");
    let present = Opening::new(directory, configuration.clone()).procedures(procedures.clone());
    opening::open_existing(present, &progress)?.close()?;
    let server = Some(configuration.server.unwrap_or_default());
    let opening = Opening::new(directory, Configuration { server, nodes: Nodes::default(), ..configuration });
    let opening = opening::watched(opening.procedures(procedures), &progress);
    progress.finish();
    let thread = DatabaseThread::start(opening)?;
    Ok((thread.handle(), thread))
}

/// Has requests answered until the end of the input, or until one has no answer. Returns how many failed.
fn converse(
    input: &mut impl BufRead,
    interactive: bool,
    mut answer: impl FnMut(&str) -> Result<Option<String>, Failure>,
) -> Result<u64, Failure> {
    let (mut failures, mut line, mut number) = (0, Vec::new(), 0);
    loop {
        if interactive {
            print!("> ");
            std::io::stdout().flush()?;
        }
        line.clear();
        if input.read_until(b'\n', &mut line)? == 0 {
            return Ok(failures);
        }
        number += 1;
        let answer = match std::str::from_utf8(&line) {
            Ok(text) => answer(text.trim()),
            Err(_) => Err("the line is not UTF-8 text".into()),
        };
        match answer {
            Ok(Some(text)) if text.is_empty() => {}
            Ok(Some(text)) => print(&text)?,
            Ok(None) => return Ok(failures),
            Err(failure) => {
                failures += 1;
                let place = if interactive { String::new() } else { format!("line {number}: ") };
                eprintln!("{place}error: {failure}");
            }
        }
    }
}

/// The answer to one line; `None` to the last. `before` are the caches that were turned off.
fn answer(handle: &Handle, before: &mut CachesBefore, line: &str) -> Result<Option<String>, Failure> {
    let Some(command) = ShellCommand::parse(line)? else { return Ok(Some(String::new())) };
    Ok(Some(match command {
        ShellCommand::Quit => return Ok(None),
        ShellCommand::Help => request::HELP.trim_end().to_owned(),
        ShellCommand::Partitions => handle.with_database(procedures::list).wait()?,
        ShellCommand::Statistics => handle.with_database(async |database| Ok(cache::statistics(database))).wait()?,
        ShellCommand::Waits => handle.with_database(async |database| Ok(waits::list(database))).wait()?,
        ShellCommand::Cache(level, command) => command.run(handle, level, before)?,
        ShellCommand::Partition(command) => command.run(handle)?,
        ShellCommand::Nodes(_) => return Err(nodes::SERVES_NONE.into()),
        ShellCommand::Checkpoint => {
            handle.checkpoint().wait()?;
            "done".to_owned()
        }
        ShellCommand::Backup { directory, rate } => {
            let page_size =
                handle.with_database(async |database| Ok(database.settings().buffer.page_size as u64)).wait()?;
            let rate = rate.map(|rate| rate.bytes(page_size).unwrap_or(u64::MAX));
            let settings = backup::settings(Path::new(&directory), None, rate)?;
            let report = handle.backup(settings, |_| {}).wait()?;
            backup::to_text(&report)
        }
        ShellCommand::Call { procedure, parameters } => request::written(&handle.call(&procedure, &parameters).wait()?),
        ShellCommand::Request(request) => {
            let answer = handle.call(request.procedure(), &Request::to_bytes(&request)).wait()?;
            String::from_utf8(answer).expect("these procedures answer with text")
        }
    }))
}
