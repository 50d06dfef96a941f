//! What the configuration says of partitions that exist: what can be followed is, and what cannot is refused by the name of its key.
//! `residence`, `cache` and `write_buffer` are followed where pages are placed.

use crate::configuration::{Configuration, LockGranule, Organization, Partition};
use engine::catalog::{self, IndexSpec, Locking};
use engine::{Database, Error, Result};

/// Builds secondary indexes that existing partitions are said to have, and refuses what they are said to be and are not.
pub(crate) async fn follow(database: &Database, configuration: &Configuration) -> Result<()> {
    for (name, configured) in &configuration.partitions {
        let Ok(id) = database.partition(name) else { continue };
        let found = database.describe(id)?;
        let differs = |(key, is): (&str, String)| {
            let advice = "take the key out, or give the name to a new partition";
            Error::Setting(format!("[partition.{name}] {key}: the partition exists, and {is}; {advice}"))
        };
        if let Some(difference) = difference(&found, configured, configuration.buffer.page_size) {
            return Err(differs(difference));
        }
        for (index, fields) in &configured.secondaries {
            match has_index(&found, index, fields) {
                Some(true) => {}
                Some(false) => return Err(differs(("secondary", format!("its index '{index}' is over other fields")))),
                None => {
                    let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
                    database.create_index(id, IndexSpec::new(index, &fields)).await?;
                }
            }
        }
    }
    Ok(())
}

/// The first key that the file names and that a partition differs in, and what the partition is.
fn difference(found: &catalog::Partition, configured: &Partition, page_size: u32) -> Option<(&'static str, String)> {
    let is = |key, is_so: bool, what: String| (!is_so && configured.named.contains(&key)).then_some((key, what));
    let of = |key, found: Option<u64>, wanted: Option<u64>| {
        let found = found?;
        is(key, wanted.is_none_or(|wanted| wanted == found), format!("has {found}"))
    };
    let (blocking_factor, record_size, objects) = match found.organization {
        catalog::Organization::Direct { objects, blocking_factor, record_size } => {
            (Some(blocking_factor), Some(record_size), Some(objects))
        }
        catalog::Organization::Append { blocking_factor } => (Some(blocking_factor), None, None),
        catalog::Organization::BTree | catalog::Organization::Set { .. } => (None, None, None),
    };
    let (segment_size, reserve_percent) = match found.organization {
        catalog::Organization::Set { segment_size, reserve_percent, .. } => (Some(segment_size), Some(reserve_percent)),
        _ => (None, None),
    };
    let locks = match found.locking {
        Locking::Record => LockGranule::Record,
        Locking::Page => LockGranule::Page,
        Locking::None => LockGranule::None,
    };
    let locked = || format!("its transactions lock by {:?}", found.locking).to_lowercase();
    let record = found.schema.as_ref().map(|schema| &schema.record);
    is("device", found.device == configured.device, format!("is on device '{}'", found.device))
        .or_else(|| {
            let is_so = is_organized(found.organization, configured.organization);
            is("organization", is_so, format!("is organized as {}", organized(found.organization)))
        })
        .or_else(|| is("locks", locks == configured.locks, locked()))
        .or_else(|| of("page_size", Some(page_size.into()), configured.page_size.map(u64::from)))
        .or_else(|| of("blocking_factor", blocking_factor.map(u64::from), configured.blocking_factor.map(u64::from)))
        .or_else(|| of("record_size", record_size.map(u64::from), configured.record_size.map(u64::from)))
        .or_else(|| of("objects", objects, configured.objects))
        .or_else(|| of("segment_size", segment_size.map(u64::from), configured.segment_size.map(u64::from)))
        .or_else(|| of("reserve_percent", reserve_percent.map(u64::from), configured.reserve_percent.map(u64::from)))
        .or_else(|| {
            is("record", record == configured.record.as_ref(), "its records are of another type, or of none".to_owned())
        })
}

fn organized(found: catalog::Organization) -> &'static str {
    if matches!(found, catalog::Organization::Set { arrivals: true, .. }) { "arrivals" } else { found.name() }
}

fn is_organized(found: catalog::Organization, configured: Organization) -> bool {
    match configured {
        Organization::BTree => matches!(found, catalog::Organization::BTree),
        Organization::Direct => matches!(found, catalog::Organization::Direct { .. }),
        Organization::Append => matches!(found, catalog::Organization::Append { .. }),
        Organization::Set => matches!(found, catalog::Organization::Set { arrivals: false, .. }),
        Organization::Arrivals => matches!(found, catalog::Organization::Set { arrivals: true, .. }),
    }
}

/// Whether an index of this name is over these fields; nothing if there is none of this name.
fn has_index(found: &catalog::Partition, name: &str, fields: &[String]) -> Option<bool> {
    let schema = found.schema.as_ref()?;
    let index = schema.secondaries.iter().find(|index| index.name == name)?;
    let over = index.fields.iter().map(|field| &schema.record.fields()[*field].name);
    Some(over.eq(fields))
}
