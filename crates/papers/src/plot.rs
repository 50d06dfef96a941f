//! Plots of experiments, as SVG.

use crate::experiment::{Experiment, Output};
use crate::outcome::Trial;
use base::units::grouped_decimal;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// The size of a plot with its legend, in pixels.
const WIDTH: u32 = 980;
const HEIGHT: u32 = 420;
/// Where the legend begins.
const LEGEND: u32 = 640;

/// Colours that people who see few colours tell apart (Okabe and Ito 2008), without the lightest.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(90, 90, 90),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Drawing into a string cannot fail.
const DRAWN: &str = "a string takes everything";

/// The plot of one output: a line for each curve, or stacked bars if the output is a table. `None` if no run has it.
pub fn svg(trial: &Trial, output: &Output) -> Option<String> {
    if trial.outcomes.iter().any(|outcome| !outcome.table(&output.path).is_empty()) {
        return bars(trial, output);
    }
    lines(trial, output)
}

/// One place of a curve.
struct Dot {
    x: f64,
    y: f64,
    half_width: f64,
}

struct Curve {
    name: String,
    dots: Vec<Dot>,
    /// Where the arrivals were more than a station could serve, and which.
    saturated: Option<(f64, String)>,
}

fn curve(trial: &Trial, output: &Output, number: usize) -> Curve {
    let mut curve = Curve { name: trial.experiment.lines[number].clone(), dots: Vec::new(), saturated: None };
    for (x, outcome) in trial.along(number) {
        if let Some(station) = &outcome.saturated {
            curve.saturated.get_or_insert((x, station.clone()));
        } else if let Some(estimate) = outcome.estimate(&output.path).map(|estimate| estimate * output.factor) {
            curve.dots.push(Dot { x, y: estimate.mean, half_width: estimate.half_width.unwrap_or(0.0) });
        }
    }
    curve
}

fn lines(trial: &Trial, output: &Output) -> Option<String> {
    let experiment = &trial.experiment;
    let curves: Vec<Curve> = (0..experiment.lines.len()).map(|number| curve(trial, output, number)).collect();
    let highest = curves.iter().flat_map(|curve| &curve.dots).map(|dot| dot.y + dot.half_width).fold(0.0, f64::max);
    if curves.iter().all(|curve| curve.dots.is_empty() && curve.saturated.is_none()) {
        return None;
    }
    let top = output.y_max.unwrap_or(if highest > 0.0 { highest * 1.06 } else { 1.0 });
    let widest = experiment.x.values.iter().map(|(x, _)| *x).fold(f64::MIN, f64::max);
    let lowest = if experiment.x.named { -0.5 } else { 0.0 };
    let right = if experiment.x.named { widest + 0.5 } else { widest * 1.03 };
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, (WIDTH, HEIGHT)).into_drawing_area();
        let (left, _) = root.split_horizontally(LEGEND);
        let mut chart = ChartBuilder::on(&left)
            .margin(14)
            .x_label_area_size(48)
            .y_label_area_size(66)
            .build_cartesian_2d(lowest..right, 0.0..top)
            .expect(DRAWN);
        let label = |x: &f64| label_of(experiment, *x);
        let number = |y: &f64| axis_number(*y, top);
        chart
            .configure_mesh()
            .x_desc(experiment.x.name.as_str())
            .y_desc(output.label.as_str())
            .x_labels(if experiment.x.named { experiment.x.values.len() * 2 + 1 } else { 9 })
            .x_label_formatter(&label)
            .y_label_formatter(&number)
            .light_line_style(TRANSPARENT)
            .bold_line_style(RGBColor(225, 225, 225))
            .axis_style(RGBColor(120, 120, 120))
            .label_style(("sans-serif", 14))
            .axis_desc_style(("sans-serif", 15))
            .draw()
            .expect(DRAWN);
        for (number, curve) in curves.iter().enumerate() {
            let colour = colour(number);
            for piece in clipped(curve, top) {
                chart.draw_series(LineSeries::new(piece, colour.stroke_width(2))).expect(DRAWN);
            }
            let shown: Vec<&Dot> = curve.dots.iter().filter(|dot| dot.y <= top).collect();
            chart
                .draw_series(shown.iter().filter(|dot| dot.half_width > 0.0).map(|dot| {
                    let [low, high] = [dot.y - dot.half_width, dot.y + dot.half_width];
                    PathElement::new(vec![(dot.x, low.max(0.0)), (dot.x, high.min(top))], colour.stroke_width(1))
                }))
                .expect(DRAWN);
            chart.draw_series(shown.iter().map(|dot| marker((dot.x, dot.y), number))).expect(DRAWN);
            if let Some((x, _)) = &curve.saturated {
                let cross = Cross::new((*x, top * 0.975), 6, colour.stroke_width(3));
                chart.draw_series(std::iter::once(cross)).expect(DRAWN);
            }
        }
        legend(&root, &curves, experiment);
        root.present().expect(DRAWN);
    }
    Some(accessible(text, &format!("{}: {}", experiment.title, output.label)))
}

