//! What is wrong with a configuration: where, what, and what is allowed instead.

use std::fmt;
use std::ops::Range;
use thiserror::Error;

/// Why there is no configuration.
///
/// ```
/// use entresol::configuration::{Configuration, ConfigurationError, Problem};
///
/// let text = b"[log]\ndevice = \"flsh\"\n[device.flash]\npath = \"/mnt/nvme\"";
/// let error = Configuration::from_bytes("house.toml", text, None).unwrap_err();
/// println!("{error}");
/// let ConfigurationError::Wrong { findings } = error else { panic!("the text is wrong") };
/// assert_eq!((findings[0].line, findings[0].nearest.as_deref()), (2, Some("flash")));
/// assert!(matches!(findings[0].problem, Problem::NoSuch { what: "device", .. }));
/// ```
#[derive(Clone, Debug, PartialEq, Error)]
pub enum ConfigurationError {
    /// The file cannot be read.
    #[error("the configuration '{file}' cannot be read: {reason}")]
    Unreadable {
        /// The file.
        file: String,
        /// What the system said.
        reason: String,
    },
    /// The hardware asked for beside the file cannot be used.
    #[error("{problem}; allowed: {}, or the path of a description ending in .toml{}", .known.join(", "), suggestion(.problem, .known))]
    Hardware {
        /// What is wrong with it.
        problem: Problem,
        /// The names that exist.
        known: Vec<String>,
    },
    /// The text says something that is not allowed.
    #[error("{}", .findings.iter().map(Finding::to_string).collect::<Vec<_>>().join("\n\n"))]
    Wrong {
        /// Everything that is wrong, in the order of the text; at least one.
        findings: Vec<Finding>,
    },
}

fn suggestion(problem: &Problem, known: &[String]) -> String {
    let Problem::NoSuch { name, .. } = problem else { return String::new() };
    nearest(name, known.iter().map(String::as_str)).map_or_else(String::new, |near| format!("; did you mean '{near}'?"))
}

/// What is wrong at one place of a configuration.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum Problem {
    /// The bytes are not UTF-8.
    #[error("the file is not UTF-8 text")]
    NotText,
    /// The text is not TOML.
    #[error("this is not TOML: {0}")]
    Syntax(String),
    /// No section or key of this name exists here.
    #[error("unknown {what} '{name}' in {section}")]
    Unknown {
        /// `key` or `section`.
        what: &'static str,
        /// The name found.
        name: String,
        /// The section that holds it, such as `[buffer]`.
        section: String,
    },
    /// A partition or device has a name that cannot name a file.
    #[error("'{0}' cannot name a device or a partition")]
    BadName(String),
    /// The value is of another TOML type than the key wants.
    #[error("'{key}' is {found}")]
    WrongType {
        /// The key.
        key: String,
        /// The type found.
        found: &'static str,
    },
    /// The value is none of the words that the key knows.
    #[error("'{key}' cannot be \"{value}\"")]
    UnknownWord {
        /// The key.
        key: String,
        /// The value found.
        value: String,
    },
    /// The value is not a quantity.
    #[error("'{key}' cannot be read: {reason}")]
    NotAQuantity {
        /// The key.
        key: String,
        /// Why not.
        reason: String,
    },
    /// The value is too small, too large or between two allowed ones.
    #[error("'{key}' cannot be {value}")]
    OutOfRange {
        /// The key.
        key: String,
        /// The value found.
        value: String,
    },
    /// A device, hardware or described device of this name does not exist.
    #[error("there is no {what} '{name}'")]
    NoSuch {
        /// `device`, `hardware` or `described device`.
        what: &'static str,
        /// The name found.
        name: String,
    },
    /// The description of hardware cannot be used.
    #[error("'{name}' cannot be used: {reason}")]
    BadDescription {
        /// The description's name or path.
        name: String,
        /// Why not.
        reason: String,
    },
    /// The value contradicts another one or has no effect beside it.
    #[error("{0}")]
    Conflict(String),
}

/// One thing that is wrong, and its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The file, as it was named by the caller.
    pub file: String,
    /// The line, counted from 1.
    pub line: usize,
    /// The column in characters, counted from 1.
    pub column: usize,
    /// What is wrong.
    pub problem: Problem,
    /// What is allowed, in words or as a list.
    pub allowed: String,
    /// The allowed name that resembles the one found.
    pub nearest: Option<String>,
    /// The line's text around the place, fit for a terminal.
    excerpt: String,
    /// Where the place begins in the excerpt, in characters.
    caret: usize,
    /// How many characters it covers, at least 1.
    carets: usize,
}

/// The most characters of a line that a message shows.
const EXCERPT_MAX: usize = 80;

