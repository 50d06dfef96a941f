//! How good a calibration is: what the description shows beside what was measured, figure by figure, and what it cannot say.

use super::closed_loop::{Mix, ProbeKind, ProbePoint};
use super::cpu::{EngineRun, StepPrices};
use super::description;
use super::device::{DeviceMeasured, PAGE};
use super::fit::Fitted;
use crate::table::{table, wrapped};
use base::units::{format_size, grouped, grouped_decimal};
use papers::plot::{FittedCurve, escaped, fitted_curves};
use papers::report::Head;
use serde_json::{Value, json};

/// What a calibration found.
pub struct Calibration {
    pub measured: DeviceMeasured,
    pub fitted: Fitted,
    pub runs: Vec<EngineRun>,
    pub prices: StepPrices,
    /// What a request from another thread costs the engine's thread, in nanoseconds.
    pub request_ns: f64,
}

/// One measured figure of a device, and the description's.
struct Figure {
    mix: Mix,
    kind: ProbeKind,
    /// Operations per second, mean, median and 99th percentile in microseconds: measured, then shown.
    measured: [f64; 4],
    shown: [f64; 4],
}

const FIGURES: [&str; 4] = ["per second", "mean", "50 %", "99 %"];

impl Figure {
    fn error(&self, figure: usize) -> f64 {
        self.shown[figure] / self.measured[figure] - 1.0
    }
}

/// A mix in words.
fn words(mix: &Mix) -> String {
    let counts = mix.depths.iter().zip(ProbeKind::WORDS).filter(|(depth, _)| **depth > 0);
    let plural = |depth: u32| if depth == 1 { "" } else { "s" };
    let kinds: Vec<String> = counts.map(|(depth, word)| format!("{depth} {word}{}", plural(*depth))).collect();
    let size = if mix.size == PAGE { String::new() } else { format!(" of {}", format_size(mix.size.into())) };
    let sequence = if mix.in_sequence { " in sequence" } else { "" };
    format!("{}{size}{sequence}", kinds.join(", "))
}

fn percent(share: f64) -> String {
    format!("{:+.0} %", share * 100.0)
}

/// The value that this share of the values does not exceed.
fn quantile(values: impl Iterator<Item = f64>, share: f64) -> f64 {
    let mut values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
    values.sort_by(f64::total_cmp);
    let at = (share * values.len() as f64).ceil() as usize;
    values.get(at.clamp(1, values.len().max(1)) - 1).copied().unwrap_or(0.0)
}

impl Calibration {
    /// The description as text.
    pub fn description(&self, name: &str) -> String {
        let extent = &self.measured.extent;
        let how = format!("{}; a file of {}", self.measured.driver, format_size(extent.file_bytes));
        description::text((name, &self.fitted.device), &self.prices, self.fitted.costs, &how)
    }

    fn figures(&self) -> Vec<Figure> {
        let of = |point: &ProbePoint, kind: ProbeKind| {
            let times = &point.times[kind as usize];
            [point.per_second(kind), times.mean_ns / 1e3, times.p50_ns() / 1e3, times.p99_ns() / 1e3]
        };
        let pairs = self.measured.points.iter().zip(&self.fitted.shown);
        let figures = pairs.flat_map(|(measured, shown)| {
            let there = |kind: &ProbeKind| measured.times[*kind as usize].count >= 20;
            let kinds = ProbeKind::ALL.into_iter().filter(there);
            kinds.map(move |kind| Figure {
                mix: measured.mix,
                kind,
                measured: of(measured, kind),
                shown: of(shown, kind),
            })
        });
        figures.collect()
    }

    /// What the description cannot say, in sentences.
    fn unexplained(&self) -> Vec<String> {
        let mut sentences = vec![format!(
            "The device drifted: the reference was measured {} times during the calibration and deviated by up to {} from its \
             mean. No description is nearer to the device than that.",
            self.measured.references.len(),
            percent(self.measured.drift())
        )];
        if !self.measured.traits.3 {
            sentences.push(
                "The directory lies in memory: its times are those of copies, and what is written there does not survive a power cut."
                    .to_owned(),
            );
        }
        let alone = Mix { depths: [0, 0, 1, 0], size: PAGE, in_sequence: true };
        if let (Some(fresh), Some(written)) = (&self.measured.fresh, self.measured.point(&alone)) {
            let [fresh, written] = [fresh, written].map(|point| point.times[ProbeKind::Durable as usize].mean_ns / 1e3);
            sentences.push(format!(
                "A durable write to a place that was never written takes {} us, {} us over written data. The description has the \
                 latter; the engine writes its files in advance.",
                grouped_decimal(fresh, 0),
                grouped_decimal(written, 0)
            ));
        }
        sentences.push(format!(
            "A request from another thread costs the engine's thread {} us more than the same transaction of a task. No step stands \
             for it.",
            grouped_decimal(self.request_ns / 1e3, 1)
        ));
        sentences.push(
            "Begin and end of a transaction are known as a sum. Messages of a transaction server, copies of segments, looks at the \
             log and what machines send each other have no price of their own; what they take is in the steps beside them."
                .to_owned(),
        );
        sentences
    }

