//! The report of a calibration: measured and fitted curves, and all figures.

use super::closed_loop::{Mix, ProbeKind, ProbePoint, SHARES};
use super::device::PAGE;
use super::loopback::Exchanged;
use super::quality::{Calibration, Figure};
use papers::plot::{FittedCurve, escaped, fitted_curves};
use papers::report::Head;

/// The report as one HTML file.
pub fn html(calibration: &Calibration, head: &Head) -> String {
    let mut plots = device(calibration);
    plots.extend([distributions(calibration), drift(calibration), clients(calibration)]);
    plots.extend(messages(calibration));
    let mut body: String = plots.into_iter().map(|plot| plot.html()).collect();
    body += &format!("<h2>Figures</h2><pre>{}</pre>", escaped(&calibration.to_text()));
    let footer = "Lines with filled marks are what the description shows under the virtual clock; hollow diamonds were measured. \
                  Point at a mark to read it.";
    papers::report::other(head, "Calibration", &body, footer)
}

/// Measured and fitted curves under one title.
struct Plot {
    title: String,
    axes: [String; 2],
    curves: Vec<FittedCurve>,
}

impl Plot {
    fn new(title: impl Into<String>, axes: [&str; 2], curves: Vec<FittedCurve>) -> Plot {
        Plot { title: title.into(), axes: axes.map(str::to_owned), curves }
    }

    fn html(&self) -> String {
        let [x, y] = &self.axes;
        let title = escaped(&self.title);
        match fitted_curves(&self.title, [x, y], &self.curves) {
            Some(plot) => format!("<h2>{title}</h2><figure><div class=wide>{plot}</div></figure>"),
            None => String::new(),
        }
    }
}

const FIGURES: [(usize, &str); 3] = [(0, "per second"), (1, "mean us"), (3, "99 % us")];

/// Each kind's figures by how many reads or writes are under way.
fn device(calibration: &Calibration) -> Vec<Plot> {
    let figures = calibration.figures();
    let axis = &calibration.measured.extent.axis;
    let kinds = ProbeKind::ALL.into_iter().zip(ProbeKind::WORDS);
    kinds
        .flat_map(|(kind, word)| FIGURES.map(|figure| (kind, word, figure)))
        .map(|(kind, word, (figure, name))| {
            // A durable write or a sync is there once, and counts as one of the writes.
            let (along, others) = if kind == ProbeKind::Read { (0, "writes") } else { (1, "reads") };
            let curves = axis.iter().map(|beside| curve(&figures, (kind, along), *beside, (figure, others))).collect();
            let x = match kind {
                ProbeKind::Read => "reads under way",
                ProbeKind::Write => "writes under way",
                ProbeKind::Durable | ProbeKind::Sync => "writes under way, this one among them",
            };
            Plot::new(format!("{word}s of 8 KiB: {name}"), [x, name], curves)
        })
        .collect()
}

/// A kind's figure by how many reads or writes are under way, beside a number of the other ones.
fn curve(
    figures: &[Figure],
    (kind, along): (ProbeKind, usize),
    beside: u32,
    (figure, others): (usize, &str),
) -> FittedCurve {
    let alone = |at: ProbeKind| u32::from(kind == at);
    let own = alone(ProbeKind::Durable) + alone(ProbeKind::Sync);
    let there = |found: &&Figure| {
        let Mix { depths, size, in_sequence } = found.mix;
        let is_plain = size == PAGE && !in_sequence;
        let [.., durable, syncs] = depths;
        let is_kind = found.kind == kind && durable == alone(ProbeKind::Durable) && syncs == alone(ProbeKind::Sync);
        is_plain && is_kind && depths[1 - along] == beside
    };
    let of = |shown: bool| {
        let points = figures.iter().filter(there).map(|found| {
            let values = if shown { found.shown } else { found.measured };
            [f64::from(found.mix.depths[along] + own), values[figure]]
        });
        sorted(points)
    };
    FittedCurve { name: format!("beside {beside} {others}"), fitted: of(true), measured: of(false) }
}