impl Finding {
    /// A finding at the bytes `span` of `text`.
    pub fn new(
        file: &str,
        text: &str,
        span: Range<usize>,
        problem: Problem,
        allowed: String,
        nearest: Option<String>,
    ) -> Finding {
        let start = text.floor_char_boundary(span.start.min(text.len()));
        let end = text.floor_char_boundary(span.end.clamp(start, text.len()));
        let line_start = text[..start].rfind('\n').map_or(0, |newline| newline + 1);
        let line_text = text[line_start..].lines().next().unwrap_or("");
        let before = text[line_start..start].chars().count();
        let covered = text[start..end].lines().next().unwrap_or("").chars().count();
        // A long line is shown from a little before the place.
        let skipped = if before >= EXCERPT_MAX / 2 { before - EXCERPT_MAX / 4 } else { 0 };
        let excerpt: String = line_text
            .chars()
            .skip(skipped)
            .take(EXCERPT_MAX)
            .map(|c| if c == '\t' { ' ' } else { printable(c) })
            .collect();
        let caret = before - skipped;
        let carets = covered.min(EXCERPT_MAX - caret).max(1);
        let line = text[..line_start].matches('\n').count() + 1;
        Finding { file: file.to_owned(), line, column: before + 1, problem, allowed, nearest, excerpt, caret, carets }
    }
}

fn printable(c: char) -> char {
    if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.line.to_string();
        let margin = " ".repeat(number.len());
        let problem: String = self.problem.to_string().chars().map(printable).collect();
        writeln!(f, "{}:{}:{}: {problem}", self.file, self.line, self.column)?;
        writeln!(f, "{margin} |")?;
        writeln!(f, "{number} | {}", self.excerpt.trim_end())?;
        write!(f, "{margin} | {}{}", " ".repeat(self.caret), "^".repeat(self.carets))?;
        if !self.allowed.is_empty() {
            write!(f, "\n{margin} = allowed: {}", self.allowed)?;
        }
        if let Some(nearest) = &self.nearest {
            write!(f, "\n{margin} = did you mean '{nearest}'?")?;
        }
        Ok(())
    }
}

/// The candidate that differs least from `name`, if it differs in no more than about a third of its letters; else the
/// only one that begins with it.
pub fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str> + Clone) -> Option<&'a str> {
    let name = name.to_lowercase();
    let limit = (name.chars().count() / 3).max(1);
    let similar = candidates
        .clone()
        .map(|candidate| (distance(&name, &candidate.to_lowercase(), limit), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance);
    let mut longer = candidates.filter(|candidate| name.len() > 1 && candidate.starts_with(&name));
    similar.map(|(_, candidate)| candidate).or_else(|| longer.next().filter(|_| longer.next().is_none()))
}

/// The number of letters inserted, deleted, replaced or exchanged with their neighbour that make `a` into `b` (optimal
/// string alignment, Damerau 1964); more than `limit` if the lengths alone differ by more than that.
fn distance(a: &str, b: &str, limit: usize) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    if a.len().abs_diff(b.len()) > limit {
        return limit + 1;
    }
    let mut before_last = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before_last[j - 2] + 1);
            }
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_edits() {
        for (a, b, edits) in
            [("", "", 0), ("size", "size", 0), ("sise", "size", 1), ("szie", "size", 1), ("si", "size", 2)]
        {
            assert_eq!(distance(a, b, 9), edits, "{a} {b}");
            assert_eq!(distance(b, a, 9), edits, "{b} {a}");
        }
    }

    #[test]
    fn nearest_is_silent_about_strangers() {
        let words = ["noforce", "force"];
        assert_eq!(nearest("noforse", words.into_iter()), Some("noforce"));
        assert_eq!(nearest("FORCE", words.into_iter()), Some("force"));
        assert_eq!(nearest("sometimes", words.into_iter()), None);
        assert_eq!(nearest("no", words.into_iter()), Some("noforce"));
        assert_eq!(nearest("rahm", ["rahm-1991", "rahm-1992"].into_iter()), None);
    }

    #[test]
    fn long_and_odd_lines_keep_the_caret_under_the_place() {
        let text = format!("{}ä\tX{}\nnext", "-".repeat(300), "+".repeat(300));
        let start = text.find('X').unwrap();
        let finding = Finding::new("f", &text, start..start + 1, Problem::NotText, String::new(), None);
        assert_eq!((finding.line, finding.column), (1, 303));
        let shown = finding.to_string();
        let lines: Vec<&str> = shown.lines().collect();
        let column = lines[3].chars().position(|c| c == '^').unwrap();
        assert_eq!(lines[2].chars().nth(column), Some('X'));
        assert!(lines.iter().all(|line| line.chars().count() <= 100));
    }
}
