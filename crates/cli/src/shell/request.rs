//! What a line asks for.

use super::cache::{CacheCommand, CacheLevel};
use super::nodes::NodesQuestion;
use super::partitions::{PartitionChange, PartitionCommand};
use base::units::Size;
use entresol::configuration::nearest;
use serde::{Deserialize, Serialize};

pub const HELP: &str = r#"get PARTITION KEY [FIELD]           shows a record, or one field of it
put PARTITION KEY VALUE             writes a record, in place of one that is there
set PARTITION KEY FIELD VALUE       changes one field of a record
add PARTITION KEY [FIELD] AMOUNT    adds to a field; without a name to the first eight bytes
delete PARTITION KEY                deletes a record
call PROCEDURE [PARAMETERS]         runs a registered procedure
partitions                          lists the partitions, their fields and the room that they take
rename PARTITION NAME               gives a partition another name
truncate PARTITION                  takes all records out of a partition and gives their room back
drop PARTITION                      drops a partition with its records and indexes
compact PARTITION                   gives room back that a partition does not use, while others use it
checkpoint                          takes a checkpoint
backup DIR [RATE]                   copies the database into an empty directory, RATE a second at most
statistics                          shows what was counted since the database was opened
waits                               lists transactions that wait for locks, and which others are in their way,
                                    also of a database that another program has open
nodes                               lists the nodes that have joined, and until when each has its lease
copies                              counts the copies and write locks that nodes have, by partition
callbacks                           lists the copies that are called back, and for how long
holders PARTITION PAGE              shows which nodes have copies of a page, and which wait for it
messages                            counts the messages between the server and its nodes, by kind
cache                               shows the second-level cache
cache design NAME                   gives it another design, until the next opening like all of these
cache resize SIZE                   gives it another size, such as 2GiB or "1,000 pages"
cache off                           writes what only it has to the partitions' own devices and turns it off
cache on [DEVICE SIZE]              turns it on again, or on another device
cache admit PARTITION yes|no        lets pages of a partition enter it, or not
upper-cache [...]                   the same of the cache above it, which writes to that
help, quit

A KEY is a number (eight bytes, the greatest first), "text" in quotes, or bytes as 0x and hexadecimal digits;
a VALUE or PARAMETERS are text, in quotes if it has blanks, or such bytes.
"#;

/// One line.
#[derive(Debug, PartialEq)]
pub enum ShellCommand {
    Help,
    Quit,
    Partitions,
    Checkpoint,
    Backup { directory: String, rate: Option<Size> },
    Statistics,
    Waits,
    Cache(CacheLevel, CacheCommand),
    Partition(PartitionCommand),
    Nodes(NodesQuestion),
    Call { procedure: String, parameters: Vec<u8> },
    Request(Request),
}

/// A request that one of the shell's own procedures answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    pub partition: String,
    pub key: Vec<u8>,
    pub verb: Verb,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Verb {
    Get { field: Option<String> },
    Put { value: Vec<u8> },
    Set { field: String, value: String },
    Add { field: Option<String>, amount: i64 },
    Delete,
}

/// The names of the shell's procedures begin so.
pub const PREFIX: &str = "shell-";

impl Request {
    /// The procedure that answers it.
    pub fn procedure(&self) -> &'static str {
        match self.verb {
            Verb::Get { .. } => "shell-get",
            Verb::Put { .. } => "shell-put",
            Verb::Set { .. } => "shell-set",
            Verb::Add { .. } => "shell-add",
            Verb::Delete => "shell-delete",
        }
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("it has no keys but names")
    }

    pub fn from_bytes(bytes: &[u8]) -> Option<Request> {
        serde_json::from_slice(bytes).ok()
    }
}

const WORDS: [&str; 24] = [
    "get",
    "put",
    "set",
    "add",
    "delete",
    "call",
    "partitions",
    "rename",
    "truncate",
    "drop",
    "compact",
    "checkpoint",
    "backup",
    "statistics",
    "waits",
    "nodes",
    "copies",
    "callbacks",
    "holders",
    "messages",
    "cache",
    "upper-cache",
    "help",
    "quit",
];

/// A word of a line.
#[derive(Clone, Debug, PartialEq)]
enum Word {
    Bare(String),
    Quoted(String),
}

