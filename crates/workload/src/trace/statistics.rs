//! What a trace is like: its types, its partitions, the reference matrix, how often references are repeated.

use super::stack_distance::StackDistances;
use super::{Reference, Trace};
use std::collections::BTreeSet;

/// The properties of a trace.
///
/// ```
/// use entresol_workload::trace::{Trace, statistics::Statistics};
///
/// let text = "entresol-trace 1
/// partition stock objects 100 blocking-factor 10 locks page
/// type order
/// begin order
/// r stock 7
/// w stock 42
/// end transactions 1 references 2
/// ";
/// let trace = Trace::read("orders.trace", text.as_bytes())?;
/// let statistics = Statistics::of(&trace);
/// assert_eq!((statistics.references, statistics.writes, statistics.pages), (2, 1, 2));
/// assert_eq!(statistics.types[0].row, [1.0]);
/// # Ok::<(), entresol_workload::trace::TraceError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Statistics {
    /// Transactions.
    pub transactions: u64,
    /// References.
    pub references: u64,
    /// References that change their object.
    pub writes: u64,
    /// Transactions that change anything.
    pub update_transactions: u64,
    /// Different pages referenced.
    pub pages: u64,
    /// The references of the largest transaction.
    pub largest: u64,
    /// Of each type.
    pub types: Vec<TypeStatistics>,
    /// Of each partition.
    pub partitions: Vec<PartitionStatistics>,
    /// How far apart references to the same page are.
    pub distances: StackDistances,
}

/// The properties of a type of transactions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TypeStatistics {
    /// Its name.
    pub name: String,
    /// Transactions.
    pub transactions: u64,
    /// Their references.
    pub references: u64,
    /// Those that change their object.
    pub writes: u64,
    /// Its row of the relative reference matrix: the share (0 to 1) of its references that go to each partition.
    pub row: Vec<f64>,
}

/// The properties of a partition.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PartitionStatistics {
    /// Its name.
    pub name: String,
    /// References to it.
    pub references: u64,
    /// Those that change their object.
    pub writes: u64,
    /// Different pages of it that are referenced.
    pub pages: u64,
}

impl Statistics {
    /// The properties of `trace`.
    pub fn of(trace: &Trace) -> Statistics {
        let mut types: Vec<TypeStatistics> = trace
            .types()
            .iter()
            .map(|kind| TypeStatistics { name: kind.name.clone(), ..TypeStatistics::default() })
            .collect();
        let mut counts = vec![vec![0_u64; trace.partitions().len()]; types.len()];
        let (mut update_transactions, mut largest) = (0, 0);
        for transaction in trace.transactions() {
            let kind = usize::from(transaction.kind);
            let writes = transaction.references.iter().filter(|reference| reference.write).count() as u64;
            let references = transaction.references.len() as u64;
            types[kind].transactions += 1;
            types[kind].references += references;
            types[kind].writes += writes;
            update_transactions += u64::from(writes > 0);
            largest = largest.max(references);
            for reference in transaction.references {
                counts[kind][usize::from(reference.partition)] += 1;
            }
        }
        for (kind, counts) in types.iter_mut().zip(counts) {
            let all = kind.references.max(1) as f64;
            kind.row = counts.into_iter().map(|count| count as f64 / all).collect();
        }
        let distances = StackDistances::of_trace(trace);
        Statistics {
            transactions: trace.len() as u64,
            references: distances.references(),
            writes: types.iter().map(|kind| kind.writes).sum(),
            update_transactions,
            pages: distances.pages(),
            largest,
            types,
            partitions: partitions(trace),
            distances,
        }
    }
}

fn partitions(trace: &Trace) -> Vec<PartitionStatistics> {
    let named = trace
        .partitions()
        .iter()
        .map(|partition| PartitionStatistics { name: partition.name.clone(), ..PartitionStatistics::default() });
    let mut partitions: Vec<PartitionStatistics> = named.collect();
    let mut seen: BTreeSet<(u16, u64)> = BTreeSet::new();
    for reference @ Reference { partition, write, .. } in trace.references() {
        let counted = &mut partitions[usize::from(*partition)];
        counted.references += 1;
        counted.writes += u64::from(*write);
        counted.pages += u64::from(seen.insert((*partition, trace.page_of(*reference))));
    }
    partitions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_trace_is_described() {
        let text = "entresol-trace 1\npartition a objects 100 blocking-factor 10 locks page\n\
                    partition b objects 5 blocking-factor 1 locks none\ntype x\ntype y\n\
                    begin x\nr a 1\nw a 9\nr b 1\nbegin y\nr a 10\nbegin y\nend transactions 3 references 4\n";
        let statistics = Statistics::of(&Trace::read("t", text.as_bytes()).unwrap());
        assert_eq!((statistics.transactions, statistics.references, statistics.writes), (3, 4, 1));
        assert_eq!((statistics.update_transactions, statistics.pages, statistics.largest), (1, 3, 3));
        assert_eq!(statistics.types[0].row, [2.0 / 3.0, 1.0 / 3.0]);
        assert_eq!((statistics.types[1].transactions, statistics.types[1].references), (2, 1));
        assert_eq!((statistics.partitions[0].references, statistics.partitions[0].pages), (3, 2));
        assert_eq!(statistics.distances.hits(1), 1);
    }
}
