//! Running a closure as a transaction.

use super::Transaction;
use crate::{Database, Error, Result};

impl Database {
    /// Runs `work` as a transaction: commits if it succeeds, rolls back if it fails. A deadlock's victim is run again, and
    /// keeps its age, so that it is not the youngest for ever.
    ///
    /// # Errors
    /// Those of `work`, and those of [`Database::begin`] and [`Transaction::commit`].
    pub async fn transaction<T>(&self, mut work: impl AsyncFnMut(&mut Transaction) -> Result<T>) -> Result<T> {
        let mut began = None;
        loop {
            let mut transaction = self.begin_aged(began).await?;
            match work(&mut transaction).await {
                Ok(value) => {
                    transaction.commit().await?;
                    return Ok(value);
                }
                Err(Error::Deadlock) => {
                    began = Some(transaction.began());
                    transaction.rollback().await?;
                    self.executor().yield_now().await;
                }
                Err(error) => {
                    transaction.rollback().await?;
                    return Err(error);
                }
            }
        }
    }
}
