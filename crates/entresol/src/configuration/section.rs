//! Reading a parsed TOML table key by key. What has been asked for is what is allowed: any other key is reported.

use super::choice::Choice;
use super::error::{ConfigurationError, Finding, Problem, nearest};
use base::units::{Size, UnitError, format_duration_ns, format_size, parse_duration_ns};
use std::cell::RefCell;
use std::ops::{Range, RangeInclusive};
use std::str::FromStr;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A text and what was found wrong in it so far.
pub(super) struct Document<'a> {
    file: &'a str,
    text: &'a str,
    findings: RefCell<Vec<(usize, Finding)>>,
}

impl<'a> Document<'a> {
    pub fn new(file: &'a str, text: &'a str) -> Document<'a> {
        Document { file, text, findings: RefCell::default() }
    }

    /// Reports a problem at `span`, with what is allowed in words.
    pub fn report(&self, span: Range<usize>, problem: Problem, allowed: impl Into<String>) {
        let finding = Finding::new(self.file, self.text, span.clone(), problem, allowed.into(), None);
        self.findings.borrow_mut().push((span.start, finding));
    }

    /// The error that this one problem makes.
    pub fn failure(&self, span: Range<usize>, problem: Problem, allowed: &str) -> ConfigurationError {
        let finding = Finding::new(self.file, self.text, span, problem, allowed.to_owned(), None);
        ConfigurationError::Wrong { findings: vec![finding] }
    }

    /// Reports that `name` at `span` is none of `candidates`; `quote` encloses each of them in the list, `more` follows it.
    pub fn report_name(
        &self,
        span: Range<usize>,
        problem: Problem,
        name: &str,
        candidates: &[&str],
        quote: &str,
        more: &str,
    ) {
        let list: Vec<String> = candidates.iter().map(|candidate| format!("{quote}{candidate}{quote}")).collect();
        let near = nearest(name, candidates.iter().copied()).map(str::to_owned);
        let allowed = format!("{}{more}", list.join(", "));
        let finding = Finding::new(self.file, self.text, span.clone(), problem, allowed, near);
        self.findings.borrow_mut().push((span.start, finding));
    }

    /// Everything reported, in the order of the text.
    ///
    /// # Errors
    /// [`ConfigurationError::Wrong`] if anything was.
    pub fn verdict(self) -> Result<(), ConfigurationError> {
        let mut findings = self.findings.into_inner();
        if findings.is_empty() {
            return Ok(());
        }
        findings.sort_by_key(|(start, _)| *start);
        Err(ConfigurationError::Wrong { findings: findings.into_iter().map(|(_, finding)| finding).collect() })
    }
}

/// An entry of a table: a name with a text, or with several.
pub(super) struct Texts<'a> {
    pub name: &'a str,
    /// The place of the name.
    pub at: Range<usize>,
    /// The texts and their places.
    pub parts: Vec<(&'a str, Range<usize>)>,
}

/// One table of a document, or its absence.
pub(super) struct Section<'a> {
    document: &'a Document<'a>,
    /// As messages call it: `[buffer]`, or `the file` for the outermost table.
    name: String,
    /// The place of its name in its header; of no length for the outermost table and absent ones.
    header: Range<usize>,
    table: Option<&'a DeTable<'a>>,
    asked: Vec<&'static str>,
    /// How many bytes a page has, where sizes can be given in pages.
    page_size: Option<u64>,
}

