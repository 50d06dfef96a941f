//! Running a closure as a transaction.

use super::Transaction;
use crate::{Database, Error, Result};
use base::time::{MICROSECOND_NS, MILLISECOND_NS};

/// How long a deadlock's victim waits at least and at most before it is run again, in nanoseconds.
const BACKOFF_NS_MIN: u64 = 20 * MICROSECOND_NS;
const BACKOFF_NS_MAX: u64 = 10 * MILLISECOND_NS;

impl Database {
    /// Runs `work` as a transaction: commits if it succeeds, rolls back if it fails. A deadlock's victim is run again after a
    /// while, lest it take its locks again before the others get through, and keeps its age, so that it is not the youngest
    /// for ever.
    ///
    /// # Errors
    /// Those of `work`, and those of [`Database::begin`] and [`Transaction::commit`].
    pub async fn transaction<T>(&self, mut work: impl AsyncFnMut(&mut Transaction) -> Result<T>) -> Result<T> {
        let mut began = None;
        let mut backoff_ns = BACKOFF_NS_MIN;
        loop {
            let mut transaction = self.begin_aged(began).await?;
            match work(&mut transaction).await {
                Ok(value) => {
                    transaction.commit().await?;
                    return Ok(value);
                }
                Err(Error::Deadlock) => {
                    let age = transaction.began();
                    began = Some(age);
                    transaction.rollback().await?;
                    // Victims of different ages wait for different times, so that they do not meet again.
                    self.executor().sleep_ns(backoff_ns + backoff_ns * (age % 8) / 8).await;
                    backoff_ns = (2 * backoff_ns).min(BACKOFF_NS_MAX);
                }
                Err(error) => {
                    transaction.rollback().await?;
                    return Err(error);
                }
            }
        }
    }
}
