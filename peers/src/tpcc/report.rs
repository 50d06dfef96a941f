//! Tables and JSON.

use super::bench::{EngineResult, Settings};
use crate::engines::OURS;
use base::units::grouped_decimal;
use comfy_table::{CellAlignment, Table, presets::ASCII_MARKDOWN};
use serde_json::{Value, json};

/// The table that people read: every engine and grouping with the medians of its runs; the best grouping of each engine has a
/// star. If our own engine took part, every row has its ratios to our best. At most 100 columns wide.
pub fn table(results: &[EngineResult]) -> String {
    let ours = results.iter().find(|result| result.engine == OURS).and_then(EngineResult::best).map(|best| best.median);
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    let mut header = vec!["engine", "group", "tx/s", "orders/min", "p50 ms", "p99 ms", "CPU us"];
    if ours.is_some() {
        header.extend(["tx/s", "CPU"]);
    }
    table.set_header(header);
    for result in results {
        for grouping in &result.groupings {
            let best = result.best().is_some_and(|best| best.grouping == grouping.grouping);
            let median = grouping.median;
            let mut row = vec![
                result.engine.to_owned(),
                format!("{}{}", grouping.grouping.name(), if best { "*" } else { "" }),
                grouped_decimal(median.throughput_per_s, 0),
                grouped_decimal(grouping.new_orders_per_min, 0),
                format!("{:.3}", median.response_us_p50 / 1e3),
                format!("{:.2}", median.response_us_p99 / 1e3),
                grouped_decimal(median.cpu_us, 1),
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
    let legend = "CPU us: of the process, all threads, for each transaction of the mix.";
    let ratios = "\nThe last two columns: our tx/s over its, its CPU over ours; above 1 where Entresol is better.";
    format!("{table}\n\n{legend}{}", if ours.is_some() { ratios } else { "" })
}

/// The same for programs, with every single run.
pub fn json(settings: &Settings, results: &[EngineResult]) -> Value {
    json!({
        "benchmark": "tpcc",
        "durability": settings.opening.durability,
        "cache_bytes": settings.opening.cache_bytes,
        "clients": settings.clients,
        "warehouses": settings.scale.warehouses,
        "customers_per_district": settings.scale.customers,
        "items": settings.scale.items,
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
    use crate::bench::Figures;
    use crate::peer::Grouping;
    use crate::tpcc::bench::GroupingResult;

    fn result(engine: &'static str, grouping: Grouping, throughput_per_s: f64) -> EngineResult {
        let median = Figures {
            throughput_per_s,
            response_us_mean: 1_500.0,
            response_us_p50: 21_000.0,
            response_us_p99: 1_234_567.0,
            cpu_us: 1e8 / throughput_per_s,
        };
        let runs = vec![median];
        let groupings = vec![GroupingResult { grouping, median, new_orders_per_min: 27.0 * throughput_per_s, runs }];
        EngineResult { engine, version: "1", load_s: 1.0, load_cpu_s: 1.0, groupings }
    }

    #[test]
    fn ratios_compare_with_ours_and_lines_fit() {
        let results =
            [result(OURS, Grouping::Single, 120_000.0), result("rocksdb-transactions", Grouping::Rounds, 30_000.0)];
        let text = table(&results);
        let line = text.lines().find(|line| line.contains("rocksdb")).expect("a line of the peer");
        assert!(line.contains("30,000") && line.contains("810,000") && line.matches("4.00").count() == 2, "{text}");
        assert!(text.lines().all(|line| line.len() <= 100), "{text}");
    }

    #[test]
    fn without_our_engine_there_are_no_ratios() {
        assert!(!table(&[result("lmdb", Grouping::Rounds, 30_000.0)]).contains("over"));
    }
}
