//! What the clients of one run share.

use crate::adversary::Observed;
use crate::backups::ThrottledTime;
use crate::damage;
use crate::foreign;
use crate::ledger::TransferOutcome;
use crate::oracle::Oracle;
use crate::{ClientEvent, Configuration};
use base::time::SECOND_NS;
use base::{Lsn, PartitionId, Random};
use driver::FaultKind;
use engine::log::Log;
use engine::{Database, Error, Internals, SilenceLimit};
use executor::Executor;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use virtual_driver::Media;

/// The context of one run.
pub struct RunContext {
    /// The executor.
    pub executor: Executor,
    /// What the devices hold.
    pub media: Media,
    /// The configuration drawn from the seed.
    pub configuration: Rc<Configuration>,
    /// What the clients were told about the contents.
    pub oracle: Rc<RefCell<Oracle>>,
    /// What the adversary and this run tell each other.
    pub observed: Rc<Observed>,
    /// The failures found so far.
    pub wrong: Rc<RefCell<Vec<String>>>,
    /// Whether damage was reported as it should be.
    pub detected: Rc<Cell<bool>>,
    /// Whether a comparison has shown something that damage explains: what the clients know is not what is there any more.
    pub is_astray: Rc<Cell<bool>>,
    /// For how long devices may leave something unanswered before the database is given up.
    pub limit: Option<SilenceLimit>,
    /// Whether the database is being closed, or is, while clients are at work.
    pub is_closing: Cell<bool>,
    /// Whether this run is over, so that clients should stop.
    pub over: Cell<bool>,
    /// Clients that are still at work.
    pub working: Cell<usize>,
    /// The run's number.
    pub run: u64,
    /// The scenario's seed.
    pub seed: u64,
    /// Whether an operation of a creation of the database is to fail, if there is one.
    pub creation_fails: bool,
    /// Whether clients have the syncs of loads fail.
    pub fails_loads: bool,
    /// After how many polls an opening is given up for another one, if one is.
    pub reopened_after: Option<u64>,
    /// The log of the open database.
    pub log: RefCell<Option<Rc<Log>>>,
    /// For how long drops have kept clients waiting until they gave up, in nanoseconds.
    pub refused_ns: Cell<u64>,
    /// How long backups have taken that are asked to be slow.
    pub throttled: ThrottledTime,
}

/// How long a drop waits for transactions, snapshots and loads, as [`Database::drop_partition`] says, in nanoseconds.
const DROP_PATIENCE_NS: u64 = 10 * SECOND_NS;

/// What becomes of a transaction after an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// It is rolled back and may be tried again.
    Retry,
    /// The database must be opened again.
    Reopen,
}

impl RunContext {
    /// Records a failure and ends the run.
    pub fn wrong(&self, what: impl Into<String>) {
        self.wrong.borrow_mut().push(what.into());
        self.over.set(true);
    }

    /// Records that these partitions are other than expected. This is a failure, which ends the run, unless something older was read of
    /// one of them, or of the log, where nothing could tell that it was: then clients stop, and a comparison goes on with the rest.
    pub fn differs(&self, partitions: &[&str], what: impl Into<String>) {
        match self.is_excused(partitions) {
            false => self.wrong(what),
            true if self.observed.are_clients_at_work.get() => self.note_damage(),
            // The rest is compared all the same.
            true => {
                self.detected.set(true);
                self.is_astray.set(true);
            }
        }
    }

    /// Whether something older was read of one of these partitions, or of the log, where nothing could tell that it was.
    pub fn is_excused(&self, partitions: &[&str]) -> bool {
        self.look_at_damages();
        damage::has_spread_to(&self.observed.damages.borrow(), partitions)
    }

    /// Looks what has become of what was damaged. One of two devices of the log serves for the other no longer if one of them is lost, or
    /// may be: an opening says so only when it has succeeded.
    pub fn look_at_damages(&self) {
        damage::look_at(&mut self.observed.damages.borrow_mut(), &self.media);
        let log = self.log.borrow();
        let is_lost = log.as_ref().map_or_else(
            || self.observed.errors.get() > 0 || self.may_requests_hang(),
            |log| log.lost_device().is_some() || log.failure().is_some(),
        );
        if is_lost {
            damage::expose_log(&mut self.observed.damages.borrow_mut());
        }
    }

