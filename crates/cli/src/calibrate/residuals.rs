//! How well each fitted figure is known: a law by what it leaves unexplained, a price by what it would be without one of its runs.

use super::closed_loop::{ProbeKind, ProbePoint};
use super::cpu::EngineRun;
use super::device::{DeviceMeasured, PAGE};
use super::fit::{Fitted, SystemCosts};
use super::loopback::{Exchanged, LoopbackMeasured};
use super::loopback_fit::FittedLoopback;
use super::nodes::NodesSeen;
use super::prices::{self, StepPrices};
use super::seldom::{SELDOM, SeldomPrice};
use crate::table::table;
use base::units::grouped;
use driver::Work;
use serde_json::{Value, json};

/// What a law says beside what was measured, over all points that it is about.
pub struct LawFit {
    pub name: String,
    pub points: usize,
    /// Of the mean, the median and the 99th percentile: the error without its sign, in the median and for 90 % of the points.
    pub errors: [[f64; 2]; 3],
    /// The share of all measured time by which the means are off.
    pub unexplained: f64,
}

/// A price in nanoseconds.
pub struct PriceFit {
    pub name: &'static str,
    pub ns: f64,
    /// The least and the greatest that it would be without one of the runs; absent where one run gives it.
    pub range_ns: Option<[f64; 2]>,
    /// What it is found by, and how far that is off.
    pub basis: String,
}

/// One measured figure and the description's: mean, median and 99th percentile.
type SeenAndShown = [[f64; 3]; 2];

impl LawFit {
    /// Of these pairs, each with its weight; none if there are none.
    fn of(name: impl Into<String>, pairs: &[(f64, SeenAndShown)]) -> Option<LawFit> {
        let errors = [0, 1, 2].map(|figure| {
            let errors = || pairs.iter().map(|(_, [seen, shown])| (shown[figure] / seen[figure] - 1.0).abs());
            [quantile(errors(), 0.5), quantile(errors(), 0.9)]
        });
        let all: f64 = pairs.iter().map(|(weight, [seen, _])| weight * seen[0]).sum();
        let off: f64 = pairs.iter().map(|(weight, [seen, shown])| weight * (shown[0] - seen[0]).abs()).sum();
        let name = name.into();
        (!pairs.is_empty()).then(|| LawFit { name, points: pairs.len(), errors, unexplained: off / all.max(1e-9) })
    }

    pub fn to_json(&self) -> Value {
        let [mean, p50, p99] = self.errors.map(|[median, most]| json!({"median": median, "p90": most}));
        json!({"name": self.name, "points": self.points, "mean": mean, "p50": p50, "p99": p99, "unexplained": self.unexplained})
    }
}

impl PriceFit {
    pub fn to_json(&self) -> Value {
        let range = self.range_ns.map_or(Value::Null, |range| json!(range));
        json!({"name": self.name, "ns": self.ns, "range_ns": range, "basis": self.basis})
    }
}

/// The value that this share of the values does not exceed.
pub fn quantile(values: impl Iterator<Item = f64>, share: f64) -> f64 {
    let mut values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
    values.sort_by(f64::total_cmp);
    let at = (share * values.len() as f64).ceil() as usize;
    values.get(at.clamp(1, values.len().max(1)) - 1).copied().unwrap_or(0.0)
}

