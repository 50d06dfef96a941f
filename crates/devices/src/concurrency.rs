//! Times that depend on what is under way: how a device's parallelism scales, and how reads and writes disturb each other.

use crate::law::Law;
use base::Random;
use base::units::parse_duration_ns;
use serde::Deserialize;
use serde::de::{Deserializer, Error};

/// The mean times of requests by the numbers of reads and writes that are under way at the same time, as a measurement with so
/// many of each in flight shows them. Between the numbers of the axes times are interpolated; beyond them they grow as between
/// the last two.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, try_from = "Written")]
pub struct Concurrency {
    /// Numbers of reads, ascending from 0: the rows of the tables.
    pub reads: Vec<u32>,
    /// Numbers of writes, ascending from 0: the columns of the tables.
    pub writes: Vec<u32>,
    /// A read, itself among the reads.
    pub read: Times,
    /// A write, itself among the writes.
    pub write: Times,
    /// What a durable write takes beyond a plain one; as its law says by default, whatever is under way.
    pub durable_write: Option<Times>,
    /// A sync; as its law says by default, whatever is under way.
    pub sync: Option<Times>,
    /// How much longer the second part of a durable write takes where several are in it at once: numbers of them, ascending from 1,
    /// and factors, ascending from 1. Flushes of one device follow each other. No longer by default.
    pub durable_together: Option<Together>,
    /// Whether nothing begins while a flush (a sync, or the second part of a durable write) is at it: what comes then waits for its end. So it
    /// is with a device whose transfers and flushes one thread of the operating system begins, as Linux's loop devices. False by
    /// default.
    pub flush_holds: bool,
    /// Laws about the means of reads, by what is under way when one begins; that of the stage's `service` by default. A device that is
    /// alone has another tail than one whose queues even its times out.
    pub read_law: Option<Laws>,
    /// The same of writes.
    pub write_law: Option<Laws>,
    /// The same of what a durable write takes beyond a plain one; its own law by default.
    pub durable_write_law: Option<Laws>,
    /// The same of syncs; their own law by default.
    pub sync_law: Option<Laws>,
}

/// Factors by how many are at it at once.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Together {
    /// How many, ascending from 1.
    pub count: Vec<u32>,
    /// The factor for each, 1 for one.
    pub times: Vec<f64>,
}

impl Together {
    fn is_sound(&self) -> bool {
        let Together { count, times } = self;
        let lengths = count.len() == times.len() && count.len() >= 2;
        lengths && count[0] == 1 && times[0] == 1.0 && count.is_sorted_by(|a, b| a < b) && times.is_sorted()
    }

    /// As it is written, if it can be.
    pub(crate) fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Together>, D::Error> {
        let together = Together::deserialize(deserializer)?;
        if together.is_sound() { Ok(Some(together)) } else { Err(D::Error::custom(together.unsound("fresh_together"))) }
    }

    fn unsound(&self, name: &str) -> String {
        let example = "{ count = [1, 2, 8], times = [1.0, 1.5, 4.0] }";
        format!("numbers ascend from 1 and their factors from 1.0, as many of each, as in {name} = {example}")
    }

    /// The factor where this number is at it.
    pub(crate) fn factor(&self, number: usize) -> f64 {
        let (at, far) = place(&self.count, number.max(1));
        self.times[at] + (self.times[at + 1] - self.times[at]) * far
    }
}

/// Laws, row by row; only their shapes count, not their means.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct Laws(pub Vec<Vec<Law>>);

/// Mean times in nanoseconds, row by row.
#[derive(Clone, Debug, PartialEq)]
pub struct Times(pub Vec<Vec<f64>>);

impl<'de> Deserialize<'de> for Times {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Times, D::Error> {
        let rows = Vec::<Vec<String>>::deserialize(deserializer)?;
        let time = |text: &String| parse_duration_ns(text).map(|ns| ns as f64).map_err(D::Error::custom);
        rows.iter().map(|row| row.iter().map(time).collect()).collect::<Result<_, _>>().map(Times)
    }
}

