//! The table: granting at once and releasing.

use super::deadlock::{Search, VictimPolicy};
use super::mode::Mode;
use super::request::{Header, NONE, Request, Slab};
use super::resource::Resource;
use super::stamps::{self, Stamps};
use base::Lsn;

/// Buckets of a new table; a power of two.
const BUCKETS_MIN: usize = 1024;

/// An owner of locks: an index chosen by the transaction manager. Indices should be dense and reused, the table keeps a few
/// words for each up to the greatest that it has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(pub u32);

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    /// The owner holds the resource in the requested or a stronger mode.
    Granted,
    /// The request stands in the queue; a release will report the owner as woken.
    Waiting,
    /// Waiting would close a cycle. If the victim is the requester, the request is withdrawn and the table is as it was.
    /// If it is another, the request waits, and the caller must make that owner give up without delay: cancel its waiting
    /// request, undo its changes and release all that it holds.
    Deadlock {
        /// The owner that is to give up.
        victim: Owner,
    },
}

/// What became of a request that must not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Attempt {
    /// The owner holds the resource in the requested or a stronger mode.
    Granted,
    /// The request would have to wait; the table is as it was.
    Denied,
}

/// What a lock table counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockStatistics {
    /// Requests of every kind, those for what is held already included.
    pub requests: u64,
    /// Requests that went to a queue and stayed there.
    pub waits: u64,
    /// Requests that closed a cycle, including those for which another owner became the victim.
    pub deadlocks: u64,
}

/// What one owner holds and waits for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holdings {
    /// The granted requests, latest first.
    pub(super) first: u32,
    pub(super) held: u32,
    /// The request that waits, if any.
    pub(super) waiting: u32,
    /// Chosen as a victim and not yet withdrawn: its request does not count as waiting.
    pub(super) is_victim: bool,
    /// The order in which owners began, as told with the request that waits.
    pub(super) began: u64,
}

impl Holdings {
    const NOTHING: Holdings = Holdings { first: NONE, held: 0, waiting: NONE, is_victim: false, began: 0 };
}

/// Why a request is not granted at once, and all that is needed to let it wait.
pub(super) struct Denial {
    /// The first holder of the resource.
    pub(super) head: u32,
    /// The mode that the owner would hold.
    pub(super) target: Mode,
    /// Whether the owner holds the resource in a weaker mode.
    pub(super) upgrade: bool,
}

/// All locks of an engine.
#[derive(Debug)]
pub struct LockTable {
    /// Chains of first holders; a power of two of them, and at least as many as there are locked resources.
    pub(super) buckets: Vec<u32>,
    pub(super) requests: Slab,
    pub(super) owners: Vec<Holdings>,
    /// The number of locked resources.
    pub(super) resources: usize,
    pub(super) stamps: Stamps,
    pub(super) policy: VictimPolicy,
    pub(super) search: Search,
    /// All requests ever, from which `statistics.requests` is told and by which requests are ordered.
    pub(super) arrivals: u64,
    /// `arrivals` when statistics were restarted.
    pub(super) arrivals_before: u64,
    pub(super) statistics: LockStatistics,
}

impl LockTable {
    /// A table without locks that resolves deadlocks by `policy`.
    pub fn new(policy: VictimPolicy) -> LockTable {
        LockTable::with_buckets(policy, BUCKETS_MIN)
    }

    /// A table that starts with this power of two of buckets.
    pub(super) fn with_buckets(policy: VictimPolicy, buckets: usize) -> LockTable {
        LockTable {
            buckets: vec![NONE; buckets],
            requests: Slab::with_capacity(buckets),
            owners: Vec::new(),
            resources: 0,
            stamps: Stamps::new(),
            policy,
            search: Search::default(),
            arrivals: 0,
            arrivals_before: 0,
            statistics: LockStatistics::default(),
        }
    }

    /// Asks for `resource`. `began` orders owners by age, as the numbers of their transactions do: the greater the younger.
    ///
    /// An owner that holds the resource already keeps one lock, in the supremum of both modes; there is no count.
    ///
    /// # Panics
    /// If the owner waits for another request.
    #[inline]
    pub fn request(&mut self, owner: Owner, resource: Resource, mode: Mode, began: u64) -> Outcome {
        match self.grant_at_once(owner, resource, mode) {
            None => Outcome::Granted,
            Some(denial) => self.wait(owner, resource, denial, began),
        }
    }

    /// Asks for `resource` and gives up if it cannot be had at once.
    ///
    /// # Panics
    /// If the owner waits for another request.
    #[inline]
    pub fn try_request(&mut self, owner: Owner, resource: Resource, mode: Mode) -> Attempt {
        match self.grant_at_once(owner, resource, mode) {
            None => Attempt::Granted,
            Some(_) => Attempt::Denied,
        }
    }

