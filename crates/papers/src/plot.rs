//! Plots of experiments, as SVG for the report's page: curves where the abscissa is a quantity, bars where it has categories, or one
//! place alone, and where a figure consists of parts. The paper's own values stand in them as hollow marks.
//!
//! The plots are written without a plotting library, in some 500 lines. Colours are classes of the page's style sheet,
//! so one picture serves light and dark pages, and every mark carries its text; the library that was here before could
//! do neither.

mod bars;
mod curves;
mod fitted;
mod pairs;
mod scale;
mod svg;

pub use fitted::{FittedCurve, fitted_curves};
pub use pairs::{PairAxis, PairStyle, Pairs, pairs};

pub(crate) use scale::grows_by_a_factor;
pub use svg::escaped;

use crate::experiment::{Experiment, Output};
use crate::outcome::Trial;
use base::units::grouped_decimal;
use scale::Scale;
use std::fmt::Write;
use svg::{Anchor, Svg};

/// The size of a plot of curves, in pixels.
const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 400.0;
/// The room that labels take, in pixels: left, right, above, below the plot.
const MARGINS: [f64; 4] = [74.0, 18.0, 22.0, 54.0];
/// How many colours and dashes the style sheet tells apart.
const CLASSES: usize = 8;

/// One place of a curve.
struct Dot {
    x: f64,
    y: f64,
    half_width: f64,
}

/// What one curve shows of an output.
struct Curve {
    /// Its name in the experiment, which is empty if it has no series.
    line: String,
    name: String,
    dots: Vec<Dot>,
    /// Where the arrivals were more than a station could serve, and which.
    saturated: Option<(f64, String)>,
}

/// The plot of one output with its legend, as HTML. `None` if no run has it.
pub fn html(trial: &Trial, output: &Output) -> Option<String> {
    let experiment = &trial.experiment;
    if is_table(trial, output) {
        let x = place_of(experiment, output);
        let rows = parts(trial, output, x);
        let svg = bars::composition(experiment, output, &rows, x)?;
        let names = rows.first()?.1.iter().map(|(name, _)| (name.replace('_', " "), None));
        return Some(svg + &legend(names, true));
    }
    let curves: Vec<Curve> = (0..experiment.lines.len()).map(|number| curve(trial, output, number)).collect();
    if curves.iter().all(|curve| curve.dots.is_empty() && curve.saturated.is_none()) {
        return None;
    }
    // One place makes no curve.
    if experiment.x.named || experiment.x.values.len() == 1 {
        return Some(bars::categories(experiment, output, &curves));
    }
    let svg = curves::svg(experiment, output, &curves);
    if curves.len() == 1 && curves[0].saturated.is_none() {
        return Some(svg);
    }
    let names = curves.iter().map(|curve| {
        let note = curve
            .saturated
            .as_ref()
            .map(|(x, station)| format!("× from {}: {station} saturated", label_of(experiment, *x)));
        (curve.name.clone(), note)
    });
    Some(svg + &legend(names, false))
}

/// Whether an output is a table whose parts are shown.
pub fn is_table(trial: &Trial, output: &Output) -> bool {
    trial.outcomes.iter().any(|outcome| !outcome.table(&output.path).is_empty())
}

fn curve(trial: &Trial, output: &Output, number: usize) -> Curve {
    let line = trial.experiment.lines[number].clone();
    let name = if line.is_empty() { trial.experiment.title.clone() } else { line.clone() };
    let mut curve = Curve { line, name, dots: Vec::new(), saturated: None };
    for (x, outcome) in trial.along(number) {
        if let Some(station) = &outcome.saturated {
            curve.saturated.get_or_insert((x, station.clone()));
        } else if let Some(estimate) = trial.shown(outcome, x, output) {
            curve.dots.push(Dot { x, y: estimate.mean, half_width: estimate.half_width.unwrap_or(0.0) });
        }
    }
    curve
}

/// The parts of an output that is a table, of each curve that has them at `x`.
fn parts(trial: &Trial, output: &Output, x: f64) -> Vec<bars::Parts> {
    let mut rows = Vec::new();
    for (number, name) in trial.experiment.lines.iter().enumerate() {
        let found = trial.along(number).find(|(place, outcome)| *place == x && outcome.is_steady());
        rows.extend(found.map(|(_, outcome)| (name.clone(), outcome.table(&output.path))));
    }
    rows
}

