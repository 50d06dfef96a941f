//! `entresol trace`: making, looking at and converting database traces.

mod make;
mod miss_ratio;
mod record;
mod stat;

pub use record::Recording;

use crate::{Failure, files, print};
use clap::{Args, Subcommand};
use std::path::{Path, PathBuf};
use workload::trace::Trace;

/// Records, generates, imports, shows and converts database traces
///
/// A trace says of each transaction its type and its references, in order. Text and binary
/// traces are told apart by their content; 'entresol bench trace' replays both.
#[derive(Args)]
#[command(
    verbatim_doc_comment,
    arg_required_else_help = true,
    after_help = "Examples:\n  entresol trace generate rahm-1991 rahm.trace\n  entresol trace stat rahm.trace"
)]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    Record(Box<record::Arguments>),
    Generate(make::Generate),
    Import(make::Import),
    Show(Show),
    Stat(stat::Arguments),
    MissRatio(miss_ratio::Arguments),
    Convert(make::Convert),
}

/// Prints the first transactions of a trace as text
#[derive(Args)]
#[command(after_help = "Example:\n  entresol trace show rahm.trace --transactions 3")]
struct Show {
    /// The trace
    file: PathBuf,
    /// How many transactions
    #[arg(long, value_name = "N", default_value_t = 10)]
    transactions: usize,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.action {
        Action::Record(arguments) => record::run(arguments),
        Action::Generate(arguments) => make::generate(arguments),
        Action::Import(arguments) => make::import(arguments),
        Action::Show(arguments) => show(arguments),
        Action::Stat(arguments) => stat::run(arguments),
        Action::MissRatio(arguments) => miss_ratio::run(arguments),
        Action::Convert(arguments) => make::convert(arguments),
    }
}

/// Reads a trace in either format.
pub fn read(path: &Path) -> Result<Trace, Failure> {
    Ok(Trace::read(&path.display().to_string(), &files::read(path)?)?)
}

/// Writes a trace into a new file.
fn write(path: &Path, trace: &Trace, text: bool) -> Result<(), Failure> {
    let bytes = if text { trace.to_text().into_bytes() } else { trace.to_binary() };
    files::create(path, &bytes)
}

fn show(arguments: &Show) -> Result<(), Failure> {
    let mut trace = read(&arguments.file)?;
    trace.truncate(arguments.transactions);
    print(trace.to_text().trim_end())
}
