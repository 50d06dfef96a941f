//! Redo of memory-resident sets: what was committed after the backup's sweep began is repeated, transaction by transaction in
//! the order of their commits (Garcia-Molina and Salem, System M, 1988, section 4).
//!
//! Values may be repeated over any images. Actions and procedures are repeated exactly once over what a consistent sweep has
//! left; those that a black/white sweep has in its backup are left out, if it is that sweep's backup that was loaded: the one
//! of a sweep that did not end says nothing. Records of all kinds may follow one another, because each says what it is: those
//! that were logged while the backup was being swept suit that sweep, and after them the sets are as they were, whatever the
//! log repeats from then on. So an opening with another log or other sweeps may go on with the backup that it finds.
//!
//! Values and actions name their record and depend on nothing else. So each set goes through its own changes in their order, in
//! a *lane* of its own, on whichever core is free. A procedure may touch anything: it runs on the engine's thread, when all sets
//! are back, and what follows it waits.
//!
//! Computations that own what they work on (`Op::Compute`) verify images, build parts of the index and decode the log,
//! so a restart uses every core without locks. The changes of a large set are spread over several computations
//! (`set/spread.rs`). Procedures run in the order of commits, which is serial; only reading and decoding are ahead of
//! them. No sweep ends a restart: the backup and the log that were found continue to serve.
//!
//! No record of the past names the log settings with which a database was written. A restart ends with a checkpoint
//! before anything is logged, so its backup suits the new settings, and earlier records are replayed as they say.

use super::batch::{Batch, Decoded, Step};
use super::check_given;
use crate::Result;
use crate::engine::Engine;
use crate::log::record::Body;
use crate::procedure::{Procedures, replay};
use base::PartitionId;
use executor::{Executor, JoinHandle, WaitQueue};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use structures::set::{Away, Repeat, SHARES, Stopped};

/// So many pieces of work wait in all lanes together before no more is handed out.
const WAITING_MAX: usize = 16;
/// About what it costs on described hardware to repeat a change, in instructions.
const REPEAT_INSTRUCTIONS: u64 = 300;

/// One set's changes of a batch.
type Work = (Arc<Batch>, Vec<Repeat>);

/// What waits in all lanes.
#[derive(Default)]
struct Waiting {
    count: Cell<usize>,
    /// Who waits for it to become less.
    less: WaitQueue,
}

/// The changes that one set has still to repeat.
#[derive(Default)]
struct Lane {
    queue: Rc<RefCell<VecDeque<Work>>>,
    /// Goes through them and ends when there are no more.
    task: Option<JoinHandle<Result<()>>>,
}

/// All sets that repeat changes.
pub(super) struct Lanes<'a> {
    engine: &'a Rc<Engine>,
    procedures: &'a Procedures,
    lanes: BTreeMap<PartitionId, Lane>,
    waiting: Rc<Waiting>,
}

impl<'a> Lanes<'a> {
    /// Lanes for the sets of an engine that only replays.
    pub(super) fn new(engine: &'a Rc<Engine>, procedures: &'a Procedures) -> Lanes<'a> {
        Lanes { engine, procedures, lanes: BTreeMap::new(), waiting: Rc::default() }
    }

    /// Repeats what a batch's transactions have done in sets, or hands it out to be repeated before what follows.
    pub(super) async fn repeat(&mut self, decoded: Decoded) -> Result<()> {
        let Decoded { batch, sets, .. } = decoded;
        let has_calls = sets.len() > 1;
        if has_calls {
            self.end().await?;
        }
        for step in sets {
            match step {
                Step::Changes(sorted) => {
                    for (partition, changes) in sorted.by_set() {
                        let work = (Arc::clone(&batch), changes);
                        if has_calls {
                            repeat(self.engine, partition, work, false).await?;
                        } else {
                            self.hand_out(partition, work).await?;
                        }
                    }
                }
                Step::Call(number) => {
                    let (start, _, record) = batch.record(number)?;
                    let Body::Call { call, .. } = record.body else { unreachable!("it was found to be a call") };
                    self.engine.transactions.may_have_calls.set(true);
                    replay(self.engine, self.procedures, start, call).await?;
                }
            }
        }
        Ok(())
    }

    /// Waits until all that was handed out has been repeated: every set is in its place then.
    pub(super) async fn end(&mut self) -> Result<()> {
        while let Some((_, lane)) = self.lanes.pop_first() {
            if let Some(task) = lane.task {
                task.join().await?;
            }
        }
        Ok(())
    }

    async fn hand_out(&mut self, partition: PartitionId, work: Work) -> Result<()> {
        let executor = &self.engine.core.executor;
        while self.waiting.count.get() >= WAITING_MAX {
            self.waiting.less.wait(executor).await;
        }
        let lane = self.lanes.entry(partition).or_default();
        if let Some(ended) = lane.task.take_if(|task| task.is_finished()) {
            ended.join().await?;
        }
        lane.queue.borrow_mut().push_back(work);
        self.waiting.count.set(self.waiting.count.get() + 1);
        if lane.task.is_none() {
            let going = serve(self.engine.clone(), partition, Rc::clone(&lane.queue), Rc::clone(&self.waiting));
            lane.task = Some(executor.spawn(going));
        }
        Ok(())
    }
}

