//! Joins by equal keys: what they are asked and what they answer.

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

/// An answer of a join, lent to whoever takes it.
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

/// Who takes the answers.
pub(super) trait Taker: AsyncFnMut(Joined<'_>) -> Result<()> {}

impl<T: AsyncFnMut(Joined<'_>) -> Result<()>> Taker for T {}
