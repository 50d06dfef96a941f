//! The virtual driver: the seam's operations as a discrete-event simulation on described hardware.
//!
//! A [`Network`] joins several machines, and cuts, delays and breaks their connections where it is told to.
//!
//! A [`VirtualDriver`] times operations by the queueing models of the devices crate and keeps what is written in a
//! [`Media`], which outlives the driver, so that a machine can lose its power and start again on the same contents. A
//! [`FaultPlan`] makes the world hostile: power cuts, failed operations, flipped bits, slow devices. Everything is seeded;
//! the same seed gives the same [`VirtualDriver::event_hash`].
//!
//! ```
//! use driver::{Driver, Op, Token};
//! use entresol_virtual::{Hardware, Media, Options, VirtualDriver};
//!
//! let media = Media::new();
//! let mut driver = VirtualDriver::new(Hardware::ideal(), Options::default(), media.clone());
//! let device = driver.device("disk").expect("the ideal hardware has a disk");
//! driver.submit(Token(1), Op::Open { device, name: "data".to_owned(), create: true });
//! let mut done = Vec::new();
//! driver.park(None, &mut done).expect("an operation is under way");
//! assert_eq!(media.names("disk"), ["data"]);
//! ```

mod effects;
mod faults;
mod file;
mod fresh;
mod media;
mod medium;
mod network;
mod simulation;
mod sparse;
mod unsynced;

pub use faults::{BitFlip, ErrorAt, FaultPlan, Injected, Injury, Slow};
pub use media::{Media, MediaDamage, PowerCut, Survival};
pub use network::{Network, NetworkFaults, NetworkInjected, NetworkOptions, OneWay, Partition, Port};
pub use simulation::{Options, VirtualDriver};

pub use devices::Hardware;

#[cfg(test)]
mod tests;
