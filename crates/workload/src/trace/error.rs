//! What is wrong with a trace.

use thiserror::Error;

/// Where in a file something is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Place {
    /// A line of a text, counted from 1.
    #[error("line {0}")]
    Line(u64),
    /// A byte of a binary file, and the record that it belongs to.
    #[error("byte {offset} ({part} {record})")]
    Byte {
        /// The byte, counted from 0.
        offset: u64,
        /// What the record is, such as `transaction`.
        part: &'static str,
        /// Which of these, counted from 1.
        record: u64,
    },
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum Problem {
    /// It does not begin as a trace does.
    #[error("this is no trace")]
    NotATrace,
    /// It is of a version that is unknown here.
    #[error("the trace has version {0}")]
    Version(String),
    /// A block trace has no line of its own.
    #[error("there is no request in it")]
    NoRequests,
    /// It ends too early.
    #[error("the trace is cut off: {0}")]
    CutOff(&'static str),
    /// Something follows its end.
    #[error("something follows the end of the trace")]
    TrailingBytes,
    /// The checksum of a part does not fit its bytes.
    #[error("the {0} is damaged: its checksum does not fit")]
    Checksum(&'static str),
    /// The counts at the end differ from what was read.
    #[error("the end counts {found} {what}, but {read} were read")]
    Count {
        /// `transactions` or `references`.
        what: &'static str,
        /// The number at the end.
        found: u64,
        /// The number read.
        read: u64,
    },
    /// A line begins with no word that is known here.
    #[error("'{0}' is out of place here")]
    UnexpectedWord(String),
    /// A field is missing, or there is one too many.
    #[error("{0}")]
    Fields(String),
    /// A field cannot be read.
    #[error("'{found}' is no {what}")]
    WrongField {
        /// What the field should be.
        what: &'static str,
        /// What it is.
        found: String,
    },
    /// A number is too small or too large.
    #[error("the {what} is {found}")]
    OutOfRange {
        /// What the number is.
        what: &'static str,
        /// The number.
        found: u64,
        /// The numbers that are allowed.
        allowed: String,
    },
    /// A reference is to a partition that the trace's table does not have.
    #[error("there is no partition '{name}'")]
    UnknownPartition {
        /// The name found.
        name: String,
        /// The names that exist.
        known: String,
    },
    /// A transaction is of a type that the trace's table does not have.
    #[error("there is no type '{name}'")]
    UnknownType {
        /// The name found.
        name: String,
        /// The names that exist.
        known: String,
    },
    /// As [`Problem::UnknownPartition`], where references are by number.
    #[error("there is no partition number {number}")]
    NoSuchPartition {
        /// The number found.
        number: u64,
        /// How many there are.
        known: usize,
    },
    /// As [`Problem::UnknownType`], where types are by number.
    #[error("there is no type number {number}")]
    NoSuchType {
        /// The number found.
        number: u64,
        /// How many there are.
        known: usize,
    },
    /// A partition or a type has a name that cannot be one.
    #[error("'{0}' is no name")]
    BadName(String),
    /// Two partitions or two types have one name.
    #[error("there is a {what} '{name}' already")]
    Repeated {
        /// `partition` or `type`.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// The tables have no more room.
    #[error("there are more {0} than 65,536")]
    TooMany(&'static str),
}

impl Problem {
    /// What would be allowed in place of what was found; empty if there is nothing to add.
    pub fn allowed(&self) -> String {
        let numbers = |known: &usize| match known {
            0 => "none, because its table is empty".to_owned(),
            known => format!("0 to {}", known - 1),
        };
        match self {
            Problem::NotATrace => "a file that begins with 'entresol-trace 1' or is a binary trace".to_owned(),
            Problem::Version(_) => "version 1".to_owned(),
            Problem::CutOff(_) => "a whole trace, which says at its end how many transactions it has".to_owned(),
            Problem::TrailingBytes => "nothing".to_owned(),
            Problem::OutOfRange { allowed, .. } => allowed.clone(),
            Problem::UnknownPartition { known, .. } | Problem::UnknownType { known, .. } => known.clone(),
            Problem::NoSuchPartition { known, .. } | Problem::NoSuchType { known, .. } => numbers(known),
            Problem::BadName(_) => "1 to 64 of the characters a-z A-Z 0-9 _ -, a letter first".to_owned(),
            Problem::NoRequests | Problem::UnexpectedWord(_) | Problem::Fields(_) | Problem::WrongField { .. } => {
                String::new()
            }
            Problem::Checksum(_) | Problem::Count { .. } | Problem::Repeated { .. } | Problem::TooMany(_) => {
                String::new()
            }
        }
    }
}

/// What is wrong in a line, and what is allowed there; empty if the problem says so itself.
pub(super) type LineError = (Problem, &'static str);

/// A trace that cannot be read.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("{file}: {place}: {problem}{}", allowed_clause(.allowed))]
pub struct TraceError {
    /// The file, as the caller named it.
    pub file: Box<str>,
    /// Where.
    pub place: Place,
    /// What is wrong.
    pub problem: Problem,
    /// What is allowed there; may be empty.
    pub allowed: Box<str>,
}

fn allowed_clause(allowed: &str) -> String {
    if allowed.is_empty() { String::new() } else { format!("; allowed: {allowed}") }
}

impl TraceError {
    /// A problem at a place; `allowed`, if not empty, replaces what the problem itself says is allowed.
    pub(super) fn new(file: &str, place: Place, problem: Problem, allowed: &str) -> TraceError {
        let allowed = if allowed.is_empty() { problem.allowed().into() } else { allowed.into() };
        TraceError { file: file.into(), place, problem, allowed }
    }
}
