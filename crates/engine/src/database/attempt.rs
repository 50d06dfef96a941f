//! Running a synchronous function until it has all that it needs.

use super::Database;
use crate::buffer::Pins;
use crate::statistics::add;
use crate::{Need, Result};
use base::PartitionId;

impl Database {
    /// Calls `attempt` until it succeeds, bringing in between what it lacks. Counts one reference to the partition: a hit if
    /// every page was in the buffer. Ready at once on a hit.
    ///
    /// # Errors
    /// The attempt's own, or that of bringing a page.
    #[inline]
    pub(crate) async fn refer<T>(
        &self,
        partition: PartitionId,
        mut attempt: impl FnMut() -> Result<T, Need>,
    ) -> Result<T> {
        match attempt() {
            Ok(value) => {
                self.0.statistics.count_reference(usize::from(partition.0), true);
                Ok(value)
            }
            Err(Need::Fail(error)) => Err(error),
            Err(need) => {
                let missed = matches!(need, Need::Page(_));
                let value = self.bring(need, attempt).await?;
                self.0.statistics.count_reference(usize::from(partition.0), !missed);
                Ok(value)
            }
        }
    }

    /// As [`Database::refer`], for what is no reference of its own.
    ///
    /// # Errors
    /// The attempt's own, or that of bringing a page.
    #[inline]
    pub(crate) async fn complete<T>(&self, mut attempt: impl FnMut() -> Result<T, Need>) -> Result<T> {
        match attempt() {
            Ok(value) => Ok(value),
            Err(need) => self.bring(need, attempt).await,
        }
    }

    #[cold]
    async fn bring<T>(&self, mut need: Need, mut attempt: impl FnMut() -> Result<T, Need>) -> Result<T> {
        let buffer = &self.0.buffer;
        let mut pins = Pins::new(buffer);
        let began = self.0.executor.now();
        let result = loop {
            if let Err(error) = buffer.satisfy(need, &mut pins).await {
                break Err(error);
            }
            match attempt() {
                Ok(value) => break Ok(value),
                Err(Need::Fail(error)) => break Err(error),
                Err(other) => need = other,
            }
        };
        add(&self.0.statistics.read_wait_ns, self.0.executor.now().since_ns(began));
        result
    }
}