fn sorted(points: impl Iterator<Item = [f64; 2]>) -> Vec<[f64; 2]> {
    let mut points: Vec<[f64; 2]> = points.collect();
    points.sort_by(|one, other| one[0].total_cmp(&other[0]));
    points
}

/// The distribution of each kind's times where one is under way.
fn distributions(calibration: &Calibration) -> Plot {
    let curves = ProbeKind::ALL.into_iter().filter_map(|kind| {
        let mut depths = [0; 4];
        depths[kind as usize] = 1;
        let place = calibration
            .measured
            .points
            .iter()
            .position(|point| point.mix == Mix { depths, size: PAGE, in_sequence: false });
        let both = place.map(|place| [&calibration.measured.points[place], &calibration.fitted.shown[place]])?;
        let [measured, fitted] = both.map(|point: &ProbePoint| {
            let quantiles = SHARES.iter().zip(point.times[kind as usize].quantiles_ns);
            quantiles.filter(|(share, _)| **share < 1.0).map(|(share, ns)| [ns as f64 / 1e3, 1.0 - share]).collect()
        });
        Some(FittedCurve { name: ProbeKind::WORDS[kind as usize].to_owned(), fitted, measured })
    });
    Plot::new("One at a time: the share that is longer", ["us", "share that is longer"], curves.collect())
}

/// How fast the reference was each time.
fn drift(calibration: &Calibration) -> Plot {
    let rates = calibration.measured.references.iter().zip(1_u32..);
    let measured = rates.map(|(point, time)| [f64::from(time), point.operations() as f64 / point.seconds]).collect();
    let curve = FittedCurve { name: "8 reads and 8 writes".to_owned(), fitted: Vec::new(), measured };
    Plot::new(
        "Drift of the device during the calibration",
        ["measured for this time", "operations per second"],
        vec![curve],
    )
}

/// CPU time of durable transactions by the number of clients.
fn clients(calibration: &Calibration) -> Plot {
    let runs = calibration.runs.iter().zip(&calibration.prices.explained_ns);
    let points = runs.filter_map(|(run, explained)| {
        let words: Vec<&str> = run.name.rsplit(' ').collect();
        let clients: f64 = words.get(1).filter(|_| run.durable)?.parse().ok()?;
        Some((clients, run.cpu_ns / 1e3, explained / 1e3))
    });
    let points: Vec<_> = points.collect();
    let curve = FittedCurve {
        name: "Debit-Credit, durable".to_owned(),
        fitted: sorted(points.iter().map(|(clients, _, explained)| [*clients, *explained])),
        measured: sorted(points.iter().map(|(clients, seen, _)| [*clients, *seen])),
    };
    Plot::new("CPU of a transaction", ["clients", "us"], vec![curve])
}

/// Times and CPU of answers by their length.
fn messages(calibration: &Calibration) -> Vec<Plot> {
    let Ok((measured, fitted)) = &calibration.loopback else { return Vec::new() };
    let plot = |name: &str, of: fn(&Exchanged) -> f64| {
        let curves = measured.extent.depths.iter().map(|depth| {
            let points = |all: &[Exchanged]| {
                let there = all.iter().filter(|seen| seen.mix.depth == *depth);
                sorted(there.map(|seen| [f64::from(seen.mix.size) / 1024.0, of(seen)]))
            };
            FittedCurve {
                name: format!("{depth} at once"),
                fitted: points(&fitted.shown),
                measured: points(&measured.exchanged),
            }
        });
        Plot::new(format!("Answers over the loopback: {name}"), ["KiB of an answer", name], curves.collect())
    };
    vec![
        plot("mean us", |seen| seen.times.mean_ns / 1e3),
        plot("99 % us", |seen| seen.times.p99_ns() / 1e3),
        plot("CPU us of both sides", |seen| seen.cpu_ns_each() / 1e3),
    ]
}
