//! Backups beside clients, and what is restored from them; bugs that are planted there.

use engine::canary::{Canary, plant};
use entresol_torture::{ClientEvent, Configuration, Failure, Options, run_seed};

/// The seeds from `first` on whose databases are backed up.
fn backed_up(first: u64) -> impl Iterator<Item = u64> {
    (first..).filter(|seed| Configuration::draw(*seed, Options::QUICK).backups)
}

#[test]
fn backups_are_restored_that_are_whole_and_no_others() {
    use ClientEvent::{
        BackedUp, BackupCut, IncrementRestored, LogArchived, RestoreRefused, Restored, RestoredFurther, RestoredTo,
    };
    let met =
        [BackedUp, BackupCut, IncrementRestored, LogArchived, RestoreRefused, Restored, RestoredFurther, RestoredTo];
    let mut counts = met.map(|event| (event, 0));
    for seed in backed_up(2_000).take(40) {
        let outcome = run_seed(seed, Options::QUICK);
        assert_eq!(outcome.failure, None);
        counts.iter_mut().for_each(|(event, count)| *count += outcome.coverage.events(*event));
    }
    assert!(counts.iter().all(|(_, count)| *count > 0), "{counts:?}");
}

/// The failure of this seed while this bug is planted.
fn failure(canary: Canary, seed: u64) -> Failure {
    plant(Some(canary));
    let found = run_seed(seed, Options::FULL).failure;
    plant(None);
    let failure = found.unwrap_or_else(|| panic!("{canary:?} is not found"));
    assert_eq!(run_seed(seed, Options::FULL).failure, None, "without the planted bug the seed is sound");
    failure
}

#[test]
fn a_backup_that_lacks_what_is_changed_while_it_copies_is_found() {
    let failure = failure(Canary::BackupPastChanges, 119);
    assert!(failure.plan.contains("a restore from"), "{failure}");
}

#[test]
fn a_backup_that_lacks_the_end_of_its_log_is_found() {
    let failure = failure(Canary::ForgottenTail, 180);
    // An assertion of debug builds finds it before.
    let words = ["it ends here and should have", "the copy ends with the page of the end"];
    assert!(words.iter().any(|words| failure.wrong[0].contains(words)), "{failure}");
}

#[test]
fn a_segment_that_says_that_it_is_whole_before_it_is_is_found() {
    let failure = failure(Canary::EarlySegmentHead, 458);
    assert!(failure.plan.contains("a restore to"), "{failure}");
}

#[test]
fn log_that_is_given_up_before_it_is_archived_is_found() {
    let failure = failure(Canary::UnkeptForArchive, 566);
    assert!(failure.plan.contains("a restore to"), "{failure}");
}

#[test]
fn a_restore_past_a_load_that_the_log_does_not_have_is_found() {
    let failure = failure(Canary::UnnoticedLoad, 250);
    assert!(failure.plan.contains("a restore to"), "{failure}");
}
