//! What queueing theory says, for simulations to be held against.

/// The mean response of M/M/c in units of the service time (Erlang's C formula), at a utilization `load` below 1.
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
