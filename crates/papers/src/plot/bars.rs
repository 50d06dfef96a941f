//! Bars: of categories, and of what a figure consists of.

use super::scale::Scale;
use super::svg::{Anchor, Shape, Svg};
use super::{Curve, Dot, WIDTH, broken, figure_text, label_of, place_class};
use crate::Estimate;
use crate::experiment::{Experiment, Output};

/// Where bars begin and end, in pixels.
const LEFT: f64 = 250.0;
const RIGHT: f64 = WIDTH - 70.0;
/// The height of a bar and the room that it takes.
const BAR: f64 = 15.0;
const ROW: f64 = 20.0;
/// The room between two groups of bars.
const GAP: f64 = 16.0;
/// How many characters fit beside a bar, and how many small ones.
const NAME: usize = 30;
const SMALL_NAME: usize = 40;
/// How many characters stand beside each other above bars.
const HEADING: usize = 76;

/// A bar for each curve at each category.
pub(super) fn categories(experiment: &Experiment, output: &Output, curves: &[Curve]) -> String {
    let places = &experiment.x.values;
    let is_alone = curves.len() == 1;
    let group = if is_alone { ROW } else { ROW * curves.len() as f64 + GAP };
    let heading = if is_alone { 0.0 } else { ROW };
    let below = if is_alone { 0.0 } else { GAP };
    let height = 30.0 + (group + heading) * places.len() as f64 - below;
    let highest = curves.iter().flat_map(|curve| &curve.dots).map(|dot| dot.y + dot.half_width);
    let highest = highest.chain(output.marks.iter().map(|mark| mark.y)).fold(0.0, f64::max);
    let all = if highest > 0.0 { highest } else { 1.0 };
    let top = output.y_max.map_or(all, |end| end.min(all));
    let scale = Scale { values: [0.0, top], pixels: [LEFT, RIGHT], is_logarithmic: false };
    let mut svg = Svg::new(WIDTH, height);
    svg.text("name", [LEFT, 12.0], Anchor::Start, &output.label);
    let mut y = 34.0;
    for (x, label) in places {
        let label = &if experiment.x.named { label.clone() } else { format!("{}: {label}", experiment.x.name) };
        if !is_alone {
            // What is too long for the room beside bars begins at the edge: no bar is in its row.
            let (anchor, at) =
                if label.chars().count() > NAME { (Anchor::Start, 0.0) } else { (Anchor::End, LEFT - 10.0) };
            svg.text("group", [at, y], anchor, label);
            y += ROW;
        }
        for (number, curve) in curves.iter().enumerate() {
            let name = if is_alone { label } else { &curve.name };
            row_label(&mut svg, name, y);
            let dot = curve.dots.iter().find(|dot| dot.x == *x);
            let tip = format!("{}, {label}", curve.name);
            let marks: Vec<_> = output.marks.iter().filter(|mark| mark.line == curve.line && mark.x == *x).collect();
            let marked: Vec<f64> = marks.iter().map(|mark| scale.at(mark.y.min(top))).collect();
            match dot {
                Some(dot) => bar(&mut svg, &scale, number, dot, (y, &marked, &tip)),
                None => svg.text("tick", [LEFT + 6.0, y], Anchor::Start, missing(curve, *x)),
            }
            for mark in marks {
                let tip = format!("{tip}: {} in the paper ({})", figure_text(mark.y), mark.source);
                let at = [scale.at(mark.y.min(top)), y];
                svg.mark("paper beside", Shape::Diamond, at, &tip);
            }
            y += ROW;
        }
        y += if is_alone { 0.0 } else { GAP };
    }
    svg.finish(&format!("{}: {}", experiment.title, output.label))
}

fn missing(curve: &Curve, x: f64) -> &'static str {
    if curve.saturated.as_ref().is_some_and(|(from, _)| *from <= x) { "saturated" } else { "no run" }
}