impl<'a> Section<'a> {
    /// The outermost table.
    pub fn root(document: &'a Document<'a>, table: &'a DeTable<'a>) -> Section<'a> {
        Section {
            document,
            name: "the file".to_owned(),
            header: 0..0,
            table: Some(table),
            asked: Vec::new(),
            page_size: None,
        }
    }

    /// From here on sizes may be given in pages of this many bytes.
    pub fn set_page_size(&mut self, bytes: impl Into<u64>) {
        self.page_size = Some(bytes.into());
    }

    fn value(&mut self, key: &'static str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.asked.push(key);
        self.table?.get(key)
    }

    /// The place of a key's value, or nothing if the key is absent.
    pub fn span(&self, key: &str) -> Option<Range<usize>> {
        self.table?.get(key).map(Spanned::span)
    }

    /// Reads the table `[key]` (an empty one if it is absent) and reports the keys in it that `read` did not ask for.
    pub fn section<T>(&mut self, key: &'static str, read: impl FnOnce(&mut Section<'a>) -> T) -> T {
        let table = self.value(key).and_then(|value| self.table_of(key, value));
        let name = format!("[{key}]");
        let mut section =
            Section { document: self.document, name, header: 0..0, table, asked: Vec::new(), page_size: None };
        let result = read(&mut section);
        section.finish();
        result
    }

    /// Reads each table `[key.NAME]`, in ascending order of names.
    pub fn named_sections<T>(
        &mut self,
        key: &'static str,
        mut read: impl FnMut(&str, &mut Section<'a>) -> T,
    ) -> Vec<(String, T)> {
        let Some(tables) = self.value(key).and_then(|value| self.table_of(key, value)) else {
            return Vec::new();
        };
        let mut results = Vec::new();
        for (name_at, value) in tables {
            let name = name_at.get_ref().as_ref();
            if !super::is_name(name) {
                let allowed = "1 to 64 of the characters a-z A-Z 0-9 _ -, a letter first";
                self.document.report(name_at.span(), Problem::BadName(name.to_owned()), allowed);
                continue;
            }
            let name_in_file = format!("{key}.{name}");
            let Some(table) = self.table_of(&name_in_file, value) else { continue };
            let mut section = Section {
                document: self.document,
                name: format!("[{name_in_file}]"),
                header: name_at.span(),
                table: Some(table),
                asked: Vec::new(),
                page_size: None,
            };
            results.push((name.to_owned(), read(name, &mut section)));
            section.finish();
        }
        results
    }

    fn table_of(&self, key: &str, value: &'a Spanned<DeValue<'a>>) -> Option<&'a DeTable<'a>> {
        match value.get_ref() {
            DeValue::Table(table) => Some(table),
            _ => {
                self.wrong_type(key, value, &format!("a section, written [{key}] on a line of its own"));
                None
            }
        }
    }

    /// Reports the unknown keys.
    pub fn finish(self) {
        for (key, value) in self.table.into_iter().flatten() {
            let name = key.get_ref().as_ref();
            if self.asked.contains(&name) {
                continue;
            }
            let what = if value.get_ref().is_table() { "section" } else { "key" };
            let problem = Problem::Unknown { what, name: name.to_owned(), section: self.name.clone() };
            self.document.report_name(key.span(), problem, name, &self.asked, "", "");
        }
    }

    fn wrong_type(&self, key: &str, value: &Spanned<DeValue<'_>>, allowed: &str) {
        let found = match value.get_ref() {
            DeValue::String(_) => "a text",
            DeValue::Integer(_) => "a whole number",
            DeValue::Float(_) => "a number with a fraction",
            DeValue::Boolean(_) => "true or false",
            DeValue::Datetime(_) => "a date or time",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a section",
        };
        self.document.report(value.span(), Problem::WrongType { key: key.to_owned(), found }, allowed);
    }

    /// A text.
    pub fn text(&mut self, key: &'static str, allowed: &str) -> Option<&'a str> {
        let value = self.value(key)?;
        let text = value.get_ref().as_str();
        if text.is_none() {
            self.wrong_type(key, value, allowed);
        }
        text
    }

    /// `true` or `false`.
    pub fn flag(&mut self, key: &'static str) -> Option<bool> {
        let value = self.value(key)?;
        let flag = value.get_ref().as_bool();
        if flag.is_none() {
            self.wrong_type(key, value, "true, false");
        }
        flag
    }

    /// One of the words of `C`.
    pub fn choice<C: Choice>(&mut self, key: &'static str) -> Option<C> {
        let words: Vec<&str> = C::WORDS.iter().map(|(word, _)| *word).collect();
        let word = self.word(key, &words)?;
        C::WORDS.iter().find(|(known, _)| *known == word).map(|(_, choice)| *choice)
    }

    /// One of these words.
    pub fn word(&mut self, key: &'static str, words: &[&'static str]) -> Option<&'static str> {
        let value = self.value(key)?;
        let quoted: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
        let Some(text) = value.get_ref().as_str() else {
            self.wrong_type(key, value, &quoted.join(", "));
            return None;
        };
        let word = words.iter().find(|word| **word == text).copied();
        if word.is_none() {
            let problem = Problem::UnknownWord { key: key.to_owned(), value: text.to_owned() };
            self.document.report_name(value.span(), problem, text, words, "\"", "");
        }
        word
    }

    /// A whole number in `range`.
    pub fn number(&mut self, key: &'static str, range: RangeInclusive<u64>) -> Option<u64> {
        self.number_or(key, range, "")
    }

    /// As [`Section::number`]; `more` follows the range in messages.
    pub fn number_or(&mut self, key: &'static str, range: RangeInclusive<u64>, more: &str) -> Option<u64> {
        let value = self.value(key)?;
        let allowed = || {
            let [low, high] = [*range.start(), *range.end()].map(base::units::grouped);
            format!("a whole number from {low} to {high}{more}")
        };
        let DeValue::Integer(number) = value.get_ref() else {
            self.wrong_type(key, value, &allowed());
            return None;
        };
        let parsed = u64::from_str_radix(number.as_str(), number.radix()).ok().filter(|number| range.contains(number));
        if parsed.is_none() {
            let problem = Problem::OutOfRange { key: key.to_owned(), value: number.to_string() };
            self.document.report(value.span(), problem, allowed());
        }
        parsed
    }

    /// How many bytes the text of a size means.
    ///
    /// # Errors
    /// [`UnitError::Pages`] if it counts pages of unknown size, [`UnitError::Size`].
    pub fn bytes(&self, text: &str) -> Result<u64, UnitError> {
        let size: Size = text.parse()?;
        let page_size = match (size, self.page_size) {
            (Size::Pages(_), None) => return Err(UnitError::Pages(text.to_owned())),
            (_, known) => known.unwrap_or(1),
        };
        size.bytes(page_size).ok_or_else(|| UnitError::Size(text.to_owned()))
    }

    /// A size in bytes, written as a text with a unit, as a number of pages where their size is known, or as a whole number of
    /// bytes; `rule` joins the range in messages.
    pub fn size(&mut self, key: &'static str, range: RangeInclusive<u64>, rule: &str) -> Option<u64> {
        let [low, high] = [*range.start(), *range.end()].map(format_size);
        let allowed = format!("a size from \"{low}\" to \"{high}\"{rule}");
        let value = self.value(key)?;
        let bytes = match value.get_ref() {
            DeValue::String(text) => match self.bytes(text) {
                Ok(bytes) => bytes,
                Err(error) => {
                    let problem = Problem::NotAQuantity { key: key.to_owned(), reason: error.to_string() };
                    self.document.report(value.span(), problem, allowed);
                    return None;
                }
            },
            DeValue::Integer(number) => u64::from_str_radix(number.as_str(), number.radix()).unwrap_or(u64::MAX),
            _ => {
                self.wrong_type(key, value, &allowed);
                return None;
            }
        };
        if range.contains(&bytes) {
            return Some(bytes);
        }
        self.document.report(value.span(), self.out_of_range(key, value), allowed);
        None
    }

    /// A duration in nanoseconds.
    pub fn duration_ns(&mut self, key: &'static str, range: RangeInclusive<u64>, more: &str) -> Option<u64> {
        let [low, high] = [*range.start(), *range.end()].map(|ns| format_duration_ns(ns as f64).replace(".00", ""));
        let allowed = format!("a duration from \"{low}\" to \"{high}\"{more}");
        let value = self.value(key)?;
        let DeValue::String(text) = value.get_ref() else {
            self.wrong_type(key, value, &allowed);
            return None;
        };
        match parse_duration_ns(text) {
            Ok(ns) if range.contains(&ns) => return Some(ns),
            Ok(_) => self.document.report(value.span(), self.out_of_range(key, value), allowed),
            Err(error) => {
                let problem = Problem::NotAQuantity { key: key.to_owned(), reason: error.to_string() };
                self.document.report(value.span(), problem, allowed);
            }
        }
        None
    }

    /// A power of two of bytes, written as a size.
    pub fn power_of_two(&mut self, key: &'static str, range: RangeInclusive<u64>) -> Option<u64> {
        let rule = ", a power of two";
        let bytes = self.size(key, range.clone(), rule)?;
        if bytes.is_power_of_two() {
            return Some(bytes);
        }
        let value = self.value(key)?;
        let [low, high] = [*range.start(), *range.end()].map(format_size);
        self.document.report(value.span(), self.out_of_range(key, value), format!("\"{low}\" to \"{high}\"{rule}"));
        None
    }

    /// The entries of a table of texts and of lists of texts, in the order of the file.
    pub fn texts(&mut self, key: &'static str, allowed: &str) -> Vec<Texts<'a>> {
        let Some(value) = self.value(key) else { return Vec::new() };
        let Some(table) = value.get_ref().as_table() else {
            self.wrong_type(key, value, allowed);
            return Vec::new();
        };
        let mut entries = Vec::new();
        for (name, value) in table {
            let (name, at) = (name.get_ref().as_ref(), name.span());
            let parts: Option<Vec<_>> = match value.get_ref() {
                DeValue::Array(list) => {
                    list.iter().map(|part| part.get_ref().as_str().map(|text| (text, part.span()))).collect()
                }
                other => other.as_str().map(|text| vec![(text, value.span())]),
            };
            match parts {
                Some(parts) => entries.push(Texts { name, at, parts }),
                None => self.wrong_type(name, value, allowed),
            }
        }
        entries.sort_by_key(|entry| entry.at.start);
        entries
    }

    /// The entries of a table of keys of records and of lists of these. A number is a key of eight bytes, the greatest first.
    pub fn keys(&mut self, key: &'static str, allowed: &str) -> Vec<(&'a str, Vec<Vec<u8>>)> {
        let Some(value) = self.value(key) else { return Vec::new() };
        let Some(table) = value.get_ref().as_table() else {
            self.wrong_type(key, value, allowed);
            return Vec::new();
        };
        let one = |value: &DeValue<'_>| match value {
            DeValue::String(text) => Some(text.as_bytes().to_vec()),
            DeValue::Integer(number) => {
                let number = u64::from_str_radix(number.as_str(), number.radix()).ok()?;
                Some(number.to_be_bytes().to_vec())
            }
            _ => None,
        };
        let mut entries = Vec::new();
        for (name, value) in table {
            let keys: Option<Vec<Vec<u8>>> = match value.get_ref() {
                DeValue::Array(list) => list.iter().map(|part| one(part.get_ref())).collect(),
                other => one(other).map(|key| vec![key]),
            };
            match keys {
                Some(keys) => entries.push((name.get_ref().as_ref(), keys)),
                None => self.wrong_type(name.get_ref(), value, allowed),
            }
        }
        entries
    }

    /// Reports at a place within the section that something is wrong.
    pub fn report(&self, span: Range<usize>, problem: Problem, allowed: &str) {
        self.document.report(span, problem, allowed);
    }

    /// Reports at a place within the section that `name` is none of `candidates`.
    pub fn report_name_at(&self, span: Range<usize>, problem: Problem, name: &str, candidates: &[&str]) {
        self.document.report_name(span, problem, name, candidates, "\"", "");
    }

    /// What `read` gives for the key: `None` if it gives nothing, `Some(None)` for the word `"off"`.
    pub fn unless_off<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&mut Section<'a>) -> Option<T>,
    ) -> Option<Option<T>> {
        self.unless("off", key, read)
    }

    /// What `read` gives for the key: `None` if it gives nothing, `Some(None)` for this word.
    pub fn unless<T>(
        &mut self,
        word: &str,
        key: &'static str,
        read: impl FnOnce(&mut Section<'a>) -> Option<T>,
    ) -> Option<Option<T>> {
        match self.value(key)?.get_ref().as_str() {
            Some(text) if text == word => Some(None),
            _ => read(self).map(Some),
        }
    }

    /// Whether the section has this key.
    pub fn has(&self, key: &str) -> bool {
        self.span(key).is_some()
    }

    /// What a text means; `allowed` says which texts mean something.
    pub fn parsed<T: FromStr<Err = String>>(&mut self, key: &'static str, allowed: &str) -> Option<T> {
        let text = self.text(key, allowed)?;
        match text.parse() {
            Ok(value) => Some(value),
            Err(reason) => {
                let problem = Problem::NotAQuantity { key: key.to_owned(), reason };
                self.conflict(key, problem, allowed);
                None
            }
        }
    }

    /// Reports at the key's value, which is there, that `name` is none of `candidates`; `more` follows them.
    pub fn report_name(&self, key: &str, problem: Problem, name: &str, candidates: &[&str], more: &str) {
        let span = self.span(key).expect("the key was read");
        self.document.report_name(span, problem, name, candidates, "\"", more);
    }

    /// Reports at the section's header that its `name` is none of `candidates`; `more` follows them.
    pub fn report_header(&self, problem: Problem, name: &str, candidates: &[&str], more: &str) {
        self.document.report_name(self.header.clone(), problem, name, candidates, "\"", more);
    }

    /// Reports at the key's value, if the key is there, that it contradicts another.
    pub fn conflict(&self, key: &str, problem: Problem, allowed: &str) {
        if let Some(span) = self.span(key) {
            self.document.report(span, problem, allowed);
        }
    }

    /// Reports at a place that [`Section::span`] gave, that the value there contradicts another section's.
    pub fn conflict_at(&self, place: Option<Range<usize>>, problem: Problem, allowed: &str) {
        if let Some(span) = place {
            self.document.report(span, problem, allowed);
        }
    }

    /// The problem of a key's value that is of the right sort but not allowed here.
    fn out_of_range(&self, key: &str, value: &Spanned<DeValue<'_>>) -> Problem {
        let value = match value.get_ref() {
            DeValue::String(text) => format!("\"{text}\""),
            DeValue::Integer(number) => number.to_string(),
            other => other.type_str().to_owned(),
        };
        Problem::OutOfRange { key: key.to_owned(), value }
    }
}
