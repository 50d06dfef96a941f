//! What several tests stand on.

pub mod archived;
pub mod backups;
pub mod building;
pub mod cached;
pub mod compacting;
pub mod copies;
pub mod cut_machine;
#[allow(unused_imports, reason = "examples use more of it")]
pub mod database;
pub mod failing_reads;
pub mod flash_cache;
pub mod holding;
pub mod kept;
pub mod kinds;
pub mod losers;
pub mod machine;
pub mod planting;
pub mod restoring;
pub mod shipments;
pub mod things;
