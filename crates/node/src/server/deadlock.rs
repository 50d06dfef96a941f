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

/// Whether one of these transactions is on a cycle, or waits for what is: one search for all of them.
pub fn is_reached(directory: &Directory, from: impl IntoIterator<Item = Owner>) -> bool {
    let next = |owner| {
        let mut found = Vec::new();
        directory.waits_for(owner, &mut found);
        found
    };
    let (mut path, mut on_path, mut done) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    for start in from {
        if !done.contains(&start) {
            on_path.insert(start);
            path.push((start, next(start)));
        }
        while let Some((owner, others)) = path.last_mut() {
            match others.pop() {
                Some(other) if on_path.contains(&other) => return true,
                Some(other) if done.contains(&other) => {}
                Some(other) => {
                    on_path.insert(other);
                    path.push((other, next(other)));
                }
                None => {
                    on_path.remove(owner);
                    done.insert(*owner);
                    path.pop();
                }
            }
        }
    }
    false
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
