//! For how long a client may use its copies without a word of the server's (leases: Gray, Cheriton, SOSP 1989).
//!
//! A client counts its lease from the moment at which it has asked for it, the server from the moment at which it has heard that, and
//! longer by what its clock may gain meanwhile on the client's ([`CLOCK_GAIN_PPM_MAX`]). So the client's is over first, whatever a message
//! takes. No clock is compared with another one: how far each is ahead does not matter.

use base::Instant;
use base::time::{MILLISECOND_NS, SECOND_NS};
use engine::canary::{self, Canary};

/// The length of a lease, in nanoseconds. A server waits that long, and some more, for a client that it does not hear. It is the same for
/// all servers of a version, because one that is started must wait for the leases which the one before it has given.
pub const LEASE_NS: u64 = 2 * SECOND_NS;

/// How many millionths of what passes the clock of one machine may gain on another's.
///
/// Linux lets a time service set the rate of a clock a tenth (and a two-thousandth, `adjtimex`) higher or lower: if one machine's gains and
/// another's loses as much, a little more than 1.22 seconds pass on the one in each on the other. A quarter covers that. It does not cover
/// a clock that is stopped from outside, as that of a virtual machine which is paused and goes on. It costs that a client which has vanished
/// is given up an eighth of a lease later than if clocks that are corrected as fast were left out.
pub const CLOCK_GAIN_PPM_MAX: u64 = 250_000;

/// The lengths of leases that a client believes, in nanoseconds. A shorter one is over before it has come, and a client that prolonged it
/// would do nothing else; one without an end, in effect, would let it use copies of which the server knows nothing any more.
pub const LENGTHS_NS: std::ops::RangeInclusive<u64> = 10 * MILLISECOND_NS..=3600 * SECOND_NS;

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

    /// One that a server gives. `None` if it is neither of [`LENGTHS_NS`] nor without an end.
    pub fn given(length_ns: u64) -> Option<Lease> {
        (length_ns == 0 || LENGTHS_NS.contains(&length_ns)).then(|| Lease::new(length_ns))
    }

    /// The server has answered, `now`, what was said at `sent`. What was not yet said cannot have been answered.
    pub fn renew(&mut self, sent: Instant, now: Instant) {
        if sent > now {
            return;
        }
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

/// How often a client's lease was over, by its own clock, while it had copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lapses {
    /// It was prolonged again: the server had not given the client up.
    pub renewed: u64,
    /// The client joined again, without its copies.
    pub copies_lost: u64,
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
        if !canary::is_planted(Canary::UnrenewedTerm) {
            self.heard = heard;
        }
    }

    /// How long it lasts on the server's clock, in nanoseconds.
    pub fn full_ns(&self) -> u64 {
        if canary::is_planted(Canary::MarginlessTerm) {
            return self.length_ns;
        }
        let gained_ns = u128::from(self.length_ns) * u128::from(CLOCK_GAIN_PPM_MAX) / 1_000_000;
        self.length_ns.saturating_add(u64::try_from(gained_ns).unwrap_or(u64::MAX))
    }

    /// From when on the client has no lease.
    pub fn end(&self) -> Instant {
        self.heard.plus_ns(self.full_ns())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Clock;

    #[test]
    fn a_lease_counts_from_the_question_and_a_term_from_its_arrival() {
        let at = Instant::from_ns;
        let (mut lease, term) = (Lease::new(800), Term::new(800, at(150)));
        assert!(!lease.is_valid(at(0)), "none was given yet");
        lease.renew(at(100), at(400));
        assert!(lease.is_valid(at(899)) && !lease.is_valid(at(900)));
        lease.renew(at(50), at(500));
        assert!(lease.is_valid(at(899)), "an earlier question does not shorten it");
        assert_eq!(term.end(), at(150 + 1_000));
    }

    #[test]
    fn a_term_lasts_longer_than_its_lease_whatever_clocks_gain() {
        let bound = [Clock::new(0, 0), Clock::new(7 * SECOND_NS, CLOCK_GAIN_PPM_MAX)];
        for [client, server] in [bound, [bound[1], bound[0]]] {
            let (mut lease, asked) = (Lease::new(LEASE_NS), Instant::from_ns(3 * SECOND_NS));
            lease.renew(client.shows(asked), client.shows(asked));
            let term = Term::new(LEASE_NS, server.shows(asked));
            let over = server.when(term.end());
            assert!(!lease.is_valid(client.shows(over)), "{client:?}, {server:?}");
            let is_near = over.since_ns(asked) <= 2 * LEASE_NS;
            assert!(is_near && lease.is_valid(client.shows(asked.plus_ns(LEASE_NS / 2))), "{client:?}, {server:?}");
        }
    }

    #[test]
    fn lengths_of_no_use_are_none() {
        for odd in [1, 9_999_999, 3601 * SECOND_NS, u64::MAX] {
            assert_eq!(Lease::given(odd), None, "{odd}");
            assert!(Term::new(odd, Instant::from_ns(7)).end() > Instant::from_ns(7));
        }
        assert!([0, LEASE_NS].map(Lease::given).iter().all(Option::is_some));
        let (mut lease, now) = (Lease::new(LEASE_NS), Instant::from_ns(5));
        lease.renew(Instant::from_ns(u64::MAX), now);
        assert!(!lease.is_valid(now), "what was not yet said was not answered");
    }
}