/// The description as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    reads: Vec<u32>,
    writes: Vec<u32>,
    read: Times,
    write: Times,
    durable_write: Option<Times>,
    sync: Option<Times>,
    durable_together: Option<Together>,
    #[serde(default)]
    flush_holds: bool,
    read_law: Option<Laws>,
    write_law: Option<Laws>,
    durable_write_law: Option<Laws>,
    sync_law: Option<Laws>,
}

impl TryFrom<Written> for Concurrency {
    type Error = String;

    fn try_from(written: Written) -> Result<Concurrency, String> {
        let Written { reads, writes, read, write, durable_write, sync, .. } = written;
        let Written { durable_together, flush_holds, read_law, write_law, durable_write_law, sync_law, .. } = written;
        for (name, axis) in [("reads", &reads), ("writes", &writes)] {
            if axis.len() < 2 || axis[0] != 0 || !axis.is_sorted_by(|a, b| a < b) {
                return Err(format!("the numbers of {name} ascend from 0 and are at least two, as in [0, 1, 8, 32]"));
            }
        }
        for (name, times) in [
            ("read", Some(&read)),
            ("write", Some(&write)),
            ("durable_write", durable_write.as_ref()),
            ("sync", sync.as_ref()),
        ] {
            let Some(Times(rows)) = times else { continue };
            if rows.len() != reads.len() || rows.iter().any(|row| row.len() != writes.len()) {
                let shape = format!("{} rows of {} times", reads.len(), writes.len());
                return Err(format!("'{name}' has {shape}: one row for each number of reads"));
            }
            if rows.iter().flatten().any(|ns| *ns <= 0.0) {
                return Err(format!("the times of '{name}' are above zero"));
            }
        }
        for (name, laws) in [
            ("read_law", &read_law),
            ("write_law", &write_law),
            ("durable_write_law", &durable_write_law),
            ("sync_law", &sync_law),
        ] {
            let Some(Laws(rows)) = laws else { continue };
            if rows.len() != reads.len() || rows.iter().any(|row| row.len() != writes.len()) {
                let shape = format!("{} rows of {} laws", reads.len(), writes.len());
                return Err(format!("'{name}' has {shape}: one row for each number of reads"));
            }
        }
        if let Some(together) = durable_together.as_ref().filter(|together| !together.is_sound()) {
            return Err(together.unsound("durable_together"));
        }
        Ok(Concurrency {
            reads,
            writes,
            read,
            write,
            durable_write,
            sync,
            durable_together,
            flush_holds,
            read_law,
            write_law,
            durable_write_law,
            sync_law,
        })
    }
}

/// Where a number lies on an axis: the point below it and how far it is to the next one; above 1 beyond the last.
fn place(axis: &[u32], number: usize) -> (usize, f64) {
    let above = axis.partition_point(|at| *at as usize <= number).clamp(1, axis.len() - 1);
    let (low, high) = (f64::from(axis[above - 1]), f64::from(axis[above]));
    (above - 1, (number as f64 - low) / (high - low))
}

impl Concurrency {
    /// The time in one of the tables, with these numbers of reads and writes under way.
    pub fn time_ns(&self, Times(rows): &Times, reads: usize, writes: usize) -> f64 {
        let ((row, down), (column, right)) = (place(&self.reads, reads), place(&self.writes, writes));
        let across = |row: &[f64]| row[column] + (row[column + 1] - row[column]) * right;
        let (upper, lower) = (across(&rows[row]), across(&rows[row + 1]));
        // Times that fall with what is under way are not followed beyond the tables.
        let corners = [&rows[row][column..=column + 1], &rows[row + 1][column..=column + 1]].into_iter().flatten();
        (upper + (lower - upper) * down).max(corners.fold(f64::INFINITY, |least, ns| least.min(*ns)))
    }

    /// The law in one of the tables, with these numbers of reads and writes under way: that of a point nearby, each as probable as
    /// it is near.
    pub(crate) fn law<'a>(
        &self,
        Laws(rows): &'a Laws,
        (reads, writes): (usize, usize),
        random: &mut Random,
    ) -> &'a Law {
        let mut near = |axis, number| {
            let (below, far) = place(axis, number);
            below + usize::from(random.unit() < far)
        };
        let row = near(&self.reads, reads);
        &rows[row][near(&self.writes, writes)]
    }
}
