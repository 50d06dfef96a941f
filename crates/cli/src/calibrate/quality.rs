//! How good a calibration is: what the description shows beside what was measured, figure by figure, and what it cannot say.

use super::closed_loop::{Mix, ProbeKind, ProbePoint};
use super::cpu::EngineRun;
use super::description;
use super::device::{DeviceMeasured, PAGE};
use super::fit::Fitted;
use super::fresh;
use super::loopback::{Exchanged, LoopbackMeasured};
use super::loopback_fit::FittedLoopback;
use super::nodes::NodesSeen;
use super::prices::StepPrices;
use super::residuals::{self, LawFit, PriceFit, quantile};
use super::seldom::{SELDOM, SeldomPrice};
use crate::table::{table, wrapped};
use base::units::{format_duration_ns, format_size, grouped, grouped_decimal};
use devices::ColdCaches;
use serde_json::{Value, json};

/// What a calibration found.
pub struct Calibration {
    pub measured: DeviceMeasured,
    pub fitted: Fitted,
    pub runs: Vec<EngineRun>,
    pub prices: StepPrices,
    /// Those of its steps that have runs of their own.
    pub seldom: [Option<SeldomPrice>; SELDOM.len()],
    /// Why there is nothing of the loopback, if there is not.
    pub loopback: Result<(LoopbackMeasured, FittedLoopback), String>,
}

/// One measured figure of a device, and the description's.
pub struct Figure {
    pub mix: Mix,
    pub kind: ProbeKind,
    /// Operations per second, mean, median and 99th percentile in microseconds: measured, then shown.
    pub measured: [f64; 4],
    pub shown: [f64; 4],
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

impl Calibration {
    /// The description as text.
    pub fn description(&self, name: &str) -> String {
        let extent = &self.measured.extent;
        let how = format!("{}; a file of {}", self.measured.driver, format_size(extent.file_bytes));
        let loopback = self.loopback.as_ref().ok().map(|(_, fitted)| fitted);
        description::text((name, &self.fitted.device), &self.prices, loopback, &how)
    }

    /// How good each law is.
    fn laws(&self) -> Vec<LawFit> {
        let mut laws = residuals::of_device(&self.measured, &self.fitted);
        laws.extend(self.loopback.iter().flat_map(|(measured, fitted)| residuals::of_loopback(measured, fitted)));
        laws
    }

    /// How good each price is.
    fn step_prices(&self) -> Vec<PriceFit> {
        let mut prices = residuals::of_prices(&self.runs, self.fitted.costs, &self.prices);
        prices.extend(residuals::of_seldom(&self.seldom));
        prices.extend(self.loopback.iter().flat_map(|(measured, fitted)| residuals::of_messages(measured, fitted)));
        prices
    }

    /// All figures of the device.
    pub fn figures(&self) -> Vec<Figure> {
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
        if let (Some(fresh), Some(written)) = (&self.measured.fresh, fresh::over_written(&self.measured)) {
            let [fresh, written] = [fresh, written].map(|point| point.times[ProbeKind::Durable as usize].mean_ns / 1e3);
            sentences.push(format!(
                "A durable write to a place that was never written takes {} us, {} us over written data. The description has \
                 both; the engine writes its files in advance, but for temporary space.",
                grouped_decimal(fresh, 0),
                grouped_decimal(written, 0)
            ));
        }
        match &self.loopback {
            Err(why) => sentences.push(format!("The loopback is not described: {why}")),
            Ok(_) => sentences.push(
                "The time of a message on its way includes what the other thread takes to wake up where it sleeps; where several are \
                 under way it often does not, and the description is too slow."
                    .to_owned(),
            ),
        }
        sentences.push(
            "The speed beyond the processor's caches is known from one run, which it fits whatever it is. A value is priced as one \
             beyond them if its KiB of a page is not among the latest 8 MiB that were referred to; no value of a set is."
                .to_owned(),
        );
        sentences.push(
            "Begin and end of a transaction are known as a sum. What a page server and its nodes do is priced by runs of all on one thread, \
             whose caches are warmer than those of threads that take turns; what it takes to wake up by a message has the difference. An access to NVEM \
             has its copy in its price, which a described NVEM has in its delays, too."
                .to_owned(),
        );
        sentences
    }

