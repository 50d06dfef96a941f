//! The `entresol` command: benchmarks, torture, checks and measurements of the storage engine.

mod backup;
mod bench;
mod calibrate;
mod check;
mod devices;
mod experiment;
mod files;
mod node;
mod opening;
mod plan;
mod predict;
mod progress;
mod report;
mod reproduce;
mod restore;
mod shell;
mod table;
mod torture;
mod trace;

use clap::{Parser, Subcommand};
use entresol::configuration::Configuration;
use std::io::Write;
use std::process::ExitCode;

#[global_allocator]
static HEAP: real_driver::Heap = real_driver::Heap;

/// Why a command failed, in words for the user.
type Failure = Box<dyn std::error::Error>;

/// A transactional storage engine for every floor of the storage hierarchy.
///
/// One engine, two clocks: what runs durably on this machine's disks also runs,
/// unchanged, on described hardware under a virtual clock.
#[derive(Parser)]
#[command(name = "entresol", version, verbatim_doc_comment, after_help = "Example:\n  entresol bench debit-credit")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Backup(backup::Arguments),
    Bench(bench::Arguments),
    Calibrate(calibrate::Arguments),
    Check(check::Arguments),
    Devices(devices::Arguments),
    Experiment(experiment::Arguments),
    Node(node::Arguments),
    Predict(predict::Arguments),
    Plan(plan::Arguments),
    Reproduce(reproduce::Arguments),
    Restore(restore::Arguments),
    Shell(shell::Arguments),
    Torture(torture::Arguments),
    Trace(trace::Arguments),
    /// Prints the configuration file's whole format with all defaults
    #[command(after_help = "Example:\n  entresol configuration > entresol.toml")]
    Configuration,
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => match failure.downcast::<clap::Error>() {
            Ok(usage) => usage.exit(),
            Err(failure) => {
                eprintln!("error: {failure}");
                ExitCode::FAILURE
            }
        },
    }
}

fn run(arguments: Arguments) -> Result<(), Failure> {
    match arguments.command {
        Command::Backup(arguments) => backup::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Calibrate(arguments) => calibrate::run(&arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Devices(arguments) => devices::run(&arguments),
        Command::Experiment(arguments) => experiment::run(&arguments),
        Command::Node(arguments) => node::run(&arguments),
        Command::Predict(arguments) => predict::run(&arguments),
        Command::Plan(arguments) => plan::run(&arguments),
        Command::Reproduce(arguments) => reproduce::run(&arguments),
        Command::Restore(arguments) => restore::run(&arguments),
        Command::Shell(arguments) => shell::run(&arguments),
        Command::Torture(arguments) => torture::run(&arguments),
        Command::Trace(arguments) => trace::run(&arguments),
        Command::Configuration => print(Configuration::reference().trim_end()),
    }
}

/// Prints a result and a line end. A reader that has gone away (`entresol configuration | head`) is no failure.
fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn arguments_are_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_command_shows_an_example() {
        fn visit(command: &mut clap::Command) {
            for help in [command.render_long_help(), command.render_help()] {
                let help = help.to_string().replace("Examples:", "Example:");
                assert!(help.contains("Example:\n  entresol"), "{}", command.get_name());
                for line in help.lines() {
                    assert!(line.chars().count() <= 100, "{line}");
                }
            }
            command.get_subcommands_mut().filter(|sub| sub.get_name() != "help").for_each(visit);
        }
        visit(&mut Arguments::command());
    }

    #[test]
    fn usage_errors_are_told_from_failures() {
        for line in ["bench", "bench debit-credit --seconds 1 --transactions 1", "torture --seeds 3..3", "check", "x"] {
            let words = std::iter::once("entresol").chain(line.split(' '));
            let error = Arguments::try_parse_from(words).err().unwrap_or_else(|| panic!("{line} was accepted"));
            assert_eq!(error.exit_code(), 2, "{line}");
        }
    }
}
