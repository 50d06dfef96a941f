//! The described machines and devices that a configuration may name: those that come with Entresol, and files.

use super::error::Problem;
use devices::{Device, Hardware, HardwareError};
use std::path::Path;

/// The machines that come with Entresol, by name.
pub(super) fn machines() -> Vec<&'static str> {
    Hardware::names().collect()
}

/// The described devices of these machines, by the names that [`description`] takes.
pub(super) fn descriptions() -> Vec<String> {
    let mut names = Vec::new();
    for machine in Hardware::names().filter_map(|name| Hardware::named(name).ok()) {
        match machine.devices.len() {
            1 => names.push(machine.name),
            _ => names.extend(machine.devices.keys().map(|device| format!("{}:{device}", machine.name))),
        }
    }
    names
}

/// The machine of this name, or described in the file of this path (which ends in `.toml`) from `directory`.
pub(super) fn machine(name: &str, directory: &Path) -> Result<Hardware, Problem> {
    let failure = |reason: String| Problem::BadDescription { name: name.to_owned(), reason };
    let hardware = if name.ends_with(".toml") {
        let text = read(&directory.join(name)).map_err(failure)?;
        Hardware::parse(&text, name).map_err(|error| failure(one_line(error)))?
    } else {
        Hardware::named(name).map_err(|_| Problem::NoSuch { what: "hardware", name: name.to_owned() })?
    };
    if hardware.devices.is_empty() {
        return Err(failure("it has no device".to_owned()));
    }
    Ok(hardware)
}

/// The device `MACHINE:DEVICE`, or `MACHINE` if that has but one.
pub(super) fn description(name: &str, directory: &Path) -> Result<Device, Problem> {
    let no_such = |_| Problem::NoSuch { what: "described device", name: name.to_owned() };
    if let Some((machine_name, device)) = name.split_once(':') {
        let mut machine = machine(machine_name, directory).map_err(|problem| renamed(problem, no_such))?;
        return machine.devices.remove(device).ok_or(()).map_err(no_such);
    }
    let mut machine = machine(name, directory).map_err(|problem| renamed(problem, no_such))?;
    if machine.devices.len() > 1 {
        let names: Vec<String> = machine.devices.keys().map(|device| format!("{name}:{device}")).collect();
        let reason = format!("it has several devices: {}", names.join(", "));
        return Err(Problem::BadDescription { name: name.to_owned(), reason });
    }
    Ok(machine.devices.pop_first().expect("a machine has a device").1)
}

/// A machine that does not exist is, to a caller who asked for a device, a device that does not exist.
fn renamed(problem: Problem, no_such: impl Fn(()) -> Problem) -> Problem {
    if matches!(problem, Problem::NoSuch { .. }) { no_such(()) } else { problem }
}

fn read(file: &Path) -> Result<String, String> {
    let bytes = super::read_file(file).map_err(|error| error.to_string())?;
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_owned())
}

/// What is wrong with a description, in one line.
fn one_line(error: HardwareError) -> String {
    match error {
        HardwareError::Text { line: Some(line), message, .. } => {
            format!("line {line}: {}", message.lines().last().unwrap_or_default())
        }
        other => other.to_string(),
    }
}
