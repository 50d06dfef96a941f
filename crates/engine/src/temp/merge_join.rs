//! Sort-merge join: both inputs are sorted, and run beside each other.
//!
//! The right rows of one key are kept in memory while left rows of that key come. If they are too many, the rest is put aside and
//! read once for every block of left rows that memory holds (block nested loops).

use super::budget::Budget;
use super::frames::Frames;
use super::join::{JoinKind, JoinReport, Joined, Taker};
use super::row::{Row, Rows};
use super::sort::{Sorted, sort};
use super::space::Space;
use super::spool::{Reader, Spool, Spooled};
use crate::Result;
use driver::Work;
use std::cmp::Ordering;

/// Bytes that a kept value takes beside its own.
const KEPT: usize = size_of::<(usize, usize)>();
/// Frames that rows are put aside with, and as many that they are read with.
const FRAMES: usize = 3;
/// Answers after which other tasks get their turn.
const TURN: u64 = 512;

/// Values kept in memory.
#[derive(Default)]
struct Values {
    bytes: Vec<u8>,
    places: Vec<(usize, usize)>,
}

impl Values {
    fn clear(&mut self) {
        self.bytes.clear();
        self.places.clear();
    }

    /// Whether a value is within the limit, which it may exceed if it is the first.
    fn add(&mut self, value: &[u8], limit: usize) -> bool {
        let size = self.bytes.len() + value.len() + (self.places.len() + 1) * KEPT;
        if size > limit && !self.places.is_empty() {
            return false;
        }
        self.places.push((self.bytes.len(), self.bytes.len() + value.len()));
        self.bytes.extend_from_slice(value);
        true
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.places.iter().map(|(from, to)| &self.bytes[*from..*to])
    }
}

/// The answers' way out.
struct Answers<'a, T> {
    space: &'a Space,
    taker: &'a mut T,
    count: u64,
}

impl<T: Taker> Answers<'_, T> {
    async fn give(&mut self, answer: Joined<'_>) -> Result<()> {
        self.count += 1;
        if self.count.is_multiple_of(TURN) {
            let executor = self.space.executor();
            executor.charge_times(Work::KeyComparison, 2 * TURN);
            executor.pay_debt().await;
            executor.yield_now().await;
        }
        (self.taker)(answer).await
    }
}

/// The right rows of one key.
struct KeyGroup {
    key: Vec<u8>,
    values: Values,
    /// Those that memory did not hold.
    rest: Option<Spooled>,
}

/// Joins two inputs by sorting them, in three times this memory: for each input, and for what is compared.
///
/// # Errors
/// As [`crate::Database::join`].
pub(super) async fn join<T: Taker>(
    space: &Space,
    (left, right): (impl Rows, impl Rows),
    kind: JoinKind,
    budget: Budget,
    taker: &mut T,
) -> Result<JoinReport> {
    let mut left = sort(space, left, budget.memory).await?;
    let mut right = sort(space, right, budget.memory).await?;
    let mut report = JoinReport::default();
    for sorted in [left.report(), right.report()] {
        report.runs += sorted.runs;
        report.passes = report.passes.max(sorted.passes);
        report.spilled_bytes += sorted.spilled_bytes;
    }
    (report.left_rows, report.right_rows) = (left.report().rows, right.report().rows);
    // The third part: half of it for right rows of one key, half for left ones; each may be one row of a quarter of a part.
    let frames = 2 * FRAMES as u64 * budget.cluster;
    let mut join = MergeJoin {
        space,
        limit: ((budget.memory - frames) / 2) as usize,
        group: KeyGroup { key: Vec::new(), values: Values::default(), rest: None },
        block: Values::default(),
        answers: Answers { space, taker, count: 0 },
        spilled_bytes: 0,
    };
    join.run(&mut left, &mut right, kind).await?;
    report.answers = join.answers.count;
    report.spilled_bytes += join.spilled_bytes;
    Ok(report)
}

