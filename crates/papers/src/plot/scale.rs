//! Scales: from values to pixels, and the values that an axis names.

use base::units::grouped_decimal;

/// A linear or logarithmic scale.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// The values at both ends.
    pub values: [f64; 2],
    /// Where the ends lie, in pixels.
    pub pixels: [f64; 2],
    /// Whether equal ratios take equal room; both values are positive then.
    pub is_logarithmic: bool,
}

/// From this value on the labels of a linear scale count millions.
const MILLIONS_FROM: f64 = 1e6;

impl Scale {
    /// Where a value lies.
    pub fn at(&self, value: f64) -> f64 {
        let [from, to] = self.values.map(|end| self.position(end));
        let share = if to > from { (self.position(value) - from) / (to - from) } else { 0.5 };
        self.pixels[0] + share * (self.pixels[1] - self.pixels[0])
    }

    fn position(&self, value: f64) -> f64 {
        if self.is_logarithmic { value.ln() } else { value }
    }

    /// The values to name, about `count` of them, each with a label of its own.
    pub fn ticks(&self, count: usize) -> Vec<(f64, String)> {
        if self.is_logarithmic { self.logarithmic_ticks() } else { self.linear_ticks(count) }
    }

    fn linear_ticks(&self, count: usize) -> Vec<(f64, String)> {
        let [low, high] = self.values;
        let step = round_step((high - low) / count.max(1) as f64);
        let places = (-step.log10().floor()).max(0.0) as usize;
        let first = (low / step).ceil() as i64;
        let last = (high / step + 1e-9).floor() as i64;
        let values = (first..=last).map(|number| number as f64 * step);
        // Longer labels would reach into the name of the axis.
        if high >= MILLIONS_FROM {
            let places = (6.0 - step.log10().floor()).max(0.0) as usize;
            return values.map(|value| (value, format!("{} M", grouped_decimal(value / 1e6, places)))).collect();
        }
        values.map(|value| (value, grouped_decimal(value, places))).collect()
    }

    fn logarithmic_ticks(&self) -> Vec<(f64, String)> {
        let [low, high] = self.values;
        let decades = (high / low).log10();
        let factors: &[f64] = if decades > 4.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let exponents = low.log10().floor() as i32..=high.log10().ceil() as i32;
        let all =
            exponents.flat_map(|exponent| factors.iter().map(move |factor| (factor * 10_f64.powi(exponent), exponent)));
        let inside = all.filter(|(value, _)| (low * (1.0 - 1e-9)..=high * (1.0 + 1e-9)).contains(value));
        inside.map(|(value, exponent)| (value, grouped_decimal(value, (-exponent).max(0) as usize))).collect()
    }
}

/// The smallest of 1, 2 and 5 times a power of ten that is not below `step`.
fn round_step(step: f64) -> f64 {
    if step.is_nan() || step <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powi(step.log10().floor() as i32);
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|factor| factor * power >= step * (1.0 - 1e-9)).unwrap_or(10.0);
    factor * power
}

/// Whether values ask for a logarithmic axis: three or more that grow by about the same factor from one to the next.
pub fn grows_by_a_factor(values: &[f64]) -> bool {
    let ratios: Vec<f64> = values.windows(2).map(|pair| pair[1] / pair[0]).collect();
    let [least, most] = [f64::min, f64::max].map(|pick| ratios.iter().copied().reduce(pick).unwrap_or(1.0));
    values.len() >= 3 && values.iter().all(|value| *value > 0.0) && least >= 1.4 && most <= 2.0 * least
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scale(low: f64, high: f64, is_logarithmic: bool) -> Scale {
        Scale { values: [low, high], pixels: [100.0, 300.0], is_logarithmic }
    }

    #[test]
    fn values_lie_where_they_should() {
        assert_eq!(scale(0.0, 10.0, false).at(2.5), 150.0);
        assert!((scale(1.0, 100.0, true).at(10.0) - 200.0).abs() < 1e-9);
        assert_eq!(scale(3.0, 3.0, false).at(3.0), 200.0, "a single value lies in the middle");
    }

    #[test]
    fn no_two_ticks_have_one_label() {
        for high in [0.003, 0.17, 0.9, 1.0, 2.4, 7.0, 40.0, 999.0, 12_345.0, 8e6] {
            for is_logarithmic in [false, true] {
                let low = if is_logarithmic { high / 300.0 } else { 0.0 };
                let ticks = scale(low, high, is_logarithmic).ticks(6);
                assert!(ticks.len() >= 3, "{high}: {ticks:?}");
                assert!(ticks.windows(2).all(|pair| pair[0].1 != pair[1].1), "{high}: {ticks:?}");
                assert!(
                    ticks.iter().all(|(value, _)| (low * 0.999..=high * 1.001).contains(value)),
                    "{high}: {ticks:?}"
                );
            }
        }
        let labels: Vec<String> = scale(0.0, 1.06, false).ticks(6).into_iter().map(|(_, label)| label).collect();
        assert_eq!(labels, ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        let labels: Vec<String> = scale(0.0, 1.1e6, false).ticks(6).into_iter().map(|(_, label)| label).collect();
        assert_eq!(labels, ["0.0 M", "0.2 M", "0.4 M", "0.6 M", "0.8 M", "1.0 M"]);
        let labels: Vec<String> = scale(0.0, 1e7, false).ticks(5).into_iter().map(|(_, label)| label).collect();
        assert_eq!(labels, ["0 M", "2 M", "4 M", "6 M", "8 M", "10 M"]);
    }

    #[test]
    fn sizes_that_double_want_a_logarithmic_axis() {
        assert!(grows_by_a_factor(&[4.0, 8.0, 16.0, 32.0]));
        assert!(grows_by_a_factor(&[200.0, 500.0, 1_000.0, 2_000.0, 5_000.0]));
        assert!(!grows_by_a_factor(&[10.0, 50.0, 100.0, 125.0]));
        assert!(!grows_by_a_factor(&[0.0, 1.0, 2.0, 4.0]) && !grows_by_a_factor(&[1.0, 2.0]));
    }
}
