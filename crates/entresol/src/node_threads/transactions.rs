//! Transactions of a node, run until they are committed.

use base::time::MICROSECOND_NS;
use engine::{Error, Result};
use executor::Executor;
use node::page_client::{PageClient, PageTransaction};

/// How long it is waited behind a deadlock at first, and at most, in nanoseconds: one that is run again at once meets those that it was
/// given up for.
const BACKOFF_NS_MIN: u64 = 50 * MICROSECOND_NS;
const BACKOFF_NS_MAX: u64 = 5_000 * MICROSECOND_NS;

/// Runs `work` as a transaction, again if it was a deadlock's victim, until it is committed.
pub async fn run<T, E: From<Error>>(
    executor: &Executor,
    client: &PageClient,
    mut work: impl AsyncFnMut(&mut PageTransaction) -> Result<T, E>,
) -> Result<T, E> {
    let mut backoff_ns = BACKOFF_NS_MIN;
    loop {
        let mut transaction = client.begin().await;
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
