//! Deadlocks among the transactions of all clients: cycles of the waits-for graph, sought whenever an edge is added.
//!
//! All edges that a request adds begin at its transaction, or end there where it passes others, and those of waits within a client begin
//! there; all that an in-use notice adds end at the transaction that uses the copy. So each search begins at one transaction and asks
//! whether it leads back there.

use super::directory::Directory;
use crate::message::{ClientId, Transaction};
use std::collections::{BTreeMap, BTreeSet};

type Owner = (ClientId, Transaction);

/// The transaction to give up so that this one does not wait for itself any more: of those on a cycle through it the one that began
/// to wait last, because it has waited for least. `None` if there is no cycle.
pub fn victim(directory: &Directory, from: Owner) -> Option<Owner> {
    // Where each transaction was come to from, and since when it waits.
    let mut reached: BTreeMap<Owner, (Owner, u64)> = BTreeMap::new();
    let (mut open, mut found) = (vec![from], Vec::new());
    let mut began = BTreeMap::new();
    while let Some(owner) = open.pop() {
        let Some(since) = directory.waits_for(owner, &mut found) else { continue };
        began.insert(owner, since);
        for next in found.drain(..) {
            if next == from {
                reached.insert(from, (owner, since));
                return Some(youngest(&reached, &began, from));
            }
            if next != from && !reached.contains_key(&next) {
                reached.insert(next, (owner, since));
                open.push(next);
            }
        }
    }
    None
}

/// Those of these transactions that are on a cycle: one search for all of them (Tarjan, SIAM J. Comput. 1972), so that many which only wait
/// for what is on one cost no more than to look at each once.
pub fn on_cycles(directory: &Directory, from: &BTreeSet<Owner>) -> Vec<Owner> {
    let mut search = Search::default();
    from.iter().for_each(|start| search.visit(directory, *start));
    from.iter().filter(|owner| search.cyclic.contains(owner)).copied().collect()
}

/// Stands for the number of one all of whose cycles are known.
const DONE: usize = usize::MAX;

#[derive(Default)]
struct Search {
    /// In which order they were come to.
    order: BTreeMap<Owner, usize>,
    /// Those that may be on a cycle with what is being looked at.
    open: Vec<Owner>,
    cyclic: BTreeSet<Owner>,
}

/// A transaction that is being looked at, and what is left of those that it waits for.
struct Visited {
    owner: Owner,
    number: usize,
    /// The first that it leads back to.
    low: usize,
    others: Vec<Owner>,
}

impl Search {
    fn enter(&mut self, directory: &Directory, owner: Owner) -> Visited {
        let (number, mut others) = (self.order.len(), Vec::new());
        if directory.waits_for(owner, &mut others).is_none() {
            others.clear();
        }
        self.order.insert(owner, number);
        self.open.push(owner);
        Visited { owner, number, low: number, others }
    }

    fn visit(&mut self, directory: &Directory, start: Owner) {
        if self.order.contains_key(&start) {
            return;
        }
        let mut path = vec![self.enter(directory, start)];
        while let Some(last) = path.last_mut() {
            match last.others.pop() {
                Some(other) => match self.order.get(&other).copied() {
                    None => path.push(self.enter(directory, other)),
                    Some(DONE) => {}
                    Some(number) => {
                        last.low = last.low.min(number);
                        self.cyclic.extend((other == last.owner).then_some(other));
                    }
                },
                None => {
                    let Visited { owner, number, low, .. } = path.pop().expect("it is the last");
                    if let Some(before) = path.last_mut() {
                        before.low = before.low.min(low);
                    }
                    if low == number {
                        self.close(owner);
                    }
                }
            }
        }
    }

    /// This one leads back to none before it: those behind it are on cycles with it, or alone.
    fn close(&mut self, first: Owner) {
        let place = self.open.iter().rposition(|owner| *owner == first).expect("it is open");
        let together = self.open.split_off(place);
        for owner in &together {
            self.order.insert(*owner, DONE);
        }
        if together.len() > 1 {
            self.cyclic.extend(together);
        }
    }
}

/// The one on the path from `from` back to itself that has waited shortest.
fn youngest(reached: &BTreeMap<Owner, (Owner, u64)>, began: &BTreeMap<Owner, u64>, from: Owner) -> Owner {
    let mut path = vec![from];
    let mut at = reached[&from].0;
    while at != from {
        path.push(at);
        at = reached[&at].0;
    }
    path.into_iter().max_by_key(|owner| began[owner]).expect("the path has its beginning")
}