/// One bar at `y`, whose value is written behind it, or behind those of the paper's marks at `marked` that are in the way.
fn bar(svg: &mut Svg, scale: &Scale, number: usize, dot: &Dot, (y, marked, what): (f64, &[f64], &str)) {
    let interval = if dot.half_width > 0.0 { format!(" ± {}", figure_text(dot.half_width)) } else { String::new() };
    let top = scale.values[1];
    let end = scale.at(dot.y.min(top));
    let tip = format!("{what}: {}{interval}", figure_text(dot.y));
    svg.bar(&format!("fill {}", place_class(number)), [LEFT, y - BAR / 2.0], [(end - LEFT).max(0.5), BAR], &tip);
    let [low, high] = [dot.y - dot.half_width, dot.y + dot.half_width].map(|value| scale.at(value.clamp(0.0, top)));
    if dot.half_width > 0.0 {
        svg.line("whisker", [low, y], [high, y]);
    }
    let beyond = if dot.y > top { " →" } else { "" };
    let value = format!("{}{beyond}", figure_text(dot.y));
    let (mut from, width) = (high.max(end) + 8.0, 8.0 * value.chars().count() as f64);
    for mark in marked {
        if (from - 6.0..=from + width + 6.0).contains(mark) {
            from = mark + 14.0;
        }
    }
    svg.text("value", [from, y], Anchor::Start, &value);
}

fn row_label(svg: &mut Svg, name: &str, y: f64) {
    let is_long = name.chars().count() > NAME;
    let lines = broken(name, if is_long { SMALL_NAME } else { NAME });
    let class = if is_long { "row small" } else { "row" };
    for (index, line) in lines.iter().enumerate() {
        let offset = 10.0 * index as f64 - 5.0 * (lines.len() - 1) as f64;
        svg.text(class, [LEFT - 10.0, y + offset], Anchor::End, line);
    }
}

/// What a bar consists of: the name of a curve, and its parts.
pub(super) type Parts = (String, Vec<(String, Estimate)>);

/// A bar for each curve, of the parts of a figure where the abscissa is `x`.
pub(super) fn composition(experiment: &Experiment, output: &Output, rows: &[Parts], x: f64) -> Option<String> {
    let sum = |(_, parts): &Parts| parts.iter().map(|(_, part)| part.mean.max(0.0)).sum::<f64>();
    let longest = rows.iter().map(sum).fold(0.0, f64::max) * output.factor;
    if longest <= 0.0 {
        return None;
    }
    const HIGH: f64 = 28.0;
    let scale = Scale { values: [0.0, longest], pixels: [LEFT, RIGHT], is_logarithmic: false };
    let heading = broken(&format!("{}, {}: {}", output.label, experiment.x.name, label_of(experiment, x)), HEADING);
    let below = 18.0 * heading.len() as f64;
    let mut svg = Svg::new(WIDTH, below + 18.0 + HIGH * rows.len() as f64);
    for (index, line) in heading.iter().enumerate() {
        svg.text("name", [LEFT, 12.0 + 18.0 * index as f64], Anchor::Start, line);
    }
    for (index, (name, parts)) in rows.iter().enumerate() {
        let y = below + 22.0 + HIGH * index as f64;
        row_label(&mut svg, name, y);
        let mut from = 0.0;
        for (number, (part, figure)) in parts.iter().enumerate() {
            let length = figure.mean.max(0.0) * output.factor;
            let [begin, end] = [from, from + length].map(|value| scale.at(value));
            let tip = format!("{name}: {} {}", part.replace('_', " "), figure_text(length));
            if length > 0.0 {
                svg.bar(&format!("fill {}", place_class(number)), [begin, y - 10.0], [end - begin, 20.0], &tip);
            }
            from += length;
        }
        svg.text("value", [scale.at(from) + 8.0, y], Anchor::Start, &figure_text(from));
    }
    Some(svg.finish(&format!("{}: {}", experiment.title, output.label)))
}
