//! Lee, Moon, Park, Kim and Kim 2008: flash for the log, rollback segments and temporary space of a database server.
//!
//! The described devices are those of table 1. A forced write and the CPU time of an update were calibrated on one row
//! of table 2, and nothing else was: what table 3 has otherwise is shown with its own times beside it.

mod answers;
mod commit;
mod machine;
mod rollback;
mod temporary;
mod tpc_b;

#[cfg(test)]
mod tests;

use crate::{Answer, Claim, Results, Study, Table};

/// The study.
pub(crate) struct Lee2008;

macro_rules! experiments {
    ($($name:literal),* $(,)?) => {
        &[$((concat!($name, ".toml"), include_str!(concat!("../lee-2008/", $name, ".toml")))),*]
    };
}

/// The devices of table 1, as curves are named by them.
const DEVICES: [&str; 2] = ["disk", "flash"];

impl Study for Lee2008 {
    fn id(&self) -> &'static str {
        "lee-2008"
    }

    fn source(&self) -> &'static str {
        "Sang-Won Lee, Bongki Moon, Chanik Park, Jae-Myung Kim and Sang-Woo Kim: A Case for Flash Memory SSD in Enterprise \
         Database Applications. SIGMOD 2008, 1075-1086"
    }

    fn experiments(&self) -> &'static [(&'static str, &'static str)] {
        experiments![
            "4-1-commit",
            "4-2-tpc-b",
            "4-3-users",
            "5-snapshots",
            "6-clusters",
            "6-memory",
            "this-machine",
            "this-machine-tpc-b",
            "this-machine-snapshots",
            "this-machine-sort",
            "this-machine-joins"
        ]
    }

    fn choices(&self) -> &'static [&'static str] {
        &[
            "Calibrated, on nothing but table 2's row of four threads: what a forced write takes beyond table 1 (7.14 ms on the \
             disk, 0.44 ms on flash), and the CPU time of an update with its commit (254 us, which both entries of the row \
             permit within their rounding). All else is predicted.",
            "\"A few dozens of microseconds\" for a transaction without its commit (section 4.1) are taken as 36 us, all of them \
             the update's, because a transaction of embedded SQL begins with its first statement. So a reference costs 36 us \
             and the end of a transaction the rest, and TPC-B, which has four references, 108 us more. Times are exponential \
             about their means. An I/O costs 5 us of CPU, which the paper does not say.",
            "A log write at a time, shared by all commits that wait for it: \"which in turn cannot be done until forced-write operations \
             requested by other transactions earlier are completed\". Locks are held until the commit is durable, as section 4.2 \
             implies; the engine's own way, to release them when the commit is logged, is shown beside it.",
            "The paper gives averages only. A random access to the disk takes 4.17 ms of seek and a uniform share of a revolution \
             of 8.33 ms; a write in sequence waits for a uniform share of a revolution, a read in sequence for nothing. Requests \
             to each device are served one after the other. Flash has no merges or erasures to wait for: what is written there is \
             appended, as the paper says.",
            "Tables are in memory and are not written back: no checkpoint takes place. TPC-B's database of 450 MB has 36 \
             branches of 100,000 accounts in b-trees of 8 KiB pages. Table 2's table has 100,000 records of 100 bytes, of which \
             each update takes any.",
            "Section 5's workload is not in the text at hand. Here a table of 5,000 records has 300 updates per second, and one \
             reader reads all of it in a snapshot of some age. Before images leave memory when their extent of 32 KiB is full; \
             they are written in clusters of 4 KiB and read in blocks as large. The log is on flash throughout, so that only \
             the rollback segments move.",
            "Sort and joins take 50 MB of rows of 100 bytes, which the paper does not say, in 8 MiB of memory unless that varies. \
             Each left row of a join has one right row. A comparison of keys costs 30 instructions and a copy of a row 60, so \
             that the device decides.",
            "On this machine the log's pages are of 4 KiB, the smallest there, and its processors are used as they are: the engine \
             runs in one thread, on one core. A transfer takes what this machine's disk takes or what the description says, \
             whichever is longer. TPC-B's tables are on its disk as it is; section 5's table and section 6's rows are fewer, so \
             that a run takes seconds, and the same is run under the virtual clock beside them.",
            "The text at hand ends in section 5.1; what the introduction and the abstract say of the rest is judged.",
        ]
    }

    fn claims(&self, results: &Results) -> Vec<Claim> {
        let parts = [commit::claims, tpc_b::claims, rollback::claims, temporary::claims, machine::claims];
        parts.iter().flat_map(|claims| claims(results)).collect()
    }

    fn tables(&self, results: &Results) -> Vec<Table> {
        commit::tables(results).into_iter().chain(tpc_b::tables(results)).collect()
    }

    fn answers(&self, results: &Results) -> Vec<Answer> {
        answers::answers(results)
    }
}
