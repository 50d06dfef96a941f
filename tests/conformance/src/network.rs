//! Sockets, at both ends of connections of one driver with itself.

use crate::subject::Subject;
use base::time::MILLISECOND_NS;
use driver::{Completion, FaultKind, Frame, Op, Output, SocketId, Token};
use std::net::SocketAddr;

pub(crate) fn frame(bytes: &[u8]) -> Frame {
    let mut frame = Frame::allocate(1, bytes.len().max(1)).pop().expect("one frame");
    frame[..bytes.len()].copy_from_slice(bytes);
    frame
}

pub(crate) fn send(connection: SocketId, bytes: &[u8]) -> Op {
    Op::Send { connection, length: bytes.len() as u32, buffer: frame(bytes) }
}

pub(crate) fn receive(connection: SocketId, length: usize) -> Op {
    Op::Receive { connection, length: length as u32, buffer: frame(&vec![0xEE; length]) }
}

/// What a receive has brought.
pub(crate) fn received(completion: Completion) -> Vec<u8> {
    let buffer = completion.buffer.expect("a receive gives its buffer back");
    match completion.result {
        Ok(Output::Received { length }) => buffer[..length as usize].to_vec(),
        other => panic!("receiving gave {other:?}"),
    }
}

fn connected(completion: Completion) -> (SocketId, SocketAddr) {
    match completion.result {
        Ok(Output::Connected { connection, peer }) => (connection, peer),
        other => panic!("connecting gave {other:?}"),
    }
}

fn kind(completion: Completion) -> FaultKind {
    match completion.result {
        Err(fault) => {
            assert!(!fault.message.is_empty());
            fault.kind
        }
        Ok(output) => panic!("{output:?} is no failure"),
    }
}

impl Subject {
    /// Listens at a port that the driver chooses.
    pub(crate) fn listen(&mut self) -> (SocketId, SocketAddr) {
        self.listen_at("127.0.0.1:0".parse().expect("an address"))
    }

    pub(crate) fn listen_at(&mut self, address: SocketAddr) -> (SocketId, SocketAddr) {
        match self.succeed(Op::Listen { address }).0 {
            Output::Listening { listener, address } => {
                assert_ne!(address.port(), 0);
                (listener, address)
            }
            other => panic!("listening gave {other:?}"),
        }
    }

    /// Connects to a listener of its own: the end that connected, and the one that accepted.
    fn connect(&mut self, listener: SocketId, address: SocketAddr) -> (SocketId, SocketId) {
        let tokens = [self.submit(Op::Accept { listener }), self.submit(Op::Connect { address })];
        let mut ends = self.await_all(&tokens).into_iter().map(connected);
        let ((server, _), (client, peer)) = (ends.next().expect("two"), ends.next().expect("two"));
        assert_eq!(peer, address);
        assert_ne!(client, server);
        (client, server)
    }

    pub(crate) fn pair(&mut self) -> (SocketId, SocketId) {
        let (listener, address) = self.listen();
        let ends = self.connect(listener, address);
        self.succeed(Op::Close { socket: listener });
        ends
    }

    /// Receives exactly these many bytes.
    fn received(&mut self, connection: SocketId, count: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        while bytes.len() < count {
            let piece = received(self.run(receive(connection, count - bytes.len())));
            assert!(!piece.is_empty(), "the stream ends after {} of {count} bytes", bytes.len());
            bytes.extend(piece);
        }
        bytes
    }

    fn is_at_end(&mut self, connection: SocketId) -> bool {
        received(self.run(receive(connection, 10))).is_empty()
    }
}

pub(crate) fn bytes_go_there_and_back(mut subject: Subject) {
    let (client, server) = subject.pair();
    for round in 0..50u8 {
        let (question, answer) = (vec![round; 1 + usize::from(round) * 97], vec![!round; 3]);
        let (output, buffer) = subject.succeed(send(client, &question));
        assert_eq!((output, buffer.as_deref()), (Output::Done, Some(&question[..])));
        assert_eq!(subject.received(server, question.len()), question);
        // A receive that was there before the bytes.
        let early = subject.submit(receive(client, 100));
        let token = subject.submit(send(server, &answer));
        let [early, _] = <[_; 2]>::try_from(subject.await_all(&[early, token])).expect("two");
        assert_eq!(received(early), answer);
    }
    assert_eq!(subject.succeed(send(client, b"")).0, Output::Done, "nothing is sent at once");
}

