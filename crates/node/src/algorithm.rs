//! What a server does with the memories of its clients beside its own: one file for each algorithm, one line in [`ALGORITHMS`].
//!
//! All share callback locking. They differ in decisions of the server's alone: three of Franklin, Carey and Livny (1992, section 2.3), to
//! which client a last copy is passed on, and whether locks fall to records. So a client never knows which one is in use; it learns only
//! whether the bytes of what leaves its memory may be wanted.

mod adaptive;
mod callback_locking;
mod forwarding;
mod hate_and_sending;
mod hate_hints;
mod n_chance;
mod record_locks;
mod sending;

use crate::message::ClientId;
use base::PageId;
use structures::replacement;

/// The algorithms, the usual one first. The adaptive one weighs those that stand before it.
pub const ALGORITHMS: &[Algorithm] = &[
    Algorithm { name: "cbl", begin: |_| Box::new(callback_locking::CallbackLocking) },
    Algorithm { name: "fwd", begin: |_| Box::new(forwarding::Forwarding) },
    Algorithm { name: "fwd-h", begin: |_| Box::new(hate_hints::HateHints) },
    Algorithm { name: "fwd-s", begin: |_| Box::new(sending::Sending) },
    Algorithm { name: "fwd-hs", begin: |_| Box::new(hate_and_sending::HateAndSending) },
    Algorithm { name: "adaptive", begin: |memory| Box::new(adaptive::Adaptive::new(memory)) },
    Algorithm { name: "n-chance", begin: |_| Box::new(n_chance::NChance) },
    Algorithm { name: "ps-aa", begin: |_| Box::new(record_locks::RecordLocking) },
];

/// How often a last copy is passed on without being used, unless said otherwise: as often as with Dahlin et al.
pub const CHANCES: u8 = 2;

/// An algorithm by its name.
pub struct Algorithm {
    name: &'static str,
    begin: fn(Frames) -> Box<dyn Placement>,
}

/// A server's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frames {
    /// How many pages it holds.
    pub count: usize,
    /// Which page leaves next, where none is hated.
    pub replacement: replacement::Policy,
}

impl Frames {
    /// This many, of which the least recently used leaves next.
    pub const fn lru(count: usize) -> Frames {
        Frames { count, replacement: replacement::POLICIES[0] }
    }
}

impl Algorithm {
    /// What it is called, such as `fwd-h`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// What decides at one server, with this memory.
    pub fn begin(&self, memory: Frames) -> Box<dyn Placement> {
        (self.begin)(memory)
    }

    /// Whether clients may send pages to each other.
    pub fn forwards(&self) -> bool {
        self.begin(Frames::lru(1)).may_forward()
    }

    /// Whether locks of pages fall to locks of records where clients are in each other's way.
    pub fn falls(&self) -> bool {
        self.begin(Frames::lru(1)).falls()
    }

    /// Whether the bytes of copies that leave the memories of clients may be wanted: by the server, or by clients that may send them to each
    /// other, for one may be told to send what has left it and the server does not know that yet.
    pub fn wants_leaving(&self) -> bool {
        let placement = self.begin(Frames::lru(1));
        placement.may_forward() || placement.on_last_copy(false) != Fate::Dropped
    }

    /// Whether pages that leave the memories of clients may come to the server.
    pub fn returns(&self) -> bool {
        self.begin(Frames::lru(1)).may_return()
    }
}

/// Decides where pages come from and which stay in the server's memory.
pub trait Placement {
    /// Where a page comes from that is not in the server's memory. `holders` have copies that they may send, in the order of
    /// their names; `turn` grows with each such decision, so that the work goes around.
    fn source(&self, holders: &[ClientId], turn: u64) -> Source;

    /// What becomes of a page in the server's memory when it was sent to a client.
    fn after_sending(&self) -> Recency;

    /// What becomes of a page that leaves the memory of a client, where no other client has a copy.
    fn on_last_copy(&self, is_at_server: bool) -> Fate;

    /// The client that a last copy is passed on to, which is [`Fate::PassedOn`] and was not used for so long, in nanoseconds. Without
    /// one it is dropped.
    fn receiver(&self, _unused_ns: u64, _candidates: &[IdleClient]) -> Option<ClientId> {
        None
    }

    /// Whether it ever decides that a client sends a page to another.
    fn may_forward(&self) -> bool {
        self.source(&[ClientId(0)], 0) != Source::Disk
    }

    /// Whether it ever decides that a page comes to the server.
    fn may_return(&self) -> bool {
        self.on_last_copy(false) == Fate::Returned
    }

    /// Whether locks of pages fall to locks of records where clients are in each other's way.
    fn falls(&self) -> bool {
        false
    }

    /// Something has happened at the server. Those that learn nothing need not know.
    fn note(&mut self, _noted: Noted<'_>) {}
}

/// What a server tells the one that decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noted<'a> {
    /// A client gets a page now, which these others could send. Told before anything is decided about that.
    Read(PageId, &'a [ClientId]),
    /// A page leaves the memory of the last client that has it. Told before it is decided what becomes of that.
    LastCopy(PageId),
    /// A page comes with a commit.
    Changed(PageId),
    /// A client has waited for a page that came from there, from its request on, in nanoseconds. What it has waited for locks is not in
    /// that.
    Waited(Origin, u64),
}

/// Where a page has come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The server's memory.
    Memory,
    /// That of another client.
    Client,
    /// The server's disk.
    Disk,
}

