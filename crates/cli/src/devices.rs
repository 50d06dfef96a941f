//! `entresol devices`: the described hardware, and descriptions of real devices by measurement.

use crate::progress::Progress;
use crate::table::{table, wrapped};
use crate::{Failure, print};
use ::devices::{Device, Direction, Hardware, ReadWrite, Stage};
use base::units::{format_duration_ns, format_size, grouped, grouped_decimal, parse_size};
use clap::{Args, Subcommand};
use real_driver::{MeasureOptions, Measurement, Point, measure};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Lists described hardware, or describes a real device by measuring it
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
    Measure(Measure),
}

/// Measures the device that holds a directory and writes its description
///
/// Reads, writes, durable writes and syncs are timed by size and by number in flight, in a
/// temporary file that is removed at the end. 'hardware' and 'described' in a configuration
/// may name the description.
#[derive(Args)]
#[command(verbatim_doc_comment, after_help = "Example:\n  entresol devices measure /mnt/nvme --output nvme.toml")]
struct Measure {
    /// A directory on the device
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// Writes the description to this file; else it is printed below the figures
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Name of the device in the description
    #[arg(long, default_value = "disk", value_parser = device_name)]
    name: String,
    /// How long to measure; making the file comes on top
    #[arg(long, value_name = "S", default_value_t = 27.0, value_parser = crate::bench::positive)]
    seconds: f64,
    /// Size of the temporary file, beyond the device's cache
    #[arg(long, value_name = "SIZE", default_value = "1 GiB", value_parser = file_size)]
    size: u64,
    /// Prints the figures and the description as JSON
    #[arg(long)]
    json: bool,
}

fn device_name(text: &str) -> Result<String, String> {
    if entresol::configuration::is_name(text) {
        return Ok(text.to_owned());
    }
    Err("a name is 1 to 64 of the characters a-z A-Z 0-9 _ -, a letter first".to_owned())
}

/// A whole number of the largest transfers that are measured.
fn file_size(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text).map_err(|error| error.to_string())?;
    if bytes == 0 || !bytes.is_multiple_of(1 << 20) {
        return Err("the file's size is a multiple of 1 MiB".to_owned());
    }
    Ok(bytes)
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.command {
        DevicesCommand::List => print(&list()),
        DevicesCommand::Measure(arguments) => run_measure(arguments),
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

fn run_measure(arguments: &Measure) -> Result<(), Failure> {
    let path = arguments.path.display();
    if !arguments.path.is_dir() {
        return Err(format!("'{path}' is not a directory; name a directory on the device to be measured").into());
    }
    if let Some(output) = &arguments.output {
        check_output(output)?;
    }
    let options =
        MeasureOptions { seconds: arguments.seconds, file_bytes: arguments.size, ..MeasureOptions::default() };
    let progress = Progress::start("devices measure");
    progress.phase("writing the file", 0);
    let measurement = measure(&arguments.path, &options, |state| {
        if state.done == 1 {
            progress.phase("measuring", state.total as u64);
        }
        progress.advance_to(state.done as u64);
    })
    .map_err(|fault| format!("'{path}' cannot be measured: {fault}"))?;
    progress.finish();
    let description = measurement.description(&arguments.name);
    if let Some(output) = &arguments.output {
        write(output, &description)?;
    }
    if arguments.json {
        return print(&to_json(&measurement, &description));
    }
    let rest = match &arguments.output {
        Some(output) => format!("The description is in '{}'.", output.display()),
        None => description,
    };
    print(&format!("{}\n\n{}", to_text(&measurement), rest.trim_end()))
}

/// Refuses early what could not be written after a long measurement.
fn check_output(output: &Path) -> Result<(), Failure> {
    let parent = output.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let writable = parent.metadata().is_ok_and(|metadata| metadata.is_dir() && !metadata.permissions().readonly());
    if output.is_dir() || !writable {
        return Err(format!("'{}' cannot be written", output.display()).into());
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "a command's result goes into the file that the user names")]
fn write(output: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(output, text).map_err(|error| format!("'{}' cannot be written: {error}", output.display()).into())
}

fn to_text(measurement: &Measurement) -> String {
    let mut depths: Vec<u32> = measurement.points.iter().map(|point| point.depth).collect();
    depths.sort_unstable();
    depths.dedup();
    let header = |title: &'static str| -> Vec<String> {
        let in_flight = depths.iter().map(|depth| format!("{depth} in flight"));
        [title.to_owned(), "size".to_owned()].into_iter().chain(in_flight).collect()
    };
    let by_depth = |title, cell: fn(&Point) -> String| {
        let header = header(title);
        let header: Vec<&str> = header.iter().map(String::as_str).collect();
        let rows = measurement.points.chunk_by(|a, b| (a.probe, a.size) == (b.probe, b.size)).map(|points| {
            let cell_at = |depth: &u32| points.iter().find(|point| point.depth == *depth).map_or(String::new(), cell);
            let start = [points[0].probe.to_string(), format_size(points[0].size.into())];
            start.into_iter().chain(depths.iter().map(cell_at)).collect()
        });
        table(&header, 1, rows)
    };
    let latency = |point: &Point| {
        let [half, most] = [point.p50_ns, point.p99_ns].map(|ns| grouped_decimal(ns as f64 / 1e3, 0));
        format!("{half} / {most}")
    };
    let rate = |point: &Point| grouped(point.operations_per_second.round() as u64);
    let sequential = [&measurement.sequential_read, &measurement.sequential_write].map(|point| {
        let rate = format!("{}/s", format_size(point.bytes_per_second.round() as u64));
        vec![point.probe.to_string(), format_size(point.size.into()), rate]
    });
    [
        wrapped(&measurement.driver),
        by_depth("us: 50 % / 99 %", latency),
        by_depth("per second", rate),
        table(&["", "size", "bandwidth"], 1, sequential),
    ]
    .join("\n\n")
}