/// How well the laws of a device are known: of each kind where it was fitted, and of all where it was not.
pub fn of_device(measured: &DeviceMeasured, fitted: &Fitted) -> Vec<LawFit> {
    let pair = |(seen, shown): (&ProbePoint, &ProbePoint), kind: ProbeKind| {
        let of = |point: &ProbePoint| {
            let times = &point.times[kind as usize];
            [times.mean_ns, times.p50_ns(), times.p99_ns()]
        };
        let count = seen.times[kind as usize].count;
        (count >= 20).then(|| (count as f64, [of(seen), of(shown)]))
    };
    let pairs = |takes: &dyn Fn(&ProbePoint) -> bool, kind: ProbeKind| -> Vec<(f64, SeenAndShown)> {
        let points = measured.points.iter().zip(&fitted.shown).filter(|(seen, _)| takes(seen));
        points.filter_map(|both| pair(both, kind)).collect()
    };
    let is_fitted = |point: &ProbePoint| point.mix.size == PAGE && !point.mix.in_sequence && point.mix.depths[2] <= 1;
    let is_sequence = |point: &ProbePoint| measured.extent.sequences().contains(&point.mix);
    let is_else = |point: &ProbePoint| !is_fitted(point) && !is_sequence(point);
    let kinds = ProbeKind::ALL.into_iter().zip(ProbeKind::WORDS);
    let laws = kinds.filter_map(|(kind, word)| LawFit::of(format!("{word}s of 8 KiB"), &pairs(&is_fitted, kind)));
    let all = |takes: &dyn Fn(&ProbePoint) -> bool| ProbeKind::ALL.map(|kind| pairs(takes, kind)).concat();
    let others = [("1 MiB in sequence: bandwidth", all(&is_sequence)), ("not fitted: other mixes", all(&is_else))];
    let fresh =
        measured.fresh.iter().zip(&fitted.fresh).filter_map(|both| pair(both, ProbeKind::Durable)).collect::<Vec<_>>();
    let fresh = LawFit::of("durable writes to fresh places", &fresh);
    laws.chain(fresh).chain(others.into_iter().filter_map(|(name, pairs)| LawFit::of(name, &pairs))).collect()
}

/// The same of messages.
pub fn of_loopback(measured: &LoopbackMeasured, fitted: &FittedLoopback) -> Vec<LawFit> {
    let of = |seen: &Exchanged| [seen.times.mean_ns, seen.times.p50_ns(), seen.times.p99_ns()];
    let pairs = |takes: &dyn Fn(u32) -> bool| -> Vec<(f64, SeenAndShown)> {
        let points = measured.exchanged.iter().zip(&fitted.shown).filter(|(seen, _)| takes(seen.mix.depth));
        points.map(|(seen, shown)| (seen.times.count as f64, [of(seen), of(shown)])).collect()
    };
    let alone = LawFit::of("messages, one at a time", &pairs(&|depth| depth == 1));
    let others = LawFit::of("not fitted: several at once", &pairs(&|depth| depth > 1));
    alone.into_iter().chain(others).collect()
}

/// How well the engine's prices are known.
pub fn of_prices(runs: &[EngineRun], costs: SystemCosts, prices: &StepPrices) -> Vec<PriceFit> {
    let (ranges, fitted) = prices::ranges(runs, costs);
    let off = quantile(
        runs.iter()
            .zip(&prices.explained_ns)
            .filter(|(run, _)| prices::is_solved(run))
            .map(|(run, ns)| (ns / run.cpu_ns - 1.0).abs()),
        0.5,
    );
    let basis = format!("{fitted} runs, {:.0} % off", off * 100.0);
    let begin = [prices.steps_ns, ranges.0, ranges.1].map(|ns| ns[Work::BeginTransaction as usize] * 2.0);
    let step = |name, work: Work| PriceFit {
        name,
        ns: prices.steps_ns[work as usize],
        range_ns: Some([ranges.0[work as usize], ranges.1[work as usize]]),
        basis: basis.clone(),
    };
    let single = |name, ns, basis: &str| PriceFit { name, ns, range_ns: None, basis: basis.to_owned() };
    vec![
        PriceFit {
            name: "begin and end of a transaction",
            ns: begin[0],
            range_ns: Some([begin[1], begin[2]]),
            basis: basis.clone(),
        },
        step("object reference", Work::ObjectReference),
        step("search of a b-tree", Work::TreeSearch),
        step("lock pair", Work::LockPair),
        step("log record", Work::LogRecord),
        step("log page", Work::LogPage),
        step("key comparison", Work::KeyComparison),
        step("row copy", Work::RowCopy),
        step("row in a hash table", Work::HashEntry),
        step("256 B of a value", Work::ValueCopy),
        step("value beyond the caches", Work::DistantValue),
        step("input or output", Work::InputOutput),
        single("submission of a batch", prices.system.submission_ns, "mixes and runs"),
        single("more if the device is at rest", prices.system.notification_ns, "mixes and runs"),
        single("interrupt", prices.system.interrupt_ns, "mixes and runs"),
        single("sleeping and waking up", prices.system.wake_up_ns, "mixes and runs"),
    ]
}

