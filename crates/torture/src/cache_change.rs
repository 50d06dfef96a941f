//! The cache changes while clients work: its design, its size, off and on, and who may enter.

use crate::ClientEvent;
use crate::abandon::at_most;
use crate::configuration::{draw_design, draw_upper_cache};
use crate::context::RunContext;
use base::Random;
use base::time::SECOND_NS;
use engine::second_level::CacheSettings;
use engine::{Database, Error, Internals};

/// How long a change is waited for; it goes on afterwards.
const PATIENCE_NS: u64 = 2 * SECOND_NS;

/// The share of runs in which the cache changes, and how often it does at each look.
const CHANGING_RUNS: f64 = 0.3;
const CHANGE: f64 = 0.04;
/// How often the upper cache changes at each look, where one is configured.
const UPPER_CHANGE: f64 = 0.02;

/// What decides about changes in one run.
pub struct CacheChanges {
    random: Random,
    is_active: bool,
    /// What decides about those of the upper cache.
    upper: Random,
}

impl CacheChanges {
    /// Of this run.
    pub fn new(context: &RunContext) -> CacheChanges {
        let mut random = context.random("cache changes");
        let is_active = random.chance(CHANGING_RUNS);
        CacheChanges { random, is_active, upper: context.random("upper cache changes") }
    }

    /// Perhaps changes the cache now, and perhaps gives up waiting for that.
    pub async fn look(&mut self, context: &RunContext, database: &Database) {
        if database.settings().hierarchy.upper_cache.is_some() && self.upper.chance(UPPER_CHANGE) {
            self.change_upper(context, database).await;
        }
        if !self.is_active || !self.random.chance(CHANGE) {
            return;
        }
        if self.random.chance(0.2) {
            return self.admit(context, database);
        }
        let cache = self.draw(database);
        let polls = if self.random.chance(0.3) { self.random.between(1, 6) } else { u64::MAX };
        let change = context.executor.within(PATIENCE_NS, database.set_cache(cache));
        match at_most(polls, change).await.flatten() {
            Some(Ok(())) => context.event(ClientEvent::CacheChanged),
            Some(Err(error)) => {
                context.event(ClientEvent::CacheChangeFailed);
                if !matches!(error, Error::CacheBusy) || !context.may_requests_hang() {
                    context.judge(&error, "changing the cache");
                }
            }
            None => {}
        }
    }

    async fn change_upper(&mut self, context: &RunContext, database: &Database) {
        let upper = self.upper.chance(0.7).then(|| draw_upper_cache(&mut self.upper));
        let polls = if self.upper.chance(0.3) { self.upper.between(1, 6) } else { u64::MAX };
        let change = context.executor.within(PATIENCE_NS, database.set_upper_cache(upper));
        if let Some(Some(Err(error))) = at_most(polls, change).await
            && (!matches!(error, Error::CacheBusy) || !context.may_requests_hang())
        {
            context.judge(&error, "changing the upper cache");
        }
    }

    fn draw(&mut self, database: &Database) -> Option<CacheSettings> {
        let random = &mut self.random;
        if random.chance(0.25) {
            return None;
        }
        let present = database.cache().filter(|_| random.chance(0.6));
        let mut cache = present.unwrap_or_else(|| CacheSettings {
            table: Some(random.chance(0.7)),
            ..CacheSettings::new("nvem", random.between(1, 80) as u32)
        });
        draw_design(random, &mut cache);
        Some(cache)
    }

    fn admit(&mut self, context: &RunContext, database: &Database) {
        let partitions = database.partitions();
        let Some(partition) = self.random.choose(&partitions) else { return };
        let is_admitted = self.random.chance(0.6);
        match database.admit_to_cache(partition.id(), is_admitted) {
            Ok(()) | Err(Error::NoPartition(_) | Error::WrongOrganization { .. }) => {}
            Err(error) => {
                context.judge(&error, "admission to the cache");
            }
        }
    }
}
