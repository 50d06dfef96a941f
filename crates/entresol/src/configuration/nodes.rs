//! `[nodes]`: engines on the cores of this machine that share one database.

use super::interpret::TIB;
use super::section::Section;
use crate::KeyRanges;
use node::algorithm::{ALGORITHMS, CHANCES};
use std::collections::BTreeMap;

/// `[nodes]`: how [`start_nodes`](crate::start_nodes) runs the database.
#[derive(Clone, Debug, PartialEq)]
pub struct Nodes {
    /// `count`: how many nodes run transactions, each an engine on a thread of its own beside the server's, 1 to 64. With more than one the
    /// database is started by [`start_nodes`](crate::start_nodes).
    pub count: u32,
    /// `buffer`: how much memory each of them has for copies of pages, in bytes, at least 16 pages; `None`: as much as `[buffer]` gives the
    /// server.
    pub buffer: Option<u64>,
    /// `algorithm`: what becomes of copies in their memories (Franklin, Carey, Livny 1992): `"cbl"`, `"fwd"`, `"fwd-h"`,
    /// `"fwd-s"`, `"fwd-hs"`; `"adaptive"` moves between them; `"n-chance"` passes the last copy of a page on to an idle node (Dahlin,
    /// Wang, Anderson, Patterson 1994); with `"ps-aa"` locks fall to objects that several nodes want (Carey, Franklin, Zaharioudakis 1994).
    pub algorithm: &'static str,
    /// `chances`: how often `"n-chance"` passes a page on before a transaction has used it, 0 to 255.
    pub chances: u8,
    /// `transactions`: how many run at a time in each of them, at most, 1 to 256, and fewer than that in
    /// a buffer of less than eight pages for each; those that only wait for their commits are not counted.
    pub transactions: u32,
    /// `keep_write_locks`: whether a node that has written a page may write it again without asking, until another one wants it.
    pub keeps_write_locks: bool,
    /// `commit_pages`: whether a commit carries the pages that it has changed beside their log records. Otherwise the server redoes the
    /// records on its own copies, but of pages of which that is dearer than to send them.
    pub commits_pages: bool,
    /// `split_keys`: by partition, where the keys of the next node begin, so that requests about keys go to the node that has their pages:
    /// a text or a list of texts, or numbers, which are keys of eight bytes, the greatest first. What is said nowhere goes to each in turn.
    pub split_keys: BTreeMap<String, KeyRanges>,
}

impl Default for Nodes {
    fn default() -> Nodes {
        Nodes {
            count: 1,
            buffer: None,
            algorithm: ALGORITHMS[0].name(),
            chances: CHANCES,
            transactions: 64,
            keeps_write_locks: true,
            commits_pages: false,
            split_keys: BTreeMap::new(),
        }
    }
}

impl Nodes {
    /// The most nodes.
    pub const COUNT_MAX: u32 = 64;
    /// The most transactions of a node that run at a time: a server does not listen to one that has many more.
    pub const TRANSACTIONS_MAX: u32 = 256;

    /// Reads a `[nodes]`.
    pub(super) fn read(section: &mut Section<'_>, page_size: u32) -> Nodes {
        section.set_page_size(page_size);
        let defaults = Nodes::default();
        let words: Vec<&'static str> = ALGORITHMS.iter().map(|algorithm| algorithm.name()).collect();
        Nodes {
            count: section.number("count", 1..=Nodes::COUNT_MAX.into()).map_or(defaults.count, |count| count as u32),
            buffer: section.size("buffer", 16 * u64::from(page_size)..=TIB, ""),
            algorithm: section.word("algorithm", &words).unwrap_or(defaults.algorithm),
            chances: section.number("chances", 0..=u8::MAX.into()).map_or(defaults.chances, |chances| chances as u8),
            transactions: section
                .number("transactions", 1..=Nodes::TRANSACTIONS_MAX.into())
                .map_or(defaults.transactions, |count| count as u32),
            keeps_write_locks: section.flag("keep_write_locks").unwrap_or(defaults.keeps_write_locks),
            commits_pages: section.flag("commit_pages").unwrap_or(defaults.commits_pages),
            split_keys: read_split_keys(section),
        }
    }
}

fn read_split_keys(section: &mut Section<'_>) -> BTreeMap<String, KeyRanges> {
    let allowed =
        "partitions with texts, whole numbers or lists of these, such as { account = [500_000], customer = \"n\" }";
    let named = section.keys("split_keys", allowed).into_iter();
    named.map(|(name, keys)| (name.to_owned(), KeyRanges::split_at(keys))).collect()
}
