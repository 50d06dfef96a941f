/// A mean with the half width of its 90 % confidence interval, both in the unit of the observations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The mean of all observations.
    pub mean: f64,
    /// Half the width of the 90 % confidence interval; infinite if fewer than two batches are complete.
    pub half_width: f64,
}

impl Interval {
    /// The interval that independent observations of equal weight give their mean (Student 1908).
    pub fn of_means(means: &[f64]) -> Interval {
        let count = means.len();
        let mean = means.iter().sum::<f64>() / count.max(1) as f64;
        if count < 2 {
            return Interval { mean, half_width: f64::INFINITY };
        }
        let variance = means.iter().map(|m| (m - mean).powi(2)).sum::<f64>() / (count - 1) as f64;
        Interval { mean, half_width: student_t_95(count - 1) * (variance / count as f64).sqrt() }
    }
}

/// The method of batch means (Law and Carson 1979) with a fixed number of batches: when all are full, neighbours are joined
/// and the batch size doubles, so that the number of batches stays between [`BatchMeans::BATCHES`] / 2 and
/// [`BatchMeans::BATCHES`], whatever the length of the run.
///
/// ```
/// use entresol_base::Random;
/// use entresol_base::statistics::BatchMeans;
///
/// let (mut random, mut means) = (Random::stream(1, "responses"), BatchMeans::new());
/// (0..10_000).for_each(|_| means.record(random.exponential(5.0)));
/// let interval = means.interval();
/// assert!((interval.mean - 5.0).abs() < 3.0 * interval.half_width && interval.half_width < 0.2);
/// ```
#[derive(Clone, Debug)]
pub struct BatchMeans {
    batch_size: u64,
    sums: Vec<f64>,
    current_sum: f64,
    current_count: u64,
}

impl Default for BatchMeans {
    fn default() -> BatchMeans {
        BatchMeans::new()
    }
}

impl BatchMeans {
    /// The largest number of batches kept.
    pub const BATCHES: usize = 40;

    /// No observations yet.
    pub fn new() -> BatchMeans {
        BatchMeans { batch_size: 16, sums: Vec::with_capacity(Self::BATCHES), current_sum: 0.0, current_count: 0 }
    }

    /// Adds one observation.
    pub fn record(&mut self, observation: f64) {
        self.current_sum += observation;
        self.current_count += 1;
        if self.current_count < self.batch_size {
            return;
        }
        self.sums.push(std::mem::take(&mut self.current_sum));
        self.current_count = 0;
        if self.sums.len() == Self::BATCHES {
            self.sums = self.sums.chunks(2).map(|pair| pair.iter().sum()).collect();
            self.batch_size *= 2;
        }
    }

    /// How many observations were made.
    pub fn count(&self) -> u64 {
        self.sums.len() as u64 * self.batch_size + self.current_count
    }

    /// The mean of all observations and the interval that the complete batches give it.
    pub fn interval(&self) -> Interval {
        let count = self.count();
        if count == 0 {
            return Interval { mean: 0.0, half_width: f64::INFINITY };
        }
        let mean = (self.sums.iter().sum::<f64>() + self.current_sum) / count as f64;
        let means: Vec<f64> = self.sums.iter().map(|sum| sum / self.batch_size as f64).collect();
        Interval { mean, ..Interval::of_means(&means) }
    }
}

/// The 95 % quantile of Student's t with the given degrees of freedom, which bounds a two-sided 90 % interval
/// (Abramowitz and Stegun, table 26.10).
fn student_t_95(degrees: usize) -> f64 {
    const TABLE: [f64; 30] = [
        6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771, 1.761, 1.753, 1.746,
        1.740, 1.734, 1.729, 1.725, 1.721, 1.717, 1.714, 1.711, 1.708, 1.706, 1.703, 1.701, 1.699, 1.697,
    ];
    TABLE.get(degrees.max(1) - 1).copied().unwrap_or(1.684)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;

    #[test]
    fn interval_covers_the_true_mean_about_nine_times_in_ten() {
        let mut covered = 0;
        for seed in 0..400 {
            let mut random = Random::stream(seed, "batch means");
            let mut means = BatchMeans::new();
            for _ in 0..5_000 {
                means.record(random.exponential(1.0));
            }
            let interval = means.interval();
            covered += u32::from((interval.mean - 1.0).abs() <= interval.half_width);
        }
        assert!((340..=380).contains(&covered), "{covered} of 400");
    }
}
