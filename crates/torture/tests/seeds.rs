//! Many quick seeds, and that each replays exactly.

use entresol_torture::{ClientEvent, Configuration, Options, SeedKind, run_range, run_seed};

#[test]
fn nothing_acknowledged_is_lost_and_nothing_else_is_there() {
    let summary = run_range(0..120, Options::QUICK, |_| {});
    let failures: Vec<String> = summary.failures.iter().map(ToString::to_string).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    assert_eq!(summary.seeds, 120);
    assert!(summary.runs > 300 && summary.transactions > 2_000, "{summary:?}");
}

#[test]
fn partitions_are_renamed_and_truncated() {
    let has_clients = |seed: &u64| Configuration::draw(*seed, Options::QUICK).partition_clients > 0;
    let (mut renamed, mut truncated) = (0, 0);
    for seed in (1_000..).filter(has_clients).take(40) {
        let outcome = run_seed(seed, Options::QUICK);
        assert_eq!(outcome.failure, None);
        renamed += outcome.coverage.events(ClientEvent::Renamed);
        truncated += outcome.coverage.events(ClientEvent::Truncated);
    }
    assert!(renamed > 0 && truncated > 0, "{renamed} {truncated}");
}

#[test]
fn partitions_of_every_organization_are_compacted() {
    let has_clients = |seed: &u64| Configuration::draw(*seed, Options::QUICK).partition_clients > 0;
    let events = [ClientEvent::Compacted, ClientEvent::SetCompacted, ClientEvent::ObjectsCompacted];
    let mut met = [0; 3];
    for seed in (2_000..).filter(has_clients).take(120) {
        let outcome = run_seed(seed, Options::QUICK);
        assert_eq!(outcome.failure, None);
        met.iter_mut().zip(events).for_each(|(met, event)| *met += outcome.coverage.events(event));
    }
    assert!(met.iter().all(|met| *met > 0), "{events:?} {met:?}");
}

#[test]
fn a_seed_replays_exactly() {
    for seed in [1, 17, 90] {
        let (first, second) = (run_seed(seed, Options::QUICK), run_seed(seed, Options::QUICK));
        assert_ne!(first.hash, 0);
        assert_eq!(first, second);
        assert_ne!(first.hash, run_seed(seed + 1, Options::QUICK).hash);
    }
}

#[test]
fn two_sweeps_that_would_begin_at_the_same_place_are_told_apart() {
    // Commits within the second were taken to be in the backup of the first one.
    assert_eq!(run_seed(602_445, Options::FULL).failure, None);
}

#[test]
fn a_request_that_a_sweep_refuses_lets_the_sweep_go_on() {
    // With a retry interval of nothing it was run again at once, for ever: no time passed for the sweep.
    assert_eq!(run_seed(50_246, Options::FULL).failure, None);
}

#[test]
fn clients_wait_for_one_drop_after_the_other_that_snapshots_keep_from_being_done() {
    // Five drops gave up after ten seconds each, which was taken for clients that wait for ever.
    assert_eq!(run_seed(36_031, Options::FULL).failure, None);
}

#[test]
fn a_truncation_does_not_wait_for_room_in_the_log_while_it_keeps_sweeps_from_making_some() {
    // Its set is swept first, and what it logs needs room.
    assert_eq!(run_seed(2_268, Options::FULL).failure, None);
}

#[test]
fn two_that_free_long_values_in_a_full_log_do_not_wait_for_each_other() {
    // Each kept the room that the rollback of the other would have taken, which was committed.
    assert_eq!(run_seed(15_006, Options::FULL).failure, None);
}

#[test]
fn moments_do_not_go_back_when_a_truncation_has_waited() {
    // New snapshots were of the moment before its sweep, and did not show what had been committed since.
    assert_eq!(run_seed(32_711, Options::FULL).failure, None);
}

#[test]
fn pages_that_wait_to_be_freed_are_not_lost() {
    // The log has no room for freeing them until its device has.
    assert_eq!(run_seed(29_025, Options::FULL).failure, None);
}

#[test]
fn the_last_segment_of_an_archive_is_made_durable_by_the_opening_that_goes_on_behind_it() {
    // Its first block was there after a kill, and gone after a power cut: the sync of it had failed.
    assert_eq!(run_seed(14_480, Options::FULL).failure, None);
}

#[test]
fn pages_that_wait_for_a_rollback_are_not_lost() {
    // A check ran while a rollback waited to be tried again.
    assert_eq!(run_seed(6_521, Options::FULL).failure, None);
}

#[test]
fn a_damaged_log_that_cannot_be_archived_is_named() {
    assert_eq!(run_seed(15_348, Options::FULL).failure, None);
}

#[test]
fn a_page_that_is_cut_off_while_it_is_about_to_be_read_is_not_damaged() {
    for seed in [10_967, 14_479] {
        assert_eq!(run_seed(seed, Options::FULL).failure, None);
    }
}

#[test]
fn a_check_waits_for_a_compaction_that_goes_on() {
    assert_eq!(run_seed(24_864, Options::FULL).failure, None);
}

#[test]
fn damage_to_files_of_renamed_and_truncated_partitions_is_recognized() {
    for seed in [9_254, 33_510] {
        assert_eq!(run_seed(seed, Options::FULL).failure, None);
    }
}

#[test]
fn a_name_that_is_taken_is_refused_while_an_index_is_being_made() {
    assert_eq!(run_seed(35_485, Options::FULL).failure, None);
}

/// What was left of the index could not be taken back on a full device, and its drop waited for that.
#[test]
fn an_index_that_is_dropped_while_it_is_built_does_not_wait_for_room_for_ever() {
    assert_eq!(run_seed(26_431, Options::FULL).failure, None);
}

/// A transaction gave way, again and again, to an older one that waited for a checkpoint, while none succeeded.
#[test]
fn none_gives_way_to_what_waits_for_checkpoints_that_fail() {
    assert_eq!(run_seed(36_306, Options::FULL).failure, None);
}

/// A backup took an older image of a segment, which a lost write had left, and no restore from it was opened.
#[test]
fn a_backup_takes_no_image_that_a_lost_write_has_left() {
    assert_eq!(run_seed(68_412, Options::FULL).failure, None);
}

/// Two backups of it were to be taken at a hundred thousand bytes a second.
#[test]
fn backups_that_are_slow_because_they_are_asked_to_wait_for_nothing() {
    assert_eq!(run_seed(29_373, Options::FULL).failure, None);
}

/// Another one was refused where a backup in doubt was, which was restored later.
#[test]
fn a_backup_that_is_refused_changes_nothing_of_the_one_that_is_there() {
    for seed in [42_752, 49_061] {
        assert_eq!(run_seed(seed, Options::FULL).failure, None);
    }
}

/// A bit of the last page in the log's write buffer had flipped, which is as if the page had not been written.
#[test]
fn the_end_of_the_log_is_not_damaged_where_that_cannot_be_told_from_a_power_cut() {
    assert_eq!(run_seed(98_310, Options::FULL.of(SeedKind::Isolation)).failure, None);
}

#[test]
fn what_takes_itself_back_is_waited_for() {
    for seed in [4_116, 10_574] {
        assert_eq!(run_seed(seed, Options::FULL.of(SeedKind::Isolation)).failure, None);
    }
}

/// It has never written to its log, so the page behind the file's front is where that goes on.
#[test]
fn an_unreadable_page_at_the_end_of_an_unwritten_log_may_be_refused() {
    assert_eq!(run_seed(462, Options::QUICK).failure, None);
}
