//! What clients get that lack a grant.

use super::*;
use crate::grants::{Access, Grants, Right};
use crate::message::{
    PastAsk, RecordLock, SetAnswer, SetAsk, SetEntry, SetQuestion, SetRange, SetRecord, SnapshotAnswer, SnapshotRequest,
};
use std::collections::BTreeMap;

/// A client joins that may do this with the partition of [`page`], and nothing else.
fn join(ground: &mut Ground, name: &str, right: Option<Right>, former: Option<&Former>) -> Joined {
    let rights: BTreeMap<_, _> = right.map(|right| (PartitionId(1), right)).into_iter().collect();
    let address = "10.0.0.1:7000".parse().expect("an address");
    let newcomer = Newcomer { address, name: Some(name.to_owned()), access: Access::Granted(rights) };
    let joined = ground.server.join(newcomer, (former, Secret(11)), &ground.memory, &mut Vec::new());
    ground.server.check().expect("the state is right");
    joined
}

fn is_denied(actions: &[Action], client: ClientId) -> bool {
    matches!(actions, [Action::Send(to, Answer::Failed { is_denied: true, .. })] if *to == client)
}

#[test]
fn a_node_without_a_grant_gets_no_copy_and_one_that_may_only_read_no_write_lock() {
    let mut ground = Ground::new("cbl");
    ground.memory = Having(vec![page(0)]);
    let stranger = join(&mut ground, "stranger", None, None).session.client;
    let auditor = join(&mut ground, "auditor", Some(Right::Read), None).session.client;
    let teller = join(&mut ground, "teller", Some(Right::Write), None).session.client;
    let refused = ground.say(stranger, read(copy(0, 0), 0, None)).expect("to ask is no misdeed");
    assert!(is_denied(&refused, stranger), "{refused:?}");
    assert_eq!(ground.server.registered(), 0);
    for client in [auditor, teller] {
        let sent = ground.say(client, read(copy(0, 0), 0, None)).expect("it may");
        assert!(matches!(sent[..], [Action::SendPage { to, .. }] if to == client), "{sent:?}");
    }
    let refused = ground.say(auditor, write(copy(0, 0), 0)).expect("to ask is no misdeed");
    let [Action::Send(to, Answer::Denied { transaction, reason })] = &refused[..] else { panic!("{refused:?}") };
    assert_eq!((*to, *transaction), (auditor, Transaction(0)));
    assert!(reason.contains("'auditor'") && reason.contains("write"), "{reason}");
    assert_eq!(ground.server.counts().denials, 2);
    // What it was not granted is in no one's way.
    ground.say(auditor, Request::Abort { transaction: Transaction(0) }).expect("it is honest");
    ground.say(auditor, Request::CalledBack { copy: copy(0, 0) }).expect("it is honest");
    let asked = ground.say(teller, write(copy(0, 0), 0)).expect("it may");
    assert!(granted(&asked, teller), "{asked:?}");
}

/// Earlier versions of pages would be kept for it, and each step would look whether it is open.
#[test]
fn no_snapshot_is_open_of_a_node_that_may_read_nothing() {
    let mut ground = Ground::new("cbl");
    let of = |request| Request::Snapshot { number: 3, request };
    let stranger = join(&mut ground, "stranger", None, None).session.client;
    let auditor = join(&mut ground, "auditor", Some(Right::Read), None).session.client;
    let told = ground.say(stranger, of(SnapshotRequest::Begin)).expect("to ask is no misdeed");
    let [Action::Send(to, Answer::Snapshot { number: 3, said: SnapshotAnswer::Begun { .. } })] = told[..] else {
        panic!("{told:?}")
    };
    assert_eq!((to, ground.server.snapshots().0), (stranger, 0));
    let refused = ground.say(stranger, of(SnapshotRequest::Read { page: page(0) })).expect("to ask is no misdeed");
    assert!(is_all_denied(&refused, stranger), "{refused:?}");
    ground.say(stranger, of(SnapshotRequest::End)).expect("it is honest");
    ground.say(auditor, of(SnapshotRequest::Begin)).expect("it may");
    assert_eq!(ground.server.snapshots().0, 1);
}

