//! Connections between two drivers.

use crate::network::{receive, received, send};
use crate::subject::{Peer, Subject};
use base::time::MILLISECOND_NS;
use driver::{Completion, Driver, FaultKind, Op, Output, SocketId, Token};
use std::net::SocketAddr;

/// Drivers that are asked in turn for this long at a time.
const TURN_NS: u64 = MILLISECOND_NS;

/// The driver under test and another one that has connected to it.
struct Two {
    subject: Subject,
    peer: Box<dyn Driver>,
    next: u64,
}

impl Two {
    /// Both, and the ends of a connection: here, there.
    fn connected(mut subject: Subject) -> Option<(Two, SocketId, SocketId)> {
        let Some(Peer { driver: peer, address }) = subject.peer.take() else {
            println!("skipped: this driver is alone");
            return None;
        };
        let (listener, address) = subject.listen_at(SocketAddr::new(address, 0));
        let mut two = Two { subject, peer, next: 0 };
        let (accept, connect) = (two.subject.submit(Op::Accept { listener }), two.there(Op::Connect { address }));
        let (here, there) = two.both(accept, connect);
        let socket = |completion: Completion| match completion.result {
            Ok(Output::Connected { connection, .. }) => connection,
            other => panic!("connecting gave {other:?}"),
        };
        Some((two, socket(here), socket(there)))
    }

    fn there(&mut self, op: Op) -> Token {
        self.next += 1;
        self.peer.submit(Token(self.next), op);
        Token(self.next)
    }

    /// Waits for one operation here and one there.
    fn both(&mut self, here: Token, there: Token) -> (Completion, Completion) {
        let (mut found, mut peers) = (Vec::new(), Vec::new());
        while found.is_empty() || peers.is_empty() {
            for (driver, done) in [(&mut self.subject.driver, &mut found), (&mut self.peer, &mut peers)] {
                let until = driver.now().plus_ns(TURN_NS);
                driver.park(Some(until), done).expect("a set timer is no reason to stop");
            }
        }
        assert_eq!((found.len(), found[0].token, peers.len(), peers[0].token), (1, here, 1, there));
        (found.remove(0), peers.remove(0))
    }

    /// Waits for one operation here, while the other driver does nothing.
    fn here(mut self, token: Token) -> (Subject, Completion) {
        drop(self.peer);
        let completion = self.subject.await_all(&[token]).remove(0);
        (self.subject, completion)
    }
}

pub(crate) fn a_peer_that_dies_ends_its_connections(subject: Subject) {
    let Some((mut two, here, there)) = Two::connected(subject) else { return };
    let (wait, sent) = (two.subject.submit(receive(here, 100)), two.there(send(there, b"I am here")));
    let (wait, _) = two.both(wait, sent);
    assert_eq!(received(wait), b"I am here");
    let wait = two.subject.submit(receive(here, 100));
    let (mut subject, completion) = two.here(wait);
    assert!(received(completion).is_empty(), "nothing more comes");
    // The network may take a send before it knows better, but not for ever.
    let fault = (0..1_000).find_map(|_| {
        let ended = subject.run(send(here, b"are you?")).result.err();
        subject.rest_ns(MILLISECOND_NS / 10);
        ended
    });
    assert!(matches!(fault.expect("there is no one to receive it").kind, FaultKind::Reset | FaultKind::Closed));
    subject.succeed(Op::Close { socket: here });
}

pub(crate) fn a_peer_that_dies_with_bytes_unread_resets(subject: Subject) {
    let Some((mut two, here, there)) = Two::connected(subject) else { return };
    let (sent, wait) = (two.subject.submit(send(here, b"read me, both of us")), two.there(receive(there, 7)));
    two.both(sent, wait);
    let wait = two.subject.submit(receive(here, 100));
    let (_, completion) = two.here(wait);
    assert_eq!(completion.result.expect_err("it was not read").kind, FaultKind::Reset);
}
