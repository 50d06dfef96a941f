//! Restores from the backups that were taken in a scenario's runs, on copies of its media.

use super::Scenario;
use crate::backups::{self, ARCHIVE, Ended, Flaw, Restored, Taken};
use crate::configuration::Rows;
use crate::damage::{self, Damages};
use crate::run::{Purpose, World, run};
use crate::{ClientEvent, Plan};
use base::{Lsn, Random};
use engine::{BackupError, Error, RestoreArchive, RestoreSource, RestoreTarget};
use std::cell::RefCell;
use std::rc::Rc;

impl Scenario {
    /// Restores what was not answered, and now and then what is whole. False if the scenario is over.
    pub(super) fn restore_some(&mut self, share: f64) -> bool {
        let all = self.world.oracle.borrow().backups.clone();
        let random = &mut self.restoring("restores");
        let is_sound = self.world.damages.borrow().is_empty();
        all.iter().filter(|_| is_sound).all(|taken| {
            let is_chosen = random.chance(share);
            if taken.is_whole() && !is_chosen { true } else { self.restore(taken) }
        })
    }

    /// Restores a backup of which a piece is missing or damaged. False if the scenario is over.
    pub(super) fn restore_damaged(&mut self) -> bool {
        let random = &mut self.restoring("flaws");
        let all = self.world.oracle.borrow().backups.clone();
        let whole: Vec<&Taken> = all.iter().filter(|taken| taken.is_whole()).collect();
        let Some(taken) = random.choose(&whole) else { return true };
        let mut places = places(&all, taken);
        places.extend(self.world.configuration.settings.log.archive.is_some().then_some(ARCHIVE));
        let Some(flaw) = Flaw::draw(&self.world.media, &places, random) else { return true };
        let world = self.lost(Some(&flaw), random);
        let source = match flaw.place() {
            ARCHIVE => further(taken, RestoreTarget::End),
            _ => source(taken),
        };
        let restored = backups::restore(&world, self.outcome.runs, (&source, Plan::default()), random);
        let told = format!("a restore from '{}' with {flaw:?}", taken.place);
        match self.judge(restored, &told) {
            None => false,
            Some(Some(Err(error))) if flaw.is_named_by(&error) => {
                self.outcome.coverage.event(ClientEvent::RestoreRefused);
                true
            }
            Some(Some(Err(error))) if flaw.place() == ARCHIVE && self.excuses(taken, &error) => true,
            Some(Some(Ok(report))) if flaw.may_be_harmless(taken) => self.inspect_restored(world, report.end, &told),
            Some(result) => self.fail_restore(format!("it says {result:?}"), &told),
        }
    }

    /// Restores a whole backup and what the archive has behind it, to its end and to a position. False if the scenario is over.
    pub(super) fn restore_further(&mut self) -> bool {
        if self.world.configuration.settings.log.archive.is_none() {
            return true;
        }
        let random = &mut self.restoring("archive");
        let all = self.world.oracle.borrow().backups.clone();
        let whole: Vec<&Taken> = all.iter().filter(|taken| taken.is_whole()).collect();
        let Some(taken) = random.choose(&whole) else { return true };
        let Ended::Whole(begin) = taken.ended else { return true };
        let Some(end) = self.restore_up_to(taken, RestoreTarget::End, random) else { return false };
        // Where a restore to the end is refused, one to a position before the cause need not be.
        let last = end.unwrap_or_else(|| Lsn(begin.0 + random.below(20_000)));
        let position = Lsn(begin.0 + random.below((last.0.saturating_sub(begin.0) + 1).max(1)));
        self.restore_up_to(taken, RestoreTarget::Position(position), random).is_some()
    }

