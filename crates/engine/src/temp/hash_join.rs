//! Hybrid hash join (DeWitt, Katz, Olken, Shapiro, Stonebraker and Wood, Implementation Techniques for Main Memory Database
//! Systems, 1984): right rows are divided into partitions by the hashes of their keys. As many partitions as the memory holds
//! stay there, the others are written, the last first; left rows of those that stayed find their counterparts at once, the others
//! are put aside beside theirs and joined afterwards, pair by pair, in the same way and with another hash.
//!
//! Partitions that another hash does not divide, because one key has more rows than memory holds, are joined by sorting
//! ([`super::merge_join`]), which goes over such a key in block nested loops.

use super::background::Background;
use super::budget::Budget;
use super::frames::Frames;
use super::hash_table::{Chunks, Probes, ROW_SIZE, Table, hash};
use super::join::{JoinKind, JoinReport, Joined, Taker};
use super::merge_join;
use super::row::{HEAD_MAX, Row, Rows};
use super::space::Space;
use super::spool::{Reader, Spool, Spooled};
use crate::Result;
use driver::{Frame, Work};
use std::sync::Arc;

/// Partitions of one level.
const PARTITIONS: std::ops::RangeInclusive<u64> = 4..=32;
/// Partitions of this level are not divided further.
const LEVEL_MAX: u32 = 8;
/// Bytes of rows after which other tasks get their turn.
const TURN: usize = 64 << 10;
/// Bytes of rows that are looked for at once, at most.
const PROBED: usize = 1 << 20;
/// Frames that a pair of partitions is read with, each.
const READS: usize = 4;

/// Joins two inputs by hashing, in `memory` bytes. The right one should be the smaller.
///
/// # Errors
/// As [`crate::Database::join`].
pub(super) async fn join<T: Taker>(
    space: &Space,
    (left, right): (impl Rows, impl Rows),
    kind: JoinKind,
    memory: u64,
    taker: &mut T,
) -> Result<JoinReport> {
    let cluster = space.cluster_size();
    let budget = Budget::new(memory, cluster)?;
    // What sorting has where it is the way out.
    let sorting = Budget::third(memory, cluster, 2 * READS as u64)?;
    let mut report = JoinReport::default();
    let mut pairs = Vec::new();
    let mut pass = Pass::new(space, budget, kind)?;
    let (left_rows, right_rows) = pass.run(0, (left, right), taker, &mut report, &mut pairs).await?;
    (report.left_rows, report.right_rows) = (left_rows, right_rows);
    let mut pass = Some(pass);
    while let Some(pair) = pairs.pop() {
        let Pair { left, right, level, parent_bytes } = pair;
        report.passes = report.passes.max(level);
        let is_divided = right.bytes < parent_bytes / 4 * 3;
        let (left, right) = (Reader::new(space, left, READS)?, Reader::new(space, right, READS)?);
        if level < LEVEL_MAX && is_divided {
            let pass = match &mut pass {
                Some(pass) => pass,
                none => none.insert(Pass::new(space, budget, kind)?),
            };
            pass.run(level, (left, right), taker, &mut report, &mut pairs).await?;
        } else {
            // All memory goes to sorting.
            pass = None;
            let sorted = merge_join::join(space, (left, right), kind, sorting, taker).await?;
            report.answers += sorted.answers;
            report.runs += sorted.runs;
            report.passes = report.passes.max(level + sorted.passes);
            report.spilled_bytes += sorted.spilled_bytes;
        }
    }
    Ok(report)
}

/// A partition of both inputs that was put aside.
struct Pair {
    left: Spooled,
    right: Spooled,
    level: u32,
    /// Bytes of right rows of what it is a partition of.
    parent_bytes: u64,
}

/// Where right rows of a partition are.
enum JoinPartition {
    Resident(Chunks, usize),
    Spilled(Spool),
}

/// Partitioning, and the memory that it is done with, at one level after the other.
struct Pass<'a> {
    space: &'a Space,
    kind: JoinKind,
    level: u32,
    budget: Budget,
    /// Frames in which rows leave for temporary space.
    outputs: Frames,
    /// Frames of resident rows that are not in use.
    spare: Vec<Frame>,
    partitions: Vec<JoinPartition>,
    /// How many partitions there are.
    count: usize,
    /// Bytes of rows that are looked for at once.
    batch: usize,
    /// Bytes that resident rows and their share of the table take, and may take.
    used: usize,
    limit: usize,
}

