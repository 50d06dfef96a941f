//! Pages that a transaction is about to look at, asked for together rather than one after the other.

use super::PageTransaction;
use super::transaction::FRAMES_EACH;
use base::PageId;
use driver::Work;
use engine::Result;
use engine::second_level::design::Pattern;
use std::rc::Rc;

/// The most pages that [`PageTransaction::read_ahead`] asks for at a time.
pub const READ_AHEAD_MAX: usize = 64;

impl PageTransaction {
    /// Locks pages for reading and asks for those that are not here, all at once, without waiting for them: what looks at them later waits for
    /// all together. It takes the first [`READ_AHEAD_MAX`] of them, or as many as an eighth of the buffer holds. Those that another transaction of
    /// the node keeps locked are left out, and what does not come is asked for when it is looked at.
    ///
    /// # Errors
    /// As [`PageTransaction::read`], but for those of pages that cannot be had.
    pub async fn read_ahead(&mut self, pages: impl IntoIterator<Item = PageId>) -> Result<()> {
        self.check().await?;
        let client = Rc::clone(&self.client);
        let most = READ_AHEAD_MAX.min(client.settings.buffer.frames / FRAMES_EACH);
        let mut absent = Vec::new();
        for page in pages.into_iter().take(most) {
            if !client.protocol.borrow_mut().lock_ahead(self.transaction, page) {
                continue;
            }
            client.executor.charge(Work::LockPair);
            let told = client.protocol.borrow_mut().enter(self.transaction, page);
            told.inspect(|told| client.say(told));
            absent.push(page);
        }
        // A failure shows when the page is looked at.
        let _begun = self.unless_doomed(client.buffer.begin_reads(absent, Pattern::Sequential)).await?;
        Ok(())
    }
}