/// The pieces of the curve below the upper end of the axis, which it may cross between two dots on its way up and down.
fn clipped(curve: &Curve, top: f64) -> Vec<Vec<(f64, f64)>> {
    let mut pieces: Vec<Vec<(f64, f64)>> = Vec::new();
    for pair in curve.dots.windows(2) {
        let [from, to] = pair else { unreachable!("windows of two") };
        if from.y > top && to.y > top {
            continue;
        }
        let crossing = from.x + (top - from.y) / (to.y - from.y) * (to.x - from.x);
        let inside = |dot: &Dot| if dot.y <= top { (dot.x, dot.y) } else { (crossing, top) };
        match pieces.last_mut().filter(|_| from.y <= top) {
            Some(piece) if piece.last() == Some(&inside(from)) => piece.push(inside(to)),
            _ => pieces.push(vec![inside(from), inside(to)]),
        }
    }
    pieces
}

fn colour(number: usize) -> RGBColor {
    COLOURS[number % COLOURS.len()]
}

/// A curve's mark: full, or hollow where the colours begin again.
fn marker<C>(at: C, number: usize) -> Circle<C, i32> {
    let colour = colour(number);
    Circle::new(at, 4, if number < COLOURS.len() { colour.filled() } else { colour.stroke_width(2) })
}

fn legend(root: &Area<'_>, curves: &[Curve], experiment: &Experiment) {
    let mut y = 24;
    let left = LEGEND as i32 + 8;
    for (number, curve) in curves.iter().enumerate() {
        let colour = colour(number);
        let name = if curve.name.is_empty() { experiment.title.clone() } else { curve.name.clone() };
        root.draw(&PathElement::new(vec![(left, y), (left + 26, y)], colour.stroke_width(2))).expect(DRAWN);
        root.draw(&marker((left + 13, y), number)).expect(DRAWN);
        for line in broken(&name, 40) {
            write(root, &line, (left + 34, y), 14, BLACK, HPos::Left);
            y += 17;
        }
        if let Some((x, station)) = &curve.saturated {
            let note = format!("× from {}: {station} saturated", label_of(experiment, *x));
            for line in broken(&note, 46) {
                write(root, &line, (left + 34, y), 12, RGBColor(90, 90, 90), HPos::Left);
                y += 15;
            }
        }
        y += 7;
    }
}