/// Whether all that comes of what was asked is that there is no grant for it.
fn is_all_denied(actions: &[Action], client: ClientId) -> bool {
    let [Action::Send(to, answer)] = actions else { return false };
    let is_denied = match answer {
        Answer::Failed { is_denied, .. } | Answer::NoRecord { is_denied, .. } => *is_denied,
        Answer::NoSetRecord { is_denied, .. } | Answer::Set { said: SetAnswer::Failed { is_denied, .. }, .. } => {
            *is_denied
        }
        Answer::Snapshot { said: SnapshotAnswer::Failed { is_denied, .. }, .. } => *is_denied,
        Answer::Snapshot { said: SnapshotAnswer::Set { said, .. }, .. } => {
            matches!(said, SetAnswer::Failed { is_denied: true, .. })
        }
        answer => matches!(answer, Answer::Denied { .. }),
    };
    is_denied && *to == client
}

/// All ways to ask for what a page or a set has, and whether it takes a grant to write.
fn ways_to_ask() -> Vec<(Request, bool)> {
    let transaction = Transaction(0);
    let record = |writes| Request::Record { page: page(0), lock: RecordLock { slot: 0, transaction, writes } };
    let of_set = |writes| Request::SetRecord(SetRecord { partition: SET.0, key: vec![1], transaction, writes });
    let about = |ask| Request::Set(SetQuestion { transaction, number: 1, partition: SET.0, ask });
    let range = || SetRange { index: 0, from: Vec::new(), to: None, behind: None };
    let of_past = |request| Request::Snapshot { number: 0, request };
    let past = |ask| of_past(SnapshotRequest::Set { question: 1, partition: SET.0, ask });
    vec![
        (read(copy(0, 0), 0, None), false),
        (record(false), false),
        (record(true), true),
        (of_set(false), false),
        (of_set(true), true),
        (about(SetAsk::Range(range())), false),
        (about(SetAsk::Scan(0)), false),
        (about(SetAsk::Entries(vec![SetEntry { index: 0, of: vec![1] }])), true),
        (about(SetAsk::Arrival), true),
        (of_past(SnapshotRequest::Read { page: page(0) }), false),
        (past(PastAsk::Record(vec![1])), false),
        (past(PastAsk::Range(range())), false),
        (past(PastAsk::Scan(0)), false),
    ]
}

#[test]
fn whatever_is_asked_for_takes_a_grant() {
    for (asked, takes_write) in ways_to_ask() {
        // Of another partition, to read these, to write these.
        for (right, partitions) in [
            (Right::Write, vec![PartitionId(7)]),
            (Right::Read, vec![PartitionId(1), SET]),
            (Right::Write, vec![PartitionId(1), SET]),
        ] {
            let mut ground = Ground::new("ps-aa");
            let is_granted = partitions.contains(&SET) && (right == Right::Write || !takes_write);
            let rights = partitions.into_iter().map(|partition| (partition, right)).collect();
            let address = "10.0.0.1:7000".parse().expect("an address");
            let newcomer = Newcomer { address, name: Some("node".to_owned()), access: Access::Granted(rights) };
            let joined = ground.server.join(newcomer, (None, Secret(11)), &ground.memory, &mut Vec::new());
            let client = joined.session.client;
            ground.say(client, Request::Snapshot { number: 0, request: SnapshotRequest::Begin }).expect("it may");
            let answered = ground.say(client, asked.clone()).expect("to ask is no misdeed");
            assert_eq!(is_all_denied(&answered, client), !is_granted, "{asked:?}, {right:?}: {answered:?}");
            assert_eq!(ground.server.counts().denials, u64::from(!is_granted), "{asked:?}");
        }
    }
}

#[test]
fn copies_that_a_node_may_not_read_are_not_taken_over_from_an_earlier_session() {
    for right in [None, Some(Right::Read)] {
        let mut ground = Ground::new("cbl");
        ground.server.gather(Some(OF_ANY_EPOCH));
        let session = Session { epoch: 0, client: ClientId(3) };
        let former = Former { session, secret: Secret(9), copies: vec![copy(0, 0)] };
        let joined = join(&mut ground, "node", right, Some(&former));
        assert_eq!(joined.keeps, right.is_some(), "{joined:?}");
        assert_eq!(ground.server.registered(), usize::from(right.is_some()));
        // As if it were a page that has left its memory.
        let again = ground.say(joined.session.client, read(copy(0, 0), 0, None)).expect("to ask is no misdeed");
        assert_eq!(is_denied(&again, joined.session.client), right.is_none(), "{again:?}");
    }
}

