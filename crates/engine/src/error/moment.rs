//! Moments that cannot be read any more, in words.

use base::Lsn;

/// A moment that is too long ago to be read ([`Error::SnapshotTooOld`](crate::Error::SnapshotTooOld)), and the earliest one that is not, both as
/// the call names moments: by the calendar, by their age, by the clock of the executor, or by a position of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskedMoment {
    /// What was asked for.
    pub asked: String,
    /// The earliest that can be read.
    pub earliest: String,
}

pub(super) fn too_old(oldest: Lsn, asked: Option<&AskedMoment>) -> String {
    const KEPT: &str = "or have more of the past kept by [undo] retention and size";
    match asked {
        None => {
            format!("the snapshot is too old, the oldest moment that can be read is {oldest}; take a new one, {KEPT}")
        }
        Some(AskedMoment { asked, earliest }) => {
            format!("{asked} is too long ago, the earliest that can be read is {earliest}; read a later one, {KEPT}")
        }
    }
}
