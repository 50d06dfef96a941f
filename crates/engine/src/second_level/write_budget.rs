//! How much may be written to the device of the cache, which wears out by being written.
//!
//! A token bucket: tokens are bytes, they come at the budget's rate, and a burst of them can be saved up. A copy enters the cache
//! if the bucket has tokens for it, and goes past it otherwise: a clean page just leaves main memory, a changed one is written
//! to its own place at once, whatever the design says. So in any time a cache writes no more than the budget's share of
//! that time and a burst. What has to be written although there are no tokens, such as the cache's own table, leaves a debt
//! that optional writes wait for.
//!
//! A new database begins with a full bucket. What was saved up, or owed, is forgotten when a database is closed: an opening begins
//! with an empty one, so that restarts give no bursts.

use crate::{Error, Result};
use base::Instant;
use structures::canary::{self, Canary};

/// Nanoseconds of a day.
const DAY_NS: i128 = 86_400 * 1_000_000_000;

/// How many bytes may be written to the device of the cache.
///
/// ```
/// use entresol_engine::second_level::WriteBudget;
///
/// // A cache of 16 GiB that is written over three times a day.
/// let budget = WriteBudget::cache_writes_per_day(3.0, 16 << 30);
/// assert_eq!(budget.bytes_per_day, 48 << 30);
/// assert_eq!(WriteBudget::bytes_per_second(1 << 20).bytes_per_day, 86_400 << 20);
/// assert_eq!(budget.burst_bytes, budget.bytes_per_day / 24 / 60);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteBudget {
    /// How many bytes a day may be written in the long run.
    pub bytes_per_day: u64,
    /// How many bytes may be written at once after a time of few writes.
    pub burst_bytes: u64,
}

impl WriteBudget {
    /// This number of bytes a second, and bursts of a minute's.
    pub const fn bytes_per_second(bytes: u64) -> WriteBudget {
        WriteBudget::of(bytes.saturating_mul(86_400))
    }

    /// A cache of `size` bytes is written over this often in a day, in bursts of a minute's.
    pub fn cache_writes_per_day(times: f64, size: u64) -> WriteBudget {
        WriteBudget::of((times * size as f64) as u64)
    }

    const fn of(bytes_per_day: u64) -> WriteBudget {
        WriteBudget { bytes_per_day, burst_bytes: bytes_per_day / (24 * 60) }
    }

    /// Refuses a budget that no page of this size could ever enter by.
    ///
    /// # Errors
    /// [`Error::Setting`].
    pub fn check(&self, page_size: usize) -> Result<()> {
        if self.bytes_per_day == 0 {
            let text =
                "a write budget of zero keeps every page out of the cache; name a budget, or leave out the cache";
            return Err(Error::Setting(text.to_owned()));
        }
        if self.burst_bytes < page_size as u64 {
            return Err(Error::Setting(format!(
                "the cache's write budget lets no page enter: its burst of {} bytes is less than a page of {page_size}",
                self.burst_bytes
            )));
        }
        Ok(())
    }
}

/// What is left of a budget at some moment.
#[derive(Debug)]
struct TokenBucket {
    budget: WriteBudget,
    /// In bytes times the nanoseconds of a day, so that nothing is rounded. Below zero: a debt.
    level: i128,
    filled_at: Instant,
}

impl TokenBucket {
    /// A full bucket.
    fn full(budget: WriteBudget, now: Instant) -> TokenBucket {
        TokenBucket { budget, level: TokenBucket::level_max(budget), filled_at: now }
    }

    fn level_max(budget: WriteBudget) -> i128 {
        i128::from(budget.burst_bytes) * DAY_NS
    }

    fn fill(&mut self, now: Instant) {
        let gained = i128::from(self.budget.bytes_per_day) * i128::from(now.since_ns(self.filled_at));
        self.level = (self.level + gained).min(TokenBucket::level_max(self.budget));
        self.filled_at = now;
    }

    /// Whether there are tokens for this number of bytes.
    fn has(&mut self, now: Instant, bytes: u64) -> bool {
        self.fill(now);
        self.level >= i128::from(bytes) * DAY_NS
    }

    /// Takes tokens for bytes that are about to be written, if there are enough.
    fn take(&mut self, now: Instant, bytes: u64) -> bool {
        let is_enough = self.has(now, bytes);
        if is_enough {
            self.level -= i128::from(bytes) * DAY_NS;
        }
        is_enough
    }