#[test]
fn a_session_is_not_taken_over_under_another_name() {
    let mut ground = Ground::new("cbl");
    let first = join(&mut ground, "one", Some(Right::Write), None);
    ground.say(first.session.client, read(copy(0, 0), 0, None)).expect("it may");
    let former = Former { session: first.session, secret: Secret(11), copies: vec![copy(0, 0)] };
    let joined = join(&mut ground, "two", Some(Right::Write), Some(&former));
    assert!(!joined.keeps && joined.replaces.is_none(), "{joined:?}");
    let joined = join(&mut ground, "one", Some(Right::Write), Some(&former));
    assert!(joined.keeps && joined.replaces == Some(first.session.client), "{joined:?}");
}

#[test]
fn no_bytes_are_believed_of_a_node_that_may_only_read() {
    let mut ground = Ground::new("fwd-s");
    let reader = join(&mut ground, "reader", Some(Right::Read), None).session.client;
    let other = join(&mut ground, "other", Some(Right::Read), None).session.client;
    ground.say(reader, read(copy(0, 0), 0, None)).expect("it may");
    // It is not asked to send the page to another.
    let sent = ground.say(other, read(copy(0, 0), 0, None)).expect("it may");
    assert!(matches!(sent[..], [Action::SendPage { found: Found::Disk, .. }]), "{sent:?}");
    // Nor to send back the last copy.
    ground.say(other, read(copy(1, 1), 0, None)).expect("it may");
    let sent = ground.say(other, read(copy(2, 2), 0, Some(copy(1, 1)))).expect("it may");
    assert!(matches!(sent[..], [Action::SendPage { fate: crate::message::LeavingFate::Dropped, .. }]), "{sent:?}");
    // A node that may write is.
    let writer = join(&mut ground, "writer", Some(Right::Write), None).session.client;
    ground.say(writer, read(copy(5, 0), 0, None)).expect("it may");
    let forwarded = ground.say(other, read(copy(5, 5), 0, None)).expect("it may");
    let [Action::Send(to, Answer::Forward { name, .. })] = &forwarded[..] else { panic!("{forwarded:?}") };
    assert_eq!((*to, name.as_deref()), (writer, Some("other")), "it sends the page to no other node");
}

#[test]
fn a_node_whose_rights_were_taken_away_does_not_count_as_one_that_was_not_heard() {
    for is_revoked in [true, false] {
        let mut ground = Ground::new("cbl");
        let client = join(&mut ground, "teller", Some(Right::Write), None).session.client;
        ground.say(client, read(copy(0, 0), 0, None)).expect("it may");
        if is_revoked {
            ground.step(|server, memory, actions| server.revoke(client, memory, actions));
        }
        ground.server.note_unheard(client);
        assert_eq!(ground.server.counts().unheard, u64::from(!is_revoked));
    }
}

#[test]
fn a_table_of_grants_says_what_it_does_not_know() {
    let text = r#"{"node": {"Teller": {"write": ["account"], "read": ["branch"]}, "all": {"read": ["*"]}}}"#;
    let grants: Grants = serde_json::from_str(text).expect("a table");
    assert_eq!(grants.unknown(&["account", "branch"]), None);
    assert_eq!(grants.unknown(&["account"]), Some(("Teller", "branch")));
    let partitions = [(PartitionId(1), "account"), (PartitionId(2), "branch"), (PartitionId(3), "salary")];
    let rights = |name| {
        let access = grants.access(name, partitions);
        partitions.map(|(id, _)| (access.allows(id, Right::Read), access.allows(id, Right::Write)))
    };
    assert_eq!(rights("teller"), [(true, true), (true, false), (false, false)]);
    assert_eq!(rights("all"), [(true, false); 3]);
    assert_eq!(rights("other"), [(false, false); 3]);
    for wrong in [r#"{"nodes": {}}"#, r#"{"node": {"one": {"reads": []}}}"#] {
        assert!(serde_json::from_str::<Grants>(wrong).is_err(), "{wrong}");
    }
}
