//! What everything goes through: the executor, the log, the buffer, the locks; and the synchronous step in which a change is
//! logged and made.

use crate::buffer::{Buffer, Pool};
use crate::locks::Locks;
use crate::log::Log;
use crate::log::record::Body;
use crate::statistics::{Statistics, WaitKind};
use crate::{Error, Need, Result};
use base::{Lsn, TransactionId};
use driver::Work;
use executor::{Executor, UserExecutor};
use std::cell::{Cell, Ref, RefCell};
use std::rc::Rc;
use structures::organization::append::End;
use structures::page::{Edit, Pages, header};

/// What everything goes through.
pub(crate) struct Core {
    pub executor: Executor,
    /// The handle that its users get.
    pub callers: UserExecutor,
    pub log: Rc<Log>,
    pub buffer: Rc<Buffer>,
    pub locks: Locks,
    pub statistics: Statistics,
    /// The ends of partitions that records are appended to, by partition.
    pub append_ends: RefCell<Vec<End>>,
    /// Reusable memory for a record or the part of it that changes, before and after the change.
    pub scratch: RefCell<(Vec<u8>, Vec<u8>)>,
    pub closing: Cell<bool>,
    /// Whether that has come to its end: the files are another opening's.
    pub is_closed: Cell<bool>,
    /// Whether a change is being logged and made: if a panic has ended that, pages and log may contradict each other.
    pub is_changing: Cell<bool>,
}

/// How many bytes of a log are left at least beside what was promised to rollbacks, where data pages have `page_size` bytes.
pub(crate) fn margin_min(log: &Log, page_size: usize) -> u64 {
    let (of_log, of_data) = (log.settings().page_size as u64, page_size as u64);
    // Stating what is to be freed takes two pages, behind others that were written before they were full.
    let of_freeing = 4 * of_log;
    // A change is made while all of this is there. It may be of a whole page, before and after, or divide several, and it is
    // taken back in as much at most.
    let of_change = 4 * of_data + 2 * of_log;
    of_freeing.max(of_change)
}

impl Core {
    /// The executor as those who use the database have it.
    pub fn for_callers(&self) -> &UserExecutor {
        &self.callers
    }

    /// The size of pages in bytes.
    #[inline]
    pub fn page_size(&self) -> usize {
        self.buffer.settings().page_size
    }

    /// The pages of memory, for a search of a b-tree, which is charged.
    #[inline]
    pub(crate) fn pages_to_search(&self) -> Ref<'_, Pool> {
        self.executor.charge(Work::TreeSearch);
        self.buffer.pool().borrow()
    }

    /// Refuses what would change the database's files while it is being closed, or afterwards.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub fn check_open(&self) -> Result<()> {
        if self.closing.get() { Err(Error::Closed) } else { Ok(()) }
    }

    /// Whether commits wait until they are durable.
    #[inline]
    pub fn is_durable(&self) -> bool {
        self.log.settings().durable
    }

    /// The log bytes that undoing `bytes` bytes of updates may need: compensations are smaller than updates, but the merges
    /// that follow them are not; and some for the checkpointer.
    #[inline]
    pub fn rollback_room(&self, logged: u64) -> u64 {
        2 * logged + self.log.margin(self.log.extent())
    }

    /// The same once the log's file is all there.
    pub fn rollback_room_when_grown(&self, logged: u64) -> u64 {
        2 * logged + self.log.margin(self.log.capacity())
    }

    /// Asks for the permission to write the pages that a plan edits, all of which were seen.
    ///
    /// # Errors
    /// [`Need::Write`].
    #[inline]
    pub fn permit(&self, edits: &[Edit<'_>]) -> Result<(), Need> {
        let pool = self.buffer.pool().borrow();
        edits.iter().try_for_each(|edit| Ok(pool.write_permission(edit.page)?))
    }

    /// Logs a change that is never undone and makes its edits.
    ///
    /// # Errors
    /// [`Need::Write`]: then nothing was logged.
    pub fn change(&self, edits: &[Edit<'_>]) -> Result<(), Need> {
        self.permit(edits)?;
        self.log_and_apply(TransactionId::SYSTEM, &Body::System, edits);
        Ok(())
    }

    /// Appends the record, then makes the edits. Returns a log position from which a scan finds the record, and its LSN.
    ///
    /// Part of its callers: for one page it is half of what they cost.
    #[inline(always)]
    pub fn log_and_apply(&self, transaction: TransactionId, body: &Body<'_>, edits: &[Edit<'_>]) -> (Lsn, Lsn) {
        let start = self.log.end();
        self.is_changing.set(true);
        let mut pool = self.buffer.pool().borrow_mut();
        debug_assert!(edits.iter().all(|edit| pool.may_write(edit.page)), "each planned page may be written");
        if let [edit] = edits {
            let frame = pool.frame_in_use(edit.page);
            let page = pool.bytes_mut(frame);
            let end = self.log.append(transaction, body, [(header::sequence(page) + 1, edit)]);
            edit.change.apply(page, end);
            pool.note_change(frame, start);
            self.is_changing.set(false);
            return (start, end);
        }
        let numbered = edits.iter().enumerate().map(|(index, edit)| {
            let page = pool.peek(edit.page).expect("the plan of the change saw the page");
            let earlier = edits[..index].iter().filter(|other| other.page == edit.page).count() as u64;
            (header::sequence(page) + 1 + earlier, edit)
        });
        let end = self.log.append(transaction, body, numbered);
        for edit in edits {
            let frame = pool.frame_in_use(edit.page);
            pool.edit(frame, &edit.change, start, end);
        }
        self.is_changing.set(false);
        (start, end)
    }

    /// Waits until an answer may leave that follows from what was committed up to `dependency`.
    pub async fn confirm_reads(&self, dependency: Lsn) -> Result<()> {
        if self.is_durable() && dependency > self.log.durable() {
            let began = self.executor.now();
            self.log.wait_durable(dependency).await?;
            self.statistics.add_wait(WaitKind::Log, &self.executor, began);
        }
        Ok(())
    }
}
