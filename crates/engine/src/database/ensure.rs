//! Partitions that are to be there, whether or not they were before.

use super::drop::PATIENCE_NS;
use super::index::LOOK_NS;
use super::{Database, PartitionSpec};
use crate::catalog::{IndexSpec, Partition};
use crate::engine::{Core, Engine};
use crate::{Error, Result};
use base::PartitionId;

impl Database {
    /// The partition of this description: creates it if its name is free. If it is there it is left as it is, but for secondary
    /// indexes that it lacks, which it gets beside its users; it may have others. A program calls this at every start, from
    /// as many tasks as it likes.
    ///
    /// # Errors
    /// [`Error::PartitionDiffers`] if a partition of this name is something else; those of [`Database::create_partition`] and
    /// [`Database::create_index`].
    ///
    /// ```
    /// # mod ground { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ground/database.rs")); }
    /// # use ground::*;
    /// # use entresol_engine::set::{FieldType, RecordType};
    /// # with_database(async |database| {
    /// let user = RecordType::new([("name", FieldType::Text)]).expect("different names");
    /// let users = database.ensure_partition(PartitionSpec::b_tree("users").record(user.clone())).await?;
    /// // A later release of the program wants an index.
    /// let spec = PartitionSpec::b_tree("users").record(user).secondary("by_name", &["name"]);
    /// assert_eq!(database.ensure_partition(spec).await, Ok(users));
    /// assert!(database.secondary(users, "by_name").is_ok());
    /// let other = database.ensure_partition(PartitionSpec::append("users")).await;
    /// assert!(matches!(other, Err(Error::PartitionDiffers { .. })));
    /// # Ok(())
    /// # });
    /// ```
    pub async fn ensure_partition(&self, spec: PartitionSpec) -> Result<PartitionId> {
        if let Ok(found) = self.partition(&spec.name) {
            return self.ensure_alike(found, &spec).await;
        }
        match self.create_partition(spec.clone()).await {
            // Another task was faster.
            Err(Error::PartitionExists(name)) => match self.partition(&name) {
                Ok(found) => self.ensure_alike(found, &spec).await,
                Err(_) => Err(Error::PartitionExists(name)),
            },
            created => created,
        }
    }

    async fn ensure_alike(&self, id: PartitionId, spec: &PartitionSpec) -> Result<PartitionId> {
        if self.lacking(id, spec)?.is_none() {
            return Ok(id);
        }
        let Engine { core: Core { executor, .. }, catalog, .. } = &*self.0.engine;
        // Others that want the same find what this one has made.
        let _turn = catalog.ensuring.take(executor).await;
        let mut until = executor.now().plus_ns(PATIENCE_NS);
        while let Some(index) = self.lacking(id, spec)? {
            let found = self.describe(id)?;
            if !found.has_unready_index() {
                self.create_index(id, index.clone()).await?;
                until = executor.now().plus_ns(PATIENCE_NS);
                continue;
            }
            // One is being built or dropped by its own.
            if executor.now() >= until {
                return Err(Error::PartitionInUse(spec.name.clone()));
            }
            executor.sleep_ns(LOOK_NS).await;
        }
        Ok(id)
    }

    /// The first index of a description that a partition does not have, or that cannot be read.
    fn lacking<'a>(&self, id: PartitionId, spec: &'a PartitionSpec) -> Result<Option<&'a IndexSpec>> {
        let found = self.describe(id)?;
        let differs = |difference| Error::PartitionDiffers { name: spec.name.clone(), difference };
        if let Some(difference) = difference(&found, spec) {
            return Err(differs(difference));
        }
        for index in &spec.secondaries {
            match index_difference(&found, index) {
                None => return Ok(Some(index)),
                Some(Some(difference)) => return Err(differs(difference)),
                Some(None) if self.secondary(id, &index.name).is_err() => return Ok(Some(index)),
                Some(None) => {}
            }
        }
        Ok(None)
    }
}

/// In what a partition is not what a description says, apart from indexes.
fn difference(found: &Partition, spec: &PartitionSpec) -> Option<String> {
    let record = found.schema.as_ref().map(|schema| &schema.record);
    if found.organization != spec.organization {
        let (is, should) = (found.organization, spec.organization);
        let detail = if is.name() == should.name() { " with other sizes" } else { "" };
        return Some(format!("it is organized as {}, not as {}{detail}", is.name(), should.name()));
    }
    if found.locking != spec.locking {
        return Some(format!("its transactions lock {:?}, not {:?}", found.locking, spec.locking).to_lowercase());
    }
    if found.device != spec.device {
        return Some(format!("it is on device '{}', not on '{}'", found.device, spec.device));
    }
    if found.assumed != spec.assumed {
        return Some("only one of both counts as written from the start".to_owned());
    }
    (record != spec.record.as_ref()).then(|| "its records are of another type".to_owned())
}

/// Nothing if there is no index of this name; else in what it is not what a description says, if in anything.
fn index_difference(found: &Partition, spec: &IndexSpec) -> Option<Option<String>> {
    let schema = found.schema.as_ref()?;
    let index = schema.secondaries.iter().find(|index| index.name == spec.name)?;
    let fields = index.fields.iter().map(|field| &schema.record.fields()[*field].name);
    let difference = if !fields.eq(&spec.fields) {
        Some(format!("its index '{}' is over other fields", spec.name))
    } else if index.is_unique != spec.is_unique {
        let is = if index.is_unique { "unique" } else { "not unique" };
        Some(format!("its index '{}' is {is}", spec.name))
    } else {
        None
    };
    Some(difference)
}
