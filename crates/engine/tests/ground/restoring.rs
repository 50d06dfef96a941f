// Databases with an archive of the log, and what is restored from it.

use entresol_engine::catalog::{Locking, Organization};
use entresol_engine::checkpoint::Policy;
use entresol_engine::{
    BackupSettings, PartitionSpec, RestoreArchive, RestoreSource, RestoreTarget, Settings, buffer, log,
};

/// Of a database whose log is archived.
pub fn settings() -> Settings {
    Settings {
        buffer: buffer::Settings { frames: 60, page_size: 1024, ..buffer::Settings::default() },
        log: log::Settings { capacity: 512 << 10, archive: Some("archive".into()), ..log::Settings::default() },
        checkpoint: Policy { log_bytes: Some(64 << 10), interval_ns: None },
        ..Settings::default()
    }
}

/// Of a database that was restored: it is another one, and not archived.
pub fn plain() -> Settings {
    Settings { log: log::Settings { archive: None, ..settings().log }, ..settings() }
}

/// A backup and the archive, up to a target.
pub fn to(target: RestoreTarget) -> RestoreSource {
    RestoreSource { backup: "backup".into(), archive: Some(RestoreArchive { archive: "archive".into(), target }) }
}

/// Where what is behind an increment on the full backup in "next" can be restored from: that and the archive, the increment and
/// the archive, and the increment alone, which has less.
pub fn behind_increment() -> [RestoreSource; 3] {
    let all = to(RestoreTarget::End);
    [RestoreSource { backup: "next".into(), ..all.clone() }, all.clone(), RestoreSource { archive: None, ..all }]
}

/// A full backup.
pub fn backup() -> BackupSettings {
    BackupSettings { target: "backup".into(), base: None, bytes_per_second: None }
}

/// A set with small segments.
pub fn set(name: &str) -> PartitionSpec {
    let organization = Organization::Set { arrivals: false, segment_size: 16 << 10, reserve_percent: 10 };
    PartitionSpec::new(name, organization, Locking::Record)
}
