//! A synthetic workload as TOML, with errors that name the line.

use super::{Instructions, Model, Partition, Subpartition, TransactionType};
use base::units::{format_size, parse_size};
use engine::catalog::Locking;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ops::Range;
use toml::Spanned;

/// Why a text describes no synthetic workload.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{source_name}{}: {problem}", .line.map(|line| format!(":{line}")).unwrap_or_default())]
pub struct DescriptionError {
    /// Where the text comes from.
    pub source_name: String,
    /// The line, counted from 1, where one is to blame.
    pub line: Option<usize>,
    /// What is wrong and what is allowed.
    pub problem: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    partition: BTreeMap<Spanned<String>, PartitionTable>,
    #[serde(default, rename = "type")]
    types: BTreeMap<Spanned<String>, TypeTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PartitionTable {
    objects: Spanned<u64>,
    blocking_factor: Option<Spanned<u32>>,
    locks: Option<Locks>,
    record_size: Option<Spanned<String>>,
    subpartitions: Option<Spanned<Vec<SubpartitionTable>>>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Locks {
    Page,
    Object,
    None,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SubpartitionTable {
    size: Spanned<f64>,
    access: Spanned<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TypeTable {
    arrival_rate: Spanned<f64>,
    size: Spanned<f64>,
    #[serde(default)]
    variable_size: bool,
    write_probability: Spanned<f64>,
    #[serde(default)]
    sequential: bool,
    references: Spanned<BTreeMap<Spanned<String>, Spanned<f64>>>,
    #[serde(default)]
    instructions: InstructionsTable,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct InstructionsTable {
    begin_transaction: Option<u64>,
    object_reference: Option<u64>,
    end_transaction: Option<u64>,
}

/// The most objects of a partition: they are numbered with 48 bits.
const OBJECTS_MAX: u64 = 1 << 48;
/// The most references of a transaction on average.
const SIZE_MAX: f64 = 1e6;
/// The most arrivals per second: one each nanosecond.
const RATE_MAX: f64 = 1e9;

/// The text that is read, for naming places in it.
struct Source<'a> {
    name: &'a str,
    text: &'a str,
}

impl Source<'_> {
    fn error(&self, span: Option<Range<usize>>, problem: String) -> DescriptionError {
        let line = span.map(|span| 1 + self.text[..span.start].matches('\n').count());
        DescriptionError { source_name: self.name.to_owned(), line, problem }
    }

    fn check<T>(&self, value: &Spanned<T>, allowed: bool, problem: impl FnOnce() -> String) -> Checked<()> {
        if allowed { Ok(()) } else { Err(self.error(Some(value.span()), problem())) }
    }

    fn check_name(&self, name: &Spanned<String>) -> Checked<()> {
        let text = name.get_ref();
        self.check(name, crate::is_name(text), || format!("'{text}' {}", crate::NAME_RULE))
    }

    /// A share: zero or more, in any unit.
    fn share(&self, key: &str, share: &Spanned<f64>) -> Checked<f64> {
        let number = *share.get_ref();
        let allowed = number >= 0.0 && number.is_finite();
        self.check(share, allowed, || format!("'{key}' is {number}; a share is a number from 0 on"))?;
        Ok(number)
    }
}

type Checked<T> = Result<T, DescriptionError>;

impl Model {
    /// Reads a workload from TOML; `source_name` (a file, say) appears in errors.
    ///
    /// # Errors
    /// [`DescriptionError`] that names the line and what is allowed there.
    pub fn parse(text: &str, source_name: &str) -> Result<Model, DescriptionError> {
        let source = Source { name: source_name, text };
        let file: File = toml::from_str(text).map_err(|error| {
            // What is allowed is in the message, on one or several lines.
            let message = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
            source.error(error.span(), message)
        })?;
        for (what, missing) in [("partition", file.partition.is_empty()), ("type", file.types.is_empty())] {
            if missing {
                return Err(source.error(None, format!("there is no section [{what}.NAME]; at least one is needed")));
            }
        }
        let mut partitions = Vec::new();
        for (name, table) in &file.partition {
            partitions.push(partition(&source, name, table)?);
        }
        let mut types = Vec::new();
        for (name, table) in &file.types {
            types.push(transaction_type(&source, name, table, &partitions)?);
        }
        let model = Model { partitions, types };
        if model.rate_per_s() <= 0.0 {
            let first = file.types.values().next().expect("there is a type");
            let problem = "no transaction ever arrives: each 'arrival_rate' is 0".to_owned();
            return Err(source.error(Some(first.arrival_rate.span()), problem));
        }
        Ok(model)
    }
}

fn partition(source: &Source<'_>, name: &Spanned<String>, table: &PartitionTable) -> Checked<Partition> {
    source.check_name(name)?;
    let objects = *table.objects.get_ref();
    source.check(&table.objects, (1..=OBJECTS_MAX).contains(&objects), || {
        format!("'objects' is {objects}; allowed are 1 to {OBJECTS_MAX}")
    })?;
    let mut blocking_factor = 1;
    if let Some(written) = &table.blocking_factor {
        blocking_factor = *written.get_ref();
        source.check(written, (1..=65_535).contains(&blocking_factor), || {
            format!("'blocking_factor' is {blocking_factor}; allowed are 1 to 65,535")
        })?;
    }
    let pages = objects.div_ceil(blocking_factor.into());
    source.check(&table.objects, u32::try_from(pages).is_ok(), || {
        format!("{objects} objects, {blocking_factor} on a page, make {pages} pages; allowed are 4,294,967,295")
    })?;
    let mut record_size = None;
    if let Some(written) = &table.record_size {
        let size =
            parse_size(written.get_ref()).map_err(|error| source.error(Some(written.span()), error.to_string()))?;
        source.check(written, (1..=65_536).contains(&size), || {
            format!("'record_size' is {}; allowed are 1 B to 64 KiB", format_size(size))
        })?;
        record_size = Some(size as u32);
    }
    let locks = table.locks.map(|locks| match locks {
        Locks::Page => Locking::Page,
        Locks::Object => Locking::Record,
        Locks::None => Locking::None,
    });
    let subpartitions = match &table.subpartitions {
        None => vec![Subpartition { size: 1.0, access: 1.0 }],
        Some(written) => subpartitions(source, written, objects)?,
    };
    Ok(Partition { name: name.get_ref().clone(), objects, blocking_factor, locks, record_size, subpartitions })
}

fn subpartitions(
    source: &Source<'_>,
    written: &Spanned<Vec<SubpartitionTable>>,
    objects: u64,
) -> Checked<Vec<Subpartition>> {
    let mut parts = Vec::new();
    for table in written.get_ref() {
        parts.push(Subpartition {
            size: source.share("size", &table.size)?,
            access: source.share("access", &table.access)?,
        });
    }
    let size: f64 = parts.iter().map(|part| part.size).sum();
    let access: f64 = parts.iter().map(|part| part.access).sum();
    source.check(written, size > 0.0 && access > 0.0 && (size + access).is_finite(), || {
        "the sizes and the accesses of 'subpartitions' must each add up to more than 0".to_owned()
    })?;
    for (range, (part, table)) in super::draw::ranges(&parts, objects).iter().zip(parts.iter().zip(written.get_ref())) {
        source.check(&table.size, part.access == 0.0 || !range.is_empty(), || {
            format!("this subpartition is referenced but holds none of the {objects} objects; enlarge its 'size'")
        })?;
    }
    Ok(parts)
}

fn transaction_type(
    source: &Source<'_>,
    name: &Spanned<String>,
    table: &TypeTable,
    partitions: &[Partition],
) -> Checked<TransactionType> {
    source.check_name(name)?;
    let rate_per_s = *table.arrival_rate.get_ref();
    source.check(&table.arrival_rate, (0.0..=RATE_MAX).contains(&rate_per_s), || {
        format!("'arrival_rate' is {rate_per_s}; allowed are 0 to 1e9 per second")
    })?;
    let size = *table.size.get_ref();
    source.check(&table.size, (1.0..=SIZE_MAX).contains(&size), || {
        format!("'size' is {size}; allowed are 1 to 1,000,000 objects")
    })?;
    source.check(&table.size, table.variable_size || size.fract() == 0.0, || {
        format!("'size' is {size}; without variable_size = true it is a whole number")
    })?;
    let write_probability = *table.write_probability.get_ref();
    source.check(&table.write_probability, (0.0..=1.0).contains(&write_probability), || {
        format!("'write_probability' is {write_probability}; allowed are 0 to 1")
    })?;
    let references = row(source, &table.references, partitions)?;
    let InstructionsTable { begin_transaction, object_reference, end_transaction } = table.instructions;
    Ok(TransactionType {
        name: name.get_ref().clone(),
        rate_per_s,
        size,
        variable_size: table.variable_size,
        write_probability,
        sequential: table.sequential,
        references,
        instructions: Instructions { begin_transaction, object_reference, end_transaction },
    })
}

/// A type's row of the reference matrix.
fn row(
    source: &Source<'_>,
    written: &Spanned<BTreeMap<Spanned<String>, Spanned<f64>>>,
    partitions: &[Partition],
) -> Checked<Vec<f64>> {
    let mut row = vec![0.0; partitions.len()];
    for (name, share) in written.get_ref() {
        let known = partitions.iter().position(|partition| partition.name == *name.get_ref());
        let Some(index) = known else {
            let names: Vec<&str> = partitions.iter().map(|partition| partition.name.as_str()).collect();
            let problem = format!("there is no partition '{}'; known are {}", name.get_ref(), names.join(", "));
            return Err(source.error(Some(name.span()), problem));
        };
        row[index] = source.share(name.get_ref(), share)?;
    }
    let sum: f64 = row.iter().sum();
    source.check(written, sum > 0.0 && sum.is_finite(), || {
        "the shares of 'references' must add up to more than 0".to_owned()
    })?;
    Ok(row)
}
