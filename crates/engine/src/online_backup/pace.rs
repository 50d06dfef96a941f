//! How fast a backup reads, and how far it is.

use base::Instant;
use base::time::SECOND_NS;
use executor::Executor;
use std::cell::Cell;

/// The pace of a backup.
pub(super) struct Pace {
    began: Instant,
    /// At most this many bytes a second, if it is limited.
    bytes_per_second: Option<u64>,
    /// Bytes read so far.
    read: Cell<u64>,
}

impl Pace {
    pub fn new(began: Instant, bytes_per_second: Option<u64>) -> Pace {
        Pace { began, bytes_per_second, read: Cell::new(0) }
    }

    /// Bytes read so far.
    pub fn bytes_read(&self) -> u64 {
        self.read.get()
    }

    /// Waits until `bytes` more may be read; not at all in a `hurry`.
    pub async fn wait(&self, executor: &Executor, bytes: u64, hurry: bool) {
        let before = self.read.replace(self.read.get() + bytes);
        let Some(rate) = self.bytes_per_second.filter(|_| !hurry) else { return };
        let due_ns = u128::from(before) * u128::from(SECOND_NS) / u128::from(rate.max(1));
        executor.sleep_until(self.began.plus_ns(u64::try_from(due_ns).unwrap_or(u64::MAX))).await;
    }
}
