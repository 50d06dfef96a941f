//! Planted bugs: torture that does not find them would find nothing.

use engine::canary::{Canary, plant};
use entresol_torture::{Failure, Options, run_seed};

/// The first failure among the first `seeds` seeds with this bug planted.
fn first_failure(canary: Canary, seeds: u64) -> Failure {
    plant(Some(canary));
    let found = (0..seeds).find_map(|seed| run_seed(seed, Options::QUICK).failure);
    plant(None);
    let failure = found.unwrap_or_else(|| panic!("{canary:?} is not found in {seeds} seeds"));
    let healthy = run_seed(failure.seed, Options::QUICK);
    assert_eq!(healthy.failure, None, "without the planted bug the seed is sound");
    failure
}

#[test]
fn a_commit_acknowledged_before_its_sync_is_found() {
    first_failure(Canary::CommitBeforeSync, 40);
}

#[test]
fn a_skipped_undo_is_found() {
    first_failure(Canary::SkippedUndo, 60);
}

#[test]
fn torn_pages_without_a_copy_are_found() {
    let failure = first_failure(Canary::NoDoubleWrite, 300);
    assert!(failure.wrong[0].contains("damaged"), "{failure}");
}

#[test]
fn a_log_given_up_too_early_is_found() {
    first_failure(Canary::EarlyTruncation, 300);
}

#[test]
fn a_backup_named_before_it_is_durable_is_found() {
    first_failure(Canary::UnsyncedBackup, 300);
}

#[test]
fn a_slot_reused_before_its_page_is_written_back_is_found() {
    first_failure(Canary::EarlyReuse, 600);
}
