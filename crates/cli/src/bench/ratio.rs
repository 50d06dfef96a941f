//! Ratios of runs to others, over several rounds: machines are noisy.

use serde::Serialize;

/// A ratio over the rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Ratio {
    /// The median.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

impl Ratio {
    /// Of runs, each with the one that it is held against.
    pub fn of<F>(runs: &[(&F, &F)], figure: fn(&F) -> f64) -> Ratio {
        let ratios = runs.iter().map(|(run, without)| figure(run) / figure(without).max(1e-9));
        let min = ratios.clone().fold(f64::INFINITY, f64::min);
        Ratio { median: median(ratios.clone()), min, max: ratios.fold(0.0, f64::max) }
    }

    /// For people: the median, and from where to where.
    pub fn cells(self) -> [String; 2] {
        [format!("{:.2}", self.median), format!("{:.2}..{:.2}", self.min, self.max)]
    }
}

/// The middle one, of an even number the mean of the two.
pub fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    match figures.len() {
        0 => 0.0,
        count => (figures[(count - 1) / 2] + figures[count / 2]) / 2.0,
    }
}
