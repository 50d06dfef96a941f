//! Noting which pages a database on this machine has in memory, and bringing them back.

use crate::configuration::Configuration;
use base::time::SECOND_NS;
use engine::Database;

/// How often it is noted, in nanoseconds.
const INTERVAL_NS: u64 = 60 * SECOND_NS;
/// No closing waits longer for it.
const NOTING_NS_MAX: u64 = 5 * SECOND_NS;

/// Keeps the note of a database on this machine; a described one has none.
pub(crate) fn begin(database: &Database, configuration: &Configuration) {
    if configuration.hardware.is_none() {
        drop(database.executor().spawn(keep(database.clone(), configuration.buffer.warm)));
    }
}

/// Brings back what was noted, if `warm`; then notes again and again, until that fails: it is no part of the database, and nothing but
/// the warmth of another opening depends on it.
async fn keep(database: Database, warm: bool) {
    if warm {
        let _read = database.warm_as_noted().await;
    }
    loop {
        database.executor().sleep_ns(INTERVAL_NS).await;
        if database.note_residence().await.is_err() {
            return;
        }
    }
}

/// Notes it once more, at the end, on this machine.
pub(crate) async fn note(database: &Database, is_real: bool) {
    if !is_real {
        return;
    }
    let _noted = database.executor().within(NOTING_NS_MAX, database.note_residence()).await;
}