    /// Records that damage was reported as it should be, and ends the run.
    pub fn note_damage(&self) {
        self.detected.set(true);
        self.over.set(true);
    }

    /// What `future` returns, if that is within `ns` nanoseconds. Otherwise the run is over: for a reason if a device never
    /// answers, which background tasks that try again and again would hide for ever.
    pub async fn in_time<F: Future>(&self, ns: u64, doing: &str, future: F) -> Option<F::Output> {
        let done = self.executor.within(ns, future).await;
        if done.is_none() {
            if !self.observed.is_deaf.get() {
                self.wrong(format!("{doing} takes for ever"));
            }
            self.over.set(true);
        }
        done
    }

    /// Counts something that a client has met.
    pub fn event(&self, event: ClientEvent) {
        self.observed.coverage.borrow_mut().event(event);
    }

    /// Whether something was done to the database that may keep a transaction from ending before it is opened again.
    pub fn is_crippled(&self, database: &Database) -> bool {
        self.observed.is_deaf.get() || self.observed.sync_failed.get() || database.log().failure().is_some()
    }

    /// Whether a request may not have been answered for as long as anything waits.
    pub fn may_requests_hang(&self) -> bool {
        self.observed.is_hung.get() || self.observed.is_deaf.get() || self.observed.jumped_ns.get() > 0
    }

    /// Whether the cache's device may not have answered for long.
    fn may_cache_be_silent(&self) -> bool {
        self.observed.is_cache_hung.get() || self.observed.jumped_ns.get() > 0
    }

    /// Whether no device of the log may have answered for long: one of two hangs and the other one was made to fail, or the
    /// clock jumped.
    fn may_log_be_silent(&self) -> bool {
        let observed = &self.observed;
        observed.jumped_ns.get() > 0 || (observed.is_hung.get() && observed.errors.get() > 0)
    }

    /// Judges an error: is it one that what was done to the database explains?
    pub fn judge(&self, error: &Error, doing: &str) -> After {
        self.look_at_damages();
        match error {
            error if error.is_conflict() => After::Retry,
            error if self.is_closing.get() && is_of_closing(error) => After::Reopen,
            Error::BufferExhausted { .. } | Error::SnapshotTooOld { .. } => After::Retry,
            Error::Input(_) if damage::is_injected(&error.to_string()) => After::Retry,
            Error::LogNotGrown { .. } if damage::is_injected(&error.to_string()) => {
                self.event(ClientEvent::LogNotGrown);
                After::Retry
            }
            Error::LogNotArchived { .. } if damage::is_injected(&error.to_string()) || self.may_requests_hang() => {
                self.event(ClientEvent::LogNotArchived);
                After::Retry
            }
            error if damage::is_injected(&error.to_string()) => After::Reopen,
            error if is_of_lost_cache(error) && self.may_cache_be_silent() => {
                self.event(ClientEvent::CacheMissed);
                After::Reopen
            }
            Error::LogFailed(why) if why.contains("has not answered") && self.may_log_be_silent() => After::Reopen,
            error if damage::explain(&self.observed.damages.borrow(), error) => {
                self.note_damage();
                After::Reopen
            }
            error => {
                let is_excused = damage::may_have_led_to(&self.observed.damages.borrow(), error);
                if is_excused {
                    self.note_damage()
                } else {
                    self.wrong(format!("{doing}: {error}"))
                }
                After::Reopen
            }
        }
    }

    /// Whether the database was given up for a device that did not answer, which is named.
    ///
    /// # Errors
    /// What is wrong with that.
    pub fn judge_silence(&self) -> Result<(), String> {
        let (missed, overdue) = (self.observed.missed_file.borrow(), self.executor.overdue());
        match (&*missed, overdue) {
            (Some(missed), Some(late)) if late.file.as_ref() == Some(missed) => Ok(()),
            (missed, Some(late)) => Err(format!("the database is given up for {late}, and {missed:?} is not answered")),
            (_, None) => Err("the database is given up for nothing".to_owned()),
        }
    }

