//! Streams of references to pages, for any number of pages: with the skew that is published of the TPC's benchmarks, and the
//! cases in which a second-level cache gains nothing.
//!
//! What they are not: the benchmarks themselves. No query, no key and no row is behind a reference; what is kept is how often
//! pages are referenced, how often they are changed, and which of them are read in sequence. TPC-C itself is
//! [`crate::tpcc`].

mod draw;

pub use draw::{Input, Step};

use crate::run::Workload;
use crate::synthetic::touch;
use base::{PartitionId, Random};
use draw::StreamPlace;
use engine::catalog::Organization;
use engine::{Database, Error, PartitionSpec, Result, Transaction};

/// The name of the partition that is referenced.
pub const PAGES: &str = "pages";

/// A law of references to pages.
///
/// ```
/// use base::Random;
/// use entresol_workload::page_stream::{Step, Stream};
///
/// let stream = Stream::named("tpc-c").expect("it has this name");
/// let input = stream.draw(1_000, 0, &mut Random::stream(1, "example"));
/// let changes = input.steps.iter().filter(|step| matches!(step, Step::Update(_))).count();
/// assert_eq!((input.steps.len(), changes), (10, 5), "a write for every two reads: an update reads its page first");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Like TPC-C: 75 % of the accesses go to 20 % of the pages (Leutenegger and Dias 1993), a write for every two reads (Do et
    /// al. 2011). Pages are as popular as the benchmark's non-uniform random numbers make them.
    TpcC,
    /// Like TPC-E: 9.7 reads for every write (Chen et al. 2010), in a working set of two thirds of the pages.
    TpcE,
    /// Like TPC-H: scans of an eighth of the pages, and queries of look-ups at random; nothing is changed.
    TpcH,
    /// One scan after the other over all pages, 256 of them in each transaction.
    Scan,
    /// Reads of all pages equally often.
    Uniform,
    /// Changes of all pages equally often.
    WriteOnly,
    /// Reads, nine of ten in a tenth of the pages that moves on by its own width again and again.
    MovingHotSet,
}

/// The streams with their names.
const STREAMS: [(&str, Stream); 7] = [
    ("tpc-c", Stream::TpcC),
    ("tpc-e", Stream::TpcE),
    ("tpc-h", Stream::TpcH),
    ("scan", Stream::Scan),
    ("uniform", Stream::Uniform),
    ("write-only", Stream::WriteOnly),
    ("moving-hot-set", Stream::MovingHotSet),
];

impl Stream {
    /// The names of the streams.
    pub fn names() -> [&'static str; 7] {
        STREAMS.map(|(name, _)| name)
    }

    /// The stream of this name.
    pub fn named(name: &str) -> Option<Stream> {
        STREAMS.iter().find(|(known, _)| *known == name).map(|(_, stream)| *stream)
    }

    /// What the stream is called.
    pub fn name(self) -> &'static str {
        STREAMS.iter().find(|(_, stream)| *stream == self).map(|(name, _)| *name).expect("every stream is listed")
    }

    /// The names of its types of transactions; none if they are all alike.
    pub fn types(self) -> &'static [&'static str] {
        if self == Stream::TpcH { &["scan", "look-ups"] } else { &[] }
    }

    /// Draws a transaction on this number of pages, `before` of which were drawn before it.
    ///
    /// # Panics
    /// If there are no pages.
    pub fn draw(self, pages: u64, before: u64, random: &mut Random) -> Input {
        assert!(pages > 0, "a stream has pages");
        draw::transaction(self, pages, before, random)
    }
}

/// A stream of references on a database, to be run by [`crate::run::run`].
#[derive(Clone, Debug)]
pub struct PageStream {
    stream: Stream,
    pages: u64,
    table: PartitionId,
    place: StreamPlace,
}

impl PageStream {
    /// Finds the partition [`PAGES`] in the database, creating it as `spec` says if it is missing (of the organization
    /// [`organization`]).
    ///
    /// # Errors
    /// [`Error::Argument`] without pages, [`Error::Unsuitable`] if a partition of this name exists with other pages; else the
    /// engine's.
    pub async fn prepare(
        database: &Database,
        stream: Stream,
        pages: u64,
        spec: impl FnOnce() -> Result<PartitionSpec>,
    ) -> Result<PageStream> {
        if pages == 0 {
            return Err(Error::Argument("a stream of references needs pages".to_owned()));
        }
        let table = match database.partition(PAGES) {
            Ok(table) => table,
            Err(_) => database.create_partition(spec()?).await?,
        };
        match database.describe(table)?.organization {
            Organization::Direct { objects, blocking_factor: 1, .. } if objects == pages => {
                Ok(PageStream { stream, pages, table, place: StreamPlace::default() })
            }
            _ => Err(Error::Unsuitable(format!(
                "the database has another partition '{PAGES}' than one of {pages} pages; name another directory or the same \
                 number"
            ))),
        }
    }
}

/// The organization of this number of pages: each is one object.
pub fn organization(pages: u64) -> Organization {
    Organization::Direct { objects: pages, blocking_factor: 1, record_size: 8 }
}

impl Workload for PageStream {
    type Input = Input;

    fn draw(&self, random: &mut Random) -> Input {
        self.stream.draw(self.pages, self.place.next(), random)
    }

    async fn run(&self, tx: &mut Transaction, input: &Input) -> Result<()> {
        for step in &input.steps {
            match step {
                Step::Read(page) => tx.read_object(self.table, *page, |_| ()).await?,
                Step::Update(page) => {
                    tx.read_object(self.table, *page, |_| ()).await?;
                    tx.modify_object(self.table, *page, touch).await?;
                }
                Step::Scan(pages) => tx.scan_objects(self.table, pages.clone(), |_, _| ()).await?,
            }
        }
        Ok(())
    }

    fn types(&self) -> Vec<String> {
        self.stream.types().iter().map(|name| (*name).to_owned()).collect()
    }

    fn type_of(&self, input: &Input) -> usize {
        input.kind
    }
}

#[cfg(test)]
mod tests;