pub(crate) fn many_connections_are_kept_apart(mut subject: Subject) {
    let (listener, address) = subject.listen();
    let pairs: Vec<_> = (0..120).map(|_| subject.connect(listener, address)).collect();
    let bytes = |number: usize, way: usize| vec![(number * 2 + way) as u8; 10 + number];
    let mut tokens = Vec::new();
    for (number, (client, server)) in pairs.iter().enumerate() {
        tokens.push(subject.submit(receive(*server, 500)));
        tokens.push(subject.submit(receive(*client, 500)));
        tokens.push(subject.submit(send(*client, &bytes(number, 0))));
        tokens.push(subject.submit(send(*server, &bytes(number, 1))));
    }
    let mut completions = subject.await_all(&tokens).into_iter();
    for number in 0..pairs.len() {
        for way in [0, 1] {
            assert_eq!(received(completions.next().expect("one for each")), bytes(number, way));
        }
        assert!(completions.by_ref().take(2).all(|sent| sent.result == Ok(Output::Done)));
    }
}

pub(crate) fn one_half_can_be_closed(mut subject: Subject) {
    let (client, server) = subject.pair();
    subject.succeed(send(client, b"all I have to say"));
    subject.succeed(Op::Shutdown { connection: client });
    let fault = subject.fail(send(client, b"but"));
    assert_eq!((fault.0.kind, fault.1.as_deref()), (FaultKind::Closed, Some(&b"but"[..])));
    assert_eq!(subject.received(server, 17), b"all I have to say");
    assert!(subject.is_at_end(server) && subject.is_at_end(server), "the end stays");
    subject.succeed(send(server, b"I see"));
    assert_eq!(subject.received(client, 5), b"I see");
    subject.succeed(Op::Close { socket: server });
    assert!(subject.is_at_end(client));
    subject.succeed(Op::Close { socket: client });
}

pub(crate) fn a_closed_listener_refuses(mut subject: Subject) {
    let (listener, address) = subject.listen();
    let accept = subject.submit(Op::Accept { listener });
    let close = subject.submit(Op::Close { socket: listener });
    let [accept, close] = <[_; 2]>::try_from(subject.await_all(&[accept, close])).expect("two");
    assert_eq!((kind(accept), close.result), (FaultKind::Closed, Ok(Output::Done)));
    let refused = subject.fail(Op::Connect { address }).0;
    assert_eq!(refused.kind, FaultKind::Refused);
    assert!(refused.message.contains(&address.to_string()), "{refused}");
    assert_eq!(subject.fail(Op::Accept { listener }).0.kind, FaultKind::Closed);
    let (_, again) = subject.listen_at(address);
    assert_eq!(again, address, "the address is free again");
}

pub(crate) fn addresses_that_cannot_be_used_are_named(mut subject: Subject) {
    let (_, address) = subject.listen();
    let taken = subject.fail(Op::Listen { address }).0;
    assert_eq!(taken.kind, FaultKind::AddressInUse);
    assert!(taken.message.contains(&address.to_string()), "{taken}");
    // An address for documentation, which no machine has.
    let foreign = "192.0.2.77:4000".parse().expect("an address");
    let fault = subject.fail(Op::Listen { address: foreign }).0;
    assert_eq!(fault.kind, FaultKind::Unreachable);
    assert!(fault.message.contains("192.0.2.77"), "{fault}");
}

pub(crate) fn a_close_ends_what_is_under_way(mut subject: Subject) {
    let (client, server) = subject.pair();
    let waits = subject.submit(receive(client, 100));
    assert!(subject.rest_ns(MILLISECOND_NS).is_empty());
    let close = subject.submit(Op::Close { socket: client });
    let again = subject.submit(Op::Close { socket: client });
    let [waits, close, again] = <[_; 3]>::try_from(subject.await_all(&[waits, close, again])).expect("three");
    assert!(waits.buffer.is_some(), "the buffer comes back");
    assert_eq!(kind(waits), FaultKind::Closed);
    assert_eq!((close.result, again.result), (Ok(Output::Done), Ok(Output::Done)));
    assert!(subject.is_at_end(server));
    assert_eq!(subject.fail(receive(client, 1)).0.kind, FaultKind::Closed);

    // What the network has taken before the close arrives.
    let (client, server) = subject.pair();
    subject.succeed(send(client, b"farewell"));
    subject.succeed(Op::Close { socket: client });
    assert_eq!(subject.received(server, 8), b"farewell");
    assert!(subject.is_at_end(server));
}

