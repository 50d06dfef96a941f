//! Lock modes, their compatibility and their lattice.

use serde::{Deserialize, Serialize};

/// How a resource is locked.
///
/// Whether a lock that is held (rows) or waited for ahead in the queue (rows, too) admits a request (columns):
///
/// | held            | Shared | Update | Exclusive | InsertIntention |
/// |-----------------|--------|--------|-----------|-----------------|
/// | Shared          | yes    | yes    | no        | no              |
/// | Update          | no     | no     | no        | no              |
/// | Exclusive       | no     | no     | no        | no              |
/// | InsertIntention | no     | no     | no        | yes             |
///
/// The matrix is asymmetric, after Gray and Reuter (1993, chapter 7): Update is granted beside readers but admits no new ones,
/// so that the upgrade to Exclusive that it announces need not wait for an unbounded stream of them, and two readers that both
/// mean to write do not deadlock.
///
/// Modes form a lattice, Shared < Update < Exclusive and InsertIntention < Exclusive. An owner that holds one mode and asks for
/// another gets the supremum of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum Mode {
    /// For reading.
    Shared,
    /// For reading now and writing perhaps later.
    Update,
    /// For writing.
    Exclusive,
    /// For changing something within a gap or a range: those who do that admit each other, but exclude owners that have read it.
    InsertIntention,
}

impl Mode {
    /// Every mode, in the order of declaration.
    pub const ALL: [Mode; 4] = [Mode::Shared, Mode::Update, Mode::Exclusive, Mode::InsertIntention];

    /// Whether a lock held in this mode, or a request for it ahead in the queue, lets another owner have `requested`.
    #[inline]
    pub const fn admits(self, requested: Mode) -> bool {
        !self.excludes_any(ModeSet::of(requested))
    }

    /// Whether a lock in this mode keeps out one of `requested`.
    #[inline]
    pub(super) const fn excludes_any(self, requested: ModeSet) -> bool {
        let admitted = match self {
            Mode::Shared => ModeSet::of(Mode::Shared).0 | ModeSet::of(Mode::Update).0,
            Mode::Update | Mode::Exclusive => 0,
            Mode::InsertIntention => ModeSet::of(Mode::InsertIntention).0,
        };
        requested.0 & !admitted != 0
    }

    /// The weakest mode that gives the rights of both.
    #[inline]
    pub const fn supremum(self, other: Mode) -> Mode {
        match (self, other) {
            (Mode::Shared, Mode::Shared) => Mode::Shared,
            (Mode::Shared | Mode::Update, Mode::Shared | Mode::Update) => Mode::Update,
            (Mode::InsertIntention, Mode::InsertIntention) => Mode::InsertIntention,
            _ => Mode::Exclusive,
        }
    }

    /// Whether a lock in this mode gives all the rights of `other`.
    #[inline]
    pub const fn covers(self, other: Mode) -> bool {
        self.supremum(other) as u8 == self as u8
    }

    /// Whether the holder may have changed the resource.
    #[inline]
    pub const fn writes(self) -> bool {
        matches!(self, Mode::Exclusive | Mode::InsertIntention)
    }
}

/// A set of modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ModeSet(u8);

impl ModeSet {
    /// The set of one mode.
    #[inline]
    pub(super) const fn of(mode: Mode) -> ModeSet {
        ModeSet(1 << mode as u8)
    }

    /// The set with one mode more.
    #[inline]
    pub(super) const fn with(self, mode: Mode) -> ModeSet {
        ModeSet(self.0 | ModeSet::of(mode).0)
    }

    /// Whether the mode belongs to the set.
    #[inline]
    pub(super) const fn contains(self, mode: Mode) -> bool {
        self.0 & ModeSet::of(mode).0 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compatibility_is_the_matrix() {
        let matrix = [
            [true, true, false, false],
            [false, false, false, false],
            [false, false, false, false],
            [false, false, false, true],
        ];
        for held in Mode::ALL {
            for requested in Mode::ALL {
                assert_eq!(held.admits(requested), matrix[held as usize][requested as usize], "{held:?} {requested:?}");
            }
        }
        let set = ModeSet::of(Mode::Shared).with(Mode::InsertIntention);
        assert!(set.contains(Mode::Shared) && !set.contains(Mode::Update));
        assert!(Mode::Shared.excludes_any(set), "it keeps out InsertIntention");
    }

    #[test]
    fn supremum_is_a_lattice_and_stronger_modes_admit_less() {
        for a in Mode::ALL {
            assert_eq!(a.supremum(a), a);
            for b in Mode::ALL {
                let join = a.supremum(b);
                assert_eq!(join, b.supremum(a));
                assert!(join.covers(a) && join.covers(b));
                for c in Mode::ALL {
                    assert_eq!(join.supremum(c), a.supremum(b.supremum(c)));
                    assert!(!(c.covers(a) && c.covers(b)) || c.covers(join), "{join:?} is the weakest");
                    assert!(!join.admits(c) || a.admits(c) && b.admits(c));
                }
            }
        }
    }
}
