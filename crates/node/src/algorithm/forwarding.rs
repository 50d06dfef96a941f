use super::{Fate, Placement, Recency, Source, forwarded};
use crate::message::ClientId;

/// FWD: what the server lacks, a client that has it sends (section 2.3.2).
pub struct Forwarding;

impl Placement for Forwarding {
    fn source(&self, holders: &[ClientId], turn: u64) -> Source {
        forwarded(holders, turn)
    }

    fn after_sending(&self) -> Recency {
        Recency::MostRecentlyUsed
    }

    fn on_last_copy(&self, _: bool) -> Fate {
        Fate::Dropped
    }
}
