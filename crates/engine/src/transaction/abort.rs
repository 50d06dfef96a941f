//! Transactions that have to give up: a deadlock's victims, and those that a conflict or a sweep refuses. Such a one is never
//! committed, whatever its caller does with the error: what was refused is missing from it.

use super::Transaction;
use crate::{Error, Result};
use structures::canary::{self, Canary};

impl Transaction {
    /// Notes that the transaction has to give up because of `cause`, which its caller is told.
    #[cold]
    pub(super) fn abort(&self, cause: Error) -> Error {
        self.engine.abort(&self.state, cause)
    }

    /// The same, if the error is one that takes the whole transaction along. A procedure that goes on after another one is not
    /// logged as a call unless it would meet that error again; one that is being repeated must not meet any but those.
    #[cold]
    pub(super) fn abort_by(&self, error: Error) -> Error {
        if error.is_conflict() || !(error.is_replayable() || self.state.call.mark_not_replayable()) {
            self.abort(error)
        } else {
            error
        }
    }

    /// Whether something may still be done in the transaction.
    ///
    /// # Errors
    /// [`Error::Deadlock`] if it became a victim and has not heard of it, [`Error::Aborted`] once it has heard.
    #[inline]
    pub(crate) fn check_active(&self) -> Result<()> {
        let is_victim = self.engine.core.locks.is_victim(self.state.owner);
        if is_victim { self.refuse() } else { Ok(()) }
    }

    #[cold]
    fn refuse(&self) -> Result<()> {
        if canary::is_planted(Canary::RevivedVictim) {
            return Ok(());
        }
        Err(match self.state.aborted.get() {
            Some(cause) => Error::Aborted { cause: Box::new(cause.clone()) },
            None if self.state.is_half_changed.get() => self.abort(Error::Abandoned),
            None => self.abort(Error::Deadlock),
        })
    }

    /// What its caller's work in the transaction has come to: a failure if that takes no notice of having been refused.
    pub(crate) fn check_refused<T>(&self, done: Result<T>) -> Result<T> {
        if done.is_ok() {
            self.check_active()?;
        }
        done
    }
}
