//! Which pages enter the second-level cache. A design is one file behind [`Admission`] and one line in [`Design`].

mod migrate;

use migrate::Migrate;

/// Decides what becomes of a page that leaves main memory.
pub trait Admission {
    /// Whether a page enters the cache when it is replaced or forced. `modified`: it was changed since it came into memory.
    fn admits(&self, modified: bool) -> bool;
}

/// The designs by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Design {
    /// Every page that is replaced in main memory.
    #[default]
    MigrateAll,
    /// Only pages that were changed in main memory.
    MigrateModified,
    /// Only pages that were not.
    MigrateUnmodified,
}

impl Design {
    /// The design's decisions.
    pub fn build(self) -> Box<dyn Admission> {
        let (modified, unmodified) = match self {
            Design::MigrateAll => (true, true),
            Design::MigrateModified => (true, false),
            Design::MigrateUnmodified => (false, true),
        };
        Box::new(Migrate { modified, unmodified })
    }
}
