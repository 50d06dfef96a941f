//! A join of two inputs by equal keys, verified: every answer is a pair that belongs together, and none is missing.

use super::sort::{GIVEN_STEP, STEP, fingerprint};
use super::spill::{Input, SpillReport, SpillTerms, Spilled, Watch};
use crate::Failure;
use crate::progress::Progress;
use base::Random;
use base::units::format_size;
use clap::{Args, ValueEnum};
use engine::temp::{JoinKind, JoinMethod, JoinSettings, Joined, Row, Rows};
use entresol::Store;
use std::cell::Cell;
use std::path::PathBuf;

/// Joins two inputs of half the size each in less memory than they take
///
/// Every left row has one right row of its key.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  \
    entresol bench join\n  \
    entresol bench join --size 4GiB --memory 1GiB --method sort-merge --json\n  \
    entresol bench join --hardware hdd-7200 --size 64MiB --memory 8MiB --cluster-size 64KiB")]
pub struct Arguments {
    /// Directory of the database, created if missing
    #[arg(long, value_name = "DIR", default_value = "join.data")]
    pub data: PathBuf,
    /// How
    #[arg(long, value_enum, default_value_t = Method::Hash)]
    pub method: Method,
    #[command(flatten)]
    pub terms: SpillTerms,
}

/// How inputs are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Method {
    /// Hybrid hash join
    Hash,
    /// Sort-merge join
    SortMerge,
}

/// The key of right row `number`: all bits of the number play a part (the finalizer of SplitMix64, which is a permutation).
fn key(number: u64) -> [u8; 8] {
    let mut bits = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (bits ^ bits >> 31).to_be_bytes()
}

/// What a right row's value begins with, which follows from its key.
fn tag(key: &[u8]) -> [u8; 8] {
    let mut bits = fingerprint(Row::new(key, b"tag"));
    bits ^= bits >> 29;
    bits.to_le_bytes()
}

/// One input.
struct GeneratedInput<'a> {
    random: Random,
    /// Right rows have all keys, one after the other; left ones any.
    is_right: bool,
    next: u64,
    rows: u64,
    key: [u8; 8],
    value: Vec<u8>,
    /// The sum of the left rows' fingerprints.
    fingerprints: &'a Cell<u64>,
    progress: &'a Progress,
}

impl Rows for GeneratedInput<'_> {
    async fn next(&mut self) -> entresol::Result<Option<Row<'_>>> {
        if self.next == self.rows {
            return Ok(None);
        }
        if self.next.is_multiple_of(STEP) {
            let name = if self.is_right { "right rows" } else { "left rows" };
            self.progress.step(name, self.next, self.rows);
        }
        self.key = key(if self.is_right { self.next } else { self.random.below(self.rows) });
        self.next += 1;
        self.random.fill(&mut self.value);
        if self.is_right {
            self.value[..8].copy_from_slice(&tag(&self.key));
        }
        let row = Row::new(&self.key, &self.value);
        if !self.is_right {
            self.fingerprints.set(self.fingerprints.get().wrapping_add(fingerprint(row)));
        }
        Ok(Some(row))
    }
}

/// Joins, verifies, measures the device.
pub fn run(arguments: &Arguments, progress: &Progress) -> Result<SpillReport, Failure> {
    let terms = &arguments.terms;
    let store = terms.open(&arguments.data, progress)?;
    let (input, mut watch) = (terms.input(store.configuration()), Watch::start(store.database()));
    let (method, name) = match arguments.method {
        Method::Hash => (JoinMethod::Hash, "hash join"),
        Method::SortMerge => (JoinMethod::SortMerge, "sort-merge join"),
    };
    let (answers, spilled) = join(&store, method, input, &mut watch, progress)?;
    let size = format_size(answers * u64::from(input.row_size));
    let operation = format!("{name} of 2 times {answers} rows of {} bytes, {size} each", input.row_size);
    let report = watch.report(&store, terms, (operation, answers), spilled, progress)?;
    super::session::close(store)?;
    Ok(report)
}

/// Joins two inputs of half the rows each, and verifies. Returns how many answers there were, which is as many as left rows,
/// and what the operator says.
pub fn join(
    store: &Store,
    method: JoinMethod,
    input: Input,
    watch: &mut Watch,
    progress: &Progress,
) -> Result<(u64, Spilled), Failure> {
    let (rows, expected) = ((input.rows / 2).max(1), Cell::new(0));
    let side = |is_right| GeneratedInput {
        random: Random::stream(input.seed, if is_right { "right rows" } else { "left rows" }),
        is_right,
        next: 0,
        rows,
        key: [0; 8],
        value: vec![0; input.row_size as usize - 8],
        fingerprints: &expected,
        progress,
    };
    let (mut answers, mut sum, mut belong) = (0_u64, 0_u64, true);
    let spilled = store.run(async |database| {
        let take = async |answer: Joined<'_>| {
            if answers.is_multiple_of(GIVEN_STEP) {
                watch.row(database, answers);
            }
            answers += 1;
            sum = sum.wrapping_add(fingerprint(Row::new(answer.key, answer.left)));
            belong &= answer.right.is_some_and(|right| right.starts_with(&tag(answer.key)));
            Ok(())
        };
        let settings = JoinSettings { method, kind: JoinKind::Inner, memory: input.memory };
        let report = database.join((side(false), side(true)), settings, take).await?;
        Ok(Spilled { runs: report.runs, passes: report.passes, spilled_bytes: report.spilled_bytes })
    })?;
    if (answers, sum, belong) != (rows, expected.get(), true) {
        return Err(format!(
            "the join is wrong: {answers} of {rows} answers, {}, {}; please report this as a defect",
            if sum == expected.get() { "every left row once" } else { "other left rows" },
            if belong { "each with its right row" } else { "with other right rows" }
        )
        .into());
    }
    Ok((answers, spilled))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_different_and_fill_the_bytes() {
        let mut keys: Vec<[u8; 8]> = (0..10_000).map(key).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 10_000);
        assert!(keys[0][0] == 0 && keys[9_999][0] == 255);
        assert_ne!(tag(&key(1)), tag(&key(2)));
    }
}