struct MergeJoin<'a, T> {
    space: &'a Space,
    /// Bytes of values of each side.
    limit: usize,
    group: KeyGroup,
    block: Values,
    answers: Answers<'a, T>,
    spilled_bytes: u64,
}

impl<T: Taker> MergeJoin<'_, T> {
    async fn run(&mut self, left: &mut Sorted, right: &mut Sorted, kind: JoinKind) -> Result<()> {
        let (mut has_left, mut has_right) = (left.advance().await?, right.advance().await?);
        while has_left {
            let row = left.row();
            match if has_right { right.row().key.cmp(row.key) } else { Ordering::Greater } {
                Ordering::Less => has_right = right.advance().await?,
                Ordering::Greater => {
                    if kind == JoinKind::Left {
                        self.answers.give(Joined { key: row.key, left: row.value, right: None }).await?;
                    } else if !has_right {
                        return Ok(());
                    }
                    has_left = left.advance().await?;
                }
                Ordering::Equal => {
                    self.group.key.clear();
                    self.group.key.extend_from_slice(row.key);
                    has_right = self.collect(right).await?;
                    has_left = match self.group.rest.take() {
                        None => self.match_in_memory(left).await?,
                        Some(rest) => self.match_in_blocks(rest, left).await?,
                    };
                }
            }
        }
        Ok(())
    }

    /// Takes the right rows of the group's key and goes to the first one of another; false at the end.
    async fn collect(&mut self, right: &mut Sorted) -> Result<bool> {
        self.group.values.clear();
        let mut spool: Option<(Spool, Frames)> = None;
        let mut has_row = true;
        while has_row && right.row().key == self.group.key {
            let value = right.row().value;
            match &mut spool {
                None if self.group.values.add(value, self.limit) => {}
                None => {
                    let frames = Frames::new(self.space.executor(), FRAMES, self.space.cluster_size())?;
                    let mut rest = Spool::new(self.space, &frames);
                    rest.add(Row::new(b"", value)).await?;
                    spool = Some((rest, frames));
                }
                Some((rest, _)) => rest.add(Row::new(b"", value)).await?,
            }
            has_row = right.advance().await?;
        }
        if let Some((rest, frames)) = spool {
            let rest = rest.finish().await?;
            frames.landed().await?;
            self.spilled_bytes += u64::from(rest.run.clusters) * self.space.cluster_size() as u64;
            self.group.rest = Some(rest);
        }
        Ok(has_row)
    }

    /// Joins the left rows of the group's key with right ones in memory and goes to the first one of another; false at the end.
    async fn match_in_memory(&mut self, left: &mut Sorted) -> Result<bool> {
        let mut has_row = true;
        while has_row && left.row().key == self.group.key {
            let row = left.row();
            for value in self.group.values.iter() {
                self.answers.give(Joined { key: row.key, left: row.value, right: Some(value) }).await?;
            }
            has_row = left.advance().await?;
        }
        Ok(has_row)
    }

    /// The same with right ones of which this rest was put aside.
    async fn match_in_blocks(&mut self, rest: Spooled, left: &mut Sorted) -> Result<bool> {
        let mut has_row = true;
        while has_row && left.row().key == self.group.key {
            self.block.clear();
            while has_row && left.row().key == self.group.key && self.block.add(left.row().value, self.limit) {
                has_row = left.advance().await?;
            }
            let (key, block) = (&self.group.key, &self.block);
            for right in self.group.values.iter() {
                for left in block.iter() {
                    self.answers.give(Joined { key, left, right: Some(right) }).await?;
                }
            }
            let mut reader = Reader::new(self.space, rest.clone(), FRAMES)?;
            while let Some(right) = reader.next().await? {
                for left in block.iter() {
                    self.answers.give(Joined { key, left, right: Some(right.value) }).await?;
                }
            }
        }
        Ok(has_row)
    }
}