impl Word {
    fn text(&self) -> &str {
        let (Word::Bare(text) | Word::Quoted(text)) = self;
        text
    }

    /// As bytes: text, or 0x and hexadecimal digits.
    fn bytes(&self) -> Result<Vec<u8>, String> {
        let Word::Bare(text) = self else { return Ok(self.text().as_bytes().to_vec()) };
        let Some(digits) = text.strip_prefix("0x") else { return Ok(text.as_bytes().to_vec()) };
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        let bytes = digits.as_bytes().chunks(2).map(|pair| byte(pair).filter(|_| pair.len() == 2));
        bytes.collect::<Option<_>>().ok_or_else(|| format!("'{text}' has no even number of hexadecimal digits"))
    }

    fn key(&self) -> Result<Vec<u8>, String> {
        match self {
            Word::Bare(text) if text.bytes().all(|byte| byte.is_ascii_digit()) => {
                let number: Result<u64, _> = text.parse();
                number
                    .map(|number| number.to_be_bytes().to_vec())
                    .map_err(|_| format!("the number {text} is too large"))
            }
            word => word.bytes(),
        }
    }
}

fn words(line: &str) -> Result<Vec<Word>, String> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while let Some(first) = rest.chars().next() {
        if first == '"' {
            let (text, after) = rest[1..].split_once('"').ok_or("a quotation mark is never closed")?;
            words.push(Word::Quoted(text.to_owned()));
            rest = after.trim_start();
        } else {
            let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
            words.push(Word::Bare(rest[..end].to_owned()));
            rest = rest[end..].trim_start();
        }
    }
    Ok(words)
}

impl ShellCommand {
    /// Reads a line; `None` if it says nothing.
    pub fn parse(line: &str) -> Result<Option<ShellCommand>, String> {
        let words = words(line)?;
        let Some((first, rest)) = words.split_first() else { return Ok(None) };
        let usage = || {
            let lines = HELP.lines().filter(|line| line.split(' ').next() == Some(first.text()));
            match lines.collect::<Vec<_>>().as_slice() {
                [] => format!("'{}' stands alone", first.text()),
                [line] => format!("the form is: {line}"),
                lines => format!("the forms are:\n{}", lines.join("\n")),
            }
        };
        let request = |partition: &Word, key: &Word, verb| -> Result<ShellCommand, String> {
            Ok(ShellCommand::Request(Request { partition: partition.text().to_owned(), key: key.key()?, verb }))
        };
        let amount = |word: &Word| {
            let number = word.text().parse::<i64>();
            number.map_err(|_| format!("'{}' is not a whole number of 64 bits", word.text()))
        };
        let named = |word: &Word| Some(word.text().to_owned());
        let of = |partition: &Word, change| {
            ShellCommand::Partition(PartitionCommand { partition: partition.text().to_owned(), change })
        };
        Ok(Some(match (first.text(), rest) {
            ("get", [partition, key]) => request(partition, key, Verb::Get { field: None })?,
            ("get", [partition, key, field]) => request(partition, key, Verb::Get { field: named(field) })?,
            ("put", [partition, key, value]) => request(partition, key, Verb::Put { value: value.bytes()? })?,
            ("set", [partition, key, field, value]) => {
                let (field, value) = (field.text().to_owned(), value.text().to_owned());
                request(partition, key, Verb::Set { field, value })?
            }
            ("add", [partition, key, by]) => request(partition, key, Verb::Add { field: None, amount: amount(by)? })?,
            ("add", [partition, key, field, by]) => {
                request(partition, key, Verb::Add { field: named(field), amount: amount(by)? })?
            }
            ("delete", [partition, key]) => request(partition, key, Verb::Delete)?,
            ("call", [procedure]) => {
                ShellCommand::Call { procedure: procedure.text().to_owned(), parameters: Vec::new() }
            }
            ("call", [procedure, parameters]) => {
                ShellCommand::Call { procedure: procedure.text().to_owned(), parameters: parameters.bytes()? }
            }
            ("partitions", []) => ShellCommand::Partitions,
            ("rename", [partition, name]) => of(partition, PartitionChange::Rename(name.text().to_owned())),
            ("truncate", [partition]) => of(partition, PartitionChange::Truncate),
            ("drop", [partition]) => of(partition, PartitionChange::Drop),
            ("compact", [partition]) => of(partition, PartitionChange::Compact),
            ("checkpoint", []) => ShellCommand::Checkpoint,
            ("backup", [directory]) => ShellCommand::Backup { directory: directory.text().to_owned(), rate: None },
            ("backup", [directory, rate]) => {
                let rate = crate::bench::size(rate.text())?;
                ShellCommand::Backup { directory: directory.text().to_owned(), rate: Some(rate) }
            }
            ("statistics", []) => ShellCommand::Statistics,
            ("waits", []) => ShellCommand::Waits,
            ("nodes", []) => ShellCommand::Nodes(NodesQuestion::Nodes),
            ("copies", []) => ShellCommand::Nodes(NodesQuestion::Copies),
            ("callbacks", []) => ShellCommand::Nodes(NodesQuestion::Callbacks),
            ("messages", []) => ShellCommand::Nodes(NodesQuestion::Messages),
            ("holders", [partition, page]) => {
                let number =
                    page.text().parse().map_err(|_| format!("'{}' is not the number of a page", page.text()))?;
                ShellCommand::Nodes(NodesQuestion::Holders(partition.text().to_owned(), number))
            }
            (word @ ("cache" | "upper-cache"), rest) => {
                let level = if word == "cache" { CacheLevel::Lower } else { CacheLevel::Upper };
                let rest: Vec<&str> = rest.iter().map(Word::text).collect();
                ShellCommand::Cache(level, CacheCommand::parse(&rest)?.ok_or_else(usage)?)
            }
            ("help", []) => ShellCommand::Help,
            ("quit", []) => ShellCommand::Quit,
            (word, _) if WORDS.contains(&word) => return Err(usage()),
            (word, _) => {
                let near = nearest(word, WORDS.into_iter())
                    .map_or_else(String::new, |near| format!(" (did you mean '{near}'?)"));
                return Err(format!("there is no request '{word}'{near}; 'help' lists them"));
            }
        }))
    }
}

