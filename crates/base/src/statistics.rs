//! What runs report: response-time histograms, batch means with confidence intervals, time-weighted averages.

mod batch_means;
mod histogram;
mod station;
mod time_weighted;

pub use batch_means::{BatchMeans, Interval};
pub use histogram::Histogram;
pub use station::StationReport;
pub use time_weighted::TimeWeighted;
