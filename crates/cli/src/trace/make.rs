//! Traces made of something else: published properties, block traces, the other format.

use super::{read, write};
use crate::{Failure, files};
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use workload::trace::{msr, rahm_1991};

/// Generates a trace with the properties that a paper states of its own
#[derive(Args)]
#[command(after_help = "Example:\n  entresol trace generate rahm-1991 rahm.trace")]
pub struct Generate {
    /// The paper
    paper: Paper,
    /// The new file
    out: PathBuf,
    /// Seed of all random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Writes text, not binary
    #[arg(long)]
    text: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Paper {
    /// Section 4.6: a real application with a high share of reads
    #[value(name = "rahm-1991")]
    Rahm1991,
}

/// Imports a block trace that others have published
///
/// It was taken below a buffer: replay it with 'entresol bench trace --below-buffer'.
#[derive(Args)]
#[command(after_help = "Example:\n  entresol trace import msr-cambridge usr_0.csv usr.trace --page-size 4KiB")]
pub struct Import {
    /// The format
    format: Format,
    /// The file to be imported
    file: PathBuf,
    /// The new file
    out: PathBuf,
    /// Bytes per page
    #[arg(long, value_name = "SIZE", default_value = "4 KiB", value_parser = page_size)]
    page_size: u64,
    /// Writes text, not binary
    #[arg(long)]
    text: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    /// Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime (SNIA IOTTA)
    MsrCambridge,
}

/// Writes a trace in the other format or in the same
#[derive(Args)]
#[command(after_help = "Example:\n  entresol trace convert rahm.trace rahm.txt --text")]
pub struct Convert {
    /// The trace
    file: PathBuf,
    /// The new file
    out: PathBuf,
    /// Writes text, not binary
    #[arg(long)]
    text: bool,
}

fn page_size(text: &str) -> Result<u64, String> {
    let bytes = base::units::parse_size(text).map_err(|error| error.to_string())?;
    if bytes.is_power_of_two() && (512..=1 << 20).contains(&bytes) {
        return Ok(bytes);
    }
    Err("not a power of two from 512 B to 1 MiB".to_owned())
}

pub fn generate(arguments: &Generate) -> Result<(), Failure> {
    let trace = match arguments.paper {
        Paper::Rahm1991 => rahm_1991::generate(arguments.seed),
    };
    write(&arguments.out, &trace, arguments.text)
}

pub fn import(arguments: &Import) -> Result<(), Failure> {
    let name = arguments.file.display().to_string();
    let bytes = files::read(&arguments.file)?;
    let trace = match arguments.format {
        Format::MsrCambridge => msr::import(&name, &bytes, arguments.page_size)?,
    };
    write(&arguments.out, &trace, arguments.text)
}

pub fn convert(arguments: &Convert) -> Result<(), Failure> {
    write(&arguments.out, &read(&arguments.file)?, arguments.text)
}