fn to_json(measurement: &Measurement, description: &str) -> String {
    let point = |point: &Point| -> Value {
        json!({
            "probe": point.probe.to_string(),
            "size": point.size,
            "depth": point.depth,
            "operations": point.operations,
            "mean_us": point.mean_ns / 1e3,
            "p50_us": point.p50_ns as f64 / 1e3,
            "p99_us": point.p99_ns as f64 / 1e3,
            "operations_per_s": point.operations_per_second,
            "bytes_per_s": point.bytes_per_second,
            "cpu_us": point.cpu_ns_mean / 1e3,
        })
    };
    let sequential = [&measurement.sequential_read, &measurement.sequential_write];
    let value = json!({
        "driver": measurement.driver,
        "file_bytes": measurement.file_bytes,
        "points": measurement.points.iter().chain(sequential).map(point).collect::<Vec<_>>(),
        "description": description,
    });
    format!("{value:#}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use real_driver::Probe;

    fn measurement() -> Measurement {
        let point = |probe, size, depth| Point {
            probe,
            size,
            depth,
            operations: 1_000,
            mean_ns: 101_000.0,
            p50_ns: 99_400,
            p99_ns: 123_456_789,
            operations_per_second: 9_876.5,
            bytes_per_second: 1.3e9,
            cpu_ns_mean: 4_000.0,
        };
        let mut points = Vec::new();
        for probe in Probe::RANDOM {
            for size in MeasureOptions::default().sizes {
                points.extend(MeasureOptions::default().depths.into_iter().map(|depth| point(probe, size, depth)));
            }
        }
        Measurement {
            driver: "io_uring".to_owned(),
            traits: driver::DeviceTraits { atomic_write: 4096, alignment: 512, synchronous: false, durable: true },
            file_bytes: 1 << 30,
            points,
            sequential_read: point(Probe::SequentialRead, 1 << 20, 8),
            sequential_write: point(Probe::SequentialWrite, 1 << 20, 8),
        }
    }

    #[test]
    fn figures_fit_the_width() {
        for text in [to_text(&measurement()), list()] {
            assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        }
        let text = to_text(&measurement());
        assert!(text.contains("128 in flight") && text.contains("99 / 123,457") && text.contains("9,877"), "{text}");
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

    #[test]
    fn descriptions_are_hardware() {
        let measurement = measurement();
        let json: Value = serde_json::from_str(&to_json(&measurement, &measurement.description("disk"))).unwrap();
        let hardware = Hardware::parse(json["description"].as_str().unwrap(), "measured").unwrap();
        assert!(hardware.devices.contains_key("disk"));
        assert_eq!(json["points"].as_array().unwrap().len(), 4 * 5 * 4 + 2);
        assert_eq!(json["points"][0]["p50_us"], 99.4);
    }

    #[test]
    fn sizes_and_names_are_checked() {
        assert_eq!(file_size("64 MiB"), Ok(64 << 20));
        assert!(file_size("0 B").is_err() && file_size("1.5 KiB").is_err() && file_size("big").is_err());
        assert!(device_name("nvme-0").is_ok() && device_name("../x").is_err());
        assert!(check_output(Path::new("/no/such/place.toml")).is_err() && check_output(Path::new("/")).is_err());
        assert!(check_output(Path::new("place.toml")).is_ok());
    }
}
