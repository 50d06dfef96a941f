//! Rahm 1991: extended storage hierarchies for transaction processing.

mod answers;
mod caching;
mod contention;
mod database_allocation;
mod force;
mod log_allocation;
mod suggested;
mod trace;

#[cfg(test)]
mod tests;

use crate::{Answer, Claim, Results, Study, Table};

/// The study.
pub(crate) struct Rahm1991;

macro_rules! experiments {
    ($($name:literal),* $(,)?) => {
        &[$((concat!($name, ".toml"), include_str!(concat!("../rahm-1991/", $name, ".toml")))),*]
    };
}

impl Study for Rahm1991 {
    fn id(&self) -> &'static str {
        "rahm-1991"
    }

    fn source(&self) -> &'static str {
        "Erhard Rahm: Performance Evaluation of Extended Storage Architectures for Transaction Processing. Technical Report \
         216/91, University of Kaiserslautern, November 1991"
    }

    fn experiments(&self) -> &'static [(&'static str, &'static str)] {
        experiments![
            "4-2-log",
            "4-3-database",
            "4-4-force",
            "4-4-single-disk",
            "4-5-noforce",
            "4-5-force",
            "4-5-second-level",
            "4-5-suggested",
            "4-6-main-memory",
            "4-6-second-level",
            "4-6-force",
            "4-7-contention",
            "4-7-open",
        ]
    }

    fn choices(&self) -> &'static [&'static str] {
        &[
            "The laws of service times: the paper gives averages. Database disks and the single log disk of section 4.2 are \
             exponential (seek and rotation vary); controllers, transmission, NVEM and the log disks of all other sections \
             are fixed. With exponential log disks beside each other a commit would wait for slower ones before it, because \
             the engine acknowledges in the order of the log.",
            "\"Enough disks and controllers\" is as many as there are requests: no request waits for one.",
            "Section 4.7: of the 250,000 instructions, begin and end of a transaction have 40,000 and 50,000 as in table 4.1, \
             each of the ten references 16,000. Sizes are geometric with mean 10, the exponential law's discrete counterpart.",
            "Section 4.7: the multiprogramming level is 12 with page locks and 60 with object locks, about where throughput is \
             highest; the paper's is not given. A deadlock's victim runs again with the same references.",
            "Section 4.6: the trace is generated from its published properties, and arrives at one common rate.",
            "Pages are 256 bytes, as small as ten accounts allow: only their number matters to caches and devices. Pages of the \
             log are 4 KiB.",
            "Write buffers that the paper gives no size hold 500 pages.",
        ]
    }

    fn claims(&self, results: &Results) -> Vec<Claim> {
        let sections = [
            log_allocation::claims,
            database_allocation::claims,
            force::claims,
            caching::claims,
            suggested::claims,
            trace::claims,
            contention::claims,
        ];
        sections.iter().flat_map(|claims| claims(results)).collect()
    }

    fn tables(&self, results: &Results) -> Vec<Table> {
        caching::tables(results)
    }

    fn answers(&self, results: &Results) -> Vec<Answer> {
        answers::answers(results)
    }
}