    /// Where the log ends; behind everything if the run has ended.
    pub fn position(&self) -> Lsn {
        self.log.borrow().as_ref().map_or(Lsn::MAX, |log| log.end())
    }

    /// Notes what the client of a transfer knows now.
    pub fn note_transfer(&self, id: u64, outcome: TransferOutcome) {
        let oracle = &mut *self.oracle.borrow_mut();
        oracle.ledger.note(id, outcome);
        if let Some(past) = &mut oracle.past {
            past.note_transfer(id, outcome, self.position());
        }
    }

    /// Notes that what a client knows of its records has changed.
    pub fn note_owner(&self, number: usize) {
        self.note_owner_of(&mut self.oracle.borrow_mut(), number);
    }

    /// The same of the borrowed oracle.
    pub fn note_owner_of(&self, oracle: &mut Oracle, number: usize) {
        if let Some(past) = &mut oracle.past {
            past.note_owner(number, &oracle.owners[number], self.position());
        }
    }

    /// Notes that a partition is about to be bulk-loaded.
    pub fn note_load(&self) {
        if let Some(past) = &mut self.oracle.borrow_mut().past {
            past.note_load(self.position());
        }
    }

    /// Notes that a partition or an index is about to be dropped, renamed, truncated or made.
    pub fn note_change(&self) {
        if let Some(past) = &mut self.oracle.borrow_mut().past {
            past.note_change(self.position());
        }
    }

    /// Notes that all of that was compared with what is there.
    pub fn note_all(&self, oracle: &mut Oracle) {
        let Some(past) = &mut oracle.past else { return };
        for (id, outcome) in oracle.ledger.outcomes() {
            past.note_transfer(id, outcome, self.position());
        }
        for (number, owner) in oracle.owners.iter().enumerate() {
            past.note_owner(number, owner, self.position());
        }
    }

    /// Notes that a drop gives up, or may give up after this client abandoned it. Drops and creations take turns, so clients
    /// that hold snapshots keep each other waiting for the sum of these drops' time limits.
    pub fn drop_refused(&self) {
        self.refused_ns.set(self.refused_ns.get() + DROP_PATIENCE_NS);
    }

    /// A stream of random numbers of this run.
    pub fn random(&self, concern: &str) -> Random {
        Random::stream(self.seed ^ (self.run + 1).wrapping_mul(0xd6e8_feb8_6659_fd93), concern)
    }

    /// Lets a client rest between two transactions.
    pub async fn pause(&self, random: &mut Random) {
        let pause_ns_max = self.configuration.pause_ns_max;
        if pause_ns_max > 0 {
            let ns = random.below(pause_ns_max);
            if self.configuration.foreign_waits && ns.is_multiple_of(2) {
                return foreign::wait(&self.executor, ns).await;
            }
            self.executor.sleep_ns(ns).await;
        }
    }

    /// The partition of this name.
    pub fn partition(&self, database: &Database, name: &str) -> Option<PartitionId> {
        match database.partition(name) {
            Ok(id) => Some(id),
            Err(error) => {
                self.wrong(error.to_string());
                None
            }
        }
    }
}

/// Whether an error says that the database is closed, or that its log is.
fn is_of_closing(error: &Error) -> bool {
    match error {
        Error::Closed => true,
        // The space that old versions go to is removed first. On Linux those who have the file open go on to read it.
        Error::Input(fault) => fault.kind == FaultKind::NotFound && fault.message.contains("'undo.space'"),
        Error::LogFailed(why) => why.contains("the database was closed"),
        Error::LogNotRelieved { cause } | Error::RollbackStalled { cause } => is_of_closing(cause),
        _ => false,
    }
}

/// Whether an error says that the cache was switched off, which alone has what is wanted.
fn is_of_lost_cache(error: &Error) -> bool {
    match error {
        Error::Input(fault) => {
            let silent = ["was switched off: it has not answered", "was not made: it has not answered", "may hang"];
            silent.into_iter().any(|words| fault.message.contains(words))
        }
        Error::TierMissing { detail, .. } => detail.contains("it has not answered"),
        Error::LogNotRelieved { cause } | Error::RollbackStalled { cause } => is_of_lost_cache(cause),
        _ => false,
    }
}
