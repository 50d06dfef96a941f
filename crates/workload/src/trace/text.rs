//! Traces as text, version 1.
//!
//! Each line is a list of words between spaces. Empty lines and lines that begin with `#` mean nothing.
//!
//! ```text
//! entresol-trace 1                                              the first line
//! partition NAME objects N blocking-factor N locks LOCKS        LOCKS: page, object or none
//! type NAME [rate TRANSACTIONS-PER-SECOND]
//! begin TYPE                                                    a transaction begins
//! r PARTITION OBJECT                                            it reads
//! w PARTITION OBJECT                                            it changes
//! end transactions N references N                               the last line
//! ```
//!
//! A partition or type is named in a line of its own before it is used. Objects are numbered from 0; where the blocking factor
//! is 1, they are pages. A transaction ends where the next begins.

use super::error::LineError;
use super::{Partition, Place, Problem, Reference, Trace, TraceError, Type, locks_of, locks_word};
use std::fmt::Write;

/// The first word of a text trace.
const FIRST: &str = "entresol-trace";
/// Words that a line may begin with.
const WORDS: &str = "partition, type, begin, r, w, end; # before a remark";
/// The lines that name things.
const PARTITION: &str = "partition NAME objects N blocking-factor N locks page|object|none";
const TYPE: &str = "type NAME, type NAME rate TRANSACTIONS-PER-SECOND";
const END: &str = "end transactions N references N";

fn plain(problem: Problem) -> LineError {
    (problem, "")
}

/// Reads a trace.
///
/// # Errors
/// [`TraceError`] with the line.
pub fn read(file: &str, bytes: &[u8]) -> Result<Trace, TraceError> {
    let mut reader = Reader::default();
    let mut number = 0;
    for line in bytes.split(|byte| *byte == b'\n') {
        number += 1;
        let fail = |(problem, allowed): LineError| TraceError::new(file, Place::Line(number), problem, allowed);
        let Ok(line) = std::str::from_utf8(line) else {
            let problem = if number == 1 { Problem::NotATrace } else { not_text(line) };
            return Err(fail(plain(problem)));
        };
        reader.line(line.trim_end_matches('\r')).map_err(fail)?;
    }
    // The last line end begins no line.
    let last = if bytes.ends_with(b"\n") { number - 1 } else { number };
    let place = Place::Line(last.max(1));
    if !reader.began {
        return Err(TraceError::new(file, place, Problem::NotATrace, ""));
    }
    if !reader.ended {
        return Err(TraceError::new(file, place, Problem::CutOff("there is no line 'end'"), END));
    }
    Ok(reader.trace)
}

fn not_text(line: &[u8]) -> Problem {
    Problem::WrongField { what: "text in UTF-8", found: String::from_utf8_lossy(line).chars().take(40).collect() }
}

#[derive(Default)]
struct Reader {
    trace: Trace,
    began: bool,
    ended: bool,
    /// The partition of the previous reference: the next one is often to the same.
    latest: usize,
}

impl Reader {
    fn line(&mut self, line: &str) -> Result<(), LineError> {
        let mut words = line.split_ascii_whitespace();
        let Some(first) = words.next().filter(|word| !word.starts_with('#')) else { return Ok(()) };
        if self.ended {
            return Err(plain(Problem::TrailingBytes));
        }
        if !self.began {
            return self.header(first, words.next(), words.next());
        }
        match first {
            "r" => self.reference(false, words),
            "w" => self.reference(true, words),
            "begin" => self.begin(words),
            "partition" => self.partition(words),
            "type" => self.kind(words),
            "end" => self.end(words),
            other => Err((Problem::UnexpectedWord(shortened(other)), WORDS)),
        }
    }

    fn header(&mut self, first: &str, version: Option<&str>, more: Option<&str>) -> Result<(), LineError> {
        match (first, version, more) {
            (FIRST, Some("1"), None) => {
                self.began = true;
                Ok(())
            }
            (FIRST, Some(version), None) => Err(plain(Problem::Version(shortened(version)))),
            _ => Err(plain(Problem::NotATrace)),
        }
    }

