//! `record`, `secondary`: what the records of a b-tree or a set consist of, and in what orders they can be read.

use super::error::Problem;
use super::is_name;
use super::section::Section;
use engine::set::{FieldType, RecordType};

const RECORD: &str = "a table of fields, { NAME = \"TYPE\", ... }";
const SECONDARY: &str = "a table of indexes, { NAME = \"FIELD\", ... } or { NAME = [\"FIELD\", ...], ... }";
const TYPES: [&str; 9] = ["u8", "u16", "u32", "u64", "i64", "f64", "bytes(16)", "bytes", "text"];
const NAME: &str = "1 to 64 of the characters a-z A-Z 0-9 _ -, a letter first";

/// The type of the records, if the section says so and it is sound.
pub(super) fn read_record(section: &mut Section<'_>) -> Option<RecordType> {
    let entries = section.texts("record", RECORD);
    let mut fields: Vec<(&str, FieldType)> = Vec::new();
    let mut is_sound = !entries.is_empty();
    for entry in &entries {
        if !is_name(entry.name) {
            let problem = Problem::Conflict(format!("'{}' cannot name a field", entry.name));
            section.report(entry.at.clone(), problem, NAME);
            is_sound = false;
        }
        let [(word, at)] = &entry.parts[..] else {
            let problem = Problem::Conflict(format!("field '{}' has no type, or several", entry.name));
            section.report(entry.at.clone(), problem, RECORD);
            is_sound = false;
            continue;
        };
        match word.parse() {
            Ok(kind) => fields.push((entry.name, kind)),
            Err(_) => {
                let problem = Problem::UnknownWord { key: entry.name.to_owned(), value: (*word).to_owned() };
                section.report_name_at(at.clone(), problem, word, &TYPES);
                is_sound = false;
            }
        }
    }
    if !is_sound {
        return None;
    }
    match RecordType::new(fields) {
        Ok(record) => Some(record),
        Err(error) => {
            section.conflict("record", Problem::Conflict(error.to_string()), "fixed fields of up to 65,535 bytes");
            None
        }
    }
}

/// The secondary indexes: their names and those of their fields.
pub(super) fn read_secondaries(section: &mut Section<'_>, record: Option<&RecordType>) -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    for entry in section.texts("secondary", SECONDARY) {
        if !is_name(entry.name) {
            let problem = Problem::Conflict(format!("'{}' cannot name an index", entry.name));
            section.report(entry.at.clone(), problem, NAME);
        }
        if entry.parts.is_empty() {
            let problem = Problem::Conflict(format!("index '{}' orders by no field", entry.name));
            section.report(entry.at.clone(), problem, SECONDARY);
        }
        for (field, at) in &entry.parts {
            // Without a record type, or with one that is wrong, one report is enough.
            let Some(record) = record else { continue };
            if record.field(field).is_err() {
                let names: Vec<&str> = record.fields().iter().map(|field| field.name.as_str()).collect();
                let problem = Problem::NoSuch { what: "field", name: (*field).to_owned() };
                section.report_name_at(at.clone(), problem, field, &names);
            }
        }
        found.push((entry.name.to_owned(), entry.parts.iter().map(|(field, _)| (*field).to_owned()).collect()));
    }
    if !section.has("record") && section.has("secondary") {
        let problem = Problem::Conflict("an index is over the fields of records, whose type is missing".to_owned());
        section.conflict("secondary", problem, "secondary beside record");
    }
    found
}
