//! `docs/format.md` against the code: each number that it states is compared with a constant or with bytes that were written.

#![allow(clippy::disallowed_methods, reason = "the house's own files are looked at")]

mod archive;
mod compare;
mod document;
mod files;
mod log;
mod postcard;
mod records;
mod trace;

use document::Document;
use files::Files;

fn text() -> String {
    let root =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("tests/conformance is in the house");
    std::fs::read_to_string(root.join("docs/format.md")).expect("the document")
}

fn compared(text: &str, files: &Files) -> Result<(), String> {
    let document = Document::read(text)?;
    compare::all(&document, files)?;
    document.unused().map_or(Ok(()), |name| Err(format!("nothing was compared with '{name}'")))
}

#[test]
fn files_are_what_the_document_says() {
    compared(&text(), &Files::write()).unwrap_or_else(|flaw| panic!("{flaw}"));
}

#[test]
fn every_file_has_its_row() {
    let text = text();
    for name in Files::write().names() {
        assert!(text.contains(&format!("`{name}`")), "'{name}' is not in the table of files");
    }
}

/// Every number in a block of the document, changed by one, is found; so is a block whose offsets are shifted.
#[test]
fn a_wrong_number_is_found() {
    let (text, files) = (text(), Files::write());
    let mut block = "";
    let mut changed = 0;
    for (number, line) in text.lines().enumerate() {
        if let Some(head) = line.strip_prefix("```") {
            block = head.split(' ').next().expect("a word");
            continue;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let at = match block {
            "constants" => 2,
            "values" | "layout" => 0,
            _ => continue,
        };
        let found: u64 = words[at].parse().expect("a number");
        let wrong = line.replacen(words[at], &(found + 1).to_string(), 1);
        let lines = text.lines().enumerate().map(|(index, old)| if index == number { wrong.as_str() } else { old });
        let altered = lines.collect::<Vec<_>>().join("\n");
        assert!(compared(&altered, &files).is_err(), "'{wrong}' passes");
        changed += 1;
    }
    assert!(changed > 150, "only {changed} numbers were changed");
}

/// Two neighbouring fields of one size, named the other way round, are found.
#[test]
fn a_wrong_field_is_found() {
    let (text, files) = (text(), Files::write());
    let lines: Vec<&str> = text.lines().collect();
    let mut block = "";
    let (mut swapped, mut passed) = (0, Vec::new());
    for (number, pair) in lines.windows(2).enumerate() {
        if let Some(head) = pair[0].strip_prefix("```") {
            block = head.split(' ').next().expect("a word");
            continue;
        }
        let fields = pair.iter().map(|line| line.split_whitespace().collect::<Vec<_>>()).collect::<Vec<_>>();
        if block != "layout" || pair[1].starts_with("```") || fields[0][1] != fields[1][1] {
            continue;
        }
        let named = |line: &str, old: &str, new: &str| line.replacen(old, new, 1);
        let mut altered = lines.clone();
        let first = named(pair[1], fields[1][0], fields[0][0]);
        let second = named(pair[0], fields[0][0], fields[1][0]);
        (altered[number], altered[number + 1]) = (&first, &second);
        // A wrong length may also lead beyond the end of a slice.
        let found = std::panic::catch_unwind(|| compared(&altered.join("\n"), &files));
        if matches!(found, Ok(Ok(()))) {
            passed.push(first);
        }
        swapped += 1;
    }
    assert_eq!(passed, Vec::<String>::new(), "these pass");
    assert!(swapped > 30, "only {swapped} pairs were swapped");
}
