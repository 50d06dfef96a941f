//! What rollbacks to savepoints leave of a transaction's other savepoints.

use structures::set::ChangePosition;

/// How many updates of pages a transaction has made and not taken back, and where it is in its changes of sets.
pub type Position = (usize, ChangePosition);

/// How often a transaction has gone back to a savepoint, and what that leaves of the others.
#[derive(Debug, Default)]
pub(crate) struct PartialRollbacks {
    count: u64,
    /// The number of a rollback and where it went to, for those that no later one went behind. Both ascend.
    positions: Vec<(u64, Position)>,
}

impl PartialRollbacks {
    /// How many there were.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.count = 0;
        self.positions.clear();
    }

    /// It has gone back to this position.
    pub fn note(&mut self, position: Position) {
        self.count += 1;
        while self.positions.last().is_some_and(|(_, earlier)| *earlier >= position) {
            self.positions.pop();
        }
        self.positions.push((self.count, position));
    }

    /// Whether nothing that was there when `rollbacks` were over, up to `position`, was taken back since.
    pub fn have_left(&self, (rollbacks, position): (u64, Position)) -> bool {
        let first = self.positions.partition_point(|(number, _)| *number <= rollbacks);
        self.positions.get(first).is_none_or(|(_, furthest)| *furthest >= position)
    }
}

#[cfg(test)]
mod tests {
    use super::{PartialRollbacks, Position};
    use proptest::prelude::*;
    use structures::set::ChangePosition;

    proptest! {
        /// Beside a list of all savepoints, from which a rollback takes those that are behind it.
        #[test]
        fn savepoints_are_left_up_to_the_one_that_was_gone_back_to(steps in prop::collection::vec((0..3_u8, any::<prop::sample::Index>()), 1..60)) {
            let (mut rollbacks, mut updates) = (PartialRollbacks::default(), 0_usize);
            let (mut taken, mut left): (Vec<(u64, Position)>, Vec<usize>) = (Vec::new(), Vec::new());
            for (step, index) in steps {
                match step {
                    0 => updates += 1,
                    1 => {
                        left.push(taken.len());
                        taken.push((rollbacks.count(), (updates, ChangePosition::default())));
                    }
                    _ if left.is_empty() => {}
                    _ => {
                        let to = index.index(left.len());
                        let position = taken[left[to]].1;
                        left.retain(|other| taken[*other].1 <= position);
                        updates = position.0;
                        rollbacks.note(position);
                    }
                }
                for (number, savepoint) in taken.iter().enumerate() {
                    prop_assert_eq!(rollbacks.have_left(*savepoint), left.contains(&number));
                }
            }
        }
    }
}
