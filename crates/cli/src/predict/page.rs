//! The report of a prediction: its table, and the distributions of the response times on both clocks.

use super::comparison::Comparison;
use crate::bench::Outcome;
use crate::report::SHARES;
use papers::plot::{FittedCurve, escaped, fitted_curves};
use papers::report::Head;

/// The report as one HTML file.
pub fn html(head: &Head, comparison: &Comparison) -> String {
    let mut body = format!("<pre>{}</pre>", escaped(&comparison.to_text()));
    let (title, axes) = match comparison.predicted {
        Outcome::Spill(_) => {
            ("Rows by time: the share that is still to come", ["us since the beginning", "share of rows"])
        }
        _ => ("Response times: the share that is longer", ["response time in us", "share that is longer"]),
    };
    if let Some(plot) = fitted_curves(title, axes, &curves(comparison)) {
        body += &format!("<h2>{title}</h2><figure><div class=wide>{plot}</div></figure>");
    }
    let footer = "The line with filled marks is the prediction; hollow diamonds are the runs on this machine, one curve for each. \
                  Point at a mark to read it.";
    papers::report::other(head, "Prediction", &body, footer)
}

/// The prediction beside the first run, then the other runs.
fn curves(comparison: &Comparison) -> Vec<FittedCurve> {
    let predicted = points(&comparison.predicted);
    let runs = comparison.real.iter().enumerate().map(|(number, run)| FittedCurve {
        name: if number == 0 { "predicted, and run 1".to_owned() } else { format!("run {}", number + 1) },
        fitted: if number == 0 { predicted.clone() } else { Vec::new() },
        measured: points(run),
    });
    runs.collect()
}

/// Times and the shares that are longer.
fn points(outcome: &Outcome) -> Vec<[f64; 2]> {
    let distribution_us = match outcome {
        Outcome::Transactions(report) => &report.distribution_us,
        Outcome::PageServer(report) => &report.distribution_us,
        Outcome::Spill(report) => &report.distribution_us,
    };
    SHARES.iter().zip(distribution_us).map(|(share, us)| [*us, 1.0 - share]).collect()
}
