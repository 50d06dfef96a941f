//! Pages that a transaction is about to look at, asked for together rather than one after the other.
//!
//! Here the caller says which, and they are locked at once. Scans ask ahead without locks (`ranges.rs`).

use super::transaction::FRAMES_EACH;
use super::{ClientNode, PageTransaction};
use crate::message::Transaction;
use crate::server::WAITING_MAX;
use base::PageId;
use driver::Work;
use engine::Result;
use engine::second_level::design::Pattern;
use std::rc::Rc;

/// The most pages that [`PageTransaction::read_ahead`] asks for at a time.
pub const READ_AHEAD_MAX: usize = 64;

impl PageTransaction {
    /// Locks pages for reading and asks for those that are not here, all at once, without waiting for them: what looks at them later waits for
    /// all together. It takes the first [`READ_AHEAD_MAX`] of them, and fewer while many are on their way to the node: no more than an eighth
    /// of the buffer holds may be asked for ahead by all of its transactions. Returns how many it has taken. Those among them that another
    /// transaction of the node keeps locked are left out, and what does not come is asked for when it is looked at.
    ///
    /// # Errors
    /// As [`PageTransaction::read`], but for those of pages that cannot be had.
    pub async fn read_ahead(&mut self, pages: impl IntoIterator<Item = PageId>) -> Result<usize> {
        self.check().await?;
        let client = Rc::clone(&self.client);
        let (mut taken, mut absent) = (0, Vec::new());
        for page in pages.into_iter().take(client.room_ahead()) {
            taken += 1;
            if !client.protocol.borrow_mut().lock_ahead(self.transaction, page) {
                continue;
            }
            client.executor.charge(Work::LockPair);
            absent.push(page);
        }
        let _asked = AskedAhead::note(&client, self.transaction, &absent);
        // A failure shows when the page is looked at.
        let begun = client.buffer.begin_reads(absent, Pattern::Sequential);
        let _begun =
            self.unless_doomed(begun, &mut None, || "a frame for a page that is asked for ahead".to_owned()).await?;
        Ok(taken)
    }
}

/// A transaction has these pages asked for ahead, as long as this is there.
struct AskedAhead {
    client: Rc<ClientNode>,
    transaction: Transaction,
    pages: Vec<PageId>,
}

impl AskedAhead {
    fn note(client: &Rc<ClientNode>, transaction: Transaction, pages: &[PageId]) -> AskedAhead {
        client.to_look_at.borrow_mut().extend(pages.iter().map(|page| (*page, transaction)));
        AskedAhead { client: Rc::clone(client), transaction, pages: pages.to_vec() }
    }
}

impl Drop for AskedAhead {
    fn drop(&mut self) {
        let mut to_look_at = self.client.to_look_at.borrow_mut();
        for page in &self.pages {
            if to_look_at.get(page) == Some(&self.transaction) {
                to_look_at.remove(page);
            }
        }
    }
}

impl ClientNode {
    /// How many more pages may be asked for ahead. Each takes a frame for as long as another node writes it, which may wait for a transaction
    /// of this node that needs frames itself; and at the server its request is one of those that may wait.
    fn room_ahead(&self) -> usize {
        let most = (self.settings.buffer.frames / FRAMES_EACH).min(WAITING_MAX / 2);
        most.saturating_sub(self.reads.under_way()).min(READ_AHEAD_MAX)
    }
}
