//! Clients that are gone while commits of theirs are under way.

use super::*;
use crate::grants::{Access, Right};

/// A client that has read pages 0 and 1, commits the first, and is gone.
fn gone_while_it_commits(ground: &mut Ground) -> ClientId {
    let gone = ground.join();
    ground.say(gone, read_to_write()).expect("it is honest");
    ground.say(gone, read(copy(1, 1), 1, None)).expect("it is honest");
    ground.say(gone, commit_of_first_page()).expect("it is honest");
    gone
}

/// The nodes that are shown, and whether they are gone.
fn shown(ground: &Ground) -> Vec<(ClientId, bool)> {
    let nodes = ground.server.survey(Instant::from_ns(0), &|_| String::new()).nodes;
    assert!(nodes.iter().all(|node| !node.is_revoked), "they have lost no grant");
    nodes.into_iter().map(|node| (node.client, node.is_gone)).collect()
}

/// Nothing is logged behind a failed log, so what others change behind that commit comes to nothing, and they are told so.
#[test]
fn a_client_whose_commit_is_undecided_is_in_the_way_only_of_what_that_changes() {
    for is_gone_first in [true, false] {
        let mut ground = Ground::new("cbl");
        let (gone, other) = (gone_while_it_commits(&mut ground), ground.join());
        ground.say(other, read(copy(1, 0), 1, None)).expect("it is honest");
        let lose = |ground: &mut Ground| ground.step(|server, memory, actions| server.lose(gone, memory, actions));
        let mut said = Vec::new();
        if is_gone_first {
            said.extend(lose(&mut ground));
        }
        said.extend(ground.say(other, write(copy(1, 0), 1)).expect("it is honest"));
        assert!(!granted(&said, other), "{said:?}");
        said.extend(
            ground.step(|server, memory, actions| server.note_undecided((gone, Transaction(1)), memory, actions)),
        );
        if !is_gone_first {
            assert!(!granted(&said, other), "its lease is not over: {said:?}");
            said.extend(lose(&mut ground));
        }
        assert!(granted(&said, other), "{said:?}");
        assert_eq!(
            ground.server.writer(page(0)),
            Some((gone, Transaction(1))),
            "that is not known before the next start"
        );
        assert_eq!(shown(&ground), [(other, false)]);
        let former = Former { session: Session { epoch: 1, client: gone }, secret: Secret(9), copies: Vec::new() };
        assert_eq!(ground.join_again(&former).former, Outcome::Unknown);
    }
}

/// Nodes of one name that leave and come again at once.
#[test]
fn the_places_of_those_that_are_gone_are_free_soon() {
    let mut ground = Ground::new("cbl");
    let rights = BTreeMap::from([(PartitionId(1), Right::Write)]);
    let address: SocketAddr = "10.0.0.1:7000".parse().expect("an address");
    let clerk = Newcomer { address, name: Some("clerk".to_owned()), access: Access::Granted(rights) };
    let nodes: Vec<ClientId> = (0..ALIKE_MAX)
        .map(|_| ground.server.join(clerk.clone(), (None, Secret(9)), &ground.memory, &mut Vec::new()).session.client)
        .collect();
    assert!(!ground.server.has_room_soon(None, &clerk), "all of them stay");
    let gone = nodes[3];
    ground.say(gone, read_to_write()).expect("it is honest");
    ground.say(gone, commit_of_first_page()).expect("it is honest");
    ground.say(gone, Request::Leave).expect("it is honest");
    assert!(shown(&ground).contains(&(gone, true)) && shown(&ground).contains(&(nodes[0], false)));
    assert!(ground.server.lack_of_room(None, &clerk).is_some());
    assert!(ground.server.has_room_soon(None, &clerk));
    ground.step(|server, memory, actions| server.committed((gone, Transaction(1)), memory, actions));
    assert_eq!(ground.server.lack_of_room(None, &clerk), None);
}
