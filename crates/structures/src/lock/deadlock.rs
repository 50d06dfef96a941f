//! Deadlocks: cycles of the waits-for graph, sought whenever a request is denied.
//!
//! A waiting owner waits for every holder that excludes its request and, unless it upgrades, for every owner ahead of it in the
//! queue whose request excludes its own. All edges that a denied request adds begin or end at its owner (an upgrade goes before
//! others), granting adds edges only towards owners that run, and so the graph is free of cycles if each search from a
//! requester finds none or names a victim.

use super::mode::ModeSet;
use super::request::{NONE, Request};
use super::table::{LockTable, Owner};

/// Which owner must give up when waiting would close a cycle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum VictimPolicy {
    /// The owner whose request closes the cycle, as in Rahm's simulation system TPSIM (1991).
    #[default]
    Requester,
    /// Among the owners on all cycles through the requester the one that began last. Should cycles remain without it, then
    /// the requester.
    Youngest,
}

/// Memory for searches, kept to be used again.
#[derive(Debug, Default)]
pub(super) struct Search {
    /// The owners found, in order.
    reached: Vec<Owner>,
    /// Whether an owner was found, by owner; all false between searches.
    marked: Vec<bool>,
    /// The neighbours of one owner.
    neighbours: Vec<Owner>,
}

/// A way to enumerate the owners that an owner waits for.
type Edges = fn(&LockTable, Owner, &mut Vec<Owner>);

impl LockTable {
    /// Whether an owner that waits does so, by way of others, for itself.
    pub(super) fn closes_cycle(&mut self, requester: Owner) -> bool {
        let mut search = std::mem::take(&mut self.search);
        let found = self.reach(&mut search, requester, LockTable::holders_waited_for);
        search.clear();
        self.search = search;
        found
    }

    /// The youngest owner on any cycle through the requester, of those that began together the one with the greatest
    /// index.
    pub(super) fn youngest_in_cycles(&mut self, requester: Owner) -> Owner {
        let mut search = std::mem::take(&mut self.search);
        self.reach(&mut search, requester, LockTable::waited_for);
        let Search { reached, marked, neighbours } = &mut search;
        // From here on only those are marked that reach the requester; late in the order is close to the end of a path.
        marked.fill(false);
        marked[requester.0 as usize] = true;
        let mut grown = true;
        while grown {
            grown = false;
            for owner in reached.iter().rev() {
                if !marked[owner.0 as usize] {
                    neighbours.clear();
                    self.waited_for(*owner, neighbours);
                    marked[owner.0 as usize] = neighbours.iter().any(|neighbour| marked[neighbour.0 as usize]);
                    grown |= marked[owner.0 as usize];
                }
            }
        }
        let on_cycles = reached.iter().copied().filter(|owner| marked[owner.0 as usize]);
        let youngest = on_cycles.max_by_key(|owner| (self.owners[owner.0 as usize].began, *owner));
        search.clear();
        self.search = search;
        youngest.expect("the requester lies on a cycle")
    }

    /// Collects, breadth first, the owners that the requester waits for directly or by way of others, and returns whether it is among
    /// them.
    fn reach(&self, search: &mut Search, requester: Owner, edges: Edges) -> bool {
        let Search { reached, marked, neighbours } = search;
        if marked.len() < self.owners.len() {
            marked.resize(self.owners.len(), false);
        }
        let mut at = requester;
        let mut expanded = 0;
        loop {
            neighbours.clear();
            edges(self, at, neighbours);
            for neighbour in neighbours.iter().copied() {
                if !std::mem::replace(&mut marked[neighbour.0 as usize], true) {
                    reached.push(neighbour);
                }
            }
            let Some(next) = reached.get(expanded) else { break };
            at = *next;
            expanded += 1;
        }
        marked[requester.0 as usize]
    }

    /// Whether one owner waits for the other, not by way of third ones.
    pub fn waits_for(&self, owner: Owner, other: Owner) -> bool {
        let mut found = Vec::new();
        self.waited_for(owner, &mut found);
        found.contains(&other)
    }

    /// The owners that an owner waits for: the waits-for graph by definition.
    pub(super) fn waited_for(&self, owner: Owner, out: &mut Vec<Owner>) {
        let Some((waiting, head)) = self.wait_of(owner) else { return };
        let Request { mode, upgrade, prev, .. } = self.requests[waiting];
        if !upgrade {
            let mut at = prev;
            while at != NONE {
                let ahead = &self.requests[at];
                if !ahead.mode.admits(mode) {
                    out.push(ahead.owner);
                }
                at = ahead.prev;
            }
        }
        self.holders_excluding(head, ModeSet::of(mode), owner, out);
    }

    /// The holders and upgrading holders of the resource that an owner waits for, directly or by way of other owners in the
    /// same queue. These other owners need no search of their own, which keeps long queues cheap: each waits only here, and
    /// none is the requester, which came last or upgrades.
    fn holders_waited_for(&self, owner: Owner, out: &mut Vec<Owner>) {
        let Some((waiting, head)) = self.wait_of(owner) else { return };
        let Request { mode, upgrade, prev, .. } = self.requests[waiting];
        let mut modes = ModeSet::of(mode);
        let mut at = if upgrade { NONE } else { prev };
        // Every holder excludes Exclusive, so requests further ahead add nothing to that.
        while at != NONE && !modes.contains(super::Mode::Exclusive) {
            let ahead = &self.requests[at];
            if ahead.mode.excludes_any(modes) {
                if ahead.upgrade {
                    out.push(ahead.owner);
                } else if !self.owners[ahead.owner.0 as usize].is_victim {
                    modes = modes.with(ahead.mode);
                }
            }
            at = ahead.prev;
        }
        self.holders_excluding(head, modes, owner, out);
    }

    /// The request that an owner waits with and the first holder it is behind. A victim is about to be withdrawn and does not
    /// count as waiting.
    fn wait_of(&self, owner: Owner) -> Option<(u32, u32)> {
        let holdings = &self.owners[owner.0 as usize];
        if holdings.waiting == NONE || holdings.is_victim {
            return None;
        }
        let resource = self.requests[holdings.waiting].resource;
        Some((holdings.waiting, self.head(resource, resource.hash_bits())))
    }

    fn holders_excluding(&self, head: u32, modes: ModeSet, but: Owner, out: &mut Vec<Owner>) {
        let mut at = head;
        while at != NONE {
            let holder = &self.requests[at];
            if holder.owner != but && holder.mode.excludes_any(modes) {
                out.push(holder.owner);
            }
            at = holder.next;
        }
    }
}

impl Search {
    fn clear(&mut self) {
        for owner in self.reached.drain(..) {
            self.marked[owner.0 as usize] = false;
        }
    }
}
