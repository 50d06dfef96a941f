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
/// Linux lets a time service set the rate of a clock a tenth (and a two-thousandth, `adjtimex`) higher or lower, as chrony does: if one
/// machine's gains and another's loses as much, 2.45 seconds pass on the one in a lease on the other. Or a service, as ntpd and
/// systemd-timesyncd, sets the rate a two-thousandth higher or lower and has the kernel correct half a second at most, a quarter of what is
/// left in each second (`MAXPHASE` and `SHIFT_PLL`, kernel/time/ntp.c): whichever of both each machine has, 2.48 seconds pass. A quarter
/// covers that. It costs that a client which has vanished is given up an eighth of a lease later than if clocks that are corrected as fast
/// were left out.
///
/// It does not cover clocks that are set to the limits of both ways at once, on which 3.02 seconds may pass: no service does that, and to
/// cover it every client that has vanished would be given up half a second later. Nor does it cover a clock that a pulse each second
/// corrects by half a second, nor one that is stopped from outside, as that of a virtual machine which is paused and goes on.
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

    /// How Linux lets a service correct a clock.
    #[derive(Clone, Copy)]
    struct Correction {
        /// How many millionths the clock gains.
        rate_ppm: f64,
        /// What is to be corrected beside that, in seconds: a quarter of what is left in each second.
        phase: f64,
    }

    impl Correction {
        const LIMITS: [Correction; 2] = [
            Correction { rate_ppm: 100_500.0, phase: 0.0 },
            // Another two-thousandth is `adjtime`'s.
            Correction { rate_ppm: 1_000.0, phase: 0.5 },
        ];

        /// What the clock shows after `passed` seconds; those of the clock begin with the first. `sign`: 1 if it gains, -1 if it loses.
        fn shows(self, sign: f64, passed: f64) -> f64 {
            let (mut left, mut phase, mut shown) = (passed, self.phase, 0.0);
            while left > 0.0 {
                let second = left.min(1.0);
                shown += second * (1.0 + sign * (self.rate_ppm / 1e6 + phase / 4.0));
                (left, phase) = (left - second, phase * 0.75);
            }
            shown
        }

        /// After how many seconds a clock that loses by this shows that a lease is over.
        fn ends_lease(self) -> f64 {
            let mut steps = (0..).map(|step| f64::from(step) * 1e-5);
            steps.find(|passed| self.shows(-1.0, *passed) >= LEASE_NS as f64 / 1e9).expect("some time")
        }
    }

    #[test]
    fn a_term_lasts_longer_than_its_lease_however_linux_is_told_to_correct_clocks() {
        let term = Term::new(LEASE_NS, Instant::START).full_ns() as f64 / 1e9;
        let mut longest = 0.0_f64;
        for client in Correction::LIMITS {
            for server in Correction::LIMITS {
                longest = longest.max(server.shows(1.0, client.ends_lease()));
            }
        }
        assert!(longest < term && (2.47..2.48).contains(&longest), "{longest} s of {term} s");
        let [rate, phase] = Correction::LIMITS;
        let both = Correction { rate_ppm: rate.rate_ppm + 500.0, ..phase };
        let longest = both.shows(1.0, both.ends_lease());
        assert!((3.01..3.02).contains(&longest), "{longest}, which is not covered");
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