    /// The figures for people.
    pub fn to_text(&self) -> String {
        let figures = self.figures();
        let mut parts =
            vec![wrapped(&self.measured.driver), self.tables(), self.summary(&figures), self.worst(&figures)];
        parts.push(residuals::laws_text(&self.laws()));
        parts.push(self.engine());
        parts.push(residuals::prices_text(&self.step_prices()));
        parts.extend(self.messages());
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
        let system = self.prices.system;
        let ns = |ns: f64| grouped(ns.round() as u64);
        let behind = self.prices.cpu().cold_caches.into_iter().map(|cold| {
            let (first, slowdown) = (format_duration_ns(cold.instructions as f64), percent(cold.slowdown));
            match cold.sleep_ns {
                0 => format!("Behind either of these the first {first} of steps take {slowdown} longer."),
                sleep_ns => {
                    let sleep = format_duration_ns(sleep_ns as f64);
                    format!("Behind a sleep of {sleep} the first {first} take {slowdown} longer.")
                }
            }
        });
        let behind = behind.collect::<Vec<_>>().join(" ");
        let system = format!(
            "A batch of operations takes the engine's thread {} ns, {} ns more if nothing is under way; going to sleep and waking up {} \
             ns, an interrupt while it runs {} ns. In the device's mixes an \
             operation takes {} ns beside these. {behind}",
            ns(system.submission_ns),
            ns(system.notification_ns),
            ns(system.wake_up_ns),
            ns(system.interrupt_ns),
            ns(self.fitted.costs.operation_ns)
        );
        let header = ["CPU us of a transaction (row of a sort)", "measured", "by the prices", "error"];
        format!("{}\n\n{}", table(&header, 1, rows), wrapped(&system))
    }

    /// What was measured of the loopback, beside what the description shows.
    fn messages(&self) -> Option<String> {
        let (measured, fitted) = self.loopback.as_ref().ok()?;
        let rows = measured.exchanged.iter().zip(&fitted.shown).map(|(seen, shown)| {
            let pair = |of: fn(&Exchanged) -> f64, digits| {
                format!("{} / {}", grouped_decimal(of(seen), digits), grouped_decimal(of(shown), digits))
            };
            vec![
                format!("{}, {} at once", format_size(seen.mix.size.into()), seen.mix.depth),
                pair(Exchanged::per_second, 0),
                pair(|seen| seen.times.mean_ns / 1e3, 1),
                pair(|seen| seen.times.p99_ns() / 1e3, 1),
                pair(|seen| seen.cpu_ns_each() / 1e3, 1),
            ]
        });
        let header = ["answers over the loopback", "per second", "mean us", "99 %", "CPU us"];
        let legend = "Measured / shown by the description; CPU of both sides.";
        Some(format!("{}\n\n{legend}", table(&header, 1, rows)))
    }