/// Where a page comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// This client sends it.
    Client(ClientId),
    /// The server reads it from its disk.
    Disk,
}

/// How soon a page is to leave the server's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recency {
    /// Last of all: it was used just now.
    MostRecentlyUsed,
    /// Before all others, also those that were hated before.
    Hated,
}

/// What becomes of the last copy at a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is dropped.
    Dropped,
    /// It is dropped, and that of the server counts as used just now.
    KeptAtServer,
    /// It comes to the server.
    Returned,
    /// Another client is offered it ([`Placement::receiver`]).
    PassedOn,
}

/// A client that may be offered a page, as far as the server knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleClient {
    /// Which.
    pub client: ClientId,
    /// For how long what leaves its memory next has not been used, in nanoseconds; the greatest number while nothing had to leave.
    pub unused_ns: u64,
    /// How many copies it has.
    pub copies: usize,
}

/// The algorithm of this name.
///
/// ```
/// use entresol_node::algorithm;
///
/// assert_eq!(algorithm::named("fwd-hs").map(|found| found.name()), Some("fwd-hs"));
/// assert!(algorithm::named("magic").is_none());
/// ```
pub fn named(name: &str) -> Option<&'static Algorithm> {
    ALGORITHMS.iter().find(|algorithm| algorithm.name() == name)
}

/// One of the clients that have copies, each in its turn; the disk if there is none.
fn forwarded(holders: &[ClientId], turn: u64) -> Source {
    match holders.len() {
        0 => Source::Disk,
        count => Source::Client(holders[(turn % count as u64) as usize]),
    }
}

/// Keeps what no client and perhaps no server has any more.
fn sent_back(is_at_server: bool) -> Fate {
    if is_at_server { Fate::KeptAtServer } else { Fate::Returned }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_algorithm_decides_as_the_paper_says() {
        let holders = [ClientId(1), ClientId(4)];
        let decided = |name: &str| {
            let algorithm = named(name).expect("it is one of them");
            let (may_forward, may_return) = (algorithm.forwards(), algorithm.returns());
            let algorithm = algorithm.begin(Frames::lru(4));
            let forwards = algorithm.source(&holders, 1) == Source::Client(ClientId(4));
            assert_eq!(forwards, algorithm.source(&holders, 2) == Source::Client(ClientId(1)), "each in its turn");
            assert_eq!(algorithm.source(&[], 1), Source::Disk);
            let hates = algorithm.after_sending() == Recency::Hated;
            assert_eq!((may_forward, may_return), (forwards, algorithm.on_last_copy(false) == Fate::Returned));
            (forwards, hates, algorithm.on_last_copy(true), algorithm.on_last_copy(false))
        };
        assert_eq!(decided("cbl"), (false, false, Fate::Dropped, Fate::Dropped));
        assert_eq!(decided("fwd"), (true, false, Fate::Dropped, Fate::Dropped));
        assert_eq!(decided("fwd-h"), (true, true, Fate::Dropped, Fate::Dropped));
        assert_eq!(decided("fwd-s"), (true, false, Fate::KeptAtServer, Fate::Returned));
        assert_eq!(decided("fwd-hs"), (true, true, Fate::KeptAtServer, Fate::Returned));
        assert_eq!(decided("n-chance"), (true, true, Fate::KeptAtServer, Fate::PassedOn));
        assert_eq!(decided("ps-aa"), decided("cbl"));
        assert_eq!(ALGORITHMS.len(), 8);
        let wanting = ALGORITHMS.iter().filter(|algorithm| algorithm.wants_leaving());
        assert!(wanting.map(Algorithm::name).eq(["fwd", "fwd-h", "fwd-s", "fwd-hs", "adaptive", "n-chance"]));
        let falling = ALGORITHMS.iter().filter(|algorithm| algorithm.falls());
        assert!(falling.map(Algorithm::name).eq(["ps-aa"]));
    }

    #[test]
    fn a_last_copy_is_passed_on_to_the_idlest_and_to_none_that_works() {
        let n_chance = named("n-chance").expect("it is one of them").begin(Frames::lru(4));
        let candidate = |client, unused_ns, copies| IdleClient { client: ClientId(client), unused_ns, copies };
        let receiver = |unused_ns, candidates: &[IdleClient]| n_chance.receiver(unused_ns, candidates);
        assert_eq!(receiver(0, &[]), None);
        assert_eq!(receiver(100, &[candidate(1, 90, 7), candidate(2, 199, 7)]), None, "they work as it does");
        assert_eq!(receiver(100, &[candidate(1, 300, 7), candidate(2, 400, 7)]), Some(ClientId(2)));
        let roomy = [candidate(1, u64::MAX, 7), candidate(2, u64::MAX, 3), candidate(3, 400, 0)];
        assert_eq!(receiver(100, &roomy), Some(ClientId(2)), "it has the most room");
    }
}
