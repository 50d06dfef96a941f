//! The write-ahead log: records, log pages, group commit, scanning after a crash.

pub mod record;