    fn reference<'a>(&mut self, write: bool, words: impl Iterator<Item = &'a str>) -> Result<(), LineError> {
        let allowed = if write { "w PARTITION OBJECT" } else { "r PARTITION OBJECT" };
        let [name, object] = fields(words, allowed)?;
        let object = number(object, "number of an object").map_err(|problem| (problem, "a whole number"))?;
        if self.trace.is_empty() {
            return Err((Problem::UnexpectedWord("a reference before any transaction".to_owned()), "begin TYPE"));
        }
        let partitions = self.trace.partitions();
        if partitions.get(self.latest).is_none_or(|latest| latest.name != name) {
            let found = partitions.iter().position(|partition| partition.name == name);
            let known = || list(partitions.iter().map(|partition| &partition.name));
            self.latest =
                found.ok_or_else(|| plain(Problem::UnknownPartition { name: shortened(name), known: known() }))?;
        }
        self.trace.refer(Reference { partition: self.latest as u16, write, object }).map_err(plain)
    }

    fn begin<'a>(&mut self, words: impl Iterator<Item = &'a str>) -> Result<(), LineError> {
        let [name] = fields(words, "begin TYPE")?;
        let types = self.trace.types();
        let Some(kind) = types.iter().position(|kind| kind.name == name) else {
            let known = list(types.iter().map(|kind| &kind.name));
            return Err(plain(Problem::UnknownType { name: shortened(name), known }));
        };
        self.trace.begin(kind as u16);
        Ok(())
    }

    fn partition<'a>(&mut self, words: impl Iterator<Item = &'a str>) -> Result<(), LineError> {
        let [name, objects_key, objects, factor_key, factor, locks_key, locks] = fields(words, PARTITION)?;
        for (found, key) in [(objects_key, "objects"), (factor_key, "blocking-factor"), (locks_key, "locks")] {
            expect(found, key, PARTITION)?;
        }
        let wrong = |problem| (problem, PARTITION);
        let objects = number(objects, "number of objects").map_err(wrong)?;
        let blocking_factor = number(factor, "blocking factor").map_err(wrong)?;
        let blocking_factor = u32::try_from(blocking_factor).unwrap_or(u32::MAX);
        let known = locks_of(locks).ok_or_else(|| Problem::WrongField { what: "lock", found: shortened(locks) });
        let locks = known.map_err(wrong)?;
        let partition = Partition { name: name.to_owned(), objects, blocking_factor, locks };
        self.trace.add_partition(partition).map(|_| ()).map_err(plain)
    }

    fn kind<'a>(&mut self, words: impl Iterator<Item = &'a str>) -> Result<(), LineError> {
        let words: Vec<&str> = words.take(4).collect();
        let (name, rate_per_s) = match words[..] {
            [name] => (name, None),
            [name, "rate", rate] => {
                let parsed = rate.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate > 0.0);
                let wrong = || Problem::WrongField { what: "rate", found: shortened(rate) };
                (name, Some(parsed.ok_or_else(|| (wrong(), "a number above zero"))?))
            }
            _ => return Err((Problem::Fields("a type has a name and maybe a rate".to_owned()), TYPE)),
        };
        self.trace.add_type(Type { name: name.to_owned(), rate_per_s }).map(|_| ()).map_err(plain)
    }

    fn end<'a>(&mut self, words: impl Iterator<Item = &'a str>) -> Result<(), LineError> {
        let [transactions_key, transactions, references_key, references] = fields(words, END)?;
        expect(transactions_key, "transactions", END)?;
        expect(references_key, "references", END)?;
        let read = [self.trace.len(), self.trace.references().len()];
        for ((what, found), read) in [("transactions", transactions), ("references", references)].into_iter().zip(read)
        {
            let found = number(found, "count").map_err(|problem| (problem, END))?;
            if found != read as u64 {
                return Err(plain(Problem::Count { what, found, read: read as u64 }));
            }
        }
        self.ended = true;
        Ok(())
    }
}

/// Exactly `N` words.
fn fields<'a, const N: usize>(
    mut words: impl Iterator<Item = &'a str>,
    allowed: &'static str,
) -> Result<[&'a str; N], LineError> {
    let mut found = [""; N];
    for (count, field) in found.iter_mut().enumerate() {
        let missing = || Problem::Fields(format!("the line has {} of {} words", count + 1, N + 1));
        *field = words.next().ok_or_else(|| (missing(), allowed))?;
    }
    match words.next() {
        Some(more) => Err((Problem::Fields(format!("'{}' is one word too many", shortened(more))), allowed)),
        None => Ok(found),
    }
}

fn expect(found: &str, key: &str, allowed: &'static str) -> Result<(), LineError> {
    if found == key { Ok(()) } else { Err((Problem::UnexpectedWord(shortened(found)), allowed)) }
}

fn number(text: &str, what: &'static str) -> Result<u64, Problem> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let parsed = text.parse().ok().filter(|_| digits);
    parsed.ok_or_else(|| Problem::WrongField { what, found: shortened(text) })
}

/// A word fit for a message.
fn shortened(word: &str) -> String {
    word.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).take(40).collect()
}

/// Names for a message.
fn list<'a>(names: impl Iterator<Item = &'a String>) -> String {
    let mut names: Vec<&str> = names.map(String::as_str).collect();
    let more = names.len() > 20;
    names.truncate(20);
    match names.is_empty() {
        true => "none, because none was named before this line".to_owned(),
        false => names.join(", ") + if more { ", ..." } else { "" },
    }
}

impl Trace {
    /// The trace as text.
    pub fn to_text(&self) -> String {
        let mut text = format!("{FIRST} 1\n");
        // Writing to a String cannot fail.
        for Partition { name, objects, blocking_factor, locks } in self.partitions() {
            let locks = locks_word(*locks);
            let _ =
                writeln!(text, "partition {name} objects {objects} blocking-factor {blocking_factor} locks {locks}");
        }
        for Type { name, rate_per_s } in self.types() {
            let _ = match rate_per_s {
                Some(rate) => writeln!(text, "type {name} rate {rate}"),
                None => writeln!(text, "type {name}"),
            };
        }
        for transaction in self.transactions() {
            let _ = writeln!(text, "begin {}", self.types()[usize::from(transaction.kind)].name);
            for reference in transaction.references {
                let name = &self.partitions()[usize::from(reference.partition)].name;
                let mode = if reference.write { 'w' } else { 'r' };
                let _ = writeln!(text, "{mode} {name} {}", reference.object);
            }
        }
        let _ = writeln!(text, "end transactions {} references {}", self.len(), self.references().len());
        text
    }
}