/// How well the prices of steps that have runs of their own are known.
pub fn of_seldom(prices: &[Option<SeldomPrice>; SELDOM.len()]) -> Vec<PriceFit> {
    let of = |((_, name, _), price): (&(Work, &'static str, &str), &Option<SeldomPrice>)| {
        let basis = match price {
            None => "no run has made it".to_owned(),
            Some(SeldomPrice { runs, beside, off, .. }) => {
                let (plural, off) = (if *runs == 1 { "" } else { "s" }, off * 100.0);
                let joint = if *beside > 0 {
                    format!(", with {beside} other{}", if *beside == 1 { "" } else { "s" })
                } else {
                    String::new()
                };
                format!("{runs} run{plural} of its own{joint}, {off:.0} % off")
            }
        };
        PriceFit { name, ns: price.map_or(0.0, |price| price.ns), range_ns: None, basis }
    };
    SELDOM.iter().zip(prices).map(of).collect()
}

/// How well the prices of messages are known.
pub fn of_messages(measured: &LoopbackMeasured, fitted: &FittedLoopback) -> Vec<PriceFit> {
    let pairs = || measured.exchanged.iter().zip(&fitted.shown);
    let off = quantile(pairs().map(|(seen, shown)| (shown.cpu_ns_each() / seen.cpu_ns_each() - 1.0).abs()), 0.5);
    let basis = format!("{} exchanges, {:.0} % off", measured.exchanged.len(), off * 100.0);
    let of_nodes = match (measured.nodes, fitted.nodes) {
        (Some(seen), Some(shown)) => {
            let off = |of: fn(&NodesSeen) -> f64| (of(&shown) / of(&seen) - 1.0) * 100.0;
            let (all, of_server) = (off(|seen| seen.cpu_us), off(|seen| seen.server_cpu_us));
            format!(
                "two nodes: CPU {all:+.0} % (server {of_server:+.0} %), mean {:+.0} %",
                off(|seen| seen.response_us)
            )
        }
        _ => "not measured".to_owned(),
    };
    let of = |name, ns| PriceFit { name, ns, range_ns: None, basis: basis.clone() };
    vec![
        of("message, at each end", fitted.prices.message_ns),
        of("256 bytes of it", fitted.prices.piece_ns),
        PriceFit { basis: of_nodes, ..of("waking up by a message", fitted.prices.wake_ns) },
    ]
}

/// The laws for people.
pub fn laws_text(laws: &[LawFit]) -> String {
    let percent = |[median, most]: [f64; 2]| format!("{:.0} / {:.0} %", median * 100.0, most * 100.0);
    let rows = laws.iter().map(|law| {
        let [mean, p50, p99] = law.errors.map(percent);
        vec![law.name.clone(), law.points.to_string(), mean, p50, p99, format!("{:.0} %", law.unexplained * 100.0)]
    });
    let header = ["how good each law is", "points", "mean", "50 %", "99 %", "unexplained"];
    let legend = "Errors in the median / for 90 % of the points; unexplained is the share of all measured time by which the means are off.";
    format!("{}\n\n{}", table(&header, 1, rows), crate::table::wrapped(legend))
}

/// The prices for people.
pub fn prices_text(prices: &[PriceFit]) -> String {
    let ns = |ns: f64| grouped(ns.round() as u64);
    let rows = prices.iter().map(|price| {
        let range = price.range_ns.map_or_else(String::new, |[low, high]| format!("{} to {}", ns(low), ns(high)));
        vec![price.name.to_owned(), price.basis.clone(), ns(price.ns), range]
    });
    let header = ["how good each price is", "found by", "ns", "without one run"];
    let legend = "What they are found by is off so far, in CPU time and in the median. A price that one of the runs changes much is not told \
                  apart from the others by them.";
    format!("{}\n\n{}", table(&header, 2, rows), crate::table::wrapped(legend))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unexplained_is_weighed_by_time() {
        let pairs =
            [(1.0, [[100.0, 90.0, 200.0], [110.0, 90.0, 100.0]]), (3.0, [[200.0, 90.0, 200.0], [200.0, 99.0, 200.0]])];
        let law = LawFit::of("reads", &pairs).expect("there are points");
        assert_eq!((law.points, law.errors[0][0], law.errors[1][0]), (2, 0.0, 0.0));
        assert!((law.errors[0][1] - 0.1).abs() < 1e-12 && (law.errors[1][1] - 0.1).abs() < 1e-12);
        assert!((law.unexplained - 10.0 / 700.0).abs() < 1e-12 && (law.errors[2][1] - 0.5).abs() < 1e-12);
        assert!(LawFit::of("writes", &[]).is_none());
    }
}
