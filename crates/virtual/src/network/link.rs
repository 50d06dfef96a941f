//! A connection: two ends, and a stream of bytes from each to the other.

use driver::{Fault, FaultKind, Frame, Token};
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

/// The end that connected.
pub(crate) const CLIENT: usize = 0;
/// The end that accepted.
pub(crate) const SERVER: usize = 1;

pub(crate) struct Link {
    /// The machines at the ends.
    pub(crate) hosts: [u32; 2],
    pub(crate) ends: [End; 2],
    /// From each end to the other.
    pub(crate) flows: [Flow; 2],
    /// How many parcels are under way.
    pub(crate) parcels: u32,
}

pub(crate) struct End {
    pub(crate) address: SocketAddr,
    pub(crate) state: EndState,
    pub(crate) sending: Option<Sending>,
    pub(crate) receiving: Option<Receiving>,
    /// Why it sends no more, if it does not.
    pub(crate) mute: Option<Fault>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndState {
    /// It does not exist yet.
    Absent,
    /// A connect waits for the answer.
    Connecting(Token),
    Open,
    /// It was told that the connection is gone.
    Reset,
    /// Its program has closed it, or has ended, or has lost its power.
    Closed,
}

pub(crate) struct Sending {
    pub(crate) token: Token,
    pub(crate) buffer: Frame,
    pub(crate) length: usize,
    pub(crate) taken: usize,
}

pub(crate) struct Receiving {
    pub(crate) token: Token,
    pub(crate) buffer: Frame,
    pub(crate) length: usize,
}

/// What one parcel has of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Bytes(Vec<u8>),
    End,
}

/// One direction of a connection.
#[derive(Default)]
pub(crate) struct Flow {
    /// How many parcels have left.
    sent: u64,
    /// How many have arrived in order.
    arrived: u64,
    /// Those that came before their time.
    early: BTreeMap<u64, Content>,
    pub(crate) unread: VecDeque<u8>,
    /// Bytes that have left and not arrived in order.
    under_way: usize,
    /// Whether the end has left, and whether it has arrived.
    pub(crate) is_shut: bool,
    pub(crate) is_ended: bool,
    /// Whether it carries nothing any more.
    pub(crate) is_hung: bool,
}

impl Flow {
    /// How many bytes may leave, of a window of this many.
    pub(crate) fn room(&self, window: usize) -> usize {
        window.saturating_sub(self.under_way + self.unread.len())
    }

    /// A parcel leaves. Returns its place in the stream.
    pub(crate) fn leave(&mut self, content: &Content) -> u64 {
        match content {
            Content::Bytes(bytes) => self.under_way += bytes.len(),
            Content::End => self.is_shut = true,
        }
        self.sent += 1;
        self.sent - 1
    }

    /// A parcel arrives, perhaps before its time.
    pub(crate) fn arrive(&mut self, place: u64, content: Content) {
        self.early.insert(place, content);
        while let Some(content) = self.early.remove(&self.arrived) {
            self.arrived += 1;
            match content {
                Content::Bytes(bytes) => {
                    self.under_way -= bytes.len();
                    self.unread.extend(bytes);
                }
                Content::End => self.is_ended = true,
            }
        }
    }

    /// Moves unread bytes to the front of a buffer, as many as fit, and returns how many.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> usize {
        let count = buffer.len().min(self.unread.len());
        let (front, back) = self.unread.as_slices();
        let of_front = count.min(front.len());
        buffer[..of_front].copy_from_slice(&front[..of_front]);
        buffer[of_front..count].copy_from_slice(&back[..count - of_front]);
        self.unread.drain(..count);
        count
    }

    /// Nothing of it will be read.
    pub(crate) fn discard(&mut self) {
        self.unread = VecDeque::new();
        self.early.clear();
    }
}

impl End {
    pub(crate) fn new(address: SocketAddr, state: EndState) -> End {
        End { address, state, sending: None, receiving: None, mute: None }
    }

    /// The fault of whatever is asked of it now, unless it is open.
    pub(crate) fn unusable(&self, peer: SocketAddr) -> Option<Fault> {
        match self.state {
            EndState::Open => None,
            EndState::Reset => Some(reset(peer)),
            _ => Some(closed()),
        }
    }
}

impl Link {
    /// Whether nothing is left of it.
    pub(crate) fn is_over(&self) -> bool {
        let is_gone = |end: &End| matches!(end.state, EndState::Closed | EndState::Absent);
        self.parcels == 0 && self.ends.iter().all(is_gone)
    }
}

pub(crate) fn reset(peer: SocketAddr) -> Fault {
    Fault::new(FaultKind::Reset, format!("the connection with {peer} was reset"))
}

pub(crate) fn closed() -> Fault {
    Fault::new(FaultKind::Closed, "the socket was closed, or is not open")
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Random;

    /// Parcels in any order make the same stream.
    #[test]
    fn a_stream_arrives_in_order_whatever_the_parcels_do() {
        for seed in 0..200 {
            let mut random = Random::stream(seed, "parcels");
            let (mut flow, mut model, mut under_way) = (Flow::default(), Vec::new(), Vec::new());
            let mut read = Vec::new();
            for number in 0..60u8 {
                if random.chance(0.5) || number < 5 {
                    let bytes = vec![number; random.between(1, 9) as usize];
                    assert!(flow.room(100) <= 100);
                    if flow.room(100) >= bytes.len() {
                        model.extend_from_slice(&bytes);
                        let content = Content::Bytes(bytes);
                        under_way.push((flow.leave(&content), content));
                    }
                } else if !under_way.is_empty() {
                    let (place, content) = under_way.swap_remove(random.below(under_way.len() as u64) as usize);
                    flow.arrive(place, content);
                }
                let mut buffer = vec![0; random.below(6) as usize];
                let count = flow.read(&mut buffer);
                read.extend_from_slice(&buffer[..count]);
                assert!(model.starts_with(&read));
            }
            let end = flow.leave(&Content::End);
            flow.arrive(end, Content::End);
            assert_eq!(flow.is_ended, under_way.is_empty());
            for (place, content) in under_way.into_iter().rev() {
                flow.arrive(place, content);
            }
            let mut buffer = vec![0; model.len()];
            let count = flow.read(&mut buffer);
            read.extend_from_slice(&buffer[..count]);
            assert!(flow.is_ended && read == model && flow.room(100) == 100);
        }
    }
}
