//! Database traces: per transaction its type and its references with their access mode (Rahm 1991, section 3.1).
//!
//! A [`Trace`] has a table of partitions, a table of types, and transactions in their order. It is kept in one of two
//! formats, which [`Trace::read`] tells apart: [`text`], one line a reference, and [`binary`], three or four bytes a
//! reference, in blocks with checksums. Whatever is wrong with a trace is a [`TraceError`] that names the file, the line or
//! the byte and the record, and what is allowed there.
//!
//! Traces come from [`record`] (what the references of the engine were), from [`msr`] (block traces of Microsoft Research
//! Cambridge) and from [`rahm_1991`] (a trace with the published properties of an unpublished one); [`replay`] runs them.
//!
//! ```
//! use entresol_workload::trace::Trace;
//! let text = "entresol-trace 1\n\
//!             partition account objects 1000 blocking-factor 10 locks page\n\
//!             type transfer\n\
//!             begin transfer\n\
//!             w account 17\n\
//!             r account 4\n\
//!             end transactions 1 references 2\n";
//! let trace = Trace::read("a.trace", text.as_bytes())?;
//! assert_eq!(trace.references().len(), 2);
//! assert_eq!(Trace::read("b.trace", &trace.to_binary())?, trace);
//! let error = Trace::read("a.trace", text.replace("r account", "r acount").as_bytes()).unwrap_err();
//! assert_eq!(error.to_string(), "a.trace: line 6: there is no partition 'acount'; allowed: account");
//! # Ok::<(), entresol_workload::trace::TraceError>(())
//! ```

pub mod binary;
mod error;
pub mod miss_ratio;
pub mod msr;
pub mod rahm_1991;
pub mod record;
pub mod replay;
pub mod stack_distance;
pub mod statistics;
pub mod text;

pub use error::{Place, Problem, TraceError};

use engine::catalog::Locking;

/// A sequence of transactions and what they reference.
///
/// ```
/// use engine::catalog::Locking;
/// use entresol_workload::trace::{Partition, Reference, Trace, Type};
///
/// let mut trace = Trace::new();
/// let partition = Partition { name: "stock".into(), objects: 100, blocking_factor: 10, locks: Locking::Page };
/// let stock = trace.add_partition(partition)?;
/// let order = trace.add_type(Type { name: "order".into(), rate_per_s: Some(12.5) })?;
/// trace.begin(order);
/// for object in [7, 42] {
///     trace.refer(Reference { partition: stock, object, write: object == 42 })?;
/// }
/// assert!(trace.refer(Reference { partition: stock, object: 100, write: false }).is_err(), "0 to 99");
///
/// // Text is for people, the binary format is compact; both are read by the same call.
/// for bytes in [trace.to_text().into_bytes(), trace.to_binary()] {
///     assert_eq!(Trace::read("orders.trace", &bytes).as_ref(), Ok(&trace));
/// }
/// let cut_off = Trace::read("orders.trace", &trace.to_text().as_bytes()[..60]).unwrap_err();
/// assert!(cut_off.to_string().starts_with("orders.trace"), "{cut_off}");
/// # Ok::<(), entresol_workload::trace::Problem>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    partitions: Vec<Partition>,
    types: Vec<Type>,
    transactions: Vec<Span>,
    references: Vec<Reference>,
}

/// What a trace says of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Its name.
    pub name: String,
    /// How many objects it has.
    pub objects: u64,
    /// How many of them are on a page; 1 where references are to pages.
    pub blocking_factor: u32,
    /// What transactions lock.
    pub locks: Locking,
}

/// What a trace says of a type of transactions.
#[derive(Clone, Debug, PartialEq)]
pub struct Type {
    /// Its name.
    pub name: String,
    /// How many of its transactions arrived per second, where that is known.
    pub rate_per_s: Option<f64>,
}

/// A reference to an object, or to a page where a partition's blocking factor is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference {
    /// The partition: a position in [`Trace::partitions`].
    pub partition: u16,
    /// Whether the object is changed.
    pub write: bool,
    /// The object's number.
    pub object: u64,
}

/// A transaction in the list of all references.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    kind: u16,
    end: usize,
}

/// One transaction of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transaction<'a> {
    /// Its type: a position in [`Trace::types`].
    pub kind: u16,
    /// Its references, in order.
    pub references: &'a [Reference],
}

/// The most objects of a partition: they are numbered with 48 bits.
pub const OBJECTS_MAX: u64 = 1 << 48;
/// The most partitions and types of a trace: they are numbered with 16 bits.
pub const TABLE_MAX: usize = 1 << 16;

impl Trace {
    /// A trace without partitions, types and transactions.
    pub fn new() -> Trace {
        Trace::default()
    }

    /// Reads a trace in either format; `file` appears in errors.
    ///
    /// # Errors
    /// [`TraceError`] that names the place and what is allowed there.
    pub fn read(file: &str, bytes: &[u8]) -> Result<Trace, TraceError> {
        if bytes.starts_with(&binary::MAGIC) {
            binary::read(file, bytes)
        } else {
            text::read(file, without_mark(bytes))
        }
    }

