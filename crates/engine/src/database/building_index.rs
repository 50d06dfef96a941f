//! What others see of the indexes that are being built, and what they can do to them.

use super::Database;
use super::drop::PATIENCE_NS;
use super::index::LOOK_NS;
use crate::engine::{Engine, IndexBuild};
use crate::statistics::add;
use crate::{Error, Result};
use base::PartitionId;
use std::rc::Rc;
use structures::set::FieldError;

/// An index that is being built, for as long as it is being built, or taken back.
pub(super) struct BuildingGuard {
    engine: Rc<Engine>,
    build: Rc<IndexBuild>,
}

impl BuildingGuard {
    pub(super) fn new(engine: &Rc<Engine>, build: IndexBuild) -> BuildingGuard {
        let build = Rc::new(build);
        engine.catalog.index_builds.borrow_mut().push(Rc::clone(&build));
        BuildingGuard { engine: Rc::clone(engine), build }
    }

    /// More records have their entries.
    pub(super) fn add(&self, records: u64) {
        self.build.records.set(self.build.records.get() + records);
        add(&self.engine.core.statistics.indexed_records, records);
    }

    pub(super) fn note_entered(&self) {
        self.build.is_entered.set(true);
    }

    /// # Errors
    /// Why it is built no further, if that is so.
    pub(super) fn check(&self, engine: &Engine) -> Result<()> {
        engine.core.check_open()?;
        if !self.build.is_given_up.get() {
            return Ok(());
        }
        let error = FieldError::SecondaryDropped(self.build.name.clone());
        Err(engine.catalog.describe(self.build.partition)?.field_error(error))
    }
}

impl Drop for BuildingGuard {
    fn drop(&mut self) {
        let mut builds = self.engine.catalog.index_builds.borrow_mut();
        builds.retain(|build| !Rc::ptr_eq(build, &self.build));
    }
}

/// A secondary index that is being built, or of which nothing is being left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexProgress {
    /// The partition's name.
    pub partition: String,
    /// The index's name.
    pub index: String,
    /// How many records have had their entries added.
    pub records: u64,
}

impl Database {
    /// The secondary indexes that are being built.
    pub fn index_builds(&self) -> Vec<IndexProgress> {
        let builds = self.0.engine.catalog.index_builds.borrow();
        let progress = |build: &Rc<IndexBuild>| {
            let partition = self.describe(build.partition).ok()?.name.clone();
            Some(IndexProgress { partition, index: build.name.clone(), records: build.records.get() })
        };
        builds.iter().filter_map(progress).collect()
    }

    /// Has an index that is being built be built no further, and waits until nothing of it is left. False if there is none, or it is there.
    ///
    /// # Errors
    /// [`Error::PartitionInUse`] if the superblock file cannot be told for ten seconds: what is left goes on beside others.
    pub(super) async fn give_up_build(&self, base: PartitionId, name: &str) -> Result<bool> {
        let engine = &self.0.engine;
        let is_it = |build: &&Rc<IndexBuild>| build.partition == base && build.name == name;
        let Some(build) = engine.catalog.index_builds.borrow().iter().find(is_it).cloned() else { return Ok(false) };
        build.is_given_up.set(true);
        let until = engine.core.executor.now().plus_ns(PATIENCE_NS);
        while engine.catalog.index_builds.borrow().iter().any(|other| Rc::ptr_eq(other, &build)) {
            engine.core.check_open()?;
            if engine.core.executor.now() >= until {
                return Err(Error::PartitionInUse(self.describe(base)?.name.clone()));
            }
            engine.core.executor.sleep_ns(LOOK_NS / 20).await;
        }
        Ok(!build.is_entered.get())
    }
}
