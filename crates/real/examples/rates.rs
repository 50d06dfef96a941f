//! Prints how many random 4 KiB reads and writes a directory's device does per second, by depth:
//! `cargo run --release -p entresol-real --example rates -- DIRECTORY [ring|pool] [seconds per line]`.

use entresol_real::{Backend, MeasureOptions, Probe, measure};
use std::path::PathBuf;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let directory = PathBuf::from(arguments.next().unwrap_or_else(|| ".".to_owned()));
    let backend = match arguments.next().as_deref() {
        Some("ring") => Backend::IoUring,
        Some("pool") => Backend::ThreadPool,
        _ => Backend::Automatic,
    };
    let span: f64 = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(2.0);
    let depths = vec![1, 8, 32, 128];
    let points = 2 + Probe::RANDOM.len() * depths.len();
    let options =
        MeasureOptions { backend, sizes: vec![4096], depths, seconds: span * points as f64, ..Default::default() };
    println!(
        "{:>16} {:>5} {:>10} {:>9} {:>9} {:>9} {:>8}",
        "", "depth", "per s", "mean us", "p50 us", "p99 us", "CPU us"
    );
    let result = measure(&directory, &options, |progress| {
        let point = progress.point;
        println!(
            "{:>16} {:>5} {:>10.0} {:>9.1} {:>9.1} {:>9.1} {:>8.2}",
            point.probe.to_string(),
            point.depth,
            point.operations_per_second,
            point.mean_ns / 1e3,
            point.p50_ns as f64 / 1e3,
            point.p99_ns as f64 / 1e3,
            point.cpu_ns_mean / 1e3
        );
    });
    match result {
        Ok(measured) => println!("{}\n\n{}", measured.driver, measured.description("measured")),
        Err(fault) => eprintln!("{fault}"),
    }
}