/// Bytes as a person reads them best: text in quotes, or hexadecimal digits.
pub fn written(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(|c| c.is_control() || c == '"') => format!("\"{text}\""),
        _ => bytes.iter().fold("0x".to_owned(), |text, byte| text + &format!("{byte:02x}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(line: &str) -> Request {
        match ShellCommand::parse(line) {
            Ok(Some(ShellCommand::Request(request))) => request,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn lines_are_read_and_survive_their_bytes() {
        let key = 17_u64.to_be_bytes().to_vec();
        let get = request("  get account 17 ");
        assert_eq!(get, Request { partition: "account".into(), key: key.clone(), verb: Verb::Get { field: None } });
        let put = request("put notes \"the milk\" \"two litres\"");
        assert_eq!((put.key.as_slice(), &put.verb), (&b"the milk"[..], &Verb::Put { value: b"two litres".to_vec() }));
        assert_eq!(request("get notes 0x00ff").key, [0, 255]);
        assert_eq!(request("get notes \"17\"").key, b"17");
        assert_eq!(request("add account 17 -5").verb, Verb::Add { field: None, amount: -5 });
        for line in ["get a 1 f", "set a 1 f \"x y\"", "add a 1 f 3", "delete a 1"] {
            let request = request(line);
            assert_eq!(Request::from_bytes(&request.to_bytes()), Some(request));
        }
        assert_eq!(ShellCommand::parse("  "), Ok(None));
        assert_eq!(written(b"two litres"), "\"two litres\"");
        assert_eq!(written(&[0, 255]), "0x00ff");
    }

    #[test]
    fn mistakes_are_named() {
        for (line, message) in [
            ("gat account 17", "did you mean 'get'?"),
            ("get account", "the form is: get PARTITION KEY [FIELD]"),
            ("add account 17 much", "'much' is not a whole number"),
            ("put a \"open", "never closed"),
            ("get a 0x123", "hexadecimal"),
            ("get a 99999999999999999999", "too large"),
            ("quit now", "'quit' stands alone"),
            ("rename account", "the form is: rename PARTITION NAME"),
        ] {
            let error = ShellCommand::parse(line).expect_err(line);
            assert!(error.contains(message), "{line}: {error}");
        }
    }

    #[test]
    fn every_word_is_in_the_help() {
        for word in WORDS {
            assert!(HELP.contains(word), "{word}");
        }
    }
}