    /// The figures for people.
    pub fn to_text(&self) -> String {
        let figures = self.figures();
        let mut parts =
            vec![wrapped(&self.measured.driver), self.tables(), self.summary(&figures), self.worst(&figures)];
        parts.push(self.engine());
        parts.extend(self.unexplained().iter().map(|sentence| wrapped(sentence)));
        parts.join("\n\n")
    }

    /// The measured mean times by reads and writes under way.
    fn tables(&self) -> String {
        let axis = &self.measured.extent.axis;
        let by = |kind: ProbeKind| {
            let columns = axis.iter().map(|writes| format!("{writes} writes"));
            let header: Vec<String> =
                [format!("us of a {}", ProbeKind::WORDS[kind as usize])].into_iter().chain(columns).collect();
            let header: Vec<&str> = header.iter().map(String::as_str).collect();
            let rows = axis.iter().map(|reads| {
                let cell = |writes: &u32| {
                    let mix = Mix { depths: [*reads, *writes, 0, 0], size: PAGE, in_sequence: false };
                    let found = self.measured.point(&mix).filter(|_| mix.depths[kind as usize] > 0);
                    found.map_or(String::new(), |point| {
                        let times = &point.times[kind as usize];
                        format!(
                            "{} / {}",
                            grouped_decimal(times.mean_ns / 1e3, 0),
                            grouped_decimal(times.p99_ns() / 1e3, 0)
                        )
                    })
                };
                [format!("{reads} reads")].into_iter().chain(axis.iter().map(cell)).collect()
            });
            table(&header, 1, rows)
        };
        let legend = "Mean / 99 % of 8 KiB transfers with these numbers of reads and writes under way.";
        format!("{}\n\n{}\n\n{legend}", by(ProbeKind::Read), by(ProbeKind::Write))
    }

    /// The errors of the description over all figures.
    fn summary(&self, figures: &[Figure]) -> String {
        let is_table =
            |figure: &Figure| figure.mix.size == PAGE && !figure.mix.in_sequence && figure.mix.depths[2] <= 1;
        let row = |name: &str, of: &dyn Fn(&Figure) -> bool| {
            let mut cells = vec![name.to_owned(), figures.iter().filter(|figure| of(figure)).count().to_string()];
            for figure in 0..FIGURES.len() {
                let errors = || figures.iter().filter(|found| of(found)).map(|found| found.error(figure).abs());
                cells.push(format!(
                    "{:.0} / {:.0} %",
                    quantile(errors(), 0.5) * 100.0,
                    quantile(errors(), 0.9) * 100.0
                ));
            }
            cells
        };
        let header = ["error of the description", "points", FIGURES[0], FIGURES[1], FIGURES[2], FIGURES[3]];
        let rows = [row("where it was fitted", &is_table), row("elsewhere", &|figure| !is_table(figure))];
        format!("{}\n\nIn the median / for 90 % of the points.", table(&header, 1, rows))
    }

    /// The points where the description errs most.
    fn worst(&self, figures: &[Figure]) -> String {
        let mut worst: Vec<&Figure> = figures.iter().collect();
        worst.sort_by(|one, other| other.error(1).abs().total_cmp(&one.error(1).abs()));
        let rows = worst.iter().take(6).map(|figure| {
            let pair = |at: usize| {
                format!("{} / {}", grouped_decimal(figure.measured[at], 0), grouped_decimal(figure.shown[at], 0))
            };
            let kind = ProbeKind::WORDS[figure.kind as usize].to_owned();
            vec![words(&figure.mix), kind, pair(0), pair(1), pair(3)]
        });
        let header = ["the worst", "of which", "per second", "mean us", "99 %"];
        format!("{}\n\nMeasured / shown by the description.", table(&header, 2, rows))
    }

