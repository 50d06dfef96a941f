//! Waiting: queues, and granting from them.

use super::deadlock::VictimPolicy;
use super::request::{Header, NONE, Request};
use super::resource::Resource;
use super::table::{Denial, LockTable, Outcome, Owner};

impl LockTable {
    /// Withdraws the owner's waiting request and appends the owners that need not wait any more to `woken`. Returns whether
    /// there was one; there is none after the owner was woken.
    #[inline]
    pub fn cancel(&mut self, owner: Owner, woken: &mut Vec<Owner>) -> bool {
        match self.owners.get(owner.0 as usize) {
            Some(holdings) if holdings.waiting != NONE => {
                let head = self.withdraw(owner);
                self.grant_waiters(head, woken);
                true
            }
            _ => false,
        }
    }

    /// Lets a request wait that was denied, unless that would close a cycle and the requester is the victim.
    #[cold]
    #[inline(never)]
    pub(super) fn wait(&mut self, owner: Owner, resource: Resource, denial: Denial, began: u64) -> Outcome {
        self.enqueue(owner, resource, denial, began);
        if !self.closes_cycle(owner) {
            self.statistics.waits += 1;
            return Outcome::Waiting;
        }
        self.statistics.deadlocks += 1;
        let victim = match self.policy {
            VictimPolicy::Requester => owner,
            VictimPolicy::Youngest => self.youngest_in_cycles(owner),
        };
        if victim != owner {
            self.owners[victim.0 as usize].is_victim = true;
            if !self.closes_cycle(owner) {
                self.statistics.waits += 1;
                return Outcome::Deadlock { victim };
            }
            // One victim elsewhere does not break every cycle, but all of them go through the requester.
            self.owners[victim.0 as usize].is_victim = false;
        }
        self.withdraw(owner);
        Outcome::Deadlock { victim: owner }
    }

    /// Puts a request into its resource's queue: an upgrade after the other upgrades, anything else at the end.
    fn enqueue(&mut self, owner: Owner, resource: Resource, denial: Denial, began: u64) {
        let Denial { head, target, upgrade } = denial;
        let after = match upgrade {
            true => self.first_ordinary_waiter(head),
            false => NONE,
        };
        let before = match after {
            NONE => self.requests[head].header.last_waiter,
            after => self.requests[after].prev,
        };
        let request = self.store_request(owner, resource, target);
        let place = &mut self.requests[request];
        place.upgrade = upgrade;
        place.next = after;
        place.prev = before;
        match after {
            NONE => self.requests[head].header.last_waiter = request,
            after => self.requests[after].prev = request,
        }
        match before {
            NONE => self.requests[head].header.first_waiter = request,
            before => self.requests[before].next = request,
        }
        let holdings = &mut self.owners[owner.0 as usize];
        holdings.waiting = request;
        holdings.is_victim = false;
        holdings.began = began;
    }

    fn first_ordinary_waiter(&self, head: u32) -> u32 {
        let mut at = self.requests[head].header.first_waiter;
        while at != NONE && self.requests[at].upgrade {
            at = self.requests[at].next;
        }
        at
    }

    /// Takes the owner's waiting request out of its queue and frees it. Returns the resource's first holder.
    fn withdraw(&mut self, owner: Owner) -> u32 {
        let waiting = self.owners[owner.0 as usize].waiting;
        let resource = self.requests[waiting].resource;
        let head = self.head(resource, resource.hash_bits());
        self.unqueue(head, waiting);
        self.requests.remove(waiting);
        head
    }

    /// Unlinks a waiting request from its queue; its owner waits no more.
    fn unqueue(&mut self, head: u32, waiting: u32) {
        let Request { owner, next, prev, .. } = self.requests[waiting];
        match next {
            NONE => self.requests[head].header.last_waiter = prev,
            next => self.requests[next].prev = prev,
        }
        match prev {
            NONE => self.requests[head].header.first_waiter = next,
            prev => self.requests[prev].next = next,
        }
        let holdings = &mut self.owners[owner.0 as usize];
        holdings.waiting = NONE;
        holdings.is_victim = false;
    }

    /// Grants whatever can be granted now: each upgrade that the other holders admit and then, if no upgrade is left, the
    /// longest compatible run at the front of the queue.
    ///
    /// Nothing behind the first request that stays may be granted: either that request excludes it or, as only Shared and
    /// InsertIntention admit anything and what excludes Shared excludes Update, whatever blocks the first blocks it too.
    pub(super) fn grant_waiters(&mut self, head: u32, woken: &mut Vec<Owner>) {
        let mut at = self.requests[head].header.first_waiter;
        while at != NONE {
            let Request { owner, mode, upgrade, next, .. } = self.requests[at];
            if upgrade {
                if self.admits_upgrade(head, mode) {
                    self.unqueue(head, at);
                    self.requests.remove(at);
                    let held = self.holding_under(head, owner);
                    self.requests[held].mode = mode;
                    self.requests[head].group = mode;
                    woken.push(owner);
                }
            } else {
                let first = &self.requests[head];
                if first.header.first_waiter != at || !first.group.admits(mode) {
                    return;
                }
                self.unqueue(head, at);
                self.append_holder(head, at);
                self.hold(at, owner);
                woken.push(owner);
            }
            at = next;
        }
    }

    /// Replaces the only holder of a resource by the first waiter and grants the requests that are compatible with it.
    pub(super) fn succeed(&mut self, request: u32, hash: u64, woken: &mut Vec<Owner>) {
        let heir = self.requests[request].header.first_waiter;
        self.unqueue(request, heir);
        let owner = self.requests[heir].owner;
        let header = self.requests[request].header;
        let first = &mut self.requests[heir];
        debug_assert!(!first.upgrade, "an upgrade waits for other holders");
        first.header = Header { last_holder: heir, ..header };
        first.group = first.mode;
        first.next = NONE;
        first.prev = NONE;
        self.replace_head(request, heir, hash);
        self.hold(heir, owner);
        woken.push(owner);
        self.grant_waiters(heir, woken);
    }
}
