//! Databases whose commits do not wait until they are durable: a power cut, or the end of the process, takes the end of their log, and nothing
//! before that. So what is left is what was known when the log had come to where it ends now.

use crate::adversary::LogWrites;
use crate::backups::Past;
use crate::context::RunContext;
use crate::ledger::TransferOutcome;
use crate::oracle::Oracle;
use crate::procedure::procedures;
use crate::run::World;
use crate::{ClientEvent, Options, SeedKind};
use base::Lsn;
use engine::log::Log;
use engine::{Database, Internals, Settings};
use executor::{Executor, Order};
use virtual_driver::{FaultPlan, VirtualDriver};

/// Whether the commits of a seed wait until they are durable.
pub fn waits(seed: u64, options: Options) -> bool {
    options.kind != SeedKind::Durability || seed % 18 != 1
}

/// Whether those of a run do: of some runs also where those of others do not.
pub fn waits_in(context: &RunContext) -> bool {
    context.configuration.settings.log.durable || context.random("waits").chance(0.3)
}

/// How far the log had come when a run ended.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogEnd {
    /// What is before this survives the end of the process,
    written: Lsn,
    /// and what is before this a power cut.
    durable: Lsn,
    /// Whether the power has stayed since.
    is_powered: bool,
}

impl LogEnd {
    /// That of this log, by what its devices have answered, which have `files` of it, and by what the engine may rely on: other files and what
    /// follows from them. What was written before a sync that failed may be gone with it.
    pub fn of(log: &Log, writes: &LogWrites, files: &[&str]) -> LogEnd {
        let durable = log.durable();
        let written = if log.failure().is_some() { durable } else { log.written() };
        let [has_written, has_synced] = writes.ends(files, log.opened_at().0).map(|end| end.map_or(Lsn::ZERO, Lsn));
        let durable = durable.max(has_synced);
        LogEnd { written: written.max(has_written).max(durable), durable, is_powered: true }
    }

    /// Notes that the process has ended, and whether the power went with it.
    pub fn note_end(&mut self, is_powered: bool) {
        self.is_powered &= is_powered;
    }

    fn kept(&self) -> Lsn {
        if self.is_powered { self.written } else { self.durable }
    }
}

/// Takes back what is known of what the next opening does not find, because the log ends before it. True if something is lost of which
/// a client was told.
pub fn take_back(world: &World) -> bool {
    let is_meant = !world.configuration.settings.log.durable && world.oracle.borrow().created;
    // Some openings fail, and take the log up all the same.
    let Some(end) = (if is_meant { next_end(world) } else { None }) else { return false };
    take_back_behind(&mut world.oracle.borrow_mut(), end)
}

/// Where the next opening takes the log up, by an opening of a copy that meets no faults.
fn next_end(world: &World) -> Option<Lsn> {
    let media = world.media.copy();
    let options = virtual_driver::Options { faults: Some(FaultPlan::default()), ..virtual_driver::Options::default() };
    let driver = VirtualDriver::new(world.configuration.hardware(), options, media);
    let executor = Executor::new(Box::new(driver), Order::FirstInFirstOut);
    let settings = Settings { procedures: procedures(&world.configuration), ..world.configuration.settings.clone() };
    let opened = executor.run(Database::open(&executor, settings, "torture"));
    let end = opened.ok().and_then(Result::ok).map(|database| database.log().opened_at());
    executor.stop();
    end
}

/// The same where the log ends here.
fn take_back_behind(oracle: &mut Oracle, end: Lsn) -> bool {
    let Some(mut past) = oracle.past.take() else { return false };
    let mut then = past.at(oracle, end);
    let told = |oracle: &Oracle| {
        let outcomes = oracle.ledger.outcomes();
        let transfers = outcomes.filter(|(_, outcome)| *outcome == TransferOutcome::Acknowledged).count() as u64;
        transfers + oracle.owners.iter().map(|owner| owner.version).sum::<u64>()
    };
    let is_lost = told(&then) < told(oracle);
    for (then, owner) in then.owners.iter_mut().zip(&oracle.owners) {
        then.latest = owner.latest;
    }
    (oracle.ledger, oracle.owners, oracle.own) = (then.ledger, then.owners, then.own);
    past.end_at(end);
    oracle.past = Some(past);
    is_lost
}

/// Compares where an opening has taken the log up with how far that had come.
pub fn compare(context: &RunContext, log: &Log) {
    if context.configuration.settings.log.durable {
        return;
    }
    let kept = context.oracle.borrow().log_end.kept();
    let end = log.opened_at();
    if end < kept {
        context.differs(&[], format!("the log ends at {end}, and was kept up to {kept}"));
    }
    // One of two devices may have more than the other, and errors hide it.
    if take_back_behind(&mut context.oracle.borrow_mut(), end) {
        context.event(ClientEvent::EndLost);
    }
}

/// Makes durable what there is, where commits do not wait for that; false if the run is over.
pub async fn make_durable(context: &RunContext, database: &Database) -> bool {
    let log = database.log();
    if log.settings().durable {
        return true;
    }
    let flushed = log.flush(log.end()).await;
    flushed.inspect_err(|error| _ = context.judge(error, "making the load durable")).is_ok()
}

/// What is known by position, if that is needed.
pub fn past(is_needed: bool, waits: bool) -> Option<Past> {
    (is_needed || !waits).then(Past::default)
}
