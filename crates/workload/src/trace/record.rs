//! Recording a trace: what the references of a running engine were.
//!
//! Objects of direct partitions, and records of append partitions with a blocking factor, are recorded as objects; in
//! b-trees and append partitions without one, whose records have no fixed places, the pages are. Transactions stand in the
//! order of their beginnings. One that was rolled back, such as a deadlock's victim, is left out.

use super::{Partition, Problem, Reference, Trace, Type};
use crate::run::Workload;
use base::{PageId, Random, TransactionId};
use engine::catalog::Organization;
use engine::statistics::Observer;
use engine::{Database, Prefetcher, Result, Transaction};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Collects the references of the transactions of one database.
#[derive(Debug, Default)]
pub struct Recorder {
    state: RefCell<State>,
}

#[derive(Debug, Default)]
struct State {
    types: Vec<String>,
    transactions: BTreeMap<TransactionId, Recording>,
}

#[derive(Debug)]
struct Recording {
    kind: u16,
    committed: bool,
    references: Vec<(PageId, u16, bool)>,
}

impl Recorder {
    /// One that has recorded nothing.
    pub fn new() -> Rc<Recorder> {
        Rc::new(Recorder::default())
    }

    /// Begins to record: the references of transactions that are announced by [`Recorder::begin`], whose types have these
    /// names.
    ///
    /// # Errors
    /// [`engine::Error::Setting`] if the database has another observer.
    pub fn attach(self: &Rc<Recorder>, database: &Database, types: Vec<String>) -> Result<()> {
        self.state.borrow_mut().types = types;
        database.statistics().observe(Rc::clone(self) as Rc<dyn Observer>)
    }

    /// A transaction of this type begins to be recorded.
    pub fn begin(&self, transaction: TransactionId, kind: usize) {
        let recording = Recording { kind: kind as u16, committed: false, references: Vec::new() };
        self.state.borrow_mut().transactions.insert(transaction, recording);
    }

    /// The trace of what was committed so far. Partitions that were not referenced are left out.
    ///
    /// References to partitions that were dropped since are left out.
    ///
    /// # Errors
    /// [`Problem`] if a type or partition cannot be named in a trace.
    pub fn trace(&self, database: &Database) -> Result<Trace, Problem> {
        let state = self.state.borrow();
        let committed = || state.transactions.values().filter(|recording| recording.committed);
        let mut trace = Trace::new();
        for name in &state.types {
            trace.add_type(Type { name: name.clone(), rate_per_s: None })?;
        }
        let mut last_pages = BTreeMap::new();
        for (page, _, _) in committed().flat_map(|recording| &recording.references) {
            let last = last_pages.entry(page.partition).or_insert(page.number);
            *last = (*last).max(page.number);
        }
        let mut named = BTreeMap::new();
        for (id, last) in last_pages {
            let Ok(partition) = database.describe(id) else { continue };
            let blocking_factor = blocking_factor(&partition.organization);
            let objects = match partition.organization {
                Organization::Direct { objects, .. } => objects,
                _ => (u64::from(last) + 1) * u64::from(blocking_factor),
            };
            let (name, locks) = (partition.name.clone(), partition.locking);
            let number = trace.add_partition(Partition { name, objects, blocking_factor, locks })?;
            named.insert(id, (number, u64::from(blocking_factor)));
        }
        for recording in committed() {
            trace.begin(recording.kind);
            for (page, slot, write) in &recording.references {
                let Some((partition, factor)) = named.get(&page.partition).copied() else { continue };
                let slot = if factor == 1 { 0 } else { u64::from(*slot) };
                let object = u64::from(page.number) * factor + slot;
                trace.refer(Reference { partition, write: *write, object })?;
            }
        }
        Ok(trace)
    }
}

/// How many objects a page has in the trace.
fn blocking_factor(organization: &Organization) -> u32 {
    match organization {
        Organization::Direct { blocking_factor, .. } => *blocking_factor,
        Organization::Append { blocking_factor } => (*blocking_factor).max(1),
        Organization::BTree | Organization::Set { .. } => 1,
    }
}

impl Observer for Recorder {
    fn reference(&self, transaction: TransactionId, page: PageId, slot: u16, write: bool) {
        if let Some(recording) = self.state.borrow_mut().transactions.get_mut(&transaction) {
            recording.references.push((page, slot, write));
        }
    }

    fn ended(&self, transaction: TransactionId, committed: bool) {
        let mut state = self.state.borrow_mut();
        if !committed {
            state.transactions.remove(&transaction);
        } else if let Some(recording) = state.transactions.get_mut(&transaction) {
            recording.committed = true;
        }
    }
}

/// A workload whose transactions are recorded, if there is a recorder.
pub struct Recorded<W> {
    workload: W,
    recorder: Option<Rc<Recorder>>,
}

impl<W: Workload> Recorded<W> {
    /// `workload` on `database`; a workload that does not name its types has one, `transaction`.
    ///
    /// # Panics
    /// If there is a recorder and the database has another observer.
    pub fn new(database: &Database, workload: W, recorder: Option<Rc<Recorder>>) -> Recorded<W> {
        if let Some(recorder) = &recorder {
            let types = workload.types();
            let unnamed = || vec!["transaction".to_owned()];
            let attached = recorder.attach(database, if types.is_empty() { unnamed() } else { types });
            attached.expect("the database has no other observer");
        }
        Recorded { workload, recorder }
    }
}

impl<W: Workload> Workload for Recorded<W> {
    type Input = W::Input;

    fn draw(&self, random: &mut Random) -> W::Input {
        self.workload.draw(random)
    }

    fn prefetch(&self, memory: &Prefetcher<'_>, input: &W::Input) {
        self.workload.prefetch(memory, input);
    }

    async fn run(&self, tx: &mut Transaction, input: &W::Input) -> Result<()> {
        if let Some(recorder) = &self.recorder {
            recorder.begin(tx.id(), self.workload.type_of(input));
        }
        self.workload.run(tx, input).await
    }

    fn types(&self) -> Vec<String> {
        self.workload.types()
    }

    /// None if it is recorded: a procedure does not say to which of the workload's transactions its references belong.
    fn procedures(&self) -> Vec<String> {
        if self.recorder.is_some() { Vec::new() } else { self.workload.procedures() }
    }

    fn request(&self, input: &W::Input, parameters: &mut Vec<u8>) -> usize {
        self.workload.request(input, parameters)
    }

    fn type_of(&self, input: &W::Input) -> usize {
        self.workload.type_of(input)
    }

    fn is_counted(&self) -> bool {
        self.workload.is_counted()
    }
}
