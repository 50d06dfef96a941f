//! Merging runs. The merge itself is a computation on whole clusters; the engine's thread reads the clusters that it lacks and
//! takes those that it makes.

use super::background::Background;
use super::cluster::Packer;
use super::frames::Frames;
use super::losers::Losers;
use super::reads::Reads;
use super::row::prefix;
use super::run::Run;
use super::space::Space;
use super::stream::{Advance, Damage, Stream};
use crate::Result;
use driver::{Frame, Work};
use std::collections::VecDeque;

/// Output clusters that a computation fills at most before it reports: its thread works on while the engine's takes them.
const STEP_CLUSTERS: usize = 8;

/// The computation's part: rows of several runs in the order of their keys.
struct Merger {
    sources: Vec<MergeSource>,
    /// Built when every source has its first row.
    tree: Option<Losers>,
    packer: Packer,
    /// Bytes of the present row that were packed.
    done: usize,
    /// Whether the winner's row was packed and the next one is wanted.
    is_packed: bool,
}

struct MergeSource {
    stream: Stream,
    /// The present row's key as a number; the greatest at the end.
    prefix: u64,
    has_ended: bool,
    has_begun: bool,
}

/// What a computation came to.
struct MergeStep {
    merger: Box<Merger>,
    full: Vec<Frame>,
    spare: Vec<Frame>,
    /// Clusters whose rows were all merged, by source.
    spent: Vec<(usize, Frame)>,
    rows: u64,
    stop: Stop,
}

enum Stop {
    /// This source's next cluster is not here.
    Lacks(usize),
    /// There is no frame for output.
    Full,
    /// Everything was merged.
    Ended,
    Damaged(usize, Damage),
}

impl MergeSource {
    fn key(&self) -> &[u8] {
        self.stream.row().key
    }

    /// Goes to the next row; false if its cluster is not here.
    #[inline]
    fn advance(&mut self) -> Result<bool, Damage> {
        match self.stream.advance()? {
            Advance::Row => self.prefix = prefix(self.key(), 0),
            Advance::Lacking => return Ok(false),
            Advance::End => (self.prefix, self.has_ended) = (u64::MAX, true),
        }
        Ok(true)
    }
}

/// Whether source `one` goes before `other`: by key, among equal keys by number.
#[inline]
fn beats(sources: &[MergeSource], one: u32, other: u32) -> bool {
    let (left, right) = (&sources[one as usize], &sources[other as usize]);
    if left.prefix != right.prefix {
        return left.prefix < right.prefix;
    }
    if left.has_ended || right.has_ended {
        return !left.has_ended;
    }
    (left.key(), one) < (right.key(), other)
}

impl Merger {
    fn step(mut self: Box<Self>, mut spare: Vec<Frame>) -> MergeStep {
        let (mut full, mut rows) = (Vec::new(), 0);
        let stop = self.merge(&mut spare, &mut full, &mut rows);
        let mut spent = Vec::new();
        for (number, source) in self.sources.iter_mut().enumerate() {
            spent.extend(source.stream.spent().drain(..).map(|frame| (number, frame)));
        }
        MergeStep { merger: self, full, spare, spent, rows, stop }
    }

    fn merge(&mut self, spare: &mut Vec<Frame>, full: &mut Vec<Frame>, rows: &mut u64) -> Stop {
        for (number, source) in self.sources.iter_mut().enumerate() {
            if !source.has_begun {
                match source.advance() {
                    Ok(true) => source.has_begun = true,
                    Ok(false) => return Stop::Lacks(number),
                    Err(damage) => return Stop::Damaged(number, damage),
                }
            }
        }
        let sources = &mut self.sources;
        let tree =
            self.tree.get_or_insert_with(|| Losers::new(sources.len() as u32, |one, other| beats(sources, one, other)));
        loop {
            let winner = tree.winner() as usize;
            if self.is_packed {
                match sources[winner].advance() {
                    Ok(true) => tree.replay(|one, other| beats(sources, one, other)),
                    Ok(false) => return Stop::Lacks(winner),
                    Err(damage) => return Stop::Damaged(winner, damage),
                }
                (self.is_packed, *rows) = (false, *rows + 1);
                continue;
            }
            if sources[winner].has_ended {
                full.extend(self.packer.take());
                spare.extend(self.packer.give_back());
                return Stop::Ended;
            }
            if !self.packer.has_room() {
                full.extend(self.packer.take());
                let Some(frame) = spare.pop() else { return Stop::Full };
                self.packer.give(frame);
            }
            let rest = &sources[winner].stream.encoded()[self.done..];
            let put = self.packer.put(rest, self.done == 0);
            self.is_packed = put == rest.len();
            self.done = if self.is_packed { 0 } else { self.done + put };
        }
    }
}

impl MergeStep {
    fn comparisons(&self) -> u64 {
        self.rows * u64::from(usize::BITS - self.merger.sources.len().leading_zeros())
    }
}

