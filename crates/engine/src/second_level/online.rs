//! Changing the cache while the database runs.
//!
//! The tiers close first: nothing enters them any more, and what is read from them is only what nothing else has. Then what is
//! newer than on the pages' own devices goes there, and what is under way ends. From then on others can take their place, or
//! they go on by another design. If something fails before that they open again, and are what they were.

use super::design::Setting;
use super::slots::DirtyWanted;
use super::write_budget::Spending;
use super::{CacheSettings, Settings, Tiers};
use crate::tier_file::TierFile;
use crate::{Error, Result};
use base::Lsn;
use base::time::SECOND_NS;
use std::pin::pin;
use std::rc::Rc;
use structures::canary::{self, Canary};

/// How long operations that are under way may take to end, and how often that is looked at, in nanoseconds.
const PATIENCE_NS: u64 = 60 * SECOND_NS;
/// How long pages may take to come to their own places, after the one before them.
const DRAIN_NS_MAX: u64 = 300 * SECOND_NS;
const LOOK_NS: u64 = SECOND_NS / 2_000;

impl Tiers {
    /// Closes the tiers, and returns when every page's own device has what they have and nothing is under way in them.
    ///
    /// # Errors
    /// As [`Tiers::await_destage`], for the first page that cannot be written to its own device; [`Error::CacheBusy`] if none is
    /// for five minutes, or if operations of the tiers do not end for one. Then they are open again.
    pub async fn close(self: &Rc<Self>) -> Result<()> {
        self.is_closed.set(true);
        let result = self.come_to_rest().await;
        if result.is_err() {
            self.reopen();
        }
        result
    }

    /// Pages may enter again, but for a cache that was given up.
    pub fn reopen(&self) {
        self.is_closed.set(false);
    }

    /// Goes on without the cache, which is at rest, although an opening may look for it: its slots stay, and their table goes on
    /// to state what leaves them. Nothing may enter them. An opening that does not look for it would miss what is whole only
    /// there while it is written to its own place.
    pub fn give_up_cache(&self) {
        self.is_given_up.set(true);
        self.reopen();
    }

    async fn come_to_rest(self: &Rc<Self>) -> Result<()> {
        self.await_loading().await;
        let mut drained_at = None;
        loop {
            // What was on its way into a slot when the tiers closed may have arrived since.
            self.drain().await?;
            let since = *drained_at.get_or_insert(self.executor.now());
            // A group of slots that makes room ends with that; the next one sees that the tiers are closed.
            drop(self.emptying.take(&self.executor).await);
            self.state_table().await;
            if self.is_drained() && !self.is_busy() {
                return Ok(());
            }
            if self.executor.now().since_ns(since) > PATIENCE_NS {
                return Err(Error::CacheBusy);
            }
            self.executor.sleep_ns(LOOK_NS).await;
        }
    }

    /// Waits until every page's own device has what the tiers have.
    async fn drain(self: &Rc<Self>) -> Result<()> {
        while !self.is_drained() {
            let pending = self.slots.borrow().pending_before(Lsn::MAX, DirtyWanted::All);
            let mut draining = pin!(self.drain_pages(pending));
            loop {
                let left = self.pending_count();
                match self.executor.within(DRAIN_NS_MAX, draining.as_mut()).await {
                    Some(drained) => break drained?,
                    None if self.pending_count() >= left => return Err(Error::CacheBusy),
                    None => {}
                }
            }
        }
        Ok(())
    }

    fn is_drained(&self) -> bool {
        self.pending_count() == 0 || canary::is_planted(Canary::UndrainedCache)
    }

    /// Whether anything is on its way to a slot, from one, or to the table.
    pub fn is_under_way(&self) -> bool {
        self.is_busy() || self.table.borrow().as_ref().is_some_and(|table| table.is_writing())
    }

    fn is_busy(&self) -> bool {
        let files = self.cache.iter().chain(&self.write_buffer);
        let under_way: u32 = files.map(TierFile::under_way).sum();
        let cleans = self.is_cleaning.get() || !self.being_cleaned.borrow().is_empty();
        under_way > 0 || cleans || !self.entering.borrow().is_empty() || self.slots.borrow().is_busy()
    }

    /// The cache, which is at rest, goes on by these settings in the slots that it has. Its contents stay.
    pub fn redesign(&self, settings: &CacheSettings, force: bool) {
        let policy = settings.design.build(&Setting { force, parameters: settings.parameters });
        let capacity = self.slots.borrow().contents().capacity();
        self.slots.borrow_mut().reorder(policy.order(capacity as usize));
        self.go_by(&*policy, capacity);
        self.limit(settings);
        self.policy.replace(policy);
        self.supervision.set_silence(self.silence_ns_max(settings));
    }

    /// What is to take the place of these tiers, which are at rest: their write buffer, and this cache.
    pub fn successor(&self, (settings, force): (&Settings, bool), cache: Option<TierFile>) -> Option<Rc<Tiers>> {
        let write_buffer = self.write_buffer.clone();
        (cache.is_some() || write_buffer.is_some()).then(|| {
            let tiers = Tiers::new(&self.executor, (settings, force), [cache, write_buffer], self.host.clone());
            Rc::new(tiers)
        })
    }

    /// What was spent of the budget of writes, when the cache is turned off.
    pub fn end_spending(&self) -> Option<Spending> {
        self.spending.take()
    }

    /// Nothing is left of the budget of writes: an opening does not know what the one before has spent.
    pub fn begin_spent(&self) {
        let (mut spending, now) = (self.spending.borrow_mut(), self.executor.now());
        *spending = spending.take().map(|full| Spending::spent(now).go_on_with(full.budget(), now));
    }

    /// What was spent of a budget of writes before the cache was turned on. Its own goes on with what that one has left.
    pub fn go_on_spending(&self, before: Option<Spending>) {
        let mut spending = self.spending.borrow_mut();
        if let (Some(present), Some(before)) = (&*spending, before) {
            let after = before.go_on_with(present.budget(), self.executor.now());
            *spending = Some(after);
        }
    }

    /// Nothing uses these tiers any more, which are at rest and stay closed.
    pub fn retire(&self) {
        self.slots.borrow_mut().retire();
    }
}
