//! The shell's own procedures: one record each.

use super::request::{PREFIX, Request, Verb, written};
use base::units::format_size;
use engine::catalog::{Organization, Partition};
use engine::set::{FieldType, FieldValue};
use entresol::{Database, Error, PartitionSize, Procedures, Result, Transaction};

/// Adds them to those of a database.
pub fn register(all: &mut Procedures) {
    for name in ["get", "put", "set", "add", "delete"] {
        all.register(&format!("{PREFIX}{name}"), async |tx, bytes| {
            let request = Request::from_bytes(bytes);
            let request = request.ok_or_else(|| Error::Argument("these bytes are no request of a shell".into()))?;
            answer(tx, &request).await.map(String::into_bytes)
        });
    }
}

/// The database's partitions and the room that they take, for people.
pub async fn list(database: &Database) -> Result<String> {
    let mut lines = Vec::new();
    for partition in database.partitions() {
        // It may have been dropped meanwhile.
        match database.size(partition.id()).await {
            Err(Error::NoPartition(_)) => {}
            size => lines.push(line(&partition, size?)),
        }
    }
    Ok(if lines.is_empty() { "there are no partitions".to_owned() } else { lines.join("\n") })
}

fn line(partition: &Partition, size: PartitionSize) -> String {
    let fields = partition.schema.as_ref().map_or_else(String::new, |schema| {
        let fields = schema.record.fields().iter().map(|field| format!("{}: {}", field.name, field.kind));
        format!(" ({})", fields.collect::<Vec<_>>().join(", "))
    });
    let [used, free, file] = [size.used, size.free, size.file].map(format_size);
    let (name, organization) = (&partition.name, partition.organization.name());
    format!("{name}: {organization}{fields}\n    {used} in use, {free} free, {file} of files on {}", partition.device)
}

async fn answer(tx: &mut Transaction, request: &Request) -> Result<String> {
    let Request { partition, key, verb } = request;
    let id = tx.partition(partition)?;
    let found = tx.catalog().describe(id)?;
    let direct = matches!(found.organization, Organization::Direct { .. });
    let number = || {
        let number = key.as_slice().try_into().map(u64::from_be_bytes);
        number.map_err(|_| Error::Argument(format!("records of partition '{partition}' have numbers, not names")))
    };
    match verb {
        Verb::Get { field: Some(field) } => {
            let (field, mut buffer) = (tx.catalog().field(id, field)?, Vec::new());
            let value = tx.get_field(id, key, field, &mut buffer).await?;
            value.map(|value| shown(&value)).ok_or_else(|| Error::NoRecord(partition.clone()))
        }
        Verb::Get { field: None } if direct => tx.read_object(id, number()?, written).await,
        Verb::Get { field: None } => {
            let record = tx.get(id, key).await?.ok_or_else(|| Error::NoRecord(partition.clone()))?;
            Ok(described(&found, &record))
        }
        Verb::Put { value } => tx.put(id, key, value).await.map(|()| "done".to_owned()),
        Verb::Set { field, value } => {
            let field = tx.catalog().field(id, field)?;
            let kind = found.typed()?.record.fields()[field].kind;
            let value =
                parsed(kind, value).ok_or_else(|| Error::Argument(format!("'{value}' is not of type {kind}")))?;
            tx.set_field(id, key, field, value).await.map(|()| "done".to_owned())
        }
        Verb::Add { field: Some(field), amount } => {
            let field = tx.catalog().field(id, field)?;
            tx.add_to_field(id, key, field, *amount).await.map(|value| shown(&value))
        }
        Verb::Add { field: None, amount } => {
            let add = |record: &mut [u8]| {
                let front: &mut [u8; 8] = record.first_chunk_mut()?;
                let sum = i64::from_le_bytes(*front).checked_add(*amount)?;
                *front = sum.to_le_bytes();
                Some(sum.to_string())
            };
            let sum =
                if direct { tx.modify_object(id, number()?, add).await? } else { tx.modify(id, key, add).await? };
            sum.ok_or_else(|| Error::Argument("the record's first eight bytes are no number that this fits".into()))
        }
        Verb::Delete => match tx.delete(id, key).await? {
            true => Ok("done".to_owned()),
            false => Err(Error::NoRecord(partition.clone())),
        },
    }
}

/// A record for people: by field, where it has fields.
fn described(found: &Partition, record: &[u8]) -> String {
    let Some(schema) = &found.schema else { return written(record) };
    let fields = schema.record.fields().iter().enumerate().map(|(number, field)| {
        let value = schema.record.decode(record, number).map_or_else(|error| error.to_string(), |value| shown(&value));
        format!("{}: {value}", field.name)
    });
    fields.collect::<Vec<_>>().join(", ")
}

fn shown(value: &FieldValue<'_>) -> String {
    match value {
        FieldValue::Bytes(bytes) => written(bytes),
        FieldValue::Text(text) => format!("\"{text}\""),
        number => number.digits().unwrap_or_default(),
    }
}

fn parsed(kind: FieldType, text: &str) -> Option<FieldValue<'_>> {
    Some(match kind {
        FieldType::U8 => FieldValue::U8(text.parse().ok()?),
        FieldType::U16 => FieldValue::U16(text.parse().ok()?),
        FieldType::U32 => FieldValue::U32(text.parse().ok()?),
        FieldType::U64 => FieldValue::U64(text.parse().ok()?),
        FieldType::I64 => FieldValue::I64(text.parse().ok()?),
        FieldType::F64 => FieldValue::F64(text.parse().ok()?),
        FieldType::Array(_) | FieldType::Bytes => FieldValue::Bytes(text.as_bytes()),
        FieldType::Text => FieldValue::Text(text),
    })
}
