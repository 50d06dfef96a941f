//! A described network on which messages take as long, and cost as much CPU time, as on the measured loopback. It is corrected until
//! the same exchange shows the same, as the description of a device is.

use super::closed_loop::SHARES;
use super::loopback::{ANSWER_MAX, ExchangeMix, Exchanged, LoopbackMeasured, QUESTION, show};
use super::nodes::NodesSeen;
use crate::Failure;
use devices::{Bandwidth, Cpu, Law, Network};

/// A fitted loopback.
#[derive(Clone, Debug)]
pub struct FittedLoopback {
    /// Its description.
    pub network: Network,
    /// What the messages cost.
    pub prices: MessagePrices,
    /// What the description shows of everything that was measured, in the same order.
    pub shown: Vec<Exchanged>,
    /// What it shows of a page server and its nodes.
    pub nodes: Option<NodesSeen>,
}

/// CPU time at each end, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MessagePrices {
    /// Of a message, whatever its length.
    pub message_ns: f64,
    /// Of 256 bytes of it.
    pub piece_ns: f64,
    /// Of going to sleep and waking up by a message.
    pub wake_ns: f64,
}

impl FittedLoopback {
    /// The same where waking up by a message takes this CPU time: a processor that idles less is awake sooner, but messages take as long.
    pub fn waking_in(&self, wake_ns: f64) -> FittedLoopback {
        let longer = self.prices.wake_ns - wake_ns;
        let shifted = |(share, ns): &(f64, u64)| (*share, (*ns as f64 + longer).max(0.0).round() as u64);
        let latency = match &self.network.latency {
            Law::Quantiles(points) => {
                Law::quantiles(points.iter().map(shifted).collect()).expect("as ascending as they were")
            }
            other => other.clone(),
        };
        let network = Network { latency, ..self.network.clone() };
        FittedLoopback { network, prices: MessagePrices { wake_ns, ..self.prices }, ..self.clone() }
    }
}

/// How often the description is corrected, and how many answers of each mix it then gives.
const ROUNDS: usize = 16;
const ANSWERS: u64 = 2_000;
/// A longer time than that of the share before it is that of so few that it stands for their mean.
const TAIL: f64 = (1.0 - SHARES[SHARES.len() - 2]) / 2.0;

/// What is fitted.
#[derive(Clone)]
struct Guess {
    prices: MessagePrices,
    /// Of a message on its way, at [`SHARES`].
    latency_ns: [f64; SHARES.len()],
    /// Of the longest answer, of its transmission.
    transmission_ns: f64,
}

impl Guess {
    fn cpu(&self, of_steps: &Cpu) -> Cpu {
        let mut cpu = of_steps.clone();
        // Each message is a batch of its own here, and its price has that.
        cpu.instructions.network_submission = Some(0);
        cpu.instructions.network_wake_up = Some(self.prices.wake_ns.round() as u64);
        cpu.instructions.network_message = self.prices.message_ns.round() as u64;
        cpu.instructions.network_bytes = self.prices.piece_ns.round() as u64;
        cpu
    }

    fn network(&self) -> Result<Network, Failure> {
        let mut last = 0;
        let points = SHARES.iter().zip(self.latency_ns).map(|(share, ns)| {
            last = last.max(ns.round() as u64);
            (*share, last)
        });
        // A message passes the links of both machines.
        let rate = 2.0 * f64::from(ANSWER_MAX) / (self.transmission_ns / 1e9);
        let bandwidth = (self.transmission_ns >= 1.0).then_some(Bandwidth(rate));
        Ok(Network { latency: Law::quantiles(points.collect())?, bandwidth, packet: ANSWER_MAX, ..Network::no_delay() })
    }

