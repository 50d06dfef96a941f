//! Described hardware and the queueing models that stand for it: CPUs, disks, solid-state disks, non-volatile extended
//! memory, networks.
//!
//! A [`Hardware`] is a description, read from TOML; a [`Machine`] is the running model of one, a discrete-event simulation of
//! queues under a virtual clock. The models know neither the meaning of the transferred bytes nor the requester.

mod cache;
mod calendar;
mod cold_caches;
mod concurrency;
mod concurrent;
mod cpus;
mod fields;
mod hardware;
mod law;
mod limit;
mod machine;
mod network;
mod queue;
mod sharing;
mod station;
pub mod theory;
mod unit;

pub use base::statistics::StationReport;
pub use cache::{Cache, CacheCounts, CacheKind, CacheSize};
pub use calendar::Calendar;
pub use cold_caches::ColdCaches;
pub use concurrency::{Concurrency, Laws, Times, Together};
pub use cpus::Class;
pub use fields::{Assignment, Bandwidth, Discipline, ReadWrite, Servers, WriteCache};
pub use hardware::{
    CALIBRATION_VERSION, Cpu, Device, Hardware, HardwareError, Instructions, Pauses, Stage, StageDiscipline,
};
pub use law::Law;
pub use limit::{Limit, Limited};
pub use machine::{EventCounts, JobId, Machine};
pub use network::{LOOPBACK, Medium, Network, PacketId, Wires};
pub use unit::{Direction, Transfer};

#[cfg(test)]
mod tests;
