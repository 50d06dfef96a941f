//! The form of a log position in messages between programs: that of its number.

use base::Lsn;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub(crate) fn serialize<S: Serializer>(position: &Lsn, serializer: S) -> Result<S::Ok, S::Error> {
    position.0.serialize(serializer)
}

pub(crate) fn deserialize<'a, D: Deserializer<'a>>(deserializer: D) -> Result<Lsn, D::Error> {
    u64::deserialize(deserializer).map(Lsn)
}