    fn engine(&self) -> String {
        let rows = self.runs.iter().zip(&self.prices.explained_ns).map(|(run, explained)| {
            let us = |ns: f64| grouped_decimal(ns / 1e3, 2);
            vec![run.name.clone(), us(run.cpu_ns), us(*explained), percent(explained / run.cpu_ns - 1.0)]
        });
        let costs = self.fitted.costs;
        let ns = |ns: f64| grouped(ns.round() as u64);
        let system = format!(
            "The operating system takes {} ns for a batch of operations and {} ns for each; sleeping and waking takes {} ns.",
            ns(costs.submission_ns),
            ns(costs.operation_ns),
            ns(self.prices.wake_up_ns)
        );
        let header = ["CPU us of a transaction (row of a sort)", "measured", "by the prices", "error"];
        format!("{}\n\n{}", table(&header, 1, rows), wrapped(&system))
    }

    /// The figures for programs.
    pub fn to_json(&self, description: &str) -> Value {
        let figures = self.figures();
        let figure = |figure: &Figure| {
            let of = |values: &[f64; 4]| json!({"per_s": values[0], "mean_us": values[1], "p50_us": values[2], "p99_us": values[3]});
            json!({
                "reads": figure.mix.depths[0], "writes": figure.mix.depths[1], "durable_writes": figure.mix.depths[2],
                "syncs": figure.mix.depths[3], "size": figure.mix.size, "in_sequence": figure.mix.in_sequence,
                "of": ProbeKind::WORDS[figure.kind as usize],
                "measured": of(&figure.measured), "shown": of(&figure.shown),
            })
        };
        let run = |(run, explained): (&EngineRun, &f64)| json!({"name": run.name, "cpu_us": run.cpu_ns / 1e3, "explained_us": explained / 1e3, "footprint_bytes": run.footprint});
        json!({
            "driver": self.measured.driver,
            "file_bytes": self.measured.extent.file_bytes,
            "drift": self.measured.drift(),
            "points": figures.iter().map(figure).collect::<Vec<_>>(),
            "engine": self.runs.iter().zip(&self.prices.explained_ns).map(run).collect::<Vec<_>>(),
            "request_from_another_thread_us": self.request_ns / 1e3,
            "unexplained": self.unexplained(),
            "description": description,
        })
    }

    /// The report: measured and fitted curves.
    pub fn to_html(&self, head: &Head) -> String {
        let axis = &self.measured.extent.axis;
        let mut body = String::new();
        for kind in [ProbeKind::Read, ProbeKind::Write] {
            let (along, others) = if kind == ProbeKind::Read { (0, "writes") } else { (1, "reads") };
            for (figure, name) in [(0, "per second"), (1, "mean us"), (3, "99 % us")] {
                let curves: Vec<FittedCurve> =
                    axis.iter().map(|beside| self.curve((kind, along), *beside, (figure, others))).collect();
                let word = ProbeKind::WORDS[kind as usize];
                let title = format!("{word}s of 8 KiB: {name}");
                let x_name = format!("{word}s under way");
                let plot = fitted_curves(&title, [&x_name, name], &curves).unwrap_or_default();
                body += &format!("<h2>{}</h2><figure><div class=wide>{plot}</div></figure>", escaped(&title));
            }
        }
        body += "<h2>Figures</h2>";
        body += &format!("<pre>{}</pre>", escaped(&self.to_text()));
        let footer = "Lines with filled marks are what the description shows under the virtual clock; hollow diamonds were measured. \
                      Point at a mark to read it.";
        papers::report::other(head, "Calibration", &body, footer)
    }

    /// A kind's figure by how many of it are under way, beside a number of the other kind.
    fn curve(&self, (kind, along): (ProbeKind, usize), beside: u32, (figure, others): (usize, &str)) -> FittedCurve {
        let of = |shown: bool| {
            let there = |found: &&Figure| {
                let depths = found.mix.depths;
                let is_plain = found.mix.size == PAGE && !found.mix.in_sequence && depths[2] + depths[3] == 0;
                found.kind == kind && is_plain && depths[1 - along] == beside
            };
            let figures = self.figures();
            let mut points: Vec<[f64; 2]> = figures
                .iter()
                .filter(there)
                .map(|found| {
                    let values = if shown { found.shown } else { found.measured };
                    [f64::from(found.mix.depths[along]), values[figure]]
                })
                .collect();
            points.sort_by(|one, other| one[0].total_cmp(&other[0]));
            points
        };
        FittedCurve { name: format!("beside {beside} {others}"), fitted: of(true), measured: of(false) }
    }
}
