//! A binary trace, read as the document says.

use super::document::{Document, same};
use super::records::Input;
use engine::catalog::Locking;
use structures::checksum::checksum;
use workload::trace::{Partition, Reference, Trace, Type};

fn name<'a>(input: &mut Input<'a>) -> Result<&'a [u8], String> {
    let length = input.number(1)? as usize;
    input.take(length)
}

fn part<'a>(document: &'a Document, input: &mut Input<'a>, expected: &str) -> Result<Input<'a>, String> {
    let view = document.view("trace-part", input.0)?;
    let (length, head) = (view.number("length")? as usize, view.offset("bytes"));
    same("a part of a trace", document.name("trace-part-kind", view.number("kind")?)?, expected)?;
    view.bytes("bytes")?;
    let whole = input.take(head + length)?;
    same("a part's checksum", input.number(4)?, u64::from(checksum(whole)))?;
    Ok(Input(&whole[head..]))
}

pub fn compare(document: &Document) -> Result<(), String> {
    let mut trace = Trace::new();
    let locks = Locking::Record;
    let partition = Partition { name: "accounts".into(), objects: 1000, blocking_factor: 10, locks };
    trace.add_partition(partition).map_err(|problem| format!("{problem:?}"))?;
    trace.add_type(Type { name: "debit".into(), rate_per_s: Some(1.5) }).map_err(|problem| format!("{problem:?}"))?;
    trace.begin(0);
    for (object, write) in [(500, true), (499, false)] {
        trace.refer(Reference { partition: 0, write, object }).map_err(|problem| format!("{problem:?}"))?;
    }
    let bytes = trace.to_binary();
    let view = document.view("trace", &bytes)?;
    same("trace_version", view.number("version")?, document.constant("trace_version"))?;
    let mut input = Input(view.bytes("parts")?);
    let mut tables = part(document, &mut input, "tables")?;
    same("partitions", (tables.varint()?, name(&mut tables)?), (1, &b"accounts"[..]))?;
    same("a partition", (tables.varint()?, tables.varint()?, tables.number(1)?), (1000, 10, 1))?;
    same("types", (tables.varint()?, name(&mut tables)?), (1, &b"debit"[..]))?;
    same("a rate", (tables.take(8)?, tables.0.len()), (&1.5_f64.to_le_bytes()[..], 0))?;
    let mut block = part(document, &mut input, "block")?;
    same("transactions", (block.varint()?, block.varint()?, block.varint()?), (1, 0, 2))?;
    same("references", [block.varint()?, block.varint()?, block.varint()?, block.varint()?], [1, 1000, 0, 1])?;
    let mut end = part(document, &mut input, "end")?;
    same("the end", (end.varint()?, end.varint()?, end.0.len(), input.0.len()), (1, 2, 0, 0))
}