    /// Whether [`LockTable::try_request`] would be granted; nothing changes.
    #[inline]
    pub fn would_grant(&self, owner: Owner, resource: Resource, mode: Mode) -> bool {
        let head = self.head(resource, resource.hash_bits());
        if head == NONE {
            return true;
        }
        let held = self.holding_under(head, owner);
        if held != NONE {
            let (present, target) = (self.requests[held].mode, self.requests[held].mode.supremum(mode));
            return target == present || self.admits_upgrade(head, target);
        }
        let first = &self.requests[head];
        first.header.first_waiter == NONE && first.group.admits(mode)
    }

    /// Releases one lock before the others, if it is held, and appends the owners that are granted theirs to `woken`. For locks
    /// of instant duration: ask [`LockTable::holds`] first, so that a lock which is held for longer is not lost.
    ///
    /// # Panics
    /// If the owner waits for an upgrade of that lock.
    pub fn release(&mut self, owner: Owner, resource: Resource, woken: &mut Vec<Owner>) {
        let hash = resource.hash_bits();
        let held = self.holding(owner, resource, hash);
        if held == NONE {
            return;
        }
        assert!(self.waiting(owner) != Some(resource), "a lock is released while its upgrade waits");
        let Request { owner_next, owner_prev, .. } = self.requests[held];
        let holdings = &mut self.owners[owner.0 as usize];
        holdings.held -= 1;
        match owner_prev {
            NONE => holdings.first = owner_next,
            before => self.requests[before].owner_next = owner_next,
        }
        if owner_next != NONE {
            self.requests[owner_next].owner_prev = owner_prev;
        }
        self.leave(held, hash, woken);
    }

    /// Ends an owner: withdraws its waiting request, if any, releases all its locks, latest first, and appends the owners that
    /// are granted theirs to `woken`.
    pub fn release_all(&mut self, owner: Owner, woken: &mut Vec<Owner>) {
        self.end(owner, None, woken);
    }

    /// Ends an owner whose commit record ends at `lsn` and may not be durable yet: as [`LockTable::release_all`], and owners
    /// that lock a resource which it had locked in a writing mode depend on `lsn`, see [`LockTable::dependency`].
    pub fn release_all_stamped(&mut self, owner: Owner, lsn: Lsn, woken: &mut Vec<Owner>) {
        self.end(owner, Some(lsn), woken);
    }

    /// The LSN that must be durable before anything that was read under a lock on `resource` may be acknowledged. Ask when
    /// the lock is granted. It may be later than necessary, never earlier.
    #[inline]
    pub fn dependency(&self, resource: Resource) -> Lsn {
        self.stamps.of(resource.hash_bits())
    }

    /// In which mode the owner holds `resource`.
    pub fn holds(&self, owner: Owner, resource: Resource) -> Option<Mode> {
        match self.holding(owner, resource, resource.hash_bits()) {
            NONE => None,
            held => Some(self.requests[held].mode),
        }
    }

    /// Whether an owner holds `resource`.
    #[inline]
    pub fn is_held(&self, resource: Resource) -> bool {
        self.head(resource, resource.hash_bits()) != NONE
    }

    /// The owners that hold `resource`, in no order that means anything.
    pub fn holders(&self, resource: Resource) -> impl Iterator<Item = Owner> {
        let first = self.head(resource, resource.hash_bits());
        let next = |at: u32| (at != NONE).then_some(at);
        std::iter::successors(next(first), move |at| next(self.requests[*at].next)).map(|at| self.requests[at].owner)
    }

    /// What the owner waits for.
    pub fn waiting(&self, owner: Owner) -> Option<Resource> {
        let holdings = self.owners.get(owner.0 as usize)?;
        (holdings.waiting != NONE).then(|| self.requests[holdings.waiting].resource)
    }

    /// In which mode the owner waits, if it does; an upgrade's is that which it will hold.
    pub fn waiting_mode(&self, owner: Owner) -> Option<Mode> {
        let holdings = self.owners.get(owner.0 as usize)?;
        (holdings.waiting != NONE).then(|| self.requests[holdings.waiting].mode)
    }

    /// The owners that an owner waits for, not by way of third ones, each once.
    pub fn blockers(&self, owner: Owner) -> Vec<Owner> {
        let mut found = Vec::new();
        if (owner.0 as usize) < self.owners.len() {
            self.waited_for(owner, &mut found);
        }
        found.sort_by_key(|owner| owner.0);
        found.dedup();
        found
    }

    /// How much memory the table takes, in bytes.
    pub fn bytes(&self) -> usize {
        self.buckets.capacity() * size_of::<u32>()
            + self.requests.bytes()
            + self.owners.capacity() * size_of::<Holdings>()
            + size_of::<[Lsn; stamps::SLOTS]>()
    }

