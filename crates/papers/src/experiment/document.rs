//! A TOML text as a tree of values that remembers the place of each, so that an error in a value after it has been combined
//! with others is shown at its origin.

use super::ExperimentError;
use entresol::configuration::{Finding, Problem, nearest};
use std::collections::BTreeMap;
use std::ops::Range;
use toml::de::{DeTable, DeValue};
use toml::{Table, Value};

/// A parsed text. Places are named by dotted paths; the elements of arrays by their numbers.
#[derive(Clone, Debug)]
pub struct Document {
    file: String,
    text: String,
    /// The values.
    pub table: Table,
    /// Where the key and the value of each path stand.
    spans: BTreeMap<String, (Range<usize>, Range<usize>)>,
}

impl Document {
    /// Parses a text; `file` names it in messages.
    ///
    /// # Errors
    /// [`ExperimentError::Wrong`] if it is no TOML.
    pub fn parse(file: &str, text: &str) -> Result<Document, ExperimentError> {
        let syntax = |error: toml::de::Error| {
            let span = error.span().unwrap_or(text.len()..text.len());
            let problem = Problem::Syntax(error.message().to_owned());
            ExperimentError::Wrong(Box::new(Finding::new(file, text, span, problem, String::new(), None)))
        };
        let spanned = DeTable::parse(text).map_err(syntax)?;
        let table: Table = toml::from_str(text).map_err(syntax)?;
        let mut spans = BTreeMap::new();
        collect(spanned.get_ref(), "", &mut spans);
        Ok(Document { file: file.to_owned(), text: text.to_owned(), table, spans })
    }

    /// Whether something stands at this path.
    pub fn holds(&self, path: &str) -> bool {
        self.spans.contains_key(path)
    }

    /// The value at this path, through tables and arrays.
    pub fn value(&self, path: &str) -> Option<&Value> {
        let (first, rest) = path.split_once('.').unwrap_or((path, ""));
        let mut value = self.table.get(first)?;
        for segment in rest.split('.').filter(|segment| !segment.is_empty()) {
            value = match value {
                Value::Table(table) => table.get(segment)?,
                Value::Array(array) => array.get(segment.parse::<usize>().ok()?)?,
                _ => return None,
            };
        }
        Some(value)
    }

    /// The error that `problem` with the key at `path` makes.
    pub fn at_key(&self, path: &str, problem: Problem, allowed: &str, near: Option<String>) -> ExperimentError {
        self.finding(self.nearest_span(path).0, problem, allowed, near)
    }

    /// The error that `problem` with the value at `path` makes.
    pub fn at_value(&self, path: &str, problem: Problem, allowed: &str, near: Option<String>) -> ExperimentError {
        self.finding(self.nearest_span(path).1, problem, allowed, near)
    }

    /// The error that a name makes which is none of those allowed.
    pub fn unknown(&self, path: &str, what: &'static str, section: &str, allowed: &[&str]) -> ExperimentError {
        let name = path.rsplit('.').next().unwrap_or(path).to_owned();
        let near = nearest(&name, allowed.iter().copied()).map(str::to_owned);
        let problem = Problem::Unknown { what, name, section: section.to_owned() };
        self.at_key(path, problem, &allowed.join(", "), near)
    }

    /// How many elements the array at `path` has; none if it is missing.
    ///
    /// # Errors
    /// [`ExperimentError::Wrong`] if something else stands there.
    pub fn elements(&self, path: &str) -> Result<usize, ExperimentError> {
        match self.value(path) {
            None => Ok(0),
            Some(Value::Array(array)) => Ok(array.len()),
            Some(other) => Err(self.wrong_type(path, other, "an array")),
        }
    }

