//! Do, Zhang, Patel, DeWitt, Naughton and Halverson 2011: an SSD as an extension of a database's buffer pool.
//!
//! Everything is a thousandth of the paper's: a gigabyte of it is a mebibyte here, and an hour 3.5 s, so that databases, buffer,
//! SSD, run and checkpoint interval keep their ratios while devices have the speeds of table 1. The loads are references to pages with
//! the published skew, not the benchmarks.

mod answers;
mod checkpoints;
mod later;
mod tpc_c;
mod tpc_e;
mod tpc_h;

#[cfg(test)]
mod tests;

use crate::outcome::Trial;
use crate::{Answer, Claim, Estimate, Results, Study, Table, Verdict};

/// The study.
pub(crate) struct Do2011;

macro_rules! experiments {
    ($($name:literal),* $(,)?) => {
        &[$((concat!($name, ".toml"), include_str!(concat!("../do-2011/", $name, ".toml")))),*]
    };
}

/// The path of what most claims are about.
const TPS: &str = "throughput_per_s";
/// Without an SSD.
const NO_SSD: &str = "noSSD";
/// Bytes of a page.
const PAGE: f64 = 8192.0;
/// How far a speed-up may be from the paper's.
const TOLERANCE: f64 = 0.25;

/// Whether a figure is as near to the paper's as was asked.
fn near(ours: Estimate, paper: f64) -> Verdict {
    ours.within(paper * (1.0 - TOLERANCE)..=paper * (1.0 + TOLERANCE))
}

/// Whether one figure is the greater one.
fn greater(one: Estimate, other: Estimate) -> Verdict {
    (one - other).at_least(0.0)
}

/// How many times as fast one curve is as another at `x`.
fn speedup(trial: &Trial, [line, other]: [&str; 2], x: f64) -> Option<Estimate> {
    Some(trial.figure(line, x, TPS)? / trial.figure(other, x, TPS)?)
}

/// Figures along the time of a run.
type Course = Vec<(f64, f64)>;

/// The figures of a curve along its abscissa, which is the time of a run, of each of its replications.
fn courses(trial: &Trial, line: &str, path: &str) -> Option<Vec<Course>> {
    let mut courses: Vec<Course> = Vec::new();
    for hour in trial.places() {
        let values = trial.at(line, hour).filter(|outcome| outcome.is_steady())?.values(path)?;
        courses.resize(values.len().max(courses.len()), Course::new());
        courses.iter_mut().zip(values).for_each(|(course, value)| course.push((hour, value)));
    }
    Some(courses)
}

/// The means of all replications along the time.
fn course(trial: &Trial, line: &str, path: &str) -> Option<Course> {
    trial.places().map(|hour| Some((hour, trial.figure(line, hour, path)?.mean))).collect()
}

/// What `derive` makes of the course of each replication; `None` if it makes nothing of one.
fn of_each(courses: &[Course], derive: impl Fn(&[(f64, f64)]) -> Option<f64>) -> Option<Vec<f64>> {
    courses.iter().map(|course| derive(course)).collect()
}

/// By how much one figure is above another, by replications that have the same seeds.
fn above(one: &[f64], other: &[f64]) -> Estimate {
    Estimate::of(&one.iter().zip(other).map(|(one, other)| one - other).collect::<Vec<_>>())
}

/// How many times the other figure one is, by replications that have the same seeds.
fn times(one: &[f64], other: &[f64]) -> Estimate {
    Estimate::of(&one.iter().zip(other).map(|(one, other)| one / other).collect::<Vec<_>>())
}

/// The mean of a course's figures in this part of its time: behind `from`, up to `to`.
fn mean_between(course: &[(f64, f64)], from: f64, to: f64) -> Option<f64> {
    let inside: Vec<f64> =
        course.iter().filter(|(hour, _)| *hour > from && *hour <= to + 1e-9).map(|(_, figure)| *figure).collect();
    (!inside.is_empty()).then(|| inside.iter().sum::<f64>() / inside.len() as f64)
}

/// Hours as hours and minutes.
fn clock(hours: f64) -> String {
    let minutes = (hours * 60.0).round() as u64;
    format!("{}:{:02} h", minutes / 60, minutes % 60)
}

impl Study for Do2011 {
    fn id(&self) -> &'static str {
        "do-2011"
    }

    fn source(&self) -> &'static str {
        "Jaeyoung Do, Donghui Zhang, Jignesh M. Patel, David J. DeWitt, Jeffrey F. Naughton and Alan Halverson: Turbocharging DBMS \
         Buffer Pool Using SSDs. SIGMOD 2011, 1113-1124"
    }

    fn experiments(&self) -> &'static [(&'static str, &'static str)] {
        experiments![
            "4-checkpoints",
            "5-tpc-c",
            "5-tpc-e",
            "5-tpc-h-30",
            "5-tpc-h-100",
            "6-tpc-c-2k",
            "6-tpc-c-4k",
            "6-tpc-e-20k",
            "6-tpc-e-40k",
            "7-lambda",
            "9-checkpoints",
            "never-worse",
            "never-worse-scan",
            "moving-hot-set"
        ]
    }

    fn choices(&self) -> &'static [&'static str] {
        &[
            "A thousandth: a gigabyte of the paper is a mebibyte (of 128 pages of 8 KiB), ten hours are 35.2 s and 40 minutes 2.3 s. The devices \
             are those of table 1, and mu (100), alpha (32), tau (95 %) and lambda (50 %, for TPC-E and H 1 %) the paper's. Not scaled is the \
             number of clients, which the paper does not give: 100 at once.",
            "TPC-C: 75 % of the accesses go to 20 % of the pages, by the benchmark's own non-uniform random numbers over pages, and two \
             reads come with a write (section 4.2): of the pages that a transaction visits every second is read and then changed.",
            "TPC-E: the paper gives neither skew nor ratio. 9.7 reads come with a write (Chen et al. 2010); two thirds of the pages are \
             the working set, because at 20,000 customers (230 GB) it \"nearly fits\" 140 GB beside a buffer of 20 GB; within it pages \
             are as popular as non-uniform numbers of three bits make them. Calibrated: the CPU time of a transaction, on the 5.5 of \
             10,000 customers, where no device is the limit.",
            "TPC-H: a query scans an eighth of the pages or, one of four, looks up at random as many pages as there are 480s. Calibrated: that number, on the power \
             test of scale factor 30. Queries per hour are the geometric mean of both tests' throughputs; the paper's power test uses \
             that of single times.",
            "Write-back is asynchronous, as SQL Server's is: a cleaner writes pages before their frames are needed. Replacement is \
             LRU in the buffer, of which the paper does not speak, and LRU-2 in the SSD where the design has none of its own. A read is not expanded to eight pages while \
             the buffer fills (section 4.3.2).",
            "A speed-up is near the paper's within 25 %, and a rate too; shares within 5 points. The designs rotating, exclusive \
             and FaCE are others' and frequency is ours: they are shown, and judged by no claim of the paper.",
        ]
    }

    fn claims(&self, results: &Results) -> Vec<Claim> {
        let parts = [tpc_c::claims, tpc_e::claims, checkpoints::claims, tpc_h::claims, later::claims];
        parts.iter().flat_map(|claims| claims(results)).collect()
    }

    fn tables(&self, results: &Results) -> Vec<Table> {
        vec![tpc_h::table(results), later::table(results)]
    }

    fn answers(&self, results: &Results) -> Vec<Answer> {
        answers::answers(results)
    }
}