    /// Takes tokens for bytes that have to be written, whether there are enough or not.
    fn spend(&mut self, now: Instant, bytes: u64) {
        self.fill(now);
        self.level -= i128::from(bytes) * DAY_NS;
    }
}

/// What of a budget is spent.
pub struct Spending {
    bucket: TokenBucket,
    begun_at: Instant,
    /// What there was then: its level.
    begun_with: i128,
    /// Bytes of pages that have entered since, and of what had to be written.
    written: [u64; 2],
}

impl Spending {
    /// All of this budget's burst can be spent.
    pub fn full(budget: WriteBudget, now: Instant) -> Spending {
        Spending::of(TokenBucket::full(budget, now))
    }

    /// Nothing can be spent yet, whatever the budget is to be.
    pub fn spent(now: Instant) -> Spending {
        Spending::full(WriteBudget { bytes_per_day: 0, burst_bytes: 0 }, now)
    }

    fn of(bucket: TokenBucket) -> Spending {
        Spending { begun_at: bucket.filled_at, begun_with: bucket.level, bucket, written: [0; 2] }
    }

    /// Goes on with this budget: what is left of another one, or is owed, stays so, as far as this one's burst.
    pub fn go_on_with(self, budget: WriteBudget, now: Instant) -> Spending {
        if self.budget() == budget {
            return self;
        }
        let mut bucket = self.bucket;
        bucket.fill(now);
        let level = bucket.level.min(TokenBucket::level_max(budget));
        Spending::of(TokenBucket { budget, level, filled_at: now })
    }

    /// The budget.
    pub fn budget(&self) -> WriteBudget {
        self.bucket.budget
    }

    /// Whether this number of bytes may be written.
    pub fn has(&mut self, now: Instant, bytes: u64) -> bool {
        self.bucket.has(now, bytes)
    }

    /// Whether this number of bytes may be written; they are, then.
    pub fn take(&mut self, now: Instant, bytes: u64) -> bool {
        let is_taken = canary::is_planted(Canary::Overspent) || self.bucket.take(now, bytes);
        self.written[0] += u64::from(is_taken) * bytes;
        is_taken
    }

    /// These bytes have to be written.
    pub fn force(&mut self, now: Instant, bytes: u64) {
        self.bucket.spend(now, bytes);
        self.written[1] += bytes;
    }

