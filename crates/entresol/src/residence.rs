//! Noting which pages a database on this machine has in memory, and bringing them back.

use crate::configuration::Configuration;
use base::time::SECOND_NS;
use engine::Database;
use executor::WholeExecutor;
use std::cell::Cell;
use std::rc::Rc;

/// How often it is noted, in nanoseconds.
const INTERVAL_NS: u64 = 60 * SECOND_NS;
/// No closing waits longer for it.
const NOTING_NS_MAX: u64 = 5 * SECOND_NS;

/// Whether what is in memory is to be noted at the end: not while that is brought back which was noted, or a short opening would leave a
/// note of the little that it has come to.
pub(crate) type IsNoted = Rc<Cell<bool>>;

/// Keeps the note of a database on this machine; a described one has none.
pub(crate) fn begin(database: &Database, configuration: &Configuration) -> IsNoted {
    let (is_real, warm) = (configuration.hardware.is_none(), configuration.buffer.warm);
    let is_noted = Rc::new(Cell::new(is_real && !warm));
    if is_real {
        drop(database.executor().whole().of_library().spawn(keep(database.clone(), warm, Rc::clone(&is_noted))));
    }
    is_noted
}

/// Brings back what was noted, if `warm`; then notes again and again, until that fails: it is no part of the database, and nothing but
/// the warmth of another opening depends on it.
async fn keep(database: Database, warm: bool, is_noted: IsNoted) {
    if warm {
        let _read = database.warm_as_noted().await;
        is_noted.set(true);
    }
    loop {
        database.executor().sleep_ns(INTERVAL_NS).await;
        if database.note_residence().await.is_err() {
            return;
        }
    }
}

/// Notes it once more, at the end, if `is_noted`.
pub(crate) async fn note(database: &Database, is_noted: &IsNoted) {
    if !is_noted.get() {
        return;
    }
    let _noted = database.executor().within(NOTING_NS_MAX, database.note_residence()).await;
}