    /// The text at `path`, if there is something.
    ///
    /// # Errors
    /// [`ExperimentError::Wrong`] if it is no text.
    pub fn text_at(&self, path: &str) -> Result<Option<String>, ExperimentError> {
        match self.value(path) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(other) => Err(self.wrong_type(path, other, "a text")),
        }
    }

    /// The error that a value of another type makes than the one that is wanted at `path`.
    pub fn wrong_type(&self, path: &str, found: &Value, allowed: &str) -> ExperimentError {
        let key = path.rsplit('.').next().unwrap_or(path).to_owned();
        self.at_value(path, Problem::WrongType { key, found: found.type_str() }, allowed, None)
    }

    /// Refuses keys at `path` that are not known there.
    ///
    /// # Errors
    /// [`ExperimentError::Wrong`] that names the first such key.
    pub fn only(&self, path: &str, section: &str, known: &[&str]) -> Result<(), ExperimentError> {
        let table = match self.value(path) {
            _ if path.is_empty() => &self.table,
            None => return Ok(()),
            Some(Value::Table(table)) => table,
            Some(other) => return Err(self.wrong_type(path, other, "a table")),
        };
        match table.keys().find(|key| !known.contains(&key.as_str())) {
            None => Ok(()),
            Some(key) => {
                let place = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                Err(self.unknown(&place, "key", section, known))
            }
        }
    }

    fn finding(&self, span: Range<usize>, problem: Problem, allowed: &str, near: Option<String>) -> ExperimentError {
        ExperimentError::Wrong(Box::new(Finding::new(&self.file, &self.text, span, problem, allowed.to_owned(), near)))
    }

    /// Where `path` stands, or the nearest of what holds it.
    fn nearest_span(&self, path: &str) -> (Range<usize>, Range<usize>) {
        let mut path = path;
        loop {
            if let Some(spans) = self.spans.get(path) {
                return spans.clone();
            }
            match path.rsplit_once('.') {
                Some((outer, _)) => path = outer,
                None => return (0..0, 0..0),
            }
        }
    }
}

fn joined(path: &str, segment: &str) -> String {
    if path.is_empty() { segment.to_owned() } else { format!("{path}.{segment}") }
}

fn collect(table: &DeTable<'_>, path: &str, spans: &mut BTreeMap<String, (Range<usize>, Range<usize>)>) {
    for (key, value) in table.iter() {
        let path = joined(path, key.get_ref());
        spans.insert(path.clone(), (key.span(), value.span()));
        inside(value.get_ref(), &path, spans);
    }
}

fn inside(value: &DeValue<'_>, path: &str, spans: &mut BTreeMap<String, (Range<usize>, Range<usize>)>) {
    match value {
        DeValue::Table(table) => collect(table, path, spans),
        DeValue::Array(array) => {
            for (index, element) in array.iter().enumerate() {
                let path = joined(path, &index.to_string());
                spans.insert(path.clone(), (element.span(), element.span()));
                inside(element.get_ref(), &path, spans);
            }
        }
        _ => {}
    }
}

/// Lays `upper` over `lower`: tables are joined, anything else is replaced.
pub fn overlay(lower: &mut Table, upper: &Table) {
    for (key, value) in upper {
        match (lower.get_mut(key), value) {
            (Some(Value::Table(below)), Value::Table(above)) => overlay(below, above),
            _ => {
                lower.insert(key.clone(), value.clone());
            }
        }
    }
}

/// Puts `value` at a dotted path, through tables that are made where they are missing. Elements of an array of tables are
/// named by the value of their key `name`.
pub fn set(table: &mut Table, path: &str, value: Value) {
    let Some((first, rest)) = path.split_once('.') else {
        table.insert(path.to_owned(), value);
        return;
    };
    let entry = table.entry(first).or_insert_with(|| Value::Table(Table::new()));
    if let Value::Array(array) = entry {
        let (name, rest) = rest.split_once('.').unwrap_or((rest, ""));
        let named = |element: &&mut Table| element.get("name").and_then(Value::as_str) == Some(name);
        if let Some(element) = array.iter_mut().filter_map(Value::as_table_mut).find(named) {
            set(element, rest, value);
        }
        return;
    }
    if !entry.is_table() {
        // A single value gives way to a table, as `service = "1 ms"` does to `service.read`.
        *entry = Value::Table(Table::new());
    }
    set(entry.as_table_mut().expect("a table was put there"), rest, value);
}

/// The dotted path of what stands at `line` (counted from 1) of a text that [`toml::to_string`] has written.
pub(super) fn path_at(text: &str, line: usize) -> String {
    let mut header = String::new();
    let mut path = String::new();
    for line in text.lines().take(line) {
        if let Some(inner) = line.strip_prefix('[') {
            header = inner.trim_start_matches('[').trim_end_matches(']').to_owned();
            path.clone_from(&header);
        } else if let Some((key, _)) = line.split_once(" = ") {
            path = joined(&header, key);
        }
    }
    path.replace('"', "")
}
