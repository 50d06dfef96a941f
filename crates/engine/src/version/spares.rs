//! Memory for versions that is there before they come. The system fills new pages with zeros when they are first touched,
//! which can take longer than all that is done with a version; so memory is used again, and while versions are being added the
//! next pieces are made and touched beside the engine's thread.

use super::{VersionStore, Versions};
use std::rc::Rc;

/// The bytes that are ready ahead, unless a piece has more; at most twice as many are kept.
const AHEAD_BYTES: usize = 2 << 20;
/// With half of what is in use, so that a small history keeps little.
const AHEAD_DIVISOR: usize = 2;

/// What is written to bring memory into being. Not zero: of zeros the system has pages already.
const BLANK: u8 = u8::MAX;

/// Pieces of memory of `length` bytes each.
pub(super) struct Spares {
    pieces: Vec<Vec<u8>>,
    in_use: usize,
    capacity: usize,
}

/// Pieces that are to be made.
pub(super) struct Missing {
    count: usize,
    capacity: usize,
}

impl Spares {
    /// None yet.
    pub(super) fn new(capacity: usize) -> Spares {
        Spares { pieces: Vec::new(), in_use: 0, capacity }
    }

    /// How many bytes a piece has room for.
    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// An empty piece.
    pub(super) fn take(&mut self) -> Vec<u8> {
        self.in_use += 1;
        self.pieces.pop().unwrap_or_else(|| Vec::with_capacity(self.capacity))
    }

    /// Accepts a piece that was in use.
    pub(super) fn give_back(&mut self, mut piece: Vec<u8>) {
        debug_assert_eq!(piece.capacity(), self.capacity, "pieces do not grow");
        self.in_use -= 1;
        piece.clear();
        self.add(piece);
    }

    /// How many pieces are there ahead at most.
    fn ahead_max(&self) -> usize {
        (AHEAD_BYTES / self.capacity.max(1)).max(1)
    }

    /// Keeps an empty piece, unless there are enough.
    fn add(&mut self, piece: Vec<u8>) {
        if self.pieces.len() < 2 * self.ahead_max() {
            self.pieces.push(piece);
        }
    }

    /// What should be made now: nothing while more than half of what should be there ahead is.
    fn missing(&self) -> Missing {
        let ahead = (self.in_use / AHEAD_DIVISOR).min(self.ahead_max());
        let count = if self.pieces.len() * 2 <= ahead { ahead - self.pieces.len() } else { 0 };
        Missing { count, capacity: self.capacity }
    }
}

impl Missing {
    /// Makes them, and brings every page of them into being.
    fn make(self) -> Vec<Vec<u8>> {
        let piece = || {
            let mut piece = Vec::with_capacity(self.capacity);
            piece.resize(self.capacity, BLANK);
            piece.clear();
            piece
        };
        std::iter::repeat_with(piece).take(self.count).collect()
    }
}

impl VersionStore {
    /// Has memory made for the versions that come next, if little is left.
    pub(super) fn make_spares(self: &Rc<Self>, versions: &mut Versions) {
        let missing = versions.history.spares().missing();
        if missing.count == 0 || std::mem::replace(&mut versions.is_growing, true) {
            return;
        }
        let store = Rc::downgrade(self);
        // What a version costs on described hardware is charged where it comes to be.
        self.executor.compute_then(
            0,
            move || missing.make(),
            move |made| {
                let Some(store) = store.upgrade() else { return };
                let mut versions = store.versions.borrow_mut();
                versions.is_growing = false;
                made.unwrap_or_default().into_iter().for_each(|piece| versions.history.spares().add(piece));
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::UndoSettings;
    use super::super::tests::on_a_machine;
    use super::*;
    use crate::Database;
    use crate::PartitionSpec;
    use base::time::SECOND_NS;
    use executor::Executor;

    #[test]
    fn memory_is_used_again_and_made_in_proportion_to_use() {
        for (capacity, ahead_max) in [(128 << 10, 16), (2400 << 10, 1)] {
            let mut spares = Spares::new(capacity);
            let mut in_use = Vec::new();
            for count in 1..50 {
                in_use.push(spares.take());
                let made = spares.missing().make();
                made.into_iter().for_each(|piece| spares.add(piece));
                let ahead = (count / 2).min(ahead_max);
                let there = spares.pieces.len();
                assert!(there <= ahead && (there * 2 > ahead || ahead == 0), "{there} of {ahead}");
            }
            let taken = in_use[0].as_ptr();
            in_use.iter_mut().for_each(|piece| piece.extend_from_slice(&[7; 100]));
            in_use.drain(..).for_each(|piece| spares.give_back(piece));
            assert_eq!((spares.pieces.len(), spares.in_use, spares.missing().count), (2 * ahead_max, 0, 0));
            assert!(spares.pieces.iter().any(|piece| piece.as_ptr() == taken), "memory is used again");
            assert!(spares.take().is_empty());
        }
    }

    /// Rounds of versions that are in memory or leave it for the undo space, with what is there and in use at the end of each.
    async fn rounds(executor: &Executor, memory: u64, look: impl Fn(u8, usize, usize)) -> crate::Result<()> {
        let undo = UndoSettings { cluster_size: 512, memory, ..UndoSettings::default() };
        let database = Database::create(executor, crate::Settings { undo, ..Default::default() }).await?;
        let notes = database.create_partition(PartitionSpec::b_tree("notes")).await?;
        let state = || {
            let mut versions = database.0.engine.versions.versions.borrow_mut();
            let Spares { pieces, in_use, capacity, .. } = versions.history.spares();
            assert!(pieces.iter().all(|piece| piece.capacity() == *capacity));
            (pieces.len(), *in_use)
        };
        for round in 0..3 {
            let long = database.snapshot().await?;
            for key in 0..1000_u16 {
                database.transaction(async |tx| tx.put(notes, &key.to_be_bytes(), &[round; 200]).await).await?;
                // Versions that are longer than extents have memory of their own.
                database.transaction(async |tx| tx.put(notes, b"long", &vec![round + 1; 9000]).await).await?;
            }
            let (there, in_use) = state();
            look(round, there, in_use);
            drop(long);
            executor.sleep_ns(SECOND_NS).await;
            assert_eq!(state().1, 0, "all is given back");
            assert!(state().0 >= there);
        }
        Ok(())
    }

    #[test]
    fn a_growing_history_finds_memory_and_leaves_it() {
        on_a_machine(async |executor| {
            let look = |round, there, in_use| {
                assert!(round == 0 || in_use > 30 && there * 2 > in_use / 2, "{there} are there, {in_use} in use");
            };
            rounds(executor, 1 << 30, look).await?;
            let look = |_, there, in_use| assert!(there + in_use < 30, "{there} are there, {in_use} in use");
            rounds(executor, 16 << 10, look).await
        })
        .expect("nothing fails");
    }
}
