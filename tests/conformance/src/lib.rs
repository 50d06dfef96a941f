//! What every [`driver::Driver`] owes to the engine, as tests that run on each of them.
//!
//! A driver's test file calls [`conformance!`] with a function that makes a [`Subject`]: a fresh driver with one empty device
//! named `disk`. Everything here holds for wall clocks and virtual clocks alike.

mod clock;
mod files;
mod flight;
mod network;
mod peers;
mod streams;
mod subject;
mod transfers;

use std::panic::AssertUnwindSafe;

pub use subject::{DEVICE, PAGE, Peer, Subject};

/// One promise of the seam: its name and the test.
pub type Promise = (&'static str, fn(Subject));

/// Every promise, by name.
pub const PROMISES: &[Promise] = &[
    ("files_are_created_listed_and_removed", files::files_are_created_listed_and_removed),
    ("a_missing_file_is_a_fault_that_names_it", files::a_missing_file_is_a_fault_that_names_it),
    ("growth_reads_as_zeros", files::growth_reads_as_zeros),
    ("a_shrunk_file_has_forgotten_its_tail", files::a_shrunk_file_has_forgotten_its_tail),
    ("a_file_removed_under_way_ends_every_operation", files::a_file_removed_under_way_ends_every_operation),
    ("what_was_written_is_read", transfers::what_was_written_is_read),
    ("reads_beyond_the_end_are_faults", transfers::reads_beyond_the_end_are_faults),
    ("durable_writes_and_syncs_complete", transfers::durable_writes_and_syncs_complete),
    ("synchronous_accesses_transfer_too", transfers::synchronous_accesses_transfer_too),
    ("random_transfers_agree_with_a_model", transfers::random_transfers_agree_with_a_model),
    ("large_and_empty_transfers_are_whole", transfers::large_and_empty_transfers_are_whole),
    ("many_operations_complete_once_each", flight::many_operations_complete_once_each),
    ("cancelled_operations_complete_once", flight::cancelled_operations_complete_once),
    ("computations_deliver_their_results", flight::computations_deliver_their_results),
    ("instructions_complete_in_a_later_park", flight::instructions_complete_in_a_later_park),
    ("a_driver_dropped_with_operations_under_way_is_sound", flight::a_dropped_driver_is_sound),
    ("park_reaches_its_moment", clock::park_reaches_its_moment),
    ("a_past_moment_only_collects", clock::a_past_moment_only_collects),
    ("a_rung_doorbell_ends_the_park", clock::a_rung_doorbell_ends_the_park),
    ("frames_are_zeroed_aligned_and_separate", clock::frames_are_zeroed_aligned_and_separate),
    ("a_device_is_known_by_its_name", clock::a_device_is_known_by_its_name),
    ("statistics_count_and_restart", clock::statistics_count_and_restart),
    ("bytes_go_there_and_back", network::bytes_go_there_and_back),
    ("many_connections_are_kept_apart", network::many_connections_are_kept_apart),
    ("large_transfers_arrive_in_pieces_and_in_order", streams::large_transfers_arrive_in_pieces_and_in_order),
    ("a_receiver_that_rests_stops_its_sender", streams::a_receiver_that_rests_stops_its_sender),
    ("one_half_can_be_closed", network::one_half_can_be_closed),
    ("a_closed_listener_refuses", network::a_closed_listener_refuses),
    ("addresses_that_cannot_be_used_are_named", network::addresses_that_cannot_be_used_are_named),
    ("a_close_ends_what_is_under_way", network::a_close_ends_what_is_under_way),
    ("bytes_that_were_not_received_make_a_close_a_reset", network::bytes_not_received_make_a_close_a_reset),
    ("cancelled_waits_end_and_lose_nothing", network::cancelled_waits_end_and_lose_nothing),
    ("a_second_wait_on_a_socket_is_refused", network::a_second_wait_on_a_socket_is_refused),
    ("sockets_that_are_not_open_say_so", network::sockets_that_are_not_open_say_so),
    ("a_driver_dropped_while_sockets_wait_is_sound", network::a_driver_dropped_while_sockets_wait_is_sound),
    ("a_peer_that_dies_ends_its_connections", peers::a_peer_that_dies_ends_its_connections),
    ("a_peer_that_dies_with_bytes_unread_resets", peers::a_peer_that_dies_with_bytes_unread_resets),
];

/// Makes one test of every promise for the driver that `$make` makes. `$make: fn() -> Option<Subject>` prints the reason and
/// returns `None` where this machine cannot run the driver.
#[macro_export]
macro_rules! conformance {
    ($make:path) => {
        #[test]
        fn keeps_every_promise() {
            $crate::check($make);
        }
    };
}

/// Runs every promise on a driver of its own.
///
/// # Panics
/// If a promise is broken, once all have been tried; names those that were.
pub fn check(mut make: impl FnMut() -> Option<Subject>) {
    let mut broken = Vec::new();
    for (name, promise) in PROMISES {
        let Some(subject) = make() else { return };
        println!("{name}: {}", subject.driver.description());
        if std::panic::catch_unwind(AssertUnwindSafe(|| promise(subject))).is_err() {
            broken.push(*name);
        }
    }
    assert!(broken.is_empty(), "broken: {}", broken.join(", "));
}
