//! `filesystem-torture`: cuts and kills the engine on a file system in user space, and holds what is left against what it said.

use clap::{Parser, Subcommand, ValueEnum};
use filesystem::{Backend, Mounted, Options, Orders};
use std::process::ExitCode;

#[derive(Parser)]
#[command(about)]
struct Arguments {
    #[command(subcommand)]
    process: Option<Process>,
    /// How many processes come to an end.
    #[arg(long, default_value_t = 200)]
    cuts: u64,
    /// The way to the kernel; both, one after the other, if left out.
    #[arg(long)]
    backend: Option<Way>,
    /// Draws all plans.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Subcommand)]
enum Process {
    /// Is one of the processes.
    #[command(hide = true)]
    Process {
        backend: Way,
        directory: String,
        name: String,
        seed: u64,
        opening: u64,
        #[arg(action = clap::ArgAction::Set)]
        existing: bool,
        #[arg(action = clap::ArgAction::Set)]
        looks: bool,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum Way {
    IoUring,
    ThreadPool,
}

impl From<Way> for Backend {
    fn from(way: Way) -> Backend {
        match way {
            Way::IoUring => Backend::IoUring,
            Way::ThreadPool => Backend::ThreadPool,
        }
    }
}

fn main() -> ExitCode {
    let Arguments { process, cuts, backend, seed } = Arguments::parse();
    if let Some(Process::Process { backend, directory, name, seed, opening, existing, looks }) = process {
        filesystem::process(&Orders { backend: backend.into(), directory, name, seed, opening, existing, looks });
        return ExitCode::SUCCESS;
    }
    let ways = backend.map_or_else(|| vec![Way::IoUring, Way::ThreadPool], |way| vec![way]);
    ways.into_iter()
        .fold(ExitCode::SUCCESS, |code, way| if torture(way.into(), seed, cuts) { code } else { ExitCode::FAILURE })
}

/// The number of ends from which on a run must meet every fault.
const LONG: u64 = 200;

fn torture(backend: Backend, seed: u64, cuts: u64) -> bool {
    if !backend.is_available() {
        println!(
            "{}: not on this machine, so nothing is shown of it; name the other one with --backend",
            backend.name()
        );
        return false;
    }
    let volume = match Mounted::new(seed) {
        Ok(volume) => volume,
        Err(error) => {
            println!("no file system in user space can be mounted here: {error}");
            return false;
        }
    };
    let program = std::env::current_exe().expect("this program has a file");
    let done = filesystem::run(&Options { program, backend, seed, cuts }, &volume, |summary| {
        println!("{}: {} of {cuts} cuts", backend.name(), summary.kills + summary.power_cuts);
    });
    match done {
        Ok(summary) => {
            println!("{}: {summary}", backend.name());
            let missing = summary.missing();
            let is_long = cuts >= LONG;
            if is_long && !missing.is_empty() {
                println!("never met: {}", missing.join(", "));
            }
            !is_long || missing.is_empty()
        }
        Err(failure) => {
            println!("{}: {failure}", backend.name());
            false
        }
    }
}
