//! Results of an experiment on a terminal.

use crate::table::{WIDTH, table, wrapped};
use base::units::grouped_decimal;
use papers::Estimate;
use papers::experiment::Output;
use papers::outcome::{Outcome, Trial};

/// The title, and a table for each output: a row for each place of the abscissa, a column for each curve.
pub fn experiment_text(trial: &Trial) -> String {
    let experiment = &trial.experiment;
    let mut parts = vec![wrapped(format!("{}\n{}", experiment.title, experiment.about).trim())];
    for output in &experiment.outputs {
        parts.push(match is_table(trial, output) {
            true => composition(trial, output),
            false => figures(trial, output),
        });
    }
    for (number, line) in experiment.lines.iter().enumerate() {
        for (x, outcome) in trial.along(number) {
            let at = format!("{line}, {} {}", experiment.x.name, label_of(trial, x));
            if let Some(station) = &outcome.saturated {
                parts.push(wrapped(&format!("Saturated: {at}: station {station}")));
            }
        }
    }
    parts.extend(trial.failures().map(|(at, failure)| wrapped(&format!("Failed: {at}: {failure}"))));
    parts.join("\n\n")
}

fn label_of(trial: &Trial, x: f64) -> String {
    let values = &trial.experiment.x.values;
    values.iter().find(|(value, _)| *value == x).map_or_else(String::new, |(_, label)| label.clone())
}

fn is_table(trial: &Trial, output: &Output) -> bool {
    trial.outcomes.iter().any(|outcome| !outcome.table(&output.path).is_empty())
}

/// As many curves beside each other as fit, a table for each group of them.
fn figures(trial: &Trial, output: &Output) -> String {
    let experiment = &trial.experiment;
    let columns = (usize::from(WIDTH) - 16) / 20;
    let numbers: Vec<usize> = (0..experiment.lines.len()).collect();
    let tables = numbers.chunks(columns).map(|group| {
        let mut header = vec![experiment.x.name.as_str()];
        header.extend(group.iter().map(|number| experiment.lines[*number].as_str()));
        let rows = experiment.x.values.iter().map(|(x, label)| {
            let mut row = vec![label.clone()];
            row.extend(group.iter().map(|number| {
                let outcome = trial.along(*number).find(|(place, _)| place == x).map(|(_, outcome)| outcome);
                outcome.map_or_else(String::new, |outcome| cell(trial, (outcome, *x), output))
            }));
            row
        });
        table(&header, 0, rows)
    });
    format!("{}\n{}", output.label, tables.collect::<Vec<_>>().join("\n\n"))
}

fn cell(trial: &Trial, (outcome, x): (&Outcome, f64), output: &Output) -> String {
    match trial.shown(outcome, x, output) {
        _ if outcome.failure.is_some() => "failed".to_owned(),
        _ if outcome.saturated.is_some() => "saturated".to_owned(),
        Some(estimate) => shown(estimate),
        None => "-".to_owned(),
    }
}

/// A figure with its interval, with as many places as say something.
pub fn shown(estimate: Estimate) -> String {
    let places = |number: f64| match number.abs() {
        n if n >= 100.0 => 0,
        n if n >= 10.0 => 1,
        _ => 2,
    };
    let mean = grouped_decimal(estimate.mean, places(estimate.mean));
    match estimate.half_width {
        Some(width) => format!("{mean} ± {}", grouped_decimal(width, places(estimate.mean).max(1))),
        None => mean,
    }
}

fn composition(trial: &Trial, output: &Output) -> String {
    let experiment = &trial.experiment;
    let x = papers::plot::place_of(experiment, output);
    let mut names: Vec<String> = Vec::new();
    let mut rows = Vec::new();
    for (number, line) in experiment.lines.iter().enumerate() {
        let Some((_, outcome)) = trial.along(number).find(|(place, outcome)| *place == x && outcome.is_steady()) else {
            continue;
        };
        let parts = outcome.table(&output.path);
        if names.is_empty() {
            names = parts.iter().map(|(name, _)| name.clone()).collect();
        }
        let mut row = vec![line.clone()];
        row.extend(
            parts.into_iter().map(|(_, estimate)| shown(Estimate { half_width: None, ..estimate * output.factor })),
        );
        rows.push(row);
    }
    let at = format!("{}, where {} is {}", output.label, experiment.x.name, label_of(trial, x));
    let shown_names: Vec<String> = names.iter().map(|name| name.replace('_', " ")).collect();
    let mut header = vec![""];
    header.extend(shown_names.iter().map(String::as_str));
    format!("{at}\n{}", table(&header, 1, rows))
}
