//! What writes to places that were never written take longer than those over written data.

use super::closed_loop::{Mix, ProbeKind, ProbePoint, SHARES};
use super::device::DeviceMeasured;
use super::fit::{SystemCosts, described, until};
use crate::Failure;
use devices::{Device, Law};

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
    }
}
