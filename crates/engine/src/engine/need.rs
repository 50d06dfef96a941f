//! Running a synchronous function until it has all that it needs.
//!
//! A missing page, or one that may not be written yet, restarts the synchronous function instead of suspending it in the
//! middle. So there are no latches and no code that validates again after a wait; a miss costs a second descent, which is
//! small beside its read.

use super::Core;
use crate::buffer::Pins;
use crate::second_level::design::Pattern;
use crate::statistics::{FoundIn, WaitKind};
use crate::{Error, Need, Result};
use base::PartitionId;
use base::time::MILLISECOND_NS;

/// How often, and after how many nanoseconds, what has to be done at the end of a transaction is tried again.
const TRIES: u32 = 20;
const DELAY_NS: u64 = 50 * MILLISECOND_NS;

/// What it took that an attempt succeeded.
#[derive(Clone, Copy, Default)]
pub(crate) struct Resolved {
    /// Whether it fetched a page into the buffer.
    pub fetched: bool,
    /// The farthest place from which a page has come that it was the first to use.
    pub found: FoundIn,
}

impl Core {
    /// Calls `attempt` until it succeeds, fetching in between what it lacks. Counts one reference to the partition, at the farthest
    /// place from which a page has come that it is the first to use. Ready at once on a hit.
    ///
    /// # Errors
    /// The attempt's own, or that of fetching a page.
    #[inline]
    pub(crate) async fn resolve_access<T>(
        &self,
        partition: PartitionId,
        mut attempt: impl FnMut() -> Result<T, Need>,
    ) -> Result<T> {
        self.begin_reference();
        match attempt() {
            Ok(value) => {
                self.count_reference(partition);
                Ok(value)
            }
            Err(need) => self.resolve_access_after(need, partition, attempt).await,
        }
    }

    /// A reference begins whose first attempt is a call of its caller's.
    #[inline]
    pub(crate) fn begin_reference(&self) {
        self.buffer.begin_reference();
    }

    /// The reference has succeeded at its first attempt: it counts.
    #[inline]
    pub(crate) fn count_reference(&self, partition: PartitionId) {
        let found = self.buffer.found();
        self.statistics.count_reference(usize::from(partition.0), found);
    }

    /// As [`Core::resolve_access`], for a step of a reference that may have to wait for a lock and be made again: it counts once it
    /// `is_done`. `found` is the farthest place of the steps so far.
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub(crate) async fn resolve_step<T>(
        &self,
        partition: PartitionId,
        found: &mut FoundIn,
        is_done: impl Fn(&T) -> bool,
        mut attempt: impl FnMut() -> Result<T, Need>,
    ) -> Result<T> {
        self.begin_reference();
        let value = match attempt() {
            Ok(value) => value,
            Err(need) => self.resolve_step_after(need, found, attempt).await?,
        };
        self.end_step(partition, found, is_done(&value));
        Ok(value)
    }

    /// As [`Core::resolve_step`], after a first attempt that lacked something, for a caller that ends the step.
    ///
    /// # Errors
    /// As there.
    #[cold]
    pub(crate) async fn resolve_step_after<T>(
        &self,
        need: Need,
        found: &mut FoundIn,
        attempt: impl FnMut() -> Result<T, Need>,
    ) -> Result<T> {
        if let Need::Fail(error) = need {
            return Err(*error);
        }
        let (value, by) = self.resolve(need, Pattern::Random, attempt).await?;
        *found = by.found.max(*found);
        Ok(value)
    }

    /// A step of a reference has succeeded. The reference counts if it is done.
    #[inline]
    pub(crate) fn end_step(&self, partition: PartitionId, found: &mut FoundIn, is_done: bool) {
        *found = self.buffer.found().max(*found);
        if is_done {
            self.statistics.count_reference(usize::from(partition.0), *found);
        }
    }

    /// As [`Core::resolve_step`], for a share of a scan: the pages of all but its first one are used in sequence, and what is of the
    /// same leaf as the share before is no reference of its own. Returns also whether it fetched a page.
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub(crate) async fn resolve_share<T>(
        &self,
        (partition, found): (PartitionId, &mut FoundIn),
        (is_within_leaf, is_first): (bool, bool),
        is_done: impl Fn(&T) -> bool,
        mut attempt: impl FnMut() -> Result<T, Need>,
    ) -> Result<(T, bool)> {
        self.begin_reference();
        let (value, by) = match attempt() {
            Ok(value) => (value, Resolved::default()),
            Err(Need::Fail(error)) => return Err(*error),
            Err(need) => {
                let pattern = if is_within_leaf || is_first { Pattern::Random } else { Pattern::Sequential };
                self.resolve(need, pattern, attempt).await?
            }
        };
        *found = self.buffer.found().max(by.found).max(*found);
        if !is_within_leaf && is_done(&value) {
            self.statistics.count_reference(usize::from(partition.0), std::mem::take(found));
        }
        Ok((value, by.fetched))
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
        let (value, by) = self.resolve(need, Pattern::Random, attempt).await?;
        self.statistics.count_reference(usize::from(partition.0), by.found);
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

    /// Goes on after a first need of what uses pages in this pattern, be it that a reference has begun. Returns also what that took.
    ///
    /// # Errors
    /// The attempt's own, or that of fetching a page.
    #[cold]
    pub(crate) async fn resolve<T>(
        &self,
        mut need: Need,
        pattern: Pattern,
        mut attempt: impl FnMut() -> Result<T, Need>,
    ) -> Result<(T, Resolved)> {
        let buffer = &self.buffer;
        let mut by = Resolved { fetched: false, found: buffer.found() };
        let mut pins = Pins::new(buffer);
        let began = self.executor.now();
        let result = loop {
            match buffer.resolve(need, pattern, &mut pins).await {
                Ok(fetched) => by.fetched |= fetched,
                Err(error) => break Err(error),
            }
            pins.begin_attempt();
            self.begin_reference();
            let attempted = attempt();
            by.found = by.found.max(buffer.found());
            match attempted {
                Ok(value) => break Ok((value, by)),
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
