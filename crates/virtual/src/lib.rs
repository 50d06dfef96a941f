//! The virtual driver: the seam's operations as a discrete-event simulation on described hardware.
//!
//! A [`VirtualDriver`] times operations by the queueing models of the devices crate and keeps what is written in a
//! [`Media`], which outlives the driver, so that a machine can lose its power and start again on the same contents. A
//! [`FaultPlan`] makes the world hostile: power cuts, failed operations, flipped bits, slow devices. Everything is seeded;
//! the same seed gives the same [`VirtualDriver::event_hash`].

mod effects;
mod faults;
mod file;
mod media;
mod simulation;
mod sparse;
mod unsynced;

pub use faults::{BitFlip, ErrorAt, FaultPlan, Injected, Slow};
pub use media::{Media, PowerCut, Survival};
pub use simulation::{Options, VirtualDriver};

pub use devices::Hardware;

#[cfg(test)]
mod tests;
