//! How far ahead memory is asked for.

/// How soon a record will be needed. To get at a record is two steps of which each needs what the one before has found, so it
/// takes two calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefetchDistance {
    /// In some time: what says where the record is comes into the processor's cache.
    Far,
    /// Next, and `Far` has been said before: the record itself comes.
    Near,
}
