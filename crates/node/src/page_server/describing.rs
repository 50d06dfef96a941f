//! What clients are told of the database's partitions.

use crate::message::{Described, DescribedSchema, SCHEMAS_MAX};
use engine::Database;
use engine::catalog::Partition;
use std::rc::Rc;

/// All partitions, as clients have to know them.
pub(super) fn describe(database: &Database) -> Vec<Described> {
    let mut room = SCHEMAS_MAX;
    let described = |found: Rc<Partition>| Described {
        id: found.id,
        name: found.name.clone(),
        organization: found.organization,
        schema: found.schema.as_ref().map(|schema| DescribedSchema::within(&mut room, schema)),
        index_of: found.index_of.map(|of| of.0),
    };
    database.partitions().into_iter().map(described).collect()
}
