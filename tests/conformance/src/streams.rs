//! Many bytes on one connection.

use crate::network::{receive, received, send};
use crate::subject::Subject;
use base::Random;
use base::time::MILLISECOND_NS;
use driver::{Output, SocketId, Token};

/// A sender and a receiver of one stream, each with one operation under way.
struct Stream<'a> {
    subject: &'a mut Subject,
    ends: (SocketId, SocketId),
    sending: Option<Token>,
    receiving: Option<Token>,
    sent: usize,
    got: Vec<u8>,
}

impl Stream<'_> {
    /// Sends these bytes in pieces of random lengths, and receives them in others.
    fn carry(&mut self, bytes: &[u8], random: &mut Random) {
        let mut under_way = 0;
        while self.got.len() < bytes.len() {
            if self.sending.is_none() && self.sent < bytes.len() {
                let piece = (random.between(1, 200_000) as usize).min(bytes.len() - self.sent);
                under_way = piece;
                let op = send(self.ends.0, &bytes[self.sent..self.sent + piece]);
                self.sending = Some(self.subject.submit(op));
            }
            if self.receiving.is_none() {
                self.receiving = Some(self.subject.submit(receive(self.ends.1, random.between(1, 50_000) as usize)));
            }
            let mut done = Vec::new();
            self.subject.driver.park(None, &mut done).expect("the machine does not stop");
            for completion in done {
                if Some(completion.token) == self.sending {
                    assert_eq!(completion.result, Ok(Output::Done));
                    self.sending = None;
                    self.sent += under_way;
                } else {
                    assert_eq!(Some(completion.token), self.receiving.take());
                    let piece = received(completion);
                    assert!(!piece.is_empty(), "the stream goes on");
                    self.got.extend(piece);
                }
            }
        }
    }
}

fn noise(length: usize) -> Vec<u8> {
    let mut random = Random::stream(9, "noise");
    (0..length).map(|_| random.below(256) as u8).collect()
}

pub(crate) fn large_transfers_arrive_in_pieces_and_in_order(mut subject: Subject) {
    let (client, server) = subject.pair();
    let bytes = noise(3_000_000);
    let mut random = Random::stream(10, "pieces");
    for ends in [(client, server), (server, client)] {
        let (subject, got) = (&mut subject, Vec::new());
        let mut stream = Stream { subject, ends, sending: None, receiving: None, sent: 0, got };
        stream.carry(&bytes, &mut random);
        let rest = stream.sending.take();
        assert!(stream.got == bytes, "each byte arrives in its place");
        // The last send may be told of after its bytes.
        if let Some(token) = rest {
            stream.subject.await_all(&[token]);
        }
    }
}

/// What is sent and not received is bounded.
pub(crate) fn a_receiver_that_rests_stops_its_sender(mut subject: Subject) {
    const PIECE: usize = 256 << 10;
    const PIECES_MAX: usize = 256;
    let (client, server) = subject.pair();
    let piece = noise(PIECE);
    let mut sent = 0;
    let last = loop {
        assert!(sent < PIECES_MAX, "{sent} pieces of {PIECE} bytes stand somewhere");
        let token = subject.submit(send(client, &piece));
        match subject.rest_ns(100 * MILLISECOND_NS).pop() {
            Some(completion) => assert_eq!((completion.token, completion.result), (token, Ok(Output::Done))),
            None => break token,
        }
        sent += 1;
    };
    let (mut got, mut is_sent) = (0, false);
    let mut waiting = subject.submit(receive(server, 100_000));
    let mut done = Vec::new();
    while got < (sent + 1) * PIECE {
        subject.driver.park(None, &mut done).expect("the machine does not stop");
        for completion in done.drain(..) {
            if completion.token == last {
                is_sent = true;
                continue;
            }
            assert_eq!(completion.token, waiting);
            for byte in received(completion) {
                assert_eq!(byte, piece[got % PIECE]);
                got += 1;
            }
            if got < (sent + 1) * PIECE {
                waiting = subject.submit(receive(server, 100_000));
            }
        }
    }
    if !is_sent {
        subject.await_all(&[last]);
    }
}
