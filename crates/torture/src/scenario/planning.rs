//! What goes wrong in the runs of a scenario.

use super::Scenario;
use crate::backups::PLACES;
use crate::configuration::{CACHE_DEVICE, Rows};
use crate::{Plan, SeedKind, partitions};
use base::Random;

impl Scenario {
    /// What goes wrong in this run, one of those that end in a fault. Each kind of fault has random numbers of its own.
    pub(super) fn plan(&mut self, run: u64, kind: SeedKind, flips: bool) -> Plan {
        let configuration = &self.world.configuration;
        let random = self.faults(run);
        // The last ones, behind which damage may show.
        let is_late = run + 2 >= configuration.runs;
        let mut plan = Plan::draw(&mut self.random, kind, flips && is_late);
        if configuration.settings.log.second.is_some() {
            plan = plan.with_two_logs(&mut random("hung"));
        }
        if configuration.spills {
            plan = plan.with_temporary(&mut random("temporary space, life"));
        }
        if self.more {
            let faults = &mut random("more faults, life");
            plan = plan.with_more(faults, kind, is_late);
            if configuration.spills {
                plan = plan.with_more_temporary(faults);
            }
            plan = plan.with_cached_syncs(&mut random("cached syncs, life"));
        }
        if configuration.settings.hierarchy.cache.is_some() {
            plan = plan.with_hung_cache(&mut random("hung cache, run"));
            plan = plan.with_slow_device(&mut random("slow cache, run"), CACHE_DEVICE, 1_000);
        }
        plan = plan.with_growing_log(&mut random("growing log, run"));
        plan = plan.with_late(&mut random("late, run"));
        plan = plan.with_failing_growth(&mut random("failing growth, run"));
        // Of what is dropped at work a backup may go on for a while.
        if !configuration.backups {
            plan = plan.with_dropped_database(&mut random("dropped database, run"));
        }
        plan = plan.with_full_device(&mut random("full device, life"), kind);
        if self.more {
            plan = self.with_more_kinds(plan, run, (kind, is_late));
        }
        plan = self.with_own_faults(plan, run);
        if self.world.configuration.haste {
            plan = plan.with_answer_limit(&mut random("answers, run"), kind);
        }
        // The first run creates all partitions without faults, so that later runs meet them all.
        if partitions::is_large_crowd(self.world.configuration.crowd) && run == 0 { Plan::default() } else { plan }
    }

    /// The random numbers of a run's faults, by what they are for.
    fn faults(&self, run: u64) -> impl Fn(&str) -> Random + use<> {
        let seed = self.world.seed;
        move |concern: &str| Random::stream(seed, &format!("{concern} {run}"))
    }

    /// The same with the kinds that only some seeds meet.
    fn with_more_kinds(&self, mut plan: Plan, run: u64, (kind, is_late): (SeedKind, bool)) -> Plan {
        let (configuration, random) = (&self.world.configuration, self.faults(run));
        plan = plan.with_failing_reads(&mut random("failing reads, life"));
        if configuration.rows == Rows::Set && is_late {
            plan = plan.with_lost_segments(&mut random("lost segments, run"));
        }
        if let Some(device) = &configuration.settings.temp.device {
            plan = plan.with_slow_device(&mut random("slow temporary space, run"), device, 20);
        }
        match is_late {
            true => plan.with_seldom_vanishing(&mut random("seldom vanishing, run")),
            false => plan.with_early_damage(&mut random("early damage, run"), kind),
        }
    }

    /// The same with those of what this configuration alone has.
    fn with_own_faults(&self, mut plan: Plan, run: u64) -> Plan {
        let (configuration, random) = (&self.world.configuration, self.faults(run));
        if configuration.partition_clients > 0 {
            plan = plan.with_cut_creation(&mut random("cut creation, run"));
        }
        if configuration.backups {
            plan = plan.with_backups(&mut random("backups, run"), PLACES[run as usize % PLACES.len()]);
            // What copies the log waits for a device that the log itself does without.
            plan.hang = plan.hang.filter(|_| configuration.settings.log.second.is_none());
        }
        if let Some(place) = &configuration.settings.log.archive {
            plan = plan.with_archive(&mut random("archive, run"), place);
        }
        if configuration.crowd > 0 {
            plan = plan.with_many_partitions(&mut random("many partitions, life"));
        }
        if configuration.partition_clients > 0 {
            plan = plan.with_failing_loads(&mut random("failing loads, run"));
        }
        plan
    }
}
