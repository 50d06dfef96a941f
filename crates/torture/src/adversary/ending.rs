//! Ends of runs in which the machine goes on: the database is dropped, and opened again at once.

use super::{Adversary, Phase};
use crate::ClientEvent;
use driver::{Driver, Halt};

impl Adversary {
    /// Whether the run ends here, with operations under way.
    pub(super) fn is_time_to_drop(&self) -> bool {
        let is_begun = |step, nth| self.counts.get(&step).is_some_and(|count| *count >= nth);
        let meant = self.plan.dropped_at.is_some_and(|target| is_begun(target.step, target.nth));
        let is_time = meant && self.observed.phase.get() == Phase::Running && !self.flights.is_empty();
        if is_time && !self.observed.is_dropped.replace(true) {
            self.observed.coverage.borrow_mut().event(ClientEvent::NotClosed);
            return true;
        }
        false
    }

    /// What the run before may have left under way ends now, if it is time.
    pub(super) fn end_earlier(&self) {
        if self.parks >= self.plan.earlier_ends_after
            && let Some(earlier) = self.observed.earlier.take()
        {
            earlier.stop();
        }
    }
}

impl Drop for Adversary {
    /// Like every driver: what is under way ends first.
    fn drop(&mut self) {
        let mut done = Vec::new();
        while !self.flights.is_empty() {
            let parked = self.driver.park(None, &mut done);
            done.drain(..).for_each(|completion| self.landed(&completion));
            match parked {
                Ok(()) => {}
                Err(Halt::PowerCut) => return self.note_cut(),
                Err(Halt::Idle | Halt::Unanswered | Halt::Nested) => return,
            }
        }
    }
}