    /// How many resources the owner holds.
    pub fn held(&self, owner: Owner) -> usize {
        self.owners.get(owner.0 as usize).map_or(0, |holdings| holdings.held as usize)
    }

    /// What was counted since the table was made or [`LockTable::restart_statistics`] was called.
    pub fn statistics(&self) -> LockStatistics {
        LockStatistics { requests: self.arrivals - self.arrivals_before, ..self.statistics }
    }

    /// Forgets what was counted: the end of a warm-up.
    pub fn restart_statistics(&mut self) {
        self.arrivals_before = self.arrivals;
        self.statistics = LockStatistics::default();
    }

    /// Grants a request, or says why it has to wait.
    #[inline(always)]
    fn grant_at_once(&mut self, owner: Owner, resource: Resource, mode: Mode) -> Option<Denial> {
        self.arrivals += 1;
        if owner.0 as usize >= self.owners.len() {
            self.admit_owner(owner);
        }
        assert!(self.owners[owner.0 as usize].waiting == NONE, "an owner that waits requests nothing else");
        let hash = resource.hash_bits();
        match self.head(resource, hash) {
            NONE => {
                self.lock_first(owner, resource, mode, hash);
                None
            }
            head => self.join(head, owner, mode),
        }
    }

    /// Asks for a resource that has holders.
    fn join(&mut self, head: u32, owner: Owner, mode: Mode) -> Option<Denial> {
        let held = self.holding_under(head, owner);
        if held != NONE {
            let target = self.requests[held].mode.supremum(mode);
            if target == self.requests[held].mode {
                return None;
            }
            if !self.admits_upgrade(head, target) {
                return Some(Denial { head, target, upgrade: true });
            }
            self.requests[held].mode = target;
            self.requests[head].group = target;
            return None;
        }
        let first = &self.requests[head];
        if first.header.first_waiter != NONE || !first.group.admits(mode) {
            return Some(Denial { head, target: mode, upgrade: false });
        }
        let request = self.store_request(owner, first.resource, mode);
        self.append_holder(head, request);
        self.hold(request, owner);
        None
    }

    /// Whether a holder may change over to `target`, a mode stronger than its own: Update beside readers only, and every
    /// other mode that is a supremum of two is Exclusive.
    pub(super) fn admits_upgrade(&self, head: u32, target: Mode) -> bool {
        let Request { header, group, .. } = self.requests[head];
        header.holders == 1 || group.admits(target)
    }

    /// Locks a resource that is free.
    ///
    /// Writes the request in place and once: copies by way of the stack are the greater part of what a lock costs. Part of its callers:
    /// otherwise a fifth of it would be the call.
    #[inline(always)]
    fn lock_first(&mut self, owner: Owner, resource: Resource, mode: Mode, hash: u64) {
        if self.resources >= self.buckets.len() {
            self.grow();
        }
        self.resources += 1;
        let request = self.requests.take();
        let bucket = self.bucket(hash);
        let chain = std::mem::replace(&mut self.buckets[bucket], request);
        let header = Header { chain, holders: 1, last_holder: request, ..Header::ABSENT };
        self.requests[request] = Request { header, ..Request::new(owner, resource, mode, self.arrivals as u32) };
        self.hold(request, owner);
    }

    /// Stores a request that is linked to nothing yet and came last.
    #[inline]
    pub(super) fn store_request(&mut self, owner: Owner, resource: Resource, mode: Mode) -> u32 {
        let request = self.requests.take();
        self.requests[request] = Request::new(owner, resource, mode, self.arrivals as u32);
        request
    }

    /// Puts a granted request on its owner's list.
    #[inline]
    pub(super) fn hold(&mut self, request: u32, owner: Owner) {
        let holdings = &mut self.owners[owner.0 as usize];
        let before = holdings.first;
        holdings.first = request;
        holdings.held += 1;
        self.requests[request].owner_next = before;
        self.requests[request].owner_prev = NONE;
        if before != NONE {
            self.requests[before].owner_prev = request;
        }
    }

    pub(super) fn append_holder(&mut self, head: u32, request: u32) {
        let mode = self.requests[request].mode;
        let first = &mut self.requests[head];
        let last = first.header.last_holder;
        first.header.holders += 1;
        first.header.last_holder = request;
        first.group = first.group.supremum(mode);
        self.requests[last].next = request;
        self.requests[request].prev = last;
        self.requests[request].next = NONE;
    }

