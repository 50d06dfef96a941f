use super::callback_locking::CallbackLocking;
use super::{Fate, Placement, Recency, Source};
use crate::message::ClientId;

/// PS-AA: callback locking whose granule adapts (Carey, Franklin, Zaharioudakis, SIGMOD 1994). Locks are of whole pages while no two clients are
/// in each other's way, and of records of a page that several clients want at a time; see `server/records.rs` for the rules. Memories are CBL's.
pub struct RecordLocking;

impl Placement for RecordLocking {
    fn source(&self, holders: &[ClientId], turn: u64) -> Source {
        CallbackLocking.source(holders, turn)
    }

    fn after_sending(&self) -> Recency {
        CallbackLocking.after_sending()
    }

    fn on_last_copy(&self, is_at_server: bool) -> Fate {
        CallbackLocking.on_last_copy(is_at_server)
    }

    fn falls(&self) -> bool {
        true
    }
}
