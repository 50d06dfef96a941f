//! Recording a trace: what the references of a running engine were.
//!
//! Objects of direct partitions, and records of append partitions with a blocking factor, are recorded as objects; in
//! b-trees and append partitions without one, whose records have no fixed places, the pages are. Transactions stand in the
//! order of their beginnings. One that was rolled back, such as a deadlock's victim, is left out.

use super::{Partition, Problem, Reference, Trace, Type};
use crate::run::Workload;
use base::{PageId, PartitionId, Random, TransactionId};
use engine::statistics::Observer;
use engine::{Database, Prefetcher, RecordedPartition, RecordedReference, RecordedReferences, Result, Transaction};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
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
    references: Vec<RecordedReference>,
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
    /// [`engine::Error::Argument`] if the database has another observer.
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
        let ids: BTreeSet<PartitionId> =
            committed().flat_map(|recording| &recording.references).map(|reference| reference.page.partition).collect();
        let described = |id| Some(RecordedPartition::of(id, &*database.describe(id).ok()?));
        let partitions: Vec<RecordedPartition> = ids.into_iter().filter_map(described).collect();
        let transactions = committed().map(|recording| (recording.kind, recording.references.as_slice()));
        build(&state.types, &partitions, transactions)
    }
}

/// The trace of what the transactions of a running database have referenced. They have one type, `transaction`.
///
/// # Errors
/// [`Problem`] if a partition cannot be named in a trace.
pub fn of_references(recorded: &RecordedReferences) -> Result<Trace, Problem> {
    let transactions = recorded.transactions.iter().map(|references| (0, references.as_slice()));
    build(&["transaction".to_owned()], &recorded.partitions, transactions)
}

fn build<'a>(
    types: &[String],
    partitions: &[RecordedPartition],
    transactions: impl Iterator<Item = (u16, &'a [RecordedReference])> + Clone,
) -> Result<Trace, Problem> {
    let mut trace = Trace::new();
    for name in types {
        trace.add_type(Type { name: name.clone(), rate_per_s: None })?;
    }
    let mut last_pages = BTreeMap::new();
    for RecordedReference { page, .. } in transactions.clone().flat_map(|(_, references)| references) {
        let last = last_pages.entry(page.partition).or_insert(page.number);
        *last = (*last).max(page.number);
    }
    let mut named = BTreeMap::new();
    for partition in partitions {
        let RecordedPartition { id, name, objects, blocking_factor, locks } = partition.clone();
        let Some(last) = last_pages.get(&id) else { continue };
        let objects = objects.unwrap_or((u64::from(*last) + 1) * u64::from(blocking_factor));
        let number = trace.add_partition(Partition { name, objects, blocking_factor, locks })?;
        named.insert(id, (number, u64::from(blocking_factor)));
    }
    for (kind, references) in transactions {
        trace.begin(kind);
        for RecordedReference { page, slot, write } in references {
            let Some((partition, factor)) = named.get(&page.partition).copied() else { continue };
            let slot = if factor == 1 { 0 } else { u64::from(*slot) };
            let object = u64::from(page.number) * factor + slot;
            trace.refer(Reference { partition, write: *write, object })?;
        }
    }
    Ok(trace)
}

impl Observer for Recorder {
    fn reference(&self, transaction: TransactionId, page: PageId, slot: u16, write: bool) {
        if let Some(recording) = self.state.borrow_mut().transactions.get_mut(&transaction) {
            recording.references.push(RecordedReference { page, slot, write });
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
