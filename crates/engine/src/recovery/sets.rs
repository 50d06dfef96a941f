//! Redo of memory-resident sets: transactions committed after the backup's sweep began are replayed in the order of their
//! commits (Garcia-Molina and Salem, System M, 1988, section 4).
//!
//! Values may be replayed over any images. Actions and procedures are replayed exactly once over the backup of a consistent
//! sweep; those that a black/white sweep has in its backup are left out, if it is that sweep's backup that was loaded: the note
//! of a sweep that did not end says nothing. Records of all kinds may follow one another, because each names its kind: those
//! that were logged while the backup was being swept suit that sweep, and once they are replayed the sets are as they were,
//! whatever kind of redo follows. So an opening with another logging method or another strategy may continue with the backup
//! that it finds.
//!
//! Values and actions name their record and depend on nothing else. So each set goes through its own changes in their order, in
//! a *lane* of its own, on whichever core is free. A procedure may touch anything: it runs on the engine's thread, when all sets
//! are back, and what follows it waits.
//!
//! Computations that own what they work on (`Op::Compute`) verify images, build parts of the index and decode the log,
//! so a restart uses every core without locks. The changes of a large set are spread over several computations
//! (`set/replay_sharded.rs`). Procedures run in the order of commits, which is serial; only reading and decoding are ahead of
//! them. No sweep ends a restart: the backup and the log that were found continue to serve.
//!
//! No record of the past names the log settings with which a database was written. A restart ends with a checkpoint
//! before anything is logged, so its backup suits the new settings, and earlier records are replayed as they say.

use super::batch::{DecodedBatch, LogBatch, SetStep};
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
use structures::set::{DetachedSet, ReplayItem, ReplayStop, SHARES};

/// How many pieces of work may wait in all lanes together.
const WAITING_MAX: usize = 16;
/// About what it costs on described hardware to replay a change, in instructions.
const REPLAY_INSTRUCTIONS: u64 = 300;

/// One set's changes of a batch.
type Work = (Arc<LogBatch>, Vec<ReplayItem>);

/// What waits in all lanes.
#[derive(Default)]
struct Backlog {
    count: Cell<usize>,
    /// Tasks waiting for it to become less.
    less: WaitQueue,
}

/// The changes that one set has still to replay.
#[derive(Default)]
struct Lane {
    queue: Rc<RefCell<VecDeque<Work>>>,
    /// Goes through them and ends when there are no more.
    task: Option<JoinHandle<Result<()>>>,
}

/// All sets with changes to replay.
pub(super) struct Lanes<'a> {
    engine: &'a Rc<Engine>,
    procedures: &'a Procedures,
    lanes: BTreeMap<PartitionId, Lane>,
    waiting: Rc<Backlog>,
}

impl<'a> Lanes<'a> {
    /// Lanes for the sets of an engine that only replays.
    pub(super) fn new(engine: &'a Rc<Engine>, procedures: &'a Procedures) -> Lanes<'a> {
        Lanes { engine, procedures, lanes: BTreeMap::new(), waiting: Rc::default() }
    }

    /// Replays a batch's changes of sets, or hands them to lanes that replay them before later ones.
    pub(super) async fn replay(&mut self, decoded: DecodedBatch) -> Result<()> {
        let DecodedBatch { batch, sets, .. } = decoded;
        let has_calls = sets.len() > 1;
        if has_calls {
            self.end().await?;
        }
        for step in sets {
            match step {
                SetStep::Changes(sorted) => {
                    for (partition, changes) in sorted.by_set() {
                        let work = (Arc::clone(&batch), changes);
                        if has_calls {
                            replay_set(self.engine, partition, work, false).await?;
                        } else {
                            self.hand_out(partition, work).await?;
                        }
                    }
                }
                SetStep::Call(number) => {
                    let (start, _, record) = batch.record(number)?;
                    let Body::Call { call, .. } = record.body else { unreachable!("it was found to be a call") };
                    self.engine.transactions.may_have_calls.set(true);
                    replay(self.engine, self.procedures, start, call).await?;
                }
            }
        }
        Ok(())
    }

    /// Waits until everything handed out has been replayed: every set is attached then.
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
    waiting: Rc<Backlog>,
) -> Result<()> {
    let mut done = Ok(());
    loop {
        let Some(work) = queue.borrow_mut().pop_front() else { return done };
        waiting.count.set(waiting.count.get() - 1);
        waiting.less.wake_all(&engine.core.executor);
        if done.is_ok() {
            done = replay_set(&engine, partition, work, true).await;
        }
    }
}

/// Replays changes of a set, beside the engine's thread or on it.
async fn replay_set(engine: &Engine, partition: PartitionId, work: Work, beside: bool) -> Result<()> {
    let (executor, sets) = (&engine.core.executor, &engine.sets.sets);
    let (batch, mut changes) = work;
    let found = sets.borrow_mut().detach_for_replay(partition);
    let Some(mut detached) = found else {
        // The set was dropped.
        return check_given(&engine.catalog, partition, batch.start_of(changes[0]));
    };
    if beside && detached.may_shard(changes.len()) {
        changes = replay_sharded(executor, &mut detached, &batch, changes).await?;
    }
    let (mut from, mut stopped);
    from = 0;
    loop {
        let left = (changes.len() - from) as u64;
        if beside && left > 0 {
            let batch = Arc::clone(&batch);
            let repeating = move || {
                let stopped = detached.replay(batch.bytes(), &changes, from);
                (detached, changes, stopped)
            };
            (detached, changes, stopped) = executor.compute(left * REPLAY_INSTRUCTIONS, repeating).await?;
        } else {
            stopped = detached.replay(batch.bytes(), &changes, from);
        }
        match stopped {
            Some(ReplayStop::NoRoom(number)) => {
                let (count, size) = detached.growth();
                detached.grow(executor.untouched_frames(count, size)?);
                from = number;
            }
            Some(ReplayStop::Malformed(what)) => return Err(batch.damage(what)),
            None => {
                sets.borrow_mut().reattach(detached);
                return Ok(());
            }
        }
    }
}

/// Replays a set's changes in several computations at once. Returns, in their order, the changes that have to follow alone.
async fn replay_sharded(
    executor: &Executor,
    detached: &mut DetachedSet,
    batch: &Arc<LogBatch>,
    changes: Vec<ReplayItem>,
) -> Result<Vec<ReplayItem>> {
    let each = (changes.len() / SHARES) as u64;
    let changes = Arc::new(changes);
    let locating = detached.lookups().into_iter().map(|lookup| {
        let changes = Arc::clone(&changes);
        executor.begin_compute(each * REPLAY_INSTRUCTIONS / 2, move || {
            let located = lookup.locate(&changes);
            (lookup, located)
        })
    });
    let (mut located, mut left) = (Vec::new(), Vec::new());
    for lookup in locating.collect::<Vec<_>>() {
        let (lookup, found) = lookup.join().await?;
        detached.end_lookup(lookup);
        located.push(found);
    }
    let repeating = detached.shards(located, &mut left).into_iter().map(|mut shard| {
        let batch = Arc::clone(batch);
        executor.begin_compute(shard.changes() as u64 * REPLAY_INSTRUCTIONS / 2, move || {
            let done = shard.replay(batch.bytes());
            (shard, done)
        })
    });
    for shard in repeating.collect::<Vec<_>>() {
        let (shard, done) = shard.join().await?;
        done.map_err(|what| batch.damage(what))?;
        detached.end_shard(shard, &mut left);
    }
    Ok(left)
}
