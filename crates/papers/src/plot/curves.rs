//! Curves over a numeric abscissa.

use super::scale::Scale;
use super::svg::{Anchor, Shape, Svg};
use super::{Curve, Dot, HEIGHT, MARGINS, WIDTH, broken, figure_text, label_of, place_class};
use crate::experiment::{Experiment, Output};

/// About how many values the ordinate names.
const ROWS: usize = 6;
/// The most characters for which a label beside the picture has room in one line.
const UPRIGHT_MAX: usize = 40;

/// A plot being drawn.
struct Chart<'a> {
    svg: Svg,
    experiment: &'a Experiment,
    output: &'a Output,
    x: Scale,
    y: Scale,
    /// Where values lie beyond the axis, in pixels, and which.
    beyond: Vec<(f64, f64)>,
}

/// The curves of one output, with the paper's values as hollow marks.
pub(super) fn svg(experiment: &Experiment, output: &Output, curves: &[Curve]) -> String {
    let [left, right, above, below] = MARGINS;
    let ends = ends(experiment, output);
    let y = Scale { values: [0.0, top(output, curves)], pixels: [HEIGHT - below, above], is_logarithmic: false };
    let x = Scale { values: ends, pixels: [left + 10.0, WIDTH - right], is_logarithmic: experiment.x.is_logarithmic };
    let mut chart = Chart { svg: Svg::new(WIDTH, HEIGHT), experiment, output, x, y, beyond: Vec::new() };
    chart.axes();
    for (number, curve) in curves.iter().enumerate() {
        chart.curve(number, curve);
    }
    chart.name_beyond();
    for (number, curve) in curves.iter().enumerate() {
        chart.paper(number, curve);
    }
    chart.svg.finish(&format!("{}: {}", experiment.title, output.label))
}

/// The ends of the abscissa. It begins at zero unless it is logarithmic.
fn ends(experiment: &Experiment, output: &Output) -> [f64; 2] {
    let marks = output.marks.iter().map(|mark| mark.x);
    let places: Vec<f64> = experiment.x.values.iter().map(|(x, _)| *x).chain(marks).collect();
    let [low, high] = [f64::min, f64::max].map(|pick| places.iter().copied().reduce(pick).unwrap_or(1.0));
    if experiment.x.is_logarithmic { [low / 1.06, high * 1.06] } else { [low.min(0.0), high * 1.03] }
}

/// The upper end of the ordinate: where the experiment ends it, or below that, if nothing reaches so high.
fn top(output: &Output, curves: &[Curve]) -> f64 {
    let dots = curves.iter().flat_map(|curve| &curve.dots).map(|dot| dot.y + dot.half_width);
    let highest = dots.chain(output.marks.iter().map(|mark| mark.y)).fold(0.0, f64::max);
    let all = if highest > 0.0 { highest * 1.06 } else { 1.0 };
    output.y_max.map_or(all, |end| end.min(all))
}

