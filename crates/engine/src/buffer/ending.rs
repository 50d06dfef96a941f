//! The end of a buffer: what was begun beside everything else comes to its end.

use super::Buffer;
use base::time::{MILLISECOND_NS, SECOND_NS};
use std::rc::Rc;

/// How long transfers are waited for, and how often they are looked at, in nanoseconds.
const PATIENCE_NS: u64 = 60 * SECOND_NS;
const LOOK_NS: u64 = MILLISECOND_NS / 2;

impl Buffer {
    /// Writes nothing back any more that nothing waits for, and returns when no page is on its way to or from main memory or the tiers,
    /// if their devices answer: what ends when the files are open again might be older than what is there by then.
    pub(crate) async fn end_transfers(self: &Rc<Self>) {
        self.is_ended.set(true);
        self.cleaner.end();
        self.levels().from_top().for_each(|tiers| tiers.end());
        let until = self.executor.now().plus_ns(PATIENCE_NS);
        let are_tiers_busy = || self.levels.borrow().from_top().any(|tiers| tiers.is_under_way());
        let is_any_overwritten = || self.spaces().iter().any(|space| space.overwriting.is_under_way());
        let is_under_way = || self.in_flight.get() > 0 || self.reading_ahead.get() > 0;
        let is_busy = || is_under_way() || are_tiers_busy() || is_any_overwritten();
        while is_busy() && self.executor.now() < until {
            self.executor.sleep_ns(LOOK_NS).await;
        }
    }
}