    /// The same for programs.
    fn messages_json(&self) -> Value {
        let (measured, fitted) = match &self.loopback {
            Ok(both) => both,
            Err(why) => return json!({"missing": why}),
        };
        let of = |seen: &Exchanged| {
            json!({
                "per_s": seen.per_second(), "mean_us": seen.times.mean_ns / 1e3, "p50_us": seen.times.p50_ns() / 1e3,
                "p99_us": seen.times.p99_ns() / 1e3, "cpu_us": seen.cpu_ns_each() / 1e3,
            })
        };
        let point = |(seen, shown): (&Exchanged, &Exchanged)| json!({"size": seen.mix.size, "at_once": seen.mix.depth, "measured": of(seen), "shown": of(shown)});
        let of_nodes = |seen: Option<NodesSeen>| {
            seen.map(|seen| {
                json!({
                    "messages": seen.messages, "cpu_us": seen.cpu_us, "server_cpu_us": seen.server_cpu_us,
                    "mean_us": seen.response_us,
                })
            })
        };
        json!({
            "points": measured.exchanged.iter().zip(&fitted.shown).map(point).collect::<Vec<_>>(),
            "nodes": {"measured": of_nodes(measured.nodes), "shown": of_nodes(fitted.nodes)},
        })
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
        let run = |(run, explained): (&EngineRun, &f64)| {
            let steps =
                description::NAMES.iter().map(|(work, name)| ((*name).to_owned(), run.steps[*work as usize].into()));
            json!({
                "name": run.name, "cpu_us": run.cpu_ns / 1e3, "explained_us": explained / 1e3, "footprint_bytes": run.footprint,
                "batches": run.thread[0], "notifications": run.thread[1], "sleeps": run.thread[2],
                "interrupts": run.thread[3], "steps": steps.collect::<serde_json::Map<_, Value>>(),
            })
        };
        let cold = |cold: &ColdCaches| json!({"sleep_ns": cold.sleep_ns, "steps_ns": cold.instructions, "slowdown": cold.slowdown});
        json!({
            "driver": self.measured.driver,
            "file_bytes": self.measured.extent.file_bytes,
            "drift": self.measured.drift(),
            "points": figures.iter().map(figure).collect::<Vec<_>>(),
            "laws": self.laws().iter().map(LawFit::to_json).collect::<Vec<_>>(),
            "prices": self.step_prices().iter().map(PriceFit::to_json).collect::<Vec<_>>(),
            "loopback": self.messages_json(),
            "engine": self.runs.iter().zip(&self.prices.explained_ns).map(run).collect::<Vec<_>>(),
            "cold_caches": self.prices.cpu().cold_caches.iter().map(cold).collect::<Vec<_>>(),
            "unexplained": self.unexplained(),
            "description": description,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::fit::{self, tests::measured_disk};
    use super::super::{loopback, loopback_fit, page, prices, seldom};
    use super::*;
    use driver::Work;
    use papers::Extent;

    /// Of a described disk and a described loopback, with some runs of the engine.
    fn calibration() -> Calibration {
        let measured = measured_disk();
        let fitted = fit::fit(&measured, |_, _| ()).expect("it is fitted");
        let run = |name: &str, references: f64| {
            let mut steps = [0.0; Work::ALL.len()];
            (steps[Work::BeginTransaction as usize], steps[Work::ObjectReference as usize]) = (1.0, references);
            let cpu_ns = 1_000.0 + 300.0 * references;
            EngineRun { name: name.to_owned(), steps, thread: [0.0; 4], cpu_ns, footprint: 1 << 20, durable: false }
        };
        let mut runs = vec![run("set, 1 reads", 1.0), run("set, 4 reads", 4.0), run("set, 16 reads", 16.0)];
        runs.extend([1, 64].map(|clients| EngineRun {
            durable: true,
            ..run(&format!("Debit-Credit, durable, {clients} clients"), 4.0)
        }));
        let prices = prices::prices(&runs, fitted.costs);
        let seldom = seldom::prices(&seldom::tests::runs(), &prices, fitted.costs);
        let extent = loopback::LoopbackExtent::quick();
        let network = devices::Network { latency: devices::Law::Fixed(9_000), ..devices::Network::no_delay() };
        let exchanged = loopback::show((&fit::cpu(fitted.costs), &network), &extent.mixes(), 500, 1);
        let measured_loopback =
            LoopbackMeasured { extent, exchanged: exchanged.expect("it is described"), nodes: None };
        let fitted_loopback = loopback_fit::fit(&measured_loopback, &fit::cpu(fitted.costs)).expect("it is fitted");
        let loopback = Ok((measured_loopback, fitted_loopback));
        Calibration { measured, fitted, runs, prices, seldom, loopback }
    }

    #[test]
    fn every_fitted_figure_has_its_error_in_text_json_and_html() {
        let mut calibration = calibration();
        let laws = [
            "reads of 8 KiB",
            "writes of 8 KiB",
            "durable writes of 8 KiB",
            "syncs of 8 KiB",
            "messages, one at a time",
        ];
        let prices = [
            "object reference",
            "lock pair",
            "sleeping and waking up",
            "message, at each end",
            "redo of a change",
            "request of another thread",
            "look at the directory of copies",
        ];
        let (text, json) = (calibration.to_text(), calibration.to_json("described"));
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        assert!(laws.iter().chain(&prices).all(|name| text.contains(name)), "{text}");
        let named = |list: &str, name: &str| {
            let all = json[list].as_array().expect("a list");
            all.iter().find(|figure| figure["name"] == name).unwrap_or_else(|| panic!("{name} of {all:?}")).clone()
        };
        for law in laws {
            let found = named("laws", law);
            let number = |key: &str| found[key].as_f64().unwrap_or_else(|| panic!("{key} of {found}"));
            assert!(number("points") >= 3.0 && (0.0..0.15).contains(&number("unexplained")), "{found}");
            assert!(found["p99"]["median"].as_f64().expect("a number") >= 0.0, "{found}");
        }
        let reference = named("prices", "object reference");
        let range = [0, 1].map(|end| reference["range_ns"][end].as_f64().expect("an end"));
        let near = |ns: f64| (ns - 300.0).abs() < 5.0;
        assert!(near(reference["ns"].as_f64().expect("a price")) && range.into_iter().all(near), "{reference}");
        assert!(prices.iter().all(|name| named("prices", name)["basis"].is_string()));
        assert_eq!(json["loopback"]["points"].as_array().map(Vec::len), Some(6));
        let html = page::html(&calibration, &crate::experiment::report_head(Extent::Quick));
        // Three of each kind, the distributions, the CPU, three of the loopback.
        assert_eq!(html.matches("<figure>").count(), 3 * 4 + 1 + 1 + 3, "{}", html.len());
        assert!(laws.iter().chain(&prices).all(|name| html.contains(name)), "the figures are there, too");

        assert!(!calibration.to_text().contains("lies in memory"));
        calibration.measured.traits.3 = false;
        assert!(calibration.to_text().contains("lies in memory"), "what it writes does not survive");

        calibration.loopback = Err("no sockets".to_owned());
        assert!(calibration.to_text().contains("The loopback is not described: no sockets"));
        assert_eq!(calibration.to_json("described")["loopback"]["missing"], "no sockets");
        assert!(!calibration.description("d").contains("[network"));
    }
}
