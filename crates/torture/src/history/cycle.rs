//! Finding the plainest cycle: one whose dependencies are forbidden soonest, and of those a shortest.

use super::dependencies::{DependencyKind, Edge};
use super::graph::{Arc, Graph, Reason};
use super::{Anomaly, History};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A way through the graph: points with the arcs that leave them.
pub type Path = Vec<(usize, Arc)>;

/// The plainest cycle within a strongly connected component.
pub fn plainest(history: &History, graph: &Graph, edges: &[Edge], component: &[usize]) -> Anomaly {
    let searched = Component { graph, edges, points: component.iter().copied().collect() };
    let cycle = searched.plainest().expect("a component of several points has a cycle");
    Anomaly::of_cycle(history, edges, &cycle)
}

struct Component<'a> {
    graph: &'a Graph,
    edges: &'a [Edge],
    points: BTreeSet<usize>,
}

impl Component<'_> {
    fn plainest(&self) -> Option<Path> {
        for real_time in [false, true] {
            let allowed = |arc: &Arc, kinds: &[DependencyKind]| match arc.reason {
                Reason::Dependency(edge) => kinds.contains(&self.edges[edge].kind),
                Reason::RealTime => real_time,
                Reason::Within => true,
            };
            for kinds in [&[DependencyKind::Ww][..], &[DependencyKind::Ww, DependencyKind::Wr]] {
                let firsts = self.arcs().filter(|(_, arc)| allowed(arc, kinds));
                let found = self.shortest(firsts, |arc| allowed(arc, kinds));
                if found.is_some() {
                    return found;
                }
            }
            // With one anti-dependency, then with more.
            for others in [
                &[DependencyKind::Ww, DependencyKind::Wr][..],
                &[DependencyKind::Ww, DependencyKind::Wr, DependencyKind::Rw],
            ] {
                let firsts = self.arcs().filter(|(_, arc)| allowed(arc, &[DependencyKind::Rw]) && !allowed(arc, &[]));
                let found = self.shortest(firsts, |arc| allowed(arc, others));
                if found.is_some() {
                    return found;
                }
            }
        }
        None
    }

    fn arcs(&self) -> impl Iterator<Item = (usize, Arc)> {
        let arcs = self.points.iter().flat_map(|point| self.graph.arcs(*point).iter().map(|arc| (*point, *arc)));
        arcs.filter(|(_, arc)| self.points.contains(&arc.to))
    }

    /// A shortest cycle that begins with one of these arcs and goes on through allowed ones.
    fn shortest(&self, firsts: impl Iterator<Item = (usize, Arc)>, allowed: impl Fn(&Arc) -> bool) -> Option<Path> {
        let cycles = firsts.filter_map(|(point, first)| {
            let mut cycle = vec![(point, first)];
            cycle.extend(self.path(first.to, point, &allowed)?);
            Some(cycle)
        });
        cycles.min_by_key(Vec::len)
    }

    /// A shortest way from one point to another.
    fn path(&self, from: usize, to: usize, allowed: impl Fn(&Arc) -> bool) -> Option<Path> {
        let mut reached_by: BTreeMap<usize, (usize, Arc)> = BTreeMap::new();
        let mut next = VecDeque::from([from]);
        while let Some(point) = next.pop_front() {
            if point == to {
                break;
            }
            for arc in self.graph.arcs(point).iter().filter(|arc| self.points.contains(&arc.to) && allowed(arc)) {
                if arc.to != from && !reached_by.contains_key(&arc.to) {
                    reached_by.insert(arc.to, (point, *arc));
                    next.push_back(arc.to);
                }
            }
        }
        let (mut path, mut at) = (Vec::new(), to);
        while at != from {
            let step = *reached_by.get(&at)?;
            path.push(step);
            at = step.0;
        }
        path.reverse();
        Some(path)
    }
}
