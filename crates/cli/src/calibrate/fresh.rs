//! What writes to places that were never written take longer than those over written data.

use super::closed_loop::{Mix, ProbeKind, ProbePoint, SHARES, Until};
use super::device::{DeviceMeasured, FRESH_TOGETHER};
use super::fit::{SystemCosts, described, until};
use crate::Failure;
use devices::{Device, Law, Together};

/// The same writes over written data.
pub fn over_written(measured: &DeviceMeasured) -> Option<&ProbePoint> {
    measured.fresh.as_ref().and_then(|fresh| measured.point(&fresh.mix))
}

/// By how much the times of the one are longer than those of the other: about the difference of the means, with the shape that the
/// differences of the quantiles have. None if they are not longer, or unknown.
pub fn law(measured: &DeviceMeasured) -> Result<Option<Law>, Failure> {
    let (Some(fresh), Some(written)) = (&measured.fresh, over_written(measured)) else { return Ok(None) };
    let [fresh, written] = [fresh, written].map(|point| &point.times[ProbeKind::Durable as usize]);
    let mean_ns = fresh.mean_ns - written.mean_ns;
    if mean_ns < 1_000.0 {
        return Ok(None);
    }
    let mut last = 0;
    let longer = fresh.quantiles_ns.iter().zip(written.quantiles_ns).map(|(fresh, written)| {
        last = last.max(fresh.saturating_sub(written));
        last
    });
    let points: Vec<(f64, u64)> = SHARES.into_iter().zip(longer).collect();
    let factor = mean_ns / Law::quantiles(points.clone())?.mean_ns().max(1.0);
    let scaled = points.into_iter().map(|(share, ns)| (share, (ns as f64 * factor) as u64));
    Ok(Some(Law::quantiles(scaled.collect())?))
}

/// By what factor they are longer where several are under way, so that the description shows the same ratio of rates as was measured. None if
/// they are no longer, or unknown.
pub fn together(device: &Device, costs: SystemCosts, measured: &DeviceMeasured) -> Result<Option<Together>, Failure> {
    let Some(both) = measured.fresh_together.filter(|_| device.fresh_write.is_some()) else { return Ok(None) };
    let rate = |point: &ProbePoint| point.per_second(ProbeKind::Write);
    let count = vec![1, FRESH_TOGETHER.depths[1]];
    let of = |factor: f64| Together { count: count.clone(), times: vec![1.0, factor] };
    let shown = |factor: f64| -> Result<f64, Failure> {
        let device = Device { fresh_together: Some(of(factor)), ..device.clone() };
        let mut bench = described(&device, costs, (FRESH_TOGETHER.size, FRESH_TOGETHER.depths[1]), 1)?;
        bench.make_fresh()?;
        let count = Until::Operations(DESCRIBED);
        let fresh = bench.run(FRESH_TOGETHER, count)?;
        bench.rewind();
        Ok(rate(&fresh) / rate(&bench.run(FRESH_TOGETHER, count)?))
    };
    let seen = rate(&both[0]) / rate(&both[1]);
    let (mut low, mut high) = (1.0, FACTOR_MAX);
    if shown(low)? <= seen {
        return Ok(None);
    }
    for _ in 0..HALVINGS {
        let factor = f64::midpoint(low, high);
        if shown(factor)? > seen {
            low = factor;
        } else {
            high = factor;
        }
    }
    Ok(Some(of(high)))
}

/// The described file has room for that.
const DESCRIBED: u64 = 240;
/// The greatest factor, and how often the range of it is halved.
const FACTOR_MAX: f64 = 32.0;
const HALVINGS: usize = 10;

/// What a description shows of such writes.
pub fn show(device: &Device, costs: SystemCosts, mix: &Mix) -> Result<ProbePoint, Failure> {
    let mut bench = described(device, costs, (mix.size, 1), 1)?;
    bench.make_fresh()?;
    Ok(bench.run(*mix, until(mix))?)
}

#[cfg(test)]
mod tests {
    use super::super::fit::{fit, tests::measured_disk};
    use super::*;
    use devices::Hardware;

    #[test]
    fn fresh_places_cost_what_was_measured_and_written_ones_no_more() {
        let mut measured = measured_disk();
        assert_eq!(law(&measured).expect("nothing was measured"), None);
        let plain = fit(&measured, |_, _| ()).expect("it is fitted");
        let mix = Mix { depths: [0, 0, 1, 0], size: super::super::device::PAGE, in_sequence: true };
        let slow = Hardware::parse("[device.d]\nfresh_write = \"exponential 700 us\"\n", "test").expect("right");
        let slow = Device { fresh_write: slow.devices["d"].fresh_write.clone(), ..plain.device.clone() };
        let seen = show(&slow, plain.costs, &mix).expect("it is described");
        measured.fresh = Some(seen);
        let fitted = fit(&measured, |_, _| ()).expect("it is fitted");
        let shown = fitted.fresh.expect("it was measured");
        let [shown_ns, seen_ns] = [shown, seen].map(|point| point.times[ProbeKind::Durable as usize].mean_ns);
        assert!((shown_ns / seen_ns - 1.0).abs() < 0.05 && seen_ns > 700e3, "{shown_ns} for {seen_ns}");
        assert_eq!(fitted.shown, plain.shown, "what is written is as fast as before");
        assert_eq!(fitted.device.fresh_together, None, "nothing is known of several");

        let stated = Together { count: vec![1, 8], times: vec![1.0, 5.0] };
        let slow = Device { fresh_together: Some(stated), ..slow };
        let mut bench = described(&slow, plain.costs, (FRESH_TOGETHER.size, 8), 3).expect("it is described");
        bench.make_fresh().expect("it has room");
        let mut run = || bench.run(FRESH_TOGETHER, Until::Operations(DESCRIBED)).expect("it runs");
        let fresh = run();
        measured.fresh_together = Some([fresh, fresh]);
        let fitted = fit(&measured, |_, _| ()).expect("it is fitted");
        assert_eq!(fitted.device.fresh_together, None, "they are as fast as others");
        measured.fresh_together = Some([fresh, run()]);
        let fitted = fit(&measured, |_, _| ()).expect("it is fitted");
        let found = fitted.device.fresh_together.expect("they are slower");
        assert!(found.count == [1, 8] && (found.times[1] / 5.0 - 1.0).abs() < 0.15, "{found:?}");
    }
}
