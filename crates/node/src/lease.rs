//! For how long a client may use its copies without a word of the server's (leases: Gray, Cheriton, SOSP 1989).
//!
//! A client counts its lease from the moment at which it has asked for it, the server from the moment at which it has heard that, and a
//! ninth longer. So the client's is over first, whatever a message takes, as long as neither clock gains a ninth on the other.
//! No clock is compared with another one.

use base::Instant;
use base::time::SECOND_NS;
use engine::canary::{self, Canary};

/// The length of a lease, in nanoseconds. A server waits that long, and some more, for a client that it does not hear. It is the same for
/// all servers of a version, because one that is started must wait for the leases which the one before it has given.
pub const LEASE_NS: u64 = 2 * SECOND_NS;

/// A client's lease. One of no length never ends: for described networks, on which nothing is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lease {
    length_ns: u64,
    until: Option<Instant>,
}

impl Lease {
    /// One that has not begun.
    pub fn new(length_ns: u64) -> Lease {
        Lease { length_ns, until: None }
    }

    /// The server has answered, `now`, what was said at `sent`.
    pub fn renew(&mut self, sent: Instant, now: Instant) {
        let from = if canary::is_planted(Canary::LeaseFromAnswer) { now } else { sent };
        self.until = self.until.max(Some(from.plus_ns(self.length_ns)));
    }

    /// How long it lasts, in nanoseconds.
    pub fn length_ns(&self) -> u64 {
        self.length_ns
    }

    /// Whether copies may be used now. What was found so far is as if it had been found at this moment.
    pub fn is_valid(&self, now: Instant) -> bool {
        let lasts = self.length_ns == 0 || self.until.is_some_and(|until| now < until);
        lasts || canary::is_planted(Canary::EndlessLease)
    }
}

/// What a server knows of a client's lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Term {
    length_ns: u64,
    heard: Instant,
}

impl Term {
    /// A lease was asked for, or began at the latest, at this moment.
    pub fn new(length_ns: u64, heard: Instant) -> Term {
        Term { length_ns, heard }
    }

    /// The client was heard again.
    pub fn renew(&mut self, heard: Instant) {
        self.heard = heard;
    }

    /// How long it lasts, in nanoseconds.
    pub fn full_ns(&self) -> u64 {
        self.length_ns + self.length_ns / 8
    }

    /// From when on the client has no lease.
    pub fn end(&self) -> Instant {
        self.heard.plus_ns(self.full_ns())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_counts_from_the_question_and_a_term_from_its_arrival() {
        let at = Instant::from_ns;
        let (mut lease, term) = (Lease::new(800), Term::new(800, at(150)));
        assert!(!lease.is_valid(at(0)), "none was given yet");
        lease.renew(at(100), at(400));
        assert!(lease.is_valid(at(899)) && !lease.is_valid(at(900)));
        lease.renew(at(50), at(500));
        assert!(lease.is_valid(at(899)), "an earlier question does not shorten it");
        assert_eq!(term.end(), at(150 + 900));
    }
}
