//! Drawing transactions.

use super::{Model, Subpartition, TransactionType};
use base::Random;
use std::ops::Range;

/// One transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// Its type: a position in [`Model::types`].
    pub kind: usize,
    /// Its references, in order.
    pub references: Vec<ObjectReference>,
}

/// One reference to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectReference {
    /// Its partition: a position in [`Model::partitions`].
    pub partition: usize,
    /// The object's number.
    pub object: u64,
    /// Whether the object is changed.
    pub write: bool,
}

/// The objects of each subpartition: consecutive, in their order, as many as their shares say.
pub(super) fn ranges(parts: &[Subpartition], objects: u64) -> Vec<Range<u64>> {
    let total: f64 = parts.iter().map(|part| part.size).sum();
    let mut reached = 0.0;
    let mut start = 0;
    parts
        .iter()
        .map(|part| {
            reached += part.size;
            let end = ((reached / total * objects as f64).round() as u64).min(objects);
            let range = start..end.max(start);
            start = range.end;
            range
        })
        .collect()
}

/// A choice between a few things with given shares.
#[derive(Clone, Debug)]
struct Shares {
    /// The shares added up, the last one being their sum.
    reached: Vec<f64>,
}

impl Shares {
    fn new(shares: impl Iterator<Item = f64>) -> Shares {
        let mut sum = 0.0;
        let reached = shares.map(|share| {
            sum += share;
            sum
        });
        Shares { reached: reached.collect() }
    }

    fn draw(&self, random: &mut Random) -> usize {
        let sum = self.reached.last().expect("there is something to choose from");
        let point = random.unit() * sum;
        self.reached.iter().position(|reached| point < *reached).expect("the point lies below the sum")
    }
}

/// The laws of a model, ready to be drawn from.
#[derive(Clone, Debug)]
pub(super) struct Laws {
    types: Shares,
    rows: Vec<Shares>,
    /// For each partition: which subpartition, and the objects of each.
    partitions: Vec<(Shares, Vec<Range<u64>>)>,
}

impl Laws {
    pub fn of(model: &Model) -> Laws {
        let partitions = model.partitions.iter().map(|partition| {
            let access = partition.subpartitions.iter().map(|part| part.access);
            (Shares::new(access), ranges(&partition.subpartitions, partition.objects))
        });
        Laws {
            types: Shares::new(model.types.iter().map(|kind| kind.rate_per_s)),
            rows: model.types.iter().map(|kind| Shares::new(kind.references.iter().copied())).collect(),
            partitions: partitions.collect(),
        }
    }

    /// Draws a transaction: its type by the arrival rates, so that the arrivals of each type are a Poisson process if all
    /// together are.
    pub fn transaction(&self, model: &Model, random: &mut Random) -> Input {
        let kind = self.types.draw(random);
        let described = &model.types[kind];
        let size = size(described, random);
        let row = &self.rows[kind];
        let write = |random: &mut Random| random.chance(described.write_probability);
        let references = if described.sequential {
            let partition = row.draw(random);
            let (first, objects) = (self.object(partition, random), model.partitions[partition].objects);
            let at = |index| (first + index) % objects;
            (0..size).map(|index| ObjectReference { partition, object: at(index), write: write(random) }).collect()
        } else {
            let one = |_| {
                let partition = row.draw(random);
                ObjectReference { partition, object: self.object(partition, random), write: write(random) }
            };
            (0..size).map(one).collect()
        };
        Input { kind, references }
    }

    fn object(&self, partition: usize, random: &mut Random) -> u64 {
        let (shares, ranges) = &self.partitions[partition];
        let range = &ranges[shares.draw(random)];
        range.start + random.below(range.end - range.start)
    }
}

impl Model {
    /// Draws one transaction by the model's laws. To draw many, use [`super::Synthetic`].
    pub fn draw(&self, random: &mut Random) -> Input {
        Laws::of(self).transaction(self, random)
    }
}

/// The number of references of a transaction of this type.
fn size(described: &TransactionType, random: &mut Random) -> u64 {
    if !described.variable_size || described.size <= 1.0 {
        return described.size as u64;
    }
    // The integer above an exponential variable is geometric; this mean of the one gives the wanted mean of the other.
    let mean = -1.0 / (1.0 - 1.0 / described.size).ln();
    (random.exponential(mean).ceil() as u64).max(1)
}
