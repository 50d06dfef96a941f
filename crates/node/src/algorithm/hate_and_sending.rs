use super::{Fate, Placement, Recency, Source, forwarded, sent_back};
use crate::message::ClientId;

/// FWD-HS: forwarding, hate hints and sending dropped pages (section 2.3.5).
pub struct HateAndSending;

impl Placement for HateAndSending {
    fn source(&self, holders: &[ClientId], turn: u64) -> Source {
        forwarded(holders, turn)
    }

    fn after_sending(&self) -> Recency {
        Recency::Hated
    }

    fn on_last_copy(&self, is_at_server: bool) -> Fate {
        sent_back(is_at_server)
    }
}
