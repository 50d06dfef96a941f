//! The Pareto front of cost against response time.

/// The positions of those that no other is better than in cost or response time without being worse in the other, by cost. Of
/// equals the first counts.
///
/// ```
/// let points = [(100.0, 9.0), (80.0, 20.0), (100.0, 8.0), (120.0, 8.0), (80.0, 20.0)];
/// assert_eq!(entresol_plan::front::front(&points), [1, 2]);
/// ```
pub fn front(points: &[(f64, f64)]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..points.len()).collect();
    let by_cost =
        |a: &usize, b: &usize| points[*a].0.total_cmp(&points[*b].0).then(points[*a].1.total_cmp(&points[*b].1));
    order.sort_by(by_cost);
    let mut best = f64::INFINITY;
    order.retain(|at| {
        let is_better = points[*at].1 < best;
        best = best.min(points[*at].1);
        is_better
    });
    order
}

/// By what share a response time is shorter at least that seeded runs of a few thousand transactions tell from another one.
const TOLD_APART: f64 = 0.05;

/// Of a front, the cheapest, and each that is faster than the one before it by as much as can be told: what is dearer for less is none that a
/// reader would choose (epsilon-dominance: Laumanns et al. 2002).
///
/// ```
/// let points = [(80.0, 20.0), (90.0, 19.5), (95.0, 18.0), (120.0, 8.0)];
/// assert_eq!(entresol_plan::front::told_apart(&points, vec![0, 1, 2, 3]), [0, 2, 3]);
/// ```
pub fn told_apart(points: &[(f64, f64)], mut front: Vec<usize>) -> Vec<usize> {
    let mut before = f64::INFINITY;
    front.retain(|at| {
        let is_faster = points[*at].1 <= before * (1.0 - TOLD_APART);
        if is_faster {
            before = points[*at].1;
        }
        is_faster
    });
    front
}

/// The positions in layers: the front, then the front of the others, and so on (Goldberg 1989, nondominated sorting).
pub fn layers(points: &[(f64, f64)]) -> Vec<Vec<usize>> {
    let mut left: Vec<usize> = (0..points.len()).collect();
    let mut layers = Vec::new();
    while !left.is_empty() {
        let present: Vec<(f64, f64)> = left.iter().map(|at| points[*at]).collect();
        let mut chosen: Vec<usize> = front(&present);
        if chosen.is_empty() {
            // No response time: nothing says which is better.
            chosen = (0..left.len()).collect();
        }
        layers.push(chosen.iter().map(|at| left[*at]).collect());
        let mut at = 0;
        left.retain(|_| {
            at += 1;
            !chosen.contains(&(at - 1))
        });
    }
    layers
}
