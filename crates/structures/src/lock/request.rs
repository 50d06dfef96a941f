//! Requests, granted and waiting, in a slab that is linked by index.

use super::mode::Mode;
use super::resource::Resource;
use super::table::Owner;
use base::PartitionId;
use std::ops::{Index, IndexMut};

/// The index of no request.
pub(super) const NONE: u32 = u32::MAX;

/// One owner's request for one resource. A waiting upgrade is a second request beside the granted one.
///
/// One cache line: a lock without contention is one of these and one bucket.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Request {
    pub(super) resource: Resource,
    pub(super) owner: Owner,
    /// The lower bits of the table's count of requests when this one came: orders requests by arrival.
    pub(super) arrived: u32,
    /// Neighbours among the holders, or among the waiters; `next` also links free requests. The first has no `prev`.
    pub(super) next: u32,
    pub(super) prev: u32,
    /// Neighbours in the list of what the owner holds; only granted requests are in it.
    pub(super) owner_next: u32,
    pub(super) owner_prev: u32,
    /// Means something in the first holder only.
    pub(super) header: Header,
    /// What is held or, of a waiting request, what will be held.
    pub(super) mode: Mode,
    /// The supremum of all holders' modes; means something in the first holder only.
    pub(super) group: Mode,
    /// Whether this is the waiting upgrade of a holder.
    pub(super) upgrade: bool,
}

impl Request {
    /// Linked to nothing.
    const BLANK: Request = Request {
        resource: Resource::partition(PartitionId(0)),
        owner: Owner(0),
        arrived: 0,
        next: NONE,
        prev: NONE,
        owner_next: NONE,
        owner_prev: NONE,
        header: Header::ABSENT,
        mode: Mode::Shared,
        group: Mode::Shared,
        upgrade: false,
    };

    /// A request that is linked to nothing yet.
    #[inline]
    pub(super) const fn new(owner: Owner, resource: Resource, mode: Mode, arrived: u32) -> Request {
        Request { resource, owner, arrived, mode, group: mode, ..Request::BLANK }
    }
}

/// What belongs to a locked resource rather than to one of its holders.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    /// The next first holder in the hash table's bucket.
    pub(super) chain: u32,
    /// The number of holders; zero in a request that is not its resource's first holder.
    pub(super) holders: u32,
    pub(super) last_holder: u32,
    /// The queue: upgrades, then others, each in order of arrival.
    pub(super) first_waiter: u32,
    pub(super) last_waiter: u32,
}

impl Header {
    /// Of a request that is not the first holder.
    pub(super) const ABSENT: Header =
        Header { chain: NONE, holders: 0, last_holder: NONE, first_waiter: NONE, last_waiter: NONE };
}

/// Requests that are reused when freed.
#[derive(Debug)]
pub(super) struct Slab {
    requests: Vec<Request>,
    free: u32,
}

impl Slab {
    /// An empty slab with room for `capacity` requests.
    pub(super) fn with_capacity(capacity: usize) -> Slab {
        Slab { requests: Vec::with_capacity(capacity), free: NONE }
    }

    /// The index of a request for the caller to fill: what is there is left over from another.
    ///
    /// # Panics
    /// If 2^32 - 1 requests exist.
    #[inline]
    pub(super) fn take(&mut self) -> u32 {
        let index = self.free;
        if index == NONE {
            return self.extend();
        }
        self.free = self[index].next;
        index
    }

    #[cold]
    fn extend(&mut self) -> u32 {
        let index = u32::try_from(self.requests.len()).ok().filter(|index| *index != NONE);
        self.requests.push(Request::BLANK);
        index.expect("fewer than 2^32 - 1 lock requests")
    }

    /// Frees a request that nothing links to.
    #[inline]
    pub(super) fn remove(&mut self, index: u32) {
        self.requests[index as usize].next = self.free;
        self.free = index;
    }

    /// How much memory it takes, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.requests.capacity() * size_of::<Request>()
    }

    /// The number of requests in use, counted.
    pub(super) fn count(&self) -> usize {
        let mut free = 0;
        let mut at = self.free;
        while at != NONE {
            free += 1;
            at = self[at].next;
        }
        self.requests.len() - free
    }
}

impl Index<u32> for Slab {
    type Output = Request;

    #[inline]
    fn index(&self, index: u32) -> &Request {
        &self.requests[index as usize]
    }
}

impl IndexMut<u32> for Slab {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut Request {
        &mut self.requests[index as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_one_cache_line() {
        assert_eq!(size_of::<Request>(), 64);
    }
}