/// Under a plot: the name of each curve or part with its colour, and what is to be said of it.
fn legend(names: impl Iterator<Item = (String, Option<String>)>, of_bars: bool) -> String {
    let mut list = "<ul class=legend>".to_owned();
    for (number, (name, note)) in names.enumerate() {
        let class = place_class(number);
        let mut swatch = svg::Svg::new(34.0, 14.0);
        if of_bars {
            swatch.bar(&format!("fill {class}"), [10.0, 1.0], [14.0, 12.0], "");
        } else {
            swatch.polyline(&format!("curve {class}"), &[[1.0, 7.0], [33.0, 7.0]]);
            let shape = svg::Shape::CURVES[number % svg::Shape::CURVES.len()];
            swatch.mark(&format!("mark {class}"), shape, [17.0, 7.0], "");
        }
        let _ = write!(list, "<li data-curve=\"{class}\">{} {}", swatch.finish(&name), escaped(&name));
        if let Some(note) = note {
            let _ = write!(list, " <small>{}</small>", escaped(&note));
        }
    }
    list + "</ul>"
}

/// A plot with its grid, ticks and names of both axes, in which nothing is drawn yet.
fn framed(x: &Scale, y: &Scale, [x_name, y_name]: [&str; 2]) -> Svg {
    let [left, right, _, below] = MARGINS;
    let mut svg = Svg::new(WIDTH, HEIGHT);
    for (value, label) in y.ticks(6) {
        svg.line("grid", [left, y.at(value)], [WIDTH - right, y.at(value)]);
        svg.text("tick", [left - 8.0, y.at(value)], Anchor::End, &label);
    }
    svg.line("axis", [left, HEIGHT - below], [WIDTH - right, HEIGHT - below]);
    for (value, label) in x.ticks(8) {
        svg.text("tick", [x.at(value), HEIGHT - below + 16.0], Anchor::Middle, &label);
    }
    svg.text("name", [WIDTH / 2.0, HEIGHT - 12.0], Anchor::Middle, x_name);
    svg.upright("name", [18.0, HEIGHT / 2.0], y_name);
    svg
}

/// The classes that a curve's elements share: its colour, its dash, and whether its marks are hollow because the colours begin again.
fn place_class(number: usize) -> String {
    let hollow = if number >= CLASSES { " hollow" } else { "" };
    format!("c{}{hollow}", number % CLASSES)
}

/// The text in lines of at most `width` characters, where words permit.
fn broken(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last_mut().expect("there is a line");
        if last.is_empty() {
            last.push_str(word);
        } else if last.chars().count() + 1 + word.chars().count() <= width {
            *last = format!("{last} {word}");
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

/// The label of a place of the abscissa.
pub(crate) fn label_of(experiment: &Experiment, x: f64) -> String {
    let named = experiment.x.values.iter().find(|(value, _)| (value - x).abs() < 1e-9);
    match named {
        Some((_, label)) => label.clone(),
        None if experiment.x.named => String::new(),
        None => place_text(x),
    }
}

/// A place of the abscissa, with no more decimals than it has, three at most: 2.5 and not 2.500, which could be read as 2,500.
pub(crate) fn place_text(x: f64) -> String {
    let text = grouped_decimal(x, if x.fract() == 0.0 { 0 } else { 3 });
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// A figure with as many places as say something.
pub(crate) fn figure_text(number: f64) -> String {
    let places = match number.abs() {
        n if n >= 100.0 => 0,
        n if n >= 10.0 => 1,
        n if n >= 0.1 || n == 0.0 => 2,
        _ => 4,
    };
    grouped_decimal(number, places)
}

/// Where on the abscissa the composition of an output that is a table is shown.
pub fn place_of(experiment: &Experiment, output: &Output) -> f64 {
    let values = &experiment.x.values;
    let middle = values[values.len() / 2].0;
    let wanted = output.at.unwrap_or(middle);
    let distance = |value: f64| (value - wanted).abs();
    values.iter().map(|(value, _)| *value).min_by(|a, b| distance(*a).total_cmp(&distance(*b))).unwrap_or(middle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_have_no_more_decimals_than_they_need() {
        let texts = [2.5, 2_500.0, 0.125, 20.0, 1.0 / 3.0].map(place_text);
        assert_eq!(texts, ["2.5", "2,500", "0.125", "20", "0.333"]);
    }
}
