//! Curves of a model with what was measured beside them, as hollow marks.

use super::scale::Scale;
use super::svg::Shape;
use super::{HEIGHT, MARGINS, WIDTH, figure_text, framed, legend, place_class, place_text};

/// One curve of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct FittedCurve {
    /// Its name.
    pub name: String,
    /// What the model says: places and values, by place.
    pub fitted: Vec<[f64; 2]>,
    /// What was measured.
    pub measured: Vec<[f64; 2]>,
}

/// The curves with their legend, as HTML; both scales are logarithmic. `None` if there is nothing to be seen.
pub fn fitted_curves(title: &str, [x_name, y_name]: [&str; 2], curves: &[FittedCurve]) -> Option<String> {
    let points = || curves.iter().flat_map(|curve| curve.fitted.iter().chain(&curve.measured));
    let ends = |axis: usize| {
        let values = points().map(|point| point[axis]).filter(|value| *value > 0.0);
        let [low, high] = [f64::min, f64::max].map(|pick| values.clone().reduce(pick));
        Some([low? / 1.2, high? * 1.2])
    };
    let [left, right, above, below] = MARGINS;
    let x = Scale { values: ends(0)?, pixels: [left, WIDTH - right], is_logarithmic: true };
    let y = Scale { values: ends(1)?, pixels: [HEIGHT - below, above], is_logarithmic: true };
    let mut svg = framed(&x, &y, [x_name, y_name]);
    for (number, curve) in curves.iter().enumerate() {
        let at = |[place, value]: &[f64; 2]| [x.at(*place), y.at(*value)];
        let class = place_class(number);
        svg.polyline(&format!("curve {class}"), &curve.fitted.iter().map(at).collect::<Vec<_>>());
        for (points, kind, shape, word) in
            [(&curve.fitted, "mark", Shape::Circle, "fitted"), (&curve.measured, "paper", Shape::Diamond, "measured")]
        {
            for point in points {
                let tip = format!("{}, {}: {} {word}", curve.name, place_text(point[0]), figure_text(point[1]));
                svg.mark(&format!("{kind} {class}"), shape, at(point), &tip);
            }
        }
    }
    let names = curves.iter().map(|curve| (curve.name.clone(), None));
    Some(svg.finish(title) + &legend(names, false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_has_its_mark() {
        let curve = FittedCurve {
            name: "8 writes".into(),
            fitted: vec![[1.0, 50.0], [8.0, 120.0]],
            measured: vec![[1.0, 52.0], [8.0, 110.0]],
        };
        let html =
            fitted_curves("reads", ["reads under way", "us"], std::slice::from_ref(&curve)).expect("there are values");
        for tip in ["8 writes, 1: 50.0 fitted", "8 writes, 8: 110 measured", "reads under way"] {
            assert!(html.contains(tip), "{tip} in {html}");
        }
        let empty = FittedCurve { fitted: vec![], measured: vec![], ..curve };
        assert_eq!(fitted_curves("reads", ["", ""], &[empty]), None);
    }
}
