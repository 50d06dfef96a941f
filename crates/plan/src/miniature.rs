//! Miniatures: a database, its buffer, its caches and the log between two checkpoints at a part of their sizes, on devices and
//! under arrivals as they are (Waldspurger, Saemundson, Ahmad and Park, "Cache modeling and optimization using miniature
//! simulations", USENIX ATC 2017). Hit ratios stay, and with them what each transaction asks of the devices.

use base::units::{Size, parse_duration_ns};
use toml::{Table, Value};

/// What is made smaller in a workload: the keys of each kind.
const WORKLOAD: [(&str, &str); 5] = [
    ("debit-credit", "scale"),
    ("credit-card", "scale"),
    ("tpc-c", "scale"),
    ("ycsb", "scale"),
    ("page-stream", "pages"),
];

/// Sizes in a configuration, with what they are without a word.
const SIZES: [(&str, &str, Option<u64>, u64); 8] = [
    ("buffer", "size", Some(256 << 20), 16 * 8192),
    ("cache", "size", None, 16 * 8192),
    ("upper_cache", "size", None, 16 * 8192),
    ("write_buffer", "size", None, 16 * 8192),
    ("log", "size", Some(1 << 30), 1 << 20),
    ("checkpoint", "log_bytes", None, 64 << 10),
    ("undo", "memory", Some(64 << 20), 1 << 20),
    ("undo", "size", Some(16 << 30), 64 << 20),
];

/// The default of `checkpoint.interval`, and the least.
const INTERVAL_NS: u64 = 60_000_000_000;
const INTERVAL_NS_MIN: u64 = 1_000_000;

/// Makes the tables of a candidate those of a miniature, `by` times smaller. What cannot be read stays, to be refused by the code
/// that reads it.
///
/// # Errors
/// Why there is no miniature of this workload.
pub(crate) fn shrink(configuration: &mut Table, workload: &mut Table, by: u64) -> Result<(), String> {
    if by <= 1 {
        return Ok(());
    }
    let kind = workload.get("kind").and_then(Value::as_str).unwrap_or("debit-credit").to_owned();
    match kind.as_str() {
        "synthetic" => objects(workload, by)?,
        "trace" | "page-server" | "nodes" | "sort" | "join" | "torture" => {
            return Err(format!("there is no miniature of the workload \"{kind}\""));
        }
        kind => {
            if let Some((_, key)) = WORKLOAD.iter().find(|(known, _)| *known == kind) {
                let whole = workload.get(*key).and_then(Value::as_integer);
                let whole = whole.ok_or_else(|| format!("a miniature needs the workload's '{key}'"))?;
                workload.insert((*key).to_owned(), Value::Integer((whole / by as i64).max(1)));
            }
        }
    }
    for (section, key, default, least) in SIZES {
        let written = configuration.get(section).and_then(|table| table.get(key)).cloned();
        let smaller = match (written, default) {
            (Some(Value::String(text)), _) => smaller(&text, by, least),
            (None, Some(default)) => Some(bytes(default, by, least)),
            _ => None,
        };
        if let Some(smaller) = smaller {
            insert(configuration, section, key, smaller);
        }
    }
    let interval = configuration.get("checkpoint").and_then(|table| table.get("interval")).and_then(Value::as_str);
    // "off" is no duration, and stays.
    if let Some(ns) = interval.map_or(Some(INTERVAL_NS), |text| parse_duration_ns(text).ok()) {
        let smaller = Value::String(format!("{} ns", (ns / by).max(INTERVAL_NS_MIN)));
        insert(configuration, "checkpoint", "interval", smaller);
    }
    Ok(())
}

/// Makes the partitions of a synthetic model smaller.
fn objects(workload: &mut Table, by: u64) -> Result<(), String> {
    let partitions =
        workload.get_mut("model").and_then(|model| model.get_mut("partition")).and_then(Value::as_table_mut);
    let partitions = partitions.ok_or("a miniature needs the partitions of the workload's 'model'")?;
    for partition in partitions.iter_mut().filter_map(|(_, partition)| partition.as_table_mut()) {
        if let Some(objects) = partition.get("objects").and_then(Value::as_integer) {
            partition.insert("objects".to_owned(), Value::Integer((objects / by as i64).max(1)));
        }
    }
    Ok(())
}

/// A size by so much smaller, of bytes or of pages; nothing of what is no size.
fn smaller(text: &str, by: u64, least: u64) -> Option<Value> {
    Some(match text.parse().ok()? {
        Size::Bytes(size) => bytes(size, by, least),
        Size::Pages(pages) => Value::String(format!("{} pages", (pages / by).max(16))),
    })
}

/// A smaller size, in whole units of 64 KiB where it has some.
fn bytes(size: u64, by: u64, least: u64) -> Value {
    let part = (size / by).max(least);
    Value::String(format!("{} B", if part > 1 << 16 { part >> 16 << 16 } else { part }))
}

fn insert(configuration: &mut Table, section: &str, key: &str, value: Value) {
    let table = configuration.entry(section).or_insert_with(|| Value::Table(Table::new()));
    if let Value::Table(table) = table {
        table.insert(key.to_owned(), value);
    }
}
