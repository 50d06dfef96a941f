//! What clients say to each other.

use super::form::raw;
use super::{Copy, LeavingFate, Secret, Session};
use serde::{Deserialize, Serialize};

/// What a client says to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToPeer {
    /// The page that the other has asked the server for.
    Page {
        /// The session in which it has asked. If it has another one by now, this is not for it.
        to: Session,
        /// What the other has named with its request.
        secret: Secret,
        /// Which copy of the other's it is.
        copy: Copy,
        /// Its bytes.
        #[serde(with = "raw")]
        bytes: Vec<u8>,
        /// What becomes of the copy that leaves the other's memory for it.
        fate: LeavingFate,
    },
}
