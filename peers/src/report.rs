//! Tables and JSON.

use crate::bench::{EngineResult, Figures, Settings};
use crate::engines::OURS;
use base::units::grouped_decimal;
use comfy_table::{CellAlignment, Table, presets::ASCII_MARKDOWN};
use serde_json::{Value, json};

/// The table that people read: every engine and grouping with the medians of its runs. The best grouping of each engine
/// carries a star. If our own engine took part, every row has its ratios to our best: the grouping with the highest throughput
/// need not be the one with the least CPU time.
pub fn table(results: &[EngineResult]) -> String {
    let ours = results.iter().find(|result| result.engine == OURS).and_then(EngineResult::best).map(|best| best.median);
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    let mut header =
        vec!["engine", "grouping", "tx/s", "min..max", "mean ms", "p50 ms", "p99 ms", "CPU us/tx", "load s"];
    if ours.is_some() {
        header.extend(["tx/s, ours : its", "CPU, its : ours"]);
    }
    table.set_header(header);
    for result in results {
        for grouping in &result.groupings {
            let best = result.best().is_some_and(|best| best.grouping == grouping.grouping);
            let median = grouping.median;
            let mut row = vec![
                result.engine.to_owned(),
                format!("{}{}", grouping.grouping.name(), if best { " *" } else { "" }),
                grouped_decimal(median.throughput_per_s, 0),
                spread(&grouping.runs),
                milliseconds(median.response_us_mean),
                milliseconds(median.response_us_p50),
                milliseconds(median.response_us_p99),
                grouped_decimal(median.cpu_us, 1),
                grouped_decimal(result.load_s, 1),
            ];
            if let Some(ours) = ours {
                row.push(format!("{:.2}", ours.throughput_per_s / median.throughput_per_s));
                row.push(format!("{:.2}", median.cpu_us / ours.cpu_us));
            }
            table.add_row(row);
        }
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

fn spread(runs: &[Figures]) -> String {
    let throughputs = || runs.iter().map(|figures| figures.throughput_per_s);
    let low = throughputs().fold(f64::INFINITY, f64::min);
    let high = throughputs().fold(0.0, f64::max);
    format!("{}..{}", grouped_decimal(low, 0), grouped_decimal(high, 0))
}

fn milliseconds(us: f64) -> String {
    format!("{:.3}", us / 1e3)
}

/// The same for programs, with every single run.
pub fn json(settings: &Settings, results: &[EngineResult]) -> Value {
    json!({
        "benchmark": "debit-credit",
        "durability": settings.durability,
        "clients": settings.clients,
        "scale": settings.scale.0,
        "seconds": settings.measured.as_secs_f64(),
        "warm_up_seconds": settings.warm_up.as_secs_f64(),
        "seed": settings.seed,
        "cpus": std::thread::available_parallelism().map_or(0, usize::from),
        "results": results,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::GroupingResult;
    use crate::peer::Grouping;

    fn result(engine: &'static str, throughputs: [f64; 2]) -> EngineResult {
        let groupings = [Grouping::Own, Grouping::Rounds].into_iter().zip(throughputs);
        let groupings = groupings.map(|(grouping, throughput_per_s)| {
            let median = Figures {
                throughput_per_s,
                response_us_mean: 1_500.0,
                response_us_p50: 1_000.0,
                response_us_p99: 9_000.0,
                cpu_us: 1e6 / throughput_per_s,
            };
            GroupingResult { grouping, median, runs: vec![median] }
        });
        EngineResult { engine, version: "1", load_s: 1.0, load_cpu_s: 1.0, groupings: groupings.collect() }
    }

    #[test]
    fn ratios_compare_every_grouping_with_our_best() {
        let text = table(&[result(OURS, [40_000.0, 20_000.0]), result("other", [5_000.0, 16_000.0])]);
        let line = |engine: &str, grouping: &str| {
            let found = text.lines().find(|line| line.contains(engine) && line.contains(grouping));
            found.unwrap_or_else(|| panic!("{engine} {grouping} in\n{text}")).to_owned()
        };
        assert!(line("other", "rounds *").contains("2.50"), "{text}");
        assert!(!line("other", "own").contains('*') && line("other", "own").contains("8.00"), "{text}");
        assert!(line(OURS, "own *").contains("1.00"), "{text}");
    }

    #[test]
    fn without_our_engine_there_are_no_ratios() {
        assert!(!table(&[result("other", [5_000.0, 16_000.0])]).contains("ours"));
    }
}
