//! Franklin, Carey and Livny 1992: the memories of a page server and its clients as one.
//!
//! The server and each client are machines of their own under one clock, joined by the paper's network. What runs on them is the
//! engine's buffer, log and protocol; only the references are drawn.

mod adaptive;
mod answers;
mod idle;
mod large_buffers;
mod small_buffers;
mod uniform;
mod writes;

#[cfg(test)]
mod tests;

use crate::outcome::Trial;
use crate::{Answer, Claim, Estimate, Results, Study, Verdict};

/// The study.
pub(crate) struct Franklin1992;

macro_rules! experiments {
    ($($name:literal),* $(,)?) => {
        &[$((concat!($name, ".toml"), include_str!(concat!("../franklin-1992/", $name, ".toml")))),*]
    };
}

/// The algorithms, as the curves are named.
const ALL: [&str; 5] = ["CBL", "FWD", "FWD-H", "FWD-S", "FWD-HS"];
/// Those that forward.
const FORWARDERS: [&str; 4] = ["FWD", "FWD-H", "FWD-S", "FWD-HS"];
/// Transactions a second.
const TPS: &str = "throughput_per_s";
/// How far a percentage may be from the paper's, in points.
const POINTS: f64 = 3.0;
/// A network, or a disk, at least this busy is what limits.
const BUSY: f64 = 0.9;
/// Curves that the paper calls equal or converged are as near as this: the ratio of the highest to the lowest.
const EQUAL: f64 = 1.05;

/// The path of a figure of the protocol's.
fn of(figure: &str) -> String {
    format!("page_server.{figure}")
}

/// A share in per cent.
fn percent(trial: &Trial, line: &str, clients: f64, figure: &str) -> Option<Estimate> {
    Some(trial.figure(line, clients, &of(figure))? * 100.0)
}

/// How a curve's figure is above another's at this number of clients. The same transactions are drawn for both.
fn above(trial: &Trial, [line, other]: [&str; 2], clients: f64, path: &str) -> Option<Estimate> {
    trial.at(line, clients)?.above(trial.at(other, clients)?, path)
}

/// A curve's figure as a multiple of another's at this number of clients. The same transactions are drawn for both.
fn over(trial: &Trial, [line, other]: [&str; 2], clients: f64, path: &str) -> Option<Estimate> {
    trial.at(line, clients)?.over(trial.at(other, clients)?, path)
}

/// Whether a curve is the highest of these at this number of clients, beyond chance.
fn is_highest(trial: &Trial, line: &str, others: &[&str], clients: f64, path: &str) -> Option<Verdict> {
    let others = others.iter().filter(|other| **other != line);
    let verdicts: Option<Vec<Verdict>> =
        others.map(|other| Some(above(trial, [line, other], clients, path)?.at_least(0.0))).collect();
    Some(Verdict::all(verdicts?))
}

/// Whether a curve is the lowest of these.
fn is_lowest(trial: &Trial, line: &str, others: &[&str], clients: f64, path: &str) -> Option<Verdict> {
    let others = others.iter().filter(|other| **other != line);
    let verdicts: Option<Vec<Verdict>> =
        others.map(|other| Some(above(trial, [other, line], clients, path)?.at_least(0.0))).collect();
    Some(Verdict::all(verdicts?))
}

/// Whether these curves come together at this number of clients: by the ratio of the highest to the lowest.
fn is_equal(trial: &Trial, lines: &[&str], clients: f64, path: &str, ratio: f64) -> Option<(Verdict, Estimate)> {
    let mut figures = Vec::new();
    for line in lines {
        figures.push((trial.figure(line, clients, path)?.mean, *line));
    }
    let by_mean = |one: &&(f64, &str), other: &&(f64, &str)| one.0.total_cmp(&other.0);
    let [(_, highest), (_, lowest)] = [figures.iter().max_by(by_mean)?, figures.iter().min_by(by_mean)?];
    let spread = over(trial, [highest, lowest], clients, path)?;
    Some((spread.at_most(ratio), spread))
}

/// The numbers of clients from `from` to `to` that were run; a quick run has fewer.
fn places(trial: &Trial, from: f64, to: f64) -> Option<Vec<f64>> {
    let places: Vec<f64> = trial.places().filter(|place| (from..=to).contains(place)).collect();
    (!places.is_empty()).then_some(places)
}

/// A condition at each of several numbers of clients. What it says together, and where it does not hold.
fn at_each(places: &[f64], judge: impl Fn(f64) -> Option<Verdict>) -> Option<(Verdict, String)> {
    let (mut verdicts, mut failing) = (Vec::new(), Vec::new());
    for place in places {
        let verdict = judge(*place)?;
        verdicts.push(verdict);
        if verdict != Verdict::Holds {
            failing.push(format!("{} at {place}", verdict.word()));
        }
    }
    let seen = places.iter().map(|place| format!("{place}")).collect::<Vec<_>>().join(", ");
    let exceptions = if failing.is_empty() { String::new() } else { format!(": {}", failing.join(", ")) };
    Some((Verdict::all(verdicts), format!("At {seen} clients{exceptions}.")))
}

/// The means of all algorithms at this number of clients.
fn listed(trial: &Trial, clients: f64, path: &str, factor: f64) -> Option<String> {
    let figure = |line: &&str| Some(format!("{line} {:.2}", trial.figure(line, clients, path)?.mean * factor));
    let figures: Option<Vec<String>> = ALL.iter().map(figure).collect();
    Some(format!("at {clients}: {}", figures?.join(", ")))
}

/// How busy the network is.
fn network(trial: &Trial, line: &str, clients: f64) -> Option<Estimate> {
    trial.figure(line, clients, "utilization.network.slow.utilization")
}

impl Study for Franklin1992 {
    fn id(&self) -> &'static str {
        "franklin-1992"
    }

    fn source(&self) -> &'static str {
        "Michael J. Franklin, Michael J. Carey and Miron Livny: Global Memory Management in Client-Server DBMS Architectures. \
         VLDB 1992, 596-609"
    }

    fn experiments(&self) -> &'static [(&'static str, &'static str)] {
        experiments![
            "ro-5-slow",
            "ro-5-fast",
            "ro-15-slow",
            "ro-15-fast",
            "rw-5-slow",
            "rw-5-fast",
            "rw-15-slow",
            "rw-15-fast",
            "uniform-5-slow",
            "uniform-5-fast",
            "uniform-15-slow",
            "uniform-15-fast",
            "idle-15-fast"
        ]
    }

    fn choices(&self) -> &'static [&'static str] {
        &[
            "The engine's buffer, log and page protocol run as they are; the log is a device that takes no time.",
            "Messages without pages are 256 bytes long, as in table 4. One with pages is 1 % longer than its pages, for it says which they \
             are; its CPU time counts each begun 256 bytes.",
            "A transaction that has written nothing ends without a message: the server has nothing to do for it.",
            "A page that several clients have is asked of each in turn.",
            "The victim of a deadlock is the transaction that began to wait last.",
            "A buffer of 5 % has 62 pages, one of 15 % 187.",
            "A page that a client drops counts as dropped when it asks for the page that takes its place.",
        ]
    }

    fn claims(&self, results: &Results) -> Vec<Claim> {
        let papers = [small_buffers::claims, large_buffers::claims, writes::claims, uniform::claims];
        let beyond = [adaptive::claims, idle::claims];
        let rooms = papers.into_iter().chain(beyond);
        rooms.flat_map(|claims| claims(results)).collect()
    }

    fn answers(&self, results: &Results) -> Vec<Answer> {
        answers::answers(results)
    }
}