pub(crate) fn bytes_not_received_make_a_close_a_reset(mut subject: Subject) {
    let (client, server) = subject.pair();
    subject.succeed(send(client, b"read me"));
    assert_eq!(subject.received(server, 1), b"r");
    subject.succeed(Op::Close { socket: server });
    assert_eq!(subject.fail(receive(client, 10)).0.kind, FaultKind::Reset);
    // The network may take a send before it knows better, but not for ever.
    let kind = (0..100).find_map(|_| subject.run(send(client, b"why?")).result.err());
    assert!(matches!(kind.expect("it is gone").kind, FaultKind::Reset | FaultKind::Closed));
}

pub(crate) fn cancelled_waits_end_and_lose_nothing(mut subject: Subject) {
    let (client, server) = subject.pair();
    let (listener, address) = subject.listen();
    let waits = [subject.submit(receive(server, 100)), subject.submit(Op::Accept { listener })];
    assert!(subject.rest_ns(MILLISECOND_NS).is_empty());
    waits.iter().for_each(|token| subject.driver.cancel(*token));
    let completions = subject.await_all(&waits);
    assert!(completions[0].buffer.is_some(), "the buffer comes back");
    assert!(completions.into_iter().all(|completion| kind(completion) == FaultKind::Cancelled));
    subject.succeed(send(client, b"still here"));
    assert_eq!(subject.received(server, 10), b"still here");
    subject.connect(listener, address);

    // Given up while the bytes are on their way: they are in the buffer, or they are there for the next one.
    for round in 0..30u8 {
        let (wait, sent) = (subject.submit(receive(server, 100)), subject.submit(send(client, &[round; 20])));
        subject.driver.cancel(wait);
        let [wait, _] = <[_; 2]>::try_from(subject.await_all(&[wait, sent])).expect("two");
        let mut bytes = if wait.result.is_ok() { received(wait) } else { Vec::new() };
        bytes.extend(subject.received(server, 20 - bytes.len()));
        assert_eq!(bytes, [round; 20]);
    }
    subject.driver.cancel(Token(u64::MAX - 1));
}

pub(crate) fn a_second_wait_on_a_socket_is_refused(mut subject: Subject) {
    let (client, server) = subject.pair();
    let (listener, address) = subject.listen();
    let first = [subject.submit(receive(server, 100)), subject.submit(Op::Accept { listener })];
    let second = [subject.submit(receive(server, 100)), subject.submit(Op::Accept { listener })];
    assert!(subject.await_all(&second).into_iter().all(|completion| kind(completion) == FaultKind::Busy));
    let others = [subject.submit(send(client, b"for the first")), subject.submit(Op::Connect { address })];
    let mut completions = subject.await_all(&[first[0], first[1], others[0], others[1]]).into_iter();
    assert_eq!(received(completions.next().expect("four")), b"for the first");
    assert!(completions.all(|completion| completion.result.is_ok()));
}

pub(crate) fn sockets_that_are_not_open_say_so(mut subject: Subject) {
    let unknown = SocketId(77_777);
    for op in [
        Op::Accept { listener: unknown },
        send(unknown, b"hello"),
        receive(unknown, 10),
        Op::Shutdown { connection: unknown },
    ] {
        assert_eq!(subject.fail(op).0.kind, FaultKind::Closed);
    }
    assert_eq!(subject.succeed(Op::Close { socket: unknown }).0, Output::Done);
    // A listener carries no bytes and a connection accepts nothing.
    let (listener, _) = subject.listen();
    let (client, _) = subject.pair();
    assert_eq!(subject.fail(receive(listener, 10)).0.kind, FaultKind::Closed);
    assert_eq!(subject.fail(Op::Accept { listener: client }).0.kind, FaultKind::Closed);
}

/// Waits of sockets end with their driver, and do not keep it.
pub(crate) fn a_driver_dropped_while_sockets_wait_is_sound(mut subject: Subject) {
    let (client, server) = subject.pair();
    let (listener, address) = subject.listen();
    for op in [
        receive(client, 10),
        receive(server, 10),
        Op::Accept { listener },
        // Nothing is at the other end, and nothing says so.
        Op::Connect { address: "192.0.2.77:4000".parse().expect("an address") },
        Op::Connect { address },
    ] {
        subject.submit(op);
    }
    let now = subject.driver.now();
    subject.driver.park(Some(now), &mut Vec::new()).expect("the machine does not stop");
    subject.submit(Op::Connect { address });
    let clock = subject.peer.take().map(|peer| peer.driver);
    let began = clock.as_ref().map(|clock| clock.now());
    drop(subject);
    if let (Some(clock), Some(began)) = (clock, began) {
        assert!(clock.now().since_ns(began) < 10_000 * MILLISECOND_NS, "nothing is waited for");
    }
}
