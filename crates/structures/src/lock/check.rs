//! The invariants of the lock table, checked from first principles. For tests: it looks at everything.

use super::request::{NONE, Request};
use super::resource::Resource;
use super::table::{LockTable, Owner};
use std::fmt;

/// A broken invariant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// Two owners hold a resource though neither mode admits the other.
    Incompatible(Resource, Owner, Owner),
    /// An owner waits although no request blocks it: a lost wake-up.
    NotBlocked(Resource, Owner),
    /// The first owner holds a resource or stands ahead in its queue though it came after the second, which waits.
    Overtaken(Resource, Owner, Owner),
    /// An owner waits for itself by way of others, and none of them is a victim.
    Cycle(Owner),
    /// A list, a count or a summary of this resource contradicts another.
    Resource(Resource),
    /// A list, a count or a summary of this owner contradicts another.
    Owner(Owner),
    /// Requests, resources or hash chains were lost.
    Count,
    /// Ranges of keys overlap or contradict each other.
    Ranges,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Violation::Incompatible(resource, a, b) => write!(f, "{resource}: owners {} and {} hold it", a.0, b.0),
            Violation::NotBlocked(resource, owner) => write!(f, "{resource}: owner {} waits for no other", owner.0),
            Violation::Overtaken(resource, a, b) => write!(f, "{resource}: owner {} overtook owner {}", a.0, b.0),
            Violation::Cycle(owner) => write!(f, "owner {} waits for itself", owner.0),
            Violation::Resource(resource) => write!(f, "{resource}: its lists are inconsistent"),
            Violation::Owner(owner) => write!(f, "owner {}: its lists are inconsistent", owner.0),
            Violation::Count => write!(f, "requests were lost"),
            Violation::Ranges => write!(f, "ranges of keys are inconsistent"),
        }
    }
}

impl std::error::Error for Violation {}

fn ensure(holds: bool, violation: Violation) -> Result<(), Violation> {
    if holds { Ok(()) } else { Err(violation) }
}

impl LockTable {
    /// Checks every invariant: holders of a resource are compatible, waiters are blocked and not overtaken, no cycle went
    /// undetected, all lists agree. Takes time proportional to the square of what it finds.
    ///
    /// # Errors
    /// The first [`Violation`] found.
    pub fn check(&self) -> Result<(), Violation> {
        let (mut resources, mut holders, mut waiters) = (0, 0, 0);
        for bucket in 0..self.buckets.len() {
            let mut head = self.buckets[bucket];
            while head != NONE {
                let Request { resource, header, .. } = self.requests[head];
                let reached =
                    self.bucket(resource.hash_bits()) == bucket && self.head(resource, resource.hash_bits()) == head;
                ensure(reached, Violation::Resource(resource))?;
                resources += 1;
                holders += self.check_holders(head)?;
                waiters += self.check_queue(head)?;
                head = header.chain;
            }
        }
        let (mut held, mut waiting) = (0, 0);
        for owner in (0..self.owners.len() as u32).map(Owner) {
            held += self.check_owner(owner)?;
            waiting += usize::from(self.owners[owner.0 as usize].waiting != NONE);
        }
        ensure(resources == self.resources && resources <= self.buckets.len(), Violation::Count)?;
        ensure(held == holders && waiting == waiters, Violation::Count)?;
        ensure(self.requests.count() == holders + waiters, Violation::Count)?;
        self.check_acyclic()
    }

    /// Checks the holders of a resource and returns their number.
    fn check_holders(&self, head: u32) -> Result<usize, Violation> {
        let Request { resource, header, group, prev, .. } = self.requests[head];
        let broken = Violation::Resource(resource);
        ensure(prev == NONE, broken)?;
        let mut holders: Vec<Request> = Vec::new();
        let (mut at, mut before) = (head, NONE);
        while at != NONE {
            let holder = self.requests[at];
            ensure(holder.resource == resource && holder.prev == before && !holder.upgrade, broken)?;
            ensure(at == head || holder.header.holders == 0, broken)?;
            for other in &holders {
                ensure(other.owner != holder.owner, broken)?;
                let compatible = other.mode.admits(holder.mode) || holder.mode.admits(other.mode);
                ensure(compatible, Violation::Incompatible(resource, other.owner, holder.owner))?;
            }
            holders.push(holder);
            (before, at) = (at, holder.next);
        }
        let supremum = holders.iter().map(|holder| holder.mode).reduce(|a, b| a.supremum(b));
        ensure(header.last_holder == before && header.holders as usize == holders.len(), broken)?;
        ensure(supremum == Some(group), broken)?;
        Ok(holders.len())
    }

