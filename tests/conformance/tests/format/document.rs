//! The blocks of the document.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// A field of a layout.
struct Field {
    name: String,
    offset: usize,
    /// `None`: the rest.
    size: Option<usize>,
    /// What it always holds.
    value: Option<Vec<u8>>,
}

/// What the document states. What was asked for is noted.
#[derive(Default)]
pub struct Document {
    constants: BTreeMap<String, u64>,
    layouts: BTreeMap<String, Vec<Field>>,
    values: BTreeMap<String, BTreeMap<u64, String>>,
    structures: BTreeMap<String, Vec<(String, String)>>,
    stated: BTreeSet<String>,
    used: RefCell<BTreeSet<String>>,
}

/// A layout over bytes that begin where the layout's offset 0 is.
#[derive(Clone, Copy)]
pub struct View<'a> {
    document: &'a Document,
    layout: &'a str,
    bytes: &'a [u8],
}

fn literal(text: &str) -> Result<Vec<u8>, String> {
    if let Some(quoted) = text.strip_prefix('"') {
        let plain = quoted.strip_suffix('"').ok_or("an open quotation mark")?;
        let (mut bytes, mut rest) = (Vec::new(), plain);
        while let Some(next) = rest.chars().next() {
            if let Some(escaped) = rest.strip_prefix("\\x") {
                bytes.push(u8::from_str_radix(&escaped[..2], 16).map_err(|error| error.to_string())?);
                rest = &escaped[2..];
            } else {
                bytes.push(next as u8);
                rest = &rest[1..];
            }
        }
        return Ok(bytes);
    }
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    Ok(number.map_err(|_| format!("'{text}' is no number"))?.to_le_bytes().to_vec())
}

impl Document {
    pub fn read(text: &str) -> Result<Document, String> {
        let mut document = Document::default();
        let mut block: Option<(&str, &str)> = None;
        for line in text.lines() {
            if let Some(head) = line.strip_prefix("```") {
                block = head.split_once(' ').or((head == "constants").then_some((head, "")));
            } else if let Some((kind, name)) = block {
                document.add(kind, name, line).map_err(|flaw| format!("'{line}': {flaw}"))?;
            }
        }
        Ok(document)
    }

    fn add(&mut self, kind: &str, name: &str, line: &str) -> Result<(), String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| words[at].parse::<u64>().map_err(|_| format!("'{}' is no number", words[at]));
        match kind {
            "constants" => {
                self.stated.insert(words[0].to_owned());
                self.constants.insert(words[0].to_owned(), number(2)?);
            }
            "values" => {
                self.stated.insert(format!("{name}.{}", words[1]));
                let twice = self.values.entry(name.to_owned()).or_default().insert(number(0)?, words[1].to_owned());
                twice.map_or(Ok(()), |other| Err(format!("'{other}' has the number, too")))?;
            }
            "layout" => {
                let fields = self.layouts.entry(name.to_owned()).or_default();
                let offset = number(0)? as usize;
                let end = fields.last().map(|field| field.offset + field.size.unwrap_or(usize::MAX / 2));
                if end.is_some_and(|end| end != offset) {
                    return Err("it does not begin where the one before ends".to_owned());
                }
                let size = if words[1] == "*" { None } else { Some(number(1)? as usize) };
                let value = if words.get(3) == Some(&"=") { Some(literal(words[4])?) } else { None };
                self.stated.insert(format!("{name}.{}", words[2]));
                fields.push(Field { name: words[2].to_owned(), offset, size, value });
            }
            "postcard" => {
                self.stated.insert(format!("{name}.{}", words[0]));
                let field = (words[0].to_owned(), words[1..].join(" "));
                self.structures.entry(name.to_owned()).or_default().push(field);
            }
            _ => return Err(format!("no such kind of block: {kind}")),
        }
        Ok(())
    }

    pub fn note(&self, name: String) {
        self.used.borrow_mut().insert(name);
    }

    /// A statement that nothing was compared with.
    pub fn unused(&self) -> Option<String> {
        let used = self.used.borrow();
        self.stated.iter().find(|name| !used.contains(*name)).cloned()
    }

    pub fn constant(&self, name: &str) -> u64 {
        self.note(name.to_owned());
        self.constants[name]
    }

    /// The name of a number of an enumeration.
    pub fn name(&self, values: &str, number: u64) -> Result<&str, String> {
        let name = self.values[values].get(&number).ok_or_else(|| format!("{number} is no {values}"))?;
        self.note(format!("{values}.{name}"));
        Ok(name)
    }

    /// The number of a name of an enumeration.
    pub fn number(&self, values: &str, name: &str) -> Result<u64, String> {
        self.note(format!("{values}.{name}"));
        let found = self.values[values].iter().find(|(_, other)| *other == name);
        found.map(|(number, _)| *number).ok_or_else(|| format!("there is no {values} '{name}'"))
    }

    pub fn structure(&self, name: &str) -> &[(String, String)] {
        &self.structures[name]
    }

    /// Lays a layout over bytes; what never varies is compared.
    pub fn view<'a>(&'a self, layout: &'a str, bytes: &'a [u8]) -> Result<View<'a>, String> {
        let view = View { document: self, layout, bytes };
        for Field { name, value, .. } in &self.layouts[layout] {
            if let Some(value) = value {
                let found = view.bytes(name)?;
                let expected: Vec<u8> = value.iter().copied().chain(std::iter::repeat(0)).take(found.len()).collect();
                same(&format!("{layout}.{name}"), found, &expected)?;
            }
        }
        Ok(view)
    }
}

impl<'a> View<'a> {
    fn field(&self, name: &str) -> &'a Field {
        self.document.note(format!("{}.{name}", self.layout));
        let fields = &self.document.layouts[self.layout];
        fields.iter().find(|field| field.name == name).unwrap_or_else(|| panic!("{}.{name} is not stated", self.layout))
    }

    pub fn bytes(&self, name: &str) -> Result<&'a [u8], String> {
        let field = self.field(name);
        let end = field.size.map_or(self.bytes.len(), |size| field.offset + size);
        self.bytes.get(field.offset..end).ok_or_else(|| format!("{}.{name} is beyond the end", self.layout))
    }

    pub fn number(&self, name: &str) -> Result<u64, String> {
        let bytes = self.bytes(name)?;
        Ok(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    pub fn offset(&self, name: &str) -> usize {
        self.field(name).offset
    }
}

pub fn same<T: PartialEq<U> + std::fmt::Debug, U: std::fmt::Debug>(
    what: &str,
    found: T,
    stated: U,
) -> Result<(), String> {
    if found == stated { Ok(()) } else { Err(format!("{what}: {found:?} was found, {stated:?} is stated")) }
}