    fn end(&mut self, owner: Owner, lsn: Option<Lsn>, woken: &mut Vec<Owner>) {
        self.cancel(owner, woken);
        let Some(holdings) = self.owners.get_mut(owner.0 as usize) else { return };
        let mut at = holdings.first;
        holdings.first = NONE;
        holdings.held = 0;
        while at != NONE {
            let Request { owner_next, resource, mode, .. } = self.requests[at];
            let hash = resource.hash_bits();
            if let Some(lsn) = lsn
                && mode.writes()
            {
                self.stamps.raise(hash, lsn);
            }
            self.leave(at, hash, woken);
            at = owner_next;
        }
    }

    /// Takes a granted request, which is on no owner's list any more, from its resource and frees it.
    ///
    /// Part of its callers, as [`LockTable::lock_first`] is.
    #[inline(always)]
    fn leave(&mut self, request: u32, hash: u64, woken: &mut Vec<Owner>) {
        let header = self.requests[request].header;
        if header.holders == 1 && header.first_waiter == NONE {
            self.replace_head(request, header.chain, hash);
            self.resources -= 1;
        } else {
            self.leave_shared(request, hash, woken);
        }
        self.requests.remove(request);
    }

    /// As [`LockTable::leave`], where others hold the resource or wait for it.
    ///
    /// Kept out of line for the registers of the frequent case.
    #[inline(never)]
    fn leave_shared(&mut self, request: u32, hash: u64, woken: &mut Vec<Owner>) {
        let Request { resource, next, prev, mut header, group, mode, .. } = self.requests[request];
        if header.holders == 1 {
            return self.succeed(request, hash, woken);
        }
        let head = if header.holders > 1 {
            header.holders -= 1;
            self.requests[next].header = header;
            self.requests[next].group = group;
            self.requests[next].prev = NONE;
            self.replace_head(request, next, hash);
            next
        } else {
            let head = self.head(resource, hash);
            let first = &mut self.requests[head];
            first.header.holders -= 1;
            match next {
                NONE => first.header.last_holder = prev,
                after => self.requests[after].prev = prev,
            }
            self.requests[prev].next = next;
            head
        };
        if mode == Mode::Update {
            // Update is held beside readers only; without them the group would be empty.
            self.requests[head].group = Mode::Shared;
        }
        self.grant_waiters(head, woken);
    }

    /// The first holder of `resource`, or `NONE` if it is free.
    #[inline]
    pub(super) fn head(&self, resource: Resource, hash: u64) -> u32 {
        let mut at = self.buckets[self.bucket(hash)];
        while at != NONE && self.requests[at].resource != resource {
            at = self.requests[at].header.chain;
        }
        at
    }

    #[inline]
    pub(super) fn bucket(&self, hash: u64) -> usize {
        hash as usize & (self.buckets.len() - 1)
    }

    /// Lets the chain of `hash` lead to `new` instead of `old`.
    #[inline]
    pub(super) fn replace_head(&mut self, old: u32, new: u32, hash: u64) {
        let bucket = self.bucket(hash);
        let mut at = self.buckets[bucket];
        if at == old {
            self.buckets[bucket] = new;
            return;
        }
        while self.requests[at].header.chain != old {
            at = self.requests[at].header.chain;
        }
        self.requests[at].header.chain = new;
    }

    fn holding(&self, owner: Owner, resource: Resource, hash: u64) -> u32 {
        match self.head(resource, hash) {
            NONE => NONE,
            head => self.holding_under(head, owner),
        }
    }

    /// The owner's granted request for a resource, searched along the shorter of two lists: the resource's holders and what
    /// the owner holds.
    #[inline]
    pub(super) fn holding_under(&self, head: u32, owner: Owner) -> u32 {
        let Request { owner: first, next, resource, header, .. } = self.requests[head];
        if first == owner {
            return head;
        }
        let Some(holdings) = self.owners.get(owner.0 as usize) else { return NONE };
        if header.holders <= holdings.held {
            let mut at = next;
            while at != NONE && self.requests[at].owner != owner {
                at = self.requests[at].next;
            }
            at
        } else {
            let mut at = holdings.first;
            while at != NONE && self.requests[at].resource != resource {
                at = self.requests[at].owner_next;
            }
            at
        }
    }

    #[cold]
    fn admit_owner(&mut self, owner: Owner) {
        self.owners.resize(owner.0 as usize + 1, Holdings::NOTHING);
    }

    /// Doubles the buckets.
    #[cold]
    fn grow(&mut self) {
        let buckets = vec![NONE; self.buckets.len() * 2];
        let before = std::mem::replace(&mut self.buckets, buckets);
        for mut at in before {
            while at != NONE {
                let bucket = self.bucket(self.requests[at].resource.hash_bits());
                let next = std::mem::replace(&mut self.requests[at].header.chain, self.buckets[bucket]);
                self.buckets[bucket] = at;
                at = next;
            }
        }
    }
}