    /// Checks the queue of a resource and returns its length.
    fn check_queue(&self, head: u32) -> Result<usize, Violation> {
        let Request { resource, header, .. } = self.requests[head];
        let broken = Violation::Resource(resource);
        let mut queue: Vec<Request> = Vec::new();
        let (mut at, mut before) = (header.first_waiter, NONE);
        while at != NONE {
            let waiter = self.requests[at];
            let owner = self.owners.get(waiter.owner.0 as usize).ok_or(broken)?;
            ensure(waiter.resource == resource && waiter.prev == before && owner.waiting == at, broken)?;
            let held = self.holding_under(head, waiter.owner);
            ensure(waiter.upgrade == (held != NONE), broken)?;
            if waiter.upgrade {
                let mode = self.requests[held].mode;
                ensure(mode != waiter.mode && waiter.mode.covers(mode), broken)?;
            }
            if let Some(ahead) = queue.last() {
                ensure(ahead.upgrade || !waiter.upgrade, broken)?;
                let in_order = ahead.upgrade != waiter.upgrade || came_first(ahead, &waiter);
                ensure(in_order, Violation::Overtaken(resource, ahead.owner, waiter.owner))?;
            }
            self.check_not_overtaken_by_holders(head, &waiter)?;
            let mut blockers = Vec::new();
            self.waited_for(waiter.owner, &mut blockers);
            ensure(owner.is_victim || !blockers.is_empty(), Violation::NotBlocked(resource, waiter.owner))?;
            queue.push(waiter);
            (before, at) = (at, waiter.next);
        }
        ensure(header.last_waiter == before, broken)?;
        Ok(queue.len())
    }

    /// No request is granted while others wait, so every holder came before every waiter, except for upgrades.
    fn check_not_overtaken_by_holders(&self, head: u32, waiter: &Request) -> Result<(), Violation> {
        let mut at = head;
        while at != NONE {
            let holder = &self.requests[at];
            let fair = waiter.upgrade || came_first(holder, waiter);
            ensure(fair, Violation::Overtaken(waiter.resource, holder.owner, waiter.owner))?;
            at = holder.next;
        }
        Ok(())
    }

    /// Checks what an owner holds and waits for and returns how much it holds.
    fn check_owner(&self, owner: Owner) -> Result<usize, Violation> {
        let holdings = &self.owners[owner.0 as usize];
        let (mut at, mut before, mut held) = (holdings.first, NONE, 0);
        while at != NONE {
            let request = self.requests[at];
            ensure(request.owner == owner && request.owner_prev == before, Violation::Owner(owner))?;
            let head = self.head(request.resource, request.resource.hash_bits());
            let mut holder = head;
            while holder != NONE && holder != at {
                holder = self.requests[holder].next;
            }
            ensure(holder == at, Violation::Owner(owner))?;
            held += 1;
            (before, at) = (at, request.owner_next);
        }
        ensure(held == holdings.held as usize, Violation::Owner(owner))?;
        ensure(holdings.waiting != NONE || !holdings.is_victim, Violation::Owner(owner))?;
        Ok(held)
    }

    /// Removes owners that wait for no other owner until none is left; the remaining owners are on cycles or wait for owners
    /// that are.
    fn check_acyclic(&self) -> Result<(), Violation> {
        let mut edges: Vec<(Owner, Vec<Owner>)> = Vec::new();
        for owner in (0..self.owners.len() as u32).map(Owner) {
            let mut blockers = Vec::new();
            self.waited_for(owner, &mut blockers);
            if !blockers.is_empty() {
                edges.push((owner, blockers));
            }
        }
        loop {
            let blocked: Vec<Owner> = edges.iter().map(|(owner, _)| *owner).collect();
            edges.retain(|(_, blockers)| blockers.iter().any(|blocker| blocked.contains(blocker)));
            match edges.first() {
                None => return Ok(()),
                Some((owner, _)) if edges.len() == blocked.len() => return Err(Violation::Cycle(*owner)),
                Some(_) => {}
            }
        }
    }
}

/// Whether a request arrived before another. Right unless 2^31 requests lie between the two.
fn came_first(a: &Request, b: &Request) -> bool {
    (b.arrived.wrapping_sub(a.arrived) as i32) > 0
}