/// Goes through what waits in a lane.
async fn serve(
    engine: Rc<Engine>,
    partition: PartitionId,
    queue: Rc<RefCell<VecDeque<Work>>>,
    waiting: Rc<Waiting>,
) -> Result<()> {
    let mut done = Ok(());
    loop {
        let Some(work) = queue.borrow_mut().pop_front() else { return done };
        waiting.count.set(waiting.count.get() - 1);
        waiting.less.wake_all(&engine.core.executor);
        if done.is_ok() {
            done = repeat(&engine, partition, work, true).await;
        }
    }
}

/// Has a set repeat its changes, beside the engine's thread or on it.
async fn repeat(engine: &Engine, partition: PartitionId, work: Work, beside: bool) -> Result<()> {
    let (executor, sets) = (&engine.core.executor, &engine.sets.sets);
    let (batch, mut changes) = work;
    let found = sets.borrow_mut().send_away(partition);
    let Some(mut away) = found else {
        // The set was dropped.
        return check_given(engine, partition, batch.start_of(changes[0]));
    };
    if beside && away.may_spread(changes.len()) {
        changes = spread(executor, &mut away, &batch, changes).await?;
    }
    let (mut from, mut stopped);
    from = 0;
    loop {
        let left = (changes.len() - from) as u64;
        if beside && left > 0 {
            let batch = Arc::clone(&batch);
            let repeating = move || {
                let stopped = away.repeat(batch.bytes(), &changes, from);
                (away, changes, stopped)
            };
            (away, changes, stopped) = executor.compute(left * REPEAT_INSTRUCTIONS, repeating).await?;
        } else {
            stopped = away.repeat(batch.bytes(), &changes, from);
        }
        match stopped {
            Some(Stopped::NoRoom(number)) => {
                let (count, size) = away.growth();
                away.grow(executor.untouched_frames(count, size)?);
                from = number;
            }
            Some(Stopped::Malformed(what)) => return Err(batch.damage(what)),
            None => {
                sets.borrow_mut().welcome(away);
                return Ok(());
            }
        }
    }
}

/// Has computations repeat a set's changes side by side. Returns, in their order, those that have to follow alone.
async fn spread(executor: &Executor, away: &mut Away, batch: &Arc<Batch>, changes: Vec<Repeat>) -> Result<Vec<Repeat>> {
    let each = (changes.len() / SHARES) as u64;
    let changes = Arc::new(changes);
    let locating = away.lookups().into_iter().map(|lookup| {
        let changes = Arc::clone(&changes);
        executor.begin_compute(each * REPEAT_INSTRUCTIONS / 2, move || {
            let located = lookup.locate(&changes);
            (lookup, located)
        })
    });
    let (mut located, mut left) = (Vec::new(), Vec::new());
    for lookup in locating.collect::<Vec<_>>() {
        let (lookup, found) = lookup.join().await?;
        away.end_lookup(lookup);
        located.push(found);
    }
    let repeating = away.stretches(located, &mut left).into_iter().map(|mut stretch| {
        let batch = Arc::clone(batch);
        executor.begin_compute(stretch.changes() as u64 * REPEAT_INSTRUCTIONS / 2, move || {
            let done = stretch.repeat(batch.bytes());
            (stretch, done)
        })
    });
    for stretch in repeating.collect::<Vec<_>>() {
        let (stretch, done) = stretch.join().await?;
        done.map_err(|what| batch.damage(what))?;
        away.end_stretch(stretch, &mut left);
    }
    Ok(left)
}