    /// Restores up to a target. Nothing if the scenario is over; otherwise the end of what was restored, if that was not refused.
    fn restore_up_to(&mut self, taken: &Taken, target: RestoreTarget, random: &mut Random) -> Option<Option<Lsn>> {
        let world = self.lost(None, random);
        let (source, told) = (further(taken, target), format!("a restore to {target:?} from {taken:?}"));
        let restored = backups::restore(&world, self.outcome.runs, (&source, Plan::default()), random);
        match self.judge(restored, &told)? {
            Some(Ok(report)) => {
                let (event, end) = match target {
                    RestoreTarget::Position(position) => (ClientEvent::RestoredTo, position),
                    _ => (ClientEvent::RestoredFurther, report.end),
                };
                self.outcome.coverage.event(event);
                if report.end > end {
                    self.fail_restore(format!("it ends at {}", report.end), &told);
                    return None;
                }
                self.inspect_restored(world, end, &told).then_some(Some(report.end))
            }
            Some(Err(error)) if self.excuses(taken, &error) => Some(None),
            Some(Err(Error::Backup(BackupError::TargetBehindArchive { .. }))) if target != RestoreTarget::End => {
                Some(None)
            }
            result => {
                self.fail_restore(format!("it says {result:?}"), &told);
                None
            }
        }
    }

    /// Whether what happened in the runs explains that the archive is not enough.
    fn excuses(&mut self, taken: &Taken, error: &Error) -> bool {
        let Error::Backup(error) = error else { return false };
        let oracle = self.world.oracle.borrow();
        let past = oracle.past.as_ref().expect("it is kept where backups are taken");
        // What the backup has is not made again.
        let is_behind = |position: Lsn| !matches!(taken.ended, Ended::Whole(end) if position <= end);
        let is_excused = match error {
            BackupError::NotArchived { .. } => return !taken.is_archived,
            // It lags behind.
            BackupError::ForeignArchive { .. } => return self.last_archived().is_none(),
            BackupError::ArchiveGap { position, .. } => {
                return self.last_archived().is_some_and(|last| last < *position);
            }
            BackupError::LoadNotLogged { position, .. } => is_behind(*position) && past.may_have_loaded(*position),
            BackupError::CallBeforeChange { position, .. } => {
                let has_calls = self.world.configuration.rows == Rows::Set;
                has_calls && is_behind(*position) && past.may_have_changed(*position)
            }
            _ => false,
        };
        drop(oracle);
        if is_excused {
            self.outcome.coverage.event(ClientEvent::RestoreWithoutLoad);
        }
        is_excused
    }

    /// Where the last segment of the archive begins.
    fn last_archived(&self) -> Option<Lsn> {
        let names = self.world.media.names(ARCHIVE);
        names.iter().filter_map(|name| segment_begin(name)).max()
    }

    fn restoring(&self, concern: &str) -> Random {
        Random::stream(self.world.seed, &format!("{concern} after run {}", self.outcome.runs))
    }

    /// The world with new devices, on which there are only the backups.
    fn lost(&self, flaw: Option<&Flaw>, random: &mut Random) -> World {
        let media = backups::lose(&self.world, flaw, random);
        let (configuration, oracle) = (Rc::clone(&self.world.configuration), Rc::clone(&self.world.oracle));
        World { seed: self.world.seed, configuration, media, oracle, damages: Damages::default(), left: None }
    }

    /// Restores a backup, opens what that makes and compares it. False if the scenario is over.
    fn restore(&mut self, taken: &Taken) -> bool {
        let random = &mut self.restoring(taken.place);
        let world = self.lost(None, random);
        let (source, told) = (source(taken), format!("a restore from {taken:?}"));
        let plan = if random.chance(0.3) { Plan::of_restore(random) } else { Plan::default() };
        let is_faulty = plan != Plan::default();
        let restored = backups::restore(&world, self.outcome.runs, (&source, plan), random);
        let Some(mut result) = self.judge(restored, &told) else { return false };
        let is_cut = match &result {
            None => true,
            Some(Err(error)) => damage::is_injected(&error.to_string()),
            Some(Ok(_)) => false,
        };
        if is_cut && is_faulty {
            self.outcome.coverage.event(ClientEvent::RestoredAgain);
            let restored = backups::restore(&world, self.outcome.runs, (&source, Plan::default()), random);
            let Some(again) = self.judge(restored, &told) else { return false };
            result = again;
        }
        match (result, taken.ended) {
            (Some(Ok(report)), Ended::Whole(end)) if report.end != end => {
                self.fail_restore(format!("it ends at {} in place of {end}", report.end), &told)
            }
            (Some(Ok(report)), _) => self.restored(taken, world, report.end, &told),
            // The first attempt had ended, but for saying so.
            (Some(Err(Error::Backup(BackupError::Occupied { .. }))), Ended::Whole(end)) if is_cut => {
                self.restored(taken, world, end, &told)
            }
            (Some(Err(Error::Backup(BackupError::Occupied { .. }))), Ended::InDoubt) if is_cut => true,
            (Some(Err(error)), Ended::InDoubt) if backups::is_no_backup(&error) => {
                self.outcome.coverage.event(ClientEvent::BackupCut);
                true
            }
            (result, _) => self.fail_restore(format!("it says {result:?}"), &told),
        }
    }

