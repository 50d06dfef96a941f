//! What transactions have left that the database itself has to do before its pages are served.

use base::time::{MILLISECOND_NS, SECOND_NS};
use engine::canary::{self, Canary};
use engine::{Database, Internals};
use executor::WholeExecutor;

/// How long it is waited while nothing of that gets on, in nanoseconds.
const STILL_NS_MAX: u64 = 60 * SECOND_NS;

/// Waits until the database changes nothing by itself: it would not ask the nodes that have copies.
pub(super) async fn await_ends(database: &Database) -> engine::Result<()> {
    if canary::is_planted(Canary::ServedLoser) {
        return Ok(());
    }
    let (executor, log) = (database.executor().whole(), database.log());
    let (mut end, mut since) = (log.end(), executor.now());
    while let Err(error) = database.check_ended() {
        // Nothing gets on behind that.
        log.failure().map_or(Ok(()), Err)?;
        // Each step is logged.
        if log.end() != end {
            (end, since) = (log.end(), executor.now());
        } else if executor.now().since_ns(since) >= STILL_NS_MAX {
            return Err(error);
        }
        executor.sleep_ns(MILLISECOND_NS).await;
    }
    Ok(())
}
