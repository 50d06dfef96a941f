//! Devices that do not answer for a while, or for ever.

use super::{Adversary, Flight, Hung, Phase};
use crate::Step;
use crate::configuration::CACHE_DEVICE;
use crate::plan::Hang;
use driver::{Completion, Driver};

/// The files of caches, which a database does without once they are silent.
const CACHE_FILES: [&str; 3] = ["cache.tier", "cache-table.tier", "upper-cache.tier"];

impl Adversary {
    /// Lets a file's device hang from now on.
    pub(super) fn hang(&mut self, hang: Hang, file: u32) {
        let has = |name: &str| self.files.range(self.opening..).any(|(_, (_, file))| file == name);
        let is_log = matches!(hang.target.step, Step::LogWrite | Step::LogSync);
        let is_paired = is_log && has("log") && has("log-2");
        if hang.paired && !is_paired {
            return;
        }
        self.observed.is_hung.set(true);
        let device = self.files.get(&file).and_then(|(device, _)| self.devices.get(device.0 as usize));
        // The database switches such a cache off.
        let is_cache = device.is_some_and(|device| device == CACHE_DEVICE);
        let name = self.files.get(&file).map(|(_, name)| name.clone());
        let is_of_cache = name.as_ref().is_some_and(|name| CACHE_FILES.contains(&name.as_str()));
        if is_of_cache {
            self.observed.is_cache_hung.set(true);
        }
        // An opening that is given up for another one holds its files until it is answered.
        let is_waited_for = self.observed.phase.get() == Phase::Opening && self.plan.reopened_after.is_some();
        let is_lost = !is_paired && (!is_cache || is_waited_for);
        // An opening does without none of two logs.
        let is_needed = !is_paired || self.observed.phase.get() == Phase::Opening;
        let is_given_up = self.is_limited() && is_needed && !is_of_cache;
        if is_given_up {
            self.observed.missed_file.replace(name);
        }
        self.observed.is_deaf.set(hang.ns.is_none() && is_lost && !is_given_up);
        let until = hang.ns.map(|ns| self.driver.now().plus_ns(ns));
        self.hung = Some(Hung { file, until, withheld: Vec::new() });
    }

    /// Whether the database is given up for what a device does not answer, and so may have a device hang while it is opened.
    pub(super) fn is_limited(&self) -> bool {
        self.plan.answer_ns_max.is_some() && matches!(self.observed.phase.get(), Phase::Opening | Phase::Running)
    }

    /// Whether the completion is one that a hung device does not give now.
    pub(super) fn is_withheld(&self, completion: &Completion) -> bool {
        let flight = self.flights.get(&completion.token);
        let is_hung = |flight: &Flight, hung: &Hung| flight.file == Some(hung.file) && flight.step.is_some();
        self.hung.as_ref().zip(flight).is_some_and(|(hung, flight)| is_hung(flight, hung))
    }

    /// The completions that a hung device gives when it answers again.
    pub(super) fn released(&mut self) -> Vec<Completion> {
        let now = self.driver.now();
        let is_over = self.hung.as_ref().is_some_and(|hung| hung.until.is_some_and(|until| until <= now));
        let hung = if is_over { self.hung.take() } else { None };
        if hung.is_some() {
            self.plan.hang = None;
        }
        hung.map_or_else(Vec::new, |hung| hung.withheld)
    }
}
