//! Plots of pairs of figures that no experiment's abscissa orders: lines, stairs and marks, with limits beside them.

use super::scale::Scale;
use super::svg::{Anchor, Shape};
use super::{HEIGHT, MARGINS, WIDTH, framed, legend, place_class};

/// How a set of pairs is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairStyle {
    /// A line from each to the next.
    Line,
    /// Marks, with stairs from each to the next: what is reached at a place holds up to the next one.
    Stairs,
    /// Marks alone.
    Marks,
}

/// A set of pairs.
#[derive(Clone, Debug, PartialEq)]
pub struct Pairs {
    /// Its name.
    pub name: String,
    /// How it is drawn.
    pub style: PairStyle,
    /// The pairs, each with what it says when it is pointed at.
    pub points: Vec<([f64; 2], String)>,
}

/// One axis of such a plot.
#[derive(Clone, Debug, PartialEq)]
pub struct PairAxis {
    /// What it shows, with the unit.
    pub name: String,
    /// Whether equal ratios take equal room; values that are not above zero are left out then.
    pub is_logarithmic: bool,
    /// A value that must not be exceeded, drawn across the plot, with what it is called.
    pub limit: Option<(f64, String)>,
}

/// The plot with its legend, as HTML. `None` if there is nothing to be seen.
pub fn pairs(title: &str, axes: [&PairAxis; 2], sets: &[Pairs]) -> Option<String> {
    let is_seen =
        |at: &[f64; 2]| (0..2).all(|axis| at[axis].is_finite() && (!axes[axis].is_logarithmic || at[axis] > 0.0));
    let seen: Vec<[f64; 2]> =
        sets.iter().flat_map(|set| &set.points).map(|(at, _)| *at).filter(|at| is_seen(at)).collect();
    let [left, right, above, below] = MARGINS;
    let x = scale(axes[0], seen.iter().map(|at| at[0]), [left + 10.0, WIDTH - right - 10.0])?;
    let y = scale(axes[1], seen.iter().map(|at| at[1]), [HEIGHT - below, above])?;
    let mut svg = framed(&x, &y, [&axes[0].name, &axes[1].name]);
    if let Some((value, name)) = &axes[1].limit {
        svg.line("axis", [left, y.at(*value)], [WIDTH - right, y.at(*value)]);
        svg.text("tick", [WIDTH - right - 4.0, y.at(*value) - 9.0], Anchor::End, name);
    }
    if let Some((value, name)) = &axes[0].limit {
        svg.line("axis", [x.at(*value), above], [x.at(*value), HEIGHT - below]);
        svg.text("tick", [x.at(*value) + 4.0, above + 9.0], Anchor::Start, name);
    }
    // What is drawn first lies below: the sets that matter most stand first.
    for (number, set) in sets.iter().enumerate().rev() {
        let class = place_class(number);
        let shown: Vec<([f64; 2], &str)> = set
            .points
            .iter()
            .filter(|(at, _)| is_seen(at))
            .map(|(at, tip)| ([x.at(at[0]), y.at(at[1])], tip.as_str()))
            .collect();
        let places: Vec<[f64; 2]> = shown.iter().map(|(at, _)| *at).collect();
        match set.style {
            PairStyle::Line => svg.polyline(&format!("curve {class}"), &places),
            PairStyle::Stairs => svg.polyline(&format!("curve {class}"), &stairs(&places)),
            PairStyle::Marks => {}
        }
        let shape = Shape::CURVES[number % Shape::CURVES.len()];
        shown.iter().for_each(|(at, tip)| svg.mark(&format!("mark {class}"), shape, *at, tip));
    }
    let names = sets.iter().map(|set| (set.name.clone(), None));
    Some(svg.finish(title) + &legend(names, false))
}

/// A scale on which all values and the limit of its axis have a place.
fn scale(axis: &PairAxis, values: impl Iterator<Item = f64>, pixels: [f64; 2]) -> Option<Scale> {
    let limit = axis.limit.iter().map(|(value, _)| *value).filter(|value| !axis.is_logarithmic || *value > 0.0);
    let values: Vec<f64> = values.collect();
    if values.is_empty() {
        return None;
    }
    let all = values.into_iter().chain(limit);
    let (low, high) =
        all.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
    let values = match axis.is_logarithmic {
        true => [low / 1.2, high * 1.2],
        false if high > low.min(0.0) => [low.min(0.0), high * 1.06],
        false => [low, low + 1.0],
    };
    Some(Scale { values, pixels, is_logarithmic: axis.is_logarithmic })
}

/// From place to place, first along the abscissa and then to the height of the next.
fn stairs(places: &[[f64; 2]]) -> Vec<[f64; 2]> {
    let steps = places.windows(2).flat_map(|pair| [[pair[1][0], pair[0][1]], pair[1]]);
    places.first().copied().into_iter().chain(steps).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(name: &str, is_logarithmic: bool) -> PairAxis {
        PairAxis { name: name.to_owned(), is_logarithmic, limit: None }
    }

    #[test]
    fn pairs_and_limits_are_shown() {
        let points = [(120.0, 9.0), (200.0, 3.0)].map(|(x, y)| ([x, y], format!("{x} buys {y}"))).to_vec();
        let front = Pairs { name: "front <best>".into(), style: PairStyle::Stairs, points };
        let [cost, time] = [axis("cost per month", false), axis("99 % response time (ms)", true)];
        let time = PairAxis { limit: Some((20.0, "limit 20 ms".into())), ..time };
        let html = pairs("plan", [&cost, &time], std::slice::from_ref(&front)).expect("there are points");
        for part in ["120 buys 9", "200 buys 3", "cost per month", "limit 20 ms", "front &lt;best&gt;"] {
            assert!(html.contains(part), "{part} in {html}");
        }
        let zero = Pairs { points: vec![([5.0, 0.0], String::new())], ..front };
        assert_eq!(pairs("plan", [&cost, &time], std::slice::from_ref(&zero)), None, "zero has no logarithm");
        assert!(pairs("plan", [&cost, &cost], &[zero]).is_some());
    }

    #[test]
    fn stairs_keep_what_is_reached_up_to_the_next_place() {
        assert_eq!(stairs(&[[1.0, 5.0], [3.0, 2.0]]), [[1.0, 5.0], [3.0, 5.0], [3.0, 2.0]]);
        assert!(stairs(&[]).is_empty());
    }
}
