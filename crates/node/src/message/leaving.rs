//! Copies that leave the memories of clients.

use super::Copy;
use serde::{Deserialize, Serialize};

/// A copy that leaves a client's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leaving {
    /// Which.
    pub copy: Copy,
    /// For how long it has not been used, in nanoseconds of the client's clock.
    pub unused_ns: u64,
    /// Whether a transaction of the client's has used it: not every one that was passed on is.
    pub was_used: bool,
}

/// What becomes of a copy that leaves a client's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum LeavingFate {
    /// It is gone.
    #[default]
    Dropped,
    /// It is to be returned to the server.
    Returned,
    /// Another client is offered it: its bytes are kept for a while, for that.
    Offered,
}
