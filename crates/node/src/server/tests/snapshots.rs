//! What a client may do with snapshots, and what it leaves of them.

use super::*;
use crate::grants::{Access, Right};
use crate::message::{PastAsk, SetAnswer, SnapshotAnswer, SnapshotRequest};
use std::collections::BTreeMap;

fn snapshot(number: u64, request: SnapshotRequest) -> Request {
    Request::Snapshot { number, request }
}

fn begin(number: u64) -> Request {
    snapshot(number, SnapshotRequest::Begin)
}

/// A commit changes a page from these bytes.
fn apply(ground: &mut Ground, at: u64, number: u32, before: u8) -> Vec<Action> {
    let mut actions = Vec::new();
    ground.server.applied(Lsn(at), [page(number)], |_| Some(Rc::from([before; 100])), &mut actions);
    actions
}

fn as_of(ground: &mut Ground, id: (ClientId, u64), number: u32) -> (Option<AsOf>, Vec<Action>) {
    let mut actions = Vec::new();
    (ground.server.as_of(id, page(number), &mut actions), actions)
}

fn is_too_old(actions: &[Action]) -> bool {
    let too_old = |said: &SnapshotAnswer| matches!(said, SnapshotAnswer::TooOld { .. });
    matches!(actions, [Action::Send(_, Answer::Snapshot { said, .. })] if too_old(said))
}

#[test]
fn a_snapshot_sees_what_was_when_its_request_came() {
    let mut ground = Ground::new("cbl");
    let client = ground.join();
    apply(&mut ground, 10, 0, 1);
    let begun = ground.say(client, begin(0)).expect("it is honest");
    assert_eq!(begun, [Action::BeginSnapshot { client, number: 0, moment: Lsn(10) }]);
    apply(&mut ground, 20, 0, 2);
    ground.say(client, begin(1)).expect("it is honest");
    apply(&mut ground, 30, 0, 3);
    let earlier = |byte: u8| Some(AsOf::Earlier(Rc::from([byte; 100])));
    assert_eq!(as_of(&mut ground, (client, 0), 0).0, earlier(2));
    assert_eq!(as_of(&mut ground, (client, 1), 0).0, earlier(3));
    assert_eq!(as_of(&mut ground, (client, 1), 1).0, Some(AsOf::Present));
    let read = ground.say(client, snapshot(1, SnapshotRequest::Read { page: page(0) })).expect("it is honest");
    assert_eq!(read, [Action::ReadSnapshot { client, number: 1, page: page(0) }]);
    ground.say(client, snapshot(0, SnapshotRequest::End)).expect("it is honest");
    ground.say(client, snapshot(0, SnapshotRequest::End)).expect("a second time is late");
    let (found, told) = as_of(&mut ground, (client, 0), 0);
    assert!(found.is_none() && is_too_old(&told), "it is none: {told:?}");
    ground.server.lose(client, &ground.memory, &mut Vec::new());
    assert_eq!(ground.server.snapshots(), (0, 0));
}

#[test]
fn what_was_not_at_hand_is_lost_and_said_to_be() {
    let mut ground = Ground::new("cbl");
    let client = ground.join();
    ground.say(client, begin(0)).expect("it is honest");
    ground.server.applied(Lsn(10), [page(0)], |_| None, &mut Vec::new());
    let (found, told) = as_of(&mut ground, (client, 0), 0);
    assert!(found.is_none() && is_too_old(&told), "{found:?}, {told:?}");
    assert_eq!(ground.server.snapshots(), (0, 0));
}

#[test]
fn without_room_the_oldest_are_told_that_they_are_too_old() {
    let mut ground = Ground::new("cbl");
    ground.server.set_snapshot_room(1_000);
    let (one, other) = (ground.join(), ground.join());
    ground.say(one, begin(0)).expect("it is honest");
    let mut told = Vec::new();
    for at in 0..20 {
        told.extend(apply(&mut ground, 10 + at, at as u32, 0));
        if at == 1 {
            ground.say(other, begin(0)).expect("it is honest");
        }
        assert!(ground.server.snapshots().1 <= 1_000);
    }
    let is_told = |action: &Action, client| matches!(action, Action::Send(to, _) if *to == client);
    assert!(told.iter().all(|action| is_too_old(std::slice::from_ref(action))), "{told:?}");
    assert!(matches!(&told[..], [first, second] if is_told(first, one) && is_told(second, other)), "{told:?}");
    assert_eq!((ground.server.snapshots(), ground.server.counts().snapshots_lost), ((0, 0), 2));
}

#[test]
fn a_client_has_no_more_snapshots_than_the_limit_and_leaves_none() {
    let mut ground = Ground::new("cbl");
    let (greedy, modest) = (ground.join(), ground.join());
    for number in 0..SNAPSHOTS_MAX as u64 {
        ground.say(greedy, begin(number)).expect("it may");
    }
    ground.say(modest, begin(7)).expect("others have their own");
    apply(&mut ground, 10, 0, 0);
    assert_eq!(ground.server.snapshots().0, SNAPSHOTS_MAX + 1);
    let refused = ground.say(greedy, begin(SNAPSHOTS_MAX as u64)).expect_err("no honest one does that");
    assert_eq!(refused.client, greedy);
    ground.say(modest, begin(7)).expect_err("it gives each number once");
    ground.server.lose(greedy, &ground.memory, &mut Vec::new());
    assert_eq!(ground.server.snapshots().0, 1);
    ground.server.revoke(modest, &ground.memory, &mut Vec::new());
    assert_eq!(ground.server.snapshots(), (0, 0));
}

#[test]
fn a_node_without_a_grant_sees_nothing_of_a_page_as_it_was() {
    let mut ground = Ground::new("cbl");
    let address = "10.0.0.1:7000".parse().expect("an address");
    let granted = BTreeMap::from([(PartitionId(7), Right::Write)]);
    let newcomer = Newcomer { address, name: Some("stranger".to_owned()), access: Access::Granted(granted) };
    let stranger = ground.server.join(newcomer, (None, Secret(1)), &ground.memory, &mut Vec::new()).session.client;
    ground.say(stranger, begin(0)).expect("it may");
    let refused = ground.say(stranger, snapshot(0, SnapshotRequest::Read { page: page(0) })).expect("it may ask");
    let [Action::Send(_, Answer::Snapshot { said: SnapshotAnswer::Failed { is_denied: true, .. }, .. })] = refused[..]
    else {
        panic!("{refused:?}")
    };
}

#[test]
fn what_is_no_record_of_a_set_is_not_looked_for_in_the_past() {
    let mut ground = Ground::new("cbl");
    let client = ground.join();
    ground.say(client, begin(0)).expect("it may");
    let ask =
        |partition: PartitionId, ask| snapshot(0, SnapshotRequest::Set { question: 1, partition: partition.0, ask });
    let found = ground.say(client, ask(SET, PastAsk::Record(vec![1]))).expect("it is honest");
    assert!(matches!(&found[..], [Action::ReadPastOfSet { .. }]), "{found:?}");
    for asked in [PastAsk::Record(vec![1]), PastAsk::Scan(0)] {
        let refused = ground.say(client, ask(page(0).partition, asked)).expect("it may have been one");
        let [Action::Send(_, Answer::Snapshot { said: SnapshotAnswer::Set { question: 1, said }, .. })] = &refused[..]
        else {
            panic!("{refused:?}")
        };
        assert!(matches!(said, SetAnswer::Failed { is_denied: false, .. }), "{said:?}");
    }
    let long = PastAsk::Record(vec![1; engine::set::KEY_MAX + 1]);
    ground.say(client, ask(SET, long)).expect_err("no set has such a key");
}
