//! An external sort, verified: in order, as many rows as went in, and the same ones.

use super::spill::{Input, SpillReport, SpillTerms, Spilled, Watch};
use crate::Failure;
use crate::progress::Progress;
use base::Random;
use base::units::format_size;
use clap::Args;
use engine::temp::{Row, Rows};
use entresol::Store;
use std::cell::Cell;
use std::path::PathBuf;

/// Sorts random rows in less memory than they take
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  \
    entresol bench sort\n  \
    entresol bench sort --size 4GiB --memory 256MiB --json\n  \
    entresol bench sort --hardware hdd-7200 --size 64MiB --memory 4MiB --cluster-size 64KiB")]
pub struct Arguments {
    /// Directory of the database, created if missing
    #[arg(long, value_name = "DIR", default_value = "sort.data")]
    pub data: PathBuf,
    #[command(flatten)]
    pub terms: SpillTerms,
}

/// Rows between two looks at the progress line, and between two at the clock.
pub const STEP: u64 = 1 << 16;
pub const GIVEN_STEP: u64 = 1 << 12;

/// A number that two rows share by accident only; summed up over rows it does not depend on their order.
pub fn fingerprint(row: Row<'_>) -> u64 {
    let mut sum = row.key.len() as u64;
    for part in [row.key, row.value] {
        for word in part.chunks(8) {
            let mut bytes = [0; 8];
            bytes[..word.len()].copy_from_slice(word);
            sum = (sum ^ u64::from_le_bytes(bytes)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        }
    }
    sum
}

/// Rows with random keys and values.
struct GeneratedRows<'a> {
    random: Random,
    left: u64,
    key: [u8; 8],
    value: Vec<u8>,
    fingerprints: &'a Cell<u64>,
    progress: &'a Progress,
    rows: u64,
}

impl Rows for GeneratedRows<'_> {
    async fn next(&mut self) -> entresol::Result<Option<Row<'_>>> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        if left.is_multiple_of(STEP) {
            self.progress.step("sorting", self.rows - left, self.rows);
        }
        self.key = self.random.word().to_be_bytes();
        self.random.fill(&mut self.value);
        let row = Row::new(&self.key, &self.value);
        self.fingerprints.set(self.fingerprints.get().wrapping_add(fingerprint(row)));
        Ok(Some(row))
    }
}

/// Sorts, verifies, measures the device.
pub fn run(arguments: &Arguments, progress: &Progress) -> Result<SpillReport, Failure> {
    let terms = &arguments.terms;
    let store = terms.open(&arguments.data, progress)?;
    let (input, mut watch) = (terms.input(store.configuration()), Watch::start(store.database()));
    let (answers, spilled) = sort(&store, input, &mut watch, progress)?;
    let size = format_size(input.rows * u64::from(input.row_size));
    let operation = format!("sort of {} rows of {} bytes, {size}", input.rows, input.row_size);
    let report = watch.report(&store, terms, (operation, answers), spilled, progress)?;
    super::session::close(store)?;
    Ok(report)
}

/// Sorts and verifies. Returns how many rows came out, and what the operator says.
pub fn sort(store: &Store, input: Input, watch: &mut Watch, progress: &Progress) -> Result<(u64, Spilled), Failure> {
    let (rows, expected) = (input.rows, Cell::new(0));
    let generated = GeneratedRows {
        random: Random::stream(input.seed, "rows"),
        left: rows,
        key: [0; 8],
        value: vec![0; input.row_size as usize - 8],
        fingerprints: &expected,
        progress,
        rows,
    };
    let (found, spilled) = store.run(async |database| {
        let mut sorted = database.sort(generated, input.memory).await?;
        let report = sorted.report();
        let (mut count, mut sum, mut before, mut in_order) = (0_u64, 0_u64, [0; 8], true);
        while let Some(row) = sorted.next().await? {
            if count.is_multiple_of(GIVEN_STEP) {
                watch.row(database, count);
            }
            if count.is_multiple_of(STEP) {
                progress.step("merging", count, rows);
            }
            in_order &= before.as_slice() <= row.key;
            before.copy_from_slice(row.key);
            (count, sum) = (count + 1, sum.wrapping_add(fingerprint(row)));
        }
        let spilled = Spilled { runs: report.runs, passes: report.passes, spilled_bytes: report.spilled_bytes };
        Ok(((count, sum, in_order), spilled))
    })?;
    if found != (rows, expected.get(), true) {
        return Err(format!(
            "the sort is wrong: {} of {rows} rows, {}, {}; please report this as a defect",
            found.0,
            if found.1 == expected.get() { "the same" } else { "others" },
            if found.2 { "in order" } else { "out of order" }
        )
        .into());
    }
    Ok((found.0, spilled))
}
