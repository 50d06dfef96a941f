//! What those see who look at a server.

use super::*;
use base::Instant;

const MS: u64 = 1_000_000;

fn at(ms: u64) -> Instant {
    Instant::from_ns(ms * MS)
}

#[test]
fn a_callback_is_shown_with_its_age_until_the_copy_is_given_up() {
    let mut ground = Ground::new("cbl");
    ground.server.note_time(at(5));
    let reader = ground.join();
    ground.server.note_time(at(6));
    let writer = ground.join();
    for client in [reader, writer] {
        ground.say(client, read(copy(3, 0), 1, None)).expect("it is honest");
    }
    ground.say(reader, read(copy(4, 1), 1, None)).expect("it is honest");
    ground.server.note_time(at(10));
    ground.say(writer, write(copy(3, 0), 1)).expect("it is honest");
    ground.server.note_time(at(17));
    ground.say(reader, Request::InUse { copy: copy(3, 0), by: vec![Transaction(1)] }).expect("it is honest");

    let name = |id: PartitionId| format!("p{}", id.0);
    let seen = ground.server.survey(at(30), &name);
    let joined: Vec<_> = seen.nodes.iter().map(|node| (node.client, node.joined_ns, node.waiting)).collect();
    assert_eq!(joined, [(reader, 25 * MS, 0), (writer, 24 * MS, 1)]);
    let held: Vec<_> = seen.held.iter().map(|held| (held.client, &*held.partition, held.copies, held.locks)).collect();
    assert_eq!(held, [(reader, "p1", 2, 0), (writer, "p1", 1, 0)]);
    let [callback] = &seen.callbacks[..] else { panic!("{:?}", seen.callbacks) };
    assert_eq!((callback.holder, callback.writer, callback.page), (reader, writer, 3));
    assert_eq!((callback.age_ns, callback.users), (20 * MS, 1));
    let state = ground.server.page_state(page(3), "p1".to_owned(), at(31));
    let holders: Vec<_> = state.holders.iter().map(|held| (held.client, held.users, held.called_ns)).collect();
    assert_eq!(holders, [(reader, 1, Some(21 * MS)), (writer, 1, None)]);
    let waiting: Vec<_> = state.waiting.iter().map(|waiter| (waiter.client, waiter.is_write)).collect();
    assert_eq!((waiting, state.writer), (vec![(writer, true)], None));

    ground.say(reader, Request::CalledBack { copy: copy(3, 0) }).expect("it is honest");
    let seen = ground.server.survey(at(40), &name);
    assert!(seen.callbacks.is_empty(), "{:?}", seen.callbacks);
    let held: Vec<_> = seen.held.iter().map(|held| (held.client, held.copies, held.locks)).collect();
    assert_eq!(held, [(reader, 1, 0), (writer, 1, 1)]);
    assert_eq!(ground.server.page_state(page(3), "p1".to_owned(), at(41)).writer, Some((writer, Transaction(1))));
}

#[test]
fn callbacks_of_one_moment_are_shown_in_the_order_of_their_pages() {
    let mut ground = Ground::new("cbl");
    let (reader, writer) = (ground.join(), ground.join());
    for number in 0..20 {
        ground.say(reader, read(copy(number, number.into()), 1, None)).expect("it is honest");
        ground.say(writer, read(copy(number, number.into()), 1, None)).expect("it is honest");
        ground.say(writer, write(copy(number, number.into()), 1)).expect("it is honest");
    }
    let seen = ground.server.survey(at(30), &|id: PartitionId| format!("p{}", id.0));
    assert!(seen.callbacks.iter().map(|callback| callback.page).eq(0..20), "{:?}", seen.callbacks);
}

#[test]
fn one_that_has_joined_is_told_of_no_others() {
    let mut ground = Ground::new("cbl");
    let client = ground.join();
    ground.say(client, Request::Survey { page: None }).expect_err("it asks on a connection of its own");
}
