//! Where the pages of a partition have their own places: a file, or what stands for one.
//!
//! The buffer asks a store on misses and write-backs only. What it knows itself of a partition's pages, such as how many were ever
//! written, is in its `PageSpace`, so that a store has to know nothing but where pages are.

mod data_file;
mod syncs;

pub use data_file::DataFile;

use crate::{Error, Result};
use base::PageId;
use driver::{Access, Completion, Frame};
use executor::{Executor, WaitQueue};
use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;

/// What comes of something that takes time. Allocated, so only for what a miss or a write waits for.
pub type Future<'a, T> = Pin<Box<dyn std::future::Future<Output = T> + 'a>>;

/// What is done when a transfer has ended.
pub type Then = Box<dyn FnOnce(Completion)>;

/// Pages that are read or written by one operation.
pub struct Transfer {
    /// The first of them.
    pub first: PageId,
    /// The memory that they come to, or are taken from. It comes back with the completion.
    pub buffer: Frame,
    /// How many bytes of it, whole pages.
    pub length: usize,
    /// How the store is reached, as [`PageStore::access`] says.
    pub access: Access,
}

/// The places of a partition's pages.
pub trait PageStore {
    /// What its pages are found under, for messages: a file's name.
    fn name(&self) -> &str;

    /// The size of its pages, in bytes.
    fn page_size(&self) -> usize;

    /// How many pages it has room for.
    fn capacity(&self) -> u32;

    /// Whether a power cut may leave a page half written.
    fn may_tear(&self) -> bool;

    /// Pays for one access and says how it is made: a synchronous device is reached by a compound operation that holds the
    /// CPU, any other through a queue.
    fn access<'a>(&'a self, executor: &'a Executor) -> Future<'a, Access>;

    /// The same, if there is nothing to wait for; `None` if it was not paid for.
    fn access_at_once(&self, _executor: &Executor) -> Option<Access> {
        None
    }

    /// Whether an access holds the processor until it is done.
    fn is_synchronous(&self) -> bool {
        false
    }

    /// Starts to read pages to the front of the transfer's buffer. What was never written reads as zeros.
    fn read(&self, executor: &Executor, transfer: Transfer, then: Then);

    /// Whether each page that it gives was found to be sound before, so that no one has to look at all of its bytes again.
    fn gives_sound_pages(&self) -> bool {
        false
    }

    /// Starts to write pages from the front of the transfer's buffer. One that is to be `durable` completes when it survives a
    /// power cut.
    fn write(&self, executor: &Executor, transfer: Transfer, durable: bool, then: Then);

    /// Makes room for at least `pages` pages.
    ///
    /// # Errors
    /// The driver's; the room stays as it was.
    fn reserve<'a>(&'a self, executor: &'a Executor, pages: u32) -> Future<'a, Result<()>>;

    /// States that there is room for `pages` pages at most from now on, and that those behind are not used. A store that always has as
    /// much room as it has now takes no notice.
    fn limit(&self, _pages: u32) {}

    /// Gives back what is there behind the room that was stated. Nothing of it is being read or written.
    ///
    /// # Errors
    /// The driver's; it may be there or not.
    fn shorten<'a>(&'a self, _executor: &'a Executor) -> Future<'a, Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Makes every write durable that completed before this call.
    ///
    /// # Errors
    /// The driver's, also if an earlier sync has failed. What became of the writes is then unknown: what the store holds must
    /// not be relied on any more.
    fn sync<'a>(&'a self, executor: &'a Executor) -> Future<'a, Result<()>>;

    /// Whether something was written, or is being written, that is durable only once a sync has succeeded.
    fn is_unsynced(&self) -> bool {
        false
    }

    /// Why what it holds cannot be relied on, if a sync has failed.
    fn failure(&self) -> Option<Error>;
}

impl dyn PageStore + '_ {
    /// Reads pages, and waits for them.
    pub async fn read_now(&self, executor: &Executor, transfer: Transfer) -> Completion {
        completed(executor, |then| self.read(executor, transfer, then)).await
    }

    /// Writes pages, and waits for the end of that.
    pub async fn write_now(&self, executor: &Executor, transfer: Transfer, durable: bool) -> Completion {
        completed(executor, |then| self.write(executor, transfer, durable, then)).await
    }
}

/// What a transfer ends with that `start` begins. It goes on to its end if this is given up.
pub(crate) async fn completed(executor: &Executor, start: impl FnOnce(Then)) -> Completion {
    let ended = Rc::new((RefCell::new(None), WaitQueue::new()));
    let (this, other) = (Rc::clone(&ended), executor.clone());
    start(Box::new(move |completion| {
        this.0.replace(Some(completion));
        this.1.wake_all(&other);
    }));
    let (completion, queue) = &*ended;
    loop {
        if let Some(completion) = completion.take() {
            return completion;
        }
        queue.wait(executor).await;
    }
}
