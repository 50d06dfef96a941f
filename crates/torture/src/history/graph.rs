//! The dependencies as an order in time, which must have no cycle.
//!
//! A transaction has two points, its beginning and its commit. Each dependency says of two points that one was earlier, as
//! far as the transaction's level promises that:
//!
//! | dependency | the earlier point | the later point |
//! | --- | --- | --- |
//! | T2 overwrites T1's version | commit of T1 | commit of T2; its beginning, if T2 has a snapshot |
//! | T2 reads T1's version | commit of T1 | commit of T2; its beginning, if T2 has a snapshot |
//! | T2 overwrites what T1 read | beginning of T1; its commit, if T1 is serializable | commit of T2 |
//!
//! A serializable transaction is as if it happened at one point: it has one. At the level of a snapshot the table is the
//! start-ordered serialization graph (Adya, "Weak consistency", 1999, section 4.3); a read may come any time after the
//! beginning of a transaction that reads what is committed, so of its anti-dependencies only that much is known. Transactions
//! of several levels in one history need nothing else.

use super::dependencies::{DependencyKind, Edge};
use super::outcomes::Outcomes;
use super::real_time::{Interval, order};
use super::transaction::Moment;
use super::{History, Level};

/// Why one point is earlier than another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// This edge says so.
    Dependency(usize),
    /// One was over before the other could begin.
    RealTime,
    /// They are the beginning and the commit of one transaction.
    Within,
}

/// What a point is earlier than.
#[derive(Clone, Copy, Debug)]
pub struct Arc {
    pub to: usize,
    pub reason: Reason,
}

/// The points of all transactions whose reads have to be explained.
pub struct Graph {
    arcs: Vec<Vec<Arc>>,
}

/// Whose point it is.
pub fn transaction(point: usize) -> usize {
    point / 2
}

/// Whether it is a beginning and no commit.
pub fn is_beginning(point: usize) -> bool {
    point.is_multiple_of(2)
}

impl Graph {
    pub fn of(history: &History, outcomes: &Outcomes, edges: &[Edge]) -> Graph {
        let mut graph = Graph { arcs: vec![Vec::new(); 2 * history.len()] };
        let level = |number: usize| history.transactions[number].level;
        let commit = |number: usize| 2 * number + 1;
        let beginning = |number: usize| 2 * number + usize::from(level(number) == Level::Serializable);
        let at_once = |number: usize| match level(number) {
            Level::Snapshot => beginning(number),
            Level::ReadCommitted | Level::Serializable => commit(number),
        };
        for (index, edge) in edges.iter().enumerate() {
            let (from, to) = match edge.kind {
                DependencyKind::Ww | DependencyKind::Wr => (commit(edge.from), at_once(edge.to)),
                DependencyKind::Rw => (beginning(edge.from), commit(edge.to)),
            };
            graph.arcs[from].push(Arc { to, reason: Reason::Dependency(index) });
        }
        let mut intervals = Vec::new();
        for (number, transaction) in
            history.transactions.iter().enumerate().filter(|(number, _)| outcomes.judged[*number])
        {
            let acknowledged = transaction.acknowledged().unwrap_or(Moment::MAX);
            // One that was rolled back may have asked for its commit, or not.
            let asked = transaction.asked.unwrap_or(transaction.begun);
            let begun = transaction.begun;
            if level(number) == Level::Serializable {
                intervals.push((commit(number), Interval { from: begun, to: acknowledged }));
                continue;
            }
            let started = match level(number) {
                Level::Snapshot => transaction.started.unwrap_or(Moment::MAX),
                // The earliest moment of which a read may tell.
                _ => begun,
            };
            intervals.push((beginning(number), Interval { from: begun, to: started }));
            intervals.push((commit(number), Interval { from: asked, to: acknowledged }));
            graph.arcs[beginning(number)].push(Arc { to: commit(number), reason: Reason::Within });
        }
        for (earlier, later) in order(&intervals) {
            graph.arcs[earlier].push(Arc { to: later, reason: Reason::RealTime });
        }
        graph
    }

    /// What a point is earlier than.
    pub fn arcs(&self, point: usize) -> &[Arc] {
        &self.arcs[point]
    }

    /// The strongly connected components of more than one point (Tarjan, SIAM Journal on Computing, 1972).
    pub fn components(&self) -> Vec<Vec<usize>> {
        let mut search = Search {
            graph: self,
            numbers: vec![None; self.arcs.len()],
            lowest: vec![0; self.arcs.len()],
            is_open: vec![false; self.arcs.len()],
            open: Vec::new(),
            count: 0,
            found: Vec::new(),
        };
        for point in 0..self.arcs.len() {
            if search.numbers[point].is_none() {
                search.from(point);
            }
        }
        search.found
    }
}

struct Search<'a> {
    graph: &'a Graph,
    /// By point: when it was met first.
    numbers: Vec<Option<usize>>,
    /// The earliest met that it leads back to.
    lowest: Vec<usize>,
    is_open: Vec<bool>,
    open: Vec<usize>,
    count: usize,
    found: Vec<Vec<usize>>,
}

impl Search<'_> {
    fn meet(&mut self, point: usize) {
        self.numbers[point] = Some(self.count);
        self.lowest[point] = self.count;
        self.count += 1;
        self.open.push(point);
        self.is_open[point] = true;
    }

    fn from(&mut self, root: usize) {
        self.meet(root);
        let mut path = vec![(root, 0)];
        while let Some((point, next)) = path.last_mut() {
            let (point, arc) = (*point, self.graph.arcs[*point].get(*next));
            *next += 1;
            match arc {
                Some(arc) => match self.numbers[arc.to] {
                    None => {
                        self.meet(arc.to);
                        path.push((arc.to, 0));
                    }
                    Some(number) if self.is_open[arc.to] => self.lowest[point] = self.lowest[point].min(number),
                    Some(_) => {}
                },
                None => {
                    path.pop();
                    if let Some((parent, _)) = path.last() {
                        self.lowest[*parent] = self.lowest[*parent].min(self.lowest[point]);
                    }
                    if self.numbers[point] == Some(self.lowest[point]) {
                        self.close(point);
                    }
                }
            }
        }
    }

    /// Everything open since `root` is one component.
    fn close(&mut self, root: usize) {
        let first = self.open.iter().rposition(|point| *point == root).expect("it is open");
        let component = self.open.split_off(first);
        component.iter().for_each(|point| self.is_open[*point] = false);
        if component.len() > 1 {
            self.found.push(component);
        }
    }
}
