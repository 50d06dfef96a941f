//! Planted bugs: torture that does not find them would find nothing.

use engine::canary::{Canary, plant};
use engine::log::Acknowledged;
use engine::set::Logging;
use entresol_torture::{Configuration, Failure, Options, Rows, run_seed};

/// The first failure among the first `seeds` seeds with this bug planted.
fn first_failure(canary: Canary, seeds: u64) -> Failure {
    first_failure_among(canary, 0..seeds)
}

fn first_failure_among(canary: Canary, mut seeds: impl Iterator<Item = u64>) -> Failure {
    plant(Some(canary));
    let found = seeds.find_map(|seed| run_seed(seed, Options::QUICK).failure);
    plant(None);
    let failure = found.unwrap_or_else(|| panic!("{canary:?} is not found"));
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
fn what_is_left_to_be_undone_and_not_locked_is_found() {
    // Transactions have to be under way, and of some size, when the power goes: in runs that are longer than those of others.
    plant(Some(Canary::UnlockedLoser));
    let found = (20..40).find_map(|seed| run_seed(seed, Options::FULL).failure);
    plant(None);
    let failure = found.expect("it is found");
    assert_eq!(run_seed(failure.seed, Options::FULL).failure, None, "without the planted bug the seed is sound");
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

/// The first failure among seeds whose log is on two devices, acknowledged so.
fn first_failure_with_two_logs(canary: Canary, acknowledged: Acknowledged, seeds: std::ops::Range<u64>) {
    let is_suitable = |seed: &u64| {
        let second = Configuration::draw(*seed, Options::QUICK).settings.log.second;
        second.is_some_and(|second| second.acknowledged == acknowledged)
    };
    first_failure_among(canary, seeds.filter(is_suitable));
}

#[test]
fn a_restart_that_reads_one_of_two_logs_is_found() {
    first_failure_with_two_logs(Canary::OneCopyRead, Acknowledged::First, 970..1120);
}

#[test]
fn a_restart_that_reads_the_log_device_that_was_lost_is_found() {
    first_failure(Canary::LostCopyRead, 600);
}

#[test]
fn a_backup_named_before_it_is_durable_is_found() {
    first_failure(Canary::UnsyncedBackup, 300);
}

#[test]
fn a_slot_reused_before_its_page_is_written_back_is_found() {
    first_failure(Canary::EarlyReuse, 600);
}

#[test]
fn a_sync_that_is_tried_again_and_believed_is_found() {
    first_failure(Canary::SyncTriedAgain, 600);
}

/// The same, among seeds that keep sets and satisfy `suits`.
fn first_failure_with_sets(canary: Canary, seeds: usize, suits: impl Fn(&Configuration) -> bool) {
    let is_suitable = |seed: &u64| {
        let configuration = Configuration::draw(*seed, Options::QUICK);
        configuration.rows == Rows::Set && suits(&configuration)
    };
    let suitable = (0..).filter(is_suitable).take(seeds);
    first_failure_among(canary, suitable);
}

#[test]
fn an_image_older_than_the_backup_is_found() {
    first_failure_among(Canary::OlderImage, 169..170);
}

/// The same, among seeds whose clients have partitions of their own and that satisfy `suits`.
fn first_failure_with_partitions(canary: Canary, seeds: usize, suits: impl Fn(&Configuration) -> bool) -> Failure {
    let is_suitable = |seed: &u64| {
        let configuration = Configuration::draw(*seed, Options::QUICK);
        configuration.partition_clients > 0 && suits(&configuration)
    };
    first_failure_among(canary, (0..).filter(is_suitable).take(seeds))
}

#[test]
fn a_commit_of_more_than_the_log_has_left_is_found() {
    let failure = first_failure_among(Canary::UnadmittedCommit, 312..313);
    assert!(failure.wrong[0].contains("is full"), "{failure}");
}

#[test]
fn a_cursor_that_shows_what_its_transaction_has_changed_since_is_found() {
    first_failure_with_partitions(Canary::StaleCursor, 150, |_| true);
}

#[test]
fn a_cluster_that_is_not_verified_is_found() {
    let is_suitable = |seed: &u64| Configuration::draw(*seed, Options::QUICK).spills;
    first_failure_among(Canary::UnverifiedCluster, (0..).filter(is_suitable).take(60));
}

#[test]
fn an_action_repeated_twice_is_found() {
    first_failure_with_sets(Canary::RepeatedAction, 80, |drawn| drawn.settings.logging == Logging::Actions);
}

#[test]
fn actions_and_procedures_repeated_over_a_backup_that_holds_them_are_found() {
    // Only sweeps that take their time have commits in their midst, and only balances are added to.
    first_failure_among(Canary::IgnoredInclusion, 291..292);
}

#[test]
fn a_procedure_left_out_is_found() {
    first_failure_with_sets(Canary::SkippedCall, 60, |drawn| drawn.settings.logging == Logging::Procedures);
}

/// The first failure in this range with this bug planted, in runs as long as the command's.
fn first_failure_of_long_runs(canary: Canary, seeds: std::ops::Range<u64>) -> Failure {
    plant(Some(canary));
    let found = seeds.clone().find_map(|seed| run_seed(seed, Options::FULL).failure);
    plant(None);
    let failure = found.unwrap_or_else(|| panic!("{canary:?} is not found in {seeds:?}"));
    assert_eq!(run_seed(failure.seed, Options::FULL).failure, None, "without the planted bug the seed is sound");
    failure
}

#[test]
fn a_load_that_fails_and_leaves_half_of_it_is_found() {
    let failure = first_failure_of_long_runs(Canary::HalfLoad, 51..52);
    assert!(failure.wrong[0].contains(" records; it may be"), "{failure}");
}

#[test]
fn a_restart_that_trusts_what_a_failed_sync_has_left_in_the_cache_is_found() {
    let failure = first_failure_of_long_runs(Canary::TrustedCache, 404..405);
    assert!(failure.wrong[0].contains("does not hold it"), "{failure}");
}

#[test]
fn changes_of_an_unreadable_page_that_a_restart_passes_over_are_found() {
    let failure = first_failure_of_long_runs(Canary::PassedOver, 50..51);
    assert!(failure.wrong[0].contains("is lost"), "{failure}");
}

#[test]
fn a_file_that_is_used_although_the_sync_of_a_load_failed_is_found() {
    let failure = first_failure_of_long_runs(Canary::ForgivenLoad, 694..695);
    assert!(failure.wrong[0].contains("is damaged: it is not the page that allocates"), "{failure}");
}

#[test]
fn a_drop_that_does_not_wait_is_found() {
    let failure = first_failure_of_long_runs(Canary::HastyDrop, 34..35);
    assert!(failure.wrong[0].contains("while a transaction has changed it"), "{failure}");
}

#[test]
fn a_number_given_twice_is_found() {
    first_failure_of_long_runs(Canary::ReusedNumber, 30..40);
}

#[test]
fn a_restart_that_gives_up_at_a_sector_it_can_do_without_is_found() {
    let failure = first_failure_of_long_runs(Canary::NoSalvage, 105..112);
    assert!(failure.wrong[0].contains("unreadable"), "{failure}");
}

#[test]
fn a_lost_page_taken_for_a_new_one_is_found() {
    first_failure_of_long_runs(Canary::MissingPageNew, 20..30);
}

#[test]
fn a_catalog_written_over_the_one_that_counts_is_found() {
    let failure = first_failure_of_long_runs(Canary::CatalogInPlace, 379..380);
    assert!(failure.wrong[0].contains("of its catalog are damaged"), "{failure}");
}

#[test]
fn a_page_whose_read_a_failed_sync_has_overtaken_is_found() {
    first_failure_of_long_runs(Canary::LateRead, 1_294..1_295);
}

#[test]
fn a_rollback_that_fails_and_is_abandoned_is_found() {
    let failure = first_failure_of_long_runs(Canary::AbandonedRollback, 151..152);
    assert!(failure.wrong[0].contains("transactions never end"), "{failure}");
}

#[test]
fn half_of_a_rollback_that_is_committed_is_found() {
    let failure = first_failure_of_long_runs(Canary::ForgottenHalf, 0..1);
    assert!(failure.wrong[0].contains("has gone back halfway"), "{failure}");
}

#[test]
fn creations_and_loads_that_log_whatever_room_there_is_are_found() {
    let failure = first_failure_of_long_runs(Canary::UnadmittedCreation, 354..355);
    assert!(failure.wrong[0].contains("is full"), "{failure}");
}

#[test]
fn changes_that_pass_by_an_index_that_is_being_filled_are_found() {
    first_failure_among(Canary::UnseenIndex, 285..286);
}

#[test]
fn changes_that_pass_by_an_index_that_a_set_is_being_given_are_found() {
    let failure = first_failure_of_long_runs(Canary::MissedInSet, 827..828);
    assert!(failure.wrong[0].contains("the index of 'own-1-3' shows 16 of 17 records"), "{failure}");
}

#[test]
fn a_unique_index_over_records_that_are_the_same_in_it_is_found() {
    let failure = first_failure_of_long_runs(Canary::UncheckedTwice, 256..257);
    assert!(failure.wrong[0].contains("gets a unique index though two records are the same in it"), "{failure}");
}

#[test]
fn an_index_that_a_restart_forgets_is_found() {
    let failure = first_failure_of_long_runs(Canary::ForgottenIndex, 51..52);
    assert!(failure.wrong[0].contains("its index is gone"), "{failure}");
}

#[test]
fn an_entry_that_a_changed_record_leaves_in_an_index_is_found() {
    let failure = first_failure_of_long_runs(Canary::KeptEntry, 51..52);
    assert!(failure.wrong[0].contains("index 'by_group'"), "{failure}");
}

#[test]
fn growth_of_a_file_that_comes_late_is_found() {
    first_failure_among(Canary::AbandonedGrowth, 302..303);
}

#[test]
fn what_a_creation_that_failed_leaves_is_found() {
    let failure = first_failure_of_long_runs(Canary::KeptRemains, 80..81);
    assert!(failure.wrong[0].contains("a creation that failed leaves"), "{failure}");
}

#[test]
fn a_replay_beyond_its_length_is_found() {
    let failure = first_failure_of_long_runs(Canary::Overrun, 5..6);
    assert!(failure.wrong[0].contains("transactions"), "{failure}");
}

#[test]
fn a_page_that_two_levels_hold_at_once_is_found() {
    let failure = first_failure_of_long_runs(Canary::HeldTwice, 107..108);
    assert!(failure.wrong[0].contains("hits"), "{failure}");
}

#[test]
fn a_dropped_database_whose_writes_land_behind_its_back_is_found() {
    let failure = first_failure_of_long_runs(Canary::RunningMachine, 320..321);
    assert!(failure.wrong[0].contains("on the free list but not free"), "{failure}");
}

#[test]
fn a_page_that_stays_pinned_is_found() {
    let failure = first_failure_of_long_runs(Canary::KeptPins, 4..5);
    assert!(failure.wrong[0].contains("pinned for ever"), "{failure}");
}

#[test]
fn freeing_that_never_ends_is_found() {
    first_failure_of_long_runs(Canary::EndlessFreeing, 0..1);
}

#[test]
fn pages_that_tear_because_an_offer_was_believed_are_found() {
    let failure = first_failure_of_long_runs(Canary::BelievedOffer, 142..143);
    assert!(failure.wrong[0].contains("its checksum is"), "{failure}");
}

#[test]
fn a_catalog_that_becomes_full_is_found() {
    let failure = first_failure_of_long_runs(Canary::FixedCatalog, 3..4);
    assert!(failure.wrong[0].contains("the catalog is full"), "{failure}");
}

#[test]
fn a_cloned_waker_that_wakes_no_task_is_found() {
    let failure = first_failure_of_long_runs(Canary::DeafWaker, 26..27);
    assert!(failure.wrong[0].contains("clients wait for ever"), "{failure}");
}

#[test]
fn a_page_written_before_its_log_is_synced_is_found() {
    let failure = first_failure_of_long_runs(Canary::PageBeforeLogSync, 307..308);
    assert!(failure.wrong[0].contains("on the free list but not free"), "{failure}");
}
