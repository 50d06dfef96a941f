//! Commit dependencies: which log position must be durable before what was read may be told.

use base::Lsn;

/// Slots; a power of two.
pub(super) const SLOTS: usize = 4096;

/// The greatest commit LSN under which a written resource was released, in a fixed number of slots by hash.
///
/// Resources that share a slot share the greater LSN, so a dependency may be stricter than necessary but is never missed.
#[derive(Debug)]
pub(super) struct Stamps(Box<[Lsn; SLOTS]>);

impl Stamps {
    /// No dependencies.
    pub(super) fn new() -> Stamps {
        Stamps(Box::new([Lsn::ZERO; SLOTS]))
    }

    /// Owners that lock a resource with this hash from now on depend on `lsn`.
    #[inline]
    pub(super) fn raise(&mut self, hash: u64, lsn: Lsn) {
        let slot = &mut self.0[Self::slot(hash)];
        *slot = (*slot).max(lsn);
    }

    /// What a resource with this hash depends on.
    #[inline]
    pub(super) fn of(&self, hash: u64) -> Lsn {
        self.0[Self::slot(hash)]
    }

    /// The upper bits, because the lower ones choose the lock table's bucket.
    #[inline]
    fn slot(hash: u64) -> usize {
        (hash >> 32) as usize % SLOTS
    }
}
