//! The lock table: which owners hold which resources in which modes, which owners wait, and the choice of deadlock victims.
//!
//! A plain synchronous data structure for one engine on one thread: no latches, no atomics, no allocation once its tables
//! have grown. It keeps strict two-phase locks for the transaction manager, which numbers its transactions densely as
//! [`Owner`]s, suspends those whose request is [`Outcome::Waiting`] and resumes those that a release reports as woken.
//!
//! As in Gray and Reuter (Transaction Processing, 1993, chapter 8) a hash table leads to one header per locked resource,
//! from which its granted requests and its queue of waiting ones hang; every owner's granted requests form a list of their
//! own. Here the header is part of the first holder's request, so that a lock without contention touches one cache line.
//!
//! Queues are fair. A request is granted at once only if it is compatible with every holder and every waiter; otherwise it goes
//! to the end of the queue. Only an *upgrade* (the owner holds the resource in a weaker mode) goes before the other waiters and
//! is blocked by holders alone: the waiters wait for the upgrading holder anyway.
//!
//! Resources form no hierarchy: a lock on a partition says nothing about its records unless all owners that lock records also
//! lock the partition. Ranges of keys are beside the table, in [`KeyRanges`]: who has to wait for one waits for a resource here.

mod check;
mod deadlock;
mod mode;
mod queue;
mod ranges;
mod request;
mod resource;
mod stamps;
mod table;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

pub use check::Violation;
pub use deadlock::VictimPolicy;
pub use mode::Mode;
pub use ranges::{KeyRanges, KeySpan, Mark, MarkedKey};
pub use resource::Resource;
pub use table::{Attempt, LockStatistics, LockTable, Outcome, Owner};
