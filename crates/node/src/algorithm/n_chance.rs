use super::{Fate, IdleClient, Placement, Recency, Source, forwarded};
use crate::message::ClientId;
use std::cmp::Reverse;

/// N-chance: forwarding with hate hints, and a last copy in memory is passed on to an idle client, where it stays for as long as that has nothing better
/// to keep (Dahlin, Wang, Anderson, Patterson, OSDI 1994, section 2.4). The paper passes it on to any client, drawn at random. Here it is
/// the one whose memory has been left alone for the longest time, so that no client that works loses what it uses itself.
pub struct NChance;

/// How much longer what leaves a client's memory next must have been left alone there than the page that it would be passed. Clients
/// that work alike do not pass pages to and fro.
const IDLER: u64 = 2;

impl Placement for NChance {
    fn source(&self, holders: &[ClientId], turn: u64) -> Source {
        forwarded(holders, turn)
    }

    fn after_sending(&self) -> Recency {
        // The client passes on what is in no other memory, so this one is to have what no client has.
        Recency::Hated
    }

    fn on_last_copy(&self, is_at_server: bool) -> Fate {
        if is_at_server { Fate::KeptAtServer } else { Fate::PassedOn }
    }

    fn receiver(&self, unused_ns: u64, candidates: &[IdleClient]) -> Option<ClientId> {
        let idle = candidates.iter().filter(|candidate| candidate.unused_ns / IDLER > unused_ns);
        idle.max_by_key(|candidate| (candidate.unused_ns, Reverse(candidate.copies))).map(|idlest| idlest.client)
    }
}
