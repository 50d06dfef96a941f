//! What a server does with the memories of its clients beside its own: one file for each algorithm, one line in [`ALGORITHMS`].
//!
//! All share callback locking. They differ in three decisions of the server's alone, so a client never knows which one is in use
//! (Franklin, Carey, Livny 1992, section 2.3).

mod callback_locking;
mod forwarding;
mod hate_and_sending;
mod hate_hints;
mod sending;

use crate::message::ClientId;

/// The algorithms, the usual one first.
pub const ALGORITHMS: &[&dyn Algorithm] = &[
    &callback_locking::CallbackLocking,
    &forwarding::Forwarding,
    &hate_hints::HateHints,
    &sending::Sending,
    &hate_and_sending::HateAndSending,
];

/// Decides where pages come from and which stay in the server's memory.
pub trait Algorithm: Sync {
    /// What it is called, such as `fwd-h`.
    fn name(&self) -> &'static str;

    /// Where a page comes from that is not in the server's memory. `holders` have copies that they may send, in the order of
    /// their names; `turn` grows with each such decision, so that the work goes around.
    fn source(&self, holders: &[ClientId], turn: u64) -> Source;

    /// What becomes of a page in the server's memory when it was sent to a client.
    fn after_sending(&self) -> Recency;

    /// What becomes of a page that leaves the memory of a client, where no other client has a copy.
    fn on_last_copy(&self, is_at_server: bool) -> Fate;
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
}

/// The algorithm of this name.
///
/// ```
/// use entresol_node::algorithm;
///
/// assert_eq!(algorithm::named("fwd-hs").map(|found| found.name()), Some("fwd-hs"));
/// assert!(algorithm::named("magic").is_none());
/// ```
pub fn named(name: &str) -> Option<&'static dyn Algorithm> {
    ALGORITHMS.iter().copied().find(|algorithm| algorithm.name() == name)
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
            let forwards = algorithm.source(&holders, 1) == Source::Client(ClientId(4));
            assert_eq!(forwards, algorithm.source(&holders, 2) == Source::Client(ClientId(1)), "each in its turn");
            assert_eq!(algorithm.source(&[], 1), Source::Disk);
            let hates = algorithm.after_sending() == Recency::Hated;
            (forwards, hates, algorithm.on_last_copy(true), algorithm.on_last_copy(false))
        };
        assert_eq!(decided("cbl"), (false, false, Fate::Dropped, Fate::Dropped));
        assert_eq!(decided("fwd"), (true, false, Fate::Dropped, Fate::Dropped));
        assert_eq!(decided("fwd-h"), (true, true, Fate::Dropped, Fate::Dropped));
        assert_eq!(decided("fwd-s"), (true, false, Fate::KeptAtServer, Fate::Returned));
        assert_eq!(decided("fwd-hs"), (true, true, Fate::KeptAtServer, Fate::Returned));
        assert_eq!(ALGORITHMS.len(), 5);
    }
}