    /// Takes this share of what is missing over into what is fitted.
    fn correct(&mut self, pairs: &Pairs<'_>, taken: f64) {
        let off = |of: &dyn Fn(&Exchanged) -> f64, (measured, shown): (&Exchanged, &Exchanged)| {
            taken * (of(measured) - of(shown))
        };
        // A question and its answer are two messages, and each has two ends.
        let cpu_ns = off(&Exchanged::cpu_ns_each, pairs.short_at_once);
        self.prices.message_ns = (self.prices.message_ns + cpu_ns / 4.0).max(0.0);
        let pieces = 2.0 * f64::from(ANSWER_MAX) / 256.0;
        let longer_ns = off(&Exchanged::cpu_ns_each, pairs.long_at_once) - cpu_ns;
        self.prices.piece_ns = (self.prices.piece_ns + longer_ns / pieces).max(0.0);
        // Both sides sleep for each answer, and hardly do where many are under way.
        let alone_ns = off(&Exchanged::cpu_ns_each, pairs.short_alone) - cpu_ns;
        self.prices.wake_ns = (self.prices.wake_ns + alone_ns / 2.0).max(0.0);
        for (index, ns) in self.latency_ns.iter_mut().enumerate() {
            *ns = (*ns + off(&|seen| seen.times.quantiles_ns[index] as f64, pairs.short_alone) / 2.0).max(0.0);
        }
        let [.., before, longest] = &mut self.latency_ns;
        let mean_ns = off(&|seen| seen.times.mean_ns, pairs.short_alone) / 2.0;
        *longest = before.max(*longest + mean_ns / TAIL);
        let median_ns = |of| off(&|seen| seen.times.p50_ns(), of);
        let longer_ns = median_ns(pairs.long_alone) - median_ns(pairs.short_alone);
        self.transmission_ns = (self.transmission_ns + longer_ns).max(0.0);
    }
}

type ExchangedPair<'a> = (&'a Exchanged, &'a Exchanged);

/// What is measured and shown where it says most.
struct Pairs<'a> {
    short_alone: ExchangedPair<'a>,
    long_alone: ExchangedPair<'a>,
    short_at_once: ExchangedPair<'a>,
    long_at_once: ExchangedPair<'a>,
}

impl<'a> Pairs<'a> {
    /// How far what is shown is from what was measured, in CPU time of each and in the mean time of one alone.
    fn off(&self) -> f64 {
        let share = |of: &dyn Fn(&Exchanged) -> f64, (measured, shown): (&Exchanged, &Exchanged)| {
            (of(shown).max(1.0) / of(measured).max(1.0)).ln().powi(2)
        };
        let all = [self.short_alone, self.long_alone, self.short_at_once, self.long_at_once];
        let cpu = all.map(|pair| share(&Exchanged::cpu_ns_each, pair)).iter().sum::<f64>();
        cpu + share(&|seen| seen.times.mean_ns, self.short_alone)
    }

    fn of(measured: &'a LoopbackMeasured, shown: &'a [Exchanged]) -> Result<Pairs<'a>, Failure> {
        let depth_max = measured.extent.depths.iter().copied().max().unwrap_or(1);
        let find = |size: u32, depth: u32| {
            let place = measured.exchanged.iter().position(|seen| seen.mix == ExchangeMix { size, depth });
            let pair = place.and_then(|place| Some((&measured.exchanged[place], shown.get(place)?)));
            pair.ok_or_else(|| format!("answers of {size} bytes, {depth} at once, were not measured"))
        };
        Ok(Pairs {
            short_alone: find(QUESTION as u32, 1)?,
            long_alone: find(ANSWER_MAX, 1)?,
            short_at_once: find(QUESTION as u32, depth_max)?,
            long_at_once: find(ANSWER_MAX, depth_max)?,
        })
    }
}

/// Fits a description to a loopback. What the engine's steps cost is known; a message is taken from where many are under way, waking up from
/// where one is.
pub fn fit(measured: &LoopbackMeasured, of_steps: &Cpu) -> Result<FittedLoopback, Failure> {
    let mixes = measured.extent.mixes();
    let mut guess = Guess { prices: MessagePrices::default(), latency_ns: [0.0; SHARES.len()], transmission_ns: 0.0 };
    let show = |guess: &Guess, seed| show((&guess.cpu(of_steps), &guess.network()?), &mixes, ANSWERS, seed);
    let mut best = (f64::INFINITY, guess.clone());
    for round in 0..ROUNDS {
        let shown = show(&guess, 1 + round as u64)?;
        let pairs = Pairs::of(measured, &shown)?;
        // A side that waits less sleeps more often, so that a correction may go too far, and the next one back.
        let off = pairs.off();
        if off < best.0 {
            best = (off, guess.clone());
        }
        guess.correct(&pairs, if round < ROUNDS / 2 { 1.0 } else { 0.4 });
    }
    let (_, guess) = best;
    let shown = show(&guess, 99)?;
    Ok(FittedLoopback { network: guess.network()?, prices: guess.prices, shown, nodes: None })
}

