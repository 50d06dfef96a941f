//! What is said of the log: where it is, how it is written, and why.

use base::units::format_duration_ns;
use engine::log::SyncMethod;
use engine::{Database, Internals};

/// The log's device, its way of writing, and what was measured of it.
pub fn describe(database: &Database) -> String {
    let settings = database.log().settings();
    let method = match settings.method() {
        _ if !settings.durable => "writes that no transaction waits for, synced within a second",
        SyncMethod::SyncWrite => "data-sync writes",
        SyncMethod::WriteThenSync => "writes, and a sync after them",
    };
    let mut text = format!(
        "log on device '{}': {method}, up to {} at once",
        database.settings().log_device,
        database.log().writes_in_flight_max()
    );
    if let Some(second) = database.second_log() {
        let first = &database.settings().log_device;
        let names = [first, &second.device];
        text += &match second.lost {
            None if second.both => format!("; a copy on device '{}', durable when both have it", second.device),
            None => format!("; a copy on device '{}', durable when the first of the two has it", second.device),
            Some(lost) => {
                let [lost, other] = [lost, 1 - lost].map(|index| names[usize::from(index)]);
                format!("; of two copies that on device '{lost}' was lost, it goes on on '{other}'")
            }
        };
    }
    if let Some(measured) = database.log_measured() {
        let [sync_write, write_then_sync, together] =
            [measured.sync_write_ns, measured.write_then_sync_ns, measured.together_ns]
                .map(|ns| format_duration_ns(ns as f64));
        text += &format!(
            "; at its creation one alone took {sync_write}, one with a sync after it {write_then_sync}, four at once \
             {together}"
        );
    }
    text
}