impl<'a> Pass<'a> {
    fn new(space: &'a Space, budget: Budget, kind: JoinKind) -> Result<Pass<'a>> {
        let (executor, cluster) = (space.executor(), space.cluster_size());
        let count = (budget.memory / budget.cluster / 8).clamp(*PARTITIONS.start(), *PARTITIONS.end()) as usize;
        let outputs = count + budget.outputs();
        let batch = PROBED.min(budget.memory as usize / 32);
        // Beside the outputs: both inputs' readers, and the rows that are looked for, those on their way included, each with what
        // it takes to look for it.
        let others = (outputs + 2 * READS) * cluster + 4 * batch;
        let limit = (budget.memory as usize).saturating_sub(others);
        let outputs = Frames::new(executor, outputs, cluster)?;
        let (spare, partitions) = (Vec::new(), Vec::new());
        Ok(Pass { space, kind, level: 0, budget, batch, count, outputs, spare, partitions, used: 0, limit })
    }

    /// Joins two inputs as far as memory goes; `pairs` gets the rest. Gives the numbers of left and right rows.
    async fn run<T: Taker>(
        &mut self,
        level: u32,
        (left, right): (impl Rows, impl Rows),
        taker: &mut T,
        report: &mut JoinReport,
        pairs: &mut Vec<Pair>,
    ) -> Result<(u64, u64)> {
        let (executor, cluster) = (self.space.executor(), self.space.cluster_size());
        (self.level, self.used) = (level, 0);
        self.partitions = (0..self.count).map(|_| JoinPartition::Resident(Chunks::default(), 0)).collect();
        if self.spare.len() < self.limit / cluster {
            self.spare.clear();
            self.spare = executor.untouched_frames(self.limit / cluster, cluster)?;
        }
        let (right_rows, right_bytes) = self.divide(right).await?;
        let (mut chunks, mut resident) = (Chunks::default(), 0);
        let mut aside: Vec<Option<(Spooled, Spool)>> = Vec::new();
        for partition in std::mem::take(&mut self.partitions) {
            match partition {
                JoinPartition::Resident(rows, count) => {
                    chunks.extend(rows);
                    resident += count;
                    aside.push(None);
                }
                JoinPartition::Spilled(spool) => {
                    let spooled = spool.finish().await?;
                    aside.push(Some((spooled, Spool::new(self.space, &self.outputs))));
                }
            }
        }
        let resident_rows = resident as u64;
        let price = executor.price(Work::RowCopy, resident_rows) + executor.price(Work::HashEntry, resident_rows);
        let table = executor.compute(price, move || Arc::new(Table::build(chunks, resident, level))).await?;
        let left_rows = self.probe(left, &table, &mut aside, taker, report).await?;
        // No probe is left.
        let frames = Arc::into_inner(table).map(Table::into_frames).into_iter().flatten();
        self.spare.extend(frames.filter(|frame| frame.len() == cluster));
        for (right, left) in aside.into_iter().flatten() {
            let left = left.finish().await?;
            let clusters = u64::from(right.run.clusters) + u64::from(left.run.clusters);
            report.spilled_bytes += clusters * self.budget.cluster;
            report.runs += 2;
            // Without right rows it would not have been put aside; without left ones there is no answer.
            if left.rows > 0 {
                pairs.push(Pair { left, right, level: self.level + 1, parent_bytes: right_bytes.max(1) });
            }
        }
        self.outputs.landed().await?;
        Ok((left_rows, right_rows))
    }

    /// Which partition a hash is of.
    #[inline]
    fn partition(hash: u64, count: usize) -> usize {
        (((hash >> 32) * count as u64) >> 32) as usize
    }

    /// Divides the right rows. Gives their number and their bytes.
    async fn divide(&mut self, mut right: impl Rows) -> Result<(u64, u64)> {
        let executor = self.space.executor().clone();
        let (mut rows, mut bytes, mut turn, mut charged) = (0, 0_u64, TURN as u64, 0);
        // The prices of the papers' machines are for what was charged when their figures were made.
        let pays_all = executor.runs_until_wait() || !executor.is_priced();
        while let Some(row) = right.next().await? {
            self.budget.check(row)?;
            let number = Self::partition(hash(row.key, self.level), self.partitions.len());
            (rows, bytes) = (rows + 1, bytes + (row.key.len() + row.value.len()) as u64);
            let moved = self.put(number, row).await?;
            if pays_all {
                executor.charge_times(Work::RowCopy, moved);
            }
            if bytes >= turn {
                turn = bytes + TURN as u64;
                executor.charge_times(Work::RowCopy, rows - charged);
                charged = rows;
                executor.pay_debt().await;
                executor.yield_now().await;
            }
        }
        if pays_all {
            executor.charge_times(Work::RowCopy, rows - charged);
            executor.pay_debt().await;
        }
        Ok((rows, bytes))
    }

    /// Puts a row where it belongs. Gives the number of others that had to leave memory for it.
    async fn put(&mut self, number: usize, row: Row<'_>) -> Result<u64> {
        let mut moved = 0;
        let size = HEAD_MAX + row.key.len() + row.value.len();
        loop {
            match &mut self.partitions[number] {
                JoinPartition::Spilled(spool) => {
                    spool.add(row).await?;
                    return Ok(moved);
                }
                JoinPartition::Resident(chunks, count) => {
                    let cluster = self.space.cluster_size();
                    let new = if chunks.room() >= size { 0 } else { size.max(cluster) };
                    if self.used + new + ROW_SIZE <= self.limit {
                        if new > 0 {
                            // A row that is longer than a cluster has a frame of its own.
                            let spare = if new == cluster { self.spare.pop() } else { None };
                            chunks.grow(spare.map_or_else(|| self.space.executor().frame(new), Ok)?);
                        }
                        chunks.add(row);
                        *count += 1;
                        self.used += new + ROW_SIZE;
                        return Ok(moved);
                    }
                }
            }
            moved += self.spill().await?;
        }
    }

    /// Writes the last partition that is still in memory. Gives the number of its rows.
    async fn spill(&mut self) -> Result<u64> {
        let resident = |partition: &JoinPartition| matches!(partition, JoinPartition::Resident(..));
        let last = self.partitions.iter().rposition(resident).expect("rows without a partition in memory need none");
        let spilled = JoinPartition::Spilled(Spool::new(self.space, &self.outputs));
        let JoinPartition::Resident(chunks, count) = std::mem::replace(&mut self.partitions[last], spilled) else {
            unreachable!("looked for above")
        };
        let JoinPartition::Spilled(spool) = &mut self.partitions[last] else { unreachable!("put there above") };
        for (_, _, row) in chunks.iter() {
            spool.add(row).await?;
        }
        let cluster = self.space.cluster_size();
        self.used -= count * ROW_SIZE;
        for frame in chunks.into_frames() {
            self.used -= frame.len();
            if frame.len() == cluster {
                self.spare.push(frame);
            }
        }
        Ok(count as u64)
    }

    /// Looks for the left rows, or puts them aside. Gives their number.
    async fn probe<T: Taker>(
        &self,
        mut left: impl Rows,
        table: &Arc<Table>,
        aside: &mut [Option<(Spooled, Spool)>],
        taker: &mut T,
        report: &mut JoinReport,
    ) -> Result<u64> {
        let executor = self.space.executor();
        let (mut probes, mut under_way) = (Probes::default(), None);
        let (mut rows, mut turn, mut has_ended) = (0, 0, false);
        while !has_ended {
            let mut bytes = 0;
            loop {
                let Some(row) = left.next().await? else {
                    has_ended = true;
                    break;
                };
                let hash = hash(row.key, self.level);
                rows += 1;
                bytes += row.key.len() + row.value.len();
                match &mut aside[Self::partition(hash, aside.len())] {
                    Some((_, spool)) => spool.add(row).await?,
                    None => probes.add(row, hash),
                }
                if probes.bytes() >= self.batch || bytes >= TURN {
                    break;
                }
            }
            executor.charge_times(Work::RowCopy, rows - turn);
            turn = rows;
            executor.pay_debt().await;
            executor.yield_now().await;
            if probes.bytes() < self.batch && !has_ended {
                continue;
            }
            let next = self.look(table, probes);
            probes = match under_way.replace(next) {
                Some(before) => self.answer(table, before, taker, report).await?,
                None => Probes::default(),
            };
        }
        if let Some(last) = under_way {
            self.answer(table, last, taker, report).await?;
        }
        Ok(rows)
    }

    fn look(&self, table: &Arc<Table>, mut probes: Probes) -> Background<Probes> {
        let (table, outer) = (Arc::clone(table), self.kind == JoinKind::Left);
        let executor = self.space.executor();
        let count = probes.len() as u64;
        let price = executor.price(Work::KeyComparison, count) + executor.price(Work::HashEntry, count);
        Background::start(executor, price, &self.outputs, move || {
            probes.look(&table, outer);
            probes
        })
    }

    /// Gives the answers of a computation, and of those that it needs beyond; gives its memory back.
    async fn answer<T: Taker>(
        &self,
        table: &Arc<Table>,
        mut under_way: Background<Probes>,
        taker: &mut T,
        report: &mut JoinReport,
    ) -> Result<Probes> {
        loop {
            let mut probes = loop {
                if let Some(probes) = under_way.take()? {
                    break probes;
                }
                self.outputs.changed().await;
            };
            for (probe, found) in &probes.matches {
                let row = probes.row(*probe);
                let right = found.map(|number| table.row(number).value);
                taker(Joined { key: row.key, left: row.value, right }).await?;
            }
            report.answers += probes.matches.len() as u64;
            if probes.is_done() {
                probes.clear();
                return Ok(probes);
            }
            under_way = self.look(table, probes);
        }
    }
}