#[cfg(test)]
mod tests {
    use super::super::fit::{SystemCosts, cpu};
    use super::super::loopback::LoopbackExtent;
    use super::*;

    #[test]
    fn a_described_loopback_is_found_again() {
        let costs =
            SystemCosts { submission_ns: 900.0, wake_up_ns: 2_500.0, gathering: true, ..SystemCosts::default() };
        let of_steps = cpu(costs);
        let mut cpu = of_steps.clone();
        (cpu.instructions.network_submission, cpu.instructions.network_wake_up) = (Some(0), Some(5_700));
        (cpu.instructions.network_message, cpu.instructions.network_bytes) = (1_800, 25);
        let latency = Law::quantiles(vec![(0.0, 4_000), (0.5, 7_000), (0.95, 9_000), (1.0, 30_000)]).expect("a law");
        let network = Network { latency, bandwidth: Some(Bandwidth(8e9)), packet: ANSWER_MAX, ..Network::no_delay() };
        let extent = LoopbackExtent::quick();
        let exchanged = show((&cpu, &network), &extent.mixes(), 4_000, 5).expect("it is described");
        let measured = LoopbackMeasured { extent, exchanged, nodes: None };
        let fitted = fit(&measured, &of_steps).expect("it is fitted");
        let near = |found: f64, stated: f64, share: f64| (found / stated - 1.0).abs() < share;
        assert!(near(fitted.prices.message_ns, 1_800.0, 0.05), "{:?}", fitted.prices);
        assert!(near(fitted.prices.piece_ns, 25.0, 0.1), "{:?}", fitted.prices);
        assert!(near(fitted.prices.wake_ns, 5_700.0, 0.1), "{:?}", fitted.prices);
        assert!(near(fitted.network.latency.mean_ns(), network.latency.mean_ns(), 0.05), "{:?}", fitted.network);
        assert!(near(fitted.network.bandwidth.expect("it is found").0, 8e9, 0.1), "{:?}", fitted.network);
        for (measured, shown) in measured.exchanged.iter().zip(&fitted.shown) {
            assert!(near(shown.times.mean_ns, measured.times.mean_ns, 0.05), "{measured:?} {shown:?}");
            assert!(near(shown.cpu_ns_each(), measured.cpu_ns_each(), 0.05), "{measured:?} {shown:?}");
        }
    }

    #[test]
    fn who_wakes_up_sooner_gets_messages_as_late() {
        let latency = Law::quantiles(vec![(0.0, 4_000), (0.5, 7_000), (1.0, 30_000)]).expect("a law");
        let network = Network { latency, ..Network::no_delay() };
        let prices = MessagePrices { wake_ns: 5_000.0, ..MessagePrices::default() };
        let fitted = FittedLoopback { network, prices, shown: Vec::new(), nodes: None };
        let quantiles = |wake_ns| match fitted.waking_in(wake_ns).network.latency {
            Law::Quantiles(points) => points.iter().map(|(_, ns)| *ns).collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        };
        assert_eq!(quantiles(3_500.0), [5_500, 8_500, 31_500]);
        assert_eq!(quantiles(10_000.0), [0, 2_000, 25_000]);
    }

    #[test]
    fn what_was_not_measured_is_named() {
        let measured = LoopbackMeasured { extent: LoopbackExtent::quick(), exchanged: Vec::new(), nodes: None };
        let refused = fit(&measured, &cpu(SystemCosts::default())).expect_err("nothing is known");
        assert!(refused.to_string().contains("64 bytes, 1 at once"), "{refused}");
    }
}
