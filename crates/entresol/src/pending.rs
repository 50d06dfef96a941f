//! What a handle has asked for and not got yet.

use crate::database_thread::{Request, may_not_wait_for, waker_for};
use crate::handle::Link;
use crate::reply::{Slot, end_of};
use engine::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// A request of a [`Handle`](crate::Handle) that is under way: to be awaited, in any runtime, or waited for. Dropped, it goes on
/// and its end is heard of by none; [`Pending::cancel`] ends it.
///
/// It gives its answer once: asked again after that, as no `await` does, it panics, as other futures do.
///
/// It may be awaited within a transaction of the same database. If it cannot go on before that transaction ends, because of a lock or of
/// `mpl`, it fails with [`Error::OwnLock`] or [`Error::TooManyTransactions`]: at once, or after a tenth of a second if the transaction was
/// begun by hand ([`crate::Database::begin`]). This is seen of a task that waits for such requests and for nothing else, from
/// when it awaits them; so a request may be started within a transaction and awaited behind its end. It is not seen of calls of procedures
/// where there is a `[server]`, nor through combinators that have wakers of their own (`join_all` of more than thirty): they wait as long as
/// `[locks] wait_at_most` says.
///
/// ```
/// # let directory = tempfile::tempdir().unwrap();
/// # let directory = directory.path();
/// # std::fs::write(directory.join("entresol.toml"), "[log]\nsize = \"4 MiB\"").unwrap();
/// use entresol::PartitionSpec;
/// use std::time::Duration;
///
/// let thread = entresol::start(directory)?;
/// let handle = thread.handle();
/// let notes = handle.create_partition(PartitionSpec::append("notes")).wait()?;
/// // A hundred transactions are under way before the first is waited for: they share log writes.
/// let pending: Vec<_> =
///     (0..100_u8).map(|number| handle.transaction(async move |tx| tx.append(notes, &[number]).await)).collect();
/// for transaction in pending {
///     transaction.wait()?;
/// }
/// // For a while only: the request is given back, to be waited for again or to be cancelled.
/// let slow = handle.transaction(async |_| std::future::pending::<entresol::Result<()>>().await);
/// let slow = slow.wait_at_most(Duration::from_millis(10)).expect_err("it never ends");
/// slow.cancel();
/// thread.close()?;
/// # Ok::<(), entresol::OpenError>(())
/// ```
#[must_use = "a request that is not waited for goes on, but its error is lost"]
pub struct Pending<T, E = Error> {
    pub(crate) slot: Arc<Slot<Result<T, E>>>,
    pub(crate) link: Arc<Link>,
}

impl<T, E: From<Error>> Pending<T, E> {
    /// Waits for the answer.
    ///
    /// # Errors
    /// The request's; [`Error::Panicked`] if its own code panicked; [`Error::Closed`] if the database was closed or the engine's
    /// thread has ended: then whether the request was done shows when the database is opened again; [`Error::OwnThread`] on the
    /// engine's thread, which would wait for itself, or for a request to a node on the thread of one of the same database, for which that
    /// may wait: await it there.
    pub fn wait(self) -> Result<T, E> {
        if may_not_wait_for(&self.link) {
            return Err(Error::OwnThread.into());
        }
        self.slot.wait(&self.link.wakes, None).flatten().unwrap_or_else(|| Err(self.link.ended().into()))
    }

    /// Waits for the answer, for this long at most.
    ///
    /// # Errors
    /// The request itself, which goes on, if there is no answer by then.
    pub fn wait_at_most(self, limit: Duration) -> Result<Result<T, E>, Pending<T, E>> {
        if may_not_wait_for(&self.link) {
            return Ok(Err(Error::OwnThread.into()));
        }
        match self.slot.wait(&self.link.wakes, end_of(limit)) {
            Some(answer) => Ok(answer.unwrap_or_else(|| Err(self.link.ended().into()))),
            None => Err(self),
        }
    }

    /// Ends the request: its code is dropped where it waits, and its transactions are rolled back. One that has committed by
    /// then stays committed. Calls that a transaction server has taken are not ended.
    pub fn cancel(self) {
        self.link.sender.send(Request::Cancel { place: Arc::as_ptr(&self.slot).addr() });
    }
}

impl<T, E: From<Error>> Future for Pending<T, E> {
    type Output = Result<T, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T, E>> {
        let waker = || waker_for(&self.link.wakes, context, Arc::as_ptr(&self.slot).addr());
        self.slot.poll(waker).map(|answer| answer.unwrap_or_else(|| Err(self.link.ended().into())))
    }
}

impl<T, E> fmt::Debug for Pending<T, E> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Pending")
    }
}
