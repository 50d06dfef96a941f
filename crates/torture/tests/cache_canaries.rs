//! Planted bugs of the second level's designs: torture that does not find them would find nothing.

use engine::canary::{Canary, plant};
use engine::second_level::{CacheSettings, Settings};
use entresol_torture::{Configuration, Options, SeedKind, run_seed};

/// That this bug is found in these seeds of long runs, and that without it the seed is sound.
fn assert_found_in_long_runs(canary: Canary, kind: SeedKind, mut seeds: std::ops::Range<u64>) {
    let options = Options::FULL.of(kind);
    plant(Some(canary));
    let found = seeds.find_map(|seed| run_seed(seed, options).failure);
    plant(None);
    let failure = found.unwrap_or_else(|| panic!("{canary:?} is not found"));
    assert_eq!(run_seed(failure.seed, options).failure, None, "without the planted bug the seed is sound");
}

/// That this bug is found among the first `seeds` seeds with a cache of this design, and that without it the seed is sound.
fn assert_found(canary: Canary, design: &str, seeds: usize) {
    assert_found_with(canary, |cache| cache.design.name() == design, seeds);
}

fn assert_found_with(canary: Canary, suits: impl Fn(&CacheSettings) -> bool, seeds: usize) {
    assert_found_below(canary, |hierarchy| hierarchy.cache.as_ref().is_some_and(&suits), seeds);
}

fn assert_found_below(canary: Canary, suits: impl Fn(&Settings) -> bool, seeds: usize) {
    let is_suitable = |seed: &u64| suits(&Configuration::draw(*seed, Options::QUICK).settings.hierarchy);
    plant(Some(canary));
    let found = (0..).filter(is_suitable).take(seeds).find_map(|seed| run_seed(seed, Options::QUICK).failure);
    plant(None);
    let failure = found.unwrap_or_else(|| panic!("{canary:?} is not found"));
    assert_eq!(run_seed(failure.seed, Options::QUICK).failure, None, "without the planted bug the seed is sound");
}

#[test]
fn a_cached_copy_older_than_its_page_is_found() {
    // An exclusive cache has no copy of what is in main memory.
    for design in ["clean-write", "dual-write", "lazy-cleaning", "tac", "rotating", "face", "frequency"] {
        assert_found(Canary::StaleCopy, design, 100);
    }
}

#[test]
fn an_upper_cache_with_an_older_version_than_below_is_found() {
    assert_found_below(Canary::StaleAbove, |hierarchy| hierarchy.upper_cache.is_some(), 100);
}

#[test]
fn a_copy_below_that_is_older_than_what_the_upper_cache_has_written_past_it_is_found() {
    assert_found_below(Canary::StaleBelow, |hierarchy| hierarchy.upper_cache.is_some(), 400);
}

#[test]
fn a_slot_reused_before_it_is_cleaned_is_found() {
    for design in ["lazy-cleaning", "rotating", "exclusive", "face", "frequency"] {
        assert_found(Canary::UncleanReuse, design, 100);
    }
}

#[test]
fn an_older_version_written_over_a_newer_one_is_found() {
    assert_found_with(Canary::OvertakenClean, |_| true, 200);
}

#[test]
fn a_budget_of_writes_that_is_overspent_is_found() {
    assert_found_with(Canary::Overspent, |cache| cache.write_budget.is_some(), 200);
}

#[test]
fn a_table_that_states_what_has_left_its_slots_is_found() {
    assert_found_with(Canary::UnstatedSlot, |cache| cache.table == Some(true), 600);
}

#[test]
fn a_copy_of_another_version_than_its_slot_should_hold_is_found() {
    assert_found_in_long_runs(Canary::UncheckedVersion, SeedKind::Durability, 82..83);
}

#[test]
fn a_page_that_is_read_without_what_redo_has_left_is_found() {
    assert_found_in_long_runs(Canary::ForgottenRedo, SeedKind::Isolation, 12..13);
}

#[test]
fn a_cache_given_up_before_it_is_drained_is_found() {
    assert_found(Canary::UndrainedCache, "lazy-cleaning", 200);
}

#[test]
fn a_design_that_breaks_its_own_promise_is_found() {
    for design in engine::second_level::DESIGNS {
        // What an exclusive cache keeps does no harm: its model finds it (`second_level/tests/designs.rs`).
        if design.name() != "exclusive" {
            assert_found(Canary::BrokenPromise, design.name(), 200);
        }
    }
}

#[test]
fn a_page_that_enters_although_it_has_changed_meanwhile_is_found() {
    assert_found(Canary::LateEntry, "tac", 600);
}

#[test]
fn a_page_that_leaves_an_exclusive_cache_with_what_only_that_has_is_found() {
    assert_found(Canary::LeftDirty, "exclusive", 100);
}

#[test]
fn a_log_that_is_not_kept_for_what_only_the_cache_has_is_found() {
    for design in ["lazy-cleaning", "rotating", "exclusive", "face", "frequency"] {
        assert_found(Canary::UnkeptLog, design, 300);
    }
}
