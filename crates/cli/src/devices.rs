//! `entresol devices`: the described hardware.

use crate::table::{table, wrapped};
use crate::{Failure, print};
use ::devices::{Device, Direction, Hardware, ReadWrite, Stage};
use base::units::{format_duration_ns, grouped_decimal};
use clap::{Args, Subcommand};

/// Lists described hardware; 'entresol calibrate' describes this machine
#[derive(Args)]
#[command(arg_required_else_help = true, after_help = "Example:\n  entresol devices list")]
pub struct Arguments {
    #[command(subcommand)]
    command: DevicesCommand,
}

#[derive(Subcommand)]
enum DevicesCommand {
    /// Lists the hardware that 'hardware' and 'described' may name in a configuration
    #[command(after_help = "Example:\n  entresol devices list")]
    List,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.command {
        DevicesCommand::List => print(&list()),
    }
}

/// Every described device with the time of one access that meets no other.
fn list() -> String {
    let mut rows = Vec::new();
    for hardware in Hardware::names().filter_map(|name| Hardware::named(name).ok()) {
        let cpus = hardware
            .cpu
            .as_ref()
            .map_or("no cost".to_owned(), |cpu| format!("{} x {} MIPS", cpu.count, grouped_decimal(cpu.mips, 0)));
        if hardware.devices.is_empty() {
            rows.push(vec![
                hardware.name.clone(),
                cpus.clone(),
                "none".to_owned(),
                String::new(),
                String::new(),
                String::new(),
            ]);
        }
        for (index, (name, device)) in hardware.devices.iter().enumerate() {
            let [machine, cpus] = if index == 0 { [hardware.name.clone(), cpus.clone()] } else { Default::default() };
            let directions = [Direction::Read, Direction::Write { durable: false }, Direction::Write { durable: true }];
            let times = directions.map(|direction| format_duration_ns(access_ns(device, direction)));
            rows.push([machine, cpus, name.clone()].into_iter().chain(times).collect());
        }
    }
    let header = ["hardware", "CPUs", "device", "4 KiB read", "write", "durable write"];
    let legend = "Mean times of one random access to an idle device. A machine is named by hardware = \"NAME\" or --hardware \
                  NAME; one of its devices by described = \"NAME:DEVICE\".";
    format!("{}\n\n{}", table(&header, 3, rows), wrapped(legend))
}

/// The mean time of a random 4 KiB access without queueing.
fn access_ns(device: &Device, direction: Direction) -> f64 {
    fn of<T>(pair: &ReadWrite<T>, direction: Direction) -> &T {
        if direction == Direction::Read { &pair.read } else { &pair.write }
    }
    let stage_ns = |(_, stage): (_, &Stage)| match &stage.concurrency {
        Some(tables) if direction == Direction::Read => tables.time_ns(&tables.read, 1, 0),
        Some(tables) => tables.time_ns(&tables.write, 0, 1),
        None => {
            let transfer_ns = stage.bandwidth.map_or(0.0, |pair| 4096.0 * 1e9 / of(&pair, direction).0);
            of(&stage.service, direction).mean_ns() + transfer_ns
        }
    };
    let stages_ns: f64 = device.stages().map(stage_ns).sum();
    match direction {
        Direction::Write { durable: true } => stages_ns + device.durable_write_law().mean_ns(),
        _ => stages_ns,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn figures_fit_the_width() {
        assert!(list().lines().all(|line| line.chars().count() <= 100), "{}", list());
    }

    #[test]
    fn listed_names_can_be_used() {
        let text = list();
        for name in Hardware::names() {
            assert!(text.contains(name), "{name} in {text}");
        }
        // The unqueued accesses of Rahm 1991, table 4.1.
        let rahm = Hardware::named("rahm-1991").unwrap();
        for (device, us) in [("disk", 16_400), ("log-disk", 6_400), ("ssd", 1_400), ("nvem", 50)] {
            assert_eq!(access_ns(&rahm.devices[device], Direction::Read), f64::from(us) * 1e3, "{device}");
        }
    }
}
