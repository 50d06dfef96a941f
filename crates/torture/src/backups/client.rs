//! Taking backups beside the clients.

use super::{Ended, PLACES, Taken};
use crate::ClientEvent;
use crate::abandon::at_most;
use crate::context::{After, RunContext};
use base::time::MICROSECOND_NS;
use base::{Lsn, Random};
use engine::{BackupError, BackupReport, BackupSettings, Database, Error};
use std::rc::Rc;

/// How often it is looked whether the others have ended, in nanoseconds.
const LOOK_NS: u64 = 50 * MICROSECOND_NS;

/// Takes a backup or two at some moment of a run, or none.
pub async fn client(context: Rc<RunContext>, database: Database) {
    let random = &mut context.random("backups");
    for _ in 0..random.below(3) {
        wait(&context, random).await;
        if context.over.get() || !back_up(&context, &database, random).await {
            return;
        }
    }
}

/// Waits for some moment while others work.
async fn wait(context: &RunContext, random: &mut Random) {
    let mean = *random.choose(&[0.0, 200e3, 5e6, 50e6]).expect("four of them");
    let until = context.executor.now().plus_ns(random.exponential(mean) as u64);
    while context.working.get() > 1 && !context.over.get() && context.executor.now() < until {
        context.executor.sleep_ns(LOOK_NS).await;
    }
}

/// Takes one backup; false if no other one is to follow in this run.
async fn back_up(context: &RunContext, database: &Database, random: &mut Random) -> bool {
    let Some((taken, former)) = begin(context, random) else { return false };
    let was_in_doubt = std::mem::replace(&mut context.oracle.borrow_mut().is_list_in_doubt, true);
    let bytes_per_second = random.chance(0.6).then(|| 10f64.powf(random.between(10, 18) as f64 / 2.0) as u64);
    let (target, base) = (taken.place.to_owned(), taken.base.map(str::to_owned));
    let settings = BackupSettings { target, base, bytes_per_second };
    let polls = if random.chance(0.15) { 1 << random.below(8) } else { u64::MAX };
    let was_empty = context.media.names(taken.place).is_empty();
    let errors = context.observed.errors.get();
    let begun = context.observed.coverage.borrow().clone();
    context.observed.is_backing_up.set(true);
    context.throttled.begin(context.executor.now(), bytes_per_second);
    let ended = at_most(polls, database.backup(&settings, |_| {})).await;
    context.observed.is_backing_up.set(false);
    context.throttled.end(context.executor.now());
    match ended {
        Some(Ok(report)) => {
            context.oracle.borrow_mut().is_list_in_doubt = was_in_doubt;
            context.observed.coverage.borrow_mut().end_backup(&begun);
            end(context, &taken, report)
        }
        Some(Err(error)) => {
            context.event(ClientEvent::BackupFailed);
            if let (Error::Backup(BackupError::NotEmpty { .. }), Some(former)) = (&error, former) {
                let mut oracle = context.oracle.borrow_mut();
                oracle.backups.retain(|noted| noted.place != former.place);
                oracle.backups.push(former);
            }
            let is_sound = context.observed.errors.get() <= errors + 1 && !context.may_requests_hang();
            let left = context.media.names(taken.place);
            if was_empty && is_sound && !left.is_empty() && !context.is_crippled(database) {
                context.wrong(format!("a backup that has failed leaves {left:?}: {error}"));
            }
            judge(context, (&taken, was_empty), &error) == After::Retry
        }
        None => {
            context.event(ClientEvent::BackupGivenUp);
            false
        }
    }
}

/// Chooses a place that has no whole backup, and what this one builds on, and notes that it begins. Returns that, and what was known of one
/// that is there in doubt.
fn begin(context: &RunContext, random: &mut Random) -> Option<(Taken, Option<Taken>)> {
    if !context.observed.damages.borrow().is_empty() {
        return None;
    }
    let oracle = &mut *context.oracle.borrow_mut();
    let (whole, others): (Vec<Taken>, Vec<Taken>) = oracle.backups.drain(..).partition(Taken::is_whole);
    let free: Vec<&str> = PLACES.into_iter().filter(|place| whole.iter().all(|taken| taken.place != *place)).collect();
    let place = random.choose(&free).copied();
    let base = random.choose(&whole).map(|taken| taken.place).filter(|_| random.chance(0.6));
    let (former, others): (Vec<Taken>, Vec<Taken>) = others.into_iter().partition(|taken| Some(taken.place) == place);
    oracle.backups = whole;
    oracle.backups.extend(others);
    // This one may be refused because the former one is whole, and the power may go before that is known.
    let begun = former.iter().map(|taken| taken.begun).fold(context.position(), Lsn::min);
    let taken = Taken { place: place?, base, begun, ended: Ended::InDoubt, is_archived: false };
    oracle.backups.push(taken.clone());
    Some((taken, former.into_iter().next()))
}

/// Notes that a backup is whole.
fn end(context: &RunContext, taken: &Taken, report: BackupReport) -> bool {
    context.event(if taken.base.is_some() { ClientEvent::IncrementTaken } else { ClientEvent::BackedUp });
    let (position, is_archived) = (context.position(), is_archived(context));
    if report.end < taken.begun || report.end > position {
        let (end, begun) = (report.end, taken.begun);
        context.wrong(format!("a backup between {begun} and {position} ends at {end}"));
    }
    let mut oracle = context.oracle.borrow_mut();
    let noted = oracle.backups.iter_mut().find(|other| other.place == taken.place);
    let noted = noted.expect("it was noted when it began");
    (noted.ended, noted.is_archived) = (Ended::Whole(report.end), is_archived);
    true
}

/// Whether the archive has always answered.
fn is_archived(context: &RunContext) -> bool {
    let log = context.log.borrow();
    let archive = log.as_ref().and_then(|log| log.archive());
    archive.is_some_and(|archive| archive.failures() == 0) && !context.may_requests_hang()
}

/// Whether something explains that a backup has failed.
fn judge(context: &RunContext, (taken, was_empty): (&Taken, bool), error: &Error) -> After {
    match error {
        // One that has failed, or was cut off, could not take away what it had written.
        Error::Backup(BackupError::NotEmpty { .. }) if !was_empty => After::Retry,
        // Others needed the log.
        Error::Backup(BackupError::Overtaken { .. }) => After::Retry,
        // A list that could not be written, or read, has no backup.
        Error::Backup(BackupError::ForeignBase { .. })
            if taken.base.is_some() && context.oracle.borrow().is_list_in_doubt =>
        {
            After::Retry
        }
        error => context.judge(error, "a backup"),
    }
}
