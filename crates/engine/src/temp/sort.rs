//! External merge sort.
//!
//! Runs are made by sorting what fits into half of the memory, while rows come into the other half (load-sort-store with
//! quicksort). Replacement selection (Knuth, The Art of Computer Programming, volume 3, section 5.4.1) would make runs twice as
//! long as its memory, which here is as long as two halves; but its heap misses the processor's cache at every level for every
//! row, and rows of varying length leave gaps in its memory (Graefe, Implementing Sorting in Database Systems, 2006, sections 3
//! and 4). With today's memory one merge reads hundreds of runs, so that their length seldom decides about another pass.
//!
//! The last merge is streamed to the caller and never written. A sort's workspaces, a merge and its clusters are owned
//! by one `Op::Compute` after the other, so a sort takes little of the engine's thread and uses a second core.

use super::background::both;
use super::budget::Budget;
use super::cluster::Packer;
use super::frames::Frames;
use super::merge::Merge;
use super::row::{Row, Rows};
use super::run::{Run, RunWriter};
use super::space::Space;
use super::stream::{Advance, Stream};
use super::workspace::{self, Workspace};
use crate::Result;
use driver::Work;

/// Bytes of rows after which other tasks get their turn.
const TURN: usize = 64 << 10;
/// Clusters that a computation packs before the first of them is written.
const PACKED: usize = 8;

/// What a sort did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SortReport {
    /// Rows sorted.
    pub rows: u64,
    /// Runs that were written first; none if the memory sufficed.
    pub runs: u64,
    /// How often a row was merged, at most: 1 if all runs were merged at once.
    pub passes: u32,
    /// Bytes written to temporary space; as many are read again.
    pub spilled_bytes: u64,
}

/// Rows in the ascending order of their keys; those of equal keys in any order. They are a source of rows themselves.
pub struct Sorted {
    space: Space,
    order: Order,
    report: SortReport,
    /// Bytes of rows given since others had their turn.
    given: usize,
}

enum Order {
    /// They fit the memory.
    Memory(workspace::SortedWorkspace),
    /// The last merge is under way.
    Merged(Box<Merge>, Stream),
}

impl Sorted {
    /// What was done for it.
    pub fn report(&self) -> SortReport {
        self.report
    }

    /// Goes to the next row; false at the end.
    pub(super) async fn advance(&mut self) -> Result<bool> {
        if self.given >= TURN {
            self.given = 0;
            self.space.executor().yield_now().await;
        }
        match &mut self.order {
            Order::Memory(sorted) => {
                if !sorted.advance() {
                    return Ok(false);
                }
            }
            Order::Merged(merge, stream) => loop {
                match stream.advance().expect("what is merged is verified") {
                    Advance::Row => break,
                    Advance::End => return Ok(false),
                    Advance::Lacking => {
                        stream.spent().drain(..).for_each(|frame| merge.recycle(frame));
                        match merge.next().await? {
                            Some(frame) => stream.supply(frame),
                            None => stream.close(),
                        }
                    }
                }
            },
        }
        let row = self.row();
        self.given += row.key.len() + row.value.len();
        Ok(true)
    }

    /// The row that the last step went to.
    pub(super) fn row(&self) -> Row<'_> {
        match &self.order {
            Order::Memory(sorted) => sorted.row(),
            Order::Merged(_, stream) => stream.row(),
        }
    }
}

impl Rows for Sorted {
    async fn next(&mut self) -> Result<Option<Row<'_>>> {
        Ok(if self.advance().await? { Some(self.row()) } else { None })
    }
}

/// A sort before its last merge.
struct Sort {
    space: Space,
    budget: Budget,
    report: SortReport,
}

/// Sorts rows in `memory` bytes.
///
/// # Errors
/// Those of the rows; [`crate::Error::Setting`], [`crate::Error::RowTooLong`], [`crate::Error::TempFull`],
/// [`crate::Error::DamagedTemp`], or the driver's.
pub(crate) async fn sort(space: &Space, rows: impl Rows, memory: u64) -> Result<Sorted> {
    let budget = Budget::new(memory, space.cluster_size())?;
    let mut sort = Sort { space: space.clone(), budget, report: SortReport::default() };
    let order = sort.run(rows).await?;
    Ok(Sorted { space: space.clone(), order, report: sort.report, given: 0 })
}

impl Sort {
    async fn run(&mut self, mut rows: impl Rows) -> Result<Order> {
        let executor = self.space.executor().clone();
        let mut first = Workspace::new(&executor, self.budget.workspace())?;
        let mut filling = Filling { space: &self.space, budget: self.budget, carried: None, rows: 0 };
        if filling.fill(&mut rows, &mut first).await? {
            self.report.rows = filling.rows;
            let price = sort_price(&self.space, first.rows());
            return Ok(Order::Memory(executor.compute(price, move || first.sort()).await?));
        }
        let outputs = Frames::new(&executor, self.budget.outputs(), self.space.cluster_size())?;
        let mut runs = Vec::new();
        let (mut full, mut other) = (first, Workspace::new(&executor, self.budget.workspace())?);
        let mut has_ended = false;
        while !full.is_empty() {
            let fill = async {
                let ended = has_ended || filling.fill(&mut rows, &mut other).await?;
                Ok((ended, other))
            };
            let (filled, (run, empty)) = both(fill, write_run(&self.space, &outputs, full)).await?;
            runs.push(run);
            (has_ended, full) = filled;
            other = empty;
        }
        self.report.rows = filling.rows;
        self.report.runs = runs.len() as u64;
        self.note_written(&runs);
        drop((full, other));
        self.merge(runs, outputs).await
    }