    /// A backup was restored, so it is whole, unless the power may yet take it.
    fn restored(&mut self, taken: &Taken, world: World, end: Lsn, told: &str) -> bool {
        let event = if taken.base.is_some() { ClientEvent::IncrementRestored } else { ClientEvent::Restored };
        self.outcome.coverage.event(event);
        if end < taken.begun {
            return self.fail_restore(format!("it ends at {end}, before it began"), told);
        }
        let noted = |oracle: &mut crate::oracle::Oracle| {
            let known = oracle.backups.iter_mut().filter(|other| other.place == taken.place);
            known.for_each(|known| known.ended = Ended::Whole(end));
        };
        if taken.is_whole() || !self.is_unsynced {
            noted(&mut self.world.oracle.borrow_mut());
        }
        self.inspect_restored(world, end, told)
    }

    /// Opens a database that was restored up to `end`, and compares it with what was known then. False if the scenario is over.
    fn inspect_restored(&mut self, world: World, end: Lsn, told: &str) -> bool {
        let oracle = {
            let present = self.world.oracle.borrow();
            let past = present.past.as_ref().expect("it is kept where backups are taken");
            past.at(&present, end)
        };
        // It is another database, and its log has no archive.
        let mut configuration = (*world.configuration).clone();
        configuration.settings.log.archive = None;
        let (configuration, oracle) = (Rc::new(configuration), Rc::new(RefCell::new(oracle)));
        let world = World { configuration, oracle, ..world };
        let ended = run(&world, self.outcome.runs, Plan::default(), Purpose::Inspection);
        self.note(&ended, told)
    }

    /// Counts what a restore has met; nothing if the scenario is over.
    fn judge(&mut self, restored: Restored, told: &str) -> Option<Option<engine::Result<engine::RestoreReport>>> {
        self.outcome.coverage.add(&restored.coverage);
        if let Some(wrong) = restored.wrong {
            self.fail_restore(wrong, told);
            return None;
        }
        Some(restored.result)
    }

    fn fail_restore(&mut self, wrong: String, told: &str) -> bool {
        self.fail(vec![wrong], (told, String::new()));
        false
    }
}

fn source(taken: &Taken) -> RestoreSource {
    RestoreSource { backup: taken.place.to_owned(), ..RestoreSource::default() }
}

/// The same with what the archive has behind it.
fn further(taken: &Taken, target: RestoreTarget) -> RestoreSource {
    RestoreSource { archive: Some(RestoreArchive { archive: ARCHIVE.to_owned(), target }), ..source(taken) }
}

/// Where a segment of an archive begins, by its name.
fn segment_begin(name: &str) -> Option<Lsn> {
    let (_, first) = name.strip_suffix(".log")?.rsplit_once('-')?;
    first.parse().ok().map(Lsn)
}

/// The places of a backup and of all that it builds on.
fn places(all: &[Taken], taken: &Taken) -> Vec<&'static str> {
    let mut places = vec![taken.place];
    let mut base = taken.base;
    while let Some(place) = base {
        places.push(place);
        base = all.iter().find(|other| other.place == place).and_then(|other| other.base);
    }
    places
}
