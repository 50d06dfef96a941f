//! Multiversion reads: what readers of a moment see, on pages and in sets, through the version store.

mod loading;
mod long_values;
mod portions;
mod read;
mod views;

pub(crate) use loading::LoadInProgress;
pub(crate) use long_values::keep_long_values;
pub use portions::{FoundInSet, SetPortion};
pub(crate) use portions::{STEPS_MAX, index_portion_at, portion_at};
pub(crate) use read::{appended_in, object_at, read_at, rest, scan_set_at};
pub(crate) use views::{ReadView, enter_reader, enter_snapshot, keep_moments, leave_reader};
