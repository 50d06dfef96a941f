//! Plans: which hardware to rent for a workload, and how to lay a database out on it.
//!
//! A [`Plan`] is read from a TOML file. It names a workload, a [`Catalogue`] of hardware with prices, [`Limits`], and what may vary;
//! every combination is a [`Candidate`]: a rented machine with its price, a configuration of the database, and a described run of
//! both. This crate runs nothing: the command runs candidates under the virtual clock, and asks here which of them deserve longer
//! runs ([`halving`]) and which make the front of cost against response time ([`front`]). What cannot fit is told before
//! anything runs ([`Unfit`]), by sizes, by losses that must be survived, and by miss-ratio curves.

pub mod candidate;
pub mod catalogue;
pub mod figures;
pub mod front;
pub mod halving;
pub mod limits;
pub mod losses;
mod machine;
mod miniature;
mod read;
mod vary;

#[cfg(test)]
mod tests;

pub use candidate::{Candidate, Refused, Unfit};
pub use catalogue::Catalogue;
pub use figures::Figures;
pub use limits::Limits;
pub use losses::Loss;
pub use machine::{Machine, Place};
pub use read::{EXAMPLE, Plan, PlanError, Search};
