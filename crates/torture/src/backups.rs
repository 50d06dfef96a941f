//! Backups that are taken beside the clients, and databases that are made from them: each has what was committed when its backup
//! ended and nothing else, whatever was done meanwhile; and what is no whole backup is never taken for one.

mod client;
mod past;
mod restore;
mod taken;
mod throttled;

pub use client::client;
pub use past::Past;
pub use restore::{Flaw, Restored, is_no_backup, lose, restore};
pub use taken::{Ended, Taken};
pub use throttled::ThrottledTime;

use base::Random;

/// The devices that backups go to, one each.
pub const PLACES: [&str; 3] = ["backup-0", "backup-1", "backup-2"];

/// The device that the log is archived on.
pub const ARCHIVE: &str = "archive";

/// Whether backups or the archive go to this device, which is not lost with the others.
pub fn is_place(device: &str) -> bool {
    device == ARCHIVE || PLACES.contains(&device)
}

/// Where the log of every other such seed is archived.
pub fn archive(seed: u64) -> Option<String> {
    Random::stream(seed, "log archive").chance(0.5).then(|| ARCHIVE.to_owned())
}

/// Whether a seed's database is backed up: that of every tenth.
pub fn are_taken(seed: u64) -> bool {
    Random::stream(seed, "backups taken").chance(0.1)
}
