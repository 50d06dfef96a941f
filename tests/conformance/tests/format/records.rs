//! Log records, undo records, changes of pages and of sets, read as the document says.

use super::document::{Document, same};
use base::varint;
use std::collections::BTreeSet;

/// What is left of some bytes.
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], String> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or("bytes are missing")?;
        self.0 = rest;
        Ok(taken)
    }

    pub fn number(&mut self, size: usize) -> Result<u64, String> {
        Ok(self.take(size)?.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    pub fn varint(&mut self) -> Result<u64, String> {
        varint::take(&mut self.0).ok_or_else(|| "a varint is cut off".to_owned())
    }

    /// A length u32 and that number of bytes.
    fn bytes(&mut self) -> Result<&'a [u8], String> {
        let length = self.number(4)? as usize;
        self.take(length)
    }
}

/// Names that were met.
pub type Met = BTreeSet<String>;

/// A change of a page.
pub fn change(document: &Document, input: &mut Input<'_>, met: &mut Met) -> Result<(), String> {
    let name = document.name("change", input.number(1)?)?;
    met.insert(format!("change.{name}"));
    match name {
        "format" | "format_ends" => {
            document.name("page-kind", input.number(1)?)?;
            input.take(3)?;
            input.bytes()?;
            if name == "format_ends" {
                input.bytes()?;
            }
        }
        "patch" | "replace_value" => {
            input.take(2)?;
            input.bytes()?;
        }
        "insert_slot" => {
            input.take(2)?;
            input.bytes()?;
            input.bytes()?;
        }
        "remove_slot" => _ = input.take(2)?,
        "patch_value" => {
            input.take(4)?;
            input.bytes()?;
        }
        other => return Err(format!("no change is called {other}")),
    }
    Ok(())
}

/// An undo record.
pub fn undo(document: &Document, input: &mut Input<'_>, met: &mut Met) -> Result<(), String> {
    let name = document.name("undo", input.number(1)?)?;
    met.insert(format!("undo.{name}"));
    match name {
        "remove" | "insert" | "replace" | "patch_value" => {
            input.take(2)?;
            input.bytes()?;
            if name == "patch_value" {
                input.take(2)?;
            }
            if name != "remove" {
                input.bytes()?;
            }
        }
        "patch_page" => {
            input.take(10)?;
            input.bytes()?;
        }
        "erase_appended" => _ = input.take(10)?,
        "free_page" => _ = input.take(8)?,
        other => return Err(format!("no undo record is called {other}")),
    }
    Ok(())
}

/// All changes of sets of a commit: the partitions that they are of.
pub fn set_changes(document: &Document, bytes: &[u8], met: &mut Met) -> Result<Vec<u64>, String> {
    let mut input = Input(bytes);
    let mut partitions = Vec::new();
    while !input.0.is_empty() {
        let head = input.number(1)?;
        let name = document.name("set-change", head & 7)?;
        met.insert(format!("set-change.{name}"));
        partitions.push(if head >> 3 == 31 { input.varint()? } else { head >> 3 });
        let key = input.varint()? as usize;
        input.take(key)?;
        match name {
            "insert" | "replace" => {
                let length = input.varint()? as usize;
                input.take(length)?;
            }
            "patch" => {
                input.varint()?;
                let length = input.varint()? as usize;
                input.take(length)?;
            }
            "delete" => {}
            "add" => same(
                "the width of what is added to, and the amount",
                (input.varint()?, input.varint()?),
                (8 * 4 + 3, 5),
            )?,
            other => return Err(format!("no change of a set is called {other}")),
        }
    }
    Ok(partitions)
}

/// A log record.
pub struct Record<'a> {
    pub kind: &'a str,
    /// The partitions of its changes of sets.
    pub sets: Vec<u64>,
    /// The pages that it edits, with their sequence numbers.
    pub edits: Vec<(u64, u64)>,
}

/// A record with others in it: the edits are those of all.
fn shipment<'a>(
    document: &'a Document,
    kind: &'a str,
    mut input: Input<'_>,
    met: &mut Met,
) -> Result<Record<'a>, String> {
    let mut edits = Vec::new();
    while !input.0.is_empty() {
        let length = document.view("log-record", input.0)?.number("length")? as usize;
        edits.extend(record(document, input.take(length)?, met)?.edits);
    }
    Ok(Record { kind, sets: Vec::new(), edits })
}

/// A whole log record.
pub fn record<'a>(document: &'a Document, bytes: &[u8], met: &mut Met) -> Result<Record<'a>, String> {
    let view = document.view("log-record", bytes)?;
    same("log-record.length", view.number("length")?, bytes.len() as u64)?;
    same("log_record_head_size", view.offset("body") as u64, document.constant("log_record_head_size"))?;
    let name = document.name("log-record-kind", view.number("kind")?)?;
    met.insert(format!("log-record-kind.{name}"));
    let mut input = Input(view.bytes("body")?);
    let mut sets = Vec::new();
    match name {
        "update" => undo(document, &mut input, met)?,
        "system" | "rolled_back" => {}
        "compensation" => _ = input.take(4)?,
        "commit" => same("chains in whole page ids", input.bytes()?.len() % 8, 0)?,
        "chain_step" => _ = input.take(8)?,
        "set_commit" | "swept_commit" => {
            same("chains in whole page ids", input.bytes()?.len() % 8, 0)?;
            sets = set_changes(document, input.bytes()?, met)?;
            if name == "swept_commit" {
                input.take(8)?;
                input.bytes()?;
            }
        }
        "call" | "swept_call" => {
            if name == "swept_call" {
                input.take(8)?;
            }
            input.bytes()?;
        }
        "time" => _ = input.take(8)?,
        "moment" => _ = input.take(16)?,
        "sets_before" => _ = input.bytes()?,
        "long_value" => {
            input.take(4)?;
            input.bytes()?;
        }
        "catalog" => {
            input.take(1)?;
            input.bytes()?;
        }
        "loaded" | "load_ended" => _ = input.take(2)?,
        "load_undone" => _ = input.take(10)?,
        "shipment" => return shipment(document, name, input, met),
        other => return Err(format!("no record is called {other}")),
    }
    let mut edits = Vec::new();
    for _ in 0..view.number("edits")? {
        edits.push((input.number(8)?, input.number(8)?));
        change(document, &mut input, met)?;
    }
    same("bytes behind the record's last edit", input.0.len(), 0)?;
    Ok(Record { kind: name, sets, edits })
}
