//! The study's five questions, answered from the runs.

use super::{caching, database_allocation as database, force};
use crate::{Answer, Results};

/// The rate at which storage types are compared.
const RATE: f64 = 100.0;

pub(super) fn answers(results: &Results) -> Vec<Answer> {
    Answer::all([
        ("What is the relative gain of each storage type compared to disks?", gains(results)),
        ("Can less expensive storage types compete with expensive ones?", cheap(results)),
        ("Does it pay to combine two or three of them?", combined(results)),
        ("What does caching at more than one level do?", levels(results)),
        ("Is FORCE affordable with non-volatile semiconductor memory?", affordable(results)),
    ])
}

fn response(results: &Results, line: &str) -> Option<f64> {
    Some(results.trial("4-3-database")?.response_ms(line, RATE)?.mean)
}

fn gains(results: &Results) -> Option<String> {
    let disk = response(results, database::DISK)?;
    let lines = [
        ("write buffers in disk caches", database::CACHED),
        ("write buffers in NVEM", database::BUFFERED),
        ("solid-state disks", database::SSD),
        ("NVEM", database::NVEM),
    ];
    let parts: Vec<String> = lines
        .iter()
        .filter_map(|(name, line)| {
            let time = response(results, line)?;
            Some(format!("with {name} {time:.1} ms ({:.0} % less)", (1.0 - time / disk) * 100.0))
        })
        .collect();
    Some(format!("At {RATE} TPS Debit-Credit takes {disk:.1} ms on disks, {}.", parts.join(", ")))
}

fn cheap(results: &Results) -> Option<String> {
    let (disk, cached, ssd, nvem) = (
        response(results, database::DISK)?,
        response(results, database::CACHED)?,
        response(results, database::SSD)?,
        response(results, database::NVEM)?,
    );
    let share = |time: f64| (disk - time) / (disk - nvem) * 100.0;
    let buffers = response(results, database::BUFFERED).map_or_else(String::new, |nvem| {
        format!(" A write buffer in NVEM, at {nvem:.1} ms, is hardly better than one in a disk cache.")
    });
    Some(format!(
        "Of what a database wholly in NVEM gains, solid-state disks give {:.0} % and a write buffer in the disk caches, a few \
         pages of non-volatile memory, {:.0} %.{buffers}",
        share(ssd),
        share(cached)
    ))
}

fn combined(results: &Results) -> Option<String> {
    let trial = results.trial("4-3-database")?;
    let (memory, both) =
        (trial.response_ms(database::MEMORY, RATE)?.mean, trial.response_ms(database::MEMORY_NVEM, RATE)?.mean);
    let contention = results.trial("4-7-contention");
    let mixed = contention.and_then(|trial| {
        let [disk, mixed] = ["disk, page locks", "mixed, page locks"].map(|line| trial.throughput_max(line));
        Some(format!(
            " But under contention for page locks, log and hot partition in NVEM raise the limit only from {:.0} to {:.0} TPS \
             as long as the rest stays on disks.",
            disk?.mean, mixed?.mean
        ))
    });
    Some(format!(
        "Yes: what each gains adds up, because they spare different delays. A memory-resident database takes {memory:.1} ms \
         with its log on disk and {both:.1} ms with the log in NVEM.{}",
        mixed.unwrap_or_default()
    ))
}

fn levels(results: &Results) -> Option<String> {
    let trial = results.trial(caching::NOFORCE)?;
    let hits = |line: &str, size: f64| Some(trial.figure(line, size, "hit_ratio_second_level_all")?.mean * 100.0);
    let (volatile, non_volatile, nvem) =
        (hits(caching::VOLATILE, 500.0)?, hits(caching::NON_VOLATILE, 500.0)?, hits(caching::NVEM, 500.0)?);
    let equal = hits(caching::VOLATILE, 1_000.0)?;
    let (buffer, none, cache) = (
        trial.response_ms(caching::BUFFER, 500.0)?.mean,
        trial.response_ms(caching::NONE, 500.0)?.mean,
        trial.response_ms(caching::NVEM, 500.0)?.mean,
    );
    Some(format!(
        "Beside a main-memory buffer of 500 pages a second level of 1,000 pages catches another {nvem:.1} % of all references in \
         NVEM, {non_volatile:.1} % in a non-volatile and {volatile:.1} % in a volatile disk cache: disk caches hold what main \
         memory holds already, and one no larger than the buffer gives nothing ({equal:.1} % at 1,000 and 1,000). Response time \
         falls from {none:.1} ms to {buffer:.1} by a write buffer alone and to {cache:.1} with the NVEM cache."
    ))
}

fn affordable(results: &Results) -> Option<String> {
    let parts: Option<Vec<String>> = force::STORAGE
        .iter()
        .map(|storage| {
            let (force, noforce) = force::pair(results, storage, RATE)?;
            Some(format!("{storage} {:.1} ms in place of {:.1}", force.mean, noforce.mean))
        })
        .collect();
    let buffered = force::pair(results, force::STORAGE[1], RATE)?;
    let disk = force::pair(results, force::STORAGE[0], RATE)?;
    let verdict = if buffered.0.mean < disk.1.mean { "Yes, with a write buffer" } else { "No" };
    Some(format!(
        "{verdict}. At {RATE} TPS FORCE takes: {}. It writes more, so its disks fill up earlier: with BRANCH and TELLER on one \
         disk that is the limit.",
        parts?.join("; ")
    ))
}
