//! A cache whose device fails again and again, or does not answer, is switched off while the database goes on.
//!
//! Nothing enters it any more, and what the pages' own devices have, too, is read from there. What only the cache has is
//! read back and written to its own place if the device still lets it be read; otherwise such a page is named when it is used, and
//! the log keeps what a restart makes it from.

use super::Tiers;
use crate::Error;
use base::{Instant, PageId};
use driver::{Completion, Fault, FaultKind};
use executor::WaitQueue;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// How many operations of the cache fail one after another before it is switched off.
pub const FAILURES_MAX: u32 = 8;
/// How often it is looked for an operation without an answer, within the time that one may take.
const WATCHES: u64 = 4;

/// Why a cache was switched off.
#[derive(Clone)]
struct CacheLoss {
    fault: Fault,
    /// Whether its device does not answer.
    is_silent: bool,
}

/// What is known of the cache's device.
#[derive(Default)]
pub struct Supervision {
    /// How long an operation may take, in nanoseconds; 0 for any time.
    silence_ns_max: Cell<u64>,
    /// Operations that are under way: since when, and what the task waiting for each is woken by.
    under_way: RefCell<BTreeMap<u64, (Instant, Rc<WaitQueue>)>>,
    next: Cell<u64>,
    is_watching: Cell<bool>,
    /// How many operations have failed since one has succeeded, of reads of the same slot only one.
    failures: Cell<u32>,
    /// Slots whose reads are among these.
    unreadable: RefCell<BTreeSet<u32>>,
    loss: RefCell<Option<CacheLoss>>,
}

impl Supervision {
    /// From now on an operation may take this long.
    pub(super) fn set_silence(&self, silence_ns_max: u64) {
        self.silence_ns_max.set(silence_ns_max);
    }
}

impl Tiers {
    /// Why the cache was switched off, if it was.
    pub fn lost_cache(&self) -> Option<Error> {
        self.supervision.loss.borrow().as_ref().map(|loss| Error::Input(loss.fault.clone()))
    }

    /// Whether the cache was switched off.
    pub fn is_lost(&self) -> bool {
        self.supervision.loss.borrow().is_some()
    }

    /// Whether operations of the cache have a time limit.
    pub(super) fn is_timed(&self) -> bool {
        self.supervision.silence_ns_max.get() > 0
    }

