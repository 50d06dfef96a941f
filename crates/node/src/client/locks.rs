//! The locks of a node's transactions among themselves: on pages, in the engine's own table.
//!
//! A copy that is called back is asked for like by one transaction more: those that have it go on, and those that come later stand behind
//! that request. So no callback waits for ever, and what waits for one another within the node is one graph.

use crate::message::Transaction;
use base::PageId;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use structures::lock::{Attempt, LockTable, Mode, Outcome, Owner, Resource, VictimPolicy};

/// Who has locks, or waits for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum LockHolder {
    /// The copy of this page is to be given up.
    Callback(PageId),
    Transaction(Transaction),
}

/// What came of asking for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Granted,
    Waiting,
    /// That closes a cycle, which this transaction has to end.
    Deadlock(Transaction),
}

pub(super) struct NodeLocks {
    table: LockTable,
    owners: HashMap<LockHolder, Owner, FixedState>,
    /// By the number of the owner: who it is, and which of all requests its last one was.
    holders: Vec<Option<LockHolder>>,
    arrivals: Vec<u64>,
    arrived: u64,
    free: Vec<Owner>,
    woken: Vec<Owner>,
}

impl Default for NodeLocks {
    fn default() -> NodeLocks {
        let (owners, holders, arrivals, arrived, free, woken) = Default::default();
        let table = LockTable::new(VictimPolicy::Youngest);
        NodeLocks { table, owners, holders, arrivals, arrived, free, woken }
    }
}

impl NodeLocks {
    fn owner(&mut self, holder: LockHolder) -> Owner {
        if let Some(owner) = self.owners.get(&holder) {
            return *owner;
        }
        let owner = self.free.pop().unwrap_or_else(|| {
            self.holders.push(None);
            self.arrivals.push(0);
            Owner(self.holders.len() as u32 - 1)
        });
        self.holders[owner.0 as usize] = Some(holder);
        self.owners.insert(holder, owner);
        owner
    }

    fn holder(&self, owner: Owner) -> LockHolder {
        self.holders[owner.0 as usize].expect("only owners in use are in the table")
    }

    /// Asks for a page. What the same holder has waited for before, it waits for no longer.
    pub fn request(&mut self, holder: LockHolder, page: PageId, mode: Mode) -> Asked {
        let owner = self.owner(holder);
        self.table.cancel(owner, &mut self.woken);
        self.arrived += 1;
        self.arrivals[owner.0 as usize] = self.arrived;
        // A callback never is the youngest.
        let began = match holder {
            LockHolder::Transaction(Transaction(number)) => number + 1,
            LockHolder::Callback(_) => 0,
        };
        match self.table.request(owner, Resource::page(page), mode, began) {
            Outcome::Granted => Asked::Granted,
            Outcome::Waiting => Asked::Waiting,
            Outcome::Deadlock { victim } => match self.holder(victim) {
                LockHolder::Transaction(transaction) => Asked::Deadlock(transaction),
                LockHolder::Callback(page) => unreachable!("no callback is younger than a transaction: {page}"),
            },
        }
    }

    /// Asks for a page that is locked only if that needs no wait. Whether it is.
    pub fn try_request(&mut self, holder: LockHolder, page: PageId, mode: Mode) -> bool {
        let owner = self.owner(holder);
        self.table.cancel(owner, &mut self.woken);
        self.table.try_request(owner, Resource::page(page), mode) == Attempt::Granted
    }

    /// The holder does not wait any more.
    pub fn withdraw(&mut self, holder: LockHolder) {
        if let Some(owner) = self.owners.get(&holder) {
            self.table.cancel(*owner, &mut self.woken);
        }
    }

    /// The holder's locks are over, and what it waits for.
    pub fn end(&mut self, holder: LockHolder) {
        if let Some(owner) = self.owners.remove(&holder) {
            self.table.release_all(owner, &mut self.woken);
            self.holders[owner.0 as usize] = None;
            self.free.push(owner);
        }
    }

    /// Those that have got what they waited for since they were told last. Some may have ended since.
    pub fn take_woken(&mut self) -> Vec<LockHolder> {
        let woken = std::mem::take(&mut self.woken);
        woken.into_iter().filter_map(|owner| self.holders[owner.0 as usize]).collect()
    }

    /// Whether there are such.
    pub fn has_woken(&self) -> bool {
        !self.woken.is_empty()
    }

    pub fn holds(&self, holder: LockHolder, page: PageId) -> Option<Mode> {
        self.table.holds(*self.owners.get(&holder)?, Resource::page(page))
    }

    pub fn is_waiting(&self, holder: LockHolder) -> bool {
        self.owners.get(&holder).is_some_and(|owner| self.table.waiting(*owner).is_some())
    }

    /// Whether there is a lock on the page.
    pub fn is_held(&self, page: PageId) -> bool {
        self.table.is_held(Resource::page(page))
    }

    /// The transactions that have a lock on the page.
    pub fn transactions(&self, page: PageId) -> impl Iterator<Item = Transaction> {
        self.table.holders(Resource::page(page)).filter_map(|owner| match self.holder(owner) {
            LockHolder::Transaction(transaction) => Some(transaction),
            LockHolder::Callback(_) => None,
        })
    }

    /// Transactions that one waits for, by way of which it waits for all others that it does: the next one ahead of it in the queue, those
    /// that have the lock if that says nothing of them, and in place of a callback those that it waits for.
    pub fn blockers(&self, transaction: Transaction) -> Vec<Transaction> {
        let Some(owner) = self.owners.get(&LockHolder::Transaction(transaction)) else { return Vec::new() };
        let mut found = Vec::new();
        self.collect_blockers(*owner, &mut found);
        found.retain(|other| *other != transaction);
        found
    }

    fn collect_blockers(&self, owner: Owner, found: &mut Vec<Transaction>) {
        let Some(resource) = self.table.waiting(owner) else { return };
        let holds = |other: &Owner| self.table.holds(*other, resource).is_some();
        let (mut next, ahead): (Vec<Owner>, Vec<Owner>) = self.table.blockers(owner).into_iter().partition(holds);
        if let Some(last) = ahead.into_iter().max_by_key(|other| self.arrivals[other.0 as usize]) {
            if self.table.waiting_mode(last) == Some(Mode::Exclusive) {
                next.clear();
            }
            next.push(last);
        }
        for other in next {
            match self.holder(other) {
                LockHolder::Transaction(other) => found.push(other),
                LockHolder::Callback(_) => self.collect_blockers(other, found),
            }
        }
    }
}
