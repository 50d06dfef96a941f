//! How long the engine looks for requests before it sleeps.
//!
//! To sleep and to be woken takes longer than a transaction, and while the engine sleeps its processor is given to clients, among
//! which it has to find a place again.

use base::Instant;
use base::time::{MICROSECOND_NS, SECOND_NS};
use executor::{Executor, Mailbox};

/// How long it looks, and for how many times in a row at most it does not after it found none.
const LOOK_NS: u64 = 20 * MICROSECOND_NS;
const SKIPPED_MAX: u32 = 64;
/// How long it looks while requests come as often as this: as long as a log write may keep all clients waiting. And how often in a row
/// at most it finds none before it counts as idle: it may be what keeps its clients from running.
const BUSY_LOOK_NS: u64 = 200 * MICROSECOND_NS;
const BUSY_GAP_NS: u64 = 40 * MICROSECOND_NS;
const BUSY_MISSES_MAX: u32 = 3;

/// Looks for requests for a while before the engine sleeps. If it finds none it goes to sleep at once the next times, twice as
/// often after each failure, unless they come so often that it would hardly sleep.
pub(crate) struct Spin {
    /// How many times more it sleeps at once.
    skipped: u32,
    /// How many times it did after it last found none.
    penalty: u32,
    /// How many looks in a row have found none.
    misses: u32,
    /// When requests came last, and the mean time between two of them lately.
    last: Instant,
    gap_ns: u64,
}

impl Spin {
    /// Nothing has come yet.
    pub fn new(now: Instant) -> Spin {
        Spin { skipped: 0, penalty: 0, misses: 0, last: now, gap_ns: SECOND_NS }
    }

    /// Moves what was sent into `batch`, waiting for it if need be; false when nothing more will come.
    pub async fn receive<T>(&mut self, executor: &Executor, requests: &Mailbox<T>, batch: &mut Vec<T>) -> bool {
        match requests.has_items() {
            true => self.misses = 0,
            false => self.look(executor, requests).await,
        }
        let is_open = requests.receive(executor, batch).await;
        self.note(executor.round_now(), batch.len());
        is_open
    }

    /// The mean time between two requests lately.
    pub fn gap_ns(&self) -> u64 {
        self.gap_ns
    }

    async fn look<T>(&mut self, executor: &Executor, requests: &Mailbox<T>) {
        let Some(ns) = self.limit_ns() else { return };
        let until = executor.now().plus_ns(ns);
        while !requests.has_items() {
            if executor.now() >= until {
                return self.fail();
            }
            // The kernel may end a log write in a thread of its own that has to run on this processor.
            std::thread::yield_now();
            executor.yield_until_idle().await;
        }
        self.find();
    }

    fn find(&mut self) {
        (self.penalty, self.misses) = (0, 0);
    }

    /// How long to look this time, if at all.
    fn limit_ns(&mut self) -> Option<u64> {
        if self.gap_ns <= BUSY_GAP_NS && self.misses < BUSY_MISSES_MAX {
            return Some(BUSY_LOOK_NS);
        }
        let looks = self.skipped == 0;
        self.skipped = self.skipped.saturating_sub(1);
        looks.then_some(LOOK_NS)
    }

    /// Nothing has come while it looked.
    fn fail(&mut self) {
        self.penalty = (2 * self.penalty).clamp(1, SKIPPED_MAX);
        self.skipped = self.penalty;
        self.misses += 1;
    }

    /// This number of requests has come.
    fn note(&mut self, now: Instant, count: usize) {
        let ns = now.since_ns(self.last) / count.max(1) as u64;
        self.gap_ns = (15 * self.gap_ns + ns) / 16;
        self.last = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `times` batches of `count` requests make of it, each `ns` after the one before.
    fn after(times: u64, count: usize, ns: u64) -> Spin {
        let mut spin = Spin::new(Instant::START);
        (1..=times).for_each(|time| spin.note(Instant::START.plus_ns(time * ns), count));
        spin
    }

    #[test]
    fn it_skips_more_and_more_looks_that_find_nothing() {
        let mut spin = after(200, 1, SECOND_NS);
        for skipped in [1, 2, 4, 8, 16, 32, 64, 64] {
            assert_eq!(spin.limit_ns(), Some(LOOK_NS));
            spin.fail();
            assert!((0..skipped).all(|_| spin.limit_ns().is_none()), "{skipped} in a row");
        }
    }

    #[test]
    fn it_goes_on_looking_while_requests_come_often() {
        let mut spin = after(1_000, 32, 300 * MICROSECOND_NS);
        for _ in 0..100 {
            assert_eq!(spin.limit_ns(), Some(BUSY_LOOK_NS));
            spin.fail();
            spin.find();
        }
        // What never finds any may keep those from running who would send some.
        (0..3).for_each(|_| spin.fail());
        assert!((0..4).all(|_| spin.limit_ns().is_none()));
        assert_eq!(spin.limit_ns(), Some(LOOK_NS));
        spin.find();
        assert_eq!(spin.limit_ns(), Some(BUSY_LOOK_NS));
        // A pause ends that.
        spin.note(spin.last.plus_ns(SECOND_NS), 1);
        assert_eq!(spin.limit_ns(), Some(LOOK_NS));
        assert_eq!(after(1_000, 32, 3_000 * MICROSECOND_NS).limit_ns(), Some(LOOK_NS), "seldom");
    }
}
