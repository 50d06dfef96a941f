//! Experiments on the engine, and the studies that are reproduced with them.
//!
//! An [`Experiment`] is read from a TOML file and names every run that it consists of. The command runs them, on as many cores
//! as there are, and hands back an [`Outcome`] for each. [`Results`] are the input of a report's plots and of a [`Study`],
//! which judges each claim of a paper by them. This crate runs nothing, and reads or writes no file.
//!
//! Claims and plots see results only, so they are tested on prepared ones; threads stay in the command.

pub mod estimate;
pub mod experiment;
pub mod outcome;
pub mod over_tcp;
pub mod plot;
pub mod report;
pub mod study;

mod do_2011;
mod franklin_1992;
mod lee_2008;
mod rahm_1991;
mod system_m_1988;

pub use estimate::Estimate;
pub use experiment::{Experiment, ExperimentError, Extent};
pub use outcome::{Outcome, Results};
pub use study::{Answer, Cell, Claim, Row, STUDIES, Study, Table, Verdict};

/// The configurations that an experiment may name as its `base`, besides files.
const BASES: [(&str, &str); 5] = [
    ("rahm-1991", include_str!("../rahm-1991/base.toml")),
    ("vax-11-785", include_str!("../system-m-1988/base.toml")),
    ("lee-2008", include_str!("../lee-2008/base.toml")),
    ("do-2011", include_str!("../do-2011/base.toml")),
    ("franklin-1992", include_str!("../franklin-1992/base.toml")),
];

/// The text of the base configuration of this name.
pub fn base(name: &str) -> Option<&'static str> {
    BASES.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// The names of the base configurations.
pub fn base_names() -> Vec<&'static str> {
    BASES.iter().map(|(name, _)| *name).collect()
}
