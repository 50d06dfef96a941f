//! Joins by equal keys: what they are asked and what they answer.

use super::budget::Budget;
use super::row::Rows;
use super::space::Space;
use super::{hash_join, merge_join};
use crate::Result;
use std::ops::AsyncFnMut;

/// Which rows a join answers with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinKind {
    /// Every pair of a left and a right row of the same key.
    Inner,
    /// These, and every left row without a right one of its key.
    Left,
}

/// How rows of equal keys are brought together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinMethod {
    /// Hybrid hash join: right rows stay in memory as far as they fit, so the right input should be the smaller. Answers come
    /// in any order.
    Hash,
    /// Sort-merge join: answers come in the order of their keys.
    SortMerge,
}

/// What a join is to do, and with what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinSettings {
    /// How.
    pub method: JoinMethod,
    /// With which rows it answers.
    pub kind: JoinKind,
    /// Bytes of memory: 56 clusters of temporary space or more.
    pub memory: u64,
}

/// A result row of a join, lent to its consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Joined<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The left row's value.
    pub left: &'a [u8],
    /// The right row's value; `None` if there is no right row of this key.
    pub right: Option<&'a [u8]>,
}

/// What a join did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JoinReport {
    /// Left rows.
    pub left_rows: u64,
    /// Right rows.
    pub right_rows: u64,
    /// Answers.
    pub answers: u64,
    /// Runs or partitions that were written.
    pub runs: u64,
    /// How often a row was merged or partitioned, at most; 0 if the memory sufficed.
    pub passes: u32,
    /// Bytes written to temporary space.
    pub spilled_bytes: u64,
}

/// The consumer of a join's results.
pub(crate) trait Taker: AsyncFnMut(Joined<'_>) -> Result<()> {}

impl<T: AsyncFnMut(Joined<'_>) -> Result<()>> Taker for T {}

/// Joins two inputs.
///
/// # Errors
/// Those of [`crate::Database::join`].
pub(crate) async fn join<T: Taker>(
    space: &Space,
    inputs: (impl Rows, impl Rows),
    settings: JoinSettings,
    taker: &mut T,
) -> Result<JoinReport> {
    let JoinSettings { method, kind, memory } = settings;
    match method {
        JoinMethod::Hash => hash_join::join(space, inputs, kind, memory, taker).await,
        JoinMethod::SortMerge => {
            let budget = Budget::third(memory, space.cluster_size(), 0)?;
            merge_join::join(space, inputs, kind, budget, taker).await
        }
    }
}