    /// Adds a partition; returns its position.
    ///
    /// # Errors
    /// What is wrong with it, without a place.
    pub fn add_partition(&mut self, partition: Partition) -> Result<u16, Problem> {
        let Partition { name, objects, blocking_factor, .. } = &partition;
        if !crate::is_name(name) {
            return Err(Problem::BadName(name.clone()));
        }
        if self.partitions.iter().any(|known| known.name == *name) {
            return Err(Problem::Repeated { what: "partition", name: name.clone() });
        }
        if *blocking_factor == 0 || *blocking_factor > 65_535 {
            let allowed = "1 to 65,535".to_owned();
            return Err(Problem::OutOfRange { what: "blocking factor", found: (*blocking_factor).into(), allowed });
        }
        let limit = (u64::from(*blocking_factor) << 32).min(OBJECTS_MAX) - u64::from(*blocking_factor);
        if *objects == 0 || *objects > limit {
            let allowed = format!("1 to {limit}");
            return Err(Problem::OutOfRange { what: "number of objects", found: *objects, allowed });
        }
        if self.partitions.len() == TABLE_MAX {
            return Err(Problem::TooMany("partitions"));
        }
        self.partitions.push(partition);
        Ok((self.partitions.len() - 1) as u16)
    }

    /// Adds a type; returns its position.
    ///
    /// # Errors
    /// What is wrong with it, without a place.
    pub fn add_type(&mut self, kind: Type) -> Result<u16, Problem> {
        if !crate::is_name(&kind.name) {
            return Err(Problem::BadName(kind.name));
        }
        if self.types.iter().any(|known| known.name == kind.name) {
            return Err(Problem::Repeated { what: "type", name: kind.name });
        }
        if kind.rate_per_s.is_some_and(|rate| !(rate.is_finite() && rate > 0.0)) {
            return Err(Problem::WrongField { what: "rate", found: kind.rate_per_s.unwrap_or_default().to_string() });
        }
        if self.types.len() == TABLE_MAX {
            return Err(Problem::TooMany("types"));
        }
        self.types.push(kind);
        Ok((self.types.len() - 1) as u16)
    }

    /// Begins a transaction of this type, a position in [`Trace::types`].
    ///
    /// # Panics
    /// If there is no such type.
    pub fn begin(&mut self, kind: u16) {
        assert!(usize::from(kind) < self.types.len(), "a transaction has one of the trace's types");
        self.transactions.push(Span { kind, end: self.references.len() });
    }

    /// Adds a reference to the transaction that was begun last.
    ///
    /// # Errors
    /// [`Problem::NoSuchPartition`], [`Problem::OutOfRange`].
    ///
    /// # Panics
    /// If no transaction was begun.
    pub fn refer(&mut self, reference: Reference) -> Result<(), Problem> {
        let Some(partition) = self.partitions.get(usize::from(reference.partition)) else {
            return Err(Problem::NoSuchPartition { number: reference.partition.into(), known: self.partitions.len() });
        };
        if reference.object >= partition.objects {
            let allowed = format!("0 to {} in partition '{}'", partition.objects - 1, partition.name);
            return Err(Problem::OutOfRange { what: "object", found: reference.object, allowed });
        }
        self.references.push(reference);
        self.transactions.last_mut().expect("a transaction was begun").end = self.references.len();
        Ok(())
    }

    /// The partitions.
    pub fn partitions(&self) -> &[Partition] {
        &self.partitions
    }

    /// The types of transactions.
    pub fn types(&self) -> &[Type] {
        &self.types
    }

    /// How many transactions there are.
    pub fn len(&self) -> usize {
        self.transactions.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.transactions.is_empty()
    }

    /// The transaction at this position.
    ///
    /// # Panics
    /// If there is none.
    pub fn transaction(&self, position: usize) -> Transaction<'_> {
        let start = if position == 0 { 0 } else { self.transactions[position - 1].end };
        let Span { kind, end } = self.transactions[position];
        Transaction { kind, references: &self.references[start..end] }
    }

    /// All transactions in order.
    pub fn transactions(&self) -> impl Iterator<Item = Transaction<'_>> {
        (0..self.len()).map(|position| self.transaction(position))
    }

    /// The references of all transactions, one after the other.
    pub fn references(&self) -> &[Reference] {
        &self.references
    }

    /// The page that a reference is to, as a number that no page of another partition has.
    pub fn page_number(&self, reference: Reference) -> u64 {
        let page = self.page_of(reference);
        debug_assert!(page < 1 << 48, "a page has a number of 48 bits");
        u64::from(reference.partition) << 48 | page
    }

    /// The page that a reference is to, as a number within its partition.
    pub fn page_of(&self, reference: Reference) -> u64 {
        reference.object / u64::from(self.partitions[usize::from(reference.partition)].blocking_factor)
    }

    /// Forgets all transactions behind the first `count`.
    pub fn truncate(&mut self, count: usize) {
        self.transactions.truncate(count);
        self.references.truncate(self.transactions.last().map_or(0, |span| span.end));
    }
}

/// A text without the byte order mark that some editors put before it.
fn without_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes)
}

/// What a partition's locks are called in traces.
pub(crate) fn locks_word(locks: Locking) -> &'static str {
    match locks {
        Locking::Page => "page",
        Locking::Record => "object",
        Locking::None => "none",
    }
}

/// The inverse of [`locks_word`].
pub(crate) fn locks_of(word: &str) -> Option<Locking> {
    [Locking::Page, Locking::Record, Locking::None].into_iter().find(|locks| locks_word(*locks) == word)
}

#[cfg(test)]
mod tests;