fn write(root: &Area<'_>, text: &str, at: (i32, i32), size: i32, colour: RGBColor, side: HPos) {
    let style = ("sans-serif", size).into_text_style(root).color(&colour).pos(Pos::new(side, VPos::Center));
    root.draw(&Text::new(text.to_owned(), at, style)).expect(DRAWN);
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

fn label_of(experiment: &Experiment, x: f64) -> String {
    let named = experiment.x.values.iter().find(|(value, _)| (value - x).abs() < 1e-9);
    match named {
        Some((_, label)) => label.clone(),
        None if experiment.x.named => String::new(),
        None => grouped_decimal(x, if x.fract() == 0.0 { 0 } else { 2 }),
    }
}

fn axis_number(number: f64, top: f64) -> String {
    let places = match top {
        t if t >= 10.0 => 0,
        t if t >= 1.0 => 1,
        _ => 3,
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

/// A bar for each curve, of the parts of the output's table.
fn bars(trial: &Trial, output: &Output) -> Option<String> {
    let experiment = &trial.experiment;
    let x = place_of(experiment, output);
    let mut rows = Vec::new();
    for (number, name) in experiment.lines.iter().enumerate() {
        let found = trial.along(number).find(|(place, outcome)| *place == x && outcome.is_steady());
        if let Some((_, outcome)) = found {
            rows.push((name.clone(), outcome.table(&output.path)));
        }
    }
    let names: Vec<String> = rows.first()?.1.iter().map(|(name, _)| name.clone()).collect();
    let sum = |row: &(String, Vec<(String, crate::Estimate)>)| row.1.iter().map(|(_, part)| part.mean).sum::<f64>();
    let longest = rows.iter().map(sum).fold(0.0, f64::max) * output.factor;
    if longest <= 0.0 {
        return None;
    }
    const LEFT: i32 = 250;
    const RIGHT: i32 = 60;
    let height = 84 + 34 * rows.len() as u32;
    let scale = (WIDTH as i32 - LEFT - RIGHT) as f64 / longest;
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, (WIDTH, height)).into_drawing_area();
        let at = format!("{}, {}: {}", output.label, experiment.x.name, label_of(experiment, x));
        write(&root, &at, (LEFT, 16), 15, BLACK, HPos::Left);
        let mut left = LEFT;
        for (number, name) in names.iter().enumerate() {
            root.draw(&Rectangle::new([(left, 36), (left + 14, 50)], colour(number).filled())).expect(DRAWN);
            write(&root, &name.replace('_', " "), (left + 20, 43), 14, BLACK, HPos::Left);
            left += 44 + 8 * name.len() as i32;
        }
        for (index, (name, parts)) in rows.iter().enumerate() {
            let y = 68 + 34 * index as i32;
            let label = broken(name, 36);
            for (line, text) in label.iter().enumerate() {
                let offset = 14 * line as i32 - 7 * (label.len() as i32 - 1);
                write(&root, text, (LEFT - 10, y + 11 + offset), 13, BLACK, HPos::Right);
            }
            let mut from = 0.0;
            for (number, (_, part)) in parts.iter().enumerate() {
                let to = from + part.mean.max(0.0) * output.factor;
                let [begin, end] = [from, to].map(|value| LEFT + (value * scale) as i32);
                root.draw(&Rectangle::new([(begin, y), (end, y + 22)], colour(number).filled())).expect(DRAWN);
                from = to;
            }
            let total = grouped_decimal(from, if from >= 100.0 { 0 } else { 1 });
            write(&root, &total, (LEFT + (from * scale) as i32 + 8, y + 11), 13, BLACK, HPos::Left);
        }
        root.present().expect(DRAWN);
    }
    Some(accessible(text, &format!("{}: {}", experiment.title, output.label)))
}

/// With a name for who cannot see it, and as wide as the page permits.
fn accessible(svg: String, name: &str) -> String {
    let name = name.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;");
    svg.replacen("<svg ", &format!("<svg role=\"img\" aria-label=\"{name}\" "), 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_is_cut_where_it_leaves_the_plot_and_comes_back() {
        let pieces = |ys: &[f64]| {
            let dots = ys.iter().zip(0_u8..).map(|(y, x)| Dot { x: x.into(), y: *y, half_width: 0.0 }).collect();
            clipped(&Curve { name: String::new(), dots, saturated: None }, 10.0)
        };
        assert_eq!(pieces(&[0.0, 5.0, 10.0]), [[(0.0, 0.0), (1.0, 5.0), (2.0, 10.0)]]);
        assert_eq!(pieces(&[5.0, 15.0, 20.0]), [[(0.0, 5.0), (0.5, 10.0)]]);
        assert_eq!(pieces(&[20.0, 15.0, 5.0, 6.0]), [[(1.5, 10.0), (2.0, 5.0), (3.0, 6.0)]]);
        assert_eq!(pieces(&[0.0, 20.0, 0.0]), [[(0.0, 0.0), (0.5, 10.0)], [(1.5, 10.0), (2.0, 0.0)]]);
        assert!(pieces(&[20.0, 30.0]).is_empty() && pieces(&[1.0]).is_empty());
    }
}
