//! Garcia-Molina and Salem 1988: System M, a transaction processing system for memory resident data.
//!
//! The described VAX-11/785 was calibrated on two figures of the paper alone, the base and one row of its table; all
//! others are predictions. A price belongs to a step of the engine (`Work`), never to a strategy.

mod answers;
mod locks;
mod machine;
mod recovery;
mod response;
mod stable_versions;
mod throughput;

#[cfg(test)]
mod tests;

use crate::outcome::Trial;
use crate::{Answer, Claim, Estimate, Results, Study, Table};

/// The study.
pub(crate) struct SystemM1988;

macro_rules! experiments {
    ($($name:literal),* $(,)?) => {
        &[$((concat!($name, ".toml"), include_str!(concat!("../system-m-1988/", $name, ".toml")))),*]
    };
}

/// The experiment whose runs are the paper's.
const TRIAL: &str = "4-1-throughput";
/// The places of its abscissa.
const NOT_SPOOLING: f64 = 0.0;
const SPOOLING: f64 = 1.0;

/// A row of table 4.1: checkpoint and log strategy, true transactions per second, and CPU times of the transaction, checkpoint,
/// log and message servers in microseconds per true transaction.
struct StrategyRow {
    name: &'static str,
    tps: f64,
    cpu_us: [f64; 4],
}

const fn row(name: &'static str, tps: f64, cpu_us: [f64; 4]) -> StrategyRow {
    StrategyRow { name, tps, cpu_us }
}

/// Table 4.1. The first row is the one on which the machine's description was calibrated.
const TABLE: [StrategyRow; 11] = [
    row("FUZZY/VALUE", 72.7, [9658.0, 275.0, 802.0, 2908.0]),
    row("ACCOU/VALUE", 65.7, [10140.0, 1335.0, 744.0, 2899.0]),
    row("ACBW/VALUE", 71.5, [9580.0, 586.0, 739.0, 2981.0]),
    row("TCCOU/VALUE", 63.8, [10613.0, 1315.0, 740.0, 2891.0]),
    row("TCBW/VALUE", 41.61, [18687.0, 925.0, 1128.0, 3075.0]),
    row("ACCOU/AOPER", 66.4, [10295.0, 1230.0, 511.0, 2928.0]),
    row("ACBW/AOPER", 73.1, [9619.0, 493.0, 553.0, 2886.0]),
    row("TCCOU/AOPER", 66.6, [10186.0, 1250.0, 525.0, 2907.0]),
    row("TCBW/AOPER", 42.38, [18591.0, 836.0, 700.0, 3251.0]),
    row("TCCOU/TOPER", 72.6, [9103.0, 1147.0, 482.0, 2941.0]),
    row("TCBW/TOPER", 46.31, [16990.0, 786.0, 566.0, 3052.0]),
];

/// The servers, in the order of the table.
const SERVERS: [&str; 4] = ["transaction", "checkpoint", "log", "message"];

impl StrategyRow {
    fn is_black_white_by_transaction(&self) -> bool {
        self.name.starts_with("TCBW")
    }
}

/// What a strategy gave without spooling.
fn figure(results: &Results, strategy: &str, path: &str) -> Option<Estimate> {
    results.trial(TRIAL)?.figure(strategy, NOT_SPOOLING, path)
}

/// The only place of an experiment that has one.
fn only(trial: &Trial, line: &str, path: &str) -> Option<Estimate> {
    trial.figure(line, trial.places().next()?, path)
}

impl Study for SystemM1988 {
    fn id(&self) -> &'static str {
        "system-m-1988"
    }

    fn source(&self) -> &'static str {
        "Hector Garcia-Molina and Kenneth Salem: System M: A Transaction Processing System for Memory Resident Data. Technical \
         Report CS-TR-195-88, Princeton University, December 1988"
    }

    fn experiments(&self) -> &'static [(&'static str, &'static str)] {
        experiments![
            "4-1-base",
            "4-1-throughput",
            "4-1-recovery",
            "4-3-queue",
            "4-3-retry",
            "5-crashes",
            "this-machine"
        ]
    }

    fn choices(&self) -> &'static [&'static str] {
        &[
            "Calibrated, on nothing but the base of 8 ms and the row FUZZY/VALUE: the prices of beginning, reference and end of \
             a transaction (from the base, less messages and the 7.4 pairs of locks and unlocks of table 4.2, of which the engine asks for \
             4.1: 1.95 for records, at once in the mode that it needs, and 2.18 for their segments; the escalations are part of the price of a \
             reference), of a message (from 2,908 us), of a record of the log (from \
             the rest of 9,658 us: a transaction that changes anything has one for its beginning, one for its end and one for each change), the \
             size of a page of the log (from 802 us, which are writes of full pages) and the pace of sweeps (from 275 us, which \
             are 3.8 writes of segments per second), and the length of the request queue (72.7/s for 3.40 s).",
            "The paper gives neither the size of segments nor the times of the RA81 nor the scheduler's quantum. Segments \
             are of 16 KiB, our smallest; the disk has 28 ms of seek, 3,600 revolutions per minute and 2.2 MB/s; the checkpoint \
             server takes a segment every 257 ms, as if it waited for the CPU between two.",
            "A segment is copied at 2.5 MB/s (400 us for 1 KiB), which the paper does not say. The retry interval is 13 s, \
             by Little's law from table 4.3 (TCBW/TOPER has 1,321 requests more under way than the queue holds, and 2.0 to 2.2 \
             restarts per transaction here), for the paper does not say it. By the lock requests of table 4.2 the paper has 1.2 restarts at \
             least, so that its interval is 24 s at most; 4.3 varies it.",
            "The three percent of transactions that the paper only names (\"the remaining transactions change the customer \
             description and handle lost cards\") are 1 % each of changes of an address, reports of lost cards and cards that are found.",
            "A set's image leaves unfinished changes out, so that ours needs no quiesce; TCCOU quiesces here as the paper's does. An action is one \
             synchronous step, so that ACCOU has nothing to wait for.",
            "CALC is of 2016. It runs beside the paper's strategies at the same prices: it locks a segment to take it, as they do, and \
             copying a record before it is first changed costs what copying as many bytes of a segment does.",
        ]
    }

    fn claims(&self, results: &Results) -> Vec<Claim> {
        let parts = [
            throughput::claims,
            locks::claims,
            response::claims,
            recovery::claims,
            machine::claims,
            stable_versions::claims,
        ];
        parts.iter().flat_map(|claims| claims(results)).collect()
    }

    fn tables(&self, results: &Results) -> Vec<Table> {
        throughput::tables(results)
    }

    fn answers(&self, results: &Results) -> Vec<Answer> {
        answers::answers(results)
    }
}
