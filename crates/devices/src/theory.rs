//! What queueing theory says, for simulations to be held against.

/// The mean response of M/M/c in units of the service time (Erlang's C formula), at a utilization `load` below 1.
///
/// ```
/// use entresol_devices::theory::mmc_response;
///
/// assert!((mmc_response(1, 0.5) - 2.0).abs() < 1e-12, "M/M/1: 1 / (1 - load)");
/// assert!(mmc_response(4, 0.5) < 1.1, "four servers rarely make anyone wait");
/// ```
pub fn mmc_response(servers: u32, load: f64) -> f64 {
    let offered = f64::from(servers) * load;
    let mut term = 1.0;
    let mut sum = 0.0;
    for k in 0..servers {
        sum += term;
        term *= offered / f64::from(k + 1);
    }
    let waiting = term / (1.0 - load);
    1.0 + waiting / (sum + waiting) / (f64::from(servers) * (1.0 - load))
}