/// A merge of runs into clusters that are asked for one by one.
pub(super) struct Merge {
    space: Space,
    reads: Reads,
    outputs: Frames,
    /// Clusters that were made and not asked for.
    made: VecDeque<Frame>,
    merger: Option<Box<Merger>>,
    step: Option<Background<MergeStep>>,
    /// The source without which there is no going on.
    lacks: Option<usize>,
    has_ended: bool,
}

impl Merge {
    /// Of these runs, with the given frames to read and to make clusters with. `number`: the run that the clusters belong to,
    /// if they are written.
    ///
    /// # Errors
    /// The driver's, if there is no memory.
    pub fn new(
        space: &Space,
        runs: Vec<Run>,
        read_frames: usize,
        outputs: &Frames,
        number: Option<u64>,
    ) -> Result<Merge> {
        let source = |run: &Run| MergeSource { stream: run.stream(), prefix: 0, has_ended: false, has_begun: false };
        let sources: Vec<MergeSource> = runs.iter().map(source).collect();
        let packer = number.map_or_else(Packer::unsealed, Packer::new);
        let merger = Some(Box::new(Merger { sources, tree: None, packer, done: 0, is_packed: false }));
        let (space, outputs) = (space.clone(), outputs.clone());
        let reads = Reads::new(&space, runs, read_frames)?;
        let (made, step, lacks) = (VecDeque::new(), None, None);
        Ok(Merge { space, reads, outputs, made, merger, step, lacks, has_ended: false })
    }

    /// The next cluster. It goes back to the output frames when its rows were used.
    ///
    /// # Errors
    /// [`crate::Error::DamagedTemp`], or the driver's.
    pub async fn next(&mut self) -> Result<Option<Frame>> {
        loop {
            self.go_on().await?;
            if let Some(frame) = self.made.pop_front() {
                return Ok(Some(frame));
            }
            if self.has_ended {
                return Ok(None);
            }
            // A step, a read, a frame that comes back: all are announced at the reads or at the outputs.
            match self.step {
                None if self.lacks.is_none() && self.outputs.free_count() == 0 => self.outputs.changed().await,
                _ => self.reads.changed().await,
            }
        }
    }

    /// Does what can be done without waiting for a device or a computation.
    async fn go_on(&mut self) -> Result<()> {
        let ended = self.step.as_ref().map(Background::take).transpose()?.flatten();
        if let Some(step) = ended {
            self.step = None;
            let executor = self.space.executor();
            if !executor.runs_until_wait() {
                executor.charge_times(Work::KeyComparison, step.comparisons());
                executor.charge_times(Work::RowCopy, step.rows);
            }
            self.absorb(step)?;
            self.space.executor().pay_debt().await;
        }
        self.reads.check()?;
        self.outputs.check()?;
        self.reads.start().await;
        if let Some(merger) = &mut self.merger {
            self.reads.deliver(|number, frame| {
                merger.sources[number].stream.supply(frame);
                if self.lacks == Some(number) {
                    self.lacks = None;
                }
            });
        }
        if self.lacks.is_some() || self.has_ended {
            return Ok(());
        }
        let Some(merger) = self.merger.take() else { return Ok(()) };
        let mut spare = Vec::new();
        while spare.len() < STEP_CLUSTERS
            && let Some(frame) = self.outputs.try_take()
        {
            spare.push(frame);
        }
        if spare.is_empty() {
            self.merger = Some(merger);
            return Ok(());
        }
        self.step = Some(self.start(merger, spare));
        Ok(())
    }

    /// How many rows a step merges shows only behind it. Where tasks keep a described CPU until they wait, with computations beside
    /// it, the step is made here at no time, and what it takes passes on another CPU; elsewhere the thread pays for it then.
    fn start(&self, merger: Box<Merger>, spare: Vec<Frame>) -> Background<MergeStep> {
        let (executor, frames) = (self.space.executor(), self.reads.frames());
        if !executor.runs_until_wait() {
            return Background::start(executor, 0, frames, move || merger.step(spare));
        }
        let step = merger.step(spare);
        let comparing = executor.price(Work::KeyComparison, step.comparisons());
        let price = comparing + executor.price(Work::RowCopy, step.rows);
        Background::start(executor, price, frames, move || step)
    }

    fn absorb(&mut self, step: MergeStep) -> Result<()> {
        for frame in step.spare {
            self.outputs.put(frame);
        }
        for (number, frame) in step.spent {
            self.reads.take_back(number, frame);
        }
        self.made.extend(step.full);
        self.merger = Some(step.merger);
        match step.stop {
            Stop::Lacks(number) => self.lacks = Some(number),
            Stop::Full => {}
            Stop::Ended => self.has_ended = true,
            Stop::Damaged(number, damage) => return Err(self.reads.damaged(number, damage)),
        }
        Ok(())
    }

    /// Takes an output cluster's frame back.
    pub fn recycle(&self, frame: Frame) {
        self.outputs.put(frame);
    }
}
