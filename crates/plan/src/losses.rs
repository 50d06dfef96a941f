//! Losses, and what survives them by where a configuration puts things.

use crate::Machine;
use entresol::configuration::{Acknowledged, Configuration};
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt;

/// What may happen to a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Loss {
    /// The process or the system ends; all devices keep what was durable.
    Crash,
    /// The instance stops and another takes its place: its own drives are lost, volumes are not.
    InstanceStop,
    /// Any one of the devices that hold the log is lost, and no other.
    LogDevice,
}

impl Loss {
    /// Every loss with the word that a plan has for it.
    pub const WORDS: [(&str, Loss); 3] =
        [("crash", Loss::Crash), ("instance-stop", Loss::InstanceStop), ("log-device", Loss::LogDevice)];

    /// The word for it.
    pub fn word(self) -> &'static str {
        Loss::WORDS.iter().find(|(_, loss)| *loss == self).map_or("", |(word, _)| word)
    }
}

/// Why not every acknowledged transaction survives a loss.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotSurvived {
    /// Commits are acknowledged before the log is durable.
    NotDurable,
    /// The device holds pages that are nowhere else.
    Pages(String),
    /// The device holds log that is nowhere else, or not yet.
    Log(String),
    /// The device holds writes that count as durable, and are nowhere else yet.
    WriteBuffer(String),
    /// There is one device for the log.
    OneLogDevice(String),
}

impl fmt::Display for NotSurvived {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotSurvived::NotDurable => write!(f, "commits are acknowledged before the log is durable"),
            NotSurvived::Pages(device) => write!(f, "'{device}' has the only copy of pages"),
            NotSurvived::Log(device) => write!(f, "'{device}' has the only copy of acknowledged log"),
            NotSurvived::WriteBuffer(device) => write!(f, "the write buffer on '{device}' has the only copy of writes"),
            NotSurvived::OneLogDevice(device) => write!(f, "the log is on '{device}' alone"),
        }
    }
}

/// Whether every acknowledged transaction survives the loss. A cache, versions and temporary space are never the only copy: what
/// a cache alone had is made again from the log.
///
/// # Errors
/// What is lost, and where.
pub fn survives(configuration: &Configuration, machine: &Machine, loss: Loss) -> Result<(), NotSurvived> {
    let log = &configuration.log;
    if !log.durable {
        return Err(NotSurvived::NotDurable);
    }
    let lost = |device: &str| machine.places.get(device).is_some_and(|place| place.is_local);
    let pages = pages(configuration);
    let buffers_writes = configuration.write_buffer.as_ref().map(|buffer| &buffer.device);
    let log_devices: Vec<&String> = std::iter::once(&log.device).chain(&log.second_device).collect();
    match loss {
        Loss::Crash => Ok(()),
        Loss::InstanceStop => {
            if let Some(device) = pages.iter().find(|device| lost(device)) {
                return Err(NotSurvived::Pages(device.clone()));
            }
            if let Some(device) = buffers_writes.filter(|device| lost(device)) {
                return Err(NotSurvived::WriteBuffer(device.clone()));
            }
            let has_all = log.second_device.is_none() || log.acknowledged == Acknowledged::Both;
            match log_devices.iter().find(|device| lost(device)) {
                Some(device) if !has_all || log_devices.iter().all(|device| lost(device)) => {
                    Err(NotSurvived::Log((*device).clone()))
                }
                _ => Ok(()),
            }
        }
        Loss::LogDevice => {
            if log.second_device.as_ref().is_none_or(|second| *second == log.device) {
                return Err(NotSurvived::OneLogDevice(log.device.clone()));
            }
            if log.acknowledged != Acknowledged::Both {
                return Err(NotSurvived::Log(log.device.clone()));
            }
            let both = log_devices.iter().find(|device| pages.contains(**device) || buffers_writes == Some(**device));
            both.map_or(Ok(()), |device| Err(NotSurvived::Pages((*device).clone())))
        }
    }
}

/// The devices that hold partitions, or may come to hold some.
pub(crate) fn pages(configuration: &Configuration) -> BTreeSet<String> {
    let named = configuration.partitions.values().map(|partition| partition.device.clone());
    named.chain([configuration.partition("").device]).collect()
}
