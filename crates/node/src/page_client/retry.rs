//! Transactions of a node, run until they are committed.

use super::{PageClient, PageTransaction};
use base::time::MICROSECOND_NS;
use engine::{Error, Result};

/// How long it is waited behind a deadlock at first, and at most, in nanoseconds: one that is run again at once meets those that it was
/// given up for.
const BACKOFF_NS_MIN: u64 = 50 * MICROSECOND_NS;
const BACKOFF_NS_MAX: u64 = 5_000 * MICROSECOND_NS;

impl PageClient {
    /// Runs `work` as a transaction, again if it was a deadlock's victim, until it is committed.
    ///
    /// # Errors
    /// Those of `work` and of [`PageTransaction::commit`]; [`Error::LockTimeout`] if as many transactions run as may, and none of them has ended
    /// for as long as a lock would be waited for: those of code that waits for this one never do.
    pub async fn transaction<T, E: From<Error>>(
        &self,
        mut work: impl AsyncFnMut(&mut PageTransaction) -> Result<T, E>,
    ) -> Result<T, E> {
        let executor = &self.0.executor;
        let mut backoff_ns = BACKOFF_NS_MIN;
        loop {
            let mut transaction = self.try_begin().await?;
            match work(&mut transaction).await {
                Ok(value) => match transaction.commit().await {
                    Ok(()) => return Ok(value),
                    Err(Error::Deadlock) => {}
                    Err(error) => return Err(error.into()),
                },
                // Whatever its work says then, which the caller is not told of.
                Err(_) if transaction.is_victim() => drop(transaction),
                Err(error) => return Err(error),
            }
            let random = (executor.entropy() % u128::from(backoff_ns)) as u64;
            executor.sleep_ns(backoff_ns / 2 + random).await;
            backoff_ns = (2 * backoff_ns).min(BACKOFF_NS_MAX);
        }
    }
}
