//! What TPC-C asks of an engine as a whole.

use super::conditions;
use super::requests::Terminals;
#[cfg(test)]
use super::requests::{Answer, Request};
use super::tables::{Record, Table};
use crate::closed_loop::{ClosedLoop, Measured};
#[cfg(test)]
use crate::peer::Engine;
use crate::peer::{Durability, Grouping, PeerResult};
use std::sync::Arc;
use workload::tpcc::{Scale, Violation, history, records};

/// Clients that ask for the standard mix.
pub type Clients = ClosedLoop<Terminals>;

/// How a database is opened.
#[derive(Clone, Copy, Debug)]
pub struct Opening {
    /// When a transaction is acknowledged.
    pub durability: Durability,
    /// What the engine may cache, in bytes.
    pub cache_bytes: usize,
}

/// An open database of some engine.
pub trait Peer {
    /// Fills the empty database. On return the rows are on the medium.
    fn load(&mut self, scale: &Scale) -> PeerResult<()>;

    /// Serves a closed loop of clients.
    fn run(&mut self, grouping: Grouping, clients: &Arc<Clients>) -> PeerResult<Measured>;

    /// Up to `limit` records of a table in the order of their keys: those behind the key `after`, or the first ones.
    fn page(&mut self, table: Table, after: Option<&[u8]>, limit: usize) -> PeerResult<Vec<Record>>;

    /// Executes requests one after the other; the answers, if the engine gives any.
    #[cfg(test)]
    fn execute(&mut self, requests: &[Request]) -> PeerResult<Vec<Answer>>;

    /// The consistency conditions that do not hold.
    fn violations(&mut self) -> PeerResult<Vec<Violation>> {
        conditions::check(|table, after| self.page(table, after, PAGE_RECORDS))
    }
}

/// Executes requests in one transaction.
#[cfg(test)]
pub fn execute(engine: &dyn Engine<Terminals>, requests: &[Request]) -> PeerResult<Vec<Answer>> {
    let mut answers = Vec::new();
    engine.session()?.commit(requests, &mut answers)?;
    Ok(answers)
}

/// Records that are fetched at once by what reads whole tables.
pub const PAGE_RECORDS: usize = 2_000;

/// Records of one transaction of a load.
pub const LOAD_RECORDS: usize = 100_000;

/// What a table of keys and rows holds at the beginning. The history's rows are numbered from zero.
pub fn contents(scale: &Scale, table: Table) -> Box<dyn Iterator<Item = Record>> {
    match table {
        Table::History => {
            let numbered = history(scale).zip(0_u64..);
            Box::new(numbered.map(|(row, number)| (number.to_be_bytes().to_vec(), row.to_vec())))
        }
        _ => records(scale, table.name()),
    }
}

/// Loads all tables in the order of their keys, [`LOAD_RECORDS`] at a time.
pub fn load_in_parts(
    scale: &Scale,
    mut write: impl FnMut(Table, &mut dyn Iterator<Item = Record>) -> PeerResult<()>,
) -> PeerResult<()> {
    for table in Table::ALL {
        let mut records = contents(scale, table).peekable();
        while records.peek().is_some() {
            write(table, &mut records.by_ref().take(LOAD_RECORDS))?;
        }
    }
    Ok(())
}