    /// Checks that no more was written since it began than the budget allows, but for what had to be.
    ///
    /// # Errors
    /// Words that say by how much more.
    pub fn check(&self, now: Instant) -> std::result::Result<(), String> {
        let budget = self.budget();
        let earned = i128::from(budget.bytes_per_day) * i128::from(now.since_ns(self.begun_at));
        let over = i128::from(self.written[0]) * DAY_NS - self.begun_with - earned;
        if over <= 0 || self.written[0] == 0 {
            return Ok(());
        }
        Err(format!("the cache has {} bytes more than its budget of writes allows", over / DAY_NS + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A write that was made: when, how many bytes, and whether it had to be.
    type Write = (u64, u64, bool);

    /// Tries writes at the ends of these pauses, and returns those that were made.
    fn made(budget: WriteBudget, tries: &[Write]) -> Vec<Write> {
        let (mut bucket, mut now) = (TokenBucket::full(budget, Instant::START), 0);
        let mut made = Vec::new();
        for &(pause_ns, bytes, is_forced) in tries {
            now += pause_ns;
            if is_forced {
                bucket.spend(Instant::from_ns(now), bytes);
            }
            if is_forced || bucket.take(Instant::from_ns(now), bytes) {
                made.push((now, bytes, is_forced));
            }
        }
        made
    }

    /// The budget's bytes of so much time, times the nanoseconds of a day.
    fn allowed(budget: WriteBudget, ns: u64) -> i128 {
        i128::from(budget.bytes_per_day) * i128::from(ns) + i128::from(budget.burst_bytes) * DAY_NS
    }

    fn tries(forced: f64) -> impl Strategy<Value = Vec<Write>> {
        prop::collection::vec((0..20_000_000_000_u64, 1..5_000_u64, prop::bool::weighted(forced)), 1..120)
    }

    proptest! {
        /// Over any window of optional writes: bytes <= budget * time + burst.
        #[test]
        fn a_budget_holds_over_any_window(per_second in 1..2_000_u64, burst in 1..20_000_u64, tries in tries(0.0)) {
            let budget = WriteBudget { burst_bytes: burst, ..WriteBudget::bytes_per_second(per_second) };
            let made = made(budget, &tries);
            for first in 0..made.len() {
                let mut bytes = 0;
                for write in &made[first..] {
                    bytes += i128::from(write.1);
                    prop_assert!(bytes * DAY_NS <= allowed(budget, write.0 - made[first].0), "{made:?}");
                }
            }
        }

        /// Writes that had to be made count as well: a window that ends with an optional write holds the budget with all of them.
        #[test]
        fn optional_writes_make_up_for_those_that_had_to_be_made(
            per_second in 1..2_000_u64, burst in 1..20_000_u64, tries in tries(0.2)
        ) {
            let budget = WriteBudget { burst_bytes: burst, ..WriteBudget::bytes_per_second(per_second) };
            let made = made(budget, &tries);
            for first in 0..made.len() {
                let mut bytes = 0;
                for write in &made[first..] {
                    bytes += i128::from(write.1);
                    let is_within = bytes * DAY_NS <= allowed(budget, write.0 - made[first].0);
                    prop_assert!(write.2 || is_within, "{made:?}");
                }
            }
        }

        /// What is declined did not fit: one more byte-for-byte try at that moment would have broken the budget.
        #[test]
        fn nothing_that_fits_is_declined(per_second in 1..2_000_u64, burst in 1..20_000_u64, tries in tries(0.0)) {
            let budget = WriteBudget { burst_bytes: burst, ..WriteBudget::bytes_per_second(per_second) };
            let made = made(budget, &tries);
            let (mut now, mut next) = (0, 0);
            for (pause_ns, bytes, _) in tries {
                now += pause_ns;
                if made.get(next) == Some(&(now, bytes, false)) {
                    next += 1;
                    continue;
                }
                let breaks = (0..=next).any(|first| {
                    let since = made[..next].get(first).map_or(now, |write| write.0);
                    let written: u64 = made[first.min(next)..next].iter().map(|write| write.1).sum();
                    i128::from(written + bytes) * DAY_NS > allowed(budget, now - since)
                });
                prop_assert!(breaks, "{bytes} bytes at {now}: {made:?}");
            }
        }
    }

    #[test]
    fn budgets_that_let_nothing_in_are_refused() {
        let zero = WriteBudget { bytes_per_day: 0, burst_bytes: 1 << 20 };
        assert!(matches!(zero.check(4096), Err(Error::Setting(text)) if text.contains("zero")));
        let small = WriteBudget { bytes_per_day: 1 << 30, burst_bytes: 4095 };
        assert!(matches!(small.check(4096), Err(Error::Setting(text)) if text.contains("burst of 4095")));
        assert!(WriteBudget { burst_bytes: 4096, ..small }.check(4096).is_ok());
    }

    #[test]
    fn another_budget_begins_with_what_the_one_before_has_left() {
        let second = |number: u64| Instant::from_ns(number * 1_000_000_000);
        let (small, large) = (WriteBudget::bytes_per_second(10), WriteBudget::bytes_per_second(100));
        let mut spending = Spending::spent(second(0)).go_on_with(small, second(5));
        assert!(!spending.take(second(5), 1) && spending.take(second(6), 10), "an opening begins with nothing");
        let mut spending = spending.go_on_with(large, second(16)).go_on_with(small, second(16));
        assert!(
            !spending.has(second(16), 101) && spending.take(second(16), 100),
            "ten seconds' bytes of the small one"
        );
        spending.force(second(16), 50);
        let mut spending = spending.go_on_with(large, second(16));
        assert!(!spending.take(second(16), 1) && spending.take(second(17), 50), "a debt goes along");
        assert_eq!(spending.check(second(17)), Ok(()));
        spending.written[0] += 51;
        assert!(spending.check(second(17)).is_err());
        let spending = spending.go_on_with(large, second(18));
        assert_eq!(spending.begun_at, second(16), "the same budget goes on");
    }

    #[test]
    fn a_debt_is_worked_off_first() {
        let mut bucket = TokenBucket::full(WriteBudget::bytes_per_second(100), Instant::START);
        bucket.spend(Instant::START, 6_000 + 1_000);
        let second = |number: u64| Instant::from_ns(number * 1_000_000_000);
        assert!(!bucket.take(second(10), 1), "ten seconds' bytes make up for the debt");
        assert!(!bucket.has(second(11), 101));
        assert!(bucket.take(second(11), 100) && !bucket.has(second(11), 1));
        assert!(!bucket.has(second(100_000), 6_001), "a burst is the most that is saved up");
    }
}