    /// Waits for an operation of the cache. An error if its device does not answer: what the operation carried is lost then, and
    /// whether it was carried out is unknown.
    pub(super) async fn answered<T: 'static>(
        self: &Rc<Self>,
        operation: impl Future<Output = T> + 'static,
    ) -> Result<T, Error> {
        if !self.is_timed() {
            return Ok(operation.await);
        }
        if let Some(fault) = self.silence() {
            return Err(Error::Input(fault));
        }
        let (answer, done) = (Rc::new(RefCell::new(None)), Rc::new(WaitQueue::new()));
        let number = self.supervision.next.replace(self.supervision.next.get() + 1);
        let since = self.executor.now();
        self.supervision.under_way.borrow_mut().insert(number, (since, Rc::clone(&done)));
        self.watch();
        let (this, told, woken) = (Rc::clone(self), Rc::clone(&answer), Rc::clone(&done));
        self.executor.spawn(async move {
            told.replace(Some(operation.await));
            this.supervision.under_way.borrow_mut().remove(&number);
            woken.wake_all(&this.executor);
        });
        loop {
            if let Some(answer) = answer.take() {
                return Ok(answer);
            }
            if let Some(fault) = self.silence() {
                return Err(Error::Input(fault));
            }
            done.wait(&self.executor).await;
        }
    }

    /// Why the cache was switched off, if its device does not answer.
    fn silence(&self) -> Option<Fault> {
        self.supervision.loss.borrow().as_ref().filter(|loss| loss.is_silent).map(|loss| loss.fault.clone())
    }

    /// Looks for operations without an answer as long as some are under way.
    fn watch(self: &Rc<Self>) {
        if self.supervision.is_watching.replace(true) {
            return;
        }
        let this = Rc::clone(self);
        self.executor.spawn(async move {
            loop {
                let limit_ns = this.supervision.silence_ns_max.get();
                if limit_ns == 0 {
                    break;
                }
                let looks_at = this.executor.now().plus_ns((limit_ns / WATCHES).max(1));
                this.executor.sleep_until(looks_at).await;
                this.pass_over_pause(looks_at);
                if this.supervision.silence_ns_max.get() != limit_ns {
                    continue;
                }
                let oldest = this.supervision.under_way.borrow().values().map(|(since, _)| *since).min();
                match oldest {
                    None => break,
                    Some(since) if this.executor.now().since_ns(since) >= limit_ns => {
                        let limit = base::units::format_duration_ns(limit_ns as f64);
                        this.lose_cache(&format!("it has not answered for {limit}"), true);
                        break;
                    }
                    Some(_) => {}
                }
            }
            this.supervision.is_watching.set(false);
        });
    }

    /// A process that was stopped until later than this moment does not know yet what was answered meanwhile: that time does
    /// not count.
    fn pass_over_pause(&self, looked_for: Instant) {
        let late_ns = self.executor.now().since_ns(looked_for);
        for (since, _) in self.supervision.under_way.borrow_mut().values_mut() {
            *since = since.plus_ns(late_ns);
        }
    }

    /// Notes how an operation of the cache ended: a read of this slot, or another one. A slot that is read in vain again tells nothing
    /// of others.
    pub(super) fn note_result(self: &Rc<Self>, completion: &Completion, read: Option<u32>) {
        let Supervision { failures, unreadable, .. } = &self.supervision;
        let Err(fault) = &completion.result else {
            failures.set(0);
            unreadable.borrow_mut().clear();
            return;
        };
        if read.is_some_and(|slot| !unreadable.borrow_mut().insert(slot)) {
            return;
        }
        failures.set(failures.get() + 1);
        if failures.get() >= FAILURES_MAX {
            self.lose_cache(&format!("{} operations have failed, the last one: {fault}", failures.get()), false);
        }
    }

    /// Switches the cache off.
    fn lose_cache(self: &Rc<Self>, why: &str, is_silent: bool) {
        let Some(cache) = &self.cache else { return };
        if self.is_lost() {
            return;
        }
        let (which, device) = (if self.is_upper() { "upper cache" } else { "cache" }, &cache.device);
        let next = match is_silent {
            true => {
                "; what it has alone is in the log: open the database again, without the cache if the device stays as it is"
            }
            false => "",
        };
        let words = format!("the {which} on device '{device}' was switched off: {why}{next}");
        let fault = Fault::new(FaultKind::Device, words);
        self.supervision.loss.replace(Some(CacheLoss { fault, is_silent }));
        let dirty = self.slots.borrow_mut().drop_clean();
        let waiting = self.supervision.under_way.take();
        waiting.into_values().for_each(|(_, done)| done.wake_all(&self.executor));
        self.destages_ended.wake_all(&self.executor);
        // The database may have been dropped while an operation was under way.
        let Some(host) = self.host_if_there() else { return };
        host.destage_ended();
        if !is_silent {
            self.save(dirty);
        }
    }

    /// Begins to bring what only the cache has to its own place, as far as it can be read. Pages of a device that does not answer keep
    /// no others waiting.
    fn save(self: &Rc<Self>, mut dirty: Vec<PageId>) {
        dirty.sort_unstable();
        for pages in dirty.chunk_by(|a, b| a.partition == b.partition) {
            let (this, pages) = (Rc::clone(self), pages.to_vec());
            self.executor.spawn(async move {
                for page in pages {
                    // What cannot be read counts as not yet written, and holds the log.
                    let _failed = this.await_destage(page).await;
                }
            });
        }
    }
}
