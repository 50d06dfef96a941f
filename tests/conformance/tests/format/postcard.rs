//! Reading postcard by the document's structures.

use super::document::Document;
use base::varint;
use std::collections::BTreeMap;

/// The numbers and texts of a structure by their paths, as `tiers.0.device`.
pub type Found = BTreeMap<String, String>;

pub struct Reader<'a> {
    pub document: &'a Document,
    pub rest: &'a [u8],
}

impl Reader<'_> {
    pub fn varint(&mut self) -> Result<u64, String> {
        varint::take(&mut self.rest).ok_or_else(|| "a varint is cut off".to_owned())
    }

    pub fn byte(&mut self) -> Result<u8, String> {
        let (first, rest) = self.rest.split_first().ok_or("a byte is missing")?;
        self.rest = rest;
        Ok(*first)
    }

    pub fn string(&mut self) -> Result<String, String> {
        let length = self.varint()? as usize;
        let (text, rest) = self.rest.split_at_checked(length).ok_or("a string is cut off")?;
        self.rest = rest;
        String::from_utf8(text.to_vec()).map_err(|error| error.to_string())
    }

    pub fn structure(&mut self, name: &str, path: &str, found: &mut Found) -> Result<(), String> {
        for (field, kind) in self.document.structure(name) {
            self.document.note(format!("{name}.{field}"));
            self.value(kind, &format!("{path}{field}"), found)?;
        }
        Ok(())
    }

    fn value(&mut self, kind: &str, path: &str, found: &mut Found) -> Result<(), String> {
        let text = match kind.split_once(' ') {
            Some(("list", kind)) => {
                let count = self.varint()?;
                for index in 0..count {
                    self.value(kind, &format!("{path}.{index}"), found)?;
                }
                count.to_string()
            }
            Some(("option", kind)) => {
                let is_some = self.flag()?;
                if is_some {
                    self.value(kind, path, found)?;
                    return Ok(());
                }
                "none".to_owned()
            }
            _ => match kind {
                "string" => self.string()?,
                "u8" => self.byte()?.to_string(),
                "bool" => self.flag()?.to_string(),
                "u16" | "u32" | "u64" => self.varint()?.to_string(),
                "organization" => self.organization(path, found)?,
                structure => return self.structure(structure, &format!("{path}."), found),
            },
        };
        found.insert(path.to_owned(), text);
        Ok(())
    }

    pub fn flag(&mut self) -> Result<bool, String> {
        match self.byte()? {
            flag @ 0..=1 => Ok(flag == 1),
            other => Err(format!("{other} is neither 0 nor 1")),
        }
    }

    fn organization(&mut self, path: &str, found: &mut Found) -> Result<String, String> {
        let number = self.varint()?;
        let name = self.document.name("organization", number)?.to_owned();
        let fields: &[&str] = match name.as_str() {
            "direct" => &["objects", "blocking_factor", "record_size"],
            "append" => &["blocking_factor"],
            "b_tree" => &[],
            "set" => &["arrivals", "segment_size", "reserve"],
            other => return Err(format!("no organization is called {other}")),
        };
        for field in fields {
            let number = if ["arrivals", "reserve"].contains(field) { u64::from(self.byte()?) } else { self.varint()? };
            found.insert(format!("{path}.{field}"), number.to_string());
        }
        Ok(name)
    }

    /// A schema's types of fields.
    pub fn schema(&mut self) -> Result<Vec<String>, String> {
        let types = self.fields()?;
        for _ in 0..self.varint()? {
            self.string()?;
            for _ in 0..self.varint()? {
                self.varint()?;
            }
        }
        Ok(types)
    }

    /// The types of fields.
    pub fn fields(&mut self) -> Result<Vec<String>, String> {
        let mut types = Vec::new();
        for _ in 0..self.varint()? {
            self.string()?;
            let number = self.varint()?;
            let name = self.document.name("field-type", number)?.to_owned();
            if name == "array" {
                self.varint()?;
            }
            types.push(name);
        }
        Ok(types)
    }
}