impl Chart<'_> {
    fn axes(&mut self) {
        let ([bottom, upper], [left, right]) = (self.y.pixels, self.x.pixels);
        let left = left - 10.0;
        for (value, label) in self.y.ticks(ROWS) {
            let y = self.y.at(value);
            self.svg.line("grid", [left, y], [right, y]);
            self.svg.text("tick", [left - 8.0, y], Anchor::End, &label);
        }
        self.svg.line("axis", [left, bottom], [right, bottom]);
        for (value, label) in self.named_places() {
            let x = self.x.at(value);
            self.svg.line("axis", [x, bottom], [x, bottom + 5.0]);
            self.svg.text("tick", [x, bottom + 16.0], Anchor::Middle, &label);
        }
        self.svg.text("name", [(left + right) / 2.0, HEIGHT - 12.0], Anchor::Middle, &self.experiment.x.name);
        let lines = broken(&self.output.label, UPRIGHT_MAX);
        for (index, line) in lines.iter().enumerate() {
            let x = 18.0 + 16.0 * index as f64 - 8.0 * (lines.len() - 1) as f64;
            self.svg.upright("name", [x, (bottom + upper) / 2.0], line);
        }
    }

    /// The places of the abscissa that are named: those of the runs, as far as their labels do not touch, or round values.
    fn named_places(&self) -> Vec<(f64, String)> {
        let values = &self.experiment.x.values;
        if values.len() > 16 {
            return self.x.ticks(8);
        }
        let mut free = f64::NEG_INFINITY;
        let mut named = Vec::new();
        for (value, label) in values {
            let (x, half) = (self.x.at(*value), 3.8 * label.chars().count() as f64 + 5.0);
            if x - half >= free {
                named.push((*value, label.clone()));
                free = x + half;
            }
        }
        named
    }

    fn curve(&mut self, number: usize, curve: &Curve) {
        let top = self.y.values[1];
        for piece in clipped(curve, top) {
            let points: Vec<[f64; 2]> = piece.iter().map(|[x, y]| [self.x.at(*x), self.y.at(*y)]).collect();
            self.svg.polyline(&format!("curve {}", place_class(number)), &points);
        }
        for dot in &curve.dots {
            self.dot(number, curve, dot);
        }
        if let Some((x, station)) = &curve.saturated {
            let tip = format!("{}: from {} on {station} is saturated", curve.name, label_of(self.experiment, *x));
            self.svg.mark(
                &format!("cross {}", place_class(number)),
                Shape::Cross,
                [self.x.at(*x), self.y.pixels[1]],
                &tip,
            );
        }
    }

    fn dot(&mut self, number: usize, curve: &Curve, dot: &Dot) {
        let (x, top) = (self.x.at(dot.x), self.y.values[1]);
        let class = place_class(number);
        let interval =
            if dot.half_width > 0.0 { format!(" ± {}", figure_text(dot.half_width)) } else { String::new() };
        let place = label_of(self.experiment, dot.x);
        let tip = format!("{}, {place}: {}{interval}", curve.name, figure_text(dot.y));
        if dot.y > top {
            self.svg.mark(
                &format!("mark {class}"),
                Shape::Arrow,
                [x, self.y.pixels[1]],
                &format!("{tip} (beyond the axis)"),
            );
            self.beyond.push((x, dot.y));
            return;
        }
        if dot.half_width > 0.0 {
            let [low, high] = [(dot.y - dot.half_width).max(0.0), (dot.y + dot.half_width).min(top)];
            self.svg.line(&format!("interval {class}"), [x, self.y.at(low)], [x, self.y.at(high)]);
        }
        let shape = Shape::CURVES[number % Shape::CURVES.len()];
        self.svg.mark(&format!("mark {class}"), shape, [x, self.y.at(dot.y)], &tip);
    }

    /// Writes the values beyond the axis above it, those together whose texts would touch.
    fn name_beyond(&mut self) {
        let y = self.y.pixels[1] - 14.0;
        let mut beyond = std::mem::take(&mut self.beyond);
        beyond.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.total_cmp(&other.1)));
        let mut written: Option<(f64, String)> = None;
        for (x, value) in beyond {
            let text = figure_text(value);
            written = Some(match written.take() {
                Some((at, before)) if x - at < 4.0 * (before.len() + text.len()) as f64 + 6.0 => {
                    ((at + x) / 2.0, format!("{before}; {text}"))
                }
                before => {
                    if let Some((at, before)) = before {
                        self.svg.text("tick", [at, y], Anchor::Middle, &before);
                    }
                    (x, text)
                }
            });
        }
        if let Some((at, text)) = written {
            self.svg.text("tick", [at, y], Anchor::Middle, &text);
        }
    }

    /// The paper's values of this curve.
    fn paper(&mut self, number: usize, curve: &Curve) {
        for mark in self.output.marks.iter().filter(|mark| mark.line == curve.line) {
            let tip = format!(
                "{}, {}: {} in the paper ({})",
                curve.name,
                label_of(self.experiment, mark.x),
                figure_text(mark.y),
                mark.source
            );
            let y = mark.y.min(self.y.values[1]);
            self.svg.mark(
                &format!("paper {}", place_class(number)),
                Shape::Diamond,
                [self.x.at(mark.x), self.y.at(y)],
                &tip,
            );
        }
    }
}

/// The pieces of the curve below the upper end of the axis, which it may cross between two dots on its way up and down.
fn clipped(curve: &Curve, top: f64) -> Vec<Vec<[f64; 2]>> {
    let mut pieces: Vec<Vec<[f64; 2]>> = Vec::new();
    for pair in curve.dots.windows(2) {
        let [from, to] = pair else { unreachable!("windows of two") };
        if from.y > top && to.y > top {
            continue;
        }
        let crossing = from.x + (top - from.y) / (to.y - from.y) * (to.x - from.x);
        let inside = |dot: &Dot| if dot.y <= top { [dot.x, dot.y] } else { [crossing, top] };
        match pieces.last_mut().filter(|_| from.y <= top) {
            Some(piece) if piece.last() == Some(&inside(from)) => piece.push(inside(to)),
            _ => pieces.push(vec![inside(from), inside(to)]),
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_is_cut_where_it_leaves_the_plot_and_comes_back() {
        let pieces = |ys: &[f64]| {
            let dots = ys.iter().zip(0_u8..).map(|(y, x)| Dot { x: x.into(), y: *y, half_width: 0.0 }).collect();
            clipped(&Curve { line: String::new(), name: String::new(), dots, saturated: None }, 10.0)
        };
        assert_eq!(pieces(&[0.0, 5.0, 10.0]), [[[0.0, 0.0], [1.0, 5.0], [2.0, 10.0]]]);
        assert_eq!(pieces(&[5.0, 15.0, 20.0]), [[[0.0, 5.0], [0.5, 10.0]]]);
        assert_eq!(pieces(&[20.0, 15.0, 5.0, 6.0]), [[[1.5, 10.0], [2.0, 5.0], [3.0, 6.0]]]);
        assert_eq!(pieces(&[0.0, 20.0, 0.0]), [[[0.0, 0.0], [0.5, 10.0]], [[1.5, 10.0], [2.0, 0.0]]]);
        assert!(pieces(&[20.0, 30.0]).is_empty() && pieces(&[1.0]).is_empty());
    }

    #[test]
    fn an_axis_ends_where_it_should_and_no_higher_than_its_curves() {
        let end = |y_max: Option<f64>, y: f64| {
            let dots = vec![Dot { x: 0.0, y, half_width: 1.0 }];
            let curve = Curve { line: String::new(), name: String::new(), dots, saturated: None };
            top(&Output { y_max, ..Output::of("response_us.mean") }, &[curve]).round()
        };
        assert_eq!((end(Some(180.0), 99.0), end(Some(180.0), 999.0), end(None, 999.0)), (106.0, 180.0, 1_060.0));
    }
}
