//! Least squares with coefficients that are not negative (Lawson and Hanson 1974 state the problem; solved here by coordinate
//! descent, which converges because the problem is convex).

/// The `x` that are not negative and bring `rows * x` nearest to `right`.
pub fn nonnegative(rows: &[Vec<f64>], right: &[f64]) -> Vec<f64> {
    let columns = rows.first().map_or(0, Vec::len);
    let product = |a: usize, b: usize| rows.iter().map(|row| row[a] * row[b]).sum::<f64>();
    let squares: Vec<Vec<f64>> = (0..columns).map(|a| (0..columns).map(|b| product(a, b)).collect()).collect();
    let targets: Vec<f64> =
        (0..columns).map(|a| rows.iter().zip(right).map(|(row, right)| row[a] * right).sum()).collect();
    let mut x = vec![0.0; columns];
    for _ in 0..200_000 {
        let mut moved: f64 = 0.0;
        for a in 0..columns {
            if squares[a][a] <= 0.0 {
                continue;
            }
            let rest: f64 = (0..columns).map(|b| squares[a][b] * x[b]).sum();
            let next = (x[a] + (targets[a] - rest) / squares[a][a]).max(0.0);
            moved = moved.max((next - x[a]).abs() / (1.0 + next));
            x[a] = next;
        }
        if moved < 1e-12 {
            break;
        }
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_found_again() {
        let prices = [900.0, 450.0, 2_000.0, 0.0];
        let rows: Vec<Vec<f64>> = [
            [1.0, 1.0, 0.0, 0.0],
            [1.0, 16.0, 0.0, 1.0],
            [1.0, 4.0, 0.5, 2.0],
            [1.0, 8.0, 0.1, 0.0],
            [2.0, 3.0, 1.0, 5.0],
        ]
        .map(Vec::from)
        .into();
        let right: Vec<f64> =
            rows.iter().map(|row| row.iter().zip(prices).map(|(count, price)| count * price).sum()).collect();
        for (found, price) in nonnegative(&rows, &right).into_iter().zip(prices) {
            assert!((found - price).abs() < 1e-3 * (1.0 + price), "{found} for {price}");
        }
    }

    #[test]
    fn nothing_has_a_price_below_zero() {
        let rows = vec![vec![1.0, 1.0], vec![1.0, 2.0], vec![1.0, 3.0]];
        let found = nonnegative(&rows, &[3.0, 2.0, 1.0]);
        assert!(found[0] > 0.0 && found[1] == 0.0, "{found:?}");
        assert_eq!(nonnegative(&[], &[]), Vec::<f64>::new());
    }
}
