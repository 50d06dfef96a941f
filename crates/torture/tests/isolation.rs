//! Clients that meet on few records, at the levels of isolation: many quick seeds, and planted bugs.

use engine::canary::{Canary, plant};
use engine::catalog::Locking;
use entresol_torture::history::Level;
use entresol_torture::{
    Configuration, Contention, Failure, FaultKind, Options, SeedKind, Step, Store, run_range, run_seed,
};

const QUICK: Options = Options::QUICK.of(SeedKind::Isolation);

#[test]
fn no_level_shows_what_it_forbids() {
    let summary = run_range(0..200, QUICK, |_| {});
    let failures: Vec<String> = summary.failures.iter().map(ToString::to_string).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    assert_eq!(summary.levels.values().sum::<u64>(), 200);
    assert!(summary.runs > 500 && summary.transactions > 4_000, "{summary:?}");
    for (kind, step) in [(FaultKind::PowerCut, Step::UndoSpaceWrite), (FaultKind::Error, Step::UndoSpaceWrite)] {
        assert!(summary.coverage.count(kind, step) > 0, "{} never hits {}", kind.name(), step.name());
    }
}

/// Seeds that once found bugs: a long value copied for readers that had ended, a scan of discarded versions that returned
/// nothing, a log taken for a log on two devices because an abandoned opening had used both, a log that did not move because a cache
/// had pages that were nowhere else, a lost write that was taken for one before it at the same place.
#[test]
fn seeds_that_once_failed_are_sound() {
    for seed in [586, 10_125, 10_761, 38_505, 87_440] {
        assert_eq!(run_seed(seed, Options::FULL.of(SeedKind::Isolation)).failure, None);
    }
}

#[test]
fn a_seed_replays_exactly() {
    let (first, second) = (run_seed(3, QUICK), run_seed(3, QUICK));
    assert_eq!(first, second);
    assert_ne!(first.hash, run_seed(3, Options::QUICK).hash);
}

#[test]
fn a_database_that_is_not_given_up_for_a_silent_device_is_found() {
    let seed = Options::FULL.of(SeedKind::Isolation);
    plant(Some(Canary::EndlessSilence));
    let found = run_seed(7, seed).failure;
    plant(None);
    let failure = found.expect("it is found");
    assert!(failure.wrong[0].contains("takes for ever"), "{failure}");
    assert_eq!(run_seed(7, seed).failure, None, "without the planted bug the seed is sound");
}

/// The first failure with this bug planted, among the first `seeds` seeds that suit.
fn first_failure(canary: Canary, seeds: usize, suits: impl Fn(&Contention) -> bool) -> Failure {
    let is_suitable =
        |seed: &u64| Configuration::draw(*seed, QUICK).contention.is_some_and(|contention| suits(&contention));
    plant(Some(canary));
    let found = (0..).filter(is_suitable).take(seeds).find_map(|seed| run_seed(seed, QUICK).failure);
    plant(None);
    let failure = found.unwrap_or_else(|| panic!("{canary:?} is not found"));
    assert_eq!(run_seed(failure.seed, QUICK).failure, None, "without the planted bug the seed is sound");
    failure
}

#[test]
fn a_gap_that_a_range_read_leaves_unlocked_is_found() {
    let suits = |drawn: &Contention| drawn.levels == [Level::Serializable] && drawn.stores.contains(&Store::Tree);
    let failure = first_failure(Canary::UnlockedGap, 300, suits);
    assert!(failure.wrong[0].contains("does not show tree"), "{failure}");
}

#[test]
fn a_range_that_is_locked_without_its_last_record_is_found() {
    let suits = |drawn: &Contention| drawn.levels == [Level::Serializable] && drawn.stores.contains(&Store::Tree);
    let failure = first_failure(Canary::ShortRange, 300, suits);
    assert!(failure.wrong[0].starts_with('G') || failure.wrong[0].starts_with("lost update"), "{failure}");
}