    fn note_written(&mut self, runs: &[Run]) {
        let clusters: u64 = runs.iter().map(|run| u64::from(run.clusters)).sum();
        self.report.spilled_bytes += clusters * self.space.cluster_size() as u64;
    }

    /// Merges runs, the shortest first, until the rest can be merged at once. The first merge takes so few that all later ones
    /// take as many as they can (Knuth, volume 3, section 5.4.9).
    async fn merge(&mut self, mut runs: Vec<Run>, outputs: Frames) -> Result<Order> {
        let longest = runs.iter().map(|run| run.longest).max().unwrap_or(0);
        let fan_in = self.budget.fan_in(longest);
        while runs.len() > fan_in {
            outputs.landed().await?;
            runs.sort_by_key(|run| run.clusters);
            let surplus = runs.len() - fan_in;
            let taken = if surplus.is_multiple_of(fan_in - 1) { fan_in } else { surplus % (fan_in - 1) + 1 };
            let group: Vec<Run> = runs.drain(..taken).collect();
            let level = 1 + group.iter().map(|run| run.level).max().unwrap_or(0);
            let mut writer = RunWriter::new(&self.space, &outputs, level);
            writer.note_row(longest);
            let frames = self.budget.reads(taken, longest);
            let mut merge = Merge::new(&self.space, group, frames, &outputs, Some(writer.number()))?;
            while let Some(frame) = merge.next().await? {
                writer.write(frame).await?;
            }
            let run = writer.finish();
            self.note_written(std::slice::from_ref(&run));
            runs.push(run);
        }
        outputs.landed().await?;
        self.report.passes = 1 + runs.iter().map(|run| run.level).max().unwrap_or(0);
        let frames = self.budget.reads(runs.len(), longest);
        let merge = Merge::new(&self.space, runs, frames, &outputs, None)?;
        Ok(Order::Merged(Box::new(merge), Stream::unsealed()))
    }
}

/// Rows on their way into memory.
struct Filling<'a> {
    space: &'a Space,
    budget: Budget,
    /// The row that did not fit the workspace before.
    carried: Option<(Vec<u8>, Vec<u8>)>,
    rows: u64,
}

impl Filling<'_> {
    /// Fills a workspace; true if that was all.
    async fn fill(&mut self, rows: &mut impl Rows, workspace: &mut Workspace) -> Result<bool> {
        let executor = self.space.executor();
        if let Some((key, value)) = self.carried.take() {
            assert!(workspace.add(Row::new(&key, &value)), "a row that is not too long fits an empty workspace");
        }
        let (mut turn, mut charged) = (workspace.bytes() + TURN, workspace.rows());
        loop {
            let Some(row) = rows.next().await? else { return Ok(true) };
            self.budget.check(row)?;
            if !workspace.add(row) {
                self.carried = Some((row.key.to_vec(), row.value.to_vec()));
                self.rows += 1;
                return Ok(false);
            }
            self.rows += 1;
            if workspace.bytes() >= turn {
                executor.charge_times(Work::RowCopy, (workspace.rows() - charged) as u64);
                executor.pay_debt().await;
                executor.yield_now().await;
                (turn, charged) = (workspace.bytes() + TURN, workspace.rows());
            }
        }
    }
}

/// The cost of sorting `rows` rows: about as many comparisons as bits tell their order.
fn sort_price(space: &Space, rows: usize) -> u64 {
    let levels = u64::from(rows.max(1).ilog2()) + 1;
    space.executor().price(Work::KeyComparison, rows as u64 * levels)
}

/// Sorts a workspace's rows and writes them as a run; gives the empty workspace back.
async fn write_run(space: &Space, outputs: &Frames, full: Workspace) -> Result<(Run, Workspace)> {
    let executor = space.executor();
    let mut writer = RunWriter::new(space, outputs, 0);
    writer.note_row(full.longest());
    let price = sort_price(space, full.rows());
    let mut sorted = executor.compute(price, move || full.sort()).await?;
    let mut packer = Packer::new(writer.number());
    let (steps, mut left) = (sorted.clusters(space.cluster_size()).div_ceil(PACKED), sorted.rows());
    while !sorted.is_packed() {
        let mut frames = vec![outputs.take().await?];
        while frames.len() < PACKED
            && let Some(frame) = outputs.try_take()
        {
            frames.push(frame);
        }
        // The last step pays for what is left.
        let rows = left.min(sorted.rows() / steps.max(1) + 1);
        left -= rows;
        let price = executor.price(Work::RowCopy, rows as u64);
        let packed = executor.compute(price, move || {
            let (full, spare) = sorted.pack(&mut packer, frames);
            (sorted, packer, full, spare)
        });
        let (full, spare);
        (sorted, packer, full, spare) = packed.await?;
        for frame in full {
            writer.write(frame).await?;
        }
        spare.into_iter().for_each(|frame| outputs.put(frame));
    }
    Ok((writer.finish(), sorted.reuse()))
}
