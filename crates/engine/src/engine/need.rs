//! Running a synchronous function until it has all that it needs.
//!
//! A missing page, or one that may not be written yet, restarts the synchronous function instead of suspending it in the
//! middle. So there are no latches and no code that validates again after a wait; a miss costs a second descent, which is
//! small beside its read.

use super::Core;
use crate::buffer::Pins;
use crate::second_level::design::Pattern;
use crate::statistics::WaitKind;
use crate::{Error, Need, Result};
use base::PartitionId;
use base::time::MILLISECOND_NS;

/// How often, and after how many nanoseconds, what has to be done at the end of a transaction is tried again.
const TRIES: u32 = 20;
const DELAY_NS: u64 = 50 * MILLISECOND_NS;

impl Core {
    /// Calls `attempt` until it succeeds, fetching in between what it lacks. Counts one reference to the partition: a miss if
    /// it fetched a page into the buffer. Ready at once on a hit.
    ///
    /// # Errors
    /// The attempt's own, or that of fetching a page.
    #[inline]
    pub(crate) async fn resolve_access<T>(
        &self,
        partition: PartitionId,
        mut attempt: impl FnMut() -> Result<T, Need>,
    ) -> Result<T> {
        match attempt() {
            Ok(value) => {
                self.statistics.count_reference(usize::from(partition.0), true);
                Ok(value)
            }
            Err(need) => self.resolve_access_after(need, partition, attempt).await,
        }
    }

    /// As [`Core::resolve_access`], for a share of a scan: the pages of all but its first one are used in sequence, and what is of the
    /// same leaf as the share before is no reference of its own. Returns also whether it fetched a page.
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub(crate) async fn resolve_share<T>(
        &self,
        partition: PartitionId,
        (is_within_leaf, is_first): (bool, bool),
        mut attempt: impl FnMut() -> Result<T, Need>,
    ) -> Result<(T, bool)> {
        let (value, missed) = match attempt() {
            Ok(value) => (value, false),
            Err(Need::Fail(error)) => return Err(*error),
            Err(need) => {
                let pattern = if is_within_leaf || is_first { Pattern::Random } else { Pattern::Sequential };
                self.resolve(need, pattern, attempt).await?
            }
        };
        if !is_within_leaf {
            self.statistics.count_reference(usize::from(partition.0), !missed);
        }
        Ok((value, missed))
    }

    /// As [`Core::resolve_access`], after a first attempt that lacked something.
    ///
    /// # Errors
    /// As there.
    #[cold]
    pub(crate) async fn resolve_access_after<T>(
        &self,
        need: Need,
        partition: PartitionId,
        attempt: impl FnMut() -> Result<T, Need>,
    ) -> Result<T> {
        if let Need::Fail(error) = need {
            return Err(*error);
        }
        let (value, missed) = self.resolve(need, Pattern::Random, attempt).await?;
        self.statistics.count_reference(usize::from(partition.0), !missed);
        Ok(value)
    }

    /// As [`Core::resolve_access`], for what is no reference of its own.
    ///
    /// # Errors
    /// The attempt's own, or that of fetching a page.
    #[inline]
    pub(crate) async fn complete<T>(&self, mut attempt: impl FnMut() -> Result<T, Need>) -> Result<T> {
        match attempt() {
            Ok(value) => Ok(value),
            Err(need) => self.resolve(need, Pattern::Random, attempt).await.map(|(value, _)| value),
        }
    }

    /// Goes on after a first need of what uses pages in this pattern. Returns also whether a page had to be fetched.
    ///
    /// # Errors
    /// The attempt's own, or that of fetching a page.
    #[cold]
    pub(crate) async fn resolve<T>(
        &self,
        mut need: Need,
        pattern: Pattern,
        mut attempt: impl FnMut() -> Result<T, Need>,
    ) -> Result<(T, bool)> {
        let buffer = &self.buffer;
        let mut pins = Pins::new(buffer);
        let began = self.executor.now();
        let mut missed = false;
        let result = loop {
            match buffer.resolve(need, pattern, &mut pins).await {
                Ok(fetched) => missed |= fetched,
                Err(error) => break Err(error),
            }
            pins.begin_attempt();
            match attempt() {
                Ok(value) => break Ok((value, missed)),
                Err(other) => need = other,
            }
            pins.end_attempt();
        };
        self.statistics.add_wait(WaitKind::Read, &self.executor, began);
        result
    }

    /// Retries a step for a while if it fails for a reason that may pass: all frames of the buffer are taken, or an operation
    /// failed. The step cannot be left to another task: locks, or pages, would be lost until the next restart.
    pub(crate) async fn persist<T>(&self, mut step: impl AsyncFnMut() -> Result<T>) -> Result<T> {
        for _ in 1..TRIES {
            match step().await {
                Err(Error::Input(_) | Error::BufferExhausted { .. }) => self.executor.sleep_ns(DELAY_NS).await,
                done => return done,
            }
        }
        step().await
    }
}