/// The same, in what `entresol torture --isolation --seeds 0..400` runs.
#[test]
fn a_short_range_is_found_in_the_range_that_is_always_run() {
    plant(Some(Canary::ShortRange));
    let found = (0..400).find_map(|seed| run_seed(seed, Options::FULL.of(SeedKind::Isolation)).failure);
    plant(None);
    assert!(found.is_some(), "it is found");
}

#[test]
fn a_read_without_a_lock_is_found() {
    let failure = first_failure(Canary::UnlockedRead, 100, |drawn| drawn.levels == [Level::Serializable]);
    assert!(failure.wrong[0].starts_with('G') || failure.wrong[0].starts_with("lost update"), "{failure}");
}

/// On pages and in sets.
#[test]
fn a_record_that_is_added_behind_what_was_scanned_is_found() {
    for in_set in [false, true] {
        let suits = |drawn: &Contention| {
            let is_locked = drawn.appended_locking != Locking::None && drawn.levels == [Level::Serializable];
            is_locked && drawn.stores.contains(&Store::Appended) && drawn.appended_in_set == in_set
        };
        let failure = first_failure(Canary::PassedEnd, 60, suits);
        assert!(failure.wrong[0].starts_with('G') || failure.wrong[0].contains("appended"), "{failure}");
    }
}

#[test]
fn a_place_in_a_unique_index_that_is_looked_at_without_a_lock_is_found() {
    let suits = |drawn: &Contention| drawn.stores.contains(&Store::Unique) && !drawn.unique_in_tree;
    let failure = first_failure(Canary::UnlockedPlace, 100, suits);
    assert!(failure.wrong[0].contains("is refused to"), "{failure}");
}

#[test]
fn an_update_of_what_was_updated_since_the_snapshot_is_found() {
    let failure = first_failure(Canary::LostUpdate, 100, |drawn| drawn.levels == [Level::Snapshot]);
    assert!(failure.wrong[0].starts_with('G') || failure.wrong[0].starts_with("lost update"), "{failure}");
}

#[test]
fn a_change_of_what_may_have_changed_since_the_snapshot_is_found() {
    let suits = |drawn: &Contention| drawn.flood.is_some() && drawn.levels == [Level::Snapshot];
    first_failure(Canary::UncheckedHorizon, 60, suits);
}

#[test]
fn a_victim_that_commits_all_the_same_is_found() {
    let failure = first_failure(Canary::RevivedVictim, 60, |_| true);
    assert!(failure.wrong[0].contains("after an error"), "{failure}");
}

#[test]
fn a_refusal_told_before_its_reason_is_durable_is_found() {
    let (seed, options) = (47, Options::FULL.of(SeedKind::Isolation));
    plant(Some(Canary::EarlyRefusal));
    let found = run_seed(seed, options).failure;
    plant(None);
    let failure = found.expect("it is found");
    assert!(failure.wrong[0].contains("in real time"), "{failure}");
    assert_eq!(run_seed(seed, options).failure, None, "without the planted bug the seed is sound");
}

#[test]
fn a_snapshot_that_moves_on_is_found() {
    let failure = first_failure(Canary::MovingSnapshot, 100, |drawn| drawn.levels == [Level::Snapshot]);
    assert!(failure.wrong[0].starts_with('G'), "{failure}");
}

#[test]
fn a_set_that_shows_the_present_for_moments_before_a_restart_is_found() {
    let suits = |drawn: &Contention| drawn.keeps_moments() && drawn.stores.contains(&Store::Set);
    first_failure(Canary::PresentForPast, 200, suits);
}

#[test]
fn a_moment_to_come_that_can_be_read_is_found() {
    let failure = first_failure(Canary::ReadFuture, 40, |drawn| drawn.undo.retention_ns > 0);
    assert!(failure.wrong[0].contains("ns ahead: Ok"), "{failure}");
}
